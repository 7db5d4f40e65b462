/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_run.c: conversions of maps made by hand: values, proofs, failures, and what is left after
 * them.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <utime.h>

#include "libckpt/base/cast.h"
#include "libckpt/run/run.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

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
        z->values[i] = help_values(numel[i], i + 1);
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

/* A failed conversion: the code, a word of its text, and no trace in the folder. */
static void expect_failure(zero3 *z, const ckpt_run_opts *opts, int code, const char *word)
{
    ckpt_err err = {0};

    assert_int_equal(help_convert(&dir, z->from, z->to, opts, NULL, &err), code);
    if (!strstr(err.text, word))
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
            .jobs = 1 + i % 8, .memory = memory[i / 8 % 3], .skip_fsync = i % 3 != 0};
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        zero3 z;

        zero3_make(&z, dtype[i / 24]);
        opts.force = i > 0;
        assert_int_equal(help_convert(&dir, z.from, z.to, &opts, &report, &err), CKPT_OK);
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

            assert_int_equal(help_convert(&dir, z.from, z.to, &opts, &report, &err), CKPT_OK);
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
    assert_int_equal(help_convert(&dir, z.from, z.to, &opts, &report, &err), CKPT_OK);
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
    bool stop_late;    /* a call that tells of all bytes says no */
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
    if (w->touch && w->n_calls == 0)
        assert_int_equal(utime(w->touch, &past), 0);
    if (w->die && done == total)
        (void)kill(getpid(), SIGKILL);
    return ++w->n_calls == w->stop_at || (w->stop_late && done == total);
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
    assert_int_equal(help_convert(&dir, z.from, z.to, &opts, NULL, &err), CKPT_OK);
    assert_true(w.n_calls >= 1);
    assert_int_equal(w.done, w.total);
    assert_false(w.saw_final);
    assert_int_equal(access(help_join(&dir, "out/out.bin"), F_OK), 0);
    help_remove(help_join(&dir, "out"));
    // when all bytes are written, it is still in time
    w = (watcher){.stop_late = true};
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
        (void)help_convert(&dir, z.from, z.to, &opts, NULL, &err);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(help_count(help_join(&dir, "out")), 1);
    assert_int_equal(access(help_join(&dir, "out/out.bin"), F_OK), -1);
    opts.progress = NULL;
    assert_int_equal(help_convert(&dir, z.from, z.to, &opts, NULL, &err), CKPT_OK);
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
        const ckpt_run_opts opts = {.jobs = jobs, .skip_fsync = true, .force = true};
        zero3 z;

        zero3_make(&z, CKPT_BF16);
        for (unsigned i = 0;; i++) {
            ckpt_err err = {0};
            int rc;

            ckpt_alloc_fail_at(i);
            rc = help_convert(&dir, z.from, z.to, &opts, NULL, &err);
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

/* ---- folders ---- */

/* As zero3_make, but each tensor in a file of its own, all of them in the folder "tag". */
static void zero3_make_folder(zero3 *z)
{
    ckpt_err err = {0};
    uint32_t file, source;

    zero3_make(z, CKPT_F32);
    ckpt_map_free(z->to);
    z->to = help_map();
    z->to->folder = z->to->pointer_text = "tag";
    z->to->pointer = "latest";
    for (unsigned i = 0; i < N_TENSORS; i++) {
        char name[40];

        (void)snprintf(name, sizeof name, "w/%s/fp32", tensor_name[i]);
        file = help_output(z->to, name, HEADER + z->numel[i] * 4 + 8);
        // the record ends with two floats that no tensor covers
        source = help_source(z->to, file, HEADER, z->numel[i] * 4 + 8);
        assert_int_equal(ckpt_map_add_literal(z->to, file, 0, "header", 6, &err), CKPT_OK);
        help_whole(z->to, help_tensor(z->to, tensor_name[i], CKPT_F32, 1, &z->numel[i]), source, 0);
    }
    // a file without jobs, and in it a record of nothing but zeros and a literal
    file = help_output(z->to, "index", 5000);
    source = help_source(z->to, file, 100, 4800);
    assert_int_equal(ckpt_map_add_literal(z->to, file, 200, "index", 5, &err), CKPT_OK);
}

static void expect_folder(const zero3 *z)
{
    uint8_t zeros[5000] = {0}, *got;
    uint64_t n = 0;

    for (unsigned i = 0; i < N_TENSORS; i++) {
        char name[60];

        (void)snprintf(name, sizeof name, "out/tag/w/%s/fp32", tensor_name[i]);
        got = help_read(help_join(&dir, name), &n);
        assert_int_equal(n, HEADER + z->numel[i] * 4 + 8);
        assert_memory_equal(got, "header", 6);
        assert_memory_equal(got + HEADER, z->values[i], (size_t)z->numel[i] * 4);
        assert_memory_equal(got + n - 8, zeros, 8);
        assert_int_equal(z->to->sources.at[i].crc, ckpt_crc32(0, got + HEADER, (size_t)n - HEADER));
        ckpt_free(got);
    }
    got = help_read(help_join(&dir, "out/tag/index"), &n);
    memcpy(zeros + 200, "index", 5);
    assert_int_equal(n, 5000);
    assert_memory_equal(got, zeros, 5000);
    // known though no job has touched it
    assert_int_equal(z->to->sources.at[N_TENSORS].has_crc, 1);
    assert_int_equal(z->to->sources.at[N_TENSORS].crc, ckpt_crc32(0, zeros + 100, 4800));
    ckpt_free(got);
    got = help_read(help_join(&dir, "out/latest"), &n);
    assert_int_equal(n, 3);
    assert_memory_equal(got, "tag", 3);
    ckpt_free(got);
    assert_int_equal(help_count(help_join(&dir, "out")), 2);
}

static void test_folder(void **state)
{
    (void)state;
    for (unsigned jobs = 1; jobs <= 8; jobs++) {
        const ckpt_run_opts opts = {.jobs = jobs, .force = jobs > 1, .skip_fsync = jobs % 2 == 0};
        ckpt_run_report report = {0};
        ckpt_err err = {0};
        zero3 z;

        zero3_make_folder(&z);
        assert_int_equal(help_convert(&dir, z.from, z.to, &opts, &report, &err), CKPT_OK);
        expect_folder(&z);
        assert_int_equal(report.n_files, N_TENSORS + 1);
        assert_int_equal(report.n_files_kept, 0);
        assert_int_equal(report.n_records_checked, WORLD);
        assert_int_equal(report.n_written, (100003 + 30000 + 7 + 65536 + 1) * 4);
        zero3_free(&z);
    }
}

/* Dies when enough bytes are done. */
static int watch_and_die(void *ctx, uint64_t done, uint64_t total)
{
    const uint64_t *eighths = ctx;

    if (done >= total / 8 * *eighths)
        (void)kill(getpid(), SIGKILL);
    return 0;
}

/* How many of the files an interrupted run has begun. */
static uint64_t begun_files(void)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < N_TENSORS; i++) {
        char name[80];
        struct stat st;

        (void)snprintf(name, sizeof name, "out/.tag.ckpt-partial/new/w/%s/fp32", tensor_name[i]);
        n += stat(help_join(&dir, name), &st) == 0;
    }
    return n;
}

/* Kill run i in a folder, and run it again; returns the number of files that it has kept. */
static uint64_t folder_resumed(uint64_t i)
{
    uint64_t eighths = 1 + i % 8, begun;
    ckpt_run_opts opts = {
        .jobs = 1 + (unsigned)i % 3, .progress = watch_and_die, .progress_ctx = &eighths};
    ckpt_run_report report = {0};
    ckpt_err err = {0};
    int status = 0;
    pid_t child;
    zero3 z;

    zero3_make_folder(&z);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)help_convert(&dir, z.from, z.to, &opts, NULL, &err);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(access(help_join(&dir, "out/tag"), F_OK), -1);
    begun = begun_files();
    opts.progress = NULL;
    opts.jobs = 1 + (unsigned)i % 5;
    assert_int_equal(help_convert(&dir, z.from, z.to, &opts, &report, &err), CKPT_OK);
    expect_folder(&z);
    // all is read and proved again, but only what was not finished is written
    assert_int_equal(report.n_records_checked, WORLD);
    assert_int_equal(report.n_elems, 100003 + 30000 + 7 + 65536 + 1);
    assert_true(report.n_files_kept <= begun + 1);
    assert_true((report.n_written == (100003 + 30000 + 7 + 65536 + 1) * 4) ==
                (report.n_files_kept == 0));
    help_remove(help_join(&dir, "out/tag"));
    help_remove(help_join(&dir, "out"));
    zero3_free(&z);
    return report.n_files_kept;
}

static void test_folder_resumed(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 16; i++) {
        uint64_t kept = folder_resumed(i);

        // at the last call everything is finished; on a busy machine a call may come just before
        for (unsigned again = 0; i % 8 == 7 && kept <= N_TENSORS && again < 20; again++)
            kept = folder_resumed(i);
        if (i % 8 == 7)
            assert_int_equal(kept, N_TENSORS + 1);
    }
}

/* What an interrupted run has written from a record that was damaged before the next run. */
static void test_folder_of_damaged_record(void **state)
{
    uint64_t eighths = 8;
    ckpt_run_opts opts = {.jobs = 2, .progress = watch_and_die, .progress_ctx = &eighths};
    ckpt_err err = {0};
    int status = 0;
    pid_t child;
    zero3 z;

    (void)state;
    zero3_make_folder(&z);
    // a damage that the file's times do not show
    z.from->files.at[1].ino = z.from->files.at[1].dev = 0;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)help_convert(&dir, z.from, z.to, &opts, NULL, &err);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    flip(z.from->files.at[1].path, 1000);
    opts.progress = NULL;
    // the kept file is not what this run makes; whatever is told first, nothing stays
    assert_true(help_convert(&dir, z.from, z.to, &opts, NULL, &err) != CKPT_OK);
    assert_int_equal(help_count(help_join(&dir, "out")), 0);
    err = (ckpt_err){0};
    assert_int_equal(help_convert(&dir, z.from, z.to, &opts, NULL, &err), CKPT_EFORMAT);
    assert_int_equal(help_count(help_join(&dir, "out")), 0);
    zero3_free(&z);
}

static void test_folder_failures(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        watcher w = {.stop_at = i == 0 ? 1 : i == 1 ? 2 : 0};
        const ckpt_run_opts opts = {.jobs = 2, .progress = watch, .progress_ctx = &w};
        zero3 z;

        zero3_make_folder(&z);
        if (i == 2)
            damage(&z, 1, 1000);
        expect_failure(&z, &opts, i == 2 ? CKPT_EFORMAT : CKPT_ECANCELED,
                       i == 2 ? "CRC-32" : "interrupted");
        zero3_free(&z);
    }
    for (unsigned i = 0;; i++) {
        const ckpt_run_opts opts = {.jobs = 2, .skip_fsync = true};
        ckpt_err err = {0};
        zero3 z;
        int rc;

        zero3_make_folder(&z);
        ckpt_alloc_fail_at(i);
        rc = help_convert(&dir, z.from, z.to, &opts, NULL, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK) {
            assert_int_equal(rc, CKPT_ELIMIT);
            assert_int_equal(help_count(help_join(&dir, "out")), -1);
        } else {
            expect_folder(&z);
        }
        zero3_free(&z);
        if (rc == CKPT_OK)
            break;
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
    err = (ckpt_err){0};
    // a plan for large blocks in little memory
    assert_int_equal(ckpt_run(plan, help_join(&dir, "out"), &tiny, NULL, NULL, &err), CKPT_ELIMIT);
    assert_int_equal(help_count(help_join(&dir, "out")), -1);
    ckpt_plan_free(plan);
    zero3_free(&z);
}

static void test_sizes(void **state)
{
    (void)state;
    for (unsigned jobs = 1; jobs <= 64; jobs *= 2) {
        for (uint64_t memory = 1 << 16; memory <= UINT64_C(1) << 36; memory *= 2) {
            uint64_t block = ckpt_run_block(memory, jobs);

            assert_true(block >= 4096 && block <= 16 << 20 && block % 4096 == 0);
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
        cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder_resumed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder_of_damaged_record, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_use, setup, teardown),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
