/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_check.c: a whole map is refused when its extents leave their sources, or repeat too much.
 */
#include "ckpt_extra.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

#define GIB (UINT64_C(1) << 30)

/*
 * Check a map of one tensor in one source of n_bytes.
 * axis  as many as the tensor has, or one (flat) where it has none or flat is true
 */
typedef struct one {
    ckpt_dtype dtype;
    uint32_t ndim;
    uint64_t shape[3];
    bool flat;
    ckpt_axis axis[3];
    uint64_t at;
    uint64_t n_bytes;
    uint8_t kind;
} one;

static int check(const one *o, ckpt_err *err)
{
    ckpt_map *map = NULL;
    ckpt_tensor like = {.dtype = o->dtype, .ndim = o->ndim, .shape = o->shape};
    ckpt_tensor *t;
    ckpt_source s = {.kind = o->kind, .n_bytes = o->n_bytes, .name = "data/7"};
    ckpt_extent e = {.at = o->at, .axis = o->axis};
    uint32_t i;
    int rc;

    memset(err, 0, sizeof *err);
    e.ndim = o->flat || o->ndim == 0 ? 1 : o->ndim;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add_source(map, &s, &i, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, "w", 1, &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back(map, t, &e, 1, NULL), CKPT_OK);
    rc = ckpt_map_check(map, err);
    ckpt_map_free(map);
    return rc;
}

static void test_inside(void **state)
{
    one o = {.dtype = CKPT_F32,
             .ndim = 2,
             .shape = {3, 5},
             .at = 8,
             .n_bytes = 68,
             .axis = {{0, 3, 20}, {0, 5, 4}}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(&o, &err), CKPT_OK); // up to the last byte
    o.n_bytes = 67;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "'w'"));
    assert_non_null(strstr(err.text, "byte 68 of data/7, which has 67"));
    // Transposed: 2 * 4 + 4 * 12 + 4 = 60 bytes from 8 on.
    o.axis[0].stride = 4;
    o.axis[1].stride = 12;
    o.n_bytes = 68;
    assert_int_equal(check(&o, &err), CKPT_OK);
    o.n_bytes = 67;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    o.kind = CKPT_SOURCE_MEMORY;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    o.kind = CKPT_SOURCE_ZERO; // without end
    assert_int_equal(check(&o, &err), CKPT_OK);
}

static void test_flat_and_scalar(void **state)
{
    one o = {.dtype = CKPT_U8,
             .ndim = 2,
             .shape = {3, 5},
             .flat = true,
             .axis = {{0, 15, 1}},
             .n_bytes = 15};
    one scalar = {.dtype = CKPT_F64, .axis = {{0, 1, 0}}, .at = 1, .n_bytes = 9};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(&o, &err), CKPT_OK);
    o.axis[0].count = 14; // a hole
    assert_int_equal(check(&o, &err), CKPT_EMISMATCH);
    o.axis[0].count = 15;
    o.at = 1;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    assert_int_equal(check(&scalar, &err), CKPT_OK);
    scalar.n_bytes = 8;
    assert_int_equal(check(&scalar, &err), CKPT_EFORMAT);
}

static void test_impossible_strides(void **state)
{
    one o = {.dtype = CKPT_F32,
             .ndim = 2,
             .shape = {3, 5},
             .n_bytes = 1000,
             .axis = {{0, 3, INT64_MAX}, {0, 5, 4}}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    o.axis[0].stride = -20;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    o.axis[0].stride = 20;
    o.at = UINT64_MAX - 10;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    o.at = UINT64_MAX - 57; // only the last element's own bytes wrap
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
}

static void test_packed(void **state)
{
    one o = {
        .dtype = CKPT_F4, .ndim = 1, .shape = {10}, .axis = {{0, 10, 0}}, .at = 3, .n_bytes = 8};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(&o, &err), CKPT_OK);
    o.n_bytes = 7;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
    o.n_bytes = 8;
    o.axis[0].stride = 1;
    assert_int_equal(check(&o, &err), CKPT_EFORMAT);
}

/* A broadcast of a few bytes may stand for a gigabyte, not for more. */
static void test_broadcast(void **state)
{
    one o = {.dtype = CKPT_F32,
             .ndim = 2,
             .shape = {GIB / 16, 4},
             .n_bytes = 16,
             .axis = {{0, GIB / 16, 0}, {0, 4, 4}}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(&o, &err), CKPT_OK);
    o.shape[0] = o.axis[0].count = GIB / 16 + 1;
    assert_int_equal(check(&o, &err), CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "elements repeat the"));
    o.kind = CKPT_SOURCE_ZERO; // padding costs nothing to anybody
    assert_int_equal(check(&o, &err), CKPT_OK);
}

/* The same by strides that overlap: rows that begin one element apart. */
static void test_overlapping_strides(void **state)
{
    one o = {.dtype = CKPT_U8,
             .ndim = 2,
             .shape = {1024, 1024},
             .n_bytes = 2047,
             .axis = {{0, 1024, 1}, {0, 1024, 1}}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(&o, &err), CKPT_OK);
    o.shape[0] = o.shape[1] = o.axis[0].count = o.axis[1].count = 32769;
    o.n_bytes = 65537;
    assert_int_equal(check(&o, &err), CKPT_ELIMIT);
    // As large, but stored in full.
    o.axis[0].stride = 32769;
    o.n_bytes = UINT64_C(32769) * 32769;
    assert_int_equal(check(&o, &err), CKPT_OK);
}

/* Nothing is read of a tensor without elements, wherever its extent points. */
static void test_no_elements(void **state)
{
    one o = {.dtype = CKPT_F32,
             .ndim = 2,
             .shape = {0, 5},
             .at = 1000,
             .n_bytes = 0,
             .axis = {{0, 0, 20}, {0, 5, 4}}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(&o, &err), CKPT_OK);
}

/* Aliases are not looked at, twins are. */
static void test_owners_and_twins(void **state)
{
    const uint64_t shape[] = {4};
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape}, *owner, *alias, *twin;
    ckpt_source s = {.n_bytes = 16};
    ckpt_map *map;
    uint32_t i;

    (void)state;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK); // an empty map is sound
    assert_int_equal(ckpt_map_add_source(map, &s, &i, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, "w", 1, &like, &owner, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_EMISMATCH); // has no bytes yet
    assert_int_equal(ckpt_map_back_whole(map, owner, i, 0, NULL), CKPT_OK);
    like.owner = owner;
    assert_int_equal(ckpt_map_add(map, "alias", 5, &like, &alias, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    like.owner = NULL;
    like.dtype = CKPT_BF16;
    assert_int_equal(ckpt_map_add_hidden(map, "w", 1, &like, &twin, NULL), CKPT_OK);
    owner->twin = twin;
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_EMISMATCH);
    assert_int_equal(ckpt_map_back_whole(map, twin, i, 10, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_EFORMAT);
    assert_int_equal(ckpt_map_back_whole(map, twin, i, 8, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_OK);
    map->sources.n = 0; // extents that outlive their source
    assert_int_equal(ckpt_map_check(map, NULL), CKPT_EFORMAT);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inside),
        cmocka_unit_test(test_flat_and_scalar),
        cmocka_unit_test(test_impossible_strides),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_overlapping_strides),
        cmocka_unit_test(test_no_elements),
        cmocka_unit_test(test_owners_and_twins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
