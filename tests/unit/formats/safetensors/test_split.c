/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_split.c: shards as huggingface_hub assigns them.
 *
 * The cases' results are those of huggingface_hub 2.4's own function for the same sizes.
 */
#include "formats/safetensors/split.h"
#include "libckpt/base/mem.h"
#include "tests/unit/unit.h"

enum { MAX_ITEMS = 14 };

typedef struct split_case {
    size_t n;
    uint64_t limit;
    uint64_t n_bytes[MAX_ITEMS];
    size_t storage[MAX_ITEMS];
    uint32_t shard[MAX_ITEMS];
    uint32_t n_shards;
    uint64_t total;
} split_case;

static const split_case cases[] = {
    {6, 10, {6, 6, 2, 6, 2, 2}, {0, 1, 2, 3, 4, 5}, {0, 1, 1, 2, 2, 2}, 3, 24},
    {4, 10, {11, 3, 11, 3}, {0, 1, 2, 3}, {0, 2, 1, 2}, 3, 28},
    {3, 10, {3, 11, 3}, {0, 1, 2}, {1, 0, 1}, 2, 17},
    {3, 10, {10, 10, 10}, {0, 1, 2}, {0, 1, 2}, 3, 30},
    {4, 5, {0, 0, 5, 0}, {0, 1, 2, 3}, {0, 0, 0, 0}, 1, 5},
    {4, 4, {4, 4, 4, 4}, {0, 1, 0, 1}, {0, 1, 0, 1}, 2, 8},
    {4, 10, {12, 4, 12, 4}, {0, 1, 0, 1}, {0, 1, 0, 1}, 2, 16},
    {5, 10, {5, 20, 5, 20, 1}, {0, 1, 2, 1, 2}, {1, 0, 1, 0, 1}, 2, 30},
    {10,
     10,
     {0, 1, 20, 0, 12, 0, 12, 1, 7, 0},
     {0, 1, 2, 0, 4, 0, 6, 1, 8, 9},
     {3, 3, 0, 3, 1, 3, 2, 3, 3, 3},
     4,
     52},
    {5, 10, {20, 1, 20, 12, 12}, {0, 1, 0, 3, 4}, {0, 3, 0, 1, 2}, 4, 45},
    {10,
     19,
     {20, 1, 0, 12, 3, 12, 7, 3, 20, 0},
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 2},
     {0, 1, 1, 1, 1, 2, 2, 4, 3, 1},
     5,
     78},
    {14,
     19,
     {0, 3, 3, 20, 20, 0, 20, 20, 20, 3, 20, 12, 20, 7},
     {0, 1, 1, 3, 4, 5, 4, 7, 8, 9, 10, 11, 12, 13},
     {6, 6, 6, 0, 1, 6, 1, 2, 3, 6, 4, 6, 5, 7},
     8,
     145},
    {11,
     19,
     {1, 7, 7, 12, 3, 1, 7, 12, 3, 20, 7},
     {0, 1, 2, 3, 4, 5, 2, 3, 8, 9, 10},
     {0, 0, 0, 2, 2, 2, 0, 2, 2, 1, 3},
     4,
     61},
    {11,
     25,
     {12, 12, 20, 20, 0, 20, 20, 12, 7, 7, 7},
     {0, 0, 2, 3, 4, 2, 3, 7, 8, 9, 8},
     {0, 0, 1, 2, 2, 1, 2, 3, 3, 4, 3},
     5,
     78},
    {6, 7, {12, 1, 12, 0, 3, 12}, {0, 1, 0, 3, 4, 0}, {0, 1, 0, 1, 1, 0}, 2, 16},
    {6, 7, {0, 7, 7, 7, 7, 3}, {0, 1, 1, 3, 4, 5}, {0, 0, 0, 1, 2, 3}, 4, 24},
};

static void as_the_hub(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const split_case *c = &cases[k];
        ckpt_hf_item item[MAX_ITEMS];
        ckpt_hf_sums sums;
        uint32_t shard[MAX_ITEMS];
        for (size_t i = 0; i < c->n; i++)
            item[i] = (ckpt_hf_item){c->n_bytes[i], c->storage[i]};
        assert_int_equal(ckpt_hf_split(item, c->n, c->limit, shard, &sums, NULL), CKPT_OK);
        assert_int_equal(sums.n_shards, c->n_shards);
        assert_int_equal(sums.total, c->total);
        assert_memory_equal(shard, c->shard, c->n * sizeof *shard);
    }
}

static void without_limit(void **state)
{
    static const ckpt_hf_item item[] = {{UINT64_C(1) << 60, 0}, {UINT64_C(1) << 62, 1}, {0, 2}};
    ckpt_hf_sums sums;
    uint32_t shard[3] = {9, 9, 9};

    (void)state;
    assert_int_equal(ckpt_hf_split(item, 3, 0, shard, &sums, NULL), CKPT_OK);
    assert_int_equal(sums.n_shards, 1);
    assert_int_equal(shard[0] | shard[1] | shard[2], 0);
    assert_int_equal(sums.total, (UINT64_C(1) << 60) + (UINT64_C(1) << 62));
}

static void nothing(void **state)
{
    ckpt_hf_sums sums;

    (void)state;
    assert_int_equal(ckpt_hf_split(NULL, 0, 10, NULL, &sums, NULL), CKPT_OK);
    assert_int_equal(sums.n_shards, 1);
    assert_int_equal(sums.total, 0);
}

/* A tied name may stand before the tensor that holds the bytes: it counts where it stands. */
static void tied_before_owner(void **state)
{
    static const ckpt_hf_item item[] = {{6, 2}, {6, 1}, {6, 2}, {4, 3}};
    ckpt_hf_sums sums;
    uint32_t shard[4];

    (void)state;
    assert_int_equal(ckpt_hf_split(item, 4, 10, shard, &sums, NULL), CKPT_OK);
    assert_int_equal(sums.n_shards, 2);
    assert_int_equal(shard[0], 0);
    assert_int_equal(shard[1], 1);
    assert_int_equal(shard[2], 0);
    assert_int_equal(shard[3], 1);
    assert_int_equal(sums.total, 16);
}

static void overflow(void **state)
{
    static const ckpt_hf_item item[] = {{UINT64_MAX - 1, 0}, {2, 1}};
    ckpt_hf_sums sums;
    uint32_t shard[2];

    (void)state;
    assert_int_equal(ckpt_hf_split(item, 2, 0, shard, &sums, NULL), CKPT_ELIMIT);
    assert_int_equal(ckpt_hf_split(item, 2, 100, shard, &sums, NULL), CKPT_ELIMIT);
}

static void memory_runs_out(void **state)
{
    static const ckpt_hf_item item[] = {{6, 0}, {6, 1}};
    ckpt_hf_sums sums;
    uint32_t shard[2];

    (void)state;
    for (uint64_t n = 0; n < 2; n++) {
        ckpt_alloc_fail_at(n);
        int rc = ckpt_hf_split(item, 2, 10, shard, &sums, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_int_equal(rc, CKPT_ELIMIT);
    }
    assert_int_equal(ckpt_hf_split(item, 2, 10, shard, &sums, NULL), CKPT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_hub), cmocka_unit_test(without_limit),
        cmocka_unit_test(nothing),    cmocka_unit_test(tied_before_owner),
        cmocka_unit_test(overflow),   cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
