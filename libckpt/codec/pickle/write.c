/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: writes a tree of values as a protocol-2 pickle.
 *
 * The output equals that of CPython's C pickler byte for byte if the same values are shared: memo
 * numbers after every text, bytes, name, non-empty tuple, container and call; batches of 1000;
 * names in Python 2's form.  Tensors are written as torch.save does.  The walk has its own stack of
 * frames (emit.h), so that it does not recurse.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/codec/pickle/emit.h"

#define WR_BATCH     1000u /* items between MARK and APPENDS or SETITEMS */
#define WR_DEPTH_MAX 4096u /* frames: the reader allows 1000 nested containers */

/* ---- tensors ---- */

/* Write a persistent id: ('storage', class, key, location, count). */
static void wr_storage(ckpt_pw *w, const ckpt_storage *s)
{
    const char *cls = ckpt_dtype_get(s->dtype)->torch_storage;

    ckpt_pw_op(w, '(');
    ckpt_pw_cstr(w, "storage");
    if (cls)
        ckpt_pw_cname(w, "torch", cls);
    else
        ckpt_pw_cname(w, "torch.storage", "UntypedStorage");
    ckpt_pw_str(w, s->key, NULL);
    if (!s->location.at)
        ckpt_pw_cstr(w, "cpu");
    else
        ckpt_pw_str(w, s->location, NULL);
    // the untyped class counts bytes
    ckpt_pw_int(w, (int64_t)(cls ? s->n_elems : s->n_bytes));
    ckpt_pw_op(w, 't');
    ckpt_pw_put(w);
    ckpt_pw_op(w, 'Q');
}

/* Close a tuple of n items on the stack (n > 3: above the MARK) and store it in the memo. */
static void wr_tuple_end(ckpt_pw *w, uint64_t n)
{
    if (n == 0) {
        ckpt_pw_op(w, ')');
        return;
    }
    ckpt_pw_op(w, n > 3 ? 't' : 0x84 + (unsigned)n);
    ckpt_pw_put(w);
}

/* Write a tuple of sizes or strides. */
static void wr_counts(ckpt_pw *w, const uint64_t *a, uint32_t n)
{
    if (n > 3)
        ckpt_pw_op(w, '(');
    for (uint32_t i = 0; i < n; i++)
        ckpt_pw_int(w, (int64_t)a[i]);
    wr_tuple_end(w, n);
}

/* Write size and stride in torch's units, which are pairs for F4. */
static void wr_shape(ckpt_pw *w, const ckpt_tensor_value *t)
{
    uint64_t shape[CKPT_MAX_DIM], stride[CKPT_MAX_DIM];
    bool ok = t->ndim <= CKPT_MAX_DIM && (t->dtype != CKPT_F4 || t->ndim > 0);

    for (uint32_t k = 0; ok && k < t->ndim; k++) {
        bool last = k + 1 == t->ndim;

        shape[k] = t->shape[k];
        stride[k] = t->stride[k];
        if (t->dtype == CKPT_F4) {
            ok = (last ? shape[k] : stride[k]) % 2 == 0;
            shape[k] /= last ? 2 : 1;
            stride[k] /= last ? 1 : 2;
        }
    }
    if (!ok) {
        ckpt_pw_fail(w, CKPT_EUNSUPPORTED, "torch cannot express the shape of a tensor");
        return;
    }
    wr_counts(w, shape, t->ndim);
    wr_counts(w, stride, t->ndim);
}

/* Write the empty OrderedDict for no hooks. */
static void wr_hooks(ckpt_pw *w)
{
    ckpt_pw_cname(w, "collections", "OrderedDict");
    ckpt_pw_op(w, ')');
    ckpt_pw_op(w, 'R');
    ckpt_pw_put(w);
}

/* Write the flags that are set: {'conj': True, 'neg': True}. */
static void wr_metadata(ckpt_pw *w, uint32_t flags)
{
    bool both = (flags & CKPT_TENSOR_CONJ) != 0 && (flags & CKPT_TENSOR_NEG) != 0;

    ckpt_pw_op(w, '}');
    ckpt_pw_put(w);
    if (both)
        ckpt_pw_op(w, '(');
    if ((flags & CKPT_TENSOR_CONJ) != 0) {
        ckpt_pw_fresh(w, "conj");
        ckpt_pw_bool(w, true);
    }
    if ((flags & CKPT_TENSOR_NEG) != 0) {
        ckpt_pw_fresh(w, "neg");
        ckpt_pw_bool(w, true);
    }
    ckpt_pw_op(w, both ? 'u' : 's');
}

/* True if torch has a storage class for the dtype; otherwise the storage is written untyped. */
static bool wr_is_typed(const ckpt_tensor_value *t)
{
    return t->storage->dtype != CKPT_DTYPE_NONE && ckpt_dtype_get(t->storage->dtype)->torch_storage;
}

/* Name of the function that makes the tensor without its Python attributes. */
static const char *wr_function(const ckpt_tensor_value *t)
{
    if (!t->storage)
        return "_rebuild_meta_tensor_no_storage";
    return wr_is_typed(t) ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3";
}

/* Write the arguments of that function, as a tuple. */
static void wr_arguments(ckpt_pw *w, const ckpt_tensor_value *t)
{
    // the data of a parameter never has requires_grad itself
    bool grad = (t->flags & CKPT_TENSOR_GRAD) != 0 && (t->flags & CKPT_TENSOR_PARAMETER) == 0;

    ckpt_pw_op(w, '(');
    if (!t->storage) {
        ckpt_pw_dtype(w, t->dtype);
        wr_shape(w, t);
        ckpt_pw_bool(w, grad);
        ckpt_pw_op(w, 't');
        ckpt_pw_put(w);
        return;
    }
    if (wr_is_typed(t) && t->storage->dtype != t->dtype)
        ckpt_pw_fail(w, CKPT_EUNSUPPORTED, "a tensor and its storage have different dtypes");
    wr_storage(w, t->storage);
    ckpt_pw_int(w, (int64_t)(t->dtype == CKPT_F4 ? t->offset / 2 : t->offset));
    wr_shape(w, t);
    ckpt_pw_bool(w, grad);
    wr_hooks(w);
    if (!wr_is_typed(t))
        ckpt_pw_dtype(w, t->dtype);
    if ((t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)) != 0)
        wr_metadata(w, t->flags);
    ckpt_pw_op(w, 't');
    ckpt_pw_put(w);
}

/* Write the call that makes the tensor without its Python attributes. */
static void wr_tensor_data(ckpt_pw *w, const ckpt_tensor_value *t)
{
    ckpt_pw_cname(w, "torch._utils", wr_function(t));
    wr_arguments(w, t);
    ckpt_pw_op(w, 'R');
}

/* Write the arguments of the functions for parameters: tensor, requires_grad, hooks. */
static void wr_parameter_arguments(ckpt_pw *w, const ckpt_tensor_value *t)
{
    wr_tensor_data(w, t);
    ckpt_pw_put(w);
    ckpt_pw_bool(w, (t->flags & CKPT_TENSOR_GRAD) != 0);
    wr_hooks(w);
}

/* The form of a written tensor. */
typedef enum wr_shape_of { WR_PLAIN, WR_PARAMETER, WR_WITH_STATE, WR_FROM_TYPE } wr_shape_of;

/* Choose the function that can hold all properties of the tensor. */
static wr_shape_of wr_tensor_form(const ckpt_tensor_value *t)
{
    bool parameter = (t->flags & CKPT_TENSOR_PARAMETER) != 0;

    if (t->type || (t->state && !parameter))
        return WR_FROM_TYPE;
    return t->state ? WR_WITH_STATE : parameter ? WR_PARAMETER : WR_PLAIN;
}

/* Write a tensor up to its state; a form without state is then complete. */
static void wr_tensor_begin(ckpt_pw *w, const ckpt_tensor_value *t, const ckpt_value *v)
{
    switch (wr_tensor_form(t)) {
    case WR_PLAIN:
        wr_tensor_data(w, t);
        ckpt_pw_put_node(w, v);
        break;
    case WR_PARAMETER:
        ckpt_pw_cname(w, "torch._utils", "_rebuild_parameter");
        wr_parameter_arguments(w, t);
        wr_tuple_end(w, 3);
        ckpt_pw_op(w, 'R');
        ckpt_pw_put_node(w, v);
        break;
    case WR_WITH_STATE:
        ckpt_pw_cname(w, "torch._utils", "_rebuild_parameter_with_state");
        ckpt_pw_op(w, '(');
        wr_parameter_arguments(w, t);
        break;
    case WR_FROM_TYPE:
        ckpt_pw_cname(w, "torch._tensor", "_rebuild_from_type_v2");
        ckpt_pw_op(w, '(');
        if ((t->flags & CKPT_TENSOR_PARAMETER) != 0)
            ckpt_pw_cname(w, "torch._utils", "_rebuild_parameter");
        else
            ckpt_pw_cname(w, "torch._utils", wr_function(t));
        if (t->type && t->type->kind == CKPT_V_GLOBAL)
            ckpt_pw_name(w, t->type->as.global);
        else
            ckpt_pw_cname(w, "torch", "Tensor");
        if ((t->flags & CKPT_TENSOR_PARAMETER) != 0) {
            wr_parameter_arguments(w, t);
            wr_tuple_end(w, 3);
        } else {
            wr_arguments(w, t);
        }
        break;
    }
}

/* ---- containers ---- */

/* Write torch.Size with plain integers. */
static void wr_size(ckpt_pw *w, const ckpt_value *v)
{
    const ckpt_seq *s = &v->as.seq;

    ckpt_pw_cname(w, "torch", "Size");
    if (s->n > 3)
        ckpt_pw_op(w, '(');
    for (uint64_t i = 0; i < s->n; i++)
        ckpt_pw_int(w, s->at[i]->as.i);
    wr_tuple_end(w, s->n);
    wr_tuple_end(w, 1);
    ckpt_pw_op(w, 'R');
    ckpt_pw_put_node(w, v);
}

/* Push a frame. */
static void wr_push(ckpt_pw *w, ckpt_value *v)
{
    ckpt_pw_frame *f = w->frames.n < WR_DEPTH_MAX ? ckpt_vec_push(&w->frames) : NULL;

    if (!f)
        ckpt_pw_fail(w, CKPT_ELIMIT, "values nested too deep to be written, or out of memory");
    else
        f->v = v;
}

/* Write the head of a container and push a frame for the rest. */
static void wr_begin(ckpt_pw *w, ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_LIST:
        ckpt_pw_op(w, ']');
        ckpt_pw_put_node(w, v);
        break;
    case CKPT_V_DICT:
        ckpt_pw_op(w, '}');
        ckpt_pw_put_node(w, v);
        break;
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
        ckpt_pw_cname(w, "builtins", v->kind == CKPT_V_SET ? "set" : "frozenset");
        ckpt_pw_op(w, ']');
        ckpt_pw_put(w);
        break;
    case CKPT_V_ODICT:
        ckpt_pw_cname(w, "collections", "OrderedDict");
        ckpt_pw_op(w, ')');
        ckpt_pw_op(w, 'R');
        ckpt_pw_put_node(w, v);
        break;
    case CKPT_V_TENSOR:
        wr_tensor_begin(w, v->as.tensor, v);
        if (wr_tensor_form(v->as.tensor) < WR_WITH_STATE)
            return;
        break;
    default: // the frame writes the items of tuples and objects first
        break;
    }
    wr_push(w, v);
}

/* Write a value: a leaf or an already written value at once, otherwise push its frame. */
static void wr_value(ckpt_pw *w, ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_NONE:
        ckpt_pw_op(w, 'N');
        return;
    case CKPT_V_BOOL:
        ckpt_pw_bool(w, v->as.i != 0);
        return;
    case CKPT_V_INT:
        ckpt_pw_int(w, v->as.i);
        return;
    case CKPT_V_LONG:
        ckpt_pw_long(w, v->as.text.at, v->as.text.n);
        return;
    case CKPT_V_FLOAT:
        ckpt_pw_float(w, v->as.f);
        return;
    case CKPT_V_STR:
        ckpt_pw_str(w, v->as.text, v);
        return;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        ckpt_pw_bytes(w, v);
        return;
    case CKPT_V_GLOBAL:
        ckpt_pw_name(w, v->as.global);
        return;
    case CKPT_V_DTYPE:
        ckpt_pw_dtype(w, v->as.dtype);
        return;
    case CKPT_V_STORAGE:
        wr_storage(w, v->as.storage);
        return;
    case CKPT_V_SIZE:
    case CKPT_V_TUPLE:
    case CKPT_V_LIST:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
    case CKPT_V_TENSOR:
    case CKPT_V_OBJECT:
        break;
    }
    if (v->kind == CKPT_V_TUPLE && v->as.seq.n == 0) {
        ckpt_pw_op(w, ')');
    } else if (!ckpt_pw_get_node(w, v)) {
        if (v->kind == CKPT_V_SIZE)
            wr_size(w, v);
        else
            wr_begin(w, v);
    }
}

/* The form of batches of items. */
typedef struct wr_batches {
    uint64_t n;   /* items, or pairs */
    unsigned per; /* values of one item: 1, of a pair: 2 */
    /* as CPython writes items from an iterator: a single remaining item has no MARK */
    bool iterated;
    unsigned one, many; /* opcodes that store one item, or all items above the MARK */
} wr_batches;

static const wr_batches wr_list = {.per = 1, .one = 'a', .many = 'e'};
static const wr_batches wr_dict = {.per = 2, .one = 's', .many = 'u'};

/*
 * Write the opcodes around items: call it before value number i, and once with i past the last.
 * Batches have 1000 items.  A single item, or when iterated a single remaining one, is stored
 * without a MARK.
 */
static void wr_between(ckpt_pw *w, const wr_batches *b, uint64_t i)
{
    uint64_t item = i / b->per, first = item == 0 ? 0 : (item - 1) / WR_BATCH * WR_BATCH;
    bool alone = b->n - first == 1 && (b->iterated || b->n == 1);

    if (i % b->per != 0 || b->n == 0)
        return;
    if (item == b->n || (item > 0 && item % WR_BATCH == 0))
        ckpt_pw_op(w, alone ? b->one : b->many);
    if (item < b->n && item % WR_BATCH == 0 && !(b->n - item == 1 && (b->iterated || b->n == 1)))
        ckpt_pw_op(w, '(');
    // CPython ends a plain dict of a multiple of 1000 items with an empty batch
    if (item == b->n && item % WR_BATCH == 0 && b->per == 2 && !b->iterated) {
        ckpt_pw_op(w, '(');
        ckpt_pw_op(w, b->many);
    }
}

/*
 * Continue with the items of a sequence or a dict; true when all are written.  It stops after the
 * first item that needs a frame of its own.
 */
static bool wr_items(ckpt_pw *w, const ckpt_seq *seq, const ckpt_dict *map, bool iterated)
{
    wr_batches b = map ? wr_dict : wr_list;
    size_t level = w->frames.n;

    b.n = map ? map->n : seq->n;
    b.iterated = iterated;
    while (w->rc == CKPT_OK && w->frames.n == level) {
        uint64_t i = w->frames.at[level - 1].i++;
        ckpt_value *v;

        wr_between(w, &b, i);
        if (i == b.n * b.per)
            return true;
        v = !map ? seq->at[i] : i % 2 == 0 ? map->at[i / 2].key : map->at[i / 2].value;
        wr_value(w, v);
    }
    return false;
}

/* Pop the top frame. */
static void wr_pop(ckpt_pw *w)
{
    w->frames.n--;
}

/* Continue with a tuple.  It gets its memo number after its items, so it may contain itself. */
static void wr_go_tuple(ckpt_pw *w, ckpt_value *v)
{
    const ckpt_seq *s = &v->as.seq;
    size_t level = w->frames.n;

    while (w->rc == CKPT_OK && w->frames.n == level) {
        uint64_t i = w->frames.at[level - 1].i++;

        if (i == 0 && s->n > 3)
            ckpt_pw_op(w, '(');
        if (i == s->n) {
            if (!ckpt_pw_is_recursive(w, v, s->n)) {
                ckpt_pw_op(w, s->n > 3 ? 't' : 0x84 + (unsigned)s->n);
                ckpt_pw_put_node(w, v);
            }
            wr_pop(w);
            return;
        }
        wr_value(w, s->at[i]);
    }
}

/* Continue with a set, which is a call with a list in protocol 2. */
static void wr_go_set(ckpt_pw *w, ckpt_value *v)
{
    if (wr_items(w, &v->as.seq, NULL, false)) {
        wr_tuple_end(w, 1);
        ckpt_pw_op(w, 'R');
        if (!ckpt_pw_is_recursive(w, v, 1))
            ckpt_pw_put_node(w, v);
        wr_pop(w);
    }
}

/* Continue with an OrderedDict.  Part 0: pairs; 1: the state; 2: the end. */
static void wr_go_odict(ckpt_pw *w, ckpt_value *v)
{
    ckpt_pw_frame *f = &w->frames.at[w->frames.n - 1];

    if (f->part == 0) {
        if (!wr_items(w, NULL, &v->as.map, true))
            return;
        f->part = v->state ? 1 : 3;
    }
    if (f->part == 1) {
        f->part = 2;
        wr_value(w, v->state); // f may have moved
    } else {
        if (f->part == 2)
            ckpt_pw_op(w, 'b');
        wr_pop(w);
    }
}

/* Continue with a tensor: its state, then the call. */
static void wr_go_tensor(ckpt_pw *w, ckpt_value *v)
{
    ckpt_pw_frame *f = &w->frames.at[w->frames.n - 1];

    if (f->part++ == 0) {
        if (v->as.tensor->state) {
            wr_value(w, v->as.tensor->state);
        } else {
            ckpt_pw_op(w, '}');
            ckpt_pw_put(w);
        }
        return;
    }
    ckpt_pw_op(w, 't');
    ckpt_pw_put(w);
    ckpt_pw_op(w, 'R');
    if (!ckpt_pw_is_recursive(w, v, 1))
        ckpt_pw_put_node(w, v);
    wr_pop(w);
}

/* Write the opcode that makes an object from its written parts; false if the object is complete. */
static bool wr_make_object(ckpt_pw *w, ckpt_value *v)
{
    static const unsigned ops[] = {
        [CKPT_BY_REDUCE] = 'R', [CKPT_BY_NEWOBJ] = 0x81, [CKPT_BY_NEWOBJ_EX] = 0x92};

    if (v->as.object->form == CKPT_BY_PERSID) {
        ckpt_pw_op(w, 'Q');
        return false;
    }
    ckpt_pw_op(w, ops[v->as.object->form]);
    if (ckpt_pw_is_recursive(w, v, 1))
        return false;
    ckpt_pw_put_node(w, v);
    return true;
}

/*
 * Continue with an object.  Parts: 0 class, 1 arguments, 2 named ones, 3 the call, 4 items, 5
 * pairs, 6 state, 7 the end.
 */
static void wr_go_object(ckpt_pw *w, ckpt_value *v)
{
    const ckpt_object *o = v->as.object;
    ckpt_pw_frame *f = &w->frames.at[w->frames.n - 1];
    ckpt_value *parts[3] = {o->form == CKPT_BY_PERSID ? NULL : o->cls, o->args,
                            o->form == CKPT_BY_NEWOBJ_EX ? o->kwargs : NULL};

    switch (f->part) {
    case 0:
    case 1:
    case 2:
        if (parts[f->part++])
            wr_value(w, parts[f->part - 1]);
        return;
    case 3:
        f->part = wr_make_object(w, v) ? 4 : 8;
        return;
    case 4:
    case 5:
        if (f->part == 4 ? wr_items(w, &o->items, NULL, true)
                         : wr_items(w, NULL, &o->pairs, true)) {
            f = &w->frames.at[w->frames.n - 1];
            f->i = 0;
            f->part++;
        }
        return;
    case 6:
        f->part = o->state ? 7 : 8;
        if (o->state)
            wr_value(w, o->state);
        return;
    case 7:
        ckpt_pw_op(w, 'b');
        f->part = 8;
        return;
    default:
        wr_pop(w);
        return;
    }
}

/* Continue with the top frame. */
static void wr_step(ckpt_pw *w)
{
    ckpt_value *v = w->frames.at[w->frames.n - 1].v;

    switch ((int)v->kind) {
    case CKPT_V_LIST:
        if (wr_items(w, &v->as.seq, NULL, false))
            wr_pop(w);
        return;
    case CKPT_V_DICT:
        if (wr_items(w, NULL, &v->as.map, false))
            wr_pop(w);
        return;
    case CKPT_V_TUPLE:
        wr_go_tuple(w, v);
        return;
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
        wr_go_set(w, v);
        return;
    case CKPT_V_ODICT:
        wr_go_odict(w, v);
        return;
    case CKPT_V_TENSOR:
        wr_go_tensor(w, v);
        return;
    default:
        wr_go_object(w, v);
        return;
    }
}

int ckpt_pickle_write(ckpt_bytes *out, ckpt_value *root, ckpt_err *err)
{
    assert(out && root);
    ckpt_pw w = {.out = out, .err = err};
    size_t n_before = out->n;

    ckpt_pw_op_number(&w, 0x80, 2, 1);
    wr_value(&w, root);
    while (w.rc == CKPT_OK && w.frames.n > 0)
        wr_step(&w);
    ckpt_pw_op(&w, '.');
    if (w.rc != CKPT_OK)
        out->n = n_before;
    ckpt_vec_free(&w.known);
    ckpt_vec_free(&w.text);
    ckpt_vec_free(&w.frames);
    ckpt_index_free(&w.index);
    return w.rc;
}
