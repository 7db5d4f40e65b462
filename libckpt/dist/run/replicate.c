/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicate.c: copies files between machines in rounds, in blocks that the workers fetch.
 */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/dist/run/hooks.h"
#include "libckpt/dist/run/replicate.h"
#include "libckpt/io/peer_io.h"

#define REP_BLOCK (UINT64_C(1) << 20)

/* A file that this process copies in the current round. */
typedef struct rep_file {
    ckpt_io *io;
    uint32_t file;
    uint64_t first; /* index of its first block among those of all files */
} rep_file;

typedef struct rep_state {
    ckpt_peers *peers;
    const ckpt_joint *joint;
    ckpt_work *work;
    const uint32_t *made; /* per file of the target: its CRC-32, where this process has made it */
    unsigned n_workers;
    uint8_t **buffer; /* per worker: REP_BLOCK bytes */
    ckpt_blobs told;  /* per process: the paths of its files, as it has sent them */
    uint32_t *crc;    /* per file of the target: its CRC-32 */
    uint32_t *place;  /* per machine: its index among those that get files */
    rep_file *copy;   /* files to copy in this round */
    size_t n_copies;
    uint32_t *sum; /* per block of this round: its CRC-32 */
    uint64_t n_written;
} rep_state;

static const ckpt_map *rep_to(const rep_state *r)
{
    return r->work->plan->to;
}

/* ---- data that all processes need ---- */

/* About a file: its CRC if this process has made it, and its path on this machine. */
typedef struct rep_told {
    uint32_t file, crc;
    uint32_t made, n_path; /* n_path: bytes of the path that follows, with its terminator */
} rep_told;

static int rep_describe(const rep_state *r, uint32_t file, ckpt_bytes *b, ckpt_err *err)
{
    bool made = (r->peers->file[file] & CKPT_FILE_HOME) != 0;
    char *path = r->peers->leads ? ckpt_sink_file_path(r->work->sink, file) : NULL;
    const rep_told t = {.file = file,
                        .crc = made ? r->made[file] : 0,
                        .made = made,
                        .n_path = path ? (uint32_t)strlen(path) + 1 : 0};
    bool ok = (path || !r->peers->leads) && ckpt_bytes_add(b, &t, sizeof t) &&
              (t.n_path == 0 || ckpt_bytes_add(b, path, t.n_path));

    ckpt_free(path);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

/* Read the next entry of a blob, and its path; false: there is none. */
static bool rep_next(const uint8_t **p, size_t *n, rep_told *t, const char **path)
{
    if (*n < sizeof *t)
        return false;
    memcpy(t, *p, sizeof *t);
    if (t->n_path > *n - sizeof *t)
        return false;
    *path =
        t->n_path > 0 && (*p)[sizeof *t + t->n_path - 1] == 0 ? (const char *)*p + sizeof *t : NULL;
    *p += sizeof *t + t->n_path;
    *n -= sizeof *t + t->n_path;
    return true;
}

static int rep_meet(rep_state *r, ckpt_err *err)
{
    ckpt_team *team = r->joint->team;
    ckpt_bytes mine = {0};
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < rep_to(r)->files.n; i++) {
        if (r->peers->file[i] & CKPT_FILE_COPIED)
            rc = rep_describe(r, i, &mine, err);
    }
    rc = ckpt_team_agree(team, rc, err);
    if (rc == CKPT_OK)
        rc = ckpt_team_all(team, mine.at, mine.n, &r->told, err);
    ckpt_vec_free(&mine);
    for (unsigned i = 0; rc == CKPT_OK && i < team->n; i++) {
        const uint8_t *p = r->told.at[i];
        size_t n = r->told.n[i];
        const char *path;
        rep_told t;

        while (rep_next(&p, &n, &t, &path)) {
            if (t.made && t.file < rep_to(r)->files.n)
                r->crc[t.file] = t.crc;
        }
    }
    return rc;
}

/* The path of a file on a process's machine; NULL: unknown. */
static const char *rep_path(const rep_state *r, unsigned rank, uint32_t file)
{
    const uint8_t *p = r->told.at[rank];
    size_t n = r->told.n[rank];
    const char *path;
    rep_told t;

    while (rep_next(&p, &n, &t, &path)) {
        if (t.file == file)
            return path;
    }
    return NULL;
}

/* ---- one round ---- */

/*
 * Find the machine to copy a file from in the round in which `have` machines have it, counted from
 * the maker; false: this machine does not copy it in this round.
 */
static bool rep_from(const rep_state *r, uint32_t file, size_t have, uint32_t *node)
{
    const ckpt_joint *j = r->joint;
    const ckpt_spread *s = &j->spread;
    size_t maker = r->place[s->maker[file]];
    size_t at = (r->place[j->team->node[j->team->rank]] + s->n_nodes - maker) % s->n_nodes;

    if (at < have || at >= 2 * have)
        return false;
    *node = s->node[(maker + at - have) % s->n_nodes];
    return true;
}

static int rep_open(rep_state *r, uint32_t file, uint32_t node, ckpt_err *err)
{
    unsigned rank = ckpt_team_first(r->joint->team, node);
    const char *path = rep_path(r, rank, file);
    rep_file *c = &r->copy[r->n_copies];
    int rc = path ? ckpt_far_open(&c->io, r->joint->team, rank, false, path, err)
                  : ckpt_fail(err, CKPT_EIO, "%s: rank %u has not sent its path",
                              rep_to(r)->files.at[file].path, rank);

    if (rc != CKPT_OK)
        return rc;
    c->file = file;
    r->n_copies++;
    if (c->io->size != rep_to(r)->files.at[file].size)
        return ckpt_fail(err, CKPT_EIO,
                         "%s: the file has %" PRIu64 " bytes on %s, expected %" PRIu64, path,
                         c->io->size, r->joint->team->host[node], rep_to(r)->files.at[file].size);
    return CKPT_OK;
}

static uint64_t rep_blocks(uint64_t size)
{
    return size / REP_BLOCK + (size % REP_BLOCK > 0);
}

/* Fetch one block in a worker. */
static int rep_block(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    rep_state *r = ctx;
    const rep_file *c = r->copy;
    uint64_t at, n;
    int rc;

    while (c + 1 < r->copy + r->n_copies && c[1].first <= item)
        c++;
    at = (item - c->first) * REP_BLOCK;
    n = c->io->size - at < REP_BLOCK ? c->io->size - at : REP_BLOCK;
    rc = ckpt_io_read(c->io, r->buffer[worker], n, at, err);
    if (rc == CKPT_OK) {
        r->sum[item] = ckpt_crc32(0, r->buffer[worker], (size_t)n);
        rc = ckpt_sink_write(r->work->sink, c->file, r->buffer[worker], n, at, err);
    }
    return rc == CKPT_OK ? ckpt_progress_add(r->work->progress, n, err) : rc;
}

/* Compare the CRC of the received file with the maker's, then finish the file here too. */
static int rep_prove(rep_state *r, const rep_file *c, ckpt_err *err)
{
    const ckpt_journal_entry entry = {.file = c->file, .size = c->io->size, .crc = r->crc[c->file]};
    uint32_t crc = 0;

    for (uint64_t at = 0, i = c->first; at < c->io->size; at += REP_BLOCK, i++) {
        uint64_t n = c->io->size - at < REP_BLOCK ? c->io->size - at : REP_BLOCK;

        crc = ckpt_crc32_join(crc, r->sum[i], n);
    }
    if (crc != entry.crc)
        return ckpt_fail(err, CKPT_EIO,
                         "%s: has CRC-32 %08" PRIx32 " on arrival, expected %08" PRIx32
                         ": the network or a disk has changed it; run again",
                         c->io->name, crc, entry.crc);
    r->n_written += c->io->size;
    return ckpt_sink_finish(r->work->sink, &entry, 1, err);
}

/* Check that a file from an interrupted run equals this one. */
static int rep_keep(const rep_state *r, uint32_t file, ckpt_err *err)
{
    const ckpt_journal_entry entry = {
        .file = file, .size = rep_to(r)->files.at[file].size, .crc = r->crc[file]};

    return ckpt_sink_finish(r->work->sink, &entry, 1, err);
}

/* Open the files to copy in this round. */
static int rep_begin(rep_state *r, size_t have, uint64_t *n_blocks, ckpt_err *err)
{
    int rc = CKPT_OK;

    *n_blocks = 0;
    for (uint32_t i = 0; rc == CKPT_OK && i < rep_to(r)->files.n; i++) {
        uint32_t node = 0;

        if (!(r->peers->file[i] & CKPT_FILE_COPIED) || !rep_from(r, i, have, &node))
            continue;
        if (ckpt_sink_kept(r->work->sink, i)) {
            rc = rep_keep(r, i, err);
            continue;
        }
        rc = rep_open(r, i, node, err);
        if (rc != CKPT_OK)
            break;
        r->copy[r->n_copies - 1].first = *n_blocks;
        *n_blocks += rep_blocks(r->copy[r->n_copies - 1].io->size);
    }
    return rc;
}

static int rep_copy(rep_state *r, size_t have, ckpt_err *err)
{
    uint64_t n_blocks = 0;
    int rc = rep_begin(r, have, &n_blocks, err);

    r->sum = rc == CKPT_OK ? ckpt_alloc((n_blocks + 1) * sizeof *r->sum) : NULL;
    if (rc == CKPT_OK && !r->sum)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_crew_run(r->n_workers, n_blocks, rep_block, r, err);
    for (size_t i = 0; rc == CKPT_OK && i < r->n_copies; i++)
        rc = rep_prove(r, &r->copy[i], err);
    ckpt_free(r->sum);
    r->sum = NULL;
    while (r->n_copies > 0)
        ckpt_io_close(r->copy[--r->n_copies].io);
    return rc;
}

/* ---- all rounds ---- */

static int rep_init(rep_state *r, ckpt_err *err)
{
    const ckpt_spread *s = &r->joint->spread;
    size_t n = rep_to(r)->files.n + 1;
    bool ok;

    r->crc = ckpt_alloc(n * sizeof *r->crc);
    r->copy = ckpt_alloc(n * sizeof *r->copy);
    r->place = ckpt_alloc(r->joint->team->n_nodes * sizeof *r->place);
    r->buffer = ckpt_alloc(r->n_workers * sizeof(uint8_t *));
    ok = r->crc && r->copy && r->place && r->buffer;
    for (unsigned i = 0; ok && i < r->n_workers; i++) {
        r->buffer[i] = ckpt_alloc(REP_BLOCK);
        ok = r->buffer[i] != NULL;
    }
    for (uint32_t i = 0; ok && i < s->n_nodes; i++)
        r->place[s->node[i]] = i;
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

static void rep_free(rep_state *r)
{
    for (unsigned i = 0; r->buffer && i < r->n_workers; i++)
        ckpt_free(r->buffer[i]);
    ckpt_free(r->buffer);
    ckpt_free(r->crc);
    ckpt_free(r->copy);
    ckpt_free(r->place);
    ckpt_blobs_free(&r->told);
}

int ckpt_replicate(ckpt_peers *p, ckpt_work *work, const uint32_t *crc, unsigned n_workers,
                   uint64_t *n_written, ckpt_err *err)
{
    assert(work && crc && n_written && n_workers > 0);
    rep_state r = {
        .peers = p, .joint = p->state, .work = work, .made = crc, .n_workers = n_workers};
    int rc;

    if (p->n_copies == 0)
        return CKPT_OK;
    rc = p->hooks->agree(p, rep_init(&r, err), err);
    if (rc == CKPT_OK)
        rc = rep_meet(&r, err);
    for (size_t have = 1; rc == CKPT_OK && have < p->n_machines; have *= 2)
        rc = p->hooks->agree(p, p->leads ? rep_copy(&r, have, err) : CKPT_OK, err);
    *n_written += r.n_written;
    rep_free(&r);
    return rc;
}
