/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_torch_names.c: from a tree of values to named tensors: paths, collisions, ties, views.
 */
#include "ckpt_extra.h"
#include "formats/torch/torch.h"
#include "tests/unit/unit.h"

static const ckpt_tensor *tensor(const ckpt_map *map, const char *name)
{
    size_t i = ckpt_map_index(map, name, strlen(name));

    if (i == SIZE_MAX)
        fail_msg("no tensor \"%s\"", name);
    return map->tensors.at[i];
}

static bool noted(const ckpt_map *map, ckpt_severity severity, const char *text)
{
    for (size_t i = 0; i < map->findings.n; i++) {
        if (map->findings.at[i].severity == severity && strstr(map->findings.at[i].text, text))
            return true;
    }
    return false;
}

static void done(ckpt_map *map, ckpt_io *io)
{
    ckpt_map_free(map);
    ckpt_io_close(io);
}

/* ---- names ---- */

typedef struct tree {
    ckpt_map *map;
    ckpt_io *io;
    ckpt_arena *a;
    ckpt_storage *storage;
} tree;

static void grow(tree *t)
{
    ckpt_source source = {.kind = CKPT_SOURCE_FILE, .n_stored = 4000, .n_bytes = 4000};

    assert_int_equal(ckpt_map_create(&t->map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_io_memory(&t->io, "t.pt", "", 0, NULL), CKPT_OK);
    t->a = t->map->arena;
    t->storage = ckpt_arena_alloc(t->a, sizeof *t->storage);
    *t->storage =
        (ckpt_storage){.key = {"0", 1}, .dtype = CKPT_F32, .n_elems = 1000, .n_bytes = 4000};
    assert_int_equal(ckpt_map_add_source(t->map, &source, &t->storage->source, NULL), CKPT_OK);
}

/* A tensor of n elements from an offset, by elements apart. */
static ckpt_value *leaf(tree *t, uint64_t offset, uint64_t n, uint64_t by)
{
    ckpt_value *v = ckpt_value_new(t->a, CKPT_V_TENSOR);
    uint64_t *axis = ckpt_arena_array(t->a, 2, sizeof *axis);

    axis[0] = n;
    axis[1] = by;
    v->as.tensor = ckpt_arena_alloc(t->a, sizeof *v->as.tensor);
    *v->as.tensor = (ckpt_tensor_value){.storage = t->storage,
                                        .dtype = CKPT_F32,
                                        .ndim = 1,
                                        .shape = axis,
                                        .stride = axis + 1,
                                        .offset = offset};
    return v;
}

static ckpt_value *dict(tree *t)
{
    return ckpt_value_new(t->a, CKPT_V_DICT);
}

static void set(tree *t, ckpt_value *d, const char *key, ckpt_value *v)
{
    assert_true(ckpt_dict_add_cstr(t->a, &d->as.map, key, v));
}

static void append(tree *t, ckpt_value *list, ckpt_value *v)
{
    assert_true(ckpt_seq_add(t->a, &list->as.seq, v));
}

/* List a tree, expect these names in this order, and release all. */
static void expect_names(tree *t, ckpt_value *root, const char *const *name)
{
    ckpt_err err = {0};
    size_t i;

    if (ckpt_torch_list(t->map, t->io, root, false, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    for (i = 0; name[i] != NULL; i++) {
        assert_true(i < t->map->tensors.n);
        assert_string_equal(t->map->tensors.at[i]->name, name[i]);
    }
    assert_int_equal(t->map->tensors.n, i);
    assert_int_equal(root->mark, 0);
    done(t->map, t->io);
}

static void names_of_keys(void **state)
{
    tree t;
    ckpt_value *root, *list, *tuple, *keys;

    (void)state;
    grow(&t);
    root = dict(&t);
    list = ckpt_value_new(t.a, CKPT_V_LIST);
    tuple = ckpt_value_new(t.a, CKPT_V_TUPLE);
    keys = dict(&t);
    append(&t, list, leaf(&t, 1, 1, 1));
    append(&t, list, ckpt_value_int(t.a, 5));
    append(&t, list, leaf(&t, 2, 1, 1));
    append(&t, tuple, leaf(&t, 3, 1, 1));
    assert_true(ckpt_dict_add(t.a, &keys->as.map, ckpt_value_int(t.a, -7), leaf(&t, 4, 1, 1)));
    assert_true(
        ckpt_dict_add(t.a, &keys->as.map, ckpt_value_new(t.a, CKPT_V_NONE), leaf(&t, 5, 1, 1)));
    assert_true(ckpt_dict_add(t.a, &keys->as.map, ckpt_value_bool(t.a, true), leaf(&t, 6, 1, 1)));
    assert_true(ckpt_dict_add(t.a, &keys->as.map, tuple, leaf(&t, 7, 1, 1)));
    set(&t, root, "w.x", leaf(&t, 0, 1, 1));
    set(&t, root, "list", list);
    set(&t, root, "tuple", tuple);
    set(&t, root, "keys", keys);
    set(&t, root, "", leaf(&t, 8, 1, 1));
    set(&t, root, "last", list); // walked once: by its first path
    expect_names(&t, root,
                 (const char *const[]){"w.x", "list.0", "list.2", "tuple.0", "keys.-7", "keys.None",
                                       "keys.True", "keys.3", "", NULL});
}

static void names_of_roots(void **state)
{
    tree t;
    ckpt_value *root;

    (void)state;
    grow(&t);
    expect_names(&t, leaf(&t, 0, 1, 1), (const char *const[]){"tensor", NULL});
    grow(&t);
    expect_names(&t, ckpt_value_int(t.a, 3), (const char *const[]){NULL});
    grow(&t);
    root = ckpt_value_new(t.a, CKPT_V_LIST);
    append(&t, root, root); // holds itself
    append(&t, root, leaf(&t, 0, 1, 1));
    expect_names(&t, root, (const char *const[]){"1", NULL});
    grow(&t);
    root = dict(&t);
    set(&t, root, "", dict(&t));
    set(&t, root->as.map.at[0].value, "x", leaf(&t, 0, 1, 1));
    expect_names(&t, root, (const char *const[]){".x", NULL});
}

static void names_that_collide(void **state)
{
    tree t;
    ckpt_value *root, *a;

    (void)state;
    grow(&t);
    root = dict(&t);
    a = dict(&t);
    set(&t, root, "a.b", leaf(&t, 0, 1, 1));
    set(&t, root, "a.b#3", leaf(&t, 1, 1, 1));
    set(&t, a, "b", leaf(&t, 2, 1, 1));
    set(&t, root, "a", a);
    a = ckpt_value_new(t.a, CKPT_V_ODICT);
    set(&t, a, "b", leaf(&t, 3, 1, 1));
    assert_true(ckpt_dict_add(t.a, &root->as.map, ckpt_value_cstr(t.a, "a"), a));
    expect_names(&t, root, (const char *const[]){"a.b", "a.b#3", "a.b#2", "a.b#4", NULL});
}

static void names_in_objects(void **state)
{
    tree t;
    ckpt_value *root, *v, *attributes;
    ckpt_object *o;

    (void)state;
    grow(&t);
    root = dict(&t);
    v = ckpt_value_new(t.a, CKPT_V_OBJECT);
    o = v->as.object = ckpt_arena_alloc(t.a, sizeof *o);
    o->args = ckpt_value_new(t.a, CKPT_V_TUPLE);
    append(&t, o->args, leaf(&t, 0, 1, 1));
    o->state = dict(&t);
    set(&t, o->state, "weight", leaf(&t, 1, 1, 1));
    assert_true(ckpt_seq_add(t.a, &o->items, leaf(&t, 2, 1, 1)));
    assert_true(ckpt_dict_add_cstr(t.a, &o->pairs, "k", leaf(&t, 3, 1, 1)));
    set(&t, root, "obj", v);
    v = ckpt_value_new(t.a, CKPT_V_ODICT); // an attribute of the dict itself
    v->state = dict(&t);
    set(&t, v->state, "_extra", leaf(&t, 4, 1, 1));
    set(&t, root, "sd", v);
    v = leaf(&t, 5, 1, 1); // a tensor with an attribute that is one
    attributes = dict(&t);
    set(&t, attributes, "scale", leaf(&t, 6, 1, 1));
    v->as.tensor->state = attributes;
    set(&t, root, "q", v);
    set(&t, root, "q2", v); // tied: listed again, its attributes are not
    expect_names(&t, root,
                 (const char *const[]){"obj.0", "obj.weight", "obj.0#2", "obj.k", "sd._extra", "q",
                                       "q.scale", "q2", NULL});
}

static void bad_names(void **state)
{
    tree t;
    ckpt_value *root, *key;

    (void)state;
    grow(&t);
    root = dict(&t);
    key = ckpt_value_str(t.a, "a\0b", 3);
    assert_true(ckpt_dict_add(t.a, &root->as.map, key, leaf(&t, 0, 1, 1)));
    assert_int_equal(ckpt_torch_list(t.map, t.io, root, false, NULL), CKPT_EFORMAT);
    assert_int_equal(root->mark, 0);
    done(t.map, t.io);
}

/* ---- ties and extents ---- */

static void ties_and_views(void **state)
{
    tree t;
    ckpt_value *root, *meta;
    const ckpt_tensor *w, *box;

    (void)state;
    grow(&t);
    root = dict(&t);
    set(&t, root, "w", leaf(&t, 10, 5, 1));
    set(&t, root, "same node", root->as.map.at[0].value);
    set(&t, root, "same bytes", leaf(&t, 10, 5, 1));
    set(&t, root, "shorter", leaf(&t, 10, 4, 1));
    set(&t, root, "negative", leaf(&t, 10, 5, 1));
    root->as.map.at[4].value->as.tensor->flags = CKPT_TENSOR_NEG;
    set(&t, root, "box", leaf(&t, 2, 3, 7));
    set(&t, root, "broadcast", leaf(&t, 2, 3, 0));
    set(&t, root, "one", leaf(&t, 2, 1, UINT64_MAX));
    set(&t, root, "none", leaf(&t, 0, 0, 1));
    set(&t, root, "none too", leaf(&t, 0, 0, 1));
    meta = leaf(&t, 0, 4, 1);
    meta->as.tensor->storage = NULL;
    set(&t, root, "meta", meta);
    assert_int_equal(ckpt_torch_list(t.map, t.io, root, false, NULL), CKPT_OK);
    assert_int_equal(t.map->tensors.n, 10);
    assert_true(noted(t.map, CKPT_INFO, "1 meta tensors"));
    w = tensor(t.map, "w");
    assert_null(w->owner);
    assert_int_equal(w->extent[0].at, 40);
    assert_ptr_equal(tensor(t.map, "same node")->owner, w);
    assert_ptr_equal(tensor(t.map, "same bytes")->owner, w);
    assert_int_equal(tensor(t.map, "same bytes")->n_extents, 0);
    assert_null(tensor(t.map, "shorter")->owner);
    assert_null(tensor(t.map, "negative")->owner);
    assert_null(tensor(t.map, "none too")->owner);
    assert_int_equal(tensor(t.map, "none")->n_extents, 0);
    box = tensor(t.map, "box");
    assert_int_equal(box->extent[0].at, 8);
    assert_int_equal(box->extent[0].axis[0].stride, 28);
    assert_int_equal(box->extent[0].axis[0].count, 3);
    assert_int_equal(tensor(t.map, "broadcast")->extent[0].axis[0].stride, 0);
    assert_int_equal(tensor(t.map, "one")->extent[0].axis[0].stride, 4);
    assert_int_equal(ckpt_map_check(t.map, NULL), CKPT_OK);
    done(t.map, t.io);
}

/* Each expanded tensor may be legal, but together they must not fill a disk. */
static void expanded_too_often(void **state)
{
    tree t;
    ckpt_value *root;
    char name[16];

    (void)state;
    grow(&t);
    root = dict(&t);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "x%u", i);
        set(&t, root, name, leaf(&t, i, 100u << 20, 0));
    }
    assert_int_equal(ckpt_torch_list(t.map, t.io, root, false, NULL), CKPT_ELIMIT);
    assert_int_equal(t.map->tensors.n, 3);
    done(t.map, t.io);
}

/* 200 000 tensors, half of them under one name: still fast. */
static void many_tensors(void **state)
{
    tree t;
    ckpt_value *root, *inner, *v;

    (void)state;
    grow(&t);
    root = dict(&t);
    for (unsigned i = 0; i < 100000; i++) {
        char name[16];

        snprintf(name, sizeof name, "p%u", i);
        set(&t, root, name, leaf(&t, 0, 0, 1));
        v = ckpt_value_new(t.a, CKPT_V_OBJECT);
        v->as.object = ckpt_arena_alloc(t.a, sizeof *v->as.object);
        assert_true(ckpt_seq_add(t.a, &v->as.object->items, leaf(&t, 0, 0, 1)));
        if (i == 0)
            set(&t, root, "o", v);
        else
            inner->as.object->state = v;
        inner = v;
    }
    assert_int_equal(ckpt_torch_list(t.map, t.io, root, false, NULL), CKPT_OK);
    assert_int_equal(t.map->tensors.n, 200000);
    assert_true(ckpt_map_index(t.map, "o.0#100000", 10) != SIZE_MAX);
    done(t.map, t.io);
}

/* Of the names in a pickle, those that every file has are not worth a note. */
static void remarks(void **state)
{
    static const struct {
        const char *module, *name;
    } names[] = {{"collections", "OrderedDict"},
                 {"torch", "FloatStorage"},
                 {"torch._utils", "_rebuild_tensor_v2"},
                 {"argparse", "Namespace"},
                 {"my.package", "Config"}};
    ckpt_pickle pickle = {.n_objects = 2};
    tree t;

    (void)state;
    grow(&t);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ckpt_value *v = ckpt_value_new(t.a, CKPT_V_GLOBAL), **slot = ckpt_vec_push(&pickle.globals);

        assert_non_null(slot);
        v->as.global.module = (ckpt_text){names[i].module, strlen(names[i].module)};
        v->as.global.name = (ckpt_text){names[i].name, strlen(names[i].name)};
        *slot = v;
        if (i == 2) {
            pickle.n_objects = 0;
            assert_int_equal(ckpt_torch_remark(t.map, t.io, &pickle, NULL), CKPT_OK);
            assert_int_equal(t.map->findings.n, 0);
            pickle.n_objects = 2;
        }
    }
    assert_int_equal(ckpt_torch_remark(t.map, t.io, &pickle, NULL), CKPT_OK);
    assert_int_equal(t.map->findings.n, 2);
    assert_true(noted(t.map, CKPT_WARNING, "2 objects have unknown classes"));
    assert_true(noted(t.map, CKPT_INFO, "names: argparse.Namespace, my.package.Config"));
    ckpt_vec_free(&pickle.globals);
    done(t.map, t.io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_keys),
        cmocka_unit_test(names_of_roots),
        cmocka_unit_test(names_that_collide),
        cmocka_unit_test(names_in_objects),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(ties_and_views),
        cmocka_unit_test(expanded_too_often),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(remarks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
