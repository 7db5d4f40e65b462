/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_json.c: prints the tree as JSON, for programs.
 *
 * None, bools, floats, texts, lists and dicts with text keys are printed as JSON's own values.
 * Other values:
 *     {"$int": "9223372036854775808"}  beyond 2^53   {"$float": "nan"}
 *     {"$tuple": [..]}  {"$set": [..]}  {"$frozenset": [..]}  {"$size": [..]}
 *     {"$dict": [[key, value], ..]}  keys that are not text, or begin with '$'
 *     {"$state": .., "$odict": ..}  an OrderedDict with attributes
 *     {"$bytes": "00ff", "$length": 2}  {"$bytearray": ..}  hexadecimal, cut at 1024 bytes
 *     {"$global": "module.name"}  {"$dtype": "float32"}  {"$storage": {..}}  {"$tensor": {..}}
 *     {"$object": {"class": .., "args": .., "kwargs": .., "state": .., "items": [..],
 *     "pairs": [..]}}
 *     {"$numpy": {"dtype": "f8", "shape": [..], "values": [..]}}
 *     {"$id": 1, "$value": ..}  and later  {"$ref": 1}  a shared value
 *     {"$cut": "depth"}, {"$more": 12}  parts beyond the limits
 */
#include <inttypes.h>
#include <math.h>

#include "libckpt/base/dtype.h"
#include "libckpt/inspect/tree.h"

#define JSON_BYTES_MAX 1024u
#define JSON_ELEMS_MAX 16u
/* bytes; a longer key is printed as a value, which can be referred to */
#define JSON_KEY_MAX 512u
#define JSON_INT_MAX ((int64_t)1 << 53) /* every JSON reader can represent it exactly */

/* Print a text of any length. */
static void json_text(ckpt_tree *t, ckpt_text s)
{
    ckpt_tree_quoted(t, s, '"', 0);
}

/* Print "module.name" as one text. */
static void json_name(ckpt_tree *t, const ckpt_global *g)
{
    ckpt_tree_puts(t, "\"");
    ckpt_tree_escaped(t, g->module, '"', 0);
    ckpt_tree_puts(t, ".");
    ckpt_tree_escaped(t, g->name, '"', 0);
    ckpt_tree_puts(t, "\"");
}

/* Print a list of sizes or strides under a key. */
static void json_counts(ckpt_tree *t, const char *key, const uint64_t *a, uint32_t n)
{
    ckpt_tree_printf(t, "\"%s\":[", key);
    for (uint32_t k = 0; k < n; k++)
        ckpt_tree_printf(t, "%s%" PRIu64, k > 0 ? "," : "", a[k]);
    ckpt_tree_puts(t, "]");
}

/* Print a flag only if it is set. */
static void json_bool(ckpt_tree *t, const char *key, bool b)
{
    if (b)
        ckpt_tree_printf(t, ",\"%s\":true", key);
}

/* Print {"$tensor": {...; the caller adds attributes of the object and closes the braces. */
static void json_tensor(ckpt_tree *t, const ckpt_tensor_value *x)
{
    ckpt_tree_printf(t, "{\"$tensor\":{\"dtype\":\"%s\",", ckpt_dtype_name(x->dtype));
    json_counts(t, "shape", x->shape, x->ndim);
    ckpt_tree_puts(t, ",");
    json_counts(t, "stride", x->stride, x->ndim);
    if (x->storage) {
        ckpt_tree_puts(t, ",\"storage\":");
        json_text(t, x->storage->key);
        ckpt_tree_printf(t, ",\"offset\":%" PRIu64, x->offset);
    }
    json_bool(t, "meta", !x->storage);
    json_bool(t, "parameter", (x->flags & CKPT_TENSOR_PARAMETER) != 0);
    json_bool(t, "requires_grad", (x->flags & CKPT_TENSOR_GRAD) != 0);
    json_bool(t, "conj", (x->flags & CKPT_TENSOR_CONJ) != 0);
    json_bool(t, "neg", (x->flags & CKPT_TENSOR_NEG) != 0);
    if (x->type && x->type->kind == CKPT_V_GLOBAL) {
        ckpt_tree_puts(t, ",\"type\":");
        json_name(t, &x->type->as.global);
    }
}

/* Print a storage that is not part of a tensor. */
static void json_storage(ckpt_tree *t, const ckpt_storage *s)
{
    ckpt_tree_puts(t, "{\"$storage\":{\"key\":");
    json_text(t, s->key);
    ckpt_tree_printf(t, ",\"dtype\":\"%s\",\"n_elems\":%" PRIu64 "}}",
                     s->dtype == CKPT_DTYPE_NONE ? "bytes" : ckpt_dtype_name(s->dtype), s->n_elems);
}

/* Print an array or scalar of numpy, with a limited number of elements. */
static void json_numpy(ckpt_tree *t, const ckpt_tree_array *a)
{
    ckpt_tree_printf(t, "{\"$numpy\":{\"dtype\":\"%c%u\",\"shape\":[", a->kind, a->size);
    for (uint64_t k = 0; k < a->shape.n; k++)
        ckpt_tree_printf(t, "%s%" PRId64, k > 0 ? "," : "", a->shape.at[k]->as.i);
    ckpt_tree_puts(t, "],\"values\":[");
    for (uint64_t i = 0; i < a->n_elems && i < JSON_ELEMS_MAX; i++) {
        // as texts, because NaN and 64-bit integers have no exact JSON form
        ckpt_tree_puts(t, i == 0 ? "\"" : ",\"");
        ckpt_tree_element(t, a, i);
        ckpt_tree_puts(t, "\"");
    }
    ckpt_tree_printf(t, "]%s}}", a->n_elems > JSON_ELEMS_MAX ? ",\"cut\":true" : "");
}

/* Print the first bytes, and the number of all. */
static void json_bytes(ckpt_tree *t, const ckpt_value *v)
{
    ckpt_tree_printf(t, "{\"$%s\":\"", v->kind == CKPT_V_BYTES ? "bytes" : "bytearray");
    ckpt_tree_hex(t, v->as.text, JSON_BYTES_MAX);
    ckpt_tree_printf(t, "\",\"$length\":%" PRIu64 "}", v->as.text.n);
}

/* Print ints and floats; numbers that JSON readers would round become text. */
static void json_number(ckpt_tree *t, const ckpt_value *v)
{
    bool plain = v->kind == CKPT_V_FLOAT
                     ? isfinite(v->as.f)
                     : v->kind == CKPT_V_INT && v->as.i <= JSON_INT_MAX && v->as.i >= -JSON_INT_MAX;

    ckpt_tree_puts(t, plain ? "" : v->kind == CKPT_V_FLOAT ? "{\"$float\":\"" : "{\"$int\":\"");
    if (v->kind == CKPT_V_FLOAT)
        ckpt_tree_float(t, v->as.f);
    else
        ckpt_tree_int(t, v);
    ckpt_tree_puts(t, plain ? "" : "\"}");
}

/* Print a value without parts; false if it is a container. */
static bool json_leaf(ckpt_tree *t, const ckpt_value *v)
{
    switch ((int)v->kind) {
    case CKPT_V_NONE:
        ckpt_tree_puts(t, "null");
        return true;
    case CKPT_V_BOOL:
        ckpt_tree_puts(t, v->as.i != 0 ? "true" : "false");
        return true;
    case CKPT_V_INT:
    case CKPT_V_LONG:
    case CKPT_V_FLOAT:
        json_number(t, v);
        return true;
    case CKPT_V_STR:
        json_text(t, v->as.text);
        return true;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        json_bytes(t, v);
        return true;
    case CKPT_V_GLOBAL:
        ckpt_tree_puts(t, "{\"$global\":");
        json_name(t, &v->as.global);
        ckpt_tree_puts(t, "}");
        return true;
    case CKPT_V_DTYPE:
        ckpt_tree_printf(t, "{\"$dtype\":\"%s\"}",
                         ckpt_dtype_get(v->as.dtype)->torch != NULL
                             ? ckpt_dtype_get(v->as.dtype)->torch
                             : ckpt_dtype_name(v->as.dtype));
        return true;
    case CKPT_V_STORAGE:
        json_storage(t, v->as.storage);
        return true;
    default:
        return false;
    }
}

/* True if a dict can be a JSON object: only short text keys, none that begins with '$'. */
static bool json_is_object(const ckpt_value *v)
{
    ckpt_dict map = ckpt_value_map(v);

    for (uint64_t i = 0; i < map.n; i++) {
        const ckpt_value *key = map.at[i].key;

        if (key->kind != CKPT_V_STR || key->as.text.n > JSON_KEY_MAX ||
            (key->as.text.n > 0 && key->as.text.at[0] == '$'))
            return false;
    }
    return v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT;
}

/* Open a container, up to its first part; returns the number of braces that close it. */
static unsigned json_open(ckpt_tree *t, const ckpt_value *v, bool object)
{
    switch ((int)v->kind) {
    case CKPT_V_LIST:
        ckpt_tree_puts(t, "[");
        return 0;
    case CKPT_V_TUPLE:
        ckpt_tree_puts(t, "{\"$tuple\":[");
        return 1;
    case CKPT_V_SIZE:
        ckpt_tree_puts(t, "{\"$size\":[");
        return 1;
    case CKPT_V_SET:
        ckpt_tree_puts(t, "{\"$set\":[");
        return 1;
    case CKPT_V_FROZENSET:
        ckpt_tree_puts(t, "{\"$frozenset\":[");
        return 1;
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
        if (v->state) {
            ckpt_tree_puts(t, "{");
            return object ? 2 : 1;
        }
        ckpt_tree_puts(t, object ? "{" : "{\"$dict\":[");
        return 1;
    case CKPT_V_TENSOR:
        json_tensor(t, v->as.tensor);
        return 2;
    default:
        ckpt_tree_puts(t, "{\"$object\":{\"class\":");
        if (v->as.object->cls && v->as.object->cls->kind == CKPT_V_GLOBAL)
            json_name(t, &v->as.object->cls->as.global);
        else
            ckpt_tree_puts(t, "null");
        return 2;
    }
}

/* Print a leaf completely; of a container print the beginning, and push a frame for its parts. */
static void json_begin(ckpt_tree *t, const ckpt_value *v)
{
    bool again;
    uint32_t id = ckpt_tree_share(t, v, &again);
    ckpt_tree_array a;
    ckpt_tree_frame *f;

    if (again) {
        ckpt_tree_printf(t, "{\"$ref\":%u}", id);
        return;
    }
    if (id != 0)
        ckpt_tree_printf(t, "{\"$id\":%u,\"$value\":", id);
    if (ckpt_tree_numpy(v, &a)) {
        json_numpy(t, &a);
    } else if (!json_leaf(t, v)) {
        f = t->frames.n < t->max_depth ? ckpt_vec_push(&t->frames) : NULL;
        if (f) {
            f->v = v;
            f->object = json_is_object(v); // computed once, because it looks at every key
            f->wraps = json_open(t, v, f->object) + (id != 0);
            return;
        }
        if (t->frames.n < t->max_depth)
            ckpt_tree_fail(t, CKPT_ELIMIT, "out of memory");
        ckpt_tree_puts(t, "{\"$cut\":\"depth\"}");
    }
    ckpt_tree_puts(t, id != 0 ? "}" : "");
}

/* Separate the lists of an ordered dict or an object from the parts before them. */
static void json_list_begins(ckpt_tree *t, const ckpt_value *v, const ckpt_tree_slot *s,
                             bool object)
{
    if (v->kind == CKPT_V_OBJECT) {
        bool after_items = s->role == CKPT_TREE_KEY && v->as.object->items.n > 0;

        ckpt_tree_puts(t, after_items ? "]" : "");
        ckpt_tree_puts(t, s->role == CKPT_TREE_KEY ? ",\"pairs\":[" : ",\"items\":[");
    } else if (v->state) {
        ckpt_tree_puts(t, object ? ",\"$odict\":{" : ",\"$odict\":[");
    }
}

/* Print everything between the previous part and the value of this one. */
static void json_separate(ckpt_tree *t, const ckpt_value *v, const ckpt_tree_slot *s, bool object)
{
    static const char *const parts[] = {[CKPT_TREE_ARGS] = ",\"args\":",
                                        [CKPT_TREE_KWARGS] = ",\"kwargs\":",
                                        [CKPT_TREE_STATE] = ",\"state\":"};

    switch (s->role) {
    case CKPT_TREE_ARGS:
    case CKPT_TREE_KWARGS:
    case CKPT_TREE_STATE:
        ckpt_tree_puts(t, v->kind == CKPT_V_ODICT ? "\"$state\":" : parts[s->role]);
        break;
    case CKPT_TREE_ITEM:
        if (s->number == 0)
            json_list_begins(t, v, s, object);
        ckpt_tree_puts(t, s->number > 0 ? "," : "");
        break;
    case CKPT_TREE_KEY:
        if (s->number == 0)
            json_list_begins(t, v, s, object);
        ckpt_tree_puts(t, s->number == 0 ? "" : object ? "," : "],");
        ckpt_tree_puts(t, object ? "" : "[");
        break;
    case CKPT_TREE_VALUE:
        ckpt_tree_puts(t, object ? ":" : ",");
        break;
    case CKPT_TREE_END:
        break;
    }
}

/* Close a container after n items or pairs were printed. */
static void json_close(ckpt_tree *t, const ckpt_tree_frame *f, bool object, uint64_t n_left)
{
    const ckpt_value *v = f->v;
    bool in_pairs = !object && ckpt_value_map(v).n > 0;
    bool in_list = v->kind != CKPT_V_TENSOR && v->kind != CKPT_V_OBJECT && !object;

    if (v->kind == CKPT_V_OBJECT) {
        in_pairs = v->as.object->pairs.n > 0 && f->n_printed > v->as.object->items.n;
        in_list = ckpt_tree_n_items(v) > 0;
    }
    if (v->kind == CKPT_V_ODICT && v->state && v->as.map.n == 0) {
        ckpt_tree_puts(t, ",\"$odict\":{"); // it was not opened before
    }
    ckpt_tree_puts(t, in_pairs && f->n_printed > 0 ? "]" : "");
    if (n_left > 0) {
        ckpt_tree_puts(t, f->n_printed > 0 ? "," : "");
        ckpt_tree_printf(t, object ? "\"$more\":%" PRIu64 : "{\"$more\":%" PRIu64 "}", n_left);
    }
    ckpt_tree_puts(t, in_list ? "]" : "");
    for (unsigned i = 0; i < f->wraps; i++)
        ckpt_tree_puts(t, "}");
}

/* Print the next part of the innermost container. */
static void json_step(ckpt_tree *t)
{
    ckpt_tree_frame *f = &t->frames.at[t->frames.n - 1];
    bool object = f->object;
    ckpt_tree_slot s = ckpt_tree_slot_at(f->v, f->i++);
    bool is_item = s.role == CKPT_TREE_ITEM || s.role == CKPT_TREE_KEY;
    const ckpt_value *v = f->v;

    if (s.role == CKPT_TREE_END || (is_item && t->max_items != 0 && f->n_printed >= t->max_items)) {
        json_close(t, f, object, ckpt_tree_n_items(v) - f->n_printed);
        t->frames.n--;
        return;
    }
    if (!s.v)
        return;
    f->n_printed += is_item;
    json_separate(t, v, &s, object);
    if (s.role == CKPT_TREE_KEY && object) {
        json_text(t, s.v->as.text);
    } else {
        json_begin(t, s.v); // f may be invalid now
    }
}

void ckpt_tree_json(ckpt_tree *t, const ckpt_value *root)
{
    json_begin(t, root);
    while (t->rc == CKPT_OK && t->frames.n > 0)
        json_step(t);
    ckpt_tree_puts(t, "\n");
}
