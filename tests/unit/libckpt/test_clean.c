/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_clean.c: which left-overs are ours, and which of them may go.
 */
#define _GNU_SOURCE // flock
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "libckpt/base/mem.h"
#include "libckpt/commit/temp_names.h"
#include "libckpt/include/ckpt_extra.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

static const char temp_a[] = ".model.pt.ckpt-0a1b2c.tmp",
                  temp_b[] = ".w.safetensors.ckpt-zzzzzz.tmp",
                  partial[] = ".global_step4.ckpt-partial";

static int folder_setup(void **state)
{
    char *path = malloc(FOLDER_PATH);

    folder_new(path);
    *state = path;
    return 0;
}

static int folder_teardown(void **state)
{
    folder_remove(*state);
    free(*state);
    return 0;
}

/* Set the time of the last write to so many seconds ago. */
static void age(const char *folder, const char *name, int64_t seconds)
{
    const struct timespec t[2] = {{.tv_sec = time(NULL) - seconds},
                                  {.tv_sec = time(NULL) - seconds}};

    assert_int_equal(utimensat(AT_FDCWD, folder_at(folder, name), t, 0), 0);
}

static void temp_file(const char *folder, const char *name, int64_t seconds)
{
    folder_text(folder, name, "half of a file");
    age(folder, name, seconds);
}

/* A folder as an interrupted run leaves it. */
static void staged(const char *folder, const char *name)
{
    const char *path = folder_at(folder, name);

    assert_int_equal(mkdir(path, 0777), 0);
    folder_text(path, "journal", "1 a.pt");
    folder_text(path, "a.pt", "weights");
    assert_int_equal(mkdir(folder_at(path, "zero"), 0777), 0);
    assert_int_equal(mkdir(folder_at(path, "zero/w"), 0777), 0);
    folder_text(path, "zero/w/fp32.pt", "moments");
}

/* What a call told. */
typedef struct told {
    unsigned n_removed, n_kept;
    uint64_t n_bytes, n_files;
    char kept[256];
} told;

static int tell(void *ctx, const ckpt_leftover *l)
{
    told *t = ctx;

    t->n_removed += !l->kept;
    t->n_kept += l->kept != NULL;
    t->n_bytes += l->n_bytes;
    t->n_files += l->n_files;
    if (l->kept)
        (void)snprintf(t->kept, sizeof t->kept, "%s: %s", l->name, l->kept);
    return 0;
}

static told clean(const char *folder, bool dry_run, bool force)
{
    told t = {0};
    const ckpt_clean_opts opts = {.dry_run = dry_run, .force = force, .leftover = tell, .ctx = &t};

    assert_int_equal(ckpt_clean(folder, &opts, NULL), CKPT_OK);
    return t;
}

static void names(void **state)
{
    (void)state;
    assert_int_equal(ckpt_left_name(temp_a), CKPT_LEFT_FILE);
    assert_int_equal(ckpt_left_name(".x.ckpt-abc123.tmp"), CKPT_LEFT_FILE);
    assert_int_equal(ckpt_left_name(".x.ckpt-partial"), CKPT_LEFT_FOLDER);
    assert_int_equal(ckpt_left_name("..a.ckpt-partial"), CKPT_LEFT_FOLDER);
    assert_int_equal(ckpt_left_name(".ckpt-spool-aZ09bc"), CKPT_LEFT_FILE);
    static const char *const others[] = {"",
                                         ".",
                                         "..",
                                         ".tmp",
                                         "x.ckpt-abc123.tmp",
                                         ".x.ckpt-abc12.tmp",
                                         ".x.ckpt-abc1234.tmp",
                                         ".x.ckpt-ABC123.tmp",
                                         ".x.ckpt-abc-23.tmp",
                                         ".x.ckpt-abc123.tmp2",
                                         ".ckpt-abc123.tmp",
                                         ".ckpt-partial",
                                         "x.ckpt-partial",
                                         ".x.ckpt-partial.bak",
                                         ".x.ckptXabc123.tmp",
                                         ".ckpt-spool-aZ09b",
                                         ".ckpt-spool-aZ09bcd",
                                         ".ckpt-spool-aZ09b."};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(ckpt_left_name(others[i]), CKPT_LEFT_NONE);
}

static void old_files_go(void **state)
{
    const char *folder = *state;

    temp_file(folder, temp_a, 4000);
    temp_file(folder, temp_b, 90000);
    folder_text(folder, "model.pt", "kept");
    folder_text(folder, ".hidden", "kept");
    told t = clean(folder, true, false);
    assert_true(t.n_removed == 2 && t.n_kept == 0 && t.n_bytes == 28 && t.n_files == 2);
    assert_true(folder_has(folder, temp_a) && folder_has(folder, temp_b));
    t = clean(folder, false, false);
    assert_true(t.n_removed == 2 && !folder_has(folder, temp_a) && !folder_has(folder, temp_b));
    assert_true(folder_has(folder, "model.pt") && folder_has(folder, ".hidden"));
    assert_true(clean(folder, false, false).n_removed == 0);
}

/* Of a set of files only one is written to at a time: a young one protects the old ones beside it.
 */
static void young_files_stay(void **state)
{
    const char *folder = *state;

    temp_file(folder, temp_a, 90000);
    temp_file(folder, temp_b, 10);
    told t = clean(folder, false, false);
    assert_true(t.n_removed == 0 && t.n_kept == 2 && strstr(t.kept, "hour"));
    age(folder, temp_b, -100); // a clock that is ahead
    assert_true(clean(folder, false, false).n_kept == 2);
    assert_true(clean(folder, false, true).n_removed == 2);
    assert_false(folder_has(folder, temp_a));
}

static void locked_files_stay(void **state)
{
    const char *folder = *state;

    temp_file(folder, temp_a, 90000);
    int fd = open(folder_at(folder, temp_a), O_RDONLY);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    told t = clean(folder, false, true);
    assert_true(t.n_kept == 1 && strstr(t.kept, "in use") && folder_has(folder, temp_a));
    (void)close(fd);
    assert_true(clean(folder, false, true).n_removed == 1);
}

static void staged_folders_go(void **state)
{
    const char *folder = *state;

    staged(folder, partial);
    told t = clean(folder, true, false);
    assert_true(t.n_removed == 1 && t.n_files == 3 && t.n_bytes == 6 + 7 + 7);
    assert_true(folder_has(folder, ".global_step4.ckpt-partial/zero/w/fp32.pt"));
    assert_true(clean(folder, false, false).n_removed == 1);
    assert_false(folder_has(folder, partial));
}

static void staged_folders_in_use_stay(void **state)
{
    const char *folder = *state;

    staged(folder, partial);
    int fd = open(folder_at(folder, ".global_step4.ckpt-partial/journal"), O_RDWR);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    told t = clean(folder, false, true);
    assert_true(t.n_kept == 1 && strstr(t.kept, "in use"));
    assert_true(folder_has(folder, ".global_step4.ckpt-partial/a.pt"));
    (void)close(fd);
    assert_true(clean(folder, false, false).n_removed == 1);
}

/* The folder that was to be replaced is nowhere else: it gets its name back. */
static void what_was_moved_away_returns(void **state)
{
    const char *folder = *state;
    char text[16] = "";

    staged(folder, partial);
    assert_int_equal(mkdir(folder_at(folder, ".global_step4.ckpt-partial/old"), 0777), 0);
    folder_text(folder, ".global_step4.ckpt-partial/old/a.pt", "complete");
    assert_true(clean(folder, true, false).n_removed == 1);
    assert_false(folder_has(folder, "global_step4"));
    assert_true(clean(folder, false, false).n_removed == 1);
    assert_false(folder_has(folder, partial));
    assert_int_equal(folder_read(folder_at(folder, "global_step4/a.pt"), text, sizeof text), 8);
    // where the new one is in its place, the old one is what was to go
    staged(folder, partial);
    assert_int_equal(mkdir(folder_at(folder, ".global_step4.ckpt-partial/old"), 0777), 0);
    folder_text(folder, ".global_step4.ckpt-partial/old/a.pt", "older");
    assert_true(clean(folder, false, false).n_removed == 1);
    assert_false(folder_has(folder, partial));
    assert_int_equal(folder_read(folder_at(folder, "global_step4/a.pt"), text, sizeof text), 8);
}

/* A folder that only looks like ours. */
static void foreign_folders_stay(void **state)
{
    const char *folder = *state;

    assert_int_equal(mkdir(folder_at(folder, partial), 0777), 0);
    folder_text(folder, ".global_step4.ckpt-partial/a.pt", "whose?");
    told t = clean(folder, false, true);
    assert_true(t.n_kept == 1 && strstr(t.kept, "no journal"));
    folder_text(folder, ".global_step4.ckpt-partial/journal", "");
    folder_text(folder, "precious", "beside it");
    assert_int_equal(symlink("../precious", folder_at(folder, ".global_step4.ckpt-partial/link")),
                     0);
    t = clean(folder, false, true);
    assert_true(t.n_kept == 1 && strstr(t.kept, "link"));
    assert_true(folder_has(folder, ".global_step4.ckpt-partial/a.pt") &&
                folder_has(folder, "precious"));
    assert_int_equal(unlink(folder_at(folder, ".global_step4.ckpt-partial/link")), 0);
    assert_int_equal(mkdir(folder_at(folder, ".global_step4.ckpt-partial/fifo.d"), 0777), 0);
    assert_int_equal(mkfifo(folder_at(folder, ".global_step4.ckpt-partial/fifo.d/f"), 0666), 0);
    assert_true(clean(folder, false, true).n_kept == 1);
}

/* A run makes the journal first, so that an empty folder means that it stopped at once. */
static void empty_folders(void **state)
{
    const char *folder = *state;

    assert_int_equal(mkdir(folder_at(folder, partial), 0777), 0);
    assert_true(clean(folder, false, false).n_kept == 1);
    age(folder, partial, 4000);
    assert_true(clean(folder, false, false).n_removed == 1);
    assert_false(folder_has(folder, partial));
}

/* Names of ours on other kinds of things, and links, are nobody's business. */
static void other_kinds_are_ignored(void **state)
{
    const char *folder = *state;
    char outside[FOLDER_PATH];

    folder_new(outside);
    staged(outside, partial);
    assert_int_equal(symlink(folder_at(outside, partial), folder_at(folder, partial)), 0);
    assert_int_equal(symlink("nowhere", folder_at(folder, temp_a)), 0);
    assert_int_equal(mkdir(folder_at(folder, temp_b), 0777), 0);
    folder_text(folder, ".x.ckpt-partial", "a file");
    told t = clean(folder, false, true);
    assert_true(t.n_removed == 0 && t.n_kept == 0);
    assert_true(folder_has(outside, ".global_step4.ckpt-partial/a.pt") &&
                folder_has(folder, temp_a));
    folder_remove(outside);
}

static void failures(void **state)
{
    const char *folder = *state;
    ckpt_err err = {0};

    assert_int_equal(ckpt_clean(folder_at(folder, "absent"), NULL, &err), CKPT_EMISSING);
    assert_non_null(strstr(err.text, "absent"));
    folder_text(folder, "file", "x");
    assert_int_equal(ckpt_clean(folder_at(folder, "file"), NULL, NULL), CKPT_EUSAGE);
    assert_int_equal(ckpt_clean(folder, NULL, NULL), CKPT_OK);
    if (geteuid() == 0)
        return; // root removes anything
    staged(folder, partial);
    assert_int_equal(chmod(folder_at(folder, ".global_step4.ckpt-partial/zero"), 0555), 0);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_clean(folder, NULL, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "zero/w"));
    assert_int_equal(chmod(folder_at(folder, ".global_step4.ckpt-partial/zero"), 0777), 0);
}

static int stop(void *ctx, const ckpt_leftover *l)
{
    (void)ctx;
    (void)l;
    return 1;
}

static void stops_when_told(void **state)
{
    const ckpt_clean_opts opts = {.dry_run = true, .leftover = stop};

    temp_file(*state, temp_a, 90000);
    assert_int_equal(ckpt_clean(*state, &opts, NULL), CKPT_ECANCELED);
}

static void memory_runs_out(void **state)
{
    const char *folder = *state;
    int rc = CKPT_ELIMIT;

    for (uint64_t n = 0; rc == CKPT_ELIMIT && n < 1000; n++) {
        if (!folder_has(folder, partial))
            staged(folder, partial);
        temp_file(folder, temp_a, 90000);
        ckpt_alloc_fail_at(n);
        rc = ckpt_clean(folder, NULL, NULL);
        ckpt_alloc_fail_at(UINT64_MAX);
    }
    assert_int_equal(rc, CKPT_OK);
    assert_false(folder_has(folder, partial) || folder_has(folder, temp_a));
}

int main(void)
{
#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        WITH_FOLDER(old_files_go),
        WITH_FOLDER(young_files_stay),
        WITH_FOLDER(locked_files_stay),
        WITH_FOLDER(staged_folders_go),
        WITH_FOLDER(staged_folders_in_use_stay),
        WITH_FOLDER(what_was_moved_away_returns),
        WITH_FOLDER(foreign_folders_stay),
        WITH_FOLDER(empty_folders),
        WITH_FOLDER(other_kinds_are_ignored),
        WITH_FOLDER(failures),
        WITH_FOLDER(stops_when_told),
        WITH_FOLDER(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
