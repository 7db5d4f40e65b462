/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cu: computes layer norm and RMS norm on the GPU, forward and backward.
 *
 * A block works on one row at a time and keeps it in registers, in turns of 8 elements per thread.
 * Backward, a fixed number of blocks share the rows.  Each sums its rows' contributions to the
 * weights' gradients, and a second kernel adds those partial sums in order, so data is read once
 * and the order depends on sizes alone.
 */
#include <math.h>

#include "engine/cuda/cuda.h"

#define NM_MOST    512u   /* threads per block: half the maximum, so each has twice the registers */
#define NM_BLOCKS  1024u  /* maximum of blocks, and so of partial sums of weights' gradients */
#define NM_LEAST   256u   /* minimum of blocks */
#define NM_WORK    98304u /* preferred number of threads in all blocks, within both limits */
#define NM_TURNS   8u     /* packs per thread in rows above 8192 elements; some registers spill */
#define NM_COLUMNS 64u    /* columns per block in the second kernel, with NM_LANES threads each */
#define NM_LANES   8u

/* A thread's part of a row, in registers. */
template <unsigned TURNS> struct nm_part {
    float x[TURNS * CK_PACK];
};

/* Index of this thread's first element in turn t. */
static __device__ __forceinline__ uint64_t ck_nm_at(unsigned t)
{
    return ((uint64_t)t * blockDim.x + threadIdx.x) * CK_PACK;
}

template <typename T, unsigned TURNS>
static __device__ __forceinline__ void ck_nm_read(nm_part<TURNS> *p, const T *x, uint64_t width,
                                                  bool wide)
{
#pragma unroll
    for (unsigned t = 0; t < TURNS; t++)
        ck_read(p->x + t * CK_PACK, x, ck_nm_at(t), width, wide);
}

/* ---- forward ---- */

/* s = x + add for the row at `at`, rounded and stored. */
template <typename T, unsigned TURNS>
static __device__ __forceinline__ void ck_nm_input(const zt_norm &a, uint64_t at, bool wide,
                                                   nm_part<TURNS> *s)
{
    ck_nm_read(s, (const T *)a.x + at, a.width, wide);
    if (!a.add)
        return;
#pragma unroll
    for (unsigned t = 0; t < TURNS; t++) {
        float *x = s->x + t * CK_PACK, y[CK_PACK];
        ck_read(y, (const T *)a.add + at, ck_nm_at(t), a.width, wide);
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++)
            x[i] = ck_round<T>(x[i] + y[i]);
        if (a.sum)
            ck_write((T *)a.sum + at, ck_nm_at(t), a.width, wide, x);
    }
}

/* Sum of (x - mean)^2 of this thread's elements, without those beyond the row. */
template <unsigned TURNS>
static __device__ __forceinline__ double ck_nm_squares(const nm_part<TURNS> &s, uint64_t width,
                                                       float mean)
{
    float sum = 0.0F;
#pragma unroll
    for (unsigned i = 0; i < TURNS * CK_PACK; i++) {
        float v = ck_nm_at(i / CK_PACK) + i % CK_PACK < width ? s.x[i] - mean : 0.0F;
        sum += v * v;
    }
    return (double)sum;
}

template <unsigned TURNS>
static __device__ __forceinline__ double ck_nm_sum(const nm_part<TURNS> &s)
{
    float sum = 0.0F;
#pragma unroll
    for (unsigned i = 0; i < TURNS * CK_PACK; i++)
        sum += s.x[i];
    return (double)sum;
}

template <typename T, unsigned TURNS>
static __device__ __forceinline__ void ck_nm_output(const zt_norm &a, uint64_t at, bool wide,
                                                    nm_part<TURNS> *s, float2 m)
{
#pragma unroll
    for (unsigned t = 0; t < TURNS; t++) {
        float *x = s->x + t * CK_PACK, w[CK_PACK], b[CK_PACK] = {};
        ck_read(w, (const T *)a.w, ck_nm_at(t), a.width, wide);
        if (a.b)
            ck_read(b, (const T *)a.b, ck_nm_at(t), a.width, wide);
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++) {
            float v = zt_norm_hat(x[i], m.x, m.y);
            v = (a.rms ? ck_round<T>(v) : v) *
                w[i]; // RMS norm rounds before it multiplies by the weight, as LlamaRMSNorm does
            x[i] = a.b ? v + b[i] : v;
        }
        ck_write((T *)a.y + at, ck_nm_at(t), a.width, wide, x);
    }
}

template <typename T, unsigned TURNS>
static __global__ void __launch_bounds__(NM_MOST) ck_norm(zt_norm a, bool wide)
{
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        nm_part<TURNS> s;
        uint64_t at = row * a.width;
        double count = (double)a.width;
        ck_nm_input<T, TURNS>(a, at, wide, &s);
        float mean = a.rms ? 0.0F : (float)(ck_block_sum(ck_nm_sum(s)) / count);
        float variance = (float)(ck_block_sum(ck_nm_squares(s, a.width, mean)) / count);
        float rstd = 1.0F / sqrtf(variance + a.eps);
        ck_nm_output<T, TURNS>(a, at, wide, &s, make_float2(mean, rstd));
        if (threadIdx.x == 0) {
            if (a.mean)
                a.mean[row] = mean;
            if (a.rstd)
                a.rstd[row] = rstd;
        }
    }
}

/* Threads for a row: a multiple of 32, because sums need whole warps. */
static unsigned nm_threads(uint64_t width)
{
    uint64_t n = (width + CK_PACK * 32 - 1) / (CK_PACK * 32) * 32;
    return n < NM_MOST ? (unsigned)n : NM_MOST;
}

/* Refuse rows that do not fit into registers; models have none. */
static bool nm_fits(zt_device *d, uint64_t width)
{
    if (width > NM_MOST * CK_PACK * NM_TURNS) {
        zt_device_fail(d, CKPT_EUNSUPPORTED, "norm: rows of more than 32768 elements");
        return false;
    }
    return true;
}

void cu_norm(zt_device *d, ckpt_dtype dt, const zt_norm *a)
{
    if (!cu_ready(d, dt, zt_ok_norm(a), "norm") || a->rows == 0 || !nm_fits(d, a->width))
        return;
    bool wide = cu_wide(a->x, a->add, a->sum, a->width) && cu_wide(a->w, a->b, a->y, 0);
    unsigned threads = nm_threads(a->width), grid = cu_grid(d, a->rows, 1);
    if (a->width <= (uint64_t)threads * CK_PACK)
        CU_DTYPE(dt, T, ZT_LAUNCH((ck_norm<T, 1>), grid, threads, 0, cu_stream(d), *a, wide));
    else if (a->width <= (uint64_t)threads * CK_PACK * 2)
        CU_DTYPE(dt, T, ZT_LAUNCH((ck_norm<T, 2>), grid, threads, 0, cu_stream(d), *a, wide));
    else
        CU_DTYPE(dt, T,
                 ZT_LAUNCH((ck_norm<T, NM_TURNS>), grid, threads, 0, cu_stream(d), *a, wide));
    (void)cu_launched(d, "norm");
}

/* ---- backward ---- */

/* Turn g = dy w into dx of one row. */
template <typename T, unsigned TURNS>
static __device__ __forceinline__ void ck_nm_dx(const zt_norm_grad &a, uint64_t at, bool wide,
                                                nm_part<TURNS> *g, const nm_part<TURNS> &xhat,
                                                float rstd)
{
    float dot = 0.0F;
#pragma unroll
    for (unsigned i = 0; i < TURNS * CK_PACK; i++)
        dot += g->x[i] * xhat.x[i];
    double count = (double)a.width;
    float c1 = a.rms ? 0.0F : (float)(ck_block_sum(ck_nm_sum(*g)) / count);
    float c2 = (float)(ck_block_sum((double)dot) / count);
#pragma unroll
    for (unsigned t = 0; t < TURNS; t++) {
        float *x = g->x + t * CK_PACK, old[CK_PACK] = {};
        if (a.dx_add)
            ck_read(old, (const T *)a.dx + at, ck_nm_at(t), a.width, wide);
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++)
            x[i] = zt_norm_dx(x[i], xhat.x[t * CK_PACK + i], c1, c2, rstd) + old[i];
        ck_write((T *)a.dx + at, ck_nm_at(t), a.width, wide, x);
    }
}

/* Compute dx, and partial sums of dw and db: [2, blocks, width]; NULL: no gradients of weights. */
template <typename T, unsigned TURNS>
static __global__ void __launch_bounds__(NM_MOST)
    ck_norm_grad(zt_norm_grad a, bool wide, float *part)
{
    nm_part<TURNS> w, dw = {}, db = {};
    ck_nm_read(&w, (const T *)a.w, a.width, wide);
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        nm_part<TURNS> xhat, g;
        uint64_t at = row * a.width;
        float mean = a.rms ? 0.0F : a.mean[row], rstd = a.rstd[row];
        ck_nm_read(&xhat, (const T *)a.x + at, a.width, wide);
        ck_nm_read(&g, (const T *)a.dy + at, a.width, wide);
#pragma unroll
        for (unsigned i = 0; i < TURNS * CK_PACK; i++) {
            // beyond the row all values are 0, w too, so they add nothing
            float v = zt_norm_hat(xhat.x[i], mean, rstd);
            dw.x[i] += g.x[i] * (a.rms ? ck_round<T>(v) : v);
            db.x[i] += g.x[i];
            xhat.x[i] = v;
            g.x[i] *= w.x[i];
        }
        if (a.dx)
            ck_nm_dx<T, TURNS>(a, at, wide, &g, xhat, rstd);
    }
    for (unsigned t = 0; part && t < TURNS; t++) {
        ck_write(part + blockIdx.x * a.width, ck_nm_at(t), a.width, wide, dw.x + t * CK_PACK);
        ck_write(part + (gridDim.x + blockIdx.x) * a.width, ck_nm_at(t), a.width, wide,
                 db.x + t * CK_PACK);
    }
}

/*
 * Add n partial sums per column: each of NM_LANES threads takes every NM_LANES-th, then their sums
 * are added.
 */
template <typename T>
static __global__ void __launch_bounds__(NM_COLUMNS *NM_LANES)
    ck_norm_total(zt_norm_grad a, const float *part, unsigned n)
{
    ZT_SHARED_ARRAY(float, lanes, 2 * NM_COLUMNS * NM_LANES);
    unsigned lane = threadIdx.x / NM_COLUMNS, c = threadIdx.x % NM_COLUMNS;
    uint64_t column = (uint64_t)blockIdx.x * NM_COLUMNS + c;
    float w = 0.0F, b = 0.0F;
    for (uint64_t i = lane; column < a.width && i < n; i += NM_LANES) {
        w += part[i * a.width + column];
        b += part[(n + i) * a.width + column];
    }
    lanes[threadIdx.x] = w;
    lanes[threadIdx.x + NM_COLUMNS * NM_LANES] = b;
    __syncthreads();
    if (lane > 0 || column >= a.width)
        return;
    for (unsigned i = 1; i < NM_LANES; i++) {
        w += lanes[i * NM_COLUMNS + c];
        b += lanes[(NM_LANES + i) * NM_COLUMNS + c];
    }
    if (a.dw)
        ck_put_sum((T *)a.dw + column, w, a.w_add);
    if (a.db)
        ck_put_sum((T *)a.db + column, b, a.b_add);
}

/* The number depends on sizes alone, because the sums' bits must not depend on the GPU. */
static unsigned nm_blocks(uint64_t rows, unsigned threads)
{
    unsigned n = NM_WORK / threads;
    n = n < NM_LEAST ? NM_LEAST : n > NM_BLOCKS ? NM_BLOCKS : n;
    return rows < n ? (unsigned)rows : n;
}

/* Without rows the weights' gradients are 0. */
static void nm_no_rows(zt_device *d, ckpt_dtype dt, const zt_norm_grad *a)
{
    if (a->dw && !a->w_add)
        d->ops->zero(d, a->dw, a->width * zt_size(dt));
    if (a->db && !a->b_add)
        d->ops->zero(d, a->db, a->width * zt_size(dt));
}

void cu_norm_grad(zt_device *d, ckpt_dtype dt, const zt_norm_grad *a)
{
    if (!cu_ready(d, dt, zt_ok_norm_grad(a), "norm_grad") || !nm_fits(d, a->width))
        return;
    if (a->rows == 0) {
        nm_no_rows(d, dt, a);
        return;
    }
    bool weights = a->dw || a->db,
         wide = cu_wide(a->x, a->dy, a->dx, a->width) && cu_wide(a->w, NULL, NULL, 0);
    unsigned threads = nm_threads(a->width), blocks = nm_blocks(a->rows, threads);
    float *part = weights ? (float *)cu_scratch(d, 2 * blocks * a->width * sizeof *part) : NULL;
    if (weights && !part)
        return;
    if (a->width <= (uint64_t)threads * CK_PACK)
        CU_DTYPE(dt, T,
                 ZT_LAUNCH((ck_norm_grad<T, 1>), blocks, threads, 0, cu_stream(d), *a, wide, part));
    else if (a->width <= (uint64_t)threads * CK_PACK * 2)
        CU_DTYPE(dt, T,
                 ZT_LAUNCH((ck_norm_grad<T, 2>), blocks, threads, 0, cu_stream(d), *a, wide, part));
    else
        CU_DTYPE(dt, T,
                 ZT_LAUNCH((ck_norm_grad<T, NM_TURNS>), blocks, threads, 0, cu_stream(d), *a, wide,
                           part));
    if (weights) {
        unsigned grid = (unsigned)((a->width + NM_COLUMNS - 1) / NM_COLUMNS);
        CU_DTYPE(dt, T,
                 ZT_LAUNCH(ck_norm_total<T>, grid, NM_COLUMNS * NM_LANES, 0, cu_stream(d), *a, part,
                           blocks));
    }
    (void)cu_launched(d, "norm_grad");
}
