/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrapped.c: finds the parts of tensors of torchao's classes in a pickle.
 *
 * torch.save of torch 2.15 and torchao 0.18 writes _rebuild_from_type_v2(_rebuild_wrapper_subclass,
 * class, (class, dtype, size, stride, offset, layout, device, requires_grad), attributes). The
 * attributes are those of the class; nothing of it is imported. The parts get the names and the
 * JSON text that torchao's safetensors have, so that one decoder reads both (dequant_torchao.c).
 */
#include "formats/torch/wrapped.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/transform/torchao.h"

/* The containers of an attribute, and the bytes of all attributes as JSON. */
enum { WRP_DEPTH = 4, WRP_BYTES = 1 << 16 };

static bool wrp_is_global(const ckpt_value *v, const char *name)
{
    return v && v->kind == CKPT_V_GLOBAL && strcmp(v->as.global.name.at, name) == 0;
}

/* The class of an object that torch wraps; NULL: it is none, or another package's class. */
static const ckpt_value *wrp_class(const ckpt_value *v)
{
    static const char place[] = "torchao.";
    const ckpt_seq a =
        v && v->kind == CKPT_V_OBJECT ? ckpt_value_seq(v->as.object->args) : (ckpt_seq){0};

    if (a.n != 4 || !wrp_is_global(v->as.object->cls, "_rebuild_from_type_v2") ||
        !wrp_is_global(a.at[0], "_rebuild_wrapper_subclass") || a.at[1]->kind != CKPT_V_GLOBAL ||
        strncmp(a.at[1]->as.global.module.at, place, sizeof place - 1) != 0 ||
        strstr(a.at[1]->as.global.module.at, "optim"))
        return NULL; // states of its optimizers stay in the tree
    return a.at[1];
}

/* The object itself, or the one in a parameter. */
static const ckpt_value *wrp_inner(const ckpt_value *v)
{
    const ckpt_object *o = v->kind == CKPT_V_OBJECT ? v->as.object : NULL;
    const ckpt_seq a = o ? ckpt_value_seq(o->args) : (ckpt_seq){0};

    if (a.n > 0 && (wrp_is_global(o->cls, "_rebuild_parameter") ||
                    wrp_is_global(o->cls, "_rebuild_parameter_with_state")))
        return a.at[0];
    return v;
}

bool ckpt_torch_is_wrapped(const ckpt_value *v)
{
    return wrp_class(wrp_inner(v));
}

/* ---- attributes as JSON ---- */

/*
 * Append a value; one that has no such form becomes null. False: no memory, or a limit. Nested
 * lists that share their items would become far longer than their pickle.
 */
static bool wrp_json(ckpt_bytes *out, const ckpt_value *v, unsigned depth)
{
    const ckpt_seq s = ckpt_value_seq(v);
    const ckpt_dtype_info *dtype = v->kind == CKPT_V_DTYPE ? ckpt_dtype_get(v->as.dtype) : NULL;
    bool ok = true;

    switch ((int)v->kind) {
    case CKPT_V_INT:
        return ckpt_bytes_printf(out, "%" PRId64, v->as.i);
    case CKPT_V_BOOL:
        return ckpt_bytes_printf(out, "%s", v->as.i ? "true" : "false");
    case CKPT_V_DTYPE:
        return ckpt_bytes_printf(out, "{\"_type\": \"torch.dtype\", \"_data\": \"%s\"}",
                                 dtype->name);
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
        ok = depth < WRP_DEPTH && out->n < WRP_BYTES && ckpt_bytes_printf(out, "[");
        for (uint64_t i = 0; ok && i < s.n; i++)
            ok = out->n < WRP_BYTES && ckpt_bytes_printf(out, "%s", i ? ", " : "") &&
                 wrp_json(out, s.at[i], depth + 1);
        return ok && ckpt_bytes_printf(out, "]");
    default:
        return ckpt_bytes_printf(out, "null");
    }
}

/* Attributes that the decoder reads. */
static bool wrp_is_read(const char *key)
{
    static const char *const keys[] = {"block_size", "elem_dtype", "is_swizzled_scales"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i], key) == 0)
            return true;
    }
    return false;
}

/* Compose the text: class, the names of the parts, the result's dtype, other attributes. */
static int wrp_text(ckpt_torch_wrapped *w, ckpt_arena *arena, ckpt_dtype dtype, ckpt_dict state,
                    ckpt_err *err)
{
    ckpt_bytes text = {0};
    const char *odd = NULL; // an attribute that reached a limit, or memory
    bool ok = ckpt_bytes_printf(&text, "{\"_type\": \"%s\", \"_tensor_data_names\": [", w->type);

    for (uint32_t i = 0; ok && i < w->n_parts; i++)
        ok = ckpt_bytes_printf(&text, "%s\"%s\"", i ? ", " : "", w->name[i]);
    ok = ok && ckpt_bytes_printf(&text,
                                 "], \"_data\": {\"dtype\": {\"_type\": \"torch.dtype\", "
                                 "\"_data\": \"%s\"}",
                                 ckpt_dtype_name(dtype));
    for (uint64_t i = 0; ok && i < state.n; i++) {
        const ckpt_value *key = state.at[i].key;

        if (key->kind != CKPT_V_STR || !wrp_is_read(key->as.text.at))
            continue;
        ok = ckpt_bytes_printf(&text, ", \"%s\": ", key->as.text.at) &&
             wrp_json(&text, state.at[i].value, 0);
        if (!ok)
            odd = key->as.text.at;
    }
    ok = ok && ckpt_bytes_printf(&text, "}}") && ckpt_bytes_add(&text, "", 1);
    w->text = ok ? ckpt_arena_copy(arena, text.at, text.n) : NULL;
    ckpt_vec_free(&text);
    if (odd)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "the attribute %.40s of a tensor of class %.100s has more than %d nested "
                         "lists or %d bytes, or memory is exhausted",
                         odd, w->type, (int)WRP_DEPTH, (int)WRP_BYTES);
    return w->text ? CKPT_OK : ckpt_fail_memory(err);
}

/* ---- parts ---- */

/* The sizes of the result, as the wrapper has them, must be those of the parts. */
static bool wrp_sizes(const ckpt_value *size, const ckpt_tensor_value *q, const char *type)
{
    const ckpt_seq s = ckpt_value_seq(size);
    bool pairs = ckpt_torchao_pairs(type, q->dtype), ok = s.n == q->ndim && s.n > 0;

    for (uint64_t i = 0; ok && i < s.n; i++) {
        uint64_t of = q->shape[i];

        if (pairs && i + 1 == s.n && !ckpt_mul(of, 2, &of))
            return false;
        ok = s.at[i]->kind == CKPT_V_INT && s.at[i]->as.i >= 0 && (uint64_t)s.at[i]->as.i == of;
    }
    return ok;
}

/* Two numbers of a byte follow each other only if the last axis is contiguous. */
static bool wrp_in_rows(const ckpt_tensor_value *q)
{
    uint64_t by = 1;

    for (uint32_t i = q->ndim; i-- > 0;) {
        if (q->shape[i] > 1 && q->stride[i] != by)
            return false;
        if (!ckpt_mul(by, q->shape[i], &by))
            return false;
    }
    return true;
}

/* True for the name of an attribute, which needs no escapes in JSON. */
static bool wrp_is_name(ckpt_text s)
{
    return s.n > 0 && strspn(s.at, "abcdefghijklmnopqrstuvwxyz_0123456789") == s.n;
}

/* Collect the attributes that are tensors. */
static int wrp_parts(ckpt_torch_wrapped *w, ckpt_dict state)
{
    for (uint64_t i = 0; i < state.n; i++) {
        const ckpt_value *key = state.at[i].key, *v = state.at[i].value;

        if (v->kind != CKPT_V_TENSOR || key->kind != CKPT_V_STR)
            continue;
        if (w->n_parts == CKPT_TORCH_PARTS || !wrp_is_name(key->as.text))
            return CKPT_EFORMAT;
        w->name[w->n_parts] = key->as.text.at;
        w->part[w->n_parts++] = v->as.tensor;
    }
    return CKPT_OK;
}

int ckpt_torch_unwrap(ckpt_torch_wrapped *out, ckpt_arena *arena, const ckpt_value *v,
                      const char *file, const char *name, ckpt_err *err)
{
    assert(out && v && ckpt_torch_is_wrapped(v));
    const ckpt_value *inner = wrp_inner(v), *cls = wrp_class(inner);
    const ckpt_seq args = ckpt_value_seq(inner->as.object->args), of = ckpt_value_seq(args.at[2]);
    const ckpt_dict state = ckpt_value_map(args.at[3]);
    const ckpt_tensor_value *q = NULL;
    const ckpt_value *element;
    bool found = false;
    int rc;

    *out = (ckpt_torch_wrapped){.type = cls->as.global.name.at};
    element = ckpt_value_get(args.at[3], "elem_dtype");
    if (element && element->kind != CKPT_V_DTYPE)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: %.200s is a %.100s with elem_dtype %.100s, which ckpt cannot "
                         "dequantize; save its dequantized values instead",
                         file, name, out->type,
                         element->kind == CKPT_V_STR ? element->as.text.at : "(another)");
    if (!ckpt_torchao_known(out->type))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: %.200s is a tensor of class %.100s.%.100s, which ckpt cannot "
                         "dequantize; save its dequantized values instead",
                         file, name, cls->as.global.module.at, out->type);
    rc = wrp_parts(out, state);
    for (uint32_t i = 0; rc == CKPT_OK && i < out->n_parts; i++) {
        if (!out->part[i]->storage)
            rc = CKPT_EFORMAT;
        found = found || strcmp(out->name[i], "scale") == 0;
        if (strcmp(out->name[i], "qdata") == 0)
            q = out->part[i];
    }
    if (rc == CKPT_OK && q && ckpt_torchao_pairs(out->type, q->dtype) && !wrp_in_rows(q))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: %.200s: its packed numbers are transposed, and ckpt reads them in "
                         "rows only; save a contiguous tensor",
                         file, name);
    if (rc != CKPT_OK || !q || !found || of.n < 3 || of.at[1]->kind != CKPT_V_DTYPE ||
        !wrp_sizes(of.at[2], q, out->type))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: %.200s: expected %.100s with qdata and scale, whose sizes agree "
                         "with its own",
                         file, name, out->type);
    return wrp_text(out, arena, of.at[1]->as.dtype, state, err);
}
