/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_manifest.c: manifests that are read, refused, compared, and made without memory.
 */
#include "libckpt/base/mem.h"
#include "libckpt/include/ckpt_extra.h"
#include "libckpt/io/manifest_name.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

#define ZEROS  "0000000000000000000000000000000000000000000000000000000000000000"
#define ONES   "1111111111111111111111111111111111111111111111111111111111111111"
#define TOP    "{\"schema\": \"ckpt-manifest/1\", "
#define FILE_A "{\"path\": \"a\", \"bytes\": 1, \"sha256\": \"" ZEROS "\"}"
#define FILE_M                                                                                     \
    "{\"path\": \"m.safetensors\", \"bytes\": 0, \"sha256\": "                                     \
    "\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}"
#define TENSOR(name, dtype, shape, sha)                                                            \
    "{\"name\": \"" name "\", \"dtype\": \"" dtype "\", \"shape\": [" shape                        \
    "], \"sha256\": \"" sha "\"}"

static int folder_setup(void **state)
{
    char *path = malloc(FOLDER_PATH);

    folder_new(path);
    *state = path;
    return 0;
}

static int folder_teardown(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

static int read_text(const char *folder, const char *text, ckpt_manifest **m, ckpt_err *err)
{
    folder_text(folder, "m.json", text);
    return ckpt_manifest_read(m, folder_at(folder, "m.json"), err);
}

/* Texts that are no manifests, and the code of each. */
static void reader_refuses(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", CKPT_EFORMAT},
        {"[]", CKPT_EFORMAT},
        {"{}", CKPT_EFORMAT},
        {"{\"schema\": [\"ckpt-manifest/1\"]}", CKPT_EFORMAT},
        {"{\"schema\": \"ckpt-manifest/1\\u0000\"}", CKPT_EFORMAT},
        {"{\"schema\": \"ckpt-manifest/10\", \"files\": [], \"tensors\": []}", CKPT_EUNSUPPORTED},
        {TOP "\"tensors\": []}", CKPT_EFORMAT},
        {TOP "\"files\": {}, \"tensors\": []}", CKPT_EFORMAT},
        {TOP "\"files\": [], \"tensors\": [], \"files\": []}", CKPT_EFORMAT},
        {TOP "\"files\": [null], \"tensors\": []}", CKPT_EFORMAT},
        {TOP "\"files\": [" FILE_A ", " FILE_A "], \"tensors\": []}", CKPT_EFORMAT},
        {TOP "\"files\": [{\"path\": \"\", \"bytes\": 1, \"sha256\": \"" ZEROS
             "\"}], \"tensors\": []}",
         CKPT_EFORMAT},
        {TOP "\"files\": [{\"path\": \"a/../../b\", \"bytes\": 1, \"sha256\": \"" ZEROS
             "\"}], \"tensors\": []}",
         CKPT_EUNSAFE},
        {TOP "\"files\": [{\"path\": \"/a\", \"bytes\": 1, \"sha256\": \"" ZEROS
             "\"}], \"tensors\": []}",
         CKPT_EUNSAFE},
        {TOP "\"files\": [{\"path\": \"a\", \"bytes\": 1.5, \"sha256\": \"" ZEROS
             "\"}], \"tensors\": []}",
         CKPT_EFORMAT},
        {TOP "\"files\": [{\"path\": \"a\", \"bytes\": 1, \"sha256\": \"" ZEROS
             "0\"}], \"tensors\": []}",
         CKPT_EFORMAT},
        {TOP "\"files\": [], \"tensors\": [" TENSOR("w", "F31", "1", ZEROS) "]}", CKPT_EFORMAT},
        {TOP "\"files\": [], \"tensors\": [" TENSOR("w", "F32", "-1", ZEROS) "]}", CKPT_EFORMAT},
        {TOP "\"files\": [], \"tensors\": [" TENSOR("w", "F32", "\"1\"", ZEROS) "]}", CKPT_EFORMAT},
        {TOP
         "\"files\": [], \"tensors\": [" TENSOR("w", "F32", "4294967296, 4294967296", ZEROS) "]}",
         CKPT_EFORMAT},
        {TOP "\"files\": [], \"tensors\": [" TENSOR("w", "F32", "99999999999999999999", ZEROS) "]}",
         CKPT_EFORMAT},
        {TOP "\"files\": [], \"tensors\": [" TENSOR("w", "F32", "1", "x") "]}", CKPT_EFORMAT},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_manifest *m = NULL;
        ckpt_err err = {0};

        assert_int_equal(read_text(*state, cases[i].text, &m, &err), cases[i].code);
        assert_null(m);
        assert_non_null(strstr(err.text, "m.json"));
    }
}

/* Members that a reader does not know are ignored; what was read is written and read again. */
static void reader_keeps(void **state)
{
    static const char text[] = TOP
        "\"later\": {\"x\": [1]}, \"slices\": true, \"files\": [" FILE_A "], \"tensors\": [" TENSOR(
            "w", "bf16", "2, 0", ONES) ", " TENSOR("", "Q4_K", "256", ZEROS) "]}";
    ckpt_manifest *m = NULL, *again = NULL;
    const ckpt_hashed *h;
    ckpt_err err = {0};

    assert_int_equal(read_text(*state, text, &m, &err), CKPT_OK);
    assert_string_equal(ckpt_manifest_path(m), folder_at(*state, "m.json"));
    assert_int_equal(ckpt_manifest_file_count(m), 1);
    h = ckpt_manifest_tensor_at(m, 0);
    assert_int_equal(h->dtype, CKPT_BF16);
    assert_int_equal(h->ndim, 2);
    assert_int_equal(h->shape[0], 2);
    assert_string_equal(h->sha256, ONES);
    assert_null(ckpt_manifest_tensor_at(m, 2));
    assert_null(ckpt_manifest_file_at(m, 1));
    assert_int_equal(ckpt_manifest_write(m, folder_at(*state, "m.txt"), &err), CKPT_EUSAGE);
    assert_int_equal(ckpt_manifest_write(m, NULL, &err), CKPT_OK);
    assert_int_equal(ckpt_manifest_read(&again, folder_at(*state, "m.json"), &err), CKPT_OK);
    assert_int_equal(ckpt_manifest_diff(m, again, NULL, NULL, &err), CKPT_OK);
    ckpt_manifest_free(m);
    ckpt_manifest_free(again);
    ckpt_manifest_free(NULL);
}

static int remember(void *ctx, const char *what, const ckpt_hashed *a, const ckpt_hashed *b)
{
    char *text = ctx;

    (void)snprintf(text + strlen(text), 200 - strlen(text), "%s %s; ", what, (a ? a : b)->name);
    return strcmp(what, "shape") == 0;
}

static void differences(void **state)
{
    ckpt_manifest *a = NULL, *b = NULL;
    ckpt_err err = {0};
    char text[200] = "";

    assert_int_equal(
        read_text(*state,
                  TOP "\"files\": [], \"tensors\": [" TENSOR("v", "F32", "1", ZEROS) ", " TENSOR(
                      "t", "F32", "1", ZEROS) ", " TENSOR("a", "F32", "1", ZEROS) "]}",
                  &a, &err),
        CKPT_OK);
    assert_int_equal(
        read_text(*state,
                  TOP "\"files\": [], \"tensors\": [" TENSOR("b", "F32", "1", ZEROS) ", " TENSOR(
                      "t", "F16", "1", ZEROS) ", " TENSOR("v", "F32", "1", ONES) "]}",
                  &b, &err),
        CKPT_OK);
    assert_int_equal(ckpt_manifest_diff(a, b, remember, text, &err), CKPT_EDIFFERS);
    assert_string_equal(text, "values v; dtype t; only in A a; only in B b; ");
    ckpt_manifest_free(b);
    assert_int_equal(
        read_text(*state, TOP "\"files\": [], \"tensors\": [" TENSOR("v", "F32", "", ZEROS) "]}",
                  &b, &err),
        CKPT_OK);
    assert_int_equal(ckpt_manifest_diff(a, b, remember, text, &err), CKPT_ECANCELED);
    assert_int_equal(ckpt_manifest_diff(a, NULL, NULL, NULL, &err), CKPT_EUSAGE);
    ckpt_manifest_free(a);
    ckpt_manifest_free(b);
}

/* Each allocation fails once: no check is left out silently. */
static void check_without_memory(const ckpt_manifest *m, const char *path)
{
    const ckpt_run_opts run = {.size = sizeof run, .jobs = 1};
    const ckpt_manifest_opts opts = {.size = sizeof opts, .run = &run};
    bool was_ok = false;
    ckpt_err err = {0};

    for (uint64_t n = 0; n < 300; n++) {
        ckpt_alloc_fail_at(n);
        int rc = ckpt_manifest_check(m, path, &opts, NULL, NULL, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_int_equal(rc, rc == CKPT_OK || was_ok ? CKPT_OK : CKPT_ELIMIT);
        was_ok = rc == CKPT_OK;
    }
    assert_true(was_ok);
}

/* The files are those of the map that ckpt_verify has opened, without opening them again. */
static void check_with_map(const ckpt_manifest *m, const char *path)
{
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    const ckpt_verify_opts verify = {.size = sizeof verify, .map = &map};

    assert_int_equal(ckpt_verify(path, &verify, NULL, &err), CKPT_OK);
    assert_non_null(map);
    const ckpt_manifest_opts opts = {.size = sizeof opts, .map = map};
    assert_int_equal(ckpt_manifest_check(m, path, &opts, NULL, NULL, &err), CKPT_OK);
    ckpt_map_free(map);
    assert_int_equal(ckpt_open(&map, "tests/fixtures/hf_bert_sharded", NULL, &err), CKPT_OK);
    const ckpt_manifest_opts other = {.size = sizeof other, .map = map};
    assert_int_equal(ckpt_manifest_check(m, path, &other, NULL, NULL, &err), CKPT_EDIGEST);
    ckpt_map_free(map);
    assert_int_equal(ckpt_verify("tests/fixtures/none", &verify, NULL, &err), CKPT_EMISSING);
    assert_null(map);
}

/* A manifest that lists the files, but not those of a checkpoint. */
static void not_a_checkpoint(void **state)
{
    ckpt_manifest *m = NULL;
    ckpt_err err = {0};

    assert_int_equal(read_text(*state, TOP "\"files\": [" FILE_M "], \"tensors\": []}", &m, &err),
                     CKPT_OK);
    folder_text(*state, "m.safetensors", "");
    const char *path = folder_at(*state, "m.safetensors");
    assert_int_equal(ckpt_manifest_check(m, path, NULL, NULL, NULL, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "m.safetensors"));
    ckpt_manifest_free(m);
}

/* Each allocation fails once: an error, and nothing is lost. */
static void without_memory(void **state)
{
    const float w[4] = {1, 2, 3, 4};
    const uint64_t shape[] = {2, 2};
    const ckpt_array array = {.name = "w", .dtype = CKPT_F32, .ndim = 2, .shape = shape, .data = w};
    const char *out = folder_at(*state, "m.safetensors");
    ckpt_manifest *m = NULL;
    ckpt_map *map = NULL;
    ckpt_err err = {0};
    char path[FOLDER_PATH];
    int rc = CKPT_ELIMIT;

    (void)snprintf(path, sizeof path, "%s", out);
    const ckpt_target target = {.format = "safetensors", .path = path};
    assert_int_equal(ckpt_map_new(&map, "memory", &err), CKPT_OK);
    assert_int_equal(ckpt_map_put(map, &array, &err), CKPT_OK);
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        const ckpt_run_opts run = {.size = sizeof run, .jobs = 1, .force = true};
        ckpt_run_opts hashing = run;
        ckpt_hashes *hashes = NULL;

        assert_true(n < 10000);
        ckpt_alloc_fail_at(n);
        rc = ckpt_hashes_new(&hashes, &err);
        hashing.hashes = hashes;
        if (rc == CKPT_OK)
            rc = ckpt_convert(map, &target, &hashing, NULL, &err);
        const ckpt_manifest_opts opts = {.size = sizeof opts, .run = &run, .hashes = hashes};
        if (rc == CKPT_OK)
            rc = ckpt_manifest_make(&m, path, &opts, &err);
        if (rc == CKPT_OK)
            rc = ckpt_manifest_write(m, NULL, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        ckpt_hashes_free(hashes);
        if (rc != CKPT_OK)
            ckpt_manifest_free(m);
        m = rc != CKPT_OK ? NULL : m;
    }
    assert_int_equal(ckpt_manifest_tensor_count(m), 1);
    check_with_map(m, path);
    check_without_memory(m, path);
    ckpt_manifest_free(m);
    ckpt_map_free(map);
}

static void names(void **state)
{
    (void)state;
    assert_true(ckpt_manifest_is("ckpt-manifest.json"));
    assert_true(ckpt_manifest_is("ckpt-manifest.sha256"));
    assert_true(ckpt_manifest_is("m.gguf.manifest.json"));
    assert_false(ckpt_manifest_is("manifest.json"));
    assert_false(ckpt_manifest_is("a-manifest.json"));
    assert_false(ckpt_manifest_is("ckpt-manifest.yaml"));
    assert_false(ckpt_manifest_is("config.json"));
    assert_false(ckpt_manifest_is(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reader_refuses, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(reader_keeps, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(differences, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(without_memory, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(not_a_checkpoint, folder_setup, folder_teardown),
        cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
