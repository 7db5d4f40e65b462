/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.c: makes, syncs, searches and removes folders.
 */
#define _GNU_SOURCE // S_ISVTX
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/dist/team.h"
#include "libckpt/io/address.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/file_locations.h"

enum { DIR_DEPTH = 64 /* depth limit of a walk, because each level needs a descriptor */ };

/* ---- system calls that continue when interrupted ---- */

int ckpt_fsync(int fd)
{
    int rc;

    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* One call moves at most 2 GiB on Linux; steps of 1 GiB keep ssize_t safe everywhere. */
static size_t dir_some(uint64_t n)
{
    return n < (1u << 30) ? (size_t)n : (size_t)1 << 30;
}

int ckpt_pread(int fd, void *buf, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)buf + done, dir_some(n - done), (off_t)(at + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = EIO;
        if (got <= 0)
            return -1;
        done += (uint64_t)got;
    }
    return 0;
}

int ckpt_pwrite(int fd, const void *bytes, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t put =
            pwrite(fd, (const char *)bytes + done, dir_some(n - done), (off_t)(at + done));

        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0)
            errno = ENOSPC;
        if (put <= 0)
            return -1;
        done += (uint64_t)put;
    }
    return 0;
}

int ckpt_fdatasync(int fd)
{
    int rc;

    do
        rc = fdatasync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* ---- opening and making ---- */

/* Open a folder, because only a descriptor survives a rename of a folder above it. */
static int dir_open(int at, const char *path, int more)
{
    int fd;

    do
        fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | more);
    while (fd < 0 && errno == EINTR);
    return fd;
}

bool ckpt_dir_may_follow(int top, int fd)
{
    struct stat above, st;

    if (fstat(top, &above) != 0 || fstat(fd, &st) != 0)
        return false;
    return !(above.st_mode & S_ISVTX) || st.st_uid == geteuid() || st.st_uid == above.st_uid;
}

int ckpt_dir_check_place(int at, const char *name, const char *shown, bool links, ckpt_err *err)
{
    char to[256];
    struct stat st;
    ssize_t n;

    bool there = fstatat(at, name, &st, 0) == 0;

    // the caller decides whether it accepts a folder
    if (there && S_ISDIR(st.st_mode))
        return CKPT_OK;
    if (there && !S_ISREG(st.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: this is a %s, which ckpt never replaces by a file; choose another "
                         "output ('-' is standard output, where a command has it)",
                         shown, S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) ? "pipe" : "device");
    if (links || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISLNK(st.st_mode))
        return CKPT_OK;
    n = readlinkat(at, name, to, sizeof to - 1);
    to[n > 0 ? n : 0] = 0;
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%s: this is a link to %s, and ckpt does not replace links; name the target "
                     "of the link, or remove it",
                     shown, to);
}

int ckpt_dir_open_at(int at, const char *name)
{
    assert(name);
    return dir_open(at, name, O_NOFOLLOW);
}

/* Make one folder of the path, which is cut at byte n. */
static int dir_make_one(ckpt_dir *d, size_t n, ckpt_err *err)
{
    struct stat st;
    int sys;

    if (mkdir(d->path, 0777) == 0) {
        d->made[d->n_made++] = n;
        return CKPT_OK;
    }
    sys = errno;
    if (stat(d->path, &st) == 0 && S_ISDIR(st.st_mode))
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s: cannot create the folder", d->path);
}

int ckpt_dir_make(ckpt_dir *d, const char *path, ckpt_err *err)
{
    assert(d && path);
    size_t n = strlen(path);

    *d = CKPT_DIR_NONE;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "the output folder has no name");
    if (ckpt_address_refuse(path, err) != CKPT_OK)
        return CKPT_EUSAGE;
    d->path = ckpt_alloc(n + 1);
    d->made = ckpt_alloc((n + 1) * sizeof *d->made);
    if (!d->path || !d->made)
        return ckpt_fail_memory(err);
    memcpy(d->path, path, n);
    for (size_t i = 1; i <= n; i++) {
        char was = d->path[i];
        int rc;

        if (was != '/' && was != 0)
            continue;
        d->path[i] = 0;
        rc = dir_make_one(d, i, err);
        d->path[i] = was;
        if (rc != CKPT_OK)
            return rc;
    }
    d->fd = dir_open(AT_FDCWD, d->path, 0);
    if (d->fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot open the folder", d->path);
    return CKPT_OK;
}

int ckpt_dir_open(ckpt_dir *d, const char *path, ckpt_err *err)
{
    assert(d && path);
    size_t n = strlen(path);

    *d = CKPT_DIR_NONE;
    if (ckpt_address_refuse(path, err) != CKPT_OK)
        return CKPT_EUSAGE;
    d->path = ckpt_alloc(n + 1);
    if (!d->path)
        return ckpt_fail_memory(err);
    memcpy(d->path, path, n);
    d->fd = dir_open(AT_FDCWD, d->path, 0);
    return d->fd >= 0 ? CKPT_OK
                      : ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot open the folder", d->path);
}

int ckpt_dir_sync_made(ckpt_dir *d, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < d->n_made; i++) {
        size_t at = d->made[i];
        char was = d->path[at], *slash;
        int fd;

        d->path[at] = 0;
        slash = strrchr(d->path, '/');
        if (slash)
            *slash = 0;
        fd = dir_open(AT_FDCWD, !slash ? "." : slash == d->path ? "/" : d->path, 0);
        if (fd < 0 || ckpt_fsync(fd) != 0)
            rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot sync the folder", d->path);
        if (fd >= 0)
            (void)close(fd);
        if (slash)
            *slash = '/';
        d->path[at] = was;
    }
    return rc;
}

void ckpt_dir_unmake(ckpt_dir *d, size_t n)
{
    // Innermost first; folders in use stay.
    while (d->n_made > 0 && d->made[d->n_made - 1] > n) {
        size_t at = d->made[--d->n_made];
        char was = d->path[at];

        d->path[at] = 0;
        (void)rmdir(d->path);
        d->path[at] = was;
    }
}

void ckpt_dir_close(ckpt_dir *d)
{
    if (d->fd >= 0)
        (void)close(d->fd);
    ckpt_dir_unmake(d, 0);
    ckpt_free(d->made);
    ckpt_free(d->path);
    *d = CKPT_DIR_NONE;
}

/* ---- walking ---- */

/* A folder on the path of a walk. */
typedef struct dir_level {
    DIR *stream;
    int at; /* descriptor of its parent */
    /* its name, inside the parent's last dirent, which is valid until the next readdir */
    const char *name;
    dev_t dev;
} dir_level;

/* Enter a folder; 0 or an errno value. */
static int dir_enter(dir_level *l, int at, const char *name, const struct stat *st)
{
    int fd = ckpt_dir_open_at(at, name);

    *l = (dir_level){NULL, at, name, st->st_dev};
    if (fd < 0)
        return errno;
    l->stream = fdopendir(fd);
    if (l->stream)
        return 0;
    (void)close(fd);
    return ENOMEM;
}

/* Read the next entry of a folder except "." and ".."; *name is NULL at its end. */
static int dir_next(const dir_level *l, const char **name)
{
    const struct dirent *e;

    do {
        errno = 0;
        e = readdir(l->stream);
    } while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    *name = e ? e->d_name : NULL;
    return e ? 0 : errno;
}

/* Make one step of a walk: enter a folder, leave one, or visit another entry. */
static int dir_step(dir_level *level, size_t *n, ckpt_dir_fn fn, void *ctx)
{
    dir_level *l = &level[*n - 1];
    int fd = dirfd(l->stream), rc;
    struct stat st = {0};
    const char *name;

    rc = dir_next(l, &name);
    if (rc != 0)
        return rc;
    if (!name) {
        (void)closedir(l->stream);
        --*n;
        st.st_mode = S_IFDIR;
        return fn(ctx, l->at, l->name, &st);
    }
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISDIR(st.st_mode) || st.st_dev != l->dev)
        return fn(ctx, fd, name, &st);
    if (*n == DIR_DEPTH)
        return ELOOP;
    rc = dir_enter(&level[*n], fd, name, &st);
    *n += rc == 0;
    return rc;
}

int ckpt_dir_walk(int at, const char *name, ckpt_dir_fn fn, void *ctx)
{
    assert(name && fn);
    dir_level level[DIR_DEPTH];
    size_t n = 0;
    struct stat st;
    int rc;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    if (!S_ISDIR(st.st_mode))
        return fn(ctx, at, name, &st);
    rc = dir_enter(&level[0], at, name, &st);
    n = rc == 0;
    while (rc == 0 && n > 0)
        rc = dir_step(level, &n, fn, ctx);
    while (n > 0)
        (void)closedir(level[--n].stream);
    return rc;
}

static int dir_unlink(void *ctx, int at, const char *name, const struct stat *st)
{
    (void)ctx;
    if (unlinkat(at, name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT)
        return 0;
    return errno;
}

int ckpt_dir_remove(int at, const char *name)
{
    assert(name);
    int rc = 0;

    // Try again, because cleaning up after a failure must not fail for the same temporary reason.
    for (unsigned i = 0; i < 3; i++) {
        rc = ckpt_dir_walk(at, name, dir_unlink, NULL);
        if (rc == 0 || rc == ENOENT)
            return 0;
    }
    return rc;
}

/* ---- names ---- */

bool ckpt_dir_parts_ok(const char *name)
{
    for (;;) {
        size_t n = strcspn(name, "/");

        if (!ckpt_path_part_ok(name, n))
            return false;
        if (name[n] == 0)
            return true;
        name += n + 1;
    }
}

static int dir_compare_names(const void *pa, const void *pb)
{
    const char *const *a = pa, *const *b = pb;

    return strcmp(*a, *b);
}

/*
 * True if a name is acceptable for an output: a single path part, unless the files belong together.
 */
static bool dir_name_ok(const ckpt_map *to, const char *name)
{
    return to->folder || to->set ? ckpt_dir_parts_ok(name) : ckpt_path_part_ok(name, strlen(name));
}

/* Check that no file has the name of another one's folder. */
static int dir_check_clash(const ckpt_map *to, const char *shown, const char *const *sorted,
                           ckpt_err *err)
{
    for (size_t i = 0; i < to->files.n; i++) {
        const char *name = to->files.at[i].path;

        for (const char *p = strchr(name, '/'); p != NULL; p = strchr(p + 1, '/')) {
            size_t n = (size_t)(p - name), low = 0, high = to->files.n;

            // Only the first name that does not sort before these n bytes can be equal to them.
            while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (strncmp(sorted[middle], name, n) < 0)
                    low = middle + 1;
                else
                    high = middle;
            }
            if (low < to->files.n && strlen(sorted[low]) == n && strncmp(sorted[low], name, n) == 0)
                return ckpt_fail(
                    err, CKPT_EUSAGE,
                    "%s/%s: one output needs a file of this name, another one a folder", shown,
                    sorted[low]);
        }
    }
    return CKPT_OK;
}

/* Names come from layouts, which may take them from files, so they need a check. */
int ckpt_dir_check_names(const ckpt_map *to, const char *shown, ckpt_err *err)
{
    assert(to && shown);
    const char **name = ckpt_alloc((to->files.n + 1) * sizeof *name);
    int rc = CKPT_OK;

    if (!name)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < to->files.n; i++)
        name[i] = to->files.at[i].path;
    for (size_t i = 0; rc == CKPT_OK && i < to->files.n; i++) {
        if (!dir_name_ok(to, name[i]))
            rc = ckpt_fail(err, CKPT_EUNSAFE, "%s/%s: not a plain file name", shown, name[i]);
    }
    qsort(name, to->files.n, sizeof *name, dir_compare_names);
    for (size_t i = 1; rc == CKPT_OK && i < to->files.n; i++) {
        if (strcmp(name[i - 1], name[i]) == 0)
            rc = ckpt_fail(err, CKPT_EUSAGE, "%s/%s: two outputs have this name", shown, name[i]);
    }
    if (rc == CKPT_OK)
        rc = dir_check_clash(to, shown, name, err);
    ckpt_free(name);
    return rc;
}

/* ---- inputs ---- */

/* True if a file is on another machine of the team, and not on this one. */
static bool dir_is_far(const ckpt_map_file *f)
{
    ckpt_team *t = ckpt_team_any();
    const ckpt_place p = t && f->path ? ckpt_places_find(t, f->path) : (ckpt_place){0};

    return p.known && !p.here;
}

bool ckpt_dir_is_input(const ckpt_map *inputs, const struct stat *st)
{
    for (size_t i = 0; inputs && i < inputs->files.n; i++) {
        const ckpt_map_file *f = &inputs->files.at[i];
        struct stat in;

        // Device numbers do not count in a team, because each machine numbers a shared file system
        // itself, and disks of different machines may have the same numbers.
        if (f->ino == (uint64_t)st->st_ino && dir_is_far(f))
            continue;
        if (f->ino != 0 && f->ino == (uint64_t)st->st_ino &&
            (f->dev == (uint64_t)st->st_dev ||
             (ckpt_team_any() && f->size == (uint64_t)st->st_size &&
              f->mtime_s == st->st_mtim.tv_sec && f->mtime_ns == st->st_mtim.tv_nsec)))
            return true;
        // Maps that a program builds in memory have no inode numbers: compare by path.
        if (f->ino == 0 && f->path && stat(f->path, &in) == 0 && in.st_ino == st->st_ino &&
            in.st_dev == st->st_dev)
            return true;
    }
    return false;
}

/* Not an errno value: errno values are positive. */
enum { DIR_FOUND = -1 };

static int dir_look(void *ctx, int at, const char *name, const struct stat *st)
{
    (void)at;
    (void)name;
    return S_ISREG(st->st_mode) && ckpt_dir_is_input(ctx, st) ? DIR_FOUND : 0;
}

int ckpt_dir_has_input(int at, const char *name, const ckpt_map *inputs)
{
    int rc = ckpt_dir_walk(at, name, dir_look, (void *)(uintptr_t)inputs);

    if (rc == DIR_FOUND)
        return 1;
    errno = rc;
    return rc == 0 || rc == ENOENT ? 0 : -1;
}
