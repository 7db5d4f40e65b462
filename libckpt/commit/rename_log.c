/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename_log.c: carries out, finishes and undoes a list of renames.
 */
#define _GNU_SOURCE // renameat2
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/rename.h"
#include "libckpt/commit/rename_log.h"
#include "libckpt/io/dir.h"

#define MV_LIMIT (UINT64_C(1) << 26) /* bytes of a list */

static const char mv_name[] = "moves", mv_draft[] = "moves.draft";

/* ---- the state of a move ---- */

static bool mv_there(int at, const char *name, struct stat *st)
{
    struct stat other;

    return fstatat(at, name, st ? st : &other, AT_SYMLINK_NOFOLLOW) == 0;
}

/* True if both names are links to one file. */
static bool mv_same(int a, const char *name_a, int b, const char *name_b)
{
    struct stat sa, sb;

    return mv_there(a, name_a, &sa) && mv_there(b, name_b, &sb) && sa.st_ino == sb.st_ino &&
           sa.st_dev == sb.st_dev;
}

/*
 * Detect whether a move that can be the deciding one was made. 0; EBADMSG: its file has neither
 * name, so both finishing and undoing could lose files.
 */
static int mv_done(const ckpt_mover *m, const ckpt_move *v, bool *done)
{
    bool over = v->kind == CKPT_MOVE_OVER, to = mv_there(m->top, v->to, NULL);
    bool save = (over || v->kind == CKPT_MOVE_OUT) && mv_there(m->aside, v->save, NULL);

    if (v->kind == CKPT_MOVE_OUT) {
        *done = save;
        return save || to ? 0 : EBADMSG;
    }
    if (mv_there(m->aside, v->from, NULL)) {
        *done = false;
        return 0;
    }
    *done = to && !(save && mv_same(m->top, v->to, m->aside, v->save));
    return to || save ? 0 : EBADMSG;
}

/*
 * 0 if an entry can be examined or is absent, else an errno value: an entry that cannot be examined
 * must not count as absent.
 */
static int mv_visible(int at, const char *name)
{
    struct stat st;

    return *name == 0 || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOENT ||
                   errno == ENOTDIR
               ? 0
               : errno;
}

/* ---- one move; all return 0 or an errno value ---- */

/* Rename without replacing a file. */
static int mv_rename_free(int from_at, const char *from, int to_at, const char *to)
{
    if (renameat2(from_at, from, to_at, to, RENAME_NOREPLACE) == 0)
        return 0;
    // EINVAL, ENOSYS: this file system does not support the flag; check, then rename.
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (mv_there(to_at, to, NULL))
        return EEXIST;
    return renameat(from_at, from, to_at, to) == 0 ? 0 : errno;
}

/* Link the old file to a second name first, so that the rename can replace it in one step. */
static int mv_over(const ckpt_mover *m, const ckpt_move *v)
{
    struct stat st;

    if (!mv_there(m->aside, v->from, NULL))
        return 0;
    if (mv_there(m->top, v->to, &st) && S_ISDIR(st.st_mode))
        return EISDIR;
    if (!mv_there(m->aside, v->save, NULL) && linkat(m->top, v->to, m->aside, v->save, 0) != 0 &&
        errno != ENOENT && renameat(m->top, v->to, m->aside, v->save) != 0)
        return errno;
    return renameat(m->aside, v->from, m->top, v->to) == 0 ? 0 : errno;
}

static int mv_over_back(const ckpt_mover *m, const ckpt_move *v)
{
    bool has_from = mv_there(m->aside, v->from, NULL);

    // The old file still has its own name: the move was not begun, or only made the link.
    if (!mv_there(m->aside, v->save, NULL) || mv_same(m->top, v->to, m->aside, v->save))
        return 0;
    if (!has_from && linkat(m->top, v->to, m->aside, v->from, 0) != 0 &&
        renameat(m->top, v->to, m->aside, v->from) != 0)
        return errno;
    return renameat(m->aside, v->save, m->top, v->to) == 0 ? 0 : errno;
}

static int mv_out(const ckpt_mover *m, const ckpt_move *v)
{
    if (mv_there(m->aside, v->save, NULL) || !mv_there(m->top, v->to, NULL))
        return 0;
    return renameat(m->top, v->to, m->aside, v->save) == 0 ? 0 : errno;
}

static int mv_out_back(const ckpt_mover *m, const ckpt_move *v)
{
    if (!mv_there(m->aside, v->save, NULL))
        return 0;
    return mv_rename_free(m->aside, v->save, m->top, v->to);
}

static int mv_in(const ckpt_mover *m, const ckpt_move *v)
{
    if (!mv_there(m->aside, v->from, NULL))
        return 0;
    return mv_rename_free(m->aside, v->from, m->top, v->to);
}

static int mv_in_back(const ckpt_mover *m, const ckpt_move *v)
{
    if (mv_there(m->aside, v->from, NULL) || !mv_there(m->top, v->to, NULL))
        return 0;
    return renameat(m->top, v->to, m->aside, v->from) == 0 ? 0 : errno;
}

static int mv_sync_at(int at, const char *name)
{
    int fd = ckpt_dir_open_at(at, name), rc;

    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    rc = ckpt_fsync(fd) == 0 ? 0 : errno;
    (void)close(fd);
    return rc;
}

/* Sync every folder that the moves change: those with files in aside, top, and those in top. */
static int mv_sync(const ckpt_mover *m, const ckpt_moves *list)
{
    static const char *const below[] = {".", "new", "was", "mid"};
    int rc = 0;

    if (m->skip_fsync)
        return 0;
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        if (list->at[i].kind == CKPT_MOVE_FOLDER || list->at[i].kind == CKPT_MOVE_INTO)
            rc = mv_sync_at(m->top, list->at[i].to);
    }
    if (rc == 0 && ckpt_fsync(m->top) != 0)
        rc = errno;
    for (size_t i = 0; rc == 0 && i < sizeof below / sizeof *below; i++)
        rc = mv_sync_at(m->aside, below[i]);
    return rc;
}

static int mv_make(const ckpt_mover *m, const ckpt_move *v)
{
    struct stat st;
    int sys = mkdirat(m->top, v->to, 0777) == 0 ? 0 : errno;

    return sys == EEXIST && mv_there(m->top, v->to, &st) && S_ISDIR(st.st_mode) ? 0 : sys;
}

/* Carry out one move. INTO and COUNTS do nothing here, because only an undo needs them. */
static int mv_do(const ckpt_mover *m, const ckpt_moves *list, const ckpt_move *v)
{
    switch ((ckpt_move_kind)v->kind) {
    case CKPT_MOVE_IN:
        return mv_in(m, v);
    case CKPT_MOVE_OUT:
        return mv_out(m, v);
    case CKPT_MOVE_OVER:
        return mv_over(m, v);
    case CKPT_MOVE_FOLDER:
        return mv_make(m, v);
    case CKPT_MOVE_SYNC:
        return mv_sync(m, list);
    case CKPT_MOVE_INTO:
    case CKPT_MOVE_COUNTS:
        return 0;
    }
    return EINVAL;
}

/* Undo all moves. A SYNC keeps the order on disk in this direction too. */
static int mv_undo(const ckpt_mover *m, const ckpt_moves *list)
{
    int rc = 0;

    for (size_t i = list->n; rc == 0 && i-- > 0;) {
        const ckpt_move *v = &list->at[i];

        switch ((ckpt_move_kind)v->kind) {
        case CKPT_MOVE_IN:
            rc = mv_in_back(m, v);
            break;
        case CKPT_MOVE_OUT:
            rc = mv_out_back(m, v);
            break;
        case CKPT_MOVE_OVER:
            rc = mv_over_back(m, v);
            break;
        case CKPT_MOVE_FOLDER:
            (void)unlinkat(m->top, v->to, AT_REMOVEDIR); // fails if other files use it by now
            break;
        case CKPT_MOVE_SYNC:
            // best effort: the disk that has just failed must not keep the old names from coming
            // back
            (void)mv_sync(m, list);
            break;
        case CKPT_MOVE_INTO:
        case CKPT_MOVE_COUNTS:
            break;
        }
    }
    return rc;
}

/* ---- the list as a file ---- */

/* Write the list into a file that gets its name only when it is complete. */
static int mv_write(const ckpt_mover *m, const ckpt_bytes *b)
{
    size_t done = 0;
    int fd, rc = 0;

    if (b->n > MV_LIMIT)
        return EFBIG;
    if (unlinkat(m->aside, mv_draft, 0) != 0 && errno != ENOENT)
        return errno;
    do
        fd = openat(m->aside, mv_draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return errno;
    while (rc == 0 && done < b->n) {
        ssize_t put = write(fd, b->at + done, b->n - done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            rc = put < 0 ? errno : ENOSPC;
        else
            done += (size_t)put;
    }
    if (rc == 0 && !m->skip_fsync && ckpt_fsync(fd) != 0)
        rc = errno;
    if (close(fd) != 0 && errno != EINTR && rc == 0)
        rc = errno;
    if (rc == 0 && renameat(m->aside, mv_draft, m->aside, mv_name) != 0)
        rc = errno;
    if (rc == 0 && !m->skip_fsync && ckpt_fsync(m->aside) != 0)
        rc = errno;
    return rc;
}

static bool mv_spell(ckpt_bytes *b, const ckpt_moves *list)
{
    bool ok = true;

    for (size_t i = 0; ok && i < list->n; i++) {
        const ckpt_move *v = &list->at[i];

        ok = ckpt_bytes_add(b, &v->kind, 1) && ckpt_bytes_add(b, v->from, strlen(v->from) + 1) &&
             ckpt_bytes_add(b, v->to, strlen(v->to) + 1) &&
             ckpt_bytes_add(b, v->save, strlen(v->save) + 1);
    }
    return ok && ckpt_bytes_add(b, "E", 1);
}

/* True if a path has plain parts below a folder, and no part is a link that leads out of it. */
static bool mv_safe(int at, const char *path)
{
    struct stat st;
    char above[4096];

    if (!ckpt_dir_parts_ok(path) || strlen(path) >= sizeof above)
        return false;
    for (const char *p = strchr(path, '/'); p != NULL; p = strchr(p + 1, '/')) {
        memcpy(above, path, (size_t)(p - path));
        above[p - path] = 0;
        if (mv_there(at, above, &st) && !S_ISDIR(st.st_mode))
            return false;
    }
    return true;
}

/* True if the path's first part is the hidden folder itself, whose files have their own names. */
static bool mv_is_aside(const ckpt_mover *m, const char *path)
{
    char first[4096];
    size_t n = strcspn(path, "/");

    if (n >= sizeof first)
        return true;
    memcpy(first, path, n);
    first[n] = 0;
    return mv_same(m->top, first, m->aside, ".");
}

/*
 * True for paths of new files ("new", "mid") and of replaced ones ("was"), which an undo restores.
 */
static bool mv_is_kept(const char *path, bool saved)
{
    return strncmp(path, "was/", 4) == 0 ||
           (!saved && (strncmp(path, "new/", 4) == 0 || strncmp(path, "mid/", 4) == 0));
}

/*
 * Check that a list does not reach outside of the folder, because it may come with a folder from
 * another user.
 */
static bool mv_is_ours(const ckpt_mover *m, const ckpt_move *v)
{
    bool in = v->kind == CKPT_MOVE_IN, out = v->kind == CKPT_MOVE_OUT,
         over = v->kind == CKPT_MOVE_OVER,
         folder = v->kind == CKPT_MOVE_FOLDER || v->kind == CKPT_MOVE_INTO;

    if (v->kind == CKPT_MOVE_SYNC || v->kind == CKPT_MOVE_COUNTS)
        return true;
    return (in || out || over || folder) && mv_safe(m->top, v->to) && !mv_is_aside(m, v->to) &&
           (out || folder || (mv_is_kept(v->from, false) && mv_safe(m->aside, v->from))) &&
           (in || folder || (mv_is_kept(v->save, true) && mv_safe(m->aside, v->save)));
}

/* Parse the moves of a list, with an added NUL at its end; 0 or an errno value. */
static int mv_parse(const ckpt_mover *m, const ckpt_bytes *b, ckpt_moves *list)
{
    size_t at = 0;

    while (at + 1 < b->n && b->at[at] != 'E') {
        const char *part[3];
        ckpt_move *v = ckpt_vec_push(list);

        if (!v)
            return ENOMEM;
        v->kind = (char)b->at[at++];
        for (size_t i = 0; i < 3; i++) {
            part[i] = (const char *)b->at + at;
            at += strlen(part[i]) + 1;
            if (at >= b->n)
                return EBADMSG;
        }
        v->from = part[0];
        v->to = part[1];
        v->save = part[2];
        if (!mv_is_ours(m, v))
            return EBADMSG;
    }
    return at + 2 == b->n ? 0 : EBADMSG;
}

/*
 * Check that the list is a plain file of moderate size, owned by a user who could make its renames
 * alone.
 */
static int mv_check(const ckpt_mover *m, int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return EBADMSG;
    if (!ckpt_dir_may_follow(m->top, m->aside) || !ckpt_dir_may_follow(m->top, fd))
        return EPERM;
    return (uint64_t)st.st_size > MV_LIMIT ? EFBIG : 0;
}

/* Read the list; *found is false if there is none. 0 or an errno value. */
static int mv_read(const ckpt_mover *m, ckpt_bytes *b, bool *found)
{
    char part[4096];
    ssize_t n = 1;
    int fd, rc;

    do
        fd = openat(m->aside, mv_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    *found = fd >= 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    rc = mv_check(m, fd);
    while (rc == 0 && n != 0) {
        n = read(fd, part, sizeof part);
        if (n < 0 && errno != EINTR)
            rc = errno;
        else if (n > 0 && b->n > MV_LIMIT)
            rc = EFBIG;
        else if (n > 0 && !ckpt_bytes_add(b, part, (size_t)n))
            rc = ENOMEM;
    }
    (void)close(fd);
    return rc == 0 && !ckpt_bytes_add(b, "", 1) ? ENOMEM : rc;
}

/* Remove the file of a list that is carried out or undone, so that no process repeats it. */
static int mv_forget(const ckpt_mover *m)
{
    int sys = ckpt_dir_remove(m->aside, mv_name);

    if (sys != 0)
        return sys;
    return m->skip_fsync || ckpt_fsync(m->aside) == 0 ? 0 : errno;
}

/* ---- running a list ---- */

static int mv_failed(const ckpt_mover *m, const ckpt_move *v, int sys, ckpt_err *err)
{
    if (v->kind == CKPT_MOVE_SYNC)
        return ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot sync the folder", m->shown);
    if (sys == EEXIST)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: was created by another process; use --force to replace it",
                         m->shown, v->to);
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/%s: cannot rename", m->shown, v->to);
}

int ckpt_moves_run(const ckpt_mover *m, const ckpt_moves *list, bool *stuck, ckpt_err *err)
{
    assert(m && m->shown && list && stuck);
    ckpt_bytes b = {0};
    int sys = mv_spell(&b, list) ? mv_write(m, &b) : ENOMEM;
    int rc = CKPT_OK;

    ckpt_vec_free(&b);
    *stuck = false;
    if (sys != 0) {
        *stuck = mv_forget(m) != 0;
        return sys == ENOMEM
                   ? ckpt_fail_memory(err)
                   : ckpt_fail_sys(err, CKPT_EIO, sys,
                                   "%s: cannot record the renames in the journal", m->shown);
    }
    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        sys = mv_do(m, list, &list->at[i]);
        if (sys != 0)
            rc = mv_failed(m, &list->at[i], sys, err);
    }
    if (rc != CKPT_OK)
        *stuck = mv_undo(m, list) != 0;
    // If the names are right but the list cannot be removed, keep them: recovery from the list
    // would change nothing.
    if (!*stuck)
        *stuck = mv_forget(m) != 0 && rc != CKPT_OK;
    return rc;
}

/* Set *counts if the deciding move was made, provided that all of the list can be examined. */
static int mv_decide(const ckpt_mover *m, const ckpt_moves *list, bool *counts)
{
    bool done = false;
    int rc = 0;

    *counts = false;
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        const ckpt_move *v = &list->at[i];

        rc = mv_visible(m->top, v->to);
        if (rc == 0)
            rc = mv_visible(m->aside, v->from);
        if (rc == 0)
            rc = mv_visible(m->aside, v->save);
        if (rc == 0 && i > 0 && v->kind == CKPT_MOVE_COUNTS)
            rc = mv_done(m, v - 1, &done);
        *counts = *counts || done;
    }
    return rc;
}

int ckpt_moves_recover(const ckpt_mover *m)
{
    assert(m);
    ckpt_bytes b = {0};
    ckpt_moves list = {0};
    bool found = false, counts = false;
    int rc = mv_read(m, &b, &found);

    if (rc == 0 && found)
        rc = mv_parse(m, &b, &list);
    if (rc == 0)
        rc = mv_decide(m, &list, &counts);
    for (size_t i = 0; counts && rc == 0 && i < list.n; i++)
        rc = mv_do(m, &list, &list.at[i]);
    if (found && !counts && rc == 0)
        rc = mv_undo(m, &list);
    if (found && rc == 0)
        rc = mv_forget(m);
    ckpt_vec_free(&list);
    ckpt_vec_free(&b);
    return rc;
}
