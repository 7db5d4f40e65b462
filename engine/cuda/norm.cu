/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cu: computes layer norm and RMS norm on the GPU, forward and backward.
 *
 * Forward, a block works on one row at a time and keeps it in registers, in turns of 8 elements
 * per thread.  Backward, a warp works on one row at a time if it is short, otherwise a block.  A
 * fixed number of blocks share the rows.  Each sums its rows' contributions to the weights'
 * gradients, and a second kernel adds those partial sums in order, so data is read once and the
 * order depends on sizes alone.
 */
#include <math.h>

#include "engine/cuda/cuda.h"

#define NM_MOST    512u   /* threads per block: half the maximum, so each has twice the registers */
#define NM_BLOCKS  1024u  /* maximum of blocks, and so of partial sums of weights' gradients */
#define NM_LEAST   256u   /* minimum of blocks */
#define NM_WORK    98304u /* preferred number of threads in all blocks, within both limits */
#define NM_TURNS   8u     /* packs per thread in rows above 8192 elements; some registers spill */
#define NM_COLUMNS 32u    /* columns per block in the second kernel, with NM_LANES threads each */
#define NM_LANES   32u

/* Backward, rows of at most NM_WARP_WIDTH: warps per block with a row each, maximum of blocks. */
#define NM_WARPS      4u
#define NM_GROUPS     396u /* 3 for each multiprocessor of an H100 */
#define NM_WARP_WIDTH (4u * 32u * CK_PACK)

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
            // RMS norm rounds before it multiplies by the weight, as LlamaRMSNorm does
            v = (a.rms && !a.once ? ck_round<T>(v) : v) * (a.plus_one ? w[i] + 1.0F : w[i]);
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

/*
 * A thread's part of a row as it is in memory: 16-bit numbers take half the registers of fp32, so
 * more rows are read at once.
 */
template <typename T, unsigned TURNS> struct nm_raw {
    uint32_t word[TURNS * CK_PACK * sizeof(T) / 4];
};

template <typename T>
static __device__ __forceinline__ float ck_nm_up(const uint32_t *word, unsigned i)
{
    T x;
    if (sizeof(T) == 4) {
        memcpy(&x, &word[i], sizeof(T));
    } else {
        uint16_t bits = (uint16_t)(word[i / 2] >> i % 2 * 16);
        memcpy(&x, &bits, 2);
    }
    return ck_up(x);
}

/*
 * Make the compiler forget the values of a row, so that a second pass converts it again.  Otherwise
 * it keeps all of them in fp32 meanwhile, and spills registers.
 */
template <typename T, unsigned TURNS>
static __device__ __forceinline__ void ck_nm_forget(nm_raw<T, TURNS> *p)
{
#ifndef ZT_EMULATED
#pragma unroll
    for (unsigned i = 0; i < sizeof p->word / 4; i++)
        asm volatile("" : "+r"(p->word[i])::"memory");
#else
    (void)p;
#endif
}

/* The threads that share a row, and this thread's number among them. */
typedef struct nm_place {
    unsigned lane, lanes;
    bool wide;
} nm_place;

static __device__ __forceinline__ uint64_t ck_nm_first(const nm_place &p, unsigned t)
{
    return ((uint64_t)t * p.lanes + p.lane) * CK_PACK;
}

/* Read a pack of CK_PACK numbers that starts at a multiple of 16 bytes. */
template <typename T> static __device__ __forceinline__ void ck_nm_pack(uint32_t *word, const T *x)
{
#pragma unroll
    for (unsigned i = 0; i < CK_PACK * sizeof(T) / 4; i += 4) {
        uint4 u = ((const uint4 *)(const void *)x)[i / 4];
        word[i] = u.x;
        word[i + 1] = u.y;
        word[i + 2] = u.z;
        word[i + 3] = u.w;
    }
}

/* Read a pack that may end, or start, beyond the row; elements beyond it become 0. */
template <typename T>
static __device__ __forceinline__ void ck_nm_rest(uint32_t *word, const T *x, uint64_t at,
                                                  uint64_t width)
{
    T each[CK_PACK];
#pragma unroll
    for (unsigned i = 0; i < CK_PACK; i++)
        each[i] = at + i < width ? x[at + i] : ck_down<T>(0.0F);
    memcpy(word, each, sizeof each);
}

/* Read a row; elements beyond its end become 0.  WIDE: all rows are whole packs, and aligned. */
template <bool WIDE, typename T, unsigned TURNS>
static __device__ __forceinline__ void ck_nm_load(nm_raw<T, TURNS> *to, const T *x, uint64_t width,
                                                  const nm_place &p)
{
    const unsigned words = CK_PACK * sizeof(T) / 4;
#pragma unroll
    for (unsigned t = 0; t < TURNS; t++) {
        uint64_t at = ck_nm_first(p, t);
        uint32_t *word = to->word + t * words;
        if (at < width && (WIDE || (p.wide && at + CK_PACK <= width))) {
            ck_nm_pack(word, x + at);
        } else if (!WIDE) {
            ck_nm_rest(word, x, at, width);
        } else {
#pragma unroll
            for (unsigned i = 0; i < words; i++)
                word[i] = 0;
        }
    }
}

/* Round and write a pack of a row. */
template <bool WIDE, typename T>
static __device__ __forceinline__ void ck_nm_write(T *to, uint64_t at, uint64_t width,
                                                   const nm_place &p, const float *x)
{
    if (!WIDE)
        ck_write(to, at, width, p.wide, x);
    else if (at < width)
        ck_write(to, at, at + CK_PACK, true, x);
}

/*
 * The sums of g = dy w and of g xhat over a row, for all threads that share it, in a fixed order.
 * A block that shares rows uses its two pieces of shared memory in turn, so one barrier per row is
 * enough.
 */
template <bool WARP>
static __device__ __forceinline__ double2 ck_nm_sums(float g, float dot, unsigned turn)
{
    ZT_SHARED_ARRAY(double, part, WARP ? 1 : 2 * 2 * NM_MOST / 32);
    double2 s = make_double2((double)g, (double)dot);
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        s.x += __shfl_xor_sync(0xffffffffu, s.x, by);
        s.y += __shfl_xor_sync(0xffffffffu, s.y, by);
    }
    if (WARP)
        return s;
    double *mine = part + turn % 2 * (2 * NM_MOST / 32);
    if (threadIdx.x % 32 == 0) {
        mine[threadIdx.x / 32 * 2] = s.x;
        mine[threadIdx.x / 32 * 2 + 1] = s.y;
    }
    __syncthreads();
    s = make_double2(0, 0);
    for (unsigned i = 0; i < blockDim.x / 32; i++) {
        s.x += mine[i * 2];
        s.y += mine[i * 2 + 1];
    }
    return s;
}

/* The gradients of this thread's columns, summed over its rows. */
template <unsigned TURNS> struct nm_columns {
    float dw[TURNS * CK_PACK], db[TURNS * CK_PACK];
};

/* One row: dx, and the terms that it adds to dw and db. */
template <typename T, unsigned TURNS, bool WARP>
static __device__ __forceinline__ void ck_nm_row(const zt_norm_grad &a, const nm_place &p,
                                                 uint64_t row, nm_columns<TURNS> *to, unsigned turn)
{
    nm_raw<T, TURNS> x, dy, w, old = {};
    const uint64_t at = row * a.width;
    const float mean = a.rms ? 0.0F : a.mean[row], rstd = a.rstd[row];
    const float one = a.plus_one ? 1.0F : 0.0F;
    float g = 0.0F, dot = 0.0F;
    ck_nm_load<WARP>(&w, (const T *)a.w, a.width, p);
    ck_nm_load<WARP>(&x, (const T *)a.x + at, a.width, p);
    ck_nm_load<WARP>(&dy, (const T *)a.dy + at, a.width, p);
    if (a.dx_add && a.dx)
        ck_nm_load<WARP>(&old, (const T *)a.dx + at, a.width, p);
#pragma unroll
    for (unsigned i = 0; i < TURNS * CK_PACK; i++) {
        // beyond the row all values are 0, dy too, so they add nothing
        float v = zt_norm_hat(ck_nm_up<T>(x.word, i), mean, rstd), d = ck_nm_up<T>(dy.word, i);
        to->dw[i] += d * (a.rms && !a.once ? ck_round<T>(v) : v);
        to->db[i] += d;
        d *= ck_nm_up<T>(w.word, i) + one;
        g += d;
        dot += d * v;
    }
    if (!a.dx)
        return;
    const double2 s = ck_nm_sums<WARP>(g, dot, turn);
    ck_nm_forget(&x);
    ck_nm_forget(&dy);
    ck_nm_load<WARP>(&w, (const T *)a.w, a.width, p); // again: a cache has it, registers are scarce
    const double part = 1.0 / (double)a.width;
    const float c1 = a.rms ? 0.0F : (float)(s.x * part), c2 = (float)(s.y * part);
#pragma unroll
    for (unsigned t = 0; t < TURNS; t++) {
        float out[CK_PACK];
#pragma unroll
        for (unsigned k = 0; k < CK_PACK; k++) {
            const unsigned i = t * CK_PACK + k;
            float v = zt_norm_hat(ck_nm_up<T>(x.word, i), mean, rstd);
            float d = ck_nm_up<T>(dy.word, i) * (ck_nm_up<T>(w.word, i) + one);
            out[k] = zt_norm_dx(d, v, c1, c2, rstd) + ck_nm_up<T>(old.word, i);
        }
        ck_nm_write<WARP>((T *)a.dx + at, ck_nm_first(p, t), a.width, p, out);
    }
}

/* Store the block's partial sums of columns at `to`, for WARP the sum of its warps in order. */
template <unsigned TURNS, bool WARP>
static __device__ __forceinline__ void ck_nm_store(float *to, const float *column, uint64_t width,
                                                   const nm_place &p)
{
    ZT_SHARED_ARRAY(float, all, WARP ? NM_WARPS * 32 * CK_PACK : 1);
#pragma unroll
    for (unsigned t = 0; t < TURNS; t++) {
        if (!WARP) {
            ck_write(to, ck_nm_first(p, t), width, p.wide, column + t * CK_PACK);
            continue;
        }
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++)
            all[threadIdx.x * CK_PACK + i] = column[t * CK_PACK + i];
        __syncthreads();
        for (unsigned i = threadIdx.x; i < 32 * CK_PACK; i += NM_WARPS * 32) {
            float sum = 0.0F;
            for (unsigned k = 0; k < NM_WARPS; k++)
                sum += all[k * 32 * CK_PACK + i];
            if ((uint64_t)t * 32 * CK_PACK + i < width)
                to[(uint64_t)t * 32 * CK_PACK + i] = sum;
        }
    }
}

/* Blocks of a multiprocessor that the registers of a thread must leave room for. */
static constexpr unsigned nm_least(unsigned bytes, unsigned turns, bool warp)
{
    return warp ? (bytes == 4 || turns > 3 ? 2 : 3) : turns == 1 ? 2 : 1;
}

/*
 * Compute dx, and partial sums of dw and db: [2, blocks, width]; NULL: no gradients of weights.
 * WARP: each warp works on a row of its own, without barriers, which is faster as long as a row
 * fits into its registers; otherwise a block shares a row.
 */
template <typename T, unsigned TURNS, bool WARP>
static __global__ void __launch_bounds__(WARP ? NM_WARPS * 32 : NM_MOST,
                                         nm_least(sizeof(T), TURNS, WARP))
    ck_norm_grad(zt_norm_grad a, bool wide, float *part)
{
    const unsigned at_once = WARP ? NM_WARPS : 1, warp = WARP ? threadIdx.x / 32 : 0;
    const nm_place p = {WARP ? threadIdx.x % 32 : threadIdx.x, WARP ? 32 : blockDim.x, wide};
    nm_columns<TURNS> columns = {};
    unsigned turn = 0;
    for (uint64_t row = blockIdx.x * (uint64_t)at_once + warp; row < a.rows;
         row += gridDim.x * (uint64_t)at_once)
        ck_nm_row<T, TURNS, WARP>(a, p, row, &columns, turn++);
    if (!part)
        return;
    ck_nm_store<TURNS, WARP>(part + blockIdx.x * a.width, columns.dw, a.width, p);
    ck_nm_store<TURNS, WARP>(part + (gridDim.x + blockIdx.x) * a.width, columns.db, a.width, p);
}

/*
 * Add n partial sums per column, of dw (y of the grid 0) or db: each of NM_LANES threads takes
 * every NM_LANES-th, then their sums are added.
 */
template <typename T>
static __global__ void __launch_bounds__(NM_COLUMNS *NM_LANES)
    ck_norm_total(zt_norm_grad a, const float *part, unsigned n)
{
    ZT_SHARED_ARRAY(float, lanes, NM_COLUMNS *NM_LANES);
    unsigned lane = threadIdx.x / NM_COLUMNS, c = threadIdx.x % NM_COLUMNS;
    uint64_t column = (uint64_t)blockIdx.x * NM_COLUMNS + c;
    const float *from = part + blockIdx.y * (uint64_t)n * a.width + column;
    float sum = 0.0F;
#pragma unroll 8
    for (unsigned i = lane; i < (column < a.width ? n : 0); i += NM_LANES)
        sum += from[i * a.width];
    lanes[threadIdx.x] = sum;
    __syncthreads();
    T *to = (T *)(blockIdx.y == 0 ? a.dw : a.db);
    if (lane > 0 || column >= a.width || !to)
        return;
    for (unsigned i = 1; i < NM_LANES; i++)
        sum += lanes[i * NM_COLUMNS + c];
    ck_put_sum(to + column, sum, blockIdx.y == 0 ? a.w_add : a.b_add);
}

/* The number depends on sizes alone, because the sums' bits must not depend on the GPU. */
static unsigned nm_blocks(uint64_t rows, unsigned threads)
{
    unsigned n = NM_WORK / threads;
    n = n < NM_LEAST ? NM_LEAST : n > NM_BLOCKS ? NM_BLOCKS : n;
    return rows < n ? (unsigned)rows : n;
}

static unsigned nm_warp_blocks(uint64_t rows)
{
    uint64_t n = (rows + NM_WARPS - 1) / NM_WARPS;
    return n < NM_GROUPS ? (unsigned)n : NM_GROUPS;
}

/* A launch of the kernel for rows. */
typedef struct nm_launch {
    zt_norm_grad a;
    float *part;
    unsigned blocks, threads;
    bool wide;
} nm_launch;

template <typename T> static void nm_warp_rows(cudaStream_t stream, const nm_launch &l)
{
    const unsigned threads = NM_WARPS * 32;
    switch ((l.a.width + 32 * CK_PACK - 1) / (32 * CK_PACK)) {
    case 1:
        ZT_LAUNCH((ck_norm_grad<T, 1, true>), l.blocks, threads, 0, stream, l.a, l.wide, l.part);
        break;
    case 2:
        ZT_LAUNCH((ck_norm_grad<T, 2, true>), l.blocks, threads, 0, stream, l.a, l.wide, l.part);
        break;
    case 3:
        ZT_LAUNCH((ck_norm_grad<T, 3, true>), l.blocks, threads, 0, stream, l.a, l.wide, l.part);
        break;
    default:
        ZT_LAUNCH((ck_norm_grad<T, 4, true>), l.blocks, threads, 0, stream, l.a, l.wide, l.part);
        break;
    }
}

template <typename T> static void nm_block_rows(cudaStream_t stream, const nm_launch &l)
{
    const uint64_t once = (uint64_t)l.threads * CK_PACK;
    if (l.a.width <= once)
        ZT_LAUNCH((ck_norm_grad<T, 1, false>), l.blocks, l.threads, 0, stream, l.a, l.wide, l.part);
    else if (l.a.width <= once * 2)
        ZT_LAUNCH((ck_norm_grad<T, 2, false>), l.blocks, l.threads, 0, stream, l.a, l.wide, l.part);
    else
        ZT_LAUNCH((ck_norm_grad<T, NM_TURNS, false>), l.blocks, l.threads, 0, stream, l.a, l.wide,
                  l.part);
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
    const bool weights = a->dw || a->db;
    nm_launch l = {*a, NULL, 0, nm_threads(a->width), false};
    l.wide = cu_wide(a->x, a->dy, a->dx, a->width) && cu_wide(a->w, NULL, NULL, 0);
    const bool warp = l.wide && a->width <= NM_WARP_WIDTH;
    l.blocks = warp ? nm_warp_blocks(a->rows) : nm_blocks(a->rows, l.threads);
    l.part = weights ? (float *)cu_scratch(d, 2 * l.blocks * a->width * sizeof *l.part) : NULL;
    if (weights && !l.part)
        return;
    if (warp)
        CU_DTYPE(dt, T, nm_warp_rows<T>(cu_stream(d), l));
    else
        CU_DTYPE(dt, T, nm_block_rows<T>(cu_stream(d), l));
    if (weights) {
        dim3 grid((unsigned)((a->width + NM_COLUMNS - 1) / NM_COLUMNS), 2);
        CU_DTYPE(dt, T,
                 ZT_LAUNCH(ck_norm_total<T>, grid, NM_COLUMNS * NM_LANES, 0, cu_stream(d), *a,
                           l.part, l.blocks));
    }
    (void)cu_launched(d, "norm_grad");
}
