/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_diff.c: two maps compared by name and value.
 */
#include <math.h>

#include "libckpt/include/ckpt.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "tests/unit/unit.h"

/* What was told, one letter for each difference. */
typedef struct told {
    char what[32];
    ckpt_difference last; /* its tensors live as long as their maps */
    char a[32], b[32];    /* the names of its tensors; "": none */
} told;

static int tell(void *ctx, const ckpt_difference *d)
{
    told *t = ctx;
    size_t n = strlen(t->what);

    snprintf(t->what + n, sizeof t->what - n, "%c",
             strstr(d->what, "only in") ? d->what[8] : d->what[0]);
    t->last = *d;
    snprintf(t->a, sizeof t->a, "%s", d->a ? d->a->name : "");
    snprintf(t->b, sizeof t->b, "%s", d->b ? d->b->name : "");
    return 0;
}

/* A map of one tensor "w" over the caller's bytes. */
static ckpt_map *make(const char *name, ckpt_dtype dtype, uint64_t n, void *bytes)
{
    const ckpt_source source = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 64, .memory = bytes};
    const ckpt_tensor like = {.dtype = dtype, .ndim = 1, .shape = &n};
    ckpt_tensor *t = NULL;
    ckpt_map *map = NULL;
    uint32_t at;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = name;
    assert_int_equal(ckpt_map_add_source(map, &source, &at, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, at, 0, NULL), CKPT_OK);
    return map;
}

static int diff(ckpt_map *a, ckpt_map *b, const ckpt_diff_opts *opts, told *t)
{
    memset(t, 0, sizeof *t);
    int rc = ckpt_diff(a, b, opts, tell, t, NULL);
    ckpt_map_free(a);
    ckpt_map_free(b);
    return rc;
}

static void values_by_bits_and_by_tolerance(void **state)
{
    float a[16] = {1, 2, NAN, -0.0f}, b[16] = {1, 2.5f, NAN, 0.0f};
    const ckpt_diff_opts loose = {.tolerance = 0.5}, tight = {.tolerance = 0.25};
    told t;

    (void)state;
    assert_int_equal(diff(make("w", CKPT_F32, 4, a), make("w", CKPT_F32, 4, a), NULL, &t), CKPT_OK);
    assert_int_equal(diff(make("w", CKPT_F32, 4, a), make("w", CKPT_F32, 4, b), NULL, &t),
                     CKPT_EDIFFERS);
    assert_string_equal(t.what, "v");
    assert_int_equal(t.last.n_different, 1);
    assert_int_equal(t.last.first, 1);
    assert_true(t.last.max_abs == 0.5);
    assert_int_equal(diff(make("w", CKPT_F32, 4, a), make("w", CKPT_F32, 4, b), &loose, &t),
                     CKPT_OK);
    assert_int_equal(diff(make("w", CKPT_F32, 4, a), make("w", CKPT_F32, 4, b), &tight, &t),
                     CKPT_EDIFFERS);
}

static void nan_differs_from_a_number(void **state)
{
    float a[16] = {NAN}, b[16] = {1};
    const ckpt_diff_opts loose = {.tolerance = 1e30};
    told t;

    (void)state;
    assert_int_equal(diff(make("w", CKPT_F32, 1, a), make("w", CKPT_F32, 1, b), &loose, &t),
                     CKPT_EDIFFERS);
    assert_int_equal(t.last.n_different, 1);
}

/* Bytes told, and after how many calls it says stop. */
typedef struct going {
    unsigned calls, stop_at;
    uint64_t done, total;
} going;

static int go_on(void *ctx, uint64_t done, uint64_t total)
{
    going *g = ctx;

    assert_true(done > g->done && done <= total);
    g->done = done;
    g->total = total;
    return ++g->calls == g->stop_at;
}

static void progress_is_told_and_may_stop(void **state)
{
    float a[16] = {1, 2}, b[16] = {1, 3};
    going all = {.stop_at = 0}, stopped = {.stop_at = 1};
    ckpt_diff_opts opts = {.size = sizeof opts, .progress = go_on, .progress_ctx = &all};
    told t;

    (void)state;
    assert_int_equal(diff(make("w", CKPT_F32, 4, a), make("w", CKPT_F32, 4, b), &opts, &t),
                     CKPT_EDIFFERS);
    assert_int_equal(all.calls, 1);
    assert_int_equal(all.done, 16);
    assert_int_equal(all.total, 16);
    opts.progress_ctx = &stopped;
    assert_int_equal(diff(make("w", CKPT_F32, 4, a), make("w", CKPT_F32, 4, b), &opts, &t),
                     CKPT_ECANCELED);
    assert_string_equal(t.what, "");
    // names that only one has are no work
    all = (going){.stop_at = 0};
    opts.progress_ctx = &all;
    assert_int_equal(diff(make("w", CKPT_F32, 4, a), make("v", CKPT_F32, 4, a), &opts, &t),
                     CKPT_EDIFFERS);
    assert_int_equal(all.calls, 0);
}

static void dtypes_shapes_and_names(void **state)
{
    float a[16] = {1.5f};
    uint16_t half[32] = {0x3fc0}; /* 1.5 in bfloat16 */
    int64_t ints[8] = {7};
    const ckpt_diff_opts any = {.ignore_dtype = true};
    told t;

    (void)state;
    assert_int_equal(diff(make("w", CKPT_F32, 1, a), make("w", CKPT_BF16, 1, half), NULL, &t),
                     CKPT_EDIFFERS);
    assert_string_equal(t.what, "d");
    assert_int_equal(diff(make("w", CKPT_F32, 1, a), make("w", CKPT_BF16, 1, half), &any, &t),
                     CKPT_OK);
    assert_int_equal(diff(make("w", CKPT_F32, 1, a), make("w", CKPT_I64, 1, ints), &any, &t),
                     CKPT_EDIFFERS);
    assert_int_equal(diff(make("w", CKPT_F32, 1, a), make("w", CKPT_F32, 2, a), NULL, &t),
                     CKPT_EDIFFERS);
    assert_string_equal(t.what, "s");
    assert_int_equal(diff(make("w", CKPT_F32, 1, a), make("x", CKPT_F32, 1, a), NULL, &t),
                     CKPT_EDIFFERS);
    assert_string_equal(t.what, "AB");
}

static void other_kinds_compare_by_bits(void **state)
{
    int64_t a[8] = {1, 2, 3}, b[8] = {1, 9, 9};
    told t;

    (void)state;
    assert_int_equal(diff(make("w", CKPT_I64, 3, a), make("w", CKPT_I64, 3, b), NULL, &t),
                     CKPT_EDIFFERS);
    assert_int_equal(t.last.n_different, 2);
    assert_int_equal(t.last.first, 1);
}

/* A map with the parameter "w", whose optimizer has one group. */
static ckpt_map *make_run(float *w, int64_t step)
{
    ckpt_map *map = make("w", CKPT_F32, 1, w);
    ckpt_state *state;

    assert_int_equal(ckpt_state_new(&state, map, "", NULL), CKPT_OK);
    ckpt_tensor **param = ckpt_vec_push(&state->param);
    ckpt_group *group = ckpt_vec_push(&state->group);
    assert_true(param && group);
    *param = map->tensors.at[0];
    *group = (ckpt_group){.n = 1, .n_lanes = 1};
    if (step < 0)
        return map;
    group->fields = ckpt_value_new(map->arena, CKPT_V_DICT);
    assert_true(ckpt_dict_add_cstr(map->arena, &group->fields->as.map, "step",
                                   ckpt_value_int(map->arena, step)));
    return map;
}

/* Add a step count. */
static ckpt_map *with_step_of(ckpt_map *map, const char *name, float *step)
{
    const ckpt_source source = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 4, .memory = step};
    const ckpt_tensor like = {.dtype = CKPT_F32, .role = CKPT_ROLE_STATE};
    ckpt_tensor *t = NULL;
    uint32_t at;

    assert_int_equal(ckpt_map_add_source(map, &source, &at, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, at, 0, NULL), CKPT_OK);
    return map;
}

static ckpt_map *with_step(ckpt_map *map, float *step)
{
    return with_step_of(map, "step/w", step);
}

/* apex counts steps in a group's settings, torch for each parameter: the counts decide. */
static void steps_of_groups(void **state)
{
    float w[16] = {1}, step[1] = {3};
    const ckpt_diff_opts opts = {0}, exact = {.size = sizeof exact, .exact = true};
    told t;

    (void)state;
    assert_int_equal(diff(make_run(w, 3), with_step(make_run(w, -1), step), &opts, &t), CKPT_OK);
    assert_string_equal(t.what, "");
    assert_int_equal(diff(with_step(make_run(w, -1), step), make_run(w, 3), &opts, &t), CKPT_OK);
    assert_int_equal(diff(make_run(w, 4), with_step(make_run(w, -1), step), &opts, &t),
                     CKPT_EDIFFERS);
    assert_string_equal(t.what, "B");
    assert_int_equal(diff(make_run(w, -1), with_step(make_run(w, -1), step), &opts, &t),
                     CKPT_EDIFFERS);
    assert_int_equal(diff(with_step(make_run(w, -1), step), make_run(w, 3), &exact, &t),
                     CKPT_EDIFFERS);
    // an optimizer that counts for each parameter does not count for groups
    ckpt_map *both = with_step(with_step_of(make_run(w, -1), "step/v", step), step);
    assert_int_equal(diff(both, with_step_of(make_run(w, 3), "step/v", step), &opts, &t),
                     CKPT_EDIFFERS);
    assert_string_equal(t.what, "A");
}

/* A map of a tensor "w", and of another name with its bytes. */
static ckpt_map *with_alias(void *bytes)
{
    ckpt_map *map = make("w", CKPT_F32, 4, bytes);
    ckpt_tensor *t = NULL;
    ckpt_tensor like = *map->tensors.at[0];

    like.owner = map->tensors.at[0];
    assert_int_equal(ckpt_map_add(map, "again", 5, &like, &t, NULL), CKPT_OK);
    return map;
}

static int refuse(void *ctx, const ckpt_difference *d)
{
    (void)ctx, (void)d;
    return 1;
}

/* Only a caller that gets the tied names takes maps with and without them as equal. */
static void tied_names(void **state)
{
    float a[16] = {1, 2}, b[16] = {1, 3};
    const ckpt_diff_opts ask = {.size = sizeof ask, .tied = tell};
    const ckpt_diff_opts stop = {.size = sizeof stop, .tied = refuse};
    told t;

    (void)state;
    assert_int_equal(diff(with_alias(a), make("w", CKPT_F32, 4, a), NULL, &t), CKPT_EDIFFERS);
    assert_string_equal(t.what, "A");
    assert_int_equal(diff(with_alias(a), make("w", CKPT_F32, 4, a), &ask, &t), CKPT_OK);
    assert_string_equal(t.what, "t");
    assert_string_equal(t.last.what, "tied in A");
    assert_string_equal(t.a, "again");
    assert_string_equal(t.b, "w");
    assert_int_equal(diff(make("w", CKPT_F32, 4, b), with_alias(a), &ask, &t), CKPT_EDIFFERS);
    assert_string_equal(t.what, "vt");
    assert_string_equal(t.last.what, "tied in B");
    assert_int_equal(diff(with_alias(a), make("w", CKPT_F32, 4, a), &stop, &t), CKPT_ECANCELED);
}

/* The groups that were told. */
typedef struct groups_told {
    told differences;
    ckpt_diff_group at[4];
    char name[4][32];
    size_t n;
} groups_told;

static int tell_group(void *ctx, const ckpt_diff_group *g)
{
    groups_told *t = ctx;

    assert_true(t->n < 4);
    snprintf(t->name[t->n], sizeof t->name[t->n], "%s", g->name);
    t->at[t->n++] = *g;
    return 0;
}

/* Add a tensor of four floats. */
static ckpt_map *plus(ckpt_map *map, const char *name, ckpt_dtype dtype, void *bytes)
{
    const ckpt_source source = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 64, .memory = bytes};
    const uint64_t n = 4;
    const ckpt_tensor like = {.dtype = dtype, .ndim = 1, .shape = &n};
    ckpt_tensor *t = NULL;
    uint32_t at;

    assert_int_equal(ckpt_map_add_source(map, &source, &at, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, at, 0, NULL), CKPT_OK);
    return map;
}

static groups_told summed(ckpt_map *a, ckpt_map *b, int code)
{
    const ckpt_diff_opts opts = {.size = sizeof opts, .group = tell_group};
    groups_told t = {.n = 0};

    assert_int_equal(ckpt_diff(a, b, &opts, tell, &t, NULL), code);
    ckpt_map_free(a);
    ckpt_map_free(b);
    return t;
}

/* Layers are one group; distances are those of all its elements. */
static void sums_of_groups(void **state)
{
    float one[16] = {3, 0, 0, 0}, two[16] = {0, 4, 0, 0}, off[16] = {0, 4, 0, 1};
    groups_told t =
        summed(plus(make("h.0.w", CKPT_F32, 4, one), "h.11.w", CKPT_F32, two),
               plus(make("h.0.w", CKPT_F32, 4, one), "h.11.w", CKPT_F32, off), CKPT_EDIFFERS);

    (void)state;
    assert_int_equal(t.n, 1);
    assert_string_equal(t.name[0], "h.*.w");
    assert_int_equal(t.at[0].n_tensors, 2);
    assert_int_equal(t.at[0].n_tensors_different, 1);
    assert_int_equal(t.at[0].n_elems, 8);
    assert_int_equal(t.at[0].n_different, 1);
    assert_true(t.at[0].relative_error == 0.2);
    assert_true(fabs(t.at[0].cosine - 25 / sqrt(25.0 * 26)) < 1e-15);
    assert_true(t.at[0].max_abs == 1);
    // "h10" is a name, not a number
    t = summed(plus(make("h10.w", CKPT_F32, 4, one), "h.1", CKPT_F32, two),
               plus(make("h10.w", CKPT_F32, 4, one), "h.1", CKPT_F32, two), CKPT_OK);
    assert_int_equal(t.n, 2);
    assert_string_equal(t.name[0], "h10.w");
    assert_string_equal(t.name[1], "h.*");
    assert_true(t.at[1].relative_error == 0 && t.at[1].cosine == 1 && t.at[1].max_abs == 0);
}

/* NaN and infinities are counted and left out; what is not defined is NaN. */
static void sums_of_odd_values(void **state)
{
    float a[16] = {NAN, INFINITY, 2, 1}, b[16] = {NAN, 1, NAN, 2}, zero[16] = {0};
    double huge[8] = {1e300, 1, 1, 1}, more[8] = {2e300, 1, 1, 1};
    groups_told t = summed(make("w", CKPT_F32, 4, a), make("w", CKPT_F32, 4, b), CKPT_EDIFFERS);

    (void)state;
    assert_int_equal(t.at[0].n_different, 3);
    assert_int_equal(t.at[0].n_nan_a, 1);
    assert_int_equal(t.at[0].n_nan_b, 2);
    assert_int_equal(t.at[0].n_inf_a, 1);
    assert_int_equal(t.at[0].n_inf_b, 0);
    assert_true(t.at[0].relative_error == 1 && t.at[0].max_abs == 1);
    t = summed(make("w", CKPT_F32, 4, zero), make("w", CKPT_F32, 4, zero), CKPT_OK);
    assert_true(t.at[0].relative_error == 0 && isnan(t.at[0].cosine));
    a[0] = a[1] = 0;
    t = summed(make("w", CKPT_F32, 4, zero), make("w", CKPT_F32, 4, a), CKPT_EDIFFERS);
    assert_true(isinf(t.at[0].relative_error) && isnan(t.at[0].cosine) && t.at[0].max_abs == 2);
    t = summed(make("w", CKPT_F64, 4, huge), make("w", CKPT_F64, 4, more), CKPT_EDIFFERS);
    assert_true(isnan(t.at[0].relative_error) && isnan(t.at[0].cosine));
    assert_true(t.at[0].max_abs == 1e300);
    // bytes have no distance
    t = summed(make("w", CKPT_BITS8, 4, a), make("w", CKPT_BITS8, 4, b), CKPT_EDIFFERS);
    assert_int_equal(t.at[0].n_elems, 4);
    assert_true(t.at[0].n_different > 0 && isnan(t.at[0].relative_error) && isnan(t.at[0].max_abs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_groups),
        cmocka_unit_test(sums_of_odd_values),
        cmocka_unit_test(tied_names),
        cmocka_unit_test(steps_of_groups),
        cmocka_unit_test(values_by_bits_and_by_tolerance),
        cmocka_unit_test(nan_differs_from_a_number),
        cmocka_unit_test(progress_is_told_and_may_stop),
        cmocka_unit_test(dtypes_shapes_and_names),
        cmocka_unit_test(other_kinds_compare_by_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
