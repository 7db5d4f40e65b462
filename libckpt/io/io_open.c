/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_open.c: decides which process opens a file, for headers and for data; reads small files
 * completely.
 *
 * In a team only one process opens a file for its headers, so that a file system sees it opened
 * once. Each process reads its own data, from this machine's disk or through a process that sees
 * the file.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/io/file_locations.h"
#include "libckpt/io/io.h"
#include "libckpt/io/peer_io.h"

enum {
    IOO_LOOK = 8,   /* number of files that each process compares with the view of others */
    IOO_SEARCH = 64 /* limit of the search for such files */
};

/* Refuse files of one name that differ, because they cannot belong to one checkpoint. */
static int ioo_unlike(const ckpt_team *t, const ckpt_place *p, const char *path, ckpt_err *err)
{
    return p->unlike[0] == p->unlike[1]
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EMISMATCH,
                           "%s: this file differs between %s and %s: one may be from another save; "
                           "remove the wrong one",
                           path, t->host[p->unlike[0]], t->host[p->unlike[1]]);
}

int ckpt_io_open(ckpt_io **out, const char *path, ckpt_err *err)
{
    assert(out && path);
    ckpt_team *t = ckpt_team_now(), *any = ckpt_team_any();
    ckpt_place p = {0};
    unsigned owner;
    int rc;

    *out = NULL;
    // A process that works alone reads every file that it sees itself.
    if (!t && any)
        p = ckpt_places_find(any, path);
    if (!t)
        return p.known && !p.here ? ckpt_far_open(out, any, p.owner, false, path, err)
                                  : ckpt_io_open_here(out, path, err);
    rc = ckpt_places_learn(t, path, &p, err);
    if (rc == CKPT_OK && p.known)
        rc = ioo_unlike(t, &p, path, err);
    if (rc != CKPT_OK)
        return rc;
    owner = ckpt_places_owner(t, path);
    return owner == t->rank ? ckpt_io_open_here(out, path, err)
                            : ckpt_far_open(out, t, owner, !p.known || p.here, path, err);
}

int ckpt_io_again(ckpt_io **out, const ckpt_map_file *file, ckpt_err *err)
{
    return file->input ? ckpt_io_input(out, file->path, file->input, err)
                       : ckpt_io_open(out, file->path, err);
}

int ckpt_io_data(ckpt_io **out, const ckpt_map_file *file, ckpt_err *err)
{
    ckpt_team *t = ckpt_team_any();
    ckpt_place p = {0};

    if (file->input)
        return ckpt_io_input(out, file->path, file->input, err);
    if (t)
        p = ckpt_places_find(t, file->path);
    return p.known && !p.here ? ckpt_far_open(out, t, p.owner, false, file->path, err)
                              : ckpt_io_open_here(out, file->path, err);
}

/* ---- the same files on all machines ---- */

int ckpt_io_unlike(const char *path, ckpt_err *err)
{
    ckpt_team *t = ckpt_team_any();

    if (!t || ckpt_places_find(t, path).known)
        return ckpt_fail(
            err, CKPT_EIO,
            "%s: changed while being read: wait until its writer is done, then start again", path);
    return ckpt_fail(
        err, CKPT_EIO,
        "%s: rank %u has read another file under this path than is on %s: it was changed, or not "
        "all processes share one folder of one file system (see --local)",
        path, ckpt_places_owner(t, path), t->host[t->node[t->rank]]);
}

/* True if this machine sees the file whose headers another process has read. */
static bool ioo_is(const ckpt_map_file *f, uint64_t size, const ckpt_identity *now)
{
    const ckpt_identity was = {.ino = f->ino,
                               .mtime_s = f->mtime_s,
                               .mtime_ns = f->mtime_ns,
                               .ctime_s = f->ctime_s,
                               .ctime_ns = f->ctime_ns};

    return f->size == size && ckpt_identity_same(&was, now);
}

static int ioo_look(const ckpt_map_file *f, ckpt_err *err)
{
    ckpt_team *t = ckpt_team_any();
    ckpt_io *io = NULL;
    ckpt_err why = {0};
    struct stat st;
    bool is;

    if (stat(f->path, &st) == 0) {
        const ckpt_identity now = ckpt_identity_of(&st);

        if (ioo_is(f, (uint64_t)st.st_size, &now))
            return CKPT_OK;
    }
    // A network file system may cache old attributes; opening the file refreshes them.
    if (ckpt_io_open_here(&io, f->path, &why) != CKPT_OK)
        return ckpt_fail(err, CKPT_EIO, "%.300s on %s, although rank %u has read it (see --local)",
                         why.text, t->host[t->node[t->rank]], ckpt_places_owner(t, f->path));
    is = ioo_is(f, io->size, &io->id);
    ckpt_io_close(io);
    return is ? CKPT_OK : ckpt_io_unlike(f->path, err);
}

int ckpt_io_see(const ckpt_map *map, ckpt_err *err)
{
    ckpt_team *t = ckpt_team_now();
    size_t n = map->files.n, first = t ? n * t->rank / t->n : 0;
    unsigned n_seen = 0;
    int rc = CKPT_OK;

    // Each process checks different files, so that together they check many.
    for (size_t i = 0; t && rc == CKPT_OK && i < n && i < IOO_SEARCH && n_seen < IOO_LOOK; i++) {
        const ckpt_map_file *f = &map->files.at[(first + i) % n];

        if (f->input || f->ino == 0 || ckpt_places_find(t, f->path).known ||
            ckpt_places_owner(t, f->path) == t->rank)
            continue;
        rc = ioo_look(f, err);
        n_seen++;
    }
    return rc;
}

int ckpt_io_slurp(char **out, uint64_t *n, const char *path, uint64_t max, ckpt_err *err)
{
    assert(out && n && path);
    ckpt_io *io = NULL;
    char *p = NULL;
    int rc = ckpt_io_open(&io, path, err);

    *out = NULL;
    *n = 0;
    if (rc == CKPT_OK && io->size > max)
        rc = ckpt_fail(err, CKPT_ELIMIT,
                       "%s: the file has %" PRIu64 " bytes, more than the limit of %" PRIu64, path,
                       io->size, max);
    if (rc == CKPT_OK) {
        // One more byte: a terminator for callers that read text.
        p = io->size < SIZE_MAX ? ckpt_alloc((size_t)io->size + 1) : NULL;
        rc = !p ? ckpt_fail_memory(err) : ckpt_io_read(io, p, io->size, 0, err);
    }
    if (rc == CKPT_OK) {
        *out = p;
        *n = io->size;
    } else {
        ckpt_free(p);
    }
    ckpt_io_close(io);
    return rc;
}
