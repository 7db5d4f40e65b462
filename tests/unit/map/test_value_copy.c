/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_value_copy.c: trees of values copied: what is shared and what is a cycle stays so, the
 * source is not written to, and entries can be dropped and looked at on the way.
 */
#include "libckpt/base/mem.h"
#include "libckpt/map/value_copy.h"
#include "tests/unit/unit.h"

/* Counts storages and values, and drops integers. */
typedef struct seen {
    ckpt_storage *made;
    unsigned storages, values;
} seen;

static bool take_storage(void *ctx, const ckpt_storage *from, ckpt_storage **to)
{
    seen *s = ctx;

    (void)from;
    s->storages++;
    *to = s->made;
    return s->made != NULL;
}

static bool drop_int(const void *ctx, const ckpt_value *from)
{
    (void)ctx;
    return from->kind == CKPT_V_INT;
}

static bool count(void *ctx, const ckpt_value *from)
{
    seen *s = ctx;

    (void)from;
    s->values++;
    return true;
}

/* {"a": [text, text, the dict itself], "n": 7, "t": a view} */
static ckpt_value *made_tree(ckpt_arena *a, ckpt_storage *storage)
{
    static const uint64_t shape[] = {2, 3}, stride[] = {3, 1};
    ckpt_value *root = ckpt_value_new(a, CKPT_V_DICT), *list = ckpt_value_new(a, CKPT_V_LIST);
    ckpt_value *text = ckpt_value_cstr(a, "shared"), *seven = ckpt_value_new(a, CKPT_V_INT);
    ckpt_value *view = ckpt_value_new(a, CKPT_V_TENSOR);
    ckpt_tensor_value *t = ckpt_arena_alloc(a, sizeof *t);

    seven->as.i = 7;
    *t = (ckpt_tensor_value){
        .storage = storage, .dtype = CKPT_F32, .ndim = 2, .shape = shape, .stride = stride};
    view->as.tensor = t;
    assert_true(ckpt_seq_add(a, &list->as.seq, text) && ckpt_seq_add(a, &list->as.seq, text) &&
                ckpt_seq_add(a, &list->as.seq, root));
    assert_true(ckpt_dict_add_cstr(a, &root->as.map, "a", list) &&
                ckpt_dict_add_cstr(a, &root->as.map, "n", seven) &&
                ckpt_dict_add_cstr(a, &root->as.map, "t", view));
    return root;
}

static void shared_and_cycles(void **unused)
{
    (void)unused;
    ckpt_storage from = {0}, to = {0};
    seen s = {.made = &to};
    ckpt_arena *source = ckpt_arena_new(0), *target = ckpt_arena_new(0);
    const ckpt_value *root = made_tree(source, &from);
    const ckpt_value_copier copier = {
        .arena = target, .whole = true, .ctx = &s, .storage = take_storage, .meet = count};
    const ckpt_value *copy = ckpt_value_copy(&copier, root);
    ckpt_seq list = ckpt_value_seq(ckpt_value_get(copy, "a"));

    assert_int_equal(root->mark, 0);
    assert_int_equal(s.storages, 1);
    assert_int_equal(s.values, 8); // the root, three keys, the list, the text, 7, the view
    // whole: nothing of the copy is the source's
    ckpt_arena_free(source);
    assert_int_equal(list.n, 3);
    assert_ptr_equal(list.at[0], list.at[1]);
    assert_ptr_equal(list.at[2], copy);
    assert_string_equal(list.at[0]->as.text.at, "shared");
    assert_int_equal(ckpt_value_get(copy, "n")->as.i, 7);
    const ckpt_tensor_value *t = ckpt_value_get(copy, "t")->as.tensor;
    assert_ptr_equal(t->storage, &to);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->stride[0], 3);
    ckpt_arena_free(target);
}

static void dropped_and_refused(void **unused)
{
    (void)unused;
    ckpt_storage from = {0}, to = {0};
    seen s = {.made = &to};
    ckpt_arena *arena = ckpt_arena_new(0);
    const ckpt_value *root = made_tree(arena, &from);
    const ckpt_value_copier copier = {
        .arena = arena, .ctx = &s, .storage = take_storage, .drop = drop_int};
    const ckpt_value *copy = ckpt_value_copy(&copier, root);

    // an entry goes with its key
    assert_int_equal(ckpt_value_map(copy).n, 2);
    assert_null(ckpt_value_get(copy, "n"));
    // a value of its own becomes None
    copy = ckpt_value_copy(&copier, ckpt_value_get(root, "n"));
    assert_int_equal(copy->kind, CKPT_V_NONE);
    // no storage, no copy; and nothing of nothing
    s.made = NULL;
    assert_null(ckpt_value_copy(&copier, root));
    assert_null(ckpt_value_copy(&copier, NULL));
    ckpt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_and_cycles),
                                       cmocka_unit_test(dropped_and_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
