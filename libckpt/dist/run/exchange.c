/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.c: combines the results of a team's processes.
 */
#include <string.h>

#include "libckpt/dist/run/hooks.h"

/* ---- findings ---- */

typedef struct exc_finding {
    int32_t severity, code;
    uint32_t n; /* bytes of the text that follows it */
} exc_finding;

static int exc_write_findings(const ckpt_findings *f, size_t first, ckpt_bytes *b, ckpt_err *err)
{
    for (size_t i = first; i < f->n; i++) {
        const exc_finding h = {(int32_t)f->at[i].severity, f->at[i].code,
                               (uint32_t)strlen(f->at[i].text)};

        if (!ckpt_bytes_add(b, &h, sizeof h) || !ckpt_bytes_add(b, f->at[i].text, h.n))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* Append the findings of one process to the map. */
static int exc_read_findings(ckpt_map *to, const uint8_t *p, size_t n, ckpt_err *err)
{
    while (n >= sizeof(exc_finding)) {
        exc_finding h;
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

static int exc_findings(ckpt_team *t, ckpt_peers *p, ckpt_err *err)
{
    ckpt_bytes mine = {0};
    ckpt_blobs all = {0};
    int rc = exc_write_findings(&p->map->findings, p->n_told, &mine, err);

    if (rc == CKPT_OK)
        rc = ckpt_team_all(t, mine.at, mine.n, &all, err);
    // This process's own findings come again, in the order of ranks.
    if (rc == CKPT_OK)
        p->map->findings.n = p->n_told;
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++)
        rc = exc_read_findings(p->map, all.at[i], all.n[i], err);
    p->n_told = p->map->findings.n;
    ckpt_blobs_free(&all);
    ckpt_vec_free(&mine);
    return rc;
}

/* ---- tensors ---- */

/* The counts of one process for one tensor. */
typedef struct exc_tally {
    uint64_t tensor;
    ckpt_tally tally;
} exc_tally;

static int exc_write_tallies(const ckpt_work *w, ckpt_bytes *b, ckpt_err *err)
{
    static const ckpt_tally none;

    for (size_t i = 0; i < w->plan->to->tensors.n; i++) {
        const exc_tally t = {i, w->tally[i]};

        if (memcmp(&w->tally[i], &none, sizeof none) != 0 && !ckpt_bytes_add(b, &t, sizeof t))
            return ckpt_fail_memory(err);
    }
    return CKPT_OK;
}

/* Add the counts of a process to the sum. */
static void exc_read_tallies(ckpt_work *w, const uint8_t *p, size_t n)
{
    for (; n >= sizeof(exc_tally); p += sizeof(exc_tally), n -= sizeof(exc_tally)) {
        exc_tally t;

        memcpy(&t, p, sizeof t);
        if (t.tensor < w->plan->to->tensors.n)
            ckpt_tally_add(&w->tally[t.tensor], &t.tally);
    }
}

/* The mismatch of the lowest tensor. */
typedef struct exc_mismatch {
    ckpt_err err;
    uint32_t tensor;
} exc_mismatch;

static int exc_mismatches(ckpt_team *t, ckpt_work *w, ckpt_err *err)
{
    exc_mismatch mine;
    ckpt_blobs all = {0};
    int rc;

    memset(&mine, 0, sizeof mine);
    mine.err = w->mismatch;
    mine.tensor = w->mismatched;
    rc = ckpt_team_all(t, &mine, sizeof mine, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        exc_mismatch m = {0};

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

static int exc_tallies(ckpt_team *t, ckpt_work *w, ckpt_err *err)
{
    ckpt_bytes mine = {0};
    ckpt_blobs all = {0};
    int rc = exc_write_tallies(w, &mine, err);

    if (rc == CKPT_OK)
        rc = ckpt_team_all(t, mine.at, mine.n, &all, err);
    for (unsigned i = 0; rc == CKPT_OK && i < t->n; i++) {
        if (i != t->rank)
            exc_read_tallies(w, all.at[i], all.n[i]);
    }
    ckpt_blobs_free(&all);
    ckpt_vec_free(&mine);
    return rc == CKPT_OK ? exc_mismatches(t, w, err) : rc;
}

/* ---- checksums ---- */

/* Merge the segments of all blobs, sorted and without duplicates. */
static int exc_merge(ckpt_segments *out, const ckpt_blobs *all, ckpt_err *err)
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
static int exc_deal(ckpt_team *t, const ckpt_segments *parts, ckpt_segments *mine, ckpt_err *err)
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
        rc = exc_merge(mine, &in, err);
    ckpt_blobs_free(&in);
    ckpt_free(bytes);
    return rc;
}

/*
 * Give each record's segments to one process, which checks its CRC: records are assigned in turn.
 */
static int exc_deal_read(ckpt_team *t, ckpt_segments *read, ckpt_err *err)
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
        rc = exc_deal(t, part, read, err);
    for (unsigned i = 0; part && i < t->n; i++)
        ckpt_vec_free(&part[i]);
    ckpt_free(part);
    return rc;
}

static int exc_segments(ckpt_team *t, ckpt_segments *read, bool all, ckpt_err *err)
{
    ckpt_blobs in = {0};
    int rc;

    if (!all)
        return exc_deal_read(t, read, err);
    rc = ckpt_team_all(t, read->at, read->n * sizeof *read->at, &in, err);
    if (rc == CKPT_OK)
        rc = exc_merge(read, &in, err);
    ckpt_blobs_free(&in);
    return rc;
}

/* Move the segments of shared files to the parts of the processes that finish them. */
static int exc_parts(const ckpt_peers *p, ckpt_work *work, ckpt_segments *seg, ckpt_segments *parts,
                     ckpt_err *err)
{
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < p->plan->to->files.n; i++) {
        if (!(p->file[i] & CKPT_FILE_SHARED) || seg[i].n == 0)
            continue;
        rc = ckpt_ledger_move(&parts[((const ckpt_joint *)p->state)->share.home[i]], &seg[i], err);
        if (rc == CKPT_OK)
            rc = ckpt_sink_flush(work->sink, i, err);
    }
    return rc;
}

int ckpt_team_give(ckpt_peers *p, ckpt_work *work, ckpt_segments *seg, ckpt_segments *mine,
                   ckpt_err *err)
{
    ckpt_segments *parts = ckpt_alloc(p->n * sizeof *parts);
    int rc = parts ? exc_parts(p, work, seg, parts, err) : ckpt_fail_memory(err);

    rc = p->hooks->agree(p, rc, err);
    if (rc == CKPT_OK)
        rc = exc_deal(((const ckpt_joint *)p->state)->team, parts, mine, err);
    for (unsigned i = 0; parts && i < p->n; i++)
        ckpt_vec_free(&parts[i]);
    ckpt_free(parts);
    return rc;
}

/* ---- other results ---- */

static int exc_sum(ckpt_team *t, uint64_t *counter, size_t n, ckpt_err *err)
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
static int exc_array(ckpt_team *t, const ckpt_peer_part *part, ckpt_err *err)
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

int ckpt_team_exchange(ckpt_peers *p, const ckpt_results *r, ckpt_err *err)
{
    ckpt_team *t = ((const ckpt_joint *)p->state)->team;
    int rc = r->messages ? ckpt_team_count(t, err) : CKPT_OK;

    if (rc == CKPT_OK && r->part.array)
        rc = exc_array(t, &r->part, err);
    if (rc == CKPT_OK && r->findings)
        rc = exc_findings(t, p, err);
    if (rc == CKPT_OK && r->n_sum > 0)
        rc = exc_sum(t, r->sum, r->n_sum, err);
    if (rc == CKPT_OK && r->work)
        rc = exc_tallies(t, r->work, err);
    if (rc == CKPT_OK && r->read)
        rc = exc_segments(t, r->read, r->read_all, err);
    return rc;
}
