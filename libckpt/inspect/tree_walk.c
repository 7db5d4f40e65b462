/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_walk.c: walks the graph of values: children, reference counts, numpy's objects.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/inspect/tree.h"

#define TREE_INLINE_MAX 16u /* limit of the items of a sequence on one line */
#define TREE_WORD_MAX   48u /* limit of the bytes of a text in such a line */

/* ---- children ---- */

uint64_t ckpt_tree_n_fixed(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT                              ? 3
           : v->kind == CKPT_V_TENSOR || v->kind == CKPT_V_ODICT ? 1
                                                                 : 0;
}

/* The items of a sequence, or of an object that has items. */
static ckpt_seq tree_seq(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT ? v->as.object->items : ckpt_value_seq(v);
}

/* The pairs of a dict, or of an object that has pairs. */
static ckpt_dict tree_map(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT ? v->as.object->pairs : ckpt_value_map(v);
}

uint64_t ckpt_tree_n_items(const ckpt_value *v)
{
    return tree_seq(v).n + tree_map(v).n;
}

/* The parts of objects, tensors and ordered dicts that are not items. */
static ckpt_tree_slot tree_fixed(const ckpt_value *v, uint64_t i)
{
    ckpt_tree_slot s = {.role = CKPT_TREE_STATE};

    if (v->kind == CKPT_V_TENSOR) {
        s.v = v->as.tensor->state;
    } else if (v->kind == CKPT_V_ODICT) {
        s.v = v->state;
    } else {
        const ckpt_object *o = v->as.object;

        s.role = i == 0 ? CKPT_TREE_ARGS : i == 1 ? CKPT_TREE_KWARGS : CKPT_TREE_STATE;
        s.v = i == 0 ? o->args : i == 1 ? o->kwargs : o->state;
    }
    return s;
}

ckpt_tree_slot ckpt_tree_slot_at(const ckpt_value *v, uint64_t i)
{
    uint64_t n_fixed = ckpt_tree_n_fixed(v);
    ckpt_seq seq = tree_seq(v);
    ckpt_dict map = tree_map(v);

    if (i < n_fixed)
        return tree_fixed(v, i);
    i -= n_fixed;
    if (i < seq.n) {
        return (ckpt_tree_slot){.role = CKPT_TREE_ITEM, .number = i, .v = seq.at[i]};
    }
    i -= seq.n;
    if (i / 2 >= map.n) {
        return (ckpt_tree_slot){.role = CKPT_TREE_END};
    }
    if (i % 2 == 0) {
        return (ckpt_tree_slot){.role = CKPT_TREE_KEY, .number = i / 2, .v = map.at[i / 2].key};
    }
    return (ckpt_tree_slot){.role = CKPT_TREE_VALUE,
                            .number = i / 2,
                            .v = map.at[i / 2].value,
                            .key = map.at[i / 2].key};
}

bool ckpt_tree_is_scalar(const ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_INT:
    case CKPT_V_FLOAT:
    case CKPT_V_DTYPE:
        return true;
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_LONG:
        return v->as.text.n <= TREE_WORD_MAX;
    case CKPT_V_BYTEARRAY:
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
    case CKPT_V_GLOBAL:
    case CKPT_V_STORAGE:
    case CKPT_V_TENSOR:
    case CKPT_V_OBJECT:
        break;
    }
    return false;
}

bool ckpt_tree_is_inline(const ckpt_value *v)
{
    ckpt_seq s = ckpt_value_seq(v);

    if ((v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_SIZE &&
         v->kind != CKPT_V_SET && v->kind != CKPT_V_FROZENSET) ||
        s.n > TREE_INLINE_MAX)
        return false;
    for (uint64_t i = 0; i < s.n; i++) {
        if (!ckpt_tree_is_scalar(s.at[i]))
            return false;
    }
    return true;
}

/* ---- sharing ---- */

/* True for nodes that get a number when they are shared: all except short ones. */
static bool tree_is_tracked(const ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return v->as.text.n > TREE_WORD_MAX;
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
        return !ckpt_tree_is_inline(v);
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
        return v->as.map.n > 0 || v->state;
    case CKPT_V_TENSOR:
    case CKPT_V_OBJECT:
        return true;
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_INT:
    case CKPT_V_LONG:
    case CKPT_V_FLOAT:
    case CKPT_V_GLOBAL:
    case CKPT_V_DTYPE:
    case CKPT_V_STORAGE:
        break;
    }
    return false;
}

/* ckpt_same_fn for the index of nodes. */
static bool tree_same(const void *ctx, uint32_t number, const void *key)
{
    return ((const ckpt_tree *)ctx)->nodes.at[number].v == key;
}

/* The entry of a node, or NULL. */
static ckpt_tree_node *tree_find(const ckpt_tree *t, const ckpt_value *v)
{
    uint32_t at =
        ckpt_index_find(&t->index, ckpt_hash_u64((uint64_t)(uintptr_t)v), tree_same, t, v);

    return at == CKPT_INDEX_NONE ? NULL : &t->nodes.at[at];
}

/* Count one reference; true if it is the first. */
static bool tree_count(ckpt_tree *t, const ckpt_value *v)
{
    ckpt_tree_node *node = tree_find(t, v);

    if (node) {
        node->n_refs++;
        return false;
    }
    node = ckpt_vec_push(&t->nodes);
    if (!node || !ckpt_index_add(&t->index, ckpt_hash_u64((uint64_t)(uintptr_t)v),
                                 (uint32_t)(t->nodes.n - 1))) {
        ckpt_tree_fail(t, CKPT_ELIMIT, "out of memory");
        return false;
    }
    node->v = v;
    node->n_refs = 1;
    return true;
}

void ckpt_tree_survey(ckpt_tree *t, const ckpt_value *root)
{
    if (tree_is_tracked(root))
        (void)tree_count(t, root);
    // the list of nodes is also the queue: each is expanded once, new ones go to the end
    for (size_t next = 0; next < t->nodes.n && t->rc == CKPT_OK; next++) {
        const ckpt_value *v = t->nodes.at[next].v;
        ckpt_tree_slot s;

        for (uint64_t i = 0; (s = ckpt_tree_slot_at(v, i)).role != CKPT_TREE_END; i++) {
            if (s.v && tree_is_tracked(s.v))
                (void)tree_count(t, s.v);
        }
    }
}

uint32_t ckpt_tree_share(ckpt_tree *t, const ckpt_value *v, bool *again)
{
    ckpt_tree_node *node = tree_is_tracked(v) ? tree_find(t, v) : NULL;

    *again = false;
    if (!node || node->n_refs < 2)
        return 0;
    *again = node->id != 0;
    if (node->id == 0)
        node->id = ++t->n_ids;
    return node->id;
}

/* ---- numpy ---- */

/* True if v is a call of numpy's function of that name. */
static bool tree_is_call(const ckpt_value *v, const char *name, uint64_t n_args)
{
    const ckpt_object *o = v && v->kind == CKPT_V_OBJECT ? v->as.object : NULL;

    return o && o->args && o->args->kind == CKPT_V_TUPLE && o->args->as.seq.n >= n_args &&
           (ckpt_value_is_global(o->cls, "numpy.core.multiarray", name) ||
            ckpt_value_is_global(o->cls, "numpy._core.multiarray", name) ||
            ckpt_value_is_global(o->cls, "numpy", name));
}

/* Recognise numpy.dtype('f8', False, True) with state (3, '<', ...). */
static bool tree_dtype(const ckpt_value *v, ckpt_tree_array *out)
{
    const ckpt_value *code;
    ckpt_seq state;

    if (!tree_is_call(v, "dtype", 1))
        return false;
    code = v->as.object->args->as.seq.at[0];
    if (code->kind != CKPT_V_STR || code->as.text.n != 2 ||
        !memchr("fiub", code->as.text.at[0], 4) || !memchr("1248", code->as.text.at[1], 4))
        return false;
    state = v->as.object->state ? ckpt_value_seq(v->as.object->state) : (ckpt_seq){0};
    out->kind = code->as.text.at[0];
    out->size = (unsigned)(code->as.text.at[1] - '0');
    out->big_endian = state.n > 1 && ckpt_value_is(state.at[1], ">");
    return true;
}

/* Take the elements, if the bytes are a whole number of elements. */
static bool tree_raw(const ckpt_value *v, ckpt_tree_array *out)
{
    if (v->kind != CKPT_V_BYTES || v->as.text.n % out->size != 0)
        return false;
    out->bytes = v->as.text;
    out->n_elems = v->as.text.n / out->size;
    return true;
}

bool ckpt_tree_numpy(const ckpt_value *v, ckpt_tree_array *out)
{
    ckpt_seq s;

    *out = (ckpt_tree_array){0};
    if (tree_is_call(v, "scalar", 2)) {
        s = v->as.object->args->as.seq;
        out->scalar = true;
        return tree_dtype(s.at[0], out) && tree_raw(s.at[1], out) && out->n_elems == 1;
    }
    if (!tree_is_call(v, "_reconstruct", 1) || !v->as.object->state)
        return false;
    s = ckpt_value_seq(v->as.object->state); // (version, shape, dtype, is Fortran, bytes)
    if (s.n != 5 || s.at[1]->kind != CKPT_V_TUPLE || !tree_dtype(s.at[2], out))
        return false;
    out->shape = s.at[1]->as.seq;
    for (uint64_t i = 0; i < out->shape.n; i++) {
        if (out->shape.at[i]->kind != CKPT_V_INT)
            return false;
    }
    return out->shape.n <= CKPT_MAX_DIM && tree_raw(s.at[4], out);
}

void ckpt_tree_element(ckpt_tree *t, const ckpt_tree_array *a, uint64_t i)
{
    const unsigned char *p = (const unsigned char *)a->bytes.at + i * a->size;
    uint64_t bits = 0;
    double f;
    float f4;

    for (unsigned k = 0; k < a->size; k++)
        bits |= (uint64_t)p[k] << 8 * (a->big_endian ? a->size - 1 - k : k);
    if (a->kind == 'f' && a->size == 8) {
        memcpy(&f, &bits, sizeof f);
        ckpt_tree_float(t, f);
    } else if (a->kind == 'f' && a->size == 4) {
        uint32_t low = (uint32_t)bits;

        memcpy(&f4, &low, sizeof f4);
        ckpt_tree_float(t, (double)f4);
    } else if (a->kind == 'f') {
        ckpt_tree_printf(t, "0x%0*" PRIx64, (int)a->size * 2, bits); // half floats: print the bits
    } else if (a->kind == 'b') {
        ckpt_tree_puts(t, bits != 0 ? "true" : "false");
    } else if (a->kind == 'u') {
        ckpt_tree_printf(t, "%" PRIu64, bits);
    } else {
        // extend the sign
        unsigned shift = 64 - 8 * a->size;

        ckpt_tree_printf(t, "%" PRId64, (int64_t)(bits << shift) >> shift);
    }
}
