/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_attest.c: a statement about a conversion is written, read and compared, or fails as a whole;
 * broken ones are refused.
 */
#include "ckpt_extra.h"
#include "libckpt/base/mem.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

static char folder[FOLDER_PATH], source[FOLDER_PATH], result[FOLDER_PATH], statement[FOLDER_PATH];
static ckpt_map *from, *to;
static ckpt_run_report report;

/* Convert a small model to one torch file. */
static int convert(void **state)
{
    const char *root = getenv("CKPT_FIXTURES");
    ckpt_plan *plan = NULL;

    (void)state;
    folder_new(folder);
    folder_join(source, folder, "source.safetensors");
    folder_join(result, folder, "result.pt");
    folder_join(statement, folder, "statement.json");
    folder_copy_file(
        folder_at(root ? root : "tests/fixtures", "model_signing/model/model.safetensors"), source);
    const ckpt_target target = {.size = sizeof target, .format = "torch", .path = result};
    assert_int_equal(ckpt_open(&from, source, NULL, NULL), CKPT_OK);
    assert_int_equal(ckpt_layout(&to, from, &target, NULL), CKPT_OK);
    assert_int_equal(ckpt_plan_new(&plan, from, to, NULL, NULL), CKPT_OK);
    assert_int_equal(ckpt_plan_run(plan, NULL, &report, NULL), CKPT_OK);
    ckpt_plan_free(plan);
    return 0;
}

static int tidy(void **state)
{
    (void)state;
    ckpt_map_free(to);
    ckpt_map_free(from);
    folder_remove(folder);
    return 0;
}

static int attest(ckpt_err *err)
{
    static const ckpt_option options[] = {{"to", "torch"}, {"untie", NULL}};
    const char *operands[] = {source, result};
    const ckpt_run_opts run = {.size = sizeof run, .force = true};
    const ckpt_attest_opts opts = {.size = sizeof opts,
                                   .command = "convert",
                                   .source = source,
                                   .target = result,
                                   .options = options,
                                   .n_options = 2,
                                   .operands = operands,
                                   .n_operands = 2,
                                   .from = from,
                                   .to = to,
                                   .report = &report,
                                   .run = &run};

    return ckpt_attest_write(statement, &opts, err);
}

/* Read the statement, and compare. */
static int check(ckpt_err *err)
{
    ckpt_attested *a = NULL;
    ckpt_map *map = NULL;
    uint64_t n = 0;
    int rc = ckpt_attest_read(&a, statement, err);

    if (rc == CKPT_OK)
        rc = ckpt_open(&map, source, NULL, err);
    if (rc == CKPT_OK)
        rc = ckpt_attest_check(a, result, map, NULL, &n, err);
    ckpt_map_free(map);
    if (rc == CKPT_OK) {
        assert_int_equal(n, 2);
        assert_string_equal(ckpt_attest_option_at(a, 0)->name, "to");
        assert_string_equal(ckpt_attest_option_at(a, 0)->value, "torch");
        assert_null(ckpt_attest_option_at(a, 1)->value);
        assert_null(ckpt_attest_option_at(a, 2));
    }
    ckpt_attest_free(a);
    return rc;
}

/* Each allocation fails once: no statement, or a complete one. */
static void test_no_memory(void **state)
{
    ckpt_err err = {0};
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        assert_false(folder_has(folder, "statement.json"));
        ckpt_alloc_fail_at(n);
        rc = attest(&err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    }
    rc = CKPT_ELIMIT;
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_alloc_fail_at(n);
        rc = check(&err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
    }
}

/* A source that changed after it was read has no statement; a changed result is found. */
static void test_changed(void **state)
{
    static char bytes[1 << 16];
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(attest(&err), CKPT_OK);
    size_t n = folder_read(result, bytes, sizeof bytes);
    bytes[n / 2] ^= 1;
    folder_write(result, bytes, n);
    assert_int_equal(check(&err), CKPT_EDIGEST);
    bytes[n / 2] ^= 1;
    folder_write(result, bytes, n);
    assert_int_equal(check(&err), CKPT_OK);
    n = folder_read(source, bytes, sizeof bytes);
    bytes[n - 1] ^= 1;
    assert_int_equal(unlink(source), 0);
    folder_write(source, bytes, n);
    assert_int_equal(check(&err), CKPT_EDIGEST);
    bytes[n - 1] ^= 1;
    folder_write(source, bytes, n);
    assert_int_equal(check(&err), CKPT_OK);
    assert_int_equal(attest(&err), CKPT_EIO);
    assert_non_null(strstr(err.text, "changed"));
}

static void test_broken(void **state)
{
    static const char *const broken[] = {
        "",
        "{",
        "[]",
        "{\"_type\":\"https://in-toto.io/Statement/v1\"}",
        "{\"_type\":\"https://in-toto.io/Statement/"
        "v1\",\"predicateType\":\"urn:ckpt:conversion:v1\"}",
        "{\"_type\":\"https://in-toto.io/Statement/"
        "v1\",\"predicateType\":\"urn:ckpt:conversion:v1\","
        "\"subject\":[{\"name\":\"a\",\"digest\":{\"sha256\":7}}]}",
        "{\"_type\":\"https://in-toto.io/Statement/"
        "v1\",\"predicateType\":\"urn:ckpt:conversion:v1\","
        "\"subject\":{\"name\":\"a\"},\"predicate\":[]}",
    };
    ckpt_attested *a;

    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        folder_text(folder, "broken.json", broken[i]);
        assert_int_not_equal(ckpt_attest_read(&a, folder_at(folder, "broken.json"), NULL), CKPT_OK);
        assert_null(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_changed),
    };

    return cmocka_run_group_tests(tests, convert, tidy);
}
