/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.cu: computes vector operations on the GPU: cast, accumulate, scale, add, sum of squares,
 * rows, optimizer steps.
 *
 * Every element is computed on its own, by operations that round once each and in the order of
 * formulas.h and cpu_elementwise.c, so the results equal theirs bit for bit.  Therefore the file is
 * compiled without fused multiply-add (-fmad=false), which costs nothing, because memory bounds
 * these kernels.  NaNs stay NaN but get the hardware's bit pattern.
 */
#include <math.h>

#include "engine/cuda/cuda.h"

#define VE_THREADS 256u

/* Blocks that make partial sums: a constant, so the sums' bits do not depend on the GPU. */
#define VE_SUMS 512u

/* Elements that a grid of one pack per thread covers. */
static unsigned ve_grid(zt_device *d, uint64_t n)
{
    return cu_grid(d, n, VE_THREADS * CK_PACK);
}

/* ---- cast, accumulate, scale, add ---- */

/* acc (+)= factor * x, with the product rounded to x's dtype.  A cast is the case without factor
 * and sum. */
static __global__ void __launch_bounds__(VE_THREADS) ck_accumulate(zt_accumulate a, bool wide)
{
    for (uint64_t at = ck_thread() * CK_PACK; at < a.n; at += ck_threads() * CK_PACK) {
        float x[CK_PACK], acc[CK_PACK];
        ck_read_as(a.x_dtype, x, a.x, at, a.n, wide);
        if (a.add)
            ck_read_as(a.acc_dtype, acc, a.acc, at, a.n, wide);
        for (unsigned i = 0; i < CK_PACK; i++) {
            if (a.factor != 1.0F) {
                x[i] *= a.factor;
                x[i] = a.x_dtype == CKPT_BF16  ? ck_round<__nv_bfloat16>(x[i])
                       : a.x_dtype == CKPT_F16 ? ck_round<__half>(x[i])
                                               : x[i];
            }
            x[i] = a.add ? acc[i] + x[i] : x[i];
        }
        ck_write_as(a.acc_dtype, a.acc, at, a.n, wide, x);
    }
}

static void ve_accumulate(zt_device *d, const zt_accumulate *a, const char *operation)
{
    if (a->n > 0) {
        bool wide = cu_wide(a->acc, a->x, NULL, 0);
        ZT_LAUNCH(ck_accumulate, ve_grid(d, a->n), VE_THREADS, 0, cu_stream(d), *a, wide);
        (void)cu_launched(d, operation);
    }
}

/* Convert between F32, BF16 and F16. */
void cu_cast(zt_device *d, uint64_t n, void *to, ckpt_dtype to_dtype, const void *from,
             ckpt_dtype from_dtype)
{
    if (!cu_ready(d, to_dtype, n == 0 || (to && from), "cast") ||
        !cu_ready(d, from_dtype, true, "cast"))
        return;
    if (to_dtype == from_dtype) { // bit for bit, NaN patterns included
        d->ops->copy(d, to, from, n * zt_size(to_dtype));
        return;
    }
    zt_accumulate a = {n, to, to_dtype, from, from_dtype, 1.0F, false};
    ve_accumulate(d, &a, "cast");
}

void cu_accumulate(zt_device *d, const zt_accumulate *a)
{
    if (cu_ready(d, a ? a->acc_dtype : CKPT_F32, zt_ok_accumulate(a), "accumulate") &&
        cu_ready(d, a->x_dtype, true, "accumulate"))
        ve_accumulate(d, a, "accumulate");
}

void cu_scale(zt_device *d, ckpt_dtype dt, uint64_t n, void *x, float factor)
{
    if (cu_ready(d, dt, n == 0 || x, "scale")) {
        zt_accumulate a = {n, x, dt, x, dt, factor, false};
        ve_accumulate(d, &a, "scale");
    }
}

void cu_add(zt_device *d, ckpt_dtype dt, uint64_t n, void *y, const void *x)
{
    if (cu_ready(d, dt, n == 0 || (y && x), "add")) {
        zt_accumulate a = {n, y, dt, x, dt, 1.0F, true};
        ve_accumulate(d, &a, "add");
    }
}

/* ---- rows ---- */

template <typename T>
static __global__ void __launch_bounds__(VE_THREADS) ck_rows(zt_rows a, bool wide)
{
    uint64_t packs = (a.width + CK_PACK - 1) / CK_PACK;
    for (uint64_t i = ck_thread(); i < a.rows * packs; i += ck_threads()) {
        uint64_t row = a.rows == 1 ? 0 : i / packs, at = (i - row * packs) * CK_PACK;
        T *to = (T *)a.to + row * a.ld_to;
        float x[CK_PACK], y[CK_PACK];
        ck_read(x, (const T *)a.from + row * a.ld_from, at, a.width, wide);
        if (a.add) {
            ck_read(y, to, at, a.width, wide);
            for (unsigned k = 0; k < CK_PACK; k++)
                x[k] = y[k] + x[k];
        }
        ck_write(to, at, a.width, wide, x);
    }
}

void cu_rows(zt_device *d, ckpt_dtype dt, const zt_rows *a)
{
    if (!cu_ready(d, dt, zt_ok_rows(a), "rows") || a->rows == 0 || a->width == 0)
        return;
    zt_rows r = *a;
    r.ld_to = zt_stride(a->ld_to, a->width);
    r.ld_from = zt_stride(a->ld_from, a->width);
    bool wide = cu_wide(r.from, r.to, NULL, r.ld_to | r.ld_from);
    unsigned grid = ve_grid(d, r.rows * (r.width + CK_PACK - 1));
    CU_DTYPE(dt, T, ZT_LAUNCH(ck_rows<T>, grid, VE_THREADS, 0, cu_stream(d), r, wide));
    (void)cu_launched(d, "rows");
}

/* ---- sum of squares ---- */

static __global__ void __launch_bounds__(VE_THREADS)
    ck_squares(ckpt_dtype dt, const void *x, uint64_t n, bool wide, double *part)
{
    double sum = 0;
    for (uint64_t at = ck_thread() * CK_PACK; at < n; at += ck_threads() * CK_PACK) {
        float v[CK_PACK];
        ck_read_as(dt, v, x, at, n, wide);
        for (unsigned i = 0; i < CK_PACK; i++)
            sum += (double)v[i] * (double)v[i];
    }
    sum = ck_block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* Kernel of one block: sum n partial sums. */
static __global__ void __launch_bounds__(VE_THREADS)
    ck_squares_total(const double *part, unsigned n, cu_notes *notes)
{
    double sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += VE_THREADS)
        sum += part[i];
    sum = ck_block_sum(sum);
    if (threadIdx.x == 0)
        notes->sum = sum;
}

static unsigned ve_sums(uint64_t n)
{
    uint64_t blocks = n / (VE_THREADS * CK_PACK) + 1;
    return blocks < VE_SUMS ? (unsigned)blocks : VE_SUMS;
}

double cu_sum_squares(zt_device *d, ckpt_dtype dt, uint64_t n, const void *x)
{
    if (!cu_ready(d, dt, n == 0 || x, "sum_squares") || n == 0)
        return 0;
    double *part = (double *)cu_scratch(d, VE_SUMS * sizeof *part);
    unsigned blocks = ve_sums(n);
    bool wide = cu_wide(x, NULL, NULL, 0);
    if (!part)
        return 0;
    ZT_LAUNCH(ck_squares, blocks, VE_THREADS, 0, cu_stream(d), dt, x, n, wide, part);
    ZT_LAUNCH(ck_squares_total, 1, VE_THREADS, 0, cu_stream(d), part, blocks, cu_of(d)->notes);
    return cu_launched(d, "sum_squares") && cu_fetch(d) ? cu_of(d)->host_notes->sum : 0;
}

/* ---- optimizer steps ---- */

typedef struct ve_update {
    zt_update a;
    zt_step_numbers s;
    bool wide;
} ve_update;

/* A pack of weights and state; optimizers without a member leave it untouched. */
typedef struct ve_pack {
    float p[CK_PACK], m[CK_PACK], v[CK_PACK], g[CK_PACK];
} ve_pack;

static __device__ __forceinline__ void ck_load(const ve_update &j, uint64_t at, ve_pack *k,
                                               bool gradient)
{
    ck_read(k->p, j.a.p, at, j.a.n, j.wide);
    if (j.a.m)
        ck_read(k->m, j.a.m, at, j.a.n, j.wide);
    if (j.a.v)
        ck_read(k->v, j.a.v, at, j.a.n, j.wide);
    if (gradient) {
        ck_read_as(j.a.g_dtype, k->g, j.a.g, at, j.a.n, j.wide);
        for (unsigned i = 0; i < CK_PACK; i++)
            k->g[i] *= j.a.g_scale;
    }
}

static __device__ __forceinline__ void ck_store(const ve_update &j, uint64_t at, const ve_pack &k)
{
    ck_write(j.a.p, at, j.a.n, j.wide, k.p);
    if (j.a.low)
        ck_write_as(j.a.low_dtype, j.a.low, at, j.a.n, j.wide, k.p);
}

static __device__ __forceinline__ void ck_store_state(const ve_update &j, uint64_t at,
                                                      const ve_pack &k)
{
    if (j.a.m)
        ck_write(j.a.m, at, j.a.n, j.wide, k.m);
    if (j.a.v)
        ck_write(j.a.v, at, j.a.n, j.wide, k.v);
}

/* The step of any optimizer except LAMB. */
static __device__ __forceinline__ void ck_step(const ve_update &j, zt_cell *c)
{
    switch (j.a.kind) {
    case ZT_ADAM:
        zt_step_adam(&j.s, c);
        break;
    case ZT_ADAGRAD:
        zt_step_adagrad(&j.s, c);
        break;
    case ZT_LION:
        zt_step_lion(&j.s, c);
        break;
    case ZT_SGD:
        if (j.a.m)
            zt_step_momentum(&j.s, c);
        else
            zt_step_sgd(&j.s, c);
        break;
    case ZT_LAMB:
    default:
        break;
    }
}

static __global__ void __launch_bounds__(VE_THREADS) ck_update(ve_update j)
{
    for (uint64_t at = ck_thread() * CK_PACK; at < j.a.n; at += ck_threads() * CK_PACK) {
        ve_pack k = {};
        ck_load(j, at, &k, true);
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++) {
            zt_cell c = {k.p[i], k.m[i], k.v[i], k.g[i]};
            ck_step(j, &c);
            k.p[i] = c.p;
            k.m[i] = c.m;
            k.v[i] = c.v;
        }
        ck_store(j, at, k);
        ck_store_state(j, at, k);
    }
}

/*
 * LAMB's first pass: update the state, and sum the squares of weights and directions; part [2,
 * blocks].
 */
static __global__ void __launch_bounds__(VE_THREADS) ck_lamb_norms(ve_update j, double *part)
{
    double sum_p = 0, sum_u = 0;
    for (uint64_t at = ck_thread() * CK_PACK; at < j.a.n; at += ck_threads() * CK_PACK) {
        ve_pack k = {};
        ck_load(j, at, &k, true);
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++) {
            zt_cell c = {k.p[i], k.m[i], k.v[i], k.g[i]};
            zt_step_moments(&j.s, &c);
            k.m[i] = c.m;
            k.v[i] = c.v;
            float u = at + i < j.a.n ? zt_step_direction(&j.s, &c) : 0.0F;
            sum_p += (double)c.p * (double)c.p;
            sum_u += (double)u * (double)u;
        }
        ck_store_state(j, at, k);
    }
    sum_p = ck_block_sum(sum_p);
    sum_u = ck_block_sum(sum_u);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum_p;
        part[gridDim.x + blockIdx.x] = sum_u;
    }
}

/* Kernel of one block: the trust ratio times the step size, which stays on the GPU. */
static __global__ void __launch_bounds__(VE_THREADS)
    ck_lamb_trust(ve_update j, const double *part, unsigned n, cu_notes *notes)
{
    double sum_p = 0, sum_u = 0;
    for (unsigned i = threadIdx.x; i < n; i += VE_THREADS) {
        sum_p += part[i];
        sum_u += part[n + i];
    }
    sum_p = ck_block_sum(sum_p);
    sum_u = ck_block_sum(sum_u);
    if (threadIdx.x == 0)
        notes->ratio = j.s.step * zt_step_trust(&j.a, sum_p, sum_u);
}

static __global__ void __launch_bounds__(VE_THREADS) ck_lamb(ve_update j, const cu_notes *notes)
{
    float step = notes->ratio;
    for (uint64_t at = ck_thread() * CK_PACK; at < j.a.n; at += ck_threads() * CK_PACK) {
        ve_pack k = {};
        ck_load(j, at, &k, false);
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++) {
            zt_cell c = {k.p[i], k.m[i], k.v[i], 0.0F};
            k.p[i] = c.p - zt_step_direction(&j.s, &c) * step;
        }
        ck_store(j, at, k);
    }
}

static void ve_lamb(zt_device *d, const ve_update *j)
{
    unsigned blocks = ve_sums(j->a.n);
    double *part = (double *)cu_scratch(d, 2 * VE_SUMS * sizeof *part);
    if (part) {
        ZT_LAUNCH(ck_lamb_norms, blocks, VE_THREADS, 0, cu_stream(d), *j, part);
        ZT_LAUNCH(ck_lamb_trust, 1, VE_THREADS, 0, cu_stream(d), *j, part, blocks, cu_of(d)->notes);
        ZT_LAUNCH(ck_lamb, ve_grid(d, j->a.n), VE_THREADS, 0, cu_stream(d), *j, cu_of(d)->notes);
    }
}

void cu_update(zt_device *d, const zt_update *a)
{
    ve_update j = {};
    if (!cu_ready(d, a ? a->g_dtype : CKPT_F32, zt_ok_update(a), "update") || a->n == 0)
        return;
    j.a = *a;
    j.s = zt_step_numbers_of(a);
    j.wide = cu_wide(a->p, a->g, a->low, 0) && cu_wide(a->m, a->v, NULL, 0);
    if (a->kind == ZT_LAMB)
        ve_lamb(d, &j);
    else
        ZT_LAUNCH(ck_update, ve_grid(d, a->n), VE_THREADS, 0, cu_stream(d), j);
    (void)cu_launched(d, "update");
}
