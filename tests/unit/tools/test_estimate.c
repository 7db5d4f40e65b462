/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_estimate.c: memory for model states: bytes and tables as DeepSpeed's estimators give them.
 */
#include "tests/unit/engine/help.h"
#include "tests/unit/unit.h"
#include "tools/ckpt/estimate.h"

static uint64_t count(const ckpt_value *c, const char *key)
{
    return gold_has(c, key) ? (uint64_t)gold_number(c, key) : 0;
}

static void test_golden(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    const ckpt_value *json = gold_json(arena, "memory_estimates.json");
    ckpt_seq list = gold_list(json, "cases");

    (void)state;
    assert_int_equal(list.n, 120);
    for (uint64_t i = 0; i < list.n; i++) {
        const ckpt_value *c = list.at[i];
        estimate e = {.stage = (int)count(c, "stage"),
                      .params = count(c, "total_params"),
                      .largest = count(c, "largest_layer_params"),
                      .gpus = count(c, "gpus_per_node"),
                      .nodes = count(c, "nodes"),
                      .offload_optimizer = count(c, "offload_optimizer") != 0,
                      .offload_param = count(c, "offload_param") != 0,
                      .zero_init = count(c, "zero_init") != 0,
                      .factor = gold_number(json, "additional_buffer_factor")};
        uint64_t cpu = 0, gpu = 0;
        ckpt_err err = {0};

        assert_int_equal(estimate_bytes(&e, &cpu, &gpu, &err), CKPT_OK);
        assert_int_equal(cpu, count(c, "cpu_bytes"));
        assert_int_equal(gpu, count(c, "gpu_bytes"));
    }
    ckpt_arena_free(arena);
}

static void check_table(estimate e, const char *want)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    ckpt_err err = {0};

    assert_non_null(out);
    assert_int_equal(estimate_print(&e, out, &err), CKPT_OK);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, want);
    free(text);
}

/* T0_3B on one GPU: the example of the transformers documentation. */
static void test_tables(void **state)
{
    const estimate t0 = {
        .stage = 2, .params = 2783959040, .gpus = 1, .nodes = 1, .factor = ESTIMATE_FACTOR};
    estimate e = t0;

    (void)state;
    check_table(e, "Estimated memory needed for params, optim states and gradients for a:\n"
                   "HW: Setup with 1 node, 1 GPU per node.\n"
                   "SW: Model with 2783M total params.\n"
                   "  per CPU  |  per GPU |   Options\n"
                   "   62.23GB |   5.19GB | offload_optimizer=cpu \n"
                   "   15.56GB |  51.86GB | offload_optimizer=none\n");
    e.stage = 3;
    e.largest = 32128 * 2048;
    check_table(
        e, "Estimated memory needed for params, optim states and gradients for a:\n"
           "HW: Setup with 1 node, 1 GPU per node.\n"
           "SW: Model with 2783M total params, 65M largest layer params.\n"
           "  per CPU  |  per GPU |   Options\n"
           "   70.00GB |   0.25GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
           "   70.00GB |   0.25GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
           "   62.23GB |   5.43GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
           "   62.23GB |   5.43GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
           "    0.37GB |  46.91GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
           "   15.56GB |  46.91GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
}

/* Several nodes, another factor: run with the original. */
static void test_more_nodes(void **state)
{
    estimate e = {.stage = 3,
                  .params = 70553706496,
                  .largest = 262144000,
                  .gpus = 5,
                  .nodes = 7,
                  .factor = 1.3};

    (void)state;
    check_table(
        e, "Estimated memory needed for params, optim states and gradients for a:\n"
           "HW: Setup with 7 nodes, 5 GPUs per node.\n"
           "SW: Model with 70553M total params, 262M largest layer params.\n"
           "  per CPU  |  per GPU |   Options\n"
           "  219.65GB |   0.98GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
           " 1708.41GB |   0.98GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
           "  195.25GB |   4.73GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
           " 1708.41GB |   4.73GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
           "    6.35GB |  34.77GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
           " 1708.41GB |  34.77GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
}

static void test_refused(void **state)
{
    const estimate good = {
        .stage = 3, .params = 10, .largest = 1, .gpus = 1, .nodes = 1, .factor = 1.5};
    estimate bad[7] = {good, good, good, good, good, good, good};
    uint64_t cpu, gpu;
    FILE *nowhere = fopen("/dev/null", "w");

    (void)state;
    assert_non_null(nowhere);
    bad[0].stage = 1;
    bad[1].params = 0;
    bad[2].gpus = 0;
    bad[3].nodes = 0;
    bad[4].params = UINT64_MAX / 4;
    bad[5].gpus = UINT64_MAX / 2;
    bad[6].factor = (double)NAN;
    for (size_t i = 0; i < 7; i++) {
        ckpt_err err = {0};
        int want = i == 4 || i == 5 ? CKPT_ELIMIT : CKPT_EUSAGE;

        assert_int_equal(estimate_bytes(&bad[i], &cpu, &gpu, &err), want);
        assert_int_equal(estimate_print(&bad[i], nowhere, &err), want);
    }
    fclose(nowhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_more_nodes),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
