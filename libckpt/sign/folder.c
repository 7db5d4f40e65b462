/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.c: finds the files of a model, and hashes them on several threads.
 *
 * It follows no link to a folder: the files behind it would be used with the model, but
 * model-signing does not list them.
 */
#define _GNU_SOURCE // O_DIRECTORY
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/commit/temp_names.h"
#include "libckpt/copy/budget.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/io_digest.h"
#include "libckpt/sign/folder.h"

enum {
    SFO_DEPTH = 64,     /* folders in folders */
    SFO_ITEMS = 1 << 22 /* files, or parts of files */
};

/* The bytes of an item. */
typedef struct sfo_part {
    const char *file; /* relative path */
    uint64_t at, n;
    uint64_t size; /* of the complete file */
} sfo_part;

CKPT_VEC(sfo_parts, sfo_part);

typedef struct sfo_scan {
    ckpt_signed_list *list;
    const char *path; /* the model */
    ckpt_signed_counts *counts;
    sfo_parts parts; /* one for each item of the list */
    ckpt_progress *progress;
    ckpt_err *err;
} sfo_scan;

/* ---- files ---- */

static int sfo_add_part(sfo_scan *s, const sfo_part *is)
{
    ckpt_arena *arena = s->list->arena;

    if (s->parts.n >= SFO_ITEMS)
        return ckpt_fail(s->err, CKPT_ELIMIT, "%s: more than %d files or parts to hash", s->path,
                         SFO_ITEMS);
    sfo_part *part = ckpt_vec_push(&s->parts);
    ckpt_signed_item *item = part ? ckpt_vec_push(&s->list->all) : NULL;
    if (!item)
        return ckpt_fail_memory(s->err);
    *part = *is;
    item->name = is->file;
    if (s->list->shard)
        item->name =
            ckpt_arena_printf(arena, "%s:%" PRIu64 ":%" PRIu64, is->file, is->at, is->at + is->n);
    return item->name ? CKPT_OK : ckpt_fail_memory(s->err);
}

/* Add a file, or its parts. */
static int sfo_add_file(sfo_scan *s, const char *file, uint64_t size)
{
    sfo_part part = {.file = file, .size = size};
    int rc = CKPT_OK;

    s->counts->n_files++;
    s->counts->n_bytes += size;
    part.n = size;
    if (!s->list->shard)
        return sfo_add_part(s, &part);
    for (; rc == CKPT_OK && part.at < size; part.at += part.n) {
        part.n = size - part.at < s->list->shard ? size - part.at : s->list->shard;
        rc = sfo_add_part(s, &part);
    }
    return rc;
}

static int sfo_folder(sfo_scan *s, int fd, const char *folder, unsigned depth);

/* Refuse a link, or find its target. */
static int sfo_link(const sfo_scan *s, int at, const char *name, const char *path, struct stat *st)
{
    if (!s->list->links)
        return ckpt_fail(s->err, CKPT_EUNSUPPORTED,
                         "%s/%s: is a symbolic link, which is not part of a signed model; "
                         "--follow-links reads the file behind it",
                         s->path, path);
    if (fstatat(at, name, st, 0) != 0)
        return ckpt_fail_sys(s->err, ckpt_open_code(errno), errno, "%s/%s", s->path, path);
    if (S_ISDIR(st->st_mode))
        return ckpt_fail(s->err, CKPT_EUNSUPPORTED,
                         "%s/%s: is a symbolic link to a folder, whose files a signature cannot "
                         "cover: copy the folder",
                         s->path, path);
    return CKPT_OK;
}

/* Add an entry of a folder: path is relative to the model, in the arena. */
static int sfo_entry(sfo_scan *s, int at, const char *name, const char *path, unsigned depth)
{
    struct stat st;
    int rc = CKPT_OK;

    if (!ckpt_utf8_ok(path, strlen(path)) || !ckpt_dir_parts_ok(path))
        return ckpt_fail(s->err, CKPT_EUNSUPPORTED,
                         "%s/%s: the name is not UTF-8, or has a backslash, and cannot be signed",
                         s->path, path);
    if (ckpt_signed_list_ignores(s->list, path)) {
        const char **left = ckpt_vec_push(&s->counts->left_out);

        return left ? (*left = path, CKPT_OK) : ckpt_fail_memory(s->err);
    }
    // ckpt clean would remove it, and break the signature
    if (s->list->no_leftover && ckpt_left_name(name) != CKPT_LEFT_NONE)
        return ckpt_fail(s->err, CKPT_EUNSUPPORTED,
                         "%s/%s: was left by an interrupted run: remove it with ckpt clean",
                         s->path, path);
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return ckpt_fail_sys(s->err, ckpt_open_code(errno), errno, "%s/%s", s->path, path);
    if (S_ISLNK(st.st_mode))
        rc = sfo_link(s, at, name, path, &st);
    if (rc != CKPT_OK)
        return rc;
    if (S_ISREG(st.st_mode))
        return sfo_add_file(s, path, (uint64_t)st.st_size);
    if (!S_ISDIR(st.st_mode))
        return ckpt_fail(s->err, CKPT_EUNSUPPORTED, "%s/%s: is neither a file nor a folder",
                         s->path, path);
    if (depth >= SFO_DEPTH)
        return ckpt_fail(s->err, CKPT_ELIMIT, "%s/%s: more than %d folders deep", s->path, path,
                         SFO_DEPTH);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return ckpt_fail_sys(s->err, CKPT_EIO, errno, "%s/%s: cannot open the folder", s->path,
                             path);
    return sfo_folder(s, fd, path, depth + 1);
}

/* Add the entries of a folder ("" for the model itself).  Closes fd. */
static int sfo_folder(sfo_scan *s, int fd, const char *folder, unsigned depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *e = NULL;
    int rc = CKPT_OK;

    if (!dir) {
        (void)close(fd);
        return ckpt_fail_memory(s->err);
    }
    while (rc == CKPT_OK && (errno = 0, e = readdir(dir))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *path =
            ckpt_arena_printf(s->list->arena, "%s%s%s", folder, *folder ? "/" : "", e->d_name);
        rc = path ? sfo_entry(s, fd, e->d_name, path, depth) : ckpt_fail_memory(s->err);
    }
    if (rc == CKPT_OK && errno != 0)
        rc = ckpt_fail_sys(s->err, CKPT_EIO, errno, "%s/%s: cannot read the folder", s->path,
                           folder);
    (void)closedir(dir);
    return rc;
}

/* List everything that path has. */
static int sfo_all(sfo_scan *s)
{
    struct stat st;

    if (stat(s->path, &st) != 0)
        return ckpt_fail_sys(s->err, ckpt_open_code(errno), errno, "%s: cannot be opened", s->path);
    if (S_ISREG(st.st_mode))
        return sfo_add_file(s, ".", (uint64_t)st.st_size);
    int fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ckpt_fail_sys(s->err, ckpt_open_code(errno), errno, "%s: cannot open the folder",
                             s->path);
    return sfo_folder(s, fd, "", 0);
}

/* ---- hashes ---- */

/* Hash one item: for ckpt_crew_run. */
static int sfo_hash(void *ctx, unsigned worker, uint64_t i, ckpt_err *err)
{
    sfo_scan *s = ctx;
    const sfo_part *part = &s->parts.at[i];
    bool alone = strcmp(part->file, ".") == 0;
    size_t room = strlen(s->path) + strlen(part->file) + 2;
    char *path = ckpt_alloc(room);
    ckpt_io *whole = NULL, *io = NULL;

    (void)worker;
    if (!path)
        return ckpt_fail_memory(err);
    (void)snprintf(path, room, "%s%s%s", s->path, alone ? "" : "/", alone ? "" : part->file);
    int rc = ckpt_io_open_here(&whole, path, err);
    if (rc == CKPT_OK)
        rc = whole->size == part->size ? ckpt_io_part(&io, whole, part->at, part->n, err)
                                       : ckpt_io_unlike(path, err);
    if (rc == CKPT_OK)
        rc = ckpt_io_sha256(s->list->all.at[i].digest, io, s->progress, err);
    ckpt_io_close(io);
    ckpt_io_close(whole);
    ckpt_free(path);
    return rc;
}

/* Hash all items. */
static int sfo_hash_all(sfo_scan *s, const ckpt_run_opts *run)
{
    int rc = ckpt_progress_new(&s->progress, run, s->counts->n_bytes, s->err);

    if (rc == CKPT_OK)
        rc = ckpt_crew_run(ckpt_run_jobs(run ? run->jobs : 0), s->parts.n, sfo_hash, s, s->err);
    if (rc == CKPT_OK)
        rc = ckpt_progress_end(s->progress, s->err);
    ckpt_progress_free(s->progress);
    return rc;
}

int ckpt_signed_scan(ckpt_signed_list *list, const char *path, const ckpt_run_opts *run,
                     ckpt_signed_counts *counts, ckpt_err *err)
{
    sfo_scan s = {.list = list, .path = path, .counts = counts, .err = err};

    *counts = (ckpt_signed_counts){0};
    int rc = sfo_all(&s);
    if (rc == CKPT_OK)
        rc = sfo_hash_all(&s, run);
    if (rc == CKPT_OK)
        ckpt_signed_items_sort(&list->all);
    ckpt_vec_free(&s.parts);
    return rc;
}
