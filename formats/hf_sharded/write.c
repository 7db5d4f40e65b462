/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes, for each rank, the files that HuggingFaceStorageWriter makes of a model under
 * FSDP2.
 *
 * Tensors are sharded along their first axis (ckpt_train_fsdp_rows).  A rank without rows of a
 * tensor does not store it, and without tensors of a file it does not write the file.  The first
 * rank has a piece of each tensor.  The division into files (fqn_to_index_mapping) is the hub's
 * split of whole tensors, so that torch's consolidation makes shards of the requested size.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf_sharded/hf_sharded.h"
#include "formats/safetensors/safetensors.h"
#include "formats/safetensors/split.h"
#include "formats/training/to_fsdp.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/extent.h"

/* The pieces of a tensor.  Files are laid out from the last rank down, so extents fill from the
 * end. */
typedef struct hsw_cut {
    ckpt_extent *extent; /* array with one extent per rank */
    uint32_t n;          /* the last n extents are filled */
} hsw_cut;

typedef struct hsw_writer {
    ckpt_map *to;
    ckpt_err *err;
    uint32_t ranks;
    uint32_t *shard; /* each tensor's file, from 0 */
    uint32_t n_shards;
    hsw_cut *cut;  /* one per tensor */
    size_t *order; /* tensors in the order of DCP_SHARDING_INFO */
    ckpt_arena *scratch;
} hsw_writer;

/* ---- contents ---- */

/* Refuse moments, and report other state of the run as dropped, because the format holds a model
 * only. */
static int hsw_weights(hsw_writer *w, const ckpt_map *from)
{
    uint64_t n_tied = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; i < w->to->tensors.n; i++) {
        ckpt_tensor *t = w->to->tensors.at[i];
        if (t->role == CKPT_ROLE_STATE)
            return ckpt_fail(w->err, CKPT_EUSAGE,
                             "%.200s: hf-sharded holds a model alone: leave its optimizer state "
                             "out, or write dcp",
                             t->name);
        // torch's loader looks up every name of the model, so tied names are written in full
        n_tied += t->owner != NULL;
        t->owner = NULL;
    }
    if (n_tied > 0)
        rc = ckpt_map_note(w->to, CKPT_INFO, w->err,
                           "%" PRIu64
                           " tied name%s written in full, because these files cannot record ties",
                           n_tied, n_tied == 1 ? " is" : "s are");
    if (rc == CKPT_OK && from->known.training)
        rc = ckpt_map_note(w->to, CKPT_INFO, w->err,
                           "left out: the optimizer's state and the values of the run: hf-sharded "
                           "holds a model alone (ckpt reshard --to dcp takes them along)");
    return rc;
}

/* Note tensors that the format can hold but some of torch's functions cannot read. */
static int hsw_tell_limits(hsw_writer *w)
{
    const ckpt_tensor *scalar = NULL, *whole = NULL;
    int rc = CKPT_OK;

    for (size_t i = 0; i < w->to->tensors.n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];
        ckpt_kind_of kind = ckpt_dtype_get(t->dtype)->kind;
        scalar = !scalar && t->ndim == 0 ? t : scalar;
        whole = !whole && kind != CKPT_IS_FLOAT ? t : whole;
    }
    if (scalar)
        rc = ckpt_map_note(w->to, CKPT_INFO, w->err,
                           "%.200s has no axes: torch loads it, but its "
                           "consolidate_safetensors_files (2.15) makes a zero of it",
                           scalar->name);
    if (rc == CKPT_OK && whole)
        rc = ckpt_map_note(w->to, CKPT_INFO, w->err,
                           "%.200s is %s: torch loads it, but its consolidate_safetensors_files "
                           "(2.15) takes only floating tensors",
                           whole->name, ckpt_dtype_name(whole->dtype));
    return rc;
}

/* ---- files ---- */

/* Divide the tensors into files by the hub's rule. */
static int hsw_split(hsw_writer *w, uint64_t limit)
{
    size_t n = w->to->tensors.n;
    ckpt_hf_item *item = ckpt_arena_array(w->scratch, n + 1, sizeof *item);
    ckpt_hf_sums sums;
    int rc = item ? CKPT_OK : ckpt_fail_memory(w->err);

    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        const ckpt_tensor *t = w->to->tensors.at[i];
        item[i].storage = i;
        if (!ckpt_dtype_bytes(t->dtype, t->n_elems, &item[i].n_bytes))
            rc = ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                           "tensor \"%.200s\": its elements do not fill whole bytes", t->name);
    }
    if (rc == CKPT_OK)
        rc = ckpt_hf_split(item, n, limit, w->shard, &sums, w->err);
    w->n_shards = rc == CKPT_OK ? sums.n_shards : 0;
    return rc;
}

/* For qsort: by name. */
static int hsw_name_order(const void *pa, const void *pb)
{
    const ckpt_tensor *a = *(ckpt_tensor *const *)pa, *b = *(ckpt_tensor *const *)pb;

    return strcmp(a->name, b->name);
}

/* Choose the model's order if the source has it; otherwise sort names, to have a stable order. */
static int hsw_order(hsw_writer *w, const ckpt_map *from)
{
    size_t n = w->to->tensors.n;
    ckpt_tensor **sorted = ckpt_arena_array(w->scratch, n + 1, sizeof(ckpt_tensor *));

    if (!sorted)
        return ckpt_fail_memory(w->err);
    for (size_t i = 0; i < n; i++)
        sorted[i] = w->to->tensors.at[i];
    if (n > 0 && !from->in_order)
        qsort(sorted, n, sizeof(ckpt_tensor *), hsw_name_order);
    for (size_t i = 0; i < n; i++)
        w->order[i] = ckpt_map_index(w->to, sorted[i]->name, strlen(sorted[i]->name));
    return CKPT_OK;
}

/* Compute a rank's rows of a tensor; false if it has none.  Packed dtypes are not cut. */
static bool hsw_rows(const hsw_writer *w, const ckpt_tensor *t, uint32_t rank, uint64_t *start,
                     uint64_t *count)
{
    *start = 0;
    *count = t->ndim > 0 ? t->shape[0] : 1;
    if (t->ndim > 0 && !ckpt_dtype_packed(t->dtype))
        *count = ckpt_train_fsdp_rows(t->shape[0], w->ranks, rank, start);
    else if (rank > 0)
        return false;
    return *count > 0 || rank == 0;
}

/* Add "name": {"saved_offsets": [start, 0, ...]} as Python's json writes it. */
static bool hsw_place(ckpt_bytes *info, const ckpt_tensor *t, uint64_t start)
{
    bool ok = ckpt_bytes_add(info, info->n > 1 ? ", " : "", info->n > 1 ? 2 : 0) &&
              ckpt_json_string(info, t->name, strlen(t->name), true) &&
              ckpt_bytes_printf(info, ": {\"" CKPT_HFS_OFFSETS "\": [");

    for (uint32_t k = 0; ok && k < t->ndim; k++)
        ok = ckpt_bytes_printf(info, "%s%" PRIu64, k > 0 ? ", " : "", k > 0 ? 0 : start);
    return ok && ckpt_bytes_add(info, "]}", 2);
}

/* Add a rank's pieces of one file as tensors of a separate map. */
static int hsw_pieces(hsw_writer *w, ckpt_map *part, uint32_t rank, uint32_t shard,
                      ckpt_bytes *info)
{
    bool ok = ckpt_bytes_add(info, "{", 1);
    int rc = CKPT_OK;

    for (size_t k = 0; ok && rc == CKPT_OK && k < w->to->tensors.n; k++) {
        size_t i = w->order[k];
        const ckpt_tensor *t = w->to->tensors.at[i];
        uint64_t shape[CKPT_MAX_DIM], start, count;
        ckpt_tensor like = {.dtype = t->dtype, .ndim = t->ndim, .shape = shape}, *made;
        if (w->shard[i] != shard || !hsw_rows(w, t, rank, &start, &count))
            continue;
        if (t->ndim > 0) {
            memcpy(shape, t->shape, t->ndim * sizeof *shape);
            shape[0] = count;
        }
        rc = ckpt_map_add(part, t->name, strlen(t->name), &like, &made, w->err);
        ok = hsw_place(info, t, start);
    }
    ok = ok && ckpt_bytes_add(info, "}", 1);
    return rc == CKPT_OK && !ok ? ckpt_fail_memory(w->err) : rc;
}

/* Add the source's metadata and the sharding info of the pieces. */
static int hsw_metadata(hsw_writer *w, ckpt_map *part, const ckpt_bytes *info)
{
    ckpt_arena *a = part->arena;
    ckpt_value *text = ckpt_value_str(a, (const char *)info->at, info->n);
    bool ok = text && ckpt_dict_add_cstr(a, &part->metadata, CKPT_HFS_INFO, text) &&
              ckpt_dict_add_cstr(a, &part->metadata, CKPT_HFS_VERSION, ckpt_value_cstr(a, "1.0"));

    for (uint64_t i = 0; ok && i < w->to->metadata.n; i++) {
        const ckpt_pair *p = &w->to->metadata.at[i];
        if (!ckpt_value_is(p->key, CKPT_HFS_INFO) && !ckpt_value_is(p->key, CKPT_HFS_VERSION))
            ok = ckpt_dict_add(a, &part->metadata, p->key, p->value);
    }
    return ok ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Add a piece's rows as an interval of the flattened tensor. */
static bool hsw_cut_add(hsw_writer *w, size_t i, uint32_t source, uint64_t start, uint64_t count)
{
    const ckpt_tensor *t = w->to->tensors.at[i];
    ckpt_axis *axis = ckpt_arena_array(w->scratch, 1, sizeof *axis);
    uint64_t row = t->ndim > 0 ? t->n_elems / t->shape[0] : 1;
    hsw_cut *cut = &w->cut[i];

    if (!cut->extent)
        cut->extent = ckpt_arena_array(w->scratch, w->ranks, sizeof *cut->extent);
    if (!axis || !cut->extent)
        return false;
    *axis = (ckpt_axis){start * row, count * row, (int64_t)(ckpt_dtype_get(t->dtype)->bits / 8)};
    cut->extent[w->ranks - ++cut->n] = (ckpt_extent){.source = source, .ndim = 1, .axis = axis};
    return true;
}

/* Copy a laid out file into the output map: its header, and the extents of its pieces. */
static int hsw_take(hsw_writer *w, const ckpt_map *part, uint32_t rank)
{
    const ckpt_map_file *laid = &part->files.at[0];
    const ckpt_literal *header = &laid->literals.at[0];
    ckpt_map_file file = {.path = laid->path,
                          .size = laid->size,
                          .format = laid->format,
                          .placed = true,
                          .rank = UINT32_MAX};
    uint32_t index = 0, source;
    int rc = ckpt_map_add_file(w->to, &file, &index, w->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_add_literal(w->to, index, header->at, header->bytes, header->n, w->err);
    for (size_t k = 0; rc == CKPT_OK && k < part->tensors.n; k++) {
        const ckpt_tensor *piece = part->tensors.at[k];
        size_t i = ckpt_map_index(w->to, piece->name, strlen(piece->name));
        uint64_t start, count;
        // the last assignment is rank 0's, which has a piece of every tensor
        w->to->tensors.at[i]->file = index;
        if (piece->n_elems == 0)
            continue;
        ckpt_source s = part->sources.at[ckpt_extent_source(piece, 0)];
        s.file = index;
        (void)hsw_rows(w, w->to->tensors.at[i], rank, &start, &count);
        rc = ckpt_map_add_source(w->to, &s, &source, w->err);
        if (rc == CKPT_OK && !hsw_cut_add(w, i, source, start, count))
            rc = ckpt_fail_memory(w->err);
    }
    return rc;
}

/* Lay out a rank's file with the safetensors driver, with the pieces as its tensors. */
static int hsw_file(hsw_writer *w, uint32_t rank, uint32_t shard)
{
    char name[96];
    ckpt_map_file file = {.path = name, .format = &ckpt_format_safetensors};
    ckpt_bytes info = {0};
    ckpt_map *part = NULL;
    uint32_t index;
    int rc = ckpt_map_create(&part, 0, w->err);

    (void)snprintf(name, sizeof name,
                   "shard-%05" PRIu32 "-model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", rank + 1,
                   shard + 1, w->n_shards);
    if (rc == CKPT_OK)
        rc = hsw_pieces(w, part, rank, shard, &info);
    // write one file even if the source has no tensors
    if (rc == CKPT_OK && (part->tensors.n > 0 || rank == 0)) {
        rc = hsw_metadata(w, part, &info);
        if (rc == CKPT_OK)
            rc = ckpt_map_add_file(part, &file, &index, w->err);
        if (rc == CKPT_OK)
            rc = ckpt_safetensors_place(part, 0, w->err);
        if (rc == CKPT_OK)
            rc = hsw_take(w, part, rank);
    }
    ckpt_vec_free(&info);
    ckpt_map_free(part);
    return rc;
}

/*
 * Lay out all files, the first rank's first file last, so that until it appears readers notice
 * missing ranks or rows.
 */
static int hsw_files(hsw_writer *w)
{
    int rc = CKPT_OK;

    for (uint32_t rank = w->ranks; rc == CKPT_OK && rank-- > 0;) {
        for (uint32_t shard = w->n_shards; rc == CKPT_OK && shard-- > 0;)
            rc = hsw_file(w, rank, shard);
    }
    for (size_t i = 0; rc == CKPT_OK && i < w->to->tensors.n; i++) {
        const hsw_cut *cut = &w->cut[i];
        if (cut->n > 0)
            rc = ckpt_map_back(w->to, w->to->tensors.at[i], cut->extent + (w->ranks - cut->n),
                               cut->n, w->err);
    }
    return rc;
}

/* ---- the set ---- */

/* All safetensors files belong to the set, because torch's reader loads every one in the folder. */
static ckpt_set_name hsw_look(const char *file_name)
{
    const char *end = strstr(file_name, ".safetensors");
    ckpt_hfs_name is;

    if (ckpt_hfs_parse(file_name, &is))
        return (ckpt_set_name){.what =
                                   is.rank == 1 && is.file == 1 ? CKPT_SET_HEAD : CKPT_SET_PART};
    if (end && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".safetensors.index.json") == 0))
        return (ckpt_set_name){.what = CKPT_SET_PART, .kind = 1};
    return (ckpt_set_name){.what = CKPT_SET_OTHER};
}

static int hsw_make_set(hsw_writer *w)
{
    ckpt_set *set = ckpt_arena_alloc(w->to->arena, sizeof *set);

    if (!set)
        return ckpt_fail_memory(w->err);
    *set = (ckpt_set){.name = "model", .look = hsw_look, .alone = true};
    w->to->set = set;
    return CKPT_OK;
}

/* ---- the driver ---- */

int ckpt_hfs_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err)
{
    assert(to && from && target);
    hsw_writer w = {.to = to, .err = err, .scratch = ckpt_arena_new(0)};
    size_t n = to->tensors.n + 1;
    int rc = CKPT_OK;

    w.ranks = target->world ? target->world : from->known.world ? from->known.world : 1;
    w.shard = w.scratch ? ckpt_arena_array(w.scratch, n, sizeof *w.shard) : NULL;
    w.cut = w.scratch ? ckpt_arena_array(w.scratch, n, sizeof *w.cut) : NULL;
    w.order = w.scratch ? ckpt_arena_array(w.scratch, n, sizeof *w.order) : NULL;
    if (!w.shard || !w.cut || !w.order)
        rc = ckpt_fail_memory(err);
    else if (w.ranks > CKPT_TRAIN_RANKS)
        rc = ckpt_fail(err, CKPT_EUSAGE, "%" PRIu32 " ranks are too many: at most %d are supported",
                       w.ranks, CKPT_TRAIN_RANKS);
    if (rc == CKPT_OK)
        rc = hsw_weights(&w, from);
    if (rc == CKPT_OK)
        rc = hsw_tell_limits(&w);
    if (rc == CKPT_OK)
        rc = hsw_order(&w, from);
    if (rc == CKPT_OK)
        rc = hsw_split(&w, target->max_shard_size);
    if (rc == CKPT_OK) {
        memset(w.cut, 0, n * sizeof *w.cut);
        rc = hsw_files(&w);
    }
    if (rc == CKPT_OK)
        rc = hsw_make_set(&w);
    ckpt_arena_free(w.scratch);
    return rc;
}
