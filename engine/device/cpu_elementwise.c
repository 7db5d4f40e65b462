/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_elementwise.c: computes vector operations on the CPU: cast, accumulate, scale, add, sum of
 * squares, rows.
 *
 * 16-bit vectors are processed in blocks, so their fp32 form stays in the first-level cache.
 */
#include <string.h>

#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/vmath.h"
#include "libckpt/base/cast.h"

#define EW_GRAIN (16u * ZT_CPU_BLOCK)

/* Sums of squares have one partial sum per stretch; stretches are long enough for this maximum. */
#define EW_SUMS 4096u

/* ---- cast ---------------------------------------------------------------------------------- */

typedef struct ew_cast {
    ckpt_cast_fn fn;
    char *to;
    const char *from;
    uint64_t to_size, from_size; /* bytes of an element */
} ew_cast;

static void ew_cast_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const ew_cast *c = ctx;
    (void)worker;
    c->fn(c->to + first * c->to_size, c->from + first * c->from_size, last - first);
}

void zt_cpu_cast(zt_device *d, uint64_t n, void *to, ckpt_dtype to_dtype, const void *from,
                 ckpt_dtype from_dtype)
{
    ckpt_cast_fn fn = ckpt_cast_find(to_dtype, from_dtype);
    if (!zt_ready(d, CKPT_F32, fn && (n == 0 || (to && from)), "cast"))
        return;
    if (to == from && to_dtype == from_dtype)
        return;
    ew_cast c = {fn, to, from, ckpt_dtype_get(to_dtype)->bits / 8u,
                 ckpt_dtype_get(from_dtype)->bits / 8u};
    zt_cpu_parallel(d, n, EW_GRAIN, ew_cast_range, &c);
}

/* ---- accumulate, scale, add ---------------------------------------------------------------- */

ZT_CLONES static void ew_scale(float *y, const float *x, uint64_t n, float factor)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] * factor;
}

ZT_CLONES void zt_cpu_sum(float *y, const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

/* y += factor * x, with the product rounded. */
ZT_CLONES static void ew_scaled_sum(float *restrict y, const float *restrict x, uint64_t n,
                                    float factor)
{
    for (uint64_t i = 0; i < n; i++)
        y[i] += x[i] * factor;
}

/* One block of acc (+)= factor * x if one of the dtypes is not F32. */
static void ew_accumulate_block(const zt_accumulate *a, uint64_t at, uint64_t n)
{
    float room[ZT_CPU_BLOCK], sum[ZT_CPU_BLOCK];
    const float *x = zt_cpu_read(a->x_dtype, a->x, at, n, room);
    if (a->factor != 1.0F) {
        ew_scale(room, x, n, a->factor);
        if (a->x_dtype != CKPT_F32) {
            uint16_t rounded[ZT_CPU_BLOCK];
            zt_cpu_store(a->x_dtype, rounded, 0, room, n);
            zt_cpu_load(a->x_dtype, room, rounded, 0, n);
        }
        x = room;
    }
    if (a->add) {
        zt_cpu_sum(sum, zt_cpu_read(a->acc_dtype, a->acc, at, n, sum), x, n);
        x = sum;
    }
    zt_cpu_store(a->acc_dtype, a->acc, at, x, n);
}

static void ew_accumulate_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const zt_accumulate *a = ctx;
    (void)worker;
    if (a->acc_dtype == CKPT_F32 && a->x_dtype == CKPT_F32) {
        float *acc = (float *)a->acc + first;
        const float *x = (const float *)a->x + first;
        if (a->add)
            ew_scaled_sum(acc, x, last - first, a->factor);
        else
            ew_scale(acc, x, last - first, a->factor);
        return;
    }
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK)
        ew_accumulate_block(a, at, last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK);
}

void zt_cpu_accumulate(zt_device *d, const zt_accumulate *a)
{
    if (!zt_ready(d, a ? a->acc_dtype : CKPT_F32, zt_ok_accumulate(a), "accumulate") ||
        !zt_ready(d, a->x_dtype, true, "accumulate"))
        return;
    zt_accumulate job = *a;
    zt_cpu_parallel(d, job.n, EW_GRAIN, ew_accumulate_range, &job);
}

void zt_cpu_scale(zt_device *d, ckpt_dtype dt, uint64_t n, void *x, float factor)
{
    if (!zt_ready(d, dt, n == 0 || x, "scale"))
        return;
    zt_accumulate job = {
        .n = n, .acc = x, .acc_dtype = dt, .x = x, .x_dtype = dt, .factor = factor};
    zt_cpu_parallel(d, n, EW_GRAIN, ew_accumulate_range, &job);
}

void zt_cpu_add(zt_device *d, ckpt_dtype dt, uint64_t n, void *y, const void *x)
{
    if (!zt_ready(d, dt, n == 0 || (y && x), "add"))
        return;
    zt_accumulate job = {
        .n = n, .acc = y, .acc_dtype = dt, .x = x, .x_dtype = dt, .factor = 1.0F, .add = true};
    zt_cpu_parallel(d, n, EW_GRAIN, ew_accumulate_range, &job);
}

void zt_cpu_put_sum(ckpt_dtype dt, void *to, uint64_t at, const float *x, uint64_t n, bool add)
{
    if (!add) {
        zt_cpu_store(dt, to, at, x, n);
    } else if (dt == CKPT_F32) {
        ew_scaled_sum((float *)to + at, x, n, 1.0F);
    } else {
        zt_accumulate a = {.acc_dtype = dt, .x_dtype = dt, .factor = 1.0F, .add = true};
        uint16_t rounded[ZT_CPU_BLOCK];
        for (uint64_t i = 0; i < n; i += ZT_CPU_BLOCK) {
            uint64_t part = n - i < ZT_CPU_BLOCK ? n - i : ZT_CPU_BLOCK;
            zt_cpu_store(dt, rounded, 0, x + i, part);
            a.x = rounded;
            a.acc = zt_cpu_at(dt, to, at + i);
            ew_accumulate_block(&a, 0, part);
        }
    }
}

/* ---- sum of squares ------------------------------------------------------------------------ */

typedef float ew_v8 __attribute__((vector_size(32)));
typedef double ew_v8d __attribute__((vector_size(64)));

typedef struct ew_squares {
    ckpt_dtype dt;
    const void *x;
    uint64_t n, stretch; /* elements */
    double *sum;         /* of each stretch */
} ew_squares;

/* Sum of squares of n elements: 16 sums in turn, then their sum in order. */
ZT_CLONES static double ew_square_sum(const float *x, uint64_t n)
{
    ew_v8d sum[2] = {{0}, {0}};
    uint64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (unsigned h = 0; h < 2; h++) {
            ew_v8 v;
            memcpy(&v, x + i + 8 * h, sizeof v);
            ew_v8d w = __builtin_convertvector(v, ew_v8d);
            sum[h] += w * w;
        }
    }
    double total = 0;
    for (unsigned k = 0; k < 16; k++)
        total += sum[k / 8][k % 8];
    for (; i < n; i++)
        total += (double)x[i] * (double)x[i];
    return total;
}

static void ew_squares_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const ew_squares *s = ctx;
    float room[ZT_CPU_BLOCK];
    (void)worker;
    for (uint64_t k = first; k < last; k++) {
        uint64_t begin = k * s->stretch;
        uint64_t end = s->n - begin < s->stretch ? s->n : begin + s->stretch;
        double sum = 0;
        for (uint64_t at = begin; at < end; at += ZT_CPU_BLOCK) {
            uint64_t n = end - at < ZT_CPU_BLOCK ? end - at : ZT_CPU_BLOCK;
            sum += ew_square_sum(zt_cpu_read(s->dt, s->x, at, n, room), n);
        }
        s->sum[k] = sum;
    }
}

double zt_cpu_sum_squares(zt_device *d, ckpt_dtype dt, uint64_t n, const void *x)
{
    if (!zt_ready(d, dt, n == 0 || x, "sum_squares"))
        return 0;
    double sum[EW_SUMS];
    uint64_t blocks = n / ZT_CPU_BLOCK + 1;
    uint64_t stretch = (blocks / EW_SUMS + 1) * ZT_CPU_BLOCK;
    stretch = stretch < EW_GRAIN ? EW_GRAIN : stretch;
    uint64_t count = n / stretch + (n % stretch != 0);
    ew_squares job = {dt, x, n, stretch, sum};
    zt_cpu_parallel(d, count, 1, ew_squares_range, &job);
    double total = 0;
    for (uint64_t k = 0; k < count; k++)
        total += sum[k];
    return total;
}

/* ---- rows ---------------------------------------------------------------------------------- */

typedef struct ew_rows {
    ckpt_dtype dt;
    zt_rows r;
} ew_rows;

static void ew_rows_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const ew_rows *job = ctx;
    const zt_rows *r = &job->r;
    for (uint64_t i = first; i < last; i++) {
        void *to = zt_cpu_at(job->dt, r->to, i * r->ld_to);
        const void *from = zt_cpu_const_at(job->dt, r->from, i * r->ld_from);
        if (r->add) {
            zt_accumulate a = {.acc = to,
                               .acc_dtype = job->dt,
                               .x = from,
                               .x_dtype = job->dt,
                               .factor = 1.0F,
                               .add = true};
            ew_accumulate_range(&a, 0, r->width, worker);
        } else {
            memcpy(to, from, r->width * zt_size(job->dt));
        }
    }
}

void zt_cpu_rows(zt_device *d, ckpt_dtype dt, const zt_rows *a)
{
    if (!zt_ready(d, dt, zt_ok_rows(a), "rows") || a->rows == 0 || a->width == 0)
        return;
    ew_rows job = {dt, *a};
    job.r.ld_to = zt_stride(a->ld_to, a->width);
    job.r.ld_from = zt_stride(a->ld_from, a->width);
    zt_cpu_parallel(d, a->rows, EW_GRAIN / a->width + 1, ew_rows_range, &job);
}
