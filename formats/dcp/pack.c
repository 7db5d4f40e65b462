/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c: places the items of a distributed checkpoint as entries of data files, one after another,
 * and writes the .metadata that describes them.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/torch/torch.h"
#include "formats/torch/tree.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/map.h"

/* ---- items ---- */

/* Join a path to its flattened name. */
static const char *dpk_name(ckpt_dcp_pack *p, const ckpt_value *path)
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
        name = ckpt_arena_string(p->to->arena, text.n ? (const char *)text.at : "", text.n);
    ckpt_vec_free(&text);
    return name;
}

/* Begin an item; without a name, it has the flattened name of the path. */
static int dpk_item(ckpt_dcp_pack *p, const char *name, ckpt_value *path, ckpt_dcp_item **out)
{
    name = !name && path ? dpk_name(p, path) : name;

    *out = name ? ckpt_vec_push(&p->meta.item) : NULL;
    if (!*out)
        return ckpt_fail_memory(p->err);
    **out = (ckpt_dcp_item){.name = {name, strlen(name)}, .path = path, .first = p->meta.chunk.n};
    return CKPT_OK;
}

/* ---- entries ---- */

/* Begin an archive at the end of a rank's file. */
static int dpk_begin(ckpt_dcp_pack *p, ckpt_torch_tree *t, uint32_t rank)
{
    int rc = ckpt_tt_more(t, p->to, p->from, p->file[rank], p->err);

    t->drop_objects = p->drop_objects;
    return rc;
}

/* End an archive, and record its position. */
static int dpk_end(ckpt_dcp_pack *p, ckpt_torch_tree *t, ckpt_value *root, uint32_t rank,
                   ckpt_dcp_chunk *chunk)
{
    const ckpt_dcp_item *item = &p->meta.item.at[p->meta.item.n - 1];
    uint64_t at = p->to->files.at[p->file[rank]].size;
    int rc = ckpt_tt_end(t, root);

    if (rc != CKPT_OK)
        return rc;
    chunk->place = (ckpt_dcp_place){rank, at, p->to->files.at[p->file[rank]].size - at};
    return ckpt_dcp_add_chunk(&p->meta, chunk, item->ndim) ? CKPT_OK : ckpt_fail_memory(p->err);
}

/* Write a chunk of a tensor to one rank's file. */
static int dpk_chunk(ckpt_dcp_pack *p, const ckpt_tensor *t, ckpt_dtype dtype, uint32_t rank,
                     const ckpt_dcp_chunk *like, ckpt_extent *e)
{
    ckpt_dcp_chunk chunk = *like;
    ckpt_torch_tree tree;
    ckpt_value *v = NULL;
    uint64_t n = 1;
    int rc = dpk_begin(p, &tree, rank);

    for (uint32_t k = 0; k < t->ndim; k++)
        n *= chunk.count[k];
    if (rc == CKPT_OK)
        v = ckpt_tt_view(&tree, ckpt_tt_storage(&tree, dtype, n), 0, chunk.count, t->ndim);
    if (v)
        v->as.tensor->dtype = dtype;
    if (v && n > 0)
        e->source = v->as.tensor->storage->source;
    return dpk_end(p, &tree, v, rank, &chunk);
}

/* The rows of a box, which is complete rows of a tensor with several elements in a byte. */
static bool dpk_box_rows(const ckpt_dcp_packed *what, const ckpt_dcp_box *box, ckpt_axis *axis,
                         ckpt_extent *e)
{
    const ckpt_tensor *t = what->tensor;

    if (!ckpt_dtype_packed(what->dtype) || t->ndim == 0)
        return false;
    ckpt_dcp_packed_rows(e, axis, t->shape, t->ndim, box->start[0], box->count[0]);
    return true;
}

/*
 * Make a chunk's box, and the extent of its elements in the chunk's storage.  The part of the box
 * that lies outside of the tensor is padding.
 */
static bool dpk_box(ckpt_dcp_pack *p, const ckpt_dcp_packed *what, const ckpt_dcp_box *box,
                    ckpt_dcp_chunk *chunk, ckpt_extent *e)
{
    const ckpt_tensor *t = what->tensor;
    uint64_t *at = ckpt_arena_array(p->to->arena, 2 * (uint64_t)t->ndim + 1, sizeof *at);
    ckpt_axis *axis = ckpt_arena_array(p->to->arena, t->ndim + 1, sizeof *axis);
    int64_t stride = (int64_t)(ckpt_dtype_get(what->dtype)->bits / 8);

    if (!at || !axis)
        return false;
    chunk->start = at;
    chunk->count = at + t->ndim;
    for (uint32_t k = 0; k < t->ndim; k++) {
        at[k] = box->start[k];
        at[t->ndim + k] = box->count[k];
    }
    *e = (ckpt_extent){.ndim = t->ndim, .axis = axis};
    if (dpk_box_rows(what, box, axis, e))
        return true;
    for (uint32_t k = t->ndim; k-- > 0;) {
        uint64_t rest = t->shape[k] > box->start[k] ? t->shape[k] - box->start[k] : 0;
        axis[k] = (ckpt_axis){box->start[k], rest < box->count[k] ? rest : box->count[k], stride};
        stride *= (int64_t)box->count[k];
    }
    if (t->ndim == 0) {
        axis[0] = (ckpt_axis){0, 1, stride};
        e->ndim = 1;
    }
    return true;
}

/* True if an extent has an element. */
static bool dpk_holds(const ckpt_extent *e)
{
    bool holds = true;

    for (uint32_t k = 0; k < e->ndim; k++)
        holds = holds && e->axis[k].count > 0;
    return holds;
}

int ckpt_dcp_pack_tensor(ckpt_dcp_pack *p, const ckpt_dcp_packed *what)
{
    assert(p && what && what->tensor);
    const ckpt_tensor *t = what->tensor, *donor = t->owner ? t->owner : t;
    ckpt_extent *extent = ckpt_alloc((what->n + 1) * sizeof *extent);
    ckpt_dcp_item *item = NULL;
    uint32_t n = 0;
    int rc = extent ? dpk_item(p, what->name, what->path, &item) : ckpt_fail_memory(p->err);

    if (rc == CKPT_OK) {
        item->is_tensor = true;
        item->dtype = what->dtype;
        item->ndim = t->ndim;
        item->shape = what->shape ? what->shape : t->shape;
    }
    for (uint32_t i = 0; rc == CKPT_OK && i < what->n; i++) {
        ckpt_dcp_chunk chunk = {0};
        if (!dpk_box(p, what, &what->box[i], &chunk, &extent[n]))
            rc = ckpt_fail_memory(p->err);
        if (rc == CKPT_OK)
            rc = dpk_chunk(p, t, what->dtype, what->box[i].rank, &chunk, &extent[n]);
        p->meta.item.at[p->meta.item.n - 1].n++;
        n += dpk_holds(&extent[n]);
    }
    if (rc == CKPT_OK && t->n_elems > 0)
        rc = ckpt_tt_fill(p->to,
                          &(ckpt_torch_fill){what->kind ? what->kind : "dcp", donor, what->dtype},
                          extent, n, p->err);
    ckpt_free(extent);
    return rc;
}

/* Describe a tensor of a tree as a tensor of the checkpoint, in one chunk. */
static bool dpk_leaf(ckpt_dcp_pack *p, const ckpt_tensor_value *v, ckpt_dcp_chunk *chunk)
{
    ckpt_dcp_item *item = &p->meta.item.at[p->meta.item.n - 1];
    uint64_t *shape = ckpt_arena_array(p->to->arena, v->ndim + 1, sizeof *shape);

    chunk->start = ckpt_arena_array(p->to->arena, v->ndim + 1, sizeof *chunk->start);
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

int ckpt_dcp_pack_object(ckpt_dcp_pack *p, const char *name, ckpt_value *path, const ckpt_value *v)
{
    assert(p && v);
    ckpt_dcp_chunk chunk = {0};
    ckpt_dcp_item *item;
    ckpt_torch_tree tree;
    int rc = dpk_item(p, name, path, &item);

    if (rc != CKPT_OK)
        return rc;
    item->n = 1;
    if (v->kind == CKPT_V_TENSOR && !dpk_leaf(p, v->as.tensor, &chunk))
        return ckpt_fail_memory(p->err);
    rc = dpk_begin(p, &tree, 0);
    return rc == CKPT_OK ? dpk_end(p, &tree, ckpt_tt_copy(&tree, v), 0, &chunk) : rc;
}

int ckpt_dcp_pack_again(ckpt_dcp_pack *p, const char *name, size_t of)
{
    assert(p && name && of < p->meta.item.n);
    ckpt_dcp_item item = p->meta.item.at[of], *slot = ckpt_vec_push(&p->meta.item);

    if (!slot)
        return ckpt_fail_memory(p->err);
    item.name = (ckpt_text){name, strlen(name)};
    *slot = item;
    return CKPT_OK;
}

/* ---- files ---- */

int ckpt_dcp_pack_files(ckpt_dcp_pack *p, const char *folder)
{
    assert(p && folder);
    int rc = CKPT_OK;

    ckpt_dcp_metadata_free(&p->meta);
    p->to->ranks = p->ranks;
    p->file = ckpt_arena_array(p->to->arena, p->ranks, sizeof *p->file);
    if (!p->file)
        return ckpt_fail_memory(p->err);
    for (uint32_t r = 0; rc == CKPT_OK && r < p->ranks; r++) {
        const char *path = ckpt_arena_printf(p->to->arena, "%s__%" PRIu32 "_0.distcp", folder, r);
        const char *name = path ? path + strlen(folder) : NULL;
        ckpt_map_file file = {.path = path,
                              .prefix = "archive",
                              .format = &ckpt_format_torch,
                              .placed = true,
                              .rank = r};
        ckpt_dcp_file *slot = name ? ckpt_vec_push(&p->meta.file) : NULL;
        if (!slot)
            return ckpt_fail_memory(p->err);
        *slot = (ckpt_dcp_file){{name, strlen(name)}, name};
        rc = ckpt_map_add_file(p->to, &file, &p->file[r], p->err);
    }
    return rc;
}

int ckpt_dcp_pack_metadata(ckpt_dcp_pack *p, const char *folder)
{
    assert(p && folder);
    ckpt_map_file file = {.placed = true, .rank = UINT32_MAX};
    ckpt_bytes text = {0};
    uint32_t index = 0;
    int rc = ckpt_dcp_describe(&text, &p->meta, p->err);

    file.path = ckpt_arena_printf(p->to->arena, "%s" CKPT_DCP_METADATA, folder);
    if (rc == CKPT_OK && !file.path)
        rc = ckpt_fail_memory(p->err);
    file.size = text.n;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_file(p->to, &file, &index, p->err);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_literal(p->to, index, 0, text.at, text.n, p->err);
    ckpt_vec_free(&text);
    return rc;
}
