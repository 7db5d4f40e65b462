/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.c: reads whole records and compares their CRCs.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/digest.h"
#include "libckpt/copy/source_reader.h"
#include "libckpt/io/page_cache.h"
#include "libckpt/io/thread_pool.h"
#include "libckpt/run/peers.h"
#include "libckpt/run/run.h"

/* Bytes of a record that one worker reads at a time; the CRCs of such ranges are joined. */
#define SCRUB_RANGE (UINT64_C(32) << 20)

typedef struct scrub_range {
    uint64_t at, n;
    uint32_t source, crc;
    bool known;  /* the CRC is known, because an earlier run has read these bytes */
    bool failed; /* could not be read, which is already reported */
} scrub_range;

CKPT_VEC(scrub_ranges, scrub_range);

typedef struct scrub_state {
    ckpt_map *map;
    const ckpt_segments *known; /* or NULL */
    ckpt_feed feed;
    ckpt_progress *progress;
    pthread_mutex_t lock; /* protects the map's findings */
    scrub_ranges ranges;
    ckpt_run_report report;
    ckpt_peers peers;
    size_t first, end; /* the ranges that this process reads */
} scrub_state;

/* Records without a CRC are only counted. */
static bool scrub_wants(const ckpt_source *s)
{
    return s->kind == CKPT_SOURCE_FILE && s->has_crc;
}

/* Divide [at, end) of a record into ranges to read. */
static int scrub_cut(scrub_state *s, uint32_t source, uint64_t at, uint64_t end, ckpt_err *err)
{
    const ckpt_source *src = &s->map->sources.at[source];
    // A deflated record can only be decoded from its start; an empty one is still one range.
    uint64_t step = src->coding == CKPT_RAW ? SCRUB_RANGE : src->n_bytes;

    s->report.n_read += end - at;
    do {
        scrub_range *r = ckpt_vec_push(&s->ranges);

        if (!r)
            return ckpt_fail_memory(err);
        *r = (scrub_range){.at = at, .n = end - at < step ? end - at : step, .source = source};
        at += r->n;
    } while (at < end);
    return CKPT_OK;
}

/* Add the segments of one record and the gaps between them. */
static int scrub_join(scrub_state *s, uint32_t source, const ckpt_segment *seg, size_t n,
                      ckpt_err *err)
{
    uint64_t end = s->map->sources.at[source].n_bytes, at = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < n; i++) {
        scrub_range *r;

        if (seg[i].at > at)
            rc = scrub_cut(s, source, at, seg[i].at, err);
        r = rc == CKPT_OK ? ckpt_vec_push(&s->ranges) : NULL;
        if (!r)
            return rc == CKPT_OK ? ckpt_fail_memory(err) : rc;
        *r = (scrub_range){
            .at = seg[i].at, .n = seg[i].n, .source = source, .crc = seg[i].crc, .known = true};
        at = seg[i].at + seg[i].n;
    }
    return rc == CKPT_OK && at < end ? scrub_cut(s, source, at, end, err) : rc;
}

/* Add one record; *next moves past the known segments of this source. */
static int scrub_record(scrub_state *s, uint32_t source, size_t *next, ckpt_err *err)
{
    uint64_t size = s->map->sources.at[source].n_bytes;
    const ckpt_segments *known = s->known;
    size_t first, n = 0;

    while (known && *next < known->n && known->at[*next].source < source)
        ++*next;
    first = *next;
    if (known && first < known->n && known->at[first].source == source)
        n = ckpt_ledger_group(known, first);
    *next += n;
    if (n > 0 && ckpt_ledger_disjoint(&known->at[first], n, size))
        return scrub_join(s, source, &known->at[first], n, err);
    return scrub_cut(s, source, 0, size, err);
}

/*
 * Handle a failure: a fault of the checkpoint is a finding; a fault of this process, or an
 * interrupt, stops the run.
 */
static int scrub_failed(scrub_state *s, int rc, const ckpt_err *e, ckpt_err *err)
{
    if (rc == CKPT_ELIMIT || rc == CKPT_ECANCELED || rc == CKPT_EUSAGE)
        return ckpt_fail(err, rc, "%s", e->text);
    pthread_mutex_lock(&s->lock);
    rc = ckpt_map_problem(s->map, rc, err, "%s", e->text);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Read one range and store its CRC. */
static int scrub_item(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    scrub_state *s = ctx;
    scrub_range *r = &s->ranges.at[s->first + item];
    ckpt_err e = {0};
    int rc;

    (void)worker;
    if (r->known)
        return CKPT_OK;
    rc = ckpt_feed_crc(&s->feed, r->source, r->at, r->n, &r->crc, &e);
    if (rc != CKPT_OK) {
        r->failed = true;
        rc = scrub_failed(s, rc, &e, err);
    }
    return rc == CKPT_OK ? ckpt_progress_add(s->progress, r->n, err) : rc;
}

/* Join the ranges of each record and compare. */
static int scrub_judge(scrub_state *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < s->ranges.n;) {
        const scrub_range *r = &s->ranges.at[i];
        const ckpt_source *src = &s->map->sources.at[r->source];
        uint32_t source = r->source, crc = 0;
        bool failed = false;

        for (; i < s->ranges.n && s->ranges.at[i].source == source; i++) {
            crc = ckpt_crc32_join(crc, s->ranges.at[i].crc, s->ranges.at[i].n);
            failed = failed || s->ranges.at[i].failed;
        }
        if (failed)
            continue;
        if (crc == src->crc)
            s->report.n_records_checked++;
        else
            rc = ckpt_feed_bad_crc(s->map, s->map, source, crc, err);
    }
    return rc;
}

/* ---- several processes ---- */

/* Choose the ranges of this process, with as many bytes to read as each other has. */
static void scrub_share(scrub_state *s)
{
    uint64_t rank = s->peers.rank, each = s->report.n_read / s->peers.n + 1, at = 0;

    s->first = s->end = s->ranges.n;
    for (size_t i = 0; i < s->ranges.n; i++) {
        const scrub_range *r = &s->ranges.at[i];

        if (at >= rank * each && s->first == s->ranges.n)
            s->first = i;
        if (at >= (rank + 1) * each && s->end == s->ranges.n)
            s->end = i;
        at += r->known ? 0 : r->n;
    }
    s->first = s->first < s->end ? s->first : s->end;
}

/* Exchange the CRCs and findings of all processes. */
static int scrub_exchange(scrub_state *s, ckpt_err *err)
{
    const ckpt_results all = {.findings = true,
                              .part = {.array = s->ranges.at,
                                       .size = sizeof *s->ranges.at,
                                       .first = s->first,
                                       .end = s->end,
                                       .n = s->ranges.n}};

    return s->peers.hooks->exchange(&s->peers, &all, err);
}

/* Make the list of ranges, and open the inputs. */
static int scrub_prepare(scrub_state *s, const ckpt_run_opts *opts, ckpt_err *err)
{
    size_t next = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < s->map->sources.n; i++) {
        const ckpt_source *src = &s->map->sources.at[i];

        if (scrub_wants(src))
            rc = scrub_record(s, (uint32_t)i, &next, err);
        else if (src->kind == CKPT_SOURCE_FILE)
            s->report.n_records_no_crc++;
    }
    s->report.n_files = s->map->files.n;
    if (rc == CKPT_OK)
        rc = ckpt_progress_new(&s->progress, opts, s->report.n_read, err);
    // Nothing is spooled: deflated records are decoded, checksummed and dropped.
    if (rc == CKPT_OK)
        rc = ckpt_feed_open(&s->feed, s->map, NULL, 0, err);
    s->report.let_go = opts && ckpt_behind_due(opts->cache, s->report.n_read);
    if (rc == CKPT_OK && s->report.let_go)
        ckpt_io_pool_let_go(s->feed.pool);
    scrub_share(s);
    return rc;
}

/* Read all ranges, compare, and finish. */
static int scrub_all(scrub_state *s, unsigned jobs, ckpt_err *err)
{
    int rc = ckpt_crew_run(ckpt_run_jobs(jobs), s->end - s->first, scrub_item, s, err);

    if (rc == CKPT_OK)
        rc = ckpt_io_pool_check(s->feed.pool, err);
    rc = s->peers.hooks->agree(&s->peers, rc, err);
    if (rc == CKPT_OK)
        rc = scrub_exchange(s, err);
    if (rc == CKPT_OK)
        rc = scrub_judge(s, err);
    if (rc == CKPT_OK)
        rc = ckpt_progress_end(s->progress, err);
    return s->peers.hooks->agree(&s->peers, rc, err);
}

int ckpt_run_scrub(ckpt_map *map, const ckpt_segments *known, const ckpt_peer_hooks *peers,
                   const ckpt_run_opts *opts, ckpt_run_report *report, ckpt_err *err)
{
    scrub_state s = {.map = map, .known = known, .peers = {.map = map}};
    struct timespec t0 = {0}, t1 = {0};
    int rc;

    if (pthread_mutex_init(&s.lock, NULL) != 0)
        return ckpt_fail_memory(err);
    (void)clock_gettime(CLOCK_MONOTONIC, &t0);
    rc = ckpt_peers_begin(&s.peers, peers, err);
    if (rc == CKPT_OK)
        rc = scrub_prepare(&s, opts, err);
    rc = s.peers.hooks->agree(&s.peers, rc, err);
    if (rc == CKPT_OK)
        rc = scrub_all(&s, opts ? opts->jobs : 0, err);
    (void)clock_gettime(CLOCK_MONOTONIC, &t1);
    if (report) {
        *report = s.report;
        report->seconds =
            (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
    }
    s.peers.hooks->end(&s.peers);
    ckpt_progress_free(s.progress);
    ckpt_feed_close(&s.feed);
    ckpt_vec_free(&s.ranges);
    pthread_mutex_destroy(&s.lock);
    return rc;
}
