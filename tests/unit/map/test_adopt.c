/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_adopt.c: one map taking over another: numbers of files and sources, shared things moved
 * once, names, states, and failing memory.
 */
#include "libckpt/base/mem.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "tests/unit/unit.h"

/* A map with a file and n sources of 64 bytes in it. */
static ckpt_map *make(const char *path, unsigned n)
{
    ckpt_map_file file = {.path = path, .size = 64};
    ckpt_source source = {.kind = CKPT_SOURCE_FILE, .n_stored = 64, .n_bytes = 64};
    ckpt_map *map = NULL;
    uint32_t index = 0;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_file(map, &file, &source.file, NULL), CKPT_OK);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(ckpt_map_add_source(map, &source, &index, NULL), CKPT_OK);
    return map;
}

/* A tensor of four floats in a source. */
static ckpt_tensor *add(ckpt_map *map, const char *name, uint32_t source, uint64_t at)
{
    const uint64_t shape[] = {4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, source, at, NULL), CKPT_OK);
    return t;
}

static ckpt_tensor *hidden(ckpt_map *map, uint32_t source)
{
    const uint64_t shape[] = {4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add_hidden(map, "t", 1, &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, source, 0, NULL), CKPT_OK);
    return t;
}

/* A tree with one storage that two tensors share, in a list that holds itself. */
static ckpt_storage *make_tree(ckpt_map *map, uint32_t source)
{
    ckpt_value *list = ckpt_value_new(map->arena, CKPT_V_LIST);
    ckpt_storage *storage = ckpt_arena_alloc(map->arena, sizeof *storage);

    storage->source = source;
    for (int i = 0; i < 2; i++) {
        ckpt_value *v = ckpt_value_new(map->arena, CKPT_V_TENSOR);
        v->as.tensor = ckpt_arena_alloc(map->arena, sizeof *v->as.tensor);
        v->as.tensor->storage = storage;
        assert_true(ckpt_seq_add(map->arena, &list->as.seq, v));
    }
    assert_true(ckpt_seq_add(map->arena, &list->as.seq, list));
    map->values = list;
    return storage;
}

/* A child with all that can name a source: a tied pair, copies, addends, a tree, a state. */
static ckpt_map *make_child(ckpt_tensor **w, ckpt_storage **storage)
{
    ckpt_map *map = make("child", 3);
    ckpt_state *state = NULL;
    ckpt_tensor *tied = NULL, *twin = hidden(map, 1), *addend = hidden(map, 2);

    *w = add(map, "w", 0, 16);
    (*w)->twin = twin;
    twin->twin = hidden(map, 2);
    (*w)->addend = addend;
    // Two names whose extents are one array.
    tied = add(map, "same", 0, 0);
    tied->extent = (*w)->extent;
    tied = add(map, "tied", 0, 0);
    tied->n_extents = 0;
    tied->owner = *w;
    *storage = make_tree(map, 1);
    assert_int_equal(ckpt_state_new(&state, map, "", NULL), CKPT_OK);
    ckpt_tensor **slot = ckpt_vec_push(&state->param);
    *slot = *w;
    assert_int_equal(ckpt_map_note(map, CKPT_WARNING, NULL, "noticed"), CKPT_OK);
    return map;
}

static void test_hidden(void **state)
{
    ckpt_map *map = make("first", 5), *child;
    ckpt_storage *storage;
    ckpt_tensor *w;

    (void)state;
    add(map, "w", 4, 0);
    child = make_child(&w, &storage);
    assert_int_equal(ckpt_map_adopt(map, child, NULL, NULL), CKPT_OK);
    assert_int_equal(map->files.n, 2);
    assert_string_equal(map->files.at[1].path, "child");
    assert_int_equal(map->sources.n, 8);
    assert_int_equal(map->sources.at[4].file, 0);
    assert_int_equal(map->sources.at[5].file, 1);
    // Each number moved once, though two tensors share the array and two values the storage.
    assert_int_equal(w->extent[0].source, 5);
    assert_int_equal(w->extent[0].at, 16);
    assert_int_equal(w->twin->extent[0].source, 6);
    assert_int_equal(w->twin->twin->extent[0].source, 7);
    assert_int_equal(w->addend->extent[0].source, 7);
    assert_int_equal(storage->source, 6);
    assert_int_equal(child->values->mark, 0);
    // Its tensors and states are not the map's, its findings are.
    assert_int_equal(map->tensors.n, 1);
    assert_int_equal(map->states.n, 0);
    assert_int_equal(child->states.n, 1);
    assert_int_equal(map->findings.n, 1);
    assert_string_equal(map->findings.at[0].text, "noticed");
    ckpt_map_free(map);
}

static void test_prefix(void **state)
{
    ckpt_map *map = make("first", 1), *child;
    ckpt_storage *storage;
    ckpt_tensor *w;

    (void)state;
    add(map, "a", 0, 0);
    child = make_child(&w, &storage);
    assert_int_equal(ckpt_map_adopt(map, child, "mp_rank_01/", NULL), CKPT_OK);
    assert_int_equal(map->tensors.n, 4);
    assert_int_equal(ckpt_map_index(map, "mp_rank_01/w", 12), 1);
    assert_int_equal(map->tensors.at[1]->extent[0].source, 1);
    assert_ptr_equal(map->tensors.at[1]->twin, w->twin);
    assert_string_equal(map->tensors.at[3]->name, "mp_rank_01/tied");
    assert_ptr_equal(map->tensors.at[3]->owner, map->tensors.at[1]);
    assert_int_equal(map->states.n, 1);
    assert_int_equal(child->states.n, 0);
    assert_string_equal(map->states.at[0]->prefix, "mp_rank_01/");
    assert_ptr_equal(map->states.at[0]->param.at[0], map->tensors.at[1]);
    assert_string_equal(ckpt_state_name(map->states.at[0], map->states.at[0]->param.at[0]), "w");
    ckpt_map_free(map);
}

/* A name that is there already is refused, and the child stays the caller's. */
static void test_clash(void **state)
{
    ckpt_map *map = make("first", 1), *child;
    ckpt_err err = {0};
    ckpt_storage *storage;
    ckpt_tensor *w;

    (void)state;
    add(map, "x/same", 0, 0);
    child = make_child(&w, &storage);
    assert_int_equal(ckpt_map_adopt(map, child, "x/", &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "x/same"));
    assert_int_equal(map->children.n, 0);
    ckpt_map_free(child);
    ckpt_map_free(map);
}

/* Grandchildren move with the child, and memory sources name no file. */
static void test_nested(void **state)
{
    ckpt_source memory = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = 16};
    ckpt_map *map = make("first", 2), *child = make("second", 1), *inner = make("third", 1);
    ckpt_tensor *t = add(inner, "t", 0, 0);
    uint32_t index = 0;

    (void)state;
    assert_int_equal(ckpt_map_add_source(inner, &memory, &index, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_adopt(child, inner, "", NULL), CKPT_OK);
    assert_int_equal(ckpt_map_adopt(map, child, "", NULL), CKPT_OK);
    assert_int_equal(map->files.n, 3);
    assert_int_equal(map->sources.n, 5);
    assert_int_equal(map->tensors.at[0]->extent[0].source, 3);
    assert_ptr_equal(map->tensors.at[0]->extent, t->extent);
    assert_int_equal(map->sources.at[3].file, 2);
    assert_int_equal(map->sources.at[4].file, 0);
    ckpt_map_free(map);
}

static void test_memory(void **state)
{
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t n = 0; rc != CKPT_OK; n++) {
        ckpt_map *map = make("first", 1), *child;
        ckpt_err err = {0};
        ckpt_storage *storage;
        ckpt_tensor *w;

        child = make_child(&w, &storage);
        ckpt_alloc_fail_at(n);
        rc = ckpt_map_adopt(map, child, "x/", &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || (rc == CKPT_ELIMIT && err.code == CKPT_ELIMIT));
        if (rc != CKPT_OK)
            ckpt_map_free(child);
        ckpt_map_free(map);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden), cmocka_unit_test(test_prefix), cmocka_unit_test(test_clash),
        cmocka_unit_test(test_nested), cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
