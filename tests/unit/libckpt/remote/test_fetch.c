/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fetch.c: checks the requests for parts of files: which headers they carry, which answers are
 * accepted, and which are tried again.
 */
#include "tests/unit/libckpt/remote/help.h"

static const char tag[] = "\"v1\"";
static const ckpt_fetch_key key = {.header = {"Authorization: Bearer secret"},
                                   .sign = "aws:amz:us-east-1:s3",
                                   .user = "ID:SECRET",
                                   .help = "set a key"};
static ckpt_fetch_seen seen;
static ckpt_err err;
static char buf[64];
static uint64_t got;

/* Ask for n bytes at an offset of a file, which the given answers serve. */
static int range(const wire_answer *answer, size_t n_answers, uint64_t n, uint64_t at)
{
    const ckpt_fetch_from from = {
        .name = "file", .url = "https://h.x/f", .direct = seen.direct, .key = &key};

    wire_expect(answer, n_answers);
    err = (ckpt_err){0};
    got = 99;
    memset(buf, 0, sizeof buf);
    ckpt_fetch_part part = {.buf = buf, .n = n, .at = at, .got = got};
    int rc = ckpt_fetch_range(&from, &part, &seen, &err);

    got = part.got;
    return rc;
}

/* A part of a file, with its version. */
#define PART(text, of)                                                                             \
    {                                                                                              \
        .status = 206, .body = (text), .name = {"Content-Range", "ETag"}, .value = {(of), tag }    \
    }

static void refuses(const wire_answer *answer, int code, const char *why)
{
    seen = (ckpt_fetch_seen){0};
    assert_int_equal(range(answer, 1, 4, 10), code);
    if (!strstr(err.text, why))
        fail_msg("'%s' lacks '%s'", err.text, why);
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' lacks '%s'", text, part);
}

static void test_part(void **state)
{
    const wire_answer first[] = {PART("0123", "bytes 0-3/20")};
    const wire_answer next[] = {PART("abcd", "bytes  10-13/20")};
    const wire_answer end[] = {PART("yz", "BYTES 18-19/20")};

    (void)state;
    assert_int_equal(range(first, 1, 4, 0), CKPT_OK);
    assert_int_equal(got, 4);
    assert_string_equal(buf, "0123");
    assert_true(seen.known);
    assert_int_equal(seen.total, 20);
    assert_string_equal(seen.etag, tag);
    assert_string_equal(wire_it.asked[0].url, "https://h.x/f");
    has(wire_it.asked[0].headers, "Range: bytes=0-3\n");
    has(wire_it.asked[0].headers, "Authorization: Bearer secret\n");
    has(wire_it.asked[0].headers, "Accept-Encoding: identity\n");
    assert_string_equal(wire_it.asked[0].sign, key.sign);
    assert_string_equal(wire_it.asked[0].user, key.user);
    assert_null(strstr(wire_it.asked[0].headers, "If-Match"));
    // later requests are for this version
    assert_int_equal(range(next, 1, 4, 10), CKPT_OK);
    has(wire_it.asked[0].headers, "If-Match: \"v1\"\n");
    assert_string_equal(buf, "abcd");
    // the file ends inside the range
    assert_int_equal(range(end, 1, 8, 18), CKPT_OK);
    assert_int_equal(got, 2);
}

static void test_whole(void **state)
{
    const wire_answer small[] = {
        {.status = 200, .body = "abc", .name = {"Content-Length"}, .value = {"3"}}};
    const wire_answer large = {
        .status = 200, .body = "abcdefgh", .name = {"Content-Length"}, .value = {"8"}};
    const wire_answer unknown = {.status = 200, .body = "abc"};
    const wire_answer empty[] = {
        {.status = 416, .name = {"Content-Range"}, .value = {"bytes */0"}}};

    (void)state;
    // servers without ranges serve a small file as a whole
    assert_int_equal(range(small, 1, 4, 0), CKPT_OK);
    assert_int_equal(got, 3);
    assert_int_equal(seen.total, 3);
    refuses(&large, CKPT_EUNSUPPORTED, "whole files only");
    refuses(&unknown, CKPT_EUNSUPPORTED, "whole files only");
    seen = (ckpt_fetch_seen){0};
    assert_int_equal(range(empty, 1, 4, 0), CKPT_OK);
    assert_int_equal(got, 0);
    assert_int_equal(seen.total, 0);
}

static void test_wrong_ranges(void **state)
{
    static const char *const bad[] = {
        "bytes 10-13",    "bytes 10-13/",    "bytes 10-13/x",
        "bytes 13-10/20", "bytes 10-13/13",  "10-13/20",
        "bytes -13/20",   "bytes 10-13/20 ", "bytes 10-13/1234567890123456789",
        "bytes */20",     "bytes 10-13/*"};
    static const char *const other[] = {"bytes 10-12/20", "bytes 10-14/20", "bytes 9-13/20",
                                        "bytes 0-3/20", "bytes 10-13/30"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const wire_answer a = PART("abcd", bad[i]);
        refuses(&a, CKPT_EUNSUPPORTED, "without a valid Content-Range");
    }
    for (size_t i = 0; i + 1 < sizeof other / sizeof *other; i++) {
        const wire_answer a = PART("abcd", other[i]);
        refuses(&a, CKPT_EIO, "requested bytes 10 to 13");
    }
    // the right bytes, but of a file of another size
    const wire_answer first[] = {PART("0123", "bytes 0-3/20")};
    const wire_answer longer[] = {PART("abcd", other[4])};
    seen = (ckpt_fetch_seen){0};
    assert_int_equal(range(first, 1, 4, 0), CKPT_OK);
    assert_int_equal(range(longer, 1, 4, 10), CKPT_EIO);
    has(err.text, "changed while being read");
}

static void test_wrong_bodies(void **state)
{
    const wire_answer more = PART("abcde", "bytes 10-13/20");
    const wire_answer length = {.status = 206,
                                .body = "abcd",
                                .name = {"Content-Range", "Content-Length"},
                                .value = {"bytes 10-13/20", "5"}};
    const wire_answer gzip = {.status = 206,
                              .body = "abcd",
                              .name = {"Content-Range", "Content-Encoding"},
                              .value = {"bytes 10-13/20", "gzip"}};
    const wire_answer parts = {.status = 206,
                               .body = "abcd",
                               .name = {"Content-Type", "Content-Range"},
                               .value = {"multipart/byteranges; boundary=x", "bytes 10-13/20"}};

    (void)state;
    refuses(&more, CKPT_EIO, "more bytes than it said");
    refuses(&length, CKPT_EIO, "announces 5 bytes for a range of 4");
    refuses(&gzip, CKPT_EUNSUPPORTED, "encoded");
    refuses(&parts, CKPT_EUNSUPPORTED, "without a valid Content-Range");
}

static void test_refusals(void **state)
{
    const wire_answer missing = {.status = 404, .body = "no\r\n  such  file"};
    const wire_answer gone = {.status = 410};
    const wire_answer forbidden = {.status = 403};
    const wire_answer changed = {.status = 412};
    const wire_answer odd = {.status = 418, .body = "teapot"};

    (void)state;
    refuses(&missing, CKPT_EMISSING, "file");
    refuses(&gone, CKPT_EMISSING, "file");
    refuses(&forbidden, CKPT_EIO, "set a key");
    assert_null(strstr(err.text, "secret"));
    refuses(&changed, CKPT_EIO, "changed while being read");
    refuses(&odd, CKPT_EIO, "418");
}

/* ---- changes of the file ---- */

/* Read the first bytes, then others from an answer with these two headers. */
static int later(const wire_answer *first, const wire_answer *then)
{
    seen = (ckpt_fetch_seen){0};
    assert_int_equal(range(first, 1, 4, 0), CKPT_OK);
    return range(then, 1, 4, 10);
}

static void test_changes(void **state)
{
    const wire_answer strong = PART("0123", "bytes 0-3/20");
    const wire_answer other = {.status = 206,
                               .body = "abcd",
                               .name = {"Content-Range", "ETag"},
                               .value = {"bytes 10-13/20", "\"v2\""}};
    const wire_answer none = {
        .status = 206, .body = "abcd", .name = {"Content-Range"}, .value = {"bytes 10-13/20"}};
    const wire_answer weak = {.status = 206,
                              .body = "0123",
                              .name = {"Content-Range", "ETag"},
                              .value = {"bytes 0-3/20", "W/\"v1\""}};
    const wire_answer weak_later = {.status = 206,
                                    .body = "abcd",
                                    .name = {"Content-Range", "ETag"},
                                    .value = {"bytes 10-13/20", "W/\"v1\""}};
    const wire_answer dated = {.status = 206,
                               .body = "0123",
                               .name = {"Content-Range", "Last-Modified"},
                               .value = {"bytes 0-3/20", "Mon"}};
    const wire_answer dated_later = {.status = 206,
                                     .body = "abcd",
                                     .name = {"Content-Range", "Last-Modified"},
                                     .value = {"bytes 10-13/20", "Tue"}};

    (void)state;
    assert_int_equal(later(&strong, &other), CKPT_EIO);
    has(err.text, "changed while being read");
    assert_int_equal(later(&strong, &none), CKPT_EIO);
    // If-Match never holds for a weak ETag, so the request must not have it
    assert_int_equal(later(&weak, &weak_later), CKPT_OK);
    assert_null(strstr(wire_it.asked[0].headers, "If-Match"));
    assert_int_equal(later(&weak, &other), CKPT_EIO);
    assert_int_equal(later(&dated, &dated_later), CKPT_EIO);
}

/* ---- tries and redirects ---- */

static void test_tries(void **state)
{
    const wire_answer cut[] = {{.status = 206,
                                .body = "ab",
                                .cut = true,
                                .name = {"Content-Range", "ETag"},
                                .value = {"bytes 10-13/20", tag}},
                               PART("cd", "bytes 12-13/20")};
    const wire_answer busy[] = {{.status = 503}, PART("abcd", "bytes 10-13/20")};
    const wire_answer never[] = {{0}, {0}};
    const wire_answer patient[] = {{.status = 429, .name = {"Retry-After"}, .value = {"86400"}}};

    (void)state;
    assert_int_equal(range(cut, 2, 4, 10), CKPT_OK);
    assert_string_equal(buf, "abcd");
    has(wire_it.asked[1].headers, "Range: bytes=12-13\n"); // only the rest
    seen = (ckpt_fetch_seen){0};
    assert_int_equal(range(busy, 2, 4, 10), CKPT_OK);
    assert_int_equal(range(never, 2, 4, 10), CKPT_EIO);
    has(err.text, "the connection was cut; 2 tries");
    assert_int_equal(range(patient, 1, 4, 10), CKPT_EIO);
    has(err.text, "asks to wait for 86400 s");
}

static void test_redirects(void **state)
{
    const wire_answer away[] = {{.status = 302, .next = "https://cdn.x/f?sig=1"},
                                PART("0123", "bytes 0-3/20")};
    const wire_answer direct[] = {PART("abcd", "bytes 10-13/20")};
    const wire_answer expired[] = {{.status = 403},
                                   {.status = 302, .next = "https://cdn.x/f?sig=2"},
                                   PART("abcd", "bytes 10-13/20")};
    const wire_answer inside[] = {{.status = 307, .next = "https://H.X/g"},
                                  PART("0123", "bytes 0-3/20")};
    const wire_answer plain = {.status = 302, .next = "http://h.x/f"};

    (void)state;
    assert_int_equal(range(away, 2, 4, 0), CKPT_OK);
    assert_string_equal(wire_it.asked[1].url, "https://cdn.x/f?sig=1");
    assert_null(strstr(wire_it.asked[1].headers, "secret")); // the key is for the first host only
    assert_string_equal(wire_it.asked[1].user, "");
    assert_string_equal(wire_it.asked[1].sign, "");
    // the next request goes to the target at once, and to the address again when that has expired
    assert_int_equal(range(direct, 1, 4, 10), CKPT_OK);
    assert_string_equal(wire_it.asked[0].url, "https://cdn.x/f?sig=1");
    assert_null(strstr(wire_it.asked[0].headers, "secret"));
    assert_int_equal(range(expired, 3, 4, 10), CKPT_OK);
    has(wire_it.asked[1].headers, "secret");
    assert_string_equal(wire_it.asked[2].url, "https://cdn.x/f?sig=2");
    seen = (ckpt_fetch_seen){0};
    assert_int_equal(range(inside, 2, 4, 0), CKPT_OK);
    has(wire_it.asked[1].headers, "secret"); // the host is the same
    refuses(&plain, CKPT_EUNSAFE, "redirects from https to http://h.x/f");
}

static void test_redirect_loop(void **state)
{
    wire_answer loop[WIRE_LOG];

    (void)state;
    for (size_t i = 0; i < WIRE_LOG; i++)
        loop[i] = (wire_answer){.status = 302, .next = "https://h.x/f"};
    assert_int_equal(range(loop, WIRE_LOG, 4, 0), CKPT_EIO);
    has(err.text, "redirects");
}

/* A chain that left the first host and came back to it gets no key. */
static void test_redirect_back(void **state)
{
    const wire_answer back[] = {{.status = 302, .next = "https://evil.x/"},
                                {.status = 302, .next = "https://h.x/admin"},
                                PART("0123", "bytes 0-3/20")};

    (void)state;
    assert_int_equal(range(back, 3, 4, 0), CKPT_OK);
    assert_null(strstr(wire_it.asked[2].headers, "secret"));
    assert_string_equal(seen.direct, "");
}

/* ---- complete answers ---- */

static int all(const wire_answer *answer, size_t n, uint64_t max, char *next)
{
    const ckpt_fetch_from from = {.name = "list", .url = "https://h.x/l", .key = &key};
    ckpt_bytes out = {0};
    int rc;

    wire_expect(answer, n);
    err = (ckpt_err){0};
    memset(buf, 0, sizeof buf);
    rc = ckpt_fetch_all(&from, &out, max, next, &err);
    got = out.n;
    if (out.n)
        memcpy(buf, out.at, out.n < sizeof buf ? out.n : sizeof buf - 1);
    ckpt_vec_free(&out);
    return rc;
}

static void test_all(void **state)
{
    const wire_answer page[] = {
        {.status = 200,
         .body = "page",
         .name = {"Link"},
         .value = {"<https://h.x/l?p=1>; rel=\"prev\", <https://h.x/l?a,b>; rel=\"next\""}}};
    const wire_answer cut[] = {{.status = 200, .body = "pa", .cut = true},
                               {.status = 200, .body = "page"}};
    const wire_answer part[] = {
        {.status = 206, .body = "page", .name = {"Content-Range"}, .value = {"bytes 0-3/20"}}};
    const wire_answer announced[] = {
        {.status = 200, .body = "page", .name = {"Content-Length"}, .value = {"4"}}};
    char next[CKPT_FETCH_URL] = "";

    (void)state;
    assert_int_equal(all(page, 1, 4, next), CKPT_OK);
    assert_string_equal(buf, "page");
    assert_string_equal(next, "https://h.x/l?a,b");
    assert_null(strstr(wire_it.asked[0].headers, "Range"));
    // the second try begins anew
    assert_int_equal(all(cut, 2, 4, next), CKPT_OK);
    assert_string_equal(buf, "page");
    assert_string_equal(next, "");
    assert_int_equal(all(page, 1, 3, NULL), CKPT_ELIMIT);
    assert_int_equal(all(announced, 1, 3, NULL), CKPT_ELIMIT);
    assert_int_equal(all(part, 1, 9, NULL), CKPT_EIO);
}

/* ---- settings ---- */

static void test_settings(void **state)
{
    static const char *const bad[] = {"-1", "x", "1.5", "3601", "99999999999999999999", " ", "0"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(setenv("CKPT_REMOTE_TIMEOUT", bad[i], 1), 0);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_fetch_begin(&err), CKPT_EUSAGE);
        has(err.text, "CKPT_REMOTE_TIMEOUT");
    }
    assert_int_equal(setenv("CKPT_REMOTE_TIMEOUT", "3600", 1), 0);
    assert_int_equal(setenv("CKPT_REMOTE_RETRIES", "101", 1), 0);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_fetch_begin(&err), CKPT_EUSAGE);
    assert_int_equal(setenv("CKPT_REMOTE_RETRIES", "0", 1), 0);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_fetch_begin(&err), CKPT_OK);
    assert_int_equal(ckpt_fetch_retries(), 0);
    assert_int_equal(ckpt_fetch_stall(), 3600);
    assert_int_equal(ckpt_fetch_budget(), INT64_C(3600) * 20 * 1000);
}

static int begin(void **state)
{
    (void)state;
    seen = (ckpt_fetch_seen){0};
    err = (ckpt_err){0};
    assert_int_equal(setenv("CKPT_REMOTE_RETRIES", "1", 1), 0);
    (void)unsetenv("CKPT_REMOTE_TIMEOUT");
    return ckpt_fetch_begin(&err);
}

#define TEST(f) cmocka_unit_test_setup(f, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_part),          TEST(test_whole),     TEST(test_wrong_ranges),
        TEST(test_wrong_bodies),  TEST(test_refusals),  TEST(test_changes),
        TEST(test_tries),         TEST(test_redirects), TEST(test_redirect_loop),
        TEST(test_redirect_back), TEST(test_all),       TEST(test_settings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
