/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_moves.c: any bytes as the list of renames that a killed run has left.  Whatever it says,
 * nothing outside of the folder is touched, no file's bytes change, and a list that was carried out
 * or undone is gone.
 */
#include "libckpt/commit/rename_log.h"
#include "libckpt/io/dir.h"
#include "tests/fuzz/fuzz_help.h"

static void put(int at, const char *name)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    fuzz_require(fd >= 0 && write(fd, "content", 7) == 7 && close(fd) == 0);
}

/* What a file holds is what was put there; folders and links hold nothing. */
static int intact(void *ctx, int at, const char *name, const struct stat *st)
{
    (void)ctx;
    (void)at;
    fuzz_require(!S_ISREG(st->st_mode) || st->st_size == 7 || strcmp(name, "moves") == 0);
    return 0;
}

static int folder(int at, const char *name)
{
    fuzz_require(mkdirat(at, name, 0700) == 0);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    fuzz_require(fd >= 0);
    return fd;
}

/* A set that is being replaced, with a link that leads out of the folder. */
static void fill(const ckpt_mover *m)
{
    fuzz_require(mkdirat(m->aside, "new", 0700) == 0 && mkdirat(m->aside, "was", 0700) == 0 &&
                 mkdirat(m->aside, "mid", 0700) == 0 && mkdirat(m->top, "d", 0700) == 0);
    put(m->top, "a");
    put(m->top, "d/b");
    put(m->aside, "new/a");
    put(m->aside, "new/b");
    put(m->aside, "was/0");
    put(m->aside, "mid/head");
    fuzz_require(symlinkat("../outside", m->top, "out") == 0 &&
                 symlinkat("../../outside", m->aside, "out") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int root = open(fuzz_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd, rc;
    ckpt_mover m = {.skip_fsync = true, .shown = "fuzz"};
    struct stat st;

    fuzz_require(root >= 0 && ckpt_dir_remove(root, "outside") == 0 &&
                 ckpt_dir_remove(root, "top") == 0);
    int outside = folder(root, "outside");
    put(outside, "a");
    m.top = folder(root, "top");
    m.aside = folder(m.top, "aside");
    fill(&m);
    fd = openat(m.aside, "moves", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
    rc = ckpt_moves_recover(&m);
    fuzz_require(rc != 0 || fstatat(m.aside, "moves", &st, AT_SYMLINK_NOFOLLOW) != 0);
    fuzz_require(rc != 0 || ckpt_moves_recover(&m) == 0);
    fuzz_require(fstatat(outside, "a", &st, 0) == 0 && st.st_size == 7);
    fuzz_require(unlinkat(outside, "a", 0) == 0 && unlinkat(root, "outside", AT_REMOVEDIR) == 0);
    fuzz_require(ckpt_dir_walk(root, "top", intact, NULL) == 0);
    fuzz_require(close(m.aside) == 0 && close(m.top) == 0 && close(outside) == 0 &&
                 close(root) == 0);
    return 0;
}
