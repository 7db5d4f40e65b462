/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_view.c: views of a storage as extents: flat where they can be, boxes where they must be,
 * and what is refused.
 */
#include "libckpt/map/view.h"
#include "tests/unit/unit.h"

/* Backs a tensor of F32 by a view of 64 elements; the map has the storage as source 0. */
static int back(ckpt_map *map, ckpt_tensor **t, const ckpt_tensor_value *v, ckpt_err *err)
{
    ckpt_source source = {.kind = CKPT_SOURCE_ZERO, .n_bytes = 256};
    ckpt_tensor like = {.dtype = v->dtype, .ndim = v->ndim, .shape = v->shape};
    uint32_t index = 0;

    memset(err, 0, sizeof *err);
    assert_int_equal(ckpt_map_add_source(map, &source, &index, err), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, "w", 1, &like, t, err), CKPT_OK);
    return ckpt_view_back(map, *t, v, index, "a.pt", err);
}

static void views(void **unused)
{
    (void)unused;
    static const struct {
        uint32_t ndim;
        uint64_t shape[3], stride[3], offset;
        int rc;
        uint32_t n_axes; /* of the one extent; 0: none */
        uint64_t at;
        int64_t by; /* bytes between the elements of the first axis */
    } row[] = {
        {2, {4, 3}, {3, 1}, 2, CKPT_OK, 1, 8, 4},             // flat
        {2, {4, 3}, {1, 4}, 0, CKPT_OK, 2, 0, 4},             // transposed
        {3, {1, 4, 3}, {99, 3, 1}, 0, CKPT_OK, 1, 0, 4},      // a stride that is never taken
        {2, {4, 3}, {0, 1}, 1, CKPT_OK, 2, 4, 0},             // expanded
        {0, {0}, {0}, 5, CKPT_OK, 1, 20, 4},                  // without axes
        {2, {0, 3}, {7, 7}, 1000, CKPT_OK, 0, 0, 0},          // without elements
        {1, {4}, {1}, 65, CKPT_EFORMAT, 0, 0, 0},             // begins outside
        {1, {4}, {1}, UINT64_MAX / 2, CKPT_EFORMAT, 0, 0, 0}, // where no byte can be
        {1, {2}, {UINT64_MAX / 4}, 0, CKPT_EFORMAT, 0, 0, 0}, // a stride that overflows
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ckpt_storage storage = {.dtype = CKPT_F32, .n_elems = 64, .n_bytes = 256};
        uint64_t shape[3], stride[3];
        ckpt_tensor_value v = {.storage = &storage,
                               .dtype = CKPT_F32,
                               .ndim = row[i].ndim,
                               .shape = shape,
                               .stride = stride,
                               .offset = row[i].offset};
        ckpt_map *map = NULL;
        ckpt_tensor *t = NULL;
        ckpt_err err = {0};

        memcpy(shape, row[i].shape, sizeof shape);
        memcpy(stride, row[i].stride, sizeof stride);
        assert_int_equal(ckpt_map_create(&map, 0, &err), CKPT_OK);
        assert_int_equal(back(map, &t, &v, &err), row[i].rc);
        assert_int_equal(t->n_extents, row[i].n_axes != 0);
        if (row[i].rc != CKPT_OK)
            assert_non_null(strstr(err.text, "a.pt: tensor w"));
        if (t->n_extents) {
            assert_int_equal(t->extent[0].ndim, row[i].n_axes);
            assert_int_equal(t->extent[0].at, row[i].at);
            assert_int_equal(t->extent[0].axis[0].stride, row[i].by);
            assert_int_equal(ckpt_view_is_plain(&v), row[i].n_axes == 1);
        }
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(views)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
