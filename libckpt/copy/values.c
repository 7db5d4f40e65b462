/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.c: compares values with copies, computes means, and reads nested sources.
 *
 * A separate ckpt_values reads the tensors inside a nested source, because the buffers of the outer
 * one are in use at that time. There are at most CKPT_NEST_MAX of them, of bounded size.
 */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/dtype.h"
#include "libckpt/copy/job.h"
#include "libckpt/copy/mean.h"
#include "libckpt/copy/values.h"

/*
 * States of an operation's preparation. One lock serves the process; it is free during a
 * preparation.
 */
enum { VS_RAW, VS_PREPARING, VS_READY };
static pthread_mutex_t vs_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t vs_changed = PTHREAD_COND_INITIALIZER;

/* The functions that an operation gets, with their data. */
typedef struct vs_inputs {
    ckpt_inputs in; /* first, so that a pointer to it is a pointer to vs_inputs */
    ckpt_values *v;
    uint8_t *scratch, *kept;
    uint64_t n_scratch, n_kept;
    const void *owner; /* the operation that made the kept bytes */
} vs_inputs;

/* Buffers are allocated at first use, because most runs do not need them. */
static int vs_buffer(uint8_t **p, uint64_t n, ckpt_err *err)
{
    if (!*p)
        *p = ckpt_alloc(n > 0 ? (size_t)n : 1);
    return !*p ? ckpt_fail_memory(err) : CKPT_OK;
}

uint8_t *ckpt_values_spare(ckpt_values *v)
{
    ckpt_err ignored = {0};

    return vs_buffer(&v->spare, v->room, &ignored) == CKPT_OK ? v->spare : NULL;
}

/* Elements of a tensor that fit the buffers; packed ones are cut at the ends of blocks. */
static uint64_t vs_step(const ckpt_values *v, const ckpt_tensor *t)
{
    uint64_t per = ckpt_dtype_get(t->dtype)->per;

    per = per > 8 ? per : 8;
    return v->room / ckpt_job_widest(t, per) * per;
}

/* ---- comparing with copies ---- */

/* A region of a tensor with its values in a buffer. */
typedef struct vs_region {
    const ckpt_tensor *head, *self;
    const ckpt_axis *axis;
    unsigned n_axes;
    uint64_t n; /* elements */
    const uint8_t *value;
} vs_region;

/* Index in the flattened tensor of the k-th element of a region. */
static uint64_t vs_element(const vs_region *r, uint64_t k)
{
    uint64_t at = 0, weight = 1;

    if (r->n_axes == 1)
        return r->axis[0].start + k;
    for (unsigned i = r->n_axes; i-- > 0;) {
        at += (r->axis[i].start + k % r->axis[i].count) * weight;
        k /= r->axis[i].count;
        weight *= r->self->shape[i];
    }
    return at;
}

/*
 * True if a difference does not count: the master is not finite, so its rounded value proves
 * nothing; for copies of the same precision it is enough that both are NaN.
 */
static bool vs_excused(const ckpt_unlike *u)
{
    uint64_t n_nan = 0, n_inf = 0, n_other = 0;

    ckpt_count_nonfinite(u->self->dtype, u->value, 1, &n_nan, &n_inf);
    if (u->self->dtype != u->twin->dtype)
        return n_nan + n_inf > 0;
    ckpt_count_nonfinite(u->twin->dtype, u->copy, 1, &n_other, &n_inf);
    return n_nan > 0 && n_other > 0;
}

/*
 * Compare each element after some bytes have differed; differences that do not count are skipped.
 */
static int vs_compare_each(ckpt_values *v, const vs_region *r, const ckpt_tensor *twin,
                           const uint8_t *rounded, ckpt_err *err)
{
    uint64_t size = ckpt_job_bytes(twin->dtype, 1), wide = ckpt_job_bytes(r->self->dtype, 1);
    int rc = CKPT_OK;

    for (uint64_t k = 0; rc == CKPT_OK && k < r->n; k++) {
        ckpt_unlike u = {.head = r->head,
                         .self = r->self,
                         .twin = twin,
                         .element = vs_element(r, k),
                         .value = r->value + k * wide,
                         .rounded = rounded + k * size,
                         .copy = v->twin + k * size};

        if (memcmp(u.rounded, u.copy, (size_t)size) == 0)
            v->n_compared++;
        else if (twin->flags & CKPT_TENSOR_LAGS)
            v->n_unlike++;
        else if (!vs_excused(&u))
            rc = v->unlike(v->ctx, &u, err);
    }
    return rc;
}

/* Compare the values of a region with one copy: read it, round the values, compare the bits. */
static int vs_compare(ckpt_values *v, const vs_region *r, const ckpt_tensor *twin, ckpt_err *err)
{
    const uint8_t *rounded = r->value;
    int rc = vs_buffer(&v->twin, v->room, err);

    if (rc == CKPT_OK && twin->dtype != r->self->dtype)
        rc = vs_buffer(&v->spare, v->room, err);
    if (rc == CKPT_OK)
        rc = ckpt_gather_region(&v->gather, twin, r->axis, r->n_axes, v->twin, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_gather_resolve(twin, v->twin, r->n);
    if (twin->dtype != r->self->dtype) {
        ckpt_cast_find(twin->dtype, r->self->dtype)(v->spare, r->value, (size_t)r->n);
        rounded = v->spare;
    }
    if (memcmp(rounded, v->twin, (size_t)ckpt_job_bytes(twin->dtype, r->n)) != 0)
        return vs_compare_each(v, r, twin, rounded, err);
    v->n_compared += r->n;
    return CKPT_OK;
}

/* ---- regions ---- */

/* Read one tensor's own values and compare them with all copies. */
static int vs_own(ckpt_values *v, vs_region *r, const ckpt_tensor *t, void *buf, ckpt_err *err)
{
    int rc = ckpt_gather_region(&v->gather, t, r->axis, r->n_axes, buf, err);

    if (rc != CKPT_OK)
        return rc;
    ckpt_gather_resolve(t, buf, r->n);
    r->self = t;
    r->value = buf;
    for (const ckpt_tensor *twin = t->twin; rc == CKPT_OK && twin && v->unlike; twin = twin->twin)
        rc = vs_compare(v, r, twin, err);
    return rc;
}

static int vs_nested(void *ctx, const ckpt_source *s, void *to, uint64_t n, uint64_t at,
                     ckpt_err *err);

int ckpt_values_region(ckpt_values *v, const ckpt_tensor *t, const ckpt_region *region, void *buf,
                       ckpt_err *err)
{
    assert(v && t && region && (buf || region->n_elems == 0));
    const uint64_t n_elems = region->n_elems;
    vs_region r = {.head = t, .axis = region->axis, .n_axes = region->n_axes, .n = n_elems};
    uint32_t n = 0;
    int rc;

    v->gather.nested = vs_nested;
    v->gather.nested_ctx = v;
    if (!t->addend)
        return vs_own(v, &r, t, buf, err);
    rc = vs_buffer(&v->sum, v->room, err);
    if (rc != CKPT_OK)
        return rc;
    memset(v->sum, 0, (size_t)ckpt_job_bytes(ckpt_mean_dtype(t->dtype), n_elems));
    for (const ckpt_tensor *a = t; rc == CKPT_OK && a; a = a->addend) {
        rc = vs_own(v, &r, a, buf, err);
        if (rc == CKPT_OK)
            ckpt_mean_add(t->dtype, v->sum, buf, n_elems);
        n++;
    }
    if (rc == CKPT_OK)
        ckpt_mean_end(t->dtype, buf, v->sum, n, n_elems);
    return rc;
}

int ckpt_values_read(ckpt_values *v, const ckpt_tensor *t, uint64_t first, uint64_t n_elems,
                     void *buf, ckpt_err *err)
{
    assert(v && t);
    uint64_t step = vs_step(v, t);
    uint8_t *to = buf;
    int rc = CKPT_OK;

    if (!t->addend && !(t->twin && v->unlike))
        step = n_elems;
    for (uint64_t done = 0; rc == CKPT_OK && done < n_elems; done += step) {
        const ckpt_axis flat = {first + done, n_elems - done < step ? n_elems - done : step, 0};
        const ckpt_region region = {&flat, 1, flat.count};

        rc = ckpt_values_region(v, t, &region, to + ckpt_job_bytes(t->dtype, done), err);
    }
    return rc;
}

enum { VS_UNPACK = 16 * 1024 /* packed elements converted at a time: whole blocks of any type */ };

int ckpt_values_unpack(ckpt_values *v, const ckpt_tensor *t, const ckpt_axis *part,
                       ckpt_dtype dtype, void *buf, ckpt_err *err)
{
    assert(v && t && ckpt_cast_find(dtype, t->dtype) && !ckpt_dtype_packed(dtype));
    ckpt_cast_fn cast = ckpt_cast_find(dtype, t->dtype);
    uint64_t per = ckpt_dtype_get(t->dtype)->per, wide = ckpt_job_bytes(dtype, 1);
    uint64_t at = part->start / per * per, end = part->start + part->count;
    uint8_t *packed = ckpt_alloc((size_t)ckpt_job_bytes(t->dtype, VS_UNPACK));
    uint8_t *made = ckpt_alloc((size_t)wide * VS_UNPACK), *to = buf;
    int rc = packed && made ? CKPT_OK : ckpt_fail_memory(err);

    for (; rc == CKPT_OK && at < end; at += VS_UNPACK) {
        uint64_t skip = at < part->start ? part->start - at : 0;
        uint64_t some = (end - at < VS_UNPACK ? end - at : VS_UNPACK) - skip;
        uint64_t n = (skip + some + per - 1) / per * per; // the tensor has whole blocks

        rc = ckpt_values_read(v, t, at, n, packed, err);
        if (rc != CKPT_OK)
            break;
        cast(made, packed, (size_t)n);
        memcpy(to, made + skip * wide, (size_t)(some * wide));
        to += some * wide;
    }
    ckpt_free(packed);
    ckpt_free(made);
    return rc;
}

/* ---- nested sources ---- */

/* Make the inner ckpt_values for tensors inside those that v reads. */
static int vs_inner(ckpt_values *v, ckpt_err *err)
{
    ckpt_values *in = v->inner;

    if (in)
        return CKPT_OK;
    if (v->depth >= CKPT_NEST_MAX)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "source tensors are nested more than %u deep, or in a circle",
                         CKPT_NEST_MAX);
    in = ckpt_alloc(sizeof *in);
    if (!in)
        return ckpt_fail_memory(err);
    *in = (ckpt_values){.unlike = v->unlike,
                        .ctx = v->ctx,
                        .room = CKPT_VALUES_ROOM,
                        .depth = v->depth + 1,
                        .gather = {.feed = v->gather.feed,
                                   .segments = v->gather.segments,
                                   .touch = v->gather.touch,
                                   .touch_ctx = v->gather.touch_ctx,
                                   .n_stage = v->gather.n_stage}};
    v->inner = in;
    return CKPT_OK;
}

/* Read values in another dtype than the tensor's. */
static int vs_read_as(ckpt_values *v, const ckpt_tensor *t, const ckpt_axis *part, ckpt_dtype dtype,
                      uint8_t *to, ckpt_err *err)
{
    ckpt_cast_fn cast = ckpt_cast_find(dtype, t->dtype);
    uint64_t step = vs_step(v, t);
    int rc = vs_buffer(&v->block, v->room, err);

    if (rc == CKPT_OK && !cast)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s cannot be converted to %s", t->name,
                       ckpt_dtype_name(t->dtype), ckpt_dtype_name(dtype));
    for (uint64_t done = 0; rc == CKPT_OK && done < part->count; done += step) {
        uint64_t n = part->count - done < step ? part->count - done : step;

        rc = ckpt_values_read(v, t, part->start + done, n, v->block, err);
        if (rc == CKPT_OK)
            cast(to + ckpt_job_bytes(dtype, done), v->block, (size_t)n);
    }
    return rc;
}

/* ckpt_inputs.read */
static int vs_inputs_read(ckpt_inputs *in, const ckpt_tensor *t, const ckpt_axis *part,
                          ckpt_dtype dtype, void *buf, ckpt_err *err)
{
    ckpt_values *v = ((vs_inputs *)(void *)in)->v;

    t = t->owner ? t->owner : t;
    if (!ckpt_within(part->start, part->count, t->n_elems))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "tensor %s: cannot read %" PRIu64 " elements from element %" PRIu64
                         ": it has %" PRIu64,
                         t->name, part->count, part->start, t->n_elems);
    if (dtype == CKPT_DTYPE_NONE || dtype == t->dtype)
        return ckpt_values_read(v, t, part->start, part->count, buf, err);
    if (ckpt_dtype_packed(t->dtype) && ckpt_cast_find(dtype, t->dtype))
        return ckpt_values_unpack(v, t, part, dtype, buf, err);
    return vs_read_as(v, t, part, dtype, buf, err);
}

/* ckpt_inputs.scratch */
static void *vs_inputs_scratch(ckpt_inputs *in, uint64_t n)
{
    vs_inputs *i = (vs_inputs *)(void *)in;

    if (n > i->n_scratch || !i->scratch) {
        ckpt_free(i->scratch);
        i->scratch = ckpt_alloc(n > 0 ? (size_t)n : 1);
        i->n_scratch = i->scratch ? n : 0;
    }
    return i->scratch;
}

/* ckpt_inputs.keep */
static void *vs_inputs_keep(ckpt_inputs *in, const void *owner, uint64_t n, bool *fresh)
{
    vs_inputs *i = (vs_inputs *)(void *)in;

    *fresh = i->owner != owner || i->n_kept < n;
    if (i->n_kept < n || !i->kept) {
        ckpt_free(i->kept);
        i->kept = ckpt_alloc(n > 0 ? (size_t)n : 1);
        i->n_kept = i->kept ? n : 0;
    }
    i->owner = i->kept ? owner : NULL;
    return i->kept;
}

/* The input functions for operations at this depth. */
static vs_inputs *vs_inputs_of(ckpt_values *v)
{
    if (!v->inputs)
        v->inputs = ckpt_alloc(sizeof *v->inputs);
    if (v->inputs) {
        v->inputs->in = (ckpt_inputs){vs_inputs_read, vs_inputs_scratch, vs_inputs_keep};
        v->inputs->v = v;
    }
    return v->inputs;
}

/* Prepare an operation, or wait for the thread that does. */
static int vs_prepare(ckpt_make *m, vs_inputs *in, ckpt_err *err)
{
    bool mine;
    int rc = CKPT_OK;

    (void)pthread_mutex_lock(&vs_lock);
    while (m->state == VS_PREPARING)
        (void)pthread_cond_wait(&vs_changed, &vs_lock);
    mine = m->state == VS_RAW;
    if (mine)
        m->state = VS_PREPARING;
    (void)pthread_mutex_unlock(&vs_lock);
    if (!mine)
        return CKPT_OK;
    if (m->prepare)
        rc = m->prepare(m, &in->in, err);
    (void)pthread_mutex_lock(&vs_lock);
    m->state = rc == CKPT_OK ? VS_READY : VS_RAW;
    (void)pthread_cond_broadcast(&vs_changed);
    (void)pthread_mutex_unlock(&vs_lock);
    return rc;
}

/* Compute elements with an operation. */
static int vs_make(ckpt_values *v, ckpt_make *m, void *to, const ckpt_axis *part, ckpt_err *err)
{
    vs_inputs *in = vs_inputs_of(v);
    int rc = !in ? ckpt_fail_memory(err) : vs_prepare(m, in, err);

    for (uint64_t done = 0, n; rc == CKPT_OK && done < part->count; done += n) {
        uint64_t at = part->start + done, most = m->step ? m->step - at % m->step : UINT64_MAX;

        n = part->count - done < most ? part->count - done : most;
        rc = m->make(m, &in->in, (uint8_t *)to + ckpt_job_bytes(m->dtype, done), n, at, err);
    }
    // A failed operation may leave incomplete data: do not use them again.
    if (rc != CKPT_OK && in)
        in->owner = NULL;
    return rc;
}

/* The `nested` callback of gather.h: read n bytes from offset `at` of a nested source. */
static int vs_nested(void *ctx, const ckpt_source *s, void *to, uint64_t n, uint64_t at,
                     ckpt_err *err)
{
    ckpt_values *v = ctx, *in;
    const ckpt_dtype_info *type = ckpt_dtype_get(ckpt_source_dtype(s));
    const ckpt_axis part = {at / type->bytes * type->per, n / type->bytes * type->per, 0};
    int rc = vs_inner(v, err);

    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_within(at, n, s->n_bytes) || at % type->bytes || n % type->bytes)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: %" PRIu64 " bytes at offset %" PRIu64
                         " are not whole elements of its %" PRIu64 " bytes of %s",
                         s->name ? s->name : "a tensor", n, at, s->n_bytes,
                         ckpt_dtype_name(ckpt_source_dtype(s)));
    in = v->inner;
    if (s->kind == CKPT_SOURCE_MADE)
        rc = vs_make(in, s->memory, to, &part, err);
    else
        rc = ckpt_values_read(in, s->tensor->owner ? s->tensor->owner : s->tensor, part.start,
                              part.count, to, err);
    v->gather.n_read += in->gather.n_read;
    v->n_compared += in->n_compared;
    v->n_unlike += in->n_unlike;
    in->gather.n_read = in->n_compared = in->n_unlike = 0;
    return rc;
}

/* The recursion is bounded; the innermost is freed first. */
void ckpt_values_free(ckpt_values *v)
{
    if (v->inner)
        ckpt_values_free(v->inner);
    ckpt_free(v->inner);
    if (v->inputs) {
        ckpt_free(v->inputs->scratch);
        ckpt_free(v->inputs->kept);
    }
    ckpt_free(v->inputs);
    ckpt_gather_free(&v->gather);
    ckpt_free(v->twin);
    ckpt_free(v->spare);
    ckpt_free(v->sum);
    ckpt_free(v->block);
    *v = (ckpt_values){0};
}
