/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: copying trees of another map into a file that is to be written, without recursion.
 *
 * What is shared stays shared, also between several copies into one file: nodes are found by their
 * address.  Every record that a tensor in the tree views is copied whole, through the plan, like
 * any other tensor.
 */
#include <string.h>

#include "formats/torch/tree.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/names.h"

/* A node and its copy; the list is the work to do, and indexed by address what is known. */
typedef struct tc_pair {
    const ckpt_value *from;
    ckpt_value *to;
} tc_pair;

CKPT_VEC(tc_pairs, tc_pair);

typedef struct tc_copy {
    ckpt_torch_tree *t;
    tc_pairs node;
    ckpt_index index; /* nothing is noted in the tree itself: other threads may be copying it */
} tc_copy;

static bool tc_same(const void *ctx, uint32_t number, const void *key)
{
    const tc_copy *c = ctx;

    return c->node.at[number].from == key;
}

static void tc_end(tc_copy *c)
{
    ckpt_vec_free(&c->node);
    ckpt_index_free(&c->index);
}

/* True for what a copy without unknown objects leaves out. */
static bool tc_dropped(const tc_copy *c, const ckpt_value *v)
{
    if (!c->t->drop_objects || !v)
        return false;
    return (v->kind == CKPT_V_OBJECT && !ckpt_name_known(v->as.object->cls)) ||
           (v->kind == CKPT_V_GLOBAL && !ckpt_name_known(v));
}

/* The copy of a node, empty until its turn comes; what is dropped becomes None. */
static bool tc_ref(tc_copy *c, const ckpt_value *from, ckpt_value **to)
{
    *to = NULL;
    if (!from)
        return true;
    uint32_t hash = ckpt_hash_u64((uintptr_t)from);
    uint32_t known = ckpt_index_find(&c->index, hash, tc_same, c, from);
    if (known != CKPT_INDEX_NONE) {
        *to = c->node.at[known].to;
        return true;
    }
    ckpt_value *copy =
        ckpt_value_new(c->t->scratch, tc_dropped(c, from) ? CKPT_V_NONE : from->kind);
    tc_pair *p = copy && c->node.n < INT32_MAX ? ckpt_vec_push(&c->node) : NULL;
    if (!p)
        return false;
    *p = (tc_pair){from, copy};
    *to = copy;
    return ckpt_index_add(&c->index, hash, (uint32_t)(c->node.n - 1));
}

static bool tc_seq(tc_copy *c, const ckpt_seq *from, ckpt_seq *to)
{
    ckpt_value *item = NULL;

    for (uint64_t i = 0; i < from->n; i++) {
        if (!tc_ref(c, from->at[i], &item) || !ckpt_seq_add(c->t->scratch, to, item))
            return false;
    }
    return true;
}

/* Entries that are dropped take their keys with them. */
static bool tc_dict(tc_copy *c, const ckpt_dict *from, ckpt_dict *to)
{
    ckpt_value *key = NULL, *value = NULL;

    for (uint64_t i = 0; i < from->n; i++) {
        if (tc_dropped(c, from->at[i].key) || tc_dropped(c, from->at[i].value))
            continue;
        if (!tc_ref(c, from->at[i].key, &key) || !tc_ref(c, from->at[i].value, &value) ||
            !ckpt_dict_add(c->t->scratch, to, key, value))
            return false;
    }
    return true;
}

/* A target tensor for the bytes of a whole record; its donor names the other map's source. */
static bool tc_fill(ckpt_torch_tree *t, const ckpt_storage *from, const ckpt_storage *to)
{
    ckpt_tensor like = {.dtype = from->dtype == CKPT_DTYPE_NONE ? CKPT_U8 : from->dtype,
                        .ndim = 1,
                        .shape = &from->n_elems};
    ckpt_tensor *donor = NULL;
    uint64_t item = ckpt_dtype_get(like.dtype)->bits / 8;
    ckpt_axis axis = {0, from->n_elems, (int64_t)item};
    ckpt_extent e = {.source = to->source, .ndim = 1, .axis = &axis};

    if (from->n_bytes == 0)
        return true;
    if (from->source >= t->from->sources.n) {
        t->rc = ckpt_fail(t->err, CKPT_EFORMAT, "%s: a tensor in the tree of values has no bytes",
                          t->from->path);
        return false;
    }
    t->rc = ckpt_map_add_hidden(t->to, "record", 6, &like, &donor, t->err);
    if (t->rc != CKPT_OK)
        return false;
    ckpt_axis *own = ckpt_arena_copy(t->to->arena, &axis, sizeof axis);
    ckpt_extent *extent = ckpt_arena_copy(t->to->arena, &e, sizeof e);
    if (!own || !extent)
        return false;
    *extent = (ckpt_extent){.source = from->source, .ndim = 1, .axis = own};
    donor->extent = extent;
    donor->n_extents = 1;
    t->rc = ckpt_tt_fill(t->to, &(ckpt_torch_fill){"record", donor, like.dtype}, &e, 1, t->err);
    return t->rc == CKPT_OK;
}

/* The file's own copy of a storage, made when it is met first. */
static bool tc_storage(ckpt_torch_tree *t, const ckpt_storage *from, ckpt_storage **to)
{
    for (size_t i = 0; i < t->copied.n; i++) {
        if (t->copied.at[i].from == from) {
            *to = t->copied.at[i].to;
            return true;
        }
    }
    bool typed = from->dtype != CKPT_DTYPE_NONE;
    ckpt_storage *made = ckpt_tt_storage(t, typed ? from->dtype : CKPT_U8, from->n_elems);
    ckpt_torch_copied *slot = made ? ckpt_vec_push(&t->copied) : NULL;
    if (!slot)
        return false;
    made->location = from->location;
    made->dtype = from->dtype;
    *slot = (ckpt_torch_copied){from, made};
    *to = made;
    return tc_fill(t, from, made);
}

static bool tc_tensor(tc_copy *c, const ckpt_tensor_value *from, ckpt_tensor_value **to)
{
    ckpt_tensor_value *copy = ckpt_arena_copy(c->t->scratch, from, sizeof *from);

    // shapes and strides stay the other map's: they are only read, and live longer than this tree
    *to = copy;
    return copy && (!from->storage || tc_storage(c->t, from->storage, &copy->storage)) &&
           tc_ref(c, from->state, &copy->state) && tc_ref(c, from->type, &copy->type);
}

static bool tc_object(tc_copy *c, const ckpt_object *from, ckpt_object **to)
{
    ckpt_object *copy = ckpt_arena_alloc(c->t->scratch, sizeof *copy);

    *to = copy;
    if (!copy)
        return false;
    copy->form = from->form;
    return tc_ref(c, from->cls, &copy->cls) && tc_ref(c, from->args, &copy->args) &&
           tc_ref(c, from->kwargs, &copy->kwargs) && tc_ref(c, from->state, &copy->state) &&
           tc_seq(c, &from->items, &copy->items) && tc_dict(c, &from->pairs, &copy->pairs);
}

/* Fill the copy of one node. */
static bool tc_node(tc_copy *c, const ckpt_value *from, ckpt_value *to)
{
    if (to->kind != from->kind)
        return true; // dropped
    if (!tc_ref(c, from->state, &to->state))
        return false;
    switch (from->kind) {
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
        return tc_seq(c, &from->as.seq, &to->as.seq);
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
        return tc_dict(c, &from->as.map, &to->as.map);
    case CKPT_V_STORAGE:
        return tc_storage(c->t, from->as.storage, &to->as.storage);
    case CKPT_V_TENSOR:
        return tc_tensor(c, from->as.tensor, &to->as.tensor);
    case CKPT_V_OBJECT:
        return tc_object(c, from->as.object, &to->as.object);
    case CKPT_V_LONG:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
    case CKPT_V_GLOBAL:
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

ckpt_value *ckpt_tt_copy(ckpt_torch_tree *t, const ckpt_value *v)
{
    tc_copy c = {.t = t};
    ckpt_value *out = NULL;
    bool ok = t->rc == CKPT_OK && v && tc_ref(&c, v, &out);

    for (size_t i = 0; ok && i < c.node.n; i++)
        ok = tc_node(&c, c.node.at[i].from, c.node.at[i].to);
    tc_end(&c);
    if (!ok && t->rc == CKPT_OK)
        t->rc = ckpt_fail_memory(t->err);
    return ok ? out : NULL;
}

/* ---- what is unknown ---- */

/* Note a class's full name, once. */
static bool tc_name(const ckpt_global *g, ckpt_value *names, ckpt_arena *arena)
{
    const char *full = ckpt_arena_printf(arena, "%s.%s", g->module.at, g->name.at);

    for (uint64_t i = 0; full && i < names->as.seq.n; i++) {
        if (ckpt_value_is(names->as.seq.at[i], full))
            return true;
    }
    ckpt_value *v = full ? ckpt_value_cstr(arena, full) : NULL;
    return v && ckpt_seq_add(arena, &names->as.seq, v);
}

/* Everything below a tree, once each, by the same walk that copies. */
int ckpt_tt_unknown(const ckpt_value *v, ckpt_value *names, ckpt_arena *arena, ckpt_err *err)
{
    ckpt_torch_tree t = {.scratch = ckpt_arena_new(0), .err = err};
    tc_copy c = {.t = &t};
    ckpt_value *out = NULL;
    bool ok = t.scratch && v && tc_ref(&c, v, &out);

    for (size_t i = 0; ok && i < c.node.n; i++) {
        const ckpt_value *from = c.node.at[i].from;
        if (from->kind == CKPT_V_GLOBAL && !ckpt_name_known(from))
            ok = tc_name(&from->as.global, names, arena);
        // Of tensors only what may hold values: their records are nobody's business here.
        if (ok && from->kind == CKPT_V_TENSOR)
            ok =
                tc_ref(&c, from->as.tensor->state, &out) && tc_ref(&c, from->as.tensor->type, &out);
        else if (ok && from->kind != CKPT_V_STORAGE)
            ok = tc_node(&c, from, c.node.at[i].to);
    }
    tc_end(&c);
    ckpt_arena_free(t.scratch);
    return ok || !v ? CKPT_OK : ckpt_fail_memory(err);
}
