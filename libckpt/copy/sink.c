/*
 * sink.c: temporary files beside their final names, and the step that makes them final.
 */
#define _GNU_SOURCE // fallocate, sync_file_range, renameat2
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

#include "libckpt/copy/sink.h"

enum {
    SINK_TRIES = 100,     /* random names to try before giving up */
    SINK_NAME = 256,      /* a path part and its terminator */
    SINK_NAME_KEPT = 230, /* bytes of the final name that fit into a temporary one */
    SINK_WINDOW_BITS = 23 /* write-back starts when 8 MiB that lie together are written */
};

#define SINK_WINDOW (UINT64_C(1) << SINK_WINDOW_BITS)

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
    char temp[SINK_NAME];
    sink_window *window; /* one for each SINK_WINDOW bytes of the file */
} sink_file;

struct ckpt_sink {
    ckpt_sink_opts opts;
    char *folder;
    int dir;              /* descriptor of the folder, or -1 */
    size_t n_made;        /* folders created: the first is the outermost */
    size_t *made;         /* lengths of their paths within folder */
    pthread_mutex_t lock; /* of the descriptors */
    unsigned n_open, max_open;
    uint64_t clock;
    size_t n;
    sink_file *file;
};

/* ---- folders ---- */

/* An interrupted sync has not failed; one that failed is final, for the kernel may have dropped the
 * pages. */
static int sink_fsync(int fd)
{
    int rc;

    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* Only descriptors of folders survive a rename of the path above them. */
static int sink_open_folder(const char *path)
{
    int fd;

    do
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* One folder of the path, which now ends at byte n. */
static int sink_make_folder(ckpt_sink *s, size_t n, ckpt_err *err)
{
    struct stat st;
    int sys;

    if (mkdir(s->folder, 0777) == 0) {
        s->made[s->n_made++] = n;
        return CKPT_OK;
    }
    sys = errno;
    if (stat(s->folder, &st) == 0 && S_ISDIR(st.st_mode))
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot create the folder", s->folder);
}

/* Create the folder and its parents, remembering which of them are new. */
static int sink_make_folders(ckpt_sink *s, ckpt_err *err)
{
    size_t n = strlen(s->folder);

    for (size_t i = 1; i <= n; i++) {
        char was = s->folder[i];
        int rc;

        if (was != '/' && was != 0)
            continue;
        s->folder[i] = 0;
        rc = sink_make_folder(s, i, err);
        s->folder[i] = was;
        if (rc != 0)
            return rc;
    }
    s->dir = sink_open_folder(s->folder);
    if (s->dir < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot open the folder", s->folder);
    return CKPT_OK;
}

/* Remove the folders that were made for files which are not there after all; those in use stay. */
static void sink_remove_folders(ckpt_sink *s)
{
    while (s->n_made > 0) {
        size_t at = s->made[--s->n_made];
        char was = s->folder[at];

        s->folder[at] = 0;
        (void)rmdir(s->folder);
        s->folder[at] = was;
    }
}

/* A new folder is only safe once its parent is synced. */
static int sink_sync_parents(ckpt_sink *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < s->n_made; i++) {
        size_t at = s->made[i];
        char was = s->folder[at];
        char *slash;
        int fd;

        s->folder[at] = 0;
        slash = strrchr(s->folder, '/');
        if (slash != NULL)
            *slash = 0;
        fd = sink_open_folder(slash == NULL ? "." : slash == s->folder ? "/" : s->folder);
        if (fd < 0 || sink_fsync(fd) != 0)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot sync the folder", s->folder);
        if (fd >= 0)
            (void)close(fd);
        if (slash != NULL)
            *slash = '/';
        s->folder[at] = was;
    }
    return rc;
}

/* ---- what stands in the way ---- */

static int sink_compare_names(const void *pa, const void *pb)
{
    const char *const *a = pa, *const *b = pb;

    return strcmp(*a, *b);
}

/* Names come from layouts, but those may come from files: one part each, and no two the same. */
static int sink_check_names(const ckpt_sink *s, ckpt_err *err)
{
    const char **name = ckpt_alloc((s->n + 1) * sizeof *name);
    int rc = CKPT_OK;

    if (name == NULL)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < s->n; i++)
        name[i] = s->file[i].name;
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        if (!ckpt_path_part_ok(name[i], strlen(name[i])))
            rc = ckpt_fail(err, CKPT_EUNSAFE, "%s/%s: not a plain file name", s->folder, name[i]);
    }
    qsort(name, s->n, sizeof *name, sink_compare_names);
    for (size_t i = 1; rc == CKPT_OK && i < s->n; i++) {
        if (strcmp(name[i - 1], name[i]) == 0)
            rc = ckpt_fail(err, CKPT_EUSAGE, "%s/%s: two outputs have this name", s->folder,
                           name[i]);
    }
    ckpt_free(name);
    return rc;
}

/* True if st is one of the files that are read: by identity, so that links do not fool us. */
static bool sink_is_input(const ckpt_map *inputs, const struct stat *st)
{
    for (size_t i = 0; inputs != NULL && i < inputs->files.n; i++) {
        const ckpt_map_file *f = &inputs->files.at[i];
        struct stat in;

        if (f->ino == (uint64_t)st->st_ino && f->dev == (uint64_t)st->st_dev)
            return true;
        // Maps made by hand know no identity.
        if (f->ino == 0 && f->path != NULL && stat(f->path, &in) == 0 && in.st_ino == st->st_ino &&
            in.st_dev == st->st_dev)
            return true;
    }
    return false;
}

/* What is there already: never an input, never a folder, and only with force a file. */
static int sink_check_existing(const ckpt_sink *s, const ckpt_map *inputs, const char *name,
                               ckpt_err *err)
{
    struct stat st, to;

    if (fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT
                   ? CKPT_OK
                   : ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot stat", s->folder, name);
    if (sink_is_input(inputs, &st) ||
        (fstatat(s->dir, name, &to, 0) == 0 && sink_is_input(inputs, &to)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: is one of the files that are read; choose another output",
                         s->folder, name);
    if (S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: is a folder; choose another output", s->folder,
                         name);
    if (!s->opts.force)
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: exists already; use --force to replace it",
                         s->folder, name);
    return CKPT_OK;
}

/* Better now than after hours; with force the old files still count, for they live until the
 * rename. */
static int sink_check_space(const ckpt_sink *s, ckpt_err *err)
{
    struct statvfs fs;
    uint64_t need = 0, have;

    for (size_t i = 0; i < s->n; i++) {
        if (!ckpt_add(need, s->file[i].size, &need))
            return ckpt_fail(err, CKPT_ELIMIT, "%s: more than 2^64 bytes to be written", s->folder);
    }
    // A file system that cannot say how much is free is found out by fallocate, or by writing.
    if (fstatvfs(s->dir, &fs) != 0 || fs.f_blocks == 0)
        return CKPT_OK;
    if (!ckpt_mul((uint64_t)fs.f_bavail, (uint64_t)(fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize),
                  &have) ||
        need <= have)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, ENOSPC,
                         "%s: needs %" PRIu64 " bytes, but only %" PRIu64 " are free", s->folder,
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
    (void)snprintf(f->temp, sizeof f->temp, ".%.*s.ckpt-%s.tmp", SINK_NAME_KEPT, f->name, tail);
}

static int sink_no_room(const ckpt_sink *s, const sink_file *f, int sys, ckpt_err *err)
{
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/%s: cannot reserve %" PRIu64 " bytes", s->folder,
                         f->name, f->size);
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
    do
        rc = ftruncate(f->fd, (off_t)f->size);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? CKPT_OK : sink_no_room(s, f, errno, err);
}

/* A temporary file, its space and its counters. */
static int sink_create(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc;

    for (unsigned i = 0; i < SINK_TRIES && !f->made; i++) {
        sink_temp_name(f);
        f->fd = openat(s->dir, f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        f->made = f->fd >= 0;
        if (!f->made && errno != EEXIST && errno != EINTR)
            break;
    }
    if (!f->made)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot create", s->folder, f->temp);
    s->n_open++;
    rc = sink_reserve(s, f, err);
    if (rc != CKPT_OK)
        return rc;
    // Only now is the size known to be one that files can have.
    f->window = ckpt_alloc((size_t)((f->size >> SINK_WINDOW_BITS) + 1) * sizeof *f->window);
    return f->window == NULL ? ckpt_fail_memory(err) : CKPT_OK;
}

/* ---- descriptors ---- */

/* Linux has closed the descriptor even when it says EINTR: nothing failed, and closing again would
 * be wrong. */
static int sink_close_fd(const ckpt_sink *s, const sink_file *f, int fd, ckpt_err *err)
{
    if (close(fd) == 0 || errno == EINTR)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot close", s->folder, f->name);
}

/* A quarter of what the process may have: the rest is for the inputs and for our host. */
static unsigned sink_default_open(void)
{
    struct rlimit lim;
    rlim_t n;

    if (getrlimit(RLIMIT_NOFILE, &lim) != 0)
        return 64;
    n = lim.rlim_cur / 4;
    return n < 8 ? 8 : n > 512 ? 512 : (unsigned)n;
}

/*
 * Close a file for now.  A descriptor opened later may not be told of write-back errors before its
 * time, so what was written must be on the disk first.
 */
static int sink_rest(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int fd = f->fd, rc = CKPT_OK;

    f->fd = -1;
    s->n_open--;
    if (!s->opts.no_fsync && sink_fsync(fd) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot write to the disk", s->folder,
                           f->name);
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
    for (size_t i = 0; i < s->n; i++) {
        sink_file *f = &s->file[i];

        if (f->fd >= 0 && f->n_users == 0 && (oldest == NULL || f->used_at < oldest->used_at))
            oldest = f;
    }
    return oldest == NULL ? CKPT_OK : sink_rest(s, oldest, err);
}

/* Open a resting file again, by its temporary name. */
static int sink_wake(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc = sink_make_room(s, err);

    if (rc != CKPT_OK)
        return rc;
    do
        f->fd = openat(s->dir, f->temp, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot open", s->folder, f->temp);
    s->n_open++;
    return CKPT_OK;
}

/* A descriptor for a write; it stays open until sink_put. */
static int sink_get(ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&s->lock);
    if (f->fd < 0)
        rc = sink_wake(s, f, err);
    if (rc == CKPT_OK) {
        f->n_users++;
        f->used_at = ++s->clock;
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

/* Everything that needs no disk. */
static int sink_init(ckpt_sink *s, const char *folder, const ckpt_map *target, ckpt_err *err)
{
    size_t n = strlen(folder);

    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (n == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "the output folder has no name");
    s->n = target->files.n;
    s->max_open = sink_default_open();
    s->folder = ckpt_alloc(n + 1);
    s->made = ckpt_alloc((n + 1) * sizeof *s->made);
    s->file = ckpt_alloc((s->n + 1) * sizeof *s->file);
    if (s->folder == NULL || s->made == NULL || s->file == NULL)
        return ckpt_fail_memory(err);
    memcpy(s->folder, folder, n);
    for (size_t i = 0; i < s->n; i++) {
        sink_file *f = &s->file[i];

        f->fd = -1;
        f->name = target->files.at[i].path;
        f->size = target->files.at[i].size;
    }
    return CKPT_OK;
}

/* The order matters: nothing is created before everything that can be refused was looked at. */
static int sink_begin(ckpt_sink *s, const char *folder, const ckpt_map *target,
                      const ckpt_map *inputs, ckpt_err *err)
{
    int rc = sink_init(s, folder, target, err);

    if (rc == CKPT_OK)
        rc = sink_check_names(s, err);
    if (rc == CKPT_OK)
        rc = sink_make_folders(s, err);
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++)
        rc = sink_check_existing(s, inputs, s->file[i].name, err);
    if (rc == CKPT_OK)
        rc = sink_check_space(s, err);
    for (size_t i = 0; rc == CKPT_OK && i < s->n; i++) {
        rc = sink_make_room(s, err);
        if (rc == CKPT_OK)
            rc = sink_create(s, &s->file[i], err);
    }
    return rc;
}

int ckpt_sink_open(ckpt_sink **out, const char *folder, const ckpt_map *target,
                   const ckpt_map *inputs, const ckpt_sink_opts *opts, ckpt_err *err)
{
    ckpt_sink *s = ckpt_alloc(sizeof *s);
    int rc;

    *out = NULL;
    if (s == NULL || pthread_mutex_init(&s->lock, NULL) != 0) {
        ckpt_free(s);
        return ckpt_fail_memory(err);
    }
    s->dir = -1;
    if (opts != NULL)
        s->opts = *opts;
    rc = sink_begin(s, folder, target, inputs, err);
    if (rc == CKPT_OK)
        *out = s;
    else
        ckpt_sink_close(s);
    return rc;
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

/* All n bytes; short counts and EINTR are the kernel's business, not the caller's. */
static int sink_pwrite(const ckpt_sink *s, const sink_file *f, const uint8_t *p, uint64_t n,
                       uint64_t at, ckpt_err *err)
{
    while (n > 0) {
        size_t want = n < (1u << 30) ? (size_t)n : (size_t)1 << 30;
        ssize_t put = pwrite(f->fd, p, want, (off_t)at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return ckpt_fail_sys(err, CKPT_EIO, put < 0 ? errno : ENOSPC,
                                 "%s/%s: cannot write %zu bytes at offset %" PRIu64 " (of %" PRIu64
                                 " in all)",
                                 s->folder, f->name, want, at, f->size);
        p += put;
        n -= (uint64_t)put;
        at += (uint64_t)put;
    }
    return CKPT_OK;
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
                         s->folder, f->name, n, at, f->size);
    rc = sink_get(s, f, err);
    if (rc != CKPT_OK)
        return rc;
    rc = sink_pwrite(s, f, bytes, n, at, err);
    if (rc == CKPT_OK && !s->opts.no_fsync)
        sink_count(f, n, at);
    sink_put(s, f);
    return rc;
}

/* ---- making it final ---- */

int ckpt_sink_sync(ckpt_sink *s, uint32_t i, ckpt_err *err)
{
    sink_file *f = &s->file[i];
    int rc = sink_get(s, f, err), fd;

    if (rc != CKPT_OK)
        return rc;
    // Without the lock: files are synced side by side.
    if (!s->opts.no_fsync && sink_fsync(f->fd) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot write to the disk", s->folder,
                           f->name);
    pthread_mutex_lock(&s->lock);
    fd = f->fd;
    f->fd = -1;
    f->n_users--;
    s->n_open--;
    pthread_mutex_unlock(&s->lock);
    if (rc == CKPT_OK)
        return sink_close_fd(s, f, fd, err);
    (void)close(fd);
    return rc;
}

/* The final rename; without force it must not replace what came into being meanwhile. */
static int sink_rename(const ckpt_sink *s, sink_file *f, ckpt_err *err)
{
    struct stat st;

    if (!s->opts.force) {
        if (renameat2(s->dir, f->temp, s->dir, f->name, RENAME_NOREPLACE) == 0) {
            f->renamed = true;
            return CKPT_OK;
        }
        if (errno == EEXIST)
            return ckpt_fail(err, CKPT_EUSAGE,
                             "%s/%s: was made by someone else meanwhile; use --force to replace it",
                             s->folder, f->name);
        // EINVAL, ENOSYS: this file system cannot do that; look, then rename.
        if (errno == EINVAL || errno == ENOSYS) {
            if (fstatat(s->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return ckpt_fail(err, CKPT_EUSAGE,
                                 "%s/%s: exists already; use --force to replace it", s->folder,
                                 f->name);
        } else {
            return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot rename to its final name",
                                 s->folder, f->name);
        }
    }
    if (renameat(s->dir, f->temp, s->dir, f->name) != 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot rename to its final name",
                             s->folder, f->name);
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
        if (unlinkat(s->dir, s->file[i].name, 0) == 0)
            s->file[i].made = s->file[i].renamed = false;
    }
    return ckpt_fail(err, why->code, "%s", why->text);
}

int ckpt_sink_commit(ckpt_sink *s, ckpt_err *err)
{
    int rc = s->opts.no_fsync ? CKPT_OK : sink_sync_parents(s, err);
    ckpt_err why = {0};

    if (rc != CKPT_OK)
        return rc;
    for (size_t i = 0; i < s->n; i++) {
        if (sink_rename(s, &s->file[i], &why) != CKPT_OK)
            return sink_take_back(s, i, &why, err);
    }
    if (!s->opts.no_fsync && sink_fsync(s->dir) != 0) {
        (void)ckpt_fail_sys(&why, CKPT_EIO, errno, "%s: cannot sync the folder", s->folder);
        return sink_take_back(s, s->n, &why, err);
    }
    // From here on the folders are there to stay.
    s->n_made = 0;
    return CKPT_OK;
}

void ckpt_sink_close(ckpt_sink *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; s->file != NULL && i < s->n; i++) {
        sink_file *f = &s->file[i];

        if (f->fd >= 0)
            (void)close(f->fd);
        if (f->made && !f->renamed)
            (void)unlinkat(s->dir, f->temp, 0);
        ckpt_free(f->window);
    }
    if (s->dir >= 0)
        (void)close(s->dir);
    if (s->folder != NULL)
        sink_remove_folders(s);
    pthread_mutex_destroy(&s->lock);
    ckpt_free(s->file);
    ckpt_free(s->made);
    ckpt_free(s->folder);
    ckpt_free(s);
}
