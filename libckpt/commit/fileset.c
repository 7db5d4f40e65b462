/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fileset.c: computes the list of renames from the contents of a folder and the new files.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/commit/fileset.h"

enum { SET_BUFFER = 1 << 16 /* bytes compared at once */ };

/* An existing head or part. */
typedef struct set_old {
    const char *name;
    ckpt_set_name is;
    bool input;        /* the file is an input of the conversion */
    bool ours;         /* a file of the new set has this name */
    bool goes;         /* the commit removes it */
    const char *saved; /* its name in the folder `aside`, once it was moved there */
} set_old;

CKPT_VEC(set_olds, set_old);

typedef struct set_work {
    const ckpt_dir *dir; /* this member and the four below come from the caller's job */
    const ckpt_map *to, *inputs;
    bool force, skip_fsync;
    int aside;
    ckpt_arena *arena;
    set_olds old;
    ckpt_set_name head_is; /* parsed name of the new set's head */
    size_t head;           /* index of the new head in to->files: always the last */
    const set_old *live;   /* the head that loaders take now, or NULL */
    ckpt_moves list;
    unsigned n_saved;
    bool failed; /* out of memory while making the list */
    ckpt_err *err;
} set_work;

/* ---- the folder ---- */

static ckpt_set_name set_look(const ckpt_map *to, const char *name)
{
    return to->set->look ? to->set->look(name) : (ckpt_set_name){.what = CKPT_SET_OTHER};
}

static bool set_there(int at, const char *name, struct stat *st)
{
    return fstatat(at, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool set_is_input(const set_work *w, const char *name)
{
    struct stat st;

    return (set_there(w->dir->fd, name, &st) && ckpt_dir_is_input(w->inputs, &st)) ||
           (fstatat(w->dir->fd, name, &st, 0) == 0 && ckpt_dir_is_input(w->inputs, &st));
}

/* Add a name of the folder if loaders of such sets look for it. */
static int set_note_old(set_work *w, const char *name)
{
    ckpt_set_name is = set_look(w->to, name);
    struct stat st;
    set_old *o;

    if (is.what == CKPT_SET_OTHER || !set_there(w->dir->fd, name, &st) || S_ISDIR(st.st_mode))
        return CKPT_OK;
    o = ckpt_vec_push(&w->old);
    if (!o)
        return ckpt_fail_memory(w->err);
    o->is = is;
    o->input = set_is_input(w, name);
    o->name = ckpt_arena_string(w->arena, name, strlen(name));
    for (size_t i = 0; !o->ours && i < w->to->files.n; i++)
        o->ours = strcmp(w->to->files.at[i].path, name) == 0;
    return o->name ? CKPT_OK : ckpt_fail_memory(w->err);
}

/*
 * Order for qsort: most preferred first, parts last; equal ones by name, so that every run does the
 * same.
 */
static int set_order(const void *pa, const void *pb)
{
    const set_old *a = pa, *b = pb;

    if (a->is.what != b->is.what)
        return a->is.what < b->is.what ? -1 : 1;
    if (a->is.order != b->is.order)
        return a->is.order < b->is.order ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* The folder of new file i, with a slash at the end, or ""; NULL: out of memory. */
static const char *set_above(const set_work *w, size_t i)
{
    const char *name = w->to->files.at[i].path, *slash = strrchr(name, '/');

    return ckpt_arena_string(w->arena, name, slash ? (uint64_t)(slash - name) + 1 : 0);
}

/* True if no new file before file i lies in the same folder. */
static bool set_is_first_of(const set_work *w, size_t i)
{
    const char *name = w->to->files.at[i].path, *slash = strrchr(name, '/');
    size_t n = slash ? (size_t)(slash - name) + 1 : 0;

    for (size_t k = 0; k < i; k++) {
        const char *other = w->to->files.at[k].path;

        if (strncmp(other, name, n) == 0 && !strchr(other + n, '/'))
            return false;
    }
    return true;
}

/*
 * Open a folder, "" or one with a slash at the end. Its last name may be no link, which the kernel
 * would follow with the slash: files elsewhere are not replaced.
 */
static int set_open_folder(const set_work *w, const char *folder)
{
    const size_t n = strlen(folder);
    const char *name = n > 0 ? ckpt_arena_string(w->arena, folder, n - 1) : ".";

    if (!name) {
        errno = ENOMEM;
        return -1;
    }
    return openat(w->dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* List a folder, "" or one with a slash at the end, which need not exist. */
static int set_list_folder(set_work *w, const char *folder)
{
    int fd = set_open_folder(w, folder);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    int rc = CKPT_OK;

    // set_check_name refuses other things with the folder's name
    if (fd < 0 && *folder && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return CKPT_OK;
    if (!dir) {
        rc = ckpt_fail_sys(w->err, CKPT_EIO, errno, "%s%s%s: cannot list the folder", w->dir->path,
                           *folder ? "/" : "", folder);
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    errno = 0;
    for (struct dirent *d; rc == CKPT_OK && (d = readdir(dir)); errno = 0) {
        const char *name = ckpt_arena_printf(w->arena, "%s%s", folder, d->d_name);

        rc = name ? set_note_old(w, name) : ckpt_fail_memory(w->err);
    }
    if (rc == CKPT_OK && errno != 0)
        rc = ckpt_fail_sys(w->err, CKPT_EIO, errno, "%s%s%s: cannot list the folder", w->dir->path,
                           *folder ? "/" : "", folder);
    (void)closedir(dir);
    return rc;
}

/*
 * List the existing files that may belong to a set of the same kind. The head that loaders would
 * take now comes first in the order, and becomes `live`.
 */
static int set_list_old(set_work *w)
{
    int rc = set_list_folder(w, "");

    for (size_t i = 0; rc == CKPT_OK && w->to->set->deep && i < w->to->files.n; i++) {
        const char *above = set_above(w, i);

        if (!above)
            rc = ckpt_fail_memory(w->err);
        else if (*above && set_is_first_of(w, i))
            rc = set_list_folder(w, above);
    }
    if (w->old.n > 0)
        qsort(w->old.at, w->old.n, sizeof *w->old.at, set_order);
    w->live = w->old.n > 0 && w->old.at[0].is.what == CKPT_SET_HEAD ? &w->old.at[0] : NULL;
    return rc;
}

/* ---- side files ---- */

/* True if a file has these bytes; false if it cannot be read. */
static bool set_holds(int at, const char *name, const uint8_t *bytes, uint64_t n)
{
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    uint8_t *buffer = ckpt_alloc(SET_BUFFER);
    struct stat st;
    bool equal = fd >= 0 && buffer && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                 (uint64_t)st.st_size == n;

    for (uint64_t done = 0; equal && done < n;) {
        size_t some = n - done < SET_BUFFER ? (size_t)(n - done) : SET_BUFFER;

        equal = pread(fd, buffer, some, (off_t)done) == (ssize_t)some &&
                memcmp(buffer, bytes + done, some) == 0;
        done += some;
    }
    ckpt_free(buffer);
    if (fd >= 0)
        (void)close(fd);
    return equal;
}

static bool set_is_side(const set_work *w, size_t i)
{
    return i != w->head && set_look(w->to, w->to->files.at[i].path).what == CKPT_SET_OTHER;
}

/* True if side file i already has its new contents; it is then not changed. */
static bool set_side_stands(const set_work *w, size_t i)
{
    const ckpt_map_file *f = &w->to->files.at[i];
    const ckpt_literal *l = f->literals.n == 1 ? &f->literals.at[0] : NULL;

    if (f->size > 0 && (!l || l->at != 0 || l->n != f->size))
        return false;
    return set_holds(w->dir->fd, f->path, l ? l->bytes : NULL, f->size);
}

/* True if a side file changes while a model is in the folder. */
static bool set_sides_change(const set_work *w)
{
    for (size_t i = 0; w->live && i < w->to->files.n; i++) {
        if (set_is_side(w, i) && !set_side_stands(w, i))
            return true;
    }
    return false;
}

/* ---- replacing and removing ---- */

/* Check the name of a new file: it is free, or names a file that may be replaced. */
static int set_check_name(const set_work *w, const char *name)
{
    struct stat st, to;
    char shown[512];

    // a link to a folder elsewhere would put the file outside of this folder
    for (const char *p = strchr(name, '/'); p != NULL; p = strchr(p + 1, '/')) {
        char *above = ckpt_arena_string(w->arena, name, (uint64_t)(p - name));

        if (!above)
            return ckpt_fail_memory(w->err);
        if (set_there(w->dir->fd, above, &st) && !S_ISDIR(st.st_mode))
            return ckpt_fail(w->err, CKPT_EUSAGE, "%s/%s: is not a folder; choose another output",
                             w->dir->path, above);
    }
    if (!set_there(w->dir->fd, name, &st))
        return errno == ENOENT ? CKPT_OK
                               : ckpt_fail_sys(w->err, CKPT_EIO, errno, "%s/%s: cannot stat",
                                               w->dir->path, name);
    if (set_is_input(w, name))
        return ckpt_fail(w->err, CKPT_EUSAGE,
                         "%s/%s: is one of the input files; choose another output", w->dir->path,
                         name);
    if (S_ISDIR(st.st_mode) || (fstatat(w->dir->fd, name, &to, 0) == 0 && S_ISDIR(to.st_mode)))
        return ckpt_fail(w->err, CKPT_EUSAGE, "%s/%s: is a folder; choose another output",
                         w->dir->path, name);
    (void)snprintf(shown, sizeof shown, "%s/%s", w->dir->path, name);
    // caches of models consist of links
    if (ckpt_dir_check_place(w->dir->fd, name, shown, true, w->err) != CKPT_OK)
        return CKPT_EUSAGE;
    if (!w->force)
        return ckpt_fail(w->err, CKPT_EUSAGE, "%s/%s: exists already; use --force to replace it",
                         w->dir->path, name);
    return CKPT_OK;
}

/*
 * Examine the old heads and parts of one kind; true if loaders would take one of them before the
 * new head, or together with it.
 */
static bool set_kind_shadows(const set_work *w, uint32_t kind, const set_old **input)
{
    bool shadows = w->to->set->alone;

    *input = NULL;
    for (size_t i = 0; i < w->old.n; i++) {
        const set_old *o = &w->old.at[i];

        if (o->is.kind != kind || o->is.what == CKPT_SET_NEAR)
            continue;
        shadows = shadows || (o->is.what == CKPT_SET_HEAD && o->is.order < w->head_is.order);
        if (o->input)
            *input = o;
    }
    return shadows;
}

/*
 * Decide about an old file: the set replaces all files of its own kind, and those of other kinds
 * that loaders would take before it, or together with it. An input is never removed.
 */
static int set_decide(set_work *w, set_old *o)
{
    bool same = o->is.kind == w->head_is.kind;
    const set_old *input = NULL;
    bool shadows = set_kind_shadows(w, o->is.kind, &input);
    const char *when = w->to->set->alone ? "with" : "before";

    if (o->ours || o->is.what == CKPT_SET_NEAR || (!same && (!shadows || w->to->set->keep_others)))
        return CKPT_OK;
    if (shadows && input)
        return ckpt_fail(
            w->err, CKPT_EUSAGE,
            "%s/%s: is an input, and loaders would read it %s the output; choose another output",
            w->dir->path, input->name, when);
    if (shadows && !w->force)
        return ckpt_fail(w->err, CKPT_EUSAGE,
                         "%s/%s: exists already, and loaders would read it %s the output; use "
                         "--force to replace it",
                         w->dir->path, o->name, when);
    o->goes = w->force && !input;
    return CKPT_OK;
}

/* Check that the side files of a model that is an input do not change. */
static int set_check_sides(const set_work *w)
{
    for (size_t i = 0; set_sides_change(w) && i < w->old.n; i++) {
        if (w->old.at[i].input && w->old.at[i].is.what != CKPT_SET_NEAR)
            return ckpt_fail(
                w->err, CKPT_EUSAGE,
                "%s/%s: is an input, and files beside it would change; choose another output",
                w->dir->path, w->old.at[i].name);
    }
    return CKPT_OK;
}

/* Examine all names before anything moves: new, replaced, removed and remaining ones. */
static int set_open(set_work *w)
{
    int rc = CKPT_OK;

    w->arena = ckpt_arena_new(0);
    if (!w->arena)
        return ckpt_fail_memory(w->err);
    w->head = w->to->files.n - 1;
    w->head_is = set_look(w->to, w->to->files.at[w->head].path);
    if (w->to->set->look)
        rc = set_list_old(w);
    for (size_t i = 0; rc == CKPT_OK && i < w->to->files.n; i++)
        rc = set_check_name(w, w->to->files.at[i].path);
    for (size_t i = 0; rc == CKPT_OK && i < w->old.n; i++)
        rc = set_decide(w, &w->old.at[i]);
    return rc == CKPT_OK ? set_check_sides(w) : rc;
}

static void set_close(set_work *w)
{
    ckpt_vec_free(&w->old);
    ckpt_vec_free(&w->list);
    ckpt_arena_free(w->arena);
}

static set_work set_begin(const ckpt_set_job *job, ckpt_err *err)
{
    return (set_work){.dir = job->dir,
                      .to = job->to,
                      .inputs = job->inputs,
                      .force = job->force,
                      .skip_fsync = job->skip_fsync,
                      .aside = -1,
                      .err = err};
}

int ckpt_set_check(const ckpt_set_job *job, ckpt_set_stays *stays, ckpt_err *err)
{
    assert(job->dir && job->to && stays);
    set_work w = set_begin(job, err);
    int rc = set_open(&w);

    *stays = (ckpt_set_stays){0};
    for (size_t i = 0; rc == CKPT_OK && i < w.old.n; i++) {
        const set_old *o = &w.old.at[i];

        if (o->ours || o->goes)
            continue;
        if (stays->n++ == 0 || strcmp(o->name, stays->first) < 0)
            (void)snprintf(stays->first, sizeof stays->first, "%s", o->name);
    }
    set_close(&w);
    return rc;
}

/* ---- the list ---- */

static void set_add(set_work *w, ckpt_move_kind kind, const char *from, const char *to,
                    const char *save)
{
    ckpt_move *v = w->failed || !from || !to || !save ? NULL : ckpt_vec_push(&w->list);

    w->failed = !v;
    if (v)
        *v = (ckpt_move){(char)kind, from, to, save};
}

static void set_mark(set_work *w, ckpt_move_kind kind)
{
    set_add(w, kind, "", "", "");
}

/* Make a name in `aside` for a replaced file. */
static const char *set_save(set_work *w)
{
    return ckpt_arena_printf(w->arena, "was/%u", w->n_saved++);
}

static void set_out(set_work *w, set_old *o)
{
    o->saved = set_save(w);
    set_add(w, CKPT_MOVE_OUT, "", o->name, o->saved);
}

/* Give file i its name. without_old: by then, the file with this name is removed. */
static void set_put(set_work *w, size_t i, bool without_old)
{
    const char *name = w->to->files.at[i].path;
    const char *from = ckpt_arena_printf(w->arena, "new/%s", name);
    struct stat st;

    for (const char *p = strchr(name, '/'); p != NULL; p = strchr(p + 1, '/')) {
        const char *above = ckpt_arena_string(w->arena, name, (uint64_t)(p - name));
        bool there = above && set_there(w->dir->fd, above, &st);

        set_add(w, there ? CKPT_MOVE_INTO : CKPT_MOVE_FOLDER, "", above, "");
    }
    if (!without_old && w->force && set_there(w->dir->fd, name, &st))
        set_add(w, CKPT_MOVE_OVER, from, name, set_save(w));
    else
        set_add(w, CKPT_MOVE_IN, from, name, "");
}

/* ---- the three kinds of files ---- */

static void set_put_sides(set_work *w)
{
    for (size_t i = 0; i < w->to->files.n; i++) {
        if (set_is_side(w, i) && !set_side_stands(w, i))
            set_put(w, i, false);
    }
}

static void set_put_parts(set_work *w)
{
    for (size_t i = 0; i < w->head; i++) {
        if (!set_is_side(w, i))
            set_put(w, i, false);
    }
}

/* Remove the old parts, or the old heads: the least preferred first, the live one last. */
static void set_drop(set_work *w, uint8_t what)
{
    for (size_t i = w->old.n; i-- > 0;) {
        set_old *o = &w->old.at[i];

        if (o->goes && o->is.what == what && !o->saved)
            set_out(w, o);
    }
}

/* ---- three ways to replace a set ---- */

/* The head decides, and is renamed last. */
static void set_by_head(set_work *w)
{
    bool shadowed = false;

    set_put_sides(w);
    set_put_parts(w);
    set_mark(w, CKPT_MOVE_SYNC);
    for (size_t i = 0; i < w->old.n; i++) {
        const set_old *o = &w->old.at[i];

        shadowed =
            shadowed || (o->goes && o->is.what == CKPT_SET_HEAD && o->is.order < w->head_is.order);
    }
    set_put(w, w->head, false);
    if (!shadowed)
        set_mark(w, CKPT_MOVE_COUNTS);
    set_mark(w, CKPT_MOVE_SYNC);
    set_drop(w, CKPT_SET_HEAD);
    // the last of them was the one that loaders took
    if (shadowed)
        set_mark(w, CKPT_MOVE_COUNTS);
    set_mark(w, CKPT_MOVE_SYNC);
    set_drop(w, CKPT_SET_PART);
    set_mark(w, CKPT_MOVE_SYNC);
}

/* Remove the old heads before the new one gets its name: for a moment the folder has no head. */
static void set_in_the_dark(set_work *w)
{
    for (size_t i = w->old.n; i-- > 0;) {
        if (w->old.at[i].is.what == CKPT_SET_HEAD)
            set_out(w, &w->old.at[i]);
    }
    set_mark(w, CKPT_MOVE_SYNC);
    set_drop(w, CKPT_SET_PART);
    set_put_sides(w);
    set_put_parts(w);
    set_mark(w, CKPT_MOVE_SYNC);
    set_put(w, w->head, true);
    set_mark(w, CKPT_MOVE_COUNTS);
    // put the remaining heads back; loaders prefer the new one to them
    for (size_t i = 0; i < w->old.n; i++) {
        const set_old *o = &w->old.at[i];

        if (o->is.what == CKPT_SET_HEAD && !o->goes && !o->ours)
            set_add(w, CKPT_MOVE_IN, o->saved, o->name, "");
    }
    set_mark(w, CKPT_MOVE_SYNC);
}

/*
 * Make the bridge's index and the second names of the parts, aside; false: no bridge is possible.
 */
static bool set_build_bridge(set_work *w)
{
    const ckpt_set *set = w->to->set;
    bool ok = mkdirat(w->aside, "mid", 0777) == 0;
    int fd;

    for (size_t i = 0; ok && i < w->head; i++) {
        const char *name = w->to->files.at[i].path;
        const char *from = ckpt_arena_printf(w->arena, "new/%s", name),
                   *to = ckpt_arena_printf(w->arena, "mid/%zu", i);

        if (!set_is_side(w, i))
            ok = from && to && linkat(w->aside, from, w->aside, to, 0) == 0;
    }
    if (!ok)
        return false;
    fd = openat(w->aside, "mid/head", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    for (size_t done = 0; ok && done < set->n_bridge;) {
        ssize_t put = write(fd, set->bridge + done, set->n_bridge - done);

        if (put > 0)
            done += (size_t)put;
        ok = put > 0 || (put < 0 && errno == EINTR);
    }
    ok = ok && (w->skip_fsync || ckpt_fsync(fd) == 0);
    return close(fd) == 0 && ok;
}

/* Let loaders use the new parts under hidden names until all have their final ones. */
static void set_over_bridge(set_work *w)
{
    const char *head = w->to->files.at[w->head].path;

    for (int out = 0; out < 2; out++) {
        for (size_t i = 0; i < w->head; i++) {
            const char *hidden =
                ckpt_arena_printf(w->arena, CKPT_SET_HIDDEN, w->to->files.at[i].path);

            if (set_is_side(w, i))
                continue;
            if (out)
                set_add(w, CKPT_MOVE_OUT, "", hidden, set_save(w));
            else
                set_add(w, CKPT_MOVE_IN, ckpt_arena_printf(w->arena, "mid/%zu", i), hidden, "");
        }
        set_mark(w, CKPT_MOVE_SYNC);
        if (out)
            break;
        set_add(w, CKPT_MOVE_OVER, "mid/head", head, set_save(w));
        set_mark(w, CKPT_MOVE_COUNTS);
        set_mark(w, CKPT_MOVE_SYNC);
        set_put_parts(w);
        set_drop(w, CKPT_SET_HEAD);
        set_drop(w, CKPT_SET_PART);
        set_mark(w, CKPT_MOVE_SYNC);
        set_put(w, w->head, false);
        set_mark(w, CKPT_MOVE_SYNC);
    }
}

/* True if the live index is replaced, and so are parts that it may refer to. */
static bool set_needs_bridge(const set_work *w)
{
    bool parts = false;

    for (size_t i = 0; i < w->old.n; i++)
        parts = parts || (w->old.at[i].is.what == CKPT_SET_PART && w->old.at[i].ours);
    return parts && w->live && w->live->ours;
}

static void set_make_list(set_work *w)
{
    if (set_sides_change(w) || (w->to->set->alone && w->old.n > 0))
        set_in_the_dark(w);
    else if (!set_needs_bridge(w))
        set_by_head(w);
    else if (w->to->set->bridge && set_build_bridge(w))
        set_over_bridge(w);
    else
        set_in_the_dark(w);
}

int ckpt_set_commit(const ckpt_set_job *job, int aside, size_t *n_gone, bool *stuck, ckpt_err *err)
{
    assert(aside >= 0 && n_gone && stuck);
    const ckpt_mover mover = {.top = job->dir->fd,
                              .aside = aside,
                              .skip_fsync = job->skip_fsync,
                              .shown = job->dir->path};
    set_work w = set_begin(job, err);
    int rc = set_open(&w);

    *stuck = false;
    *n_gone = 0;
    w.aside = aside;
    if (rc == CKPT_OK && mkdirat(aside, "was", 0777) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno,
                           "%s: cannot create a folder for the replaced files", job->dir->path);
    if (rc == CKPT_OK) {
        set_make_list(&w);
        rc = w.failed ? ckpt_fail_memory(err) : ckpt_moves_run(&mover, &w.list, stuck, err);
    }
    for (size_t i = 0; rc == CKPT_OK && i < w.old.n; i++)
        *n_gone += w.old.at[i].goes;
    set_close(&w);
    return rc;
}
