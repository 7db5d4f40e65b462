/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_publish.c: folders that appear complete or not at all: names, journals, resuming, replacing.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "libckpt/commit/publish.h"
#include "libckpt/commit/resume.h"
#include "libckpt/commit/sink.h"
#include "libckpt/io/dir.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static help_dir dir;
static const ckpt_sink_opts plain = {0}, forced = {.force = true};

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

/* Three files, one of them two folders down, that become "tag" with a pointer "latest". */
static ckpt_map *three_files(void)
{
    ckpt_map *map = help_map();

    (void)help_output(map, "a.bin", 10);
    (void)help_output(map, "zero/w.x/fp32.pt", 4);
    (void)help_output(map, "zero/b.pt", 3);
    map->folder = map->pointer_text = "tag";
    map->pointer = "latest";
    return map;
}

static const char *const content[] = {"0123456789", "fp32", "b.t"};

/* Write the files first..end-1 and have them noted. */
static void fill(ckpt_sink *s, uint32_t first, uint32_t end)
{
    ckpt_err err = {0};

    for (uint32_t i = first; i < end; i++) {
        uint64_t n = strlen(content[i]);
        const ckpt_journal_entry e = {
            .file = i, .size = n, .crc = ckpt_crc32(0, content[i], (size_t)n)};

        assert_int_equal(ckpt_sink_write(s, i, content[i], n, 0, &err), CKPT_OK);
        assert_int_equal(ckpt_sink_finish(s, &e, 1, &err), CKPT_OK);
    }
}

static void expect_file(const char *name, const char *text)
{
    uint64_t n = 0;
    uint8_t *p = help_read(help_join(&dir, name), &n);

    assert_int_equal(n, strlen(text));
    assert_memory_equal(p, text, (size_t)n);
    ckpt_free(p);
}

/* The whole folder, its pointer, and nothing else. */
static void expect_tag(void)
{
    expect_file("tag/a.bin", content[0]);
    expect_file("tag/zero/w.x/fp32.pt", content[1]);
    expect_file("tag/zero/b.pt", content[2]);
    expect_file("latest", "tag");
    assert_int_equal(help_count(help_join(&dir, "tag")), 2);
    assert_int_equal(help_count(help_join(&dir, "tag/zero")), 2);
    assert_int_equal(help_count(dir.path), 2);
}

static ckpt_sink *open_sink(const ckpt_map *map, const ckpt_sink_opts *opts)
{
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    if (ckpt_sink_open(&s, dir.path, map, NULL, opts, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return s;
}

static void expect_refusal(const ckpt_map *map, const ckpt_map *inputs, const ckpt_sink_opts *opts,
                           int code, const char *word)
{
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_sink_open(&s, dir.path, map, inputs, opts, &err), code);
    assert_null(s);
    if (!strstr(err.text, word))
        fail_msg("'%s' is not in '%s'", word, err.text);
}

/* Files that are there already. */
static size_t n_kept(const ckpt_sink *s)
{
    size_t n = 0;

    for (uint32_t i = 0; i < 8; i++)
        n += ckpt_sink_kept(s, i);
    return n;
}

/* Write everything and commit, expecting `kept` files to be there already. */
static void complete(const ckpt_map *map, const ckpt_sink_opts *opts, size_t kept)
{
    ckpt_sink *s = open_sink(map, opts);
    ckpt_err err = {0};

    assert_int_equal(n_kept(s), kept);
    fill(s, 0, 3);
    assert_int_equal(access(help_join(&dir, ".tag.ckpt-partial/new/zero/w.x/fp32.pt"), F_OK), 0);
    if (ckpt_sink_commit(s, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    ckpt_sink_close(s);
}

/* Stop after the first n files as if killed: what the process would have left stays. */
static void die_after(const ckpt_map *map, const ckpt_sink_opts *opts, uint32_t n)
{
    ckpt_sink *s = open_sink(map, opts);
    char command[1200];

    fill(s, 0, n);
    (void)snprintf(command, sizeof command, "cp -a %s/.tag.ckpt-partial %s/saved", dir.path,
                   dir.path);
    assert_int_equal(system(command), 0);
    ckpt_sink_close(s);
    assert_int_equal(access(help_join(&dir, ".tag.ckpt-partial"), F_OK), -1);
    assert_int_equal(rename(help_join(&dir, "saved"), help_join(&dir, ".tag.ckpt-partial")), 0);
}

/* ---- fresh runs ---- */

static void test_fresh(void **state)
{
    ckpt_map *map = three_files();
    ckpt_sink *s;
    struct stat st;
    mode_t mask = umask(027);

    (void)state;
    complete(map, &plain, 0);
    (void)umask(mask);
    expect_tag();
    assert_int_equal(stat(help_join(&dir, "tag"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
    assert_int_equal(stat(help_join(&dir, "tag/zero/b.pt"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    // again: refused, and nothing changes
    expect_refusal(map, NULL, &plain, CKPT_EUSAGE, "--force");
    expect_tag();
    // without commit nothing stays, nor does a folder made for it
    map->folder = "other";
    s = NULL;
    {
        ckpt_err err = {0};

        assert_int_equal(ckpt_sink_open(&s, help_join(&dir, "x/y"), map, NULL, &plain, &err),
                         CKPT_OK);
        fill(s, 0, 3);
        ckpt_sink_close(s);
    }
    expect_tag();
    ckpt_map_free(map);
}

static void test_no_pointer(void **state)
{
    ckpt_map *map = three_files();

    (void)state;
    map->pointer = map->pointer_text = NULL;
    complete(map, &plain, 0);
    assert_int_equal(access(help_join(&dir, "latest"), F_OK), -1);
    assert_int_equal(help_count(dir.path), 1);
    ckpt_map_free(map);
}

static void test_bad_names(void **state)
{
    static const char *const bad[] = {"/a", "a/", "a//b", "../a", "a/../b", "a/.", ""};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckpt_map *map = three_files();

        (void)help_output(map, bad[i], 1);
        expect_refusal(map, NULL, &plain, CKPT_EUNSAFE, "plain");
        ckpt_map_free(map);
    }
    for (unsigned i = 0; i < 5; i++) {
        ckpt_map *map = three_files();
        char name[256];

        memset(name, 'x', 255);
        name[255] = 0;
        if (i == 0)
            map->folder = "../tag";
        if (i == 1)
            map->pointer = "a/b";
        if (i == 2)
            map->pointer = map->folder;
        if (i == 3)
            map->folder = name;
        if (i == 4)
            (void)help_output(map, "zero", 1); // a file where others need a folder
        expect_refusal(map, NULL, &plain, i < 3 ? CKPT_EUNSAFE : CKPT_EUSAGE, "");
        ckpt_map_free(map);
    }
    assert_int_equal(help_count(dir.path), 0);
}

/* ---- what stands in the way ---- */

/* An older folder of other files, with folders and links in it. */
static void make_old(void)
{
    assert_int_equal(mkdir(help_join(&dir, "tag"), 0777), 0);
    assert_int_equal(mkdir(help_join(&dir, "tag/sub"), 0777), 0);
    assert_int_equal(mkdir(help_join(&dir, "elsewhere"), 0777), 0);
    help_write(help_join(&dir, "elsewhere/precious"), "p", 1);
    help_write(help_join(&dir, "tag/sub/old"), "old", 3);
    help_write(help_join(&dir, "tag/a.bin"), "old", 3);
    help_write(help_join(&dir, "latest"), "tag", 3);
    assert_int_equal(symlink("../elsewhere", help_join(&dir, "tag/link")), 0);
    assert_int_equal(symlink("../../elsewhere/precious", help_join(&dir, "tag/sub/file")), 0);
}

static void test_force_replaces(void **state)
{
    ckpt_map *map = three_files();
    ckpt_sink *s;

    (void)state;
    make_old();
    expect_refusal(map, NULL, &plain, CKPT_EUSAGE, "--force");
    assert_int_equal(help_count(dir.path), 3);
    // until commit the old folder is there; without it, it stays
    s = open_sink(map, &forced);
    fill(s, 0, 3);
    expect_file("tag/sub/old", "old");
    ckpt_sink_close(s);
    expect_file("tag/a.bin", "old");
    assert_int_equal(help_count(help_join(&dir, "tag")), 3);
    complete(map, &forced, 0);
    expect_file("elsewhere/precious", "p");
    help_remove(help_join(&dir, "elsewhere"));
    expect_tag();
    ckpt_map_free(map);
}

static void test_never_over_inputs(void **state)
{
    ckpt_map *map = three_files(), *inputs = help_map();
    struct stat before, after;

    (void)state;
    make_old();
    (void)help_input(inputs, help_join(&dir, "tag/sub/old"));
    assert_int_equal(stat(help_join(&dir, "tag"), &before), 0);
    expect_refusal(map, inputs, &forced, CKPT_EUSAGE, "input files");
    assert_int_equal(stat(help_join(&dir, "tag"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(help_count(dir.path), 3);
    ckpt_map_free(inputs);
    // the pointer's name is an input's
    inputs = help_map();
    help_remove(help_join(&dir, "tag"));
    (void)help_input(inputs, help_join(&dir, "latest"));
    expect_refusal(map, inputs, &forced, CKPT_EUSAGE, "input files");
    // or a link to one
    assert_int_equal(rename(help_join(&dir, "latest"), help_join(&dir, "in")), 0);
    assert_int_equal(symlink("in", help_join(&dir, "latest")), 0);
    expect_refusal(map, inputs, &forced, CKPT_EUSAGE, "input files");
    expect_file("in", "tag");
    ckpt_map_free(inputs);
    ckpt_map_free(map);
}

static void test_odd_things_in_the_way(void **state)
{
    ckpt_map *map = three_files();

    (void)state;
    help_write(help_join(&dir, "tag"), "x", 1);
    expect_refusal(map, NULL, &forced, CKPT_EUSAGE, "not a folder");
    assert_int_equal(unlink(help_join(&dir, "tag")), 0);
    assert_int_equal(mkdir(help_join(&dir, "real"), 0777), 0);
    assert_int_equal(symlink("real", help_join(&dir, "tag")), 0);
    expect_refusal(map, NULL, &forced, CKPT_EUSAGE, "not a folder");
    assert_int_equal(unlink(help_join(&dir, "tag")), 0);
    assert_int_equal(mkdir(help_join(&dir, "latest"), 0777), 0);
    expect_refusal(map, NULL, &forced, CKPT_EUSAGE, "not a file");
    assert_int_equal(rmdir(help_join(&dir, "latest")), 0);
    // the staging folder is a link to somewhere else: not followed
    assert_int_equal(symlink("real", help_join(&dir, ".tag.ckpt-partial")), 0);
    expect_refusal(map, NULL, &forced, CKPT_EIO, "cannot open");
    assert_int_equal(help_count(help_join(&dir, "real")), 0);
    assert_int_equal(unlink(help_join(&dir, ".tag.ckpt-partial")), 0);
    // a pointer that is a link is replaced, not followed
    help_write(help_join(&dir, "target"), "x", 1);
    assert_int_equal(symlink("target", help_join(&dir, "latest")), 0);
    complete(map, &plain, 0);
    expect_file("target", "x");
    assert_int_equal(unlink(help_join(&dir, "target")), 0);
    assert_int_equal(rmdir(help_join(&dir, "real")), 0);
    expect_tag();
    ckpt_map_free(map);
}

/* The name is taken between opening and commit: what is there stays, even with force. */
static void test_latecomer(void **state)
{
    ckpt_map *map = three_files();

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        ckpt_sink *s = open_sink(map, i == 0 ? &plain : &forced);
        ckpt_err err = {0};

        fill(s, 0, 3);
        assert_int_equal(mkdir(help_join(&dir, "tag"), 0777), 0);
        assert_int_equal(ckpt_sink_commit(s, &err), CKPT_EUSAGE);
        ckpt_sink_close(s);
        assert_int_equal(help_count(dir.path), 1);
        assert_int_equal(help_count(help_join(&dir, "tag")), 0);
        assert_int_equal(rmdir(help_join(&dir, "tag")), 0);
    }
    ckpt_map_free(map);
}

static void test_one_run_at_a_time(void **state)
{
    ckpt_map *map = three_files(), *other = three_files();
    ckpt_sink *s;
    ckpt_err err = {0};

    (void)state;
    s = open_sink(map, &plain);
    fill(s, 0, 1);
    expect_refusal(map, NULL, &plain, CKPT_EUSAGE, "another run");
    other->pointer_text = "something else";
    expect_refusal(other, NULL, &forced, CKPT_EUSAGE, "another run");
    // what the refused ones found is not hurt
    fill(s, 1, 3);
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
    ckpt_sink_close(s);
    expect_tag();
    ckpt_map_free(other);
    ckpt_map_free(map);
}

/* ---- resuming ---- */

static void test_resume(void **state)
{
    ckpt_map *map = three_files();
    ckpt_sink *s;
    struct stat before, after;
    ckpt_err err = {0};

    (void)state;
    for (uint32_t n = 0; n <= 3; n++) {
        die_after(map, &plain, n);
        if (n > 0)
            assert_int_equal(stat(help_join(&dir, ".tag.ckpt-partial/new/a.bin"), &before), 0);
        s = open_sink(map, &plain);
        assert_int_equal(n_kept(s), n);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(ckpt_sink_kept(s, i), i < n);
        fill(s, 0, 3);
        assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
        ckpt_sink_close(s);
        expect_tag();
        assert_int_equal(stat(help_join(&dir, "tag/a.bin"), &after), 0);
        if (n > 0)
            assert_int_equal(before.st_ino, after.st_ino);
        help_remove(help_join(&dir, "tag"));
        assert_int_equal(unlink(help_join(&dir, "latest")), 0);
    }
    ckpt_map_free(map);
}

/* Killed twice: lines of both runs count. */
static void test_resume_twice(void **state)
{
    ckpt_map *map = three_files();

    (void)state;
    die_after(map, &plain, 1);
    die_after(map, &plain, 2);
    complete(map, &plain, 2);
    expect_tag();
    ckpt_map_free(map);
}

static void spoil(const char *name, const char *how)
{
    char command[1200];

    (void)snprintf(command, sizeof command, "cd %s/.tag.ckpt-partial && f=%s && %s", dir.path, name,
                   how);
    assert_int_equal(system(command), 0);
}

/* Files that are not as they were finished are written again. */
static void test_damaged_leftovers(void **state)
{
    static const char *const how[] = {
        "printf 012345678X > $f",
        "printf 012345678 > $f",
        "printf 0123456789A > $f",
        "rm $f",
        "rm $f && ln -s /etc/passwd $f",
        "cp -p $f ../copy && rm $f && ln -s ../../copy $f",
        "rm $f && mkfifo $f",
        "chmod 0 $f",
    };
    ckpt_map *map = three_files();

    (void)state;
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        bool readable = i == 7 && geteuid() == 0;

        die_after(map, &plain, 2);
        spoil("new/a.bin", how[i]);
        complete(map, &plain, readable ? 2 : 1);
        (void)unlink(help_join(&dir, "copy"));
        expect_tag();
        help_remove(help_join(&dir, "tag"));
        assert_int_equal(unlink(help_join(&dir, "latest")), 0);
    }
    ckpt_map_free(map);
}

/* What another command has left is removed. */
static void test_other_command(void **state)
{
    ckpt_map *map = three_files(), *other = three_files();
    ckpt_sink *s;

    (void)state;
    other->pointer_text = "tug";
    die_after(map, &plain, 2);
    spoil("new", "touch $f/stray");
    s = open_sink(other, &plain);
    assert_int_equal(n_kept(s), 0);
    assert_int_equal(access(help_join(&dir, ".tag.ckpt-partial/new/stray"), F_OK), -1);
    ckpt_sink_close(s);
    assert_int_equal(help_count(dir.path), 0);
    ckpt_map_free(other);
    ckpt_map_free(map);
}

/* A file that was kept, but is not what this run makes: never committed. */
static void test_kept_but_different(void **state)
{
    ckpt_map *map = three_files();
    const ckpt_journal_entry e = {.file = 0, .size = 10, .crc = 1};
    ckpt_sink *s;
    ckpt_err err = {0};

    (void)state;
    die_after(map, &plain, 2);
    s = open_sink(map, &plain);
    assert_int_equal(ckpt_sink_finish(s, &e, 1, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "a.bin"));
    ckpt_sink_close(s);
    assert_int_equal(help_count(dir.path), 0);
    ckpt_map_free(map);
}

/* A refusal leaves alone what --force could go on with. */
static void test_refusal_spares_leftovers(void **state)
{
    ckpt_map *map = three_files();

    (void)state;
    make_old();
    die_after(map, &forced, 2);
    expect_refusal(map, NULL, &plain, CKPT_EUSAGE, "--force");
    complete(map, &forced, 2);
    help_remove(help_join(&dir, "elsewhere"));
    expect_tag();
    ckpt_map_free(map);
}

/*
 * Killed between the two renames, or before the end of cleaning up: the folder has its name, and
 * the journal knows.  The same command goes on without --force; another one is refused.
 */
static void test_killed_after_rename(void **state)
{
    ckpt_map *map = three_files(), *other = three_files();

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t n = 0;
        uint8_t *journal;
        ckpt_sink *s;
        ckpt_err err = {0};
        struct stat st;
        char line[100], whole[120];

        die_after(map, &plain, 3);
        assert_int_equal(rename(help_join(&dir, ".tag.ckpt-partial/new"), help_join(&dir, "tag")),
                         0);
        assert_int_equal(stat(help_join(&dir, "tag"), &st), 0);
        (void)snprintf(line, sizeof line, "place %llu %llu", (unsigned long long)st.st_dev,
                       (unsigned long long)st.st_ino);
        (void)snprintf(whole, sizeof whole, "%08x %s\n",
                       (unsigned)ckpt_crc32(0, line, strlen(line)), line);
        journal = help_read(help_join(&dir, ".tag.ckpt-partial/journal"), &n);
        journal = ckpt_resize(journal, (size_t)n + sizeof whole);
        memcpy(journal + n, whole, strlen(whole));
        help_write(help_join(&dir, ".tag.ckpt-partial/journal"), journal,
                   (size_t)n + strlen(whole));
        ckpt_free(journal);
        help_write(help_join(&dir, "latest"), "before", 6);
        if (i == 1)
            help_write(help_join(&dir, "tag/a.bin"), "012345678X", 10); // damaged since
        if (i == 2)
            other->pointer_text = "else";
        if (i == 1 || i == 2) {
            expect_refusal(i == 2 ? other : map, NULL, &plain, CKPT_EUSAGE, "--force");
            assert_int_equal(access(help_join(&dir, "tag/a.bin"), F_OK), 0);
            expect_file("latest", "before");
        } else {
            s = open_sink(map, &plain);
            assert_int_equal(n_kept(s), 3);
            fill(s, 0, 3);
            // another failure at this point does not take away what is complete
            if (i == 0)
                assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
            ckpt_sink_close(s);
            if (i == 3) {
                expect_file("latest", "before");
                assert_int_equal(unlink(help_join(&dir, "latest")), 0);
                help_write(help_join(&dir, "latest"), "tag", 3);
            }
            expect_tag();
        }
        help_remove(help_join(&dir, ".tag.ckpt-partial"));
        help_remove(help_join(&dir, "tag"));
        assert_int_equal(unlink(help_join(&dir, "latest")), 0);
    }
    ckpt_map_free(other);
    ckpt_map_free(map);
}

/* Killed between moving the old folder away and the new one in: the next run moves it back. */
static void test_old_folder_comes_back(void **state)
{
    ckpt_map *map = three_files();
    ckpt_sink *s;

    (void)state;
    make_old();
    die_after(map, &forced, 3);
    assert_int_equal(rename(help_join(&dir, "tag"), help_join(&dir, ".tag.ckpt-partial/old")), 0);
    s = open_sink(map, &forced);
    expect_file("tag/sub/old", "old");
    assert_int_equal(n_kept(s), 3);
    ckpt_sink_close(s);
    expect_file("tag/a.bin", "old");
    assert_int_equal(access(help_join(&dir, ".tag.ckpt-partial"), F_OK), -1);
    ckpt_map_free(map);
}

/* A staging folder that is being taken away by its owner is made again, not used. */
static void test_vanishing_journal(void **state)
{
    ckpt_map *map = three_files();

    (void)state;
    assert_int_equal(mkdir(help_join(&dir, ".tag.ckpt-partial"), 0777), 0);
    complete(map, &plain, 0);
    expect_tag();
    ckpt_map_free(map);
}

/* ---- many files, little memory, full disks ---- */

static void test_many_files(void **state)
{
    enum { N = 500 };
    ckpt_map *map = help_map();
    ckpt_journal_entry e[N];
    struct rlimit was, few;
    ckpt_sink *s;
    ckpt_err err = {0};
    char name[40];

    (void)state;
    map->folder = "tag";
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (uint32_t i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "zero/p%u/f", (unsigned)i);
        (void)help_output(map, name, i % 50 == 0 ? (1 << 20) + 5 : i % 7);
    }
    s = open_sink(map, &(ckpt_sink_opts){.jobs = 3});
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < N; i++) {
            uint64_t size = map->files.at[i].size;

            e[i] = (ckpt_journal_entry){.file = i, .size = size};
            if (size > k)
                assert_int_equal(ckpt_sink_write(s, i, k == 0 ? "a" : "b", 1, k, &err), CKPT_OK);
        }
    }
    for (uint32_t i = 0; i < N; i += 25)
        assert_int_equal(ckpt_sink_finish(s, e + i, 25, &err), CKPT_OK);
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
    ckpt_sink_close(s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(help_count(dir.path), 1);
    assert_int_equal(help_count(help_join(&dir, "tag/zero")), N);
    for (uint32_t i = 0; i < N; i++) {
        struct stat st;

        (void)snprintf(name, sizeof name, "tag/zero/p%u/f", (unsigned)i);
        assert_int_equal(stat(help_join(&dir, name), &st), 0);
        assert_int_equal(st.st_size, map->files.at[i].size);
    }
    expect_file("tag/zero/p2/f", "ab");
    ckpt_map_free(map);
}

static void test_memory_failures(void **state)
{
    ckpt_map *map = three_files();

    (void)state;
    for (unsigned resumed = 0; resumed < 2; resumed++) {
        for (unsigned i = 0;; i++) {
            ckpt_sink *s = NULL;
            ckpt_err err = {0};
            int rc;

            if (resumed)
                die_after(map, &plain, 2);
            ckpt_alloc_fail_at(i);
            rc = ckpt_sink_open(&s, dir.path, map, NULL, &plain, &err);
            for (uint32_t k = 0; rc == CKPT_OK && k < 3; k++) {
                uint64_t n = strlen(content[k]);
                const ckpt_journal_entry e = {
                    .file = k, .size = n, .crc = ckpt_crc32(0, content[k], (size_t)n)};

                rc = ckpt_sink_write(s, k, content[k], n, 0, &err);
                if (rc == CKPT_OK)
                    rc = ckpt_sink_finish(s, &e, 1, &err);
            }
            if (rc == CKPT_OK)
                rc = ckpt_sink_commit(s, &err);
            ckpt_sink_close(s);
            ckpt_alloc_fail_at(UINT64_MAX);
            if (rc == CKPT_OK)
                break;
            assert_int_equal(rc, CKPT_ELIMIT);
            // before the lock is held, what an earlier run has left is not ours to touch
            if (resumed)
                help_remove(help_join(&dir, ".tag.ckpt-partial/new/zero/w.x"));
            help_remove(help_join(&dir, ".tag.ckpt-partial"));
            assert_int_equal(help_count(dir.path), 0);
        }
        expect_tag();
        help_remove(help_join(&dir, "tag"));
        assert_int_equal(unlink(help_join(&dir, "latest")), 0);
    }
    ckpt_map_free(map);
}

static void test_no_room(void **state)
{
    const struct rlimit was = {RLIM_INFINITY, RLIM_INFINITY}, small = {4096, RLIM_INFINITY};
    ckpt_map *huge = three_files(), *big = three_files(), *little = three_files();
    ckpt_sink *s;
    ckpt_err err = {0};
    uint8_t bytes[5000] = {0};

    (void)state;
    (void)help_output(huge, "huge", UINT64_C(1) << 60);
    expect_refusal(huge, NULL, &plain, CKPT_EIO, "1152921504606846993 bytes");
    (void)help_output(big, "big", 2 << 20);
    (void)help_output(little, "little", 5000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    // large files are reserved at once, small ones fail when they are written
    expect_refusal(big, NULL, &plain, CKPT_EIO, "2097152 bytes");
    s = open_sink(little, &plain);
    assert_int_equal(ckpt_sink_write(s, 3, bytes, 5000, 0, &err), CKPT_EIO);
    ckpt_sink_close(s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(help_count(dir.path), 0);
    ckpt_map_free(huge);
    ckpt_map_free(big);
    ckpt_map_free(little);
}

/* ---- the walk ---- */

static void test_deep_folders(void **state)
{
    char path[600];
    int fd = open(dir.path, O_RDONLY | O_DIRECTORY), at = fd;

    (void)state;
    assert_true(fd >= 0);
    (void)snprintf(path, sizeof path, "deep");
    // deeper than the walk goes: an error, not a crash
    for (unsigned i = 0; i < 80; i++) {
        int next;

        assert_int_equal(mkdirat(at, "deep", 0777), 0);
        next = openat(at, "deep", O_RDONLY | O_DIRECTORY);
        assert_true(next >= 0);
        if (at != fd)
            (void)close(at);
        at = next;
    }
    (void)close(at);
    assert_int_equal(ckpt_dir_remove(fd, "deep"), ELOOP);
    assert_int_equal(ckpt_dir_remove(fd, "absent"), 0);
    (void)close(fd);
    (void)snprintf(path, sizeof path, "rm -r %s/deep", dir.path);
    assert_int_equal(system(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fresh, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_pointer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_force_replaces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never_over_inputs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_things_in_the_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_latecomer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_run_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_leftovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_command, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_but_different, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusal_spares_leftovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_after_rename, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_folder_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_vanishing_journal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deep_folders, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
