/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sink.c: files that appear complete or not at all.
 */
#include <signal.h>
#include <sys/resource.h>

#include "libckpt/commit/sink.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static help_dir dir;

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

/* Two files of 10 and 3 bytes. */
static ckpt_map *two_files(void)
{
    ckpt_map *map = help_map();

    (void)help_output(map, "a.bin", 10);
    (void)help_output(map, "index.json", 3);
    return map;
}

static void fill_two(ckpt_sink *s)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_sink_write(s, 0, "56789", 5, 5, &err), CKPT_OK);
    assert_int_equal(ckpt_sink_write(s, 0, "01234", 5, 0, &err), CKPT_OK);
    assert_int_equal(ckpt_sink_write(s, 1, "{}\n", 3, 0, &err), CKPT_OK);
}

static void expect_file(const char *path, const char *text)
{
    uint64_t n = 0;
    uint8_t *p = help_read(path, &n);

    assert_int_equal(n, strlen(text));
    assert_memory_equal(p, text, (size_t)n);
    ckpt_free(p);
}

/* All of file i is written. */
static void finish(ckpt_sink *s, uint32_t i)
{
    const ckpt_journal_entry entry = {.file = i};
    ckpt_err err = {0};

    assert_int_equal(ckpt_sink_finish(s, &entry, 1, &err), CKPT_OK);
}

static void test_commit_into_new_folders(void **state)
{
    const char *folder = help_join(&dir, "x/y/");
    ckpt_map *map = two_files();
    ckpt_sink *s = NULL;
    ckpt_err err = {0};
    struct stat st;
    mode_t mask = umask(027);

    (void)state;
    assert_int_equal(ckpt_sink_open(&s, folder, map, NULL, NULL, &err), CKPT_OK);
    fill_two(s);
    finish(s, 1);
    finish(s, 0);
    // nothing has its name yet
    assert_int_equal(access(help_join(&dir, "x/y/a.bin"), F_OK), -1);
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
    ckpt_sink_close(s);
    (void)umask(mask);
    expect_file(help_join(&dir, "x/y/a.bin"), "0123456789");
    expect_file(help_join(&dir, "x/y/index.json"), "{}\n");
    assert_int_equal(help_count(folder), 2);
    assert_int_equal(stat(help_join(&dir, "x/y/a.bin"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    ckpt_map_free(map);
}

static void test_without_commit_nothing_stays(void **state)
{
    ckpt_map *map = two_files();
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_sink_open(&s, help_join(&dir, "x/y"), map, NULL, NULL, &err), CKPT_OK);
    fill_two(s);
    finish(s, 0);
    ckpt_sink_close(s);
    assert_int_equal(help_count(dir.path), 0);
    // a folder that was there stays, and so does what is in it
    help_write(help_join(&dir, "other"), "x", 1);
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, NULL, &err), CKPT_OK);
    assert_int_equal(help_count(dir.path), 3);
    ckpt_sink_close(s);
    assert_int_equal(help_count(dir.path), 1);
    ckpt_sink_close(NULL);
    ckpt_map_free(map);
}

static void test_existing_needs_force(void **state)
{
    ckpt_map *map = two_files();
    const ckpt_sink_opts force = {.force = true};
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    help_write(help_join(&dir, "index.json"), "old", 3);
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, NULL, &err), CKPT_EUSAGE);
    assert_null(s);
    assert_non_null(strstr(err.text, "--force"));
    assert_int_equal(help_count(dir.path), 1);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, &force, &err), CKPT_OK);
    fill_two(s);
    expect_file(help_join(&dir, "index.json"), "old");
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
    ckpt_sink_close(s);
    expect_file(help_join(&dir, "index.json"), "{}\n");
    assert_int_equal(help_count(dir.path), 2);
    ckpt_map_free(map);
}

/* A file of the second name appears between opening and commit: ours must not replace it, and both
 * stay out. */
static void test_no_overwriting_of_latecomers(void **state)
{
    ckpt_map *map = two_files();
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, NULL, &err), CKPT_OK);
    fill_two(s);
    help_write(help_join(&dir, "index.json"), "new", 3);
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_EUSAGE);
    ckpt_sink_close(s);
    expect_file(help_join(&dir, "index.json"), "new");
    assert_int_equal(help_count(dir.path), 1);
    ckpt_map_free(map);
}

/* With force, what was already replaced cannot be taken back: the message must say so. */
static void test_half_a_commit(void **state)
{
    ckpt_map *map = two_files();
    const ckpt_sink_opts force = {.force = true};
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, &force, &err), CKPT_OK);
    fill_two(s);
    assert_int_equal(mkdir(help_join(&dir, "index.json"), 0700), 0);
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "1 of 2 files"));
    ckpt_sink_close(s);
    assert_int_equal(help_count(dir.path), 2);
    ckpt_map_free(map);
}

static void test_inputs_are_never_outputs(void **state)
{
    ckpt_map *map = two_files(), *inputs = help_map();
    const ckpt_sink_opts force = {.force = true};
    const char *in = help_join(&dir, "in"), *out = help_join(&dir, "a.bin");
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    help_write(in, "0123456789", 10);
    (void)help_input(inputs, in);
    assert_int_equal(link(in, out), 0);
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, inputs, &force, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "input files"));
    err = (ckpt_err){0};
    assert_int_equal(unlink(out), 0);
    assert_int_equal(symlink(in, out), 0);
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, inputs, &force, &err), CKPT_EUSAGE);
    err = (ckpt_err){0};
    // an input known by path only
    inputs->files.at[0].ino = inputs->files.at[0].dev = 0;
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, inputs, &force, &err), CKPT_EUSAGE);
    assert_int_equal(help_count(dir.path), 2);
    ckpt_map_free(inputs);
    ckpt_map_free(map);
}

static void test_bad_names(void **state)
{
    static const char *const bad[] = {"../up", "a/b", "..", ""};
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckpt_map *map = help_map();

        (void)help_output(map, bad[i], 1);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_sink_open(&s, help_join(&dir, "new"), map, NULL, NULL, &err),
                         CKPT_EUNSAFE);
        assert_null(s);
        ckpt_map_free(map);
    }
    {
        ckpt_map *map = two_files();

        (void)help_output(map, "a.bin", 1);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, NULL, &err), CKPT_EUSAGE);
        ckpt_map_free(map);
    }
    assert_int_equal(help_count(dir.path), 0);
}

static void test_long_name(void **state)
{
    ckpt_map *map = help_map();
    ckpt_sink *s = NULL;
    ckpt_err err = {0};
    char name[256];

    (void)state;
    memset(name, 'n', 255);
    name[255] = 0;
    (void)help_output(map, name, 1);
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, NULL, &err), CKPT_OK);
    assert_int_equal(ckpt_sink_write(s, 0, "x", 1, 0, &err), CKPT_OK);
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
    ckpt_sink_close(s);
    expect_file(help_join(&dir, name), "x");
    ckpt_map_free(map);
}

static void test_no_room(void **state)
{
    const struct rlimit was = {RLIM_INFINITY, RLIM_INFINITY}, small = {4096, RLIM_INFINITY};
    ckpt_map *map = help_map(), *huge = help_map();
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    (void)help_output(huge, "huge", UINT64_C(1) << 60);
    assert_int_equal(ckpt_sink_open(&s, help_join(&dir, "new"), huge, NULL, NULL, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "1152921504606846976"));
    err = (ckpt_err){0};
    (void)help_output(map, "big", 10000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(ckpt_sink_open(&s, help_join(&dir, "new"), map, NULL, NULL, &err), CKPT_EIO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_non_null(strstr(err.text, "10000 bytes"));
    assert_int_equal(help_count(dir.path), 0);
    ckpt_map_free(map);
    ckpt_map_free(huge);
}

/* More files than descriptors: they take turns. */
static void test_more_files_than_descriptors(void **state)
{
    struct rlimit was, few;
    ckpt_map *map = help_map();
    ckpt_sink *s = NULL;
    ckpt_err err = {0};
    char name[16];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (unsigned i = 0; i < 60; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        (void)help_output(map, name, 2);
    }
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, NULL, &err), CKPT_OK);
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < 60; i++)
            assert_int_equal(ckpt_sink_write(s, i, k == 0 ? "a" : "b", 1, k, &err), CKPT_OK);
    }
    for (uint32_t i = 0; i < 60; i++)
        finish(s, i);
    assert_int_equal(ckpt_sink_commit(s, &err), CKPT_OK);
    ckpt_sink_close(s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(help_count(dir.path), 60);
    expect_file(help_join(&dir, "f0"), "ab");
    expect_file(help_join(&dir, "f59"), "ab");
    ckpt_map_free(map);
}

static void test_writes_stay_inside(void **state)
{
    ckpt_map *map = two_files();
    ckpt_sink *s = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(ckpt_sink_open(&s, dir.path, map, NULL, NULL, &err), CKPT_OK);
    assert_int_equal(ckpt_sink_write(s, 0, "ab", 2, 9, &err), CKPT_EUSAGE);
    err = (ckpt_err){0};
    assert_int_equal(ckpt_sink_write(s, 2, "ab", 2, 0, &err), CKPT_EUSAGE);
    ckpt_sink_close(s);
    ckpt_map_free(map);
}

static void test_memory_failures(void **state)
{
    ckpt_map *map = two_files();
    ckpt_sink *s = NULL;

    (void)state;
    for (unsigned i = 0;; i++) {
        ckpt_err err = {0};
        int rc;

        ckpt_alloc_fail_at(i);
        rc = ckpt_sink_open(&s, help_join(&dir, "new"), map, NULL, NULL, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc == CKPT_OK)
            break;
        assert_int_equal(rc, CKPT_ELIMIT);
        assert_null(s);
        assert_int_equal(help_count(dir.path), 0);
    }
    ckpt_sink_close(s);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commit_into_new_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_commit_nothing_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_existing_needs_force, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_overwriting_of_latecomers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_a_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inputs_are_never_outputs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_files_than_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writes_stay_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_failures, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
