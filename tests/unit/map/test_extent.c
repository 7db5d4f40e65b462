/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_extent.c: cutting intervals into boxes, sizes of shapes, and proving that extents cover
 * once.
 */
#include "libckpt/base/mem.h"
#include "libckpt/map/extent.h"
#include "tests/unit/unit.h"

/* ---- cutting ---- */

enum { MAX_AXES = 5, MAX_ELEMS = 243 };

/* All boxes of an interval, one after another in out; returns their number. */
static unsigned cut(const uint64_t *shape, unsigned ndim, uint64_t from, uint64_t to,
                    ckpt_axis *out)
{
    unsigned n = 0;

    while (from < to) {
        assert_true(n < 2 * ndim - 1);
        from = ckpt_extent_cut_next(shape, ndim, from, to, out + (size_t)n * ndim);
        n++;
    }
    return n;
}

/* Mark the elements of a box of a small tensor; returns their number. */
static unsigned mark_box(const uint64_t *shape, unsigned ndim, const ckpt_axis *box, uint8_t *seen,
                         uint64_t n)
{
    unsigned marked = 0;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t rest = i;
        int inside = 1;

        for (unsigned j = ndim; j-- > 0;) {
            uint64_t index = rest % shape[j];

            rest /= shape[j];
            inside &= index >= box[j].start && index < box[j].start + box[j].count;
        }
        if (inside) {
            seen[i]++;
            marked++;
        }
    }
    return marked;
}

/* First element of a box, flattened. */
static uint64_t first_of(const uint64_t *shape, unsigned ndim, const ckpt_axis *box)
{
    uint64_t at = 0;

    for (unsigned j = 0; j < ndim; j++)
        at = at * shape[j] + box[j].start;
    return at;
}

static void check_cut(const uint64_t *shape, unsigned ndim, uint64_t n, uint64_t from, uint64_t to)
{
    ckpt_axis box[(2 * MAX_AXES - 1) * MAX_AXES];
    uint8_t seen[MAX_ELEMS] = {0};
    uint64_t next = from;
    unsigned n_boxes = cut(shape, ndim, from, to, box);

    for (unsigned b = 0; b < n_boxes; b++) {
        // Ascending without a gap: each box is itself an interval that begins where the last ended.
        assert_int_equal(first_of(shape, ndim, box + b * ndim), next);
        next += mark_box(shape, ndim, box + b * ndim, seen, n);
        assert_int_equal(box[b * ndim].stride, 0);
    }
    assert_int_equal(next, to);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(seen[i], i >= from && i < to);
}

/* All intervals of all shapes with sizes 1..3; of 5 axes every interval of a prime step. */
static void test_cut_all_small_shapes(void **state)
{
    (void)state;
    for (unsigned ndim = 1; ndim <= MAX_AXES; ndim++) {
        unsigned n_shapes = 1;

        for (unsigned j = 0; j < ndim; j++)
            n_shapes *= 3;
        for (unsigned s = 0; s < n_shapes; s++) {
            uint64_t shape[MAX_AXES], n = 1;
            unsigned rest = s;

            for (unsigned j = 0; j < ndim; j++) {
                shape[j] = 1 + rest % 3;
                n *= shape[j];
                rest /= 3;
            }
            // Every interval up to 81 elements; of larger tensors all ends for every seventh start.
            for (uint64_t from = 0; from <= n; from += n > 81 ? 7 : 1) {
                for (uint64_t to = from; to <= n; to++)
                    check_cut(shape, ndim, n, from, to);
            }
        }
    }
}

static void test_cut_large(void **state)
{
    const uint64_t shape[] = {UINT64_C(1) << 20, UINT64_C(1) << 20, UINT64_C(1) << 20};
    uint64_t n = UINT64_C(1) << 60;
    ckpt_axis box[15];

    (void)state;
    assert_int_equal(cut(shape, 3, 0, n, box), 1);
    assert_int_equal(box[0].count, shape[0]);
    assert_int_equal(cut(shape, 3, 1, n - 1, box), 5);
    // 1 + a row less, its plane less a row, the planes between, and back.
    assert_int_equal(box[2].start, 1);
    assert_int_equal(box[2].count, shape[2] - 1);
    assert_int_equal(box[3 + 1].start, 1);
    assert_int_equal(box[3 + 1].count, shape[1] - 1);
    assert_int_equal(box[6].start, 1);
    assert_int_equal(box[6].count, shape[0] - 2);
    assert_int_equal(box[12 + 2].count, shape[2] - 1);
}

/* 64 axes of which 63 have one element: the interval is found on the one that is left. */
static void test_cut_many_axes(void **state)
{
    uint64_t shape[CKPT_MAX_DIM];
    ckpt_axis *box = ckpt_alloc((2 * CKPT_MAX_DIM - 1) * CKPT_MAX_DIM * sizeof *box);

    (void)state;
    assert_non_null(box);
    for (unsigned j = 0; j < CKPT_MAX_DIM; j++)
        shape[j] = j == 40 ? 9 : 1;
    assert_int_equal(cut(shape, CKPT_MAX_DIM, 2, 7, box), 1);
    assert_int_equal(box[40].start, 2);
    assert_int_equal(box[40].count, 5);
    ckpt_free(box);
}

static void test_shape_elems(void **state)
{
    const uint64_t plain[] = {3, 4, 5};
    const uint64_t empty[] = {3, 0, 5};
    const uint64_t huge[] = {UINT64_C(1) << 32, UINT64_C(1) << 32};
    const uint64_t excused[] = {UINT64_C(1) << 32, 0, UINT64_C(1) << 32};
    uint64_t n;

    (void)state;
    assert_true(ckpt_shape_elems(plain, 3, &n));
    assert_int_equal(n, 60);
    assert_true(ckpt_shape_elems(NULL, 0, &n));
    assert_int_equal(n, 1);
    assert_true(ckpt_shape_elems(empty, 3, &n));
    assert_int_equal(n, 0);
    assert_false(ckpt_shape_elems(huge, 2, &n));
    assert_false(ckpt_shape_elems(excused, 3, &n)); // a zero does not excuse the others
}

/* ---- covering ---- */

/* Check a tensor whose extents are n boxes of ndim axes in a row; the text goes to err. */
static int check(const uint64_t *shape, uint32_t ndim, ckpt_axis *axis, uint32_t n, ckpt_err *err)
{
    ckpt_extent extent[64];
    ckpt_tensor t = {.name = "x", .dtype = CKPT_F32, .ndim = ndim, .shape = shape};
    uint32_t per = axis[0].stride < 0 ? 1 : ndim; // negative stride in a test: flat

    memset(err, 0, sizeof *err);
    memset(extent, 0, sizeof extent);
    assert_true(n <= 64);
    assert_true(ckpt_shape_elems(shape, ndim, &t.n_elems));
    for (uint32_t i = 0; i < n; i++) {
        extent[i].ndim = per;
        extent[i].axis = axis + (size_t)i * per;
    }
    t.extent = extent;
    t.n_extents = n;
    return ckpt_extent_check(&t, err);
}

static void test_flat_extents(void **state)
{
    const uint64_t shape[] = {4, 5};
    ckpt_axis whole[] = {{0, 20, -1}};
    ckpt_axis parts[] = {{0, 7, -1}, {7, 0, 4}, {7, 1, 4}, {8, 12, 4}};
    ckpt_axis hole[] = {{0, 7, -1}, {8, 12, 4}};
    ckpt_axis twice[] = {{0, 7, -1}, {6, 14, 4}};
    ckpt_axis shortened[] = {{0, 19, -1}};
    ckpt_axis lost[] = {{0, 20, -1}, {3, 0, 4}};
    ckpt_axis outside[] = {{0, 21, -1}};
    ckpt_axis wraps[] = {{0, 7, -1}, {7, UINT64_MAX, 4}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(shape, 2, whole, 1, &err), CKPT_OK);
    assert_int_equal(check(shape, 2, parts, 4, &err), CKPT_OK);
    assert_int_equal(check(shape, 2, hole, 2, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 7 is not covered"));
    assert_int_equal(check(shape, 2, twice, 2, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 6 is covered twice"));
    assert_int_equal(check(shape, 2, shortened, 1, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 19"));
    assert_int_equal(check(shape, 2, lost, 2, &err), CKPT_EMISMATCH); // empty, but out of order
    assert_int_equal(check(shape, 2, outside, 1, &err), CKPT_EMISMATCH);
    assert_int_equal(check(shape, 2, wraps, 2, &err), CKPT_EMISMATCH);
    assert_int_equal(check(shape, 2, whole, 0, &err), CKPT_EMISMATCH);
}

static void test_box_extents(void **state)
{
    const uint64_t shape[] = {4, 6};
    ckpt_axis quarters[] = {{0, 2, 0}, {0, 3, 4}, {2, 2, 0}, {3, 3, 4},
                            {0, 2, 0}, {3, 3, 4}, {2, 2, 0}, {0, 3, 4}};
    ckpt_axis hole[] = {{0, 2, 0}, {0, 3, 4}, {2, 2, 0}, {3, 3, 4}, {2, 2, 0}, {0, 3, 4}};
    ckpt_axis twice[] = {{0, 2, 0}, {0, 3, 4}, {2, 2, 0}, {3, 3, 4},
                         {0, 2, 0}, {2, 4, 4}, {2, 2, 0}, {0, 3, 4}};
    // Right number of elements, but one box lies on another.
    ckpt_axis sum[] = {{0, 4, 0}, {0, 3, 4}, {0, 4, 0}, {2, 3, 4}};
    ckpt_axis outside[] = {{0, 5, 0}, {0, 6, 4}};
    ckpt_axis wraps[] = {{1, UINT64_MAX, 0}, {0, 6, 4}};
    ckpt_axis empties[] = {{0, 4, 0}, {0, 6, 4}, {2, 0, 0}, {0, 6, 4}, {1, 2, 0}, {6, 0, 4}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(shape, 2, quarters, 4, &err), CKPT_OK);
    assert_int_equal(check(shape, 2, hole, 3, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 3 not covered"));
    assert_non_null(strstr(err.text, "6 of 24"));
    assert_int_equal(check(shape, 2, twice, 4, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 2 is covered twice"));
    assert_int_equal(check(shape, 2, sum, 2, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 2 is covered twice"));
    assert_int_equal(check(shape, 2, outside, 1, &err), CKPT_EMISMATCH);
    assert_int_equal(check(shape, 2, wraps, 1, &err), CKPT_EMISMATCH);
    assert_int_equal(check(shape, 2, empties, 3, &err), CKPT_OK);
}

static void test_empty_and_scalar(void **state)
{
    const uint64_t empty[] = {3, 0};
    ckpt_axis none[] = {{0, 3, 0}, {0, 0, 4}};
    ckpt_axis none_flat[] = {{0, 0, -1}};
    ckpt_axis one[] = {{0, 1, -1}};
    ckpt_err err;

    (void)state;
    assert_int_equal(check(empty, 2, none, 1, &err), CKPT_OK);
    assert_int_equal(check(empty, 2, none_flat, 1, &err), CKPT_OK);
    assert_int_equal(check(empty, 2, none, 0, &err), CKPT_OK);
    assert_int_equal(check(NULL, 0, one, 1, &err), CKPT_OK);
    assert_int_equal(check(NULL, 0, one, 0, &err), CKPT_EMISMATCH);
}

static void test_mixed_extents(void **state)
{
    const uint64_t shape[] = {2, 2};
    ckpt_axis axis[] = {{0, 2, 4}, {1, 1, 8}, {0, 2, 4}};
    ckpt_extent extent[] = {{.ndim = 1, .axis = axis}, {.ndim = 2, .axis = axis + 1}};
    ckpt_tensor t = {.name = "x", .ndim = 2, .shape = shape, .n_elems = 4, .n_extents = 2};
    ckpt_extent swapped[2];

    (void)state;
    t.extent = extent;
    assert_int_equal(ckpt_extent_check(&t, NULL), CKPT_EMISMATCH);
    swapped[0] = extent[1];
    swapped[1] = extent[0];
    t.extent = swapped;
    assert_int_equal(ckpt_extent_check(&t, NULL), CKPT_EMISMATCH);
}

/* n boxes, either rows of a matrix, or all on top of one another along both axes. */
static int check_many(uint32_t n, bool by_row, ckpt_err *err)
{
    uint64_t shape[] = {by_row ? n : 7, by_row ? 7 : n};
    ckpt_extent *extent = ckpt_alloc(n * sizeof *extent);
    ckpt_axis *axis = ckpt_alloc(n * 2 * sizeof *axis);
    ckpt_tensor t = {.name = "many", .ndim = 2, .shape = shape, .n_elems = 7 * (uint64_t)n};
    int rc;

    assert_non_null(extent);
    assert_non_null(axis);
    for (uint32_t i = 0; i < n; i++) {
        // In an order that is not sorted: multiplying by a number prime to n permutes.
        uint64_t k = (uint64_t)i * 7919 % n;

        axis[2 * i] = by_row ? (ckpt_axis){k, 1, 28} : (ckpt_axis){0, 7, 4};
        axis[2 * i + 1] = by_row ? (ckpt_axis){0, 7, 4} : (ckpt_axis){k, 1, 4};
        extent[i] = (ckpt_extent){.ndim = 2, .axis = axis + 2 * i};
    }
    t.extent = extent;
    t.n_extents = n;
    memset(err, 0, sizeof *err);
    rc = ckpt_extent_check(&t, err);
    ckpt_free(extent);
    ckpt_free(axis);
    return rc;
}

/* A hundred thousand boxes must not take a hundred thousand squared steps, whichever way they lie.
 */
static void test_many_boxes(void **state)
{
    ckpt_err err;

    (void)state;
    assert_int_equal(check_many(100000, true, &err), CKPT_OK);
    assert_int_equal(check_many(100000, false, &err), CKPT_OK);
}

/* side * side single elements: no axis separates those of one row, so they are compared in pairs.
 */
static int check_grid(uint32_t side)
{
    uint32_t n = side * side;
    uint64_t shape[] = {side, side};
    ckpt_extent *extent = ckpt_alloc(n * sizeof *extent);
    ckpt_axis *axis = ckpt_alloc(n * 2 * sizeof *axis);
    ckpt_tensor t = {.name = "grid", .ndim = 2, .shape = shape, .n_elems = n, .n_extents = n};
    int rc;

    assert_non_null(extent);
    assert_non_null(axis);
    for (uint32_t i = 0; i < n; i++) {
        axis[2 * (size_t)i] = (ckpt_axis){i / side, 1, 4};
        axis[2 * (size_t)i + 1] = (ckpt_axis){i % side, 1, 4};
        extent[i] = (ckpt_extent){.ndim = 2, .axis = axis + 2 * (size_t)i};
    }
    t.extent = extent;
    rc = ckpt_extent_check(&t, NULL);
    ckpt_free(extent);
    ckpt_free(axis);
    return rc;
}

/* The number of pairs has a bound, so that a hostile file cannot keep us busy. */
static void test_too_many_pairs(void **state)
{
    (void)state;
    assert_int_equal(check_grid(128), CKPT_OK);
    assert_int_equal(check_grid(500), CKPT_ELIMIT);
}

static void test_allocation_failure(void **state)
{
    ckpt_axis axis[] = {{0, 2, 0}, {0, 1, 0}, {2, 2, 0}, {0, 1, 0}};
    const uint64_t two[] = {4, 1};
    ckpt_err err;

    (void)state;
    ckpt_alloc_fail_at(0);
    assert_int_equal(check(two, 2, axis, 2, &err), CKPT_ELIMIT);
    ckpt_alloc_fail_at(UINT64_MAX);
    assert_int_equal(check(two, 2, axis, 2, &err), CKPT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_all_small_shapes), cmocka_unit_test(test_cut_large),
        cmocka_unit_test(test_cut_many_axes),        cmocka_unit_test(test_shape_elems),
        cmocka_unit_test(test_flat_extents),         cmocka_unit_test(test_box_extents),
        cmocka_unit_test(test_empty_and_scalar),     cmocka_unit_test(test_mixed_extents),
        cmocka_unit_test(test_many_boxes),           cmocka_unit_test(test_too_many_pairs),
        cmocka_unit_test(test_allocation_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
