/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_schedule.c: learning rates and betas of every schedule against DeepSpeed's own, from the
 * first update and from any later one; settings that are refused.
 */
#include "tests/unit/engine/help.h"
#include "tests/unit/unit.h"

enum { GROUPS = 2 };

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

static void near(const char *what, uint64_t k, double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%s: update %d: %.17g instead of %.17g", what, (int)k, got, want);
}

/* An entry per update: a number, or a list with one per group. */
static double per_group(const ckpt_value *v, size_t group)
{
    return v->kind == CKPT_V_LIST ? gold_value(v->as.seq.at[group]) : gold_value(v);
}

static zt_schedule parse(const ckpt_value *c)
{
    zt_schedule s;
    ckpt_err err = {0};

    if (zt_schedule_parse(&s, c, &err) != CKPT_OK)
        fail_msg("%s: %s", gold_text(c, "name"), err.text);
    // a case without betas stands for an optimizer that has none
    s.cycle_momentum = s.cycle_momentum && gold_has(c, "betas");
    return s;
}

static void start(const ckpt_value *c, zt_hyper *h, double *own)
{
    for (size_t g = 0; g < GROUPS; g++) {
        own[g] = per_group(ckpt_value_get(c, "optimizer_lr"), g);
        h[g] = (zt_hyper){.lr = own[g], .beta1 = 0.9, .beta2 = 0.999};
    }
}

static void check_update(const ckpt_value *c, const zt_hyper *h, size_t n, uint64_t k)
{
    const char *name = gold_text(c, "name");

    for (size_t g = 0; g < n; g++)
        near(name, k, h[g].lr, per_group(gold_list(c, "lr").at[k], g));
    if (gold_has(c, "betas_seq")) {
        near(name, k, h[0].beta1, gold_value(gold_list(c, "betas_seq").at[k]->as.seq.at[0]));
        near(name, k, h[0].beta2, gold_value(gold_list(c, "betas_seq").at[k]->as.seq.at[1]));
    } else {
        assert_true(h[0].beta1 == 0.9 && h[0].beta2 == 0.999);
    }
}

static void check_case(const ckpt_value *c)
{
    size_t n = (size_t)gold_number(c, "groups");
    zt_schedule s = parse(c);
    zt_hyper h[GROUPS];
    double own[GROUPS];
    ckpt_err err = {0};

    assert_in_range(n, 1, GROUPS);
    assert_int_equal(zt_schedule_check(&s, n, &err), CKPT_OK);
    start(c, h, own);
    zt_schedule_begin(&s, h, own, n);
    for (uint64_t k = 0; k < gold_list(c, "lr").n; k++) {
        check_update(c, h, n, k);
        zt_schedule_step(&s, h, own, n);
    }
}

/* After a load the rate is the checkpoint's; the next step goes on from last_batch_iteration. */
static void check_resume(const ckpt_value *c)
{
    ckpt_seq list = gold_list(c, "resume");
    size_t n = (size_t)gold_number(c, "groups");

    assert_true(list.n > 0);
    for (uint64_t i = 0; i < list.n; i++) {
        zt_schedule s = parse(c);
        zt_hyper h[GROUPS];
        double own[GROUPS];

        start(c, h, own);
        s.last =
            (int64_t)gold_number(ckpt_value_get(list.at[i], "state_dict"), "last_batch_iteration");
        zt_schedule_step(&s, h, own, n);
        for (size_t g = 0; g < n; g++)
            near(gold_text(c, "name"), (uint64_t)s.last, h[g].lr,
                 gold_value(gold_list(list.at[i], "lr_after_next_step").at[g]));
    }
}

static void test_golden(void **state)
{
    ckpt_seq list = gold_list(gold_json(arena, "lr_schedules.json"), "cases");

    (void)state;
    assert_int_equal(list.n, 20);
    for (uint64_t i = 0; i < list.n; i++) {
        check_case(list.at[i]);
        check_resume(list.at[i]);
    }
}

/* One schedule of transformers: the rates of every update, and of a run that resumes after 5. */
static void check_factors(const ckpt_value *c)
{
    ckpt_seq base = gold_list(c, "lrs"), rates = gold_list(c, "lr");
    double own[GROUPS];
    zt_hyper h[GROUPS], later[GROUPS];
    zt_schedule s = parse(c), resumed;
    ckpt_err err = {0};

    assert_true(base.n >= 1 && base.n <= GROUPS && zt_schedule_is_factor(&s));
    for (size_t i = 0; i < base.n; i++)
        own[i] = gold_value(base.at[i]);
    assert_int_equal(zt_schedule_base(&s, own[0], &err), CKPT_OK);
    resumed = s;
    zt_schedule_begin(&s, h, own, base.n);
    for (uint64_t k = 0; k < rates.n; k++) {
        for (size_t i = 0; i < base.n; i++) {
            double want = gold_value(rates.at[k]->as.seq.at[i]);
            if (!(fabs(h[i].lr - want) <= 4e-16 * fabs(want)))
                fail_msg("%s: update %d: %.17g instead of %.17g", s.name, (int)k, h[i].lr, want);
        }
        zt_schedule_step(&s, h, own, base.n);
    }
    resumed.last = 4;
    zt_schedule_step(&resumed, later, own, base.n);
    assert_true(later[0].lr == gold_value(rates.at[6]->as.seq.at[0]));
}

static void test_transformers(void **state)
{
    ckpt_seq list = gold_list(gold_json(arena, "hf_schedules.json"), "cases");
    zt_schedule s;
    ckpt_err err = {0};

    (void)state;
    assert_true(list.n > 0);
    for (uint64_t i = 0; i < list.n; i++)
        check_factors(list.at[i]);
    assert_int_equal(zt_schedule_parse(&s,
                                       gold_parse(arena, "type: 'polynomial', params: "
                                                         "{num_training_steps: 3, lr_end: 1}"),
                                       &err),
                     CKPT_OK);
    assert_int_equal(zt_schedule_base(&s, 1, &err), CKPT_EUSAGE);
}

/* What the original's constructors refuse; lists are counted against the groups of the run. */
static void test_golden_errors(void **state)
{
    ckpt_seq list = gold_list(gold_json(arena, "lr_schedules.json"), "errors");

    (void)state;
    assert_true(list.n > 0);
    for (uint64_t i = 0; i < list.n; i++) {
        zt_schedule s;
        ckpt_err err = {0};
        int rc = zt_schedule_parse(&s, list.at[i], &err);

        if (rc == CKPT_OK)
            rc = zt_schedule_check(&s, 1, &err);
        assert_int_equal(rc, CKPT_EUSAGE);
    }
}

static void refuse(const char *text, int code, const char *says)
{
    zt_schedule s;
    ckpt_err err = {0};
    int rc = zt_schedule_parse(&s, gold_parse(arena, text), &err);

    if (rc != code || !strstr(err.text, says))
        fail_msg("%s: code %d '%s', expected %d and '%s'", text, rc, err.text, code, says);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("type: 'warmuplr'", CKPT_EUNSUPPORTED, "WarmupLR");
    refuse("type: 'CosineAnnealingLR'", CKPT_EUNSUPPORTED, "WarmupCosineLR");
    refuse("type: 'warmup_stable_decay'", CKPT_EUNSUPPORTED, "constant_with_warmup");
    refuse("type: 'linear'", CKPT_EUSAGE, "num_training_steps");
    refuse("type: 'linear', params: {num_training_steps: 3, power: 2}", CKPT_EUNSUPPORTED, "power");
    refuse("type: 'constant', params: {num_warmup_steps: 2}", CKPT_EUNSUPPORTED, "num_warmup");
    refuse("type: 'inverse_sqrt', params: {timescale: 0}", CKPT_EUSAGE, "timescale");
    refuse("type: 'cosine_with_min_lr', params: {num_training_steps: 3}", CKPT_EUSAGE, "min_lr");
    refuse("type: 'cosine_with_min_lr', params: {num_training_steps: 3, min_lr: 0, min_lr_rate: 0}",
           CKPT_EUSAGE, "not both");
    refuse("type: [1]", CKPT_EUSAGE, "type");
    refuse("type: 'WarmupLR', params: 3", CKPT_EUSAGE, "params");
    refuse("type: 'WarmupLR', params: {total_num_steps: 3}", CKPT_EUNSUPPORTED, "total_num_steps");
    refuse("type: 'WarmupLR', params: {warmup_max_lr: 'auto'}", CKPT_EUSAGE, "warmup_max_lr");
    refuse("type: 'WarmupLR', params: {warmup_max_lr: [1, 'x']}", CKPT_EUSAGE, "warmup_max_lr");
    refuse("type: 'WarmupLR', params: {warmup_type: 1}", CKPT_EUSAGE, "warmup_type");
    refuse("type: 'WarmupLR', params: {warmup_num_steps: '3'}", CKPT_EUSAGE, "warmup_num_steps");
    refuse("type: 'WarmupCosineLR', params: {total_num_steps: null}", CKPT_EUSAGE, "total_num");
    refuse("type: 'WarmupCosineLR'", CKPT_EUSAGE, "total_num_steps");
    refuse("type: 'OneCycle', params: {cycle_min_lr: 1, cycle_max_lr: 2, cycle_momentum: 1}",
           CKPT_EUSAGE, "cycle_momentum");
    refuse(
        "type: 'OneCycle', params: {cycle_min_lr: 1, cycle_max_lr: 2, cycle_second_step_size: -1}",
        CKPT_EUSAGE, "cycle_second_step_size");
    refuse("type: 'LRRangeTest', params: {lr_range_test_step_rate: []}", CKPT_EUSAGE, "step_rate");
}

/* No scheduler: rates stay what they are; with a start in the config they wait for the next step.
 */
static void test_beginnings(void **state)
{
    zt_schedule s;
    zt_hyper h = {.lr = 0.5, .beta1 = 0.9, .beta2 = 0.999};
    double own = 0.5;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zt_schedule_parse(&s, NULL, &err), CKPT_OK);
    assert_int_equal(s.type, ZT_SCHEDULE_NONE);
    zt_schedule_begin(&s, &h, &own, 1);
    zt_schedule_step(&s, &h, &own, 1);
    assert_true(h.lr == 0.5 && h.beta1 == 0.9 && h.beta2 == 0.999);

    assert_int_equal(
        zt_schedule_parse(&s,
                          gold_parse(arena, "type: 'WarmupLR', params: {warmup_type: 'linear', "
                                            "warmup_num_steps: 10.0, warmup_max_lr: 1, "
                                            "last_batch_iteration: 3}"),
                          &err),
        CKPT_OK);
    zt_schedule_begin(&s, &h, &own, 1);
    assert_true(h.lr == 0.5);
    zt_schedule_step(&s, &h, &own, 1);
    assert_int_equal(s.last, 4);
    assert_true(h.lr == 0.4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_transformers),
        cmocka_unit_test(test_golden_errors), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_beginnings),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
