/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clean.c: finds the left-overs of interrupted runs in a folder by their names, and removes those
 * that no process uses.
 *
 * A live run holds a lock on the journal of its folder. Temporary files of single outputs may be in
 * use without a lock, so their age decides: a run writes to one of its files all the time. Nothing
 * is removed through a link, and no entry with another name, kind or content than this library's.
 */
#define _GNU_SOURCE // flock, O_DIRECTORY
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "libckpt/base/opts.h"
#include "libckpt/base/vec.h"
#include "libckpt/commit/rename_log.h"
#include "libckpt/commit/temp_names.h"
#include "libckpt/io/dir.h"

enum {
    /* seconds without a write after which a temporary file counts as abandoned */
    CLEAN_AGE = 3600,
    CLEAN_MAX_PATH = 4000,    /* bytes of a path within a staging folder */
    CLEAN_MAX_ITEMS = 1 << 24 /* files and folders in a staging folder */
};

static const char clean_journal[] = "journal", clean_in_use[] = "in use by a running process";

/* An entry with a temporary name of this library. */
typedef struct clean_entry {
    ckpt_leftover is;
    ckpt_left_kind kind;
    int64_t written; /* time of the last write, in seconds since the epoch */
} clean_entry;

/* A file or folder inside a staging folder; path relative to that folder, "" for itself. */
typedef struct clean_item {
    const char *path;
    bool is_dir;
} clean_item;

CKPT_VEC(clean_entries, clean_entry);
CKPT_VEC(clean_items, clean_item);

typedef struct cleaner {
    const char *folder;
    int dir; /* descriptor of the folder */
    const ckpt_clean_opts *opts;
    ckpt_arena *arena;
    clean_entries all;
    int64_t now, youngest; /* the time; the last write to any of the temporary files */
    ckpt_err *err;
} cleaner;

/* ---- helpers ---- */

/* Set the entry's `kept` to a text in the arena. */
static int clean_keep(cleaner *c, clean_entry *e, const char *why, const char *what)
{
    e->is.kept = ckpt_arena_printf(c->arena, "%s%s", why, what);
    return e->is.kept ? CKPT_OK : ckpt_fail_memory(c->err);
}

/*
 * Report a removal that the system refused: the entry stays, and the next ones are still examined.
 */
static int clean_refused(cleaner *c, clean_entry *e, const char *path)
{
    int sys = errno;
    ckpt_err text = {0};

    (void)ckpt_fail_sys(&text, CKPT_EIO, sys, "%s/%s%s%s: cannot be removed", c->folder, e->is.name,
                        *path ? "/" : "", path);
    (void)ckpt_fail(c->err, CKPT_EIO, "%s", text.text);
    return clean_keep(c, e, "cannot be removed: ", strerror(sys));
}

/* False if another process holds the lock; a file system without locks counts as free. */
static bool clean_lock(int fd)
{
    int rc;

    do
        rc = flock(fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    return rc == 0 || (errno != EWOULDBLOCK && errno != EAGAIN);
}

static bool clean_is_young(const cleaner *c, int64_t written)
{
    // a time in the future means that clocks differ, so it counts as young
    return !c->opts->force && written > c->now - CLEAN_AGE;
}

/* ---- temporary files ---- */

/*
 * Remove a single file if it is old enough and no process holds its lock; a run that still writes
 * it would.
 */
static int clean_file(cleaner *c, clean_entry *e)
{
    int rc = CKPT_OK;

    e->is.n_files = 1;
    if (clean_is_young(c, c->youngest))
        return clean_keep(
            c, e, "written to within the last hour, or beside one that was: it may be in use", "");
    int fd = openat(c->dir, e->is.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? CKPT_OK : clean_keep(c, e, "cannot be opened: ", strerror(errno));
    if (!clean_lock(fd))
        rc = clean_keep(c, e, clean_in_use, "");
    else if (!c->opts->dry_run && unlinkat(c->dir, e->is.name, 0) != 0 && errno != ENOENT)
        rc = clean_refused(c, e, "");
    (void)close(fd);
    return rc;
}

/* ---- folders ---- */

/*
 * Add one entry of a staging folder; because of an entry that no run creates, the folder is kept.
 */
static int clean_take(cleaner *c, clean_entry *e, clean_items *items, size_t parent,
                      const struct stat *st, const char *name)
{
    const char *above = items->at[parent].path;
    bool is_dir = S_ISDIR(st->st_mode);

    if ((!is_dir && !S_ISREG(st->st_mode)) || strlen(above) + strlen(name) > CLEAN_MAX_PATH ||
        items->n > CLEAN_MAX_ITEMS)
        return clean_keep(c, e, "holds what ckpt does not make: ", name);
    if (!is_dir) {
        e->is.n_bytes += (uint64_t)st->st_size;
        e->is.n_files++;
    }
    if (st->st_mtime > e->written)
        e->written = st->st_mtime;
    // the journal goes last, so that an interrupted removal can be repeated
    if (!*above && strcmp(name, clean_journal) == 0)
        return CKPT_OK;
    clean_item *item = ckpt_vec_push(items);
    if (!item)
        return ckpt_fail_memory(c->err);
    item->is_dir = is_dir;
    item->path = ckpt_arena_printf(c->arena, "%s%s%s", above, *above ? "/" : "", name);
    return item->path ? CKPT_OK : ckpt_fail_memory(c->err);
}

/* List one staging folder; dev is the file system that it must stay on. */
static int clean_list(cleaner *c, clean_entry *e, clean_items *items, size_t parent, int top,
                      dev_t dev)
{
    const char *path = *items->at[parent].path ? items->at[parent].path : ".";
    int fd = openat(top, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    int rc = CKPT_OK;

    if (!dir) {
        rc = clean_keep(c, e, "cannot be listed: ", strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    errno = 0;
    for (struct dirent *d; rc == CKPT_OK && !e->is.kept && (d = readdir(dir)); errno = 0) {
        struct stat st;
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            rc = clean_keep(c, e, "cannot be looked at: ", d->d_name);
        else if (st.st_dev != dev)
            rc = clean_keep(c, e, "holds another file system: ", d->d_name);
        else
            rc = clean_take(c, e, items, parent, &st, d->d_name);
    }
    if (rc == CKPT_OK && !e->is.kept && errno)
        rc = clean_keep(c, e, "cannot be listed: ", strerror(errno));
    (void)closedir(dir);
    return rc;
}

/* List all entries below a staging folder, parents before children. */
static int clean_scan(cleaner *c, clean_entry *e, clean_items *items, int top)
{
    struct stat st;
    clean_item *root = ckpt_vec_push(items);

    if (!root)
        return ckpt_fail_memory(c->err);
    *root = (clean_item){.path = "", .is_dir = true};
    if (fstat(top, &st) != 0)
        return clean_keep(c, e, "cannot be looked at: ", strerror(errno));
    int rc = CKPT_OK;
    for (size_t i = 0; rc == CKPT_OK && !e->is.kept && i < items->n; i++) {
        if (items->at[i].is_dir)
            rc = clean_list(c, e, items, i, top, st.st_dev);
    }
    return rc;
}

/* Remove children before parents, then the journal, then the folder. */
static int clean_remove(cleaner *c, clean_entry *e, const clean_items *items, int top)
{
    for (size_t i = items->n; i-- > 1;) {
        const clean_item *item = &items->at[i];
        if (unlinkat(top, item->path, item->is_dir ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
            return clean_refused(c, e, item->path);
    }
    if (unlinkat(top, clean_journal, 0) != 0 && errno != ENOENT)
        return clean_refused(c, e, clean_journal);
    if (unlinkat(c->dir, e->is.name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return CKPT_OK;
    // a new run was waiting for the lock
    return errno == ENOTEMPTY || errno == EEXIST ? clean_keep(c, e, clean_in_use, "")
                                                 : clean_refused(c, e, "");
}

/*
 * Lock the journal of a staging folder; *lock is its descriptor, -1 when there is no journal. The
 * entry is kept if another process holds the lock. If a run has just removed its folder, the locked
 * journal has no name any more.
 */
static int clean_claim(cleaner *c, clean_entry *e, int top, int *lock)
{
    struct stat held, named;

    *lock = openat(top, clean_journal, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*lock < 0)
        return errno == ENOENT
                   ? CKPT_OK
                   : clean_keep(c, e, "its journal cannot be opened: ", strerror(errno));
    if (fstat(*lock, &held) != 0 || !S_ISREG(held.st_mode))
        return clean_keep(c, e, "its journal is not a file: not made by ckpt", "");
    if (!clean_lock(*lock) || fstatat(top, clean_journal, &named, AT_SYMLINK_NOFOLLOW) != 0 ||
        named.st_ino != held.st_ino || named.st_dev != held.st_dev)
        return clean_keep(c, e, clean_in_use, "");
    return CKPT_OK;
}

/* Without a journal the folder must be empty and old, because a run creates the journal first. */
static int clean_check_bare(cleaner *c, clean_entry *e, const clean_items *items)
{
    if (items->n > 1)
        return clean_keep(c, e, "has no journal: not made by ckpt", "");
    if (clean_is_young(c, e->written))
        return clean_keep(c, e,
                          "empty, and made within the last hour: a run may be about to use it", "");
    return CKPT_OK;
}

/*
 * A run that replaces a folder may have been killed after it moved the old one away and before the
 * new one got the name. Then the old one is the only one, and gets its name back before anything is
 * removed (publish.h: "old"). A run that was replacing a set of files is finished or undone.
 */
static int clean_give_back(cleaner *c, clean_entry *e, int top)
{
    static const char suffix[] = ".ckpt-partial";
    const ckpt_mover mover = {.top = c->dir, .aside = top, .shown = c->folder};
    int sys = ckpt_moves_recover(&mover);
    if (sys == 0)
        sys = ckpt_dir_remove(top, "was");
    if (sys == 0)
        sys = ckpt_dir_remove(top, "mid");
    if (sys != 0)
        return clean_keep(c, e, "cannot move the replaced folder back: ", strerror(sys));
    size_t n = strlen(e->is.name) - sizeof suffix; // the name without its first dot and the suffix
    const char *name = ckpt_arena_string(c->arena, e->is.name + 1, n);
    struct stat st;

    if (!name)
        return ckpt_fail_memory(c->err);
    if (fstatat(top, "old", &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        fstatat(c->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return CKPT_OK;
    if (renameat(top, "old", c->dir, name) == 0)
        return CKPT_OK;
    return clean_keep(c, e, "what it was to replace cannot be moved back: ", strerror(errno));
}

/* Clean one folder with descriptor top; the lock is held until all is removed. */
static int clean_folder_open(cleaner *c, clean_entry *e, clean_items *items, int top, int *lock)
{
    int rc = clean_claim(c, e, top, lock);

    if (rc == CKPT_OK && !e->is.kept && *lock >= 0 && !c->opts->dry_run)
        rc = clean_give_back(c, e, top);
    // scan it even if it stays, because its size is reported
    if (rc == CKPT_OK) {
        const char *kept = e->is.kept;
        e->is.kept = NULL;
        rc = clean_scan(c, e, items, top);
        e->is.kept = kept ? kept : e->is.kept;
    }
    if (rc == CKPT_OK && !e->is.kept && *lock < 0)
        rc = clean_check_bare(c, e, items);
    if (rc == CKPT_OK && !e->is.kept && !c->opts->dry_run)
        rc = clean_remove(c, e, items, top);
    return rc;
}

static int clean_folder(cleaner *c, clean_entry *e)
{
    clean_items items = {0};
    int lock = -1;
    int top = openat(c->dir, e->is.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (top < 0)
        return errno == ENOENT ? CKPT_OK : clean_keep(c, e, "cannot be opened: ", strerror(errno));
    int rc = clean_folder_open(c, e, &items, top, &lock);
    if (lock >= 0)
        (void)close(lock);
    (void)close(top);
    ckpt_vec_free(&items);
    return rc;
}

/* ---- the caller's folder ---- */

/* Add an entry with a temporary name and the matching kind. */
static int clean_add(cleaner *c, const char *name)
{
    ckpt_left_kind kind = ckpt_left_name(name);
    struct stat st;

    if (kind == CKPT_LEFT_NONE || fstatat(c->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !(kind == CKPT_LEFT_FILE ? S_ISREG(st.st_mode) : S_ISDIR(st.st_mode)))
        return CKPT_OK;
    clean_entry *e = ckpt_vec_push(&c->all);
    if (!e)
        return ckpt_fail_memory(c->err);
    e->kind = kind;
    e->written = st.st_mtime;
    e->is.is_dir = kind == CKPT_LEFT_FOLDER;
    e->is.n_bytes = e->is.is_dir ? 0 : (uint64_t)st.st_size;
    e->is.name = ckpt_arena_string(c->arena, name, strlen(name));
    if (!e->is.is_dir && e->written > c->youngest)
        c->youngest = e->written;
    return e->is.name ? CKPT_OK : ckpt_fail_memory(c->err);
}

static int clean_by_name(const void *a, const void *b)
{
    return strcmp(((const clean_entry *)a)->is.name, ((const clean_entry *)b)->is.name);
}

/* Fill c->all with possible left-overs, sorted by name, so that two runs report the same. */
static int clean_find(cleaner *c)
{
    // a separate descriptor, because closedir closes it
    int fd = openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = CKPT_OK;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (!dir) {
        rc = ckpt_fail_sys(c->err, CKPT_EIO, errno, "%s: cannot list the folder", c->folder);
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    errno = 0;
    for (struct dirent *d; rc == CKPT_OK && (d = readdir(dir)); errno = 0)
        rc = clean_add(c, d->d_name);
    if (rc == CKPT_OK && errno)
        rc = ckpt_fail_sys(c->err, CKPT_EIO, errno, "%s: cannot list the folder", c->folder);
    (void)closedir(dir);
    if (c->all.n)
        qsort(c->all.at, c->all.n, sizeof *c->all.at, clean_by_name);
    return rc;
}

/* Handle each entry in turn; a refusal by the system is returned at the end. */
static int clean_all(cleaner *c)
{
    int rc = clean_find(c);

    for (size_t i = 0; rc == CKPT_OK && i < c->all.n; i++) {
        clean_entry *e = &c->all.at[i];
        rc = e->is.is_dir ? clean_folder(c, e) : clean_file(c, e);
        e->is.age = c->now > e->written ? c->now - e->written : 0;
        if (rc == CKPT_OK && c->opts->leftover && c->opts->leftover(c->opts->ctx, &e->is))
            rc = ckpt_fail(c->err, CKPT_ECANCELED, "%s: stopped", c->folder);
    }
    return rc == CKPT_OK ? c->err->code : rc;
}

int ckpt_clean(const char *folder, const ckpt_clean_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_clean_opts own;
    ckpt_err local = {0};
    cleaner c = {.folder = folder,
                 .opts = &own,
                 .now = (int64_t)time(NULL),
                 .err = err && err->code == CKPT_OK ? err : &local};

    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_clean_opts", err);

    if (rc == CKPT_OK && (!folder || !*folder))
        rc = ckpt_fail(err, CKPT_EUSAGE, "no folder to clean");
    if (rc != CKPT_OK)
        return rc;
    c.dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c.dir < 0)
        return ckpt_fail_sys(err, errno == ENOTDIR ? CKPT_EUSAGE : ckpt_open_code(errno), errno,
                             "%s: cannot open the folder", folder);
    c.arena = ckpt_arena_new(0);
    rc = c.arena ? clean_all(&c) : ckpt_fail_memory(c.err);
    ckpt_vec_free(&c.all);
    ckpt_arena_free(c.arena);
    (void)close(c.dir);
    return rc;
}
