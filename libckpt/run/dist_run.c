/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_run.c: combines the results of a team's processes.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/io/file_locations.h"
#include "libckpt/run/dist_run.h"

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

int ckpt_joint_same(ckpt_team *t, const ckpt_map *map, ckpt_err *err)
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

/* The lowest rank of a machine. */
static unsigned jnt_first(const ckpt_team *t, unsigned node)
{
    unsigned r = 0;

    while (t->node[r] != node)
        r++;
    return r;
}

/*
 * Count the bytes of copies, which the leading process of one machine reads and that of another
 * writes.
 */
static void jnt_count_copies(ckpt_joint *j, const ckpt_team *t)
{
    for (uint32_t i = 0; i < j->plan->to->files.n; i++) {
        for (size_t k = 0; j->spread.copied[i] && k < j->spread.n_nodes; k++) {
            unsigned r = jnt_first(t, j->spread.node[k]);

            if (j->spread.node[k] == j->spread.maker[i])
                continue;
            j->share.n_bytes[r] += j->plan->to->files.at[i].size;
            j->share.n_far[r] += j->plan->to->files.at[i].size;
        }
    }
}

/* Divide the jobs over the processes. */
static int jnt_share(ckpt_joint *j, ckpt_team *t, ckpt_err *err)
{
    uint8_t *sees = t->local ? jnt_sees(t, j->plan->from) : NULL;
    ckpt_places places = {
        .n_ranks = t->n, .node_of_rank = t->node, .n_nodes = t->n_nodes, .sees = sees};
    int rc = t->local && !sees ? ckpt_fail_memory(err) : CKPT_OK;

    if (rc == CKPT_OK && t->spread && j->plan->to->files.n > 0) {
        rc = ckpt_spread_make(&j->spread, t, j->plan->to, err);
        places.target_node = j->spread.maker;
        j->leader = jnt_first(t, t->node[t->rank]);
    }
    if (rc == CKPT_OK)
        rc = ckpt_share_make(&j->share, j->plan, &places, err);
    if (rc == CKPT_OK && j->spread.maker)
        jnt_count_copies(j, t);
    ckpt_free(sees);
    return rc;
}

int ckpt_joint_open(ckpt_joint *j, const ckpt_plan *plan, ckpt_err *err)
{
    ckpt_team *t = jnt_is_shared(plan) ? ckpt_team_now() : NULL;
    int rc;

    *j = (ckpt_joint){.plan = plan, .n_told = plan->to->findings.n};
    if (!t)
        return CKPT_OK;
    rc = jnt_same(t, plan, err);
    if (rc == CKPT_OK)
        rc = jnt_share(j, t, err);
    if (rc == CKPT_OK) {
        ckpt_team_begin(t, j->share.n_bytes, j->share.n_far);
        j->team = t;
    }
    return rc;
}

void ckpt_joint_close(ckpt_joint *j)
{
    if (j->team)
        ckpt_share_free(&j->share);
    ckpt_spread_free(&j->spread);
    j->team = NULL;
}

bool ckpt_joint_several(const ckpt_joint *j)
{
    return j->team != NULL;
}

bool ckpt_joint_decided(const ckpt_joint *j)
{
    return j->team && j->team->decided;
}

size_t ckpt_joint_machines(const ckpt_joint *j)
{
    return j->spread.n_nodes;
}

void ckpt_joint_unsink(ckpt_joint *j)
{
    if (j->team)
        ckpt_team_on_note(j->team, NULL, NULL);
}

void ckpt_joint_aside(bool aside)
{
    ckpt_team_alone(aside);
}

bool ckpt_joint_leads(const ckpt_joint *j)
{
    if (!j->team)
        return true;
    return j->team->rank == j->leader &&
           (!ckpt_joint_spread(j) || ckpt_spread_has(&j->spread, j->team->node[j->team->rank]));
}

bool ckpt_joint_spread(const ckpt_joint *j)
{
    return j->spread.maker != NULL;
}

unsigned ckpt_joint_leader(const ckpt_joint *j, unsigned node)
{
    return jnt_first(j->team, node);
}

bool ckpt_joint_copied(const ckpt_joint *j, uint32_t file)
{
    return j->spread.copied && j->spread.copied[file];
}

uint64_t ckpt_joint_copies(const ckpt_joint *j)
{
    uint64_t n = 0;

    for (uint32_t i = 0; j->spread.copied && i < j->plan->to->files.n; i++) {
        if (j->spread.copied[i])
            n += j->plan->to->files.at[i].size * (j->spread.n_nodes - 1);
    }
    return n;
}

bool ckpt_joint_home(const ckpt_joint *j, uint32_t file)
{
    return !j->team || j->share.home[file] == j->team->rank;
}

bool ckpt_joint_shared(const ckpt_joint *j, uint32_t file)
{
    return j->team && j->share.n_writers[file] > 1;
}

bool ckpt_joint_jobs(const ckpt_joint *j, size_t k, size_t *first, size_t *end)
{
    const ckpt_share *s = &j->share;
    size_t n = j->team ? s->at[j->team->rank + 1] - s->at[j->team->rank] : 1;

    if (k >= n)
        return false;
    *first = j->team ? s->run[s->at[j->team->rank] + k].first : 0;
    *end = j->team ? s->run[s->at[j->team->rank] + k].end : j->plan->jobs.n;
    return true;
}

int ckpt_joint_agree(const ckpt_joint *j, int rc, ckpt_err *err)
{
    return j->team ? ckpt_team_agree(j->team, rc, err) : rc;
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
static int jnt_describe(ckpt_joint *j, const ckpt_sink *sink, ckpt_blobs *told, ckpt_err *err)
{
    const ckpt_team *t = j->team;
    ckpt_bytes *parts = ckpt_alloc(t->n * sizeof *parts), text = {0};
    int rc = parts ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK && ckpt_joint_leads(j))
        rc = ckpt_sink_describe(sink, &text, err);
    rc = ckpt_team_agree(j->team, rc, err);
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        if (!ckpt_joint_spread(j) || t->node[i] == t->node[t->rank])
            parts[i] = text;
    }
    if (rc == CKPT_OK)
        rc = ckpt_joint_spread(j) ? ckpt_team_deal(j->team, parts, told, err)
                                  : ckpt_team_tell(j->team, text.at, text.n, told, err);
    ckpt_vec_free(&text);
    ckpt_free(parts);
    return rc;
}

int ckpt_joint_sink(ckpt_joint *j, ckpt_sink **sink, const char *folder, const ckpt_sink_opts *opts,
                    ckpt_err *err)
{
    ckpt_blobs told = {0};
    int rc;

    if (!j->team)
        return CKPT_OK;
    if (ckpt_joint_leads(j))
        ckpt_team_on_note(j->team, jnt_note, *sink);
    rc = jnt_describe(j, *sink, &told, err);
    if (rc == CKPT_OK && ckpt_joint_spread(j) &&
        !ckpt_spread_has(&j->spread, j->team->node[j->team->rank])) {
        rc = ckpt_sink_nothing(sink, folder, j->plan->to, err);
    } else if (rc == CKPT_OK && !ckpt_joint_leads(j)) {
        const ckpt_sink_how how = {
            .described = told.at[j->leader], .n = told.n[j->leader], .note = jnt_tell, .ctx = j};

        rc = ckpt_sink_attach(sink, folder, j->plan->to, &how, opts, err);
    }
    ckpt_blobs_free(&told);
    return ckpt_team_agree(j->team, rc, err);
}

int ckpt_joint_elsewhere(const ckpt_joint *j, uint8_t **out, ckpt_err *err)
{
    size_t n = j->plan->to->files.n;

    *out = NULL;
    if (!ckpt_joint_spread(j))
        return CKPT_OK;
    *out = ckpt_alloc(n + 1);
    if (!*out)
        return ckpt_fail_memory(err);
    for (uint32_t i = 0; i < n; i++)
        (*out)[i] = !ckpt_spread_gets(&j->spread, j->team->node[j->team->rank], i);
    return CKPT_OK;
}

/* ---- reading spread outputs as one folder ---- */

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

int ckpt_joint_look(ckpt_joint *j, char **where, int rc, ckpt_err *err)
{
    ckpt_blobs all = {0};
    const char *one = NULL;

    if (!ckpt_joint_spread(j)) {
        ckpt_joint_aside(true);
        return rc;
    }
    j->was_local = j->team->local;
    rc = ckpt_team_agree(j->team, rc, err);
    if (rc == CKPT_OK)
        rc = ckpt_team_all(j->team, *where, *where ? strlen(*where) + 1 : 0, &all, err);
    ckpt_free(*where);
    *where = NULL;
    if (rc == CKPT_OK)
        one = jnt_one_path(&all);
    if (one) {
        *where = ckpt_alloc(strlen(one) + 1);
        if (*where)
            memcpy(*where, one, strlen(one) + 1);
        else
            rc = ckpt_fail_memory(err);
    }
    ckpt_blobs_free(&all);
    j->team->local = true;
    return ckpt_team_agree(j->team, rc, err);
}

int ckpt_joint_looked(ckpt_joint *j, int rc, ckpt_err *err)
{
    if (!ckpt_joint_spread(j)) {
        ckpt_joint_aside(false);
        return rc;
    }
    rc = ckpt_team_agree(j->team, rc, err);
    j->team->local = j->was_local;
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

int ckpt_joint_exchange(ckpt_team *team, ckpt_map *map, size_t *n_told, ckpt_err *err)
{
    ckpt_bytes mine = {0};
    ckpt_blobs all = {0};
    int rc = jnt_write_findings(&map->findings, *n_told, &mine, err);

    if (rc == CKPT_OK)
        rc = ckpt_team_all(team, mine.at, mine.n, &all, err);
    // This process's own findings come again, in the order of ranks.
    if (rc == CKPT_OK)
        map->findings.n = *n_told;
    for (unsigned i = 0; rc == CKPT_OK && i < team->n; i++)
        rc = jnt_read_findings(map, all.at[i], all.n[i], err);
    *n_told = map->findings.n;
    ckpt_blobs_free(&all);
    ckpt_vec_free(&mine);
    return rc;
}

int ckpt_joint_findings(ckpt_joint *j, ckpt_err *err)
{
    return j->team ? ckpt_joint_exchange(j->team, j->plan->to, &j->n_told, err) : CKPT_OK;
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

static int jnt_mismatches(ckpt_joint *j, ckpt_work *w, ckpt_err *err)
{
    jnt_mismatch mine;
    ckpt_blobs all = {0};
    int rc;

    memset(&mine, 0, sizeof mine);
    mine.err = w->mismatch;
    mine.tensor = w->mismatched;
    rc = ckpt_team_all(j->team, &mine, sizeof mine, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < j->team->n; i++) {
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

int ckpt_joint_tallies(ckpt_joint *j, ckpt_work *w, ckpt_err *err)
{
    ckpt_bytes mine = {0};
    ckpt_blobs all = {0};
    int rc = CKPT_OK;

    if (!j->team)
        return CKPT_OK;
    rc = jnt_write_tallies(w, &mine, err);
    if (rc == CKPT_OK)
        rc = ckpt_team_all(j->team, mine.at, mine.n, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < j->team->n; i++) {
        if (i != j->team->rank)
            jnt_read_tallies(w, all.at[i], all.n[i]);
    }
    ckpt_blobs_free(&all);
    ckpt_vec_free(&mine);
    return rc == CKPT_OK ? jnt_mismatches(j, w, err) : rc;
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

int ckpt_joint_deal(ckpt_joint *j, ckpt_segments *parts, ckpt_segments *mine, ckpt_err *err)
{
    ckpt_bytes *bytes = ckpt_alloc(j->team->n * sizeof *bytes);
    ckpt_blobs in = {0};
    int rc;

    if (!bytes)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < j->team->n; i++)
        bytes[i] = (ckpt_bytes){.at = (uint8_t *)parts[i].at, .n = parts[i].n * sizeof *parts->at};
    rc = ckpt_team_deal(j->team, bytes, &in, err);
    if (rc == CKPT_OK)
        rc = jnt_merge(mine, &in, err);
    ckpt_blobs_free(&in);
    ckpt_free(bytes);
    return rc;
}

/*
 * Give each record's segments to one process, which checks its CRC: records are assigned in turn.
 */
static int jnt_deal_read(ckpt_joint *j, ckpt_segments *read, ckpt_err *err)
{
    ckpt_segments *part = ckpt_alloc(j->team->n * sizeof *part);
    int rc = part ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < read->n; i++) {
        ckpt_segment *s = ckpt_vec_push(&part[read->at[i].source % j->team->n]);

        if (s)
            *s = read->at[i];
        else
            rc = ckpt_fail_memory(err);
    }
    ckpt_vec_free(read);
    if (rc == CKPT_OK)
        rc = ckpt_joint_deal(j, part, read, err);
    for (unsigned i = 0; part && i < j->team->n; i++)
        ckpt_vec_free(&part[i]);
    ckpt_free(part);
    return rc;
}

int ckpt_joint_segments(ckpt_joint *j, ckpt_segments *read, bool all, ckpt_err *err)
{
    ckpt_blobs in = {0};
    int rc;

    if (!j->team)
        return CKPT_OK;
    if (!all)
        return jnt_deal_read(j, read, err);
    rc = ckpt_team_all(j->team, read->at, read->n * sizeof *read->at, &in, err);
    if (rc == CKPT_OK)
        rc = jnt_merge(read, &in, err);
    ckpt_blobs_free(&in);
    return rc;
}

int ckpt_joint_sum(ckpt_joint *j, uint64_t *counter, size_t n, ckpt_err *err)
{
    ckpt_blobs all = {0};
    int rc;

    if (!j->team)
        return CKPT_OK;
    rc = ckpt_team_all(j->team, counter, n * sizeof *counter, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < j->team->n; i++) {
        for (size_t k = 0; i != j->team->rank && all.n[i] == n * sizeof *counter && k < n; k++) {
            uint64_t x;

            memcpy(&x, all.at[i] + k * sizeof x, sizeof x);
            counter[k] += x;
        }
    }
    ckpt_blobs_free(&all);
    return rc;
}

int ckpt_joint_count(ckpt_joint *j, ckpt_err *err)
{
    return j->team ? ckpt_team_count(j->team, err) : CKPT_OK;
}
