/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata.c: owns .metadata: from its pickle to items, chunks and the entries that hold them.
 *
 * Objects are read by what they hold, not by their class: torchtitan and Megatron-Core write
 * classes of their own that derive from torch's.  What is looked up is (name, offset of the
 * chunk); the `index` of a MetadataIndex is a hint that some writers leave out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/pickle.h"

/* Bytes that .metadata may have: 1024 ranks with 1000 tensors have about 200 MB. */
#define DMD_MAX_BYTES (UINT64_C(2) << 30)

/* A pair of storage_data. */
typedef struct dmd_entry {
    const ckpt_text *name;
    ckpt_seq offset; /* of INTs; empty for objects */
    ckpt_dcp_place place;
    bool used;
} dmd_entry;

CKPT_VEC(dmd_entries, dmd_entry);

typedef struct dmd_reader {
    ckpt_dcp_metadata *out;
    ckpt_arena *arena;
    const char *path;   /* of .metadata */
    const char *prefix; /* of data files' names: "" or the folder's name and a '/' */
    size_t first;       /* item: the first of this folder */
    dmd_entries entry;
    ckpt_index by_key;  /* entries */
    ckpt_index by_file; /* out->file */
    ckpt_err *err;
} dmd_reader;

/* ---- pieces ---- */

static int dmd_fail(const dmd_reader *r, const char *what, const ckpt_text *name)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: %s%s%.200s", r->path, what, name ? " of " : "",
                     name ? name->at : "");
}

/* An attribute of an object, by what BUILD gave it; NULL: it has none of this name, or is None. */
static const ckpt_value *dmd_attr(const ckpt_value *v, const char *name)
{
    const ckpt_value *state = v && v->kind == CKPT_V_OBJECT ? v->as.object->state : NULL;
    const ckpt_value *attr = ckpt_value_get(state, name);

    return attr && attr->kind != CKPT_V_NONE ? attr : NULL;
}

/* A number of elements or bytes. */
static bool dmd_number(const ckpt_value *v, uint64_t *out)
{
    if (!v || v->kind != CKPT_V_INT || v->as.i < 0)
        return false;
    *out = (uint64_t)v->as.i;
    return true;
}

/* Sizes or offsets, one for each axis, in the arena. */
static bool dmd_numbers(dmd_reader *r, const ckpt_value *v, const uint64_t **out, uint32_t *n)
{
    ckpt_seq s = ckpt_value_seq(v);
    uint64_t *at;

    if (!v || (v->kind != CKPT_V_SIZE && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_LIST) ||
        s.n > CKPT_MAX_DIM)
        return false;
    at = ckpt_arena_array(r->arena, s.n + 1, sizeof *at);
    for (uint64_t i = 0; at && i < s.n; i++) {
        if (!dmd_number(s.at[i], &at[i]))
            return false;
    }
    *out = at;
    *n = (uint32_t)s.n;
    return at != NULL;
}

/* ---- storage_data ---- */

static bool dmd_same_file(const void *ctx, uint32_t number, const void *key)
{
    const dmd_reader *r = ctx;
    const ckpt_text *a = &r->out->file.at[number].name, *b = key;

    return a->n == b->n && memcmp(a->at, b->at, (size_t)a->n) == 0;
}

/* The number of a data file, which is entered when it is met first. */
static int dmd_file(dmd_reader *r, const ckpt_text *name, uint32_t *out)
{
    uint32_t hash = ckpt_hash_bytes(name->at, (size_t)name->n, 0);
    ckpt_dcp_file *file;

    *out = ckpt_index_find(&r->by_file, hash, dmd_same_file, r, name);
    if (*out != CKPT_INDEX_NONE)
        return CKPT_OK;
    if (!ckpt_path_part_ok(name->at, name->n))
        return ckpt_fail(r->err, CKPT_EUNSAFE,
                         "%s: data file \"%.200s\" could lie outside the checkpoint's folder",
                         r->path, name->at);
    *out = (uint32_t)r->out->file.n;
    file = ckpt_vec_push(&r->out->file);
    if (!file || !ckpt_index_add(&r->by_file, hash, *out))
        return ckpt_fail_memory(r->err);
    *file = (ckpt_dcp_file){*name, ckpt_arena_printf(r->arena, "%s%s", r->prefix, name->at)};
    return file->path ? CKPT_OK : ckpt_fail_memory(r->err);
}

static uint32_t dmd_hash(const ckpt_text *name, const uint64_t *offset, uint32_t n)
{
    uint32_t hash = ckpt_hash_bytes(name->at, (size_t)name->n, 0);

    for (uint32_t i = 0; i < n; i++)
        hash = ckpt_hash_bytes(&offset[i], sizeof *offset, hash);
    return hash;
}

typedef struct dmd_key {
    const ckpt_text *name;
    const uint64_t *offset;
    uint32_t n;
} dmd_key;

static bool dmd_same_key(const void *ctx, uint32_t number, const void *key)
{
    const dmd_reader *r = ctx;
    const dmd_entry *e = &r->entry.at[number];
    const dmd_key *k = key;

    if (e->name->n != k->name->n || e->offset.n != k->n ||
        memcmp(e->name->at, k->name->at, (size_t)k->name->n) != 0)
        return false;
    for (uint32_t i = 0; i < k->n; i++) {
        if ((uint64_t)e->offset.at[i]->as.i != k->offset[i])
            return false;
    }
    return true;
}

/* Transforms change an entry's bytes: what they make is no torch archive. */
static int dmd_plain(const dmd_reader *r, const ckpt_value *info, const ckpt_text *name)
{
    ckpt_seq list = ckpt_value_seq(dmd_attr(info, "transform_descriptors"));

    if (list.n == 0)
        return CKPT_OK;
    return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                     "%s: %.200s is stored by way of an extension (%.100s), which is not "
                     "supported; save without extensions",
                     r->path, name->at,
                     list.at[0]->kind == CKPT_V_STR ? list.at[0]->as.text.at : "?");
}

/* One pair of storage_data. */
static int dmd_add_entry(dmd_reader *r, const ckpt_value *index, const ckpt_value *info)
{
    const ckpt_value *name = dmd_attr(index, "fqn"), *offset = dmd_attr(index, "offset"),
                     *file = dmd_attr(info, "relative_path");
    dmd_entry e = {0};
    uint64_t at[CKPT_MAX_DIM];
    dmd_entry *to;
    int rc;

    if (!name || name->kind != CKPT_V_STR)
        return dmd_fail(r, "an entry of storage_data has no name", NULL);
    e.name = &name->as.text;
    e.offset = ckpt_value_seq(offset);
    if (!file || file->kind != CKPT_V_STR || !dmd_number(dmd_attr(info, "offset"), &e.place.at) ||
        !dmd_number(dmd_attr(info, "length"), &e.place.n) || e.offset.n > CKPT_MAX_DIM)
        return dmd_fail(r, "storage_data does not say where the bytes lie", e.name);
    for (uint64_t i = 0; i < e.offset.n; i++) {
        if (!dmd_number(e.offset.at[i], &at[i]))
            return dmd_fail(r, "an offset is no number", e.name);
    }
    rc = dmd_plain(r, info, e.name);
    if (rc == CKPT_OK)
        rc = dmd_file(r, &file->as.text, &e.place.file);
    if (rc != CKPT_OK)
        return rc;
    dmd_key key = {e.name, at, (uint32_t)e.offset.n};
    uint32_t hash = dmd_hash(e.name, at, key.n);
    if (ckpt_index_find(&r->by_key, hash, dmd_same_key, r, &key) != CKPT_INDEX_NONE)
        return dmd_fail(r, "storage_data has one chunk twice", e.name);
    to = ckpt_vec_push(&r->entry);
    if (!to || !ckpt_index_add(&r->by_key, hash, (uint32_t)(r->entry.n - 1)))
        return ckpt_fail_memory(r->err);
    *to = e;
    return CKPT_OK;
}

static int dmd_entries_read(dmd_reader *r, const ckpt_value *storage)
{
    ckpt_dict map = ckpt_value_map(storage);
    int rc = CKPT_OK;

    if (!storage || storage->kind != CKPT_V_DICT)
        return dmd_fail(r, "no storage_data: nothing says where the bytes lie", NULL);
    for (uint64_t i = 0; rc == CKPT_OK && i < map.n; i++)
        rc = dmd_add_entry(r, map.at[i].key, map.at[i].value);
    return rc;
}

/* The entry of a chunk, or of an object (n 0). */
static int dmd_find(dmd_reader *r, const ckpt_text *name, const uint64_t *offset, uint32_t n,
                    ckpt_dcp_place *out)
{
    dmd_key key = {name, offset, n};
    uint32_t at = ckpt_index_find(&r->by_key, dmd_hash(name, offset, n), dmd_same_key, r, &key);

    if (at == CKPT_INDEX_NONE)
        return ckpt_fail(r->err, CKPT_EMISMATCH,
                         "%s: a chunk of %.200s has no entry in storage_data", r->path, name->at);
    r->entry.at[at].used = true;
    *out = r->entry.at[at].place;
    return CKPT_OK;
}

/* ---- state_dict_metadata ---- */

/* The dtype, and requires_grad: the state of TensorProperties is a tuple that begins with both. */
static int dmd_properties(const dmd_reader *r, ckpt_dcp_item *item, const ckpt_value *v)
{
    const ckpt_value *state = v && v->kind == CKPT_V_OBJECT ? v->as.object->state : NULL;
    ckpt_seq s = ckpt_value_seq(state);
    const ckpt_value *dtype = s.n > 0 ? s.at[0] : dmd_attr(v, "dtype"),
                     *grad = s.n > 2 ? s.at[2] : dmd_attr(v, "requires_grad");

    if (dtype && dtype->kind == CKPT_V_GLOBAL)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED, "%s: %.200s has dtype %.100s.%.100s", r->path,
                         item->name.at, dtype->as.global.module.at, dtype->as.global.name.at);
    if (!dtype || dtype->kind != CKPT_V_DTYPE)
        return dmd_fail(r, "no dtype", &item->name);
    item->dtype = dtype->as.dtype;
    item->flags = grad && grad->kind == CKPT_V_BOOL && grad->as.i ? CKPT_TENSOR_GRAD : 0;
    return CKPT_OK;
}

/* The box must lie inside the tensor; ckpt_map_check sees to holes and overlaps. */
static int dmd_inside(const dmd_reader *r, const ckpt_dcp_item *item, const ckpt_dcp_chunk *c)
{
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

static int dmd_chunk(dmd_reader *r, ckpt_dcp_item *item, const ckpt_value *v)
{
    ckpt_dcp_chunk c = {0}, *to;
    uint32_t n_start, n_count;
    int rc;

    if (!dmd_numbers(r, dmd_attr(v, "offsets"), &c.start, &n_start) ||
        !dmd_numbers(r, dmd_attr(v, "sizes"), &c.count, &n_count) || n_start != item->ndim ||
        n_count != item->ndim)
        return dmd_fail(r, "a chunk without offsets and sizes for each axis", &item->name);
    rc = dmd_inside(r, item, &c);
    if (rc == CKPT_OK)
        rc = dmd_find(r, &item->name, c.start, item->ndim, &c.place);
    if (rc != CKPT_OK)
        return rc;
    to = ckpt_vec_push(&r->out->chunk);
    if (!to)
        return ckpt_fail_memory(r->err);
    *to = c;
    item->n++;
    return CKPT_OK;
}

static int dmd_tensor(dmd_reader *r, ckpt_dcp_item *item, const ckpt_value *v)
{
    ckpt_seq chunks = ckpt_value_seq(dmd_attr(v, "chunks"));
    int rc = dmd_properties(r, item, dmd_attr(v, "properties"));

    if (rc == CKPT_OK && !dmd_numbers(r, dmd_attr(v, "size"), &item->shape, &item->ndim))
        rc = dmd_fail(r, "no size", &item->name);
    for (uint64_t i = 0; rc == CKPT_OK && i < chunks.n; i++)
        rc = dmd_chunk(r, item, chunks.at[i]);
    return rc;
}

/* An object: one entry, without a box. */
static int dmd_bytes(dmd_reader *r, ckpt_dcp_item *item)
{
    ckpt_dcp_chunk c = {0}, *to;
    int rc = dmd_find(r, &item->name, NULL, 0, &c.place);

    if (rc != CKPT_OK)
        return rc;
    to = ckpt_vec_push(&r->out->chunk);
    if (!to)
        return ckpt_fail_memory(r->err);
    *to = c;
    item->n = 1;
    return CKPT_OK;
}

static int dmd_item(dmd_reader *r, const ckpt_value *key, const ckpt_value *v)
{
    ckpt_dcp_item item = {.first = r->out->chunk.n}, *to;
    int rc;

    if (key->kind != CKPT_V_STR || v->kind != CKPT_V_OBJECT)
        return dmd_fail(r, "state_dict_metadata has a member that is no description", NULL);
    item.name = key->as.text;
    item.is_tensor = dmd_attr(v, "size") != NULL;
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
    bool ok = v->kind == CKPT_V_TUPLE && s.n > 0;

    for (uint64_t i = 0; ok && i < s.n; i++)
        ok = s.at[i]->kind == CKPT_V_STR || (s.at[i]->kind == CKPT_V_INT && s.at[i]->as.i >= 0);
    return ok;
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
            return dmd_fail(r, "planner_data has a key that is no name", NULL);
        uint32_t hash = ckpt_hash_bytes(key->as.text.at, (size_t)key->as.text.n, 0);
        if (!ckpt_index_add(ix, hash, (uint32_t)i))
            return ckpt_fail_memory(r->err);
    }
    return CKPT_OK;
}

/* In the order of the program's dicts, then what planner_data does not have. */
static int dmd_order(const void *pa, const void *pb)
{
    const ckpt_dcp_item *a = pa, *b = pb;

    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/*
 * Paths of the items; Megatron-Core writes none.  state_dict_metadata has them in the order in
 * which ranks were given them to write, planner_data in that of the program.
 */
static int dmd_paths(dmd_reader *r, const ckpt_value *planner)
{
    ckpt_dict map = ckpt_value_map(planner);
    ckpt_index ix = {0};
    int rc = dmd_index_paths(r, &ix, &map);

    for (size_t i = r->first; rc == CKPT_OK && i < r->out->item.n; i++) {
        ckpt_dcp_item *item = &r->out->item.at[i];
        uint32_t hash = ckpt_hash_bytes(item->name.at, (size_t)item->name.n, 0);
        uint32_t at = ckpt_index_find(&ix, hash, dmd_same_name, &map, &item->name);

        item->order = at;
        item->path = at == CKPT_INDEX_NONE ? NULL : map.at[at].value;
        if (item->path && !dmd_is_path(item->path))
            rc = dmd_fail(r, "planner_data has no path of keys", &item->name);
    }
    ckpt_index_free(&ix);
    if (rc == CKPT_OK && r->out->item.n > r->first + 1)
        qsort(&r->out->item.at[r->first], r->out->item.n - r->first, sizeof *r->out->item.at,
              dmd_order);
    return rc;
}

/* ---- the whole ---- */

static int dmd_read(dmd_reader *r, const ckpt_value *root)
{
    int rc = dmd_entries_read(r, dmd_attr(root, "storage_data"));

    if (rc == CKPT_OK)
        rc = dmd_items(r, dmd_attr(root, "state_dict_metadata"));
    if (rc == CKPT_OK)
        rc = dmd_paths(r, dmd_attr(root, "planner_data"));
    for (size_t i = 0; rc == CKPT_OK && i < r->entry.n; i++) {
        if (r->entry.at[i].used)
            continue;
        r->out->n_loose++;
        r->out->loose = r->entry.at[i].name->at;
    }
    return rc;
}

int ckpt_dcp_metadata_read(ckpt_dcp_metadata *out, ckpt_arena *arena, const char *folder,
                           const char *prefix, ckpt_err *err)
{
    dmd_reader r = {.out = out, .arena = arena, .prefix = prefix, .first = out->item.n, .err = err};
    ckpt_pickle_opts opts = {0};
    ckpt_pickle pickle = {0};
    char *bytes = NULL;
    uint64_t n = 0;
    int rc;

    r.path = ckpt_arena_printf(arena, "%s/%s" CKPT_DCP_METADATA, folder, prefix);
    opts.name = r.path;
    rc = r.path ? ckpt_io_slurp(&bytes, &n, r.path, DMD_MAX_BYTES, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_pickle_read(&pickle, arena, (const uint8_t *)bytes, n, &opts, err);
    ckpt_free(bytes);
    if (rc == CKPT_OK)
        rc = dmd_read(&r, pickle.root);
    ckpt_pickle_free(&pickle);
    ckpt_vec_free(&r.entry);
    ckpt_index_free(&r.by_key);
    ckpt_index_free(&r.by_file);
    return rc;
}

void ckpt_dcp_metadata_free(ckpt_dcp_metadata *m)
{
    ckpt_vec_free(&m->item);
    ckpt_vec_free(&m->chunk);
    ckpt_vec_free(&m->file);
    *m = (ckpt_dcp_metadata){0};
}
