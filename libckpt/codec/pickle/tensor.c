/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.c: makes tensors from the calls of torch._utils and torch._tensor in a pickle.
 *
 * Arguments, checked against torch 1.4 to 2.15:
 *   _rebuild_tensor                   storage, offset, size, stride
 *   _rebuild_tensor_v2                + requires_grad, hooks [, metadata]
 *   _rebuild_tensor_v3                + requires_grad, hooks, dtype [, metadata]; untyped storage
 *   _rebuild_parameter[_with_state]   tensor, requires_grad, hooks [, state]
 *   _rebuild_from_type_v2             one of these functions, type, its arguments, state
 *   _rebuild_meta_tensor_no_storage   dtype, size, stride, requires_grad
 * Offsets and strides count elements.  A tensor must lie inside its storage.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/codec/pickle/node.h"

/* Limit of the bytes of a view with stride 0, which may be larger than its storage. */
#define TENSOR_BROADCAST_MAX (1ull << 30)

bool ckpt_pk_rebuilds(ckpt_name_id id)
{
    return id >= CKPT_NAME_REBUILD_V1;
}

/* Fail because a tensor is malformed. */
static int tensor_bad(const ckpt_pk *p, const char *what)
{
    return ckpt_pk_fail(p, CKPT_EFORMAT, "a tensor %s", what);
}

/* ---- sizes ---- */

/* Read a tuple of sizes or strides into an array in the arena. */
static int tensor_sizes(const ckpt_pk *p, const ckpt_value *v, const uint64_t **out, uint32_t *n)
{
    ckpt_seq s = ckpt_value_seq(v);
    uint64_t *a;

    if (v->kind != CKPT_V_TUPLE && v->kind != CKPT_V_SIZE && v->kind != CKPT_V_LIST)
        return tensor_bad(p, "whose size or stride is not a tuple");
    if (s.n > CKPT_MAX_DIM)
        return tensor_bad(p, "of more than 64 axes");
    a = ckpt_arena_array(p->arena, s.n, sizeof *a);
    if (!a)
        return ckpt_pk_fail(p, CKPT_ELIMIT, "out of memory");
    for (uint64_t i = 0; i < s.n; i++) {
        if (s.at[i]->kind != CKPT_V_INT || s.at[i]->as.i < 0)
            return tensor_bad(p, "whose size or stride holds a value that is not a count");
        a[i] = (uint64_t)s.at[i]->as.i;
    }
    *out = a;
    *n = (uint32_t)s.n;
    return CKPT_OK;
}

/* Read size and stride, which must have the same length. */
static int tensor_shape(const ckpt_pk *p, ckpt_tensor_value *t, const ckpt_value *size,
                        const ckpt_value *stride)
{
    uint32_t n = 0;
    int rc = tensor_sizes(p, size, &t->shape, &t->ndim);

    if (rc == CKPT_OK)
        rc = tensor_sizes(p, stride, &t->stride, &n);
    if (rc == CKPT_OK && n != t->ndim)
        rc = tensor_bad(p, "whose size and stride differ in length");
    return rc;
}

/* Multiply the sizes that are not 0; false on overflow. */
static bool tensor_volume(const ckpt_tensor_value *t, uint64_t *out, bool *empty)
{
    *out = 1;
    *empty = false;
    for (uint32_t k = 0; k < t->ndim; k++) {
        *empty = *empty || t->shape[k] == 0;
        if (t->shape[k] != 0 && !ckpt_mul(*out, t->shape[k], out))
            return false;
    }
    return true;
}

/* Compute the index of the last element; false on overflow.  No size is 0. */
static bool tensor_last(const ckpt_tensor_value *t, uint64_t *out)
{
    uint64_t way;

    *out = t->offset;
    for (uint32_t k = 0; k < t->ndim; k++) {
        if (!ckpt_mul(t->shape[k] - 1, t->stride[k], &way) || !ckpt_add(*out, way, out))
            return false;
    }
    return true;
}

/* True if some axis repeats one element. */
static bool tensor_broadcasts(const ckpt_tensor_value *t)
{
    for (uint32_t k = 0; k < t->ndim; k++) {
        if (t->shape[k] > 1 && t->stride[k] == 0)
            return true;
    }
    return false;
}

/* Check a strided tensor against its storage. */
static int tensor_check(const ckpt_pk *p, const ckpt_tensor_value *t)
{
    unsigned bits = ckpt_dtype_get(t->dtype)->bits;
    // a byte holds two elements of packed F4; n_bytes comes from a count below 2^63
    uint64_t room = bits < 8 ? t->storage->n_bytes * (8 / bits) : t->storage->n_bytes / (bits / 8);
    bool wide = tensor_broadcasts(t);
    uint64_t volume, n_bytes, last;
    bool empty;

    if (!tensor_volume(t, &volume, &empty) || volume > UINT64_MAX / 16)
        return wide && !empty
                   ? ckpt_pk_fail(p, CKPT_ELIMIT, "a broadcast tensor of more than 2^60 elements")
                   : tensor_bad(p, "whose size overflows");
    if (empty)
        return t->offset <= UINT64_MAX / 16 ? CKPT_OK : tensor_bad(p, "whose offset overflows");
    if (!tensor_last(t, &last) || last >= room)
        return ckpt_pk_fail(
            p, CKPT_EFORMAT,
            "a tensor reaches past the end of its storage %.*s of %" PRIu64 " elements",
            t->storage->key.n > 80 ? 80 : (int)t->storage->key.n, t->storage->key.at, room);
    n_bytes = bits < 8 ? volume * bits / 8 : volume * (bits / 8);
    if (n_bytes <= t->storage->n_bytes)
        return CKPT_OK;
    if (!wide)
        return tensor_bad(p, "whose axes overlap in its storage");
    return n_bytes <= TENSOR_BROADCAST_MAX
               ? CKPT_OK
               : ckpt_pk_fail(p, CKPT_ELIMIT,
                              "a stride of 0 makes a tensor of %" PRIu64 " bytes out of %" PRIu64,
                              n_bytes, t->storage->n_bytes);
}

/*
 * Double the last axis of a float4_e2m1fn_x2 tensor, because torch counts pairs and our shapes
 * count elements.  The pairs of that axis must be contiguous.
 */
static int tensor_unpair(const ckpt_pk *p, ckpt_tensor_value *t)
{
    uint64_t *shape = ckpt_arena_copy(p->arena, t->shape, t->ndim * sizeof *shape);
    uint64_t *stride = ckpt_arena_copy(p->arena, t->stride, t->ndim * sizeof *stride);
    uint64_t expect = 1;
    bool ok = t->ndim > 0 && ckpt_mul(t->offset, 2, &t->offset);

    if (!shape || !stride)
        return ckpt_pk_fail(p, CKPT_ELIMIT, "out of memory");
    for (uint32_t k = t->ndim; ok && k-- > 0;) {
        ok = (shape[k] <= 1 || stride[k] == expect) && ckpt_mul(expect, shape[k], &expect);
        if (k + 1 == t->ndim) {
            ok = ok && ckpt_mul(shape[k], 2, &shape[k]);
            stride[k] = 1;
        } else {
            ok = ok && ckpt_mul(stride[k], 2, &stride[k]);
        }
    }
    t->shape = shape;
    t->stride = stride;
    return ok ? CKPT_OK
              : ckpt_pk_fail(p, CKPT_EUNSUPPORTED,
                             "a float4 tensor is not contiguous or has no axis");
}

/* ---- arguments ---- */

/* Read requires_grad. */
static int tensor_grad(const ckpt_pk *p, ckpt_tensor_value *t, const ckpt_value *v)
{
    if (v->kind != CKPT_V_BOOL)
        return tensor_bad(p, "whose requires_grad is not a bool");
    t->flags |= v->as.i != 0 ? CKPT_TENSOR_GRAD : 0u;
    return CKPT_OK;
}

/* Check the hooks.  They hold functions, so torch.save writes them empty. */
static int tensor_hooks(const ckpt_pk *p, const ckpt_value *v)
{
    if (v->kind != CKPT_V_ODICT && v->kind != CKPT_V_DICT && v->kind != CKPT_V_NONE)
        return tensor_bad(p, "whose hooks are not a dict");
    return ckpt_value_map(v).n == 0
               ? CKPT_OK
               : ckpt_pk_fail(
                     p, CKPT_EUNSUPPORTED,
                     "a tensor has hooks, which are functions; remove them before the save");
}

/* Read {'conj': True, 'neg': True}: flags of values that readers must still convert. */
static int tensor_metadata(const ckpt_pk *p, ckpt_tensor_value *t, const ckpt_value *v)
{
    ckpt_dict map = ckpt_value_map(v);

    if (v->kind != CKPT_V_DICT && v->kind != CKPT_V_NONE)
        return tensor_bad(p, "whose metadata is not a dict");
    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_pair *e = &map.at[i];
        uint32_t flag = ckpt_value_is(e->key, "conj")  ? CKPT_TENSOR_CONJ
                        : ckpt_value_is(e->key, "neg") ? CKPT_TENSOR_NEG
                                                       : 0u;

        if (flag == 0)
            return ckpt_pk_fail(p, CKPT_EUNSUPPORTED,
                                "a tensor has metadata other than conj and neg");
        if (e->value->kind != CKPT_V_BOOL)
            return tensor_bad(p, "whose metadata is not a bool");
        t->flags |= e->value->as.i != 0 ? flag : 0u;
    }
    return CKPT_OK;
}

/* Read the dtype argument: one of ours, or a name that torch may know. */
static int tensor_dtype(const ckpt_pk *p, ckpt_tensor_value *t, const ckpt_value *v)
{
    if (v->kind == CKPT_V_DTYPE) {
        t->dtype = v->as.dtype;
        return CKPT_OK;
    }
    if (v->kind == CKPT_V_GLOBAL)
        return ckpt_pk_fail(p, CKPT_EUNSUPPORTED, "a tensor has the unknown dtype %s",
                            v->as.global.name.at);
    return tensor_bad(p, "without a dtype");
}

/* Make an empty tensor node. */
static int tensor_new(const ckpt_pk *p, ckpt_value **out)
{
    ckpt_value *v = ckpt_pk_node(p, CKPT_V_TENSOR);

    if (!v)
        return CKPT_ELIMIT;
    v->as.tensor = ckpt_arena_alloc(p->arena, sizeof *v->as.tensor);
    *out = v;
    return v->as.tensor ? CKPT_OK : ckpt_pk_fail(p, CKPT_ELIMIT, "out of memory");
}

/*
 * Handle a tensor in a storage that is part of another one (key, offset, count): check that it lies
 * inside the part, and convert it to a tensor of the whole storage.
 */
static int tensor_in_view(ckpt_pk *p, ckpt_tensor_value *t, ckpt_seq view)
{
    ckpt_storage *whole = t->storage, part = *whole;
    int rc;

    part.n_elems = (uint64_t)view.at[2]->as.i;
    part.n_bytes = whole->n_elems ? part.n_elems * (whole->n_bytes / whole->n_elems) : 0;
    t->storage = &part;
    rc = tensor_check(p, t);
    t->storage = whole;
    if (rc == CKPT_OK && !ckpt_add(t->offset, (uint64_t)view.at[1]->as.i, &t->offset))
        rc = tensor_bad(p, "whose offset is not a count");
    return rc;
}

/* ---- the functions ---- */

/* Handle _rebuild_tensor, _v2, _v3. */
static int tensor_strided(ckpt_pk *p, ckpt_value **out, ckpt_name_id id, const ckpt_seq *a)
{
    uint64_t least = id == CKPT_NAME_REBUILD_V1 ? 4 : id == CKPT_NAME_REBUILD_V2 ? 6 : 7;
    uint64_t most = id == CKPT_NAME_REBUILD_V1 ? 4 : least + 1;
    ckpt_tensor_value *t;
    int rc = tensor_new(p, out);

    if (rc != CKPT_OK)
        return rc;
    if (a->n < least || a->n > most || a->at[0]->kind != CKPT_V_STORAGE)
        return tensor_bad(p, "whose arguments are not a storage, an offset, sizes and strides");
    t = (*out)->as.tensor;
    t->storage = a->at[0]->as.storage;
    t->dtype = t->storage->dtype;
    if (a->at[1]->kind != CKPT_V_INT || a->at[1]->as.i < 0)
        return tensor_bad(p, "whose offset is not a count");
    t->offset = (uint64_t)a->at[1]->as.i;
    rc = tensor_shape(p, t, a->at[2], a->at[3]);
    if (rc == CKPT_OK && least > 4) {
        rc = tensor_grad(p, t, a->at[4]);
        rc = rc != CKPT_OK ? rc : tensor_hooks(p, a->at[5]);
    }
    if (rc == CKPT_OK && id == CKPT_NAME_REBUILD_V3)
        rc = t->dtype == CKPT_DTYPE_NONE ? tensor_dtype(p, t, a->at[6])
                                         : tensor_bad(p, "with a dtype beside a typed storage");
    if (rc == CKPT_OK && a->n > least)
        rc = tensor_metadata(p, t, a->at[least]);
    if (rc == CKPT_OK && t->dtype == CKPT_DTYPE_NONE)
        rc = tensor_bad(p, "without a dtype: its storage is untyped");
    if (rc == CKPT_OK && t->dtype == CKPT_F4)
        rc = tensor_unpair(p, t);
    if (rc == CKPT_OK && a->at[0]->state)
        rc = tensor_in_view(p, t, ckpt_value_seq(a->at[0]->state));
    return rc == CKPT_OK ? tensor_check(p, t) : rc;
}

/* Handle _rebuild_meta_tensor_no_storage: a shape without bytes. */
static int tensor_meta(ckpt_pk *p, ckpt_value **out, const ckpt_seq *a)
{
    uint64_t volume;
    bool empty;
    ckpt_tensor_value *t;
    int rc = tensor_new(p, out);

    if (rc != CKPT_OK)
        return rc;
    t = (*out)->as.tensor;
    if (a->n != 4)
        return tensor_bad(p, "on device meta whose arguments are not dtype, size, stride, grad");
    rc = tensor_dtype(p, t, a->at[0]);
    if (rc == CKPT_OK)
        rc = tensor_shape(p, t, a->at[1], a->at[2]);
    if (rc == CKPT_OK)
        rc = tensor_grad(p, t, a->at[3]);
    if (rc == CKPT_OK && t->dtype == CKPT_F4)
        rc = tensor_unpair(p, t);
    if (rc == CKPT_OK && (!tensor_volume(t, &volume, &empty) || volume > UINT64_MAX / 16))
        rc = tensor_bad(p, "whose size overflows");
    return rc;
}

/* True for a class of torchao, whose tensors formats/torch/wrapped.c reads or refuses. */
static bool tensor_is_ao(const ckpt_seq *args, uint64_t i)
{
    static const char place[] = "torchao.";
    const ckpt_value *v = i < args->n ? args->at[i] : NULL;

    return v && v->kind == CKPT_V_GLOBAL &&
           strncmp(v->as.global.module.at, place, sizeof place - 1) == 0;
}

/*
 * Handle _rebuild_parameter and _rebuild_parameter_with_state: make another node over the same
 * storage.
 */
static int tensor_parameter(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    const ckpt_seq *a = &args->as.seq;
    bool with_state = ckpt_pk_id(p, callee) == CKPT_NAME_REBUILD_PARAMETER_STATE;
    int rc;

    if (a->n != (with_state ? 4u : 3u))
        return tensor_bad(p, "that is a parameter with a wrong number of arguments");
    if (a->at[0]->kind == CKPT_V_OBJECT) { // a parameter of a sparse or wrapped kind
        const ckpt_seq inner = ckpt_value_seq(a->at[0]->as.object->args);

        p->out->n_special += !tensor_is_ao(&inner, 1);
        return ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    }
    if (a->at[0]->kind != CKPT_V_TENSOR)
        return tensor_bad(p, "that is a parameter, but whose data is not a tensor");
    rc = tensor_new(p, out);
    if (rc != CKPT_OK)
        return rc;
    *(*out)->as.tensor = *a->at[0]->as.tensor;
    (*out)->as.tensor->flags &= ~(uint32_t)CKPT_TENSOR_GRAD;
    (*out)->as.tensor->flags |= CKPT_TENSOR_PARAMETER;
    rc = tensor_grad(p, (*out)->as.tensor, a->at[1]);
    if (rc == CKPT_OK)
        rc = tensor_hooks(p, a->at[2]);
    if (rc == CKPT_OK && with_state)
        (*out)->as.tensor->state = a->at[3];
    return rc;
}

/* Handle any of the functions above by its name and arguments. */
static int tensor_plain(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    ckpt_name_id id = ckpt_pk_id(p, callee);

    switch ((int)id) {
    case CKPT_NAME_REBUILD_V1:
    case CKPT_NAME_REBUILD_V2:
    case CKPT_NAME_REBUILD_V3:
        return tensor_strided(p, out, id, &args->as.seq);
    case CKPT_NAME_REBUILD_PARAMETER:
    case CKPT_NAME_REBUILD_PARAMETER_STATE:
        return tensor_parameter(p, out, callee, args);
    case CKPT_NAME_REBUILD_META:
        return tensor_meta(p, out, &args->as.seq);
    case CKPT_NAME_REBUILD_SPECIAL:
        p->out->n_special += !tensor_is_ao(&args->as.seq, 0);
        return ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    default:
        return ckpt_pk_fail(
            p, CKPT_EUNSUPPORTED,
            "quantized tensors cannot be read; store their dequantized values instead");
    }
}

/*
 * Handle _rebuild_from_type_v2(function, type, arguments, state): a tensor with Python attributes.
 */
static int tensor_from_type(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    const ckpt_seq *a = &args->as.seq;
    ckpt_name_id inner = a->n == 4 ? ckpt_pk_id(p, a->at[0]) : CKPT_NAME_UNSAFE;
    int rc;

    if (a->n != 4)
        return tensor_bad(p, "rebuilt from its type with a wrong number of arguments");
    if (!ckpt_pk_rebuilds(inner) || inner == CKPT_NAME_REBUILD_FROM_TYPE)
        return ckpt_pk_fail(p, CKPT_EUNSAFE,
                            "the function given to _rebuild_from_type_v2 does not make a tensor");
    if (a->at[1]->kind != CKPT_V_GLOBAL || a->at[2]->kind != CKPT_V_TUPLE)
        return tensor_bad(p, "rebuilt from its type without a type or arguments");
    rc = tensor_plain(p, out, a->at[0], a->at[2]);
    if (rc != CKPT_OK)
        return rc;
    if ((*out)->kind != CKPT_V_TENSOR)
        return ckpt_pk_object(p, out, CKPT_BY_REDUCE, callee, args);
    (*out)->as.tensor->type = a->at[1];
    (*out)->as.tensor->state = a->at[3];
    return CKPT_OK;
}

int ckpt_pk_tensor(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args)
{
    assert(out && callee && args);
    return ckpt_pk_id(p, callee) == CKPT_NAME_REBUILD_FROM_TYPE
               ? tensor_from_type(p, out, callee, args)
               : tensor_plain(p, out, callee, args);
}
