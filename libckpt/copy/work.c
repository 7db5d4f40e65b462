/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c: runs a job on a worker.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/weigh.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/work.h"
#include "libckpt/io/address.h"
#include "libckpt/map/extent.h"

enum { WORK_PIECE = 1 << 16 /* elements converted at a time; blocks of all packed dtypes fit */ };

/* ---- values that differ from their copies ---- */

/* Format one element as text, for messages. */
static void work_number(ckpt_dtype d, const uint8_t *p, char text[40])
{
    ckpt_cast_fn wide = ckpt_cast_find(CKPT_F64, d);
    uint64_t size = ckpt_job_bytes(d, 1);
    double x = 0;

    if (wide) {
        wide(&x, p, 1);
        (void)snprintf(text, 40, "%.9g", x);
        return;
    }
    // For other dtypes, such as integers: the bytes, most significant first.
    (void)snprintf(text, 40, "0x");
    for (uint64_t i = 0; i < size && i < 16; i++)
        (void)snprintf(text + 2 + 2 * i, 40 - 2 - 2 * (size_t)i, "%02x", p[size - 1 - i]);
}

int ckpt_unlike_fail(const ckpt_map *map, const ckpt_unlike *u, ckpt_err *err)
{
    ckpt_dtype d = u->self->dtype, small = u->twin->dtype;
    char value[40], round[40], copy[40];
    bool tied = strcmp(u->twin->name, u->head->name) != 0;

    work_number(d, u->value, value);
    work_number(small, u->rounded, round);
    work_number(small, u->copy, copy);
    if (d == small)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s: tensor %s: element %" PRIu64
                         " is %s, but %s in another copy of it (%s), which should be "
                         "equal: a shard may be damaged or from another save",
                         ckpt_nest_file(map, u->twin), tied ? u->twin->name : u->head->name,
                         u->element, copy, value, ckpt_nest_file(map, u->self));
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "%s: tensor %s: element %" PRIu64
                     ": master value %s rounds to %s, but the %s copy%s%.200s holds "
                     "%s: a shard may be damaged or from another save",
                     ckpt_nest_file(map, u->twin), u->head->name, u->element, value, round,
                     ckpt_dtype_name(small), tied ? " under the tied name " : "",
                     tied ? u->twin->name : "", copy);
}

/*
 * Report that an element differs from its copy: once per tensor. Unless problems are collected,
 * wait until all records' CRCs have matched, because damage explains more than a mismatch does.
 */
static int work_unlike(void *ctx, const ckpt_unlike *u, ckpt_err *err)
{
    ckpt_worker *w = ctx;
    ckpt_work *work = w->work;
    ckpt_err local = {0};
    int rc = CKPT_OK;

    w->unlike = true;
    pthread_mutex_lock(&work->lock);
    if (!work->reported[w->tensor]) {
        work->reported[w->tensor] = 1;
        rc = ckpt_unlike_fail(work->plan->from, u, &local);
        if (work->plan->to->collect)
            rc = ckpt_map_problem(work->plan->to, rc, &local, "%s", local.text);
    }
    if (rc == CKPT_EMISMATCH) {
        if (work->mismatch.code == CKPT_OK || w->tensor < work->mismatched) {
            work->mismatch = local;
            work->mismatched = w->tensor;
        }
        rc = CKPT_OK;
    }
    pthread_mutex_unlock(&work->lock);
    return rc == CKPT_OK ? CKPT_OK : ckpt_fail(err, rc, "%s", local.text);
}

/* ---- a worker ---- */

void ckpt_worker_init(ckpt_worker *w, ckpt_work *work)
{
    assert(w && work);
    *w = (ckpt_worker){.work = work};
    w->values.gather.feed = &work->feed;
    w->values.gather.n_stage = (size_t)work->helper;
    w->values.gather.segments = work->keep ? &w->read : NULL;
    w->values.unlike = work_unlike;
    w->values.ctx = w;
    w->values.room = work->plan->block;
    w->pending.room = work->helper;
}

void ckpt_worker_free(ckpt_worker *w)
{
    ckpt_values_free(&w->values);
    ckpt_vec_free(&w->read);
    ckpt_vec_free(&w->written);
    ckpt_free(w->in);
    ckpt_free(w->pending.bytes);
    *w = (ckpt_worker){0};
}

/* Buffers are allocated at first use: a run without small results has none. */
static int work_buffer(uint8_t **p, uint64_t n, ckpt_err *err)
{
    if (!*p)
        *p = ckpt_alloc(n > 0 ? (size_t)n : 1);
    return !*p ? ckpt_fail_memory(err) : CKPT_OK;
}

/* ---- writing ---- */

/* Write the pending bytes. The buffer is empty afterwards, also after a failure. */
static int work_flush(ckpt_worker *w, ckpt_err *err)
{
    ckpt_work_pending *p = &w->pending;
    uint64_t n = p->n;

    p->n = 0;
    return n == 0 ? CKPT_OK : ckpt_sink_write(w->work->sink, p->file, p->bytes, n, p->at, err);
}

/* Write to a file: large stretches at once, small ones together with adjacent ones. */
static int work_put_file(ckpt_worker *w, uint32_t file, const uint8_t *bytes, uint64_t n,
                         uint64_t at, ckpt_err *err)
{
    ckpt_work_pending *p = &w->pending;
    int rc = CKPT_OK;

    if (p->n > 0 && (p->file != file || p->at + p->n != at || n > p->room - p->n))
        rc = work_flush(w, err);
    if (rc == CKPT_OK && n > p->room / 4)
        rc = p->n > 0 ? work_flush(w, err) : CKPT_OK;
    if (rc != CKPT_OK)
        return rc;
    if (n > p->room / 4)
        return ckpt_sink_write(w->work->sink, file, bytes, n, at, err);
    rc = work_buffer(&p->bytes, p->room, err);
    if (rc != CKPT_OK)
        return rc;
    if (p->n == 0) {
        p->file = file;
        p->at = at;
    }
    memcpy(p->bytes + p->n, bytes, (size_t)n);
    p->n += n;
    return CKPT_OK;
}

/* The destination of a job's result. */
typedef struct work_place {
    ckpt_worker *w;
    uint32_t source;
} work_place;

/* Write n contiguous bytes of a target source from offset at. */
static int work_put(void *ctx, const uint8_t *bytes, uint64_t n, uint64_t at, ckpt_err *err)
{
    const work_place *place = ctx;
    ckpt_worker *w = place->w;
    const ckpt_source *s = &w->work->plan->to->sources.at[place->source];
    int rc;

    if (s->kind == CKPT_SOURCE_ZERO)
        return CKPT_OK;
    if (!ckpt_within(at, n, s->n_bytes))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "the target's layout puts %" PRIu64 " bytes at offset %" PRIu64
                         " of a record of %" PRIu64,
                         n, at, s->n_bytes);
    rc = ckpt_ledger_add(&w->written, place->source, at, n, ckpt_crc32(0, bytes, (size_t)n), err);
    if (rc != CKPT_OK)
        return rc;
    // A file that an interrupted run has finished is checksummed like any other, but not written.
    if (s->kind == CKPT_SOURCE_FILE && ckpt_sink_kept(w->work->sink, s->file))
        return CKPT_OK;
    w->n_written += n;
    if (s->kind == CKPT_SOURCE_MEMORY) {
        uint8_t *to = s->memory;

        memcpy(to + at, bytes, (size_t)n);
        return CKPT_OK;
    }
    if (s->kind != CKPT_SOURCE_FILE)
        return ckpt_fail(err, CKPT_EUSAGE, "a target's record is neither in a file nor in memory");
    return work_put_file(w, s->file, bytes, n, s->at + at, err);
}

/* ---- jobs ---- */

void ckpt_tally_add(ckpt_tally *sum, const ckpt_tally *t)
{
    sum->n_nan += t->n_nan;
    sum->n_inf += t->n_inf;
    sum->n_source_nan += t->n_source_nan;
    sum->n_source_inf += t->n_source_inf;
    sum->lost.n_over += t->lost.n_over;
    sum->lost.n_zero += t->lost.n_zero;
    sum->lost.n_void += t->lost.n_void;
    sum->lost.n_live_before += t->lost.n_live_before;
    sum->lost.n_live += t->lost.n_live;
}

int ckpt_tally_note(ckpt_map *to, const ckpt_tensor *t, const ckpt_tally *n, ckpt_err *err)
{
    const char *dtype = ckpt_dtype_name(t->dtype);
    int rc = CKPT_OK;

    if (n->n_nan + n->n_inf > 0)
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "tensor %s: %" PRIu64 " NaN and %" PRIu64 " infinite of %" PRIu64
                           " values",
                           t->name, n->n_nan, n->n_inf, t->n_elems);
    if (rc == CKPT_OK && n->lost.n_over > 0)
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "tensor %s: %" PRIu64 " of %" PRIu64
                           " values are beyond the range of %s and became %s",
                           t->name, n->lost.n_over, t->n_elems, dtype,
                           t->dtype == CKPT_F8_E4M3 ? "its largest number" : "infinite");
    if (rc == CKPT_OK && n->lost.n_void > 0)
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "tensor %s: %" PRIu64 " of %" PRIu64
                           " values became 0 in %s, because their importance is 0 or too large",
                           t->name, n->lost.n_void, t->n_elems, dtype);
    else if (rc == CKPT_OK && n->lost.n_live_before > 0 && n->lost.n_live == 0)
        rc = ckpt_map_note(to, CKPT_WARNING, err,
                           "tensor %s: all values are too small for %s and became 0", t->name,
                           dtype);
    else if (rc == CKPT_OK && n->lost.n_zero > 0)
        rc = ckpt_map_note(to, CKPT_INFO, err,
                           "tensor %s: %" PRIu64 " of %" PRIu64
                           " values are too small for %s and became 0",
                           t->name, n->lost.n_zero, t->n_elems, dtype);
    return rc;
}

/*
 * Count a job's values before and after the conversion, for the report and per tensor: values of
 * the source are the checkpoint's, changes are the conversion's.
 */
static void work_count(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job,
                       const uint8_t *in, const uint8_t *result)
{
    size_t n = (size_t)job->count;
    ckpt_tally t = {0};

    ckpt_count_nonfinite(v->origin->dtype, in, n, &t.n_source_nan, &t.n_source_inf);
    t.n_nan = t.n_source_nan;
    t.n_inf = t.n_source_inf;
    if (v->t->dtype != v->origin->dtype) {
        t.n_nan = t.n_inf = 0;
        ckpt_count_nonfinite(v->t->dtype, result, n, &t.n_nan, &t.n_inf);
        ckpt_count_lost(&t.lost, v->t->dtype, v->origin->dtype, result, in, n);
    }
    if (!t.n_nan && !t.n_inf && !t.n_source_nan && !t.n_source_inf && !t.lost.n_over &&
        !t.lost.n_zero && !t.lost.n_live_before)
        return;
    ckpt_tally_add(&w->tally, &t);
    pthread_mutex_lock(&w->work->lock);
    ckpt_tally_add(&w->work->tally[job->tensor], &t);
    pthread_mutex_unlock(&w->work->lock);
}

/* Convert a job's values; false: memory is exhausted. */
static bool work_cast(const ckpt_job_view *v, const ckpt_job *job, uint8_t *to, const uint8_t *in)
{
    if (v->t->importance) {
        // plan.c cuts at rows
        const ckpt_weighing how = {v->t->importance, v->t->dtype, v->origin->dtype,
                                   v->region[0].start};

        return ckpt_weigh(&how, to, in, job->count);
    }
    ckpt_cast_find(v->t->dtype, v->origin->dtype)(to, in, (size_t)job->count);
    return true;
}

/*
 * Elements that are read and converted at a time. A job whose region is one stretch of a local file
 * or of an operation's results goes in pieces, which keeps the unconverted values small. Other jobs
 * are read whole: remote reads would become more requests, records more stretches with a CRC, and
 * copies are compared by region.
 */
static uint64_t work_piece(const ckpt_work *w, const ckpt_job_view *v, uint64_t count)
{
    const ckpt_map *from = w->plan->from;
    const ckpt_tensor *o = v->origin;
    const ckpt_source *s;

    if (v->n_axes != 1 || v->t->importance || o->addend || o->twin || o->n_extents != 1)
        return count;
    s = &from->sources.at[ckpt_extent_source(o, 0)];
    if (s->kind == CKPT_SOURCE_FILE &&
        (s->coding != CKPT_RAW || s->has_crc || ckpt_address_is(from->files.at[s->file].path)))
        return count;
    return s->kind == CKPT_SOURCE_TENSOR ? count : WORK_PIECE;
}

/* Read, convert and count the values of a job. */
static int work_convert(ckpt_worker *w, const ckpt_job *job, const ckpt_job_view *v, uint8_t *to,
                        ckpt_err *err)
{
    uint64_t step = work_piece(w->work, v, job->count);
    int rc = work_buffer(&w->in, w->work->plan->block, err);

    for (uint64_t done = 0; rc == CKPT_OK && done < job->count; done += step) {
        ckpt_job part = *job;
        ckpt_axis axis = v->region[0];
        ckpt_region region = {v->region, v->n_axes, job->count};
        uint8_t *result = to + ckpt_job_bytes(v->t->dtype, done);

        if (step < job->count) {
            part.count = job->count - done < step ? job->count - done : step;
            axis.start += done;
            axis.count = part.count;
            region = (ckpt_region){&axis, 1, part.count};
        }
        rc = ckpt_values_region(&w->values, v->origin, &region, w->in, err);
        if (rc == CKPT_OK && !work_cast(v, &part, result, w->in))
            rc = ckpt_fail_memory(err);
        if (rc == CKPT_OK)
            work_count(w, v, &part, w->in, result);
    }
    return rc;
}

int ckpt_worker_make(ckpt_worker *w, const ckpt_job *job, uint8_t *to, ckpt_job_view *v,
                     const uint8_t **out, ckpt_err *err)
{
    const ckpt_plan *plan = w->work->plan;
    bool cast;
    int rc = CKPT_OK;

    ckpt_job_look(v, plan, job);
    w->tensor = job->tensor;
    w->unlike = false;
    cast = v->t->dtype != v->origin->dtype;
    if (cast) {
        uint8_t *result = to ? to : ckpt_values_spare(&w->values);

        *out = result;
        return result ? work_convert(w, job, v, result, err) : ckpt_fail_memory(err);
    }
    if (!to)
        rc = work_buffer(&w->in, plan->block, err);
    to = to ? to : w->in;
    *out = to;
    if (rc == CKPT_OK)
        rc = ckpt_values_region(&w->values, v->origin,
                                &(ckpt_region){v->region, v->n_axes, job->count}, to, err);
    if (rc == CKPT_OK)
        work_count(w, v, job, to, to);
    return rc;
}

/* Run one job from reading to writing. */
static int work_job(ckpt_worker *w, const ckpt_job *job, ckpt_err *err)
{
    uint64_t n_read = w->values.gather.n_read, n_bytes;
    const uint8_t *result;
    ckpt_job_view v;
    int rc = ckpt_worker_make(w, job, NULL, &v, &result, err);

    if (rc != CKPT_OK)
        return rc;
    work_place place = {w, v.e->source};
    rc = ckpt_job_spread(&v, result, job->count, work_put, &place, err);
    w->n_elems += job->count;
    n_bytes = ckpt_job_bytes(v.t->dtype, job->count);
    return rc != CKPT_OK ? rc
                         : ckpt_progress_add(w->work->progress,
                                             w->values.gather.n_read - n_read + n_bytes, err);
}

int ckpt_worker_jobs(ckpt_worker *w, size_t first, size_t end, ckpt_err *err)
{
    assert(first <= end && end <= w->work->plan->jobs.n);
    int rc = CKPT_OK;

    w->pending.n = 0;
    for (size_t i = first; rc == CKPT_OK && i < end; i++)
        rc = work_job(w, &w->work->plan->jobs.at[i], err);
    return rc == CKPT_OK ? work_flush(w, err) : rc;
}
