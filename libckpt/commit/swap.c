/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap.c: exchanges or replaces names, in one step if the file system supports it.
 */
#define _GNU_SOURCE // renameat2
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/rename.h"
#include "libckpt/commit/swap.h"

/* True if an entry of that name exists; *st gets its attributes. */
static bool swap_look(int at, const char *name, struct stat *st)
{
    return fstatat(at, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Replace a name on a file system that cannot exchange names in one step; 0 or an errno value. */
static int swap_replace(int top, int aside, ckpt_swap *w)
{
    int sys;

    if (!w->is_folder) {
        // A rename replaces a file in one step; a second link keeps the old one for the undo.
        w->how = linkat(top, w->to, aside, w->old, 0) == 0 ? CKPT_SWAP_AWAY : CKPT_SWAP_OVER;
        if (renameat(aside, w->from, top, w->to) == 0)
            return 0;
        sys = errno;
        w->how = CKPT_SWAP_NOT;
        return sys;
    }
    if (renameat(top, w->to, aside, w->old) != 0)
        return errno;
    if (renameat(aside, w->from, top, w->to) == 0) {
        w->how = CKPT_SWAP_AWAY;
        return 0;
    }
    sys = errno;
    (void)renameat(aside, w->old, top, w->to);
    return sys;
}

int ckpt_swap_in(int top, int aside, ckpt_swap *w)
{
    assert(w->from && w->to && w->how == CKPT_SWAP_NOT);
    struct stat st;

    if (renameat2(aside, w->from, top, w->to, RENAME_NOREPLACE) == 0) {
        w->how = CKPT_SWAP_MOVED;
        return 0;
    }
    if (errno == EEXIST && w->replace) {
        if (renameat2(aside, w->from, top, w->to, RENAME_EXCHANGE) == 0) {
            w->how = CKPT_SWAP_EXCHANGED;
            return 0;
        }
        return errno == EINVAL || errno == ENOSYS ? swap_replace(top, aside, w) : errno;
    }
    // EINVAL, ENOSYS: this file system does not support the flag; check, then rename.
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (swap_look(top, w->to, &st))
        return w->replace ? swap_replace(top, aside, w) : EEXIST;
    if (renameat(aside, w->from, top, w->to) != 0)
        return errno;
    w->how = CKPT_SWAP_MOVED;
    return 0;
}

bool ckpt_swap_back(int top, int aside, ckpt_swap *w)
{
    ckpt_swap_how how = w->how;
    int rc = 0;

    if (how == CKPT_SWAP_OVER)
        return false;
    if (how == CKPT_SWAP_EXCHANGED)
        rc = renameat2(aside, w->from, top, w->to, RENAME_EXCHANGE);
    if (how == CKPT_SWAP_MOVED || (how == CKPT_SWAP_AWAY && w->is_folder))
        rc = renameat(top, w->to, aside, w->from);
    if (how == CKPT_SWAP_AWAY && rc == 0)
        rc = renameat(aside, w->old, top, w->to);
    if (rc == 0)
        w->how = CKPT_SWAP_NOT;
    return rc == 0;
}
