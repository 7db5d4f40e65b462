/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c: executes the phases of a run: decode, copy (and finish files, finish.h), check CRCs,
 * rename.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/dtype.h"
#include "libckpt/copy/budget.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/work.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/page_cache.h"
#include "libckpt/map/nest.h"
#include "libckpt/run/finish.h"
#include "libckpt/run/run.h"

enum {
    RUN_BATCH = 256 * 1024, /* bytes of small jobs that one worker takes together */
    RUN_BATCH_JOBS = 1024,
    RUN_HELPER = 256 * 1024 /* bytes: staging and write buffers, together at most one block */
};

CKPT_VEC(run_batches, ckpt_job_range);

typedef struct run_state {
    ckpt_work work;
    const ckpt_run_opts *opts;
    const ckpt_run_hooks *hooks;
    ckpt_peers peers;
    ckpt_finish finish;
    unsigned n_workers;
    ckpt_worker *worker;
    /*
     * per source of the input map: 1 if a job reads it; used: any process's job, own: a job of this
     * process
     */
    uint8_t *used, *own;
    uint32_t *deflated; /* sources to decode before the jobs */
    size_t n_deflated;
    run_batches batch;
    ckpt_segments read;
    size_t *group; /* n_groups + 1 indexes into `read`: one group per record */
    size_t n_groups;
    uint64_t *extra; /* per worker: bytes read to complete records */
    bool let_go;     /* drop the pages that this run adds to the page cache */
    uint64_t n_checked;
    uint64_t n_unlike; /* elements that differ from their copy, where allowed; of all processes */
    size_t n_said;     /* findings that the target had before the run */
    ckpt_dir folders;  /* folders that this process made, if machines have separate outputs */
} run_state;

/* ---- other processes (peers.h) ---- */

static int run_agree(run_state *r, int rc, ckpt_err *err)
{
    return r->peers.hooks->agree(&r->peers, rc, err);
}

static int run_findings(run_state *r, ckpt_err *err)
{
    const ckpt_results findings = {.findings = true};

    return r->peers.hooks->exchange(&r->peers, &findings, err);
}

/* ---- before the jobs ---- */

/* Mark the sources of this process's own jobs. */
static void run_mark_own(const run_state *r)
{
    const ckpt_plan *p = r->work.plan;

    for (size_t k = 0; k < r->peers.n_jobs; k++) {
        uint32_t last = UINT32_MAX;

        for (size_t i = r->peers.jobs[k].first; i < r->peers.jobs[k].end; i++) {
            uint32_t t = p->jobs.at[i].tensor;

            if (t != last && p->origin[t])
                ckpt_nest_mark(p->from, p->origin[t], r->own);
            last = t;
        }
    }
}

/* Find the sources that the plan uses, and those that must be decoded first. */
static int run_mark_used(run_state *r, ckpt_err *err)
{
    const ckpt_plan *p = r->work.plan;
    const ckpt_sources *sources = &p->from->sources;

    r->used = ckpt_alloc(sources->n + 1);
    r->own = ckpt_alloc(sources->n + 1);
    r->deflated = ckpt_alloc((sources->n + 1) * sizeof *r->deflated);
    if (!r->used || !r->own || !r->deflated)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < p->to->tensors.n; i++) {
        if (p->origin[i] && p->to->tensors.at[i]->n_elems > 0)
            ckpt_nest_mark(p->from, p->origin[i], r->used);
    }
    run_mark_own(r);
    for (size_t i = 0; i < sources->n; i++) {
        if (r->own[i] && sources->at[i].kind == CKPT_SOURCE_FILE &&
            sources->at[i].coding == CKPT_DEFLATE)
            r->deflated[r->n_deflated++] = (uint32_t)i;
    }
    return CKPT_OK;
}

/* Add a batch of adjacent jobs. */
static int run_add_batch(run_state *r, size_t first, size_t end, ckpt_err *err)
{
    ckpt_job_range *b = ckpt_vec_push(&r->batch);

    if (!b)
        return ckpt_fail_memory(err);
    *b = (ckpt_job_range){.first = (uint32_t)first, .end = (uint32_t)end};
    ckpt_finish_expect(&r->finish, first, end);
    return CKPT_OK;
}

/* Divide jobs into batches: a large job alone, small ones together. */
static int run_cut(run_state *r, size_t first, size_t end, ckpt_err *err)
{
    const ckpt_plan *p = r->work.plan;
    uint64_t n_bytes = 0;
    int rc = CKPT_OK;

    for (size_t i = first; rc == CKPT_OK && i < end; i++) {
        uint64_t n =
            ckpt_job_bytes(p->to->tensors.at[p->jobs.at[i].tensor]->dtype, p->jobs.at[i].count);

        if (i > first && (n_bytes + n > RUN_BATCH || i - first == RUN_BATCH_JOBS)) {
            rc = run_add_batch(r, first, i, err);
            n_bytes = 0;
            first = i;
        }
        n_bytes += n;
    }
    return rc == CKPT_OK && first < end ? run_add_batch(r, first, end, err) : rc;
}

/* Divide this process's jobs into batches. */
static int run_make_batches(run_state *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t k = 0; rc == CKPT_OK && k < r->peers.n_jobs; k++)
        rc = run_cut(r, r->peers.jobs[k].first, r->peers.jobs[k].end, err);
    return rc;
}

/* Workers own their buffers and counters, so they share nothing while jobs run. */
static int run_make_workers(run_state *r, ckpt_err *err)
{
    r->worker = ckpt_alloc(r->n_workers * sizeof *r->worker);
    r->extra = ckpt_alloc(r->n_workers * sizeof *r->extra);
    if (!r->worker || !r->extra)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; i < r->n_workers; i++)
        ckpt_worker_init(&r->worker[i], &r->work);
    return CKPT_OK;
}

/*
 * Report weight files of an earlier conversion that stay in the folder, because loaders would read
 * them too, or instead.
 */
static int run_note_stays(run_state *r, const char *folder, ckpt_err *err)
{
    const ckpt_set_stays *s = ckpt_sink_stays(r->work.sink);

    if (s->n == 0)
        return CKPT_OK;
    if (strncmp(s->first, "adapter_", 8) == 0)
        return ckpt_map_note(
            r->work.plan->to, CKPT_WARNING, err,
            "%s/%s stays in the output folder: loaders would apply that old adapter to the new "
            "model, "
            "or load the adapter's own base: delete it, or choose another output folder",
            folder, s->first);
    if (s->n == 1)
        return ckpt_map_note(r->work.plan->to, CKPT_WARNING, err,
                             "%s/%s is from an earlier conversion and may be loaded instead: "
                             "remove it",
                             folder, s->first);
    return ckpt_map_note(r->work.plan->to, CKPT_WARNING, err,
                         "%s/%s and %zu more weight file%s are from an earlier conversion and may "
                         "be loaded instead: remove them",
                         folder, s->first, s->n - 1, s->n == 2 ? "" : "s");
}

/* Create the output files; only the leading process of the group calls this. */
static int run_make_outputs(run_state *r, const char *folder, const ckpt_sink_opts *opts,
                            ckpt_err *err)
{
    const ckpt_plan *p = r->work.plan;
    int rc = r->peers.n_machines > 0 ? ckpt_dir_make(&r->folders, folder, err) : CKPT_OK;

    if (rc == CKPT_OK)
        rc = ckpt_sink_open(&r->work.sink, folder, p->to, p->from, opts, err);
    if (rc == CKPT_OK && ckpt_sink_dropped(r->work.sink) > 0)
        rc =
            ckpt_map_note(p->to, CKPT_INFO, err, "removed files of a killed run: %" PRIu64 " bytes",
                          ckpt_sink_dropped(r->work.sink));
    return rc == CKPT_OK ? run_note_stays(r, folder, err) : rc;
}

/*
 * Undo after some machines failed to make their outputs. If machines share a folder, its maker can
 * only remove it after the others have removed their entries: innermost first, all together.
 */
static void run_drop_outputs(run_state *r, const char *folder)
{
    size_t n = strlen(folder);

    ckpt_sink_close(r->work.sink);
    r->work.sink = NULL;
    while (n > 0 && r->peers.decided) {
        (void)run_agree(r, CKPT_OK, NULL);
        while (n > 0 && folder[n - 1] != '/')
            n--;
        ckpt_dir_unmake(&r->folders, n);
        while (n > 0 && folder[n - 1] == '/')
            n--;
    }
    ckpt_dir_close(&r->folders);
}

/*
 * Create outputs before reading anything, so that a full disk or an existing file is reported at
 * once.
 */
static int run_open_sink(run_state *r, const char *folder, ckpt_err *err)
{
    const ckpt_plan *p = r->work.plan;
    const ckpt_sink_opts opts = {.force = r->opts->force,
                                 .skip_fsync = r->opts->skip_fsync,
                                 .jobs = r->n_workers,
                                 .progress = r->work.progress,
                                 .let_go = r->let_go,
                                 .shared = r->peers.n > 1,
                                 .hashes = r->opts->hashes,
                                 .elsewhere = r->peers.elsewhere};
    int rc = CKPT_OK;

    if (p->to->files.n == 0)
        return CKPT_OK;
    if (!folder)
        return ckpt_fail(err, CKPT_EUSAGE, "no folder was given for %zu output files",
                         p->to->files.n);
    if (r->peers.leads)
        rc = run_make_outputs(r, folder, &opts, err);
    rc = run_agree(r, rc, err);
    if (rc != CKPT_OK && r->peers.n_machines > 0)
        run_drop_outputs(r, folder);
    if (rc == CKPT_OK)
        rc = r->peers.hooks->outputs(&r->peers, &r->work.sink, folder, &opts, err);
    return rc == CKPT_OK ? run_findings(r, err) : rc;
}

/* Bytes that packing reads again. */
static uint64_t run_pack_bytes(const ckpt_map *to)
{
    uint64_t n = 0;

    for (size_t i = 0; i < to->files.n; i++)
        n += to->files.at[i].packed ? to->files.at[i].size : 0;
    return n;
}

/* Make the preparations that need no other process, before any payload is read. */
static int run_prepare_here(run_state *r, ckpt_err *err)
{
    const ckpt_plan *p = r->work.plan;
    int rc =
        ckpt_progress_new(&r->work.progress, r->opts,
                          p->n_read + p->n_write + run_pack_bytes(p->to) + r->peers.n_copies, err);

    if (rc == CKPT_OK)
        rc = run_mark_used(r, err);
    if (rc == CKPT_OK)
        rc = ckpt_finish_open(&r->finish, &r->work, &r->peers, r->hooks->seal, err);
    if (rc == CKPT_OK)
        rc = run_make_batches(r, err);
    if (rc == CKPT_OK)
        rc = run_make_workers(r, err);
    r->work.reported = ckpt_alloc(p->to->tensors.n + 1);
    r->work.tally = ckpt_alloc((p->to->tensors.n + 1) * sizeof *r->work.tally);
    if (rc == CKPT_OK && (!r->work.reported || !r->work.tally))
        rc = ckpt_fail_memory(err);
    return rc;
}

/* Make all preparations, before any payload is read. */
static int run_prepare(run_state *r, const char *folder, ckpt_err *err)
{
    const ckpt_plan *p = r->work.plan;
    uint64_t block = ckpt_run_block(r->opts->memory, r->opts->jobs);
    int rc;

    r->n_said = p->to->findings.n;
    r->let_go = ckpt_behind_due(r->opts->cache, p->n_read + p->n_write);
    r->work.helper = block / 2 < RUN_HELPER ? block / 2 : RUN_HELPER;
    r->work.keep = r->hooks->read != NULL;
    for (size_t i = 0; i < p->to->sources.n; i++)
        r->work.keep = r->work.keep || p->to->sources.at[i].kind != CKPT_SOURCE_ZERO;
    r->peers = (ckpt_peers){.plan = p, .map = p->to};
    rc = ckpt_peers_begin(&r->peers, r->hooks->peers, err);
    if (rc == CKPT_OK)
        rc = ckpt_budget_workers(&r->n_workers, r->opts, r->work.plan->block, err);
    if (rc == CKPT_OK)
        rc = run_prepare_here(r, err);
    rc = run_agree(r, rc, err);
    if (rc == CKPT_OK)
        rc = run_open_sink(r, folder, err);
    if (rc == CKPT_OK)
        rc =
            ckpt_feed_open(&r->work.feed, p->from, folder, ckpt_budget_spool(r->opts->memory), err);
    if (rc == CKPT_OK && r->let_go)
        ckpt_io_pool_let_go(r->work.feed.pool);
    if (rc == CKPT_OK)
        rc = ckpt_finish_hash(&r->finish, r->opts->hashes, r->n_workers, r->hooks->seals, err);
    return run_agree(r, rc, err);
}

/* ---- items for the crew ---- */

/* Decode one deflated record into the spool; its size and CRC are checked too. */
static int run_decode(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    run_state *r = ctx;
    int rc = ckpt_feed_decode(&r->work.feed, r->deflated[item], err);

    (void)worker;
    return rc == CKPT_OK ? ckpt_progress_add(r->work.progress, 0, err) : rc;
}

/*
 * Run one batch of jobs. Jobs of files that are kept from an interrupted run do everything but
 * write (sink.c): this run then checks every byte of an output, every copy and every value. That
 * reads less than a scrub of whole records, and shows that a kept file has the bytes that this run
 * would write.
 */
static int run_batch(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    run_state *r = ctx;
    ckpt_worker *w = &r->worker[worker];
    const ckpt_job_range *b = &r->batch.at[item];
    int rc = ckpt_worker_jobs(w, b->first, b->end, err);

    return rc == CKPT_OK ? ckpt_finish_jobs(&r->finish, w, b->first, b->end, err) : rc;
}

/* Complete one record's CRC and compare it. */
static int run_check_record(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    run_state *r = ctx;
    const ckpt_plan *p = r->work.plan;
    const ckpt_segment *seg = &r->read.at[r->group[item]];
    const ckpt_source *s = &p->from->sources.at[seg->source];
    uint32_t crc = 0;
    int rc = ckpt_ledger_record(&r->work.feed, seg, r->group[item + 1] - r->group[item], &crc,
                                &r->extra[worker], err);

    if (rc == CKPT_OK && crc != s->crc) {
        pthread_mutex_lock(&r->work.lock);
        rc = ckpt_feed_bad_crc(p->to, p->from, seg->source, crc, err);
        pthread_mutex_unlock(&r->work.lock);
    } else if (rc == CKPT_OK) {
        pthread_mutex_lock(&r->work.lock);
        r->n_checked++;
        pthread_mutex_unlock(&r->work.lock);
    }
    return rc == CKPT_OK ? ckpt_progress_add(r->work.progress, 0, err) : rc;
}

/* ---- after the jobs ---- */

/* Collect the segments that the workers have read in one list. */
static int run_collect_segments(run_state *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (unsigned i = 0; rc == CKPT_OK && i < r->n_workers; i++)
        rc = ckpt_ledger_move(&r->read, &r->worker[i].read, err);
    ckpt_ledger_sort(&r->read);
    return rc;
}

/* Pass the CRCs to the caller, who compares them; decoded records are compared already. */
static int run_give_segments(run_state *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < r->n_deflated; i++) {
        const ckpt_source *s = &r->work.plan->from->sources.at[r->deflated[i]];

        if (s->has_crc && s->n_bytes > 0)
            rc = ckpt_ledger_add(&r->read, r->deflated[i], 0, s->n_bytes, s->crc, err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_ledger_move(r->hooks->read, &r->read, err);
    ckpt_ledger_sort(r->hooks->read);
    return rc;
}

/* Compare the CRC of every record that was used. */
static int run_check_records(run_state *r, ckpt_err *err)
{
    r->group = ckpt_alloc((r->work.plan->from->sources.n + 1) * sizeof *r->group);
    if (!r->group)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < r->read.n; i += ckpt_ledger_group(&r->read, i))
        r->group[r->n_groups++] = i;
    r->group[r->n_groups] = r->read.n;
    return ckpt_crew_run(r->n_workers, r->n_groups, run_check_record, r, err);
}

/* Report differences between copies that ZenFlow allows to differ. */
static int run_note_unlike(run_state *r, ckpt_err *err)
{
    return r->n_unlike == 0
               ? CKPT_OK
               : ckpt_map_note(r->work.plan->to, CKPT_WARNING, err,
                               "%" PRIu64 " elements differ from their 16-bit copies, which "
                               "ZenFlow updates first: ckpt used the fp32 masters",
                               r->n_unlike);
}

/* Fail if the caller accepts no warnings and any process has found one. */
static int run_refuse_doubt(const run_state *r, ckpt_err *err)
{
    const ckpt_findings *f = &r->work.plan->to->findings;

    for (size_t i = r->n_said; r->opts->strict && i < f->n; i++) {
        if (f->at[i].severity == CKPT_WARNING)
            return ckpt_fail(err, CKPT_EDOUBT, "%.400s: nothing was written", f->at[i].text);
    }
    return CKPT_OK;
}

/*
 * Report the tensors with NaN, infinite or lost values, then refuse values that the caller does not
 * accept.
 */
static int run_note_values(run_state *r, ckpt_err *err)
{
    ckpt_map *to = r->work.plan->to;
    const ckpt_tensor *first = NULL;
    uint64_t n_over = 0, n_doubt = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++) {
        const ckpt_tally *n = &r->work.tally[i];

        rc = ckpt_tally_note(to, to->tensors.at[i], n, err);
        first = !first && n->lost.n_over > 0 ? to->tensors.at[i] : first;
        n_over += n->lost.n_over;
        n_doubt +=
            n->n_nan + n->n_inf > 0 ? n->n_nan + n->n_inf : n->n_source_nan + n->n_source_inf;
    }
    if (rc == CKPT_OK && n_over > 0 && (!r->opts->allow_overflow || r->opts->strict))
        return ckpt_fail(err, CKPT_EDOUBT,
                         "%" PRIu64 " value%s beyond the range of %s, first in tensor %s: nothing "
                         "was written",
                         n_over, n_over == 1 ? " is" : "s are", ckpt_dtype_name(first->dtype),
                         first->name);
    if (rc == CKPT_OK && n_doubt > 0 && r->opts->strict)
        return ckpt_fail(err, CKPT_EDOUBT,
                         "%" PRIu64 " values are NaN or infinite: nothing was written", n_doubt);
    return rc == CKPT_OK && r->work.sink ? run_note_unlike(r, err) : rc;
}

static int run_look(void *ctx, const char *where, ckpt_err *err)
{
    const run_state *r = ctx;

    return r->hooks->check(r->work.plan->from, r->work.plan->to, where, err);
}

/* Check the complete output before it has its name; if it is spread, all processes check it. */
static int run_check(run_state *r, ckpt_err *err)
{
    char *where = NULL;
    bool looks = r->hooks->check && r->work.sink && r->work.plan->to->folder;
    int rc = CKPT_OK;

    if (!looks)
        return CKPT_OK;
    if (r->peers.leads)
        where = ckpt_sink_path(r->work.sink);
    if (r->peers.leads && !where)
        rc = ckpt_fail_memory(err);
    rc = r->peers.hooks->look(&r->peers, where, rc, run_look, r, err);
    ckpt_free(where);
    return rc;
}

/* Read, convert, write: the part that each process does alone. */
static int run_jobs(run_state *r, ckpt_err *err)
{
    int rc = ckpt_crew_run(r->n_workers, r->n_deflated, run_decode, r, err);

    if (rc == CKPT_OK)
        rc = ckpt_crew_run(r->n_workers, r->batch.n, run_batch, r, err);
    return rc == CKPT_OK ? run_collect_segments(r, err) : rc;
}

/* Combine the findings about values of all processes. */
static int run_judge_values(run_state *r, ckpt_err *err)
{
    const ckpt_results all = {.findings = true,
                              .sum = &r->n_unlike,
                              .n_sum = 1,
                              .work = &r->work,
                              .read = &r->read,
                              .read_all = r->hooks->read != NULL};
    int rc;

    for (unsigned i = 0; i < r->n_workers; i++)
        r->n_unlike += r->worker[i].values.n_unlike;
    rc = r->peers.hooks->exchange(&r->peers, &all, err);
    if (rc == CKPT_OK)
        rc = run_note_values(r, err);
    // All processes have reported the same.
    r->peers.n_told = r->work.plan->to->findings.n;
    return rc;
}

/* Compare the CRCs of the records; one process compares each record. */
static int run_judge_records(run_state *r, ckpt_err *err)
{
    return r->hooks->read ? run_give_segments(r, err) : run_check_records(r, err);
}

/* Finish the remaining files (finish.h). */
static int run_finish(run_state *r, ckpt_err *err)
{
    int rc = run_findings(r, err);

    // Records with correct CRCs but a differing copy: the shards come from different saves.
    if (rc == CKPT_OK && r->work.mismatch.code != CKPT_OK)
        rc = ckpt_fail(err, r->work.mismatch.code, "%s", r->work.mismatch.text);
    if (rc == CKPT_OK)
        rc = ckpt_finish_join(&r->finish, err);
    return rc;
}

static int run_finish_rest(run_state *r, ckpt_err *err)
{
    int rc = ckpt_finish_rest(&r->finish, r->n_workers, err);

    if (rc == CKPT_OK)
        rc = ckpt_io_pool_check(r->work.feed.pool, err);
    return ckpt_finish_hashed(&r->finish, rc, err);
}

/* Copy files to every other machine that needs them. */
static int run_copy(run_state *r, ckpt_err *err)
{
    return r->peers.hooks->copy(&r->peers, &r->work, r->finish.crc, r->n_workers,
                                &r->worker[0].n_written, err);
}

/* The leader's last step before it gives the files their names. */
static int run_pack(void *ctx, const char *where, ckpt_err *err)
{
    run_state *r = ctx;
    int rc = run_refuse_doubt(r, err);

    (void)where;
    return rc == CKPT_OK && r->hooks->pack
               ? ckpt_sink_pack(r->work.sink, r->work.plan->to, r->hooks->pack, err)
               : rc;
}

/* Check the written output again; it is the last moment at which the caller can cancel. */
static int run_approve(run_state *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (r->peers.leads || r->peers.n_machines > 0)
        rc = run_check(r, err);
    if (rc == CKPT_OK && r->peers.leads && r->work.sink)
        rc = r->peers.hooks->apart(run_pack, r, err);
    return rc == CKPT_OK ? ckpt_progress_end(r->work.progress, err) : rc;
}

static int run_commit(run_state *r, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (r->folders.n_made > 0 && !r->opts->skip_fsync)
        rc = ckpt_dir_sync_made(&r->folders, err);
    if (rc == CKPT_OK && r->peers.leads && r->work.sink)
        rc = ckpt_sink_commit(r->work.sink, err);
    // The commit stays valid even if this note fails for lack of memory.
    if (rc == CKPT_OK && r->peers.n_machines > 0)
        (void)ckpt_map_note(r->work.plan->to, CKPT_INFO, NULL,
                            "written to the disks of %zu machines: each has the files of its "
                            "ranks, and those that all ranks share",
                            r->peers.n_machines);
    if (rc == CKPT_OK && ckpt_sink_gone(r->work.sink) > 0)
        (void)ckpt_map_note(r->work.plan->to, CKPT_INFO, NULL,
                            "removed other files of the replaced output here: %zu",
                            ckpt_sink_gone(r->work.sink));
    return rc;
}

/*
 * Undo the commit after a machine could not give its files their names. A process that does not
 * know the result, because another one was lost, changes nothing, because the others may be done.
 */
static void run_take_back(run_state *r, ckpt_err *err)
{
    const ckpt_err why = err ? *err : (ckpt_err){0};

    if (!r->peers.leads || !r->work.sink)
        return;
    if (!r->peers.decided)
        ckpt_sink_leave(r->work.sink);
    else if (!ckpt_sink_undo(r->work.sink))
        (void)ckpt_fail(err, why.code,
                        "%.600s (other machines have renamed their files already: use --force)",
                        why.text);
}

/* Run the phases in order; each ends in all processes before the next begins. */
static int run_all(run_state *r, ckpt_err *err)
{
    static int (*const phase[])(run_state *, ckpt_err *) = {
        run_jobs,        run_judge_values, run_judge_records, run_finish,
        run_finish_rest, run_copy,         run_approve,       run_commit};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < sizeof phase / sizeof *phase; i++) {
        rc = run_agree(r, phase[i](r, err), err);
        if (rc != CKPT_OK && phase[i] == run_commit && r->peers.n_machines > 0)
            run_take_back(r, err);
    }
    return rc;
}

/* ---- the run ---- */

/* Add up the counters of this process's workers. */
static void run_count(const run_state *r, ckpt_run_report *out)
{
    out->n_records_checked = r->n_checked;
    for (unsigned i = 0; i < r->n_workers; i++) {
        const ckpt_worker *w = &r->worker[i];

        out->n_elems += w->n_elems;
        out->n_read += w->values.gather.n_read + r->extra[i];
        out->n_written += w->n_written;
        out->n_compared += w->values.n_compared;
        out->n_unlike += w->values.n_unlike;
        out->n_nan += w->tally.n_nan;
        out->n_inf += w->tally.n_inf;
        out->n_source_nan += w->tally.n_source_nan;
        out->n_source_inf += w->tally.n_source_inf;
        out->n_over += w->tally.lost.n_over;
        out->n_zero += w->tally.lost.n_zero;
    }
}

/* Sum the counters over all processes. */
static int run_sum(run_state *r, ckpt_run_report *out, ckpt_err *err)
{
    uint64_t *const of[] = {
        &out->n_records_checked, &out->n_elems,      &out->n_read, &out->n_written,
        &out->n_compared,        &out->n_unlike,     &out->n_nan,  &out->n_inf,
        &out->n_source_nan,      &out->n_source_inf, &out->n_over, &out->n_zero,
        &out->n_files_kept};
    enum { N = sizeof of / sizeof *of };
    uint64_t n[N];
    const ckpt_results all = {.messages = true, .sum = n, .n_sum = N};
    int rc;

    for (size_t i = 0; i < N; i++)
        n[i] = *of[i];
    rc = r->peers.hooks->exchange(&r->peers, &all, err);
    for (size_t i = 0; rc == CKPT_OK && i < N; i++)
        *of[i] = n[i];
    return rc;
}

/* Fill the report with the counts of all processes. */
static int run_report(run_state *r, ckpt_run_report *out, ckpt_err *err)
{
    const ckpt_plan *p = r->work.plan;
    int rc;

    *out = (ckpt_run_report){.n_files = p->to->files.n,
                             .let_go = r->let_go,
                             .n_state_carried = p->to->claim.n_carried,
                             .n_state_rewritten = p->to->claim.n_rewritten,
                             .n_state_left_out = p->to->claim.n_left_out};
    for (uint32_t i = 0; i < p->to->files.n; i++)
        out->n_files_kept += (r->peers.file[i] & CKPT_FILE_HOME) && ckpt_sink_kept(r->work.sink, i);
    run_count(r, out);
    rc = run_sum(r, out, err);
    for (size_t i = 0; i < p->to->tensors.n; i++)
        out->n_tensors += p->origin[i] != NULL;
    // the workers did not know the size of a packed file
    if (run_pack_bytes(p->to) > 0)
        out->n_written = run_pack_bytes(p->to);
    for (size_t i = 0; i < p->from->sources.n; i++) {
        const ckpt_source *s = &p->from->sources.at[i];

        if (!r->used[i] || s->kind != CKPT_SOURCE_FILE)
            continue;
        out->n_records_no_crc += !s->has_crc && !s->whole;
        out->n_records_checked += s->has_crc && s->coding == CKPT_DEFLATE;
    }
    return rc;
}

static void run_free(run_state *r)
{
    // the threads that hash use the sink
    (void)ckpt_finish_hashed(&r->finish, CKPT_ECANCELED, NULL);
    r->peers.hooks->end(&r->peers);
    ckpt_sink_close(r->work.sink);
    ckpt_dir_close(&r->folders);
    ckpt_feed_close(&r->work.feed);
    for (unsigned i = 0; r->worker && i < r->n_workers; i++)
        ckpt_worker_free(&r->worker[i]);
    ckpt_progress_free(r->work.progress);
    pthread_mutex_destroy(&r->work.lock);
    ckpt_vec_free(&r->read);
    ckpt_finish_close(&r->finish);
    ckpt_free(r->work.reported);
    ckpt_free(r->work.tally);
    ckpt_free(r->worker);
    ckpt_free(r->extra);
    ckpt_free(r->used);
    ckpt_free(r->own);
    ckpt_free(r->deflated);
    ckpt_vec_free(&r->batch);
    ckpt_free(r->group);
}

int ckpt_run(const ckpt_plan *plan, const char *folder, const ckpt_run_opts *opts,
             const ckpt_run_hooks *hooks, ckpt_run_report *report, ckpt_err *err)
{
    assert(plan);
    static const ckpt_run_opts defaults;
    static const ckpt_run_hooks no_hooks;
    run_state r = {.work = {.plan = plan},
                   .opts = opts ? opts : &defaults,
                   .hooks = hooks ? hooks : &no_hooks,
                   .folders = CKPT_DIR_NONE};
    ckpt_run_report done = {0};
    struct timespec t0 = {0}, t1 = {0};
    int rc;

    if (pthread_mutex_init(&r.work.lock, NULL) != 0)
        return ckpt_fail_memory(err);
    (void)clock_gettime(CLOCK_MONOTONIC, &t0);
    rc = run_prepare(&r, folder, err);
    // refuse doubtful inputs before reading
    if (rc == CKPT_OK)
        rc = run_refuse_doubt(&r, err);
    if (rc == CKPT_OK)
        rc = run_all(&r, err);
    (void)clock_gettime(CLOCK_MONOTONIC, &t1);
    if (rc == CKPT_OK)
        rc = run_report(&r, &done, err);
    done.seconds = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
    if (rc == CKPT_OK && report)
        *report = done;
    run_free(&r);
    return rc;
}
