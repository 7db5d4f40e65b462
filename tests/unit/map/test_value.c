/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_value.c: the tree of values: nodes, growing containers, look-ups, enums as integers,
 * equality.
 */
#include <math.h>

#include "libckpt/map/value.h"
#include "tests/unit/unit.h"

static ckpt_arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    return !arena;
}

static int teardown(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    arena = NULL;
    return 0;
}

/* ---- short makers for tests ---- */

static ckpt_value *num(int64_t i)
{
    return ckpt_value_int(arena, i);
}

static ckpt_value *str(const char *s)
{
    return ckpt_value_cstr(arena, s);
}

static ckpt_value *seq(ckpt_value_kind kind, ckpt_value *a, ckpt_value *b)
{
    ckpt_value *v = ckpt_value_new(arena, kind);

    assert_true(!a || ckpt_seq_add(arena, &v->as.seq, a));
    assert_true(!b || ckpt_seq_add(arena, &v->as.seq, b));
    return v;
}

static ckpt_value *dict(ckpt_value_kind kind, const char *k1, ckpt_value *v1, const char *k2,
                        ckpt_value *v2)
{
    ckpt_value *v = ckpt_value_new(arena, kind);

    assert_true(ckpt_dict_add_cstr(arena, &v->as.map, k1, v1));
    assert_true(!k2 || ckpt_dict_add_cstr(arena, &v->as.map, k2, v2));
    return v;
}

static ckpt_value *global(const char *module, const char *name)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_GLOBAL);

    v->as.global.module = (ckpt_text){module, strlen(module)};
    v->as.global.name = (ckpt_text){name, strlen(name)};
    return v;
}

static ckpt_value *object(ckpt_value *cls, ckpt_value *args)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_OBJECT);

    v->as.object = ckpt_arena_alloc(arena, sizeof *v->as.object);
    v->as.object->form = CKPT_BY_REDUCE;
    v->as.object->cls = cls;
    v->as.object->args = args;
    return v;
}

static ckpt_value *tensor(ckpt_dtype dtype, uint32_t ndim, uint64_t size)
{
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_TENSOR);
    uint64_t *shape = ckpt_arena_array(arena, ndim, sizeof *shape);

    for (uint32_t j = 0; j < ndim; j++)
        shape[j] = size;
    v->as.tensor = ckpt_arena_alloc(arena, sizeof *v->as.tensor);
    v->as.tensor->dtype = dtype;
    v->as.tensor->ndim = ndim;
    v->as.tensor->shape = shape;
    return v;
}

/* ---- making and growing ---- */

static void test_makers(void **state)
{
    ckpt_value *s = ckpt_value_str(arena, "a\0b", 3);

    (void)state;
    assert_int_equal(num(-5)->kind, CKPT_V_INT);
    assert_int_equal(num(-5)->as.i, -5);
    assert_int_equal(ckpt_value_bool(arena, true)->kind, CKPT_V_BOOL);
    assert_int_equal(ckpt_value_bool(arena, true)->as.i, 1);
    assert_int_equal(ckpt_value_bool(arena, false)->as.i, 0);
    assert_int_equal(ckpt_value_float(arena, 0.5)->kind, CKPT_V_FLOAT);
    assert_true(ckpt_value_float(arena, 0.5)->as.f == 0.5);
    assert_int_equal(ckpt_value_new(arena, CKPT_V_SET)->as.seq.n, 0);
    assert_int_equal(s->as.text.n, 3);
    assert_memory_equal(s->as.text.at, "a\0b", 4); // terminator included
    assert_int_equal(ckpt_value_str(arena, NULL, 0)->as.text.n, 0);
    assert_string_equal(str("key")->as.text.at, "key");
}

static void test_grow(void **state)
{
    ckpt_seq s = {0};
    ckpt_dict d = {0};
    uint64_t before;

    (void)state;
    before = ckpt_arena_used(arena);
    for (int i = 0; i < 10000; i++)
        assert_true(ckpt_seq_add(arena, &s, NULL));
    // Amortised: all the arrays together are less than four times the last one's contents.
    assert_true(ckpt_arena_used(arena) - before < 4 * 10000 * sizeof *s.at);
    s = (ckpt_seq){0};
    for (int i = 0; i < 1000; i++) {
        assert_true(ckpt_seq_add(arena, &s, num(i)));
        assert_true(ckpt_dict_add(arena, &d, num(i), num(-i)));
    }
    assert_int_equal(s.n, 1000);
    assert_int_equal(d.n, 1000);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(s.at[i]->as.i, i);
        assert_int_equal(d.at[i].key->as.i, i);
        assert_int_equal(d.at[i].value->as.i, -i);
    }
}

/* An array of exactly n, as decoders make them, is copied before it grows. */
static void test_grow_foreign_array(void **state)
{
    ckpt_value *exact[3] = {num(1), num(2), num(3)};
    ckpt_value *after = num(99);
    ckpt_seq s = {.at = exact, .n = 2};

    (void)state;
    assert_true(ckpt_seq_add(arena, &s, after));
    assert_int_equal(exact[2]->as.i, 3); // not written over
    assert_int_equal(s.n, 3);
    assert_int_equal(s.at[0]->as.i, 1);
    assert_ptr_equal(s.at[2], after);
}

/* Two containers over one array part as soon as either grows. */
static void test_grow_shared_array(void **state)
{
    ckpt_value *a = seq(CKPT_V_LIST, num(1), num(2));
    ckpt_seq b = ckpt_value_seq(a);
    ckpt_value *d = dict(CKPT_V_DICT, "k", num(1), NULL, NULL);
    ckpt_dict e = ckpt_value_map(d);

    (void)state;
    assert_true(ckpt_seq_add(arena, &a->as.seq, num(3)));
    assert_true(ckpt_seq_add(arena, &b, num(4)));
    assert_int_equal(a->as.seq.at[2]->as.i, 3);
    assert_int_equal(b.at[2]->as.i, 4);
    assert_true(ckpt_dict_add_cstr(arena, &d->as.map, "a", num(3)));
    assert_true(ckpt_dict_add_cstr(arena, &e, "b", num(4)));
    assert_int_equal(d->as.map.at[1].value->as.i, 3);
    assert_int_equal(e.at[1].value->as.i, 4);
}

static void test_exhausted(void **state)
{
    ckpt_arena *small = ckpt_arena_new(8192);
    ckpt_seq s = {0};
    ckpt_dict d = {0};
    uint64_t n;

    (void)state;
    assert_non_null(small);
    while (ckpt_seq_add(small, &s, NULL))
        assert_true(s.n < 8192);
    n = s.n;
    assert_false(ckpt_seq_add(small, &s, NULL));
    assert_int_equal(s.n, n);
    while (ckpt_value_int(small, 1)) {
    }
    assert_null(ckpt_value_float(small, 1));
    assert_null(ckpt_value_bool(small, true));
    assert_null(ckpt_value_cstr(small, "text"));
    assert_false(ckpt_dict_add_cstr(small, &d, "key", NULL));
    assert_int_equal(d.n, 0);
    ckpt_arena_free(small);
    s.n = UINT64_MAX;
    s.room = 0;
    assert_false(ckpt_seq_add(arena, &s, NULL)); // no such array can grow
}

/* ---- looking up ---- */

static void test_get(void **state)
{
    ckpt_value *d = dict(CKPT_V_ODICT, "stage", num(3), "world", num(4));
    ckpt_value *v = ckpt_value_new(arena, CKPT_V_DICT);

    (void)state;
    assert_int_equal(ckpt_value_get(d, "world")->as.i, 4);
    assert_null(ckpt_value_get(d, "worl"));
    assert_null(ckpt_value_get(d, "worldx"));
    assert_null(ckpt_value_get(NULL, "world"));
    assert_null(ckpt_value_get(num(1), "world"));
    // Keys of other kinds are passed over, keys with a NUL are not cut there.
    assert_true(ckpt_dict_add(arena, &v->as.map, num(0), num(1)));
    assert_true(ckpt_dict_add(arena, &v->as.map, ckpt_value_str(arena, "a\0b", 3), num(2)));
    assert_true(ckpt_dict_add_cstr(arena, &v->as.map, "a", num(3)));
    assert_int_equal(ckpt_value_get(v, "a")->as.i, 3);
    assert_true(ckpt_value_is(str("x"), "x"));
    assert_true(ckpt_value_is(str(""), ""));
    assert_false(ckpt_value_is(str("x"), "xy"));
    assert_false(ckpt_value_is(NULL, "x"));
    assert_false(ckpt_value_is(num(1), "x"));
    assert_true(ckpt_value_is_global(global("torch", "Size"), "torch", "Size"));
    assert_false(ckpt_value_is_global(global("torch", "Size"), "torch", "size"));
    assert_false(ckpt_value_is_global(global("torch", "Size"), "torch.x", "Size"));
    assert_false(ckpt_value_is_global(str("Size"), "torch", "Size"));
}

static void test_views(void **state)
{
    static const ckpt_value_kind seqs[] = {CKPT_V_LIST, CKPT_V_TUPLE, CKPT_V_SIZE, CKPT_V_SET,
                                           CKPT_V_FROZENSET};

    (void)state;
    for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++) {
        assert_int_equal(ckpt_value_seq(seq(seqs[i], num(1), num(2))).n, 2);
        assert_int_equal(ckpt_value_map(seq(seqs[i], num(1), num(2))).n, 0);
    }
    assert_int_equal(ckpt_value_seq(str("ab")).n, 0);
    assert_int_equal(ckpt_value_seq(dict(CKPT_V_DICT, "a", num(1), NULL, NULL)).n, 0);
    assert_int_equal(ckpt_value_seq(NULL).n, 0);
    assert_int_equal(ckpt_value_map(dict(CKPT_V_DICT, "a", num(1), NULL, NULL)).n, 1);
    assert_int_equal(ckpt_value_map(dict(CKPT_V_ODICT, "a", num(1), NULL, NULL)).n, 1);
    assert_int_equal(ckpt_value_map(NULL).n, 0);
}

static void test_as_int(void **state)
{
    ckpt_value *stage = global("deepspeed.runtime.zero.config", "ZeroStageEnum");
    ckpt_value *getattr = global("builtins", "getattr");
    ckpt_value *v;
    int64_t i = -1;

    (void)state;
    assert_true(ckpt_value_as_int(num(7), &i));
    assert_int_equal(i, 7);
    assert_true(ckpt_value_as_int(ckpt_value_bool(arena, true), &i));
    assert_int_equal(i, 1);
    assert_true(ckpt_value_as_int(object(stage, seq(CKPT_V_TUPLE, num(2), NULL)), &i));
    assert_int_equal(i, 2);
    v = object(getattr, seq(CKPT_V_TUPLE, stage, str("weights")));
    assert_true(ckpt_value_as_int(v, &i));
    assert_int_equal(i, 3);
    v = object(global("__builtin__", "getattr"), seq(CKPT_V_TUPLE, stage, str("disabled")));
    assert_true(ckpt_value_as_int(v, &i));
    assert_int_equal(i, 0);
    v = object(getattr, seq(CKPT_V_TUPLE, stage, str("gradients")));
    assert_true(ckpt_value_as_int(v, &i));
    assert_int_equal(i, 2);
    v = object(getattr, seq(CKPT_V_TUPLE, stage, str("optimizer_states")));
    assert_true(ckpt_value_as_int(v, &i));
    assert_int_equal(i, 1);
}

static void test_as_int_refuses(void **state)
{
    ckpt_value *stage = global("deepspeed.runtime.zero.config", "ZeroStageEnum");
    ckpt_value *getattr = global("builtins", "getattr");
    ckpt_value *v;
    int64_t i = -1;

    (void)state;
    assert_false(ckpt_value_as_int(NULL, &i));
    assert_false(ckpt_value_as_int(str("2"), &i));
    assert_false(ckpt_value_as_int(ckpt_value_float(arena, 2), &i));
    assert_false(ckpt_value_as_int(object(stage, seq(CKPT_V_TUPLE, str("2"), NULL)), &i));
    assert_false(ckpt_value_as_int(object(stage, seq(CKPT_V_TUPLE, num(1), num(2))), &i));
    assert_false(ckpt_value_as_int(object(stage, NULL), &i));
    assert_false(ckpt_value_as_int(object(NULL, seq(CKPT_V_TUPLE, num(1), NULL)), &i));
    v = object(getattr, seq(CKPT_V_TUPLE, stage, str("nothing")));
    assert_false(ckpt_value_as_int(v, &i));
    v = object(getattr, seq(CKPT_V_TUPLE, global("os", "path"), str("weights")));
    assert_false(ckpt_value_as_int(v, &i));
    v = object(getattr, seq(CKPT_V_TUPLE, num(1), str("weights")));
    assert_false(ckpt_value_as_int(v, &i));
    v = object(global("operator", "getattr"), seq(CKPT_V_TUPLE, stage, str("weights")));
    assert_false(ckpt_value_as_int(v, &i));
    v = object(stage, seq(CKPT_V_TUPLE, num(2), NULL));
    v->as.object->form = CKPT_BY_NEWOBJ_EX;
    assert_false(ckpt_value_as_int(v, &i));
    assert_int_equal(i, -1);
}

/* ---- equality ---- */

static bool equal(const ckpt_value *a, const ckpt_value *b)
{
    bool there = ckpt_value_equal(a, b, 1000);

    assert_int_equal(there, ckpt_value_equal(b, a, 1000)); // symmetric
    return there;
}

static void test_equal_leaves(void **state)
{
    ckpt_value *text = str("abc"), *bytes = str("abc"), *f32, *f16;

    (void)state;
    bytes->kind = CKPT_V_BYTES;
    f32 = ckpt_value_new(arena, CKPT_V_DTYPE);
    f16 = ckpt_value_new(arena, CKPT_V_DTYPE);
    f32->as.dtype = CKPT_F32;
    f16->as.dtype = CKPT_F16;
    assert_true(equal(NULL, NULL));
    assert_false(equal(NULL, num(0)));
    assert_true(equal(num(4), num(4)));
    assert_false(equal(num(4), num(5)));
    assert_false(equal(num(1), ckpt_value_bool(arena, true)));
    assert_true(equal(ckpt_value_new(arena, CKPT_V_NONE), ckpt_value_new(arena, CKPT_V_NONE)));
    assert_true(equal(ckpt_value_float(arena, (double)NAN), ckpt_value_float(arena, (double)NAN)));
    assert_false(equal(ckpt_value_float(arena, 0.0), ckpt_value_float(arena, -0.0)));
    assert_true(equal(text, str("abc")));
    assert_false(equal(text, str("abd")));
    assert_false(equal(text, str("ab")));
    assert_false(equal(text, bytes));
    assert_true(equal(str(""), str("")));
    assert_true(equal(global("a", "b"), global("a", "b")));
    assert_false(equal(global("a", "b"), global("a", "c")));
    assert_false(equal(global("a", "b"), global("c", "b")));
    assert_true(equal(f32, f32));
    assert_false(equal(f32, f16));
}

static void test_equal_tensors(void **state)
{
    ckpt_value *a = ckpt_value_new(arena, CKPT_V_STORAGE);
    ckpt_value *b = ckpt_value_new(arena, CKPT_V_STORAGE);
    ckpt_storage one = {.dtype = CKPT_F32, .n_elems = 5}, two = one;

    (void)state;
    assert_true(equal(tensor(CKPT_F32, 2, 3), tensor(CKPT_F32, 2, 3)));
    assert_true(equal(tensor(CKPT_F32, 0, 0), tensor(CKPT_F32, 0, 0)));
    assert_false(equal(tensor(CKPT_F32, 2, 3), tensor(CKPT_F16, 2, 3)));
    assert_false(equal(tensor(CKPT_F32, 2, 3), tensor(CKPT_F32, 1, 3)));
    assert_false(equal(tensor(CKPT_F32, 2, 3), tensor(CKPT_F32, 2, 4)));
    a->as.storage = &one;
    b->as.storage = &two;
    assert_true(equal(a, b));
    two.n_elems = 6;
    assert_false(equal(a, b));
    b->as.storage = NULL;
    assert_false(equal(a, b));
}

static void test_equal_containers(void **state)
{
    ckpt_value *plain = dict(CKPT_V_DICT, "a", num(1), "b", num(2));
    ckpt_value *ordered = dict(CKPT_V_ODICT, "a", num(1), "b", num(2));
    ckpt_value *with_state = dict(CKPT_V_ODICT, "a", num(1), "b", num(2));

    (void)state;
    assert_true(equal(seq(CKPT_V_LIST, num(1), str("x")), seq(CKPT_V_LIST, num(1), str("x"))));
    assert_false(equal(seq(CKPT_V_LIST, num(1), num(2)), seq(CKPT_V_LIST, num(2), num(1))));
    assert_false(equal(seq(CKPT_V_LIST, num(1), NULL), seq(CKPT_V_LIST, num(1), num(2))));
    assert_false(equal(seq(CKPT_V_LIST, num(1), NULL), seq(CKPT_V_TUPLE, num(1), NULL)));
    // Plain dicts are equal in any order, ordered ones are layouts.
    assert_true(equal(plain, dict(CKPT_V_DICT, "b", num(2), "a", num(1))));
    assert_false(equal(plain, dict(CKPT_V_DICT, "b", num(1), "a", num(2))));
    assert_false(equal(plain, dict(CKPT_V_DICT, "a", num(1), "c", num(2))));
    assert_false(equal(plain, dict(CKPT_V_DICT, "a", num(1), NULL, NULL)));
    assert_false(equal(plain, ordered));
    assert_true(equal(ordered, dict(CKPT_V_ODICT, "a", num(1), "b", num(2))));
    assert_false(equal(ordered, dict(CKPT_V_ODICT, "b", num(2), "a", num(1))));
    with_state->state = num(1);
    assert_false(equal(ordered, with_state));
    ordered->state = num(1);
    assert_true(equal(ordered, with_state));
}

static void test_equal_sets(void **state)
{
    ckpt_value *a = ckpt_value_new(arena, CKPT_V_SET), *b = ckpt_value_new(arena, CKPT_V_SET);

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_true(ckpt_seq_add(arena, &a->as.seq, num(i)));
        assert_true(ckpt_seq_add(arena, &b->as.seq, num(i * 7 % 20)));
    }
    assert_true(equal(a, b));
    b->as.seq.at[13] = num(20);
    assert_false(equal(a, b));
    assert_false(equal(a, seq(CKPT_V_SET, num(0), num(1))));
    // Members that hold others: in the same order only.
    assert_true(equal(seq(CKPT_V_SET, seq(CKPT_V_TUPLE, num(1), NULL), num(5)),
                      seq(CKPT_V_SET, seq(CKPT_V_TUPLE, num(1), NULL), num(5))));
    assert_false(equal(seq(CKPT_V_SET, seq(CKPT_V_TUPLE, num(1), NULL), num(5)),
                       seq(CKPT_V_SET, seq(CKPT_V_TUPLE, num(2), NULL), num(5))));
}

static void test_equal_tuple_keys(void **state)
{
    ckpt_value *a = ckpt_value_new(arena, CKPT_V_DICT), *b = ckpt_value_new(arena, CKPT_V_DICT);

    (void)state;
    assert_true(ckpt_dict_add(arena, &a->as.map, seq(CKPT_V_TUPLE, num(1), num(2)), num(3)));
    assert_true(ckpt_dict_add(arena, &b->as.map, seq(CKPT_V_TUPLE, num(1), num(2)), num(3)));
    assert_true(equal(a, b));
    b->as.map.at[0].key = seq(CKPT_V_TUPLE, num(1), num(4));
    assert_false(equal(a, b));
}

static void test_equal_objects(void **state)
{
    ckpt_value *cls = global("m", "C");
    ckpt_value *a = object(cls, seq(CKPT_V_TUPLE, num(1), NULL));
    ckpt_value *b = object(global("m", "C"), seq(CKPT_V_TUPLE, num(1), NULL));

    (void)state;
    assert_true(equal(a, b));
    b->as.object->form = CKPT_BY_NEWOBJ;
    assert_false(equal(a, b));
    b->as.object->form = CKPT_BY_REDUCE;
    b->as.object->state = dict(CKPT_V_DICT, "x", num(1), NULL, NULL);
    assert_false(equal(a, b));
    a->as.object->state = dict(CKPT_V_DICT, "x", num(1), NULL, NULL);
    assert_true(equal(a, b));
    assert_true(ckpt_seq_add(arena, &a->as.object->items, num(9)));
    assert_false(equal(a, b));
    assert_true(ckpt_seq_add(arena, &b->as.object->items, num(9)));
    assert_true(ckpt_dict_add_cstr(arena, &b->as.object->pairs, "k", num(9)));
    assert_false(equal(a, b));
}

/* The bound holds for wide, deep and cyclic trees; sharing makes no difference to it. */
static void test_equal_bound(void **state)
{
    ckpt_value *a = ckpt_value_new(arena, CKPT_V_LIST), *b = ckpt_value_new(arena, CKPT_V_LIST);
    ckpt_value *deep_a = num(1), *deep_b = num(1);

    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_true(ckpt_seq_add(arena, &a->as.seq, num(i)));
        assert_true(ckpt_seq_add(arena, &b->as.seq, num(i)));
    }
    assert_true(ckpt_value_equal(a, b, 101));
    assert_false(ckpt_value_equal(a, b, 100));
    assert_true(ckpt_value_equal(a, a, 0)); // the same node needs no look
    for (int i = 0; i < 100000; i++) {
        deep_a = seq(CKPT_V_TUPLE, deep_a, NULL);
        deep_b = seq(CKPT_V_TUPLE, deep_b, NULL);
    }
    assert_true(ckpt_value_equal(deep_a, deep_b, 1000000));
    // Each list contains itself: no end, so the bound decides.
    a->as.seq.at[0] = a;
    b->as.seq.at[0] = b;
    assert_false(ckpt_value_equal(a, b, 100000));
    // Two levels of sharing, each doubling: 2^60 paths.
    deep_a = num(1);
    deep_b = num(1);
    for (int i = 0; i < 60; i++) {
        deep_a = seq(CKPT_V_LIST, deep_a, deep_a);
        deep_b = seq(CKPT_V_LIST, deep_b, deep_b);
    }
    assert_false(ckpt_value_equal(deep_a, deep_b, 100000));
}

static void test_equal_without_memory(void **state)
{
    ckpt_value *one = num(1), *same = num(1), *two = num(2);
    ckpt_value *a = seq(CKPT_V_LIST, one, NULL), *b = seq(CKPT_V_LIST, same, NULL);

    (void)state;
    ckpt_alloc_fail_at(0);
    assert_false(ckpt_value_equal(a, b, 10));
    // leaves need none: they are not different because memory is short
    assert_true(ckpt_value_equal(one, same, 10));
    assert_false(ckpt_value_equal(one, two, 10));
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_true(ckpt_value_equal(a, b, 10));
}

#define WITH_ARENA(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ARENA(test_makers),
        WITH_ARENA(test_grow),
        WITH_ARENA(test_grow_foreign_array),
        WITH_ARENA(test_grow_shared_array),
        WITH_ARENA(test_exhausted),
        WITH_ARENA(test_get),
        WITH_ARENA(test_views),
        WITH_ARENA(test_as_int),
        WITH_ARENA(test_as_int_refuses),
        WITH_ARENA(test_equal_leaves),
        WITH_ARENA(test_equal_tensors),
        WITH_ARENA(test_equal_containers),
        WITH_ARENA(test_equal_sets),
        WITH_ARENA(test_equal_tuple_keys),
        WITH_ARENA(test_equal_objects),
        WITH_ARENA(test_equal_bound),
        WITH_ARENA(test_equal_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
