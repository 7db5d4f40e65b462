/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes a distributed checkpoint with one data file per rank, like torch's
 * FileSystemWriter, and with the content of get_state_dict.
 *
 *     model.<parameter>                     weights and buffers, tied names too
 *     optim.state.<parameter>.<moment>      step counts among them
 *     optim.param_groups.<number>.<setting> and .params, the list of names
 *     <key>...                              other values of the source's program
 *
 * Other layouts use other names and have additional values (programs.c).
 *
 * Tensors are sharded along their first axis as by FSDP2: ceil(rows / ranks) per rank.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/training/param_values.h"
#include "formats/training/single_values.h"
#include "formats/training/to_fsdp.h"
#include "formats/training/torch_settings.h"
#include "formats/training/write_job.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"

typedef struct dpw_writer {
    ckpt_map *to;
    const ckpt_map *from;
    const ckpt_state *state; /* NULL: only weights are written */
    const ckpt_target *target;
    const ckpt_dcp_layout *layout;
    ckpt_train_moments moments;
    ckpt_dcp_pack pack; /* the current folder */
    ckpt_err *err;
} dpw_writer;

/* ---- items ---- */

/* A key of a path. */
static ckpt_value *dpw_key(dpw_writer *w, const char *text)
{
    return ckpt_value_cstr(w->to->arena, text);
}

/* Make a path of up to four keys. */
static ckpt_value *dpw_path(dpw_writer *w, ckpt_value *const *key, unsigned n)
{
    ckpt_value *path = ckpt_value_new(w->to->arena, CKPT_V_TUPLE);

    for (unsigned i = 0; path && i < n; i++) {
        if (!key[i] || !ckpt_seq_add(w->to->arena, &path->as.seq, key[i]))
            return NULL;
    }
    return path;
}

/* Append a key to a copy of a path. */
static ckpt_value *dpw_below(dpw_writer *w, const ckpt_value *path, ckpt_value *key)
{
    ckpt_value *longer = ckpt_value_new(w->to->arena, CKPT_V_TUPLE);

    for (uint64_t i = 0; longer && i < path->as.seq.n; i++) {
        if (!ckpt_seq_add(w->to->arena, &longer->as.seq, path->as.seq.at[i]))
            return NULL;
    }
    return longer && key && ckpt_seq_add(w->to->arena, &longer->as.seq, key) ? longer : NULL;
}

/* ---- tensors ---- */

/* Write a tensor of the source, sharded over the ranks. */
static int dpw_tensor(dpw_writer *w, ckpt_value *path, const ckpt_tensor *t, ckpt_dtype dtype)
{
    uint32_t ranks = w->pack.ranks, n = 0;
    uint64_t n_rows = t->ndim > 0 ? t->shape[0] : 1;
    ckpt_dcp_box *box = ckpt_alloc(ranks * sizeof *box);
    uint64_t *at = ckpt_alloc(2 * (uint64_t)ranks * (t->ndim + 1) * sizeof *at);
    int rc = box && at ? CKPT_OK : ckpt_fail_memory(w->err);

    for (uint32_t r = 0; rc == CKPT_OK && r < ranks; r++) {
        uint64_t *start = &at[(uint64_t)r * 2 * (t->ndim + 1)], *count = start + t->ndim + 1;
        for (uint32_t k = 0; k < t->ndim; k++) {
            start[k] = 0;
            count[k] = t->shape[k];
        }
        count[0] = ckpt_train_fsdp_rows(n_rows, ranks, r, &start[0]);
        if (count[0] == 0 && r > 0)
            break;
        box[n++] = (ckpt_dcp_box){.start = start, .count = count, .rank = r};
    }
    if (rc == CKPT_OK)
        rc = ckpt_dcp_pack_tensor(
            &w->pack,
            &(ckpt_dcp_packed){.path = path, .tensor = t, .dtype = dtype, .box = box, .n = n});
    ckpt_free(box);
    ckpt_free(at);
    return rc;
}

/* ---- trees ---- */

/* True if torch flattens the value: a dict, or a list that contains dicts or tensors. */
static bool dpw_is_open(const ckpt_value *v, unsigned depth)
{
    ckpt_seq s = ckpt_value_seq(v);
    bool open = false;

    if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT)
        return true;
    for (uint64_t i = 0; v->kind == CKPT_V_LIST && depth > 0 && !open && i < s.n; i++)
        open = s.at[i]->kind == CKPT_V_TENSOR || dpw_is_open(s.at[i], depth - 1);
    return open;
}

/* Flatten a tree below a path, as torch.distributed.checkpoint._traverse does (2.4 and later). */
static int dpw_flatten(dpw_writer *w, ckpt_value *path, const ckpt_value *v, unsigned depth)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    int rc = CKPT_OK;

    if (!path)
        return ckpt_fail_memory(w->err);
    if (depth == 0 || !dpw_is_open(v, depth))
        return ckpt_dcp_pack_object(&w->pack, NULL, path, v);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const ckpt_value *k = map.at[i].key;
        const char *key = k->kind == CKPT_V_STR ? k->as.text.at
                          : k->kind == CKPT_V_INT
                              ? ckpt_arena_printf(w->to->arena, "%" PRId64, k->as.i)
                              : NULL;
        if (!key)
            return ckpt_dcp_pack_object(&w->pack, NULL, path, v);
        rc = dpw_flatten(w, dpw_below(w, path, dpw_key(w, key)), map.at[i].value, depth - 1);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < seq.n; i++)
        rc = dpw_flatten(w, dpw_below(w, path, ckpt_value_int(w->to->arena, (int64_t)i)), seq.at[i],
                         depth - 1);
    return rc;
}

/* ---- the content ---- */

static int dpw_model(dpw_writer *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->from->tensors.n; i++) {
        const ckpt_tensor *t = w->from->tensors.at[i];
        bool model = t->role != CKPT_ROLE_STATE && t->role != CKPT_ROLE_OTHER;
        const char *above = model ? w->layout->model : NULL;
        ckpt_value *key[] = {dpw_key(w, above ? above : t->name), dpw_key(w, t->name)};
        // tensors with one chunk are among the values of the run already
        bool told = t->role == CKPT_ROLE_OTHER && w->state && t->n_extents <= 1;
        if (t->role != CKPT_ROLE_STATE && !told)
            rc =
                dpw_tensor(w, dpw_path(w, key, above ? 2 : 1), t, ckpt_train_written(w->target, t));
    }
    return rc;
}

/* The path <optimizer> / <of> / <name> / <key>, or flat <optimizer> / "<of>.<name>.<key>". */
static ckpt_value *dpw_below_optimizer(dpw_writer *w, const char *of, const char *name,
                                       const char *key)
{
    const char *flat =
        w->layout->flat ? ckpt_arena_printf(w->to->arena, "%s.%s.%s", of, name, key) : of;
    ckpt_value *keys[] = {dpw_key(w, w->layout->optimizer), flat ? dpw_key(w, flat) : NULL,
                          dpw_key(w, name), dpw_key(w, key)};

    return dpw_path(w, keys, w->layout->flat ? 2 : 4);
}

/* Write moments and step counts: "<kind>/<parameter>". */
static int dpw_moments(dpw_writer *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->from->tensors.n; i++) {
        const ckpt_tensor *t = w->from->tensors.at[i];
        const char *slash = strchr(t->name, '/');
        if (t->role != CKPT_ROLE_STATE || !slash)
            continue;
        char *kind = ckpt_arena_string(w->to->arena, t->name, (size_t)(slash - t->name));
        if (!kind)
            return ckpt_fail_memory(w->err);
        rc = dpw_tensor(w, dpw_below_optimizer(w, "state", slash + 1, kind), t,
                        strcmp(kind, "step") == 0 ? t->dtype : ckpt_train_written(w->target, t));
    }
    return rc;
}

/* Write single values per parameter, which training formats store per group. */
static int dpw_members(dpw_writer *w, size_t number)
{
    const ckpt_group *g = &w->state->group.at[number];
    int rc = CKPT_OK;

    for (size_t i = g->first; rc == CKPT_OK && i < g->first + g->n; i++) {
        const char *name = ckpt_state_name(w->state, w->state->param.at[i]);
        ckpt_dict kept = ckpt_value_map(ckpt_train_param_entry(w->state, g, i));
        for (uint64_t k = 0; rc == CKPT_OK && k < kept.n; k++) {
            if (ckpt_train_is_single(&w->moments, number, &kept.at[k]))
                rc = dpw_flatten(w,
                                 dpw_below_optimizer(w, "state", name, kept.at[k].key->as.text.at),
                                 kept.at[k].value, CKPT_MAX_DIM);
        }
    }
    return rc;
}

/* The names of a group's parameters. */
static ckpt_value *dpw_params(dpw_writer *w, const ckpt_group *g)
{
    ckpt_value *list = ckpt_value_new(w->to->arena, CKPT_V_LIST);

    for (size_t i = g->first; list && i < g->first + g->n; i++) {
        ckpt_value *name = dpw_key(w, ckpt_state_name(w->state, w->state->param.at[i]));
        if (!name || !ckpt_seq_add(w->to->arena, &list->as.seq, name))
            return NULL;
    }
    return list;
}

/* Write settings below a path, one item each. */
static int dpw_settings(dpw_writer *w, const ckpt_value *path, const ckpt_value *settings)
{
    ckpt_dict fields = ckpt_value_map(settings);
    int rc = path ? CKPT_OK : ckpt_fail_memory(w->err);

    for (uint64_t i = 0; rc == CKPT_OK && i < fields.n; i++) {
        const ckpt_value *k = fields.at[i].key;
        if (k->kind != CKPT_V_STR || ckpt_value_is(k, "params"))
            continue;
        rc = dpw_flatten(w, dpw_below(w, path, dpw_key(w, k->as.text.at)), fields.at[i].value,
                         CKPT_MAX_DIM);
    }
    return rc;
}

/* Write settings for each parameter, as flatten_optimizer_state_dict does. */
static int dpw_flat_settings(dpw_writer *w, const ckpt_group *g, const ckpt_value *settings)
{
    ckpt_dict fields = ckpt_value_map(settings);
    int rc = CKPT_OK;

    for (size_t p = g->first; rc == CKPT_OK && p < g->first + g->n; p++) {
        const char *name = ckpt_state_name(w->state, w->state->param.at[p]);
        for (uint64_t i = 0; rc == CKPT_OK && i < fields.n; i++) {
            const ckpt_value *k = fields.at[i].key;
            if (k->kind == CKPT_V_STR && !ckpt_value_is(k, "params"))
                rc = dpw_flatten(w, dpw_below_optimizer(w, "param_groups", name, k->as.text.at),
                                 fields.at[i].value, CKPT_MAX_DIM);
        }
    }
    return rc;
}

static int dpw_group(dpw_writer *w, size_t number)
{
    const ckpt_group *g = &w->state->group.at[number];
    ckpt_value *key[] = {dpw_key(w, w->layout->optimizer), dpw_key(w, "param_groups"),
                         ckpt_value_int(w->to->arena, (int64_t)number)};
    ckpt_value *path = dpw_path(w, key, 3), *params = dpw_params(w, g), *settings = NULL;
    int rc = path && params ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK)
        rc = ckpt_train_torch_settings(&settings, w->to, w->state, g, w->err);
    if (rc == CKPT_OK && w->layout->scheduled)
        rc = ckpt_dcp_initial_lr(settings, w->to->arena, w->state, w->err);
    if (rc != CKPT_OK || w->layout->flat)
        return rc == CKPT_OK ? dpw_flat_settings(w, g, settings) : rc;
    rc = dpw_settings(w, path, settings);
    return rc == CKPT_OK ? ckpt_dcp_pack_object(&w->pack, NULL,
                                                dpw_below(w, path, dpw_key(w, "params")), params)
                         : rc;
}

/*
 * Write the other values of the run at the root, next to model and optimizer, like the source's
 * program.
 */
static int dpw_values(dpw_writer *w)
{
    ckpt_value *more = NULL;
    int rc = ckpt_dcp_program_values(&more, w->to, w->from, w->state, w->layout, w->err);
    ckpt_dict all = ckpt_value_map(more);

    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        ckpt_value *key[] = {dpw_key(w, all.at[i].key->as.text.at)};
        rc = dpw_flatten(w, dpw_path(w, key, 1), all.at[i].value, CKPT_MAX_DIM);
    }
    return rc;
}

/* ---- folders ---- */

/* Write the optimizer and the values of the run. */
static int dpw_run(dpw_writer *w)
{
    int rc = dpw_moments(w);

    if (rc == CKPT_OK)
        rc = ckpt_train_moments_find(&w->moments, w->from, w->state, w->err);
    for (size_t g = 0; rc == CKPT_OK && g < w->state->group.n; g++)
        rc = dpw_members(w, g);
    for (size_t g = 0; rc == CKPT_OK && g < w->state->group.n; g++)
        rc = dpw_group(w, g);
    return rc == CKPT_OK ? dpw_values(w) : rc;
}

/* Write everything in one folder, or the model in one and the rest in another. */
static int dpw_write(dpw_writer *w)
{
    const char *first = w->layout->of_model, *second = w->layout->of_optimizer;
    int rc = ckpt_dcp_pack_files(&w->pack, first);

    if (rc == CKPT_OK)
        rc = dpw_model(w);
    if (rc == CKPT_OK && w->state && second) {
        rc = ckpt_dcp_pack_metadata(&w->pack, first);
        if (rc == CKPT_OK)
            rc = ckpt_dcp_pack_files(&w->pack, second);
        first = second;
    }
    if (rc == CKPT_OK && w->state)
        rc = dpw_run(w);
    return rc == CKPT_OK ? ckpt_dcp_pack_metadata(&w->pack, first) : rc;
}

int ckpt_dcp_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    assert(to && from && target);
    dpw_writer w = {
        .to = to,
        .from = from,
        .target = target,
        .pack = {.to = to, .from = from, .drop_objects = target->drop_objects, .err = err},
        .err = err};
    ckpt_train_job job = {.from = from, .to = to, .target = target, .err = err};
    int rc = ckpt_dcp_layout_find(&w.layout, target->layout, err);

    if (rc == CKPT_OK)
        rc = ckpt_train_fsdp_begin(&job, &w.pack.ranks);
    w.state = job.state;
    if (rc == CKPT_OK)
        rc = ckpt_dcp_program_folder(&job, w.layout);
    if (rc == CKPT_OK) {
        to->claim.joins_groups = w.layout->flat;
        rc = dpw_write(&w);
    }
    ckpt_train_moments_free(&w.moments);
    ckpt_dcp_metadata_free(&w.pack.meta);
    return rc;
}
