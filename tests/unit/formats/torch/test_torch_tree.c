/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_torch_tree.c: building the tree of a file to be written: nodes, errors that stick, copies of
 * other trees.
 */
#include "formats/torch/tree.h"
#include "libckpt/codec/pickle/pickle.h"
#include "tests/unit/unit.h"

typedef struct fix {
    ckpt_map *from, *to;
    ckpt_torch_tree t;
    ckpt_err err;
} fix;

static void begin(fix *f)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(ckpt_map_create(&f->from, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_create(&f->to, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_tt_begin(&f->t, f->to, f->from, "x.pt", &f->err), CKPT_OK);
}

static void end(fix *f)
{
    ckpt_map_free(f->to);
    ckpt_map_free(f->from);
}

/* A dict of the source map with one int. */
static ckpt_value *sample(ckpt_map *map, const char *key, int64_t i)
{
    ckpt_value *d = ckpt_value_new(map->arena, CKPT_V_DICT);

    assert_true(ckpt_dict_add_cstr(map->arena, &d->as.map, key, ckpt_value_int(map->arena, i)));
    return d;
}

/* An object of a class with a state. */
static ckpt_value *object(ckpt_map *map, const char *module, const char *name)
{
    ckpt_value *v = ckpt_value_new(map->arena, CKPT_V_OBJECT),
               *cls = ckpt_value_new(map->arena, CKPT_V_GLOBAL);

    cls->as.global.module = (ckpt_text){module, strlen(module)};
    cls->as.global.name = (ckpt_text){name, strlen(name)};
    v->as.object = ckpt_arena_alloc(map->arena, sizeof *v->as.object);
    v->as.object->form = CKPT_BY_NEWOBJ;
    v->as.object->cls = cls;
    v->as.object->args = ckpt_value_new(map->arena, CKPT_V_TUPLE);
    return v;
}

/* put replaces a value and keeps the order. */
static void test_put_replaces(void **state)
{
    fix f;

    (void)state;
    begin(&f);
    ckpt_value *d = ckpt_tt_new(&f.t, CKPT_V_DICT);
    ckpt_tt_put(&f.t, d, "a", ckpt_tt_int(&f.t, 1));
    ckpt_tt_put(&f.t, d, "b", ckpt_tt_int(&f.t, 2));
    ckpt_tt_put(&f.t, d, "a", ckpt_tt_int(&f.t, 3));
    assert_int_equal(d->as.map.n, 2);
    assert_true(ckpt_value_is(d->as.map.at[0].key, "a"));
    assert_int_equal(d->as.map.at[0].value->as.i, 3);
    assert_int_equal(ckpt_tt_end(&f.t, d), CKPT_OK);
    assert_true(f.to->files.at[0].placed);
    assert_true(f.to->files.at[0].size > 0);
    assert_null(f.to->files.at[0].tree);
    end(&f);
}

/* After a failure nothing is made, and end gives its code. */
static void test_errors_stick(void **state)
{
    fix f;

    (void)state;
    begin(&f);
    ckpt_value *d = ckpt_tt_new(&f.t, CKPT_V_DICT);
    ckpt_tt_put(&f.t, d, "big",
                ckpt_tt_flat(&f.t, ckpt_tt_storage(&f.t, CKPT_F32, UINT64_MAX), 0, 1));
    assert_null(ckpt_tt_int(&f.t, 1));
    assert_int_equal(ckpt_tt_end(&f.t, d), CKPT_ELIMIT);
    end(&f);
}

/* What is shared in a tree stays shared in its copy; cycles end. */
static void test_copy_keeps_identity(void **state)
{
    fix f;

    (void)state;
    begin(&f);
    ckpt_value *list = ckpt_value_new(f.from->arena, CKPT_V_LIST), *d = sample(f.from, "k", 7);
    assert_true(ckpt_seq_add(f.from->arena, &list->as.seq, d));
    assert_true(ckpt_seq_add(f.from->arena, &list->as.seq, d));
    assert_true(ckpt_seq_add(f.from->arena, &list->as.seq, list));
    ckpt_value *copy = ckpt_tt_copy(&f.t, list);
    assert_non_null(copy);
    assert_ptr_not_equal(copy, list);
    assert_ptr_equal(copy->as.seq.at[0], copy->as.seq.at[1]);
    assert_ptr_equal(copy->as.seq.at[2], copy);
    assert_int_equal(ckpt_value_get(copy->as.seq.at[0], "k")->as.i, 7);
    assert_int_equal(list->mark, 0); // walkers leave no trace
    assert_int_equal(ckpt_tt_end(&f.t, ckpt_tt_new(&f.t, CKPT_V_DICT)), CKPT_OK);
    end(&f);
}

/* A tensor's record goes along, once, however many tensors view it. */
static void test_copy_takes_records(void **state)
{
    fix f;
    float bytes[4] = {1, 2, 3, 4};
    ckpt_source source = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = sizeof bytes, .memory = bytes};
    uint32_t index;

    (void)state;
    begin(&f);
    assert_int_equal(ckpt_map_add_source(f.from, &source, &index, NULL), CKPT_OK);
    ckpt_storage s = {
        .location = {"cpu", 3}, .dtype = CKPT_F32, .n_elems = 4, .n_bytes = 16, .source = index};
    const uint64_t two = 2, one = 1;
    ckpt_tensor_value a = {
        .storage = &s, .dtype = CKPT_F32, .ndim = 1, .shape = &two, .stride = &one};
    ckpt_tensor_value b = a;
    b.offset = 2;
    ckpt_value va = {.kind = CKPT_V_TENSOR, .as.tensor = &a},
               vb = {.kind = CKPT_V_TENSOR, .as.tensor = &b};
    ckpt_value *x = ckpt_tt_copy(&f.t, &va), *y = ckpt_tt_copy(&f.t, &vb);
    assert_non_null(x);
    assert_non_null(y);
    assert_ptr_equal(x->as.tensor->storage, y->as.tensor->storage);
    assert_int_equal(y->as.tensor->offset, 2);
    assert_int_equal(f.to->tensors.n, 1); // one record to fill
    assert_int_equal(f.to->tensors.at[0]->n_elems, 4);
    assert_non_null(f.to->tensors.at[0]->donor);
    assert_int_equal(f.to->tensors.at[0]->donor->extent[0].source, index);
    ckpt_value *root = ckpt_tt_new(&f.t, CKPT_V_DICT);
    ckpt_tt_put(&f.t, root, "x", x);
    ckpt_tt_put(&f.t, root, "y", y);
    assert_int_equal(ckpt_tt_end(&f.t, root), CKPT_OK);
    end(&f);
}

/* Objects of unknown classes: named once each, and left out with their keys when asked. */
static void test_unknown_objects(void **state)
{
    fix f;

    (void)state;
    begin(&f);
    ckpt_value *d = sample(f.from, "kept", 1), *names = ckpt_value_new(f.from->arena, CKPT_V_LIST);
    ckpt_value *mine = object(f.from, "trainer.state", "Mine");
    ckpt_value *scaler = object(f.from, "deepspeed.runtime.fp16.loss_scaler", "LossScaler");
    ckpt_value *list = ckpt_value_new(f.from->arena, CKPT_V_LIST);
    assert_true(ckpt_dict_add_cstr(f.from->arena, &d->as.map, "mine", mine));
    assert_true(ckpt_dict_add_cstr(f.from->arena, &d->as.map, "again", mine));
    assert_true(ckpt_dict_add_cstr(f.from->arena, &d->as.map, "scaler", scaler));
    assert_true(ckpt_seq_add(f.from->arena, &list->as.seq, mine));
    assert_true(ckpt_dict_add_cstr(f.from->arena, &d->as.map, "list", list));
    assert_int_equal(ckpt_tt_unknown(d, names, f.from->arena, NULL), CKPT_OK);
    assert_int_equal(names->as.seq.n, 1);
    assert_true(ckpt_value_is(names->as.seq.at[0], "trainer.state.Mine"));
    assert_int_equal(ckpt_value_map(ckpt_tt_copy(&f.t, d)).n, 5); // kept unless asked
    f.t.drop_objects = true;
    ckpt_value *copy = ckpt_tt_copy(&f.t, d);
    assert_int_equal(copy->as.map.n, 3);
    assert_null(ckpt_value_get(copy, "mine"));
    assert_non_null(ckpt_value_get(copy, "scaler"));
    assert_int_equal(ckpt_value_get(copy, "list")->as.seq.at[0]->kind, CKPT_V_NONE);
    assert_int_equal(ckpt_tt_end(&f.t, copy), CKPT_OK);
    end(&f);
}

/* A file of one int, a record that is filled, and one that stays zero. */
static ckpt_torch_made some_file(fix *f, const char *name, const ckpt_tensor *donor)
{
    ckpt_torch_made made = {
        .file = (uint32_t)f->to->files.n, .source = f->to->sources.n, .tensor = f->to->tensors.n};

    assert_int_equal(ckpt_tt_begin(&f->t, f->to, f->from, name, &f->err), CKPT_OK);
    ckpt_value *root = ckpt_tt_new(&f->t, CKPT_V_DICT);
    ckpt_tt_put(&f->t, root, "step", ckpt_tt_int(&f->t, 7));
    ckpt_tt_put(&f->t, root, "filled", ckpt_tt_whole(&f->t, donor, CKPT_BF16));
    ckpt_tt_put(&f->t, root, "zero", ckpt_tt_zeros(&f->t, CKPT_F32, donor->shape, donor->ndim));
    assert_int_equal(ckpt_tt_end(&f->t, root), CKPT_OK);
    made.n_sources = f->to->sources.n - made.source;
    made.n_tensors = f->to->tensors.n - made.tensor;
    return made;
}

/* Two files are the same but for their numbers. */
static void expect_same_file(const ckpt_map *a, const ckpt_torch_made *x, const ckpt_map *b,
                             const ckpt_torch_made *y)
{
    const ckpt_map_file *f = &a->files.at[x->file], *g = &b->files.at[y->file];

    assert_string_equal(f->path, g->path);
    assert_int_equal(f->size, g->size);
    assert_true(f->placed && g->placed);
    assert_int_equal(f->literals.n, g->literals.n);
    for (size_t i = 0; i < f->literals.n; i++) {
        const ckpt_literal *l = &f->literals.at[i], *m = &g->literals.at[i];
        assert_int_equal(l->at, m->at);
        assert_int_equal(l->n, m->n);
        assert_memory_equal(l->bytes, m->bytes, l->n);
    }
    assert_int_equal(x->n_sources, y->n_sources);
    for (size_t i = 0; i < x->n_sources; i++) {
        const ckpt_source *s = &a->sources.at[x->source + i], *t = &b->sources.at[y->source + i];
        assert_int_equal(s->file, x->file);
        assert_int_equal(s->at, t->at);
        assert_int_equal(s->n_bytes, t->n_bytes);
        assert_string_equal(s->name, t->name);
    }
    assert_int_equal(x->n_tensors, y->n_tensors);
    for (size_t i = 0; i < x->n_tensors; i++) {
        const ckpt_tensor *t = a->tensors.at[x->tensor + i], *u = b->tensors.at[y->tensor + i];
        assert_string_equal(strchr(t->name, '/'), strchr(u->name, '/'));
        assert_ptr_equal(t->donor, u->donor);
        assert_int_equal(t->dtype, u->dtype);
        assert_int_equal(t->n_extents, 1);
        assert_int_equal(t->extent[0].source - x->source, u->extent[0].source - y->source);
        assert_int_equal(t->extent[0].axis[0].count, u->extent[0].axis[0].count);
    }
}

/* A file like another is the one that its own making would have given. */
static void test_again(void **state)
{
    static const char *const name[] = {"b.pt", "the other one with a longer name.pt"};
    const uint64_t shape[] = {3, 5};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        ckpt_tensor *donor = NULL;
        ckpt_torch_made again;
        fix f = {0}, g = {0};

        assert_int_equal(ckpt_map_create(&f.from, 0, NULL), CKPT_OK);
        assert_int_equal(ckpt_map_create(&f.to, 0, NULL), CKPT_OK);
        assert_int_equal(ckpt_map_create(&g.to, 0, NULL), CKPT_OK);
        g.from = f.from;
        assert_int_equal(ckpt_map_add(f.from, "w", 1, &like, &donor, NULL), CKPT_OK);
        (void)some_file(&f, "before.pt", donor);
        ckpt_torch_made first = some_file(&f, "a.pt", donor), own = some_file(&g, name[i], donor);
        assert_int_equal(ckpt_tt_again(f.to, &first, name[i], &again, &f.err), CKPT_OK);
        expect_same_file(f.to, &again, g.to, &own);
        assert_ptr_equal(f.to->files.at[again.file].literals.at[1].bytes,
                         f.to->files.at[first.file].literals.at[1].bytes);
        ckpt_map_free(g.to);
        end(&f);
    }
}

/* Every allocation may fail: an error, never a crash. */
static void test_memory(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 200; n++) {
        fix f = {0};
        int rc;
        assert_int_equal(ckpt_map_create(&f.from, 0, NULL), CKPT_OK);
        assert_int_equal(ckpt_map_create(&f.to, 0, NULL), CKPT_OK);
        ckpt_value *d = sample(f.from, "k", 7);
        ckpt_alloc_fail_at(n);
        rc = ckpt_tt_begin(&f.t, f.to, f.from, "x.pt", &f.err);
        ckpt_value *root = rc == CKPT_OK ? ckpt_tt_copy(&f.t, d) : NULL;
        rc = ckpt_tt_end(&f.t, root);
        ckpt_alloc_fail_at(UINT64_MAX);
        end(&f);
        if (rc == CKPT_OK) {
            assert_true(n > 3);
            return;
        }
        assert_int_equal(rc, CKPT_ELIMIT);
    }
    fail_msg("allocation never succeeds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_replaces),
        cmocka_unit_test(test_errors_stick),
        cmocka_unit_test(test_copy_keeps_identity),
        cmocka_unit_test(test_copy_takes_records),
        cmocka_unit_test(test_unknown_objects),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
