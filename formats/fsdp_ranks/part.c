/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.c: reads the description of a DTensor or a ShardedTensor: the boxes of the whole tensor that
 * a rank's file holds.
 *
 * Both are pickled as
 *
 *     torch._tensor._rebuild_from_type_v2(torch._utils._rebuild_wrapper_subclass, CLASS,
 *                                         (CLASS, dtype, size, stride, offset, ...), state)
 *
 * with the size of the whole tensor.  A DTensor's state has the local tensor and a spec: a mesh of
 * ranks, and a placement for each axis of the mesh.  A ShardedTensor's state has shards with their
 * offsets.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"

typedef struct rpt_reader {
    const ckpt_ranks_where *where;
    ckpt_err *err;
} rpt_reader;

/* A mesh, and the file's rank as a position in it. */
typedef struct rpt_mesh {
    uint32_t ndim;
    uint64_t size[CKPT_MAX_DIM], at[CKPT_MAX_DIM];
} rpt_mesh;

/* The placement on one axis of the mesh. */
typedef struct rpt_placement {
    bool shards;
    uint32_t dim;    /* axis of the tensor */
    uint64_t factor; /* product of the later mesh axes that cut first; 1: none */
} rpt_placement;

/* ---- objects ---- */

static int rpt_bad(const rpt_reader *r, const char *what)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: %.200s: %s", r->where->file, r->where->key, what);
}

/* A member of an object's state, which is a dict or with __slots__ a pair (None, dict). */
static const ckpt_value *rpt_get(const ckpt_value *v, const char *key)
{
    const ckpt_value *state = v && v->kind == CKPT_V_OBJECT ? v->as.object->state : v;
    ckpt_seq pair = ckpt_value_seq(state);

    return ckpt_value_get(pair.n == 2 ? pair.at[1] : state, key);
}

/* True for an object of a torch class or function of this name. */
static bool rpt_is(const ckpt_value *v, const char *name)
{
    const ckpt_value *cls = v && v->kind == CKPT_V_OBJECT ? v->as.object->cls : NULL;

    return cls && cls->kind == CKPT_V_GLOBAL &&
           strncmp(cls->as.global.module.at, "torch", 5) == 0 &&
           (cls->as.global.module.n == 5 || cls->as.global.module.at[5] == '.') &&
           strcmp(cls->as.global.name.at, name) == 0;
}

/* Read an integer >= 0. */
static bool rpt_u64(const ckpt_value *v, uint64_t *out)
{
    int64_t i;

    if (!v || !ckpt_value_as_int(v, &i) || i < 0)
        return false;
    *out = (uint64_t)i;
    return true;
}

/* Read a list, tuple or torch.Size of at most CKPT_MAX_DIM integers. */
static bool rpt_u64s(const ckpt_value *v, uint64_t *out, uint32_t *n)
{
    ckpt_seq s = ckpt_value_seq(v);

    if (!v || (v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_SIZE) ||
        s.n > CKPT_MAX_DIM)
        return false;
    for (uint64_t i = 0; i < s.n; i++) {
        if (!rpt_u64(s.at[i], &out[i]))
            return false;
    }
    *n = (uint32_t)s.n;
    return true;
}

/* The class argument of _rebuild_from_type_v2, and its other arguments; NULL for other objects. */
static const char *rpt_class(const ckpt_value *v, ckpt_seq *args, const ckpt_value **state)
{
    ckpt_seq outer;

    if (!rpt_is(v, "_rebuild_from_type_v2"))
        return NULL;
    outer = ckpt_value_seq(v->as.object->args);
    if (outer.n != 4 || outer.at[1]->kind != CKPT_V_GLOBAL ||
        strncmp(outer.at[1]->as.global.module.at, "torch.distributed.", 18) != 0)
        return NULL;
    *args = ckpt_value_seq(outer.at[2]);
    *state = outer.at[3];
    return outer.at[1]->as.global.name.at;
}

/* Unwrap nn.Parameter(tensor). */
static const ckpt_value *rpt_inside(const ckpt_value *v)
{
    ckpt_seq args = ckpt_value_seq(rpt_is(v, "_rebuild_parameter") ? v->as.object->args : NULL);

    return args.n > 0 ? args.at[0] : v;
}

bool ckpt_ranks_is_part(const ckpt_value *v)
{
    const ckpt_value *state, *inside = rpt_inside(v);
    ckpt_seq args;

    return inside->kind == CKPT_V_TENSOR || rpt_class(inside, &args, &state) != NULL;
}

/* ---- the mesh ---- */

/* Read the size of a mesh axis: a number, or the product of a tuple for flattened axes. */
static bool rpt_axis(const ckpt_value *v, uint64_t *out)
{
    uint64_t size[CKPT_MAX_DIM];
    uint32_t n;

    if (rpt_u64(v, out))
        return true;
    if (!rpt_u64s(v, size, &n))
        return false;
    *out = 1;
    for (uint32_t k = 0; k < n; k++) {
        if (!ckpt_mul(*out, size[k], out))
            return false;
    }
    return true;
}

/* Read the sizes of the mesh, from its tensor of ranks or from its layout. */
static bool rpt_mesh_sizes(const ckpt_value *v, rpt_mesh *mesh)
{
    const ckpt_value *ranks = rpt_get(v, "mesh"), *layout = rpt_get(v, "_layout");
    const ckpt_value *axes = rpt_get(layout, "axes"), *sizes = axes;
    ckpt_seq s;

    if (ranks && ranks->kind == CKPT_V_TENSOR) {
        mesh->ndim = ranks->as.tensor->ndim;
        for (uint32_t k = 0; k < mesh->ndim; k++)
            mesh->size[k] = ranks->as.tensor->shape[k];
        return true;
    }
    if (!sizes)
        sizes = rpt_get(layout, "shape");
    s = ckpt_value_seq(sizes);
    if (!sizes || s.n > CKPT_MAX_DIM)
        return false;
    mesh->ndim = (uint32_t)s.n;
    for (uint64_t k = 0; k < s.n; k++) {
        if (!rpt_axis(axes ? rpt_get(s.at[k], "shape") : s.at[k], &mesh->size[k]))
            return false;
    }
    return true;
}

/* Find the rank in a mesh with a row-major list of ranks. */
static bool rpt_mesh_find(const ckpt_value *v, uint32_t rank, rpt_mesh *mesh)
{
    const ckpt_value *flat = rpt_get(v, "_flatten_mesh_list");
    ckpt_seq s = ckpt_value_seq(flat ? flat : rpt_get(v, "_flatten_rank_map"));
    uint64_t number, i = 0;

    while (i < s.n && !(rpt_u64(s.at[i], &number) && number == rank))
        i++;
    if (i == s.n)
        return false;
    for (uint32_t k = mesh->ndim; k-- > 0;) {
        mesh->at[k] = i % mesh->size[k];
        i /= mesh->size[k];
    }
    return i == 0;
}

static int rpt_mesh_read(const rpt_reader *r, const ckpt_value *v, rpt_mesh *mesh)
{
    const ckpt_value *at = rpt_get(v, "_coordinate_on_dim");
    uint64_t n = 1, rank = r->where->rank;
    uint32_t n_at;

    if (!rpt_is(v, "DeviceMesh") || !rpt_mesh_sizes(v, mesh))
        return rpt_bad(r, "a DTensor whose device mesh has an unknown form");
    for (uint32_t k = 0; k < mesh->ndim; k++) {
        if (mesh->size[k] == 0 || !ckpt_mul(n, mesh->size[k], &n) || n > r->where->world)
            return ckpt_fail(r->err, CKPT_EMISMATCH,
                             "%s: %.200s: its mesh has more ranks than the %" PRIu32
                             " whose files are here",
                             r->where->file, r->where->key, r->where->world);
    }
    (void)rpt_u64(rpt_get(v, "_rank"), &rank);
    if (rank != r->where->rank)
        return ckpt_fail(r->err, CKPT_EMISMATCH,
                         "%s: %.200s was saved by rank %" PRIu64
                         ", but the file is named after another rank",
                         r->where->file, r->where->key, rank);
    if (!at || at->kind == CKPT_V_NONE)
        return rpt_mesh_find(v, r->where->rank, mesh)
                   ? CKPT_OK
                   : rpt_bad(r, "a DTensor whose mesh lacks the rank that saved it");
    if (!rpt_u64s(at, mesh->at, &n_at) || n_at != mesh->ndim)
        return rpt_bad(r, "a DTensor whose mesh does not give this rank's coordinates");
    for (uint32_t k = 0; k < mesh->ndim; k++) {
        if (mesh->at[k] >= mesh->size[k])
            return rpt_bad(r, "a DTensor whose rank is outside its mesh");
    }
    return CKPT_OK;
}

/* Check the file's rank against the mesh's row-major list of ranks. */
static int rpt_mesh_agrees(const rpt_reader *r, const ckpt_value *v, const rpt_mesh *mesh)
{
    const ckpt_value *ranks = rpt_get(v, "mesh");
    ckpt_seq s = ckpt_value_seq(rpt_get(v, "_flatten_mesh_list"));
    uint64_t i = 0, number;

    if (!ranks || ranks->kind != CKPT_V_TENSOR || s.n == 0)
        return CKPT_OK;
    for (uint32_t k = 0; k < mesh->ndim; k++)
        i = i * mesh->size[k] + mesh->at[k];
    if (i < s.n && rpt_u64(s.at[i], &number) && number == r->where->rank)
        return CKPT_OK;
    return ckpt_fail(r->err, CKPT_EMISMATCH,
                     "%s: %.200s was not saved by rank %" PRIu32 ", after which the file is named",
                     r->where->file, r->where->key, r->where->rank);
}

/* The device type: "cuda"; NULL if absent.  torch 2.15 renamed the member. */
static const char *rpt_device(const ckpt_value *mesh)
{
    const ckpt_value *v = rpt_get(mesh, "_device_type");

    v = v ? v : rpt_get(mesh, "device_type");
    return v && v->kind == CKPT_V_STR && v->as.text.n < 16 ? v->as.text.at : NULL;
}

/* ---- placements ---- */

static int rpt_placement_read(const rpt_reader *r, const ckpt_value *v, uint32_t ndim,
                              rpt_placement *out)
{
    bool strided = rpt_is(v, "_StridedShard");
    const ckpt_value *dim = rpt_get(v, "dim");
    int64_t i;

    *out = (rpt_placement){.factor = 1};
    if (rpt_is(v, "Replicate"))
        return CKPT_OK;
    if (!strided && !rpt_is(v, "Shard"))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s is a DTensor with a placement other than Shard or Replicate "
                         "(Partial?): its values are not in the files",
                         r->where->file, r->where->key);
    if (!dim || !ckpt_value_as_int(dim, &i) || i < -(int64_t)ndim || i >= (int64_t)ndim)
        return rpt_bad(r, "a DTensor that is sharded along an axis that it does not have");
    out->shards = true;
    out->dim = (uint32_t)(i < 0 ? i + (int64_t)ndim : i);
    if (strided && (!rpt_u64(rpt_get(v, "split_factor"), &out->factor) || out->factor == 0))
        return rpt_bad(r, "a strided shard without a split factor");
    return CKPT_OK;
}

/* Cut a box along one axis of the mesh: ceil(n / ranks) per rank, less for the last ones. */
static void rpt_cut(ckpt_ranks_box *box, const rpt_mesh *mesh, const rpt_placement *p, uint32_t k)
{
    assert(k < mesh->ndim && mesh->at[k] < mesh->size[k] && p->shards);
    uint64_t n = box->count[p->dim], each = n / mesh->size[k] + (n % mesh->size[k] != 0);
    uint64_t from = mesh->at[k] * each < n ? mesh->at[k] * each : n;

    box->start[p->dim] += from;
    box->count[p->dim] = n - from < each ? n - from : each;
}

/*
 * Derive from the split factors in which order mesh axes cut an axis of the tensor: going
 * backwards, each axis is inserted where the axes before it make up its split factor.
 */
static int rpt_order_strided(const rpt_reader *r, const rpt_mesh *mesh, const rpt_placement *p,
                             uint32_t dim, uint32_t *order, uint32_t *n)
{
    *n = 0;
    for (uint32_t k = mesh->ndim; k-- > 0;) {
        uint64_t before = 1;
        uint32_t at = 0;
        if (!p[k].shards || p[k].dim != dim)
            continue;
        while (at < *n && before != p[k].factor)
            before *= mesh->size[order[at++]]; // at most CKPT_RANKS_MAX, the ranks of the mesh
        if (before != p[k].factor)
            return ckpt_fail(
                r->err, CKPT_EUNSUPPORTED,
                "%s: %.200s: the split factors of its strided shards match no order of mesh axes",
                r->where->file, r->where->key);
        memmove(&order[at + 1], &order[at], (*n - at) * sizeof *order);
        order[at] = k;
        ++*n;
    }
    return CKPT_OK;
}

/* Read that order from the spec: ShardOrderEntry(tensor_dim, mesh_dims); false if it is absent. */
static bool rpt_order_told(const ckpt_value *spec, uint32_t dim, uint32_t *order, uint32_t *n)
{
    ckpt_seq entries = ckpt_value_seq(rpt_get(spec, "shard_order"));

    for (uint64_t i = 0; i < entries.n; i++) {
        const ckpt_value *e = entries.at[i];
        ckpt_seq args =
            e->kind == CKPT_V_OBJECT ? ckpt_value_seq(e->as.object->args) : ckpt_value_seq(e);
        uint64_t axis, mesh[CKPT_MAX_DIM];
        if (args.n != 2 || !rpt_u64(args.at[0], &axis) || axis != dim ||
            !rpt_u64s(args.at[1], mesh, n))
            continue;
        for (uint32_t k = 0; k < *n; k++)
            order[k] = mesh[k] < CKPT_MAX_DIM ? (uint32_t)mesh[k] : CKPT_MAX_DIM;
        return true;
    }
    return false;
}

/* Cut a box along one axis of the tensor by all mesh axes that shard it. */
static int rpt_cut_dim(const rpt_reader *r, const ckpt_value *spec, const rpt_mesh *mesh,
                       const rpt_placement *p, uint32_t dim, ckpt_ranks_box *box)
{
    uint32_t order[CKPT_MAX_DIM], n = 0, n_shards = 0;
    bool strided = false, seen[CKPT_MAX_DIM] = {false};
    int rc = CKPT_OK;

    for (uint32_t k = 0; k < mesh->ndim; k++) {
        n_shards += p[k].shards && p[k].dim == dim;
        strided |= p[k].shards && p[k].dim == dim && p[k].factor > 1;
        if (p[k].shards && p[k].dim == dim)
            order[n++] = k;
    }
    if (strided)
        rc = rpt_order_strided(r, mesh, p, dim, order, &n);
    else if (n_shards > 1)
        (void)rpt_order_told(spec, dim, order, &n);
    for (uint32_t i = 0; rc == CKPT_OK && i < n; i++) {
        if (order[i] >= mesh->ndim || !p[order[i]].shards || p[order[i]].dim != dim ||
            seen[order[i]])
            return rpt_bad(r, "a DTensor whose shard order does not match its placements");
        seen[order[i]] = true;
        rpt_cut(box, mesh, &p[order[i]], order[i]);
    }
    return rc == CKPT_OK && n != n_shards
               ? rpt_bad(r, "a DTensor whose shard order leaves some placements out")
               : rc;
}

/* ---- parts ---- */

/* Check that a local tensor has the shape of its box, and add it; empty boxes are left out. */
static int rpt_box(const rpt_reader *r, ckpt_ranks_part *out, const ckpt_value *v,
                   const ckpt_ranks_box *like)
{
    const ckpt_tensor_value *t = v && v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
    bool same, empty = false, none = false;
    ckpt_ranks_box *box;

    if (!t)
        return rpt_bad(r, "a part of a tensor without a local tensor");
    if (t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG))
        return rpt_bad(r, "a lazily conjugated tensor");
    same = t->ndim == out->ndim;
    for (uint32_t k = 0; k < t->ndim; k++)
        none |= t->shape[k] == 0;
    for (uint32_t k = 0; k < out->ndim; k++) {
        same = same && t->shape[k] == like->count[k];
        empty |= like->count[k] == 0;
    }
    if (t->dtype != out->dtype || (!same && !(empty && none)))
        return ckpt_fail(r->err, CKPT_EMISMATCH,
                         "%s: %.200s: the local tensor has another shape or dtype than its "
                         "description gives rank %" PRIu32,
                         r->where->file, r->where->key, r->where->rank);
    if (empty)
        return CKPT_OK;
    box = ckpt_vec_push(&out->box);
    if (!box)
        return ckpt_fail_memory(r->err);
    *box = *like;
    box->local = t;
    return CKPT_OK;
}

static int rpt_dtensor(const rpt_reader *r, ckpt_ranks_part *out, const ckpt_value *state)
{
    const ckpt_value *spec = rpt_get(state, "_spec"), *mesh_value = rpt_get(spec, "mesh");
    ckpt_seq placements = ckpt_value_seq(rpt_get(spec, "placements"));
    rpt_placement p[CKPT_MAX_DIM] = {{0}};
    ckpt_ranks_box box = {{0}, {0}, NULL};
    rpt_mesh mesh = {0};
    int rc = rpt_mesh_read(r, mesh_value, &mesh);

    if (rc == CKPT_OK)
        rc = rpt_mesh_agrees(r, mesh_value, &mesh);
    if (rc == CKPT_OK && placements.n != mesh.ndim)
        rc = rpt_bad(r, "a DTensor without a placement for each axis of its mesh");
    for (uint32_t k = 0; rc == CKPT_OK && k < mesh.ndim; k++) {
        rc = rpt_placement_read(r, placements.at[k], out->ndim, &p[k]);
        out->copies *= p[k].shards ? 1 : (uint32_t)mesh.size[k];
    }
    out->device = rpt_device(mesh_value);
    memcpy(box.count, out->shape, sizeof box.count);
    for (uint32_t dim = 0; rc == CKPT_OK && dim < out->ndim; dim++)
        rc = rpt_cut_dim(r, spec, &mesh, p, dim, &box);
    return rc == CKPT_OK ? rpt_box(r, out, rpt_get(state, "_local_tensor"), &box) : rc;
}

/* The device of torch.device("cuda", 0). */
static const char *rpt_device_of(const ckpt_value *v)
{
    ckpt_seq args = ckpt_value_seq(rpt_is(v, "device") ? v->as.object->args : NULL);

    return args.n > 0 && args.at[0]->kind == CKPT_V_STR && args.at[0]->as.text.n < 16
               ? args.at[0]->as.text.at
               : NULL;
}

/* Read one shard of a ShardedTensor. */
static int rpt_shard(const rpt_reader *r, ckpt_ranks_part *out, const ckpt_value *v)
{
    const ckpt_value *m = rpt_get(v, "metadata");
    ckpt_ranks_box box = {{0}, {0}, NULL};
    uint32_t n_start, n_count;

    if (!rpt_u64s(rpt_get(m, "shard_offsets"), box.start, &n_start) ||
        !rpt_u64s(rpt_get(m, "shard_sizes"), box.count, &n_count) || n_start != out->ndim ||
        n_count != out->ndim)
        return rpt_bad(r, "a shard without its offsets and sizes");
    out->device = rpt_device_of(rpt_get(rpt_get(m, "placement"), "_device"));
    for (uint32_t k = 0; k < out->ndim; k++) {
        if (!ckpt_within(box.start[k], box.count[k], out->shape[k]))
            return ckpt_fail(r->err, CKPT_EMISMATCH,
                             "%s: %.200s: a shard outside the tensor along axis %" PRIu32,
                             r->where->file, r->where->key, k);
    }
    return rpt_box(r, out, rpt_get(v, "tensor"), &box);
}

/* Read the state: (local shards, metadata, process group, sharding spec, rrefs). */
static int rpt_sharded(const rpt_reader *r, ckpt_ranks_part *out, const ckpt_value *state)
{
    ckpt_seq s = ckpt_value_seq(state), shards;
    int rc = CKPT_OK;

    if (s.n < 2 || s.at[0]->kind != CKPT_V_LIST)
        return rpt_bad(r, "a ShardedTensor without its list of shards");
    shards = ckpt_value_seq(s.at[0]);
    for (uint64_t i = 0; rc == CKPT_OK && i < shards.n; i++)
        rc = rpt_shard(r, out, shards.at[i]);
    return rc;
}

static int rpt_plain(const rpt_reader *r, ckpt_ranks_part *out, const ckpt_value *v)
{
    const ckpt_tensor_value *t = v->as.tensor;
    ckpt_ranks_box box = {{0}, {0}, NULL};

    out->kind = CKPT_RANKS_PLAIN;
    out->dtype = t->dtype;
    out->ndim = t->ndim;
    for (uint32_t k = 0; k < t->ndim; k++)
        out->shape[k] = box.count[k] = t->shape[k];
    return rpt_box(r, out, v, &box);
}

int ckpt_ranks_part_read(ckpt_ranks_part *out, const ckpt_value *v, const ckpt_ranks_where *where,
                         ckpt_err *err)
{
    assert(v && where->rank < where->world && out->box.n == 0);
    const rpt_reader r = {where, err};
    const ckpt_value *state, *inside = rpt_inside(v);
    ckpt_seq args;
    const char *class;
    bool sharded;

    out->copies = 1;
    if (inside->kind == CKPT_V_TENSOR)
        return rpt_plain(&r, out, inside);
    class = rpt_class(inside, &args, &state);
    sharded = class && strcmp(class, "ShardedTensor") == 0;
    if (!class || (!sharded && strcmp(class, "DTensor") != 0))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: %.200s is not a tensor, DTensor or ShardedTensor", where->file,
                         where->key);
    if (args.n < 3 || args.at[1]->kind != CKPT_V_DTYPE ||
        !rpt_u64s(args.at[2], out->shape, &out->ndim))
        return rpt_bad(&r, "a part of a tensor without its dtype and size");
    out->dtype = args.at[1]->as.dtype;
    out->kind = sharded ? CKPT_RANKS_SHARDED : CKPT_RANKS_DTENSOR;
    return sharded ? rpt_sharded(&r, out, state) : rpt_dtensor(&r, out, state);
}
