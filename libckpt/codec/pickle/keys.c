/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c: hashes and compares dict keys.
 *
 * Numbers compare by value across bool, int and float; text and bytes by content; tuples by items;
 * objects and classes by identity, because their own equality is code that we do not run.
 */
#include <assert.h>

#include "libckpt/codec/pickle/keys.h"

#include <math.h>
#include <string.h>

#define KEY_DEPTH     8u   /* depth of nested tuples */
#define KEY_TEXT_FREE 256u /* bytes: a longer text counts as work */
/* items in total, because a nested shared tuple could unfold to any number */
#define KEY_NODES 1000u

/* One level of nesting inside a tuple key. */
typedef struct key_level {
    const ckpt_value *tuple, *other; /* other: the tuple to compare with */
    uint64_t i;
} key_level;

/*
 * Convert a number to an int if it has an integral value, because Python's 1.0 and 1 are one key.
 */
static bool key_as_int(const ckpt_value *v, int64_t *out)
{
    if (v->kind == CKPT_V_INT || v->kind == CKPT_V_BOOL) {
        *out = v->as.i;
        return true;
    }
    // 2^63 is the first double beyond int64
    if (v->kind == CKPT_V_FLOAT && v->as.f >= -0x1p63 && v->as.f < 0x1p63 &&
        floor(v->as.f) >= v->as.f) {
        *out = (int64_t)v->as.f;
        return true;
    }
    return false;
}

/* True for tuples and types that compare like them. */
static bool key_is_tuple(const ckpt_value *v)
{
    return v->kind == CKPT_V_TUPLE || v->kind == CKPT_V_SIZE; // torch.Size is a tuple
}

/* Hash of a key that is not a tuple. */
static int key_hash_leaf(const ckpt_value *v, uint32_t *out, uint64_t *cost, const char **why)
{
    int64_t i;
    uint64_t bits;

    if (key_as_int(v, &i)) {
        *out = ckpt_hash_u64((uint64_t)i);
        return CKPT_OK;
    }
    switch (v->kind) {
    case CKPT_V_FLOAT:
        memcpy(&bits, &v->as.f, sizeof bits);
        *out = ckpt_hash_u64(bits);
        return CKPT_OK;
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_LONG:
        *cost += v->as.text.n > KEY_TEXT_FREE ? v->as.text.n : 0;
        *out = ckpt_hash_bytes(v->as.text.at, (size_t)v->as.text.n, (uint32_t)v->kind);
        return CKPT_OK;
    case CKPT_V_LIST:
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
    case CKPT_V_SET:
    case CKPT_V_BYTEARRAY:
    case CKPT_V_TENSOR: // hashable in torch, but no checkpoint needs that
    case CKPT_V_STORAGE:
        *why = "a list, dict, set, bytearray or tensor cannot be a key";
        return CKPT_EFORMAT;
    case CKPT_V_NONE:
    case CKPT_V_GLOBAL:
    case CKPT_V_DTYPE:
    case CKPT_V_OBJECT:
    case CKPT_V_FROZENSET:
    case CKPT_V_BOOL: // bools, ints, tuples and sizes are handled before
    case CKPT_V_INT:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
        break;
    }
    *out = ckpt_hash_u64((uint64_t)(uintptr_t)v);
    return CKPT_OK;
}

int ckpt_key_hash(const ckpt_value *key, uint32_t *out, uint64_t *cost, const char **why)
{
    assert(key && out && cost && why);
    key_level level[KEY_DEPTH];
    uint32_t depth = 0, nodes = 0, h = 0;

    if (!key_is_tuple(key))
        return key_hash_leaf(key, out, cost, why);
    level[depth++] = (key_level){.tuple = key};
    while (depth > 0) {
        key_level *l = &level[depth - 1];
        const ckpt_value *v;
        uint32_t leaf;
        int rc;

        if (l->i == l->tuple->as.seq.n) {
            depth--;
            // hash the end of the tuple too, so that ((1, 2), 3) and ((1,), 2, 3) get different
            // hashes
            h = ckpt_hash_u64(((uint64_t)h << 32) + l->i);
            continue;
        }
        v = l->tuple->as.seq.at[l->i++];
        if (++nodes > KEY_NODES || (key_is_tuple(v) && depth == KEY_DEPTH)) {
            *why = "a tuple is nested too deep or too large to be a key";
            return CKPT_ELIMIT;
        }
        if (key_is_tuple(v)) {
            level[depth++] = (key_level){.tuple = v};
            continue;
        }
        rc = key_hash_leaf(v, &leaf, cost, why);
        if (rc != CKPT_OK)
            return rc;
        h = ckpt_hash_u64(((uint64_t)h << 32) + leaf);
    }
    *out = h;
    *cost += nodes;
    return CKPT_OK;
}

/* True if two keys, not both tuples, are equal. */
static bool key_same_leaf(const ckpt_value *a, const ckpt_value *b)
{
    int64_t x, y;

    if (a == b)
        return true;
    if (key_as_int(a, &x))
        return key_as_int(b, &y) && x == y;
    if (a->kind != b->kind)
        return false;
    if (a->kind == CKPT_V_STR || a->kind == CKPT_V_BYTES || a->kind == CKPT_V_LONG)
        return a->as.text.n == b->as.text.n &&
               memcmp(a->as.text.at, b->as.text.at, (size_t)a->as.text.n) == 0;
    if (a->kind == CKPT_V_FLOAT) {
        return a->as.f >= b->as.f && a->as.f <= b->as.f; // NaN equals nothing
    }
    return a->kind == CKPT_V_NONE;
}

bool ckpt_key_same(const ckpt_value *a, const ckpt_value *b)
{
    assert(a && b);
    key_level level[KEY_DEPTH + 1];
    uint32_t depth = 0;

    if (!key_is_tuple(a) || !key_is_tuple(b))
        return key_same_leaf(a, b);
    level[depth++] = (key_level){.tuple = a, .other = b};
    while (depth > 0) {
        key_level *l = &level[depth - 1];

        if (l->tuple->as.seq.n != l->other->as.seq.n)
            return false;
        if (l->i == l->tuple->as.seq.n) {
            depth--;
            continue;
        }
        a = l->tuple->as.seq.at[l->i];
        b = l->other->as.seq.at[l->i++];
        if (a == b)
            continue;
        if (key_is_tuple(a) && key_is_tuple(b) && depth <= KEY_DEPTH) {
            level[depth++] = (key_level){.tuple = a, .other = b};
        } else if (!key_same_leaf(a, b)) {
            return false;
        }
    }
    return true;
}
