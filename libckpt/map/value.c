/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c: makes nodes of the tree of values, grows containers, looks keys up, and compares trees.
 */
#include <assert.h>

#include "libckpt/map/value.h"

#include <string.h>

#include "libckpt/base/vec.h"

/* ---- constructors ---- */

/* The arena zeroes memory: a container begins empty, an object or tensor without contents. */
ckpt_value *ckpt_value_new(ckpt_arena *a, ckpt_value_kind kind)
{
    assert(a);
    ckpt_value *v = ckpt_arena_alloc(a, sizeof *v);

    if (v)
        v->kind = kind;
    return v;
}

ckpt_value *ckpt_value_int(ckpt_arena *a, int64_t i)
{
    ckpt_value *v = ckpt_value_new(a, CKPT_V_INT);

    if (v)
        v->as.i = i;
    return v;
}

ckpt_value *ckpt_value_float(ckpt_arena *a, double f)
{
    ckpt_value *v = ckpt_value_new(a, CKPT_V_FLOAT);

    if (v)
        v->as.f = f;
    return v;
}

ckpt_value *ckpt_value_bool(ckpt_arena *a, bool b)
{
    ckpt_value *v = ckpt_value_new(a, CKPT_V_BOOL);

    if (v)
        v->as.i = b ? 1 : 0;
    return v;
}

/* One allocation for the node, one for the bytes and their terminator. */
ckpt_value *ckpt_value_str(ckpt_arena *a, const char *s, uint64_t n)
{
    ckpt_value *v = ckpt_value_new(a, CKPT_V_STR);

    if (!v)
        return NULL;
    v->as.text.at = ckpt_arena_string(a, n > 0 ? s : "", n);
    v->as.text.n = n;
    return v->as.text.at ? v : NULL;
}

ckpt_value *ckpt_value_cstr(ckpt_arena *a, const char *s)
{
    assert(s);
    return ckpt_value_str(a, s, strlen(s));
}

/* ---- growing ---- */

/*
 * An array of `size`-byte items with capacity for at least n + 1: the old one if it suffices, else
 * a copy twice as long. The arena keeps the old ones until it is freed; all copies together cost
 * about as much as the last. NULL when the arena is exhausted; *room is then unchanged.
 */
static void *vl_grown(ckpt_arena *a, void *old, uint64_t n, uint64_t *room, uint64_t size)
{
    uint64_t more;
    void *array;

    if (n < *room)
        return old;
    // Four at first, because most containers of a checkpoint are tiny.
    if (n > UINT64_MAX / 2)
        return NULL;
    more = n < 2 ? 4 : n * 2;
    array = ckpt_arena_array(a, more, size);
    if (!array)
        return NULL;
    if (n > 0)
        memcpy(array, old, (size_t)(n * size));
    *room = more;
    return array;
}

/* item may be NULL for the caller to fill later. */
bool ckpt_seq_add(ckpt_arena *a, ckpt_seq *seq, ckpt_value *item)
{
    assert(a && seq);
    ckpt_value **at = vl_grown(a, seq->at, seq->n, &seq->room, sizeof *at);

    if (!at)
        return false;
    seq->at = at;
    seq->at[seq->n++] = item;
    return true;
}

/*
 * It does not look for the key, because decoders that must refuse duplicates have their own table.
 */
bool ckpt_dict_add(ckpt_arena *a, ckpt_dict *map, ckpt_value *key, ckpt_value *value)
{
    assert(a && map && key && value);
    ckpt_pair *at = vl_grown(a, map->at, map->n, &map->room, sizeof *at);

    if (!at)
        return false;
    map->at = at;
    map->at[map->n++] = (ckpt_pair){key, value};
    return true;
}

/*
 * value NULL means an exhausted arena, so that constructor calls can be nested without a check
 * each.
 */
bool ckpt_dict_add_cstr(ckpt_arena *a, ckpt_dict *map, const char *key, ckpt_value *value)
{
    assert(a && map && key);
    ckpt_value *k = value ? ckpt_value_cstr(a, key) : NULL;

    return k && ckpt_dict_add(a, map, k, value);
}

/* ---- looking up ---- */

/* Compare lengths first, because texts may contain NULs. */
static bool vl_text_is(const ckpt_text *t, const char *s)
{
    size_t n = strlen(s);

    return t->n == n && memcmp(t->at, s, n) == 0;
}

bool ckpt_value_has_children(const ckpt_value *v)
{
    switch (v->kind) {
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
    case CKPT_V_TENSOR:
    case CKPT_V_OBJECT:
        return true;
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_INT:
    case CKPT_V_LONG:
    case CKPT_V_FLOAT:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
    case CKPT_V_SIZE:
    case CKPT_V_GLOBAL:
    case CKPT_V_DTYPE:
    case CKPT_V_STORAGE:
        break;
    }
    return false;
}

bool ckpt_value_is(const ckpt_value *v, const char *s)
{
    assert(s);
    return v && v->kind == CKPT_V_STR && vl_text_is(&v->as.text, s);
}

bool ckpt_value_is_global(const ckpt_value *v, const char *module, const char *name)
{
    assert(module && name);
    return v && v->kind == CKPT_V_GLOBAL && vl_text_is(&v->as.global.module, module) &&
           vl_text_is(&v->as.global.name, name);
}

/*
 * LIST to FROZENSET are adjacent in the enumeration, so a range test is enough. A view has no spare
 * capacity, so growing it copies the array.
 */
ckpt_seq ckpt_value_seq(const ckpt_value *v)
{
    ckpt_seq view = {0};

    if (v && v->kind >= CKPT_V_LIST && v->kind <= CKPT_V_FROZENSET) {
        view.at = v->as.seq.at;
        view.n = v->as.seq.n;
    }
    return view;
}

ckpt_dict ckpt_value_map(const ckpt_value *v)
{
    ckpt_dict view = {0};

    if (v && (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT)) {
        view.at = v->as.map.at;
        view.n = v->as.map.n;
    }
    return view;
}

/* Linear, because the dicts in question have some thirty keys. */
ckpt_value *ckpt_value_get(const ckpt_value *v, const char *key)
{
    assert(key);
    ckpt_dict map = ckpt_value_map(v);

    for (uint64_t i = 0; i < map.n; i++) {
        if (ckpt_value_is(map.at[i].key, key))
            return map.at[i].value;
    }
    return NULL;
}

/*
 * Number of a ZeroStageEnum member in the form getattr(ZeroStageEnum, "weights"), because some
 * releases of Python pickle enums by name. Source: deepspeed/runtime/zero/config.py, 0.7.0 to
 * 0.19.8.
 */
static bool vl_stage_by_name(const ckpt_seq *args, int64_t *out)
{
    static const char *const stages[] = {"disabled", "optimizer_states", "gradients", "weights"};
    const ckpt_value *cls = args->at[0];

    if (!cls || cls->kind != CKPT_V_GLOBAL || !vl_text_is(&cls->as.global.name, "ZeroStageEnum"))
        return false;
    for (int i = 0; i < 4; i++) {
        if (ckpt_value_is(args->at[1], stages[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* A pickle has an enum as a call of its class on the number, or as getattr(class, name). */
bool ckpt_value_as_int(const ckpt_value *v, int64_t *out)
{
    assert(out);
    const ckpt_object *o;
    ckpt_seq args;

    if (!v)
        return false;
    if (v->kind == CKPT_V_INT || v->kind == CKPT_V_BOOL) {
        *out = v->as.i;
        return true;
    }
    if (v->kind != CKPT_V_OBJECT || !v->as.object || v->as.object->form != CKPT_BY_REDUCE)
        return false;
    o = v->as.object;
    args = ckpt_value_seq(o->args);
    if (!o->cls || o->cls->kind != CKPT_V_GLOBAL)
        return false;
    if (args.n == 1 && args.at[0] && args.at[0]->kind == CKPT_V_INT) {
        *out = args.at[0]->as.i;
        return true;
    }
    return args.n == 2 &&
           (ckpt_value_is_global(o->cls, "builtins", "getattr") ||
            ckpt_value_is_global(o->cls, "__builtin__", "getattr")) &&
           vl_stage_by_name(&args, out);
}

/* ---- comparing ---- */

typedef struct vl_two {
    const ckpt_value *a, *b;
} vl_two;

CKPT_VEC(vl_twos, vl_two);

/* A running comparison: the pairs to compare, and the remaining number of pairs. */
typedef struct vl_compare {
    vl_twos todo;
    uint64_t left;
    bool failed; /* memory ran out */
} vl_compare;

/* memcmp must not get NULL, not even for 0 bytes. */
static bool vl_same_text(const ckpt_text *a, const ckpt_text *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->at, b->at, (size_t)a->n) == 0);
}

/* True for kinds without children, which can be compared at once. */
static bool vl_is_leaf(ckpt_value_kind kind)
{
    return kind <= CKPT_V_BYTEARRAY || (kind >= CKPT_V_GLOBAL && kind <= CKPT_V_TENSOR);
}

/* Compare storages without their bytes: dtype and size. */
static bool vl_same_storage(const ckpt_storage *a, const ckpt_storage *b)
{
    return a == b || (a && b && a->dtype == b->dtype && a->n_elems == b->n_elems);
}

/* Strides and offsets do not count, because they differ between views of equal content. */
static bool vl_same_tensor(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    if (!a || !b || a->dtype != b->dtype || a->ndim != b->ndim)
        return a == b;
    return a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

/*
 * Compare two leaves of one kind. Floats compare by their bits: NaN equals itself, 0.0 is not -0.0.
 */
static bool vl_same_leaf(const ckpt_value *a, const ckpt_value *b)
{
    switch (a->kind) {
    case CKPT_V_NONE:
        return true;
    case CKPT_V_BOOL:
    case CKPT_V_INT:
        return a->as.i == b->as.i;
    case CKPT_V_FLOAT:
        return memcmp(&a->as.f, &b->as.f, sizeof a->as.f) == 0;
    case CKPT_V_LONG:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return vl_same_text(&a->as.text, &b->as.text);
    case CKPT_V_GLOBAL:
        return vl_same_text(&a->as.global.module, &b->as.global.module) &&
               vl_same_text(&a->as.global.name, &b->as.global.name);
    case CKPT_V_DTYPE:
        return a->as.dtype == b->as.dtype;
    case CKPT_V_STORAGE:
        return vl_same_storage(a->as.storage, b->as.storage);
    case CKPT_V_TENSOR:
        return vl_same_tensor(a->as.tensor, b->as.tensor);
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_SIZE:
    case CKPT_V_SET:
    case CKPT_V_FROZENSET:
    case CKPT_V_DICT:
    case CKPT_V_ODICT:
    case CKPT_V_OBJECT:
        break;
    }
    return false;
}

/*
 * Queue a pair; false if it cannot be equal, or the limit is reached. Leaves are compared at once,
 * so most comparisons need no memory.
 */
static bool vl_later(vl_compare *c, const ckpt_value *a, const ckpt_value *b)
{
    vl_two *slot;

    if (a == b) {
        return true; // the same node, or both absent
    }
    if (!a || !b || a->kind != b->kind || c->left == 0)
        return false;
    c->left--;
    if (vl_is_leaf(a->kind) && !a->state && !b->state)
        return vl_same_leaf(a, b);
    slot = ckpt_vec_push(&c->todo);
    if (!slot) {
        c->failed = true;
        return false;
    }
    *slot = (vl_two){a, b};
    return true;
}

/* True for equal leaves; used to find keys, and members of sets. */
static bool vl_is_same_leaf(const ckpt_value *a, const ckpt_value *b)
{
    return a == b || (a && b && a->kind == b->kind && vl_is_leaf(a->kind) && vl_same_leaf(a, b));
}

/* Compare lists, tuples and sizes element by element. */
static bool vl_seqs(vl_compare *c, const ckpt_seq *a, const ckpt_seq *b)
{
    if (a->n != b->n)
        return false;
    for (uint64_t i = 0; i < a->n; i++) {
        if (!vl_later(c, a->at[i], b->at[i]))
            return false;
    }
    return true;
}

/*
 * Sets: Python writes them in the order of its hashes, which differs from process to process.
 * Members are leaves in all known files; other members must come in the same order.
 */
static bool vl_sets(vl_compare *c, const ckpt_seq *a, const ckpt_seq *b)
{
    if (a->n != b->n)
        return false;
    for (uint64_t i = 0; i < a->n; i++) {
        uint64_t k = i;
        uint64_t tried = 1;

        // Search once around from the same position; each step counts.
        while (tried < a->n && c->left > 0 && !vl_is_same_leaf(a->at[i], b->at[k])) {
            k = k + 1 < a->n ? k + 1 : 0;
            tried++;
            c->left--;
        }
        if (!vl_is_same_leaf(a->at[i], b->at[k]) && !vl_later(c, a->at[i], b->at[i]))
            return false;
    }
    return true;
}

/*
 * The pair in b with a's i-th key; the order counts only in ordered dicts. NULL: b lacks the key.
 */
static const ckpt_pair *vl_partner(vl_compare *c, const ckpt_dict *a, const ckpt_dict *b,
                                   uint64_t i, bool ordered)
{
    const ckpt_value *key = a->at[i].key;

    if (ordered || vl_is_same_leaf(key, b->at[i].key))
        return &b->at[i];
    for (uint64_t k = 0; k < b->n && c->left > 0; k++) {
        if (vl_is_same_leaf(key, b->at[k].key))
            return &b->at[k];
        c->left--;
    }
    // A key that is not a leaf (a tuple) is compared with the key at its position.
    return key && !vl_is_leaf(key->kind) ? &b->at[i] : NULL;
}

/* Compare the number of pairs and the partner of each: keys of a dict are distinct. */
static bool vl_dicts(vl_compare *c, const ckpt_dict *a, const ckpt_dict *b, bool ordered)
{
    if (a->n != b->n)
        return false;
    for (uint64_t i = 0; i < a->n; i++) {
        const ckpt_pair *other = vl_partner(c, a, b, i, ordered);

        if (!other || !vl_later(c, a->at[i].key, other->key) ||
            !vl_later(c, a->at[i].value, other->value))
            return false;
    }
    return true;
}

/* Compare inert calls by callable, arguments, state and items. */
static bool vl_objects(vl_compare *c, const ckpt_object *a, const ckpt_object *b)
{
    if (!a || !b || a->form != b->form)
        return a == b;
    return vl_later(c, a->cls, b->cls) && vl_later(c, a->args, b->args) &&
           vl_later(c, a->kwargs, b->kwargs) && vl_later(c, a->state, b->state) &&
           vl_seqs(c, &a->items, &b->items) && vl_dicts(c, &a->pairs, &b->pairs, false);
}

/* Handle one pair: compare leaves, queue the children of others. */
static bool vl_step(vl_compare *c, const ckpt_value *a, const ckpt_value *b)
{
    if (!vl_later(c, a->state, b->state))
        return false;
    if (vl_is_leaf(a->kind))
        return vl_same_leaf(a, b);
    if (a->kind == CKPT_V_SET || a->kind == CKPT_V_FROZENSET)
        return vl_sets(c, &a->as.seq, &b->as.seq);
    if (a->kind == CKPT_V_DICT || a->kind == CKPT_V_ODICT)
        return vl_dicts(c, &a->as.map, &b->as.map, a->kind == CKPT_V_ODICT);
    if (a->kind == CKPT_V_OBJECT)
        return vl_objects(c, a->as.object, b->as.object);
    return vl_seqs(c, &a->as.seq, &b->as.seq);
}

/* Compare two trees; *failed: memory ran out before a difference was found. */
static bool vl_equal(const ckpt_value *a, const ckpt_value *b, uint64_t max_nodes, bool *failed)
{
    vl_compare c = {.left = max_nodes};
    bool equal = vl_later(&c, a, b);

    // Cycles need no marks, because the limit ends them.
    while (equal && c.todo.n > 0) {
        vl_two two = c.todo.at[--c.todo.n];

        equal = vl_step(&c, two.a, two.b);
    }
    ckpt_vec_free(&c.todo);
    *failed = c.failed;
    return equal;
}

bool ckpt_value_equal(const ckpt_value *a, const ckpt_value *b, uint64_t max_nodes)
{
    bool failed;

    return vl_equal(a, b, max_nodes, &failed);
}

int ckpt_value_compare(bool *equal, const ckpt_value *a, const ckpt_value *b, uint64_t max_nodes,
                       ckpt_err *err)
{
    bool failed;

    *equal = vl_equal(a, b, max_nodes, &failed);
    return failed ? ckpt_fail_memory(err) : CKPT_OK;
}
