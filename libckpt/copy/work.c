/*
 * work.c: what a worker does with a job.
 */
#include <math.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/work.h"

void ckpt_worker_init(ckpt_worker *w, ckpt_work *work)
{
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
    ckpt_free(w->pending.bytes);
    *w = (ckpt_worker){0};
}

/* Buffers are made when first needed: a run without twins or casts has none for them. */
static int work_buffer(uint8_t **p, uint64_t n, ckpt_err *err)
{
    if (*p == NULL)
        *p = ckpt_alloc(n > 0 ? (size_t)n : 1);
    return *p == NULL ? ckpt_fail_memory(err) : CKPT_OK;
}

/* ---- comparing with the lower precision copy ---- */

/* One element as a number, for messages. */
static double work_number(ckpt_dtype d, const void *p)
{
    ckpt_cast_fn wide = ckpt_cast_find(CKPT_F64, d);
    double x = (double)NAN;

    if (wide != NULL)
        wide(&x, p, 1);
    return x;
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

/*
 * Tell that the k-th element of a job differs from its copy: once for each tensor, and, where
 * problems are failures, only when all records' CRCs have held: damage explains more than a
 * mismatch does.
 */
static int work_mismatch(ckpt_worker *w, const ckpt_job_view *v, uint32_t tensor, uint64_t k,
                         ckpt_err *err)
{
    ckpt_work *work = w->work;
    ckpt_dtype d = v->origin->twin->dtype;
    uint64_t size = ckpt_job_bytes(v->origin->dtype, 1), small = ckpt_job_bytes(d, 1);
    ckpt_err local = {0};
    int rc = CKPT_OK;

    pthread_mutex_lock(&work->lock);
    if (!work->reported[tensor]) {
        work->reported[tensor] = 1;
        rc = ckpt_map_problem(work->plan->to, CKPT_EMISMATCH, &local,
                              "%s: tensor %s: element %" PRIu64
                              ": master value %.9g rounds to %.9g, but the %s copy holds "
                              "%.9g: a shard may be damaged or of another save",
                              work_file(work->plan->from, v->origin->twin), v->origin->name,
                              work_element(v, k), work_number(v->origin->dtype, w->in + k * size),
                              work_number(d, w->out + k * small), ckpt_dtype_name(d),
                              work_number(d, w->twin + k * small));
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

/* Element by element, because something differs: masters that are not finite prove nothing and do
 * not count. */
static int work_compare_each(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job,
                             ckpt_err *err)
{
    const uint8_t *rounded = w->out;
    uint64_t size = ckpt_job_bytes(v->origin->twin->dtype, 1),
             wide = ckpt_job_bytes(v->origin->dtype, 1);
    int rc = CKPT_OK;

    for (uint64_t k = 0; rc == CKPT_OK && k < job->count; k++) {
        uint64_t n_nan = 0, n_inf = 0;

        if (memcmp(rounded + k * size, w->twin + k * size, (size_t)size) == 0) {
            w->n_compared++;
            continue;
        }
        ckpt_count_nonfinite(v->origin->dtype, w->in + k * wide, 1, &n_nan, &n_inf);
        if (n_nan + n_inf == 0)
            rc = work_mismatch(w, v, job->tensor, k, err);
    }
    return rc;
}

/* The gathered masters against their copy: both are read, the masters rounded, the bits compared.
 */
static int work_compare(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job, ckpt_err *err)
{
    const ckpt_tensor *twin = v->origin->twin;
    ckpt_cast_fn round = ckpt_cast_find(twin->dtype, v->origin->dtype);
    uint64_t n_bytes = ckpt_job_bytes(twin->dtype, job->count);
    int rc = work_buffer(&w->twin, w->work->plan->block, err);

    if (rc == CKPT_OK)
        rc = work_buffer(&w->out, w->work->plan->block, err);
    if (rc == CKPT_OK)
        rc = ckpt_gather_region(&w->gather, twin, v->region, v->n_axes, w->twin, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_gather_resolve(twin, w->twin, job->count);
    // The result buffer is still free at this point: the rounded values borrow it.
    round(w->out, w->in, (size_t)job->count);
    if (memcmp(w->out, w->twin, (size_t)n_bytes) != 0)
        return work_compare_each(w, v, job, err);
    w->n_compared += job->count;
    return CKPT_OK;
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
    w->n_written += n;
    if (s->kind == CKPT_SOURCE_MEMORY) {
        uint8_t *to = s->memory;

        memcpy(to + at, bytes, (size_t)n);
        return CKPT_OK;
    }
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

/* Values that are not finite: summed for the report, and by tensor. */
static void work_count(ckpt_worker *w, const ckpt_job_view *v, const ckpt_job *job)
{
    uint64_t n_nan = 0, n_inf = 0;

    ckpt_count_nonfinite(v->origin->dtype, w->in, (size_t)job->count, &n_nan, &n_inf);
    if (n_nan + n_inf == 0)
        return;
    w->n_nan += n_nan;
    w->n_inf += n_inf;
    pthread_mutex_lock(&w->work->lock);
    w->work->nonfinite[job->tensor][0] += n_nan;
    w->work->nonfinite[job->tensor][1] += n_inf;
    pthread_mutex_unlock(&w->work->lock);
}

/*
 * One job from reading to writing.  Counting and comparing look at the values as they were stored,
 * before any conversion: what is not finite is the checkpoint's doing, not ours.
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
        rc = ckpt_gather_region(&w->gather, v.origin, v.region, v.n_axes, w->in, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_gather_resolve(v.origin, w->in, job->count);
    work_count(w, &v, job);
    if (v.origin->twin != NULL)
        rc = work_compare(w, &v, job, err);
    result = w->in;
    if (rc == CKPT_OK && v.t->dtype != v.origin->dtype) {
        rc = work_buffer(&w->out, plan->block, err);
        if (rc == CKPT_OK)
            ckpt_cast_find(v.t->dtype, v.origin->dtype)(w->out, w->in, (size_t)job->count);
        result = w->out;
    }
    if (rc == CKPT_OK)
        rc = work_write(w, &v, result, job->count, err);
    w->n_elems += job->count;
    n_bytes = ckpt_job_bytes(v.t->dtype, job->count);
    return rc != CKPT_OK
               ? rc
               : ckpt_progress_add(w->work->progress, w->gather.n_read - n_read + n_bytes, err);
}

int ckpt_worker_jobs(ckpt_worker *w, size_t first, size_t end, ckpt_err *err)
{
    int rc = CKPT_OK;

    w->pending.n = 0;
    for (size_t i = first; rc == CKPT_OK && i < end; i++)
        rc = work_job(w, &w->work->plan->jobs.at[i], err);
    return rc == CKPT_OK ? work_flush(w, err) : rc;
}
