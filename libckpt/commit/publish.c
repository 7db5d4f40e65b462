/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish.c: manages the staging folder: enter, resume, commit, undo.
 */
#define _GNU_SOURCE // renameat2
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "libckpt/commit/fileset.h"
#include "libckpt/commit/latest.h"
#include "libckpt/commit/publish.h"
#include "libckpt/commit/swap.h"
#include "libckpt/dist/team.h"
#include "libckpt/io/thread_pool.h"

enum {
    STAGE_TRIES = 100, /* tries to lock a journal that other runs keep removing */
    STAGE_NAME = 255   /* bytes of a path part */
};

#define STAGE_SUFFIX ".ckpt-partial"

struct ckpt_publish {
    const ckpt_dir *dir; /* the folder PATH; borrowed, as the maps are */
    const ckpt_map *to, *inputs;
    ckpt_publish_opts opts;
    char fingerprint[65];
    char *name;         /* name of the staging folder, in PATH */
    char *where;        /* path of the staging folder, for messages */
    char *final;        /* the path of the output, for messages */
    uint64_t n_dropped; /* bytes of an earlier run that this one could not use */
    ckpt_set_stays stays;
    size_t n_gone; /* files of an old set that the new one lacks */
    int fd;        /* descriptor of the staging folder */
    int data;      /* descriptor of the folder with the files */
    bool made;     /* this run created the staging folder */
    bool owned;    /* this run must remove it */
    bool match;    /* it holds an earlier run of the same command */
    bool placed;   /* the earlier run's folder has its final name already */
    bool done;     /* committed */
    char *text;    /* the names of the folders below, one after another */
    char **below;  /* those names, outer ones first */
    size_t n_below;
    ckpt_swap folder, pointer;
    ckpt_journal journal;
};

/* ---- names ---- */

/*
 * Check the names of the target map, because they may come from an input file and must not lead
 * elsewhere.
 */
static int pub_check_names(const ckpt_publish *s, ckpt_err *err)
{
    const char *folder = s->to->folder, *pointer = s->to->pointer;

    if (!folder)
        return CKPT_OK;
    if (!ckpt_path_part_ok(folder, strlen(folder)))
        return ckpt_fail(err, CKPT_EUNSAFE, "%s/%s: not a plain folder name", s->dir->path, folder);
    if (strlen(folder) > STAGE_NAME - strlen("." STAGE_SUFFIX))
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: the name has more than %zu bytes", s->dir->path,
                         folder, STAGE_NAME - strlen("." STAGE_SUFFIX));
    if (pointer && (!ckpt_path_part_ok(pointer, strlen(pointer)) || strcmp(pointer, folder) == 0 ||
                    !s->to->pointer_text))
        return ckpt_fail(err, CKPT_EUNSAFE, "%s/%s: not a plain file name", s->dir->path, pointer);
    return CKPT_OK;
}

static int pub_order(const void *pa, const void *pb)
{
    const char *const *a = pa, *const *b = pb;

    return strcmp(*a, *b);
}

/* List the folders of files, each once; a parent sorts before its subfolders. */
static int pub_list_below(ckpt_publish *s, ckpt_err *err)
{
    size_t n = 0, n_text = 0, kept = 0;
    char *at;

    for (size_t i = 0; i < s->to->files.n; i++) {
        const char *name = s->to->files.at[i].path;

        for (const char *p = strchr(name, '/'); p != NULL; p = strchr(p + 1, '/')) {
            n++;
            n_text += (size_t)(p - name) + 1;
        }
    }
    s->text = at = ckpt_alloc(n_text + 1);
    s->below = ckpt_alloc((n + 1) * sizeof *s->below);
    if (!s->text || !s->below)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < s->to->files.n; i++) {
        const char *name = s->to->files.at[i].path;

        for (const char *p = strchr(name, '/'); p != NULL; p = strchr(p + 1, '/')) {
            s->below[s->n_below++] = at;
            memcpy(at, name, (size_t)(p - name));
            at += p - name + 1;
        }
    }
    qsort(s->below, s->n_below, sizeof *s->below, pub_order);
    for (size_t i = 0; i < s->n_below; i++) {
        if (i == 0 || strcmp(s->below[kept - 1], s->below[i]) != 0)
            s->below[kept++] = s->below[i];
    }
    s->n_below = kept;
    return CKPT_OK;
}

/* ---- entering ---- */

static int pub_failed(const ckpt_publish *s, int sys, const char *what, ckpt_err *err)
{
    return ckpt_fail_sys(err, CKPT_EIO, sys, "%s: %s", s->where, what);
}

/*
 * Lock the journal. A failure means that another run has the lock, or that the file system has no
 * locks.
 */
static int pub_lock(const ckpt_publish *s, ckpt_err *err)
{
    int rc;

    do
        rc = flock(s->journal.fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK)
        return CKPT_OK;
    if (errno == EWOULDBLOCK && ckpt_team_any() && ckpt_team_any()->spread)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: another machine or another run is writing it now; with "
                         "--local-target each machine has a folder of its own",
                         s->final);
    if (errno == EWOULDBLOCK)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: another run is writing it now; wait until it has ended", s->final);
    return pub_failed(s, errno, "cannot lock the journal", err);
}

static void pub_leave(ckpt_publish *s)
{
    if (s->journal.fd >= 0)
        (void)close(s->journal.fd);
    if (s->fd >= 0)
        (void)close(s->fd);
    s->journal.fd = s->fd = -1;
}

/*
 * Try once to open folder and journal and to lock it. *gone: another run removed it in between, so
 * the locked file has no name any more.
 */
static int pub_enter_once(ckpt_publish *s, bool *gone, ckpt_err *err)
{
    struct stat held, named;
    int rc;

    *gone = false;
    if (mkdirat(s->dir->fd, s->name, 0777) == 0)
        s->made = true;
    else if (errno != EEXIST)
        return pub_failed(s, errno, "cannot create the folder", err);
    s->fd = ckpt_dir_open_at(s->dir->fd, s->name);
    if (s->fd < 0 && errno != ENOENT)
        return pub_failed(s, errno, "cannot open the folder", err);
    if (s->fd >= 0 && !ckpt_dir_may_follow(s->dir->fd, s->fd))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: was made by another user, who could change what is written there; "
                         "choose another output",
                         s->where);
    do
        s->journal.fd = s->fd < 0
                            ? -1
                            : openat(s->fd, "journal",
                                     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    while (s->fd >= 0 && s->journal.fd < 0 && errno == EINTR);
    *gone = s->journal.fd < 0 && errno == ENOENT;
    if (*gone)
        return CKPT_OK;
    if (s->journal.fd < 0)
        return pub_failed(s, errno, "cannot open the journal", err);
    rc = pub_lock(s, err);
    if (rc != CKPT_OK)
        return rc;
    if (fstat(s->journal.fd, &held) != 0)
        return pub_failed(s, errno, "cannot stat the journal", err);
    if (!S_ISREG(held.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE, "%s/journal: not a regular file; remove it", s->where);
    *gone = fstatat(s->fd, "journal", &named, AT_SYMLINK_NOFOLLOW) != 0 ||
            named.st_ino != held.st_ino || named.st_dev != held.st_dev;
    return CKPT_OK;
}

/*
 * Make or open the staging folder and lock it. Another run may remove it in between; then try
 * again, a few times.
 */
static int pub_enter(ckpt_publish *s, ckpt_err *err)
{
    for (unsigned i = 0; i < STAGE_TRIES; i++) {
        bool gone;
        int rc = pub_enter_once(s, &gone, err);

        if (rc == CKPT_OK && !gone)
            s->owned = s->made;
        if (rc != CKPT_OK || !gone)
            return rc;
        pub_leave(s);
        s->made = false;
    }
    return ckpt_fail(err, CKPT_EUSAGE,
                     "%s: other runs keep creating and removing it; wait until they have ended",
                     s->where);
}

/* ---- left-overs of an earlier run ---- */

/* True if an entry of that name exists; *st gets its attributes. */
static bool pub_look(int at, const char *name, struct stat *st)
{
    return fstatat(at, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * If a run was killed after moving the old folder away and before moving the new one in, move the
 * old one back. False if that failed: then nothing may be removed.
 */
static bool pub_give_back(const ckpt_publish *s)
{
    struct stat st;

    return !pub_look(s->fd, s->folder.old, &st) || pub_look(s->dir->fd, s->folder.to, &st) ||
           renameat(s->fd, s->folder.old, s->dir->fd, s->folder.to) == 0;
}

/*
 * Recover from a kill at that point, or from one while the files of a set got their names: restore
 * the old set, or complete the new one.
 */
static bool pub_recover(const ckpt_publish *s)
{
    const ckpt_mover mover = {
        .top = s->dir->fd, .aside = s->fd, .skip_fsync = s->opts.skip_fsync, .shown = s->dir->path};
    int sys = ckpt_moves_recover(&mover);

    if (sys == 0)
        sys = ckpt_dir_remove(s->fd, "was");
    if (sys == 0)
        sys = ckpt_dir_remove(s->fd, "mid");
    errno = sys;
    return sys == 0 && pub_give_back(s);
}

/* True if the folder of that name is the one in the journal's line about the rename. */
static bool pub_is_place(const ckpt_publish *s, int at, const char *name)
{
    struct stat st;

    return pub_look(at, name, &st) && S_ISDIR(st.st_mode) &&
           (uint64_t)st.st_dev == s->journal.dev && (uint64_t)st.st_ino == s->journal.ino;
}

/* Find the folder with the files of an earlier run: before or after its rename. */
static int pub_find(ckpt_publish *s, ckpt_err *err)
{
    int rc = ckpt_journal_read(&s->journal, s->fingerprint, &s->match, err);

    if (rc != CKPT_OK || !s->match)
        return rc;
    s->placed = !s->to->set && s->journal.has_place && pub_is_place(s, s->dir->fd, s->folder.to);
    if (s->placed)
        s->data = ckpt_dir_open_at(s->dir->fd, s->folder.to);
    else if (!s->journal.has_place || pub_is_place(s, s->fd, s->folder.from))
        s->data = ckpt_dir_open_at(s->fd, s->folder.from);
    s->match = s->data >= 0;
    s->placed = s->placed && s->match;
    return CKPT_OK;
}

/* ---- existing outputs ---- */

/* Check that no input is in a folder that will be removed. */
static int pub_spare_inputs(const ckpt_publish *s, const char *name, ckpt_err *err)
{
    int rc = ckpt_dir_has_input(s->dir->fd, name, s->inputs);

    if (rc < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot look into the folder",
                             s->dir->path, name);
    return rc == 0
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EUSAGE, "%s/%s: contains input files; choose another output",
                           s->dir->path, name);
}

static ckpt_set_job pub_set_job(const ckpt_publish *s)
{
    return (ckpt_set_job){.dir = s->dir,
                          .to = s->to,
                          .inputs = s->inputs,
                          .force = s->opts.force,
                          .skip_fsync = s->opts.skip_fsync};
}

/* Check the folder's name: it is free or, with force, names a folder that may be replaced. */
static int pub_check_folder(ckpt_publish *s, ckpt_err *err)
{
    struct stat st;

    if (s->to->set) {
        const ckpt_set_job job = pub_set_job(s);

        return ckpt_set_check(&job, &s->stays, err);
    }
    s->folder.replace = pub_look(s->dir->fd, s->folder.to, &st);
    if (!s->folder.replace)
        return errno == ENOENT ? CKPT_OK
                               : ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot stat",
                                               s->dir->path, s->folder.to);
    if (!S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: exists, and is not a folder; choose another output", s->dir->path,
                         s->folder.to);
    if (!s->opts.force)
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: exists already; use --force to replace it",
                         s->dir->path, s->folder.to);
    return pub_spare_inputs(s, s->folder.to, err);
}

/*
 * Check the pointer's name: it is free, or names a file that is not an input (a link is replaced,
 * not followed).
 */
static int pub_check_pointer(ckpt_publish *s, ckpt_err *err)
{
    struct stat st;

    if (!s->pointer.to)
        return CKPT_OK;
    s->pointer.replace = pub_look(s->dir->fd, s->pointer.to, &st);
    if (!s->pointer.replace)
        return errno == ENOENT ? CKPT_OK
                               : ckpt_fail_sys(err, CKPT_EIO, errno, "%s/%s: cannot stat",
                                               s->dir->path, s->pointer.to);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return ckpt_fail(err, CKPT_EUSAGE, "%s/%s: exists, and is not a file; remove it",
                         s->dir->path, s->pointer.to);
    if (ckpt_dir_is_input(s->inputs, &st) ||
        (fstatat(s->dir->fd, s->pointer.to, &st, 0) == 0 && ckpt_dir_is_input(s->inputs, &st)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: is one of the input files; choose another output", s->dir->path,
                         s->pointer.to);
    return CKPT_OK;
}

/* ---- opening ---- */

/* Compute names, paths and fingerprint; the disk is not changed yet. */
static int pub_init(ckpt_publish *s, ckpt_err *err)
{
    const ckpt_set *set = s->to->set;
    const char *folder = set ? set->name : s->to->folder, *path = s->dir->path;
    // the name of a set only has to differ from those of other sets in the folder
    int n_used = (int)strnlen(folder, STAGE_NAME - strlen("." STAGE_SUFFIX));
    size_t n_name = (size_t)n_used + sizeof "." STAGE_SUFFIX, n = strlen(path) + 1 + n_name;
    int rc = pub_check_names(s, err);

    if (rc != CKPT_OK)
        return rc;
    s->name = ckpt_alloc(n_name);
    s->where = ckpt_alloc(n);
    s->final = ckpt_alloc(strlen(path) + strlen(folder) + 2);
    if (!s->name || !s->where || !s->final)
        return ckpt_fail_memory(err);
    (void)snprintf(s->name, n_name, ".%.*s" STAGE_SUFFIX, n_used, folder);
    (void)snprintf(s->where, n, "%s/%s", path, s->name);
    (void)sprintf(s->final, "%s%s%s", path, set && set->look ? "" : "/",
                  set && set->look ? "" : folder);
    s->journal.where = s->where;
    s->journal.skip_fsync = s->opts.skip_fsync;
    s->folder = (ckpt_swap){.from = "new", .old = "old", .to = folder, .is_folder = true};
    s->pointer = (ckpt_swap){.from = "pointer", .old = "pointer.old", .to = s->to->pointer};
    rc = pub_list_below(s, err);
    if (rc == CKPT_OK)
        rc = ckpt_journal_fingerprint(s->fingerprint, s->to, s->inputs, s->opts.skip_fsync, err);
    return rc;
}

/*
 * Make all checks and preparations before the first change, except that the staging folder is
 * created. After a refusal its contents stay if the run could still be continued, for example with
 * --force.
 */
static int pub_start(ckpt_publish *s, ckpt_err *err)
{
    int rc = pub_init(s, err);

    if (rc == CKPT_OK)
        rc = pub_check_pointer(s, err);
    if (rc == CKPT_OK)
        rc = pub_enter(s, err);
    if (rc != CKPT_OK)
        return rc;
    if (!s->made)
        rc = pub_spare_inputs(s, s->name, err);
    if (rc == CKPT_OK && !s->made && !pub_recover(s))
        rc = pub_failed(s, errno, "cannot put back what an interrupted run was replacing", err);
    if (rc != CKPT_OK)
        return rc;
    s->owned = true;
    rc = pub_find(s, err);
    if (rc == CKPT_OK && !s->placed) {
        rc = pub_check_folder(s, err);
        s->owned = rc != CKPT_EUSAGE || !s->match;
    }
    return rc;
}

int ckpt_publish_open(ckpt_publish **out, const ckpt_dir *dir, const ckpt_map *to,
                      const ckpt_map *inputs, const ckpt_publish_opts *opts, ckpt_err *err)
{
    assert(out && dir && to && opts);
    ckpt_publish *s = ckpt_alloc(sizeof *s);
    int rc;

    *out = NULL;
    if (!s || pthread_mutex_init(&s->journal.lock, NULL) != 0) {
        ckpt_free(s);
        return ckpt_fail_memory(err);
    }
    s->dir = dir;
    s->to = to;
    s->inputs = inputs;
    s->opts = *opts;
    s->fd = s->data = s->journal.fd = -1;
    rc = pub_start(s, err);
    if (rc == CKPT_OK)
        *out = s;
    else
        ckpt_publish_close(s);
    return rc;
}

const ckpt_journal_entries *ckpt_publish_kept(const ckpt_publish *s)
{
    return &s->journal.entry;
}

int ckpt_publish_fd(const ckpt_publish *s)
{
    return s->data;
}

char *ckpt_publish_path(const ckpt_publish *s)
{
    const char *above = s->placed ? s->dir->path : s->where;
    const char *below = s->placed ? s->folder.to : s->folder.from;
    size_t n = strlen(above) + strlen(below) + 2;
    char *path = ckpt_alloc(n);

    if (path)
        (void)snprintf(path, n, "%s/%s", above, below);
    return path;
}

const ckpt_set_stays *ckpt_publish_stays(const ckpt_publish *s)
{
    return &s->stays;
}

size_t ckpt_publish_gone(const ckpt_publish *s)
{
    return s->n_gone;
}

uint64_t ckpt_publish_dropped(const ckpt_publish *s)
{
    return s->n_dropped;
}

/* ---- beginning ---- */

/* Remove everything but the journal from the staging folder; 0 or an errno value. */
static int pub_wipe(const ckpt_publish *s)
{
    const char *const name[] = {"moves.draft", "was",           "mid",         s->folder.from,
                                s->folder.old, s->pointer.from, s->pointer.old};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof name / sizeof *name; i++)
        rc = ckpt_dir_remove(s->fd, name[i]);
    return rc;
}

/* Callback of ckpt_dir_walk: add up the sizes of all files except the journal. */
static int pub_add_size(void *ctx, int at, const char *name, const struct stat *st)
{
    uint64_t *sum = ctx;

    (void)at;
    if (S_ISREG(st->st_mode) && strcmp(name, "journal") != 0)
        *sum += (uint64_t)st->st_size;
    return 0;
}

/* Start anew: remove old contents and begin a new journal. */
static int pub_anew(ckpt_publish *s, ckpt_err *err)
{
    int sys, rc;

    if (!s->made)
        (void)ckpt_dir_walk(s->dir->fd, s->name, pub_add_size, &s->n_dropped);
    sys = pub_wipe(s);
    if (s->data >= 0)
        (void)close(s->data);
    s->data = -1;
    if (sys != 0)
        return pub_failed(s, sys, "cannot remove the files of an interrupted run", err);
    rc = ckpt_journal_begin(&s->journal, s->fingerprint, err);
    if (rc != CKPT_OK)
        return rc;
    if (mkdirat(s->fd, s->folder.from, 0777) != 0)
        return pub_failed(s, errno, "cannot create the folder 'new'", err);
    s->data = ckpt_dir_open_at(s->fd, s->folder.from);
    if (s->data < 0)
        return pub_failed(s, errno, "cannot open the folder 'new'", err);
    // After a power cut the journal is useless unless its name is on the disk.
    if (!s->opts.skip_fsync && (ckpt_fsync(s->fd) != 0 || ckpt_fsync(s->dir->fd) != 0))
        return pub_failed(s, errno, "cannot sync the folder", err);
    return CKPT_OK;
}

/* Make the folders of the files. */
static int pub_make_below(ckpt_publish *s, ckpt_err *err)
{
    for (size_t i = 0; i < s->n_below; i++) {
        struct stat st;
        int sys = mkdirat(s->data, s->below[i], 0777) == 0 ? 0 : errno;

        if (sys == EEXIST && pub_look(s->data, s->below[i], &st) && S_ISDIR(st.st_mode))
            sys = 0;
        if (sys != 0)
            return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/new/%s: cannot create the folder",
                                 s->where, s->below[i]);
    }
    return CKPT_OK;
}

int ckpt_publish_begin(ckpt_publish *s, size_t n_kept, bool *anew, ckpt_err *err)
{
    assert(anew);
    int rc = CKPT_OK;

    // The folder has its final name but was damaged later, so it is replaced like any other.
    if (s->placed && n_kept < s->to->files.n - s->opts.n_elsewhere) {
        s->placed = s->match = false;
        rc = pub_check_folder(s, err);
    }
    *anew = !s->match;
    if (rc != CKPT_OK)
        return rc;
    s->owned = true;
    if (s->placed)
        return CKPT_OK;
    rc = s->match ? ckpt_journal_go_on(&s->journal, err) : pub_anew(s, err);
    return rc == CKPT_OK ? pub_make_below(s, err) : rc;
}

int ckpt_publish_done(ckpt_publish *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err)
{
    assert(entry || n == 0);
    return ckpt_journal_files(&s->journal, entry, n, s->to, err);
}

/* ---- committing ---- */

/* Sync one folder of files. */
static int pub_sync_below(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const ckpt_publish *s = ctx;
    int fd = ckpt_dir_open_at(s->data, s->below[item]), rc = CKPT_OK;

    (void)worker;
    if (fd < 0 || ckpt_fsync(fd) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s/new/%s: cannot sync the folder", s->where,
                           s->below[item]);
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

/* Sync the names of all files, and of their folders. */
static int pub_sync_folders(ckpt_publish *s, ckpt_err *err)
{
    unsigned jobs = s->opts.jobs > 0 ? s->opts.jobs : 1;
    int rc = ckpt_crew_run(jobs, s->n_below, pub_sync_below, s, err);

    if (rc == CKPT_OK && (ckpt_fsync(s->data) != 0 || ckpt_fsync(s->fd) != 0))
        rc = pub_failed(s, errno, "cannot sync the folder", err);
    return rc;
}

/* Write the pointer's text into a file that is not yet the pointer. */
static int pub_write_pointer(const ckpt_publish *s, ckpt_err *err)
{
    int sys = ckpt_dir_remove(s->fd, s->pointer.from);

    if (sys == 0)
        sys = ckpt_latest_write(s->fd, s->pointer.from, s->to->pointer_text, !s->opts.skip_fsync);
    return sys == 0 ? CKPT_OK : pub_failed(s, sys, "cannot write the file 'pointer'", err);
}

/* Sync everything, and record the coming rename in the journal. */
static int pub_prepare(ckpt_publish *s, ckpt_err *err)
{
    struct stat st;
    int rc = s->opts.skip_fsync || s->placed ? CKPT_OK : pub_sync_folders(s, err);

    if (rc == CKPT_OK && s->pointer.to)
        rc = pub_write_pointer(s, err);
    if (rc == CKPT_OK && !s->placed) {
        if (fstat(s->data, &st) != 0)
            return pub_failed(s, errno, "cannot stat the folder 'new'", err);
        rc = ckpt_journal_place(&s->journal, (uint64_t)st.st_dev, (uint64_t)st.st_ino, err);
    }
    return rc;
}

/* Make one of the two renames and sync both folders, because both must agree. */
static int pub_place(ckpt_publish *s, ckpt_swap *w, ckpt_err *err)
{
    int sys = ckpt_swap_in(s->dir->fd, s->fd, w);

    if (sys == EEXIST)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s/%s: was created by another process; choose another output",
                         s->dir->path, w->to);
    if (sys != 0)
        return ckpt_fail_sys(err, CKPT_EIO, sys, "%s/%s: cannot rename to its final name",
                             s->dir->path, w->to);
    if (!s->opts.skip_fsync && (ckpt_fsync(s->dir->fd) != 0 || ckpt_fsync(s->fd) != 0))
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot sync the folder", s->dir->path);
    return CKPT_OK;
}

/* Undo the renames. If even that fails, leave everything to the next run. */
static int pub_undo(ckpt_publish *s, const ckpt_err *why, ckpt_err *err)
{
    bool ok = s->pointer.how == CKPT_SWAP_NOT || ckpt_swap_back(s->dir->fd, s->fd, &s->pointer);

    ok = ok && (s->folder.how == CKPT_SWAP_NOT || ckpt_swap_back(s->dir->fd, s->fd, &s->folder));
    if (ok)
        return ckpt_fail(err, why->code, "%s", why->text);
    s->owned = false;
    return ckpt_fail(err, why->code,
                     "%.300s (%s/%s is complete, but may not survive a power cut: run the same "
                     "command again)",
                     why->text, s->dir->path, s->folder.to);
}

/* Give the files of a set their names. */
static int pub_commit_set(ckpt_publish *s, ckpt_err *err)
{
    const ckpt_set_job job = pub_set_job(s);
    ckpt_err why = {0};
    bool stuck = false;
    int rc = s->opts.skip_fsync ? CKPT_OK : pub_sync_folders(s, &why);

    if (rc == CKPT_OK)
        rc = ckpt_set_commit(&job, s->fd, &s->n_gone, &stuck, &why);
    s->done = rc == CKPT_OK;
    s->owned = !stuck;
    if (rc == CKPT_OK || !stuck)
        return rc == CKPT_OK ? rc : ckpt_fail(err, rc, "%s", why.text);
    return ckpt_fail(err, rc,
                     "%.300s (and %s could not be put back as it was: run the same "
                     "command again, or ckpt clean)",
                     why.text, s->final);
}

int ckpt_publish_commit(ckpt_publish *s, ckpt_err *err)
{
    ckpt_err why = {0};
    int rc;

    if (s->to->set)
        return pub_commit_set(s, err);
    rc = pub_prepare(s, err);
    if (rc != CKPT_OK)
        return rc;
    if (!s->placed)
        rc = pub_place(s, &s->folder, &why);
    else if (!s->opts.skip_fsync && ckpt_fsync(s->dir->fd) != 0)
        rc = ckpt_fail_sys(&why, CKPT_EIO, errno, "%s: cannot sync the folder", s->dir->path);
    if (rc == CKPT_OK && s->pointer.to)
        rc = pub_place(s, &s->pointer, &why);
    if (rc != CKPT_OK)
        return pub_undo(s, &why, err);
    s->done = true;
    return CKPT_OK;
}

bool ckpt_publish_undo(ckpt_publish *s)
{
    ckpt_err why = {.code = CKPT_EIO};

    if (!s->done)
        return true;
    if (s->to->set)
        return false;
    s->done = false;
    (void)pub_undo(s, &why, NULL);
    return s->owned;
}

void ckpt_publish_leave(ckpt_publish *s)
{
    if (s->done && !s->to->set)
        s->owned = false;
}

/* ---- leaving ---- */

/*
 * Remove the staging folder. The journal goes last and its lock even later, so that a run that is
 * killed here can still be continued and no other run can start in between.
 */
static void pub_remove(ckpt_publish *s)
{
    struct stat st;

    // A remaining list of moves refers to files in aside.
    if (pub_look(s->fd, "moves", &st) || (!s->done && !pub_give_back(s)) || pub_wipe(s) != 0)
        return;
    (void)ckpt_dir_remove(s->fd, "journal");
    // Some network file systems keep removed open files under another name, so close first, then
    // remove.
    pub_leave(s);
    for (unsigned i = 0; i < 3; i++) {
        // If the folder is not empty, it belongs to another run by now.
        if (unlinkat(s->dir->fd, s->name, AT_REMOVEDIR) == 0 || errno == ENOTEMPTY)
            break;
    }
}

void ckpt_publish_close(ckpt_publish *s)
{
    if (!s)
        return;
    if (s->data >= 0)
        (void)close(s->data);
    if (s->owned && s->fd >= 0 && s->journal.fd >= 0)
        pub_remove(s);
    pub_leave(s);
    // The folder was made but its journal could not be: it is empty unless another run uses it by
    // now.
    if (s->made && !s->owned && s->name)
        (void)unlinkat(s->dir->fd, s->name, AT_REMOVEDIR);
    pthread_mutex_destroy(&s->journal.lock);
    ckpt_vec_free(&s->journal.entry);
    ckpt_free(s->below);
    ckpt_free(s->text);
    ckpt_free(s->name);
    ckpt_free(s->where);
    ckpt_free(s->final);
    ckpt_free(s);
}
