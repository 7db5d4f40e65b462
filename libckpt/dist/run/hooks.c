/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks.c: lets the processes of a team divide a run, and write its outputs together.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/dist/run/hooks.h"
#include "libckpt/dist/run/partition.h"
#include "libckpt/dist/run/placement.h"
#include "libckpt/dist/run/replicate.h"
#include "libckpt/io/file_locations.h"

static const ckpt_joint *jnt_of(const ckpt_peers *p)
{
    return p->state;
}

/* ---- the same plan ---- */

static uint32_t jnt_add(uint32_t crc, const void *p, size_t n)
{
    return ckpt_crc32(crc, p, n);
}

static uint32_t jnt_text(uint32_t crc, const char *s)
{
    return s ? jnt_add(crc, s, strlen(s) + 1) : crc;
}

/* Add the files and records of a map to a digest. */
static uint32_t jnt_map(uint32_t crc, const ckpt_map *m)
{
    for (size_t i = 0; i < m->files.n; i++) {
        const ckpt_map_file *f = &m->files.at[i];
        const uint64_t is[] = {f->size, f->ino, (uint64_t)f->mtime_s, (uint64_t)f->mtime_ns};

        crc = jnt_add(jnt_text(crc, f->path), is, sizeof is);
    }
    for (size_t i = 0; i < m->sources.n; i++) {
        const ckpt_source *s = &m->sources.at[i];
        const uint64_t is[] = {s->kind, s->coding, s->has_crc ? s->crc : 0, s->at, s->n_bytes};

        crc = jnt_add(crc, is, sizeof is);
    }
    for (size_t i = 0; i < m->tensors.n; i++) {
        const ckpt_tensor *t = m->tensors.at[i];

        crc = jnt_add(jnt_text(crc, t->name), &t->dtype, sizeof t->dtype);
        crc = jnt_add(crc, t->shape, t->ndim * sizeof *t->shape);
    }
    return crc;
}

/* Check that all processes have the same numbers; what: their action, for the message. */
static int jnt_equal(ckpt_team *t, const uint64_t *mine, size_t n, const char *what, ckpt_err *err)
{
    ckpt_blobs all = {0};
    int rc = ckpt_team_all(t, mine, n * sizeof *mine, &all, err);

    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        if (all.n[i] != n * sizeof *mine || memcmp(all.at[i], mine, all.n[i]) != 0)
            rc = ckpt_fail(err, CKPT_EMISMATCH,
                           "rank %u %s other data than rank %u: check that all ranks see the same "
                           "files and have the same arguments",
                           i, what, t->rank);
    }
    ckpt_blobs_free(&all);
    return rc;
}

int ckpt_team_same_map(ckpt_team *t, const ckpt_map *map, ckpt_err *err)
{
    const uint64_t mine[] = {map->files.n, map->sources.n, map->tensors.n, jnt_map(0, map)};

    return jnt_equal(t, mine, sizeof mine / sizeof *mine, "reads", err);
}

/* A digest of a plan; plans with the same jobs have equal digests. */
static uint32_t jnt_digest(const ckpt_plan *p)
{
    uint32_t crc = jnt_add(0, p->jobs.at, p->jobs.n * sizeof *p->jobs.at);

    for (size_t i = 0; i < p->to->files.n; i++) {
        crc = jnt_text(crc, p->to->files.at[i].path);
        crc = jnt_add(crc, &p->to->files.at[i].size, sizeof p->to->files.at[i].size);
    }
    for (size_t i = 0; i < p->to->tensors.n; i++) {
        crc = jnt_text(crc, p->to->tensors.at[i]->name);
        crc = jnt_add(crc, &p->to->tensors.at[i]->dtype, sizeof p->to->tensors.at[i]->dtype);
    }
    return jnt_map(crc, p->from);
}

static int jnt_same(ckpt_team *t, const ckpt_plan *p, ckpt_err *err)
{
    const uint64_t mine[] = {p->jobs.n, p->n_read, p->n_write, p->n_elems, jnt_digest(p)};

    return jnt_equal(t, mine, sizeof mine / sizeof *mine, "plans", err);
}

/* False if the target is in memory, because each process then wants all of it for itself. */
static bool jnt_is_shared(const ckpt_plan *p)
{
    for (size_t i = 0; i < p->to->sources.n; i++) {
        if (p->to->sources.at[i].kind == CKPT_SOURCE_MEMORY)
            return false;
    }
    return true;
}

/* A table of which machine sees which input file; NULL: out of memory. */
static uint8_t *jnt_sees(ckpt_team *t, const ckpt_map *from)
{
    uint8_t *sees = ckpt_alloc((from->files.n + 1) * t->n_nodes);

    for (size_t i = 0; sees && i < from->files.n; i++) {
        for (unsigned k = 0; k < t->n_nodes; k++)
            sees[i * t->n_nodes + k] =
                from->files.at[i].input || ckpt_places_sees(t, from->files.at[i].path, k);
    }
    return sees;
}

/*
 * Count the bytes of copies, which the leading process of one machine reads and that of another
 * writes.
 */
static void jnt_count_copies(ckpt_joint *j, const ckpt_peers *p)
{
    for (uint32_t i = 0; i < p->plan->to->files.n; i++) {
        for (size_t k = 0; j->spread.copied[i] && k < j->spread.n_nodes; k++) {
            unsigned r = ckpt_team_first(j->team, j->spread.node[k]);

            if (j->spread.node[k] == j->spread.maker[i])
                continue;
            j->share.n_bytes[r] += p->plan->to->files.at[i].size;
            j->share.n_far[r] += p->plan->to->files.at[i].size;
        }
    }
}

/* Divide the jobs over the processes. */
static int jnt_share(ckpt_joint *j, const ckpt_peers *p, ckpt_err *err)
{
    const ckpt_team *t = j->team;
    uint8_t *sees = t->local ? jnt_sees(j->team, p->plan->from) : NULL;
    ckpt_places places = {
        .n_ranks = t->n, .node_of_rank = t->node, .n_nodes = t->n_nodes, .sees = sees};
    int rc = t->local && !sees ? ckpt_fail_memory(err) : CKPT_OK;

    if (rc == CKPT_OK && t->spread && p->plan->to->files.n > 0) {
        rc = ckpt_spread_make(&j->spread, t, p->plan->to, err);
        places.target_node = j->spread.maker;
        j->leader = ckpt_team_first(t, t->node[t->rank]);
    }
    if (rc == CKPT_OK)
        rc = ckpt_share_make(&j->share, p->plan, &places, err);
    if (rc == CKPT_OK && j->spread.maker)
        jnt_count_copies(j, p);
    ckpt_free(sees);
    return rc;
}

/* Set this process's share in each file. */
static int jnt_files(const ckpt_joint *j, ckpt_peers *p, ckpt_err *err)
{
    const ckpt_map_files *files = &p->plan->to->files;
    const ckpt_team *t = j->team;

    p->file = ckpt_alloc(files->n + 1);
    p->elsewhere = j->spread.maker ? ckpt_alloc(files->n + 1) : NULL;
    if (!p->file || (j->spread.maker && !p->elsewhere))
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < files->n; i++) {
        bool copied = j->spread.copied && j->spread.copied[i];

        p->file[i] = (uint8_t)((j->share.home[i] == t->rank ? CKPT_FILE_HOME : 0) |
                               (j->share.n_writers[i] > 1 ? CKPT_FILE_SHARED : 0) |
                               (copied ? CKPT_FILE_COPIED : 0));
        if (copied)
            p->n_copies += files->at[i].size * (j->spread.n_nodes - 1);
        if (p->elsewhere)
            p->elsewhere[i] = !ckpt_spread_gets(&j->spread, t->node[t->rank], i);
    }
    return CKPT_OK;
}

/* Divide a plan, and set this process's share of it. */
static int jnt_divide(ckpt_joint *j, ckpt_peers *p, ckpt_err *err)
{
    const ckpt_team *t = j->team;
    int rc = jnt_same(j->team, p->plan, err);

    if (rc == CKPT_OK)
        rc = jnt_share(j, p, err);
    if (rc == CKPT_OK)
        rc = jnt_files(j, p, err);
    if (rc != CKPT_OK)
        return rc;
    p->leads =
        t->rank == j->leader && (!j->spread.maker || ckpt_spread_has(&j->spread, t->node[t->rank]));
    p->n_machines = j->spread.n_nodes;
    p->jobs = j->share.run + j->share.at[t->rank];
    p->n_jobs = j->share.at[t->rank + 1] - j->share.at[t->rank];
    ckpt_team_begin(j->team, j->share.n_bytes, j->share.n_far);
    return CKPT_OK;
}

static void jnt_end(ckpt_peers *p)
{
    ckpt_joint *j = p->state;

    ckpt_share_free(&j->share);
    ckpt_spread_free(&j->spread);
    ckpt_free(p->file);
    ckpt_free(p->elsewhere);
    // No process may record files in outputs that are gone.
    if (p->plan)
        ckpt_team_on_note(j->team, NULL, NULL);
    ckpt_free(j);
    *p = (ckpt_peers){.hooks = &ckpt_peers_alone};
}

static int jnt_begin(ckpt_peers *p, ckpt_err *err)
{
    ckpt_team *t = !p->plan || jnt_is_shared(p->plan) ? ckpt_team_now() : NULL;
    ckpt_joint *j;
    int rc;

    if (!t)
        return ckpt_peers_alone.begin(p, err);
    j = ckpt_alloc(sizeof *j);
    // otherwise the others would wait for this process
    rc = ckpt_team_agree(t, j ? CKPT_OK : ckpt_fail_memory(err), err);
    if (rc != CKPT_OK) {
        ckpt_free(j);
        return rc;
    }
    j->team = t;
    p->state = j;
    p->rank = t->rank;
    p->n = t->n;
    rc = p->plan ? jnt_divide(j, p, err) : ckpt_team_same_map(t, p->map, err);
    rc = ckpt_team_agree(t, rc, err);
    if (rc == CKPT_OK)
        p->hooks = &ckpt_team_peers;
    else
        jnt_end(p);
    return rc;
}

static int jnt_agree(ckpt_peers *p, int rc, ckpt_err *err)
{
    ckpt_team *t = jnt_of(p)->team;

    rc = ckpt_team_agree(t, rc, err);
    p->decided = t->decided;
    return rc;
}

/* ---- outputs ---- */

static int jnt_note(void *ctx, const void *bytes, size_t n, ckpt_err *err)
{
    const ckpt_journal_entry *entry = bytes;

    if (n % sizeof *entry != 0)
        return ckpt_fail(err, CKPT_EIO, "a journal message of %zu bytes is malformed", n);
    return ckpt_sink_note(ctx, entry, n / sizeof *entry, err);
}

/* Send finished files to the process that keeps the journal. */
static int jnt_tell(void *ctx, const ckpt_journal_entry *entry, size_t n, ckpt_err *err)
{
    const ckpt_joint *j = ctx;

    return ckpt_team_note(j->team, j->leader, entry, n * sizeof *entry, err);
}

/* Send each leader's description of its outputs to the processes that write there. */
static int jnt_describe(const ckpt_peers *p, const ckpt_sink *sink, ckpt_blobs *told, ckpt_err *err)
{
    ckpt_team *t = jnt_of(p)->team;
    ckpt_bytes *parts = ckpt_alloc(t->n * sizeof *parts), text = {0};
    int rc = parts ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && p->leads)
        rc = ckpt_sink_describe(sink, &text, err);
    rc = ckpt_team_agree(t, rc, err);
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        if (p->n_machines == 0 || t->node[i] == t->node[t->rank])
            parts[i] = text;
    }
    if (rc == CKPT_OK)
        rc = p->n_machines > 0 ? ckpt_team_deal(t, parts, told, err)
                               : ckpt_team_tell(t, text.at, text.n, told, err);
    ckpt_vec_free(&text);
    ckpt_free(parts);
    return rc;
}

static int jnt_outputs(ckpt_peers *p, ckpt_sink **sink, const char *folder,
                       const ckpt_sink_opts *opts, ckpt_err *err)
{
    ckpt_joint *j = p->state;
    ckpt_blobs told = {0};
    int rc;

    if (p->leads)
        ckpt_team_on_note(j->team, jnt_note, *sink);
    rc = jnt_describe(p, *sink, &told, err);
    if (rc == CKPT_OK && p->n_machines > 0 &&
        !ckpt_spread_has(&j->spread, j->team->node[p->rank])) {
        rc = ckpt_sink_nothing(sink, folder, p->plan->to, err);
    } else if (rc == CKPT_OK && !p->leads) {
        const ckpt_sink_how how = {
            .described = told.at[j->leader], .n = told.n[j->leader], .note = jnt_tell, .ctx = j};

        rc = ckpt_sink_attach(sink, folder, p->plan->to, &how, opts, err);
    }
    ckpt_blobs_free(&told);
    return ckpt_team_agree(j->team, rc, err);
}

/* ---- reading spread outputs as one folder ---- */

typedef struct jnt_look {
    ckpt_look_fn fn;
    void *ctx;
} jnt_look;

/* The path of the outputs if all leaders have the same one, or NULL. */
static const char *jnt_one_path(const ckpt_blobs *all)
{
    const char *one = NULL;

    for (unsigned i = 0; i < all->ranks; i++) {
        const char *path = (const char *)all->at[i];

        if (all->n[i] == 0)
            continue;
        if (path[all->n[i] - 1] != 0 || (one && strcmp(one, path) != 0))
            return NULL;
        one = path;
    }
    return one;
}

static int jnt_apart(ckpt_look_fn fn, void *ctx, ckpt_err *err)
{
    int rc;

    ckpt_team_alone(true);
    rc = fn(ctx, NULL, err);
    ckpt_team_alone(false);
    return rc;
}

/* Look at the outputs of all machines; paths name folders on each machine meanwhile. */
static int jnt_look_spread(ckpt_team *t, const char *where, int rc, const jnt_look *look,
                           ckpt_err *err)
{
    bool was_local = t->local;
    ckpt_blobs all = {0};
    const char *one = NULL;

    rc = ckpt_team_agree(t, rc, err);
    if (rc == CKPT_OK)
        rc = ckpt_team_all(t, where, where ? strlen(where) + 1 : 0, &all, err);
    if (rc == CKPT_OK)
        one = jnt_one_path(&all);
    t->local = true;
    rc = ckpt_team_agree(t, rc, err);
    if (rc == CKPT_OK && one)
        rc = look->fn(look->ctx, one, err);
    rc = ckpt_team_agree(t, rc, err);
    t->local = was_local;
    ckpt_blobs_free(&all);
    return rc;
}

static int jnt_look_at(ckpt_peers *p, const char *where, int rc, ckpt_look_fn fn, void *ctx,
                       ckpt_err *err)
{
    const jnt_look look = {.fn = fn, .ctx = ctx};

    if (p->n_machines > 0)
        return jnt_look_spread(jnt_of(p)->team, where, rc, &look, err);
    ckpt_team_alone(true);
    rc = rc == CKPT_OK && where ? fn(ctx, where, err) : rc;
    ckpt_team_alone(false);
    return rc;
}

const ckpt_peer_hooks ckpt_team_peers = {.begin = jnt_begin,
                                         .end = jnt_end,
                                         .agree = jnt_agree,
                                         .exchange = ckpt_team_exchange,
                                         .outputs = jnt_outputs,
                                         .give = ckpt_team_give,
                                         .copy = ckpt_replicate,
                                         .look = jnt_look_at,
                                         .apart = jnt_apart};
