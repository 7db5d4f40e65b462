/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cut.c: extents that follow a rule are those of a list: read one by one, checked, joined,
 * shared, copied and moved with the map that takes theirs over.
 */
#include "ckpt_extra.h"
#include "libckpt/base/mem.h"
#include "libckpt/map/adopt.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/join.h"
#include "tests/unit/unit.h"

enum { PARTS = 4, BYTES = 4096 };

/* A map with a source of BYTES for each part, and one before them. */
static ckpt_map *make(const ckpt_parts **parts)
{
    ckpt_map_file file = {.path = "f", .size = BYTES};
    ckpt_source source = {.kind = CKPT_SOURCE_FILE, .n_stored = BYTES, .n_bytes = BYTES};
    ckpt_part part[PARTS];
    ckpt_map *map = NULL;
    uint32_t index = 0;

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_file(map, &file, &source.file, NULL), CKPT_OK);
    for (uint32_t i = 0; i <= PARTS; i++)
        assert_int_equal(ckpt_map_add_source(map, &source, &index, NULL), CKPT_OK);
    for (uint32_t i = 0; i < PARTS; i++)
        part[i] = (ckpt_part){.source = i + 1, .at = 100 * (i + 1)};
    assert_int_equal(ckpt_map_parts(map, part, PARTS, parts, NULL), CKPT_OK);
    return map;
}

/* A tensor of n floats that begins `at` bytes further on in each part. */
static ckpt_tensor *add(ckpt_map *map, const char *name, uint64_t n, uint64_t at,
                        const ckpt_parts *parts)
{
    const uint64_t shape[] = {n};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape};
    const ckpt_cut cut = {
        .parts = parts, .at = at, .count = (n + PARTS - 1) / PARTS, .stride = sizeof(float)};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_cut(map, t, &cut, NULL), CKPT_OK);
    return t;
}

/* The same with its extents as a list. */
static ckpt_tensor *listed(ckpt_map *map, const char *name, const ckpt_tensor *t)
{
    ckpt_extent *e = ckpt_extent_list(t, 0);
    ckpt_tensor *made = NULL;

    assert_non_null(e);
    assert_int_equal(ckpt_map_add(map, name, strlen(name), t, &made, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back(map, made, e, t->n_extents, NULL), CKPT_OK);
    assert_null(made->cut);
    ckpt_free(e);
    return made;
}

static void every_extent(void **state)
{
    const ckpt_parts *parts = NULL;
    ckpt_map *map = make(&parts);

    (void)state;
    for (uint64_t n = 1; n < 40; n++) {
        char name[8] = {'t', (char)('0' + n / 10), (char)('0' + n % 10)};
        const ckpt_tensor *t = add(map, name, n, 8, parts);
        uint64_t count = (n + PARTS - 1) / PARTS, next = 0;

        assert_int_equal(t->n_extents, (n + count - 1) / count);
        for (uint32_t i = 0; i < t->n_extents; i++) {
            ckpt_box room;
            const ckpt_extent *e = ckpt_extent_of(t, i, &room);

            assert_int_equal(e->source, i + 1);
            assert_int_equal(ckpt_extent_source(t, i), i + 1);
            assert_int_equal(e->ndim, 1);
            assert_int_equal(e->at, 100 * (i + 1) + 8);
            assert_int_equal(e->axis->start, next);
            assert_int_equal(e->axis->stride, 4);
            next += e->axis->count;
        }
        assert_int_equal(next, n);
        assert_int_equal(ckpt_extent_check(t, NULL), CKPT_OK);
    }
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    ckpt_map_free(map);
}

/* Pieces of a join, one after another. */
typedef struct pieces {
    ckpt_piece at[PARTS];
    unsigned n;
} pieces;

static int take(void *ctx, const ckpt_piece *piece, ckpt_err *err)
{
    pieces *p = ctx;

    (void)err;
    assert_true(p->n < PARTS);
    p->at[p->n++] = *piece;
    return CKPT_OK;
}

static void joined(void **state)
{
    const ckpt_parts *parts = NULL;
    ckpt_map *map = make(&parts);
    const ckpt_tensor *t = add(map, "t", 21, 16, parts), *same = listed(map, "same", t);

    (void)state;
    for (uint64_t first = 0; first < 21; first++) {
        for (uint64_t n = 1; first + n <= 21; n++) {
            const ckpt_axis region = {first, n, 0};
            pieces a = {.n = 0}, b = {.n = 0};

            assert_int_equal(ckpt_join(t, &region, 1, take, &a, NULL), CKPT_OK);
            assert_int_equal(ckpt_join(same, &region, 1, take, &b, NULL), CKPT_OK);
            assert_int_equal(a.n, b.n);
            for (unsigned i = 0; i < a.n; i++) {
                assert_int_equal(a.at[i].source, b.at[i].source);
                assert_int_equal(a.at[i].at, b.at[i].at);
                assert_int_equal(a.at[i].to, b.at[i].to);
                assert_int_equal(a.at[i].n_elems, b.at[i].n_elems);
            }
        }
    }
    ckpt_map_free(map);
}

static void refused(void **state)
{
    const ckpt_part wrong = {.source = 99};
    const ckpt_parts *parts = NULL, *none = NULL;
    ckpt_map *map = make(&parts);
    ckpt_tensor *t = add(map, "t", 4, 0, parts);
    const ckpt_cut few = {.parts = parts, .count = 1, .stride = 4},
                   far = {.parts = parts, .at = BYTES - 400, .count = 1, .stride = 4};
    const uint64_t shape[] = {5};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape};
    ckpt_tensor *five = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_map_parts(map, &wrong, 1, &none, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "record 99"));
    assert_int_equal(ckpt_map_add_hidden(map, "five", 4, &like, &five, NULL), CKPT_OK);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_map_cut(map, five, &few, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "five"));
    err = (ckpt_err){0};
    assert_int_equal(ckpt_map_cut(map, t, &far, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(map, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "ends at byte"));
    ckpt_map_free(map);
}

/* Parts that several tensors follow are moved once, all of them. */
static void adopted(void **state)
{
    const ckpt_parts *of_large = NULL, *of_small = NULL;
    ckpt_map *large = make(&of_large), *small = make(&of_small);
    ckpt_tensor *one = add(small, "one", 1, 0, of_small), *all = add(small, "all", 9, 4, of_small);
    ckpt_tensor *again = NULL;

    (void)state;
    assert_int_equal(ckpt_map_add(small, "again", 5, all, &again, NULL), CKPT_OK);
    ckpt_extent_share(again, all);
    assert_true(ckpt_extent_is_shared(again, all));
    assert_false(ckpt_extent_is_shared(one, all));
    assert_int_equal(ckpt_map_adopt(large, small, "mp/", NULL), CKPT_OK);
    assert_int_equal(large->tensors.n, 3);
    for (size_t k = 0; k < 3; k++) {
        const ckpt_tensor *t = large->tensors.at[k];

        assert_int_equal(t->n_extents, k == 0 ? 1 : 3);
        for (uint32_t i = 0; i < t->n_extents; i++)
            assert_int_equal(ckpt_extent_source(t, i), PARTS + 1 + i + 1);
    }
    assert_int_equal(of_small->part[PARTS - 1].source, 2 * PARTS + 1);
    ckpt_map_free(large);
}

static void no_memory(void **state)
{
    const ckpt_parts *parts = NULL;
    ckpt_map *map = make(&parts);
    const ckpt_tensor *t = add(map, "t", 9, 0, parts);

    (void)state;
    ckpt_alloc_fail_at(0);
    assert_null(ckpt_extent_list(t, 0));
    ckpt_alloc_fail_at(UINT64_MAX);
    ckpt_map_free(map);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_extent), cmocka_unit_test(joined),    cmocka_unit_test(refused),
        cmocka_unit_test(adopted),      cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
