/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata.c: reads .metadata: the pickle becomes items, chunks and their entries.
 *
 * Objects are recognised by their attributes instead of their class, because torchtitan and
 * Megatron-Core write their own classes derived from torch's.  The key of an entry is (name, offset
 * of the chunk); the `index` of a MetadataIndex is only a hint, and some writers omit it.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/dcp/lookup.h"
#include "formats/dcp/parts.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/map/value_copy.h"

/* Largest .metadata in bytes: 1024 ranks with 1000 tensors make about 200 MB. */
#define DMD_MAX_BYTES (UINT64_C(2) << 30)

/*
 * Memory limit for its values: a constant, and a multiple of its size; real files need 9 times
 * their size.
 */
#define DMD_ARENA_FREE (UINT64_C(512) << 20)
#define DMD_ARENA_RATE 16u

#define DMD_MAX_KEYS 256u /* nested dicts in a path */

CKPT_VEC(dmd_numbers, uint32_t);

typedef struct dmd_reader {
    ckpt_dcp_metadata *out;
    ckpt_arena *arena;
    const char *path;   /* path of .metadata */
    const char *prefix; /* prefix of data files' names: "" or the folder's name and a '/' */
    /* indexes in out->item, out->entry of this folder's first */
    size_t first, first_entry;
    ckpt_dcp_parts parts;
    ckpt_dcp_lookup lookup;
    ckpt_index by_file; /* index of out->file */
    dmd_numbers files;  /* by index in parts.text: index in out->file, or CKPT_INDEX_NONE */
    ckpt_err *err;
} dmd_reader;

/* ---- pieces ---- */

static int dmd_fail(const dmd_reader *r, const char *what, const ckpt_text *name)
{
    if (r->parts.no_memory)
        return ckpt_fail_memory(r->err);
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: %s%s%.200s", r->path, what, name ? " of " : "",
                     name ? name->at : "");
}

/* Copy a text into the map's arena, because the pickle is freed. */
static bool dmd_keep(const dmd_reader *r, ckpt_text *text)
{
    text->at = ckpt_arena_string(r->arena, text->at, text->n);
    return text->at != NULL;
}

/* An attribute of an object; NULL if it is absent or None. */
static const ckpt_value *dmd_attr(const ckpt_value *v, const char *name)
{
    return v && v->kind == CKPT_V_OBJECT ? ckpt_dcp_attr(v->as.object, name) : NULL;
}

/* Count the members of an object that are not in the list of n known names. */
static int dmd_others(dmd_reader *r, const ckpt_value *v, const char *const *known, size_t n)
{
    ckpt_dict all = ckpt_value_map(v && v->kind == CKPT_V_OBJECT ? v->as.object->state : NULL);

    for (uint64_t i = 0; i < all.n; i++) {
        const ckpt_value *key = all.at[i].key;
        bool is = all.at[i].value->kind == CKPT_V_NONE;

        for (size_t k = 0; !is && k < n; k++)
            is = ckpt_value_is(key, known[k]);
        if (is || r->out->n_others++ > 0)
            continue;
        r->out->other = key->kind == CKPT_V_STR
                            ? ckpt_arena_string(r->arena, key->as.text.at, key->as.text.n)
                            : "another key";
        if (!r->out->other)
            return ckpt_fail_memory(r->err);
    }
    return CKPT_OK;
}

/* Count the unknown members of the metadata itself and of the note on its storage. */
static int dmd_others_top(dmd_reader *r, const ckpt_value *root)
{
    static const char *const top[] = {
        "state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version",
        "all_local_plans", // the saving ranks' plans, for their next save
        "mcore_data",      // Megatron-Core: shapes for its own reader
    };
    static const char *const note[] = {"checkpoint_id", "save_id", "load_id", "modules"};
    int rc = dmd_others(r, root, top, sizeof top / sizeof *top);

    return rc == CKPT_OK
               ? dmd_others(r, dmd_attr(root, "storage_meta"), note, sizeof note / sizeof *note)
               : rc;
}

/* ---- storage_data ---- */

static bool dmd_same_file(const void *ctx, uint32_t number, const void *key)
{
    const dmd_reader *r = ctx;
    const ckpt_text *a = &r->out->file.at[number].name, *b = key;

    return a->n == b->n && memcmp(a->at, b->at, (size_t)a->n) == 0;
}

/* Enter a data file at its first use, by its name's number in parts.text. */
static int dmd_file(dmd_reader *r, uint32_t text)
{
    const ckpt_text *name = &r->parts.text.at[text];
    uint32_t hash = ckpt_hash_bytes(name->at, (size_t)name->n, 0), at, *to;
    ckpt_dcp_file *file;

    while (text >= r->files.n) {
        to = ckpt_vec_push(&r->files);
        if (!to)
            return ckpt_fail_memory(r->err);
        *to = CKPT_INDEX_NONE;
    }
    if (r->files.at[text] != CKPT_INDEX_NONE)
        return CKPT_OK;
    at = ckpt_index_find(&r->by_file, hash, dmd_same_file, r, name);
    if (at != CKPT_INDEX_NONE) {
        r->files.at[text] = at;
        return CKPT_OK;
    }
    if (!ckpt_path_part_ok(name->at, name->n))
        return ckpt_fail(r->err, CKPT_EUNSAFE,
                         "%s: data file \"%.200s\" could lie outside the checkpoint's folder",
                         r->path, name->at);
    at = (uint32_t)r->out->file.n;
    file = ckpt_vec_push(&r->out->file);
    if (!file || !ckpt_index_add(&r->by_file, hash, at))
        return ckpt_fail_memory(r->err);
    *file = (ckpt_dcp_file){*name, ckpt_arena_printf(r->arena, "%s%s", r->prefix, name->at)};
    r->files.at[text] = at;
    return file->path && dmd_keep(r, &file->name) ? CKPT_OK : ckpt_fail_memory(r->err);
}

/* The key of an entry. */
typedef struct dmd_key {
    uint32_t name;   /* index in parts.text */
    uint32_t offset; /* index in out->list; CKPT_INDEX_NONE: an object, or a tensor without axes */
    bool empty;      /* a chunk without elements: several ranks may share it */
} dmd_key;

/* Fail with the reason why a pair of storage_data is unusable. */
static int dmd_bad_entry(const dmd_reader *r, const ckpt_value *index, const ckpt_value *info,
                         uint32_t key)
{
    const bool known = key != CKPT_INDEX_NONE;
    const ckpt_value *fqn = dmd_attr(index, "fqn");
    const ckpt_text *name = known ? &r->parts.text.at[r->out->entry.at[key].name]
                            : fqn && fqn->kind == CKPT_V_STR ? &fqn->as.text
                                                             : NULL;
    ckpt_seq list = ckpt_value_seq(dmd_attr(info, "transform_descriptors"));

    if (!name)
        return dmd_fail(r, "an entry of storage_data has no name", NULL);
    if (!known)
        return dmd_fail(r, "an offset is not a number", name);
    if (list.n == 0)
        return dmd_fail(r, "storage_data does not give the location", name);
    return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                     "%s: %.200s is stored with an extension (%.100s), which is not supported; "
                     "save without extensions",
                     r->path, name->at,
                     list.at[0]->kind == CKPT_V_STR ? list.at[0]->as.text.at : "?");
}

/* Add one pair of storage_data. */
static int dmd_add_entry(dmd_reader *r, const ckpt_value *index, const ckpt_value *info)
{
    ckpt_dcp_entries *all = &r->out->entry;
    uint32_t key = ckpt_dcp_part_of(&r->parts, index, CKPT_DCP_KEY), where = CKPT_INDEX_NONE;
    ckpt_dcp_entry e, *to;
    int rc;

    if (key != CKPT_INDEX_NONE)
        where = ckpt_dcp_part_of(&r->parts, info, CKPT_DCP_INFO);
    if (where == CKPT_INDEX_NONE)
        return dmd_bad_entry(r, index, info, key);
    e = all->at[key];
    rc = dmd_file(r, all->at[where].file);
    if (rc != CKPT_OK)
        return rc;
    if (where != key || e.listed) { // other pairs may use either object
        const ckpt_dcp_entry *place = &all->at[where];
        e.at = place->at;
        e.n = place->n;
        e.file = place->file;
        to = all->n < CKPT_INDEX_NONE / 2 ? ckpt_vec_push(all) : NULL;
        if (!to)
            return ckpt_fail_memory(r->err);
        *to = e;
        r->parts.open = false; // a later INFO is not of this entry
        key = (uint32_t)all->n - 1;
    }
    all->at[key].listed = true;
    return CKPT_OK;
}

static int dmd_entries_read(dmd_reader *r, const ckpt_value *storage)
{
    ckpt_dict map = ckpt_value_map(storage);
    int rc = CKPT_OK;

    if (!storage || storage->kind != CKPT_V_DICT)
        return dmd_fail(
            r, "storage_data is missing, so the location of the tensors' bytes is unknown", NULL);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;
        const uint64_t n = ckpt_dcp_n_parts(key);

        for (uint64_t k = 0; rc == CKPT_OK && k < n; k += 2) {
            const ckpt_value index = ckpt_dcp_nth_part(key, k);
            const ckpt_value info = n > 1 ? ckpt_dcp_nth_part(key, k + 1) : *map.at[i].value;
            rc = dmd_add_entry(r, &index, &info);
        }
    }
    return rc;
}

/* Fail if two entries have this name, of parts.text, and the same offset. */
static int dmd_repeats(dmd_reader *r, uint32_t name)
{
    bool repeats = false;
    int rc = ckpt_dcp_lookup_repeats(&r->lookup, name, &repeats, r->err);

    return repeats ? dmd_fail(r, "storage_data repeats a chunk", &r->parts.text.at[name]) : rc;
}

/* The position of an entry, its name, and whether it has no axes. */
typedef struct dmd_spot {
    ckpt_dcp_place place;
    uint32_t name; /* index in parts.text */
    bool object;
} dmd_spot;

static int dmd_by_place(const void *pa, const void *pb)
{
    const ckpt_dcp_place *a = &((const dmd_spot *)pa)->place, *b = &((const dmd_spot *)pb)->place;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* True if an entry begins before the one before it ends.  Several objects may be one entry. */
static bool dmd_overlaps(const dmd_spot *before, const dmd_spot *spot)
{
    const ckpt_dcp_place *a = &before->place, *b = &spot->place;
    bool same = a->at == b->at && a->n == b->n && before->object && spot->object;

    return a->file == b->file && b->at - a->at < a->n && !same;
}

/* True if b is in a later file than a, or later in the same one, without an overlap. */
static bool dmd_after(const ckpt_dcp_entry *a, const ckpt_dcp_entry *b)
{
    return a->file < b->file || (a->file == b->file && a->at <= b->at && b->at - a->at >= a->n);
}

/* True if the entries are listed by position without an overlap; most writers do so. */
static bool dmd_in_order(const dmd_reader *r)
{
    const ckpt_dcp_entry *last = NULL;
    bool ok = true;

    for (size_t i = r->first_entry; ok && i < r->out->entry.n; i++) {
        const ckpt_dcp_entry *e = &r->out->entry.at[i];
        if (!e->listed)
            continue;
        ok = !last || dmd_after(last, e);
        last = e;
    }
    return ok;
}

/* Check that entries of a file do not overlap. */
static int dmd_apart(dmd_reader *r)
{
    const ckpt_dcp_entries *all = &r->out->entry;
    size_t n = 0;
    dmd_spot *spot;
    int rc = CKPT_OK;

    if (dmd_in_order(r))
        return CKPT_OK;
    spot = ckpt_alloc((all->n - r->first_entry) * sizeof *spot);
    if (!spot)
        return ckpt_fail_memory(r->err);
    for (size_t i = r->first_entry; i < all->n; i++) {
        const ckpt_dcp_entry *e = &all->at[i];
        if (e->listed)
            spot[n++] = (dmd_spot){{e->file, e->at, e->n}, e->name, e->offset == CKPT_INDEX_NONE};
    }
    qsort(spot, n, sizeof *spot, dmd_by_place);
    for (size_t i = 1; rc == CKPT_OK && i < n; i++) {
        const ckpt_dcp_place *b = &spot[i].place;
        if (!dmd_overlaps(&spot[i - 1], &spot[i]))
            continue;
        rc = dmd_repeats(r, spot[i].name);
        if (rc == CKPT_OK)
            rc = ckpt_fail(r->err, CKPT_EMISMATCH,
                           "%s: two entries of %.200s overlap at offset %" PRIu64, r->path,
                           r->parts.text.at[b->file].at, b->at);
    }
    ckpt_free(spot);
    return rc;
}

/* Find the entry of an item's chunk, or of an object. */
static int dmd_find(dmd_reader *r, const ckpt_dcp_item *item, const dmd_key *key, uint32_t *out)
{
    assert(key && out);
    const ckpt_text *name = &item->name;
    uint32_t at;
    int rc = ckpt_dcp_lookup_find(&r->lookup, key->name, key->offset, &at, r->err);

    if (rc != CKPT_OK)
        return rc;
    if (at == CKPT_INDEX_NONE && key->name != CKPT_INDEX_NONE)
        rc = dmd_repeats(r, key->name);
    if (rc == CKPT_OK && at == CKPT_INDEX_NONE)
        rc = ckpt_fail(r->err, CKPT_EMISMATCH, "%s: a chunk of %.200s has no entry in storage_data",
                       r->path, name->at);
    if (rc != CKPT_OK)
        return rc;
    if (r->out->entry.at[at].used && !key->empty)
        return ckpt_fail(r->err, CKPT_EMISMATCH, "%s: several chunks of %.200s lie in one entry",
                         r->path, name->at);
    r->out->entry.at[at].used = true;
    *out = at;
    return CKPT_OK;
}

/* ---- state_dict_metadata ---- */

/*
 * Read dtype and requires_grad; the state of TensorProperties is a tuple that has them at index 0
 * and 2.
 */
static int dmd_properties(const dmd_reader *r, ckpt_dcp_item *item, const ckpt_value *v)
{
    const ckpt_value *state = v && v->kind == CKPT_V_OBJECT ? v->as.object->state : NULL;
    ckpt_seq s = ckpt_value_seq(state);
    const ckpt_value *dtype = s.n > 0 ? s.at[0] : dmd_attr(v, "dtype"),
                     *grad = s.n > 2 ? s.at[2] : dmd_attr(v, "requires_grad");

    if (dtype && dtype->kind == CKPT_V_GLOBAL)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: %.200s has dtype %.100s.%.100s, which is not supported", r->path,
                         item->name.at, dtype->as.global.module.at, dtype->as.global.name.at);
    if (!dtype || dtype->kind != CKPT_V_DTYPE)
        return dmd_fail(r, "no dtype", &item->name);
    item->dtype = dtype->as.dtype;
    item->flags = grad && grad->kind == CKPT_V_BOOL && grad->as.i ? CKPT_TENSOR_GRAD : 0;
    return CKPT_OK;
}

/* Check that a box lies inside its tensor; ckpt_map_check looks for holes and overlaps. */
static int dmd_inside(const dmd_reader *r, const ckpt_dcp_item *item, const ckpt_dcp_chunk *c)
{
    assert(c->start && c->count);
    for (uint32_t k = 0; k < item->ndim; k++) {
        if (!ckpt_within(c->start[k], c->count[k], item->shape[k]))
            return ckpt_fail(r->err, CKPT_EMISMATCH,
                             "%s: a chunk of %.200s has elements %" PRIu64 " to %" PRIu64
                             " of axis %" PRIu32 ", which has %" PRIu64,
                             r->path, item->name.at, c->start[k], c->start[k] + c->count[k], k,
                             item->shape[k]);
    }
    return CKPT_OK;
}

/* Turn the last of n numbers of pairs in torch's F4 into one of elements. */
static void dmd_unpair(const ckpt_dcp_item *item, uint64_t *numbers, uint32_t n)
{
    if (item->dtype == CKPT_F4 && n > 0)
        numbers[n - 1] *= 2; // no overflow: dmd_tensor has checked the tensor's
}

/* The same for a list in out->list: its index becomes that of another list.  false: no memory. */
static bool dmd_unpair_list(dmd_reader *r, const ckpt_dcp_item *item, uint32_t *list)
{
    const ckpt_dcp_list old = r->out->list.at[*list];
    uint64_t own[CKPT_MAX_DIM];

    if (item->dtype != CKPT_F4 || old.n == 0)
        return true;
    memcpy(own, old.at, old.n * sizeof *own);
    dmd_unpair(item, own, old.n);
    *list = ckpt_dcp_enter_list(&r->parts, own, old.n, *list);
    return *list != CKPT_INDEX_NONE;
}

/* Add one chunk.  name: the item's, in parts.text */
static int dmd_chunk(dmd_reader *r, ckpt_dcp_item *item, uint32_t name, const ckpt_value *v)
{
    const uint32_t box = ckpt_dcp_part_of(&r->parts, v, CKPT_DCP_BOX);
    const ckpt_dcp_list *list = r->out->list.at;
    ckpt_dcp_row row, *to;
    ckpt_dcp_chunk c = {0};
    dmd_key key = {.name = name, .offset = CKPT_INDEX_NONE};
    int rc;

    if (box != CKPT_INDEX_NONE)
        row = (ckpt_dcp_row){r->parts.box.at[box].start, r->parts.box.at[box].count, 0};
    if (box == CKPT_INDEX_NONE || list[row.start].n != item->ndim)
        return dmd_fail(r, "an offset or a size is missing in a chunk", &item->name);
    c.start = list[row.start].at;
    c.count = list[row.count].at;
    rc = dmd_inside(r, item, &c);
    if (item->ndim > 0)
        key.offset = row.start;
    key.empty = ckpt_dcp_is_empty(item, &c);
    if (rc == CKPT_OK)
        rc = dmd_find(r, item, &key, &row.entry);
    if (rc != CKPT_OK)
        return rc;
    to = ckpt_vec_push(&r->out->chunk);
    if (!to || !dmd_unpair_list(r, item, &row.start) || !dmd_unpair_list(r, item, &row.count))
        return ckpt_fail_memory(r->err);
    *to = row;
    item->n++;
    return CKPT_OK;
}

/* Read a tensor's shape into the arena. */
static int dmd_shape(dmd_reader *r, ckpt_dcp_item *item, const ckpt_value *v)
{
    uint64_t shape[CKPT_MAX_DIM];

    if (!ckpt_dcp_numbers(shape, &item->ndim, v))
        return dmd_fail(r, "no size", &item->name);
    if (item->dtype == CKPT_F4 && (item->ndim == 0 || shape[item->ndim - 1] > UINT64_MAX / 2))
        return dmd_fail(r, "a size that pairs of F4 cannot have", &item->name);
    item->shape = ckpt_arena_copy(r->arena, shape, item->ndim * sizeof *shape);
    return item->shape ? CKPT_OK : ckpt_fail_memory(r->err);
}

static int dmd_tensor(dmd_reader *r, ckpt_dcp_item *item, const ckpt_value *v)
{
    ckpt_seq chunks = ckpt_value_seq(dmd_attr(v, "chunks"));
    uint32_t name = ckpt_dcp_text(&r->parts, &item->name);
    uint64_t *elements;
    int rc = dmd_properties(r, item, dmd_attr(v, "properties"));

    if (rc == CKPT_OK)
        rc = dmd_shape(r, item, dmd_attr(v, "size"));
    for (uint64_t i = 0; rc == CKPT_OK && i < chunks.n; i++) {
        const uint64_t n = ckpt_dcp_n_parts(chunks.at[i]);

        for (uint64_t k = 0; rc == CKPT_OK && k < n; k++) {
            const ckpt_value box = ckpt_dcp_nth_part(chunks.at[i], k);
            rc = dmd_chunk(r, item, name, &box);
        }
    }
    if (rc != CKPT_OK)
        return rc;
    elements = ckpt_arena_copy(r->arena, item->shape, item->ndim * sizeof *elements);
    if (!elements)
        return ckpt_fail_memory(r->err);
    dmd_unpair(item, elements, item->ndim);
    item->shape = elements;
    return CKPT_OK;
}

/* Add an object's only entry, which has no box. */
static int dmd_bytes(dmd_reader *r, ckpt_dcp_item *item)
{
    ckpt_dcp_row row = {CKPT_INDEX_NONE, CKPT_INDEX_NONE, 0}, *to;
    const dmd_key key = {ckpt_dcp_text(&r->parts, &item->name), CKPT_INDEX_NONE, false};
    int rc = dmd_find(r, item, &key, &row.entry);

    if (rc != CKPT_OK)
        return rc;
    to = ckpt_vec_push(&r->out->chunk);
    if (!to)
        return ckpt_fail_memory(r->err);
    *to = row;
    item->n = 1;
    return CKPT_OK;
}

static int dmd_item(dmd_reader *r, const ckpt_value *key, const ckpt_value *v)
{
    static const char *const known[] = {"properties", "size", "chunks"};
    ckpt_dcp_item item = {.first = r->out->chunk.n}, *to;
    int rc;

    if (key->kind != CKPT_V_STR || v->kind != CKPT_V_OBJECT)
        return dmd_fail(r, "state_dict_metadata has a member that is not a description", NULL);
    item.name = key->as.text;
    if (!ckpt_name_ok(item.name.at, item.name.n))
        return dmd_fail(r, "state_dict_metadata has an invalid name of a tensor", NULL);
    if (!dmd_keep(r, &item.name))
        return ckpt_fail_memory(r->err);
    item.is_tensor = dmd_attr(v, "size") != NULL;
    rc = dmd_others(r, v, known, item.is_tensor ? sizeof known / sizeof *known : 0);
    if (rc != CKPT_OK)
        return rc;
    rc = item.is_tensor ? dmd_tensor(r, &item, v) : dmd_bytes(r, &item);
    if (rc != CKPT_OK)
        return rc;
    to = ckpt_vec_push(&r->out->item);
    if (!to)
        return ckpt_fail_memory(r->err);
    *to = item;
    return CKPT_OK;
}

static int dmd_items(dmd_reader *r, const ckpt_value *state)
{
    ckpt_dict map = ckpt_value_map(state);
    int rc = CKPT_OK;

    if (!state || state->kind != CKPT_V_DICT)
        return dmd_fail(r, "no state_dict_metadata: not the metadata of a distributed checkpoint",
                        NULL);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++)
        rc = dmd_item(r, map.at[i].key, map.at[i].value);
    return rc;
}

/* ---- planner_data ---- */

static bool dmd_is_path(const ckpt_value *v)
{
    ckpt_seq s = ckpt_value_seq(v);
    bool ok = v->kind == CKPT_V_TUPLE && s.n > 0 && s.n <= DMD_MAX_KEYS;

    for (uint64_t i = 0; ok && i < s.n; i++) {
        const ckpt_text *key = &s.at[i]->as.text;
        ok = s.at[i]->kind == CKPT_V_STR
                 ? !memchr(key->at, 0, (size_t)key->n)
                 : s.at[i]->kind == CKPT_V_INT && !s.at[i]->state && s.at[i]->as.i >= 0;
    }
    return ok;
}

/* Copy an item's path from planner_data. */
static int dmd_path(const dmd_reader *r, ckpt_dcp_item *item, const ckpt_value *path)
{
    const ckpt_value_copier copier = {.arena = r->arena, .whole = true};

    if (!dmd_is_path(path))
        return dmd_fail(r, "planner_data lacks the path", &item->name);
    item->path = ckpt_value_copy(&copier, path);
    return item->path ? CKPT_OK : ckpt_fail_memory(r->err);
}

static bool dmd_same_name(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_dict *map = ctx;
    const ckpt_text *a = &map->at[number].key->as.text, *b = key;

    return a->n == b->n && memcmp(a->at, b->at, (size_t)a->n) == 0;
}

static int dmd_index_paths(dmd_reader *r, ckpt_index *ix, const ckpt_dict *map)
{
    for (uint64_t i = 0; i < map->n; i++) {
        const ckpt_value *key = map->at[i].key;
        if (key->kind != CKPT_V_STR || i >= CKPT_INDEX_NONE)
            return dmd_fail(r, "planner_data has a key that is not a string", NULL);
        uint32_t hash = ckpt_hash_bytes(key->as.text.at, (size_t)key->as.text.n, 0);
        if (!ckpt_index_add(ix, hash, (uint32_t)i))
            return ckpt_fail_memory(r->err);
    }
    return CKPT_OK;
}

/* Sort by the order of the program's dicts; items without a path last. */
static int dmd_order(const void *pa, const void *pb)
{
    const ckpt_dcp_item *a = pa, *b = pb;

    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/* Report a name of planner_data that state_dict_metadata lacks, because data was lost. */
static int dmd_unknown(dmd_reader *r, const ckpt_dict *map)
{
    bool *known = ckpt_alloc((size_t)(map->n + 1) * sizeof *known);
    uint64_t at = 0;

    if (!known)
        return ckpt_fail_memory(r->err);
    for (size_t i = r->first; i < r->out->item.n; i++) {
        if (r->out->item.at[i].order < map->n)
            known[r->out->item.at[i].order] = true;
    }
    while (at < map->n && known[at])
        at++;
    ckpt_free(known);
    if (at == map->n)
        return CKPT_OK;
    return ckpt_fail(r->err, CKPT_EMISMATCH,
                     "%s: planner_data lists %.200s, but state_dict_metadata does not", r->path,
                     map->at[at].key->as.text.at);
}

/*
 * Read the paths of items; Megatron-Core writes none.  planner_data has the program's order,
 * state_dict_metadata only the order in which ranks were assigned items.
 */
static int dmd_paths(dmd_reader *r, const ckpt_value *planner)
{
    ckpt_dict map = ckpt_value_map(planner);
    ckpt_index ix = {0};
    uint64_t n_known = 0;
    int rc = planner && planner->kind != CKPT_V_DICT
                 ? dmd_fail(r, "planner_data is not a dict", NULL)
                 : dmd_index_paths(r, &ix, &map);

    for (size_t i = r->first; rc == CKPT_OK && i < r->out->item.n; i++) {
        ckpt_dcp_item *item = &r->out->item.at[i];
        uint32_t hash = ckpt_hash_bytes(item->name.at, (size_t)item->name.n, 0);
        uint32_t at = ckpt_index_find(&ix, hash, dmd_same_name, &map, &item->name);

        item->order = at;
        if (at != CKPT_INDEX_NONE) {
            rc = dmd_path(r, item, map.at[at].value);
            n_known++;
        }
    }
    // keys are unique, so more keys than known items means an unknown name
    if (rc == CKPT_OK && n_known < map.n)
        rc = dmd_unknown(r, &map);
    ckpt_index_free(&ix);
    if (rc == CKPT_OK && r->out->item.n > r->first + 1)
        qsort(&r->out->item.at[r->first], r->out->item.n - r->first, sizeof *r->out->item.at,
              dmd_order);
    return rc;
}

/* ---- the whole ---- */

/*
 * Set the entries' files, count entries without a chunk, and refuse two entries of one chunk, of
 * which one has no chunk.
 */
static int dmd_loose(dmd_reader *r)
{
    int rc = CKPT_OK;

    for (size_t i = r->first_entry; rc == CKPT_OK && i < r->out->entry.n; i++) {
        ckpt_dcp_entry *e = &r->out->entry.at[i];
        if (!e->listed)
            continue;
        e->file = r->files.at[e->file];
        if (e->used)
            continue;
        r->out->n_loose++;
        r->out->loose = r->parts.text.at[e->name].at;
        rc = dmd_repeats(r, e->name);
    }
    return rc;
}

static int dmd_read(dmd_reader *r, const ckpt_value *root)
{
    int rc = dmd_entries_read(r, dmd_attr(root, "storage_data"));

    if (rc == CKPT_OK)
        rc = ckpt_dcp_lookup_make(&r->lookup, &r->out->entry, r->first_entry, r->parts.text.n,
                                  r->err);
    if (rc == CKPT_OK)
        rc = dmd_apart(r);
    if (rc == CKPT_OK)
        rc = dmd_items(r, dmd_attr(root, "state_dict_metadata"));
    if (rc == CKPT_OK)
        rc = dmd_paths(r, dmd_attr(root, "planner_data"));
    if (rc == CKPT_OK)
        rc = dmd_others_top(r, root);
    if (rc == CKPT_OK && r->parts.n_others > 0) {
        r->out->other = r->out->n_others > 0 ? r->out->other : r->parts.other;
        r->out->n_others += r->parts.n_others;
        rc = r->out->other ? rc : ckpt_fail_memory(r->err);
    }
    return rc == CKPT_OK ? dmd_loose(r) : rc;
}

/* ckpt_pickle_opts.fetch with the file as ctx. */
static int dmd_fetch(void *ctx, void *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    return ckpt_io_read(ctx, to, n, at, err);
}

/* Read the pickle of .metadata in its own arena, because a large one takes a hundred times the
 * memory of the result. */
static int dmd_pickle(dmd_reader *r, ckpt_arena **scratch, ckpt_pickle *out)
{
    ckpt_io *io = NULL;
    int rc = ckpt_io_open(&io, r->path, r->err);
    const uint64_t n = rc == CKPT_OK ? io->size : 0;
    const ckpt_pickle_opts opts = {.name = r->path,
                                   .take = ckpt_dcp_take,
                                   .ctx = &r->parts,
                                   .fetch = dmd_fetch,
                                   .fetch_ctx = io};

    if (n > DMD_MAX_BYTES)
        rc = ckpt_fail(r->err, CKPT_ELIMIT,
                       "%s: the file has %" PRIu64 " bytes, more than the limit of %" PRIu64,
                       r->path, n, DMD_MAX_BYTES);
    r->parts.kept = r->arena;
    r->parts.out = r->out;
    r->parts.first_list = (uint32_t)r->out->list.n;
    if (rc == CKPT_OK && !(*scratch = ckpt_arena_new(DMD_ARENA_FREE + n * DMD_ARENA_RATE)))
        rc = ckpt_fail_memory(r->err);
    if (rc == CKPT_OK)
        rc = ckpt_pickle_read(out, *scratch, NULL, n, &opts, r->err);
    ckpt_io_close(io);
    return rc;
}

int ckpt_dcp_metadata_read(ckpt_dcp_metadata *out, ckpt_arena *arena, const char *folder,
                           const char *prefix, ckpt_err *err)
{
    assert(out && arena && folder && prefix);
    dmd_reader r = {.out = out,
                    .arena = arena,
                    .prefix = prefix,
                    .first = out->item.n,
                    .first_entry = out->entry.n,
                    .err = err};
    ckpt_arena *scratch = NULL;
    ckpt_pickle pickle = {0};
    int rc;

    r.path = ckpt_arena_printf(arena, "%s/%s" CKPT_DCP_METADATA, folder, prefix);
    rc = r.path ? dmd_pickle(&r, &scratch, &pickle) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = dmd_read(&r, pickle.root);
    ckpt_pickle_free(&pickle);
    ckpt_vec_free(&r.files);
    ckpt_dcp_lookup_free(&r.lookup);
    ckpt_index_free(&r.by_file);
    ckpt_arena_free(scratch);
    ckpt_dcp_parts_free(&r.parts);
    return rc;
}
