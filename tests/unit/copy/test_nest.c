/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nest.c: sources that are tensors, or computed from them, through check, plan, executor,
 * reader, conversion and fingerprint; in one another; when reads fail, records are damaged and
 * copies differ.
 */
#include <pthread.h>

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "libckpt/commit/journal.h"
#include "libckpt/map/nest.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { ROWS = 160, WIDTH = 600, N = ROWS * WIDTH };

static help_dir dir;
static float first[N], second[N]; /* two slices whose mean "base" is */
static uint16_t copy[N];          /* of first, in bf16 */

/* ---- an operation: scale * (a + b), after the scale was read from a tensor of one element ---- */

typedef struct sum_make {
    ckpt_make make; /* first */
    const ckpt_tensor *in[3];
    float *scale;
    unsigned n_prepared, fail; /* fail: this many preparations do */
} sum_make;

static int sum_prepare(ckpt_make *m, ckpt_inputs *in, ckpt_err *err)
{
    sum_make *s = (sum_make *)(void *)m;

    s->n_prepared++;
    if (s->fail > 0 && s->fail--)
        return ckpt_fail(err, CKPT_EIO, "not today");
    ckpt_free(s->scale);
    s->scale = ckpt_alloc(sizeof *s->scale);
    return in->read(in, s->in[2], &(const ckpt_axis){0, 1, 0}, CKPT_F32, s->scale, err);
}

static int sum_run(const ckpt_make *m, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                   ckpt_err *err)
{
    const sum_make *s = (const sum_make *)(const void *)m;

    if (m->step > 0)
        assert_in_range(n, 1, m->step - at % m->step);
    float *x = to, *y = in->scratch(in, n * sizeof *y);
    int rc = y ? in->read(in, s->in[0], &(const ckpt_axis){at, n, 0}, CKPT_F32, x, err)
               : ckpt_fail_memory(err);

    if (rc == CKPT_OK)
        rc = in->read(in, s->in[1], &(const ckpt_axis){at, n, 0}, CKPT_F32, y, err);
    for (uint64_t i = 0; rc == CKPT_OK && i < n; i++)
        x[i] = *s->scale * (x[i] + y[i]);
    return rc;
}

static void sum_release(ckpt_make *m)
{
    sum_make *s = (sum_make *)(void *)m;

    ckpt_free(s->scale);
    s->scale = NULL;
}

/* ---- maps ---- */

static ckpt_tensor *hidden(ckpt_map *map, const char *name, ckpt_dtype dtype, unsigned ndim,
                           const uint64_t *shape)
{
    ckpt_tensor like = {.dtype = dtype, .ndim = ndim, .shape = shape, .n_elems = 1}, *t = NULL;
    ckpt_err err = {0};

    for (unsigned i = 0; i < ndim; i++)
        like.n_elems *= shape[i];
    assert_int_equal(ckpt_map_add_hidden(map, name, strlen(name), &like, &t, &err), CKPT_OK);
    return t;
}

/* A file's bytes as the values of a tensor. */
static uint32_t record(ckpt_map *map, ckpt_tensor *t, const char *name, const void *bytes, size_t n)
{
    help_write(help_join(&dir, name), bytes, n);
    uint32_t s = help_source(map, help_input(map, help_join(&dir, name)), 0, n);
    help_crc(map, s, bytes, n);
    help_whole(map, t, s, 0);
    return s;
}

static uint32_t nested(ckpt_map *map, const ckpt_tensor *t)
{
    uint32_t s = 0;
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_add_nested(map, t, &s, &err), CKPT_OK);
    return s;
}

/* The mean of two files, the first of which has a copy in a third: not in the list. */
static ckpt_tensor *base(ckpt_map *map)
{
    const uint64_t shape[2] = {ROWS, WIDTH};
    ckpt_tensor *t = hidden(map, "base", CKPT_F32, 2, shape);
    ckpt_tensor *a = hidden(map, "base", CKPT_F32, 2, shape);
    ckpt_tensor *c = hidden(map, "base", CKPT_BF16, 2, shape);

    (void)record(map, t, "first", first, sizeof first);
    (void)record(map, a, "second", second, sizeof second);
    (void)record(map, c, "copy", copy, sizeof copy);
    t->addend = a;
    t->twin = c;
    return t;
}

static float base_at(uint64_t k)
{
    return (0.0f + first[k] + second[k]) / 2;
}

/* "turned": the base transposed. */
static ckpt_tensor *turned(ckpt_map *map, const ckpt_tensor *of)
{
    const uint64_t shape[2] = {WIDTH, ROWS};
    const ckpt_axis axis[2] = {{0, WIDTH, 4}, {0, ROWS, 4 * WIDTH}};
    const ckpt_extent e = {nested(map, of), 2, 0, axis};
    ckpt_tensor *t = help_tensor(map, "turned", CKPT_F32, 2, shape);

    help_back(map, t, &e, 1);
    return t;
}

static float turned_at(uint64_t k)
{
    return base_at(k % ROWS * WIDTH + k / ROWS);
}

/* "swapped": the rows of turned in pairs, the second of each first. */
static ckpt_tensor *swapped(ckpt_map *map, const ckpt_tensor *of)
{
    const uint64_t shape[3] = {WIDTH / 2, 2, ROWS};
    const ckpt_axis axis[2][3] = {{{0, WIDTH / 2, 8 * ROWS}, {0, 1, 4 * ROWS}, {0, ROWS, 4}},
                                  {{0, WIDTH / 2, 8 * ROWS}, {1, 1, 4 * ROWS}, {0, ROWS, 4}}};
    uint32_t s = nested(map, of);
    const ckpt_extent e[2] = {{s, 3, 4 * ROWS, axis[0]}, {s, 3, 0, axis[1]}};
    ckpt_tensor *t = help_tensor(map, "swapped", CKPT_F32, 3, shape);

    help_back(map, t, e, 2);
    return t;
}

static float swapped_at(uint64_t k)
{
    uint64_t row = k / ROWS;

    return turned_at((row ^ 1) * ROWS + k % ROWS);
}

/* "made": the base's first element times (base + turned), element by element. */
static ckpt_tensor *made(ckpt_map *map, sum_make *m, const ckpt_tensor *a, const ckpt_tensor *b)
{
    const uint64_t shape[2] = {ROWS, WIDTH}, one[1] = {1};
    ckpt_tensor *t = help_tensor(map, "made", CKPT_F32, 2, shape);
    ckpt_tensor *scale = hidden(map, "scale", CKPT_F32, 1, one);
    uint32_t s = 0;
    ckpt_err err = {0};

    help_whole(map, scale, nested(map, a), 0);
    *m = (sum_make){.make = {.name = "made",
                             .dtype = CKPT_F32,
                             .n_inputs = 3,
                             .input = m->in,
                             .prepare = sum_prepare,
                             .make = sum_run,
                             .release = sum_release},
                    .in = {a, b, scale}};
    assert_int_equal(ckpt_map_add_made(map, &m->make, N, &s, &err), CKPT_OK);
    help_whole(map, t, s, 0);
    return t;
}

static float made_at(uint64_t k)
{
    return base_at(0) * (base_at(k) + turned_at(k));
}

static ckpt_map *all_map(sum_make *m)
{
    ckpt_map *map = help_map();
    const ckpt_tensor *b = base(map), *t = turned(map, b);

    (void)swapped(map, t);
    (void)made(map, m, b, t);
    map->path = "nest";
    map->format = "memory";
    return map;
}

static float (*const want_at[3])(uint64_t) = {turned_at, swapped_at, made_at};

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    help_noise(first, sizeof first, 3);
    help_noise(second, sizeof second, 4);
    ckpt_cast_find(CKPT_BF16, CKPT_F32)(copy, first, N);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

/* ---- tests ---- */

static void through_a_conversion_by_several_threads(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        const ckpt_run_opts opts = {.jobs = 1 + round, .memory = round % 2 ? 400000 : 0};
        const ckpt_target target = {.path = help_join(&dir, "w.safetensors"),
                                    .format = "safetensors"};
        ckpt_run_report report = {0};
        sum_make m;
        ckpt_map *map = all_map(&m), *back = NULL;
        ckpt_reader *r = NULL;
        ckpt_err err = {0};
        static float got[N];

        assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
        assert_int_equal(ckpt_convert(map, &target, &opts, &report, &err), CKPT_OK);
        assert_int_equal(m.n_prepared, 1);
        assert_true(report.n_compared >= 3 * N);
        assert_int_equal(report.n_records_checked, 3);
        assert_int_equal(ckpt_open(&back, target.path, NULL, &err), CKPT_OK);
        assert_int_equal(ckpt_reader_new(&r, back, &err), CKPT_OK);
        for (unsigned i = 0; i < 3; i++) {
            const char *name = map->tensors.at[i]->name;
            const ckpt_tensor *t = back->tensors.at[ckpt_map_index(back, name, strlen(name))];

            assert_int_equal(ckpt_reader_read(r, t, 0, N, CKPT_F32, got, &err), CKPT_OK);
            for (uint64_t k = 0; k < N; k++)
                assert_true(got[k] == want_at[i](k));
        }
        ckpt_reader_free(r);
        ckpt_map_free(back);
        ckpt_map_free(map);
        assert_int_equal(unlink(target.path), 0);
    }
}

/* Values are converted in pieces, each made in steps: both cut this tensor at odd places. */
static void steps_and_pieces_change_no_value(void **state)
{
    static uint16_t want[N], got[N];
    static float wide[N];

    (void)state;
    for (uint64_t k = 0; k < N; k++)
        wide[k] = made_at(k);
    ckpt_cast_find(CKPT_BF16, CKPT_F32)(want, wide, N);
    for (uint64_t step = 0; step <= 4096; step = step * 8 + 1) {
        const ckpt_run_opts opts = {.jobs = 2};
        const ckpt_target target = {
            .path = help_join(&dir, "w.safetensors"), .format = "safetensors", .dtype = CKPT_BF16};
        sum_make m;
        ckpt_map *map = all_map(&m), *back = NULL;
        ckpt_reader *r = NULL;
        ckpt_err err = {0};

        m.make.step = step;
        assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_OK);
        assert_int_equal(ckpt_open(&back, target.path, NULL, &err), CKPT_OK);
        assert_int_equal(ckpt_reader_new(&r, back, &err), CKPT_OK);
        const ckpt_tensor *t = back->tensors.at[ckpt_map_index(back, "made", 4)];

        assert_int_equal(ckpt_reader_read(r, t, 0, N, CKPT_BF16, got, &err), CKPT_OK);
        assert_memory_equal(got, want, sizeof want);
        ckpt_reader_free(r);
        ckpt_map_free(back);
        ckpt_map_free(map);
        assert_int_equal(unlink(target.path), 0);
    }
}

static void through_the_reader(void **state)
{
    static double wide[N];
    sum_make m;
    ckpt_map *map = all_map(&m);
    ckpt_reader *r = NULL;
    ckpt_err err = {0};
    const ckpt_slice part[2] = {{3, 20, 7}, {100, 9, 5}};

    (void)state;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    for (unsigned i = 0; i < 3; i++) {
        const ckpt_tensor *t = map->tensors.at[i];

        assert_int_equal(ckpt_reader_read(r, t, 1, N - 5, CKPT_F64, wide, &err), CKPT_OK);
        for (uint64_t k = 0; k < N - 5; k++)
            assert_true(wide[k] == (double)want_at[i](k + 1));
    }
    assert_int_equal(ckpt_reader_read_slice(r, map->tensors.at[2], part, CKPT_F64, wide, &err),
                     CKPT_OK);
    for (uint64_t k = 0; k < 20 * 9; k++)
        assert_true(wide[k] == (double)made_at((3 + k / 9 * 7) * WIDTH + 100 + k % 9 * 5));
    ckpt_reader_free(r);
    ckpt_map_free(map);
}

/* Bytes that are read for a strided view are blocks, not elements: memory that counts its reads. */
typedef struct island {
    ckpt_far far; /* first */
    uint64_t n_reads, fail_at;
} island;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int island_read(const ckpt_far *far, void *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    island *i = (island *)(uintptr_t)far;
    bool fails;

    pthread_mutex_lock(&lock);
    fails = i->n_reads++ >= i->fail_at;
    pthread_mutex_unlock(&lock);
    if (fails)
        return ckpt_fail(err, CKPT_EIO, "the island is under water");
    memcpy(to, (const char *)first + at, (size_t)n);
    return CKPT_OK;
}

static ckpt_map *island_map(island *i, sum_make *m)
{
    const uint64_t shape[2] = {ROWS, WIDTH};
    ckpt_map *map = help_map();
    ckpt_tensor *b = hidden(map, "base", CKPT_F32, 2, shape);
    const ckpt_source s = {.kind = CKPT_SOURCE_FAR, .memory = i, .n_bytes = sizeof first};
    uint32_t index = 0;
    ckpt_err err = {0};

    i->far.read = island_read;
    assert_int_equal(ckpt_map_add_source(map, &s, &index, &err), CKPT_OK);
    help_whole(map, b, index, 0);
    ckpt_tensor *t = turned(map, b);
    (void)swapped(map, t);
    (void)made(map, m, b, t);
    map->path = "nest";
    map->format = "memory";
    return map;
}

static void strided_views_read_blocks_and_failures_leave_nothing(void **state)
{
    const ckpt_run_opts opts = {.jobs = 2, .memory = 4000000};
    const ckpt_target target = {.path = help_join(&dir, "w.safetensors"), .format = "safetensors"};
    uint64_t n_reads;
    island i = {.fail_at = UINT64_MAX};
    sum_make m;
    ckpt_err err = {0};
    ckpt_map *map = island_map(&i, &m);

    (void)state;
    assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_OK);
    n_reads = i.n_reads;
    assert_in_range(n_reads, 4, 400);
    assert_int_equal(unlink(target.path), 0);
    ckpt_map_free(map);
    for (uint64_t at = 0; at < n_reads; at += 1 + n_reads / 20) {
        int n_before = help_count(dir.path);

        i = (island){.fail_at = at};
        map = island_map(&i, &m);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_EIO);
        assert_non_null(strstr(err.text, "under water"));
        assert_int_equal(help_count(dir.path), n_before);
        ckpt_map_free(map);
    }
}

static void a_preparation_that_failed_is_tried_again(void **state)
{
    sum_make m;
    ckpt_map *map = all_map(&m);
    ckpt_reader *r = NULL;
    ckpt_err err = {0};
    float got[2];

    (void)state;
    m.fail = 1;
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, map->tensors.at[2], 7, 2, CKPT_F32, got, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "not today"));
    assert_int_equal(ckpt_reader_read(r, map->tensors.at[2], 7, 2, CKPT_F32, got, &err), CKPT_OK);
    assert_true(got[0] == made_at(7) && got[1] == made_at(8));
    assert_int_equal(m.n_prepared, 2);
    ckpt_reader_free(r);
    ckpt_map_free(map);
}

/* What is wrong inside is told as if the tensor were converted itself. */
static void damage_and_unlike_copies_inside_are_told(void **state)
{
    const ckpt_run_opts opts = {.jobs = 2};
    char path[300];
    const ckpt_target target = {.path = path, .format = "safetensors"};
    sum_make m;
    ckpt_map *map = all_map(&m);
    ckpt_err err = {0};

    (void)state;
    // help_join's own paths are used again by all_map
    (void)snprintf(path, sizeof path, "%s", help_join(&dir, "w.safetensors"));
    map->sources.at[1].crc ^= 4;
    assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "second: record 'rec': CRC-32"));
    ckpt_map_free(map);
    err = (ckpt_err){0};
    copy[4321] ^= 1;
    map = all_map(&m);
    copy[4321] ^= 1;
    assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "copy: tensor base: element 4321: master value"));
    ckpt_map_free(map);
    assert_int_equal(access(target.path, F_OK), -1);
}

static void circles_lies_and_cut_elements_are_refused(void **state)
{
    const uint64_t shape[2] = {ROWS, WIDTH}, less[1] = {10};
    sum_make m;
    ckpt_map *map = all_map(&m);
    ckpt_tensor *t = help_tensor(map, "cut", CKPT_F32, 1, less);
    ckpt_reader *r = NULL;
    ckpt_err err = {0};
    float got[10];

    (void)state;
    help_whole(map, t, nested(map, map->tensors.at[0]), 2);
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, t, 0, 10, CKPT_F32, got, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "are not whole elements"));
    ckpt_reader_free(r);
    // a source that claims more than its tensor has
    err = (ckpt_err){0};
    map->sources.at[map->sources.n - 1].n_bytes++;
    assert_int_equal(ckpt_map_check(map, &err), CKPT_EMISMATCH);
    map->sources.at[map->sources.n - 1].n_bytes--;
    // a tensor that is made of itself, two steps on
    ckpt_tensor *a = hidden(map, "a", CKPT_F32, 2, shape),
                *b = hidden(map, "b", CKPT_F32, 2, shape);
    help_whole(map, a, nested(map, b), 0);
    help_whole(map, b, nested(map, a), 0);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_map_check(map, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "in a circle"));
    err = (ckpt_err){0};
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_EUSAGE);
    ckpt_map_free(map);
}

/* As deep as it may be, and one more. */
static void the_depth_is_bounded(void **state)
{
    const uint64_t shape[2] = {ROWS, WIDTH};
    ckpt_map *map = help_map();
    ckpt_tensor *t = base(map);
    ckpt_reader *r = NULL;
    ckpt_err err = {0};
    float got[3];

    (void)state;
    for (unsigned i = 0; i < CKPT_NEST_MAX; i++) {
        ckpt_tensor *next = hidden(map, "next", CKPT_F32, 2, shape);

        help_whole(map, next, nested(map, t), 0);
        t = next;
    }
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_read(r, t, 1000, 3, CKPT_F32, got, &err), CKPT_OK);
    assert_true(got[2] == base_at(1002));
    ckpt_reader_free(r);
    (void)nested(map, t);
    assert_int_equal(ckpt_map_check(map, &err), CKPT_EUSAGE);
    ckpt_map_free(map);
}

static void the_terms_are_part_of_a_fingerprint(void **state)
{
    static float room[N];
    ckpt_map *to = help_memory(room, sizeof room);
    sum_make m;
    ckpt_map *map = all_map(&m);
    char text[4][65];
    ckpt_err err = {0};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        if (i > 0)
            m.make.terms = "x 1";
        if (i > 2)
            m.make.terms = "x 2";
        assert_int_equal(ckpt_journal_fingerprint(text[i], to, map, false, &err), CKPT_OK);
    }
    ckpt_map_free(map);
    assert_string_not_equal(text[0], text[1]);
    assert_string_equal(text[1], text[2]);
    assert_string_not_equal(text[2], text[3]);
    ckpt_map_free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_a_conversion_by_several_threads),
        cmocka_unit_test(steps_and_pieces_change_no_value),
        cmocka_unit_test(through_the_reader),
        cmocka_unit_test(strided_views_read_blocks_and_failures_leave_nothing),
        cmocka_unit_test(a_preparation_that_failed_is_tried_again),
        cmocka_unit_test(damage_and_unlike_copies_inside_are_told),
        cmocka_unit_test(circles_lies_and_cut_elements_are_refused),
        cmocka_unit_test(the_depth_is_bounded),
        cmocka_unit_test(the_terms_are_part_of_a_fingerprint),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
