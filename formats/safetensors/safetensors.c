/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c: reads the headers of safetensors files, at least as strictly as the library.
 *
 * Stricter than safetensors 0.8.0 in three points: the header must begin with '{', only spaces may
 * follow its object (both required by the specification), and a name must not occur twice.
 */
#include "formats/safetensors/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/map/extent.h"

/* One tensor's entry; everything is checked except the tiling of the data. */
typedef struct st_entry {
    const ckpt_value *name;
    uint64_t begin, end; /* bytes from the start of the data */
    uint32_t index;      /* index in the header, to make the sort deterministic */
} st_entry;

typedef struct st_reader {
    ckpt_map *map;
    ckpt_io *io;
    ckpt_err *err;
    uint32_t file;
    uint64_t n_header; /* bytes of JSON, padding included */
    uint64_t n_data;   /* bytes after the header */
    uint32_t source;   /* index of the source for the data section */
    ckpt_arena *arena; /* for the parsed header; freed after reading */
    ckpt_value *header;
    const ckpt_value *metadata; /* "__metadata__", or NULL */
    st_entry *entry;
    uint64_t n;
} st_reader;

/* Decode a little-endian number on any machine. */
static uint64_t st_u64(const uint8_t *p)
{
    uint64_t v = 0;

    for (unsigned k = 8; k-- > 0;)
        v = v << 8 | p[k];
    return v;
}

/*
 * Score 95 if the header's length fits the file and it begins with '{'.  Only one of the two means
 * a damaged file; a low score lets other drivers take it first.
 */
static int st_probe(const uint8_t *head, size_t n, uint64_t size)
{
    if (n < 9)
        return 0;
    uint64_t length = st_u64(head);
    bool fits = length >= 2 && length <= CKPT_ST_HEADER_MAX && length <= size - 8;
    if (fits && head[8] == '{')
        return 95;
    if (head[8] == '{')
        return 30;
    return fits && (head[8] == '[' || head[8] == ' ' || head[8] == '\n') ? 10 : 0;
}

/* ---- header ---- */

/* Read and parse the header's JSON. */
static int st_parse(st_reader *r)
{
    char *text = ckpt_alloc((size_t)r->n_header);
    uint64_t n = r->n_header;

    if (!text)
        return ckpt_fail_memory(r->err);
    int rc = ckpt_io_read(r->io, text, n, 8, r->err);
    if (rc == CKPT_OK && text[0] != '{')
        rc = ckpt_fail(r->err, CKPT_EFORMAT, "%s: the header at offset 8 must begin with '{'",
                       r->io->name);
    while (n > 1 && text[n - 1] == ' ')
        n--;
    if (rc == CKPT_OK && (text[n - 1] == '\0' || strchr("\t\r\n", text[n - 1])))
        rc = ckpt_fail(r->err, CKPT_EFORMAT,
                       "%s: byte 0x%02X at offset %" PRIu64
                       ": only spaces may follow the header's object",
                       r->io->name, (unsigned)(uint8_t)text[n - 1], 7 + n);
    ckpt_json_text json = {r->io->name, 8, text, n, CKPT_ST_HEADER_MAX, true};
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(&r->header, r->arena, &json, r->err);
    ckpt_free(text);
    return rc;
}

/* Check the header's length against the file's size. */
static int st_header(st_reader *r)
{
    uint8_t head[8];
    uint64_t size = r->io->size;

    if (size < 8)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes are too few for a safetensors file", r->io->name,
                         size);
    int rc = ckpt_io_read(r->io, head, 8, 0, r->err);
    if (rc != CKPT_OK)
        return rc;
    r->n_header = st_u64(head);
    if (r->n_header == 0 || r->n_header > size - 8)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: header of %" PRIu64 " bytes in a file of %" PRIu64
                         " bytes: cut or damaged",
                         r->io->name, r->n_header, size);
    if (r->n_header > CKPT_ST_HEADER_MAX)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: header of %" PRIu64 " bytes, the format allows %" PRIu64, r->io->name,
                         r->n_header, CKPT_ST_HEADER_MAX);
    r->n_data = size - 8 - r->n_header;
    return st_parse(r);
}

/* ---- entries ---- */

/* Fail with a message about one tensor. */
static int st_bad(st_reader *r, const st_entry *e, const char *what)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: tensor \"%.200s\": %s", r->io->name,
                     e->name->as.text.at, what);
}

/* Read a list of at most n integers >= 0. */
static bool st_numbers(const ckpt_value *list, uint64_t *out, uint64_t n)
{
    if (list->as.seq.n > n)
        return false;
    for (uint64_t k = 0; k < list->as.seq.n; k++) {
        const ckpt_value *v = list->as.seq.at[k];
        if (v->kind != CKPT_V_INT || v->as.i < 0)
            return false;
        out[k] = (uint64_t)v->as.i;
    }
    return true;
}

/* Read dtype, shape and data_offsets of an entry; other keys are ignored, as the library does. */
static int st_fields(st_reader *r, st_entry *e, const ckpt_value *v, ckpt_tensor *like,
                     uint64_t *shape)
{
    const ckpt_value *dtype = ckpt_value_get(v, "dtype"), *list = ckpt_value_get(v, "shape");
    const ckpt_value *bounds = ckpt_value_get(v, "data_offsets");
    uint64_t offset[2] = {0, 0};

    if (v->kind != CKPT_V_DICT)
        return st_bad(r, e, "its entry is not an object");
    if (!dtype || dtype->kind != CKPT_V_STR)
        return st_bad(r, e, "\"dtype\" is missing or not a string");
    like->dtype = ckpt_dtype_from_safetensors(dtype->as.text.at, (size_t)dtype->as.text.n);
    if (like->dtype == CKPT_DTYPE_NONE)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: tensor \"%.200s\": dtype \"%.40s\" is unknown",
                         r->io->name, e->name->as.text.at, dtype->as.text.at);
    if (!list || list->kind != CKPT_V_LIST || !st_numbers(list, shape, CKPT_MAX_DIM))
        return st_bad(r, e, "\"shape\" must be a list of at most 64 whole numbers >= 0");
    if (!bounds || bounds->kind != CKPT_V_LIST || bounds->as.seq.n != 2 ||
        !st_numbers(bounds, offset, 2))
        return st_bad(r, e, "\"data_offsets\" must be a list of two whole numbers >= 0");
    like->ndim = (uint32_t)list->as.seq.n;
    like->shape = shape;
    e->begin = offset[0];
    e->end = offset[1];
    return CKPT_OK;
}

/* Check an entry's byte range: inside the data, and as long as shape and dtype require. */
static int st_range(st_reader *r, const st_entry *e, ckpt_tensor *like)
{
    uint64_t n_bytes = 0;

    if (!ckpt_shape_elems(like->shape, like->ndim, &like->n_elems))
        return st_bad(r, e, "its shape overflows");
    if (!ckpt_dtype_bytes(like->dtype, like->n_elems, &n_bytes))
        return st_bad(r, e, "its elements do not fill whole bytes, or are too many");
    if (e->end < e->begin || e->end > r->n_data)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: tensor \"%.200s\": bytes %" PRIu64 " to %" PRIu64
                         " are not within the %" PRIu64 " bytes of data: cut or damaged",
                         r->io->name, e->name->as.text.at, e->begin, e->end, r->n_data);
    if (e->end - e->begin != n_bytes)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: tensor \"%.200s\": shape and dtype need %" PRIu64
                         " bytes, its offsets give %" PRIu64,
                         r->io->name, e->name->as.text.at, n_bytes, e->end - e->begin);
    return CKPT_OK;
}

/* Check one entry and add its tensor. */
static int st_tensor(st_reader *r, st_entry *e, const ckpt_value *v)
{
    uint64_t shape[CKPT_MAX_DIM];
    ckpt_tensor like = {0}, *t = NULL;
    int rc = st_fields(r, e, v, &like, shape);

    if (rc == CKPT_OK)
        rc = st_range(r, e, &like);
    if (rc == CKPT_OK)
        rc = ckpt_map_add(r->map, e->name->as.text.at, e->name->as.text.n, &like, &t, r->err);
    if (rc == CKPT_OK && e->end > e->begin)
        rc = ckpt_map_back_whole(r->map, t, r->source, e->begin, r->err);
    return rc;
}

/*
 * For qsort: by offset.  A tensor without bytes sorts before the tensor at the same offset, as in
 * the library.
 */
static int st_order(const void *pa, const void *pb)
{
    const st_entry *a = pa, *b = pb;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Check that the tensors cover the data section without holes and overlaps. */
static int st_tiling(st_reader *r)
{
    const st_entry *last = NULL;
    uint64_t at = 0;

    if (r->n > 0)
        qsort(r->entry, (size_t)r->n, sizeof *r->entry, st_order);
    for (uint64_t i = 0; i < r->n; last = &r->entry[i++]) {
        const st_entry *e = &r->entry[i];
        if (e->begin != at)
            return ckpt_fail(r->err, CKPT_EFORMAT,
                             "%s: tensor \"%.200s\" begins at byte %" PRIu64
                             " of the data, %s%.200s%s ends at %" PRIu64 ": they %s",
                             r->io->name, e->name->as.text.at, e->begin, last ? "\"" : "the header",
                             last ? last->name->as.text.at : "", last ? "\"" : "", at,
                             e->begin < at ? "overlap" : "leave a hole");
        at = e->end;
    }
    if (at != r->n_data)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: %" PRIu64 " bytes of data, but its tensors take %" PRIu64
                         ": the file is cut or has extra data",
                         r->io->name, r->n_data, at);
    return CKPT_OK;
}

/*
 * Add all tensors in the header's order.  One source covers the whole data section; extents are
 * offsets in it.
 */
static int st_entries(st_reader *r)
{
    ckpt_dict all = r->header->as.map;
    ckpt_source data = {.kind = CKPT_SOURCE_FILE,
                        .file = r->file,
                        .at = 8 + r->n_header,
                        .n_stored = r->n_data,
                        .n_bytes = r->n_data};
    int rc = ckpt_map_add_source(r->map, &data, &r->source, r->err);

    r->entry = ckpt_arena_array(r->arena, all.n, sizeof *r->entry);
    if (rc == CKPT_OK && !r->entry)
        rc = ckpt_fail_memory(r->err);
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        if (ckpt_value_is(all.at[i].key, CKPT_ST_METADATA)) {
            r->metadata = all.at[i].value;
            continue;
        }
        st_entry *e = &r->entry[r->n];
        *e = (st_entry){.name = all.at[i].key, .index = (uint32_t)r->n};
        rc = st_tensor(r, e, all.at[i].value);
        r->n++;
    }
    return rc == CKPT_OK ? st_tiling(r) : rc;
}

/* ---- metadata ---- */

/*
 * Add a tied tensor for a pair "removed name": "kept name", which huggingface_hub writes for a
 * tensor stored once.  *done: true if the pair was such an entry.
 */
static int st_alias(st_reader *r, const ckpt_pair *p, bool *done)
{
    const ckpt_text name = p->key->as.text, kept = p->value->as.text;
    size_t at = ckpt_map_index(r->map, kept.at, (size_t)kept.n);
    ckpt_tensor like, *t = NULL;

    *done = false;
    if (at == SIZE_MAX || ckpt_value_is(p->key, "format") || !ckpt_name_ok(name.at, name.n) ||
        ckpt_map_index(r->map, name.at, (size_t)name.n) != SIZE_MAX)
        return CKPT_OK;
    const ckpt_tensor *owner = r->map->tensors.at[at];
    if (owner->owner)
        return CKPT_OK;
    like = *owner;
    like.extent = NULL;
    like.n_extents = 0;
    like.twin = NULL;
    like.owner = NULL;
    int rc = ckpt_map_add(r->map, name.at, name.n, &like, &t, r->err);
    if (rc == CKPT_OK) {
        t->owner = owner;
        *done = true;
    }
    return rc;
}

/*
 * Copy string pairs into the map's metadata, and add tied tensors.  A null "__metadata__" counts as
 * absent, as in the library.
 */
static int st_metadata(st_reader *r)
{
    ckpt_arena *a = r->map->arena;
    int rc = CKPT_OK;

    if (!r->metadata || r->metadata->kind == CKPT_V_NONE)
        return CKPT_OK;
    if (r->metadata->kind != CKPT_V_DICT)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: \"__metadata__\" is not an object",
                         r->io->name);
    ckpt_dict all = r->metadata->as.map;
    for (uint64_t i = 0; i < all.n; i++) {
        if (all.at[i].value->kind != CKPT_V_STR)
            return ckpt_fail(r->err, CKPT_EFORMAT,
                             "%s: \"__metadata__\": the value of \"%.200s\" is not a string",
                             r->io->name, all.at[i].key->as.text.at);
    }
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_pair *p = &all.at[i];
        bool done = false;
        rc = st_alias(r, p, &done);
        if (rc != CKPT_OK || done)
            continue;
        ckpt_value *key = ckpt_value_str(a, p->key->as.text.at, p->key->as.text.n);
        ckpt_value *text = ckpt_value_str(a, p->value->as.text.at, p->value->as.text.n);
        if (!key || !text || !ckpt_dict_add(a, &r->map->metadata, key, text))
            rc = ckpt_fail_memory(r->err);
    }
    return rc;
}

/* ckpt_format.read: fills the map from the header, which is freed afterwards. */
static int st_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    st_reader r = {.map = map, .io = io, .err = err, .file = file, .arena = ckpt_arena_new(0)};
    int rc = r.arena ? st_header(&r) : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = st_entries(&r); // the root is an object, because the header begins with '{'
    if (rc == CKPT_OK)
        rc = st_metadata(&r);
    ckpt_arena_free(r.arena);
    return rc;
}

const ckpt_format ckpt_format_safetensors = {
    .is =
        {
            .name = "safetensors",
            .suffixes = ".safetensors",
            .note = "as safetensors 0.8.0; 22 dtypes, header up to 100 MB",
            .caps = CKPT_CAN_READ | CKPT_CAN_WRITE,
        },
    .probe = st_probe,
    .read = st_read,
    .place = ckpt_safetensors_place,
};
