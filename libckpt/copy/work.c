/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c: what a worker does with a job.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/mean.h"
#include "libckpt/copy/work.h"

void ckpt_worker_init(ckpt_worker *w, ckpt_work *work)
{
    assert(w && work);
    *w = (ckpt_worker){.work = work};
    w->gather.feed = &work->feed;
    w->gather.n_stage = (size_t)work->helper;
    w->gather.segments = work->keep ? &w->read : NULL;
    w->pending.room = work->helper;
}

void ckpt_worker_free(ckpt_worker *w)
{
    ckpt_gather_free(&w->gather);
    ckpt_vec_free(&w->read);
    ckpt_vec_free(&w->written);
    ckpt_free(w->in);
    ckpt_free(w->out);
    ckpt_free(w->twin);
    ckpt_free(w->sum);
    ckpt_free(w->pending.bytes);
    *w = (ckpt_worker){0};
}

/* Buffers are made when first needed: a run without twins, casts or means has none for them. */
static int work_buffer(uint8_t **p, uint64_t n, ckpt_err *err)
{
    if (!*p)
        *p = ckpt_alloc(n > 0 ? (size_t)n : 1);
    return !*p ? ckpt_fail_memory(err) : CKPT_OK;
}

/* ---- comparing with copies ---- */

/* One element as text, for messages. */
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
    // Integers and the like: their bytes, most significant first.
    (void)snprintf(text, 40, "0x");
    for (uint64_t i = 0; i < size && i < 16; i++)
        (void)snprintf(text + 2 + 2 * i, 40 - 2 - 2 * (size_t)i, "%02x", p[size - 1 - i]);
}

/* Number of the element in its flattened tensor that is k-th in a job's region. */
static uint64_t work_element(const ckpt_job_view *v, uint64_t k)
{
    uint64_t at = 0, weight = 1;

    if (v->n_axes == 1)
        return v->region[0].start + k;
    for (unsigned i = v->n_axes; i-- > 0;) {
        at += (v->region[i].start + k % v->region[i].count) * weight;
        k /= v->region[i].count;
        weight *= v->t->shape[i];
    }
    return at;
}

/* The file that a tensor with values begins in, for messages. */
static const char *work_file(const ckpt_map *map, const ckpt_tensor *t)
{
    const ckpt_source *s = &map->sources.at[t->extent[0].source];

    return s->kind == CKPT_SOURCE_FILE ? map->files.at[s->file].path : "memory";
}

/* A tensor with its values in w->in, and one of its twins with its own in w->twin. */
typedef struct work_pair {
    const ckpt_tensor *self, *twin;
    const uint8_t *rounded; /* self's values in the twin's dtype */
} work_pair;

/* The text of a mismatch: two copies of one precision, or a master and what it should round to. */
static int work_tell(ckpt_worker *w, const ckpt_job_view *v, const work_pair *p, uint64_t k,
                     ckpt_err *err)
{
    ckpt_dtype d = p->self->dtype, small = p->twin->dtype;
    const ckpt_plan *plan = w->work->plan;
    char value[40], round[40], copy[40];
    bool tied = strcmp(p->twin->name, v->origin->name) != 0;

    work_number(d, w->in + k * ckpt_job_bytes(d, 1), value);
    work_number(small, p->rounded + k * ckpt_job_bytes(small, 1), round);
    work_number(small, w->twin + k * ckpt_job_bytes(small, 1), copy);
    if (d == small)
        return ckpt_map_problem(plan->to, CKPT_EMISMATCH, err,
                                "%s: tensor %s: element %" PRIu64
                                " is %s, but %s in another copy of it (%s), which should be "
                                "equal: a shard may be damaged or of another save",
                                work_file(plan->from, p->twin),
                                tied ? p->twin->name : v->origin->name, work_element(v, k), copy,
                                value, work_file(plan->from, p->self));
    return ckpt_map_problem(plan->to, CKPT_EMISMATCH, err,
                            "%s: tensor %s: element %" PRIu64
                            ": master value %s rounds to %s, but the %s copy%s%.200s holds "
                            "%s: a shard may be damaged or of another save",
                            work_file(plan->from, p->twin), v->origin->name, work_element(v, k),
                            value, round, ckpt_dtype_name(small),
                            tied ? " under the tied name " : "", tied ? p->twin->name : "", copy);
}

/*
 * Tell that the k-th element of a job differs from its copy: once for each tensor, and, where
 * problems are failures, only when all records' CRCs have held: damage explains more than a
 * mismatch does.
 */
static int work_mismatch(ckpt_worker *w, const ckpt_job_view *v, uint32_t tensor,
                         const work_pair *p, uint64_t k, ckpt_err *err)
{
    ckpt_work *work = w->work;
    ckpt_err local = {0};
    int rc = CKPT_OK;

    pthread_mutex_lock(&work->lock);
    if (!work->reported[tensor]) {
        work->reported[tensor] = 1;
        rc = work_tell(w, v, p, k, &local);
    }
    if (rc == CKPT_EMISMATCH) {
        if (work->mismatch.code == CKPT_OK || tensor < work->mismatched) {
            work->mismatch = local;
            work->mismatched = tensor;
        }
        rc = CKPT_OK;
    }
    pthread_mutex_unlock(&work->lock);
    return rc == CKPT_OK ? CKPT_OK : ckpt_fail(err, rc, "%s", local.text);
}

/*
 * True if a difference means nothing: the master is not finite, so that what it rounds to proves
 * nothing; copies of one precision need only be both NaN.
 */
static bool work_excused(const ckpt_worker *w, const work_pair *p, uint64_t k)
{
    uint64_t size = ckpt_job_bytes(p->self->dtype, 1), n_nan = 0, n_inf = 0, n_other = 0;

    ckpt_count_nonfinite(p->self->dtype, w->in + k * size, 1, &n_nan, &n_inf);
    if (p->self->dtype != p->twin->dtype)
        return n_nan + n_inf > 0;
    ckpt_count_nonfinite(p->twin->dtype, w->twin + k * size, 1, &n_other, &n_inf);
    return n_nan > 0 && n_other > 0;
}

/* Element by element, because something differs; differences that are excused do not count. */
static int work_compare_each(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job,
                             const work_pair *p, ckpt_err *err)
{
    uint64_t size = ckpt_job_bytes(p->twin->dtype, 1);
    int rc = CKPT_OK;

    for (uint64_t k = 0; rc == CKPT_OK && k < job->count; k++) {
        if (memcmp(p->rounded + k * size, w->twin + k * size, (size_t)size) == 0)
            w->n_compared++;
        else if (p->twin->flags & CKPT_TENSOR_LAGS)
            w->n_unlike++;
        else if (!work_excused(w, p, k))
            rc = work_mismatch(w, v, job->tensor, p, k, err);
    }
    return rc;
}

/* The gathered values of a tensor against one copy: it is read, the values rounded, the bits
 * compared. */
static int work_compare(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job, work_pair *p,
                        ckpt_err *err)
{
    const ckpt_tensor *twin = p->twin;
    int rc = work_buffer(&w->twin, w->work->plan->block, err);

    p->rounded = w->in;
    if (rc == CKPT_OK && twin->dtype != p->self->dtype)
        rc = work_buffer(&w->out, w->work->plan->block, err);
    if (rc == CKPT_OK)
        rc = ckpt_gather_region(&w->gather, twin, v->region, v->n_axes, w->twin, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_gather_resolve(twin, w->twin, job->count);
    // The result buffer is still free at this point: the rounded values borrow it.
    if (twin->dtype != p->self->dtype) {
        ckpt_cast_find(twin->dtype, p->self->dtype)(w->out, w->in, (size_t)job->count);
        p->rounded = w->out;
    }
    if (memcmp(p->rounded, w->twin, (size_t)ckpt_job_bytes(twin->dtype, job->count)) != 0)
        return work_compare_each(w, v, job, p, err);
    w->n_compared += job->count;
    return CKPT_OK;
}

/* ---- gathering ---- */

/* One tensor's own values into w->in, compared with all copies of it. */
static int work_gather(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job,
                       const ckpt_tensor *t, ckpt_err *err)
{
    int rc = ckpt_gather_region(&w->gather, t, v->region, v->n_axes, w->in, err);

    if (rc != CKPT_OK)
        return rc;
    ckpt_gather_resolve(t, w->in, job->count);
    for (const ckpt_tensor *twin = t->twin; rc == CKPT_OK && twin; twin = twin->twin) {
        work_pair p = {.self = t, .twin = twin};

        rc = work_compare(w, v, job, &p, err);
    }
    return rc;
}

/* The origin's values into w->in: its own, or their mean with all addends'. */
static int work_values(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job, ckpt_err *err)
{
    ckpt_dtype d = v->origin->dtype;
    uint32_t n = 0;
    int rc;

    if (!v->origin->addend)
        return work_gather(w, v, job, v->origin, err);
    rc = work_buffer(&w->sum, w->work->plan->block, err);
    if (rc != CKPT_OK)
        return rc;
    memset(w->sum, 0, (size_t)ckpt_job_bytes(ckpt_mean_dtype(d), job->count));
    for (const ckpt_tensor *t = v->origin; rc == CKPT_OK && t; t = t->addend) {
        rc = work_gather(w, v, job, t, err);
        if (rc == CKPT_OK)
            ckpt_mean_add(d, w->sum, w->in, job->count);
        n++;
    }
    if (rc == CKPT_OK)
        ckpt_mean_end(d, w->in, w->sum, n, job->count);
    return rc;
}

/* ---- writing ---- */

/* Send what is pending.  The buffer is empty afterwards, also when writing failed. */
static int work_flush(ckpt_worker *w, ckpt_err *err)
{
    ckpt_work_pending *p = &w->pending;
    uint64_t n = p->n;

    p->n = 0;
    return n == 0 ? CKPT_OK : ckpt_sink_write(w->work->sink, p->file, p->bytes, n, p->at, err);
}

/* Write to a file: large stretches at once, small ones together with their neighbours. */
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

/* n contiguous bytes of a target source from offset at. */
static int work_put(ckpt_worker *w, uint32_t source, const uint8_t *bytes, uint64_t n, uint64_t at,
                    ckpt_err *err)
{
    const ckpt_source *s = &w->work->plan->to->sources.at[source];
    int rc;

    if (s->kind == CKPT_SOURCE_ZERO)
        return CKPT_OK;
    if (!ckpt_within(at, n, s->n_bytes))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "the target's layout puts %" PRIu64 " bytes at %" PRIu64
                         " of a record of %" PRIu64,
                         n, at, s->n_bytes);
    rc = ckpt_ledger_add(&w->written, source, at, n, ckpt_crc32(0, bytes, (size_t)n), err);
    if (rc != CKPT_OK)
        return rc;
    // A file that an interrupted run has finished is summed like any other, but stays as it is.
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

/* Write a job's dense values where the target's strides want them: run by run, as long as the runs
 * can be. */
static int work_write(ckpt_worker *w, const ckpt_job_view *v, const uint8_t *bytes, uint64_t count,
                      ckpt_err *err)
{
    uint64_t index[CKPT_MAX_DIM] = {0};
    uint64_t run = ckpt_job_bytes(v->t->dtype, 1), total = ckpt_job_bytes(v->t->dtype, count);
    unsigned n = v->n_axes;
    uint64_t at = v->to;

    // Packed dtypes have no stride: they are always one run.
    if (ckpt_dtype_get(v->t->dtype)->bits % 8 != 0)
        return work_put(w, v->e->source, bytes, total, at, err);
    while (n > 0 && (v->region[n - 1].count == 1 || v->region[n - 1].stride == (int64_t)run))
        run *= v->region[--n].count;
    for (uint64_t done = 0; done < total; done += run) {
        int rc = work_put(w, v->e->source, bytes + done, run, at, err);

        if (rc != CKPT_OK)
            return rc;
        for (unsigned i = n; i-- > 0;) {
            at += (uint64_t)v->region[i].stride;
            if (++index[i] < v->region[i].count)
                break;
            at -= (uint64_t)v->region[i].stride * v->region[i].count;
            index[i] = 0;
        }
    }
    return CKPT_OK;
}

/* ---- jobs ---- */

static void work_add(ckpt_tally *sum, const ckpt_tally *t)
{
    sum->n_nan += t->n_nan;
    sum->n_inf += t->n_inf;
    sum->n_source_nan += t->n_source_nan;
    sum->n_source_inf += t->n_source_inf;
    sum->lost.n_over += t->lost.n_over;
    sum->lost.n_zero += t->lost.n_zero;
}

/*
 * What a job's values were and what they are in the target, for the report and by tensor.  Both are
 * looked at: what the source holds is the checkpoint's doing, what the conversion made of it ours.
 */
static void work_count(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job,
                       const uint8_t *result)
{
    size_t n = (size_t)job->count;
    ckpt_tally t = {0};

    ckpt_count_nonfinite(v->origin->dtype, w->in, n, &t.n_source_nan, &t.n_source_inf);
    t.n_nan = t.n_source_nan;
    t.n_inf = t.n_source_inf;
    if (v->t->dtype != v->origin->dtype) {
        t.n_nan = t.n_inf = 0;
        ckpt_count_nonfinite(v->t->dtype, result, n, &t.n_nan, &t.n_inf);
        ckpt_count_lost(&t.lost, v->t->dtype, v->origin->dtype, result, w->in, n);
    }
    if (!t.n_nan && !t.n_inf && !t.n_source_nan && !t.n_source_inf && !t.lost.n_over &&
        !t.lost.n_zero)
        return;
    work_add(&w->tally, &t);
    pthread_mutex_lock(&w->work->lock);
    work_add(&w->work->tally[job->tensor], &t);
    pthread_mutex_unlock(&w->work->lock);
}

/*
 * One job from reading to writing.  Comparing looks at the values as they were stored, before any
 * conversion.
 */
static int work_job(ckpt_worker *w, const ckpt_job *job, ckpt_err *err)
{
    const ckpt_plan *plan = w->work->plan;
    ckpt_job_view v;
    uint64_t n_read = w->gather.n_read, n_bytes;
    const uint8_t *result;
    int rc = work_buffer(&w->in, plan->block, err);

    ckpt_job_look(&v, plan, job);
    if (rc == CKPT_OK)
        rc = work_values(w, &v, job, err);
    if (rc != CKPT_OK)
        return rc;
    result = w->in;
    if (v.t->dtype != v.origin->dtype) {
        rc = work_buffer(&w->out, plan->block, err);
        if (rc == CKPT_OK)
            ckpt_cast_find(v.t->dtype, v.origin->dtype)(w->out, w->in, (size_t)job->count);
        result = w->out;
    }
    if (rc == CKPT_OK) {
        work_count(w, &v, job, result);
        rc = work_write(w, &v, result, job->count, err);
    }
    w->n_elems += job->count;
    n_bytes = ckpt_job_bytes(v.t->dtype, job->count);
    return rc != CKPT_OK
               ? rc
               : ckpt_progress_add(w->work->progress, w->gather.n_read - n_read + n_bytes, err);
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
