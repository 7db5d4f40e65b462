/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verify.c: what verify finds in sound and in damaged checkpoints.
 */
#include "libckpt/include/ckpt.h"
#include "tests/unit/unit.h"

typedef struct found {
    unsigned n[3]; /* by severity */
    char last[512];
} found;

static int keep(void *ctx, int severity, int code, const char *text)
{
    found *f = ctx;

    assert_true(severity >= 0 && severity <= 2);
    assert_true(severity == 2 ? code != CKPT_OK : code == CKPT_OK);
    f->n[severity]++;
    if (severity > 0)
        snprintf(f->last, sizeof f->last, "%s", text);
    return 0;
}

static int verify(const char *name, found *f, ckpt_run_report *report)
{
    const ckpt_verify_opts opts = {
        .open = &(ckpt_open_opts){.whole_checkpoint = true}, .finding = keep, .finding_ctx = f};
    const char *fixtures = getenv("CKPT_FIXTURES");
    char path[1024];

    memset(f, 0, sizeof *f);
    if (!fixtures)
        skip();
    snprintf(path, sizeof path, "%s/%s", fixtures, name);
    return ckpt_verify(path, &opts, report, NULL);
}

static void sound_ones(void **state)
{
    ckpt_run_report report = {0};
    found f;

    (void)state;
    assert_int_equal(verify("z1_bf16_w3_groups/ckpt", &f, &report), CKPT_OK);
    assert_int_equal(f.n[1] + f.n[2], 0);
    assert_true(report.n_compared == 2860 && report.n_records_checked > 20 && report.n_nan == 0);
    assert_int_equal(verify("z3_bf16_w5_odd/ckpt", &f, &report), CKPT_OK);
    assert_int_equal(verify("hf_bert_sharded", &f, &report), CKPT_OK);
}

static void damaged_ones(void **state)
{
    found f;

    (void)state;
    assert_int_equal(verify("bad/ds/ds_bitflip", &f, NULL), CKPT_EFORMAT);
    assert_int_equal(f.n[2], 2); /* the record, and the copy that differs */
    assert_int_equal(verify("bad/ds/ds_mixed_steps", &f, NULL), CKPT_EMISMATCH);
    assert_non_null(strstr(f.last, "step"));
    assert_int_equal(ckpt_err_status(verify("bad/ds/ds_missing_rank", &f, NULL)), 5);
    assert_int_equal(verify("bad/ds/ds_x_optim", &f, NULL), CKPT_EUNSAFE);
    assert_int_equal(verify("bad/safetensors/st_hole.safetensors", &f, NULL), CKPT_EFORMAT);
    assert_int_equal(verify("bad/absent", &f, NULL), CKPT_EMISSING);
}

static void odd_values_are_warnings(void **state)
{
    ckpt_run_report report = {0};
    found f;

    (void)state;
    assert_int_equal(verify("bad/ds/ds_nan", &f, &report), CKPT_OK);
    assert_int_equal(f.n[1], 2);
    assert_true(report.n_nan == 2 && report.n_inf == 2);
    assert_non_null(strstr(f.last, "1 NaN and 1 infinite"));
}

/* Ends the run at the first finding that is no note. */
static int stop_at_first(void *ctx, int severity, int code, const char *text)
{
    (void)keep(ctx, severity, code, text);
    return severity > 0;
}

static void a_callback_ends_it(void **state)
{
    found f = {0};
    const ckpt_verify_opts opts = {.open = &(ckpt_open_opts){.whole_checkpoint = true},
                                   .finding = stop_at_first,
                                   .finding_ctx = &f};
    const char *fixtures = getenv("CKPT_FIXTURES");
    ckpt_run_report report = {0};
    ckpt_err err = {0};
    char path[1024];

    (void)state;
    if (!fixtures)
        skip();
    snprintf(path, sizeof path, "%s/bad/ds/ds_bitflip", fixtures);
    assert_int_equal(ckpt_verify(path, &opts, &report, &err), CKPT_ECANCELED);
    assert_int_equal(f.n[1] + f.n[2], 1);
    assert_non_null(strstr(err.text, "stopped by its caller"));
    f = (found){0};
    err = (ckpt_err){0};
    snprintf(path, sizeof path, "%s/bad/ds/ds_mixed_steps", fixtures);
    assert_int_equal(ckpt_verify(path, &opts, &report, &err), CKPT_ECANCELED);
    assert_int_equal(f.n[1] + f.n[2], 1);
    /* of the structure: no value was read after it */
    assert_true(report.n_read == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_ones),
        cmocka_unit_test(damaged_ones),
        cmocka_unit_test(odd_values_are_warnings),
        cmocka_unit_test(a_callback_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
