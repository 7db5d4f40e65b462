/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: lays out a GGUF file: keys, tensors in their order, data.
 *
 * Like ggml's gguf_write_to_file: version 3, little-endian, the data and every tensor padded with
 * zeros to the alignment, the last one too.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/gguf/model.h"
#include "libckpt/base/dtype.h"

enum { GW_ALIGN = 65536 /* limit, because padding is made in memory */ };

typedef struct gw_writer {
    ckpt_map *to;
    uint32_t file;
    ckpt_err *err;
    ckpt_bytes head;
    uint64_t align;
} gw_writer;

static bool gw_uint(gw_writer *w, uint64_t v, unsigned n)
{
    uint8_t b[8];

    for (unsigned i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    return ckpt_bytes_add(&w->head, b, n);
}

static bool gw_string(gw_writer *w, const char *s, uint64_t n)
{
    return gw_uint(w, n, 8) && ckpt_bytes_add(&w->head, s, (size_t)n);
}

/* ---- keys ---- */

/* Bits of an integer type; 0 for other types. */
static unsigned gw_bits(uint8_t type, bool *is_signed)
{
    static const uint8_t bits[] = {8, 8, 16, 16, 32, 32, 0, 0, 0, 0, 64, 64};

    *is_signed = type & 1;
    return type < sizeof bits ? bits[type] : 0;
}

/* Write an integer if it fits its type; a LONG has more than 63 bits. */
static bool gw_whole(gw_writer *w, uint8_t type, const ckpt_value *v)
{
    bool is_signed;
    unsigned bits = gw_bits(type, &is_signed);

    if (v->kind == CKPT_V_LONG && bits == 64 && !is_signed && v->as.text.n == 9 &&
        v->as.text.at[8] == 0)
        return ckpt_bytes_add(&w->head, v->as.text.at, 8);
    if (v->kind != CKPT_V_INT || bits == 0)
        return false;
    if (is_signed ? bits < 64 && (v->as.i < -(INT64_C(1) << (bits - 1)) ||
                                  v->as.i >= INT64_C(1) << (bits - 1))
                  : v->as.i < 0 || (bits < 64 && (uint64_t)v->as.i >> bits != 0))
        return false;
    return gw_uint(w, (uint64_t)v->as.i, bits / 8);
}

static bool gw_real(gw_writer *w, uint8_t type, const ckpt_value *v)
{
    double d = v->kind == CKPT_V_INT ? (double)v->as.i : v->as.f;
    float f = (float)d;
    uint32_t word;
    uint64_t wide;

    if (v->kind != CKPT_V_INT && v->kind != CKPT_V_FLOAT)
        return false;
    memcpy(&word, &f, sizeof word);
    memcpy(&wide, &d, sizeof wide);
    return type == CKPT_KEY_F32 ? gw_uint(w, word, 4) : gw_uint(w, wide, 8);
}

/* Write one value; false: it does not match the type, or no memory. */
static bool gw_value(gw_writer *w, uint8_t type, const ckpt_value *v)
{
    switch (type) {
    case CKPT_KEY_STRING:
        return (v->kind == CKPT_V_STR || v->kind == CKPT_V_BYTES) &&
               gw_string(w, v->as.text.at, v->as.text.n);
    case CKPT_KEY_BOOL:
        return v->kind == CKPT_V_BOOL && gw_uint(w, v->as.i != 0, 1);
    case CKPT_KEY_F32:
    case CKPT_KEY_F64:
        return gw_real(w, type, v);
    default:
        return gw_whole(w, type, v);
    }
}

static int gw_key(gw_writer *w, const ckpt_key *k)
{
    ckpt_seq items = ckpt_value_seq(k->value);
    bool ok = gw_string(w, k->name, strlen(k->name)) &&
              gw_uint(w, k->list ? CKPT_GGUF_ARRAY : k->type, 4);

    if (k->list)
        ok = ok && gw_uint(w, k->type, 4) && gw_uint(w, items.n, 8);
    for (uint64_t i = 0; ok && k->list && i < items.n; i++)
        ok = gw_value(w, k->type, items.at[i]);
    if (ok && !k->list)
        ok = gw_value(w, k->type, k->value);
    return ok ? CKPT_OK
              : ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                          "key %.200s: its value does not match its type, or memory is exhausted",
                          k->name);
}

/* ---- tensors ---- */

static bool gw_pad(const gw_writer *w, uint64_t *at)
{
    return ckpt_add(*at, w->align - 1, at) && ((*at &= ~(w->align - 1)), true);
}

static int gw_check(const gw_writer *w, const ckpt_tensor *t)
{
    const ckpt_dtype_info *type = ckpt_dtype_get(t->dtype);
    uint64_t row = t->ndim ? t->shape[t->ndim - 1] : 1;

    if (ckpt_gguf_type(t->dtype) < 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: ggml has no type for %s; --dtype converts floats, "
                         "--exclude leaves it out",
                         t->name, type->name);
    if (strlen(t->name) >= CKPT_GGUF_NAME)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: ggml's names have at most %d bytes; --rename or a map "
                         "gives it another",
                         t->name, (int)CKPT_GGUF_NAME - 1);
    if (t->ndim > CKPT_GGUF_DIMS)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s has %" PRIu32 " axes, ggml allows at most %d", t->name,
                         t->ndim, (int)CKPT_GGUF_DIMS);
    if (row % type->per != 0)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "tensor %.200s: its rows of %" PRIu64
                         " elements cannot be divided into %s's blocks of %u",
                         t->name, row, type->name, (unsigned)type->per);
    return CKPT_OK;
}

/* Write name, shape, type and offset of a tensor; *at becomes the next offset. */
static int gw_tensor(gw_writer *w, const ckpt_tensor *t, uint64_t *at)
{
    const ckpt_gguf_place_in *in = w->to->files.at[w->file].state;
    uint64_t n_bytes, begin = *at;
    uint32_t first = 0; // axis
    int rc = gw_check(w, t);
    bool ok;

    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_dtype_bytes(t->dtype, t->n_elems, &n_bytes) || !ckpt_add(*at, n_bytes, at) ||
        !gw_pad(w, at))
        return ckpt_fail(w->err, CKPT_ELIMIT, "tensor %.200s: the file's size overflows", t->name);
    while (in && in->vectors && first + 1 < t->ndim && t->shape[first] == 1)
        first++;
    ok = gw_string(w, t->name, strlen(t->name)) && gw_uint(w, t->ndim - first, 4);
    for (uint32_t i = t->ndim; ok && i-- > first;)
        ok = gw_uint(w, t->shape[i], 8);
    ok = ok && gw_uint(w, (uint64_t)ckpt_gguf_type(t->dtype), 4) && gw_uint(w, begin, 8);
    return ok ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Add a tensor's source, and the zeros that pad it. */
static int gw_back(gw_writer *w, ckpt_tensor *t, uint64_t *at)
{
    ckpt_source s = {.kind = CKPT_SOURCE_FILE, .file = w->file, .at = *at, .name = t->name};
    uint64_t end;
    uint32_t index;
    uint8_t *zeros;
    int rc = CKPT_OK;

    t->owner = NULL; // GGUF cannot express ties: each name has its own bytes
    (void)ckpt_dtype_bytes(t->dtype, t->n_elems, &s.n_bytes); // checked for the header
    s.n_stored = s.n_bytes;
    if (s.n_bytes > 0) {
        rc = ckpt_map_add_source(w->to, &s, &index, w->err);
        if (rc == CKPT_OK)
            rc = ckpt_map_back_whole(w->to, t, index, 0, w->err);
    }
    *at += s.n_bytes;
    end = *at;
    (void)gw_pad(w, &end);
    if (rc != CKPT_OK || end == *at)
        return rc;
    zeros = ckpt_arena_array(w->to->arena, end - *at, 1);
    if (!zeros)
        return ckpt_fail_memory(w->err);
    memset(zeros, 0, (size_t)(end - *at));
    rc = ckpt_map_add_literal(w->to, w->file, *at, zeros, end - *at, w->err);
    *at = end;
    return rc;
}

/* ---- the file ---- */

/*
 * Write the keys: all of them, or with several files all in the first, and in each file its
 * position.
 */
static int gw_keys(gw_writer *w)
{
    const ckpt_gguf_place_in *in = w->to->files.at[w->file].state;
    const bool split = in && in->count > 0;
    uint64_t n = split && in->no > 0 ? 0 : w->to->keys.n;
    bool ok = gw_uint(w, n + (split ? 3 : 0), 8);
    int rc = ok ? CKPT_OK : ckpt_fail_memory(w->err);

    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = gw_key(w, &w->to->keys.at[i]);
    if (rc != CKPT_OK || !split)
        return rc;
    ok = gw_string(w, CKPT_GGUF_NO, strlen(CKPT_GGUF_NO)) && gw_uint(w, CKPT_KEY_U16, 4) &&
         gw_uint(w, in->no, 2) && gw_string(w, CKPT_GGUF_COUNT, strlen(CKPT_GGUF_COUNT)) &&
         gw_uint(w, CKPT_KEY_U16, 4) && gw_uint(w, in->count, 2) &&
         gw_string(w, CKPT_GGUF_TENSORS, strlen(CKPT_GGUF_TENSORS)) &&
         gw_uint(w, CKPT_KEY_I32, 4) && gw_uint(w, in->n_tensors, 4);
    return ok ? CKPT_OK : ckpt_fail_memory(w->err);
}

static int gw_head(gw_writer *w, uint64_t n_tensors, uint64_t *n_data)
{
    ckpt_map *to = w->to;
    bool ok = ckpt_bytes_add(&w->head, "GGUF", 4) && gw_uint(w, 3, 4) && gw_uint(w, n_tensors, 8);
    int rc = ok ? gw_keys(w) : ckpt_fail_memory(w->err);
    uint64_t end;

    *n_data = 0;
    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++) {
        if (to->tensors.at[i]->file == w->file)
            rc = gw_tensor(w, to->tensors.at[i], n_data);
    }
    end = w->head.n;
    (void)gw_pad(w, &end);
    while (rc == CKPT_OK && w->head.n < end)
        rc = gw_uint(w, 0, 1) ? CKPT_OK : ckpt_fail_memory(w->err);
    return rc;
}

int ckpt_gguf_place(ckpt_map *to, uint32_t file, ckpt_err *err)
{
    assert(file < to->files.n);
    gw_writer w = {.to = to, .file = file, .err = err, .align = CKPT_GGUF_ALIGN};
    uint64_t n_tensors = 0, n_data, at = 0;
    int rc;

    (void)ckpt_gguf_number(to, CKPT_GGUF_ALIGNMENT, &w.align);
    if (w.align == 0 || (w.align & (w.align - 1)) != 0 || w.align > GW_ALIGN)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         CKPT_GGUF_ALIGNMENT " is %" PRIu64 ", expected a power of two up to %d",
                         w.align, (int)GW_ALIGN);
    for (size_t i = 0; i < to->tensors.n; i++)
        n_tensors += to->tensors.at[i]->file == file;
    rc = gw_head(&w, n_tensors, &n_data);
    if (rc == CKPT_OK)
        rc = ckpt_map_add_literal(to, file, 0, w.head.at, w.head.n, err);
    at = w.head.n;
    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++) {
        if (to->tensors.at[i]->file == file)
            rc = gw_back(&w, to->tensors.at[i], &at);
    }
    if (rc == CKPT_OK)
        to->files.at[file].size = at;
    ckpt_vec_free(&w.head);
    return rc;
}
