/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bundle.c: bundles and statements that are broken, or that mean two things, are refused; those
 * of the package model-signing are read, and what we write is read again.
 */
#include "ckpt_extra.h"
#include "libckpt/sign/bundle.h"
#include "libckpt/sign/listed.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

enum { ROOM = 1 << 16 };

/* A file of the fixture, as a text in one of a few buffers. */
static const char *fixture(const char *name)
{
    static char text[4][ROOM];
    static unsigned turn;
    char path[FOLDER_PATH], *out = text[turn++ % 4];
    const char *root = getenv("CKPT_FIXTURES");

    folder_join(path, root ? root : "tests/fixtures", "model_signing");
    size_t n = folder_read(folder_at(path, name), out, ROOM - 1);
    out[n] = '\0';
    return out;
}

/* The text with the first `from` replaced by `to`. */
static const char *edited(const char *text, const char *from, const char *to)
{
    static char out[ROOM];
    const char *at = strstr(text, from);

    assert_non_null(at);
    (void)snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

/* ---- bundles ---- */

static int parse(const char *text, ckpt_err *err)
{
    ckpt_bundle b;

    *err = (ckpt_err){0};
    int rc = ckpt_bundle_parse(&b, "x.sig", text, strlen(text), err);
    ckpt_bundle_free(&b);
    return rc;
}

/* Changes of a good bundle, and the sentence that each one gets. */
static void test_broken_bundles(void **state)
{
    static const struct {
        const char *from, *to;
        int code;
        const char *says;
    } broken[] = {
        {"bundle.v0.3+json", "bundle.v0.9+json", CKPT_EUNSUPPORTED, "mediaType is"},
        {"\"mediaType\"", "\"kind\"", CKPT_EFORMAT, "no mediaType"},
        {"\"mediaType\":\"application/", "\"mediaType\":7,\"x\":\"", CKPT_EFORMAT, "no mediaType"},
        {"\"verificationMaterial\"", "\"v\"", CKPT_EFORMAT, "no publicKey or"},
        {"\"publicKey\":{", "\"publicKey\":[],\"x\":{", CKPT_EFORMAT, "no publicKey"},
        {"\"publicKey\"", "\"certificate\"", CKPT_EUNSUPPORTED, "identity of Sigstore"},
        {"\"publicKey\"", "\"x509CertificateChain\":{},\"publicKey\"", CKPT_EFORMAT,
         "names a key and certificates"},
        {"\"publicKey\"", "\"x509CertificateChain\"", CKPT_EFORMAT, "no certificates"},
        {"\"hint\":\"", "\"hint\":\"0", CKPT_EFORMAT, "is not a SHA-256"},
        {"\"hint\":", "\"hint\":1e400,\"x\":", CKPT_EFORMAT, "x.sig"},
        {"\"hint\":", "\"hint\":18446744073709551616,\"x\":", CKPT_EFORMAT, "is not a SHA-256"},
        {"\"dsseEnvelope\"", "\"messageSignature\"", CKPT_EFORMAT, "no dsseEnvelope"},
        {"\"payload\":\"", "\"payload\":\"\",\"x\":\"", CKPT_EFORMAT, "no payload"},
        {"\"payload\":\"", "\"payload\":\" ", CKPT_EFORMAT, "payload is not base64"},
        {"\"payload\":\"ewog", "\"payload\":\"ew=g", CKPT_EFORMAT, "payload is not base64"},
        {"\"payload\":\"ewog", "\"payload\":\"ew", CKPT_EFORMAT, "payload is not base64"},
        {"\"payload\":\"ewog", "\"payload\":\"ew\\nog", CKPT_EFORMAT, "payload is not base64"},
        {"application/vnd.in-toto+json\"", "application/json\"", CKPT_EUNSUPPORTED, "payloadType"},
        {"\"signatures\":[", "\"signatures\":[{\"sig\":\"AAAA\"},", CKPT_EFORMAT, "2 signatures"},
        {"\"signatures\":[", "\"signatures\":[],\"x\":[", CKPT_EFORMAT, "0 signatures"},
        {"\"signatures\":", "\"signatures\":{},\"x\":", CKPT_EFORMAT, "0 signatures"},
        {"\"signatures\":[", "\"signatures\":[7],\"x\":[", CKPT_EFORMAT, "no sig"},
        {"\"sig\":\"", "\"sig\":\"-", CKPT_EFORMAT, "sig is not base64"},
        {"\"sig\":", "\"sig\":\"AAAA\",\"sig\":", CKPT_EFORMAT, "x.sig"},
        {"}}", "}}}", CKPT_EFORMAT, "x.sig"},
        {"{", "[", CKPT_EFORMAT, "x.sig"},
    };
    const char *good = fixture("p256.sig");
    ckpt_err err;

    (void)state;
    assert_int_equal(parse(good, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        int rc = parse(edited(good, broken[i].from, broken[i].to), &err);

        if (rc != broken[i].code || !strstr(err.text, broken[i].says))
            fail_msg("%s: %d, %s", broken[i].to, rc, err.text);
    }
    for (size_t n = 0; n < strlen(good); n += 7) {
        char *cut = strdup(good);

        cut[n] = '\0';
        assert_int_not_equal(parse(cut, &err), CKPT_OK);
        free(cut);
    }
}

static void test_broken_chains(void **state)
{
    const char *good = fixture("good.sig");
    ckpt_err err;

    (void)state;
    assert_int_equal(parse(good, &err), CKPT_OK);
    assert_int_equal(parse(edited(good, "\"rawBytes\":\"MII", "\"rawBytes\":\"MIJ"), &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "certificate 1 is not X.509"));
    assert_int_equal(parse(edited(good, "\"rawBytes\"", "\"der\""), &err), CKPT_EFORMAT);
    // bytes after the certificate are no part of it
    assert_int_equal(parse(edited(good, "\"certificates\":[", "\"certificates\":[7,"), &err),
                     CKPT_EFORMAT);
}

/* Check a bundle of the fixture with a key or with trusted certificates. */
static int check(const char *bundle, const char *key, const char *root, ckpt_err *err)
{
    ckpt_bundle b = {0};
    ckpt_key *k = NULL;
    ckpt_certs *trusted = NULL;

    *err = (ckpt_err){0};
    int rc = ckpt_bundle_parse(&b, "x.sig", bundle, strlen(bundle), err);
    if (rc == CKPT_OK && key)
        rc = ckpt_key_public(&k, key, fixture(key), err);
    if (rc == CKPT_OK && root)
        rc = ckpt_certs_read(&trusted, root, fixture(root), err);
    if (rc == CKPT_OK)
        rc = ckpt_bundle_check(&b, "x.sig", k, trusted, err);
    ckpt_certs_free(trusted);
    ckpt_key_free(k);
    ckpt_bundle_free(&b);
    return rc;
}

static void test_checks(void **state)
{
    ckpt_err err;

    (void)state;
    assert_int_equal(check(fixture("p256.sig"), "p256.pub", NULL, &err), CKPT_OK);
    assert_int_equal(check(fixture("p384.sig"), "p384.pub", NULL, &err), CKPT_OK);
    assert_int_equal(check(fixture("p521.sig"), "p521.pub", NULL, &err), CKPT_OK);
    assert_int_equal(check(fixture("good.sig"), NULL, "good.root", &err), CKPT_OK);
    // another curve decides another hash: it is never the bundle that does
    assert_int_equal(check(fixture("p256.sig"), "p384.pub", NULL, &err), CKPT_EDIGEST);
    assert_int_equal(check(fixture("p256.sig"), "ed25519.pub", NULL, &err), CKPT_EUNSUPPORTED);
    // a hint is only a hint: without it the signature decides
    assert_int_equal(
        check(edited(fixture("p256.sig"), "\"hint\"", "\"h\""), "p256.pub", NULL, &err), CKPT_OK);
    assert_int_equal(
        check(edited(fixture("p256.sig"), "\"hint\"", "\"h\""), "other.pub", NULL, &err),
        CKPT_EDIGEST);
    assert_non_null(strstr(err.text, "does not match"));
    assert_int_equal(
        check(edited(fixture("p256.sig"), "\"sig\":\"ME", "\"sig\":\"MM"), "p256.pub", NULL, &err),
        CKPT_EDIGEST);
    assert_int_equal(check(edited(fixture("p256.sig"), "\"payload\":\"ew", "\"payload\":\"fw"),
                           "p256.pub", NULL, &err),
                     CKPT_EDIGEST);
    // the chain must lead upwards from its first certificate
    assert_int_equal(check(fixture("good.sig"), NULL, "past.root", &err), CKPT_EDIGEST);
    assert_int_equal(check(fixture("good.sig"), NULL, "good.chain", &err), CKPT_EDIGEST);
    assert_int_equal(check(fixture("past.sig"), NULL, "past.root", &err), CKPT_EDIGEST);
    assert_non_null(strstr(err.text, "expired at Jan  1 00:00:00 2021 GMT"));
}

/* ---- statements ---- */

#define ROOT                                                                                       \
    "{\"_type\":\"https://in-toto.io/Statement/v1\",\"subject\":[{\"name\":\"m\",\"digest\":"      \
    "{\"sha256\":\"" /* SHA-256 of 32 bytes of 0, and of nothing */
#define ZERO  "0000000000000000000000000000000000000000000000000000000000000000"
#define SUM_1 "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"
#define SUM_2 "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b"
#define MIDDLE                                                                                     \
    "\"}}],\"predicateType\":\"https://model_signing/signature/v1.0\",\"predicate\":"              \
    "{\"serialization\":{\"method\":\"files\",\"hash_type\":\"sha256\",\"allow_symlinks\":false"
#define FILE_A "{\"name\":\"a\",\"algorithm\":\"sha256\",\"digest\":\"" ZERO "\"}"
#define GOOD   ROOT SUM_1 MIDDLE "},\"resources\":[" FILE_A "]}}"

static int list(const char *text, ckpt_err *err)
{
    ckpt_signed_list l;
    ckpt_bytes bytes = {0};

    *err = (ckpt_err){0};
    assert_true(ckpt_bytes_add(&bytes, text, strlen(text)));
    int rc = ckpt_signed_list_parse(&l, "x.sig", &bytes, err);
    ckpt_signed_list_free(&l);
    ckpt_vec_free(&bytes);
    return rc;
}

static void test_broken_statements(void **state)
{
    static const struct {
        const char *from, *to;
        int code;
        const char *says;
    } broken[] = {
        {"Statement/v1", "Statement/v0.1", CKPT_EUNSUPPORTED, "expected https://in-toto.io"},
        {"signature/v1.0", "signature/v2.0", CKPT_EUNSUPPORTED, "expected https://model_signing"},
        {"signature/v1.0", "Digests/v0.1", CKPT_EUNSUPPORTED, "before 1.0"},
        {"\"subject\":[", "\"subject\":[{},", CKPT_EFORMAT, "not exactly one subject"},
        {"\"name\":\"m\",", "", CKPT_EFORMAT, "no text name"},
        {"\"sha256\":\"6", "\"sha256\":\"5", CKPT_EDIGEST, "does not agree with itself"},
        {"\"files\"", "\"tensors\"", CKPT_EUNSUPPORTED, "expected files or shards"},
        {"\"files\"", "\"shards\"", CKPT_EFORMAT, "no shard_size"},
        {"\"files\"", "\"shards\",\"shard_size\":-1", CKPT_EFORMAT, "no shard_size"},
        {"\"files\"", "\"shards\",\"shard_size\":1e300", CKPT_EFORMAT, "no shard_size"},
        {"\"files\"", "\"shards\",\"shard_size\":8", CKPT_EFORMAT, "sha256-sharded-8"},
        {"\"hash_type\":\"sha256\"", "\"hash_type\":\"blake2b\"", CKPT_EUNSUPPORTED,
         "expected sha256"},
        {"\"hash_type\":\"sha256\"", "\"hash_type\":7", CKPT_EFORMAT, "no text hash_type"},
        {"false", "\"no\"", CKPT_EFORMAT, "allow_symlinks"},
        {"false", "false,\"ignore_paths\":7", CKPT_EFORMAT, "ignore_paths"},
        {"false", "false,\"ignore_paths\":[7]", CKPT_EFORMAT, "ignored path"},
        {"\"resources\":", "\"x\":", CKPT_EFORMAT, "no list resources"},
        {"\"resources\":", "\"resources\":{},\"x\":", CKPT_EFORMAT, "no list resources"},
        {"\"algorithm\":\"sha256\"", "\"algorithm\":\"md5\"", CKPT_EFORMAT, "digits of sha256"},
        {"\"digest\":\"0", "\"digest\":\"g", CKPT_EFORMAT, "digits of sha256"},
        {"\"digest\":\"0", "\"digest\":\"", CKPT_EFORMAT, "digits of sha256"},
        {"\"name\":\"a\"", "\"name\":\"../a\"", CKPT_EFORMAT, "not a path in the folder"},
        {"\"name\":\"a\"", "\"name\":\"/a\"", CKPT_EFORMAT, "not a path in the folder"},
        {"\"name\":\"a\"", "\"name\":\"./a\"", CKPT_EFORMAT, "not a path in the folder"},
        {"\"name\":\"a\"", "\"name\":\"a//b\"", CKPT_EFORMAT, "not a path in the folder"},
        {"\"name\":\"a\"", "\"name\":\"\"", CKPT_EFORMAT, "not a path in the folder"},
        {"\"name\":\"a\"", "\"name\":\"a\\u0000b\"", CKPT_EFORMAT, "x.sig"},
        {"\"name\":\"a\"", "\"name\":[]", CKPT_EFORMAT, "no text name"},
        {"{\"name\":\"a\"", "7,{\"name\":\"a\"", CKPT_EFORMAT, "no text name"},
    };
    ckpt_err err;

    (void)state;
    assert_int_equal(list(GOOD, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        int rc = list(edited(GOOD, broken[i].from, broken[i].to), &err);

        if (rc != broken[i].code || !strstr(err.text, broken[i].says))
            fail_msg("%s: %d, %s", broken[i].to, rc, err.text);
    }
    assert_int_equal(list(ROOT SUM_2 MIDDLE "},\"resources\":[" FILE_A "," FILE_A "]}}", &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "more than once"));
}

/* Ignored paths cover files and folders, never names that only begin so. */
static void test_ignored(void **state)
{
    ckpt_signed_list l;
    ckpt_bytes bytes = {0};
    const char *text =
        ROOT SUM_1 MIDDLE ",\"ignore_paths\":[\"./sub/\",\"b\"]},\"resources\":[" FILE_A "]}}";

    (void)state;
    assert_true(ckpt_bytes_add(&bytes, text, strlen(text)));
    assert_int_equal(ckpt_signed_list_parse(&l, "x.sig", &bytes, NULL), CKPT_OK);
    assert_true(ckpt_signed_list_ignores(&l, "sub"));
    assert_true(ckpt_signed_list_ignores(&l, "sub/a"));
    assert_true(ckpt_signed_list_ignores(&l, "b"));
    assert_false(ckpt_signed_list_ignores(&l, "sub.txt"));
    assert_false(ckpt_signed_list_ignores(&l, "a/b"));
    assert_false(ckpt_signed_list_ignores(&l, "bb"));
    ckpt_signed_list_free(&l);
    ckpt_vec_free(&bytes);
}

/* The order is that of Python's paths: part by part. */
static void test_order(void **state)
{
    static const char *const sorted[] = {".a",    "a",   "a/b", "a/b-c", "a-b",
                                         "a-b/c", "a.b", "aa",  "b",     "\xc3\xb6"};
    ckpt_signed_items items = {0};
    const size_t n = sizeof sorted / sizeof *sorted;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        ckpt_signed_item *item = ckpt_vec_push(&items);

        assert_non_null(item);
        item->name = sorted[(i * 7 + 3) % n];
    }
    ckpt_signed_items_sort(&items);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(items.at[i].name, sorted[i]);
    ckpt_vec_free(&items);
}

/* Sign and check with each allocation failing once: an error, never a wrong answer. */
static void test_no_memory(void **state)
{
    char folder[FOLDER_PATH], model[FOLDER_PATH], place[FOLDER_PATH];
    const ckpt_run_opts run = {.size = sizeof run, .jobs = 1, .force = true};
    ckpt_sign_opts opts = {.size = sizeof opts,
                           .signature = place,
                           .key = fixture("good.key"),
                           .key_name = "good.key",
                           .cert = fixture("good.chain"),
                           .cert_name = "good.chain",
                           .run = &run};
    ckpt_err err;
    int rc = CKPT_ELIMIT;

    (void)state;
    folder_new(folder);
    folder_join(model, folder, "m");
    folder_join(place, folder, "m.sig");
    assert_int_equal(mkdir(model, 0777), 0);
    folder_text(model, "a", "first");
    folder_text(model, "b", "second");
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_alloc_fail_at(n);
        rc = ckpt_sign(model, &opts, NULL, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK)
            assert_int_equal(rc, CKPT_ELIMIT);
        assert_int_equal(folder_has(folder, "m.sig"), rc == CKPT_OK);
    }
    opts.key = NULL;
    opts.cert = fixture("good.root");
    rc = CKPT_ELIMIT;
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_alloc_fail_at(n);
        rc = ckpt_signature_check(model, &opts, NULL, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK && rc != CKPT_ELIMIT)
            fail_msg("allocation %d: %d %s", (int)n, rc, err.text);
    }
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_bundles),
        cmocka_unit_test(test_broken_chains),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_broken_statements),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
