/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_activations.c: activations and pipelines, against the formulas of the papers as they stand
 * there, and numbers worked out by hand.
 */
#include "tests/unit/unit.h"
#include "tools/costs/activations.h"

/* GPT-3 175B, table 3 of Korthikanti et al. 2022: 8 tensor parallel ranks, 8 stages. */
static acts_job gpt3(void)
{
    return (acts_job){.cut = {.params = UINT64_C(175000000000),
                              .gpus = 8,
                              .nodes = 8,
                              .tensor = 8,
                              .pipeline = 8,
                              .interleave = 1,
                              .accumulation = 64,
                              .weight_bytes = 2,
                              .gradient_bytes = 2,
                              .layers = 96,
                              .hidden = 12288,
                              .micro_batch = 1,
                              .tokens = 2048},
                      .heads = 96};
}

static uint64_t layer(const acts_job *job, acts_mode mode)
{
    uint64_t n = 0;
    ckpt_err err = {0};

    assert_int_equal(costs_check(&job->cut, &err), CKPT_OK);
    assert_int_equal(acts_check(job, &err), CKPT_OK);
    assert_int_equal(acts_layer(job, mode, &n, &err), CKPT_OK);
    return n;
}

static uint64_t bytes(const acts_job *job, acts_schedule schedule, acts_mode mode)
{
    uint64_t n = 0;
    ckpt_err err = {0};

    assert_true(acts_applies(job, schedule));
    assert_int_equal(acts_bytes(job, schedule, mode, &n, &err), CKPT_OK);
    return n;
}

/* Table 2, with s b h of 2048 x 12288 and a s / h of 16. */
static void test_table(void **state)
{
    const uint64_t sbh = UINT64_C(2048) * 12288;
    acts_job j = gpt3();

    (void)state;
    assert_int_equal(layer(&j, ACTS_WHOLE), sbh * (10 + 3 + 10)); // 10 + 24/t + 5as/(ht)
    assert_int_equal(layer(&j, ACTS_SELECTIVE), sbh * (10 + 3));
    assert_int_equal(layer(&j, ACTS_FULL), sbh * 2);
    j.sequence = true;
    assert_int_equal(layer(&j, ACTS_WHOLE), sbh * (34 + 80) / 8);
    assert_int_equal(layer(&j, ACTS_SELECTIVE), sbh * 34 / 8);
    assert_int_equal(layer(&j, ACTS_FULL), sbh * 2 / 8);
    j = gpt3();
    j.cut.tensor = 1;
    assert_int_equal(layer(&j, ACTS_WHOLE), sbh * (34 + 80));
    assert_int_equal(layer(&j, ACTS_SELECTIVE), sbh * 34);
    j.cut.micro_batch = 3;
    assert_int_equal(layer(&j, ACTS_WHOLE), 3 * sbh * (34 + 80));
}

/* Attention without its scores keeps 4 bytes a row; elements of 4 bytes, masks still of one. */
static void test_variants(void **state)
{
    acts_job j = gpt3();

    (void)state;
    j.cut.tensor = 1;
    j.flash = true;
    assert_int_equal(layer(&j, ACTS_WHOLE), layer(&j, ACTS_SELECTIVE) + UINT64_C(4) * 96 * 2048);
    j.flash = false;
    j.cut.weight_bytes = 4;
    assert_int_equal(layer(&j, ACTS_SELECTIVE), UINT64_C(2048) * 12288 * 66);
    assert_int_equal(layer(&j, ACTS_WHOLE) - layer(&j, ACTS_SELECTIVE),
                     UINT64_C(9) * 96 * 2048 * 2048);
    assert_int_equal(layer(&j, ACTS_FULL), UINT64_C(2048) * 12288 * 4);
}

static void test_one(void **state)
{
    acts_job j = gpt3();

    (void)state;
    j.cut.tensor = j.cut.pipeline = 1;
    assert_false(acts_applies(&j, ACTS_1F1B));
    assert_false(acts_applies(&j, ACTS_GPIPE));
    assert_false(acts_applies(&j, ACTS_INTERLEAVED));
    assert_int_equal(bytes(&j, ACTS_ONE, ACTS_WHOLE), 96 * layer(&j, ACTS_WHOLE));
    // and the layer that is computed again
    assert_int_equal(bytes(&j, ACTS_ONE, ACTS_FULL),
                     96 * layer(&j, ACTS_FULL) + layer(&j, ACTS_WHOLE));
}

/* 12 layers a stage: 1F1B has p micro batches under way, GPipe all. */
static void test_pipelines(void **state)
{
    acts_job j = gpt3();

    (void)state;
    assert_false(acts_applies(&j, ACTS_ONE));
    assert_int_equal(acts_under_way(&j, ACTS_1F1B), 96);
    assert_int_equal(acts_under_way(&j, ACTS_GPIPE), 768);
    assert_int_equal(bytes(&j, ACTS_1F1B, ACTS_SELECTIVE), 96 * layer(&j, ACTS_SELECTIVE));
    assert_int_equal(bytes(&j, ACTS_GPIPE, ACTS_SELECTIVE), 768 * layer(&j, ACTS_SELECTIVE));
    j.cut.accumulation = 5;
    assert_int_equal(acts_under_way(&j, ACTS_1F1B), 60);
    assert_int_equal(acts_under_way(&j, ACTS_GPIPE), 60);
    // L (1 + (p-1) / (p v)) = 96 (1 + 7/24) = 124
    j.cut.accumulation = 64;
    j.cut.interleave = 3;
    assert_false(acts_applies(&j, ACTS_1F1B));
    assert_int_equal(acts_under_way(&j, ACTS_INTERLEAVED), 124);
    assert_int_equal(bytes(&j, ACTS_INTERLEAVED, ACTS_WHOLE), 124 * layer(&j, ACTS_WHOLE));
    // never more than there is
    j.cut.accumulation = 8;
    assert_int_equal(acts_under_way(&j, ACTS_INTERLEAVED), 96);
}

static void test_idle(void **state)
{
    acts_job j = gpt3();

    (void)state;
    assert_float_equal(acts_idle(&j.cut), 7.0 / 71, 1e-12);
    j.cut.interleave = 3;
    assert_float_equal(acts_idle(&j.cut), 7.0 / 199, 1e-12);
    j.cut.pipeline = 1;
    assert_float_equal(acts_idle(&j.cut), 0, 1e-12);
    j.cut.pipeline = 4;
    j.cut.interleave = j.cut.accumulation = 1;
    assert_float_equal(acts_idle(&j.cut), 0.75, 1e-12);
}

static void refused(const acts_job *job, int code, const char *text)
{
    ckpt_err err = {0};

    assert_int_equal(acts_check(job, &err), code);
    if (!strstr(err.text, text))
        fail_msg("'%s' lacks '%s'", err.text, text);
}

static void test_refusals(void **state)
{
    acts_job j = gpt3();
    ckpt_err err = {0};
    uint64_t n;

    (void)state;
    j.heads = 12;
    refused(&j, CKPT_EUSAGE, "does not divide the 12 heads");
    j = gpt3();
    j.cut.tensor = 1;
    j.sequence = true;
    refused(&j, CKPT_EUSAGE, "without --tensor-parallel");
    j.cut.tensor = 8;
    j.cut.tokens = 2047;
    refused(&j, CKPT_EUSAGE, "samples of 2047 tokens");
    j = gpt3();
    j.cut.interleave = 2;
    j.cut.accumulation = 12;
    refused(&j, CKPT_EUSAGE, "a multiple of 8 micro batches");
    j = gpt3();
    j.cut.tokens = UINT64_C(1) << 32;
    refused(&j, CKPT_ELIMIT, "at most 2^31");
    // each is allowed, together they are too many
    j.cut.tokens = j.cut.hidden = j.cut.micro_batch = UINT64_C(1) << 31;
    assert_int_equal(acts_check(&j, &err), CKPT_OK);
    assert_int_equal(acts_layer(&j, ACTS_WHOLE, &n, &err), CKPT_ELIMIT);
    j.cut.tokens = 1 << 14;
    j.cut.micro_batch = 1;
    j.cut.layers = UINT64_C(1) << 31;
    err = (ckpt_err){0};
    assert_int_equal(acts_layer(&j, ACTS_WHOLE, &n, &err), CKPT_OK);
    assert_int_equal(acts_bytes(&j, ACTS_GPIPE, ACTS_WHOLE, &n, &err), CKPT_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_variants),
        cmocka_unit_test(test_one),   cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_idle),  cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
