/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink_files.c: creates, opens, writes and syncs the files of a sink, with a limited number open.
 */
#define _GNU_SOURCE // fallocate, sync_file_range
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/commit/hashes.h"
#include "libckpt/commit/sink_inside.h"

enum {
    SINK_TRIES = 100,     /* random names to try before giving up */
    SINK_NAME_KEPT = 230, /* bytes of the final name that fit into a temporary one */
    SINK_WINDOW_BITS = 23 /* write-back starts when 8 adjacent MiB are written */
};

#define SINK_WINDOW (UINT64_C(1) << SINK_WINDOW_BITS)

/* The current name of a file. */
static const char *sink_name(const sink_file *f)
{
    return f->temp ? f->temp : f->name;
}

/* ---- temporary files ---- */

/* The name need not be secret, only unlikely to exist: O_EXCL decides. */
static uint64_t sink_random(const void *salt)
{
    static _Atomic uint64_t count;
    struct timespec t = {0};
    uint64_t x;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    x = (uint64_t)t.tv_nsec ^ ((uint64_t)t.tv_sec << 20) ^ ((uint64_t)getpid() << 40) ^
        (uint64_t)(uintptr_t)salt;
    x += (atomic_fetch_add(&count, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 29);
}

/*
 * Make a name ".NAME.ckpt-XXXXXX.tmp": hidden, recognisable, and in the same folder, as the rename
 * requires.
 */
static void sink_temp_name(sink_file *f)
{
    static const char digit[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t x = sink_random(f);
    char tail[7];

    for (size_t i = 0; i < 6; i++, x /= 36)
        tail[i] = digit[x % 36];
    tail[6] = 0;
    (void)snprintf(f->temp, SINK_NAME, ".%.*s.ckpt-%s.tmp", SINK_NAME_KEPT, f->name, tail);
}

static int sink_no_room(const ckpt_sink *s, const sink_file *f, int sys, ckpt_err *err)
{
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/%s: cannot reserve %" PRIu64 " bytes", s->shown,
                         f->name, f->size);
}

static int sink_give_size(const ckpt_sink *s, const sink_file *f, ckpt_err *err)
{
    int rc;

    if (f->size > INT64_MAX)
        return sink_no_room(s, f, EFBIG, err);
    do
        rc = ftruncate(f->fd, (off_t)f->size);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? CKPT_OK : sink_no_room(s, f, errno, err);
}

/* Reserve the space now, so that a full disk is found before hours of work. */
static int sink_reserve(const ckpt_sink *s, const sink_file *f, ckpt_err *err)
{
    int rc;

    if (f->size == 0)
        return CKPT_OK;
    if (f->size > INT64_MAX)
        return sink_no_room(s, f, EFBIG, err);
    do
        rc = fallocate(f->fd, 0, 0, (off_t)f->size);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return CKPT_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return sink_no_room(s, f, errno, err);
    // This file system cannot reserve: at least give the file its size.
    return sink_give_size(s, f, err);
}

/*
 * Create a file under a temporary name, or under its own in the staging folder, where no other run
 * uses the name.
 */
static int sink_create_fd(const ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    unsigned tries = s->staged ? 3 : SINK_TRIES;
    // The first of several processes creates a small file that all of them write.
    int excl = s->opts.shared && s->staged ? 0 : O_EXCL;

    if (!s->staged && !f->temp)
        f->temp = ckpt_alloc(SINK_NAME);
    if (!s->staged && !f->temp)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < tries && f->fd < 0; i++) {
        if (f->temp)
            sink_temp_name(f);
        f->fd =
            openat(s->at, sink_name(f), O_WRONLY | O_CREAT | excl | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f->fd < 0 && errno != EINTR && (errno != EEXIST || s->staged))
            break;
    }
    if (f->fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot create", s->shown, sink_name(f));
    f->made = f->unsynced = true;
    return CKPT_OK;
}

bool sink_make_windows(sink_file *f)
{
    f->window = ckpt_alloc((size_t)((f->size >> SINK_WINDOW_BITS) + 1) * sizeof *f->window);
    return f->window != NULL;
}

/* Give a new file its space and its counters. */
static int sink_furnish(const ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc;

    // Small files get their space when they are written, because that is cheaper, and the check of
    // free space has shown that all of them fit.
    rc = s->staged && f->size < SINK_LARGE ? sink_give_size(s, f, err) : sink_reserve(s, f, err);
    if (rc != CKPT_OK)
        return rc;
    // Only now is it certain that a file can have this size.
    return sink_make_windows(f) ? CKPT_OK : ckpt_fail_memory(err);
}

int sink_create(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc = sink_create_fd(s, f, err);

    if (rc != CKPT_OK)
        return rc;
    s->open[s->n_open++] = (uint32_t)(f - s->file);
    return sink_furnish(s, f, err);
}

/* ---- descriptors ---- */

/*
 * Linux has closed the descriptor even if close returns EINTR: nothing failed, and a second close
 * would be wrong.
 */
static int sink_close_fd(const ckpt_sink *s, const sink_file *f, int fd, ckpt_err *err)
{
    if (close(fd) == 0 || errno == EINTR)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot close", s->shown, f->name);
}

/* Remove a file from the list of open ones; the caller closes its descriptor. */
static int sink_forget_fd(ckpt_sink *s, sink_file *f)
{
    uint32_t i = (uint32_t)(f - s->file);
    int fd = f->fd;

    for (unsigned k = 0; k < s->n_open; k++) {
        if (s->open[k] == i) {
            s->open[k] = s->open[--s->n_open];
            break;
        }
    }
    f->fd = -1;
    return fd;
}

/*
 * Close a file for now. Sync it first, because a descriptor that is opened later may not report
 * earlier write-back errors.
 */
static int sink_rest(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int fd = sink_forget_fd(s, f), rc = CKPT_OK;

    if (f->written && !s->opts.skip_fsync) {
        if (ckpt_fsync(fd) != 0)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot write to the disk", s->shown,
                               f->name);
        f->written = f->unsynced = false;
    }
    if (rc == CKPT_OK)
        return sink_close_fd(s, f, fd, err);
    (void)close(fd);
    return rc;
}

/* Close the least recently used file, if too many are open. */
int sink_make_room(ckpt_sink *s, ckpt_err *err)
{
    sink_file *oldest = NULL;

    if (s->n_open < s->max_open)
        return CKPT_OK;
    for (unsigned i = 0; i < s->n_open; i++) {
        sink_file *f = &s->file[s->open[i]];

        if (f->n_users == 0 && (!oldest || f->used_at < oldest->used_at))
            oldest = f;
    }
    return !oldest ? CKPT_OK : sink_rest(s, oldest, err);
}

/* Open a closed file again, or create it if it does not exist yet. */
static int sink_wake(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc = sink_make_room(s, err);

    if (rc != CKPT_OK)
        return rc;
    if (!f->made)
        return sink_create(s, f, err);
    do
        f->fd = openat(s->at, sink_name(f), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot open", s->shown, sink_name(f));
    s->open[s->n_open++] = (uint32_t)(f - s->file);
    return CKPT_OK;
}

/* Get a descriptor, for writing or syncing; it stays open until sink_put. */
static int sink_get(ckpt_sink *s, sink_file *f, bool write, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&s->lock);
    if (f->fd < 0)
        rc = sink_wake(s, f, err);
    else if (!f->window) // another worker has created it, but has found no space
        rc = sink_furnish(s, f, err);
    if (rc == CKPT_OK) {
        f->n_users++;
        f->used_at = ++s->clock;
        f->written = f->written || write;
        f->unsynced = f->unsynced || write;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void sink_put(ckpt_sink *s, sink_file *f)
{
    pthread_mutex_lock(&s->lock);
    f->n_users--;
    pthread_mutex_unlock(&s->lock);
}

/* ---- writing ---- */

/* Compute the range of window w and of the one before it, which may have late writes. */
static void sink_range(const sink_file *f, uint64_t w, uint64_t *first, uint64_t *n)
{
    uint64_t end = (w + 1) << SINK_WINDOW_BITS;

    *first = (w > 0 ? w - 1 : 0) << SINK_WINDOW_BITS;
    *n = (end < f->size ? end : f->size) - *first;
}

/* Wait until a window is on the disk, and drop its pages. */
static void sink_let_go(const sink_file *f, uint64_t w)
{
    uint64_t first, n;

    sink_range(f, w, &first, &n);
    (void)sync_file_range(f->fd, (off_t)first, (off_t)n,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(f->fd, (off_t)first, (off_t)n, POSIX_FADV_DONTNEED);
}

/* Start write-back of a window. Only a hint: if it fails, fsync reports the error. */
static void sink_write_back(ckpt_sink *s, sink_file *f, uint64_t w)
{
    uint64_t first, n, old;
    bool waits;

    sink_range(f, w, &first, &n);
    (void)sync_file_range(f->fd, (off_t)first, (off_t)n, SYNC_FILE_RANGE_WRITE);
    if (!s->opts.let_go)
        return;
    pthread_mutex_lock(&s->lock);
    old = f->late[f->n_late % SINK_LAG];
    waits = f->n_late >= SINK_LAG;
    f->late[f->n_late++ % SINK_LAG] = w;
    pthread_mutex_unlock(&s->lock);
    if (waits)
        sink_let_go(f, old);
}

/*
 * Count n bytes from offset at as written. Write-back of a window starts when 7/8 of it are
 * written, so that the final fsync finds little to do. It does not wait for all bytes, because
 * headers between records are written last and workers overlap; late bytes go with the next window.
 */
static void sink_count(ckpt_sink *s, sink_file *f, uint64_t n, uint64_t at)
{
    while (n > 0) {
        uint64_t w = at >> SINK_WINDOW_BITS, start = w << SINK_WINDOW_BITS;
        uint64_t size = f->size - start < SINK_WINDOW ? f->size - start : SINK_WINDOW;
        uint64_t some = start + SINK_WINDOW - at < n ? start + SINK_WINDOW - at : n;
        uint64_t before = atomic_fetch_add(&f->window[w].n, some), enough = size - size / 8;

        if (before < enough && before + some >= enough)
            sink_write_back(s, f, w);
        at += some;
        n -= some;
    }
}

int ckpt_sink_write(ckpt_sink *s, uint32_t i, const void *bytes, uint64_t n, uint64_t at,
                    ckpt_err *err)
{
    sink_file *f;
    int rc;

    if (i >= s->n)
        return ckpt_fail(err, CKPT_EUSAGE, "the target has no output file %" PRIu32, i);
    f = &s->file[i];
    if (!ckpt_within(at, n, f->size))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: %" PRIu64 " bytes at offset %" PRIu64
                         " exceed the file's size of %" PRIu64,
                         s->shown, f->name, n, at, f->size);
    if (s->kept[i].kept)
        return CKPT_OK;
    rc = sink_get(s, f, true, err);
    if (rc != CKPT_OK)
        return rc;
    if (ckpt_pwrite(f->fd, bytes, n, at) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno,
                           "%s/%s: cannot write %" PRIu64 " bytes at offset %" PRIu64
                           " (of %" PRIu64 " in all)",
                           s->shown, f->name, n, at, f->size);
    else if (!s->opts.skip_fsync)
        sink_count(s, f, n, at);
    sink_put(s, f);
    if (rc == CKPT_OK && s->opts.hashes)
        rc = ckpt_hashes_wrote(s->opts.hashes, i, n, at, err);
    return rc;
}

/* ---- syncing ---- */

/* fsync and close file i, once per file; several threads sync different files. */
int sink_sync(ckpt_sink *s, uint32_t i, ckpt_err *err)
{
    sink_file *f = &s->file[i];
    int rc, fd;
    bool done;

    // Kept, or synced when it was closed, and not written since.
    pthread_mutex_lock(&s->lock);
    done = s->kept[i].kept || (f->made && f->fd < 0 && !f->unsynced);
    pthread_mutex_unlock(&s->lock);
    if (done)
        return CKPT_OK;
    rc = sink_get(s, f, false, err);
    if (rc != CKPT_OK)
        return rc;
    // Without the lock, so that several files sync at once.
    if (!s->opts.skip_fsync && ckpt_fsync(f->fd) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot write to the disk", s->shown,
                           f->name);
    if (rc == CKPT_OK && s->opts.let_go && !s->opts.skip_fsync)
        (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    pthread_mutex_lock(&s->lock);
    fd = sink_forget_fd(s, f);
    f->n_users--;
    f->written = f->unsynced = false;
    pthread_mutex_unlock(&s->lock);
    if (rc == CKPT_OK)
        return sink_close_fd(s, f, fd, err);
    (void)close(fd);
    return rc;
}

int ckpt_sink_crc(ckpt_sink *s, uint32_t i, uint32_t *crc, ckpt_err *err)
{
    assert(i < s->n && crc);
    const sink_file *f = &s->file[i];
    bool whole = false;
    int fd, rc;

    do
        fd = openat(s->at, sink_name(f), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot open", s->shown, f->name);
    rc = ckpt_keep_sum(fd, f->size, NULL, crc, &whole, err);
    if (rc == CKPT_OK && !whole)
        rc = ckpt_fail_sys(err, CKPT_EIO, EIO, "%s/%s: cannot read back", s->shown, f->name);
    (void)close(fd);
    return rc;
}

/* Start write-back of several files before waiting for each of them. */
void sink_start_write_back(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sink_file *f = &s->file[entry[i].file];
        bool open;

        pthread_mutex_lock(&s->lock);
        open = f->fd >= 0;
        f->n_users += open;
        pthread_mutex_unlock(&s->lock);
        if (!open)
            continue;
        (void)sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
        sink_put(s, f);
    }
}
