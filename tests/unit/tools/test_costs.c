/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_costs.c: what travels in an update, against numbers worked out by hand.
 */
#include "tests/unit/unit.h"
#include "tools/costs/costs.h"

/* 1000 parameters in 16 bits on one node of 4. */
static costs_job plain(void)
{
    return (costs_job){.params = 1000,
                       .gpus = 4,
                       .nodes = 1,
                       .tensor = 1,
                       .pipeline = 1,
                       .interleave = 1,
                       .accumulation = 1,
                       .weight_bytes = 2,
                       .gradient_bytes = 2};
}

static costs_flow flow(const costs_job *job, costs_scheme scheme)
{
    costs_flow f;
    ckpt_err err = {0};

    assert_int_equal(costs_check(job, &err), CKPT_OK);
    assert_true(costs_applies(job, scheme));
    assert_int_equal(costs_flow_of(job, scheme, &f, &err), CKPT_OK);
    return f;
}

/* Of a rank, of all, out of a node. */
static void check(const costs_job *job, costs_scheme scheme, uint64_t sent, uint64_t all,
                  uint64_t node)
{
    costs_flow f = flow(job, scheme);

    assert_int_equal(f.sent, sent);
    assert_int_equal(f.all, all);
    assert_int_equal(f.node, node);
}

static void test_one_node(void **state)
{
    costs_job j = plain();

    (void)state;
    // 2 K (N-1)/N elements of 2 bytes; the server: K in and out of each of 4
    check(&j, COSTS_ZERO0, 3000, 12000, 0);
    check(&j, COSTS_ZERO1, 3000, 12000, 0);
    check(&j, COSTS_ZERO2, 3000, 12000, 0);
    check(&j, COSTS_ZERO3, 4500, 18000, 0);
    check(&j, COSTS_SERVER, 2000, 8000, 0);
    assert_int_equal(flow(&j, COSTS_SERVER).server, 16000);
    // odd numbers round up once
    j.params = 1001;
    check(&j, COSTS_ZERO0, 3003, 12012, 0);
    j.params = 3;
    check(&j, COSTS_ZERO1, 9, 36, 0);
    j.gpus = 8;
    check(&j, COSTS_ZERO1, 11, 84, 0); // 10.5
}

static void test_dtypes(void **state)
{
    costs_job j = plain();

    (void)state;
    j.gradient_bytes = 4;
    check(&j, COSTS_ZERO0, 6000, 24000, 0);
    check(&j, COSTS_ZERO1, 4500, 18000, 0);
    check(&j, COSTS_ZERO3, 6000, 24000, 0);
    j.weight_bytes = 4;
    check(&j, COSTS_ZERO3, 9000, 36000, 0);
}

/* Stages 2 and 3 reduce in each micro step, 3 gathers in each, too. */
static void test_accumulation(void **state)
{
    costs_job j = plain();

    (void)state;
    j.accumulation = 5;
    check(&j, COSTS_ZERO0, 3000, 12000, 0);
    check(&j, COSTS_ZERO1, 3000, 12000, 0);
    check(&j, COSTS_ZERO2, 9000, 36000, 0);
    check(&j, COSTS_ZERO3, 22500, 90000, 0);
    check(&j, COSTS_SERVER, 2000, 8000, 0);
}

static void test_alone(void **state)
{
    costs_job j = plain();

    (void)state;
    j.gpus = 1;
    for (costs_scheme s = COSTS_SERVER; s <= COSTS_ZERO3; s++) {
        check(&j, s, 0, 0, 0);
        assert_true(flow(&j, s).seconds < 0);
    }
}

/* One hop of the ring leaves each node; to a server, everything does. */
static void test_nodes(void **state)
{
    costs_job j = plain();

    (void)state;
    j.nodes = 2;
    check(&j, COSTS_ZERO0, 3500, 28000, 3500);
    check(&j, COSTS_SERVER, 2000, 16000, 8000);
    j.gpus = 1;
    j.nodes = 4;
    check(&j, COSTS_ZERO0, 3000, 12000, 3000);
}

static void test_times(void **state)
{
    costs_job j = plain();

    (void)state;
    j.params = 1000000000;
    j.link = 100;
    assert_float_equal(flow(&j, COSTS_ZERO0).seconds, 0.03, 1e-12);
    assert_float_equal(flow(&j, COSTS_SERVER).seconds, 0.16, 1e-12);
    // the slower of the two ways
    j.nodes = 2;
    j.node_link = 10;
    assert_float_equal(flow(&j, COSTS_ZERO0).seconds, 0.35, 1e-12);
    j.node_link = 1000;
    assert_float_equal(flow(&j, COSTS_ZERO0).seconds, 0.035, 1e-12);
    assert_float_equal(flow(&j, COSTS_SERVER).seconds, 0.032, 1e-12);
    // not known
    j.link = 0;
    j.node_link = 0;
    assert_true(flow(&j, COSTS_ZERO0).seconds < 0);
    // nothing goes between GPUs of a node
    j.gpus = 1;
    j.nodes = 4;
    j.node_link = 10;
    assert_float_equal(flow(&j, COSTS_ZERO0).seconds, 0.3, 1e-12);
}

/* 2 layers, samples of 8 tokens of 4 elements: 64 bytes in 16 bits, 256 bytes in 4 samples. */
static costs_job layered(void)
{
    costs_job j = plain();

    j.layers = 2;
    j.hidden = 4;
    j.tokens = 8;
    j.micro_batch = 4;
    j.accumulation = 3;
    return j;
}

static void test_tensor(void **state)
{
    costs_job j = layered();

    (void)state;
    assert_false(costs_applies(&j, COSTS_TENSOR));
    j.tensor = 2;
    // 4 all-reduces x 2 layers x 3 micro batches of 256 bytes, each 2 (t-1)/t of them
    check(&j, COSTS_TENSOR, 6144, 24576, 0);
    // half the model on each, averaged over 2
    check(&j, COSTS_ZERO0, 1000, 4000, 0);
    check(&j, COSTS_SERVER, 1000, 4000, 0);
    // two rings go through each node
    j.nodes = 2;
    check(&j, COSTS_TENSOR, 6144, 49152, 0);
    check(&j, COSTS_ZERO0, 1500, 12000, 3000);
    // groups as large as a node: each of its GPUs is of another ring
    j.tensor = 4;
    check(&j, COSTS_TENSOR, 9216, 73728, 0);
    check(&j, COSTS_ZERO0, 500, 4000, 2000);
    // and larger ones: their rings leave nodes, nothing is left to average
    j.tensor = 8;
    check(&j, COSTS_TENSOR, 10752, 86016, 10752);
    check(&j, COSTS_ZERO0, 0, 0, 0);
    check(&j, COSTS_SERVER, 0, 0, 0);
    j.micro_batch = 0;
    assert_false(costs_applies(&j, COSTS_TENSOR));
}

static void test_pipeline(void **state)
{
    costs_job j = layered();

    (void)state;
    assert_false(costs_applies(&j, COSTS_PIPELINE));
    j.pipeline = 2;
    assert_false(costs_applies(&j, COSTS_ZERO2));
    assert_false(costs_applies(&j, COSTS_ZERO3));
    // 3 micro batches of 256 bytes, forwards or backwards; one border, 2 ranks on each side
    check(&j, COSTS_PIPELINE, 768, 3072, 0);
    check(&j, COSTS_ZERO1, 1000, 4000, 0);
    // a stage is a node
    j.nodes = 2;
    check(&j, COSTS_PIPELINE, 768, 6144, 3072);
    check(&j, COSTS_ZERO1, 1500, 12000, 0);
    // in the middle both ways; two stages a node
    j.layers = 4;
    j.pipeline = 4;
    check(&j, COSTS_PIPELINE, 1536, 9216, 1536);
    // 2 parts each: 7 borders
    j.layers = 8;
    j.interleave = 2;
    check(&j, COSTS_PIPELINE, 3072, 21504, 4608);
}

static void refused(const costs_job *job, int code, const char *text)
{
    ckpt_err err = {0};

    assert_int_equal(costs_check(job, &err), code);
    if (!strstr(err.text, text))
        fail_msg("'%s' lacks '%s'", err.text, text);
}

static void test_refusals(void **state)
{
    costs_job j = plain();

    (void)state;
    j.node_link = 10;
    refused(&j, CKPT_EUSAGE, "one node");
    j.nodes = 2;
    refused(&j, CKPT_EUSAGE, "--node-link needs --link");
    j.link = 10;
    j.node_link = 0;
    refused(&j, CKPT_EUSAGE, "--link needs --node-link");
    j.gpus = 1;
    refused(&j, CKPT_EUSAGE, "--link has no effect");
    j = plain();
    j.tensor = 3;
    refused(&j, CKPT_EUSAGE, "does not divide the 4 GPUs");
    j.tensor = 8;
    refused(&j, CKPT_EUSAGE, "does not divide the 4 GPUs");
    j.tensor = 2;
    j.pipeline = 3;
    refused(&j, CKPT_EUSAGE, "--pipeline 3 does not divide");
    j.gpus = 6;
    j.nodes = 2;
    j.tensor = 4;
    j.pipeline = 1;
    refused(&j, CKPT_EUSAGE, "do not fill nodes of 6");
    j.tensor = 1;
    j.pipeline = 3;
    refused(&j, CKPT_EUSAGE, "in the middle of a node");
    j = layered();
    j.pipeline = 4;
    refused(&j, CKPT_EUSAGE, "2 layers cannot be divided into 4 equal parts");
    j = plain();
    j.params = UINT64_C(1) << 51;
    refused(&j, CKPT_ELIMIT, "2^24 GPUs");
    j = plain();
    j.gpus = UINT64_C(1) << 40;
    refused(&j, CKPT_ELIMIT, "2^24 GPUs");
}

/* What fits is exact, what does not is refused. */
static void test_limits(void **state)
{
    costs_job j = plain();
    costs_flow f;
    ckpt_err err = {0};

    (void)state;
    j.params = UINT64_C(1) << 50;
    j.gpus = 1 << 12;
    check(&j, COSTS_ZERO0, (UINT64_C(1) << 52) - (UINT64_C(1) << 40),
          (UINT64_C(1) << 52) * ((1 << 12) - 1), 0);
    j.gpus = j.nodes = 1 << 24;
    j.accumulation = UINT32_MAX;
    assert_int_equal(costs_check(&j, &err), CKPT_OK);
    assert_int_equal(costs_flow_of(&j, COSTS_ZERO3, &f, &err), CKPT_ELIMIT);
    j = layered();
    j.tensor = 2;
    j.layers = j.hidden = j.tokens = j.micro_batch = UINT64_MAX;
    err = (ckpt_err){0};
    assert_int_equal(costs_flow_of(&j, COSTS_TENSOR, &f, &err), CKPT_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node),     cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_accumulation), cmocka_unit_test(test_alone),
        cmocka_unit_test(test_nodes),        cmocka_unit_test(test_times),
        cmocka_unit_test(test_tensor),       cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
