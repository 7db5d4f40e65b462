/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes the per-rank files that verl loads under FSDP2.
 *
 * Tensors are DTensors on a mesh with one axis, "fsdp", sharded along their first axis: ceil(rows /
 * ranks) per rank.  Pickles have the form of torch 2.15.  The optimizer's groups have `param_names`
 * (torch 2.6 and later), so that its numbers are unambiguous.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "formats/torch/tree.h"
#include "formats/training/kept_values.h"
#include "formats/training/param_values.h"
#include "formats/training/single_values.h"
#include "formats/training/to_fsdp.h"
#include "formats/training/torch_settings.h"
#include "formats/training/write_job.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/order.h"

#define RWR_TENSOR "torch.distributed.tensor"

enum { RWR_KINDS = 64 }; /* limit of an optimizer's kinds of state */

/* A tensor of the source, and its extents in the ranks' files. */
typedef struct rwr_cut {
    const ckpt_tensor *t;
    ckpt_dtype dtype;
    ckpt_extent *extent; /* one for each rank with rows */
    uint32_t n;
} rwr_cut;

CKPT_VEC(rwr_cuts, rwr_cut);

typedef struct rwr_writer {
    ckpt_train_job *job;
    uint32_t ranks;
    const char *device;          /* device type of the mesh */
    const char *kind[RWR_KINDS]; /* kinds of state: "step", "exp_avg" */
    size_t n_kinds;
    ckpt_train_moments moments;
    rwr_cuts cut; /* in the order of tensors in each rank's files */
    size_t next;  /* index of the next one */
    /* the current file */
    ckpt_torch_tree tree;
    uint32_t rank;
    ckpt_value *mesh;
    uint32_t rank_map; /* source of the mesh's rank list */
} rwr_writer;

/* ---- nodes ---- */

static ckpt_value *rwr_none(rwr_writer *w)
{
    return ckpt_tt_new(&w->tree, CKPT_V_NONE);
}

static ckpt_value *rwr_ints(rwr_writer *w, ckpt_value_kind kind, const uint64_t *n, uint32_t count)
{
    ckpt_value *v = ckpt_tt_new(&w->tree, kind);

    for (uint32_t i = 0; i < count; i++)
        ckpt_tt_add(&w->tree, v, ckpt_tt_int(&w->tree, (int64_t)n[i]));
    return v;
}

/* Make a tuple of up to four items. */
static ckpt_value *rwr_tuple(rwr_writer *w, ckpt_value *const *item, unsigned n)
{
    ckpt_value *v = ckpt_tt_new(&w->tree, CKPT_V_TUPLE);

    for (unsigned i = 0; i < n; i++)
        ckpt_tt_add(&w->tree, v, item[i]);
    return v;
}

/* Make an object in copyreg's form: a class without arguments, and its members. */
static ckpt_value *rwr_object(rwr_writer *w, const char *module, const char *name,
                              ckpt_value *members)
{
    return ckpt_tt_object(&w->tree, module, name, CKPT_BY_NEWOBJ,
                          ckpt_tt_new(&w->tree, CKPT_V_TUPLE), members);
}

/* Make the call f(text). */
static ckpt_value *rwr_call(rwr_writer *w, const char *module, const char *name, const char *text)
{
    ckpt_value *args[] = {ckpt_tt_str(&w->tree, text)};

    return ckpt_tt_object(&w->tree, module, name, CKPT_BY_REDUCE, rwr_tuple(w, args, 1), NULL);
}

/* ---- the mesh ---- */

/* Make a _MeshLayout with one axis of all ranks in order. */
static ckpt_value *rwr_layout(rwr_writer *w)
{
    static const char module[] = "torch.distributed._mesh_layout";
    const uint64_t size = w->ranks, by = 1;
    ckpt_torch_tree *t = &w->tree;
    ckpt_value *axis = ckpt_tt_new(t, CKPT_V_DICT), *all = ckpt_tt_new(t, CKPT_V_DICT), *one;

    ckpt_tt_put(t, axis, "shape", rwr_ints(w, CKPT_V_TUPLE, &size, 1));
    ckpt_tt_put(t, axis, "stride", rwr_ints(w, CKPT_V_TUPLE, &by, 1));
    one = rwr_object(w, module, "_FlatLayout", axis);
    ckpt_tt_put(t, all, "axes", rwr_tuple(w, &one, 1));
    return rwr_object(w, module, "_MeshLayout", all);
}

/* Make the mesh of rank w->rank; its rank list is filled in when the file is placed. */
static ckpt_value *rwr_mesh(rwr_writer *w)
{
    ckpt_torch_tree *t = &w->tree;
    ckpt_value *m = ckpt_tt_new(t, CKPT_V_DICT), *ranks = ckpt_tt_new(t, CKPT_V_TUPLE),
               *groups = ckpt_tt_new(t, CKPT_V_LIST), *name = ckpt_tt_str(t, "fsdp");
    ckpt_storage *map = ckpt_tt_storage(t, CKPT_I32, w->ranks);
    const uint64_t at = w->rank;

    for (uint32_t r = 0; r < w->ranks; r++)
        ckpt_tt_add(t, ranks, ckpt_tt_int(t, r));
    ckpt_tt_add(t, groups, ckpt_tt_str(t, "0"));
    ckpt_tt_put(t, m, "_device_type", ckpt_tt_str(t, w->device));
    ckpt_tt_put(t, m, "_layout", rwr_layout(w));
    ckpt_tt_put(t, m, "_rank_map", ckpt_tt_flat(t, map, 0, w->ranks));
    ckpt_tt_put(t, m, "_mesh_dim_names", rwr_tuple(w, &name, 1));
    ckpt_tt_put(t, m, "_root_mesh", rwr_none(w));
    ckpt_tt_put(t, m, "_preserve_rank_order", ckpt_tt_bool(t, false));
    ckpt_tt_put(t, m, "_flatten_rank_map", ranks);
    ckpt_tt_put(t, m, "_thread_id", rwr_none(w));
    ckpt_tt_put(t, m, "_flatten_mapping", ckpt_tt_new(t, CKPT_V_DICT));
    ckpt_tt_put(t, m, "_dim_group_names", groups);
    ckpt_tt_put(t, m, "_rank", ckpt_tt_int(t, w->rank));
    ckpt_tt_put(t, m, "_coordinate_on_dim", rwr_ints(w, CKPT_V_TUPLE, &at, 1));
    if (map)
        w->rank_map = map->source;
    return rwr_object(w, "torch.distributed.device_mesh", "DeviceMesh", m);
}

/* ---- DTensors ---- */

static ckpt_value *rwr_dtype(rwr_writer *w, ckpt_dtype dtype)
{
    ckpt_value *v = ckpt_tt_new(&w->tree, CKPT_V_DTYPE);

    if (v)
        v->as.dtype = dtype;
    return v;
}

/* Make row-major strides in elements. */
static ckpt_value *rwr_strides(rwr_writer *w, const ckpt_tensor *t)
{
    uint64_t by[CKPT_MAX_DIM], n = 1;

    for (uint32_t k = t->ndim; k-- > 0; n *= t->shape[k] ? t->shape[k] : 1)
        by[k] = n;
    return rwr_ints(w, CKPT_V_TUPLE, by, t->ndim);
}

/* Make a DTensorSpec: Shard(0), or Replicate() for a tensor without axes. */
static ckpt_value *rwr_spec(rwr_writer *w, const ckpt_tensor *like, ckpt_dtype dtype)
{
    static const char places[] = RWR_TENSOR ".placement_types",
                      specs[] = RWR_TENSOR "._dtensor_spec";
    const uint64_t zero = 0;
    ckpt_torch_tree *t = &w->tree;
    ckpt_value *spec = ckpt_tt_new(t, CKPT_V_DICT), *dim = ckpt_tt_new(t, CKPT_V_DICT);
    bool cut = like->ndim > 0;
    ckpt_value *place = rwr_object(w, places, cut ? "Shard" : "Replicate", dim);
    ckpt_value *entry[] = {ckpt_tt_int(t, 0), rwr_ints(w, CKPT_V_TUPLE, &zero, 1)};
    ckpt_value *meta[] = {rwr_ints(w, CKPT_V_SIZE, like->shape, like->ndim), rwr_strides(w, like),
                          rwr_dtype(w, dtype)};
    ckpt_value *order =
        ckpt_tt_object(t, specs, "ShardOrderEntry", CKPT_BY_NEWOBJ, rwr_tuple(w, entry, 2), NULL);

    if (cut)
        ckpt_tt_put(t, dim, "dim", ckpt_tt_int(t, 0));
    if (!w->mesh)
        w->mesh = rwr_mesh(w);
    ckpt_tt_put(t, spec, "mesh", w->mesh);
    ckpt_tt_put(t, spec, "placements", rwr_tuple(w, &place, 1));
    ckpt_tt_put(
        t, spec, "tensor_meta",
        ckpt_tt_object(t, specs, "TensorMeta", CKPT_BY_NEWOBJ, rwr_tuple(w, meta, 3), NULL));
    ckpt_tt_put(t, spec, "shard_order", rwr_tuple(w, &order, cut ? 1 : 0));
    ckpt_tt_put(t, spec, "use_strided_shard_as_shard_order", ckpt_tt_bool(t, false));
    ckpt_tt_put(t, spec, "_hash", rwr_none(w));
    return rwr_object(w, specs, "DTensorSpec", spec);
}

/* Make _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, arguments, (None, members)). */
static ckpt_value *rwr_dtensor(rwr_writer *w, const ckpt_tensor *like, ckpt_dtype dtype,
                               ckpt_value *local)
{
    ckpt_torch_tree *t = &w->tree;
    ckpt_value *cls = ckpt_tt_global(t, RWR_TENSOR, "DTensor"),
               *members = ckpt_tt_new(t, CKPT_V_DICT), *all = ckpt_tt_new(t, CKPT_V_TUPLE);
    ckpt_value *const args[] = {
        cls,
        rwr_dtype(w, dtype),
        rwr_ints(w, CKPT_V_TUPLE, like->shape, like->ndim),
        rwr_strides(w, like),
        ckpt_tt_int(t, 0),
        rwr_call(w, "torch.serialization", "_get_layout", "torch.strided"),
        rwr_call(w, "torch", "device", "cpu"),
        ckpt_tt_bool(t, false),
    };
    ckpt_value *state[] = {rwr_none(w), members};

    ckpt_tt_put(t, members, "_local_tensor", local);
    ckpt_tt_put(t, members, "_spec", rwr_spec(w, like, dtype));
    ckpt_tt_add(t, all, ckpt_tt_global(t, "torch._utils", "_rebuild_wrapper_subclass"));
    ckpt_tt_add(t, all, cls);
    ckpt_tt_add(t, all, rwr_tuple(w, args, sizeof args / sizeof *args));
    ckpt_tt_add(t, all, rwr_tuple(w, state, 2));
    return ckpt_tt_object(t, "torch._tensor", "_rebuild_from_type_v2", CKPT_BY_REDUCE, all, NULL);
}

/* The collected extents of the next tensor, made in the first file; NULL: no memory. */
static rwr_cut *rwr_next(rwr_writer *w, const ckpt_tensor *t, ckpt_dtype dtype)
{
    rwr_cut *cut;

    if (w->next < w->cut.n)
        return &w->cut.at[w->next++];
    cut = ckpt_vec_push(&w->cut);
    if (!cut)
        return NULL;
    *cut = (rwr_cut){.t = t,
                     .dtype = dtype,
                     .extent = ckpt_arena_array(w->job->to->arena, w->ranks, sizeof *cut->extent)};
    w->next = w->cut.n;
    return cut->extent ? cut : NULL;
}

/* Make a local tensor with this rank's rows. */
static ckpt_value *rwr_shard(rwr_writer *w, const ckpt_tensor *t, ckpt_dtype dtype)
{
    uint64_t rows = t->shape[0], start,
             count = ckpt_train_fsdp_rows(rows, w->ranks, w->rank, &start),
             row = rows ? t->n_elems / rows : 0, shape[CKPT_MAX_DIM];
    rwr_cut *cut = rwr_next(w, t, dtype);
    ckpt_axis *axis = ckpt_arena_array(w->job->to->arena, 1, sizeof *axis);
    ckpt_value *local;

    memcpy(shape, t->shape, t->ndim * sizeof *shape);
    shape[0] = count;
    local = ckpt_tt_zeros(&w->tree, dtype, shape, t->ndim);
    if (!cut || !axis || !local)
        return NULL;
    *axis = (ckpt_axis){start * row, count * row, (int64_t)(ckpt_dtype_get(dtype)->bits / 8)};
    if (axis->count > 0)
        cut->extent[cut->n++] =
            (ckpt_extent){.source = local->as.tensor->storage->source, .ndim = 1, .axis = axis};
    return local;
}

/* Add a tensor to this rank's dict. */
static void rwr_put(rwr_writer *w, ckpt_value *dict, const char *key, const ckpt_tensor *t,
                    ckpt_dtype dtype)
{
    const ckpt_tensor *donor = t->owner ? t->owner : t;
    ckpt_value *local =
        t->ndim > 0 ? rwr_shard(w, donor, dtype) : ckpt_tt_whole(&w->tree, donor, dtype);

    if (w->tree.rc == CKPT_OK && !local)
        w->tree.rc = ckpt_fail_memory(w->job->err);
    ckpt_tt_put(&w->tree, dict, key, rwr_dtensor(w, t, dtype, local));
}

/* ---- files ---- */

/* Begin a rank's file; after success the caller must call rwr_end. */
static int rwr_begin(rwr_writer *w, const char *kind)
{
    const char *name =
        ckpt_arena_printf(w->job->to->arena, "%s_world_size_%" PRIu32 "_rank_%" PRIu32 ".pt", kind,
                          w->ranks, w->rank);

    w->mesh = NULL;
    if (!name)
        return ckpt_fail_memory(w->job->err);
    // rwr_end reports an error, because the tree keeps it
    if (ckpt_tt_begin(&w->tree, w->job->to, w->job->from, name, w->job->err) == CKPT_OK)
        w->job->to->files.at[w->tree.file].rank = w->rank;
    w->tree.drop_objects = w->job->target->drop_objects;
    return CKPT_OK;
}

/* End a file, and fill in the mesh's rank list, which has no tensor in the source. */
static int rwr_end(rwr_writer *w, ckpt_value *root)
{
    uint32_t file = w->tree.file;
    bool mesh = w->mesh != NULL;
    uint8_t *bytes;
    int rc = ckpt_tt_end(&w->tree, root);

    if (rc != CKPT_OK || !mesh)
        return rc;
    bytes = ckpt_alloc((size_t)w->ranks * sizeof(int32_t));
    if (!bytes)
        return ckpt_fail_memory(w->job->err);
    for (uint32_t r = 0; r < w->ranks; r++) {
        for (unsigned i = 0; i < sizeof(int32_t); i++)
            bytes[r * sizeof(int32_t) + i] = (uint8_t)(r >> 8 * i);
    }
    rc = ckpt_map_add_literal(w->job->to, file, w->job->to->sources.at[w->rank_map].at, bytes,
                              w->ranks * sizeof(int32_t), w->job->err);
    ckpt_free(bytes);
    return rc;
}

static int rwr_model(rwr_writer *w)
{
    const ckpt_map *from = w->job->from;
    int rc = rwr_begin(w, "model");
    ckpt_value *root = rc == CKPT_OK ? ckpt_tt_new(&w->tree, CKPT_V_ODICT) : NULL;

    for (size_t i = 0; rc == CKPT_OK && i < from->tensors.n; i++) {
        const ckpt_tensor *t = from->tensors.at[i];
        ckpt_dtype dtype = ckpt_train_written(w->job->target, t);
        if (t->role == CKPT_ROLE_STATE || t->role == CKPT_ROLE_OTHER)
            continue;
        if (t->role == CKPT_ROLE_BUFFER)
            ckpt_tt_put_at(&w->tree, root, ckpt_tt_str(&w->tree, t->name),
                           ckpt_tt_whole(&w->tree, t->owner ? t->owner : t, dtype));
        else
            rwr_put(w, root, t->name, t, dtype);
    }
    return rc == CKPT_OK ? rwr_end(w, root) : rc;
}

/* ---- optimizer ---- */

/* Collect the kinds of state in torch's order: the step count first. */
static void rwr_kinds(rwr_writer *w)
{
    const ckpt_map *from = w->job->from;

    for (int steps = 1; steps >= 0; steps--) {
        for (size_t i = 0; i < from->tensors.n; i++) {
            const ckpt_tensor *t = from->tensors.at[i];
            const char *slash = strchr(t->name, '/');
            size_t n = slash ? (size_t)(slash - t->name) : 0, k = 0;
            if (t->role != CKPT_ROLE_STATE || !slash ||
                (n == 4 && memcmp(t->name, "step", 4) == 0) != steps)
                continue;
            while (k < w->n_kinds &&
                   !(strlen(w->kind[k]) == n && memcmp(w->kind[k], t->name, n) == 0))
                k++;
            if (k == w->n_kinds && k < RWR_KINDS) {
                w->kind[k] = ckpt_arena_string(w->job->to->arena, t->name, n);
                w->n_kinds += w->kind[k] != NULL;
            }
        }
    }
}

/* Make the optimizer's state of one parameter; NULL: none. */
static ckpt_value *rwr_state(rwr_writer *w, size_t group, size_t number)
{
    const ckpt_group *g = &w->job->state->group.at[group];
    const ckpt_tensor *param = w->job->state->param.at[number];
    ckpt_dict kept = ckpt_value_map(ckpt_train_param_entry(w->job->state, g, number));
    ckpt_value *out = ckpt_tt_new(&w->tree, CKPT_V_DICT);

    for (uint64_t i = 0; i < kept.n; i++) {
        if (ckpt_train_is_single(&w->moments, group, &kept.at[i]))
            ckpt_tt_put(&w->tree, out, kept.at[i].key->as.text.at,
                        ckpt_tt_copy(&w->tree, kept.at[i].value));
    }

    for (size_t k = 0; k < w->n_kinds; k++) {
        const ckpt_tensor *t = ckpt_state_moment(w->job->from, w->job->state, w->kind[k], param);
        if (!t)
            continue;
        // FSDP shards state with the parameter's shape, and keeps a step count of shape [1] whole
        if (t->ndim == 0 || (t->n_elems == 1 && param->n_elems != 1))
            ckpt_tt_put(&w->tree, out, w->kind[k],
                        ckpt_tt_whole(&w->tree, t->owner ? t->owner : t, t->dtype));
        else
            rwr_put(w, out, w->kind[k], t, ckpt_train_written(w->job->target, t));
    }
    return out && out->as.map.n > 0 ? out : NULL;
}

/* Make a group: its settings, its parameters' numbers from `first` on, and their names. */
static ckpt_value *rwr_group(rwr_writer *w, const ckpt_group *g, size_t first)
{
    ckpt_torch_tree *t = &w->tree;
    ckpt_value *settings = NULL;
    if (t->rc == CKPT_OK)
        t->rc = ckpt_train_torch_settings(&settings, w->job->to, w->job->state, g, w->job->err);
    ckpt_dict fields = ckpt_value_map(settings);
    ckpt_value *out = ckpt_tt_new(t, CKPT_V_DICT), *numbers = ckpt_tt_new(t, CKPT_V_LIST),
               *names = ckpt_tt_new(t, CKPT_V_LIST);

    for (uint64_t i = 0; i < fields.n; i++) {
        const ckpt_value *key = fields.at[i].key;
        if (key->kind == CKPT_V_STR && !ckpt_value_is(key, "params") &&
            !ckpt_value_is(key, "param_names"))
            ckpt_tt_put(t, out, key->as.text.at, ckpt_tt_copy(t, fields.at[i].value));
    }
    for (size_t i = 0; i < g->n; i++) {
        ckpt_tt_add(t, numbers, ckpt_tt_int(t, (int64_t)(first + i)));
        ckpt_tt_add(
            t, names,
            ckpt_tt_str(t, ckpt_state_name(w->job->state, w->job->state->param.at[g->first + i])));
    }
    ckpt_tt_put(t, out, "params", numbers);
    ckpt_tt_put(t, out, "param_names", names);
    return out;
}

static int rwr_optim(rwr_writer *w)
{
    const ckpt_state *s = w->job->state;
    ckpt_torch_tree *t = &w->tree;
    int rc = rwr_begin(w, "optim");
    ckpt_value *root = rc == CKPT_OK ? ckpt_tt_new(t, CKPT_V_DICT) : NULL,
               *state = root ? ckpt_tt_new(t, CKPT_V_DICT) : NULL,
               *groups = state ? ckpt_tt_new(t, CKPT_V_LIST) : NULL;
    size_t number = 0;

    for (size_t g = 0; rc == CKPT_OK && g < s->group.n; g++) {
        const ckpt_group *group = &s->group.at[g];
        ckpt_tt_add(t, groups, rwr_group(w, group, number));
        for (size_t i = 0; i < group->n; i++, number++) {
            ckpt_value *v = rwr_state(w, g, group->first + i);
            if (v)
                ckpt_tt_put_at(t, state, ckpt_tt_int(t, (int64_t)number), v);
        }
    }
    if (rc != CKPT_OK)
        return rc;
    ckpt_tt_put(t, root, "state", state);
    ckpt_tt_put(t, root, "param_groups", groups);
    return rwr_end(w, root);
}

/* ---- values ---- */

/* Write the schedule and the program's values; only rank 0 gets the random states. */
static int rwr_extra(rwr_writer *w)
{
    ckpt_dict all = ckpt_value_map(w->job->state->model);
    ckpt_torch_tree *t = &w->tree;
    ckpt_value *kept = ckpt_value_new(w->job->to->arena, CKPT_V_DICT);
    int rc = kept ? rwr_begin(w, "extra_state") : ckpt_fail_memory(w->job->err);
    ckpt_value *root = rc == CKPT_OK ? ckpt_tt_new(t, CKPT_V_DICT) : NULL;

    if (rc == CKPT_OK)
        ckpt_tt_put(t, root, "lr_scheduler", rwr_none(w));
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        if (ckpt_train_fsdp_stores(w->job->state, &all.at[i]) &&
            (w->rank == 0 || !ckpt_value_is(all.at[i].key, "rng")))
            ckpt_tt_put(t, root, all.at[i].key->as.text.at, ckpt_tt_copy(t, all.at[i].value));
    }
    if (rc == CKPT_OK)
        rc = ckpt_train_keep(kept, w->job->to->arena, w->job->from, w->job->state, w->job->err);
    for (uint64_t i = 0; rc == CKPT_OK && i < kept->as.map.n; i++)
        ckpt_tt_put(t, root, kept->as.map.at[i].key->as.text.at,
                    ckpt_tt_copy(t, kept->as.map.at[i].value));
    return rc == CKPT_OK ? rwr_end(w, root) : rc;
}

/* Write fsdp_config.json, by which verl recognises the folder. */
static int rwr_config(rwr_writer *w)
{
    ckpt_map_file file = {.path = "fsdp_config.json", .placed = true, .rank = UINT32_MAX};
    char text[96];
    uint32_t index = 0;
    int n = snprintf(text, sizeof text,
                     "{\n    \"FSDP_version\": 2,\n    \"world_size\": %" PRIu32 "\n}", w->ranks);
    int rc;

    file.size = (uint64_t)n;
    rc = ckpt_map_add_file(w->job->to, &file, &index, w->job->err);
    return rc == CKPT_OK ? ckpt_map_add_literal(w->job->to, index, 0, text, file.size, w->job->err)
                         : rc;
}

/* ---- all files ---- */

/* Report tensors that these files cannot hold. */
static int rwr_tell(const rwr_writer *w)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < w->job->from->tensors.n; i++) {
        const ckpt_tensor *t = w->job->from->tensors.at[i];
        // tensors with one chunk are among the values of the run
        if (t->role == CKPT_ROLE_OTHER && !(w->job->state && t->n_extents <= 1))
            rc = ckpt_train_left_out(w->job, CKPT_WARNING,
                                     "%.200s: belongs neither to the model nor to its optimizer",
                                     t->name);
    }
    return rc;
}

static int rwr_rank(rwr_writer *w)
{
    int rc;

    w->next = 0;
    rc = rwr_model(w);
    if (rc == CKPT_OK && w->job->state)
        rc = rwr_optim(w);
    if (rc == CKPT_OK && w->job->state)
        rc = rwr_extra(w);
    return rc;
}

/* The device type of the source's mesh; "cuda" by default, because FSDP runs on GPUs. */
static const char *rwr_device(const ckpt_map *from)
{
    for (size_t i = 0; i < from->facts.n; i++) {
        if (strcmp(from->facts.at[i].key, CKPT_RANKS_DEVICE) == 0)
            return from->facts.at[i].text;
    }
    return "cuda";
}

int ckpt_ranks_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    assert(to && from && target);
    ckpt_train_job job = {.from = from, .to = to, .target = target, .err = err};
    rwr_writer w = {.job = &job, .device = rwr_device(from)};
    int rc = ckpt_train_fsdp_begin(&job, &w.ranks);

    to->ranks = w.ranks;
    if (rc == CKPT_OK && job.state)
        rc = ckpt_state_ordered(from, job.state, err);
    if (rc == CKPT_OK)
        rc = rwr_tell(&w);
    if (rc == CKPT_OK)
        rc = ckpt_train_moments_find(&w.moments, from, job.state, err);
    rwr_kinds(&w);
    for (w.rank = 0; rc == CKPT_OK && w.rank < w.ranks; w.rank++)
        rc = rwr_rank(&w);
    for (size_t i = 0; rc == CKPT_OK && i < w.cut.n; i++) {
        const rwr_cut *c = &w.cut.at[i];
        if (c->n > 0)
            rc =
                ckpt_tt_fill(to, &(ckpt_torch_fill){"ranks", c->t, c->dtype}, c->extent, c->n, err);
    }
    if (rc == CKPT_OK)
        rc = rwr_config(&w);
    ckpt_train_moments_free(&w.moments);
    ckpt_vec_free(&w.cut);
    return rc;
}
