/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.c: files under temporary names, or in a staging folder, and the step that makes them final.
 */
#define _GNU_SOURCE // fallocate, sync_file_range, renameat2
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/copy/keep.h"
#include "libckpt/copy/publish.h"
#include "libckpt/copy/sink.h"

enum {
    SINK_TRIES = 100,     /* random names to try before giving up */
    SINK_NAME = 256,      /* a path part and its terminator */
    SINK_NAME_KEPT = 230, /* bytes of the final name that fit into a temporary one */
    SINK_WINDOW_BITS = 23 /* write-back starts when 8 MiB that lie together are written */
};

#define SINK_WINDOW (UINT64_C(1) << SINK_WINDOW_BITS)
#define SINK_LARGE  (UINT64_C(1) << 20) /* files whose space is reserved early in any case */

typedef struct sink_window {
    _Atomic uint64_t n; /* bytes written so far */
} sink_window;

typedef struct sink_file {
    const char *name; /* final; borrowed from the target map */
    uint64_t size;
    int fd;           /* -1: closed for now */
    unsigned n_users; /* writes in progress: not to be closed */
    uint64_t used_at; /* clock of the last use */
    bool made, renamed;
    bool elsewhere;      /* another process writes it */
    bool written;        /* since its last sync */
    bool unsynced;       /* it is new, or was written, since its last sync */
    char *temp;          /* its name until commit; NULL: its own, in the staging folder */
    sink_window *window; /* one for each SINK_WINDOW bytes of the file */
} sink_file;

struct ckpt_sink {
    ckpt_sink_opts opts;
    const ckpt_map *target;
    ckpt_dir dir;
    ckpt_publish *stage; /* NULL: files stand alone */
    int at;              /* the folder that files are written to; borrowed from one of these */
    char *shown;         /* the path that messages name */
    ckpt_kept *kept;     /* per file; only in a staging folder is any of them kept */
    size_t n_kept;
    pthread_mutex_t lock; /* of the descriptors */
    unsigned n_open, max_open;
    uint32_t *open; /* indexes of the open files; room for n files */
    uint64_t clock;
    size_t n;
    sink_file *file;
};

/* The name a file has for now. */
static const char *sink_name(const sink_file *f)
{
    return f->temp ? f->temp : f->name;
}

/* ---- what stands in the way ---- */

/* What is there already: never an input, never a folder, and only with force a file. */
static int sink_check_existing(const ckpt_sink *s, const ckpt_map *inputs, const char *name,
                               ckpt_err *err)
{
    struct stat st, to;

    if (fstatat(s->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT
                   ? CKPT_OK
                   : ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot stat", s->shown, name);
    if (ckpt_dir_is_input(inputs, &st) ||
        (fstatat(s->dir.fd, name, &to, 0) == 0 && ckpt_dir_is_input(inputs, &to)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: is one of the files that are read; choose another output",
                         s->shown, name);
    if (S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: is a folder; choose another output", s->shown,
                         name);
    if (!s->opts.force)
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: exists already; use --force to replace it",
                         s->shown, name);
    return CKPT_OK;
}

/* Better now than after hours; with force the old files still count, for they live until the
 * rename. */
static int sink_check_space(const ckpt_sink *s, ckpt_err *err)
{
    struct statvfs fs;
    uint64_t need = 0, have;

    for (size_t i = 0; i < s->n; i++) {
        bool writes = !s->kept[i].kept && !s->file[i].elsewhere;

        // both forms of a file that is packed are there for a while; how large the second gets is
        // not known yet, and at worst it is no smaller
        if ((writes && !ckpt_add(need, s->file[i].size, &need)) ||
            (s->target->files.at[i].packed && !ckpt_add(need, s->file[i].size, &need)))
            return ckpt_fail(err, CKPT_ELIMIT, "%s: more than 2^64 bytes to be written", s->shown);
    }
    // A file system that cannot say how much is free is found out by fallocate, or by writing.
    if (fstatvfs(s->dir.fd, &fs) != 0 || fs.f_blocks == 0)
        return CKPT_OK;
    if (!ckpt_mul((uint64_t)fs.f_bavail, (uint64_t)(fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize),
                  &have) ||
        need <= have)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, ENOSPC,
                         "%s: needs %" PRIu64 " bytes, but only %" PRIu64 " are free", s->shown,
                         need, have);
}

/* ---- temporary files ---- */

/* Not a secret, only unlikely to be taken: O_EXCL decides. */
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

/* ".NAME.ckpt-XXXXXX.tmp": hidden, recognisable, and in the folder that the rename needs. */
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
    // No reserving on this file system: at least give the file its size.
    return sink_give_size(s, f, err);
}

/* A file under a temporary name, or under its own in the staging folder, where it has no rival. */
static int sink_create_fd(const ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    unsigned tries = s->stage ? 3 : SINK_TRIES;

    if (!s->stage && !f->temp)
        f->temp = ckpt_alloc(SINK_NAME);
    if (!s->stage && !f->temp)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < tries && f->fd < 0; i++) {
        if (f->temp)
            sink_temp_name(f);
        f->fd =
            openat(s->at, sink_name(f), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f->fd < 0 && errno != EINTR && (errno != EEXIST || s->stage))
            break;
    }
    if (f->fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot create", s->shown, sink_name(f));
    f->made = f->unsynced = true;
    return CKPT_OK;
}

/* Space for a new file, and its counters. */
static int sink_furnish(const ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc;

    // Small files get their space when the file system sees what is in them: cheaper, and of many
    // of them the whole is known to fit.
    rc = s->stage && f->size < SINK_LARGE ? sink_give_size(s, f, err) : sink_reserve(s, f, err);
    if (rc != CKPT_OK)
        return rc;
    // Only now is the size known to be one that files can have.
    f->window = ckpt_alloc((size_t)((f->size >> SINK_WINDOW_BITS) + 1) * sizeof *f->window);
    return !f->window ? ckpt_fail_memory(err) : CKPT_OK;
}

static int sink_create(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc = sink_create_fd(s, f, err);

    if (rc != CKPT_OK)
        return rc;
    s->open[s->n_open++] = (uint32_t)(f - s->file);
    return sink_furnish(s, f, err);
}

/* ---- descriptors ---- */

/* Linux has closed the descriptor even when it says EINTR: nothing failed, and closing again would
 * be wrong. */
static int sink_close_fd(const ckpt_sink *s, const sink_file *f, int fd, ckpt_err *err)
{
    if (close(fd) == 0 || errno == EINTR)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot close", s->shown, f->name);
}

/* A quarter of what the process may have: the rest is for the inputs and for our host. */
static unsigned sink_default_open(void)
{
    struct rlimit lim;
    rlim_t n;

    if (getrlimit(RLIMIT_NOFILE, &lim) != 0)
        return 64;
    n = lim.rlim_cur / 4;
    return n < 2 ? 2 : n > 512 ? 512 : (unsigned)n;
}

/* The file is not open any more: its descriptor is the caller's to close. */
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
 * Close a file for now.  A descriptor opened later may not be told of write-back errors before its
 * time, so what was written must be on the disk first.
 */
static int sink_rest(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int fd = sink_forget_fd(s, f), rc = CKPT_OK;

    if (f->written && !s->opts.no_fsync) {
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

/* Let the file that was used longest ago rest, when there are too many open ones. */
static int sink_make_room(ckpt_sink *s, ckpt_err *err)
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

/* Open a resting file again, or make it if it is not there yet. */
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

/* A descriptor, for writing or to sync what was written; it stays open until sink_put. */
static int sink_get(ckpt_sink *s, sink_file *f, bool write, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&s->lock);
    if (f->fd < 0)
        rc = sink_wake(s, f, err);
    else if (!f->window) // another worker made it, and found no room for it
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

/* ---- opening ---- */

/* What an interrupted run has finished and what is still as it was left; all else goes. */
static int sink_keep(ckpt_sink *s, ckpt_err *err)
{
    bool anew = false;
    const ckpt_keep where = {.at = ckpt_publish_fd(s->stage),
                             .to = s->target,
                             .jobs = s->opts.jobs,
                             .progress = s->opts.progress};
    int rc = ckpt_keep_look(s->kept, &where, ckpt_publish_kept(s->stage), err);

    for (size_t i = 0; i < s->n; i++)
        s->n_kept += s->kept[i].kept;
    if (rc == CKPT_OK)
        rc = ckpt_publish_begin(s->stage, s->n_kept, &anew, err);
    s->at = ckpt_publish_fd(s->stage);
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        s->kept[i].kept = s->kept[i].kept && !anew;
        if (!s->kept[i].kept && !anew && unlinkat(s->at, s->file[i].name, 0) != 0 &&
            errno != ENOENT)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot remove an unfinished file",
                               s->shown, s->file[i].name);
    }
    if (anew)
        s->n_kept = 0;
    return rc;
}

/* Everything that needs no disk. */
static int sink_init(ckpt_sink *s, const char *folder, const ckpt_map *target, ckpt_err *err)
{
    const char *below = target->folder ? target->folder : "";
    size_t n = strlen(folder), n_shown;

    while (n > 1 && folder[n - 1] == '/')
        n--;
    n_shown = n + strlen(below) + 2;
    s->target = target;
    s->n = target->files.n;
    s->max_open = sink_default_open();
    s->shown = ckpt_alloc(n_shown);
    s->open = ckpt_alloc((s->n + 1) * sizeof *s->open);
    s->file = ckpt_alloc((s->n + 1) * sizeof *s->file);
    s->kept = ckpt_alloc((s->n + 1) * sizeof *s->kept);
    if (!s->shown || !s->open || !s->file || !s->kept)
        return ckpt_fail_memory(err);
    (void)snprintf(s->shown, n_shown, "%.*s%s%s", (int)n, folder, below[0] != 0 ? "/" : "", below);
    for (size_t i = 0; i < s->n; i++) {
        sink_file *f = &s->file[i];

        f->fd = -1;
        f->name = target->files.at[i].path;
        f->size = target->files.at[i].size;
        f->elsewhere = target->files.at[i].elsewhere;
    }
    return CKPT_OK;
}

/* The staging folder, and what of it can be kept. */
static int sink_open_stage(ckpt_sink *s, const ckpt_map *inputs, ckpt_err *err)
{
    const ckpt_publish_opts opts = {
        .force = s->opts.force, .no_fsync = s->opts.no_fsync, .jobs = s->opts.jobs};
    int rc = ckpt_publish_open(&s->stage, &s->dir, s->target, inputs, &opts, err);

    return rc == CKPT_OK ? sink_keep(s, err) : rc;
}

/* The order matters: nothing is created before everything that can be refused was looked at. */
static int sink_begin(ckpt_sink *s, const char *folder, const ckpt_map *target,
                      const ckpt_map *inputs, ckpt_err *err)
{
    int rc = sink_init(s, folder, target, err);

    if (rc == CKPT_OK)
        rc = ckpt_dir_check_names(target, s->shown, err);
    if (rc == CKPT_OK)
        rc = ckpt_dir_make(&s->dir, folder, err);
    s->at = s->dir.fd;
    if (rc == CKPT_OK && (target->folder || target->set))
        rc = sink_open_stage(s, inputs, err);
    for (size_t i = 0; rc == CKPT_OK && !s->stage && i < s->n; i++) {
        if (!s->file[i].elsewhere)
            rc = sink_check_existing(s, inputs, s->file[i].name, err);
    }
    if (rc == CKPT_OK)
        rc = sink_check_space(s, err);
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        // In a staging folder there may be very many small files: each comes when it is written.
        if (s->kept[i].kept || s->file[i].elsewhere || (s->stage && s->file[i].size < SINK_LARGE))
            continue;
        rc = sink_make_room(s, err);
        if (rc == CKPT_OK)
            rc = sink_create(s, &s->file[i], err);
    }
    return rc;
}

int ckpt_sink_open(ckpt_sink **out, const char *folder, const ckpt_map *target,
                   const ckpt_map *inputs, const ckpt_sink_opts *opts, ckpt_err *err)
{
    assert(out && target);
    ckpt_sink *s = ckpt_alloc(sizeof *s);
    int rc;

    *out = NULL;
    if (!s || pthread_mutex_init(&s->lock, NULL) != 0) {
        ckpt_free(s);
        return ckpt_fail_memory(err);
    }
    s->dir = CKPT_DIR_NONE;
    if (opts)
        s->opts = *opts;
    rc = sink_begin(s, folder, target, inputs, err);
    if (rc == CKPT_OK)
        *out = s;
    else
        ckpt_sink_close(s);
    return rc;
}

bool ckpt_sink_kept(const ckpt_sink *s, uint32_t i)
{
    return s && i < s->n && s->kept[i].kept;
}

const ckpt_set_stays *ckpt_sink_stays(const ckpt_sink *s)
{
    static const ckpt_set_stays none;

    return s && s->stage ? ckpt_publish_stays(s->stage) : &none;
}

size_t ckpt_sink_gone(const ckpt_sink *s)
{
    return s && s->stage ? ckpt_publish_gone(s->stage) : 0;
}

uint64_t ckpt_sink_dropped(const ckpt_sink *s)
{
    return s && s->stage ? ckpt_publish_dropped(s->stage) : 0;
}

size_t ckpt_sink_n_kept(const ckpt_sink *s)
{
    return s ? s->n_kept : 0;
}

char *ckpt_sink_path(const ckpt_sink *s)
{
    return s && s->stage ? ckpt_publish_path(s->stage) : NULL;
}

/* ---- writing ---- */

/* Start write-back of window w and the one before it.  A hint: if it fails, fsync will tell. */
static void sink_write_back(const sink_file *f, uint64_t w)
{
    uint64_t first = (w > 0 ? w - 1 : 0) << SINK_WINDOW_BITS, end = (w + 1) << SINK_WINDOW_BITS;

    if (end > f->size)
        end = f->size;
    (void)sync_file_range(f->fd, (off_t)first, (off_t)(end - first), SYNC_FILE_RANGE_WRITE);
}

/*
 * Count n bytes from offset at as written; write-back of a window starts when 7/8 of it are there,
 * so that the final fsync finds little to do.  Not all of it: headers between records are written
 * last, and workers overlap; what is late goes with the next window.
 */
static void sink_count(const sink_file *f, uint64_t n, uint64_t at)
{
    while (n > 0) {
        uint64_t w = at >> SINK_WINDOW_BITS, start = w << SINK_WINDOW_BITS;
        uint64_t size = f->size - start < SINK_WINDOW ? f->size - start : SINK_WINDOW;
        uint64_t some = start + SINK_WINDOW - at < n ? start + SINK_WINDOW - at : n;
        uint64_t before = atomic_fetch_add(&f->window[w].n, some), enough = size - size / 8;

        if (before < enough && before + some >= enough)
            sink_write_back(f, w);
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
        return ckpt_fail(err, CKPT_EUSAGE, "there is no output file %" PRIu32, i);
    f = &s->file[i];
    if (!ckpt_within(at, n, f->size))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: %" PRIu64 " bytes at offset %" PRIu64 " of a file of %" PRIu64,
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
    else if (!s->opts.no_fsync)
        sink_count(f, n, at);
    sink_put(s, f);
    return rc;
}

int ckpt_sink_pack(ckpt_sink *s, ckpt_map *target, ckpt_pack_fn pack, ckpt_err *err)
{
    const ckpt_pack_job job = {.at = s->at,
                               .shown = s->shown,
                               .no_fsync = s->opts.no_fsync,
                               .progress = s->opts.progress,
                               .pack = pack};
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        assert(!target->files.at[i].packed || s->stage);
        if (target->files.at[i].packed)
            rc = ckpt_pack_file(&job, target, i, err);
    }
    return rc;
}

/* ---- making it final ---- */

/* fsync and close file i, once per file; files are synced side by side. */
static int sink_sync(ckpt_sink *s, uint32_t i, ckpt_err *err)
{
    sink_file *f = &s->file[i];
    int rc, fd;
    bool done;

    // Kept, or synced when it was let rest, and not written since.
    pthread_mutex_lock(&s->lock);
    done = s->kept[i].kept || (f->made && f->fd < 0 && !f->unsynced);
    pthread_mutex_unlock(&s->lock);
    if (done)
        return CKPT_OK;
    rc = sink_get(s, f, false, err);
    if (rc != CKPT_OK)
        return rc;
    // Without the lock: files are synced side by side.
    if (!s->opts.no_fsync && ckpt_fsync(f->fd) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot write to the disk", s->shown,
                           f->name);
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

/* Let the disk begin with all of several files, before each of them is waited for. */
static void sink_start_write_back(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n)
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

/* A kept file must be what this run would have written. */
static int sink_compare_kept(const ckpt_sink *s, const ckpt_journal_entry *e, ckpt_err *err)
{
    const ckpt_kept *k = &s->kept[e->file];

    if (e->crc == k->crc)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EIO,
                     "%s/%s: an interrupted run has left other bytes (CRC-32 %08" PRIx32
                     ") than this run makes (%08" PRIx32 "): they are removed, run again",
                     s->shown, s->file[e->file].name, k->crc, e->crc);
}

int ckpt_sink_finish(ckpt_sink *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err)
{
    size_t first = 0;
    int rc = CKPT_OK;

    if (n > 1 && !s->opts.no_fsync)
        sink_start_write_back(s, entry, n);
    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = s->kept[entry[i].file].kept ? sink_compare_kept(s, &entry[i], err)
                                         : sink_sync(s, entry[i].file, err);
    // Files that are kept have their lines already: those between them go in runs.
    for (size_t i = 0; s->stage && rc == CKPT_OK && i <= n; i++) {
        if (i < n && !s->kept[entry[i].file].kept)
            continue;
        if (i > first)
            rc = ckpt_publish_done(s->stage, entry + first, i - first, err);
        first = i + 1;
    }
    return rc;
}

/* The final rename; without force it must not replace what came into being meanwhile. */
static int sink_rename(const ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    struct stat st;

    if (!s->opts.force) {
        if (renameat2(s->at, f->temp, s->at, f->name, RENAME_NOREPLACE) == 0) {
            f->renamed = true;
            return CKPT_OK;
        }
        if (errno == EEXIST)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s/%s: was made by someone else meanwhile; use --force to replace it",
                             s->shown, f->name);
        // EINVAL, ENOSYS: this file system cannot do that; look, then rename.
        if (errno == EINVAL || errno == ENOSYS) {
            if (fstatat(s->at, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return ckpt_fail(err, CKPT_EUSAGE,
                                 "%s/%s: exists already; use --force to replace it", s->shown,
                                 f->name);
        } else {
            return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot rename to its final name",
                                 s->shown, f->name);
        }
    }
    if (renameat(s->at, f->temp, s->at, f->name) != 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot rename to its final name",
                             s->shown, f->name);
    f->renamed = true;
    return CKPT_OK;
}

/*
 * A rename, or the sync after them all, failed.  Names that were free before are taken back, so
 * that no partial set is left; names that replaced something cannot be, and the message says so.
 */
static int sink_take_back(ckpt_sink *s, size_t n_done, const ckpt_err *why, ckpt_err *err)
{
    if (s->opts.force && n_done == s->n)
        return ckpt_fail(err, why->code,
                         "%.300s (all files are in place, but may not survive a power cut)",
                         why->text);
    if (s->opts.force && n_done > 0)
        return ckpt_fail(err, why->code,
                         "%.300s (%zu of %zu files are already replaced: the set in this folder is "
                         "mixed; run again)",
                         why->text, n_done, s->n);
    for (size_t i = 0; i < n_done; i++) {
        if (s->file[i].renamed && unlinkat(s->at, s->file[i].name, 0) == 0)
            s->file[i].made = s->file[i].renamed = false;
    }
    return ckpt_fail(err, why->code, "%s", why->text);
}

int ckpt_sink_commit(ckpt_sink *s, ckpt_err *err)
{
    int rc = s->opts.no_fsync ? CKPT_OK : ckpt_dir_sync_made(&s->dir, err);
    ckpt_err why = {0};

    if (rc == CKPT_OK && s->stage)
        rc = ckpt_publish_commit(s->stage, err);
    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; !s->stage && i < s->n; i++) {
        if (!s->file[i].elsewhere && sink_rename(s, &s->file[i], &why) != CKPT_OK)
            return sink_take_back(s, i, &why, err);
    }
    if (!s->stage && !s->opts.no_fsync && ckpt_fsync(s->dir.fd) != 0) {
        (void)ckpt_fail_sys(&why, CKPT_EIO, errno, "%s: cannot sync the folder", s->shown);
        return sink_take_back(s, s->n, &why, err);
    }
    // From here on the folders are there to stay.
    s->dir.n_made = 0;
    return CKPT_OK;
}

void ckpt_sink_close(ckpt_sink *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->file && i < s->n; i++) {
        sink_file *f = &s->file[i];

        if (f->fd >= 0)
            (void)close(f->fd);
        if (!s->stage && f->made && !f->renamed)
            (void)unlinkat(s->at, f->temp, 0);
        ckpt_free(f->window);
        ckpt_free(f->temp);
    }
    ckpt_publish_close(s->stage);
    ckpt_dir_close(&s->dir);
    pthread_mutex_destroy(&s->lock);
    ckpt_free(s->file);
    ckpt_free(s->open);
    ckpt_free(s->kept);
    ckpt_free(s->shown);
    ckpt_free(s);
}
