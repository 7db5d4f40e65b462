/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: copies trees of another map into an output file.
 *
 * Storages stay shared between several copies into one file.  If a tensor in the tree views a
 * record, the plan copies the complete record, like any other tensor.
 */
#include <assert.h>
#include <string.h>

#include "formats/torch/tree.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/pickle/trust.h"
#include "libckpt/map/value_copy.h"

#define TC_DEPTH 16u   /* limit of nesting in the arguments that are searched */
#define TC_PARTS 4096u /* limit of values searched; with more, an object counts as unknown */

/*
 * True for a value whose class is unknown, or that has an unknown class in the arguments of its
 * constructor: a functools.partial of a function, typing.Optional of a class, a member of an Enum.
 * A defaultdict is kept although its factory may be unknown, because the copy keeps only its items.
 */
static bool tc_is_strange(const ckpt_value *v, unsigned depth, unsigned *n_left)
{
    const ckpt_object *o = v && v->kind == CKPT_V_OBJECT ? v->as.object : NULL;
    ckpt_seq parts = v && v->kind == CKPT_V_TUPLE ? v->as.seq : (ckpt_seq){0};

    if (!v || depth == TC_DEPTH)
        return false;
    if (*n_left == 0)
        return true;
    --*n_left;
    if (v->kind == CKPT_V_GLOBAL)
        return !ckpt_name_known(v);
    if (o)
        return !o->cls || !ckpt_name_known(o->cls) || tc_is_strange(o->cls, depth + 1, n_left) ||
               (!ckpt_value_is_global(o->cls, "collections", "defaultdict") &&
                tc_is_strange(o->args, depth + 1, n_left));
    for (uint64_t i = 0; i < parts.n; i++) {
        if (tc_is_strange(parts.at[i], depth + 1, n_left))
            return true;
    }
    return false;
}

/* Copier callback: true for values to leave out because of drop_objects. */
static bool tc_dropped(const void *ctx, const ckpt_value *v)
{
    const ckpt_torch_tree *t = ctx;
    unsigned n_left = TC_PARTS;

    return t->drop_objects && (v->kind == CKPT_V_OBJECT || v->kind == CKPT_V_GLOBAL) &&
           tc_is_strange(v, 0, &n_left);
}

/* Make a target tensor for the bytes of a whole record; its donor has the other map's source. */
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

/* Find or make this file's copy of a storage. */
static bool tc_storage(void *ctx, const ckpt_storage *from, ckpt_storage **to)
{
    ckpt_torch_tree *t = ctx;

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

ckpt_value *ckpt_tt_copy(ckpt_torch_tree *t, const ckpt_value *v)
{
    assert(t->from);
    // texts, shapes and strides are shared, because the other map outlives this tree
    const ckpt_value_copier copier = {
        .arena = t->scratch, .ctx = t, .storage = tc_storage, .drop = tc_dropped};
    ckpt_value *out = t->rc == CKPT_OK && v ? ckpt_value_copy(&copier, v) : NULL;

    if (!out && t->rc == CKPT_OK)
        t->rc = ckpt_fail_memory(t->err);
    return out;
}

/* ---- unknown classes ---- */

/* The class names found so far, in their own arena. */
typedef struct tc_unknown {
    ckpt_value *names;
    ckpt_arena *arena;
} tc_unknown;

/* Copier callback: add a class's full name to the list, once. */
static bool tc_meet(void *ctx, const ckpt_value *from)
{
    tc_unknown *u = ctx;
    const ckpt_global *g = &from->as.global;

    if (from->kind != CKPT_V_GLOBAL || ckpt_name_known(from))
        return true;
    const char *full = ckpt_arena_printf(u->arena, "%s.%s", g->module.at, g->name.at);
    for (uint64_t i = 0; full && i < u->names->as.seq.n; i++) {
        if (ckpt_value_is(u->names->as.seq.at[i], full))
            return true;
    }
    ckpt_value *v = full ? ckpt_value_cstr(u->arena, full) : NULL;
    return v && ckpt_seq_add(u->arena, &u->names->as.seq, v);
}

/* Copier callback: skip storages, because they contain no classes. */
static bool tc_no_storage(void *ctx, const ckpt_storage *from, ckpt_storage **to)
{
    (void)ctx;
    (void)from;
    *to = NULL;
    return true;
}

/* Collect names with the copier, because it visits every node below a tree once. */
int ckpt_tt_unknown(const ckpt_value *v, ckpt_value *names, ckpt_arena *arena, ckpt_err *err)
{
    assert(names && arena);
    tc_unknown u = {names, arena};
    const ckpt_value_copier copier = {
        .arena = ckpt_arena_new(0), .ctx = &u, .storage = tc_no_storage, .meet = tc_meet};
    bool ok = !v || (copier.arena && ckpt_value_copy(&copier, v));

    ckpt_arena_free(copier.arena);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}
