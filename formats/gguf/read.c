/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c: reads header, keys and tensors of a GGUF file.
 *
 * Lengths and counts are compared with the bytes left in the file before memory is allocated for
 * them. Keys are stored twice: in the map's tree of values, and in its list of keys, because a
 * writer needs their types.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/map/extent.h"

enum {
    GRD_BUFFER = 64 * 1024,
    GRD_DEPTH = 4,
    GRD_NAME = 1024 /* limit of a key's name in bytes */
};

typedef struct grd_reader {
    ckpt_map *map;
    ckpt_io *io;
    ckpt_err *err;
    uint32_t file;
    bool swap;          /* the file has the other byte order */
    uint64_t at;        /* next byte of the file */
    uint64_t buffer_at; /* file offset of the buffer */
    size_t n_buffer;
    uint64_t n_tensors, n_keys, align;
    bool nested;      /* a key has nested arrays */
    ckpt_index index; /* the map's keys by name, to detect duplicates */
    uint32_t source;  /* index of the source for the data section */
    uint8_t buffer[GRD_BUFFER];
} grd_reader;

/* Size in bytes of a value of each type; 0: variable. */
static const uint8_t grd_size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static uint64_t grd_left(const grd_reader *r)
{
    return r->io->size - r->at;
}

static int grd_cut(const grd_reader *r, const char *what)
{
    return ckpt_fail(r->err, CKPT_EFORMAT,
                     "%s: %s at byte %" PRIu64 " would end beyond the file of %" PRIu64
                     " bytes: cut or damaged",
                     r->io->name, what, r->at, r->io->size);
}

/* Read the next n bytes, which must be inside the file. */
static int grd_bytes(grd_reader *r, void *to, uint64_t n)
{
    uint8_t *out = to;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && n > 0) {
        uint64_t skip = r->at - r->buffer_at;

        if (r->at >= r->buffer_at && skip < r->n_buffer) {
            uint64_t some = r->n_buffer - skip < n ? r->n_buffer - skip : n;

            memcpy(out, r->buffer + skip, (size_t)some);
            out += some;
            r->at += some;
            n -= some;
            continue;
        }
        r->buffer_at = r->at;
        r->n_buffer = (size_t)(grd_left(r) < GRD_BUFFER ? grd_left(r) : GRD_BUFFER);
        rc = ckpt_io_read(r->io, r->buffer, r->n_buffer, r->at, r->err);
    }
    return rc;
}

/* Read an integer of n bytes. */
static int grd_uint(grd_reader *r, unsigned n, uint64_t *out, const char *what)
{
    assert(n > 0 && n <= 8);
    uint8_t b[8] = {0};
    int rc = grd_left(r) < n ? grd_cut(r, what) : grd_bytes(r, b, n);

    *out = 0;
    for (unsigned i = 0; rc == CKPT_OK && i < n; i++)
        *out |= (uint64_t)b[r->swap ? n - 1 - i : i] << 8 * i;
    return rc;
}

/* Read a string of at most `most` bytes into the arena. */
static int grd_string(grd_reader *r, uint64_t most, const char **out, uint64_t *n, const char *what)
{
    char *text;
    int rc = grd_uint(r, 8, n, what);

    if (rc != CKPT_OK)
        return rc;
    if (*n > grd_left(r))
        return grd_cut(r, what);
    if (*n > most)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: %s at byte %" PRIu64 " is %" PRIu64 " bytes long, at most %" PRIu64,
                         r->io->name, what, r->at, *n, most);
    text = ckpt_arena_array(r->map->arena, *n + 1, 1);
    if (!text)
        return ckpt_fail_memory(r->err);
    text[*n] = 0;
    *out = text;
    return grd_bytes(r, text, *n);
}

/* ---- values ---- */

static ckpt_value *grd_whole(grd_reader *r, uint64_t v)
{
    ckpt_value *out;

    if (v <= INT64_MAX)
        return ckpt_value_int(r->map->arena, (int64_t)v);
    // above INT64_MAX: a LONG in two's complement, with an additional byte for the sign
    uint8_t b[9] = {0};

    for (unsigned i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    out = ckpt_value_str(r->map->arena, (const char *)b, sizeof b);
    if (out)
        out->kind = CKPT_V_LONG;
    return out;
}

/* Read a number or boolean of fixed size. */
static int grd_number(grd_reader *r, unsigned type, ckpt_value **out)
{
    ckpt_arena *a = r->map->arena;
    uint64_t v;
    uint32_t word;
    double d;
    float f;
    int rc = grd_uint(r, grd_size[type], &v, "a value");

    if (rc != CKPT_OK)
        return rc;
    switch (type) {
    case CKPT_KEY_F32:
        word = (uint32_t)v;
        memcpy(&f, &word, sizeof f);
        *out = ckpt_value_float(a, (double)f);
        break;
    case CKPT_KEY_F64:
        memcpy(&d, &v, sizeof d);
        *out = ckpt_value_float(a, d);
        break;
    case CKPT_KEY_BOOL:
        if (v > 1)
            return ckpt_fail(r->err, CKPT_EFORMAT,
                             "%s: a boolean before byte %" PRIu64 " is %" PRIu64
                             ", neither 0 nor 1",
                             r->io->name, r->at, v);
        *out = ckpt_value_bool(a, v);
        break;
    case CKPT_KEY_I8:
        *out = ckpt_value_int(a, (int8_t)v);
        break;
    case CKPT_KEY_I16:
        *out = ckpt_value_int(a, (int16_t)v);
        break;
    case CKPT_KEY_I32:
        *out = ckpt_value_int(a, (int32_t)v);
        break;
    case CKPT_KEY_I64:
        *out = ckpt_value_int(a, (int64_t)v);
        break;
    default:
        *out = grd_whole(r, v);
        break;
    }
    return *out ? CKPT_OK : ckpt_fail_memory(r->err);
}

static int grd_text(grd_reader *r, ckpt_value **out)
{
    const char *text;
    uint64_t n;
    int rc = grd_string(r, UINT64_MAX, &text, &n, "a string");

    if (rc != CKPT_OK)
        return rc;
    *out = ckpt_value_new(r->map->arena, ckpt_utf8_ok(text, n) ? CKPT_V_STR : CKPT_V_BYTES);
    if (!*out)
        return ckpt_fail_memory(r->err);
    (*out)->as.text = (ckpt_text){text, n};
    return CKPT_OK;
}

static int grd_bad_type(const grd_reader *r, uint64_t type)
{
    return ckpt_fail(r->err, CKPT_EFORMAT,
                     "%s: unknown type %" PRIu64 " of a value before byte %" PRIu64
                     ": expected 0 to 12",
                     r->io->name, type, r->at);
}

static int grd_array(grd_reader *r, unsigned depth, ckpt_value **out, uint8_t *type);

/* Read a value of any type; *of: the item type of an array. */
static int grd_value(grd_reader *r, uint64_t type, unsigned depth, ckpt_value **out, uint8_t *of)
{
    if (type >= sizeof grd_size)
        return grd_bad_type(r, type);
    if (type == CKPT_KEY_STRING)
        return grd_text(r, out);
    if (type == CKPT_GGUF_ARRAY)
        return grd_array(r, depth + 1, out, of);
    return grd_number(r, (unsigned)type, out);
}

/* Read an array; fail with CKPT_ELIMIT if arrays are nested more than GRD_DEPTH deep. */
static int grd_array(grd_reader *r, unsigned depth, ckpt_value **out, uint8_t *type)
{
    uint64_t of, n, least;
    uint8_t inner = 0;
    int rc = grd_uint(r, 4, &of, "an array");

    if (rc == CKPT_OK)
        rc = grd_uint(r, 8, &n, "an array");
    if (rc != CKPT_OK)
        return rc;
    if (of >= sizeof grd_size)
        return grd_bad_type(r, of);
    if (depth > GRD_DEPTH)
        return ckpt_fail(r->err, CKPT_ELIMIT,
                         "%s: arrays in arrays more than %d deep at byte %" PRIu64, r->io->name,
                         (int)GRD_DEPTH, r->at);
    // least size of an item: a string has a length, an array has a type and a length
    least = grd_size[of] ? grd_size[of] : of == CKPT_KEY_STRING ? 8 : 12;
    if (n > grd_left(r) / least)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: an array of %" PRIu64 " items before byte %" PRIu64
                         ", of which %" PRIu64 " bytes are left: cut or damaged",
                         r->io->name, n, r->at, grd_left(r));
    *type = (uint8_t)of;
    r->nested = r->nested || of == CKPT_GGUF_ARRAY;
    *out = ckpt_value_new(r->map->arena, CKPT_V_LIST);
    ckpt_value **item = ckpt_arena_array(r->map->arena, n, sizeof *item);
    if (!*out || !item)
        return ckpt_fail_memory(r->err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = grd_value(r, of, depth, &item[i], &inner);
    (*out)->as.seq = (ckpt_seq){.at = item, .n = n};
    return rc;
}

/* ---- keys ---- */

/* Hash index callback: compare the name of key `number`. */
static bool grd_same(const void *ctx, uint32_t number, const void *name)
{
    const ckpt_dict *all = ctx;

    return strcmp(all->at[number].key->as.text.at, name) == 0;
}

/* Index the key that is added next; refuse a duplicate. */
static int grd_index(grd_reader *r, const char *name)
{
    const ckpt_dict *all = &r->map->values->as.map;
    uint32_t hash = ckpt_hash_bytes(name, strlen(name), 0);

    if (ckpt_index_find(&r->index, hash, grd_same, all, name) != CKPT_INDEX_NONE)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: key %.200s is there twice", r->io->name, name);
    return ckpt_index_add(&r->index, hash, (uint32_t)all->n) ? CKPT_OK : ckpt_fail_memory(r->err);
}

static int grd_key(grd_reader *r)
{
    ckpt_arena *a = r->map->arena;
    ckpt_key key = {0}, *slot;
    ckpt_value *value = NULL;
    uint64_t n, type;
    uint8_t of = 0;
    bool nested;
    int rc = grd_string(r, GRD_NAME, &key.name, &n, "a key");

    if (rc != CKPT_OK)
        return rc;
    if (n == 0 || memchr(key.name, 0, (size_t)n) || !ckpt_utf8_ok(key.name, n))
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: a key before byte %" PRIu64 " is empty or not UTF-8", r->io->name,
                         r->at);
    rc = grd_index(r, key.name);
    if (rc == CKPT_OK)
        rc = grd_uint(r, 4, &type, "a key's type");
    r->nested = false;
    if (rc == CKPT_OK)
        rc = grd_value(r, type, 0, &value, &of);
    if (rc != CKPT_OK)
        return rc;
    nested = r->nested;
    if (!ckpt_dict_add_cstr(a, &r->map->values->as.map, key.name, value))
        return ckpt_fail_memory(r->err);
    if (nested)
        return ckpt_map_note(
            r->map, CKPT_INFO, r->err,
            "%s: key %.200s is an array of arrays, which ckpt does not write to GGUF", r->io->name,
            key.name);
    key.list = type == CKPT_GGUF_ARRAY;
    key.type = key.list ? of : (uint8_t)type;
    key.value = value;
    slot = ckpt_vec_push(&r->map->keys);
    if (!slot)
        return ckpt_fail_memory(r->err);
    *slot = key;
    return CKPT_OK;
}

static int grd_alignment(grd_reader *r)
{
    const ckpt_key *k = ckpt_gguf_key(r->map, CKPT_GGUF_ALIGNMENT);

    r->align = CKPT_GGUF_ALIGN;
    if (!k)
        return CKPT_OK;
    if (k->type != CKPT_KEY_U32 || k->list || k->value->as.i <= 0 ||
        (k->value->as.i & (k->value->as.i - 1)) != 0)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: " CKPT_GGUF_ALIGNMENT " is not a power of two",
                         r->io->name);
    r->align = (uint64_t)k->value->as.i;
    return CKPT_OK;
}

/* ---- tensors ---- */

/* A tensor and its offset in the data. */
typedef struct grd_tensor {
    ckpt_tensor *t;
    uint64_t offset;
} grd_tensor;

/* Round up to the alignment; false on overflow. */
static bool grd_pad(const grd_reader *r, uint64_t *at)
{
    assert(r->align > 0 && (r->align & (r->align - 1)) == 0);
    return ckpt_add(*at, r->align - 1, at) && ((*at &= ~(r->align - 1)), true);
}

static int grd_shape(grd_reader *r, const char *name, ckpt_tensor *like, uint64_t shape[])
{
    uint64_t n_dims;
    int rc = grd_uint(r, 4, &n_dims, "a tensor");

    if (rc != CKPT_OK)
        return rc;
    if (n_dims > CKPT_GGUF_DIMS)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: tensor %.200s has %" PRIu64 " axes, at most %d are supported",
                         r->io->name, name, n_dims, (int)CKPT_GGUF_DIMS);
    like->ndim = (uint32_t)n_dims;
    like->shape = shape;
    // the fastest axis comes first in the file
    for (uint32_t i = like->ndim; rc == CKPT_OK && i-- > 0;)
        rc = grd_uint(r, 8, &shape[i], "a tensor");
    for (uint32_t i = 0; rc == CKPT_OK && i < like->ndim; i++) {
        if (shape[i] > INT64_MAX)
            rc = ckpt_fail(r->err, CKPT_EFORMAT,
                           "%s: tensor %.200s has an axis of %" PRIu64
                           " elements, which is too large",
                           r->io->name, name, shape[i]);
    }
    return rc;
}

static int grd_type(grd_reader *r, const char *name, ckpt_tensor *like)
{
    uint64_t type, n_bytes, row;
    int rc = grd_uint(r, 4, &type, "a tensor");

    if (rc != CKPT_OK)
        return rc;
    like->dtype = type <= UINT32_MAX ? ckpt_gguf_dtype((uint32_t)type) : CKPT_DTYPE_NONE;
    if (like->dtype == CKPT_DTYPE_NONE)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: tensor %.200s has type %" PRIu64
                         ", which ggml does not have or has removed",
                         r->io->name, name, type);
    row = like->ndim ? like->shape[like->ndim - 1] : 1;
    if (row % ckpt_dtype_get(like->dtype)->per != 0)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: tensor %.200s: its rows of %" PRIu64
                         " elements cannot be divided into %s's blocks of %u",
                         r->io->name, name, row, ckpt_dtype_name(like->dtype),
                         (unsigned)ckpt_dtype_get(like->dtype)->per);
    if (r->swap && ckpt_dtype_packed(like->dtype))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "%s: tensor %.200s: blocks of %s in a big-endian file; "
                         "gguf_convert_endian.py of llama.cpp makes it little-endian",
                         r->io->name, name, ckpt_dtype_name(like->dtype));
    if (!ckpt_shape_elems(like->shape, like->ndim, &like->n_elems) ||
        !ckpt_dtype_bytes(like->dtype, like->n_elems, &n_bytes) || n_bytes > INT64_MAX)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: tensor %.200s: its shape overflows",
                         r->io->name, name);
    return CKPT_OK;
}

static int grd_tensor_info(grd_reader *r, grd_tensor *out)
{
    uint64_t shape[CKPT_GGUF_DIMS], n;
    ckpt_tensor like = {0};
    const char *name;
    int rc = grd_string(r, CKPT_GGUF_NAME - 1, &name, &n, "a tensor's name");

    if (rc == CKPT_OK && n == 0)
        rc = ckpt_fail(r->err, CKPT_EFORMAT, "%s: a tensor without a name before byte %" PRIu64,
                       r->io->name, r->at);
    if (rc == CKPT_OK)
        rc = grd_shape(r, name, &like, shape);
    if (rc == CKPT_OK)
        rc = grd_type(r, name, &like);
    if (rc == CKPT_OK)
        rc = grd_uint(r, 8, &out->offset, "a tensor");
    return rc == CKPT_OK ? ckpt_map_add(r->map, name, n, &like, &out->t, r->err) : rc;
}

/*
 * Map a tensor to the common source, or to its own source if bytes are swapped, because the size of
 * the swapped units depends on the dtype.
 */
static int grd_back(grd_reader *r, const grd_tensor *g, uint64_t data, uint64_t *next)
{
    ckpt_source s = {.kind = CKPT_SOURCE_FILE, .file = r->file, .name = g->t->name};
    uint64_t end;
    uint32_t index;
    int rc;

    (void)ckpt_dtype_bytes(g->t->dtype, g->t->n_elems, &s.n_bytes); // no overflow: checked before
    if (g->offset != *next)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: tensor %.200s begins at byte %" PRIu64 " of the data, %" PRIu64
                         " was expected",
                         r->io->name, g->t->name, g->offset, *next);
    if (!ckpt_add(data, g->offset, &s.at) || !ckpt_add(s.at, s.n_bytes, &end) || end > r->io->size)
        return ckpt_fail(r->err, CKPT_EFORMAT,
                         "%s: tensor %.200s of %" PRIu64 " bytes ends beyond the file of %" PRIu64
                         ": cut or damaged",
                         r->io->name, g->t->name, s.n_bytes, r->io->size);
    *next += s.n_bytes;
    if (!grd_pad(r, next))
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: offsets overflow", r->io->name);
    if (s.n_bytes == 0)
        return CKPT_OK;
    if (!r->swap)
        return ckpt_map_back_whole(r->map, g->t, r->source, g->offset, r->err);
    s.n_stored = s.n_bytes;
    s.swap = ckpt_dtype_get(g->t->dtype)->swap;
    rc = ckpt_map_add_source(r->map, &s, &index, r->err);
    return rc == CKPT_OK ? ckpt_map_back_whole(r->map, g->t, index, 0, r->err) : rc;
}

/* Add the whole data section as one source. */
static int grd_data(grd_reader *r, uint64_t data)
{
    ckpt_source s = {.kind = CKPT_SOURCE_FILE, .file = r->file, .at = data};

    s.n_bytes = s.n_stored = data < r->io->size ? r->io->size - data : 0;
    return ckpt_map_add_source(r->map, &s, &r->source, r->err);
}

static int grd_tensors(grd_reader *r)
{
    grd_tensor *list = ckpt_alloc((size_t)(r->n_tensors ? r->n_tensors : 1) * sizeof *list);
    uint64_t data, next = 0;
    int rc = list ? CKPT_OK : ckpt_fail_memory(r->err);

    for (uint64_t i = 0; rc == CKPT_OK && i < r->n_tensors; i++)
        rc = grd_tensor_info(r, &list[i]);
    data = r->at;
    if (rc == CKPT_OK && !grd_pad(r, &data))
        rc = ckpt_fail(r->err, CKPT_EFORMAT, "%s: offsets overflow", r->io->name);
    if (rc == CKPT_OK && !r->swap)
        rc = grd_data(r, data);
    for (uint64_t i = 0; rc == CKPT_OK && i < r->n_tensors; i++)
        rc = grd_back(r, &list[i], data, &next);
    if (rc == CKPT_OK && r->n_tensors > 0 && r->io->size - data > next)
        rc = ckpt_map_note(r->map, CKPT_WARNING, r->err,
                           "%s: %" PRIu64 " bytes after the last tensor are not read", r->io->name,
                           r->io->size - data - next);
    ckpt_free(list);
    return rc;
}

/* ---- the file ---- */

static int grd_header(grd_reader *r)
{
    uint64_t version;
    int rc;

    r->at = 4; // the magic, checked by the probe
    rc = grd_uint(r, 4, &version, "the header");
    if (rc == CKPT_OK && (version & 0xffff) == 0) {
        r->swap = true;
        version = (version >> 24 & 0xff) | (version >> 8 & 0xff00);
    }
    if (rc != CKPT_OK)
        return rc;
    if (version != 2 && version != 3)
        return ckpt_fail(r->err, version == 1 ? CKPT_EUNSUPPORTED : CKPT_EFORMAT,
                         "%s: GGUF version %" PRIu64 " is not supported: expected 2 or 3",
                         r->io->name, version);
    rc = ckpt_map_fact_int(r->map, "version", (int64_t)version, r->err);
    if (rc == CKPT_OK && r->swap)
        rc = ckpt_map_fact(r->map, r->err, "byte order", "big-endian");
    if (rc == CKPT_OK)
        rc = grd_uint(r, 8, &r->n_tensors, "the header");
    if (rc == CKPT_OK)
        rc = grd_uint(r, 8, &r->n_keys, "the header");
    // least size: a key has a length, a byte, a type and a value; a tensor a length, a type and an
    // offset
    if (rc == CKPT_OK && (r->n_keys > grd_left(r) / 14 || r->n_tensors > grd_left(r) / 24))
        rc = ckpt_fail(r->err, CKPT_EFORMAT,
                       "%s: %" PRIu64 " keys and %" PRIu64 " tensors in a file of %" PRIu64
                       " bytes: cut or damaged",
                       r->io->name, r->n_keys, r->n_tensors, r->io->size);
    return rc;
}

/* Describe an importance matrix, which is no model. */
static int grd_importance(grd_reader *r)
{
    const ckpt_key *type = ckpt_gguf_key(r->map, "general.type");
    uint64_t chunks = 0, size = 0;

    if (!type || type->list || !ckpt_value_is(type->value, "imatrix"))
        return CKPT_OK;
    r->map->other = "an importance matrix, not a model: --imatrix quantizes a model by it";
    (void)ckpt_gguf_number(r->map, "imatrix.chunk_count", &chunks);
    (void)ckpt_gguf_number(r->map, "imatrix.chunk_size", &size);
    return ckpt_map_fact(r->map, r->err, "importance matrix",
                         "of %" PRIu64 " weights, by %" PRIu64 " chunks of %" PRIu64 " tokens",
                         r->n_tensors / 2, chunks, size);
}

/* Add the facts for `ckpt info`. */
static int grd_facts(grd_reader *r)
{
    const ckpt_key *k = ckpt_gguf_key(r->map, "general.architecture");
    int rc = CKPT_OK;

    if (k && k->type == CKPT_KEY_STRING && !k->list && k->value->kind == CKPT_V_STR)
        rc = ckpt_map_fact(r->map, r->err, "architecture", "%.200s", k->value->as.text.at);
    if (rc == CKPT_OK)
        rc = ckpt_map_fact_int(r->map, "keys", (int64_t)r->n_keys, r->err);
    return rc == CKPT_OK ? grd_importance(r) : rc;
}

int ckpt_gguf_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err)
{
    assert(map && io && file < map->files.n);
    grd_reader *r = ckpt_alloc(sizeof *r);
    int rc;

    if (!r)
        return ckpt_fail_memory(err);
    r->map = map;
    r->io = io;
    r->err = err;
    r->file = file;
    map->values = ckpt_value_new(map->arena, CKPT_V_DICT);
    rc = map->values ? grd_header(r) : ckpt_fail_memory(err);
    for (uint64_t i = 0; rc == CKPT_OK && i < r->n_keys; i++)
        rc = grd_key(r);
    if (rc == CKPT_OK)
        rc = grd_alignment(r);
    if (rc == CKPT_OK)
        rc = grd_tensors(r);
    if (rc == CKPT_OK)
        rc = grd_facts(r);
    ckpt_index_free(&r->index);
    ckpt_free(r);
    return rc;
}
