/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp.c: reads PyTorch's distributed checkpoints (DCP): tensors as boxes of entries.
 *
 * Opening reads .metadata and the small objects.  The archive in a tensor's entry is parsed only
 * when its bytes are needed (entry.c).
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "formats/dcp/dcp.h"
#include "formats/training/automodel.h"
#include "formats/training/param_values.h"
#include "formats/training/run_files.h"
#include "formats/training/step_folders.h"
#include "formats/training/torch_state.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/map/extent.h"

typedef struct dcp_reader {
    ckpt_map *map;
    const ckpt_listing *list;
    const ckpt_open_opts *opts;
    ckpt_dcp_metadata meta;
    ckpt_dcp_role *role; /* roles of meta.item */
    bool has_optimizer;
    size_t n_inside;   /* number of tensor storages inside objects */
    bool lost;         /* a data file is missing, and is recorded as a finding */
    ckpt_arena *boxes; /* for the boxes of a tensor: the map's, or one that is freed afterwards */
    uint32_t *file;    /* by index in meta.file: number of the file in the map */
    ckpt_io *io;       /* the data file read last */
    uint32_t io_file;  /* index of that file in meta.file */
    ckpt_err *err;
} dcp_reader;

/* The folders of a model and of its optimizer, below the checkpoint's. */
typedef struct dcp_pair {
    const char *model, *optimizer;
    bool always; /* the model's folder is a sign without its content */
} dcp_pair;

static const dcp_pair dcp_pairs[] = {
    {CKPT_TRAIN_FSDP_MODEL "0", CKPT_TRAIN_FSDP_OPTIMIZER "0", true}, // accelerate
    {"model", "optim", false},                                        // NeMo Automodel
};

/* True if a folder in this one has .metadata. */
static bool dcp_has_below(const ckpt_listing *list, const char *name)
{
    const char *path = ckpt_listing_has(list, name, true)
                           ? ckpt_path_join(list->map->arena, list->folder, name)
                           : NULL;
    ckpt_listing below;

    return path && ckpt_listing_read(&below, list->map, path, NULL) == CKPT_OK &&
           ckpt_listing_find(&below, CKPT_DCP_METADATA);
}

/* The pair that a folder has, or NULL. */
static const dcp_pair *dcp_pair_of(const ckpt_listing *list)
{
    for (size_t i = 0; i < sizeof dcp_pairs / sizeof *dcp_pairs; i++) {
        const dcp_pair *p = &dcp_pairs[i];
        if (p->always ? ckpt_listing_find(list, p->model) != NULL
                      : ckpt_listing_has(list, p->optimizer, true) && dcp_has_below(list, p->model))
            return p;
    }
    return NULL;
}

/* True if the save of a checkpoint has finished. */
static bool dcp_done(const ckpt_listing *list)
{
    const dcp_pair *pair = dcp_pair_of(list);

    return ckpt_listing_find(list, CKPT_DCP_METADATA) ||
           (pair && (pair->always || ckpt_automodel_saved(list)));
}

/* True if a folder is one checkpoint, finished or not. */
static bool dcp_is_one(const ckpt_listing *list)
{
    static const char end[] = ".distcp";
    bool data = dcp_done(list) || dcp_pair_of(list) ||
                ckpt_listing_find(list, CKPT_DCP_METADATA ".tmp") ||
                ckpt_listing_find(list, CKPT_TRAIN_FSDP_OPTIMIZER "0");

    for (size_t i = 0; !data && i < list->n; i++) {
        size_t n = strlen(list->entry[i].name);
        data = !list->entry[i].is_dir && n >= sizeof end - 1 &&
               strcmp(list->entry[i].name + n - (sizeof end - 1), end) == 0;
    }
    return data;
}

/* No file names the checkpoint to resume from, so the newest finished one is used. */
static const ckpt_run_layout dcp_run = {
    .is_tag = dcp_is_one,
    .is_done = dcp_done,
    .is_cut = ckpt_automodel_cut,
    .last = CKPT_DCP_METADATA,
    .pointer = "",
    .text = ckpt_train_number_of,
};

static int dcp_probe(const ckpt_listing *list)
{
    if (ckpt_listing_find(list, CKPT_DCP_METADATA) ||
        ckpt_listing_find(list, CKPT_DCP_METADATA ".tmp"))
        return 60;
    if (dcp_pair_of(list))
        return 58;
    if (dcp_is_one(list))
        return 55;
    if (!ckpt_train_is_run(list, &dcp_run))
        return 0;
    // a run that changed its form: the driver of the newest checkpoint reads it (44: sharded)
    return ckpt_train_newest(list, &ckpt_automodel_shards) > ckpt_train_newest(list, &dcp_run) ? 43
                                                                                               : 45;
}

/* ---- files ---- */

/* The extent of a data file's entries. */
typedef struct dcp_span {
    uint64_t last, end; /* byte offsets: start of the last entry, end of all entries */
} dcp_span;

/* The extents of all data files; the caller frees them.  NULL: no memory. */
static dcp_span *dcp_spans(const ckpt_dcp_metadata *meta)
{
    dcp_span *span = ckpt_alloc((meta->file.n + 1) * sizeof *span);

    for (size_t i = 0; span && i < meta->chunk.n; i++) {
        const ckpt_dcp_place p = ckpt_dcp_place_of(meta, i);
        dcp_span *s = &span[p.file];
        uint64_t end = p.n <= UINT64_MAX - p.at ? p.at + p.n : UINT64_MAX;

        s->last = p.at > s->last ? p.at : s->last;
        s->end = end > s->end ? end : s->end;
    }
    return span;
}

/*
 * Check that an archive begins at the last entry's offset and that nothing follows it.  Otherwise
 * the file belongs to another save; a longer file may come from a later save that did not finish.
 */
static int dcp_check_file(dcp_reader *r, ckpt_io *io, const dcp_span *span)
{
    uint8_t head[4] = {0};

    if (span->end > io->size)
        return ckpt_map_problem(r->map, CKPT_EFORMAT, r->err,
                                "%s: has %" PRIu64 " bytes, but its entries take %" PRIu64
                                ": the file was cut short or is from another save",
                                io->name, io->size, span->end);
    if (span->end - span->last >= sizeof head &&
        ckpt_io_read(io, head, sizeof head, span->last, r->err) != CKPT_OK)
        return r->err->code;
    if (memcmp(head, "PK\3\4", sizeof head) != 0)
        return ckpt_map_problem(
            r->map, CKPT_EMISMATCH, r->err,
            "%s: no archive begins at offset %" PRIu64
            ", where .metadata expects one: the file is damaged or from another save",
            io->name, span->last);
    if (io->size > span->end)
        return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                             "%s: %" PRIu64
                             " bytes follow its last entry: the file may be from another save",
                             io->name, io->size - span->end);
    return CKPT_OK;
}

/* Add a data file.  A missing file is a finding if the map collects them, otherwise an error. */
static int dcp_add_file(dcp_reader *r, size_t i, const dcp_span *span)
{
    const char *path = ckpt_path_join(r->map->arena, r->list->folder, r->meta.file.at[i].path);
    ckpt_map_file file = {0};
    ckpt_err local = {0};
    ckpt_io *io = NULL;
    int rc = path ? ckpt_io_open(&io, path, &local) : ckpt_fail_memory(r->err);

    if (!path)
        return rc;
    if (rc != CKPT_OK) {
        r->lost = true;
        return ckpt_map_problem(r->map, rc, r->err, "%s", local.text);
    }
    ckpt_io_identify(io, &file); // borrows the path from io, so that io must be closed last
    rc = ckpt_map_add_file(r->map, &file, &r->file[i], r->err);
    if (rc == CKPT_OK)
        rc = dcp_check_file(r, io, span);
    ckpt_io_close(io);
    return rc;
}

static bool dcp_same_path(const void *ctx, uint32_t number, const void *key)
{
    return strcmp(((const ckpt_dcp_metadata *)ctx)->file.at[number].path, key) == 0;
}

static uint32_t dcp_hash(const char *name)
{
    return ckpt_hash_bytes(name, strlen(name), 0);
}

/* Count the data files of a folder that have no entries.  false: no memory. */
static bool dcp_unlisted(size_t *n, const char **first, const ckpt_dcp_metadata *meta,
                         const ckpt_listing *list)
{
    ckpt_index known = {0};
    bool ok = true;

    *n = 0;
    *first = NULL;
    for (size_t i = 0; ok && i < meta->file.n; i++)
        ok = ckpt_index_add(&known, dcp_hash(meta->file.at[i].path), (uint32_t)i);
    for (size_t i = 0; ok && i < list->n; i++) {
        const char *name = list->entry[i].name, *dot = strrchr(name, '.');
        if (dot && strcmp(dot, ".distcp") == 0 &&
            ckpt_index_find(&known, dcp_hash(name), dcp_same_path, meta, name) == CKPT_INDEX_NONE)
            *first = (*n)++ == 0 ? name : *first;
    }
    ckpt_index_free(&known);
    return ok;
}

/* Warn about data files without entries; an earlier save into this folder left them. */
static int dcp_surplus(dcp_reader *r)
{
    const char *first;
    size_t n;

    if (!dcp_unlisted(&n, &first, &r->meta, r->list))
        return ckpt_fail_memory(r->err);
    if (n == 0)
        return CKPT_OK;
    return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                         "%s%s: ignored %zu file%s of another save, not listed in .metadata", first,
                         n > 1 ? " ..." : "", n, n == 1 ? "" : "s");
}

static int dcp_files(dcp_reader *r)
{
    dcp_span *span = dcp_spans(&r->meta);
    int rc = span ? CKPT_OK : ckpt_fail_memory(r->err);

    r->file = ckpt_arena_array(r->map->arena, r->meta.file.n + 1, sizeof *r->file);
    if (rc == CKPT_OK && !r->file)
        rc = ckpt_fail_memory(r->err);
    for (size_t i = 0; rc == CKPT_OK && i < r->meta.file.n; i++)
        rc = dcp_add_file(r, i, &span[i]);
    ckpt_free(span);
    return rc;
}

/* Open a data file and close the previous one. */
static int dcp_open(dcp_reader *r, uint32_t file)
{
    if (r->io && r->io_file == file)
        return CKPT_OK;
    ckpt_io_close(r->io);
    r->io = NULL;
    r->io_file = file;
    return ckpt_io_open(&r->io, r->map->files.at[r->file[file]].path, r->err);
}

/* ---- tensors ---- */

/*
 * Make the source of a chunk's entry, without its file, and the extent of the chunk's elements,
 * without its source.  false: no memory.
 */
static bool dcp_box(ckpt_source *s, ckpt_extent *e, const ckpt_dcp_item *item,
                    const ckpt_dcp_chunk *c, ckpt_arena *arena)
{
    ckpt_dcp_inner *inner = ckpt_arena_array(arena, 1, sizeof *inner);
    ckpt_axis *axis = ckpt_arena_array(arena, item->ndim > 0 ? item->ndim : 1, sizeof *axis);
    uint64_t n = 1;

    if (!inner || !axis)
        return false;
    *inner = (ckpt_dcp_inner){item->name.at, item->dtype, item->ndim, c->count, axis};
    int64_t width = (int64_t)(ckpt_dtype_get(item->dtype)->bits / 8);
    for (uint32_t k = item->ndim; k-- > 0;) {
        axis[k] = (ckpt_axis){c->start[k], c->count[k], width * (int64_t)n};
        n *= c->count[k]; // no overflow: at most the tensor's elements
    }
    *s = (ckpt_source){.kind = CKPT_SOURCE_FILE,
                       .at = c->place.at,
                       .n_stored = c->place.n,
                       .inner = inner,
                       .name = item->name.at};
    (void)ckpt_dtype_bytes(item->dtype, n, &s->n_bytes); // fits, because the whole tensor does
    *e = (ckpt_extent){.ndim = item->ndim, .at = 0, .axis = axis};
    if (ckpt_dtype_packed(item->dtype) && item->ndim > 0)
        ckpt_dcp_packed_rows(e, axis, item->shape, item->ndim, c->start[0], c->count[0]);
    if (item->ndim == 0) {
        axis[0] = (ckpt_axis){0, 1, width};
        e->ndim = 1;
    }
    return true;
}

/* Add a chunk's entry as a source, and make the extent of its elements; empty chunks have
 * neither. */
static int dcp_source(dcp_reader *r, const ckpt_dcp_item *item, const ckpt_dcp_chunk *c,
                      ckpt_extent *e)
{
    const ckpt_map_file *file = &r->map->files.at[r->file[c->place.file]];
    ckpt_source s;

    if (!ckpt_within(c->place.at, c->place.n, file->size))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: needs %" PRIu64 " bytes at offset %" PRIu64
                         " for a chunk of %.200s, but the file has %" PRIu64,
                         file->path, c->place.n, c->place.at, item->name.at, file->size);
    for (uint32_t k = 1; k < item->ndim && ckpt_dtype_packed(item->dtype); k++) {
        if (c->count[k] != item->shape[k])
            return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                             "%s: a chunk of %.200s has a part of its rows, which %s packs",
                             file->path, item->name.at, ckpt_dtype_name(item->dtype));
    }
    if (!dcp_box(&s, e, item, c, r->boxes))
        return ckpt_fail_memory(r->err);
    s.file = r->file[c->place.file];
    return ckpt_map_push_source(r->map, &s, &e->source, r->err);
}

/* Compare boxes by their first element in row-major order, because ranks write in any order. */
static int dcp_order(const void *pa, const void *pb)
{
    const ckpt_extent *a = pa, *b = pb;

    for (uint32_t k = 0; k < a->ndim; k++) {
        if (a->axis[k].start != b->axis[k].start)
            return a->axis[k].start < b->axis[k].start ? -1 : 1;
    }
    return 0;
}

/* The tensor's name in the map: "<moment>/<parameter>" for a moment, its own for a setting. */
static const char *dcp_name(ckpt_arena *arena, const ckpt_dcp_item *item, const ckpt_dcp_role *role)
{
    if (role->what == CKPT_DCP_SETTING)
        return item->name.at;
    return role->what == CKPT_DCP_MOMENT ? ckpt_arena_printf(arena, "%s/%s", role->key, role->name)
                                         : role->name;
}

/*
 * The tensor's role.  Parameters of the optimizer are trained.  The files do not record whether the
 * model's other tensors are frozen parameters or buffers; but an integer tensor cannot be a
 * parameter.
 *
 * trains  the checkpoint has an optimizer
 */
static uint32_t dcp_role(const ckpt_dcp_item *item, const ckpt_dcp_role *role, bool trains)
{
    if (role->what == CKPT_DCP_MOMENT)
        return CKPT_ROLE_STATE;
    if (role->what == CKPT_DCP_WEIGHT && !role->trained && trains)
        return ckpt_dtype_get(item->dtype)->kind == CKPT_IS_FLOAT ? CKPT_ROLE_FROZEN
                                                                  : CKPT_ROLE_BUFFER;
    return role->what == CKPT_DCP_WEIGHT ? CKPT_ROLE_WEIGHT : CKPT_ROLE_OTHER;
}

/*
 * Set a tensor's extents without copying their axes, because ckpt_dcp_settle must be able to change
 * the strides when an entry holds a transposed chunk.
 */
static int dcp_back(dcp_reader *r, ckpt_tensor *t, const ckpt_extent *extent, uint32_t n)
{
    t->extent = ckpt_arena_copy(r->map->arena, extent, (n > 0 ? n : 1) * sizeof *extent);
    t->n_extents = n;
    return t->extent ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* Make the extents of a tensor's chunks, in the order of their elements; *n is their number. */
static int dcp_extents(dcp_reader *r, const ckpt_dcp_item *item, ckpt_extent *extent, uint32_t *n)
{
    bool sorted = true; // most writers list chunks by position
    int rc = CKPT_OK;

    *n = 0;
    for (size_t i = 0; rc == CKPT_OK && i < item->n; i++) {
        const ckpt_dcp_chunk c = ckpt_dcp_chunk_at(&r->meta, item->first + i);
        if (!ckpt_dcp_is_empty(item, &c))
            rc = dcp_source(r, item, &c, &extent[(*n)++]);
        sorted =
            sorted && (rc != CKPT_OK || *n < 2 || dcp_order(&extent[*n - 2], &extent[*n - 1]) < 0);
    }
    if (rc == CKPT_OK && !sorted)
        qsort(extent, *n, sizeof *extent, dcp_order);
    return rc;
}

/*
 * True if a tensor's extents are left out: those of a tensor with one chunk are not, because it may
 * be a value of the tree, which refers to its source.
 */
static bool dcp_is_outlined(const dcp_reader *r, const ckpt_dcp_item *item)
{
    size_t n = 0;

    for (size_t i = 0; r->opts->outline && n < 2 && i < item->n; i++) {
        const ckpt_dcp_chunk c = ckpt_dcp_chunk_at(&r->meta, item->first + i);
        n += !ckpt_dcp_is_empty(item, &c);
    }
    return n > 1;
}

/* Check a tensor's extents, and leave them and their sources out (ckpt_open_opts.outline). */
static int dcp_outline(dcp_reader *r, ckpt_tensor *t, const ckpt_dcp_item *item,
                       ckpt_extent *extent)
{
    const size_t n_sources = r->map->sources.n;
    int rc;

    r->boxes = ckpt_arena_new(0);
    if (!r->boxes)
        return ckpt_fail_memory(r->err);
    t->extent = extent;
    rc = dcp_extents(r, item, extent, &t->n_extents);
    if (rc == CKPT_OK)
        rc = ckpt_map_check_tensor(r->map, t, r->err);
    ckpt_arena_free(r->boxes);
    r->boxes = r->map->arena;
    r->map->sources.n = n_sources;
    t->extent = NULL;
    t->n_extents = 0;
    t->flags |= CKPT_TENSOR_OUTLINE;
    return rc;
}

/* Add a tensor with one box per chunk. */
static int dcp_tensor(dcp_reader *r, const ckpt_dcp_item *item, const ckpt_dcp_role *role)
{
    ckpt_tensor like = {.dtype = item->dtype,
                        .ndim = item->ndim,
                        .shape = item->shape,
                        .role = dcp_role(item, role, r->has_optimizer),
                        .flags = item->flags};
    const char *name = dcp_name(r->map->arena, item, role);
    ckpt_extent *extent = ckpt_alloc((item->n + 1) * sizeof *extent);
    ckpt_tensor *t;
    uint32_t n;
    int rc = extent && name ? CKPT_OK : ckpt_fail_memory(r->err);

    if (rc == CKPT_OK)
        rc = ckpt_map_add(r->map, name, strlen(name), &like, &t, r->err);
    if (rc == CKPT_OK && dcp_is_outlined(r, item)) {
        rc = dcp_outline(r, t, item, extent);
    } else if (rc == CKPT_OK) {
        rc = dcp_extents(r, item, extent, &n);
        rc = rc == CKPT_OK ? dcp_back(r, t, extent, n) : rc;
    }
    ckpt_free(extent);
    return rc;
}

/* The object that was read last. */
typedef struct dcp_read_object {
    ckpt_dcp_place place;
    ckpt_value *value; /* NULL: none yet */
} dcp_read_object;

/* Read an object; tensors inside it become sources of the map. */
static int dcp_object(dcp_reader *r, const ckpt_dcp_item *item, ckpt_value **out)
{
    const ckpt_dcp_place place = ckpt_dcp_place_of(&r->meta, item->first);
    size_t had = r->map->sources.n;
    int rc = dcp_open(r, place.file);

    if (rc == CKPT_OK)
        rc = ckpt_dcp_object(out, r->map, r->io, r->file[place.file], &place, r->err);
    r->n_inside += r->map->sources.n - had;
    return rc;
}

/* The same; several names of one entry, as ckpt writes for Megatron-Core, are read once. */
static int dcp_same_object(dcp_reader *r, const ckpt_dcp_item *item, ckpt_value **out,
                           dcp_read_object *last)
{
    const ckpt_dcp_place place = ckpt_dcp_place_of(&r->meta, item->first);
    int rc = CKPT_OK;

    if (!last->value || last->place.file != place.file || last->place.at != place.at ||
        last->place.n != place.n)
        rc = dcp_object(r, item, &last->value);
    last->place = place;
    *out = last->value;
    return rc;
}

/* Give a leaf its storage if one chunk covers the whole tensor. */
static int dcp_bind(dcp_reader *r, const ckpt_dcp_item *item, const ckpt_dcp_role *role,
                    ckpt_value *leaf)
{
    bool bound = role->what == CKPT_DCP_OTHER || role->what == CKPT_DCP_SETTING;
    const char *name = bound ? dcp_name(r->map->arena, item, role) : NULL;
    size_t at = name ? ckpt_map_index(r->map, name, strlen(name)) : SIZE_MAX;
    const ckpt_tensor *t = at != SIZE_MAX ? r->map->tensors.at[at] : NULL;
    ckpt_storage *s;

    if (!t || t->n_extents != 1)
        return CKPT_OK;
    s = ckpt_arena_alloc(r->map->arena, sizeof *s);
    if (!s)
        return ckpt_fail_memory(r->err);
    *s = (ckpt_storage){.key = {"0", 1},
                        .location = {"cpu", 3},
                        .dtype = t->dtype,
                        .n_elems = t->n_elems,
                        .source = ckpt_extent_source(t, 0)};
    s->n_bytes = r->map->sources.at[s->source].n_bytes;
    leaf->as.tensor->storage = s;
    return CKPT_OK;
}

/* Build the tree of values; small objects are read now. */
static int dcp_values(dcp_reader *r)
{
    ckpt_value **leaf = ckpt_alloc((r->meta.item.n + 1) * sizeof(ckpt_value *));
    dcp_read_object last = {0};
    int rc = leaf ? CKPT_OK : ckpt_fail_memory(r->err);

    for (size_t i = 0; rc == CKPT_OK && i < r->meta.item.n; i++) {
        const ckpt_dcp_item *item = &r->meta.item.at[i];
        ckpt_tensor like = {
            .dtype = item->dtype, .ndim = item->ndim, .shape = item->shape, .flags = item->flags};
        if (!item->is_tensor)
            rc = dcp_same_object(r, item, &leaf[i], &last);
        else if (!(leaf[i] = ckpt_train_leaf(r->map->arena, &like)))
            rc = ckpt_fail_memory(r->err);
        else
            rc = dcp_bind(r, item, &r->role[i], leaf[i]);
    }
    if (rc == CKPT_OK)
        rc = ckpt_dcp_tree(&r->map->values, &r->meta, leaf, r->map->arena, r->err);
    ckpt_free(leaf);
    return rc;
}

/* The first data file that holds a chunk of the item. */
static uint32_t dcp_writer(const ckpt_dcp_metadata *meta, const ckpt_dcp_item *item)
{
    uint32_t first = UINT32_MAX;

    for (size_t i = 0; i < item->n; i++) {
        uint32_t file = ckpt_dcp_place_of(meta, item->first + i).file;
        first = file < first ? file : first;
    }
    return first;
}

/*
 * True if planner_data lists the weights in the order of the model's dict.  torch merges the dicts
 * of all ranks beginning with the last rank, so pipeline stages are listed backwards.
 */
static bool dcp_in_order(const ckpt_dcp_metadata *meta, const ckpt_dcp_role *role)
{
    uint32_t last = UINT32_MAX, first = UINT32_MAX;
    bool known = true, backwards = true;

    for (size_t i = 0; known && i < meta->item.n; i++) {
        const ckpt_dcp_item *item = &meta->item.at[i];
        uint32_t file = dcp_writer(meta, item);
        if (role[i].what != CKPT_DCP_WEIGHT)
            continue;
        known = item->order != UINT32_MAX;
        backwards = backwards && file <= last;
        first = first == UINT32_MAX ? file : first;
        last = file;
    }
    return known && (last == first || !backwards);
}

/* Add all tensors; moments only with with_optimizer. */
static int dcp_tensors(dcp_reader *r)
{
    int rc = CKPT_OK;

    for (size_t i = 0; i < r->meta.item.n; i++) {
        bool setting = r->role[i].what == CKPT_DCP_SETTING;
        r->has_optimizer |= setting || r->role[i].what == CKPT_DCP_MOMENT;
        if (setting && r->role[i].key && strcmp(r->role[i].key, "train_mode") == 0)
            r->map->mode = CKPT_MODE_UNKNOWN;
    }
    for (size_t i = 0; rc == CKPT_OK && i < r->meta.item.n; i++) {
        const ckpt_dcp_role *role = &r->role[i];
        if (!r->meta.item.at[i].is_tensor ||
            ((role->what == CKPT_DCP_MOMENT || role->what == CKPT_DCP_FLAT) &&
             !r->opts->with_optimizer))
            continue;
        rc = dcp_tensor(r, &r->meta.item.at[i], role);
    }
    return rc;
}

/* ---- the driver ---- */

/* Check that a folder with the optimizer of a pair has its model, too. */
static int dcp_has_model(const ckpt_listing *list, ckpt_err *err)
{
    for (size_t i = 0; i < sizeof dcp_pairs / sizeof *dcp_pairs; i++) {
        const dcp_pair *p = &dcp_pairs[i];
        if (!ckpt_listing_find(list, CKPT_DCP_METADATA) && !dcp_pair_of(list) &&
            (p->always ? ckpt_listing_find(list, p->optimizer) != NULL
                       : dcp_has_below(list, p->optimizer))) {
            const char *other = p->always ? NULL : ckpt_automodel_other(list);
            if (other)
                return ckpt_fail(err, CKPT_EUNSUPPORTED,
                                 "%s: its model is %s/%s, expected a distributed checkpoint or "
                                 "safetensors of each rank: name the folder %s to read it; its "
                                 "optimizer in %s is not read",
                                 list->folder, p->model, other, p->model, p->optimizer);
            return ckpt_fail(err, CKPT_EMISSING,
                             "%s: the model is missing: expected %s, found %s; copy it",
                             list->folder, p->model, p->optimizer);
        }
    }
    return CKPT_OK;
}

/* Check that the folder has no further optimizer. */
static int dcp_one_optimizer(dcp_reader *r)
{
    if (!ckpt_listing_find(r->list, CKPT_TRAIN_FSDP_OPTIMIZER "1"))
        return CKPT_OK;
    if (r->opts->training && !r->map->collect)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: the run has a further optimizer in " CKPT_TRAIN_FSDP_OPTIMIZER
                         "1, expected one model and its one optimizer; ckpt convert takes the "
                         "model alone",
                         r->list->folder);
    return ckpt_map_note(r->map, CKPT_WARNING, r->err,
                         "%s: left out: " CKPT_TRAIN_FSDP_OPTIMIZER "1, a further optimizer",
                         r->list->folder);
}

/*
 * Read a folder of accelerate or the Trainer: the model in pytorch_model_fsdp_0, its optimizer in
 * optimizer_0; further models have higher numbers.  NeMo Automodel has model and optim.
 */
static int dcp_read_pair(dcp_reader *r)
{
    const dcp_pair *pair = dcp_pair_of(r->list);
    const char *const parts[] = {pair ? pair->model : CKPT_TRAIN_FSDP_MODEL "0",
                                 pair ? pair->optimizer : CKPT_TRAIN_FSDP_OPTIMIZER "0"};
    int rc = CKPT_OK;

    if (ckpt_listing_find(r->list, CKPT_TRAIN_FSDP_MODEL "1"))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: holds several models; name the folder of one (" CKPT_TRAIN_FSDP_MODEL
                         "0)",
                         r->list->folder);
    rc = dcp_one_optimizer(r);
    for (size_t i = 0; rc == CKPT_OK && i < 2; i++) {
        const char *prefix = ckpt_arena_printf(r->map->arena, "%s/", parts[i]);
        if (!prefix)
            return ckpt_fail_memory(r->err);
        if (ckpt_listing_find(r->list, parts[i]))
            rc = ckpt_dcp_metadata_read(&r->meta, r->map->arena, r->list->folder, prefix, r->err);
    }
    return rc;
}

static int dcp_read(dcp_reader *r, ckpt_dcp_roles_fn *roles)
{
    int rc = ckpt_listing_find(r->list, CKPT_DCP_METADATA)
                 ? ckpt_dcp_metadata_read(&r->meta, r->map->arena, r->list->folder, "", r->err)
                 : dcp_read_pair(r);

    if (rc == CKPT_OK && ckpt_listing_find(r->list, CKPT_DCP_METADATA))
        rc = dcp_surplus(r);
    if (rc == CKPT_OK && r->meta.n_loose > 0)
        rc = ckpt_map_note(
            r->map, CKPT_WARNING, r->err,
            "left out: %zu entr%s of storage_data (%.200s) that state_dict_metadata does not list",
            r->meta.n_loose, r->meta.n_loose == 1 ? "y" : "ies", r->meta.loose);
    if (rc == CKPT_OK && r->meta.n_others > 0)
        rc = ckpt_map_note(r->map, CKPT_WARNING, r->err,
                           "left out: %zu member%s of .metadata that torch does not write, "
                           "first '%.200s'",
                           r->meta.n_others, r->meta.n_others == 1 ? "" : "s", r->meta.other);
    if (rc == CKPT_OK)
        rc = dcp_files(r);
    if (rc != CKPT_OK || r->lost)
        return rc;
    r->role = ckpt_arena_array(r->map->arena, r->meta.item.n + 1, sizeof *r->role);
    if (rc == CKPT_OK)
        rc = r->role ? roles(r->role, &r->meta, r->map->arena, r->err) : ckpt_fail_memory(r->err);
    if (rc == CKPT_OK)
        rc = dcp_tensors(r);
    if (rc == CKPT_OK)
        r->map->in_order = dcp_in_order(&r->meta, r->role);
    if (rc == CKPT_OK)
        rc = dcp_values(r);
    if (rc == CKPT_OK && r->map->tensors.n == 0 && r->n_inside > 0)
        rc = ckpt_map_note(r->map, CKPT_WARNING, r->err,
                           "%s: its tensors are inside pickled objects (flatten_state_dict=False), "
                           "which hold one rank's parts only, so none is listed; save it "
                           "flattened, the default of torch.distributed.checkpoint",
                           r->list->folder);
    return rc == CKPT_OK ? ckpt_map_check(r->map, r->err) : rc;
}

int ckpt_dcp_read(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                  ckpt_dcp_roles_fn *roles, ckpt_err *err)
{
    assert(map && list && opts && roles);
    dcp_reader r = {.map = map, .list = list, .opts = opts, .boxes = map->arena, .err = err};

    map->settle = ckpt_dcp_settle;
    int rc = dcp_read(&r, roles);
    ckpt_io_close(r.io);
    ckpt_dcp_metadata_free(&r.meta);
    return rc;
}

static int dcp_gather(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                      ckpt_err *err)
{
    ckpt_listing at = *list;
    int rc = opts->tag ? CKPT_OK : dcp_has_model(&at, err);

    if (rc == CKPT_OK)
        rc = ckpt_train_find_step(map, &at, &dcp_run, opts->tag, err);
    if (rc == CKPT_OK)
        rc = dcp_has_model(&at, err);
    if (rc != CKPT_OK)
        return rc;
    list = &at;
    const dcp_pair *pair = dcp_pair_of(list);
    if (!dcp_done(list))
        return ckpt_fail(err, CKPT_EMISSING,
                         "%s: a PyTorch distributed checkpoint without %s%s" CKPT_DCP_METADATA
                         ", which is written last: the save did not finish",
                         list->folder, pair ? pair->optimizer : "", pair ? "/" : "");
    map->known.training = true;
    rc = ckpt_dcp_read(map, list, opts, ckpt_dcp_roles, err);
    if (rc == CKPT_OK && ckpt_listing_find(list, CKPT_TRAIN_FSDP_MODEL "0") &&
        !ckpt_listing_find(list, CKPT_TRAIN_FSDP_OPTIMIZER "0"))
        rc = ckpt_train_no_optimizer(map, list, CKPT_TRAIN_FSDP_OPTIMIZER "0", opts, err);
    if (rc == CKPT_OK && opts->with_optimizer)
        rc = ckpt_train_torch_state(map, map->in_order ? CKPT_TRAIN_BY_MODEL : CKPT_TRAIN_UNORDERED,
                                    opts->ignore_copies, err);
    return rc == CKPT_OK && opts->with_optimizer ? ckpt_train_run_files(map, list, err) : rc;
}

static const ckpt_run_layout *const dcp_runs[] = {&dcp_run, NULL};

const ckpt_directory ckpt_directory_dcp = {
    .is =
        {
            .name = "dcp",
            .aliases = "distcp",
            .signs = ".metadata and *.distcp (PyTorch DCP)",
            .note = "PyTorch distributed checkpoint (DCP), torch 2.0 to 2.15",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE | CKPT_WRITES_STATE | CKPT_IS_FOLDER |
                    CKPT_READS_STATE | CKPT_HAS_TAGS | CKPT_TAKES_LAYOUT | CKPT_TAKES_WORLD |
                    CKPT_TAKES_WEIGHTS,
        },
    .probe = dcp_probe,
    .gather = dcp_gather,
    .scatter = ckpt_dcp_scatter,
    .runs = dcp_runs,
};
