/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_listing.c: checks how the answers of S3, of the Hugging Face hub and of web servers become
 * lists of files.
 */
#include "tests/unit/libckpt/remote/help.h"

static ckpt_site site;
static ckpt_err err;

/* List an address, which the given answers serve. */
static int list(const ckpt_site_kind *kind, const char *address, const wire_answer *answer,
                size_t n)
{
    bool is_dir;

    site_end(&site);
    assert_int_equal(site_begin(&site, kind, address, &is_dir, &err), CKPT_OK);
    wire_expect(answer, n);
    return ckpt_site_list(&site, &err);
}

/* The names of the listed files, with their sizes. */
static const char *files(void)
{
    static char text[512];

    text[0] = 0;
    for (size_t i = 0; i < site.files.n; i++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s:%d ", site.files.at[i].name,
                       (int)site.files.at[i].size);
    }
    return text;
}

static void refuses(const ckpt_site_kind *kind, const char *body, int code, const char *why)
{
    const wire_answer a[] = {{.status = 200, .body = body}};

    assert_int_equal(list(kind, "s3://b/run", a, 1), code);
    if (!strstr(err.text, why))
        fail_msg("%s: '%s' lacks '%s'", body, err.text, why);
    assert_int_equal(site.files.n, 0);
}

/* ---- S3 ---- */

#define PAGE(inside) "<ListBucketResult>" inside "</ListBucketResult>"
#define ENTRY(key, size)                                                                           \
    "<Contents><Key>" key "</Key><ETag>x</ETag><Size>" size "</Size></Contents>"
#define LAST "<IsTruncated>false</IsTruncated>"

static void s3_refuses(const char *body, int code, const char *why)
{
    refuses(&ckpt_site_s3, body, code, why);
}

static void test_s3_page(void **state)
{
    const wire_answer page[] = {
        {.status = 200,
         .body = PAGE("<Prefix>run/</Prefix><Contents><Size>7</Size><Owner><ID>Key</ID></Owner>"
                      "<Key>run/b&amp;c.pt</Key></Contents>" ENTRY("run/", "0") ENTRY("run/a/", "0")
                          ENTRY("run/a/x", "999999999") LAST)}};
    const wire_answer empty[] = {{.status = 200, .body = PAGE(LAST)}};

    (void)state;
    assert_int_equal(list(&ckpt_site_s3, "s3://b/run", page, 1), CKPT_OK);
    assert_string_equal(files(), "a/x:999999999 b&c.pt:7 "); // sorted, without keys of folders
    assert_string_equal(
        wire_it.asked[0].url,
        "https://b.s3.us-east-1.amazonaws.com/?list-type=2&max-keys=1000&prefix=run%2F");
    assert_int_equal(list(&ckpt_site_s3, "s3://b/run", empty, 1), CKPT_OK);
    assert_string_equal(files(), "");
    assert_int_equal(ckpt_site_list(&site, &err), CKPT_OK); // no second request
}

static void test_s3_pages(void **state)
{
    static const char next[] = PAGE(ENTRY("run/b", "1") "<IsTruncated>true</IsTruncated>"
                                                        "<NextContinuationToken>t/=+"
                                                        "</NextContinuationToken>");
    // a page with a token but without IsTruncated continues, too
    static const char silent[] =
        PAGE(ENTRY("run/b", "1") "<NextContinuationToken>t/=+</NextContinuationToken>");
    static const char closed[] =
        PAGE(ENTRY("run/b", "1") LAST "<NextContinuationToken>t</NextContinuationToken>");
    const wire_answer two[] = {{.status = 200, .body = next},
                               {.status = 200, .body = PAGE(ENTRY("run/a", "2") LAST)}};
    const wire_answer quiet[] = {{.status = 200, .body = silent}, two[1]};
    const wire_answer same[] = {{.status = 200, .body = next}, {.status = 200, .body = next}};
    const wire_answer one[] = {{.status = 200, .body = closed}};

    (void)state;
    assert_int_equal(list(&ckpt_site_s3, "s3://b/run", two, 2), CKPT_OK);
    assert_string_equal(files(), "a:2 b:1 ");
    // parameters in the order that the signature needs
    assert_string_equal(wire_it.asked[1].url, "https://b.s3.us-east-1.amazonaws.com/"
                                              "?continuation-token=t%2F%3D%2B&list-type=2"
                                              "&max-keys=1000&prefix=run%2F");
    assert_int_equal(list(&ckpt_site_s3, "s3://b/run", quiet, 2), CKPT_OK);
    assert_string_equal(files(), "a:2 b:1 ");
    assert_int_equal(list(&ckpt_site_s3, "s3://b/run", one, 1), CKPT_OK);
    // a server that repeats its token would never end
    assert_int_equal(list(&ckpt_site_s3, "s3://b/run", same, 2), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "no valid continuation token"));
    s3_refuses(PAGE("<IsTruncated>true</IsTruncated>"), CKPT_EFORMAT,
               "no valid continuation token");
}

static void test_s3_refused(void **state)
{
    (void)state;
    s3_refuses("<Error><Code>x</Code></Error>", CKPT_EFORMAT, "a root element other than");
    s3_refuses("{}", CKPT_EFORMAT, "XML");
    s3_refuses("", CKPT_EFORMAT, "XML");
    s3_refuses(PAGE("<IsTruncated>yes</IsTruncated>"), CKPT_EFORMAT, "neither true nor false");
    s3_refuses(PAGE("<IsTruncated><b/></IsTruncated>"), CKPT_EFORMAT, "neither true nor false");
    s3_refuses(PAGE(ENTRY("other/a", "1") LAST), CKPT_EFORMAT, "outside of the requested prefix");
    s3_refuses(PAGE(ENTRY("run", "1") LAST), CKPT_EFORMAT, "outside of the requested prefix");
    s3_refuses(PAGE(ENTRY("run/../x", "1") LAST), CKPT_EUNSAFE, "not a plain path");
    s3_refuses(PAGE(ENTRY("run//x", "1") LAST), CKPT_EUNSAFE, "not a plain path");
    s3_refuses(PAGE(ENTRY("run/a", "") LAST), CKPT_EFORMAT, "size is not a number");
    s3_refuses(PAGE(ENTRY("run/a", "-1") LAST), CKPT_EFORMAT, "size is not a number");
    s3_refuses(PAGE(ENTRY("run/a", " 1") LAST), CKPT_EFORMAT, "size is not a number");
    s3_refuses(PAGE(ENTRY("run/a", "1e3") LAST), CKPT_EFORMAT, "size is not a number");
    s3_refuses(PAGE(ENTRY("run/a", "1234567890123456789") LAST), CKPT_EFORMAT,
               "size is not a number");
    s3_refuses(PAGE(ENTRY("run/a", "00000000000000000000000000000000000001") LAST), CKPT_EFORMAT,
               "size is not a number");
    s3_refuses(PAGE("<Contents><Key>run/a</Key></Contents>" LAST), CKPT_EFORMAT,
               "exactly one key and one size");
    s3_refuses(PAGE("<Contents><Size>1</Size></Contents>" LAST), CKPT_EFORMAT,
               "exactly one key and one size");
    // the key and the size of an entry never come from the entry before
    s3_refuses(PAGE(ENTRY("run/a", "1") "<Contents><Key>run/b</Key></Contents>" LAST), CKPT_EFORMAT,
               "exactly one key and one size");
    s3_refuses(PAGE("<X><Size>1</Size></X><Contents><Key>run/b</Key></Contents>" LAST),
               CKPT_EFORMAT, "exactly one key and one size");
    s3_refuses(PAGE("<Contents><Key>run/a</Key><Key>run/b</Key><Size>1</Size></Contents>" LAST),
               CKPT_EFORMAT, "exactly one key and one size");
    s3_refuses(PAGE("<Contents><Key><b/></Key><Size>1</Size></Contents>" LAST), CKPT_EFORMAT,
               "a key that is not text");
}

/* ---- the hub ---- */

#define COMMIT "{\"sha\": \"0123456789abcdef0123456789abcdef01234567\"}"

static int hub(const char *commit, const char *page)
{
    const wire_answer a[] = {{.status = 200, .body = commit}, {.status = 200, .body = page}};

    return list(&ckpt_site_hf, "hf://o/n@v1", a, 2);
}

static void test_hub(void **state)
{
    const wire_answer pages[] = {
        {.status = 200, .body = COMMIT},
        {.status = 200,
         .body = "[{\"type\": \"directory\", \"path\": \"sub\"},"
                 " {\"type\": \"file\", \"path\": \"sub/x\", \"size\": 5}]",
         .name = {"Link"},
         .value = {"<https://huggingface.co/next>; rel=\"next\""}},
        {.status = 200, .body = "[{\"type\": \"file\", \"path\": \"a\", \"size\": 0}]"}};
    static char url[CKPT_FETCH_URL];
    ckpt_bytes out = {0};

    (void)state;
    assert_int_equal(list(&ckpt_site_hf, "hf://o/n@v1", pages, 3), CKPT_OK);
    assert_string_equal(files(), "a:0 sub/x:5 ");
    assert_string_equal(wire_it.asked[0].url, "https://huggingface.co/api/models/o/n/revision/v1");
    // all later requests name the commit, because the revision may move
    assert_string_equal(wire_it.asked[1].url,
                        "https://huggingface.co/api/models/o/n/tree/"
                        "0123456789abcdef0123456789abcdef01234567?recursive=1");
    assert_string_equal(wire_it.asked[2].url, "https://huggingface.co/next");
    assert_int_equal(ckpt_site_hf.url(&site, "a", &out, &err), CKPT_OK);
    assert_true(out.n < sizeof url);
    memcpy(url, out.at, out.n);
    url[out.n] = 0;
    assert_string_equal(url, "https://huggingface.co/o/n/resolve/"
                             "0123456789abcdef0123456789abcdef01234567/a");
    ckpt_vec_free(&out);
}

static void test_hub_refused(void **state)
{
    static const char *const commits[] = {"{}", "{\"sha\": 1}", "{\"sha\": \"012345\"}",
                                          "{\"sha\": \"../../x0123\"}",
                                          "{\"sha\": \"ABCDEF0123\"}"};
    static const char *const pages[] = {"{}",
                                        "[{}]",
                                        "[{\"path\": \"a\"}]",
                                        "[{\"path\": \"a\", \"size\": -1}]",
                                        "[{\"path\": \"a\", \"size\": \"1\"}]",
                                        "[{\"path\": \"a\\u0000b\", \"size\": 1}]"};
    const wire_answer away[] = {{.status = 200, .body = COMMIT},
                                {.status = 200,
                                 .body = "[]",
                                 .name = {"Link"},
                                 .value = {"<https://evil.x/next>; rel=\"next\""}}};

    (void)state;
    for (size_t i = 0; i < sizeof commits / sizeof *commits; i++) {
        assert_int_equal(hub(commits[i], "[]"), CKPT_EFORMAT);
        assert_int_equal(wire_it.n_asked, 1);
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        assert_int_equal(hub(COMMIT, pages[i]), CKPT_EFORMAT);
    assert_int_equal(hub(COMMIT, ""), CKPT_EFORMAT);
    assert_int_equal(hub(COMMIT, "[{\"path\": \"../a\", \"size\": 1}]"), CKPT_EUNSAFE);
    // the token would go to that host
    assert_int_equal(list(&ckpt_site_hf, "hf://o/n", away, 2), CKPT_EUNSAFE);
    assert_int_equal(wire_it.n_asked, 2);
}

static int begin(void **state)
{
    (void)state;
    site_clear_environment();
    assert_int_equal(setenv("CKPT_REMOTE_RETRIES", "0", 1), 0);
    // no token of the person who runs the test
    assert_int_equal(setenv("HF_TOKEN_PATH", "/nonexistent/token", 1), 0);
    ckpt_hf_begin();
    return ckpt_fetch_begin(&err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s3_page),     cmocka_unit_test(test_s3_pages),
        cmocka_unit_test(test_s3_refused),  cmocka_unit_test(test_hub),
        cmocka_unit_test(test_hub_refused),
    };
    int rc = cmocka_run_group_tests(tests, begin, NULL);

    site_end(&site);
    return rc;
}
