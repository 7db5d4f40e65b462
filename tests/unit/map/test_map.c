/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map.c: building a map: files, sources, tensors and their names, extents, facts, findings.
 */
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

static ckpt_map *map;

static int setup(void **state)
{
    (void)state;
    return ckpt_map_create(&map, 0, NULL);
}

static int teardown(void **state)
{
    (void)state;
    ckpt_map_free(map);
    map = NULL;
    return 0;
}

static int add(const char *name, const ckpt_tensor *like, ckpt_tensor **out, ckpt_err *err)
{
    return ckpt_map_add(map, name, strlen(name), like, out, err);
}

/* ---- files and sources ---- */

static void test_files(void **state)
{
    char path[] = "model.pt";
    ckpt_literal stray = {0};
    ckpt_map_file file = {.path = path, .size = 77, .ino = 5};
    uint32_t a = 9, b = 9;

    (void)state;
    file.literals.at = &stray; // a caller's vector is not taken over
    file.literals.n = 1;
    assert_int_equal(ckpt_map_add_file(map, &file, &a, NULL), CKPT_OK);
    file.path = NULL;
    file.prefix = "archive";
    assert_int_equal(ckpt_map_add_file(map, &file, &b, NULL), CKPT_OK);
    path[0] = 'X'; // the map has its own copy
    assert_int_equal(a, 0);
    assert_int_equal(b, 1);
    assert_string_equal(map->files.at[0].path, "model.pt");
    assert_null(map->files.at[0].prefix);
    assert_int_equal(map->files.at[0].size, 77);
    assert_int_equal(map->files.at[0].ino, 5);
    assert_int_equal(map->files.at[0].literals.n, 0);
    assert_string_equal(map->files.at[1].prefix, "archive");
}

static void test_sources(void **state)
{
    char name[] = "archive/data/0";
    ckpt_source s = {.kind = CKPT_SOURCE_FILE, .at = 64, .n_bytes = 12, .name = name};
    uint32_t index = 9;

    (void)state;
    assert_int_equal(ckpt_map_add_source(map, &s, &index, NULL), CKPT_OK);
    name[0] = 'X';
    assert_int_equal(index, 0);
    assert_string_equal(map->sources.at[0].name, "archive/data/0");
    assert_int_equal(map->sources.at[0].at, 64);
    s.name = NULL;
    assert_int_equal(ckpt_map_add_source(map, &s, &index, NULL), CKPT_OK);
    assert_int_equal(index, 1);
    assert_null(map->sources.at[1].name);
}

static void test_literals(void **state)
{
    ckpt_map_file file = {.path = "f"};
    char bytes[] = "header";
    uint32_t i;

    (void)state;
    assert_int_equal(ckpt_map_add_literal(map, 0, 0, bytes, 6, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_map_add_file(map, &file, &i, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_literal(map, i, 10, bytes, 6, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_literal(map, i, 16, NULL, 0, NULL), CKPT_OK);
    bytes[0] = 'X';
    assert_int_equal(map->files.at[0].literals.n, 2);
    assert_int_equal(map->files.at[0].literals.at[0].at, 10);
    assert_int_equal(map->files.at[0].literals.at[0].n, 6);
    assert_memory_equal(map->files.at[0].literals.at[0].bytes, "header", 6);
}

/* ---- tensors ---- */

static void test_add(void **state)
{
    uint64_t shape[] = {3, 4};
    char name[] = "a.weight";
    ckpt_tensor owner = {0};
    ckpt_tensor like = {.dtype = CKPT_BF16,
                        .export_dtype = CKPT_F32,
                        .ndim = 2,
                        .shape = shape,
                        .role = CKPT_ROLE_BUFFER,
                        .flags = 5,
                        .file = 2,
                        .owner = &owner,
                        .twin = &owner,
                        .origin = "old",
                        .n_extents = 7,
                        .n_elems = 99};
    ckpt_tensor *t;

    (void)state;
    assert_int_equal(ckpt_map_add(map, name, 8, &like, &t, NULL), CKPT_OK);
    shape[0] = 100;
    name[0] = 'X';
    assert_string_equal(t->name, "a.weight");
    assert_int_equal(t->dtype, CKPT_BF16);
    assert_int_equal(t->export_dtype, CKPT_F32);
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(t->n_elems, 12); // computed, not believed
    assert_int_equal(t->role, CKPT_ROLE_BUFFER);
    assert_int_equal(t->flags, 5);
    assert_int_equal(t->file, 2);
    assert_ptr_equal(t->owner, &owner);
    assert_ptr_equal(t->twin, &owner);
    assert_string_equal(t->origin, "old");
    assert_int_equal(t->n_extents, 0);
    assert_null(t->extent);
    assert_int_equal(map->tensors.n, 1);
    assert_int_equal(ckpt_map_index(map, "a.weight", 8), 0);
    assert_true(ckpt_map_index(map, "a.weight", 7) == SIZE_MAX);
    assert_true(ckpt_map_index(map, "a.weight\0x", 10) == SIZE_MAX);
    assert_true(ckpt_map_index(map, "", 0) == SIZE_MAX);
}

static void test_scalar_and_empty_name(void **state)
{
    ckpt_tensor like = {.dtype = CKPT_F32};
    ckpt_tensor *t;

    (void)state;
    assert_true(ckpt_map_index(map, "x", 1) == SIZE_MAX); // no table yet
    assert_int_equal(add("", &like, &t, NULL), CKPT_OK);
    assert_int_equal(t->n_elems, 1);
    assert_int_equal(ckpt_map_index(map, "", 0), 0);
}

static void test_refused_tensors(void **state)
{
    const uint64_t one[65] = {1}, huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 30};
    const uint64_t wide[] = {UINT64_C(1) << 62}, zero[] = {0, UINT64_C(1) << 40, UINT64_C(1) << 40};
    const uint64_t odd[] = {3};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = one};
    ckpt_tensor *t = &like;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(add("\xFF", &like, &t, &err), CKPT_EFORMAT);
    assert_null(t);
    assert_true(strlen(err.text) > 0);
    assert_int_equal(ckpt_map_add(map, "a\0b", 3, &like, &t, NULL), CKPT_EFORMAT);
    like.ndim = 65;
    assert_int_equal(add("a", &like, &t, NULL), CKPT_EFORMAT);
    like.ndim = 2;
    like.shape = huge;
    assert_int_equal(add("a", &like, &t, NULL), CKPT_EFORMAT);
    like.ndim = 3;
    like.shape = zero; // the zero does not excuse the others
    assert_int_equal(add("a", &like, &t, NULL), CKPT_EFORMAT);
    like.ndim = 1;
    like.shape = wide; // 2^62 elements, 2^64 bytes
    assert_int_equal(add("a", &like, &t, NULL), CKPT_EFORMAT);
    like.dtype = CKPT_F4;
    like.shape = odd; // one byte and a half
    assert_int_equal(add("a", &like, &t, NULL), CKPT_EFORMAT);
    like.dtype = CKPT_DTYPE_NONE;
    assert_int_equal(add("a", &like, &t, NULL), CKPT_EFORMAT);
    assert_int_equal(map->tensors.n, 0);
}

static void test_duplicates_and_hidden(void **state)
{
    ckpt_tensor like = {.dtype = CKPT_F32};
    ckpt_tensor *t, *twin;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(add("w", &like, &t, NULL), CKPT_OK);
    assert_int_equal(add("w", &like, &twin, &err), CKPT_EFORMAT);
    assert_null(twin);
    assert_non_null(strstr(err.text, "'w'"));
    assert_int_equal(ckpt_map_add_hidden(map, "w", 1, &like, &twin, NULL), CKPT_OK);
    assert_non_null(twin);
    assert_int_equal(map->tensors.n, 1);
    assert_int_equal(ckpt_map_index(map, "w", 1), 0);
}

static void test_many_names(void **state)
{
    enum { N = 20000 };
    ckpt_tensor like = {.dtype = CKPT_F32};
    ckpt_tensor *t;
    char name[32];

    (void)state;
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "layer.%d.weight", i);
        assert_int_equal(add(name, &like, &t, NULL), CKPT_OK);
    }
    for (int i = 0; i < N; i++) {
        size_t n = (size_t)snprintf(name, sizeof name, "layer.%d.weight", i);

        assert_int_equal(ckpt_map_index(map, name, n), i);
    }
    assert_true(ckpt_map_index(map, "layer.20000.weight", 18) == SIZE_MAX);
    assert_int_equal(map->names.n, N);
}

static void test_reindex(void **state)
{
    ckpt_tensor like = {.dtype = CKPT_F32};
    ckpt_tensor *t[3];
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_map_reindex(map, NULL), CKPT_OK); // nothing there
    assert_int_equal(add("a", &like, &t[0], NULL), CKPT_OK);
    assert_int_equal(add("b", &like, &t[1], NULL), CKPT_OK);
    assert_int_equal(add("c", &like, &t[2], NULL), CKPT_OK);
    // Drop "a", rename "b".
    map->tensors.at[0] = t[2];
    map->tensors.n = 2;
    t[1]->name = "renamed";
    assert_int_equal(ckpt_map_reindex(map, NULL), CKPT_OK);
    assert_true(ckpt_map_index(map, "a", 1) == SIZE_MAX);
    assert_true(ckpt_map_index(map, "b", 1) == SIZE_MAX);
    assert_int_equal(ckpt_map_index(map, "c", 1), 0);
    assert_int_equal(ckpt_map_index(map, "renamed", 7), 1);
    assert_int_equal(add("a", &like, &t[0], NULL), CKPT_OK);
    t[1]->name = "c";
    assert_int_equal(ckpt_map_reindex(map, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "'c'"));
}

/* ---- extents ---- */

static void test_back(void **state)
{
    const uint64_t shape[] = {2, 3};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape}, *t;
    ckpt_source s = {.kind = CKPT_SOURCE_ZERO};
    ckpt_axis axis[] = {{0, 2, 12}, {0, 1, 4}, {0, 2, 12}, {3, 0, 4}, {0, 2, 12}, {1, 2, 4}};
    ckpt_extent e[] = {{.ndim = 2, .at = 8, .axis = axis},
                       {.ndim = 2, .axis = axis + 2},
                       {.ndim = 2, .at = 16, .axis = axis + 4}};
    ckpt_axis too_many[] = {{0, 1, 0}, {0, 1, 0}, {0, 1, 0}};
    uint32_t i;

    (void)state;
    assert_int_equal(add("w", &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back(map, t, e, 3, NULL), CKPT_EFORMAT); // no such source
    assert_int_equal(ckpt_map_add_source(map, &s, &i, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back(map, t, e, 3, NULL), CKPT_OK);
    axis[4].count = 77;                // copied
    assert_int_equal(t->n_extents, 2); // the empty one is left out
    assert_int_equal(t->extent[1].at, 16);
    assert_int_equal(t->extent[1].axis[0].count, 2);
    assert_int_equal(t->extent[1].axis[1].start, 1);
    e[0].ndim = 3;
    e[0].axis = too_many;
    assert_int_equal(ckpt_map_back(map, t, e, 1, NULL), CKPT_EFORMAT);
    e[0].ndim = 0;
    assert_int_equal(ckpt_map_back(map, t, e, 1, NULL), CKPT_EFORMAT);
    assert_int_equal(ckpt_map_back(map, t, NULL, 0, NULL), CKPT_OK);
    assert_int_equal(t->n_extents, 0);
}

static void test_back_scalar(void **state)
{
    ckpt_tensor like = {.dtype = CKPT_F32}, *t;
    ckpt_source s = {.kind = CKPT_SOURCE_ZERO};
    ckpt_extent none = {.ndim = 0};
    uint32_t i;

    (void)state;
    assert_int_equal(ckpt_map_add_source(map, &s, &i, NULL), CKPT_OK);
    assert_int_equal(add("s", &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back(map, t, &none, 1, NULL), CKPT_EFORMAT);
    assert_int_equal(ckpt_map_back_whole(map, t, i, 4, NULL), CKPT_OK);
    assert_int_equal(t->extent[0].ndim, 1);
    assert_int_equal(t->extent[0].axis[0].count, 1);
}

static void test_back_whole(void **state)
{
    const uint64_t shape[] = {2, 3}, empty[] = {0, 3};
    ckpt_tensor like = {.dtype = CKPT_BF16, .ndim = 2, .shape = shape}, *t;
    ckpt_source s = {.kind = CKPT_SOURCE_ZERO};
    uint32_t i;

    (void)state;
    assert_int_equal(ckpt_map_add_source(map, &s, &i, NULL), CKPT_OK);
    assert_int_equal(add("w", &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, i, 100, NULL), CKPT_OK);
    assert_int_equal(t->n_extents, 1);
    assert_int_equal(t->extent[0].ndim, 1);
    assert_int_equal(t->extent[0].at, 100);
    assert_int_equal(t->extent[0].axis[0].start, 0);
    assert_int_equal(t->extent[0].axis[0].count, 6);
    assert_int_equal(t->extent[0].axis[0].stride, 2);
    like.dtype = CKPT_F4;
    assert_int_equal(add("packed", &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, i, 0, NULL), CKPT_OK);
    assert_int_equal(t->extent[0].axis[0].stride, 0);
    like.shape = empty;
    assert_int_equal(add("empty", &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, i, 0, NULL), CKPT_OK);
    assert_int_equal(t->n_extents, 1); // says where it would be
    assert_int_equal(t->extent[0].axis[0].count, 0);
}

/* ---- facts and findings ---- */

static void test_facts(void **state)
{
    (void)state;
    assert_int_equal(ckpt_map_fact(map, NULL, "version", "0.%d.%s", 19, "8"), CKPT_OK);
    assert_int_equal(ckpt_map_fact_int(map, "stage", -3, NULL), CKPT_OK);
    assert_int_equal(map->facts.n, 2);
    assert_string_equal(map->facts.at[0].key, "version");
    assert_string_equal(map->facts.at[0].text, "0.19.8");
    assert_false(map->facts.at[0].is_number);
    assert_string_equal(map->facts.at[1].text, "-3");
    assert_true(map->facts.at[1].is_number);
    assert_int_equal(map->facts.at[1].number, -3);
}

static void test_notes(void **state)
{
    static char longest[5000];

    (void)state;
    memset(longest, 'y', sizeof longest - 1);
    assert_int_equal(ckpt_map_note(map, CKPT_WARNING, NULL, "%s", longest), CKPT_OK);
    assert_int_equal(ckpt_map_note(map, CKPT_ERROR, NULL, "%s", "bad"), CKPT_OK);
    // What drives terminals does not pass: escape, DEL, C1 controls; other UTF-8 does.
    assert_int_equal(ckpt_map_note(map, CKPT_INFO, NULL, "a\x1B[1m\x7F\n\xC2\x9B\xC3\xBC"),
                     CKPT_OK);
    assert_int_equal(ckpt_map_note(map, CKPT_INFO, NULL, "a\xC3\xBC\x9B"), CKPT_OK);
    assert_int_equal(map->findings.n, 4);
    assert_string_equal(map->findings.at[3].text, "a?\?\?");
    assert_string_equal(map->findings.at[0].text, longest);
    assert_int_equal(map->findings.at[0].severity, CKPT_WARNING);
    assert_int_equal(map->findings.at[0].code, CKPT_OK);
    assert_int_equal(map->findings.at[1].severity, CKPT_ERROR);
    assert_true(map->findings.at[1].code != CKPT_OK);
    assert_string_equal(map->findings.at[2].text, "a?[1m?\?\?\?\xC3\xBC");
}

static void test_problems(void **state)
{
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_map_problem(map, CKPT_EMISMATCH, &err, "rank %d of %d", 2, 4),
                     CKPT_EMISMATCH);
    assert_string_equal(err.text, "rank 2 of 4");
    assert_int_equal(map->findings.n, 0);
    map->collect = true;
    err = (ckpt_err){0};
    assert_int_equal(ckpt_map_problem(map, CKPT_EMISMATCH, &err, "rank %d of %d", 3, 4), CKPT_OK);
    assert_int_equal(err.code, CKPT_OK);
    assert_int_equal(map->findings.n, 1);
    assert_int_equal(map->findings.at[0].code, CKPT_EMISMATCH);
    assert_int_equal(map->findings.at[0].severity, CKPT_ERROR);
    assert_string_equal(map->findings.at[0].text, "rank 3 of 4");
}

/* ---- when memory is gone ---- */

/* Everything a reader does, stopping at the first failure. */
static int build(ckpt_map **out, ckpt_err *err)
{
    static char filler[3000]; // so that the arena needs new blocks
    const uint64_t shape[] = {4};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape}, *t;
    ckpt_map_file file = {.path = "f", .prefix = "p"};
    ckpt_source s = {.n_bytes = 16, .name = "record"};
    uint32_t f, i;
    int rc = ckpt_map_create(out, 0, err);

    memset(filler, 'x', sizeof filler - 1);
    rc = rc != CKPT_OK ? rc : ckpt_map_add_file(*out, &file, &f, err);
    rc = rc != CKPT_OK ? rc : ckpt_map_add_source(*out, &s, &i, err);
    for (int k = 0; k < 100 && rc == CKPT_OK; k++) {
        char name[16];
        int n = snprintf(name, sizeof name, "t%d", k);

        rc = ckpt_map_add(*out, name, (uint64_t)n, &like, &t, err);
        rc = rc != CKPT_OK ? rc : ckpt_map_back_whole(*out, t, i, 0, err);
    }
    for (int k = 0; k < 20 && rc == CKPT_OK; k++) {
        rc = ckpt_map_add_literal(*out, f, 0, filler, sizeof filler, err);
        rc = rc != CKPT_OK ? rc : ckpt_map_fact(*out, err, "key", "%s", filler);
        rc = rc != CKPT_OK ? rc : ckpt_map_fact_int(*out, "key", k, err);
        rc = rc != CKPT_OK ? rc : ckpt_map_note(*out, CKPT_INFO, err, "%s", filler);
    }
    rc = rc != CKPT_OK ? rc : ckpt_map_reindex(*out, err);
    return rc;
}

static void test_every_allocation_fails_once(void **state)
{
    uint64_t n = 0;
    int rc;

    (void)state;
    do {
        ckpt_map *m = NULL;
        ckpt_err err = {0};

        ckpt_alloc_fail_at(n++);
        rc = build(&m, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        assert_int_equal(err.code, rc);
        ckpt_map_free(m); // NULL when not even the map came to be
    } while (rc != CKPT_OK && n < 10000);
    assert_int_equal(rc, CKPT_OK);
    assert_true(n > 20); // there was something to fail
}

/* The arena's cap ends a map that a hostile file would let grow. */
static void test_arena_limit(void **state)
{
    ckpt_tensor like = {.dtype = CKPT_F32}, *t;
    ckpt_map *m;
    ckpt_err err = {0};
    int rc = CKPT_OK;

    (void)state;
    assert_int_equal(ckpt_map_create(&m, 64 * 1024, NULL), CKPT_OK);
    for (int i = 0; i < 100000 && rc == CKPT_OK; i++) {
        char name[16];
        int n = snprintf(name, sizeof name, "t%d", i);

        rc = ckpt_map_add(m, name, (uint64_t)n, &like, &t, &err);
    }
    assert_int_equal(rc, CKPT_ELIMIT);
    assert_null(t);
    ckpt_map_free(m);
    ckpt_map_free(NULL);
}

#define WITH_MAP(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MAP(test_files),
        WITH_MAP(test_sources),
        WITH_MAP(test_literals),
        WITH_MAP(test_add),
        WITH_MAP(test_scalar_and_empty_name),
        WITH_MAP(test_refused_tensors),
        WITH_MAP(test_duplicates_and_hidden),
        WITH_MAP(test_many_names),
        WITH_MAP(test_reindex),
        WITH_MAP(test_back),
        WITH_MAP(test_back_scalar),
        WITH_MAP(test_back_whole),
        WITH_MAP(test_facts),
        WITH_MAP(test_notes),
        WITH_MAP(test_problems),
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_arena_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
