/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_site.c: checks how addresses become sites and URLs, which settings of the environment they
 * use, and which names a site lists and finds.
 */
#include "tests/unit/libckpt/remote/help.h"

static ckpt_site site;
static ckpt_err err;
static bool is_dir;

/* Cut an address, and give the URL of one of its files. */
static const char *url_of(const ckpt_site_kind *kind, const char *address, const char *name)
{
    static char text[CKPT_FETCH_URL];
    ckpt_bytes url = {0};

    site_end(&site);
    if (site_begin(&site, kind, address, &is_dir, &err) != CKPT_OK)
        fail_msg("%s: %s", address, err.text);
    assert_int_equal(kind->url(&site, name, &url, &err), CKPT_OK);
    assert_true(url.n < sizeof text);
    memcpy(text, url.at, url.n);
    text[url.n] = 0;
    ckpt_vec_free(&url);
    return text;
}

static void refuses(const ckpt_site_kind *kind, const char *address, const char *why)
{
    site_end(&site);
    assert_int_equal(site_begin(&site, kind, address, &is_dir, &err), CKPT_EUSAGE);
    if (!strstr(err.text, why))
        fail_msg("%s: '%s' lacks '%s'", address, err.text, why);
}

/* ---- URLs ---- */

static void test_quoting(void **state)
{
    ckpt_bytes out = {0};
    char all[256], *end = all;

    (void)state;
    assert_true(ckpt_url_quote(&out, "az/AZ.09-_~"));
    assert_int_equal(out.n, 11);
    assert_memory_equal(out.at, "az/AZ.09-_~", 11);
    out.n = 0;
    assert_true(ckpt_url_quote(&out, " %+?#&=\xc3\xa9\x7f") && ckpt_bytes_add(&out, "", 1));
    assert_string_equal((const char *)out.at, "%20%25%2B%3F%23%26%3D%C3%A9%7F");
    // every byte but those of the line above is quoted
    for (int c = 1; c < 256; c++)
        *end++ = (char)c;
    *end = 0;
    out.n = 0;
    assert_true(ckpt_url_quote(&out, all));
    assert_int_equal(out.n, 3 * (255 - 67) + 67);
    ckpt_vec_free(&out);
}

static void test_files(void **state)
{
    static const char *const files[] = {"a.safetensors", "x/B.GGUF", "m.pt",       "m.distcp",
                                        "a/b?x=1",       "b.tar",    "c.ckpt",     "m.npz",
                                        "m.npy",         "m.json",   "pytorch.bin"};
    static const char *const others[] = {"", "a", ".pt", "a.ptx", "model.safetensors/", "a.tar.gz"};

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_true(ckpt_site_is_file(files[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(ckpt_site_is_file(others[i]));
}

static void test_origins(void **state)
{
    (void)state;
    assert_true(ckpt_fetch_same_origin("https://a.b/x", "HTTPS://A.B/y?z#w"));
    assert_true(ckpt_fetch_same_origin("https://a.b", "https://a.b?x"));
    assert_true(ckpt_fetch_same_origin("https://a.b#x", "https://a.b/"));
    assert_false(ckpt_fetch_same_origin("https://a.b", "https://a.bc"));
    assert_false(ckpt_fetch_same_origin("https://a.bc", "https://a.b"));
    assert_false(ckpt_fetch_same_origin("https://a.b", "http://a.b"));
    assert_false(ckpt_fetch_same_origin("https://a.b", "https://a.b:444"));
    assert_false(ckpt_fetch_same_origin("https://a.b", "https://a.b@c/"));
    assert_false(ckpt_fetch_same_origin("a.b", "a.b")); // no URLs
    assert_false(ckpt_fetch_same_origin("", ""));
}

/* ---- s3 ---- */

static void test_s3_urls(void **state)
{
    (void)state;
    assert_string_equal(url_of(&ckpt_site_s3, "s3://bucket/run/7", "a b+c.pt"),
                        "https://bucket.s3.us-east-1.amazonaws.com/run/7/a%20b%2Bc.pt");
    assert_true(is_dir);
    assert_string_equal(site.root, "s3://bucket/run/7");
    assert_string_equal(site.more, "run/7/");
    assert_null(site.key.sign);
    assert_null(site.key.header[1]); // anonymous requests are not signed
    assert_string_equal(url_of(&ckpt_site_s3, "s3://bucket", "x"),
                        "https://bucket.s3.us-east-1.amazonaws.com/x");
    assert_string_equal(site.more, "");
    assert_string_equal(url_of(&ckpt_site_s3, "s3://bucket/run/", "x"),
                        "https://bucket.s3.us-east-1.amazonaws.com/run/x");
    // a file: the site is its folder
    assert_string_equal(url_of(&ckpt_site_s3, "s3://bucket/run/m.pt", "m.pt"),
                        "https://bucket.s3.us-east-1.amazonaws.com/run/m.pt");
    assert_false(is_dir);
    assert_string_equal(site.root, "s3://bucket/run");
    assert_string_equal(url_of(&ckpt_site_s3, "s3://bucket/m.pt", "m.pt"),
                        "https://bucket.s3.us-east-1.amazonaws.com/m.pt");
    assert_string_equal(site.root, "s3://bucket");
    // Amazon's certificates do not cover a bucket with a dot as a host name
    assert_string_equal(url_of(&ckpt_site_s3, "s3://my.bucket/r", "x"),
                        "https://s3.us-east-1.amazonaws.com/my.bucket/r/x");
}

static void test_s3_refused(void **state)
{
    static const char long_name[] =
        "s3://0123456789012345678901234567890123456789012345678901234567890123/x";

    (void)state;
    refuses(&ckpt_site_s3, "s3://", "expected s3://BUCKET/PREFIX");
    refuses(&ckpt_site_s3, "s3:///x", "expected s3://BUCKET/PREFIX");
    refuses(&ckpt_site_s3, "s3://Bucket/x", "expected s3://BUCKET/PREFIX");
    refuses(&ckpt_site_s3, "s3://b@c/x", "expected s3://BUCKET/PREFIX");
    refuses(&ckpt_site_s3, "s3://b:80/x", "expected s3://BUCKET/PREFIX");
    refuses(&ckpt_site_s3, "s3://b/x//y", "expected s3://BUCKET/PREFIX");
    refuses(&ckpt_site_s3, long_name, "expected s3://BUCKET/PREFIX");
}

static void test_s3_settings(void **state)
{
    (void)state;
    assert_int_equal(setenv("AWS_DEFAULT_REGION", "eu-west-1", 1), 0);
    assert_string_equal(url_of(&ckpt_site_s3, "s3://b/r", "x"),
                        "https://b.s3.eu-west-1.amazonaws.com/r/x");
    assert_int_equal(setenv("AWS_REGION", "us-gov-east-1", 1), 0);
    assert_string_equal(url_of(&ckpt_site_s3, "s3://b/r", "x"),
                        "https://b.s3.us-gov-east-1.amazonaws.com/r/x");
    assert_int_equal(setenv("AWS_REGION", "eu.evil.com/", 1), 0);
    refuses(&ckpt_site_s3, "s3://b/r", "which is not a region");
    assert_int_equal(setenv("AWS_REGION", "", 1), 0); // an empty variable counts as unset
    assert_int_equal(setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000//", 1), 0);
    assert_string_equal(url_of(&ckpt_site_s3, "s3://b/r", "x"), "http://127.0.0.1:9000/b/r/x");
    assert_int_equal(setenv("AWS_ENDPOINT_URL_S3", "https://s3.example", 1), 0);
    assert_string_equal(url_of(&ckpt_site_s3, "s3://b/r", "x"), "https://s3.example/b/r/x");
    assert_int_equal(setenv("AWS_ENDPOINT_URL_S3", "s3.example", 1), 0);
    refuses(&ckpt_site_s3, "s3://b/r", "which is not a URL");
}

static void test_s3_keys(void **state)
{
    (void)state;
    assert_int_equal(setenv("AWS_ACCESS_KEY_ID", "ID", 1), 0);
    refuses(&ckpt_site_s3, "s3://b/r", "set both or neither");
    assert_int_equal(setenv("AWS_SECRET_ACCESS_KEY", "se:c/ret", 1), 0);
    (void)url_of(&ckpt_site_s3, "s3://b/r", "x");
    assert_string_equal(site.key.sign, "aws:amz:us-east-1:s3");
    assert_string_equal(site.key.user, "ID:se:c/ret");
    assert_null(site.key.header[0]);
    // S3 refuses a signed request without the hash of its body
    assert_non_null(site.key.header[1]);
    assert_string_equal(site.key.header[1],
                        "x-amz-content-sha256: "
                        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_int_equal(setenv("AWS_SESSION_TOKEN", "tok", 1), 0);
    (void)url_of(&ckpt_site_s3, "s3://b/r", "x");
    assert_string_equal(site.key.header[0], "x-amz-security-token: tok");
    // a line break would add a header
    assert_int_equal(setenv("AWS_SESSION_TOKEN", "tok\r\nHost: evil", 1), 0);
    refuses(&ckpt_site_s3, "s3://b/r", "odd characters");
    (void)unsetenv("AWS_SESSION_TOKEN");
    assert_int_equal(setenv("AWS_ACCESS_KEY_ID", "I:D", 1), 0);
    refuses(&ckpt_site_s3, "s3://b/r", "odd characters");
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    refuses(&ckpt_site_s3, "s3://b/r", "set both or neither");
}

/* ---- hf ---- */

static void test_hf(void **state)
{
    (void)state;
    assert_string_equal(url_of(&ckpt_site_hf, "hf://owner/na.me-1_x", "a b.json"),
                        "https://huggingface.co/owner/na.me-1_x/resolve/main/a%20b.json");
    assert_true(is_dir);
    assert_string_equal(url_of(&ckpt_site_hf, "hf://gpt2", "m"),
                        "https://huggingface.co/gpt2/resolve/main/m");
    assert_string_equal(url_of(&ckpt_site_hf, "hf://o/n@v1.0/sub/m.pt", "sub/m.pt"),
                        "https://huggingface.co/o/n/resolve/v1.0/sub/m.pt");
    assert_false(is_dir);
    assert_string_equal(site.root, "hf://o/n@v1.0");
    refuses(&ckpt_site_hf, "hf://", "expected hf://");
    refuses(&ckpt_site_hf, "hf://o/", "expected hf://");
    refuses(&ckpt_site_hf, "hf:///n", "expected hf://");
    refuses(&ckpt_site_hf, "hf://../n", "expected hf://");
    refuses(&ckpt_site_hf, "hf://o/..", "expected hf://");
    refuses(&ckpt_site_hf, "hf://o/n@", "expected hf://");
    refuses(&ckpt_site_hf, "hf://o@v/n", "expected hf://");
    refuses(&ckpt_site_hf, "hf://o/n@../x", "expected hf://");
    refuses(&ckpt_site_hf, "hf://o/n?x", "expected hf://");
}

static void test_hf_settings(void **state)
{
    (void)state;
    assert_int_equal(setenv("HF_TOKEN", " hf_abc\n", 1), 0); // blanks around it are dropped
    assert_int_equal(setenv("HF_ENDPOINT", "http://127.0.0.1:8/", 1), 0);
    assert_string_equal(url_of(&ckpt_site_hf, "hf://o/n", "m"),
                        "http://127.0.0.1:8/o/n/resolve/main/m");
    assert_string_equal(site.key.header[0], "Authorization: Bearer hf_abc");
    assert_int_equal(setenv("HF_TOKEN", "hf_\x01", 1), 0);
    refuses(&ckpt_site_hf, "hf://o/n", "control characters");
    assert_int_equal(setenv("HF_TOKEN", "hf_\xc3\xa9", 1), 0);
    refuses(&ckpt_site_hf, "hf://o/n", "outside of ASCII");
    (void)unsetenv("HF_TOKEN");
    assert_int_equal(setenv("HF_ENDPOINT", "ftp://x", 1), 0);
    refuses(&ckpt_site_hf, "hf://o/n", "which is not a URL");
}

/* ---- http ---- */

static void test_http(void **state)
{
    (void)state;
    assert_string_equal(url_of(&ckpt_site_https, "https://h.x/a/", "m.pt"), "https://h.x/a/m.pt");
    assert_true(is_dir);
    assert_string_equal(url_of(&ckpt_site_https, "https://h.x", "m"), "https://h.x/m");
    (void)url_of(&ckpt_site_https, "https://h.x/a/m.pt?sig=1/2", "m.pt");
    assert_false(is_dir);
    assert_string_equal(site.root, "https://h.x/a");
    assert_string_equal(site.given_url, "https://h.x/a/m.pt?sig=1/2");
    assert_string_equal(site.given_name, "m.pt?sig=1/2");
    assert_true(site.alone); // the signature is of this one file
    (void)url_of(&ckpt_site_https, "https://h.x/a/m.pt", "m.pt");
    assert_false(site.alone);
    refuses(&ckpt_site_https, "https:///a", "has no host");
    refuses(&ckpt_site_https, "https://?a", "has no host");
    refuses(&ckpt_site_https, "https://me:secret@h.x/a", "CKPT_HTTP_HEADER");
    assert_null(strstr(err.text, "secret"));
    refuses(&ckpt_site_https, "https://h.x/a#b", "not allowed here");
    refuses(&ckpt_site_https, "https://h.x/a b", "not allowed here");
    refuses(&ckpt_site_https, "https://h.x/a\\b", "not allowed here");
    refuses(&ckpt_site_https, "https://h.x/\"", "not allowed here");
}

/* The first address belongs to a header that names no host; other hosts never receive it. */
static void test_http_headers(void **state)
{
    (void)state;
    assert_int_equal(setenv("CKPT_HTTP_HEADER", "X-Key: 1", 1), 0);
    (void)url_of(&ckpt_site_https, "https://first.x/a", "m");
    assert_string_equal(site.key.header[0], "X-Key: 1");
    (void)url_of(&ckpt_site_https, "https://other.x/a", "m");
    assert_null(site.key.header[0]); // another host
    (void)url_of(&ckpt_site_http, "http://first.x/a", "m");
    assert_null(site.key.header[0]); // not encrypted
    assert_int_equal(setenv("CKPT_HTTP_HEADER", "https://other.x  X-Key: 2", 1), 0);
    (void)url_of(&ckpt_site_https, "https://other.x/a", "m");
    assert_string_equal(site.key.header[0], "X-Key: 2");
    (void)url_of(&ckpt_site_https, "https://first.x/a", "m");
    assert_null(site.key.header[0]);
    assert_int_equal(setenv("CKPT_HTTP_HEADER", "no colon", 1), 0);
    refuses(&ckpt_site_https, "https://first.x/a", "is not a line");
    assert_int_equal(setenv("CKPT_HTTP_HEADER", "X: 1\r\nY: 2", 1), 0);
    refuses(&ckpt_site_https, "https://first.x/a", "is not a line");
    assert_int_equal(setenv("CKPT_HTTP_HEADER", "X Y: 2", 1), 0);
    refuses(&ckpt_site_https, "https://first.x/a", "is not a line");
}

/* ---- names ---- */

static int list_nothing(ckpt_site *s, ckpt_err *e)
{
    (void)s;
    (void)e;
    return CKPT_OK;
}

static void test_names(void **state)
{
    static const char *const good[] = {"b/x", "a", "b/y/z", "b.c", "b", "b0", "a/\xc3\xa9"};
    static const char *const bad[] = {"",     "/a",   "a/",  "a//b",  ".",     "..",
                                      "a/..", "../a", "a\n", "a\x7f", "a/\xff"};
    const ckpt_site_kind kind = {.list = list_nothing};
    size_t first = 99;
    char name[CKPT_SITE_NAME + 2];

    (void)state;
    site_end(&site);
    site = (ckpt_site){.kind = &kind, .arena = ckpt_arena_new(0), .root = "r"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(ckpt_site_add(&site, good[i], i, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (ckpt_err){0};
        assert_int_equal(ckpt_site_add(&site, bad[i], 0, &err), CKPT_EUNSAFE);
    }
    memset(name, 'n', sizeof name);
    for (size_t i = 199; i < sizeof name; i += 200)
        name[i] = '/'; // a part of a path has a limit of its own
    name[CKPT_SITE_NAME + 1] = 0;
    err = (ckpt_err){0};
    assert_int_equal(ckpt_site_add(&site, name, 0, &err), CKPT_EUNSAFE);
    name[CKPT_SITE_NAME] = 0;
    err = (ckpt_err){0};
    assert_int_equal(ckpt_site_add(&site, name, 0, &err), CKPT_OK);
    assert_int_equal(ckpt_site_list(&site, &err), CKPT_OK); // sorts
    assert_int_equal(ckpt_site_find(&site, "b/y/z")->size, 2);
    assert_null(ckpt_site_find(&site, "b/y"));
    assert_int_equal(ckpt_site_range(&site, "", &first), 8);
    assert_int_equal(first, 0);
    // '.' and '0' come before and after '/': the range has neither "b.c" nor "b0"
    assert_int_equal(ckpt_site_range(&site, "b", &first), 2);
    assert_string_equal(site.files.at[first].name, "b/x");
    assert_string_equal(site.files.at[first + 1].name, "b/y/z");
    assert_int_equal(ckpt_site_range(&site, "b/y", &first), 1);
    assert_int_equal(ckpt_site_range(&site, "c", &first), 0);
}

static void test_too_many(void **state)
{
    (void)state;
    site_end(&site);
    site = (ckpt_site){.arena = ckpt_arena_new(0), .root = "r", .n_entries = CKPT_SITE_FILES - 2};
    err = (ckpt_err){0};
    assert_int_equal(ckpt_site_count(&site, &err), CKPT_OK);
    assert_int_equal(ckpt_site_add(&site, "a", 0, &err), CKPT_OK);
    assert_int_equal(ckpt_site_add(&site, "b", 0, &err), CKPT_ELIMIT);
    assert_int_equal(site.files.n, 1);
}

/* Two requests for one name give one file; an address that does not fit a URL is refused. */
static void test_get(void **state)
{
    ckpt_remote_file *a = NULL, *b = NULL;
    char name[1400];

    (void)state;
    (void)url_of(&ckpt_site_https, "https://h.x/a", "m");
    assert_int_equal(ckpt_site_get(&a, &site, "m.pt", &err), CKPT_OK);
    assert_string_equal(ckpt_remote_file_name(a), "https://h.x/a/m.pt");
    assert_int_equal(ckpt_site_get(&b, &site, "m.pt", &err), CKPT_OK);
    assert_ptr_equal(a, b);
    memset(name, '%', sizeof name); // each becomes three bytes
    name[sizeof name - 1] = 0;
    assert_int_equal(ckpt_site_get(&b, &site, name, &err), CKPT_ELIMIT);
    assert_null(b);
    assert_int_equal(site.opened.n, 1);
}

static int clear(void **state)
{
    (void)state;
    site_clear_environment();
    return 0;
}

#define TEST(f) cmocka_unit_test_setup(f, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_quoting),     TEST(test_files),        TEST(test_origins), TEST(test_s3_urls),
        TEST(test_s3_refused),  TEST(test_s3_settings),  TEST(test_s3_keys), TEST(test_hf),
        TEST(test_hf_settings), TEST(test_http_headers), TEST(test_http),    TEST(test_names),
        TEST(test_too_many),    TEST(test_get),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);

    site_end(&site);
    return rc;
}
