/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_scaler.c: the loss scale update by update against DeepSpeed's own, and the fp16 block.
 */
#include "tests/unit/engine/help.h"
#include "tests/unit/unit.h"

static ckpt_arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    return 0;
}

static int64_t at(const ckpt_value *c, const char *key, uint64_t i)
{
    return (int64_t)gold_value(gold_list(c, key).at[i]);
}

/* State before update i; a scale's type, integer or float, is what a checkpoint shows. */
static void check_state(const ckpt_value *c, const zt_scaler *s, uint64_t i)
{
    const ckpt_value *scale = gold_list(c, "scale").at[i];
    bool left = !gold_has(c, "cur_hysteresis") || s->left == at(c, "cur_hysteresis", i);

    if (s->scale != gold_value(scale) || s->touched != (scale->kind == CKPT_V_FLOAT) ||
        s->last_overflow != at(c, "last_overflow_iter", i) || !left)
        fail_msg("%s, update %d: scale %g (float: %d), left %d, last overflow %d",
                 gold_text(c, "name"), (int)i, s->scale, s->touched, (int)s->left,
                 (int)s->last_overflow);
}

static void check_case(const ckpt_value *c)
{
    const ckpt_value *final = ckpt_value_get(c, "final");
    uint64_t n = gold_list(c, "scale").n;
    bool stage0 = ckpt_value_is(ckpt_value_get(c, "path"), "stage_0");
    zt_scaler s;
    ckpt_err err = {0};

    assert_int_equal(zt_scaler_parse(&s, ckpt_value_get(c, "fp16"), true, stage0 ? 0 : 2, &err),
                     CKPT_OK);
    for (uint64_t i = 0; i < n; i++) {
        bool ends =
            gold_has(c, "error") && gold_number(ckpt_value_get(c, "error"), "at") == (double)i;

        check_state(c, &s, i);
        assert_int_equal(zt_scaler_update(&s, at(c, "overflow", i) != 0, &err),
                         ends ? CKPT_ELIMIT : CKPT_OK);
    }
    assert_true(s.scale == gold_number(final, "cur_scale"));
    assert_int_equal(s.iter, (int64_t)gold_number(final, "cur_iter"));
    assert_int_equal(s.last_overflow, (int64_t)gold_number(final, "last_overflow_iter"));
}

static void test_golden(void **state)
{
    ckpt_seq list = gold_list(gold_json(arena, "loss_scaler.json"), "cases");

    (void)state;
    assert_int_equal(list.n, 16);
    for (uint64_t i = 0; i < list.n; i++)
        check_case(list.at[i]);
}

static zt_scaler parse(const char *text, bool fp16)
{
    zt_scaler s;
    ckpt_err err = {0};

    if (zt_scaler_parse(&s, gold_parse(arena, text), fp16, 1, &err) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
    return s;
}

/* Constants stay, whatever happens. */
static void test_constant(void **state)
{
    static const double want[3] = {1, 128, 0.5};
    zt_scaler s[3] = {parse("loss_scale: 0", false), parse("loss_scale: 128", true),
                      parse("loss_scale: '0.5'", true)};
    ckpt_err err = {0};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (int k = 0; k < 5; k++)
            assert_int_equal(zt_scaler_update(&s[i], k % 2 == 0, &err), CKPT_OK);
        assert_true(!s[i].dynamic && s[i].scale == want[i] && s[i].touched);
    }
}

static void test_block(void **state)
{
    zt_scaler s = parse("{}", true);
    ckpt_err err = {0};

    (void)state;
    assert_true(s.dynamic && s.scale == 65536 && s.window == 1000 && s.hysteresis == 2 &&
                s.left == 2 && s.min_scale == 1 && !s.consecutive && !s.touched);
    s = parse("initial_scale_power: 'auto', loss_scale_window: '50', hysteresis: 4.0, "
              "consecutive_hysteresis: 'yes', min_loss_scale: 3",
              true);
    assert_true(s.scale == 65536 && s.window == 50 && s.left == 4 && s.consecutive &&
                s.min_scale == 3);
    assert_int_equal(zt_scaler_parse(&s, NULL, false, 3, &err), CKPT_OK);
    assert_true(!s.dynamic && s.scale == 1);
    // limits count only where they are used
    (void)parse("loss_scale_window: 0, min_loss_scale: 0", false);
    (void)parse("loss_scale: 2, loss_scale_window: 0", true);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "loss_scale: -1",           "loss_scale: true",
        "loss_scale: 'x'",          "loss_scale_window: 0",
        "loss_scale_window: 980.1", "min_loss_scale: 0",
        "initial_scale_power: []",  "initial_scale_power: 5000",
        "hysteresis: 'x'",          "consecutive_hysteresis: 7",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        zt_scaler s;
        ckpt_err err = {0};

        assert_int_equal(zt_scaler_parse(&s, gold_parse(arena, bad[i]), true, 2, &err),
                         CKPT_EUSAGE);
        assert_non_null(strstr(err.text, "fp16."));
    }
}

/* A checkpoint's numbers: what an update divides by, and counts that it adds up. */
static void numbers_of_a_file(void **state)
{
    static const zt_scaler good = {.dynamic = true,
                                   .scale = 65536,
                                   .min_scale = 1,
                                   .factor = 2,
                                   .window = 1000,
                                   .hysteresis = 2,
                                   .left = 1,
                                   .iter = 5,
                                   .last_overflow = -1};
    zt_scaler bad[14];
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zt_scaler_check(&good, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        bad[i] = good;
    bad[0].window = 0;
    bad[1].window = -1;
    bad[2].iter = -1;
    bad[3].iter = INT64_MAX;
    bad[4].last_overflow = INT64_MIN;
    bad[5].last_overflow = 6;
    bad[6].scale = 0;
    bad[7].scale = (double)INFINITY;
    bad[8].factor = 0;
    bad[9].factor = (double)NAN;
    bad[10].min_scale = -1;
    bad[11].left = INT64_MIN;
    bad[12].hysteresis = INT64_MIN;
    bad[13].hysteresis = INT64_MAX;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(zt_scaler_check(&bad[i], &err), CKPT_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_file), cmocka_unit_test(test_golden),
        cmocka_unit_test(test_constant),     cmocka_unit_test(test_block),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
