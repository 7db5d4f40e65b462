/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same_value.c: compares values with tensors from the files of two ranks.
 */
#include <assert.h>
#include <string.h>

#include "ckpt_extra.h"
#include "formats/training/same_value.h"
#include "libckpt/base/dtype.h"
#include "libckpt/map/view.h"
#include "libckpt/run/run.h"

enum {
    SMV_DEPTH = 64,
    SMV_NODES = 1 << 22,
    SMV_KEY = 64,       /* nodes of a key */
    SMV_BLOCK = 1 << 16 /* bytes that are read at once, and the most of a record with a checksum */
};

typedef struct smv_pair {
    ckpt_train_side *x, *y;
    uint64_t left; /* nodes that may still be compared */
} smv_pair;

static bool smv_same(smv_pair *p, const ckpt_value *a, const ckpt_value *b, unsigned depth);

/* ---- tensors ---- */

/* Make a tensor of a value's elements, to read them; NULL: it cannot be. */
static ckpt_tensor *smv_tensor(ckpt_train_side *s, const ckpt_tensor_value *v, uint64_t n)
{
    ckpt_tensor like = {.dtype = v->dtype, .ndim = v->ndim, .n_elems = n, .shape = v->shape};
    ckpt_tensor *t = NULL;

    if (!s->reader && ckpt_reader_new(&s->reader, s->map, NULL) != CKPT_OK)
        return NULL;
    if (ckpt_map_add_hidden(s->map, "value", 5, &like, &t, NULL) != CKPT_OK)
        return NULL;
    return ckpt_view_back(s->map, t, v, v->storage->source, "", NULL) == CKPT_OK ? t : NULL;
}

/* Compare n elements; false also if they cannot be read. */
static bool smv_read(const smv_pair *p, const ckpt_tensor_value *a, const ckpt_tensor_value *b,
                     uint64_t n)
{
    const ckpt_tensor *t = smv_tensor(p->x, a, n), *u = smv_tensor(p->y, b, n);
    uint64_t width = ckpt_dtype_get(a->dtype)->bits / 8, each = width ? SMV_BLOCK / width : 0;
    uint8_t *bytes = ckpt_alloc(2 * SMV_BLOCK);
    bool same = bytes && t && u && each > 0;

    for (uint64_t at = 0, k; same && at < n; at += k) {
        k = n - at < each ? n - at : each;
        same = ckpt_reader_read(p->x->reader, t, at, k, CKPT_DTYPE_NONE, bytes, NULL) == CKPT_OK &&
               ckpt_reader_read(p->y->reader, u, at, k, CKPT_DTYPE_NONE, bytes + SMV_BLOCK, NULL) ==
                   CKPT_OK &&
               memcmp(bytes, bytes + SMV_BLOCK, (size_t)(k * width)) == 0;
    }
    ckpt_free(bytes);
    return same;
}

/* Bytes of a tensor's elements; UINT64_MAX: too many. */
static uint64_t smv_bytes(const ckpt_tensor_value *v, uint64_t *n)
{
    uint64_t bytes;

    *n = 1;
    for (uint32_t i = 0; i < v->ndim; i++) {
        if (!ckpt_mul(*n, v->shape[i], n))
            return UINT64_MAX;
    }
    return ckpt_dtype_bytes(v->dtype, *n, &bytes) ? bytes : UINT64_MAX;
}

static bool smv_same_shape(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && a->flags == b->flags &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/*
 * Compare two tensors by the checksums of their records, because a program may keep a copy of the
 * model there.  Elements are read if there are no checksums; also if these differ and the tensor is
 * small, because it may be a part of its record.
 */
static bool smv_same_tensor(const smv_pair *p, const ckpt_tensor_value *a,
                            const ckpt_tensor_value *b)
{
    const ckpt_sources *x = &p->x->map->sources, *y = &p->y->map->sources;
    const ckpt_source *s, *t;
    uint64_t n, bytes = smv_bytes(a, &n);
    bool laid_out;

    if (!smv_same_shape(a, b) || bytes == UINT64_MAX)
        return false;
    if (n == 0 || !a->storage || !b->storage)
        return n == 0 || a->storage == b->storage;
    if (a->storage->source >= x->n || b->storage->source >= y->n)
        return false;
    s = &x->at[a->storage->source];
    t = &y->at[b->storage->source];
    laid_out = a->offset == b->offset &&
               (a->ndim == 0 || memcmp(a->stride, b->stride, a->ndim * sizeof *a->stride) == 0);
    if (laid_out && s->has_crc && t->has_crc && s->crc == t->crc && s->n_bytes == t->n_bytes)
        return true;
    if (s->has_crc && t->has_crc && bytes > SMV_BLOCK)
        return false;
    // an expanded tensor may have any size
    return bytes <= s->n_bytes && smv_read(p, a, b, n);
}

/* ---- other values ---- */

static bool smv_same_list(smv_pair *p, ckpt_seq a, ckpt_seq b, unsigned depth)
{
    bool same = a.n == b.n;

    for (uint64_t i = 0; same && i < a.n; i++)
        same = smv_same(p, a.at[i], b.at[i], depth);
    return same;
}

static bool smv_is_key(const ckpt_value *a, const ckpt_value *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind != CKPT_V_STR)
        return ckpt_value_equal(a, b, SMV_KEY);
    return a->as.text.n == b->as.text.n &&
           memcmp(a->as.text.at, b->as.text.at, (size_t)a->as.text.n) == 0;
}

const ckpt_value *ckpt_train_member(ckpt_dict dict, const ckpt_value *key, uint64_t *hint)
{
    assert(key && hint);
    for (uint64_t i = 0, at = *hint; i < dict.n; i++, at++) {
        at = at < dict.n ? at : 0;
        if (smv_is_key(dict.at[at].key, key)) {
            *hint = at + 1;
            return dict.at[at].value;
        }
    }
    return NULL;
}

/* Compare two dicts; their pairs may be in another order. */
static bool smv_same_dict(smv_pair *p, ckpt_dict a, ckpt_dict b, unsigned depth)
{
    bool same = a.n == b.n;
    uint64_t hint = 0;

    for (uint64_t i = 0; same && i < a.n && p->left > 0; i++) {
        const ckpt_value *key = a.at[i].key, *other = b.at[i].value;
        if (!smv_is_key(key, b.at[i].key)) {
            p->left = p->left > a.n ? p->left - a.n : 0;
            other = ckpt_train_member(b, key, &hint);
        }
        same = other && smv_same(p, a.at[i].value, other, depth);
    }
    return same && p->left > 0;
}

static bool smv_same_object(smv_pair *p, const ckpt_object *a, const ckpt_object *b, unsigned depth)
{
    return a->form == b->form && smv_same(p, a->cls, b->cls, depth) &&
           smv_same(p, a->args, b->args, depth) && smv_same(p, a->kwargs, b->kwargs, depth) &&
           smv_same(p, a->state, b->state, depth) && smv_same_list(p, a->items, b->items, depth) &&
           smv_same_dict(p, a->pairs, b->pairs, depth);
}

static bool smv_same(smv_pair *p, const ckpt_value *a, const ckpt_value *b, unsigned depth)
{
    if (!a || !b)
        return a == b;
    if (a->kind != b->kind || depth == 0 || p->left == 0)
        return false;
    p->left--;
    if (!smv_same(p, a->state, b->state, depth - 1))
        return false;
    if (a->kind == CKPT_V_TENSOR)
        return smv_same(p, a->as.tensor->state, b->as.tensor->state, depth - 1) &&
               smv_same_tensor(p, a->as.tensor, b->as.tensor);
    if (a->kind == CKPT_V_OBJECT)
        return smv_same_object(p, a->as.object, b->as.object, depth - 1);
    if (a->kind == CKPT_V_DICT || a->kind == CKPT_V_ODICT)
        return smv_same_dict(p, a->as.map, b->as.map, depth - 1);
    if (a->kind == CKPT_V_LIST || a->kind == CKPT_V_TUPLE || a->kind == CKPT_V_SIZE)
        return smv_same_list(p, ckpt_value_seq(a), ckpt_value_seq(b), depth - 1);
    return ckpt_value_equal(a, b, p->left); // sets hold no tensors
}

bool ckpt_train_same_value(ckpt_train_side *x, const ckpt_value *a, ckpt_train_side *y,
                           const ckpt_value *b)
{
    assert(x && x->map && y && y->map);
    smv_pair p = {x, y, SMV_NODES};

    return smv_same(&p, a, b, SMV_DEPTH);
}
