/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_text.c: prints the tree as an outline: one line per value, indented below its container.
 *
 *    module: OrderedDict of 2
 *      fc.weight: tensor F32 [3, 4]
 *      fc.bias: &1 tensor F32 [3] requires_grad
 *    betas: (0.9, 0.999)
 *    again: same as &1
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/inspect/tree.h"
#include "libckpt/map/view.h"

#define TEXT_STR_MAX   120u /* printed bytes of a text */
#define TEXT_BYTES_MAX 32u
#define TEXT_ELEMS_MAX 6u /* printed values of a numpy array */

/*
 * True for a name or attribute without need of quotes: letters, digits, '_', '.', '-', '/', and not
 * a number.
 */
static bool text_is_plain(ckpt_text s)
{
    bool word = false;

    for (uint64_t i = 0; i < s.n; i++) {
        char c = s.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!letter && (c < '0' || c > '9') && (i == 0 || c == '\0' || !strchr(".-/", c)))
            return false;
        word = word || letter;
    }
    return word && s.n <= TEXT_STR_MAX;
}

/* module.name. */
static void text_name(ckpt_tree *t, const ckpt_value *v)
{
    const ckpt_global *g = &v->as.global;

    // names in hostile files may contain anything
    if (text_is_plain(g->module) && text_is_plain(g->name)) {
        ckpt_tree_put(t, g->module.at, (size_t)g->module.n);
        ckpt_tree_puts(t, ".");
        ckpt_tree_put(t, g->name.at, (size_t)g->name.n);
    } else {
        ckpt_tree_quoted(t, g->module, '\'', TEXT_STR_MAX);
        ckpt_tree_puts(t, ".");
        ckpt_tree_quoted(t, g->name, '\'', TEXT_STR_MAX);
    }
}

/* Print sizes or strides. */
static void text_counts(ckpt_tree *t, const uint64_t *a, uint32_t n)
{
    ckpt_tree_puts(t, "[");
    for (uint32_t k = 0; k < n; k++)
        ckpt_tree_printf(t, "%s%" PRIu64, k > 0 ? ", " : "", a[k]);
    ckpt_tree_puts(t, "]");
}

/* Print a tensor in one line, without its state. */
static void text_tensor(ckpt_tree *t, const ckpt_tensor_value *x)
{
    ckpt_tree_printf(t, "tensor %s ", ckpt_dtype_name(x->dtype));
    text_counts(t, x->shape, x->ndim);
    if (!ckpt_view_is_plain(x)) {
        ckpt_tree_puts(t, " stride ");
        text_counts(t, x->stride, x->ndim);
    }
    ckpt_tree_puts(t, !x->storage ? " meta" : "");
    ckpt_tree_puts(t, (x->flags & CKPT_TENSOR_PARAMETER) != 0 ? " parameter" : "");
    ckpt_tree_puts(t, (x->flags & CKPT_TENSOR_GRAD) != 0 ? " requires_grad" : "");
    ckpt_tree_puts(t, (x->flags & CKPT_TENSOR_CONJ) != 0 ? " conj" : "");
    ckpt_tree_puts(t, (x->flags & CKPT_TENSOR_NEG) != 0 ? " neg" : "");
}

/* Print a storage that is not part of a tensor. */
static void text_storage(ckpt_tree *t, const ckpt_storage *s)
{
    ckpt_tree_puts(t, "storage ");
    ckpt_tree_quoted(t, s->key, '\'', TEXT_STR_MAX);
    ckpt_tree_printf(t, " %s [%" PRIu64 "]",
                     s->dtype == CKPT_DTYPE_NONE ? "bytes" : ckpt_dtype_name(s->dtype), s->n_elems);
}

/* Print the length and the first bytes. */
static void text_bytes(ckpt_tree *t, const ckpt_value *v)
{
    ckpt_tree_printf(t, "%s of %" PRIu64, v->kind == CKPT_V_BYTES ? "bytes" : "bytearray",
                     v->as.text.n);
    if (v->as.text.n > 0) {
        ckpt_tree_puts(t, ": ");
        ckpt_tree_hex(t, v->as.text, TEXT_BYTES_MAX);
        ckpt_tree_puts(t, v->as.text.n > TEXT_BYTES_MAX ? "..." : "");
    }
}

/* Print a value that is one word. */
static void text_word(ckpt_tree *t, const ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_NONE:
        ckpt_tree_puts(t, "None");
        break;
    case CKPT_V_BOOL:
        ckpt_tree_puts(t, v->as.i != 0 ? "True" : "False");
        break;
    case CKPT_V_INT:
    case CKPT_V_LONG:
        ckpt_tree_int(t, v);
        break;
    case CKPT_V_FLOAT:
        ckpt_tree_float(t, v->as.f);
        break;
    case CKPT_V_STR:
        ckpt_tree_quoted(t, v->as.text, '\'', TEXT_STR_MAX);
        if (v->as.text.n > TEXT_STR_MAX)
            ckpt_tree_printf(t, " (%" PRIu64 " bytes)", v->as.text.n);
        break;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        text_bytes(t, v);
        break;
    case CKPT_V_DTYPE:
        ckpt_tree_printf(t, "torch.%s",
                         ckpt_dtype_get(v->as.dtype)->torch != NULL
                             ? ckpt_dtype_get(v->as.dtype)->torch
                             : ckpt_dtype_name(v->as.dtype));
        break;
    case CKPT_V_GLOBAL:
        ckpt_tree_puts(t, "class ");
        text_name(t, v);
        break;
    case CKPT_V_STORAGE:
        text_storage(t, v->as.storage);
        break;
    default:
        text_tensor(t, v->as.tensor);
        break;
    }
}

/* Print a short sequence on one line; call: as arguments of a call. */
static void text_inline(ckpt_tree *t, const ckpt_value *v, bool call)
{
    static const char *const around[][2] = {
        [CKPT_V_LIST] = {"[", "]"},
        [CKPT_V_TUPLE] = {"(", ")"},
        [CKPT_V_SIZE] = {"torch.Size([", "])"},
        [CKPT_V_SET] = {"{", "}"},
        [CKPT_V_FROZENSET] = {"frozenset({", "})"},
    };
    ckpt_seq s = ckpt_value_seq(v);

    if (s.n == 0 && v->kind == CKPT_V_SET) {
        ckpt_tree_puts(t, "set()");
        return;
    }
    ckpt_tree_puts(t, around[v->kind][0]);
    for (uint64_t i = 0; i < s.n; i++) {
        ckpt_tree_puts(t, i > 0 ? ", " : "");
        text_word(t, s.at[i]);
    }
    ckpt_tree_puts(t, v->kind == CKPT_V_TUPLE && s.n == 1 && !call ? "," : "");
    ckpt_tree_puts(t, around[v->kind][1]);
}

/* Print dtype, shape and the first values. */
static void text_numpy(ckpt_tree *t, const ckpt_tree_array *a)
{
    ckpt_tree_printf(t, "numpy %s %c%u", a->scalar ? "scalar" : "array", a->kind, a->size);
    if (!a->scalar) {
        ckpt_tree_puts(t, " [");
        for (uint64_t k = 0; k < a->shape.n; k++)
            ckpt_tree_printf(t, "%s%" PRId64, k > 0 ? ", " : "", a->shape.at[k]->as.i);
        ckpt_tree_puts(t, "]");
    }
    for (uint64_t i = 0; i < a->n_elems && i < TEXT_ELEMS_MAX; i++) {
        ckpt_tree_puts(t, i == 0 ? ": " : ", ");
        ckpt_tree_element(t, a, i);
    }
    ckpt_tree_puts(t, a->n_elems > TEXT_ELEMS_MAX ? ", ..." : "");
}

/* True if the arguments of an object are printed on its own line. */
static bool text_args_inline(const ckpt_value *v)
{
    const ckpt_value *args = v->as.object->args;

    return v->as.object->cls && args && args->kind == CKPT_V_TUPLE && ckpt_tree_is_inline(args);
}

/* Print the class, with its arguments if they are short. */
static void text_object(ckpt_tree *t, const ckpt_value *v)
{
    const ckpt_object *o = v->as.object;

    ckpt_tree_puts(t, "object ");
    if (!o->cls)
        ckpt_tree_puts(t, "of a persistent id");
    else if (o->cls->kind == CKPT_V_GLOBAL)
        text_name(t, o->cls);
    else
        ckpt_tree_puts(t, "of a computed class");
    if (text_args_inline(v) && o->args->as.seq.n > 0)
        text_inline(t, o->args, true);
}

/* Print kind and count. */
static void text_container(ckpt_tree *t, const ckpt_value *v)
{
    static const char *const names[] = {
        [CKPT_V_LIST] = "list",           [CKPT_V_TUPLE] = "tuple",
        [CKPT_V_SIZE] = "torch.Size",     [CKPT_V_SET] = "set",
        [CKPT_V_DICT] = "dict",           [CKPT_V_ODICT] = "OrderedDict",
        [CKPT_V_FROZENSET] = "frozenset",
    };

    if (v->kind == CKPT_V_DICT && v->as.map.n == 0) {
        ckpt_tree_puts(t, "{}");
        return;
    }
    ckpt_tree_printf(t, "%s of %" PRIu64, names[v->kind], ckpt_tree_n_items(v));
}

/* Print the line of a value, without its label. */
static void text_head(ckpt_tree *t, const ckpt_value *v, bool is_array, const ckpt_tree_array *a)
{
    if (is_array)
        text_numpy(t, a);
    else if (ckpt_tree_is_inline(v))
        text_inline(t, v, false);
    else if (v->kind == CKPT_V_OBJECT)
        text_object(t, v);
    else if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT ||
             (v->kind >= CKPT_V_LIST && v->kind <= CKPT_V_FROZENSET))
        text_container(t, v);
    else
        text_word(t, v);
}

/* True if lines for parts of the value follow its own. */
static bool text_has_more(const ckpt_value *v)
{
    if (ckpt_tree_is_inline(v))
        return false;
    for (uint64_t i = 0; i < ckpt_tree_n_fixed(v); i++) {
        ckpt_tree_slot s = ckpt_tree_slot_at(v, i);

        if (s.v && !(s.role == CKPT_TREE_ARGS && text_args_inline(v)))
            return true;
    }
    return ckpt_tree_n_items(v) > 0;
}

/* Print a value at the end of a line; push a frame if more lines follow. */
static void text_value(ckpt_tree *t, const ckpt_value *v, unsigned indent)
{
    bool again;
    uint32_t id = ckpt_tree_share(t, v, &again);
    ckpt_tree_array a;
    bool is_array = ckpt_tree_numpy(v, &a);
    ckpt_tree_frame *f;

    if (again) {
        ckpt_tree_printf(t, "same as &%u\n", id);
        return;
    }
    if (id != 0)
        ckpt_tree_printf(t, "&%u ", id);
    text_head(t, v, is_array, &a);
    if (is_array || !text_has_more(v)) {
        ckpt_tree_puts(t, "\n");
        return;
    }
    if (t->frames.n >= t->max_depth) {
        ckpt_tree_puts(t, " ...\n");
        return;
    }
    ckpt_tree_puts(t, "\n");
    f = ckpt_vec_push(&t->frames);
    if (!f) {
        ckpt_tree_fail(t, CKPT_ELIMIT, "out of memory");
        return;
    }
    f->v = v;
    f->wraps = indent;
}

/* True if a key can be a label; false if it needs its own lines. */
static bool text_key_is_word(const ckpt_value *key)
{
    return key->kind == CKPT_V_STR || ckpt_tree_is_scalar(key) || ckpt_tree_is_inline(key);
}

/* Print the label before the colon. */
static void text_label(ckpt_tree *t, const ckpt_tree_slot *s)
{
    switch (s->role) {
    case CKPT_TREE_ARGS:
        ckpt_tree_puts(t, "(args): ");
        break;
    case CKPT_TREE_KWARGS:
        ckpt_tree_puts(t, "(kwargs): ");
        break;
    case CKPT_TREE_STATE:
        ckpt_tree_puts(t, "(state): ");
        break;
    case CKPT_TREE_ITEM:
        ckpt_tree_printf(t, "%" PRIu64 ": ", s->number);
        break;
    case CKPT_TREE_KEY:
        ckpt_tree_printf(t, "(key %" PRIu64 "): ", s->number);
        break;
    case CKPT_TREE_VALUE:
        if (!text_key_is_word(s->key)) {
            ckpt_tree_printf(t, "(value %" PRIu64 "): ", s->number);
            break;
        }
        if (s->key->kind == CKPT_V_STR && text_is_plain(s->key->as.text))
            ckpt_tree_put(t, s->key->as.text.at, (size_t)s->key->as.text.n);
        else if (ckpt_tree_is_inline(s->key))
            text_inline(t, s->key, false);
        else
            text_word(t, s->key);
        ckpt_tree_puts(t, ": ");
        break;
    case CKPT_TREE_END:
        break;
    }
}

/* True if a slot is not printed: absent, or part of another line. */
static bool text_skips(const ckpt_value *v, const ckpt_tree_slot *s)
{
    return !s->v || (s->role == CKPT_TREE_KEY && text_key_is_word(s->v)) ||
           (s->role == CKPT_TREE_ARGS && text_args_inline(v));
}

/* Print the next line of the innermost container. */
static void text_step(ckpt_tree *t)
{
    ckpt_tree_frame *f = &t->frames.at[t->frames.n - 1];
    ckpt_tree_slot s = ckpt_tree_slot_at(f->v, f->i++);
    unsigned indent = f->wraps;
    bool is_item = s.role == CKPT_TREE_ITEM || s.role == CKPT_TREE_KEY;

    if (s.role == CKPT_TREE_END) {
        t->frames.n--;
        return;
    }
    if (is_item && t->max_items != 0 && f->n_printed++ >= t->max_items) {
        ckpt_tree_printf(t, "%*s... %" PRIu64 " more\n", (int)(indent * 2), "",
                         ckpt_tree_n_items(f->v) - f->n_printed + 1);
        t->frames.n--;
        return;
    }
    if (!text_skips(f->v, &s)) {
        for (unsigned i = 0; i < indent; i++)
            ckpt_tree_puts(t, "  ");
        text_label(t, &s);
        text_value(t, s.v, indent + 1);
    }
}

void ckpt_tree_text(ckpt_tree *t, const ckpt_value *root)
{
    text_value(t, root, 1);
    while (t->rc == CKPT_OK && t->frames.n > 0)
        text_step(t);
}
