/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slices.c: joining slices: every rule on small shapes against arrays joined by definition,
 * with each slice cut in all ways a data-parallel run may cut it.
 */
#include "ckpt_extra.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/slices.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { MAX = 512, RANKS = 4 };

/* ---- small arrays, joined and cut by definition ---- */

typedef struct array {
    uint32_t ndim;
    uint64_t shape[4];
    float at[MAX];
} array;

static uint64_t count_of(const array *a)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < a->ndim; i++)
        n *= a->shape[i];
    assert_true(n <= MAX);
    return n;
}

/* Append b to a along an axis; an a without axes is empty. */
static void append(array *a, const array *b, uint32_t axis)
{
    static array out;
    uint64_t inner = 1, outer = 1, mine, theirs;

    if (a->ndim == 0) {
        *a = *b;
        return;
    }
    for (uint32_t i = 0; i < b->ndim; i++) {
        outer *= i < axis ? b->shape[i] : 1;
        inner *= i > axis ? b->shape[i] : 1;
    }
    mine = a->shape[axis] * inner;
    theirs = b->shape[axis] * inner;
    out = *a;
    out.shape[axis] += b->shape[axis];
    (void)count_of(&out);
    for (uint64_t o = 0; o < outer; o++) {
        for (uint64_t k = 0; k < mine; k++)
            out.at[o * (mine + theirs) + k] = a->at[o * mine + k];
        for (uint64_t k = 0; k < theirs; k++)
            out.at[o * (mine + theirs) + mine + k] = b->at[o * theirs + k];
    }
    *a = out;
}

/* Elements start .. start+n-1 along an axis. */
static array narrow(const array *a, uint32_t axis, uint64_t start, uint64_t n)
{
    array out = *a;
    uint64_t inner = 1, outer = 1, k = 0;

    for (uint32_t i = 0; i < a->ndim; i++) {
        outer *= i < axis ? a->shape[i] : 1;
        inner *= i > axis ? a->shape[i] : 1;
    }
    out.shape[axis] = n;
    for (uint64_t o = 0; o < outer; o++) {
        for (uint64_t i = start * inner; i < (start + n) * inner; i++)
            out.at[k++] = a->at[o * a->shape[axis] * inner + i];
    }
    return out;
}

/* ---- the same as tensors of a map ---- */

/* How a slice's elements lie in memory. */
enum { WHOLE, HALVES, SINGLES, TURNED, N_LAYOUTS };

typedef struct bench {
    ckpt_map *map;
    float *memory[64]; /* of the sources */
    unsigned n_memory;
    array part[RANKS];
    ckpt_tensor *slice[RANKS];
    const ckpt_tensor *view[RANKS];
    uint32_t n;
} bench;

static void bench_new(bench *b, uint32_t n)
{
    memset(b, 0, sizeof *b);
    b->map = help_map();
    b->n = n;
}

static void bench_free(bench *b)
{
    ckpt_map_free(b->map);
    for (unsigned i = 0; i < b->n_memory; i++)
        ckpt_free(b->memory[i]);
}

/* Fill slice r with values of its own and a shape. */
static void bench_part(bench *b, uint32_t r, uint32_t ndim, const uint64_t *shape)
{
    b->part[r].ndim = ndim;
    for (uint32_t i = 0; i < ndim; i++)
        b->part[r].shape[i] = shape[i];
    for (uint64_t i = 0; i < count_of(&b->part[r]); i++)
        b->part[r].at[i] = (float)(1000 * (r + 1) + i);
}

static uint32_t bench_source(bench *b, uint64_t n_elems)
{
    ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .n_bytes = n_elems * 4 + 64};
    uint32_t i = 0;
    ckpt_err err = {0};

    assert_true(b->n_memory < 64);
    s.memory = b->memory[b->n_memory++] = ckpt_alloc((size_t)s.n_bytes);
    assert_non_null(s.memory);
    assert_int_equal(ckpt_map_add_source(b->map, &s, &i, &err), CKPT_OK);
    return i;
}

/* Lay a slice out with the axes in reversed order: one box, strides that grow inwards. */
static void lay_turned(bench *b, ckpt_tensor *t, const array *a)
{
    uint32_t source = bench_source(b, t->n_elems);
    ckpt_axis axis[4];
    ckpt_extent e = {source, t->ndim, 8, axis};
    int64_t by = 4;

    for (uint32_t i = 0; i < t->ndim; i++) {
        axis[i] = (ckpt_axis){0, a->shape[i], by};
        by *= (int64_t)a->shape[i];
    }
    for (uint64_t k = 0; k < t->n_elems; k++) {
        uint64_t left = k, at = 8;

        for (uint32_t i = t->ndim; i-- > 0;) {
            at += (left % a->shape[i]) * (uint64_t)axis[i].stride;
            left /= a->shape[i];
        }
        b->memory[source][at / 4] = a->at[k];
    }
    help_back(b->map, t, &e, 1);
}

/* Lay a slice out in flat extents: whole, in two halves at an element, or one element each. */
static void lay_flat(bench *b, ckpt_tensor *t, const array *a, int layout, uint64_t cut)
{
    static ckpt_axis axis[MAX];
    static ckpt_extent e[MAX];
    uint32_t n = 0, source = bench_source(b, t->n_elems), other = bench_source(b, t->n_elems);
    float *first = b->memory[source], *second = b->memory[other];

    for (uint64_t k = 0; k < t->n_elems; k++) {
        first[k + 1] = a->at[k];
        second[k] = a->at[k];
    }
    if (layout == SINGLES) {
        for (uint64_t k = 0; k < t->n_elems; k++, n++) {
            axis[n] = (ckpt_axis){k, 1, 4};
            e[n] = (ckpt_extent){k % 2 ? other : source, 1, k % 2 ? k * 4 : k * 4 + 4, &axis[n]};
        }
    } else {
        cut = layout == WHOLE ? t->n_elems : cut;
        axis[0] = (ckpt_axis){0, cut, 4};
        axis[1] = (ckpt_axis){cut, t->n_elems - cut, 4};
        e[0] = (ckpt_extent){source, 1, 4, &axis[0]};
        e[1] = (ckpt_extent){other, 1, cut * 4, &axis[1]};
        n = 2;
    }
    help_back(b->map, t, e, n);
}

static void bench_lay(bench *b, uint32_t r, int layout, uint64_t cut)
{
    const array *a = &b->part[r];
    ckpt_tensor like = {.dtype = CKPT_F32, .ndim = a->ndim, .shape = a->shape};
    ckpt_err err = {0};

    like.n_elems = count_of(a);
    assert_int_equal(ckpt_map_add_hidden(b->map, "part", 4, &like, &b->slice[r], &err), CKPT_OK);
    if (layout == TURNED && a->ndim > 1)
        lay_turned(b, b->slice[r], a);
    else if (like.n_elems > 0)
        lay_flat(b, b->slice[r], a, layout, cut);
    b->view[r] = b->slice[r];
}

/* Join and read: the whole must be what `want` is. */
static const ckpt_tensor *expect(bench *b, const ckpt_slice_rule *rule, const array *want)
{
    static float got[MAX];
    const ckpt_slice_set set = {"w", b->view, b->n};
    ckpt_tensor *t = NULL;
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};
    uint64_t n = count_of(want);

    assert_int_equal(ckpt_slices_join(&t, b->map, rule, &set, &err), CKPT_OK);
    assert_int_equal(t->ndim, want->ndim);
    for (uint32_t i = 0; i < want->ndim; i++)
        assert_int_equal(t->shape[i], want->shape[i]);
    assert_int_equal(t->n_elems, n);
    assert_int_equal(ckpt_map_check(b->map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&reader, b->map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(reader, t, 0, n, CKPT_F32, got, &err), CKPT_OK);
    assert_memory_equal(got, want->at, n * 4);
    ckpt_reader_free(reader);
    return t;
}

static void expect_failure(bench *b, const ckpt_slice_rule *rule, int code, const char *word)
{
    const ckpt_slice_set set = {"w", b->view, b->n};
    ckpt_tensor *t = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_slices_join(&t, b->map, rule, &set, &err), code);
    assert_null(t);
    assert_non_null(strstr(err.text, "'w"));
    assert_non_null(strstr(err.text, word));
}

/* ---- rules against definitions ---- */

/* Everything that a case depends on. */
typedef struct trial {
    uint32_t n, ndim, axis, n_subs;
    const uint64_t *width; /* width[k * n + r] */
    int layout;
    uint64_t cut; /* element at which every slice is cut, as far as it has that many */
    uint64_t keep;
} trial;

static uint64_t width_of(const trial *c, uint32_t r)
{
    uint64_t sum = 0;

    for (uint32_t k = 0; k < c->n_subs; k++)
        sum += c->width[k * c->n + r];
    return sum;
}

/* Slices of a trial, and their join by definition. */
static void build(bench *b, const trial *c, const uint64_t *others, array *want)
{
    uint64_t at[RANKS] = {0};

    bench_new(b, c->n);
    *want = (array){0};
    for (uint32_t r = 0; r < c->n; r++) {
        uint64_t shape[4], n;

        memcpy(shape, others, sizeof shape);
        shape[c->axis] = width_of(c, r);
        bench_part(b, r, c->ndim, shape);
        n = count_of(&b->part[r]);
        bench_lay(b, r, c->layout, c->cut < n ? c->cut : n);
    }
    for (uint32_t k = 0; k < c->n_subs; k++) {
        for (uint32_t r = 0; r < c->n; r++) {
            array part = narrow(&b->part[r], c->axis, at[r], c->width[k * c->n + r]);

            append(want, &part, c->axis);
            at[r] += c->width[k * c->n + r];
        }
    }
    if (c->keep > 0 && c->keep < want->shape[0])
        *want = narrow(want, 0, 0, c->keep);
}

static void run_trial(const trial *c, const uint64_t *others)
{
    static bench b;
    static array want;
    ckpt_slice_rule rule = {.kind = c->n_subs > 1 ? CKPT_SLICE_SUB : CKPT_SLICE_CAT,
                            .axis = c->axis,
                            .n_subs = c->n_subs,
                            .width = c->n_subs > 1 ? c->width : NULL,
                            .n_widths = c->n,
                            .keep_rows = c->keep};

    build(&b, c, others, &want);
    (void)expect(&b, &rule, &want);
    bench_free(&b);
}

/* One case in all layouts, cut at every element. */
static void run_layouts(trial c, const uint64_t *others)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < c.ndim; i++)
        n *= i == c.axis ? width_of(&c, 0) : others[i];
    for (c.layout = WHOLE; c.layout < N_LAYOUTS; c.layout++) {
        if (c.layout != HALVES)
            run_trial(&c, others);
        for (c.cut = 0; c.layout == HALVES && c.cut <= n; c.cut++)
            run_trial(&c, others);
    }
}

static void test_concatenation(void **state)
{
    static const uint64_t widths[][RANKS] = {
        {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 1, 2, 0}, {0, 2, 1, 3}};

    (void)state;
    for (uint32_t ndim = 1; ndim <= 3; ndim++) {
        for (uint32_t axis = 0; axis < ndim; axis++) {
            for (uint32_t n = 1; n <= RANKS; n++) {
                for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
                    static const uint64_t sizes[2][4] = {{2, 3, 2, 1}, {1, 1, 3, 1}};
                    const trial c = {
                        .n = n, .ndim = ndim, .axis = axis, .n_subs = 1, .width = widths[w]};

                    run_layouts(c, sizes[0]);
                    run_layouts(c, sizes[1]);
                }
            }
        }
    }
}

static void test_sub_parameters(void **state)
{
    // sub-parameter by sub-parameter, for 1..4 ranks: the first n of each row are used
    static const uint64_t even[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint64_t odd[12] = {2, 1, 0, 1, 0, 3, 1, 1, 1, 2, 1, 0};
    static const uint64_t *const tables[2] = {even, odd};
    static const uint64_t sizes[4] = {2, 3, 2, 1};

    (void)state;
    for (uint32_t ndim = 1; ndim <= 3; ndim++) {
        for (uint32_t axis = 0; axis < ndim; axis++) {
            for (uint32_t n = 2; n <= RANKS; n++) {
                for (uint32_t n_subs = 2; n_subs <= 3; n_subs++) {
                    for (size_t w = 0; w < 2; w++) {
                        const trial c = {.n = n,
                                         .ndim = ndim,
                                         .axis = axis,
                                         .n_subs = n_subs,
                                         .width = tables[w]};

                        run_layouts(c, sizes);
                    }
                }
            }
        }
    }
}

/* Padding of a vocabulary goes, wherever it begins. */
static void test_vocabulary(void **state)
{
    static const uint64_t widths[RANKS] = {2, 3, 1, 2}, sizes[4] = {4, 3, 1, 1};

    (void)state;
    for (uint64_t keep = 1; keep <= 9; keep++) {
        const trial c = {.n = 4, .ndim = 2, .axis = 0, .n_subs = 1, .width = widths, .keep = keep};
        const trial across = {
            .n = 2, .ndim = 2, .axis = 1, .n_subs = 1, .width = widths, .keep = keep};

        run_layouts(c, sizes);
        run_layouts(across, sizes);
    }
}

/* Two fused halves by nothing but their number, and three by their sizes: even cuts. */
static void test_even_sub_parameters(void **state)
{
    static const uint64_t widths[6] = {2, 2, 1, 1, 1, 1}, sizes[4] = {1, 3, 1, 1};
    static const uint64_t full[3] = {4, 2, 2}, equal[4] = {2, 2, 2, 2};
    const trial three = {.n = 2, .ndim = 2, .axis = 0, .n_subs = 3, .width = widths};
    const trial two = {.n = 2, .ndim = 2, .axis = 0, .n_subs = 2, .width = equal};
    const ckpt_slice_rule by_size = {.kind = CKPT_SLICE_SUB, .n_subs = 3, .sub_size = full};
    const ckpt_slice_rule by_number = {.kind = CKPT_SLICE_SUB, .n_subs = 2};
    ckpt_slice_rule bad = by_size;
    static const uint64_t odd[3] = {5, 2, 1}, short_by_one[3] = {4, 2, 1};
    static bench b;
    static array want;

    (void)state;
    build(&b, &three, sizes, &want);
    (void)expect(&b, &by_size, &want);
    bench_free(&b);
    build(&b, &two, sizes, &want);
    (void)expect(&b, &by_number, &want);
    bad.sub_size = odd;
    expect_failure(&b, &bad, CKPT_EMISMATCH, "sub-parameters");
    bad.sub_size = short_by_one;
    expect_failure(&b, &bad, CKPT_EMISMATCH, "sub-parameters");
    bad = by_number;
    bad.n_subs = 3;
    expect_failure(&b, &bad, CKPT_EMISMATCH, "sub-parameters");
    bad = by_number;
    bad.axis = 2;
    expect_failure(&b, &bad, CKPT_EMISMATCH, "sub-parameters");
    bench_free(&b);
}

/*
 * Views: slices [8, 3] of two ranks, seen as (2, w, 2 x 3): the cut is inside axis 0, twice, in
 * units of two rows.  By definition: reshape, join, reshape.
 */
static void test_views(void **state)
{
    static const uint64_t whole[2] = {2, 2}, flat[1] = {24}, shape[2] = {8, 3};
    static const int64_t inside[4] = {2, 99, 2, -1}, plain[2] = {4, -1}, wrong[2] = {4, 5},
                         two_open[3] = {-1, 4, -1};
    ckpt_slice_rule rule = {.kind = CKPT_SLICE_SUB,
                            .axis = 1,
                            .n_subs = 2,
                            .sub_size = whole,
                            .n_view = 4,
                            .view = inside,
                            .pattern = "qkv"};
    static bench b;
    static array want;

    (void)state;
    for (int layout = WHOLE; layout < N_LAYOUTS; layout++) {
        for (unsigned line = 0; line < 2; line++) {
            uint64_t at[2] = {0};

            bench_new(&b, 2);
            want = (array){0};
            for (uint32_t r = 0; r < 2; r++) {
                bench_part(&b, r, line ? 1 : 2, line ? flat : shape);
                bench_lay(&b, r, layout, 11);
            }
            for (uint32_t k = 0; k < 2; k++) {
                for (uint32_t r = 0; r < 2; r++) {
                    array seen = b.part[r], part;

                    seen.ndim = 3;
                    seen.shape[0] = 2;
                    seen.shape[1] = 2;
                    seen.shape[2] = 6;
                    part = narrow(&seen, 1, at[r], 1);
                    append(&want, &part, 1);
                    at[r]++;
                }
            }
            want.ndim = line ? 1 : 2;
            want.shape[0] = line ? 48 : 16;
            want.shape[1] = 3;
            (void)expect(&b, &rule, &want);
            if (layout == TURNED && !line) {
                rule.view = wrong;
                rule.n_view = 2;
                rule.axis = 0;
                expect_failure(&b, &rule, CKPT_EMISMATCH, "'qkv'");
                rule.view = two_open;
                rule.n_view = 3;
                rule.axis = 1;
                expect_failure(&b, &rule, CKPT_EMISMATCH, "'qkv'");
                rule.view = plain; // sizes that are not the slices'
                rule.n_view = 2;
                expect_failure(&b, &rule, CKPT_EMISMATCH, "'qkv'");
                rule.view = inside;
                rule.n_view = 4;
            }
            bench_free(&b);
        }
    }
}

/* ---- replicas and means ---- */

static unsigned chain(const ckpt_tensor *t)
{
    unsigned n = 0;

    for (t = t->twin; t != NULL; t = t->twin)
        n++;
    return n;
}

/* A 16-bit copy of each slice: zeros, for it is only looked for. */
static void give_twins(bench *b)
{
    for (uint32_t r = 0; r < b->n; r++) {
        ckpt_tensor like = *b->slice[r], *twin = NULL;
        ckpt_err err = {0};

        like.dtype = CKPT_BF16;
        assert_int_equal(ckpt_map_add_hidden(b->map, "part", 4, &like, &twin, &err), CKPT_OK);
        help_whole(b->map, twin, bench_source(b, like.n_elems), 0);
        b->slice[r]->twin = twin;
    }
}

static void test_replicas(void **state)
{
    static const uint64_t shape[2] = {3, 4};
    const ckpt_slice_rule same = {.kind = CKPT_SLICE_SAME},
                          keep = {.kind = CKPT_SLICE_SAME, .keep_rows = 2};
    static bench b;
    array want;
    const ckpt_tensor *t;

    (void)state;
    bench_new(&b, 3);
    for (uint32_t r = 0; r < 3; r++) {
        bench_part(&b, r, 2, shape);
        bench_lay(&b, r, r == 1 ? TURNED : HALVES, 5);
    }
    want = b.part[0];
    t = expect(&b, &same, &want);
    assert_int_equal(chain(t), 2);
    bench_free(&b);
    // with 16-bit copies and fewer rows: 2 masters and 3 copies
    bench_new(&b, 3);
    for (uint32_t r = 0; r < 3; r++) {
        bench_part(&b, r, 2, shape);
        bench_lay(&b, r, HALVES, 5);
    }
    give_twins(&b);
    want = narrow(&b.part[0], 0, 0, 2);
    t = expect(&b, &keep, &want);
    assert_int_equal(chain(t), 5);
    assert_int_equal(t->twin->dtype, CKPT_F32);
    assert_int_equal(t->twin->twin->twin->dtype, CKPT_BF16);
    assert_int_equal(t->twin->twin->twin->n_elems, 8);
    bench_free(&b);
}

static void test_means(void **state)
{
    static const uint64_t shape[2] = {3, 4};
    const ckpt_slice_rule mean = {.kind = CKPT_SLICE_MEAN, .keep_rows = 2};
    static bench b;
    array want;
    const ckpt_tensor *t;

    (void)state;
    bench_new(&b, 4);
    for (uint32_t r = 0; r < 4; r++) {
        bench_part(&b, r, 2, shape);
        bench_lay(&b, r, (int)r, 5);
    }
    give_twins(&b);
    want = narrow(&b.part[0], 0, 0, 2);
    for (uint64_t i = 0; i < 8; i++) {
        float sum = 0;

        for (uint32_t r = 0; r < 4; r++)
            sum += b.part[r].at[i];
        want.at[i] = sum / 4;
    }
    t = expect(&b, &mean, &want);
    // each slice keeps its own copy
    for (unsigned r = 0; r < 4; r++, t = t->addend)
        assert_int_equal(chain(t), 1);
    assert_null(t);
    bench_free(&b);
}

/* ---- affine maps ---- */

/* A list of pieces being written down. */
typedef struct pieces {
    ckpt_affine map;
    ckpt_affine_piece piece[16];
    uint64_t numbers[16][8];
    uint64_t shape[2];
} pieces;

/* Rows x columns from (row, column) of the whole and of a slice with `wide` columns. */
static void piece(pieces *p, uint32_t rank, const uint64_t at[4], const uint64_t size[2],
                  uint64_t wide)
{
    uint64_t *v = p->numbers[p->map.n_pieces];
    ckpt_affine_piece *to = &p->piece[p->map.n_pieces++];

    v[0] = size[0];
    v[1] = size[1];
    v[2] = p->shape[1];
    v[4] = wide;
    v[3] = v[5] = 1;
    *to = (ckpt_affine_piece){.rank = rank,
                              .ndim = 2,
                              .count = v,
                              .whole_at = at[0] * p->shape[1] + at[1],
                              .slice_at = at[2] * wide + at[3],
                              .whole_by = v + 2,
                              .slice_by = v + 4};
    p->map.piece = p->piece;
    p->map.shape = p->shape;
    p->map.ndim = 2;
}

/*
 * A fused [6, 4] of two ranks: rows 0-3 are split, rows 4-5 held by both; the halves of what is
 * split are exchanged, so that order in slice and whole differ.
 */
static void mixed_pieces(pieces *p)
{
    static const uint64_t row[2] = {1, 4}, rows[2] = {2, 4};

    *p = (pieces){.map = {.n_ranks = 2}, .shape = {6, 4}};
    piece(p, 0, (const uint64_t[]){2, 0, 0, 0}, row, 4);
    piece(p, 0, (const uint64_t[]){0, 0, 1, 0}, row, 4);
    piece(p, 0, (const uint64_t[]){4, 0, 2, 0}, rows, 4);
    piece(p, 1, (const uint64_t[]){4, 0, 0, 0}, rows, 4);
    piece(p, 1, (const uint64_t[]){3, 0, 2, 0}, row, 4);
    piece(p, 1, (const uint64_t[]){1, 0, 3, 0}, row, 4);
}

static void test_affine_rows(void **state)
{
    static const uint64_t shape[2] = {4, 4};
    static bench b;
    static pieces p;
    const ckpt_slice_rule rule = {.kind = CKPT_SLICE_AFFINE, .affine = &p.map};

    (void)state;
    mixed_pieces(&p);
    for (int layout = WHOLE; layout < N_LAYOUTS; layout++) {
        for (uint64_t cut = 0; cut <= (layout == HALVES ? 16 : 0); cut++) {
            static const unsigned from[6][2] = {{0, 1}, {1, 3}, {0, 0}, {1, 2}, {0, 2}, {0, 3}};
            array want = {0};
            const ckpt_tensor *t;

            bench_new(&b, 2);
            for (uint32_t r = 0; r < 2; r++) {
                bench_part(&b, r, 2, shape);
                bench_lay(&b, r, layout, cut);
            }
            for (unsigned i = 0; i < 6; i++) {
                array row = narrow(&b.part[from[i][0]], 0, from[i][1], 1);

                append(&want, &row, 0);
            }
            t = expect(&b, &rule, &want);
            assert_int_equal(chain(t), 1);
            bench_free(&b);
        }
    }
}

/* Columns: strides of whole and slice differ. */
static void test_affine_columns(void **state)
{
    static const uint64_t shape[2] = {3, 2}, half[2] = {3, 1};
    static bench b;
    static pieces p;
    const ckpt_slice_rule rule = {.kind = CKPT_SLICE_AFFINE, .affine = &p.map};
    array want = {0};

    (void)state;
    p = (pieces){.map = {.n_ranks = 2}, .shape = {3, 4}};
    // columns 0 and 2 are rank 0's, 1 and 3 rank 1's
    for (uint64_t c = 0; c < 2; c++)
        piece(&p, 0, (const uint64_t[]){0, 2 * c, 0, c}, half, 2);
    for (uint64_t c = 0; c < 2; c++)
        piece(&p, 1, (const uint64_t[]){0, 2 * c + 1, 0, c}, half, 2);
    bench_new(&b, 2);
    for (uint32_t r = 0; r < 2; r++) {
        bench_part(&b, r, 2, shape);
        bench_lay(&b, r, SINGLES, 0);
    }
    for (uint64_t c = 0; c < 4; c++) {
        array column = narrow(&b.part[c % 2], 1, c / 2, 1);

        append(&want, &column, 1);
    }
    (void)expect(&b, &rule, &want);
    bench_free(&b);
}

static void test_affine_refusals(void **state)
{
    static const uint64_t shape[2] = {4, 4};
    static bench b;
    static pieces p;
    const ckpt_slice_rule rule = {.kind = CKPT_SLICE_AFFINE, .affine = &p.map};

    (void)state;
    bench_new(&b, 2);
    for (uint32_t r = 0; r < 2; r++) {
        bench_part(&b, r, 2, shape);
        bench_lay(&b, r, WHOLE, 0);
    }
    mixed_pieces(&p);
    p.piece[1].whole_at = 8; // row 2 twice, row 0 never
    expect_failure(&b, &rule, CKPT_EMISMATCH, "affine map");
    mixed_pieces(&p);
    p.piece[1].slice_at = 0; // a row of the slice twice
    expect_failure(&b, &rule, CKPT_EMISMATCH, "slice of rank 0");
    mixed_pieces(&p);
    p.piece[5].whole_at = 24; // beyond the whole
    expect_failure(&b, &rule, CKPT_EUNSUPPORTED, "rank 1");
    mixed_pieces(&p);
    p.piece[5].slice_at = UINT64_MAX;
    expect_failure(&b, &rule, CKPT_EUNSUPPORTED, "rank 1");
    mixed_pieces(&p);
    p.numbers[2][2] = 2; // rows that overlap each other
    expect_failure(&b, &rule, CKPT_EUNSUPPORTED, "not a box");
    mixed_pieces(&p);
    p.map.n_ranks = 3;
    expect_failure(&b, &rule, CKPT_EMISMATCH, "3 ranks");
    mixed_pieces(&p);
    p.piece[2].rank = 7;
    expect_failure(&b, &rule, CKPT_EMISMATCH, "rank 7");
    mixed_pieces(&p);
    p.map.n_pieces = 5; // nobody has row 1, and a row of the slice is not used
    expect_failure(&b, &rule, CKPT_EMISMATCH, "slice of rank 1");
    mixed_pieces(&p);
    p.shape[0] = UINT64_MAX;
    expect_failure(&b, &rule, CKPT_EFORMAT, "overflows");
    bench_free(&b);
}

/* ---- what does not fit ---- */

static void test_refusals(void **state)
{
    static const uint64_t a[2] = {2, 3}, c[2] = {2, 4}, line[1] = {6}, wide[2] = {6, 1};
    const ckpt_slice_rule rows = {0}, columns = {.axis = 1}, same = {.kind = CKPT_SLICE_SAME};
    static bench b;

    (void)state;
    bench_new(&b, 2);
    bench_part(&b, 0, 2, a);
    bench_part(&b, 1, 2, c);
    bench_lay(&b, 0, WHOLE, 0);
    bench_lay(&b, 1, WHOLE, 0);
    expect_failure(&b, &rows, CKPT_EMISMATCH, "rank 1 holds [2, 4]");
    expect_failure(&b, &same, CKPT_EMISMATCH, "rank 0 holds [2, 3]");
    bench_part(&b, 1, 1, line);
    bench_lay(&b, 1, WHOLE, 0);
    expect_failure(&b, &rows, CKPT_EMISMATCH, "rank 1 holds [6]");
    bench_part(&b, 0, 1, line);
    bench_lay(&b, 0, WHOLE, 0);
    expect_failure(&b, &columns, CKPT_EMISMATCH, "axis 1");
    bench_part(&b, 0, 0, line);
    bench_part(&b, 1, 0, line);
    bench_lay(&b, 0, WHOLE, 0);
    bench_lay(&b, 1, WHOLE, 0);
    expect_failure(&b, &rows, CKPT_EMISMATCH, "replicated");
    bench_free(&b);
    // dtypes
    bench_new(&b, 2);
    for (uint32_t r = 0; r < 2; r++) {
        bench_part(&b, r, 2, wide);
        bench_lay(&b, r, WHOLE, 0);
    }
    b.slice[1]->dtype = CKPT_I32;
    expect_failure(&b, &rows, CKPT_EMISMATCH, "I32 on rank 1");
    b.slice[1]->dtype = CKPT_F32;
    b.slice[1]->owner = b.slice[0];
    expect_failure(&b, &rows, CKPT_EUSAGE, "alias");
    bench_free(&b);
}

/* One slice is the whole, whatever its rule and its axes. */
static void test_one_rank(void **state)
{
    static const uint64_t shape[2] = {3, 4};
    const ckpt_slice_rule rules[] = {{0},
                                     {.kind = CKPT_SLICE_CAT, .axis = 7},
                                     {.kind = CKPT_SLICE_SUB, .n_subs = 5},
                                     {.kind = CKPT_SLICE_SAME},
                                     {.kind = CKPT_SLICE_MEAN}};

    (void)state;
    for (uint32_t ndim = 0; ndim <= 2; ndim++) {
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
            static bench b;
            array want;
            const ckpt_tensor *t;

            bench_new(&b, 1);
            bench_part(&b, 0, ndim, shape);
            bench_lay(&b, 0, WHOLE, 0);
            want = b.part[0];
            t = expect(&b, &rules[i], &want);
            assert_null(t->twin);
            assert_null(t->addend);
            bench_free(&b);
        }
    }
}

/* A large matrix cut over 8 tensor-parallel and 1024 data-parallel ranks: checked in no time. */
static void test_many_fragments(void **state)
{
    enum { TP = 8, DP = 1024 };
    const uint64_t shape[2] = {12288, 6144};
    const uint64_t n = shape[0] * shape[1], each = n / DP + 1;
    const ckpt_source zero = {.kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX};
    const ckpt_slice_rule columns = {.axis = 1};
    const ckpt_tensor *view[TP];
    const ckpt_slice_set set = {"w", view, TP};
    ckpt_map *map = help_map();
    ckpt_tensor *whole = NULL;
    ckpt_err err = {0};
    uint32_t source = 0;

    (void)state;
    assert_int_equal(ckpt_map_add_source(map, &zero, &source, &err), CKPT_OK);
    for (uint32_t r = 0; r < TP; r++) {
        const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 2, .shape = shape, .n_elems = n};
        static ckpt_axis axis[DP];
        static ckpt_extent e[DP];
        ckpt_tensor *t = NULL;

        for (uint32_t k = 0; k < DP; k++) {
            uint64_t first = k * each;

            axis[k] = (ckpt_axis){first, n - first < each ? n - first : each, 4};
            e[k] = (ckpt_extent){source, 1, 0, &axis[k]};
        }
        assert_int_equal(ckpt_map_add_hidden(map, "part", 4, &like, &t, &err), CKPT_OK);
        help_back(map, t, e, DP);
        view[r] = t;
    }
    assert_int_equal(ckpt_slices_join(&whole, map, &columns, &set, &err), CKPT_OK);
    assert_int_equal(whole->shape[1], 6144 * TP);
    assert_true(whole->n_extents >= TP * DP && whole->n_extents <= 3 * TP * DP);
    assert_int_equal(ckpt_extent_check(whole, &err), CKPT_OK);
    ckpt_map_free(map);
}

static void test_memory_failures(void **state)
{
    static const uint64_t shape[2] = {4, 4};
    static pieces p;
    const ckpt_slice_rule rules[] = {{.axis = 1},
                                     {.kind = CKPT_SLICE_SUB, .n_subs = 2},
                                     {.kind = CKPT_SLICE_SAME},
                                     {.kind = CKPT_SLICE_MEAN},
                                     {.kind = CKPT_SLICE_AFFINE, .affine = &p.map}};

    (void)state;
    mixed_pieces(&p);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        for (unsigned k = 0;; k++) {
            static bench b;
            const ckpt_slice_set set = {"w", b.view, 2};
            ckpt_tensor *t = NULL;
            ckpt_err err = {0};
            int rc;

            bench_new(&b, 2);
            for (uint32_t r = 0; r < 2; r++) {
                bench_part(&b, r, 2, shape);
                bench_lay(&b, r, HALVES, 7);
            }
            give_twins(&b);
            ckpt_alloc_fail_at(k);
            rc = ckpt_slices_join(&t, b.map, &rules[i], &set, &err);
            ckpt_alloc_fail_at(UINT64_MAX);
            bench_free(&b);
            if (rc == CKPT_OK)
                break;
            assert_int_equal(rc, CKPT_ELIMIT);
            assert_null(t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concatenation),  cmocka_unit_test(test_sub_parameters),
        cmocka_unit_test(test_vocabulary),     cmocka_unit_test(test_even_sub_parameters),
        cmocka_unit_test(test_views),          cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_means),          cmocka_unit_test(test_affine_rows),
        cmocka_unit_test(test_affine_columns), cmocka_unit_test(test_affine_refusals),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_many_fragments), cmocka_unit_test(test_memory_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
