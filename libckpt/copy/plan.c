/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c: pairs target tensors with their origins, and cuts target extents into jobs.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/weigh.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/mean.h"
#include "libckpt/copy/nested.h"
#include "libckpt/copy/plan.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"

enum {
    PLAN_BLOCK = 4 * 1024 * 1024, /* default limit of a job's bytes */
    /* bytes of most jobs: larger ones do not fit the processor's caches */
    PLAN_BEST = 1024 * 1024,
    PLAN_SCATTERED = 16 * 1024 * 1024, /* bytes of jobs with a scattered source */
    PLAN_MANY = 1 << 20, /* jobs: a plan of terabytes makes them longer instead of more */
    PLAN_PACK = 8        /* elements, or elements of a block: jobs are cut at multiples */
};

uint64_t ckpt_job_bytes(ckpt_dtype d, uint64_t n_elems)
{
    const ckpt_dtype_info *info = ckpt_dtype_get(d);

    // Divide first: the product could overflow although the result fits in memory or a file.
    return n_elems / info->per * info->bytes + n_elems % info->per * info->bytes / info->per;
}

uint64_t ckpt_job_widest(const ckpt_tensor *t, uint64_t n_elems)
{
    uint64_t most = ckpt_job_bytes(t->dtype, n_elems), wide;

    if (t->addend && (wide = ckpt_job_bytes(ckpt_mean_dtype(t->dtype), n_elems)) > most)
        most = wide;
    for (const ckpt_tensor *slice = t; slice; slice = slice->addend) {
        for (const ckpt_tensor *twin = slice->twin; twin; twin = twin->twin) {
            wide = ckpt_job_bytes(twin->dtype, n_elems);
            most = wide > most ? wide : most;
        }
    }
    return most;
}

/*
 * Compute the axes of a job in a box: `first` is a position, `count` elements from there are part
 * of a row, or whole rows of one outer axis. Outer axes are then single positions, inner ones
 * complete.
 */
static void plan_box_region(ckpt_job_view *v, const ckpt_job *job)
{
    uint64_t inner = ckpt_extent_count(v->e), at = job->first, left = job->count;

    v->to = v->e->at;
    for (uint32_t i = 0; i < v->e->ndim; i++) {
        const ckpt_axis *a = &v->e->axis[i];
        uint64_t index, n;

        inner /= a->count;
        index = at / inner;
        at %= inner;
        // Less than a row of this axis: one position, and the cut is on an inner axis.
        n = left >= inner ? left / inner : 1;
        if (left >= inner)
            left = inner;
        v->region[i] = (ckpt_axis){a->start + index, n, a->stride};
        v->to += index * (uint64_t)a->stride;
    }
}

void ckpt_job_look(ckpt_job_view *v, const ckpt_plan *plan, const ckpt_job *job)
{
    assert(job->tensor < plan->to->tensors.n);
    assert(plan->origin[job->tensor] && job->extent < plan->to->tensors.at[job->tensor]->n_extents);
    v->t = plan->to->tensors.at[job->tensor];
    v->origin = plan->origin[job->tensor];
    v->e = ckpt_extent_of(v->t, job->extent, &v->room);
    v->n_axes = v->e->ndim;
    if (v->n_axes == 1) {
        const ckpt_axis *a = &v->e->axis[0];

        v->region[0] = (ckpt_axis){a->start + job->first, job->count, a->stride};
        v->to = v->e->at + (a->stride != 0 ? job->first * (uint64_t)a->stride
                                           : ckpt_job_bytes(v->t->dtype, job->first));
    } else {
        plan_box_region(v, job);
    }
}

int ckpt_job_spread(const ckpt_job_view *v, const uint8_t *bytes, uint64_t count,
                    ckpt_job_put_fn put, void *ctx, ckpt_err *err)
{
    uint64_t index[CKPT_MAX_DIM] = {0};
    uint64_t run = ckpt_job_bytes(v->t->dtype, 1), total = ckpt_job_bytes(v->t->dtype, count);
    unsigned n = v->n_axes;
    uint64_t at = v->to;

    // Packed dtypes have no stride: they are always contiguous.
    if (ckpt_dtype_packed(v->t->dtype))
        return put(ctx, bytes, total, at, err);
    while (n > 0 && (v->region[n - 1].count == 1 || v->region[n - 1].stride == (int64_t)run))
        run *= v->region[--n].count;
    for (uint64_t done = 0; done < total; done += run) {
        int rc = put(ctx, bytes + done, run, at, err);

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

uint64_t ckpt_job_end(const ckpt_job_view *v, uint64_t count)
{
    uint64_t end = v->to + ckpt_job_bytes(v->t->dtype, 1);

    if (ckpt_dtype_packed(v->t->dtype))
        return v->to + ckpt_job_bytes(v->t->dtype, count);
    for (unsigned i = 0; i < v->n_axes; i++)
        end += (v->region[i].count - 1) * (uint64_t)v->region[i].stride;
    return end;
}

/* True if two tensors have the same axes. */
static bool plan_same_shape(const ckpt_tensor *a, const ckpt_tensor *b)
{
    return a->ndim == b->ndim && a->n_elems == b->n_elems &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* Check that all copies of a tensor have its shape and a comparable dtype. */
static int plan_check_twins(const ckpt_tensor *o, ckpt_err *err)
{
    for (const ckpt_tensor *twin = o->twin; twin != NULL; twin = twin->twin) {
        bool same = twin->dtype == o->dtype && !ckpt_dtype_packed(o->dtype);

        if (!same && !ckpt_cast_find(twin->dtype, o->dtype))
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "tensor %s: %s values cannot be compared with their %s copy", o->name,
                             ckpt_dtype_name(o->dtype), ckpt_dtype_name(twin->dtype));
        if (!plan_same_shape(o, twin))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor %s: %" PRIu64 " elements on %" PRIu32
                             " axes, but its copy has %" PRIu64 " on %" PRIu32,
                             o->name, o->n_elems, o->ndim, twin->n_elems, twin->ndim);
    }
    return CKPT_OK;
}

/* Check that a mean exists: addends of the same shape and dtype, and a dtype with a mean. */
static int plan_check_addends(const ckpt_tensor *o, ckpt_err *err)
{
    int rc = CKPT_OK;

    if (o->addend && ckpt_mean_dtype(o->dtype) == CKPT_DTYPE_NONE)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "tensor %s: a mean of %s values cannot be computed", o->name,
                         ckpt_dtype_name(o->dtype));
    for (const ckpt_tensor *a = o->addend; rc == CKPT_OK && a; a = a->addend) {
        if (a->dtype != o->dtype || !plan_same_shape(o, a))
            return ckpt_fail(err, CKPT_EMISMATCH,
                             "tensor %s: cannot average slices that differ: %" PRIu64
                             " elements of %s on %" PRIu32 " axes, %" PRIu64 " of %s on %" PRIu32,
                             o->name, o->n_elems, ckpt_dtype_name(o->dtype), o->ndim, a->n_elems,
                             ckpt_dtype_name(a->dtype), a->ndim);
        rc = plan_check_twins(a, err);
    }
    return rc;
}

/* The tensor with the values of a target tensor (the owner, if it is tied); NULL: there is none. */
static const ckpt_tensor *plan_origin(const ckpt_plan *p, const ckpt_tensor *t, const char *name)
{
    size_t at = t->donor ? 0 : ckpt_map_index(p->from, name, strlen(name));
    const ckpt_tensor *o = t->donor;

    if (at == SIZE_MAX)
        return NULL;
    if (!o)
        o = p->from->tensors.at[at];
    // A tied tensor has its owner's bytes. Owners are not tied themselves, but following a chain
    // costs nothing.
    for (unsigned n = 0; o->owner && n < 8; n++)
        o = o->owner;
    return o;
}

/* Find and check the origin of one target tensor: presence, shape and dtype. */
static int plan_pair(ckpt_plan *p, size_t i, ckpt_err *err)
{
    const ckpt_tensor *t = p->to->tensors.at[i];
    const char *name = t->origin ? t->origin : t->name;
    const ckpt_tensor *o = plan_origin(p, t, name);
    int rc;

    if (!o)
        return ckpt_fail(err, CKPT_EMISSING, "tensor %s: its source tensor %s is missing", t->name,
                         name);
    p->origin[i] = (ckpt_tensor *)(uintptr_t)o;
    if (!plan_same_shape(t, o))
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "tensor %s: it has %" PRIu64 " elements on %" PRIu32
                         " axes, but its source has %" PRIu64 " on %" PRIu32,
                         t->name, t->n_elems, t->ndim, o->n_elems, o->ndim);
    if (t->dtype != o->dtype && !ckpt_cast_find(t->dtype, o->dtype))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "tensor %s: %s cannot be converted to %s; leave its dtype as it is",
                         t->name, ckpt_dtype_name(o->dtype), ckpt_dtype_name(t->dtype));
    rc = plan_check_twins(o, err);
    return rc == CKPT_OK ? plan_check_addends(o, err) : rc;
}

static uint64_t plan_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bytes of n elements in the widest dtype of a worker's buffers. */
static uint64_t plan_width(const ckpt_tensor *t, const ckpt_tensor *o, uint64_t n)
{
    return plan_max(ckpt_job_bytes(t->dtype, n), ckpt_job_widest(o, n));
}

/* True if a source of the target lies in a file that another process writes. */
static bool plan_elsewhere(const ckpt_plan *p, uint32_t source)
{
    const ckpt_source *s = source < p->to->sources.n ? &p->to->sources.at[source] : NULL;

    return s && s->kind == CKPT_SOURCE_FILE && s->file < p->to->files.n &&
           p->to->files.at[s->file].elsewhere;
}

/* The nested source of an origin's extent, or NULL. */
static const ckpt_source *plan_nest(const ckpt_plan *p, const ckpt_extent *e)
{
    const ckpt_sources *all = &p->from->sources;

    return e->source < all->n && ckpt_source_nested(&all->at[e->source]) ? &all->at[e->source]
                                                                         : NULL;
}

static double plan_cost(const ckpt_plan *p, const ckpt_tensor *t, unsigned depth);

/* Bytes to read for all of a source: its own, or those of the tensors inside. */
static double plan_source_cost(const ckpt_plan *p, const ckpt_source *s, unsigned depth)
{
    const ckpt_tensor *in;
    double cost = 0;

    if (!ckpt_source_nested(s) || depth > CKPT_NEST_MAX)
        return (double)s->n_bytes;
    for (uint32_t i = 0; (in = ckpt_source_input(s, i)) != NULL; i++)
        cost += plan_cost(p, in->owner ? in->owner : in, depth + 1);
    return cost;
}

/* Bytes to read for all of one slice or copy; of a nested source the fraction that it uses. */
static double plan_one_cost(const ckpt_plan *p, const ckpt_tensor *t, unsigned depth)
{
    double cost = 0;

    for (uint32_t i = 0; i < t->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(t, i, &room);
        double bytes = (double)ckpt_job_bytes(t->dtype, ckpt_extent_count(e));
        const ckpt_source *s = plan_nest(p, e);

        if (s && s->n_bytes > 0)
            bytes *= plan_source_cost(p, s, depth) / (double)s->n_bytes;
        cost += bytes;
    }
    return cost;
}

/* Bytes to read for all of a tensor: each slice and each copy once. */
static double plan_cost(const ckpt_plan *p, const ckpt_tensor *t, unsigned depth)
{
    double cost = 0;

    for (const ckpt_tensor *slice = t; slice != NULL; slice = slice->addend) {
        for (const ckpt_tensor *twin = slice; twin != NULL; twin = twin->twin)
            cost += plan_one_cost(p, twin, depth);
    }
    return cost;
}

/* True if some of a tensor's elements are in a nested source. */
static bool plan_nested(const ckpt_plan *p, const ckpt_tensor *o)
{
    ckpt_box room;

    for (uint32_t i = 0; i < o->n_extents; i++) {
        if (plan_nest(p, ckpt_extent_of(o, i, &room)))
            return true;
    }
    return false;
}

/* Bytes to read for all of an origin, from files and memory. */
static double plan_reads(const ckpt_plan *p, const ckpt_tensor *o)
{
    double n = 0;

    if (plan_nested(p, o))
        return plan_cost(p, o, 0);
    for (const ckpt_tensor *slice = o; slice != NULL; slice = slice->addend) {
        for (const ckpt_tensor *twin = slice; twin != NULL; twin = twin->twin)
            n += (double)ckpt_job_bytes(twin->dtype, twin->n_elems);
    }
    return n;
}

double ckpt_plan_reads(const ckpt_plan *plan, size_t i)
{
    assert(plan && i < plan->to->tensors.n);
    return plan->origin[i] ? plan_reads(plan, plan->origin[i]) : 0;
}

/* Add the costs of n elements of a tensor. */
static void plan_count(ckpt_plan *p, const ckpt_tensor *t, const ckpt_tensor *o, uint64_t n)
{
    p->n_elems += n;
    p->n_write += ckpt_job_bytes(t->dtype, n);
    p->n_read += (uint64_t)(plan_reads(p, o) * (double)n / (double)o->n_elems + 0.5);
    for (const ckpt_tensor *slice = o; slice != NULL; slice = slice->addend) {
        for (const ckpt_tensor *twin = slice->twin; twin != NULL; twin = twin->twin)
            p->n_compare += n;
    }
}

/*
 * True if adjacent elements of a tensor are apart in its source: a transposed view, a column. Each
 * job then reads the source in many places, and a larger job finds more elements in each of them.
 */
static bool plan_scattered(const ckpt_plan *p, const ckpt_tensor *o, unsigned depth)
{
    int64_t item = (int64_t)ckpt_job_bytes(o->dtype, 1);

    for (uint32_t i = 0; i < o->n_extents; i++) {
        ckpt_box room;
        const ckpt_extent *e = ckpt_extent_of(o, i, &room);
        uint32_t k = e->ndim;

        while (k > 0 && e->axis[k - 1].count <= 1)
            k--;
        if (k > 0 && e->axis[k - 1].stride > item)
            return true;
        const ckpt_source *s = plan_nest(p, e);
        if (s && s->kind == CKPT_SOURCE_TENSOR && depth < CKPT_NEST_MAX &&
            plan_scattered(p, s->tensor->owner ? s->tensor->owner : s->tensor, depth + 1))
            return true;
    }
    return false;
}

/* Elements per job: the block, or less, in the widest dtype; whole blocks of packed elements. */
static uint64_t plan_step(const ckpt_plan *p, const ckpt_tensor *t, const ckpt_tensor *o,
                          uint64_t block)
{
    uint64_t best = plan_max(plan_scattered(p, o, 0) ? PLAN_SCATTERED : PLAN_BEST, p->best), n;
    // all sizes are powers of two, so the largest is a multiple of the others
    uint64_t pack =
        plan_max(PLAN_PACK, plan_max(ckpt_dtype_get(t->dtype)->per, ckpt_dtype_get(o->dtype)->per));

    if (block > best)
        block = best;
    n = block / plan_max(plan_width(t, o, pack), 1) * pack;
    // the importance of columns applies to complete rows
    if (t->importance)
        return plan_max(n / t->importance->columns, 1) * t->importance->columns;
    return plan_max(n, pack);
}

/*
 * A plan under construction. Jobs are ordered by file, while target tensors usually have parts in
 * all files. Therefore a first pass counts the jobs, and a second one cuts again and puts each job
 * at its place.
 */
typedef struct plan_make {
    ckpt_plan *p;
    uint64_t block; /* bytes of a job at most */
    /*
     * per target file, and for targets outside of files: number of jobs; then the place of the next
     * one
     */
    uint64_t *at;
    bool placing; /* second pass: put jobs at their places */
    /* elements of all jobs of the current tensor, and of its longest job */
    uint64_t n_elems, longest;
    ckpt_err *err;
} plan_make;

/* The file of a target extent; the number of files if it has none. */
static size_t plan_file(const ckpt_plan *p, const ckpt_extent *e)
{
    const ckpt_source *s = &p->to->sources.at[e->source];

    return s->kind == CKPT_SOURCE_FILE ? s->file : p->to->files.n;
}

/* Count or place one job of an extent in this file. */
static void plan_push(plan_make *m, size_t file, const ckpt_job *job)
{
    if (m->placing)
        m->p->jobs.at[m->at[file]] = *job;
    m->at[file]++;
    m->n_elems += job->count;
    m->longest = plan_max(m->longest, job->count);
}

/*
 * Compute the elements of a row, the largest product of innermost axes that fits the step, and the
 * number of such rows on the next axis.
 */
static void plan_rows(const ckpt_extent *e, uint64_t step, uint64_t *row, uint64_t *side)
{
    uint32_t k = e->ndim;

    *row = 1;
    while (k > 0 && e->axis[k - 1].count <= step / *row)
        *row *= e->axis[--k].count;
    *side = k > 0 ? e->axis[k - 1].count : 1;
}

/* Cut one extent into jobs, ascending. */
static int plan_cut(plan_make *m, size_t tensor, uint32_t extent, uint64_t step)
{
    const ckpt_map *to = m->p->to;
    ckpt_box room;
    const ckpt_extent *e = ckpt_extent_of(to->tensors.at[tensor], extent, &room);
    uint64_t total = ckpt_extent_count(e), row, side, run;

    if (e->source >= to->sources.n)
        return ckpt_fail(m->err, CKPT_EUSAGE, "tensor %s: the target map has no source %" PRIu32,
                         to->tensors.at[tensor]->name, e->source);
    if (total == 0)
        return CKPT_OK;
    const size_t file = plan_file(m->p, e);
    if (file > to->files.n)
        return ckpt_fail(m->err, CKPT_EUSAGE, "tensor %s: the target map has no file %zu",
                         to->tensors.at[tensor]->name, file);
    plan_rows(e, step, &row, &side);
    // A job stays inside one position of the next outer axis, because its rows are contiguous only
    // there.
    run = step / row * row;
    for (uint64_t base = 0; base < total; base += row * side) {
        for (uint64_t at = 0; at < row * side; at += run) {
            uint64_t left = row * side - at;
            const ckpt_job job = {(uint32_t)tensor, extent, base + at, left < run ? left : run};

            plan_push(m, file, &job);
        }
    }
    return CKPT_OK;
}

/*
 * Cut one target tensor into jobs; aliases have none, because the owner's jobs write their bytes.
 */
static int plan_jobs(plan_make *m, size_t i)
{
    const ckpt_plan *p = m->p;
    const ckpt_tensor *t = p->to->tensors.at[i], *o = p->origin[i];
    int rc = CKPT_OK;

    m->n_elems = m->longest = 0;
    if (!o || t->n_elems == 0)
        return CKPT_OK;
    uint64_t step = plan_step(p, t, o, m->block);
    for (uint32_t k = 0; rc == CKPT_OK && k < t->n_extents; k++)
        rc = plan_elsewhere(p, ckpt_extent_source(t, k)) ? CKPT_OK : plan_cut(m, i, k, step);
    return rc;
}

/* Find the origin, the sizes and the number of jobs of one target tensor. */
static int plan_tensor(plan_make *m, size_t i)
{
    ckpt_plan *p = m->p;
    const ckpt_tensor *t = p->to->tensors.at[i];
    int rc;

    if (t->owner)
        return CKPT_OK;
    rc = plan_pair(p, i, m->err);
    if (rc != CKPT_OK || t->n_elems == 0)
        return rc;
    rc = ckpt_extent_check(t, m->err);
    if (rc == CKPT_OK)
        rc = plan_jobs(m, i);
    p->block = plan_max(p->block, plan_width(t, p->origin[i], m->longest));
    plan_count(p, t, p->origin[i], m->n_elems);
    return rc;
}

/* A job with its sort key. */
typedef struct plan_key {
    uint64_t at; /* offset in the file */
    ckpt_job job;
    uint32_t file;
} plan_key;

/* Compute the place of a job's first byte. */
static void plan_key_of(plan_key *k, const ckpt_plan *p, const ckpt_job *job)
{
    ckpt_job_view v;
    const ckpt_source *s;

    ckpt_job_look(&v, p, job);
    s = &p->to->sources.at[v.e->source];
    // Jobs for targets outside of files have no order: they come last, tensor by tensor.
    *k = (plan_key){.job = *job, .file = UINT32_MAX};
    if (s->kind == CKPT_SOURCE_FILE) {
        k->file = s->file;
        k->at = s->at + v.to;
    }
}

static int plan_order(const void *pa, const void *pb)
{
    const plan_key *a = pa, *b = pb;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->job.tensor != b->job.tensor)
        return a->job.tensor < b->job.tensor ? -1 : 1;
    if (a->job.extent != b->job.extent)
        return a->job.extent < b->job.extent ? -1 : 1;
    return (a->job.first > b->job.first) - (a->job.first < b->job.first);
}

/*
 * True if a file's jobs are already in order, as in most files: sort keys are made only for the
 * others.
 */
static bool plan_sorted(const ckpt_plan *p, const ckpt_job *job, uint64_t n)
{
    plan_key last = {0};

    for (uint64_t i = 0; i < n; i++) {
        plan_key k;

        plan_key_of(&k, p, &job[i]);
        if (i > 0 && plan_order(&last, &k) > 0)
            return false;
        last = k;
    }
    return true;
}

/* Sort the jobs of one file by their bytes, so that workers write forwards. */
static int plan_sort(const ckpt_plan *p, ckpt_job *job, uint64_t n, ckpt_err *err)
{
    plan_key *key;

    if (plan_sorted(p, job, n))
        return CKPT_OK;
    key = ckpt_alloc(n * sizeof *key);
    if (!key)
        return ckpt_fail_memory(err);
    for (uint64_t i = 0; i < n; i++)
        plan_key_of(&key[i], p, &job[i]);
    qsort(key, n, sizeof *key, plan_order);
    for (uint64_t i = 0; i < n; i++)
        job[i] = key[i].job;
    ckpt_free(key);
    return CKPT_OK;
}

/* Place all jobs, file by file, after they were counted. */
static int plan_place(plan_make *m)
{
    ckpt_plan *p = m->p;
    uint64_t n = 0, from = 0;
    int rc = CKPT_OK;

    for (size_t i = 0; i <= p->to->files.n; i++) {
        uint64_t own = m->at[i];

        m->at[i] = n;
        n += own;
    }
    if (n == 0)
        return CKPT_OK;
    p->jobs.at = ckpt_resize(NULL, n * sizeof *p->jobs.at);
    if (!p->jobs.at)
        return ckpt_fail_memory(m->err);
    p->jobs.n = p->jobs.room = n;
    m->placing = true;
    for (size_t i = 0; rc == CKPT_OK && i < p->to->tensors.n; i++)
        rc = plan_jobs(m, i);
    for (size_t i = 0; rc == CKPT_OK && i <= p->to->files.n; i++) {
        rc = plan_sort(p, p->jobs.at + from, m->at[i] - from, m->err);
        from = m->at[i];
    }
    return rc;
}

/* Bytes of all target tensors; UINT64_MAX on overflow. */
static uint64_t plan_total(const ckpt_map *to)
{
    uint64_t total = 0;

    for (size_t i = 0; i < to->tensors.n; i++) {
        if (!ckpt_add(total, ckpt_job_bytes(to->tensors.at[i]->dtype, to->tensors.at[i]->n_elems),
                      &total))
            return UINT64_MAX;
    }
    return total;
}

int ckpt_plan_make(ckpt_plan **out, const ckpt_map *from, ckpt_map *to, uint64_t block,
                   ckpt_err *err)
{
    assert(out && from && to);
    ckpt_plan *p = ckpt_alloc(sizeof *p);
    plan_make m = {.p = p, .block = block > 0 ? block : PLAN_BLOCK, .err = err};
    int rc = p ? ckpt_map_readable(from, err) : ckpt_fail_memory(err);

    *out = NULL;
    if (rc != CKPT_OK) {
        ckpt_free(p);
        return rc;
    }
    p->from = from;
    p->to = to;
    p->origin = ckpt_alloc((to->tensors.n + 1) * sizeof *p->origin);
    m.at = ckpt_alloc((to->files.n + 1) * sizeof *m.at);
    if (!p->origin || !m.at)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK && to->tensors.n > UINT32_MAX)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%zu tensors are too many", to->tensors.n);
    p->best = plan_total(to) / PLAN_MANY;
    for (size_t i = 0; rc == CKPT_OK && i < to->tensors.n; i++)
        rc = plan_tensor(&m, i);
    if (rc == CKPT_OK)
        rc = ckpt_settle_all(from, (const ckpt_tensor *const *)p->origin, to->tensors.n, err);
    if (rc == CKPT_OK)
        rc = plan_place(&m);
    ckpt_free(m.at);
    if (rc == CKPT_OK)
        *out = p;
    else
        ckpt_plan_free(p);
    return rc;
}

void ckpt_plan_sizes(const ckpt_plan *plan, uint64_t *n_read, uint64_t *n_write, uint64_t *n_jobs)
{
    if (n_read)
        *n_read = plan ? plan->n_read : 0;
    if (n_write)
        *n_write = plan ? plan->n_write : 0;
    if (n_jobs)
        *n_jobs = plan ? plan->jobs.n : 0;
}

void ckpt_plan_free(ckpt_plan *p)
{
    if (!p)
        return;
    ckpt_vec_free(&p->jobs);
    ckpt_free(p->origin);
    ckpt_free(p);
}
