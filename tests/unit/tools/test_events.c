/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_events.c: the bytes of event files beside those that TensorFlow's and torch's writers made,
 * and the picture of a run: how points become fewer.
 */
#include "tests/unit/unit.h"
#include "tools/zerotrain/events.h"
#include "tools/zerotrain/zerotrain.h"

/* Written by tensorboard 2.21's RecordWriter from its own Event messages. */
static const uint8_t version_record[] = {
    0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0x00,
    0x00, 0x10, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e,
    0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x33, 0x8d, 0x2f, 0xe9,
};
static const uint8_t scalar_record[] = {
    0x27, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xbb, 0xe1, 0xb1, 0x46, 0x09, 0x00,
    0x00, 0x60, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x10, 0xac, 0x02, 0x2a, 0x19, 0x0a, 0x17,
    0x0a, 0x10, 0x54, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x53, 0x61, 0x6d, 0x70, 0x6c, 0x65,
    0x73, 0x2f, 0x6c, 0x72, 0x15, 0x6f, 0x12, 0x83, 0x3a, 0x45, 0x55, 0x78, 0x27,
};

static void recorded(void **state)
{
    ckpt_bytes got = {0};

    (void)state;
    assert_true(events_version(&got, 1700000000.25));
    assert_int_equal(got.n, sizeof version_record);
    assert_memory_equal(got.at, version_record, got.n);
    ckpt_vec_free(&got);
    assert_true(events_scalar(&got, 1700000001.5, 300, "Train/Samples/lr", 0.001));
    assert_int_equal(got.n, sizeof scalar_record);
    assert_memory_equal(got.at, scalar_record, got.n);
    ckpt_vec_free(&got);
}

/* As many points as there is room for, each the mean of as many updates. */
static void fewer_points(void **state)
{
    plot *p = calloc(1, sizeof *p);
    double sum = 0;

    (void)state;
    assert_non_null(p);
    for (int64_t i = 1; i <= 3 * PLOT_POINTS; i++)
        plot_add(p, &(plot_point){i, (double)i, 1});
    assert_true(p->n <= PLOT_POINTS && p->n > PLOT_POINTS / 2);
    assert_int_equal(p->each, 4);
    for (size_t i = 0; i < p->n; i++) {
        sum += p->at[i].loss;
        assert_int_equal(p->at[i].step, 4 * (int64_t)(i + 1));
        assert_true(p->at[i].loss == 4 * (double)i + 2.5 && p->at[i].lr == 1);
    }
    assert_true(sum / (double)p->n == (3.0 * PLOT_POINTS + 1) / 2);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded), cmocka_unit_test(fewer_points)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
