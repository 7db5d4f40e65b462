/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_copy.c: copies a tree of values without recursion; an index by address finds nodes.
 */
#include "libckpt/map/value_copy.h"

#include <string.h>

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"

/* A node and its copy. The list is the work queue; the index finds its entries by address. */
typedef struct vc_pair {
    const ckpt_value *from;
    ckpt_value *to;
} vc_pair;

CKPT_VEC(vc_pairs, vc_pair);

typedef struct vc_copy {
    const ckpt_value_copier *by;
    vc_pairs node;
    ckpt_index index;
} vc_copy;

static bool vc_same(const void *ctx, uint32_t number, const void *key)
{
    const vc_copy *c = ctx;

    return c->node.at[number].from == key;
}

static bool vc_dropped(const vc_copy *c, const ckpt_value *v)
{
    return v && c->by->drop && c->by->drop(c->by->ctx, v);
}

/* The copy of a node; it stays empty until its turn comes. */
static bool vc_ref(vc_copy *c, const ckpt_value *from, ckpt_value **to)
{
    *to = NULL;
    if (!from)
        return true;
    uint32_t hash = ckpt_hash_u64((uintptr_t)from);
    uint32_t known = ckpt_index_find(&c->index, hash, vc_same, c, from);
    if (known != CKPT_INDEX_NONE) {
        *to = c->node.at[known].to;
        return true;
    }
    ckpt_value *copy = ckpt_value_new(c->by->arena, vc_dropped(c, from) ? CKPT_V_NONE : from->kind);
    vc_pair *p = copy && c->node.n < INT32_MAX ? ckpt_vec_push(&c->node) : NULL;
    if (!p)
        return false;
    *p = (vc_pair){from, copy};
    *to = copy;
    return ckpt_index_add(&c->index, hash, (uint32_t)(c->node.n - 1));
}

/* Copy bytes, which may contain NULs, and their terminator, which n does not count. */
static bool vc_text(vc_copy *c, const ckpt_text *from, ckpt_text *to)
{
    *to = *from;
    if (c->by->whole)
        to->at = ckpt_arena_string(c->by->arena, from->at ? from->at : "", from->n);
    return to->at || !c->by->whole;
}

static bool vc_seq(vc_copy *c, const ckpt_seq *from, ckpt_seq *to)
{
    ckpt_value *item = NULL;

    for (uint64_t i = 0; i < from->n; i++) {
        if (!vc_ref(c, from->at[i], &item) || !ckpt_seq_add(c->by->arena, to, item))
            return false;
    }
    return true;
}

static bool vc_dict(vc_copy *c, const ckpt_dict *from, ckpt_dict *to)
{
    ckpt_value *key = NULL, *value = NULL;

    for (uint64_t i = 0; i < from->n; i++) {
        if (vc_dropped(c, from->at[i].key) || vc_dropped(c, from->at[i].value))
            continue;
        if (!vc_ref(c, from->at[i].key, &key) || !vc_ref(c, from->at[i].value, &value) ||
            !ckpt_dict_add(c->by->arena, to, key, value))
            return false;
    }
    return true;
}

/* Copy one size per axis; nothing for a tensor without axes. */
static const uint64_t *vc_sizes(vc_copy *c, const uint64_t *from, uint32_t n)
{
    static const uint64_t none = 0;

    return c->by->whole ? ckpt_arena_copy(c->by->arena, n ? from : &none, n * sizeof none) : from;
}

/* Copy the description of a tensor: shape, strides and a reference to its storage. */
static bool vc_tensor(vc_copy *c, const ckpt_tensor_value *from, ckpt_tensor_value **to)
{
    ckpt_tensor_value *copy = ckpt_arena_copy(c->by->arena, from, sizeof *from);

    *to = copy;
    if (!copy)
        return false;
    copy->shape = vc_sizes(c, from->shape, from->ndim);
    copy->stride = vc_sizes(c, from->stride, from->ndim);
    return (!c->by->whole || (copy->shape && copy->stride)) &&
           (!from->storage || c->by->storage(c->by->ctx, from->storage, &copy->storage)) &&
           vc_ref(c, from->state, &copy->state) && vc_ref(c, from->type, &copy->type);
}

/* Copy an object of an unresolved class unchanged. */
static bool vc_object(vc_copy *c, const ckpt_object *from, ckpt_object **to)
{
    ckpt_object *copy = ckpt_arena_alloc(c->by->arena, sizeof *copy);

    *to = copy;
    if (!copy)
        return false;
    copy->form = from->form;
    return vc_ref(c, from->cls, &copy->cls) && vc_ref(c, from->args, &copy->args) &&
           vc_ref(c, from->kwargs, &copy->kwargs) && vc_ref(c, from->state, &copy->state) &&
           vc_seq(c, &from->items, &copy->items) && vc_dict(c, &from->pairs, &copy->pairs);
}

/* Fill the copy of one node. */
static bool vc_fill(vc_copy *c, const ckpt_value *from, ckpt_value *to)
{
    if (c->by->meet && !c->by->meet(c->by->ctx, from))
        return false;
    if (to->kind != from->kind)
        return true; // dropped
    if (!vc_ref(c, from->state, &to->state))
        return false;
    switch (from->kind) {
    case CKPT_V_LONG:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return vc_text(c, &from->as.text, &to->as.text);
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
        return vc_seq(c, &from->as.seq, &to->as.seq);
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
        return vc_dict(c, &from->as.map, &to->as.map);
    case CKPT_V_GLOBAL:
        return vc_text(c, &from->as.global.module, &to->as.global.module) &&
               vc_text(c, &from->as.global.name, &to->as.global.name);
    case CKPT_V_STORAGE:
        return c->by->storage(c->by->ctx, from->as.storage, &to->as.storage);
    case CKPT_V_TENSOR:
        return vc_tensor(c, from->as.tensor, &to->as.tensor);
    case CKPT_V_OBJECT:
        return vc_object(c, from->as.object, &to->as.object);
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_INT:
    case CKPT_V_FLOAT:
    case CKPT_V_DTYPE:
        to->as = from->as;
        return true;
    }
    return true;
}

ckpt_value *ckpt_value_copy(const ckpt_value_copier *copier, const ckpt_value *v)
{
    vc_copy c = {.by = copier};
    ckpt_value *out = NULL;
    bool ok = v && vc_ref(&c, v, &out);

    for (size_t i = 0; ok && i < c.node.n; i++)
        ok = vc_fill(&c, c.node.at[i].from, c.node.at[i].to);
    ckpt_vec_free(&c.node);
    ckpt_index_free(&c.index);
    return ok ? out : NULL;
}
