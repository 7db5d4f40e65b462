/* SPDX-License-Identifier: Apache-2.0 */
/*
 * help.h: what the tests of universal checkpoints share: a small run in memory, written to a
 * folder of its own.
 *
 * Parameters a (2x3), b (4) in group 0 and c (3) in group 1, all with Adam's moments and step 7;
 * frozen f, buffer n (int64, beyond what float32 holds), "tied" another name of a.
 */
#ifndef TESTS_UNIT_FORMATS_UNIVERSAL_HELP_H
#define TESTS_UNIT_FORMATS_UNIVERSAL_HELP_H

#include "libckpt/drivers.h"
#include "libckpt/map/state.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { UNI_STEP = 7, UNI_FLOATS = 64 };
#define UNI_LONG ((INT64_C(1) << 53) + 1)

typedef struct uni_run {
    help_dir dir;
    ckpt_map *map;
    ckpt_state *state;
    float floats[UNI_FLOATS]; /* what all floating tensors are views of */
    int64_t number;
    ckpt_err err;
} uni_run;

static inline void uni_put(uni_run *r, ckpt_value *dict, const char *key, ckpt_value *v)
{
    assert_non_null(v);
    assert_true(ckpt_dict_add_cstr(r->map->arena, &dict->as.map, key, v));
}

static inline ckpt_value *uni_new(uni_run *r, ckpt_value_kind kind)
{
    ckpt_value *v = ckpt_value_new(r->map->arena, kind);

    assert_non_null(v);
    return v;
}

/* A tensor of the map whose values begin at floats[at] (source 0), or the int64 number (source 1).
 */
static inline ckpt_tensor *uni_tensor(uni_run *r, const char *name, ckpt_role role, uint64_t at,
                                      uint64_t rows, uint64_t cols)
{
    uint64_t shape[2] = {rows, cols};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = cols ? 2 : 1, .shape = shape, .role = role},
                *t = NULL;

    if (role == CKPT_ROLE_BUFFER)
        like = (ckpt_tensor){.dtype = CKPT_I64, .shape = shape, .role = role};
    assert_int_equal(ckpt_map_add(r->map, name, strlen(name), &like, &t, &r->err), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(r->map, t, role == CKPT_ROLE_BUFFER, at * 4, &r->err),
                     CKPT_OK);
    return t;
}

static inline ckpt_value *uni_flat(uni_run *r)
{
    ckpt_value *v = uni_new(r, CKPT_V_TENSOR);
    uint64_t *shape = ckpt_arena_array(r->map->arena, 2, sizeof *shape);

    shape[0] = shape[1] = 1;
    v->as.tensor = ckpt_arena_alloc(r->map->arena, sizeof *v->as.tensor);
    *v->as.tensor =
        (ckpt_tensor_value){.dtype = CKPT_F32, .ndim = 1, .shape = shape, .stride = shape + 1};
    return v;
}

static inline void uni_group(uni_run *r, size_t first, size_t n, double decay)
{
    ckpt_group *g = ckpt_vec_push(&r->state->group);

    assert_non_null(g);
    *g = (ckpt_group){.first = first,
                      .n = n,
                      .n_lanes = 1,
                      .fields = uni_new(r, CKPT_V_DICT),
                      .entry = uni_new(r, CKPT_V_DICT)};
    uni_put(r, g->fields, "lr", ckpt_value_float(r->map->arena, 0.5));
    uni_put(r, g->fields, "weight_decay", ckpt_value_float(r->map->arena, decay));
    uni_put(r, g->fields, "params", uni_new(r, CKPT_V_LIST));
    uni_put(r, g->entry, "step", ckpt_value_int(r->map->arena, UNI_STEP));
    uni_put(r, g->entry, "exp_avg", uni_flat(r));
    uni_put(r, g->entry, "exp_avg_sq", uni_flat(r));
}

static inline void uni_param(uni_run *r, const char *name, uint64_t at, uint64_t rows,
                             uint64_t cols)
{
    ckpt_tensor **slot = ckpt_vec_push(&r->state->param);
    char moment[300];

    assert_non_null(slot);
    *slot = uni_tensor(r, name, CKPT_ROLE_WEIGHT, at, rows, cols);
    for (int k = 0; k < 2; k++) {
        snprintf(moment, sizeof moment, "%s/%s", k ? "exp_avg_sq" : "exp_avg", name);
        uni_tensor(r, moment, CKPT_ROLE_STATE, at + 16 + 16 * (uint64_t)k, rows, cols);
    }
}

/* Trees of the first rank's files, as far as they are looked at. */
static inline void uni_trees(uni_run *r, const char *version)
{
    ckpt_arena *a = r->map->arena;
    ckpt_value *model = uni_new(r, CKPT_V_DICT), *optim = uni_new(r, CKPT_V_DICT),
               *osd = uni_new(r, CKPT_V_DICT);

    uni_put(r, model, "optimizer", uni_new(r, CKPT_V_NONE));
    uni_put(r, model, "global_steps", ckpt_value_int(a, 9));
    uni_put(r, model, "dp_world_size", ckpt_value_int(a, 4));
    uni_put(r, model, "ds_version", ckpt_value_cstr(a, version));
    uni_put(r, model, "iteration", ckpt_value_int(a, 1234));
    uni_put(r, osd, "clip_grad", ckpt_value_float(a, 2.5));
    uni_put(r, osd, "base_optimizer_state", uni_new(r, CKPT_V_DICT));
    uni_put(r, optim, "optimizer_state_dict", osd);
    r->state->model = model;
    r->state->optim = optim;
    r->state->version = version;
}

static inline void uni_make(uni_run *r, const char *version)
{
    ckpt_source floats = {
        .kind = CKPT_SOURCE_MEMORY, .n_bytes = sizeof r->floats, .memory = r->floats};
    ckpt_source number = {
        .kind = CKPT_SOURCE_MEMORY, .n_bytes = sizeof r->number, .memory = &r->number};
    uint32_t index = 0;

    memset(r, 0, sizeof *r);
    help_dir_make(&r->dir);
    r->number = UNI_LONG;
    for (int i = 0; i < UNI_FLOATS; i++)
        r->floats[i] = (float)i + 0.25f;
    assert_int_equal(ckpt_map_create(&r->map, 0, &r->err), CKPT_OK);
    r->map->path = "memory";
    assert_int_equal(ckpt_map_add_source(r->map, &floats, &index, &r->err), CKPT_OK);
    assert_int_equal(ckpt_map_add_source(r->map, &number, &index, &r->err), CKPT_OK);
    assert_int_equal(ckpt_state_new(&r->state, r->map, "", &r->err), CKPT_OK);
    r->state->stage = 2;
    r->state->world = 4;
    r->state->dtype = CKPT_BF16;
    uni_tensor(r, "n", CKPT_ROLE_BUFFER, 0, 0, 0);
    uni_param(r, "a", 0, 2, 3);
    uni_param(r, "b", 6, 4, 0);
    uni_param(r, "c", 10, 3, 0);
    uni_tensor(r, "f", CKPT_ROLE_FROZEN, 12, 2, 0);
    ckpt_tensor *tied = uni_tensor(r, "tied", CKPT_ROLE_WEIGHT, 0, 2, 3);
    tied->owner = r->state->param.at[0];
    uni_group(r, 0, 2, 0.1);
    uni_group(r, 2, 1, 0.0);
    uni_trees(r, version);
}

static inline void uni_free(uni_run *r)
{
    ckpt_map_free(r->map);
    help_remove(r->dir.path);
}

/* Write it as a universal checkpoint; the outcome, its text in r->err. */
static inline int uni_write(uni_run *r, const ckpt_target *like)
{
    ckpt_target target = *like;
    ckpt_run_opts opts = {.skip_fsync = true, .force = true, .jobs = 1};

    target.format = "universal";
    target.path = r->dir.path;
    r->err = (ckpt_err){0};
    return ckpt_convert(r->map, &target, &opts, NULL, &r->err);
}

/* Open what was written. */
static inline int uni_open(uni_run *r, ckpt_map **out, bool with_optimizer)
{
    ckpt_open_opts opts = {.with_optimizer = with_optimizer};

    r->err = (ckpt_err){0};
    return ckpt_open(out, r->dir.path, &opts, &r->err);
}

#endif
