/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc_check.c: keeps a list of stretches for each record that is read in part, and joins them where
 * they touch.
 */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/copy/crc_check.h"
#include "libckpt/io/thread_pool.h"

/* A rest is small if it has at most this many bytes, or this part of the record. */
enum { PF_REST = 64 * 1024, PF_REST_PART = 32 };

typedef enum pf_state {
    PF_NEW,  /* not read completely: its CRC is unknown */
    PF_BUSY, /* a thread reads it */
    PF_HELD, /* it has a correct CRC, or none */
    PF_BAD
} pf_state;

/* The stretches of a record that were read: disjoint, not touching, ascending. */
typedef struct pf_record {
    ckpt_segments seg;
    uint64_t n; /* their bytes */
} pf_record;

struct ckpt_proof {
    ckpt_feed *feed;
    ckpt_proof_opts opts;
    pthread_mutex_t lock;
    pthread_cond_t idle; /* signals that a source is not busy any more */
    uint8_t *state;      /* per source */
    pf_record **record;  /* per source; NULL: nothing was read, or the result is known */
    char **why;          /* per source: the message about its wrong CRC; or NULL */
    ckpt_view_counts counts;
};

/* Free the struct and its arrays, without the lists in them. */
static void pf_release(ckpt_proof *p)
{
    ckpt_free(p->why);
    ckpt_free(p->record);
    ckpt_free(p->state);
    ckpt_free(p);
}

int ckpt_proof_new(ckpt_proof **out, ckpt_feed *feed, const ckpt_proof_opts *opts, ckpt_err *err)
{
    assert(out && feed);
    ckpt_proof *p = ckpt_alloc(sizeof *p);
    size_t n = feed->map->sources.n + 1;

    *out = NULL;
    if (!p)
        return ckpt_fail_memory(err);
    p->feed = feed;
    p->opts = opts ? *opts : (ckpt_proof_opts){0};
    p->state = ckpt_alloc(n);
    p->record = ckpt_alloc(n * sizeof *p->record);
    p->why = ckpt_alloc(n * sizeof *p->why);
    if (p->state && p->record && p->why && pthread_mutex_init(&p->lock, NULL) == 0) {
        if (pthread_cond_init(&p->idle, NULL) == 0) {
            *out = p;
            return CKPT_OK;
        }
        pthread_mutex_destroy(&p->lock);
    }
    pf_release(p);
    return ckpt_fail_memory(err);
}

static void pf_forget(ckpt_proof *p, uint32_t source)
{
    if (!p->record[source])
        return;
    ckpt_vec_free(&p->record[source]->seg);
    ckpt_free(p->record[source]);
    p->record[source] = NULL;
}

void ckpt_proof_free(ckpt_proof *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->feed->map->sources.n; i++) {
        pf_forget(p, i);
        ckpt_free(p->why[i]);
    }
    pthread_cond_destroy(&p->idle);
    pthread_mutex_destroy(&p->lock);
    pf_release(p);
}

/* ---- a record as a whole ---- */

/* Wait until no thread reads the source and return its state. The caller holds the lock. */
static pf_state pf_wait(ckpt_proof *p, uint32_t source)
{
    while (p->state[source] == PF_BUSY)
        pthread_cond_wait(&p->idle, &p->lock);
    return p->state[source];
}

/* Record the result after reading. A source that could not be read is tried again later. */
static int pf_judge(ckpt_proof *p, uint32_t source, bool told, const ckpt_err *found, ckpt_err *err)
{
    const int rc = found->code;

    pthread_mutex_lock(&p->lock);
    if (rc == CKPT_EFORMAT)
        p->why[source] = ckpt_alloc(sizeof found->text);
    if (rc == CKPT_EFORMAT && p->why[source])
        memcpy(p->why[source], found->text, sizeof found->text);
    p->state[source] = rc == CKPT_OK ? PF_HELD : rc == CKPT_EFORMAT ? PF_BAD : PF_NEW;
    p->counts.n_held += rc == CKPT_OK && told;
    p->counts.n_bad += rc == CKPT_EFORMAT;
    if (rc == CKPT_OK || rc == CKPT_EFORMAT)
        pf_forget(p, source);
    pthread_cond_broadcast(&p->idle);
    pthread_mutex_unlock(&p->lock);
    return rc == CKPT_OK ? CKPT_OK : ckpt_fail(err, rc, "%s", found->text);
}

/*
 * Compute a record's CRC from its stretches and the bytes between, and compare it. n == 0: read
 * all.
 */
static int pf_compare(const ckpt_proof *p, uint32_t source, const ckpt_segment *seg, size_t n,
                      ckpt_err *err)
{
    const ckpt_source *s = &p->feed->map->sources.at[source];
    uint32_t crc = 0;
    uint64_t n_read = 0;
    int rc = n > 0 ? ckpt_ledger_record(p->feed, seg, n, &crc, &n_read, err)
                   : ckpt_feed_crc(p->feed, source, 0, s->n_bytes, &crc, err);

    return rc == CKPT_OK && crc != s->crc ? ckpt_feed_bad_crc(NULL, p->feed->map, source, crc, err)
                                          : rc;
}

/* Report a record that was found bad earlier. */
static int pf_refuse(const ckpt_proof *p, uint32_t source, ckpt_err *err)
{
    const ckpt_source *s = &p->feed->map->sources.at[source];

    if (p->why[source])
        return ckpt_fail(err, CKPT_EFORMAT, "%s", p->why[source]);
    return ckpt_fail(err, CKPT_EFORMAT,
                     "%s: record '%s' differs from what was written; restore the file",
                     p->feed->map->files.at[s->file].path, s->name ? s->name : "");
}

/* Make the checks before the first use of a source. */
static int pf_begin(ckpt_proof *p, uint32_t source, ckpt_err *err)
{
    const ckpt_source *s = &p->feed->map->sources.at[source];
    int rc = CKPT_OK;

    if (s->coding == CKPT_DEFLATE)
        return ckpt_feed_decode(p->feed, source, err);
    if (s->whole && p->opts.whole)
        rc = p->opts.whole(p->opts.ctx, source, err);
    if (rc == CKPT_OK && p->opts.first && s->has_crc)
        rc = pf_compare(p, source, NULL, 0, err);
    return rc;
}

int ckpt_proof_touch(ckpt_proof *p, uint32_t source, ckpt_err *err)
{
    assert(source < p->feed->map->sources.n);
    const ckpt_source *s = &p->feed->map->sources.at[source];
    bool due = s->coding == CKPT_DEFLATE || s->whole || (p->opts.first && s->has_crc);
    ckpt_err found = {0};
    pf_state was;

    if (s->kind != CKPT_SOURCE_FILE)
        return CKPT_OK;
    pthread_mutex_lock(&p->lock);
    was = pf_wait(p, source);
    if (was == PF_NEW && due) {
        p->state[source] = PF_BUSY;
    } else if (was == PF_NEW && !s->has_crc) {
        p->state[source] = PF_HELD;
        p->counts.n_no_crc++;
    }
    pthread_mutex_unlock(&p->lock);
    if (was == PF_BAD)
        return pf_refuse(p, source, err);
    if (was == PF_HELD || !due)
        return CKPT_OK;
    (void)pf_begin(p, source, &found);
    return pf_judge(p, source, s->has_crc, &found, err);
}

/* ---- stretches ---- */

/* The first stretch that ends after `at`. */
static size_t pf_find(const ckpt_segments *s, uint64_t at)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->at[middle].at + s->at[middle].n <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * Add a stretch; one that overlaps an earlier one is dropped, because its bytes are known or are
 * read again at the end.
 */
static int pf_insert(pf_record *r, const ckpt_segment *new, ckpt_err *err)
{
    ckpt_segments *s = &r->seg;
    size_t i = pf_find(s, new->at);
    ckpt_segment *at;

    if (i < s->n && s->at[i].at < new->at + new->n)
        return CKPT_OK;
    if (i > 0 && s->at[i - 1].at + s->at[i - 1].n == new->at) {
        at = &s->at[i - 1];
        at->crc = ckpt_crc32_join(at->crc, new->crc, new->n);
        at->n += new->n;
    } else {
        at = ckpt_vec_push(s);
        if (!at)
            return ckpt_fail_memory(err);
        at = &s->at[i];
        memmove(at + 1, at, (s->n - 1 - i) * sizeof *at);
        *at = *new;
        i++;
    }
    r->n += new->n;
    // the next stretch may begin where this one now ends
    if (i < s->n && at->at + at->n == s->at[i].at) {
        at->crc = ckpt_crc32_join(at->crc, s->at[i].crc, s->at[i].n);
        at->n += s->at[i].n;
        memmove(&s->at[i], &s->at[i] + 1, (s->n - 1 - i) * sizeof *at);
        s->n--;
    }
    return CKPT_OK;
}

/*
 * Record a stretch. *due: the caller must compare the record, because it is complete but for a
 * small rest, or was read without a CRC. The caller holds the lock.
 */
static int pf_note(ckpt_proof *p, const ckpt_segment *seg, bool *due, ckpt_err *err)
{
    const ckpt_source *s = &p->feed->map->sources.at[seg->source];
    pf_state was = pf_wait(p, seg->source);
    pf_record *r = p->record[seg->source];
    int rc = CKPT_OK;

    *due = false;
    if (was != PF_NEW)
        return was == PF_BAD ? pf_refuse(p, seg->source, err) : CKPT_OK;
    if (!r)
        r = p->record[seg->source] = ckpt_alloc(sizeof *r);
    if (!r)
        return ckpt_fail_memory(err);
    if (seg->n > 0)
        rc = pf_insert(r, seg, err);
    else
        r->seg.n = r->n = 0;
    *due = rc == CKPT_OK && (seg->n == 0 || s->n_bytes - r->n <= PF_REST ||
                             s->n_bytes - r->n <= s->n_bytes / PF_REST_PART);
    if (*due)
        p->state[seg->source] = PF_BUSY;
    return rc;
}

int ckpt_proof_take(ckpt_proof *p, ckpt_segments *read, ckpt_err *err)
{
    assert(p && read);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < read->n; i++) {
        const uint32_t source = read->at[i].source;
        const ckpt_segments *s;
        ckpt_err found = {0};
        bool due;

        pthread_mutex_lock(&p->lock);
        rc = pf_note(p, &read->at[i], &due, err);
        pthread_mutex_unlock(&p->lock);
        if (!due)
            continue;
        // only this thread uses a busy record
        s = &p->record[source]->seg;
        (void)pf_compare(p, source, s->at, s->n, &found);
        rc = pf_judge(p, source, true, &found, err);
    }
    read->n = 0;
    return rc;
}

/* ---- the end ---- */

static int pf_rest(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    ckpt_proof *p = ctx;
    uint32_t source = (uint32_t)item;
    ckpt_err found = {0};
    bool mine;

    (void)worker;
    pthread_mutex_lock(&p->lock);
    mine = pf_wait(p, source) == PF_NEW && p->record[source];
    if (mine)
        p->state[source] = PF_BUSY;
    pthread_mutex_unlock(&p->lock);
    if (!mine)
        return CKPT_OK;
    const ckpt_segments *s = &p->record[source]->seg;
    (void)pf_compare(p, source, s->at, s->n, &found);
    return pf_judge(p, source, true, &found, err);
}

int ckpt_proof_finish(ckpt_proof *p, unsigned n_workers, ckpt_err *err)
{
    assert(p);
    return ckpt_crew_run(n_workers, p->feed->map->sources.n, pf_rest, p, err);
}

void ckpt_proof_count(ckpt_proof *p, ckpt_view_counts *out)
{
    assert(p && out);
    pthread_mutex_lock(&p->lock);
    out->n_held = p->counts.n_held;
    out->n_bad = p->counts.n_bad;
    out->n_no_crc = p->counts.n_no_crc;
    out->n_partly = 0;
    for (size_t i = 0; i < p->feed->map->sources.n; i++)
        out->n_partly += p->record[i] != NULL;
    pthread_mutex_unlock(&p->lock);
}
