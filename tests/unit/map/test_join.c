/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_join.c: random tensors, cut in every way extents allow, joined with random regions.
 *
 * The oracle reads one element at a time straight from the definition of an extent; it shares no
 * code with the join.
 */
#include "libckpt/base/dtype.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/join.h"
#include "tests/unit/unit.h"

enum { MAX_AXES = 5, MAX_ELEMS = 1024, MAX_EXTENTS = 64, N_SOURCES = 3, SOURCE_BYTES = 64 * 1024 };

/* A small generator of its own, so that a failing case can be repeated from its number. */
static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* ---- a tensor under test ---- */

typedef struct fixture {
    ckpt_tensor t;
    uint64_t shape[MAX_AXES];
    ckpt_extent extent[MAX_EXTENTS];
    ckpt_axis axis[MAX_EXTENTS * MAX_AXES];
    unsigned item; /* bytes */
    uint8_t source[N_SOURCES][SOURCE_BYTES];
    uint64_t used[N_SOURCES];        /* bytes handed out so far */
    const uint8_t *where[MAX_ELEMS]; /* oracle: the bytes of each element */
} fixture;

static fixture fx; // large, so static; rebuilt by each test

static void begin(unsigned ndim, ckpt_dtype dtype)
{
    memset(&fx.t, 0, sizeof fx.t);
    memset(fx.used, 0, sizeof fx.used);
    memset(fx.where, 0, sizeof fx.where);
    fx.t.name = "t";
    fx.t.dtype = dtype;
    fx.t.ndim = ndim;
    fx.t.shape = fx.shape;
    fx.t.extent = fx.extent;
    fx.item = ckpt_dtype_get(dtype)->bits / 8;
    for (unsigned s = 0; s < N_SOURCES; s++) {
        for (unsigned i = 0; i < SOURCE_BYTES; i++)
            fx.source[s][i] = (uint8_t)draw(256);
    }
}

static void random_shape(unsigned ndim)
{
    uint64_t n = 1;

    for (unsigned j = 0; j < ndim; j++) {
        fx.shape[j] = 1 + draw(ndim > 3 ? 4 : 7);
        n *= fx.shape[j];
    }
    fx.t.n_elems = n;
    assert_true(n <= MAX_ELEMS);
}

/* A new extent whose axes the caller fills; at is set when its bytes are laid out. */
static ckpt_axis *add_extent(uint32_t ndim)
{
    uint32_t i = fx.t.n_extents++;

    assert_true(i < MAX_EXTENTS);
    fx.extent[i] = (ckpt_extent){
        .source = (uint32_t)draw(N_SOURCES), .ndim = ndim, .axis = fx.axis + (size_t)i * MAX_AXES};
    return fx.axis + (size_t)i * MAX_AXES;
}

/*
 * Give the newest extent bytes: its axes in a random order of speed (identity: row-major), with
 * gaps sometimes, and sometimes the same bytes for a whole axis.
 */
static void lay_out(ckpt_axis *axis, bool identity, bool broadcasts)
{
    ckpt_extent *e = &fx.extent[fx.t.n_extents - 1];
    unsigned order[MAX_AXES];
    uint64_t by = fx.item;

    for (unsigned j = 0; j < e->ndim; j++)
        order[j] = e->ndim - 1 - j;
    for (unsigned j = e->ndim; !identity && j-- > 1;) {
        unsigned k = (unsigned)draw(j + 1), keep = order[j];

        order[j] = order[k];
        order[k] = keep;
    }
    for (unsigned j = 0; j < e->ndim; j++) {
        ckpt_axis *a = &axis[order[j]];

        if (!identity && draw(4) == 0)
            by += fx.item * draw(3);
        a->stride = broadcasts && draw(3) == 0 ? 0 : (int64_t)by;
        by = a->stride == 0 ? by : by * (a->count > 0 ? a->count : 1);
    }
    e->at = fx.used[e->source] + draw(5);
    fx.used[e->source] = e->at + by + fx.item;
    assert_true(fx.used[e->source] <= SOURCE_BYTES);
}

/* Cut [0, n) at random: bounds[0] = 0 ... bounds[k] = n; returns k. */
static unsigned cut_axis(uint64_t n, unsigned max_parts, uint64_t *bounds)
{
    unsigned k = 1 + (unsigned)draw(max_parts);

    bounds[0] = 0;
    bounds[k] = n;
    for (unsigned i = 1; i < k; i++)
        bounds[i] = draw(n + 1);
    for (unsigned i = 1; i < k; i++) {
        for (unsigned m = i; m > 1 && bounds[m] < bounds[m - 1]; m--) {
            uint64_t keep = bounds[m];

            bounds[m] = bounds[m - 1];
            bounds[m - 1] = keep;
        }
    }
    return k;
}

/* Flat extents, some empty, each with its own stride. */
static void back_flat(void)
{
    uint64_t bounds[MAX_EXTENTS + 1];
    unsigned k = cut_axis(fx.t.n_elems, 12, bounds);

    for (unsigned i = 0; i < k; i++) {
        ckpt_axis *a = add_extent(1);

        *a = (ckpt_axis){bounds[i], bounds[i + 1] - bounds[i], 0};
        lay_out(a, draw(2) == 0, false);
        if (draw(4) == 0) {
            a->stride *= 2; // every second element of its source
            fx.used[fx.extent[fx.t.n_extents - 1].source] += a->count * fx.item;
        }
    }
}

/* A grid of boxes, in no particular order. */
static void back_grid(unsigned max_parts, bool identity, bool broadcasts)
{
    uint64_t bounds[MAX_AXES][4];
    unsigned parts[MAX_AXES], n = 1;

    for (unsigned j = 0; j < fx.t.ndim; j++) {
        // At most MAX_EXTENTS boxes in all.
        parts[j] = cut_axis(fx.shape[j], n * max_parts > MAX_EXTENTS ? 1 : max_parts, bounds[j]);
        n *= parts[j];
    }
    for (unsigned i = 0; i < n; i++) {
        ckpt_axis *a = add_extent(fx.t.ndim);
        unsigned rest = fx.t.ndim > 1 ? n - 1 - i : i; // last box first; flat ones must ascend

        for (unsigned j = 0; j < fx.t.ndim; j++) {
            uint64_t *b = &bounds[j][rest % parts[j]];

            rest /= parts[j];
            a[j] = (ckpt_axis){b[0], b[1] - b[0], 0};
        }
        lay_out(a, identity, broadcasts);
    }
}

/* ---- the oracle ---- */

/* Where element i (flattened) lies according to one extent; NULL if that does not hold it. */
static const uint8_t *look(const ckpt_extent *e, uint64_t i)
{
    const ckpt_axis *a = e->axis;
    int64_t at = (int64_t)e->at;

    if (e->ndim == 1) {
        bool in = i >= a->start && i - a->start < a->count;

        return in ? fx.source[e->source] + at + (int64_t)(i - a->start) * a->stride : NULL;
    }
    for (unsigned j = e->ndim; j-- > 0;) {
        uint64_t index = i % fx.shape[j];

        i /= fx.shape[j];
        if (index < a[j].start || index - a[j].start >= a[j].count)
            return NULL;
        at += (int64_t)(index - a[j].start) * a[j].stride;
    }
    return fx.source[e->source] + at;
}

static void find_all(void)
{
    for (uint64_t i = 0; i < fx.t.n_elems; i++) {
        for (uint32_t k = 0; k < fx.t.n_extents; k++) {
            const uint8_t *p = look(&fx.extent[k], i);

            if (p) {
                assert_null(fx.where[i]);
                fx.where[i] = p;
            }
        }
        assert_non_null(fx.where[i]);
    }
}

/* ---- gathering ---- */

typedef struct gathered {
    const uint8_t *at[MAX_ELEMS]; /* per element of the region: the bytes a piece names */
    uint64_t n;                   /* elements in the region */
    uint64_t last_to;             /* of the piece before */
    unsigned n_pieces;
    bool ascending;
    unsigned stop_after; /* pieces; 0: never */
    ckpt_piece last;
} gathered;

static int gather(void *ctx, const ckpt_piece *p, ckpt_err *err)
{
    gathered *g = ctx;
    uint64_t n = 1;

    (void)err;
    assert_true(p->source < N_SOURCES);
    assert_true(p->ndim >= 1 && p->ndim <= CKPT_MAX_DIM);
    for (uint32_t j = 0; j < p->ndim; j++) {
        assert_true(p->axis[j].count > 1 || p->ndim == 1);
        n *= p->axis[j].count;
    }
    assert_int_equal(n, p->n_elems);
    assert_true(n > 0);
    g->ascending &= g->n_pieces == 0 || p->to > g->last_to;
    g->last_to = p->to;
    g->last = *p;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t rest = i, to = p->to;
        int64_t from = (int64_t)p->at;

        for (uint32_t j = p->ndim; j-- > 0;) {
            uint64_t index = rest % p->axis[j].count;

            rest /= p->axis[j].count;
            from += (int64_t)index * p->axis[j].from_by;
            to += index * p->axis[j].to_by;
        }
        assert_true(to < g->n);
        assert_null(g->at[to]); // never twice
        g->at[to] = fx.source[p->source] + from;
    }
    g->n_pieces++;
    return g->n_pieces == g->stop_after ? CKPT_ECANCELED : CKPT_OK;
}

/* Join a region and compare with the oracle; returns the number of pieces. */
static unsigned join_flat(uint64_t first, uint64_t count)
{
    static gathered g;
    ckpt_axis region = {first, count, 99}; // the stride must not matter
    ckpt_err err = {0};

    memset(&g, 0, sizeof g);
    g.ascending = true;
    g.n = count;
    assert_int_equal(ckpt_join(&fx.t, &region, 1, gather, &g, &err), CKPT_OK);
    for (uint64_t i = 0; i < count; i++)
        assert_ptr_equal(g.at[i], fx.where[first + i]);
    assert_true(g.ascending || !ckpt_extent_is_flat(&fx.t, &fx.extent[0]));
    return g.n_pieces;
}

static unsigned join_box(const ckpt_axis *region)
{
    static gathered g;
    uint64_t n = 1;

    memset(&g, 0, sizeof g);
    for (unsigned j = 0; j < fx.t.ndim; j++)
        n *= region[j].count;
    g.n = n;
    assert_int_equal(ckpt_join(&fx.t, region, fx.t.ndim, gather, &g, NULL), CKPT_OK);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t rest = i, element = 0, unit = 1;

        for (unsigned j = fx.t.ndim; j-- > 0;) {
            element += (region[j].start + rest % region[j].count) * unit;
            rest /= region[j].count;
            unit *= fx.shape[j];
        }
        assert_ptr_equal(g.at[i], fx.where[element]);
    }
    return g.n_pieces;
}

static void random_regions(unsigned rounds)
{
    ckpt_axis box[MAX_AXES];

    (void)join_flat(0, fx.t.n_elems);
    for (unsigned r = 0; r < rounds; r++) {
        uint64_t first = draw(fx.t.n_elems + 1);

        (void)join_flat(first, draw(fx.t.n_elems - first + 1));
        for (unsigned j = 0; j < fx.t.ndim; j++) {
            box[j].start = draw(2) == 0 ? 0 : draw(fx.shape[j]);
            box[j].count =
                draw(2) == 0 ? fx.shape[j] - box[j].start : draw(fx.shape[j] - box[j].start + 1);
            box[j].stride = -7;
        }
        (void)join_box(box);
    }
}

/* ---- properties ---- */

static void run_random(unsigned rounds, unsigned kind)
{
    static const ckpt_dtype dtypes[] = {CKPT_F32, CKPT_BF16, CKPT_U8, CKPT_C128};

    for (unsigned r = 0; r < rounds; r++) {
        unsigned ndim = 1 + (unsigned)draw(MAX_AXES);

        begin(ndim, dtypes[draw(4)]);
        random_shape(ndim);
        if (kind == 0 || (kind == 1 && ndim == 1)) {
            back_flat();
        } else if (kind == 1) {
            back_grid(3, draw(2) == 0, false);
        } else if (kind == 2) {
            back_grid(1, draw(3) == 0, draw(2) == 0); // one view: permuted, with gaps, broadcast
        } else {
            back_grid(2, true, draw(2) == 0);
        }
        find_all();
        random_regions(8);
    }
}

static void test_flat_extents(void **state)
{
    (void)state;
    seed = 1;
    run_random(400, 0);
}

static void test_box_grid(void **state)
{
    (void)state;
    seed = 2;
    run_random(400, 1);
}

static void test_strided_view(void **state)
{
    (void)state;
    seed = 3;
    run_random(400, 2);
}

static void test_slices_with_broadcast(void **state)
{
    (void)state;
    seed = 4;
    run_random(400, 3);
}

/* ---- shapes of the answer ---- */

/* A contiguous tensor is one piece of one axis, whatever its axes and the region. */
static void test_contiguous_is_one_piece(void **state)
{
    ckpt_axis rows[] = {{1, 2, 0}, {0, 3, 0}, {0, 4, 0}};
    ckpt_axis columns[] = {{0, 5, 0}, {0, 3, 0}, {1, 2, 0}};
    static gathered g;
    ckpt_axis all = {7, 30, 0};

    (void)state;
    seed = 5;
    begin(3, CKPT_F32);
    memcpy(fx.shape, (uint64_t[]){5, 3, 4}, 3 * sizeof fx.shape[0]);
    fx.t.n_elems = 60;
    back_grid(1, true, false);
    find_all();
    assert_int_equal(join_flat(7, 30), 1);
    assert_int_equal(join_box(rows), 1);
    assert_int_equal(join_box(columns), 1);
    memset(&g, 0, sizeof g);
    g.n = 30;
    assert_int_equal(ckpt_join(&fx.t, &all, 1, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.last.ndim, 1);
    assert_int_equal(g.last.at, fx.extent[0].at + 28);
    assert_int_equal(g.last.to, 0);
    assert_int_equal(g.last.axis[0].count, 30);
    assert_int_equal(g.last.axis[0].from_by, 4);
    assert_int_equal(g.last.axis[0].to_by, 1);
}

/* A transposed matrix is one piece of two axes. */
static void test_transposed(void **state)
{
    ckpt_axis *a;
    ckpt_axis all[] = {{0, 6, 0}, {0, 5, 0}};

    (void)state;
    seed = 6;
    begin(2, CKPT_F32);
    memcpy(fx.shape, (uint64_t[]){6, 5}, 2 * sizeof fx.shape[0]);
    fx.t.n_elems = 30;
    a = add_extent(2);
    a[0] = (ckpt_axis){0, 6, 4};
    a[1] = (ckpt_axis){0, 5, 24};
    find_all();
    assert_int_equal(join_box(all), 1);
    assert_int_equal(join_flat(0, 30), 1);
    assert_int_equal(join_flat(3, 24), 3); // rest of a row, whole rows, part of a row
}

/* Of thousands of flat extents only those concerned are handed over. */
static void test_many_flat(void **state)
{
    enum { N = 4096, EACH = 1000 };
    static ckpt_extent extent[N];
    static ckpt_axis axis[N];
    const uint64_t shape[] = {N * EACH};
    ckpt_tensor t = {.name = "flat", .dtype = CKPT_U8, .ndim = 1, .shape = shape};
    static gathered g;
    ckpt_axis region = {EACH * 1234 + 990, 20, 0};

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        axis[i] = (ckpt_axis){(uint64_t)i * EACH, EACH, 1};
        extent[i] = (ckpt_extent){.source = i % N_SOURCES, .ndim = 1, .at = i, .axis = &axis[i]};
    }
    t.n_elems = N * EACH;
    t.n_extents = N;
    t.extent = extent;
    memset(&g, 0, sizeof g);
    g.n = 20;
    assert_int_equal(ckpt_join(&t, &region, 1, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.n_pieces, 2);
    assert_int_equal(g.last.to, 10);
    assert_int_equal(g.last.at, 1235);
    assert_int_equal(g.last.n_elems, 10);
}

static void test_scalar_and_empty(void **state)
{
    ckpt_axis *a;
    static gathered g;
    ckpt_axis none[] = {{1, 0, 0}, {0, 0, 0}};

    (void)state;
    seed = 7;
    begin(0, CKPT_F64);
    fx.t.n_elems = 1;
    a = add_extent(1);
    *a = (ckpt_axis){0, 1, 0};
    find_all();
    assert_int_equal(join_flat(0, 1), 1);
    memset(&g, 0, sizeof g);
    g.n = 1;
    assert_int_equal(ckpt_join(&fx.t, NULL, 0, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.n_pieces, 1);
    assert_int_equal(g.last.axis[0].from_by, 8); // one element reads as a contiguous run
    assert_int_equal(join_flat(1, 0), 0);

    begin(2, CKPT_F32);
    memcpy(fx.shape, (uint64_t[]){3, 0}, 2 * sizeof fx.shape[0]);
    assert_int_equal(ckpt_join(&fx.t, none, 2, gather, &g, NULL), CKPT_OK);
    assert_int_equal(ckpt_join(&fx.t, none + 1, 1, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.n_pieces, 1);
}

/* 64 axes, three of them longer than 1. */
static void test_many_axes(void **state)
{
    uint64_t shape[CKPT_MAX_DIM];
    ckpt_axis axis[CKPT_MAX_DIM], region[CKPT_MAX_DIM];
    ckpt_extent extent = {.ndim = CKPT_MAX_DIM, .at = 100, .axis = axis};
    ckpt_tensor t = {.name = "deep", .dtype = CKPT_U8, .ndim = CKPT_MAX_DIM, .shape = shape};
    static gathered g;

    (void)state;
    for (unsigned j = 0; j < CKPT_MAX_DIM; j++) {
        shape[j] = j % 30 == 3 ? 4 : 1;
        axis[j] = (ckpt_axis){0, shape[j], j == 3 ? 1 : j == 33 ? 4 : 16};
        region[j] = (ckpt_axis){0, shape[j], 0};
    }
    region[33] = (ckpt_axis){1, 2, 0};
    t.n_elems = 64;
    t.extent = &extent;
    t.n_extents = 1;
    memset(&g, 0, sizeof g);
    g.n = 32;
    assert_int_equal(ckpt_join(&t, region, CKPT_MAX_DIM, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.n_pieces, 1);
    assert_int_equal(g.last.ndim, 3);
    assert_int_equal(g.last.at, 104);
    assert_int_equal(g.last.axis[0].to_by, 8);
    assert_int_equal(g.last.axis[2].from_by, 16);
    // An extent without elements on an axis of size 1 gives nothing.
    axis[0].count = 0;
    assert_int_equal(ckpt_join(&t, region, CKPT_MAX_DIM, gather, &g, NULL), CKPT_EMISMATCH);
}

/* ---- packed elements ---- */

static void test_packed(void **state)
{
    const uint64_t shape[] = {4, 8};
    ckpt_axis axis[] = {{0, 10, 0}, {10, 22, 0}};
    ckpt_extent extent[] = {{.source = 0, .ndim = 1, .at = 3, .axis = &axis[0]},
                            {.source = 1, .ndim = 1, .at = 7, .axis = &axis[1]}};
    ckpt_tensor t = {.name = "f4", .dtype = CKPT_F4, .ndim = 2, .shape = shape, .n_elems = 32};
    ckpt_axis inside = {2, 20, 0}, odd = {1, 4, 0}, short_end = {0, 3, 0};
    ckpt_axis rows[] = {{2, 2, 0}, {0, 8, 0}}, columns[] = {{0, 4, 0}, {0, 4, 0}};
    ckpt_axis box[] = {{0, 4, 0}, {0, 8, 0}};
    static gathered g;

    (void)state;
    t.extent = extent;
    t.n_extents = 2;
    memset(&g, 0, sizeof g);
    g.n = 20;
    assert_int_equal(ckpt_join(&t, &inside, 1, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.n_pieces, 2);
    assert_int_equal(g.last.source, 1);
    assert_int_equal(g.last.at, 7);
    assert_int_equal(g.last.to, 4); // pairs
    assert_int_equal(g.last.n_elems, 6);
    assert_int_equal(g.last.axis[0].from_by, 1);
    memset(&g, 0, sizeof g);
    g.n = 16;
    assert_int_equal(ckpt_join(&t, rows, 2, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.last.at, 7 + 3); // element 16 is 6 elements into the second extent
    assert_int_equal(ckpt_join(&t, &odd, 1, gather, &g, NULL), CKPT_EUNSUPPORTED);
    assert_int_equal(ckpt_join(&t, &short_end, 1, gather, &g, NULL), CKPT_EUNSUPPORTED);
    memset(&g, 0, sizeof g);
    g.n = 8;
    assert_int_equal(ckpt_join(&t, columns, 2, gather, &g, NULL), CKPT_OK);
    assert_int_equal(g.last.at, 7 + 7); // the last row begins 14 elements into the second extent
    columns[1].count = 3;
    assert_int_equal(ckpt_join(&t, columns, 2, gather, &g, NULL), CKPT_EUNSUPPORTED);
    extent[0] = (ckpt_extent){.ndim = 2, .axis = box};
    t.n_extents = 1;
    memset(&g, 0, sizeof g);
    g.n = 20;
    assert_int_equal(ckpt_join(&t, &inside, 1, gather, &g, NULL), CKPT_OK);
}

/* Blocks of 32 elements and 18 bytes: rows of two, the even rows in one source, the odd in another.
 */
static void test_blocks(void **state)
{
    const uint64_t shape[] = {4, 64};
    ckpt_axis even[] = {{0, 1, 36}, {0, 64, 0}}, odd[] = {{1, 1, 36}, {0, 64, 0}},
              late[] = {{2, 2, 100}, {0, 64, 0}};
    ckpt_extent extent[] = {{.source = 0, .ndim = 2, .at = 4, .axis = even},
                            {.source = 1, .ndim = 2, .at = 0, .axis = odd},
                            {.source = 0, .ndim = 2, .at = 200, .axis = late}};
    ckpt_tensor t = {.name = "q", .dtype = CKPT_Q4_0, .ndim = 2, .shape = shape, .n_elems = 256};
    ckpt_axis all = {0, 256, 0}, inside = {32, 192, 0}, cut = {32, 40, 0};
    ckpt_axis right[] = {{1, 3, 0}, {32, 32, 0}};
    static gathered g;

    (void)state;
    t.extent = extent;
    t.n_extents = 3;
    memset(&g, 0, sizeof g);
    g.n = 8;
    assert_int_equal(ckpt_join(&t, &all, 1, gather, &g, NULL), CKPT_OK);
    assert_ptr_equal(g.at[0], fx.source[0] + 4);
    assert_ptr_equal(g.at[1], fx.source[0] + 22);
    assert_ptr_equal(g.at[2], fx.source[1]);
    assert_ptr_equal(g.at[4], fx.source[0] + 200);
    assert_ptr_equal(g.at[7], fx.source[0] + 318);
    memset(&g, 0, sizeof g);
    g.n = 6;
    assert_int_equal(ckpt_join(&t, &inside, 1, gather, &g, NULL), CKPT_OK);
    assert_ptr_equal(g.at[0], fx.source[0] + 22);
    assert_ptr_equal(g.at[5], fx.source[0] + 300);
    memset(&g, 0, sizeof g);
    g.n = 3;
    assert_int_equal(ckpt_join(&t, right, 2, gather, &g, NULL), CKPT_OK);
    assert_ptr_equal(g.at[0], fx.source[1] + 18);
    assert_ptr_equal(g.at[2], fx.source[0] + 318);
    assert_int_equal(ckpt_join(&t, &cut, 1, gather, &g, NULL), CKPT_EUNSUPPORTED);
    right[1].count = 16;
    assert_int_equal(ckpt_join(&t, right, 2, gather, &g, NULL), CKPT_EUNSUPPORTED);
}

/* ---- what is refused ---- */

static int count_only(void *ctx, const ckpt_piece *p, ckpt_err *err)
{
    (void)err;
    *(uint64_t *)ctx += p->n_elems;
    return CKPT_OK;
}

/* Join all of a 4 x 6 tensor with n extents of ndim axes each. */
static int join_bad(ckpt_axis *axis, uint32_t ndim, uint32_t n, bool box, ckpt_err *err)
{
    static const uint64_t shape[] = {4, 6};
    const ckpt_axis flat = {0, 24, 0};
    const ckpt_axis whole[] = {{0, 4, 0}, {1, 5, 0}}; // not mergeable
    ckpt_extent extent[4];
    ckpt_tensor t = {.name = "bad", .dtype = CKPT_F32, .ndim = 2, .shape = shape, .n_elems = 24};
    uint64_t n_elems = 0;

    memset(err, 0, sizeof *err);
    memset(extent, 0, sizeof extent);
    for (uint32_t i = 0; i < n; i++) {
        extent[i].ndim = ndim;
        extent[i].axis = axis + (size_t)i * ndim;
        extent[i].at = 40;
    }
    t.extent = extent;
    t.n_extents = n;
    return ckpt_join(&t, box ? whole : &flat, box ? 2 : 1, count_only, &n_elems, err);
}

static void test_holes_and_overlaps(void **state)
{
    ckpt_axis hole[] = {{0, 7, 4}, {9, 15, 4}};
    ckpt_axis twice[] = {{0, 9, 4}, {7, 17, 4}};
    ckpt_axis end[] = {{0, 20, 4}};
    ckpt_axis inside[] = {{0, 24, 4}, {3, 2, 4}};
    ckpt_axis box_hole[] = {{0, 4, 24}, {0, 3, 4}, {0, 4, 24}, {4, 2, 4}};
    ckpt_axis box_twice[] = {{0, 4, 24}, {0, 4, 4}, {0, 4, 24}, {3, 3, 4}};
    ckpt_err err;

    (void)state;
    assert_int_equal(join_bad(hole, 1, 2, false, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 7 is not covered"));
    assert_int_equal(join_bad(hole, 1, 2, true, &err), CKPT_EMISMATCH);
    assert_int_equal(join_bad(twice, 1, 2, false, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 7 is covered twice"));
    assert_int_equal(join_bad(twice, 1, 2, true, &err), CKPT_EMISMATCH);
    assert_int_equal(join_bad(end, 1, 1, false, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "element 20"));
    assert_int_equal(join_bad(inside, 1, 2, true, &err), CKPT_EMISMATCH);
    assert_int_equal(join_bad(hole, 1, 0, false, &err), CKPT_EMISMATCH);
    assert_int_equal(join_bad(box_hole, 2, 2, false, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "20 of 24"));
    assert_int_equal(join_bad(box_hole, 2, 2, true, &err), CKPT_EMISMATCH);
    assert_int_equal(join_bad(box_twice, 2, 2, false, &err), CKPT_EMISMATCH);
    assert_int_equal(join_bad(box_twice, 2, 2, true, &err), CKPT_EMISMATCH);
}

/* Numbers that no reader should let through, and that must not do harm here either. */
static void test_impossible_strides(void **state)
{
    ckpt_axis far_flat[] = {{0, 3, 4}, {3, 21, INT64_MAX}};
    ckpt_axis backward[] = {{0, 24, -4}};
    ckpt_axis wraps[] = {{0, 3, 4}, {3, UINT64_MAX, 4}};
    ckpt_axis far_box[] = {{0, 4, INT64_MAX}, {0, 6, INT64_MAX}};
    ckpt_axis backward_box[] = {{0, 4, -24}, {0, 6, 4}};
    ckpt_axis outside[] = {{0, 4, 24}, {1, 6, 4}};
    ckpt_err err;

    (void)state;
    assert_int_equal(join_bad(far_flat, 1, 2, true, &err), CKPT_EFORMAT);
    assert_int_equal(join_bad(backward, 1, 1, false, &err), CKPT_EFORMAT);
    assert_int_equal(join_bad(backward, 1, 1, true, &err), CKPT_EFORMAT);
    assert_int_equal(join_bad(wraps, 1, 2, false, &err), CKPT_EMISMATCH);
    assert_int_equal(join_bad(wraps, 1, 2, true, &err), CKPT_EFORMAT);
    assert_int_equal(join_bad(far_box, 2, 1, true, &err), CKPT_EFORMAT);
    assert_int_equal(join_bad(backward_box, 2, 1, false, &err), CKPT_EFORMAT);
    assert_int_equal(join_bad(outside, 2, 1, false, &err), CKPT_EFORMAT);
}

static void test_mixed_extents(void **state)
{
    const uint64_t shape[] = {2, 2};
    const ckpt_axis flat = {0, 4, 0};
    const ckpt_axis column[] = {{0, 2, 0}, {1, 1, 0}};
    ckpt_axis axis[] = {{0, 2, 4}, {1, 1, 8}, {0, 2, 4}};
    ckpt_extent extent[] = {{.ndim = 1, .axis = axis}, {.ndim = 2, .axis = axis + 1}};
    ckpt_extent swapped[] = {extent[1], extent[0]};
    ckpt_tensor t = {.name = "x", .dtype = CKPT_F32, .ndim = 2, .shape = shape, .n_elems = 4};
    uint64_t n = 0;

    (void)state;
    t.n_extents = 2;
    t.extent = extent;
    assert_int_equal(ckpt_join(&t, &flat, 1, count_only, &n, NULL), CKPT_EMISMATCH);
    assert_int_equal(ckpt_join(&t, column, 2, count_only, &n, NULL), CKPT_EMISMATCH);
    t.extent = swapped;
    assert_int_equal(ckpt_join(&t, &flat, 1, count_only, &n, NULL), CKPT_EMISMATCH);
}

static void test_regions_outside(void **state)
{
    ckpt_axis beyond = {20, 5, 0}, wraps = {UINT64_MAX, 2, 0};
    ckpt_axis box[] = {{0, 4, 0}, {2, 5, 0}}, three[] = {{0, 1, 0}, {0, 1, 0}, {0, 1, 0}};
    uint64_t n = 0;

    (void)state;
    seed = 8;
    begin(2, CKPT_F32);
    memcpy(fx.shape, (uint64_t[]){4, 6}, 2 * sizeof fx.shape[0]);
    fx.t.n_elems = 24;
    back_grid(1, true, false);
    assert_int_equal(ckpt_join(&fx.t, &beyond, 1, count_only, &n, NULL), CKPT_EMISMATCH);
    assert_int_equal(ckpt_join(&fx.t, &wraps, 1, count_only, &n, NULL), CKPT_EMISMATCH);
    assert_int_equal(ckpt_join(&fx.t, box, 2, count_only, &n, NULL), CKPT_EMISMATCH);
    assert_int_equal(ckpt_join(&fx.t, three, 3, count_only, &n, NULL), CKPT_EUSAGE);
    assert_int_equal(n, 0);
}

static void test_callback_stops(void **state)
{
    static gathered g;
    ckpt_axis all = {0, 24, 0};

    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        ckpt_axis *a;

        seed = 9;
        begin(2, CKPT_F32);
        memcpy(fx.shape, (uint64_t[]){4, 6}, 2 * sizeof fx.shape[0]);
        fx.t.n_elems = 24;
        for (uint64_t i = 0; i < 4; i++) {
            a = add_extent(kind == 0 ? 1 : 2);
            a[0] = kind == 0 ? (ckpt_axis){6 * i, 6, 4} : (ckpt_axis){i, 1, 24};
            a[1] = (ckpt_axis){0, 6, 4};
        }
        memset(&g, 0, sizeof g);
        g.n = 24;
        g.stop_after = 2;
        assert_int_equal(ckpt_join(&fx.t, &all, 1, gather, &g, NULL), CKPT_ECANCELED);
        assert_int_equal(g.n_pieces, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat_extents),
        cmocka_unit_test(test_box_grid),
        cmocka_unit_test(test_strided_view),
        cmocka_unit_test(test_slices_with_broadcast),
        cmocka_unit_test(test_contiguous_is_one_piece),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_many_flat),
        cmocka_unit_test(test_scalar_and_empty),
        cmocka_unit_test(test_many_axes),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_holes_and_overlaps),
        cmocka_unit_test(test_impossible_strides),
        cmocka_unit_test(test_mixed_extents),
        cmocka_unit_test(test_regions_outside),
        cmocka_unit_test(test_callback_stops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
