/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dcp_metadata.c: .metadata of distributed checkpoints, as written by ckpt and by others.
 *
 * Each case makes the objects that torch pickles, changes one of them, and reads the file.
 */
#include "formats/dcp/dcp.h"
#include "libckpt/codec/pickle/pickle.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

static ckpt_arena *arena;

static int make_arena(void **state)
{
    (void)state;
    arena = ckpt_arena_new(0);
    return arena ? 0 : -1;
}

static int free_arena(void **state)
{
    (void)state;
    ckpt_arena_free(arena);
    return 0;
}

/* ---- values ---- */

static ckpt_value *new_value(ckpt_value_kind kind)
{
    ckpt_value *v = ckpt_value_new(arena, kind);

    assert_non_null(v);
    return v;
}

static ckpt_value *whole(int64_t i)
{
    return ckpt_value_int(arena, i);
}

static ckpt_value *text(const char *s)
{
    return ckpt_value_cstr(arena, s);
}

static ckpt_value *size(int64_t a, int64_t b)
{
    ckpt_value *v = new_value(CKPT_V_SIZE);

    assert_true(ckpt_seq_add(arena, &v->as.seq, whole(a)));
    assert_true(ckpt_seq_add(arena, &v->as.seq, whole(b)));
    return v;
}

static void put(ckpt_value *dict, const char *key, ckpt_value *v)
{
    assert_true(ckpt_dict_add_cstr(arena, &dict->as.map, key, v));
}

/* The place of a key's value in a dict, to be changed. */
static ckpt_value **at(ckpt_value *dict, const char *key)
{
    for (uint64_t i = 0; i < dict->as.map.n; i++) {
        if (ckpt_value_is(dict->as.map.at[i].key, key))
            return &dict->as.map.at[i].value;
    }
    fail_msg("no %s", key);
    return NULL;
}

static ckpt_value *object(const char *name, ckpt_value *state)
{
    ckpt_value *v = new_value(CKPT_V_OBJECT), *cls = new_value(CKPT_V_GLOBAL);
    static const char module[] = "torch.distributed.checkpoint.metadata";

    cls->as.global = (ckpt_global){{module, sizeof module - 1}, {name, strlen(name)}};
    v->as.object = ckpt_arena_alloc(arena, sizeof *v->as.object);
    *v->as.object = (ckpt_object){
        .form = CKPT_BY_NEWOBJ, .cls = cls, .args = new_value(CKPT_V_TUPLE), .state = state};
    return v;
}

/* ---- a checkpoint of one tensor in two chunks, and one object ---- */

typedef struct tree {
    ckpt_value *root, *described, *planner, *storage; /* states: dicts */
    ckpt_value *tensor, *properties;                  /* of "m.w" */
    ckpt_value *chunk[2], *index[2], *info[3];
} tree;

static ckpt_value *chunk(ckpt_value *offsets, ckpt_value *sizes)
{
    ckpt_value *state = new_value(CKPT_V_DICT);

    put(state, "offsets", offsets);
    put(state, "sizes", sizes);
    return state;
}

static ckpt_value *info(const char *file, int64_t from, int64_t n)
{
    ckpt_value *state = new_value(CKPT_V_DICT);

    put(state, "relative_path", text(file));
    put(state, "offset", whole(from));
    put(state, "length", whole(n));
    return state;
}

static ckpt_value *index_of(const char *name, ckpt_value *offset)
{
    ckpt_value *state = new_value(CKPT_V_DICT);

    put(state, "fqn", text(name));
    put(state, "offset", offset);
    put(state, "index", new_value(CKPT_V_NONE));
    return state;
}

static void store(tree *t, ckpt_value *index, ckpt_value *where)
{
    assert_true(ckpt_dict_add(arena, &t->storage->as.map, object("MetadataIndex", index),
                              object("_StorageInfo", where)));
}

static ckpt_value *path_of(const char *a, const char *b)
{
    ckpt_value *v = new_value(CKPT_V_TUPLE);

    assert_true(ckpt_seq_add(arena, &v->as.seq, text(a)));
    assert_true(!b || ckpt_seq_add(arena, &v->as.seq, text(b)));
    return v;
}

static ckpt_value *properties_of(ckpt_dtype dtype, bool grad)
{
    ckpt_value *v = new_value(CKPT_V_TUPLE), *d = new_value(CKPT_V_DTYPE);

    d->as.dtype = dtype;
    assert_true(ckpt_seq_add(arena, &v->as.seq, d));
    assert_true(ckpt_seq_add(arena, &v->as.seq, new_value(CKPT_V_NONE)));
    assert_true(ckpt_seq_add(arena, &v->as.seq, ckpt_value_bool(arena, grad)));
    return v;
}

static tree make(void)
{
    tree t = {.root = new_value(CKPT_V_DICT),
              .described = new_value(CKPT_V_DICT),
              .planner = new_value(CKPT_V_DICT),
              .storage = new_value(CKPT_V_DICT),
              .tensor = new_value(CKPT_V_DICT),
              .properties = properties_of(CKPT_BF16, true),
              .chunk = {chunk(size(0, 0), size(2, 3)), chunk(size(2, 0), size(2, 3))},
              .index = {index_of("m.w", size(0, 0)), index_of("m.w", size(2, 0))},
              .info = {info("__0_0.distcp", 0, 100), info("__1_0.distcp", 0, 100),
                       info("__0_0.distcp", 100, 50)}};
    ckpt_value *chunks = new_value(CKPT_V_LIST);

    for (unsigned i = 0; i < 2; i++) {
        assert_true(
            ckpt_seq_add(arena, &chunks->as.seq, object("ChunkStorageMetadata", t.chunk[i])));
        store(&t, t.index[i], t.info[i]);
    }
    store(&t, index_of("step", new_value(CKPT_V_NONE)), t.info[2]);
    put(t.tensor, "properties", object("TensorProperties", t.properties));
    put(t.tensor, "size", size(4, 3));
    put(t.tensor, "chunks", chunks);
    put(t.described, "step", object("BytesStorageMetadata", NULL));
    put(t.described, "m.w", object("TensorStorageMetadata", t.tensor));
    put(t.planner, "m.w", path_of("m", "w"));
    put(t.planner, "step", path_of("step", NULL));
    put(t.root, "state_dict_metadata", t.described);
    put(t.root, "planner_data", t.planner);
    put(t.root, "storage_data", t.storage);
    return t;
}

/* Write the tree as .metadata and read it; *out is to be freed. */
static int read_tree(ckpt_dcp_metadata *out, const tree *t, ckpt_err *err)
{
    char folder[FOLDER_PATH];
    ckpt_bytes bytes = {0};

    *out = (ckpt_dcp_metadata){0};
    *err = (ckpt_err){0};
    folder_new(folder);
    assert_int_equal(ckpt_pickle_write(&bytes, object("Metadata", t->root), err), CKPT_OK);
    folder_write(folder_at(folder, CKPT_DCP_METADATA), bytes.at, bytes.n);
    int rc = ckpt_dcp_metadata_read(out, arena, folder, "", err);
    ckpt_vec_free(&bytes);
    folder_remove(folder);
    return rc;
}

static void reads(void **state)
{
    tree t = make();
    ckpt_dcp_metadata m;
    ckpt_err err;

    (void)state;
    if (read_tree(&m, &t, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    // in the order of planner_data, not of state_dict_metadata
    assert_int_equal(m.item.n, 2);
    const ckpt_dcp_item *w = &m.item.at[0], *step = &m.item.at[1];
    assert_string_equal(w->name.at, "m.w");
    assert_true(w->is_tensor && !step->is_tensor);
    assert_int_equal(w->dtype, CKPT_BF16);
    assert_int_equal(w->flags, CKPT_TENSOR_GRAD);
    assert_int_equal(w->ndim, 2);
    assert_int_equal(w->shape[0] * 10 + w->shape[1], 43);
    assert_int_equal(w->n, 2);
    assert_int_equal(ckpt_value_seq(w->path).n, 2);
    assert_true(ckpt_value_is(ckpt_value_seq(w->path).at[1], "w"));
    ckpt_dcp_chunk c = ckpt_dcp_chunk_at(&m, w->first + 1);
    assert_int_equal(c.start[0] * 10 + c.count[0], 22);
    assert_string_equal(m.file.at[c.place.file].path, "__1_0.distcp");
    c = ckpt_dcp_chunk_at(&m, step->first);
    assert_int_equal(step->n, 1);
    assert_true(!c.start && !c.count);
    assert_string_equal(m.file.at[c.place.file].path, "__0_0.distcp");
    assert_int_equal(c.place.at, 100);
    assert_int_equal(c.place.n, 50);
    assert_int_equal(m.file.n, 2);
    assert_int_equal(m.n_loose, 0);
    ckpt_dcp_metadata_free(&m);
}

/* ---- changes, each of one value ---- */

static ckpt_value *none(void)
{
    return new_value(CKPT_V_NONE);
}

static void no_storage(tree *t)
{
    *at(t->root, "storage_data") = none();
}
static void no_items(tree *t)
{
    *at(t->root, "state_dict_metadata") = none();
}
static void list_planner(tree *t)
{
    *at(t->root, "planner_data") = new_value(CKPT_V_LIST);
}
static void no_planner(tree *t)
{
    *at(t->root, "planner_data") = none();
}
static void lost_entry(tree *t)
{
    t->storage->as.map.n = 1;
}
static void lost_item(tree *t)
{
    t->described->as.map.n = 1;
}
static void lost_chunk(tree *t)
{
    (*at(t->tensor, "chunks"))->as.seq.n = 1;
}
static void no_chunks(tree *t)
{
    *at(t->tensor, "chunks") = none();
}
static void no_properties(tree *t)
{
    *at(t->tensor, "properties") = none();
}
static void other_properties(tree *t)
{
    t->properties->as.seq.at[0] = text("bf16");
}
static void negative_size(tree *t)
{
    *at(t->tensor, "size") = size(-4, 3);
}
static void text_size(tree *t)
{
    *at(t->tensor, "size") = text("4,3");
}
static void small_size(tree *t)
{
    *at(t->tensor, "size") = size(3, 3);
}
static void negative_start(tree *t)
{
    *at(t->chunk[1], "offsets") = size(-2, 0);
}
static void huge_start(tree *t)
{
    *at(t->chunk[1], "offsets") = size(INT64_MAX, 0);
}
static void huge_count(tree *t)
{
    *at(t->chunk[1], "sizes") = size(INT64_MAX, 3);
}
static void no_count(tree *t)
{
    *at(t->chunk[1], "sizes") = none();
}
static void other_start(tree *t)
{
    *at(t->chunk[1], "offsets") = size(1, 0);
}
static void same_start(tree *t)
{
    *at(t->chunk[1], "offsets") = size(0, 0);
}
static void same_entry(tree *t)
{
    *at(t->index[1], "offset") = size(0, 0);
}
static void other_name(tree *t)
{
    *at(t->index[1], "fqn") = text("m.x");
}
static void no_name(tree *t)
{
    *at(t->index[1], "fqn") = none();
}
static void int_name(tree *t)
{
    *at(t->index[1], "fqn") = whole(1);
}
static void negative_offset(tree *t)
{
    *at(t->info[1], "offset") = whole(-1);
}
static void no_length(tree *t)
{
    *at(t->info[1], "length") = none();
}
static void true_length(tree *t)
{
    *at(t->info[1], "length") = ckpt_value_bool(arena, true);
}
static void overlap(tree *t)
{
    *at(t->info[2], "offset") = whole(99);
}
static void up(tree *t)
{
    *at(t->info[1], "relative_path") = text("../x");
}
static void up_only(tree *t)
{
    *at(t->info[1], "relative_path") = text("..");
}
static void deep(tree *t)
{
    *at(t->info[1], "relative_path") = text("a/x");
}
static void nameless(tree *t)
{
    *at(t->info[1], "relative_path") = text("");
}
static void empty_path(tree *t)
{
    *at(t->planner, "m.w") = new_value(CKPT_V_TUPLE);
}
static void list_path(tree *t)
{
    *at(t->planner, "m.w") = new_value(CKPT_V_LIST);
}
static void extra_path(tree *t)
{
    put(t->planner, "gone", path_of("gone", NULL));
}

static void negative_path(tree *t)
{
    (*at(t->planner, "m.w"))->as.seq.at[1] = whole(-1);
}

static void extension(tree *t)
{
    ckpt_value *list = new_value(CKPT_V_LIST);

    assert_true(ckpt_seq_add(arena, &list->as.seq, text("zstd")));
    put(t->info[1], "transform_descriptors", list);
}

static void unknown_dtype(tree *t)
{
    static const char name[] = "quint4x2";
    ckpt_value *g = new_value(CKPT_V_GLOBAL);

    g->as.global = (ckpt_global){{"torch", 5}, {name, sizeof name - 1}};
    t->properties->as.seq.at[0] = g;
}

static void changes(void **state)
{
    static const struct {
        void (*change)(tree *t);
        const char *name;
        int code;
    } cases[] = {
#define CASE(change, code) {change, #change, code}
        CASE(no_storage, CKPT_EFORMAT),
        CASE(no_items, CKPT_EFORMAT),
        CASE(list_planner, CKPT_EFORMAT),
        CASE(no_planner, CKPT_OK),
        CASE(lost_entry, CKPT_EMISMATCH),
        CASE(lost_item, CKPT_EMISMATCH),
        CASE(lost_chunk, CKPT_OK),
        CASE(no_chunks, CKPT_OK),
        CASE(no_properties, CKPT_EFORMAT),
        CASE(other_properties, CKPT_EFORMAT),
        CASE(unknown_dtype, CKPT_EUNSUPPORTED),
        CASE(negative_size, CKPT_EFORMAT),
        CASE(text_size, CKPT_EFORMAT),
        CASE(small_size, CKPT_EMISMATCH),
        CASE(negative_start, CKPT_EFORMAT),
        CASE(huge_start, CKPT_EMISMATCH),
        CASE(huge_count, CKPT_EMISMATCH),
        CASE(no_count, CKPT_EFORMAT),
        CASE(other_start, CKPT_EMISMATCH),
        CASE(same_start, CKPT_EMISMATCH),
        CASE(same_entry, CKPT_EFORMAT),
        CASE(other_name, CKPT_EMISMATCH),
        CASE(no_name, CKPT_EFORMAT),
        CASE(int_name, CKPT_EFORMAT),
        CASE(negative_offset, CKPT_EFORMAT),
        CASE(no_length, CKPT_EFORMAT),
        CASE(true_length, CKPT_EFORMAT),
        CASE(overlap, CKPT_EMISMATCH),
        CASE(up, CKPT_EUNSAFE),
        CASE(up_only, CKPT_EUNSAFE),
        CASE(deep, CKPT_EUNSAFE),
        CASE(nameless, CKPT_EUNSAFE),
        CASE(empty_path, CKPT_EFORMAT),
        CASE(list_path, CKPT_EFORMAT),
        CASE(negative_path, CKPT_EFORMAT),
        CASE(extra_path, CKPT_EMISMATCH),
        CASE(extension, CKPT_EUNSUPPORTED),
#undef CASE
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tree t = make();
        ckpt_dcp_metadata m;
        ckpt_err err;

        cases[i].change(&t);
        if (read_tree(&m, &t, &err) != cases[i].code)
            fail_msg("%s: %d (%s)", cases[i].name, err.code, err.text);
        if (cases[i].code != CKPT_OK)
            assert_non_null(strstr(err.text, CKPT_DCP_METADATA));
        ckpt_dcp_metadata_free(&m);
    }
}

/* Chunks that state_dict_metadata does not list are counted, not read. */
static void counts_loose(void **state)
{
    tree t = make();
    ckpt_dcp_metadata m;
    ckpt_err err;

    (void)state;
    lost_chunk(&t);
    assert_int_equal(read_tree(&m, &t, &err), CKPT_OK);
    assert_int_equal(m.n_loose, 1);
    assert_string_equal(m.loose, "m.w");
    ckpt_dcp_metadata_free(&m);
}

/* Several ranks without elements share an entry; those with elements do not. */
static void shares_empty(void **state)
{
    tree t = make();
    ckpt_dcp_metadata m;
    ckpt_err err;

    (void)state;
    *at(t.tensor, "size") = size(0, 3);
    for (unsigned i = 0; i < 2; i++) {
        *at(t.chunk[i], "offsets") = size(0, 0);
        *at(t.chunk[i], "sizes") = size(0, 3);
    }
    assert_int_equal(read_tree(&m, &t, &err), CKPT_OK);
    assert_int_equal(m.item.at[0].n, 2);
    ckpt_dcp_metadata_free(&m);
}

/* Check that the chunks of make() have their places. */
static void check_places(const ckpt_dcp_metadata *m)
{
    for (size_t i = 0; i < 2; i++) {
        const ckpt_dcp_chunk c = ckpt_dcp_chunk_at(m, m->item.at[0].first + i);

        assert_int_equal(c.start[0], 2 * i);
        assert_string_equal(m->file.at[c.place.file].path, i ? "__1_0.distcp" : "__0_0.distcp");
        assert_int_equal(c.place.at, 0);
        assert_int_equal(c.place.n, 100);
    }
}

/*
 * Keys that the plans of the saving ranks mention before storage_data, in either order, are read
 * with their own places; so is a place that two names of an object share.
 */
static void shares_objects(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 2; order++) {
        tree t = make();
        const ckpt_dict stored = t.storage->as.map;
        ckpt_value *plans = new_value(CKPT_V_LIST);
        ckpt_pair *root;
        ckpt_dcp_metadata m;
        ckpt_err err;

        for (unsigned i = 0; i < 2; i++)
            assert_true(ckpt_seq_add(arena, &plans->as.seq, stored.at[i == order].key));
        put(t.described, "again", object("BytesStorageMetadata", NULL));
        put(t.planner, "again", path_of("again", NULL));
        assert_true(ckpt_dict_add(arena, &t.storage->as.map,
                                  object("MetadataIndex", index_of("again", none())),
                                  stored.at[2].value));
        put(t.root, "all_local_plans", plans);
        root = t.root->as.map.at;
        const ckpt_pair storage = root[2];
        root[2] = root[3];
        root[3] = storage;
        if (read_tree(&m, &t, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        check_places(&m);
        assert_int_equal(ckpt_dcp_place_of(&m, m.item.at[2].first).at, 100);
        assert_int_equal(m.n_loose, 0);
        ckpt_dcp_metadata_free(&m);
    }
}

/* Chunks in another order than their entries are found, too. */
static void finds_reversed(void **state)
{
    tree t = make();
    ckpt_seq *chunks = &(*at(t.tensor, "chunks"))->as.seq;
    ckpt_value *first = chunks->at[0];
    ckpt_dcp_metadata m;
    ckpt_err err;

    (void)state;
    chunks->at[0] = chunks->at[1];
    chunks->at[1] = first;
    assert_int_equal(read_tree(&m, &t, &err), CKPT_OK);
    const ckpt_dcp_chunk c = ckpt_dcp_chunk_at(&m, m.item.at[0].first);
    assert_int_equal(c.start[0], 2);
    assert_string_equal(m.file.at[c.place.file].path, "__1_0.distcp");
    ckpt_dcp_metadata_free(&m);
}

/* What describe writes is what read returns. */
static void describes(void **state)
{
    static const uint64_t shape[] = {4, 3}, start[][2] = {{0, 0}, {2, 0}}, count[] = {2, 3};
    ckpt_dcp_item item[] = {{.name = {"a.b", 3},
                             .path = path_of("a", "b"),
                             .is_tensor = true,
                             .dtype = CKPT_F32,
                             .ndim = 2,
                             .shape = shape,
                             .first = 0,
                             .n = 2},
                            {.name = {"scalar", 6},
                             .path = path_of("scalar", NULL),
                             .is_tensor = true,
                             .dtype = CKPT_I64,
                             .first = 2,
                             .n = 1},
                            {.name = {"o", 1}, .path = path_of("o", NULL), .first = 3, .n = 1}};
    ckpt_dcp_chunk parts[] = {{start[0], count, {0, 0, 10}},
                              {start[1], count, {1, 7, 11}},
                              {NULL, NULL, {0, 10, 5}},
                              {NULL, NULL, {1, 18, UINT32_MAX}}};
    ckpt_dcp_file file[] = {{{"x", 1}, "x"}, {{"y", 1}, "y"}};
    ckpt_dcp_metadata from = {.item = {item, 3, 3}, .file = {file, 2, 2}};
    char folder[FOLDER_PATH];
    ckpt_dcp_metadata m = {0};
    ckpt_bytes bytes = {0};
    ckpt_err err = {0};

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_true(ckpt_dcp_add_chunk(&from, &parts[i], i < 2 ? 2 : 0));
    folder_new(folder);
    assert_int_equal(ckpt_dcp_describe(&bytes, &from, &err), CKPT_OK);
    folder_write(folder_at(folder, CKPT_DCP_METADATA), bytes.at, bytes.n);
    if (ckpt_dcp_metadata_read(&m, arena, folder, "", &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(m.item.n, 3);
    for (size_t i = 0; i < 3; i++) {
        const ckpt_dcp_item *a = &item[i], *b = &m.item.at[i];

        assert_string_equal(a->name.at, b->name.at);
        assert_true(ckpt_value_equal(a->path, b->path, 10));
        assert_int_equal(a->is_tensor, b->is_tensor);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->ndim, b->ndim);
        assert_int_equal(a->n, b->n);
        if (a->ndim > 0)
            assert_memory_equal(a->shape, b->shape, a->ndim * sizeof *a->shape);
        for (size_t k = 0; k < a->n; k++) {
            const ckpt_dcp_chunk *c = &parts[a->first + k], d = ckpt_dcp_chunk_at(&m, b->first + k);

            assert_string_equal(file[c->place.file].path, m.file.at[d.place.file].path);
            assert_true(c->place.at == d.place.at && c->place.n == d.place.n);
            if (a->ndim > 0) {
                assert_memory_equal(c->start, d.start, a->ndim * sizeof *c->start);
                assert_memory_equal(c->count, d.count, a->ndim * sizeof *c->count);
            }
        }
    }
    assert_int_equal(m.n_loose, 0);
    ckpt_dcp_metadata_free(&m);
    ckpt_vec_free(&from.chunk);
    ckpt_vec_free(&from.entry);
    ckpt_vec_free(&from.list);
    ckpt_vec_free(&bytes);
    folder_remove(folder);
}

/* A second folder of a pair adds its items after the first one's, with its own files. */
static void appends(void **state)
{
    tree t = make();
    char folder[FOLDER_PATH], sub[FOLDER_PATH];
    ckpt_dcp_metadata m = {0};
    ckpt_bytes bytes = {0};
    ckpt_err err = {0};

    (void)state;
    folder_new(folder);
    folder_join(sub, folder, "optimizer_0");
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(ckpt_pickle_write(&bytes, object("Metadata", t.root), &err), CKPT_OK);
    folder_write(folder_at(folder, CKPT_DCP_METADATA), bytes.at, bytes.n);
    // in another order, so that its lists of numbers appear in another one, too
    const ckpt_pair first = t.storage->as.map.at[0];
    t.storage->as.map.at[0] = t.storage->as.map.at[1];
    t.storage->as.map.at[1] = first;
    bytes.n = 0;
    assert_int_equal(ckpt_pickle_write(&bytes, object("Metadata", t.root), &err), CKPT_OK);
    folder_write(folder_at(sub, CKPT_DCP_METADATA), bytes.at, bytes.n);
    assert_int_equal(ckpt_dcp_metadata_read(&m, arena, folder, "", &err), CKPT_OK);
    if (ckpt_dcp_metadata_read(&m, arena, folder, "optimizer_0/", &err) != CKPT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(m.item.n, 4);
    assert_int_equal(m.file.n, 4);
    assert_string_equal(m.file.at[0].path, "__0_0.distcp");
    const ckpt_dcp_place place = ckpt_dcp_place_of(&m, m.item.at[2].first);
    assert_string_equal(m.file.at[place.file].path, "optimizer_0/__0_0.distcp");
    assert_int_equal(ckpt_dcp_metadata_read(&m, arena, folder, "missing/", &err), CKPT_EMISSING);
    ckpt_dcp_metadata_free(&m);
    ckpt_vec_free(&bytes);
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),          cmocka_unit_test(changes),
        cmocka_unit_test(counts_loose),   cmocka_unit_test(shares_empty),
        cmocka_unit_test(shares_objects), cmocka_unit_test(finds_reversed),
        cmocka_unit_test(describes),      cmocka_unit_test(appends),
    };

    return cmocka_run_group_tests(tests, make_arena, free_arena);
}
