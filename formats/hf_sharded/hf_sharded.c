/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_sharded.c: reads folders of sharded safetensors and joins the boxes of all ranks into whole
 * tensors.
 *
 * Only headers are read.  A rank writes a file only if it has boxes for it, so a missing file can
 * be detected only by the way other tensors are cut.  If all files of the last rank are missing,
 * every tensor is shorter; only a smaller last piece of an uneven cut excludes that, otherwise ckpt
 * warns.
 */
#include "formats/hf_sharded/hf_sharded.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "formats/training/automodel.h"
#include "formats/training/step_folders.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/address.h"
#include "libckpt/map/merge.h"

/* A file of the folder. */
typedef struct hfs_file {
    const char *name;
    ckpt_hfs_name is;
} hfs_file;

CKPT_VEC(hfs_files, hfs_file);

/* A box of a tensor. */
typedef struct hfs_box {
    uint32_t item, source;
    uint64_t at; /* byte offset in the source */
    const uint64_t *start, *count;
    const char *file;
} hfs_box;

CKPT_VEC(hfs_boxes, hfs_box);

/* A tensor, in the order of first appearance. */
typedef struct hfs_item {
    const char *name;
    ckpt_dtype dtype;
    uint32_t ndim;
    uint64_t *shape; /* upper bounds of its boxes so far */
    const char *file;
} hfs_item;

CKPT_VEC(hfs_items, hfs_item);

#define HFS_CONFIG (UINT64_C(16) << 20) /* largest config.json, in bytes */

typedef struct hfs_reader {
    ckpt_map *map;
    const ckpt_listing *list;
    hfs_files files; /* sorted by file, then rank */
    hfs_items item;
    ckpt_index index; /* of items, by name */
    hfs_boxes box;
    bool sorted; /* a file has no sharding info, so its tensors are in safetensors' order */
    ckpt_err *err;
} hfs_reader;

/* ---- names ---- */

static bool hfs_has_shards(const ckpt_listing *list)
{
    ckpt_hfs_name is;

    for (size_t i = 0; i < list->n; i++) {
        if (!list->entry[i].is_dir && ckpt_hfs_parse(list->entry[i].name, &is))
            return true;
    }
    return false;
}

/*
 * Go to the model of a checkpoint of NeMo Automodel, which has the shards in "model" and the
 * optimizer, a distributed checkpoint, in "optim".  false: the folder is another one.
 */
static bool hfs_automodel(ckpt_listing *model, const ckpt_listing *list)
{
    const char *path = ckpt_listing_has(list, "model", true)
                           ? ckpt_path_join(list->map->arena, list->folder, "model")
                           : NULL;

    return path && ckpt_listing_read(model, list->map, path, NULL) == CKPT_OK &&
           hfs_has_shards(model);
}

static int hfs_probe(const ckpt_listing *list)
{
    ckpt_listing model;

    return hfs_has_shards(list)                              ? 62
           : hfs_automodel(&model, list)                     ? 61
           : ckpt_train_is_run(list, &ckpt_automodel_shards) ? 44
                                                             : 0;
}

/* Always open the folder, because a single file has pieces under the names of whole tensors. */
static int hfs_part(const char *file_name)
{
    ckpt_hfs_name is;

    return ckpt_hfs_parse(file_name, &is) ? 2 : 0;
}

/* ---- files ---- */

/* For qsort: by file, then rank, so tensors appear in the model's order. */
static int hfs_file_order(const void *pa, const void *pb)
{
    const hfs_file *a = pa, *b = pb;

    if (a->is.file != b->is.file)
        return a->is.file < b->is.file ? -1 : 1;
    return (a->is.rank > b->is.rank) - (a->is.rank < b->is.rank);
}

/*
 * Check that file names are complete.  A rank without a box in some file does not write it, so only
 * a rank or file number that no file name has is an error.
 */
static int hfs_check_files(hfs_reader *r)
{
    assert(r->files.n > 0);
    const hfs_file *f = r->files.at;
    uint32_t of = f[0].is.of, ranks = 0, seen = 0, last = 0;

    for (size_t i = 0; i < r->files.n; i++) {
        if (f[i].is.of != of)
            return ckpt_fail(r->err, CKPT_EMISMATCH,
                             "%s: %s is one of %" PRIu32 " files for each rank, %s one of %" PRIu32
                             ": the folder may hold two saves",
                             r->list->folder, f[0].name, of, f[i].name, f[i].is.of);
        ranks = f[i].is.rank > ranks ? f[i].is.rank : ranks;
        seen += f[i].is.file != last;
        last = f[i].is.file;
    }
    if (seen != of)
        return ckpt_fail(r->err, CKPT_EMISSING,
                         "%s: only %" PRIu32 " of the %" PRIu32
                         " files of a rank are here: copy all of them",
                         r->list->folder, seen, of);
    for (uint32_t rank = 1; rank < ranks; rank++) {
        bool there = false;
        for (size_t i = 0; !there && i < r->files.n; i++)
            there = f[i].is.rank == rank;
        // numbers are untrusted and may be huge: stop at the first missing one
        if (!there)
            return ckpt_fail(r->err, CKPT_EMISSING,
                             "%s: the file of rank %" PRIu32 " (shard-%05" PRIu32
                             "-...) is missing, but rank %" PRIu32 " has one",
                             r->list->folder, rank - 1, rank, ranks - 1);
    }
    return ckpt_map_fact_int(r->map, "world size", ranks, r->err);
}

static int hfs_find_files(hfs_reader *r)
{
    for (size_t i = 0; i < r->list->n; i++) {
        hfs_file f = {.name = r->list->entry[i].name};
        hfs_file *slot;

        if (r->list->entry[i].is_dir || !ckpt_hfs_parse(f.name, &f.is))
            continue;
        slot = ckpt_vec_push(&r->files);
        if (!slot)
            return ckpt_fail_memory(r->err);
        *slot = f;
    }
    if (r->files.n == 0)
        return ckpt_fail(r->err, CKPT_EMISSING, "%s: holds no shard-*-model-*.safetensors",
                         r->list->folder);
    qsort(r->files.at, r->files.n, sizeof *r->files.at, hfs_file_order);
    return hfs_check_files(r);
}

/* ---- boxes ---- */

static bool hfs_is(const void *ctx, uint32_t number, const void *key)
{
    assert(key);
    return strcmp(((const hfs_item *)ctx)[number].name, key) == 0;
}

/* Find the item of a tensor's name, or make it. */
static int hfs_item_of(hfs_reader *r, const ckpt_tensor *t, const char *file, uint32_t *out)
{
    uint32_t hash = ckpt_hash_bytes(t->name, strlen(t->name), 0);
    ckpt_arena *a = r->map->arena;
    hfs_item item = {.dtype = t->dtype, .ndim = t->ndim, .file = file}, *slot;

    *out = ckpt_index_find(&r->index, hash, hfs_is, r->item.at, t->name);
    if (*out != CKPT_INDEX_NONE) {
        const hfs_item *had = &r->item.at[*out];
        if (had->dtype == t->dtype && had->ndim == t->ndim)
            return CKPT_OK;
        return ckpt_fail(r->err, CKPT_EMISMATCH,
                         "%s/%s: \"%.200s\" is %s of %" PRIu32 " axes, in %s it is %s of %" PRIu32
                         ": the files may be from different saves",
                         r->list->folder, file, t->name, ckpt_dtype_name(t->dtype), t->ndim,
                         had->file, ckpt_dtype_name(had->dtype), had->ndim);
    }
    item.name = ckpt_arena_string(a, t->name, strlen(t->name));
    item.shape = ckpt_arena_array(a, (uint64_t)t->ndim + 1, sizeof *item.shape);
    slot = item.name && item.shape ? ckpt_vec_push(&r->item) : NULL;
    if (!slot)
        return ckpt_fail_memory(r->err);
    memset(item.shape, 0, (t->ndim + 1) * sizeof *item.shape);
    *slot = item;
    *out = (uint32_t)(r->item.n - 1);
    return ckpt_index_add(&r->index, hash, *out) ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* Read the first element of a box on each axis; NULL offsets mean a whole tensor. */
static bool hfs_starts(const ckpt_value *offsets, const ckpt_tensor *t, uint64_t *start)
{
    bool good = !offsets || (offsets->kind == CKPT_V_LIST && offsets->as.seq.n == t->ndim);

    for (uint32_t k = 0; good && k < t->ndim; k++) {
        const ckpt_value *v = offsets ? offsets->as.seq.at[k] : NULL;
        start[k] = v && v->kind == CKPT_V_INT ? (uint64_t)v->as.i : 0;
        good = !v || (v->kind == CKPT_V_INT && v->as.i >= 0);
    }
    return good;
}

/* Add one tensor of a file as a box of the whole tensor of that name. */
static int hfs_box_of(hfs_reader *r, const char *file, const ckpt_tensor *t, uint32_t source_base,
                      const ckpt_value *offsets)
{
    uint64_t *start = ckpt_arena_array(r->map->arena, 2 * (uint64_t)t->ndim + 1, sizeof *start);
    hfs_box box = {.start = start, .file = file}, *slot;
    ckpt_box room;
    int rc = start ? hfs_item_of(r, t, file, &box.item) : ckpt_fail_memory(r->err);

    if (rc != CKPT_OK)
        return rc;
    uint64_t *count = start + t->ndim, *shape = r->item.at[box.item].shape, end;
    if (!hfs_starts(offsets, t, start))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s/%s: " CKPT_HFS_INFO ": \"" CKPT_HFS_OFFSETS "\" of \"%.200s\" must be "
                         "a list of %" PRIu32 " whole numbers >= 0",
                         r->list->folder, file, t->name, t->ndim);
    for (uint32_t k = 0; k < t->ndim; k++) {
        count[k] = t->shape[k];
        if (!ckpt_add(start[k], count[k], &end))
            return ckpt_fail(r->err, CKPT_EFORMAT, "%s/%s: the end of \"%.200s\" overflows",
                             r->list->folder, file, t->name);
        shape[k] = end > shape[k] ? end : shape[k];
    }
    count[t->ndim] = 0; // the sentinel of hfs_box_order

    // A tensor without elements extends the shape but needs no bytes.
    if (t->n_elems == 0)
        return CKPT_OK;
    assert(t->n_extents == 1);
    box.count = count;
    const ckpt_extent *e = ckpt_extent_of(t, 0, &room);
    box.source = source_base + e->source;
    box.at = e->at;
    slot = ckpt_vec_push(&r->box);
    if (!slot)
        return ckpt_fail_memory(r->err);
    *slot = box;
    return CKPT_OK;
}

/*
 * Add a file's boxes in the order of its sharding info, which is the model's order (the header is
 * sorted), and report names that only one of the two has.
 */
static int hfs_boxes_by_info(hfs_reader *r, const char *file, const ckpt_map *sub,
                             uint32_t source_base, const ckpt_value *info)
{
    ckpt_dict all = ckpt_value_map(info);
    int rc = CKPT_OK;

    if (info->kind != CKPT_V_DICT)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s/%s: " CKPT_HFS_INFO " is not a JSON object",
                         r->list->folder, file);
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_text name = all.at[i].key->as.text;
        const ckpt_value *offsets = all.at[i].value->kind == CKPT_V_DICT
                                        ? ckpt_value_get(all.at[i].value, CKPT_HFS_OFFSETS)
                                        : NULL;
        size_t at = ckpt_map_index(sub, name.at, (size_t)name.n);
        if (at == SIZE_MAX || !offsets)
            return ckpt_fail(r->err, CKPT_EMISMATCH, "%s/%s: " CKPT_HFS_INFO " has \"%.200s\" %s",
                             r->list->folder, file, name.at,
                             at == SIZE_MAX ? "which is not in the file"
                                            : "without \"" CKPT_HFS_OFFSETS "\"");
        rc = hfs_box_of(r, file, sub->tensors.at[at], source_base, offsets);
    }
    if (rc == CKPT_OK && all.n != sub->tensors.n)
        rc = ckpt_fail(r->err, CKPT_EMISMATCH,
                       "%s/%s: %zu tensors, but " CKPT_HFS_INFO " places %" PRIu64 " of them",
                       r->list->folder, file, sub->tensors.n, all.n);
    return rc;
}

/* Add all boxes of a file. */
static int hfs_boxes_of(hfs_reader *r, const char *file, const ckpt_map *sub, uint32_t source_base,
                        ckpt_arena *arena)
{
    const ckpt_value *text = NULL;
    ckpt_value *info = NULL;
    int rc = CKPT_OK;

    for (uint64_t i = 0; i < sub->metadata.n; i++) {
        if (ckpt_value_is(sub->metadata.at[i].key, CKPT_HFS_INFO))
            text = sub->metadata.at[i].value;
    }
    if (text) {
        const ckpt_json_text json = {file, 0, text->as.text.at, text->as.text.n, text->as.text.n,
                                     false};
        rc = ckpt_json_parse(&info, arena, &json, r->err);
        return rc == CKPT_OK ? hfs_boxes_by_info(r, file, sub, source_base, info) : rc;
    }
    // A tensor without sharding info begins at 0, as in torch's reader.
    r->sorted = true;
    for (size_t i = 0; rc == CKPT_OK && i < sub->tensors.n; i++)
        rc = hfs_box_of(r, file, sub->tensors.at[i], source_base, NULL);
    return rc;
}

/* Read one file's header: its data become sources of the map, its tensors boxes. */
static int hfs_read_file(hfs_reader *r, const char *name)
{
    const char *path = ckpt_arena_printf(r->map->arena, "%s/%s", r->list->folder, name);
    ckpt_arena *arena = ckpt_arena_new(0);
    uint32_t file_base, source_base;
    ckpt_map *sub = NULL;
    int rc = path && arena ? r->list->read(&sub, path, NULL, r->err) : ckpt_fail_memory(r->err);

    if (rc == CKPT_OK && strcmp(sub->files.at[0].format->is.name, "safetensors") != 0)
        rc = ckpt_fail(r->err, CKPT_EUNSUPPORTED, "%s: a %s file; expected safetensors", path,
                       sub->files.at[0].format->is.name);
    for (size_t i = 0; rc == CKPT_OK && i < sub->tensors.n; i++) {
        if (sub->tensors.at[i]->owner)
            rc = ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                           "%s: the metadata ties \"%.200s\" to another tensor, which this format "
                           "does not support",
                           path, sub->tensors.at[i]->name);
    }
    if (rc == CKPT_OK)
        rc = ckpt_map_merge_files(r->map, sub, &file_base, &source_base, r->err);
    if (rc == CKPT_OK)
        rc = hfs_boxes_of(r, name, sub, source_base, arena);
    if (rc == CKPT_OK)
        rc = ckpt_map_merge_notes(r->map, sub, r->err);
    ckpt_map_free(sub);
    ckpt_arena_free(arena);
    return rc;
}

/* ---- tensors ---- */

/* For qsort: by tensor, then by the first element in row-major order. */
static int hfs_box_order(const void *pa, const void *pb)
{
    const hfs_box *a = pa, *b = pb;

    if (a->item != b->item)
        return a->item < b->item ? -1 : 1;
    for (uint32_t k = 0; a->count[k] != 0; k++) {
        if (a->start[k] != b->start[k])
            return a->start[k] < b->start[k] ? -1 : 1;
    }
    return 0;
}

/* Make the extent of a box.  A box of whole rows becomes a flat interval, because that is faster to
 * look up. */
static void hfs_extent(const hfs_item *item, const hfs_box *box, ckpt_axis *axis, ckpt_extent *e)
{
    assert(box->count && box->start && item->ndim <= CKPT_MAX_DIM);
    int64_t by = (int64_t)(ckpt_dtype_get(item->dtype)->bits / 8);
    uint64_t row = 1;
    bool rows = true;

    *e = (ckpt_extent){.source = box->source, .at = box->at, .ndim = item->ndim, .axis = axis};
    for (uint32_t k = item->ndim; k-- > 0;) {
        // no overflow, because the file has all these elements
        axis[k] = (ckpt_axis){box->start[k], box->count[k], by * (int64_t)row};
        rows &= k == 0 || box->count[k] == item->shape[k];
        row *= k > 0 ? box->count[k] : 1;
    }
    if (item->ndim == 0)
        axis[0] = (ckpt_axis){0, 1, by};
    else if (rows)
        axis[0] = (ckpt_axis){box->start[0] * row, box->count[0] * row, by};
    e->ndim = rows ? 1 : item->ndim;
}

/* Add a tensor with n boxes. */
static int hfs_tensor(hfs_reader *r, const hfs_item *item, const hfs_box *box, size_t n)
{
    const ckpt_tensor like = {
        .dtype = item->dtype, .ndim = item->ndim, .shape = item->shape, .role = CKPT_ROLE_WEIGHT};
    ckpt_extent *extent = ckpt_alloc((n + 1) * sizeof *extent);
    ckpt_axis *axis = ckpt_alloc((n + 1) * (item->ndim + 1) * sizeof *axis);
    ckpt_tensor *t;
    int rc = extent && axis ? CKPT_OK : ckpt_fail_memory(r->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_add(r->map, item->name, strlen(item->name), &like, &t, r->err);
    if (rc == CKPT_OK && t->n_elems > 0 && n > 1 && ckpt_dtype_packed(item->dtype))
        rc = ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                       "%s: cannot join the pieces of \"%.200s\", because its dtype %s is packed",
                       r->list->folder, item->name, ckpt_dtype_name(item->dtype));
    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        hfs_extent(item, &box[i], axis + i * (item->ndim + 1), &extent[i]);
    if (rc == CKPT_OK && n > 0)
        rc = ckpt_map_back(r->map, t, extent, (uint32_t)n, r->err);
    ckpt_free(extent);
    ckpt_free(axis);
    return rc;
}

static int hfs_tensors(hfs_reader *r)
{
    size_t first = 0, end;
    int rc = CKPT_OK;

    if (r->box.n > 1)
        qsort(r->box.at, r->box.n, sizeof *r->box.at, hfs_box_order);
    for (uint32_t i = 0; rc == CKPT_OK && i < r->item.n; i++, first = end) {
        for (end = first; end < r->box.n && r->box.at[end].item == i;)
            end++;
        rc = hfs_tensor(r, &r->item.at[i], r->box.at + first, end - first);
    }
    return rc == CKPT_OK ? ckpt_map_check(r->map, r->err) : rc;
}

/* ---- missing files ---- */

/* How the boxes of a tensor cut it. */
typedef struct hfs_cut {
    size_t n;            /* number of boxes */
    uint64_t each, rows; /* along the cut axis: elements of the first box, and of all */
} hfs_cut;

/*
 * Derive a tensor's cut from its sorted boxes.  The cut axis is the one along which the last box
 * begins after the first, or else axis 0.
 */
static hfs_cut hfs_cut_of(const hfs_item *item, const hfs_box *box, size_t n)
{
    hfs_cut cut = {.n = n};
    uint32_t axis = 0;

    while (n > 0 && axis + 1 < item->ndim && box[n - 1].start[axis] == box[0].start[axis])
        axis++;
    if (n > 0 && item->ndim > 0 && box[n - 1].start[axis] == box[0].start[axis])
        axis = 0;
    if (n > 0 && item->ndim > 0) {
        cut.each = box[0].count[axis];
        cut.rows = item->shape[axis];
    }
    return cut;
}

/* Rows per rank, as torch.chunk divides them. */
static uint64_t hfs_share(uint64_t rows, uint64_t ranks)
{
    assert(ranks > 0);
    return rows / ranks + (rows % ranks > 0);
}

/*
 * Conclusions from all tensors about the number of ranks.
 *
 * cuts: one per tensor, in their order. most: largest number of boxes of one tensor. sure: some
 * tensor's cut is only possible with this number of ranks.
 */
typedef struct hfs_census {
    hfs_cut *cuts;
    uint32_t ranks;
    size_t most;
    bool sure;
} hfs_census;

static int hfs_count(hfs_reader *r, hfs_census *c)
{
    size_t first = 0, end;

    c->cuts = ckpt_alloc((r->item.n + 1) * sizeof *c->cuts);
    if (!c->cuts)
        return ckpt_fail_memory(r->err);
    for (size_t i = 0; i < r->files.n; i++)
        c->ranks = r->files.at[i].is.rank > c->ranks ? r->files.at[i].is.rank : c->ranks;
    for (size_t i = 0; i < r->item.n; i++, first = end) {
        for (end = first; end < r->box.n && r->box.at[end].item == i;)
            end++;
        hfs_cut cut = hfs_cut_of(&r->item.at[i], r->box.at + first, end - first);
        c->cuts[i] = cut;
        c->most = cut.n > c->most ? cut.n : c->most;
        // A smaller last piece proves that no rank follows, because more ranks would have smaller
        // pieces.
        c->sure |= cut.n > 1 && cut.n == c->ranks && cut.each * cut.n != cut.rows &&
                   hfs_share(cut.rows, c->ranks) == cut.each &&
                   hfs_share(cut.rows, (uint64_t)c->ranks + 1) < cut.each;
    }
    return CKPT_OK;
}

/* Report a file that one rank lacks, if that rank must have had pieces for it. */
static int hfs_file_missing(hfs_reader *r, const hfs_census *c, uint32_t rank, uint32_t file)
{
    const char *sign = NULL;
    bool wide = false;
    ckpt_hfs_name is;

    for (size_t i = 0; i < r->item.n && !wide; i++) {
        const hfs_item *item = &r->item.at[i];
        const hfs_cut *cut = &c->cuts[i];
        // skip a tensor in fewer pieces if c->most ranks would cut it into pieces of the same size
        if (!ckpt_hfs_parse(item->file, &is) || is.file != file || cut->rows == 0 ||
            cut->n >= c->most || hfs_share(cut->rows, c->most) == cut->each)
            continue;
        sign = item->name;
        wide = item->ndim > 1;
    }
    if (!sign)
        return CKPT_OK;
    if (wide)
        return ckpt_map_problem(r->map, CKPT_EMISSING, r->err,
                                "%s: shard-%05" PRIu32 "-model-%05" PRIu32 "-of-%05" PRIu32
                                ".safetensors is missing: other tensors are cut over %zu ranks, "
                                "and \"%.200s\" is incomplete without it; copy it",
                                r->list->folder, rank, file, r->files.at[0].is.of, c->most, sign);
    return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                         "%s: shard-%05" PRIu32 "-model-%05" PRIu32 "-of-%05" PRIu32
                         ".safetensors may be missing: \"%.200s\" may be incomplete without it",
                         r->list->folder, rank, file, r->files.at[0].is.of, sign);
}

/* For each file, find the first rank that lacks it. */
static int hfs_files_missing(hfs_reader *r, const hfs_census *c)
{
    size_t i = 0, end; // files are sorted by file number, then rank
    int rc = CKPT_OK;

    for (; rc == CKPT_OK && i < r->files.n; i = end) {
        uint32_t rank = 1, file = r->files.at[i].is.file;

        for (end = i; end < r->files.n && r->files.at[end].is.file == file; end++)
            rank += r->files.at[end].is.rank == rank;
        if (rank <= c->ranks)
            rc = hfs_file_missing(r, c, rank, file);
    }
    return rc;
}

/* A number of a configuration, or of its text part; 0: it has none. */
static uint64_t hfs_said(const ckpt_value *config, const char *key)
{
    const ckpt_value *text = ckpt_value_get(config, "text_config");
    const ckpt_value *v = ckpt_value_get(text ? text : config, key);
    int64_t n = 0;

    return v && ckpt_value_as_int(v, &n) && n > 0 ? (uint64_t)n : 0;
}

/*
 * Compare the table of tokens with the configuration beside the shards: without the last ranks it
 * is too short.  *sure: the table is whole.
 */
static int hfs_table(hfs_reader *r, bool *sure)
{
    static const char *const ends[] = {"embed_tokens.weight", "wte.weight", "embed_in.weight",
                                       "word_embeddings.weight", NULL};
    const char *folder = r->map->model_folder ? r->map->model_folder : r->list->folder;
    const char *path = ckpt_path_join(r->map->arena, folder, "config.json");
    ckpt_value *config = NULL;

    if (!path)
        return ckpt_fail_memory(r->err);
    if (ckpt_json_read(&config, r->map->arena, path, HFS_CONFIG, NULL) != CKPT_OK)
        return CKPT_OK; // there need not be one
    const uint64_t rows = hfs_said(config, "vocab_size");
    for (size_t i = 0; i < r->item.n && rows > 0; i++) {
        const hfs_item *item = &r->item.at[i];
        bool is = false;
        for (size_t k = 0; ends[k] && item->ndim == 2; k++) {
            size_t n = strlen(item->name), m = strlen(ends[k]);
            is |= n >= m && strcmp(item->name + n - m, ends[k]) == 0;
        }
        if (is && item->shape[0] < rows)
            return ckpt_map_problem(
                r->map, CKPT_EMISSING, r->err,
                "%s: \"%.200s\" has %" PRIu64 " rows, expected %" PRIu64
                " (vocab_size of %s): the files of the last ranks are missing, copy them",
                r->list->folder, item->name, item->shape[0], rows, path);
        *sure |= is;
    }
    return CKPT_OK;
}

/* Report missing files; boxes must be sorted.  Warn if the files of a last rank could be
 * missing. */
static int hfs_missing(hfs_reader *r)
{
    hfs_census c = {0};
    int rc = hfs_count(r, &c);

    if (rc == CKPT_OK)
        rc = hfs_files_missing(r, &c);
    ckpt_free(c.cuts);
    if (rc == CKPT_OK && !c.sure)
        rc = hfs_table(r, &c.sure);
    if (rc != CKPT_OK || c.sure)
        return rc;
    return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                         "%s: tensors end with the pieces of rank %" PRIu32
                         ", and nothing shows whether higher ranks are missing: check that the "
                         "files of all ranks are here",
                         r->list->folder, c.ranks - 1);
}

/* ---- the order ---- */

/* Bits of a whole tensor; no overflow, because the map has it. */
static uint64_t hfs_size(const hfs_item *item)
{
    uint64_t n = ckpt_dtype_get(item->dtype)->bits;

    for (uint32_t k = 0; k < item->ndim; k++)
        n *= item->shape[k];
    return n;
}

/* True if the sizes of the tensors never fall and rise at least once. */
static bool hfs_by_size(const hfs_reader *r)
{
    uint64_t last = 0;
    bool rises = false;

    for (size_t i = 0; i < r->item.n; i++) {
        uint64_t n = hfs_size(&r->item.at[i]);
        if (n > 0 && n < last)
            return false;
        rises |= n > last && last > 0;
        last = n > 0 ? n : last;
    }
    return rises;
}

/*
 * The reason why the order of first appearance is not that of the model's state_dict, or NULL if it
 * is.
 *
 * torch writes DCP_SHARDING_INFO in the order of the dict, except that it sorts by size when it
 * copies from a GPU (_OverlappingCpuLoader).  If ranks divide replicated tensors among them, or
 * have several files each, the parts cannot be put back into one order.  Tensors without elements
 * do not count, because any rank may have written them.
 */
static const char *hfs_no_order(const hfs_reader *r)
{
    if (r->sorted)
        return "safetensors sorts them";
    if (r->files.at[0].is.of > 1)
        return "each of a rank's files has an order of its own";
    for (size_t i = 0; i < r->item.n; i++) {
        const hfs_item *item = &r->item.at[i];
        if (item->file != r->files.at[0].name && hfs_size(item) > 0 &&
            ckpt_dtype_get(item->dtype)->kind == CKPT_IS_FLOAT)
            return "each rank has an order of its own";
    }
    return hfs_by_size(r) ? "they are ordered by size, as torch saves them from GPUs" : NULL;
}

/* ---- the driver ---- */

/* Drop the metadata of the pieces, because it is wrong for whole tensors. */
static void hfs_drop_info(ckpt_dict *pairs)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < pairs->n; i++) {
        if (!ckpt_value_is(pairs->at[i].key, CKPT_HFS_INFO) &&
            !ckpt_value_is(pairs->at[i].key, CKPT_HFS_VERSION))
            pairs->at[n++] = pairs->at[i];
    }
    pairs->n = n;
}

/* Report the optimizer beside the model, and find the configuration in the model's folder. */
static int hfs_beside(hfs_reader *r, const ckpt_listing *run, const ckpt_open_opts *opts)
{
    static const char own[] = ".hf_metadata";
    ckpt_map *map = r->map;
    const char *config = ckpt_path_join(map->arena, r->list->folder, own);
    bool there = false;
    int rc = config ? ckpt_address_there(config, &there, r->err) : ckpt_fail_memory(r->err);

    if (rc == CKPT_OK && there)
        map->model_folder = config;
    if (rc != CKPT_OK || !ckpt_listing_has(run, "optim", true))
        return rc;
    map->known.training = true;
    if (opts->with_optimizer)
        map->no_state =
            "its model is in safetensors and its optimizer in a distributed checkpoint, and ckpt "
            "does not read the two together: save with model_save_format: torch_save";
    return ckpt_map_note(map, CKPT_WARNING, r->err, "%s: left out: optim, the optimizer of the run",
                         run->folder);
}

static int hfs_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    ckpt_listing at = *list, model;
    hfs_reader r = {.map = map, .list = list, .err = err};
    int rc = hfs_has_shards(list)
                 ? CKPT_OK
                 : ckpt_train_find_step(map, &at, &ckpt_automodel_shards, opts->tag, err);

    if (rc == CKPT_OK && !hfs_has_shards(&at) && hfs_automodel(&model, &at)) {
        model.read = list->read;
        r.list = &model;
        map->path = model.folder;
    }
    if (rc == CKPT_OK)
        rc = hfs_find_files(&r);
    if (rc == CKPT_OK)
        rc = hfs_beside(&r, &at, opts);
    for (size_t i = 0; rc == CKPT_OK && i < r.files.n; i++)
        rc = hfs_read_file(&r, r.files.at[i].name);
    hfs_drop_info(&map->metadata);
    if (rc == CKPT_OK)
        rc = hfs_tensors(&r);
    if (rc == CKPT_OK) {
        map->no_order = hfs_no_order(&r);
        map->in_order = !map->no_order;
        rc = hfs_missing(&r);
    }
    ckpt_vec_free(&r.files);
    ckpt_vec_free(&r.item);
    ckpt_vec_free(&r.box);
    ckpt_index_free(&r.index);
    return rc;
}

static const ckpt_run_layout *const hfs_runs[] = {&ckpt_automodel_shards, NULL};

const ckpt_directory ckpt_directory_hf_sharded = {
    .is =
        {
            .name = "hf-sharded",
            .signs = "shard-*-model-*.safetensors (PyTorch)",
            .note = "safetensors with pieces for each rank (HuggingFaceStorageWriter of DCP)",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_HAS_TAGS | CKPT_TAKES_SHARD_SIZE |
                    CKPT_TAKES_WORLD | CKPT_IS_FOLDER,
        },
    .probe = hfs_probe,
    .gather = hfs_gather,
    .scatter = ckpt_hfs_scatter,
    .part = hfs_part,
    .runs = hfs_runs,
};
