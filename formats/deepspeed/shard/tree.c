/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c: copying a tree of values from a shard's arena into the large map's, without recursion.
 *
 * A node's mark is the number of its copy, so that what is shared stays shared and cycles end.
 */
#include <string.h>

#include "formats/deepspeed/shard/shard.h"

/* A node and its copy; the list is both the work to do and the table of what is known. */
typedef struct dst_pair {
    ckpt_value *from, *to;
} dst_pair;

typedef struct dst_storage {
    const ckpt_storage *from;
    ckpt_storage *to;
} dst_storage;

CKPT_VEC(dst_pairs, dst_pair);
CKPT_VEC(dst_storages, dst_storage);

typedef struct dst_copy {
    const ckpt_ds_job *job;
    ckpt_ds_shard *shard;
    ckpt_arena *arena;
    dst_pairs node;
    dst_storages
        storage; /* one per source of the shard, filled on first use; the rest at the end */
} dst_copy;

/* The copy of a node, made empty now and filled later; false when memory is exhausted. */
static bool dst_ref(dst_copy *c, ckpt_value *from, ckpt_value **to)
{
    *to = NULL;
    if (!from)
        return true;
    if (from->mark) {
        *to = c->node.at[from->mark - 1].to;
        return true;
    }
    ckpt_value *copy = c->node.n < UINT32_MAX - 1 ? ckpt_value_new(c->arena, from->kind) : NULL;
    dst_pair *p = copy ? ckpt_vec_push(&c->node) : NULL;
    if (!p)
        return false;
    *p = (dst_pair){from, copy};
    from->mark = (uint32_t)c->node.n;
    *to = copy;
    return true;
}

/* Bytes, which may hold NULs, and the terminator that is not counted. */
static bool dst_text(dst_copy *c, const ckpt_text *from, ckpt_text *to)
{
    to->n = from->n;
    to->at = ckpt_arena_string(c->arena, from->at ? from->at : "", from->n);
    return to->at != NULL;
}

/* References to the items, in order; the items themselves are filled when their turn comes. */
static bool dst_seq(dst_copy *c, const ckpt_seq *from, ckpt_seq *to)
{
    ckpt_value *item = NULL;

    for (uint64_t i = 0; i < from->n; i++) {
        if (!dst_ref(c, from->at[i], &item) || !ckpt_seq_add(c->arena, to, item))
            return false;
    }
    return true;
}

/* The same for keys and values. */
static bool dst_dict(dst_copy *c, const ckpt_dict *from, ckpt_dict *to)
{
    ckpt_value *key = NULL, *value = NULL;

    for (uint64_t i = 0; i < from->n; i++) {
        if (!dst_ref(c, from->at[i].key, &key) || !dst_ref(c, from->at[i].value, &value) ||
            !ckpt_dict_add(c->arena, to, key, value))
            return false;
    }
    return true;
}

/* Storages keep their identity; their source becomes the large map's. */
static bool dst_storage_copy(dst_copy *c, const ckpt_storage *from, ckpt_storage **to)
{
    uint32_t source = from->source;
    dst_storage *slot = source < c->storage.n ? &c->storage.at[source] : NULL;

    if (slot && slot->from == from) {
        *to = slot->to;
        return true;
    }
    ckpt_storage *copy = ckpt_arena_copy(c->arena, from, sizeof *from);
    if (!copy || !dst_text(c, &from->key, &copy->key) ||
        !dst_text(c, &from->location, &copy->location))
        return false;
    copy->source = UINT32_MAX;
    if (slot && ckpt_ds_shard_source(c->job, c->shard, source, &copy->source) != CKPT_OK)
        return false;
    if (slot && !slot->from)
        *slot = (dst_storage){from, copy};
    *to = copy;
    return true;
}

/* A tensor stays a description: shape, strides and the place of its bytes. */
static bool dst_tensor(dst_copy *c, const ckpt_tensor_value *from, ckpt_tensor_value **to)
{
    static const uint64_t none = 0;
    ckpt_tensor_value *copy = ckpt_arena_copy(c->arena, from, sizeof *from);

    if (!copy)
        return false;
    copy->shape =
        ckpt_arena_copy(c->arena, from->ndim ? from->shape : &none, from->ndim * sizeof none);
    copy->stride =
        ckpt_arena_copy(c->arena, from->ndim ? from->stride : &none, from->ndim * sizeof none);
    *to = copy;
    return copy->shape && copy->stride &&
           (!from->storage || dst_storage_copy(c, from->storage, &copy->storage)) &&
           dst_ref(c, from->state, &copy->state) && dst_ref(c, from->type, &copy->type);
}

/* An object of a class that nobody resolves: copied as it stands. */
static bool dst_object(dst_copy *c, const ckpt_object *from, ckpt_object **to)
{
    ckpt_object *copy = ckpt_arena_alloc(c->arena, sizeof *copy);

    *to = copy;
    if (!copy)
        return false;
    copy->form = from->form;
    return dst_ref(c, from->cls, &copy->cls) && dst_ref(c, from->args, &copy->args) &&
           dst_ref(c, from->kwargs, &copy->kwargs) && dst_ref(c, from->state, &copy->state) &&
           dst_seq(c, &from->items, &copy->items) && dst_dict(c, &from->pairs, &copy->pairs);
}

/* Fill the copy of one node. */
static bool dst_fill(dst_copy *c, const ckpt_value *from, ckpt_value *to)
{
    if (!dst_ref(c, from->state, &to->state))
        return false;
    switch (from->kind) {
    case CKPT_V_LONG:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return dst_text(c, &from->as.text, &to->as.text);
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
        return dst_seq(c, &from->as.seq, &to->as.seq);
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
        return dst_dict(c, &from->as.map, &to->as.map);
    case CKPT_V_GLOBAL:
        return dst_text(c, &from->as.global.module, &to->as.global.module) &&
               dst_text(c, &from->as.global.name, &to->as.global.name);
    case CKPT_V_STORAGE:
        return dst_storage_copy(c, from->as.storage, &to->as.storage);
    case CKPT_V_TENSOR:
        return dst_tensor(c, from->as.tensor, &to->as.tensor);
    case CKPT_V_OBJECT:
        return dst_object(c, from->as.object, &to->as.object);
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

int ckpt_ds_tree_copy(const ckpt_ds_job *job, ckpt_ds_shard *s, ckpt_value **out)
{
    dst_copy c = {.job = job, .shard = s, .arena = job->map->arena};
    bool fits = true;

    if (s->tree) {
        *out = s->tree;
        return CKPT_OK;
    }
    c.storage.at = ckpt_alloc((s->map->sources.n + 1) * sizeof *c.storage.at);
    c.storage.n = c.storage.at ? s->map->sources.n : 0;
    fits = c.storage.at && dst_ref(&c, s->root, out);
    for (size_t i = 0; fits && i < c.node.n; i++)
        fits = dst_fill(&c, c.node.at[i].from, c.node.at[i].to);
    for (size_t i = 0; i < c.node.n; i++)
        c.node.at[i].from->mark = 0;
    ckpt_vec_free(&c.node);
    ckpt_free(c.storage.at);
    s->tree = fits ? *out : NULL;
    return fits ? CKPT_OK : ckpt_fail_memory(job->err);
}
