/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_run.c: lets the processes of a team divide a run, and combines their results.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/io/file_locations.h"
#include "libckpt/run/dist_run.h"
#include "libckpt/run/partition.h"
#include "libckpt/run/placement.h"
#include "libckpt/run/replicate.h"

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

/* Set what this process does with each file. */
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
    if (!j)
        return ckpt_fail_memory(err);
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

/* ---- findings ---- */

typedef struct jnt_finding {
    int32_t severity, code;
    uint32_t n; /* bytes of the text that follows it */
} jnt_finding;

static int jnt_write_findings(const ckpt_findings *f, size_t first, ckpt_bytes *b, ckpt_err *err)
{
    for (size_t i = first; i < f->n; i++) {
        const jnt_finding h = {(int32_t)f->at[i].severity, f->at[i].code,
                               (uint32_t)strlen(f->at[i].text)};

        if (!ckpt_bytes_add(b, &h, sizeof h) || !ckpt_bytes_add(b, f->at[i].text, h.n))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* Append the findings of one process to the map. */
static int jnt_read_findings(ckpt_map *to, const uint8_t *p, size_t n, ckpt_err *err)
{
    while (n >= sizeof(jnt_finding)) {
        jnt_finding h;
        ckpt_finding *f = ckpt_vec_push(&to->findings);

        memcpy(&h, p, sizeof h);
        if (!f || h.n > n - sizeof h)
            return ckpt_fail_memory(err);
        f->severity = (ckpt_severity)h.severity;
        f->code = h.code;
        f->text = ckpt_arena_string(to->arena, (const char *)p + sizeof h, h.n);
        if (!f->text)
            return ckpt_fail_memory(err);
        p += sizeof h + h.n;
        n -= sizeof h + h.n;
    }
    return CKPT_OK;
}

static int jnt_findings(ckpt_team *t, ckpt_peers *p, ckpt_err *err)
{
    ckpt_bytes mine = {0};
    ckpt_blobs all = {0};
    int rc = jnt_write_findings(&p->map->findings, p->n_told, &mine, err);

    if (rc == CKPT_OK)
        rc = ckpt_team_all(t, mine.at, mine.n, &all, err);
    // This process's own findings come again, in the order of ranks.
    if (rc == CKPT_OK)
        p->map->findings.n = p->n_told;
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++)
        rc = jnt_read_findings(p->map, all.at[i], all.n[i], err);
    p->n_told = p->map->findings.n;
    ckpt_blobs_free(&all);
    ckpt_vec_free(&mine);
    return rc;
}

/* ---- tensors ---- */

/* The counts of one process for one tensor. */
typedef struct jnt_tally {
    uint64_t tensor;
    ckpt_tally tally;
} jnt_tally;

static int jnt_write_tallies(const ckpt_work *w, ckpt_bytes *b, ckpt_err *err)
{
    static const ckpt_tally none;

    for (size_t i = 0; i < w->plan->to->tensors.n; i++) {
        const jnt_tally t = {i, w->tally[i]};

        if (memcmp(&w->tally[i], &none, sizeof none) != 0 && !ckpt_bytes_add(b, &t, sizeof t))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* Add the counts of a process to the sum. */
static void jnt_read_tallies(ckpt_work *w, const uint8_t *p, size_t n)
{
    for (; n >= sizeof(jnt_tally); p += sizeof(jnt_tally), n -= sizeof(jnt_tally)) {
        jnt_tally t;

        memcpy(&t, p, sizeof t);
        if (t.tensor < w->plan->to->tensors.n)
            ckpt_tally_add(&w->tally[t.tensor], &t.tally);
    }
}

/* The mismatch of the lowest tensor. */
typedef struct jnt_mismatch {
    ckpt_err err;
    uint32_t tensor;
} jnt_mismatch;

static int jnt_mismatches(ckpt_team *t, ckpt_work *w, ckpt_err *err)
{
    jnt_mismatch mine;
    ckpt_blobs all = {0};
    int rc;

    memset(&mine, 0, sizeof mine);
    mine.err = w->mismatch;
    mine.tensor = w->mismatched;
    rc = ckpt_team_all(t, &mine, sizeof mine, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        jnt_mismatch m = {0};

        if (all.n[i] == sizeof m)
            memcpy(&m, all.at[i], sizeof m);
        m.err.text[sizeof m.err.text - 1] = 0;
        if (m.err.code != CKPT_OK && (w->mismatch.code == CKPT_OK || m.tensor < w->mismatched)) {
            w->mismatch = m.err;
            w->mismatched = m.tensor;
        }
    }
    ckpt_blobs_free(&all);
    return rc;
}

static int jnt_tallies(ckpt_team *t, ckpt_work *w, ckpt_err *err)
{
    ckpt_bytes mine = {0};
    ckpt_blobs all = {0};
    int rc = jnt_write_tallies(w, &mine, err);

    if (rc == CKPT_OK)
        rc = ckpt_team_all(t, mine.at, mine.n, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        if (i != t->rank)
            jnt_read_tallies(w, all.at[i], all.n[i]);
    }
    ckpt_blobs_free(&all);
    ckpt_vec_free(&mine);
    return rc == CKPT_OK ? jnt_mismatches(t, w, err) : rc;
}

/* ---- checksums ---- */

/* Merge the segments of all blobs, sorted and without duplicates. */
static int jnt_merge(ckpt_segments *out, const ckpt_blobs *all, ckpt_err *err)
{
    ckpt_segments in = {0};
    size_t n = 0;

    for (unsigned i = 0; i < all->ranks; i++)
        n += all->n[i] / sizeof *in.at;
    if (n > 0)
        in.at = ckpt_alloc(n * sizeof *in.at);
    if (n > 0 && !in.at)
        return ckpt_fail_memory(err);
    in.room = n;
    for (unsigned i = 0; i < all->ranks; i++) {
        size_t some = all->n[i] / sizeof *in.at;

        if (some > 0)
            memcpy(in.at + in.n, all->at[i], some * sizeof *in.at);
        in.n += some;
    }
    ckpt_vec_free(out);
    *out = in;
    ckpt_ledger_sort(out);
    return CKPT_OK;
}

/* Send parts[r] to rank r; *mine gets this process's own part and those of the others for it. */
static int jnt_deal(ckpt_team *t, const ckpt_segments *parts, ckpt_segments *mine, ckpt_err *err)
{
    ckpt_bytes *bytes = ckpt_alloc(t->n * sizeof *bytes);
    ckpt_blobs in = {0};
    int rc;

    if (!bytes)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < t->n; i++)
        bytes[i] = (ckpt_bytes){.at = (uint8_t *)parts[i].at, .n = parts[i].n * sizeof *parts->at};
    rc = ckpt_team_deal(t, bytes, &in, err);
    if (rc == CKPT_OK)
        rc = jnt_merge(mine, &in, err);
    ckpt_blobs_free(&in);
    ckpt_free(bytes);
    return rc;
}

/*
 * Give each record's segments to one process, which checks its CRC: records are assigned in turn.
 */
static int jnt_deal_read(ckpt_team *t, ckpt_segments *read, ckpt_err *err)
{
    ckpt_segments *part = ckpt_alloc(t->n * sizeof *part);
    int rc = part ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < read->n; i++) {
        ckpt_segment *s = ckpt_vec_push(&part[read->at[i].source % t->n]);

        if (s)
            *s = read->at[i];
        else
            rc = ckpt_fail_memory(err);
    }
    ckpt_vec_free(read);
    if (rc == CKPT_OK)
        rc = jnt_deal(t, part, read, err);
    for (unsigned i = 0; part && i < t->n; i++)
        ckpt_vec_free(&part[i]);
    ckpt_free(part);
    return rc;
}

static int jnt_segments(ckpt_team *t, ckpt_segments *read, bool all, ckpt_err *err)
{
    ckpt_blobs in = {0};
    int rc;

    if (!all)
        return jnt_deal_read(t, read, err);
    rc = ckpt_team_all(t, read->at, read->n * sizeof *read->at, &in, err);
    if (rc == CKPT_OK)
        rc = jnt_merge(read, &in, err);
    ckpt_blobs_free(&in);
    return rc;
}

/* Move the segments of shared files to the parts of the processes that finish them. */
static int jnt_parts(const ckpt_peers *p, ckpt_work *work, ckpt_segments *seg, ckpt_segments *parts,
                     ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < p->plan->to->files.n; i++) {
        if (!(p->file[i] & CKPT_FILE_SHARED) || seg[i].n == 0)
            continue;
        rc = ckpt_ledger_move(&parts[jnt_of(p)->share.home[i]], &seg[i], err);
        if (rc == CKPT_OK)
            rc = ckpt_sink_flush(work->sink, i, err);
    }
    return rc;
}

static int jnt_give(ckpt_peers *p, ckpt_work *work, ckpt_segments *seg, ckpt_segments *mine,
                    ckpt_err *err)
{
    ckpt_segments *parts = ckpt_alloc(p->n * sizeof *parts);
    int rc = parts ? jnt_parts(p, work, seg, parts, err) : ckpt_fail_memory(err);

    rc = jnt_agree(p, rc, err);
    if (rc == CKPT_OK)
        rc = jnt_deal(jnt_of(p)->team, parts, mine, err);
    for (unsigned i = 0; parts && i < p->n; i++)
        ckpt_vec_free(&parts[i]);
    ckpt_free(parts);
    return rc;
}

/* ---- other results ---- */

static int jnt_sum(ckpt_team *t, uint64_t *counter, size_t n, ckpt_err *err)
{
    ckpt_blobs all = {0};
    int rc = ckpt_team_all(t, counter, n * sizeof *counter, &all, err);

    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        for (size_t k = 0; i != t->rank && all.n[i] == n * sizeof *counter && k < n; k++) {
            uint64_t x;

            memcpy(&x, all.at[i] + k * sizeof x, sizeof x);
            counter[k] += x;
        }
    }
    ckpt_blobs_free(&all);
    return rc;
}

/* Exchange the parts of an array. */
static int jnt_array(ckpt_team *t, const ckpt_peer_part *part, ckpt_err *err)
{
    uint8_t *to = part->array;
    size_t left = part->n * part->size;
    ckpt_blobs all = {0};
    int rc = ckpt_team_all(t, to + part->first * part->size, (part->end - part->first) * part->size,
                           &all, err);

    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        if (all.n[i] > left)
            rc = ckpt_fail(err, CKPT_EIO, "rank %u sent %zu bytes, expected at most %zu", i,
                           all.n[i], left);
        else if (all.n[i] > 0)
            memcpy(to, all.at[i], all.n[i]);
        to += rc == CKPT_OK ? all.n[i] : 0;
        left -= rc == CKPT_OK ? all.n[i] : 0;
    }
    ckpt_blobs_free(&all);
    return rc;
}

static int jnt_exchange(ckpt_peers *p, const ckpt_results *r, ckpt_err *err)
{
    ckpt_team *t = jnt_of(p)->team;
    int rc = r->messages ? ckpt_team_count(t, err) : CKPT_OK;

    if (rc == CKPT_OK && r->part.array)
        rc = jnt_array(t, &r->part, err);
    if (rc == CKPT_OK && r->findings)
        rc = jnt_findings(t, p, err);
    if (rc == CKPT_OK && r->n_sum > 0)
        rc = jnt_sum(t, r->sum, r->n_sum, err);
    if (rc == CKPT_OK && r->work)
        rc = jnt_tallies(t, r->work, err);
    if (rc == CKPT_OK && r->read)
        rc = jnt_segments(t, r->read, r->read_all, err);
    return rc;
}

const ckpt_peer_hooks ckpt_team_peers = {.begin = jnt_begin,
                                         .end = jnt_end,
                                         .agree = jnt_agree,
                                         .exchange = jnt_exchange,
                                         .outputs = jnt_outputs,
                                         .give = jnt_give,
                                         .copy = ckpt_replicate,
                                         .look = jnt_look_at,
                                         .apart = jnt_apart};
