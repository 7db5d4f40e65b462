/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rename_log.c: lists of renames that a killed run left, or that somebody else planted.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/commit/rename_log.h"
#include "libckpt/io/dir.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static help_dir dir;
static ckpt_mover mover;

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    mover = (ckpt_mover){.top = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                         .skip_fsync = true,
                         .shown = "top"};
    assert_int_equal(mkdirat(mover.top, "aside", 0755), 0);
    mover.aside = openat(mover.top, "aside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(mover.aside, "new", 0755), 0);
    assert_int_equal(mkdirat(mover.aside, "was", 0755), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)close(mover.aside);
    (void)close(mover.top);
    help_remove(dir.path);
    return 0;
}

/* A file whose only byte says which it is. */
static void put(int at, const char *name, char is)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, &is, 1), 1);
    (void)close(fd);
}

/* That byte; 0: no such file. */
static char look(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC);
    char is = 0;

    if (fd < 0)
        return 0;
    assert_int_equal(read(fd, &is, 1), 1);
    (void)close(fd);
    return is;
}

/* The list as a killed run leaves it: fields end at '|'. */
static void leave(const char *text)
{
    char bytes[512];
    size_t n = strlen(text);
    int fd = openat(mover.aside, "moves", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    for (size_t i = 0; i < n; i++)
        bytes[i] = text[i] == '|' ? 0 : text[i];
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    (void)close(fd);
}

static const char swap[] = "+new/model|model||*|||-|old|was/0|E";

static void test_goes_on_and_back(void **state)
{
    (void)state;
    put(mover.top, "old", 'o');
    put(mover.aside, "new/model", 'n');
    leave(swap);
    assert_int_equal(ckpt_moves_recover(&mover), 0);
    assert_int_equal(look(mover.top, "old"), 'o');
    assert_int_equal(look(mover.top, "model"), 0);
    assert_int_equal(look(mover.aside, "moves"), 0);

    assert_int_equal(renameat(mover.aside, "new/model", mover.top, "model"), 0);
    leave(swap);
    assert_int_equal(ckpt_moves_recover(&mover), 0);
    assert_int_equal(look(mover.top, "old"), 0);
    assert_int_equal(look(mover.top, "model"), 'n');
    assert_int_equal(look(mover.aside, "was/0"), 'o');
}

/* Neither where it was nor where it goes: what came in its place is not known, nothing is touched.
 */
static void test_lost(void **state)
{
    (void)state;
    put(mover.top, "old", 'o');
    leave(swap);
    assert_int_not_equal(ckpt_moves_recover(&mover), 0);
    assert_int_equal(look(mover.top, "old"), 'o');
    assert_int_equal(look(mover.aside, "moves"), '+');

    leave("-|old|was/0|-|gone|was/1|*|||E");
    assert_int_not_equal(ckpt_moves_recover(&mover), 0);
    assert_int_equal(look(mover.top, "old"), 'o');
}

static void test_hostile(void **state)
{
    static const char *const list[] = {
        "+../x|model||*|||E",
        "+new/model|../model||*|||E",
        "+/etc/passwd|model||*|||E",
        "+new//model|model||E",
        "+new/./model|model||E",
        "+new/model|link/model||E",
        "-|old|../was|E",
        "-|old||E",
        "?|||E",
        "+new/model|model||*|||",
        "+new/model|model",
        "+new/model|model||E|E",
        "+new/model|model||Ex",
        "",
        "E|",
        "+journal|x||E",
        "-|old|moves|E",
        "-|aside/new/model|was/0|E",
        "m|../folder||E",
        "=new/model|old|../../was|*|||E",
    };

    (void)state;
    put(mover.top, "old", 'o');
    assert_int_equal(symlinkat("/tmp", mover.top, "link"), 0);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        put(mover.aside, "new/model", 'n');
        leave(list[i]);
        if (ckpt_moves_recover(&mover) == 0)
            fail_msg("list %zu was taken: %s", i, list[i]);
        assert_int_equal(look(mover.top, "old"), 'o');
        assert_int_equal(look(mover.top, "model"), 0);
        assert_int_equal(look(mover.aside, "new/model"), 'n');
    }
}

/* A list that is no plain file of moderate size. */
static void test_not_a_list(void **state)
{
    int fd;

    (void)state;
    put(mover.top, "old", 'o');
    assert_int_equal(mkfifoat(mover.aside, "moves", 0644), 0);
    assert_int_not_equal(ckpt_moves_recover(&mover), 0);
    assert_int_equal(unlinkat(mover.aside, "moves", 0), 0);

    assert_int_equal(symlinkat("new/model", mover.aside, "moves"), 0);
    assert_int_not_equal(ckpt_moves_recover(&mover), 0);
    assert_int_equal(unlinkat(mover.aside, "moves", 0), 0);

    fd = openat(mover.aside, "moves", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0); // sparse
    (void)close(fd);
    assert_int_equal(ckpt_moves_recover(&mover), EFBIG);
    assert_int_equal(look(mover.top, "old"), 'o');
}

/* Where anyone may make names, a hidden folder of another user's is not followed. */
static void test_other_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    put(mover.top, "old", 'o');
    leave("-|old|was/0|*|||E");
    put(mover.aside, "was/0", 'x');
    assert_int_equal(fchown(mover.aside, 12345, 12345), 0);
    assert_int_equal(fchmod(mover.top, 01777), 0);
    assert_int_equal(ckpt_moves_recover(&mover), EPERM);
    leave("-|old|was/1|E");
    assert_int_equal(fchown(mover.aside, 0, 0), 0);
    assert_int_equal(fchownat(mover.aside, "moves", 12345, 12345, 0), 0);
    assert_int_equal(ckpt_moves_recover(&mover), EPERM);
    assert_int_equal(look(mover.top, "old"), 'o');
    assert_int_equal(fchmod(mover.top, 0755), 0);
    assert_int_equal(ckpt_moves_recover(&mover), 0);
}

/* A folder that was there before stays, also when it is empty. */
static void test_undo_keeps_folders(void **state)
{
    ckpt_move move[] = {{CKPT_MOVE_INTO, "", "mine", ""},
                        {CKPT_MOVE_FOLDER, "", "made", ""},
                        {CKPT_MOVE_IN, "new/model", "mine/model", ""},
                        {CKPT_MOVE_IN, "new/other", "taken", ""},
                        {CKPT_MOVE_COUNTS, "", "", ""}};
    ckpt_moves list = {.at = move, .n = sizeof move / sizeof *move};
    ckpt_err err = {0};
    struct stat st;
    bool stuck = true;

    (void)state;
    assert_int_equal(mkdirat(mover.top, "mine", 0755), 0);
    put(mover.top, "taken", 't');
    put(mover.aside, "new/model", 'n');
    put(mover.aside, "new/other", 'm');
    assert_int_equal(ckpt_moves_run(&mover, &list, &stuck, &err), CKPT_EUSAGE);
    assert_false(stuck);
    assert_int_equal(fstatat(mover.top, "mine", &st, 0), 0);
    assert_int_not_equal(fstatat(mover.top, "made", &st, 0), 0);
    assert_int_equal(look(mover.aside, "new/model"), 'n');
    assert_int_equal(look(mover.top, "taken"), 't');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_goes_on_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_a_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_user, setup, teardown),
        cmocka_unit_test_setup_teardown(test_undo_keeps_folders, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
