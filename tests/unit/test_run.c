/*
 * test_run.c: conversions of maps made by hand: values, proofs, failures, and what is left after
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <utime.h>

#include "copy_help.h"
#include "libckpt/base/cast.h"
#include "libckpt/copy/run.h"

enum { WORLD = 3, N_TENSORS = 5, HEADER = 64 };

/* Partitions of five tensors in three files, as ZeRO stage 3 keeps them, and what they hold. */
typedef struct zero3 {
    ckpt_map *from, *to;
    float *values[N_TENSORS]; /* expected, in the order of the tensors */
    uint64_t numel[N_TENSORS];
    uint64_t n_file; /* bytes of each input file */
} zero3;

static help_dir dir;
static const char *const rank_name[WORLD] = {"rank0", "rank1", "rank2"};
static const char *const tensor_name[N_TENSORS] = {"embed", "w.0", "bias", "w.1", "head"};

static int setup(void **state)
{
    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    help_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

static float *new_values(uint64_t n, uint64_t seed)
{
    float *p = ckpt_alloc(n * sizeof *p);

    assert_non_null(p);
    help_noise(p, n * sizeof *p, seed);
    return p;
}

static uint64_t part_of(uint64_t numel)
{
    return (numel + WORLD - 1) / WORLD;
}

/* Write the files: a header, then each tensor's partition; the padding of the last one is rubbish.
 */
static void zero3_write(zero3 *z)
{
    for (unsigned r = 0; r < WORLD; r++) {
        uint8_t *bytes = ckpt_alloc(z->n_file), *p = bytes + HEADER;
        uint32_t file, source;

        memset(bytes, 0xa5, z->n_file);
        for (unsigned i = 0; i < N_TENSORS; i++) {
            uint64_t part = part_of(z->numel[i]), at = r * part;

            if (at < z->numel[i])
                memcpy(p, z->values[i] + at,
                       (z->numel[i] - at < part ? z->numel[i] - at : part) * 4);
            p += part * 4;
        }
        help_write(help_join(&dir, rank_name[r]), bytes, z->n_file);
        file = help_input(z->from, help_join(&dir, rank_name[r]));
        source = help_source(z->from, file, HEADER, z->n_file - HEADER);
        help_crc(z->from, source, bytes + HEADER, z->n_file - HEADER);
        ckpt_free(bytes);
    }
}

/* The maps: from WORLD partitions, to one file of the given dtype with a literal header. */
static void zero3_make(zero3 *z, ckpt_dtype dtype)
{
    static const uint64_t numel[N_TENSORS] = {100003, 30000, 7, 65536, 1};
    uint64_t in = 0, out = 0, size = dtype == CKPT_F32 ? 4 : 2, total = 0;
    uint32_t file, source;
    ckpt_err err = {0};

    *z = (zero3){.from = help_map(), .to = help_map(), .n_file = HEADER};
    for (unsigned i = 0; i < N_TENSORS; i++) {
        z->numel[i] = numel[i];
        z->values[i] = new_values(numel[i], i + 1);
        z->n_file += part_of(numel[i]) * 4;
        total += numel[i] * size;
    }
    zero3_write(z);
    file = help_output(z->to, "out.bin", HEADER + total);
    source = help_source(z->to, file, HEADER, total);
    assert_int_equal(ckpt_map_add_literal(z->to, file, 0, "header", 6, &err), CKPT_OK);
    for (unsigned i = 0; i < N_TENSORS; i++) {
        uint64_t part = part_of(numel[i]);
        ckpt_axis axis[WORLD];
        ckpt_extent e[WORLD];
        uint32_t n = 0;

        for (; n < WORLD && n * part < numel[i]; n++) {
            uint64_t at = n * part;

            axis[n] = (ckpt_axis){at, numel[i] - at < part ? numel[i] - at : part, 4};
            e[n] = (ckpt_extent){n, 1, in, &axis[n]};
        }
        help_back(z->from, help_tensor(z->from, tensor_name[i], CKPT_F32, 1, &numel[i]), e, n);
        help_whole(z->to, help_tensor(z->to, tensor_name[i], dtype, 1, &numel[i]), source, out);
        in += part * 4;
        out += numel[i] * size;
    }
}

static void zero3_free(zero3 *z)
{
    for (unsigned i = 0; i < N_TENSORS; i++)
        ckpt_free(z->values[i]);
    ckpt_map_free(z->to);
    ckpt_map_free(z->from);
}

/* Plan and run into the folder "out". */
static int convert(const ckpt_map *from, ckpt_map *to, const ckpt_run_opts *opts,
                   ckpt_run_report *report, ckpt_err *err)
{
    ckpt_plan *plan = NULL;
    int rc = ckpt_plan_make(&plan, from, to, ckpt_run_block(opts->memory, opts->jobs), err);

    if (rc == CKPT_OK)
        rc = ckpt_run(plan, to->files.n > 0 ? help_join(&dir, "out") : NULL, opts, NULL, report,
                      err);
    ckpt_plan_free(plan);
    return rc;
}

/* A failed conversion: the code, a word of its text, and no trace in the folder. */
static void expect_failure(zero3 *z, const ckpt_run_opts *opts, int code, const char *word)
{
    ckpt_err err = {0};

    assert_int_equal(convert(z->from, z->to, opts, NULL, &err), code);
    if (strstr(err.text, word) == NULL)
        fail_msg("'%s' is not in '%s'", word, err.text);
    assert_int_equal(help_count(help_join(&dir, "out")), -1);
}

static void expect_values(const zero3 *z, ckpt_dtype dtype)
{
    uint64_t n = 0, at = HEADER;
    uint8_t *got = help_read(help_join(&dir, "out/out.bin"), &n);
    ckpt_cast_fn cast = ckpt_cast_find_portable(dtype, CKPT_F32);

    assert_memory_equal(got, "header", 6);
    for (unsigned i = 0; i < N_TENSORS; i++) {
        uint64_t size = z->numel[i] * (dtype == CKPT_F32 ? 4 : 2);
        uint8_t *expect = ckpt_alloc(size);

        cast(expect, z->values[i], z->numel[i]);
        assert_memory_equal(got + at, expect, size);
        at += size;
        ckpt_free(expect);
    }
    assert_int_equal(at, n);
    assert_int_equal(z->to->sources.at[0].has_crc, 1);
    assert_int_equal(z->to->sources.at[0].crc, ckpt_crc32(0, got + HEADER, n - HEADER));
    ckpt_free(got);
}

static void test_partitions(void **state)
{
    static const ckpt_dtype dtype[] = {CKPT_F32, CKPT_BF16};
    static const uint64_t memory[] = {0, 1 << 20, 1};

    (void)state;
    for (unsigned i = 0; i < 2 * 3 * 8; i++) {
        ckpt_run_opts opts = {
            .jobs = 1 + i % 8, .memory = memory[i / 8 % 3], .no_fsync = i % 3 != 0};
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        zero3 z;

        zero3_make(&z, dtype[i / 24]);
        opts.force = i > 0;
        assert_int_equal(convert(z.from, z.to, &opts, &report, &err), CKPT_OK);
        expect_values(&z, dtype[i / 24]);
        assert_int_equal(help_count(help_join(&dir, "out")), 1);
        assert_int_equal(report.n_tensors, N_TENSORS);
        assert_int_equal(report.n_elems, 100003 + 30000 + 7 + 65536 + 1);
        assert_int_equal(report.n_written, report.n_elems * (dtype[i / 24] == CKPT_F32 ? 4 : 2));
        // every byte of the records was read: for the tensors, or to complete the CRC
        assert_int_equal(report.n_read, WORLD * (z.n_file - HEADER));
        assert_int_equal(report.n_records_checked, WORLD);
        assert_int_equal(report.n_records_no_crc, 0);
        assert_int_equal(report.n_nan + report.n_inf, 0);
        assert_int_equal(report.n_files, 1);
        zero3_free(&z);
    }
}

/* ---- records that do not hold what they should ---- */

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    int c;

    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(c ^ 0x10, f), EOF);
    assert_int_equal(fclose(f), 0);
}

/* The file was damaged before it was opened: its identity is what we find. */
static void damage(zero3 *z, unsigned rank, long at)
{
    ckpt_map_file *f = &z->from->files.at[rank];
    struct stat st;

    flip(f->path, at);
    assert_int_equal(stat(f->path, &st), 0);
    f->mtime_s = st.st_mtim.tv_sec;
    f->mtime_ns = st.st_mtim.tv_nsec;
    f->ctime_s = st.st_ctim.tv_sec;
    f->ctime_ns = st.st_ctim.tv_nsec;
}

static void test_flipped_bits(void **state)
{
    const ckpt_run_opts opts = {.jobs = 2};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        zero3 z;

        zero3_make(&z, CKPT_F32);
        // in a tensor; in the padding of the last rank, which no tensor uses but the CRC covers
        damage(&z, i == 0 ? 1 : 2, i == 0 ? 1000 : (long)z.n_file - 2);
        expect_failure(&z, &opts, CKPT_EFORMAT,
                       i == 0 ? "rank1: record 'rec': CRC-32 is" : "rank2: record 'rec'");
        // a map that collects hears of it and goes on
        z.to->collect = true;
        {
            ckpt_err err = {0};
            ckpt_run_report report = {0};

            assert_int_equal(convert(z.from, z.to, &opts, &report, &err), CKPT_OK);
            assert_int_equal(z.to->findings.n, 1);
            assert_int_equal(z.to->findings.at[0].code, CKPT_EFORMAT);
            assert_int_equal(report.n_records_checked, WORLD - 1);
        }
        help_remove(help_join(&dir, "out"));
        zero3_free(&z);
    }
}

static void test_unused_records_are_not_read(void **state)
{
    const ckpt_run_opts opts = {.jobs = 2};
    ckpt_run_report report = {0};
    ckpt_err err = {0};
    zero3 z;

    (void)state;
    zero3_make(&z, CKPT_F32);
    (void)help_source(z.from, 0, 0, HEADER);
    z.from->sources.at[WORLD].has_crc = 1;
    z.from->sources.at[WORLD].crc = 123;
    assert_int_equal(convert(z.from, z.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_records_checked, WORLD);
    zero3_free(&z);
}

static void test_cut_file(void **state)
{
    const ckpt_run_opts opts = {.jobs = 2};
    zero3 z;

    (void)state;
    zero3_make(&z, CKPT_F32);
    assert_int_equal(truncate(help_join(&dir, "rank1"), 5000), 0);
    expect_failure(&z, &opts, CKPT_EIO, "rank1: changed");
    // the same, for a map that was made from the cut file
    z.from->files.at[1].size = 5000;
    z.from->files.at[1].ino = z.from->files.at[1].dev = 0;
    expect_failure(&z, &opts, CKPT_EFORMAT, "rank1");
    zero3_free(&z);
}

/* ---- interruptions ---- */

typedef struct watcher {
    unsigned n_calls;
    unsigned stop_at;  /* the call that says no; 0: none */
    const char *touch; /* a file to change at the first call, or NULL */
    bool die;
    bool saw_final; /* the output had its name before the end */
    uint64_t done, total;
} watcher;

static int watch(void *ctx, uint64_t done, uint64_t total)
{
    watcher *w = ctx;
    const struct utimbuf past = {1000, 1000};

    assert_true(done >= w->done && done <= total);
    w->done = done;
    w->total = total;
    w->saw_final = w->saw_final || access(help_join(&dir, "out/out.bin"), F_OK) == 0;
    if (w->touch != NULL && w->n_calls == 0)
        assert_int_equal(utime(w->touch, &past), 0);
    if (w->die && done == total)
        (void)kill(getpid(), SIGKILL);
    return ++w->n_calls == w->stop_at;
}

static void test_progress_and_cancel(void **state)
{
    watcher w = {0};
    ckpt_run_opts opts = {.jobs = 2, .progress = watch, .progress_ctx = &w};
    ckpt_err err = {0};
    zero3 z;

    (void)state;
    zero3_make(&z, CKPT_F32);
    w.stop_at = 1;
    expect_failure(&z, &opts, CKPT_ECANCELED, "interrupted");
    w = (watcher){0};
    assert_int_equal(convert(z.from, z.to, &opts, NULL, &err), CKPT_OK);
    assert_true(w.n_calls >= 1);
    assert_int_equal(w.done, w.total);
    assert_false(w.saw_final);
    assert_int_equal(access(help_join(&dir, "out/out.bin"), F_OK), 0);
    help_remove(help_join(&dir, "out"));
    // the last call of all is still in time
    w = (watcher){.stop_at = w.n_calls};
    expect_failure(&z, &opts, CKPT_ECANCELED, "interrupted");
    zero3_free(&z);
}

static void test_input_changed_meanwhile(void **state)
{
    watcher w = {0};
    const ckpt_run_opts opts = {.jobs = 2, .progress = watch, .progress_ctx = &w};
    zero3 z;

    (void)state;
    zero3_make(&z, CKPT_F32);
    w.touch = z.from->files.at[0].path;
    expect_failure(&z, &opts, CKPT_EIO, "rank0: changed while being read");
    zero3_free(&z);
}

/* A process that is killed just before the renames leaves no final name, and does not disturb the
 * next run. */
static void test_killed(void **state)
{
    watcher w = {.die = true};
    ckpt_run_opts opts = {.jobs = 2, .progress = watch, .progress_ctx = &w};
    ckpt_err err = {0};
    pid_t child;
    int status = 0;
    zero3 z;

    (void)state;
    zero3_make(&z, CKPT_F32);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)convert(z.from, z.to, &opts, NULL, &err);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(help_count(help_join(&dir, "out")), 1);
    assert_int_equal(access(help_join(&dir, "out/out.bin"), F_OK), -1);
    opts.progress = NULL;
    assert_int_equal(convert(z.from, z.to, &opts, NULL, &err), CKPT_OK);
    expect_values(&z, CKPT_F32);
    zero3_free(&z);
}

static void test_disk_full(void **state)
{
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    const ckpt_run_opts opts = {.jobs = 2};
    zero3 z;

    (void)state;
    zero3_make(&z, CKPT_F32);
    for (rlim_t n = 0; n < 500000; n += 99991) {
        const struct rlimit some = {n, RLIM_INFINITY};

        assert_int_equal(setrlimit(RLIMIT_FSIZE, &some), 0);
        expect_failure(&z, &opts, CKPT_EIO, "out.bin");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    }
    zero3_free(&z);
}

static void test_memory_failures(void **state)
{
    (void)state;
    for (unsigned jobs = 1; jobs <= 2; jobs++) {
        const ckpt_run_opts opts = {.jobs = jobs, .no_fsync = true, .force = true};
        zero3 z;

        zero3_make(&z, CKPT_BF16);
        for (unsigned i = 0;; i++) {
            ckpt_err err = {0};
            int rc;

            ckpt_alloc_fail_at(i);
            rc = convert(z.from, z.to, &opts, NULL, &err);
            ckpt_alloc_fail_at(UINT64_MAX);
            if (rc == CKPT_OK)
                break;
            assert_int_equal(rc, CKPT_ELIMIT);
            assert_int_equal(help_count(help_join(&dir, "out")), -1);
        }
        expect_values(&z, CKPT_BF16);
        help_remove(help_join(&dir, "out"));
        zero3_free(&z);
    }
}

static void test_wrong_use(void **state)
{
    const ckpt_run_opts opts = {0}, tiny = {.memory = 100000};
    ckpt_plan *plan = NULL;
    ckpt_err err = {0};
    zero3 z;

    (void)state;
    zero3_make(&z, CKPT_F32);
    assert_int_equal(ckpt_plan_make(&plan, z.from, z.to, 0, &err), CKPT_OK);
    assert_int_equal(ckpt_run(plan, NULL, &opts, NULL, NULL, &err), CKPT_EUSAGE);
    ckpt_err_clear(&err);
    // a plan for large blocks in little memory
    assert_int_equal(ckpt_run(plan, help_join(&dir, "out"), &tiny, NULL, NULL, &err), CKPT_ELIMIT);
    assert_int_equal(help_count(help_join(&dir, "out")), -1);
    ckpt_plan_free(plan);
    zero3_free(&z);
}

/* ---- strided sources ---- */

static uint64_t seed = 99;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* One file of noise with a CRC, as source 0 of a new map. */
static ckpt_map *noise_map(uint8_t *bytes, size_t n)
{
    ckpt_map *map = help_map();

    help_noise(bytes, n, draw(1000));
    help_write(help_join(&dir, "noise"), bytes, n);
    (void)help_source(map, help_input(map, help_join(&dir, "noise")), 0, n);
    help_crc(map, 0, bytes, n);
    return map;
}

/* A target of one memory source that receives a whole tensor. */
static ckpt_map *memory_target(void *memory, uint64_t n)
{
    ckpt_map *map = help_map();
    const ckpt_source s = {.kind = CKPT_SOURCE_MEMORY, .memory = memory, .n_bytes = n};
    uint32_t i = 0;
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_add_source(map, &s, &i, &err), CKPT_OK);
    return map;
}

/* Views of random shape, permuted, with gaps and broadcasts, against their definition. */
static void test_views(void **state)
{
    enum { SIZE = 3000000 };
    uint8_t *bytes = ckpt_alloc(SIZE), *got = ckpt_alloc(SIZE * 2);

    (void)state;
    for (unsigned round = 0; round < 150; round++) {
        ckpt_map *from = noise_map(bytes, SIZE), *to;
        uint64_t shape[3] = {1 + draw(60), 1 + draw(60), 1 + draw(round % 10 == 0 ? 900 : 30)},
                 n_elems;
        uint64_t item = round % 3 == 0 ? 2 : 4, at = item * draw(10), reach = at + item, k = 0;
        ckpt_dtype dtype = item == 2 ? CKPT_F16 : CKPT_F32;
        ckpt_axis axis[3];
        ckpt_extent e = {0, 3, 0, axis};
        ckpt_run_opts opts = {.jobs = 1 + (unsigned)draw(3), .memory = draw(2) ? 0 : 600000};
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        int64_t stride[3];
        int64_t gap = (int64_t)(item * (1 + draw(draw(4) == 0 ? 3000 : 3)));
        unsigned turn = (unsigned)draw(3);

        // strides of a dense tensor with gaps, dealt out to the axes in some order; sometimes a
        // broadcast
        for (unsigned i = 0; i < 3; i++) {
            unsigned a = (i + turn) % 3;

            stride[a] = draw(12) == 0 ? 0 : gap;
            gap *= (int64_t)shape[a];
            if (reach + (shape[a] - 1) * (uint64_t)stride[a] > SIZE)
                shape[a] = 1;
            reach += (shape[a] - 1) * (uint64_t)stride[a];
        }
        for (unsigned i = 0; i < 3; i++)
            axis[i] = (ckpt_axis){0, shape[i], stride[i]};
        e.at = at;
        n_elems = shape[0] * shape[1] * shape[2];
        help_back(from, help_tensor(from, "v", dtype, 3, shape), &e, 1);
        to = memory_target(got, n_elems * item);
        help_whole(to, help_tensor(to, "v", dtype, 3, shape), 0, 0);
        assert_int_equal(convert(from, to, &opts, &report, &err), CKPT_OK);
        for (uint64_t i = 0; i < shape[0]; i++) {
            for (uint64_t j = 0; j < shape[1] * shape[2]; j++, k++) {
                const uint8_t *p = bytes + at + i * (uint64_t)stride[0] +
                                   j / shape[2] * (uint64_t)stride[1] +
                                   j % shape[2] * (uint64_t)stride[2];

                if (memcmp(got + k * item, p, item) != 0)
                    fail_msg("round %u: element %d differs", round, (int)k);
            }
        }
        assert_int_equal(report.n_records_checked, 1);
        assert_int_equal(to->sources.at[0].crc, ckpt_crc32(0, got, n_elems * item));
        ckpt_map_free(to);
        ckpt_map_free(from);
    }
    ckpt_free(got);
    ckpt_free(bytes);
}

/* A damaged byte in a gap of a strided view still spoils the record. */
static void test_views_are_checked(void **state)
{
    const uint64_t shape[2] = {100, 100};
    const ckpt_axis axis[2] = {{0, 100, 4}, {0, 100, 800}};
    const ckpt_extent e = {0, 2, 0, axis};
    uint8_t *bytes = ckpt_alloc(80000);
    ckpt_map *from = noise_map(bytes, 80000), *to = help_map();
    const ckpt_run_opts opts = {.jobs = 2};
    ckpt_err err = {0};

    (void)state;
    from->sources.at[0].crc ^= 1;
    help_back(from, help_tensor(from, "v", CKPT_F32, 2, shape), &e, 1);
    help_whole(to, help_tensor(to, "v", CKPT_F32, 2, shape),
               help_source(to, help_output(to, "o", 40000), 0, 40000), 0);
    assert_int_equal(convert(from, to, &opts, NULL, &err), CKPT_EFORMAT);
    assert_int_equal(help_count(help_join(&dir, "out")), -1);
    ckpt_map_free(to);
    ckpt_map_free(from);
    ckpt_free(bytes);
}

/* Columns dealt out to two sources and put together again; then dealt out to two files. */
static void test_tensor_parallel_boxes(void **state)
{
    enum { ROWS = 300, COLS = 700, LEFT = 260 };
    static float bytes[ROWS * COLS], got[ROWS * COLS];
    const uint64_t shape[2] = {ROWS, COLS};
    const ckpt_axis left[2] = {{0, ROWS, LEFT * 4}, {0, LEFT, 4}};
    const ckpt_axis right[2] = {{0, ROWS, (COLS - LEFT) * 4}, {LEFT, COLS - LEFT, 4}};

    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        const ckpt_extent split[2] = {{0, 2, 0, left}, {0, 2, ROWS * LEFT * 4, right}};
        ckpt_map *from = noise_map((uint8_t *)bytes, sizeof bytes),
                 *to = memory_target(got, sizeof got);
        const ckpt_run_opts opts = {.jobs = 1 + round, .memory = round % 2 ? 0 : 100000};
        ckpt_tensor *a = help_tensor(from, "w", CKPT_F32, 2, shape),
                    *b = help_tensor(to, "w", CKPT_F32, 2, shape);
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        bool join = round < 2;

        help_back(join ? from : to, join ? a : b, split, 2);
        help_whole(join ? to : from, join ? b : a, 0, 0);
        assert_int_equal(convert(from, to, &opts, &report, &err), CKPT_OK);
        assert_int_equal(report.n_records_checked, 1);
        for (unsigned i = 0; i < ROWS; i++) {
            for (unsigned j = 0; j < COLS; j++) {
                unsigned cut = j < LEFT ? i * LEFT + j : ROWS * LEFT + i * (COLS - LEFT) + j - LEFT;
                unsigned whole = i * COLS + j;

                assert_memory_equal(&got[join ? whole : cut], &bytes[join ? cut : whole], 4);
            }
        }
        ckpt_map_free(to);
        ckpt_map_free(from);
    }
}

/* Big-endian bytes, negated and conjugated values. */
static void test_lazy_bits_and_byte_order(void **state)
{
    const uint64_t shape[1] = {4};
    const uint8_t big[32] = {0x3f, 0x80, 0,    0,    0x40, 0,    0,    0, 0x40, 0x40, 0,
                             0,    0x40, 0x80, 0,    0,    0x40, 0xa0, 0, 0,    0x40, 0xc0,
                             0,    0,    0x40, 0xe0, 0,    0,    0x41, 0, 0,    0};
    static const float expect[8] = {-1, 2, -3, 4, -5, 6, -7, 8};
    float got[8];
    ckpt_map *from = help_map(), *to = memory_target(got, sizeof got);
    const ckpt_run_opts opts = {0};
    ckpt_err err = {0};
    ckpt_tensor *t;

    (void)state;
    help_write(help_join(&dir, "big"), big, sizeof big);
    (void)help_source(from, help_input(from, help_join(&dir, "big")), 0, sizeof big);
    help_crc(from, 0, big, sizeof big);
    from->sources.at[0].swap = 4;
    t = help_tensor(from, "c", CKPT_C64, 1, shape);
    t->flags = CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG;
    help_whole(from, t, 0, 0);
    help_whole(to, help_tensor(to, "c", CKPT_C64, 1, shape), 0, 0);
    assert_int_equal(convert(from, to, &opts, NULL, &err), CKPT_OK);
    assert_memory_equal(got, expect, sizeof got);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* Zeros for padding, memory as a source, tied and renamed tensors, an alias in the target, F4. */
static void test_other_sources(void **state)
{
    const uint64_t six[1] = {6}, packed[1] = {12};
    float in[3] = {1, NAN, INFINITY}, got[20] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
    const ckpt_axis axis[3] = {{0, 2, 4}, {2, 3, 4}, {5, 1, 4}};
    const ckpt_extent e[3] = {{0, 1, 0, &axis[0]}, {1, 1, 0, &axis[1]}, {0, 1, 8, &axis[2]}};
    const ckpt_source zero = {.kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX};
    ckpt_map *from = memory_target(in, sizeof in), *to = memory_target(got, sizeof got);
    ckpt_tensor *owner, *tied, *t;
    const ckpt_run_opts opts = {0};
    ckpt_run_report report = {0};
    ckpt_err err = {0};
    uint32_t i;

    (void)state;
    assert_int_equal(ckpt_map_add_source(from, &zero, &i, &err), CKPT_OK);
    owner = help_tensor(from, "owner", CKPT_F32, 1, six);
    help_back(from, owner, e, 3);
    tied = help_tensor(from, "tied", CKPT_F32, 1, six);
    tied->owner = owner;
    help_whole(from, help_tensor(from, "f4", CKPT_F4, 1, packed), 0, 2);
    t = help_tensor(to, "new", CKPT_F32, 1, six);
    t->origin = "tied";
    help_whole(to, t, 0, 4);
    help_tensor(to, "tied", CKPT_F32, 1, six)->owner = t;
    help_whole(to, help_tensor(to, "f4", CKPT_F4, 1, packed), 0, 32);
    assert_int_equal(convert(from, to, &opts, &report, &err), CKPT_OK);
    assert_true(got[0] == 9 && got[7] == 9);
    assert_memory_equal(&got[1], in, 8);
    assert_true(got[3] == 0 && got[4] == 0 && got[5] == 0 && isinf(got[6]));
    assert_memory_equal(&got[8], (const uint8_t *)in + 2, 6);
    assert_int_equal(report.n_tensors, 2);
    assert_int_equal(report.n_nan, 1);
    assert_int_equal(report.n_inf, 1);
    assert_int_equal(report.n_records_no_crc, 0);
    ckpt_map_free(to);
    ckpt_map_free(from);
}

/* ---- copies that must agree ---- */

typedef struct twins {
    ckpt_map *from, *to;
    float master[100000];
    uint16_t copy[100000];
} twins;

static twins tw; // large, so static

/* Masters and their bf16 copies, in memory; what is made of them goes nowhere. */
static void twins_make(void)
{
    const uint64_t shape[2] = {100, 1000};
    const ckpt_source masters = {
        .kind = CKPT_SOURCE_MEMORY, .memory = tw.master, .n_bytes = sizeof tw.master};
    const ckpt_source copies = {
        .kind = CKPT_SOURCE_MEMORY, .memory = tw.copy, .n_bytes = sizeof tw.copy};
    const ckpt_source zero = {.kind = CKPT_SOURCE_ZERO, .n_bytes = UINT64_MAX};
    ckpt_tensor like = {.dtype = CKPT_BF16, .ndim = 2, .shape = shape, .n_elems = 100000},
                *twin = NULL, *t;
    ckpt_err err = {0};
    uint32_t i;

    help_noise(tw.master, sizeof tw.master, 3);
    ckpt_cast_find_portable(CKPT_BF16, CKPT_F32)(tw.copy, tw.master, 100000);
    tw.from = help_map();
    tw.to = help_map();
    assert_int_equal(ckpt_map_add_source(tw.from, &masters, &i, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_source(tw.from, &copies, &i, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_source(tw.to, &zero, &i, &err), CKPT_OK);
    assert_int_equal(ckpt_map_add_hidden(tw.from, "w", 1, &like, &twin, &err), CKPT_OK);
    help_whole(tw.from, twin, 1, 0);
    t = help_tensor(tw.from, "w", CKPT_F32, 2, shape);
    help_whole(tw.from, t, 0, 0);
    t->twin = twin;
    help_whole(tw.to, help_tensor(tw.to, "w", CKPT_F32, 2, shape), 0, 0);
}

static void twins_free(void)
{
    ckpt_map_free(tw.to);
    ckpt_map_free(tw.from);
}

static void test_twins(void **state)
{
    const ckpt_run_opts opts = {.jobs = 3, .memory = 300000};
    ckpt_run_report report = {0};
    ckpt_err err = {0};

    (void)state;
    twins_make();
    assert_int_equal(convert(tw.from, tw.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_compared, 100000);
    assert_int_equal(report.n_written, 0);
    // what is not finite proves nothing, whatever the copy says
    tw.master[5] = NAN;
    tw.copy[5] = 0x7fff;
    tw.master[6] = -INFINITY;
    tw.copy[6] = 0;
    assert_int_equal(convert(tw.from, tw.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_compared, 99998);
    assert_int_equal(report.n_nan, 1);
    assert_int_equal(report.n_inf, 1);
    // one bit, late in the tensor
    tw.master[77777] = 1.5f;
    tw.copy[77777] = 0x3fc1;
    assert_int_equal(convert(tw.from, tw.to, &opts, &report, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "tensor w: element 77777: master value 1.5 rounds to 1.5"));
    assert_non_null(strstr(err.text, "1.5078125"));
    // collected: one finding for the tensor, however many elements differ
    tw.copy[10] ^= 1;
    tw.to->collect = true;
    ckpt_err_clear(&err);
    assert_int_equal(convert(tw.from, tw.to, &opts, &report, &err), CKPT_OK);
    assert_int_equal(tw.to->findings.n, 1);
    assert_int_equal(tw.to->findings.at[0].code, CKPT_EMISMATCH);
    assert_int_equal(report.n_compared, 99996);
    twins_free();
}

/* ---- deflated records ---- */

/* A deflate stream of stored blocks: n bytes. */
static ckpt_bytes deflate_stored(const uint8_t *p, size_t n)
{
    ckpt_bytes b = {0};

    do {
        uint16_t some = n < 60000 ? (uint16_t)n : 60000;
        const uint8_t head[5] = {some == n, (uint8_t)some, (uint8_t)(some >> 8), (uint8_t)~some,
                                 (uint8_t)(~some >> 8)};

        assert_true(ckpt_bytes_add(&b, head, 5) && ckpt_bytes_add(&b, p, some));
        p += some;
        n -= some;
    } while (n > 0);
    return b;
}

/* Convert a record that holds the stream and claims n_bytes; extra: bytes of the stream not to be
 * part of it. */
static int convert_deflated(const ckpt_bytes *b, uint64_t n_stored, uint64_t n_bytes, uint32_t crc,
                            float *got, uint64_t memory, ckpt_err *err)
{
    const uint64_t shape[1] = {50000};
    const ckpt_run_opts opts = {.memory = memory, .jobs = 2};
    ckpt_map *from = help_map(), *to = memory_target(got, 200000);
    int rc;

    help_write(help_join(&dir, "z"), b->at, b->n);
    (void)help_source(from, help_input(from, help_join(&dir, "z")), 0, n_bytes);
    from->sources.at[0].coding = CKPT_DEFLATE;
    from->sources.at[0].n_stored = n_stored;
    from->sources.at[0].has_crc = 1;
    from->sources.at[0].crc = crc;
    help_whole(from, help_tensor(from, "a", CKPT_F32, 1, shape), 0, 0);
    help_whole(to, help_tensor(to, "a", CKPT_F32, 1, shape), 0, 0);
    rc = convert(from, to, &opts, NULL, err);
    ckpt_map_free(to);
    ckpt_map_free(from);
    return rc;
}

static void test_deflated(void **state)
{
    float *in = new_values(50000, 5), *got = ckpt_alloc(200000);
    ckpt_bytes b = deflate_stored((const uint8_t *)in, 200000);
    uint32_t crc = ckpt_crc32(0, in, 200000);
    ckpt_err err = {0};

    (void)state;
    // decoded into memory, and through a file because an eighth of the memory is too little
    for (unsigned i = 0; i < 2; i++) {
        memset(got, 0, 200000);
        assert_int_equal(convert_deflated(&b, b.n, 200000, crc, got, i == 0 ? 0 : 1000000, &err),
                         CKPT_OK);
        assert_memory_equal(got, in, 200000);
    }
    assert_int_equal(convert_deflated(&b, b.n, 200000, crc ^ 1, got, 0, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "CRC-32"));
    ckpt_err_clear(&err);
    assert_int_equal(convert_deflated(&b, b.n, 200004, crc, got, 0, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "ends before"));
    ckpt_err_clear(&err);
    assert_int_equal(convert_deflated(&b, b.n - 7, 200000, crc, got, 0, &err), CKPT_EFORMAT);
    ckpt_err_clear(&err);
    // a size that this stream could never reach reserves nothing
    assert_int_equal(convert_deflated(&b, b.n, UINT64_C(1) << 50, crc, got, 0, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "too short"));
    ckpt_err_clear(&err);
    assert_true(ckpt_bytes_add(&b, "tail", 4));
    assert_int_equal(convert_deflated(&b, b.n, 200000, crc, got, 0, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "left over"));
    ckpt_err_clear(&err);
    b.at[0] = 0x07; // no such block type
    assert_int_equal(convert_deflated(&b, b.n, 200000, crc, got, 0, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "z: record 'rec'"));
    ckpt_vec_free(&b);
    ckpt_free(got);
    ckpt_free(in);
}

/* A record that yields more than it should is stopped at the first byte too many. */
static void test_deflated_too_long(void **state)
{
    float *in = new_values(50001, 5), *got = ckpt_alloc(200000);
    ckpt_bytes b = deflate_stored((const uint8_t *)in, 200004);
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(convert_deflated(&b, b.n, 200000, ckpt_crc32(0, in, 200000), got, 0, &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "more than"));
    ckpt_vec_free(&b);
    ckpt_free(got);
    ckpt_free(in);
}

/* ---- scrubbing ---- */

static void test_scrub(void **state)
{
    enum { SIZE = 70 * 1024 * 1024 }; // several ranges
    const ckpt_run_opts opts = {.jobs = 2};
    uint8_t *bytes = ckpt_alloc(SIZE);
    ckpt_map *map = help_map();
    ckpt_run_report report = {0};
    ckpt_err err = {0};
    ckpt_bytes z;
    uint32_t file;

    (void)state;
    help_noise(bytes, 100000, 1);
    memcpy(bytes + SIZE - 1000, bytes, 1000);
    help_write(help_join(&dir, "big"), bytes, SIZE);
    file = help_input(map, help_join(&dir, "big"));
    (void)help_source(map, file, 0, SIZE);
    help_crc(map, 0, bytes, SIZE);
    (void)help_source(map, file, 500, 0);
    help_crc(map, 1, bytes, 0);
    (void)help_source(map, file, 500, 100);
    z = deflate_stored(bytes, 100000);
    help_write(help_join(&dir, "z"), z.at, z.n);
    (void)help_source(map, help_input(map, help_join(&dir, "z")), 0, 100000);
    map->sources.at[3].coding = CKPT_DEFLATE;
    map->sources.at[3].n_stored = z.n;
    help_crc(map, 3, bytes, 100000);
    assert_int_equal(ckpt_run_scrub(map, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_records_checked, 3);
    assert_int_equal(report.n_records_no_crc, 1);
    assert_int_equal(report.n_read, SIZE + 100000);
    // two wrong records: the first is the failure; collected, both are findings
    map->sources.at[0].crc ^= 0x80;
    map->sources.at[3].crc ^= 0x80;
    assert_int_equal(ckpt_run_scrub(map, &opts, &report, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "big: record 'rec'"));
    ckpt_err_clear(&err);
    map->collect = true;
    assert_int_equal(ckpt_run_scrub(map, &opts, &report, &err), CKPT_OK);
    assert_int_equal(map->findings.n, 2);
    assert_int_equal(report.n_records_checked, 1);
    // a record beyond its file
    (void)help_source(map, file, SIZE - 10, 20);
    help_crc(map, 4, bytes, 20);
    assert_int_equal(ckpt_run_scrub(map, &opts, &report, &err), CKPT_OK);
    assert_int_equal(map->findings.n, 5);
    ckpt_vec_free(&z);
    ckpt_free(bytes);
    ckpt_map_free(map);
}

static void test_sizes(void **state)
{
    (void)state;
    for (unsigned jobs = 1; jobs <= 64; jobs *= 2) {
        for (uint64_t memory = 1 << 16; memory <= UINT64_C(1) << 36; memory *= 2) {
            uint64_t block = ckpt_run_block(memory, jobs);

            assert_true(block >= 4096 && block <= 4 << 20 && block % 4096 == 0);
            assert_true(block == 4096 || block * jobs * 4 <= memory);
        }
    }
    assert_int_equal(ckpt_run_jobs(3), 3);
    assert_true(ckpt_run_jobs(0) >= 1 && ckpt_run_jobs(0) <= 8);
    assert_true(ckpt_run_jobs(UINT32_MAX) <= 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_partitions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unused_records_are_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress_and_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_input_changed_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views, setup, teardown),
        cmocka_unit_test_setup_teardown(test_views_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tensor_parallel_boxes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lazy_bits_and_byte_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_sources, setup, teardown),
        cmocka_unit_test_setup_teardown(test_twins, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deflated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deflated_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scrub, setup, teardown),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
