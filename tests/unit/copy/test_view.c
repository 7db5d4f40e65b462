/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_view.c: files of a view: rows that lie between others, literals, gaps; damage, changes and
 * doubtful values where they are read.
 */
#include <fcntl.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "libckpt/copy/view.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { ROWS = 700, WIDE = 256, N = ROWS * WIDE * 4 };

static help_dir dir;
static uint64_t seed = 5;

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* Two tensors of ROWS x WIDE floats, each a record of one file. */
static ckpt_map *source_map(float *values)
{
    static const uint64_t shape[] = {ROWS, WIDE};
    ckpt_map *map = help_map();

    help_write(help_join(&dir, "in"), values, 2 * N);
    uint32_t file = help_input(map, help_join(&dir, "in"));
    for (unsigned i = 0; i < 2; i++) {
        uint32_t s = help_source(map, file, i * N, N);

        help_crc(map, s, (uint8_t *)values + i * N, N);
        help_whole(map, help_tensor(map, i ? "b" : "a", CKPT_F32, 2, shape), s, 0);
    }
    return map;
}

/* Both in one record: their rows take turns behind a literal of 100 bytes, and a gap follows. */
static ckpt_map *mixed_map(ckpt_dtype dtype, uint64_t *size)
{
    static const uint64_t shape[] = {ROWS, WIDE};
    static const char text[100] = "a header";
    ckpt_map *map = help_map();
    uint64_t wide = dtype == CKPT_F32 ? 4 : 2, row = WIDE * wide;
    ckpt_err err = {0};

    *size = 100 + ROWS * 2 * row + 5000;
    uint32_t file = help_output(map, "out", *size), s = help_source(map, file, 100, ROWS * 2 * row);
    assert_int_equal(ckpt_map_add_literal(map, file, 0, text, sizeof text, &err), CKPT_OK);
    for (unsigned i = 0; i < 2; i++) {
        ckpt_axis axis[] = {{0, ROWS, (int64_t)(2 * row)}, {0, WIDE, (int64_t)wide}};
        const ckpt_extent e = {.source = s, .at = i * row, .ndim = 2, .axis = axis};

        help_back(map, help_tensor(map, i ? "b" : "a", dtype, 2, shape), &e, 1);
    }
    return map;
}

static ckpt_view *view_of(const ckpt_map *from, ckpt_map *to, const ckpt_run_opts *run, bool first)
{
    static const ckpt_view_hooks none;
    ckpt_plan *plan = NULL;
    ckpt_view *v = NULL;
    ckpt_err err = {0};

    assert_int_equal(
        ckpt_plan_make(&plan, from, to, ckpt_view_block(to, run->memory, run->jobs), &err),
        CKPT_OK);
    assert_int_equal(ckpt_view_make(&v, plan, run, first, &none, &err), CKPT_OK);
    return v;
}

static void *drop(ckpt_view *v, ckpt_map *from, ckpt_map *to)
{
    ckpt_view_free(v);
    ckpt_map_free(from);
    ckpt_map_free(to);
    return NULL;
}

/* Any range is what a run writes. */
static void test_ranges(void **state)
{
    float *values = help_values(N / 2, 3);
    uint64_t size, n;

    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        const ckpt_run_opts run = {.memory = round % 2 ? 1u << 20 : 0, .jobs = 2};
        ckpt_dtype dtype = round < 2 ? CKPT_F32 : CKPT_BF16;
        ckpt_map *from = source_map(values), *to = mixed_map(dtype, &size), *again;
        ckpt_err err = {0};

        help_remove(help_join(&dir, "out"));
        assert_int_equal(help_convert(&dir, from, to, &run, NULL, &err), CKPT_OK);
        uint8_t *want = help_read(help_join(&dir, "out/out"), &n), *got = ckpt_alloc(n);
        assert_int_equal(n, size);
        again = mixed_map(dtype, &size);
        ckpt_view *v = view_of(from, again, &run, round == 3);
        assert_int_equal(ckpt_view_file_count(v), 1);
        assert_string_equal(ckpt_view_file_path(v, 0), "out");
        assert_int_equal(ckpt_view_file_size(v, 0), size);
        for (unsigned i = 0; i < 300; i++) {
            uint64_t at = draw(size), some = draw(i % 10 ? 3000 : size - at) + 1;

            some = some < size - at ? some : size - at;
            assert_int_equal(ckpt_view_read(v, 0, got, some, at, &err), CKPT_OK);
            assert_memory_equal(got, want + at, some);
        }
        assert_int_equal(ckpt_view_read(v, 0, got, size, 0, &err), CKPT_OK);
        assert_memory_equal(got, want, size);
        assert_int_equal(ckpt_view_read(v, 0, got, 0, size, &err), CKPT_OK);
        assert_int_equal(ckpt_view_read(v, 0, got, 1, size, &err), CKPT_EUSAGE);
        assert_int_equal(ckpt_view_read(v, 0, got, UINT64_MAX, 1, &err), CKPT_EUSAGE);
        assert_int_equal(ckpt_view_read(v, 1, got, 1, 0, &err), CKPT_EUSAGE);
        ckpt_view_counts counts;
        ckpt_view_get_counts(v, &counts);
        assert_true(counts.n_held == 2 && counts.n_bad == 0 && counts.n_partly == 0);
        ckpt_free(want);
        ckpt_free(got);
        drop(v, from, to);
        ckpt_map_free(again);
    }
    ckpt_free(values);
}

static void flip(const char *name, off_t at)
{
    int fd = open(help_join(&dir, name), O_RDWR);
    uint8_t byte = 0;

    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* A changed bit is found when all of its record was read, or before its first byte. */
static void test_damage(void **state)
{
    float *values = help_values(N / 2, 3);
    uint8_t *got = ckpt_alloc(3 * N);

    (void)state;
    for (unsigned first = 0; first < 2; first++) {
        // jobs of a part of a record
        const ckpt_run_opts run = {.jobs = 2, .memory = 1 << 20};
        uint64_t size;
        ckpt_map *from = source_map(values), *to = mixed_map(CKPT_F32, &size);
        ckpt_err err = {0};

        // as if it had been so when the map was read
        flip("in", N + 1000);
        ckpt_map_file *f = &from->files.at[0];
        const char *path = f->path;
        ckpt_io *io = NULL;
        assert_int_equal(ckpt_io_open(&io, help_join(&dir, "in"), &err), CKPT_OK);
        ckpt_io_identify(io, f);
        f->path = path;
        ckpt_io_close(io);
        ckpt_view *v = view_of(from, to, &run, first);
        // the literal is nobody's
        assert_int_equal(ckpt_view_read(v, 0, got, 50, 0, &err), CKPT_OK);
        int rc = ckpt_view_read(v, 0, got, WIDE * 4, 100 + WIDE * 4, &err);
        assert_int_equal(rc, first ? CKPT_EFORMAT : CKPT_OK);
        assert_int_equal(ckpt_view_read(v, 0, got, size, 0, &err), CKPT_EFORMAT);
        assert_non_null(strstr(err.text, "record 'rec'"));
        assert_int_equal(ckpt_view_read(v, 0, got, 10, 100 + WIDE * 4, NULL), CKPT_EFORMAT);
        ckpt_view_counts counts;
        ckpt_view_get_counts(v, &counts);
        assert_int_equal(counts.n_bad, 1);
        drop(v, from, to);
    }
    ckpt_free(values);
    ckpt_free(got);
}

/* What changes underneath is not mixed with what was read. */
static void test_changed(void **state)
{
    const ckpt_run_opts run = {.jobs = 1, .memory = 1 << 16};
    float *values = help_values(N / 2, 3);
    uint8_t *got = ckpt_alloc(3 * N);
    uint64_t size;
    ckpt_map *from = source_map(values), *to = mixed_map(CKPT_F32, &size);
    ckpt_view *v = view_of(from, to, &run, false);
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_view_read(v, 0, got, 5000, 100, &err), CKPT_OK);
    flip("in", 2 * N - 4);
    assert_int_equal(ckpt_view_read(v, 0, got, 5000, size - 12000, &err), CKPT_EIO);
    drop(v, from, to);
    ckpt_free(values);
    ckpt_free(got);
}

/* Values that a conversion refuses are refused where they are read. */
static void test_doubt(void **state)
{
    const ckpt_run_opts run = {.jobs = 1};
    float *values = help_values(N / 2, 3);
    uint64_t size, row = WIDE * 2;
    uint8_t got[WIDE * 2];

    (void)state;
    values[(ROWS - 1) * WIDE] = 1e6f;
    ckpt_map *from = source_map(values), *to = mixed_map(CKPT_F16, &size);
    ckpt_view *v = view_of(from, to, &run, false);
    ckpt_err err = {0};
    ckpt_view_counts counts;
    assert_int_equal(ckpt_view_read(v, 0, got, row, 100 + (ROWS - 1) * 2 * row, &err), CKPT_EDOUBT);
    assert_non_null(strstr(err.text, "tensor a"));
    assert_int_equal(ckpt_view_read(v, 0, got, row, 100 + (ROWS - 1) * 2 * row + row, &err),
                     CKPT_OK);
    ckpt_view_get_counts(v, &counts);
    assert_true(counts.n_over > 0);
    drop(v, from, to);
    ckpt_free(values);
}

typedef struct poured {
    uint8_t *to;
    uint64_t n, most;
} poured;

static int take(void *ctx, const void *bytes, uint64_t n, ckpt_err *err)
{
    poured *p = ctx;

    if (p->n + n > p->most)
        return ckpt_fail(err, CKPT_ECANCELED, "enough");
    memcpy(p->to + p->n, bytes, n);
    p->n += n;
    return CKPT_OK;
}

/* A stream is the file, ends when told to, and comes before reads. */
static void test_stream(void **state)
{
    const ckpt_run_opts run = {.jobs = 3};
    float *values = help_values(N / 2, 3);
    uint64_t size;

    (void)state;
    for (unsigned stops = 0; stops < 2; stops++) {
        ckpt_map *from = source_map(values), *to = mixed_map(CKPT_F32, &size);
        ckpt_view *v = view_of(from, to, &run, false);
        uint8_t *got = ckpt_alloc(size);
        poured p = {.to = ckpt_alloc(size), .most = stops ? size / 2 : size};
        ckpt_err err = {0};

        assert_int_equal(ckpt_view_stream(v, 0, take, &p, &err), stops ? CKPT_ECANCELED : CKPT_OK);
        if (!stops) {
            assert_int_equal(p.n, size);
            assert_int_equal(ckpt_view_read(v, 0, got, size, 0, &err), CKPT_OK);
            assert_memory_equal(got, p.to, size);
            assert_int_equal(ckpt_view_stream(v, 0, take, &p, &err), CKPT_EUSAGE);
        }
        // what a stream has left half made is not waited for
        if (stops)
            assert_int_equal(ckpt_view_read(v, 0, got, 1, 0, NULL), CKPT_EUSAGE);
        ckpt_free(p.to);
        ckpt_free(got);
        drop(v, from, to);
    }
    ckpt_free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_doubt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stream, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
