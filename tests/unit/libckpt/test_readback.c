/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_readback.c: a training folder that does not say what it was made of is never made visible;
 * what was rewritten or left out must have been said, and is counted.
 */
#include "libckpt/include/ckpt.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

#define RUN "tests/fixtures/z1_bf16_w3_groups"

/* One conversion: the source, and what happens to it between the layout and the writing. */
typedef struct run {
    char dir[FOLDER_PATH], out[FOLDER_PATH];
    ckpt_map *from, *to;
    ckpt_plan *plan;
    ckpt_run_report report;
    ckpt_err err;
} run;

static void open_run(run *r, const ckpt_target *like)
{
    const ckpt_open_opts open = {.with_optimizer = true, .keep_slices = true};
    ckpt_target target = *like;

    memset(r, 0, sizeof *r);
    folder_new(r->dir);
    folder_join(r->out, r->dir, "out");
    target.path = r->out;
    if (ckpt_open(&r->from, RUN "/ckpt", &open, &r->err) != CKPT_OK ||
        ckpt_layout(&r->to, r->from, &target, &r->err) != CKPT_OK ||
        ckpt_plan_new(&r->plan, r->from, r->to, NULL, &r->err) != CKPT_OK)
        fail_msg("%s", r->err.text);
}

static int write_run(run *r)
{
    const ckpt_run_opts opts = {.skip_fsync = true, .force = true};

    return ckpt_plan_run(r->plan, &opts, &r->report, &r->err);
}

static void close_run(run *r)
{
    ckpt_plan_free(r->plan);
    ckpt_map_free(r->to);
    ckpt_map_free(r->from);
    folder_remove(r->dir);
}

/* ---- states that are not what was written ---- */

static ckpt_state *state_of(run *r)
{
    return r->from->states.at[0];
}

static ckpt_value *field_of(run *r, const char *key)
{
    ckpt_value *v = ckpt_value_get(state_of(r)->group.at[0].fields, key);

    assert_non_null(v);
    return v;
}

static void other_rate(run *r)
{
    field_of(r, "lr")->as.f *= 2;
}

static void more_fields(run *r)
{
    ckpt_value *fields = state_of(r)->group.at[0].fields;

    assert_true(ckpt_dict_add_cstr(r->from->arena, &fields->as.map, "momentum",
                                   ckpt_value_float(r->from->arena, 0.5)));
}

static void other_schedule(run *r)
{
    ckpt_value *v = ckpt_value_get(state_of(r)->model, "lr_scheduler");

    v = ckpt_value_get(v, "last_batch_iteration");
    assert_non_null(v);
    v->as.i++;
}

static void other_counter(run *r)
{
    ckpt_value *v = ckpt_value_get(state_of(r)->model, "global_steps");

    assert_non_null(v);
    v->as.i++;
}

static void other_order(run *r)
{
    ckpt_tensor **p = state_of(r)->param.at, *first = p[0];

    p[0] = p[1];
    p[1] = first;
}

static void other_group(run *r)
{
    ckpt_group *g = state_of(r)->group.at;

    g[0].n--;
    g[1].first--;
    g[1].n++;
}

static void no_tie(run *r)
{
    for (size_t i = 0; i < r->from->tensors.n; i++) {
        if (r->from->tensors.at[i]->owner) {
            r->from->tensors.at[i]->owner = NULL;
            return;
        }
    }
    fail_msg("nothing is tied");
}

static void other_shape(run *r)
{
    ckpt_tensor *t = state_of(r)->param.at[0];
    uint64_t *shape = ckpt_arena_copy(r->from->arena, t->shape, t->ndim * sizeof *shape);

    assert_non_null(shape);
    shape[0]++;
    t->shape = shape;
}

static void other_step(run *r)
{
    static float nine = 9;
    const ckpt_tensor *step =
        ckpt_state_moment(r->from, state_of(r), "step", state_of(r)->param.at[0]);
    const ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 4, .memory = &nine};
    uint32_t source = 0;

    assert_non_null(step);
    assert_int_equal(ckpt_map_add_source(r->from, &s, &source, &r->err), CKPT_OK);
    assert_int_equal(
        ckpt_map_back_whole(r->from, (ckpt_tensor *)(uintptr_t)step, source, 0, &r->err), CKPT_OK);
}

static void unsaid(run *r)
{
    r->to->findings.n = 0;
}

static void other_world(run *r)
{
    r->to->claim.world++;
}

static void other_dtype(run *r)
{
    r->to->claim.dtype = CKPT_F16;
}

/* ---- the tests ---- */

static void what_differs_is_not_made_visible(void **state)
{
    static const struct {
        const char *what; /* in the message */
        void (*change)(run *r);
    } cases[] = {
        {"param_groups[0].lr has another value", other_rate},
        {"param_groups[0].momentum is not there", more_fields},
        {"lr_scheduler.last_batch_iteration has another value", other_schedule},
        {"global_steps has another value", other_counter},
        {"in the place of", other_order},
        {"in a group, parameters:", other_group},
        {"is tied to something else", no_tie},
        {"has another shape", other_shape},
        {"is another number", other_step},
        {"dp_world_size has another value", unsaid},
        {"a world of", other_world},
        {"of a run in BF16 instead of F16", other_dtype},
    };
    const ckpt_target targets[] = {
        {.format = "zero", .stage = 2, .world = 2},
        {.format = "zero", .stage = 3, .world = 1},
    };

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        open_run(&r, &targets[k % 2]);
        cases[k].change(&r);
        int rc = write_run(&r);
        if (rc != CKPT_EMISMATCH || !strstr(r.err.text, cases[k].what))
            fail_msg("%s: %d %s", cases[k].what, rc, r.err.text);
        // no tag, no pointer, no rubbish
        assert_int_equal(access(folder_at(r.out, "latest"), F_OK), -1);
        assert_int_equal(access(folder_at(r.out, "global_step4"), F_OK), -1);
        assert_int_equal(access(folder_at(r.out, ".global_step4.ckpt-partial"), F_OK), -1);
        close_run(&r);
    }
}

/* Readers that find parameters by the names in a group do not keep them. */
static void names_of_parameters_may_be_dropped(void **state)
{
    run r;

    (void)state;
    open_run(&r, &(ckpt_target){.format = "zero", .stage = 2, .world = 2});
    ckpt_value *fields = state_of(&r)->group.at[0].fields;
    assert_true(ckpt_dict_add_cstr(r.from->arena, &fields->as.map, "param_names",
                                   ckpt_value_new(r.from->arena, CKPT_V_LIST)));
    assert_int_equal(write_run(&r), CKPT_OK);
    close_run(&r);
}

static void an_older_checkpoint_stays(void **state)
{
    const ckpt_target target = {.format = "zero", .stage = 2, .world = 2};
    ckpt_map *map = NULL;
    run r;

    (void)state;
    open_run(&r, &target);
    assert_int_equal(write_run(&r), CKPT_OK);
    other_rate(&r);
    assert_int_equal(write_run(&r), CKPT_EMISMATCH);
    assert_int_equal(ckpt_open(&map, r.out, NULL, &r.err), CKPT_OK);
    ckpt_map_free(map);
    close_run(&r);
}

static void universal_folders_are_read_back_too(void **state)
{
    run r;

    (void)state;
    open_run(&r, &(ckpt_target){.format = "universal"});
    other_rate(&r);
    assert_int_equal(write_run(&r), CKPT_EMISMATCH);
    assert_non_null(strstr(r.err.text, "param_groups[0].lr"));
    assert_int_equal(access(folder_at(r.out, "latest_universal"), F_OK), -1);
    close_run(&r);
}

/* Every entry has an owner: moments and step counts of all parameters, and all values. */
static void entries_are_counted(void **state)
{
    run r;
    size_t n;

    (void)state;
    open_run(&r, &(ckpt_target){.format = "zero", .stage = 3, .world = 2});
    n = 3 * state_of(&r)->param.n;
    assert_int_equal(write_run(&r), CKPT_OK);
    assert_true(r.report.n_state_carried > n);
    // dp_world_size, ds_config's stage in both files; clip_grad
    assert_int_equal(r.report.n_state_rewritten, 3);
    assert_int_equal(r.report.n_state_left_out, 1);
    close_run(&r);
}

static void a_fresh_optimizer_is_rewritten(void **state)
{
    run r;

    (void)state;
    open_run(&r, &(ckpt_target){.format = "zero", .stage = 2, .world = 3, .fresh_optimizer = true});
    assert_int_equal(write_run(&r), CKPT_OK);
    assert_true(r.report.n_state_rewritten >= 3 * state_of(&r)->param.n);
    close_run(&r);
}

/* Another value for a key of the model file; the old one may be that of other keys too. */
static void put_model(run *r, const char *key, ckpt_value *v)
{
    ckpt_dict *model = &state_of(r)->model->as.map;

    for (uint64_t i = 0; i < model->n; i++) {
        if (ckpt_value_is(model->at[i].key, key)) {
            model->at[i].value = v;
            return;
        }
    }
    fail_msg("no key %s", key);
}

/* Without ZeRO nobody reads shared_params: what it says must not become what a stage reads. */
static void ties_of_a_run_without_zero_are_those_of_its_storages(void **state)
{
    const ckpt_open_opts open = {.with_optimizer = true, .keep_slices = true};

    (void)state;
    for (int i = 0; i < 2; i++) {
        ckpt_target target = {.format = "zero", .stage = 1, .world = 2};
        ckpt_value *v;
        run r = {0};
        folder_new(r.dir);
        folder_join(r.out, r.dir, "out");
        target.path = r.out;
        assert_int_equal(ckpt_open(&r.from, "tests/fixtures/z0_fp16_w2_fused/ckpt", &open, &r.err),
                         CKPT_OK);
        v = ckpt_value_new(r.from->arena, i ? CKPT_V_DICT : CKPT_V_LIST);
        put_model(&r, "shared_params", v);
        if (i)
            assert_true(ckpt_dict_add_cstr(
                r.from->arena, &v->as.map, state_of(&r)->param.at[1]->name,
                ckpt_value_cstr(r.from->arena, state_of(&r)->param.at[0]->name)));
        if (ckpt_layout(&r.to, r.from, &target, &r.err) != CKPT_OK ||
            ckpt_plan_new(&r.plan, r.from, r.to, NULL, &r.err) != CKPT_OK ||
            write_run(&r) != CKPT_OK)
            fail_msg("%s", r.err.text);
        close_run(&r);
    }
}

/*
 * An order that is wrong in the state itself is written and read back as it is: held against the
 * source's model, it is found, for readers by position and for those by name.
 */
static void a_wrong_order_is_found_by_the_model(void **state)
{
    static const char *const formats[] = {"zero", "fsdp-ranks", "dcp"};
    const ckpt_open_opts open = {.with_optimizer = true, .keep_slices = true};

    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        ckpt_target target = {.format = formats[i], .world = 2, .stage = i == 0};
        run r = {0};
        folder_new(r.dir);
        folder_join(r.out, r.dir, "out");
        target.path = r.out;
        assert_int_equal(ckpt_open(&r.from, "tests/fixtures/fsdp2_mp_w2/ckpt", &open, &r.err),
                         CKPT_OK);
        other_order(&r);
        if (ckpt_layout(&r.to, r.from, &target, &r.err) != CKPT_OK ||
            ckpt_plan_new(&r.plan, r.from, r.to, NULL, &r.err) != CKPT_OK)
            fail_msg("%s", r.err.text);
        assert_int_equal(write_run(&r), CKPT_EMISMATCH);
        assert_non_null(strstr(r.err.text, "in the place of another parameter of the model"));
        close_run(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_differs_is_not_made_visible),
        cmocka_unit_test(names_of_parameters_may_be_dropped),
        cmocka_unit_test(an_older_checkpoint_stays),
        cmocka_unit_test(universal_folders_are_read_back_too),
        cmocka_unit_test(entries_are_counted),
        cmocka_unit_test(a_fresh_optimizer_is_rewritten),
        cmocka_unit_test(a_wrong_order_is_found_by_the_model),
        cmocka_unit_test(ties_of_a_run_without_zero_are_those_of_its_storages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
