/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c: answers reads of a view: finds the jobs and literals of the requested bytes, and caches
 * the results of jobs in blocks.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/copy/budget.h"
#include "libckpt/copy/by_file.h"
#include "libckpt/copy/view_inside.h"
#include "libckpt/map/extent.h"

/* Division of the memory: one half for the workers' buffers, a quarter for blocks. */
enum {
    VW_WORK = 2,
    VW_BLOCKS = 4,
    VW_MOST = 4096,   /* limit of cached blocks */
    VW_MANY = 1 << 18 /* limit of jobs: views of terabytes have longer jobs, not more */
};

#define VW_BLOCK (UINT64_C(1) << 20)

/* ---- opening ---- */

uint64_t ckpt_view_block(const ckpt_map *to, uint64_t memory, unsigned jobs)
{
    uint64_t most = ckpt_run_block(ckpt_budget_memory(memory) / VW_WORK, jobs), total = 0;
    uint64_t best;

    for (size_t i = 0; i < to->files.n; i++) {
        if (!ckpt_add(total, to->files.at[i].size, &total))
            total = UINT64_MAX;
    }
    best = total / VW_MANY / VW_BLOCK * VW_BLOCK;
    best = best > VW_BLOCK ? best : VW_BLOCK;
    return best < most ? best : most;
}

/* Make the paths of the output: in the target's folder, with the pointer beside that folder. */
static int vw_paths(ckpt_view *v, ckpt_err *err)
{
    ckpt_map *to = v->plan->to;

    v->n_files = to->files.n + (to->pointer != NULL);
    v->path = ckpt_alloc((v->n_files + 1) * sizeof *v->path);
    if (!v->path)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < to->files.n; i++) {
        const ckpt_map_file *f = &to->files.at[i];

        if (f->packed)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: the size of a compressed file is known only after it was "
                             "written, so that it has no view",
                             f->path);
        v->path[i] =
            to->folder ? ckpt_arena_printf(to->arena, "%s/%s", to->folder, f->path) : f->path;
        if (!v->path[i])
            return ckpt_fail_memory(err);
    }
    if (to->pointer)
        v->path[to->files.n] = to->pointer;
    return CKPT_OK;
}

/* Find each file's jobs, which ascend by file. */
static int vw_files(ckpt_view *v, ckpt_err *err)
{
    const ckpt_plan *p = v->plan;

    v->file = ckpt_alloc((p->to->files.n + 1) * sizeof *v->file);
    if (!v->file)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < p->jobs.n; i++) {
        const ckpt_job *j = &p->jobs.at[i];
        const ckpt_source *s =
            &p->to->sources.at[ckpt_extent_source(p->to->tensors.at[j->tensor], j->extent)];
        view_file *f;

        if (s->kind != CKPT_SOURCE_FILE)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "a target in memory has no files to view");
        f = &v->file[s->file];
        f->first = f->end == 0 ? i : f->first;
        f->end = i + 1;
    }
    return CKPT_OK;
}

static int vw_touch(void *ctx, uint32_t source, ckpt_err *err)
{
    return ckpt_proof_touch(ctx, source, err);
}

/* Make the workers, and the cache for their results. */
static int vw_hands(ckpt_view *v, ckpt_err *err)
{
    uint64_t room = ckpt_budget_memory(v->opts.memory) / VW_BLOCKS, n_blocks = room / 4096;
    unsigned n = ckpt_run_jobs(v->opts.jobs);

    n_blocks = n_blocks < VW_MOST ? n_blocks : VW_MOST;
    // each worker fills one block while another one is read
    n_blocks = n_blocks > 2 * n ? n_blocks : 2 * n;
    v->hand = ckpt_alloc(n * sizeof *v->hand);
    if (!v->hand)
        return ckpt_fail_memory(err);
    for (; v->n_hands < n; v->n_hands++) {
        view_hand *h = &v->hand[v->n_hands];

        ckpt_worker_init(&h->worker, &v->work);
        h->worker.values.gather.touch = vw_touch;
        h->worker.values.gather.touch_ctx = v->proof;
        h->idle = true;
    }
    return ckpt_blocks_init(&v->blocks, (uint32_t)n_blocks, v->plan->jobs.n, room, err);
}

/* Adapts ckpt_view_hooks.whole to crc_check.h. */
static int vw_whole(void *ctx, uint32_t source, ckpt_err *err)
{
    const ckpt_view *v = ctx;

    return v->hooks.whole ? v->hooks.whole(v->plan->from, source, err) : CKPT_OK;
}

static int vw_open(ckpt_view *v, bool check_first, ckpt_err *err)
{
    const ckpt_proof_opts proof = {.first = check_first, .whole = vw_whole, .ctx = v};
    const ckpt_map *to = v->plan->to;
    int rc = vw_paths(v, err);

    if (rc == CKPT_OK)
        rc = vw_files(v, err);
    if (rc == CKPT_OK)
        rc = ckpt_by_file(&v->source, &v->group, to, err);
    if (rc == CKPT_OK)
        rc = ckpt_feed_open(&v->work.feed, v->plan->from, NULL, ckpt_budget_spool(v->opts.memory),
                            err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_io_pool_watch(v->work.feed.pool);
    v->work.keep = true;
    v->work.helper = CKPT_GATHER_STAGE;
    v->work.reported = ckpt_alloc(to->tensors.n + 1);
    v->work.tally = ckpt_alloc((to->tensors.n + 1) * sizeof *v->work.tally);
    if (!v->work.reported || !v->work.tally)
        return ckpt_fail_memory(err);
    rc = ckpt_proof_new(&v->proof, &v->work.feed, &proof, err);
    return rc == CKPT_OK ? vw_hands(v, err) : rc;
}

/* Initialise the locks; false: out of memory, and none of them exists. */
static bool vw_locks(ckpt_view *v)
{
    if (pthread_mutex_init(&v->lock, NULL) != 0)
        return false;
    if (pthread_mutex_init(&v->work.lock, NULL) == 0) {
        if (pthread_cond_init(&v->change, NULL) == 0)
            return true;
        pthread_mutex_destroy(&v->work.lock);
    }
    pthread_mutex_destroy(&v->lock);
    return false;
}

int ckpt_view_make(ckpt_view **out, ckpt_plan *plan, const ckpt_run_opts *run, bool check_first,
                   const ckpt_view_hooks *hooks, ckpt_err *err)
{
    assert(out && plan && hooks);
    ckpt_view *v = ckpt_alloc(sizeof *v);
    int rc;

    *out = NULL;
    if (!v || !vw_locks(v)) {
        ckpt_free(v);
        ckpt_plan_free(plan);
        return ckpt_fail_memory(err);
    }
    v->plan = plan;
    v->work.plan = plan;
    v->opts = run ? *run : (ckpt_run_opts){0};
    v->hooks = *hooks;
    rc = vw_open(v, check_first, err);
    if (rc == CKPT_OK)
        *out = v;
    else
        ckpt_view_free(v);
    return rc;
}

void ckpt_view_free(ckpt_view *v)
{
    if (!v)
        return;
    ckpt_unwritten_remove(v->address);
    for (unsigned i = 0; i < v->n_hands; i++)
        ckpt_worker_free(&v->hand[i].worker);
    for (size_t i = 0; v->file && i < v->plan->to->files.n; i++) {
        ckpt_free(v->file[i].reach);
        ckpt_free(v->file[i].literal);
    }
    ckpt_proof_free(v->proof);
    ckpt_feed_close(&v->work.feed);
    pthread_cond_destroy(&v->change);
    pthread_mutex_destroy(&v->work.lock);
    pthread_mutex_destroy(&v->lock);
    ckpt_free(v->work.reported);
    ckpt_free(v->work.tally);
    ckpt_free(v->hand);
    ckpt_blocks_free(&v->blocks);
    ckpt_free(v->file);
    ckpt_free(v->source);
    ckpt_free(v->group);
    ckpt_free(v->path);
    ckpt_plan_free(v->plan);
    ckpt_free(v);
}

/* ---- properties ---- */

size_t ckpt_view_file_count(const ckpt_view *v)
{
    return v ? v->n_files : 0;
}

const char *ckpt_view_file_path(const ckpt_view *v, size_t i)
{
    return v && i < v->n_files ? v->path[i] : NULL;
}

uint64_t ckpt_view_file_size(const ckpt_view *v, size_t i)
{
    if (!v || i >= v->n_files)
        return 0;
    return i < v->plan->to->files.n ? v->plan->to->files.at[i].size
                                    : strlen(v->plan->to->pointer_text);
}

void ckpt_view_get_counts(ckpt_view *v, ckpt_view_counts *out)
{
    if (out)
        *out = (ckpt_view_counts){0};
    if (!v || !out)
        return;
    ckpt_proof_count(v->proof, out);
    pthread_mutex_lock(&v->lock);
    out->n_elems = v->n_elems;
    out->n_compared = v->n_compared;
    out->n_nan = v->tally.n_nan;
    out->n_inf = v->tally.n_inf;
    out->n_source_nan = v->tally.n_source_nan;
    out->n_source_inf = v->tally.n_source_inf;
    out->n_over = v->tally.lost.n_over;
    out->n_zero = v->tally.lost.n_zero;
    pthread_mutex_unlock(&v->lock);
}

/* ---- the jobs of a file ---- */

/* The start of a job in its file, and the end of its last byte. */
static void vw_span(const ckpt_view *v, size_t job, uint64_t *at, uint64_t *end)
{
    const ckpt_job *j = &v->plan->jobs.at[job];
    ckpt_job_view look;
    uint64_t base;

    ckpt_job_look(&look, v->plan, j);
    base = v->plan->to->sources.at[look.e->source].at;
    *at = base + look.to;
    if (end)
        *end = base + ckpt_job_end(&look, j->count);
}

/*
 * Compute the furthest end of each job and all before it, if some job ends after the next begins:
 * interleaved rows.
 */
static int vw_reach(ckpt_view *v, view_file *f, ckpt_err *err)
{
    uint64_t at, end, last = 0;

    for (size_t i = f->first; i < f->end; i++) {
        vw_span(v, i, &at, &end);
        if (at < last && !f->reach) {
            f->reach = ckpt_alloc((f->end - f->first) * sizeof *f->reach);
            if (!f->reach)
                return ckpt_fail_memory(err);
        }
        last = end > last ? end : last;
    }
    last = 0;
    for (size_t i = f->first; f->reach && i < f->end; i++) {
        vw_span(v, i, &at, &end);
        last = end > last ? end : last;
        f->reach[i - f->first] = last;
    }
    return CKPT_OK;
}

static int vw_literal_order(const void *pa, const void *pb)
{
    const ckpt_literal *a = pa, *b = pb;

    return (a->at > b->at) - (a->at < b->at);
}

/* Copy the file's current literal bytes, sorted by offset. */
static int vw_literals(ckpt_view *v, uint32_t file, ckpt_err *err)
{
    const ckpt_literals *l = &v->plan->to->files.at[file].literals;
    view_file *f = &v->file[file];

    ckpt_free(f->literal);
    f->n_literals = 0;
    f->literal = ckpt_alloc((l->n + 1) * sizeof *f->literal);
    if (!f->literal)
        return ckpt_fail_memory(err);
    if (l->n > 0)
        memcpy(f->literal, l->at, l->n * sizeof *f->literal);
    f->n_literals = l->n;
    qsort(f->literal, f->n_literals, sizeof *f->literal, vw_literal_order);
    return CKPT_OK;
}

int ckpt_view_place(ckpt_view *v, uint32_t file, ckpt_err *err)
{
    view_file *f = &v->file[file];
    int rc = f->placed ? CKPT_OK : vw_reach(v, f, err);

    if (rc == CKPT_OK)
        rc = vw_literals(v, file, err);
    f->placed = rc == CKPT_OK;
    return rc;
}

/* The first job that may end after byte `at`. */
static size_t vw_first(const ckpt_view *v, const view_file *f, uint64_t at)
{
    size_t low = f->first, high = f->end;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        uint64_t end;

        if (f->reach) {
            end = f->reach[middle - f->first];
        } else {
            uint64_t begin;

            vw_span(v, middle, &begin, &end);
        }
        if (end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- blocks ---- */

/* A free worker; NULL: there is none. The caller holds the lock. */
static view_hand *vw_hand(ckpt_view *v)
{
    for (unsigned i = 0; i < v->n_hands; i++) {
        if (v->hand[i].idle)
            return &v->hand[i];
    }
    return NULL;
}

/* Refuse values that the caller does not accept. */
static int vw_judge(const ckpt_view *v, const ckpt_tally *t, const ckpt_job_view *look,
                    ckpt_err *err)
{
    if (t->lost.n_over > 0 && (!v->opts.allow_overflow || v->opts.strict))
        return ckpt_fail(err, CKPT_EDOUBT, "tensor %s: some values are beyond the range of %s",
                         look->t->name, ckpt_dtype_name(look->t->dtype));
    if (v->opts.strict && t->n_nan + t->n_inf + t->n_source_nan + t->n_source_inf > 0)
        return ckpt_fail(err, CKPT_EDOUBT, "tensor %s: some values are NaN or infinite",
                         look->t->name);
    return CKPT_OK;
}

/*
 * Fail if two copies of a value differed. The caller has checked the CRCs before, because damage
 * would explain the difference better.
 */
static int vw_unlike(ckpt_view *v, ckpt_err *err)
{
    ckpt_err why;

    pthread_mutex_lock(&v->work.lock);
    why = v->work.mismatch;
    pthread_mutex_unlock(&v->work.lock);
    return why.code == CKPT_OK ? CKPT_OK : ckpt_fail(err, why.code, "%s", why.text);
}

/* Compute a job's values into the block with worker h; the caller holds no lock. */
static int vw_make(ckpt_view *v, view_hand *h, ckpt_block *b, ckpt_err *err)
{
    ckpt_worker *w = &h->worker;
    ckpt_job_view look;
    const uint8_t *made;
    int rc;

    w->tally = (ckpt_tally){0};
    if (!b->bytes)
        b->bytes = ckpt_alloc((size_t)b->n);
    if (!b->bytes)
        return ckpt_fail_memory(err);
    rc = ckpt_worker_make(w, &v->plan->jobs.at[b->job], b->bytes, &look, &made, err);
    if (rc == CKPT_OK)
        rc = ckpt_proof_take(v->proof, &w->read, err);
    w->read.n = 0;
    if (rc == CKPT_OK && w->unlike)
        rc = vw_unlike(v, err);
    return rc == CKPT_OK ? vw_judge(v, &w->tally, &look, err) : rc;
}

/*
 * Compute a job that is not cached. The caller holds the lock; it is released during the
 * computation.
 *
 * out     the block, with the caller as user; NULL, and CKPT_OK: all blocks or workers are in use
 */
static int vw_new(ckpt_view *v, uint64_t job, ckpt_block **out, ckpt_err *err)
{
    const ckpt_job *j = &v->plan->jobs.at[job];
    uint64_t n = ckpt_job_bytes(v->plan->to->tensors.at[j->tensor]->dtype, j->count);
    view_hand *h = vw_hand(v);
    ckpt_block *b = h ? ckpt_blocks_take(&v->blocks, job, n) : NULL;
    int rc;

    *out = b;
    if (!b)
        return CKPT_OK;
    h->idle = false;
    pthread_mutex_unlock(&v->lock);
    rc = vw_make(v, h, b, err);
    pthread_mutex_lock(&v->lock);
    ckpt_tally_add(&v->tally, &h->worker.tally);
    v->n_elems += rc == CKPT_OK ? j->count : 0;
    v->n_compared += h->worker.values.n_compared;
    h->worker.values.n_compared = 0;
    h->idle = true;
    b->making = false;
    if (rc != CKPT_OK) {
        ckpt_blocks_drop(&v->blocks, b);
        *out = NULL;
    }
    // a record is damaged, so cached values from it must not be used again
    if (rc == CKPT_EFORMAT)
        ckpt_blocks_forget(&v->blocks);
    pthread_cond_broadcast(&v->change);
    return rc;
}

/* Get the block of a job; give it back with vw_put_back. */
static int vw_block(ckpt_view *v, uint64_t job, ckpt_block **out, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&v->lock);
    for (*out = NULL; rc == CKPT_OK && !*out;) {
        ckpt_block *b = ckpt_blocks_find(&v->blocks, job);

        if (b && !b->making) {
            ckpt_blocks_use(&v->blocks, b);
            *out = b;
        } else if (!b) {
            rc = vw_new(v, job, out, err);
        }
        if (rc == CKPT_OK && !*out)
            pthread_cond_wait(&v->change, &v->lock);
    }
    pthread_mutex_unlock(&v->lock);
    return rc;
}

static void vw_put_back(ckpt_view *v, ckpt_block *b)
{
    pthread_mutex_lock(&v->lock);
    ckpt_blocks_give_back(&v->blocks, b);
    pthread_cond_broadcast(&v->change);
    pthread_mutex_unlock(&v->lock);
}

/* Compute a job for read-ahead; *more: it is cached now, else no worker or block was free. */
static int vw_ahead(ckpt_view *v, uint64_t job, bool *more, ckpt_err *err)
{
    ckpt_block *b = NULL;
    int rc = CKPT_OK;

    pthread_mutex_lock(&v->lock);
    *more = ckpt_blocks_find(&v->blocks, job) != NULL;
    if (!*more)
        rc = vw_new(v, job, &b, err);
    if (b) {
        ckpt_blocks_give_back(&v->blocks, b);
        pthread_cond_broadcast(&v->change);
        *more = true;
    }
    pthread_mutex_unlock(&v->lock);
    return rc;
}

/* ---- reading ---- */

/* The requested bytes. */
typedef struct vw_range {
    uint8_t *buf;
    uint64_t at, end; /* in the file */
    uint64_t base;    /* file offset of the record; offsets in jobs count from it */
} vw_range;

/* Copy the requested part of a stretch of a job's result. */
static int vw_put(void *ctx, const uint8_t *bytes, uint64_t n, uint64_t at, ckpt_err *err)
{
    const vw_range *r = ctx;
    uint64_t first = r->base + at, end = first + n;
    uint64_t a = first > r->at ? first : r->at, b = end < r->end ? end : r->end;

    (void)err;
    if (a < b)
        memcpy(r->buf + (a - r->at), bytes + (a - first), (size_t)(b - a));
    return CKPT_OK;
}

static int vw_job(ckpt_view *v, size_t job, vw_range *r, ckpt_err *err)
{
    const ckpt_job *j = &v->plan->jobs.at[job];
    ckpt_job_view look;
    ckpt_block *b;
    int rc = vw_block(v, job, &b, err);

    if (rc != CKPT_OK)
        return rc;
    ckpt_job_look(&look, v->plan, j);
    r->base = v->plan->to->sources.at[look.e->source].at;
    rc = ckpt_job_spread(&look, b->bytes, j->count, vw_put, r, err);
    vw_put_back(v, b);
    return rc;
}

/* Copy the literals over the results of jobs. */
static void vw_overlay(const view_file *f, vw_range *r)
{
    size_t low = 0, high = f->n_literals;

    r->base = 0;
    // literals do not overlap, so their ends ascend as their starts do
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (f->literal[middle].at + f->literal[middle].n <= r->at)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < f->n_literals && f->literal[low].at < r->end; low++)
        (void)vw_put(r, f->literal[low].bytes, f->literal[low].n, f->literal[low].at, NULL);
}

int ckpt_view_window(ckpt_view *v, uint32_t file, uint8_t *buf, uint64_t n, uint64_t at,
                     ckpt_err *err)
{
    const view_file *f = &v->file[file];
    vw_range r = {.buf = buf, .at = at, .end = at + n};
    uint64_t done = at; // bytes before it come from a job, or are zero
    int rc = CKPT_OK;

    if (f->reach)
        memset(buf, 0, (size_t)n);
    for (size_t i = vw_first(v, f, at); rc == CKPT_OK && i < f->end; i++) {
        uint64_t begin, end;

        vw_span(v, i, &begin, &end);
        if (begin >= r.end)
            break;
        if (end <= at)
            continue;
        if (!f->reach && begin > done)
            memset(buf + (done - at), 0, (size_t)(begin - done));
        done = end > done ? end : done;
        rc = vw_job(v, i, &r, err);
    }
    if (!f->reach && done < r.end)
        memset(buf + (done - at), 0, (size_t)(r.end - done));
    if (rc == CKPT_OK)
        vw_overlay(f, &r);
    return rc;
}

int ckpt_view_prefetch(ckpt_view *v, size_t i, uint64_t n, uint64_t at, ckpt_err *err)
{
    ckpt_err_clear(err);
    const view_file *f;
    bool more;
    int rc = CKPT_OK;

    if (!v || i >= v->n_files || !ckpt_within(at, n, ckpt_view_file_size(v, i)))
        return ckpt_fail(err, CKPT_EUSAGE, "no view, no such file or no such bytes in it");
    if (i == v->plan->to->files.n)
        return CKPT_OK;
    f = &v->file[i];
    pthread_mutex_lock(&v->lock);
    more = f->state == VIEW_READY;
    pthread_mutex_unlock(&v->lock);
    for (size_t job = more ? vw_first(v, f, at) : f->end; rc == CKPT_OK && more && job < f->end;
         job++) {
        uint64_t begin;

        vw_span(v, job, &begin, NULL);
        if (begin >= at + n)
            break;
        rc = vw_ahead(v, job, &more, err);
    }
    return rc;
}
