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
#include "formats/torch/torch.h"
#include "formats/torch/tree.h"
#include "formats/training/param_values.h"
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
    ckpt_dcp_metadata meta; /* placed items of this folder; files by rank */
    uint32_t *file;         /* by rank: number of its file in the target map */
    uint32_t ranks;
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

/* Join a path to its flattened name. */
static const char *dpw_name(dpw_writer *w, const ckpt_value *path)
{
    ckpt_bytes text = {0};
    const char *name = NULL;
    bool ok = true;

    for (uint64_t i = 0; ok && i < path->as.seq.n; i++) {
        const ckpt_value *k = path->as.seq.at[i];
        ok = (i == 0 || ckpt_bytes_add(&text, ".", 1)) &&
             (k->kind == CKPT_V_STR ? ckpt_bytes_add(&text, k->as.text.at, (size_t)k->as.text.n)
                                    : ckpt_bytes_printf(&text, "%" PRId64, k->as.i));
    }
    if (ok)
        name = ckpt_arena_string(w->to->arena, text.n ? (const char *)text.at : "", text.n);
    ckpt_vec_free(&text);
    return name;
}

static int dpw_item(dpw_writer *w, ckpt_value *path, ckpt_dcp_item **out)
{
    const char *name = path ? dpw_name(w, path) : NULL;

    *out = name ? ckpt_vec_push(&w->meta.item) : NULL;
    if (!*out)
        return ckpt_fail_memory(w->err);
    **out = (ckpt_dcp_item){.name = {name, strlen(name)}, .path = path, .first = w->meta.chunk.n};
    return CKPT_OK;
}

/* ---- entries ---- */

/* Begin an archive at the end of a rank's file. */
static int dpw_begin(dpw_writer *w, ckpt_torch_tree *t, uint32_t rank)
{
    int rc = ckpt_tt_more(t, w->to, w->from, w->file[rank], w->err);

    t->drop_objects = w->target->drop_objects;
    return rc;
}

/* End an archive, and record its position. */
static int dpw_end(dpw_writer *w, ckpt_torch_tree *t, ckpt_value *root, uint32_t rank,
                   ckpt_dcp_chunk *chunk)
{
    uint64_t at = w->to->files.at[w->file[rank]].size;
    int rc = ckpt_tt_end(t, root);
    ckpt_dcp_chunk *slot = rc == CKPT_OK ? ckpt_vec_push(&w->meta.chunk) : NULL;

    if (rc != CKPT_OK)
        return rc;
    if (!slot)
        return ckpt_fail_memory(w->err);
    chunk->place = (ckpt_dcp_place){rank, at, w->to->files.at[w->file[rank]].size - at};
    *slot = *chunk;
    return CKPT_OK;
}

/* Write a chunk of a tensor to one rank's file. */
static int dpw_chunk(dpw_writer *w, const ckpt_tensor *t, ckpt_dtype dtype, uint32_t rank,
                     const ckpt_dcp_chunk *like, ckpt_extent *e)
{
    ckpt_dcp_chunk chunk = *like;
    ckpt_torch_tree tree;
    ckpt_value *v = NULL;
    uint64_t n = 1;
    int rc = dpw_begin(w, &tree, rank);

    for (uint32_t k = 0; k < t->ndim; k++)
        n *= chunk.count[k];
    if (rc == CKPT_OK)
        v = ckpt_tt_view(&tree, ckpt_tt_storage(&tree, dtype, n), 0, chunk.count, t->ndim);
    if (v)
        v->as.tensor->dtype = dtype;
    if (v && n > 0)
        e->source = v->as.tensor->storage->source;
    return dpw_end(w, &tree, v, rank, &chunk);
}

/* The rows of a tensor in one chunk. */
typedef struct dpw_rows {
    uint64_t start, count;
} dpw_rows;

/* Make a chunk's box, and the extent of its elements in the chunk's storage. */
static bool dpw_box(dpw_writer *w, const ckpt_tensor *t, ckpt_dtype dtype, const dpw_rows *rows,
                    ckpt_dcp_chunk *chunk, ckpt_extent *e)
{
    uint64_t *at = ckpt_arena_array(w->to->arena, 2 * (uint64_t)t->ndim + 1, sizeof *at);
    ckpt_axis *axis = ckpt_arena_array(w->to->arena, t->ndim + 1, sizeof *axis);
    int64_t stride = (int64_t)(ckpt_dtype_get(dtype)->bits / 8);

    if (!at || !axis)
        return false;
    chunk->start = at;
    chunk->count = at + t->ndim;
    for (uint32_t k = 0; k < t->ndim; k++) {
        at[k] = k == 0 ? rows->start : 0;
        at[t->ndim + k] = k == 0 ? rows->count : t->shape[k];
    }
    *e = (ckpt_extent){.ndim = t->ndim, .axis = axis};
    if (ckpt_dtype_packed(dtype) && t->ndim > 0) {
        ckpt_dcp_packed_rows(e, axis, t->shape, t->ndim, rows->start, rows->count);
        return true;
    }
    for (uint32_t k = t->ndim; k-- > 0;) {
        axis[k] = (ckpt_axis){chunk->start[k], chunk->count[k], stride};
        stride *= (int64_t)chunk->count[k];
    }
    if (t->ndim == 0) {
        axis[0] = (ckpt_axis){0, 1, stride};
        e->ndim = 1;
    }
    return true;
}

/* Write a tensor of the source, sharded over the ranks. */
static int dpw_tensor(dpw_writer *w, ckpt_value *path, const ckpt_tensor *t, ckpt_dtype dtype)
{
    const ckpt_tensor *donor = t->owner ? t->owner : t;
    uint64_t n_rows = t->ndim > 0 ? t->shape[0] : 1;
    ckpt_extent *extent = ckpt_alloc(w->ranks * sizeof *extent);
    ckpt_dcp_item *item = NULL;
    uint32_t n = 0;
    int rc = extent ? dpw_item(w, path, &item) : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK) {
        item->is_tensor = true;
        item->dtype = dtype;
        item->ndim = t->ndim;
        item->shape = t->shape;
    }
    for (uint32_t r = 0; rc == CKPT_OK && r < w->ranks; r++) {
        ckpt_dcp_chunk chunk = {0};
        dpw_rows rows;
        rows.count = ckpt_train_fsdp_rows(n_rows, w->ranks, r, &rows.start);
        if (rows.count == 0 && r > 0)
            break;
        if (!dpw_box(w, t, dtype, &rows, &chunk, &extent[n]))
            rc = ckpt_fail_memory(w->err);
        if (rc == CKPT_OK)
            rc = dpw_chunk(w, t, dtype, r, &chunk, &extent[n]);
        w->meta.item.at[w->meta.item.n - 1].n++;
        n++;
    }
    if (rc == CKPT_OK && t->n_elems > 0)
        rc = ckpt_tt_fill(w->to, &(ckpt_torch_fill){"dcp", donor, dtype}, extent, n, w->err);
    ckpt_free(extent);
    return rc;
}

/* Describe a tensor of a tree as a tensor of the checkpoint, in one chunk. */
static bool dpw_leaf(dpw_writer *w, const ckpt_tensor_value *v, ckpt_dcp_chunk *chunk)
{
    ckpt_dcp_item *item = &w->meta.item.at[w->meta.item.n - 1];
    uint64_t *shape = ckpt_arena_array(w->to->arena, v->ndim + 1, sizeof *shape);

    chunk->start = ckpt_arena_array(w->to->arena, v->ndim + 1, sizeof *chunk->start);
    if (!shape || !chunk->start)
        return false;
    for (uint32_t k = 0; k < v->ndim; k++)
        shape[k] = v->shape[k];
    item->is_tensor = true;
    item->dtype = v->dtype;
    item->ndim = v->ndim;
    item->shape = chunk->count = shape;
    return true;
}

/* Write an object in rank 0's file, as torch.save does. */
static int dpw_object(dpw_writer *w, ckpt_value *path, const ckpt_value *v)
{
    ckpt_dcp_chunk chunk = {0};
    ckpt_dcp_item *item;
    ckpt_torch_tree tree;
    int rc = dpw_item(w, path, &item);

    if (rc != CKPT_OK)
        return rc;
    item->n = 1;
    if (v->kind == CKPT_V_TENSOR && !dpw_leaf(w, v->as.tensor, &chunk))
        return ckpt_fail_memory(w->err);
    rc = dpw_begin(w, &tree, 0);
    return rc == CKPT_OK ? dpw_end(w, &tree, ckpt_tt_copy(&tree, v), 0, &chunk) : rc;
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
        return dpw_object(w, path, v);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const ckpt_value *k = map.at[i].key;
        const char *key = k->kind == CKPT_V_STR ? k->as.text.at
                          : k->kind == CKPT_V_INT
                              ? ckpt_arena_printf(w->to->arena, "%" PRId64, k->as.i)
                              : NULL;
        if (!key)
            return dpw_object(w, path, v);
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
static int dpw_members(dpw_writer *w, const ckpt_group *g)
{
    int rc = CKPT_OK;

    for (size_t i = g->first; rc == CKPT_OK && i < g->first + g->n; i++) {
        const char *name = ckpt_state_name(w->state, w->state->param.at[i]);
        ckpt_dict kept = ckpt_value_map(ckpt_train_param_entry(w->state, g, i));
        for (uint64_t k = 0; rc == CKPT_OK && k < kept.n; k++) {
            if (ckpt_train_is_single(w->from, w->state, g, &kept.at[k]))
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
    return rc == CKPT_OK ? dpw_object(w, dpw_below(w, path, dpw_key(w, "params")), params) : rc;
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

/* ---- files ---- */

/* Begin a data file per rank in a folder: "" or "optimizer_0/". */
static int dpw_files(dpw_writer *w, const char *folder)
{
    int rc = CKPT_OK;

    ckpt_dcp_metadata_free(&w->meta);
    w->to->ranks = w->ranks;
    w->file = ckpt_arena_array(w->to->arena, w->ranks, sizeof *w->file);
    if (!w->file)
        return ckpt_fail_memory(w->err);
    for (uint32_t r = 0; rc == CKPT_OK && r < w->ranks; r++) {
        const char *path = ckpt_arena_printf(w->to->arena, "%s__%" PRIu32 "_0.distcp", folder, r);
        const char *name = path ? path + strlen(folder) : NULL;
        ckpt_map_file file = {.path = path,
                              .prefix = "archive",
                              .format = &ckpt_format_torch,
                              .placed = true,
                              .rank = r};
        ckpt_dcp_file *slot = name ? ckpt_vec_push(&w->meta.file) : NULL;
        if (!slot)
            return ckpt_fail_memory(w->err);
        *slot = (ckpt_dcp_file){{name, strlen(name)}, name};
        rc = ckpt_map_add_file(w->to, &file, &w->file[r], w->err);
    }
    return rc;
}

/* Write .metadata; it can be made now, because all entries are placed. */
static int dpw_metadata(dpw_writer *w, const char *folder)
{
    ckpt_map_file file = {.placed = true, .rank = UINT32_MAX};
    ckpt_bytes text = {0};
    uint32_t index = 0;
    int rc = ckpt_dcp_describe(&text, &w->meta, w->err);

    file.path = ckpt_arena_printf(w->to->arena, "%s" CKPT_DCP_METADATA, folder);
    if (rc == CKPT_OK && !file.path)
        rc = ckpt_fail_memory(w->err);
    file.size = text.n;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(w->to, &file, &index, w->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_literal(w->to, index, 0, text.at, text.n, w->err);
    ckpt_vec_free(&text);
    return rc;
}

/* Write the optimizer and the values of the run. */
static int dpw_run(dpw_writer *w)
{
    int rc = dpw_moments(w);

    for (size_t g = 0; rc == CKPT_OK && g < w->state->group.n; g++)
        rc = dpw_members(w, &w->state->group.at[g]);
    for (size_t g = 0; rc == CKPT_OK && g < w->state->group.n; g++)
        rc = dpw_group(w, g);
    return rc == CKPT_OK ? dpw_values(w) : rc;
}

/* Write everything in one folder, or the model in one and the rest in another. */
static int dpw_write(dpw_writer *w)
{
    const char *first = w->layout->of_model, *second = w->layout->of_optimizer;
    int rc = dpw_files(w, first);

    if (rc == CKPT_OK)
        rc = dpw_model(w);
    if (rc == CKPT_OK && w->state && second) {
        rc = dpw_metadata(w, first);
        if (rc == CKPT_OK)
            rc = dpw_files(w, second);
        first = second;
    }
    if (rc == CKPT_OK && w->state)
        rc = dpw_run(w);
    return rc == CKPT_OK ? dpw_metadata(w, first) : rc;
}

int ckpt_dcp_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    assert(to && from && target);
    dpw_writer w = {.to = to, .from = from, .target = target, .err = err};
    ckpt_train_job job = {.from = from, .to = to, .target = target, .err = err};
    int rc = ckpt_dcp_layout_find(&w.layout, target->layout, err);

    if (rc == CKPT_OK)
        rc = ckpt_train_fsdp_begin(&job, &w.ranks);
    w.state = job.state;
    if (rc == CKPT_OK)
        rc = ckpt_dcp_program_folder(&job, w.layout);
    if (rc == CKPT_OK) {
        to->claim.joins_groups = w.layout->flat;
        rc = dpw_write(&w);
    }
    ckpt_dcp_metadata_free(&w.meta);
    return rc;
}
