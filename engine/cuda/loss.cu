/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loss.cu: computes losses on the GPU, and writes their gradients over the logits.
 *
 * A block processes a row in two passes: the first finds its maximum and sum of exponents, the
 * second computes the gradient while the row is still in the second-level cache.  Only LO_ROWS rows
 * per multiprocessor are in work, because more (with 50000 classes and 132 multiprocessors, 100 KB
 * each) do not fit into 50 MB of cache.  One block adds up
 * the losses of rows in fp64, in a fixed order.
 */
#include <math.h>

#include "engine/cuda/cuda.h"

#define LO_THREADS 512u
#define LO_ROW     768u  /* threads of a block for cross entropy */
#define LO_ROWS    2u    /* its blocks per multiprocessor */
#define LO_TOTAL   1024u /* threads of the block that adds up rows */

typedef struct lo_job {
    zt_loss a;
    double *row_loss; /* [rows] */
    cu_notes *notes;
} lo_job;

/* Kernel of one block: the number of labels that count. */
static __global__ void __launch_bounds__(LO_TOTAL) ck_loss_count(lo_job j)
{
    double n = 0;
    for (uint64_t i = threadIdx.x; i < j.a.rows; i += LO_TOTAL)
        n += j.a.label[i] != ZT_IGNORE;
    n = ck_block_sum(n);
    if (threadIdx.x == 0)
        j.notes->count = n;
}

static __global__ void __launch_bounds__(LO_TOTAL) ck_loss_total(lo_job j)
{
    double sum = 0;
    for (uint64_t i = threadIdx.x; i < j.a.rows; i += LO_TOTAL)
        sum += j.row_loss[i];
    sum = ck_block_sum(sum);
    if (threadIdx.x == 0)
        j.notes->sum = sum;
}

/* ---- cross entropy ---- */

/* Sum of exponents relative to a maximum. */
typedef struct lo_sum {
    float top, sum;
} lo_sum;

static __device__ __forceinline__ lo_sum ck_merge(lo_sum a, lo_sum b)
{
    float top = a.top > b.top ? a.top : b.top;
    if (top == -INFINITY) { // all values were infinite so far; keep NaN
        return {top, a.sum + b.sum};
    }
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

/* Merge the sums of the block; all its threads get the result. */
static __device__ __forceinline__ lo_sum ck_merge_block(lo_sum s)
{
    ZT_SHARED_ARRAY(lo_sum, part, 32);
    for (int by = 16; by > 0; by /= 2) {
        lo_sum other = {__shfl_xor_sync(0xffffffffu, s.top, by),
                        __shfl_xor_sync(0xffffffffu, s.sum, by)};
        // merge the lower lane first, because both partners must get the same bits
        s = threadIdx.x & (unsigned)by ? ck_merge(other, s) : ck_merge(s, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = s;
    __syncthreads();
    s = part[0];
    for (unsigned i = 1; i < blockDim.x / 32; i++)
        s = ck_merge(s, part[i]);
    return s;
}

/* Add n elements to a thread's sum: one exponent per element, one more if the maximum grows. */
template <typename T>
static __device__ __forceinline__ void ck_take(lo_sum *s, const float *x, unsigned n)
{
    float top = s->top;
    for (unsigned i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    if (top > s->top) {
        s->sum *= expf(s->top - top);
        s->top = top;
    }
    if (top == -INFINITY) { // nothing but -inf, whose exponents are 0, and NaN, which stays
        for (unsigned i = 0; i < n; i++)
            s->sum += x[i] == -INFINITY ? 0.0F : x[i];
        return;
    }
    for (unsigned i = 0; i < n; i++)
        s->sum += ck_exp<T>(x[i] - top);
}

/* Elements before the first 16-byte boundary, because rows may start at any address. */
template <typename T> static __device__ __forceinline__ uint64_t ck_head(const T *x, uint64_t n)
{
    uint64_t head = (16 - (uintptr_t)x % 16) % 16 / sizeof(T);
    return head < n ? head : n;
}

template <typename T> static __device__ __forceinline__ lo_sum ck_row_sum(const T *x, uint64_t n)
{
    lo_sum s = {-INFINITY, 0.0F};
    uint64_t head = ck_head(x, n), body = (n - head) / CK_PACK * CK_PACK;
    float v[CK_PACK];
#pragma unroll 2
    for (uint64_t i = threadIdx.x * CK_PACK; i < body; i += LO_ROW * CK_PACK) {
        ck_read(v, x + head, i, i + CK_PACK, true);
        ck_take<T>(&s, v, CK_PACK);
    }
    for (uint64_t i = threadIdx.x; i < n - body; i += LO_ROW) {
        v[0] = ck_up(x[i < head ? i : i + body]);
        ck_take<T>(&s, v, 1);
    }
    return ck_merge_block(s);
}

/* x = factor * exp(x - top) / sum, minus factor at the label. */
template <typename T>
static __device__ __forceinline__ void ck_row_grad(T *x, uint64_t n, lo_sum s, uint64_t label,
                                                   float factor)
{
    uint64_t head = ck_head(x, n), body = (n - head) / CK_PACK * CK_PACK;
    float scale = (float)((double)factor / (double)s.sum);
    float own = ck_up(x[label]);
    __syncthreads(); // all other threads overwrite their logits, maybe the label's
    float v[CK_PACK];
#pragma unroll 2
    for (uint64_t i = threadIdx.x * CK_PACK; i < body; i += LO_ROW * CK_PACK) {
        ck_read(v, x + head, i, i + CK_PACK, true);
        for (unsigned k = 0; k < CK_PACK; k++)
            v[k] = ck_exp<T>(v[k] - s.top) * scale;
        ck_write(x + head, i, i + CK_PACK, true, v);
    }
    for (uint64_t i = threadIdx.x; i < n - body; i += LO_ROW) {
        uint64_t at = i < head ? i : i + body;
        x[at] = ck_down<T>(ck_exp<T>(ck_up(x[at]) - s.top) * scale);
    }
    __syncthreads();
    if (threadIdx.x == 0) { // here the difference needs fp64
        double p = (double)expf(own - s.top) / (double)s.sum;
        x[label] = ck_down<T>((float)((p - 1.0) * (double)factor));
    }
}

template <typename T>
static __device__ __forceinline__ void ck_entropy_row(const lo_job &j, uint64_t row, float factor)
{
    T *x = (T *)j.a.logits + row * j.a.ld;
    int32_t label = j.a.label[row];
    uint64_t n = j.a.classes;
    bool bad = label != ZT_IGNORE && (label < 0 || (uint64_t)label >= n);
    if (label == ZT_IGNORE || bad) {
        for (uint64_t i = threadIdx.x; j.a.grad && i < n; i += LO_ROW)
            x[i] = ck_down<T>(0.0F);
        if (threadIdx.x == 0) {
            j.row_loss[row] = 0;
            if (bad)
                j.notes->bad = CU_BAD_LABEL;
        }
        return;
    }
    lo_sum s = ck_row_sum(x, n);
    if (threadIdx.x == 0)
        j.row_loss[row] = log((double)s.sum) - ((double)ck_up(x[label]) - (double)s.top);
    if (j.a.grad) {
        __syncthreads(); // until then threads read the label's logit
        ck_row_grad(x, n, s, (uint64_t)label, factor);
    }
}

template <typename T> static __global__ void __launch_bounds__(LO_ROW, LO_ROWS) ck_entropy(lo_job j)
{
    float factor = (float)((double)j.a.factor / j.notes->count);
    for (uint64_t row = blockIdx.x; row < j.a.rows; row += gridDim.x)
        ck_entropy_row<T>(j, row, factor);
}

/* ---- mean squared error, binary cross entropy ---- */

/* Loss of one element; *slope its derivative. */
static __device__ __forceinline__ double ck_element(zt_loss_kind kind, double x, double target,
                                                    double *slope)
{
    if (kind == ZT_MSE) {
        double e = x - target;
        *slope = 2.0 * e;
        return e * e;
    }
    // max(x, 0) - x t + log(1 + exp(-|x|)), as on the CPU
    double e = exp(-fabs(x));
    *slope = (x >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e)) - target;
    return (x > 0 ? x : x < 0 ? 0 : x) - x * target + log1p(e);
}

template <typename T>
static __global__ void __launch_bounds__(LO_THREADS) ck_elements(lo_job j, float factor)
{
    for (uint64_t row = blockIdx.x; row < j.a.rows; row += gridDim.x) {
        T *x = (T *)j.a.logits + row * j.a.ld;
        double sum = 0;
        for (uint64_t i = threadIdx.x; i < j.a.classes; i += LO_THREADS) {
            double slope = 0;
            sum += ck_element(j.a.kind, (double)ck_up(x[i]),
                              (double)j.a.target[row * j.a.classes + i], &slope);
            if (j.a.grad)
                x[i] = ck_down<T>((float)(slope * (double)factor));
        }
        sum = ck_block_sum(sum);
        if (threadIdx.x == 0)
            j.row_loss[row] = sum;
    }
}

/* ---- all ---- */

static void lo_launch(zt_device *d, ckpt_dtype dt, const lo_job *j, double count)
{
    unsigned grid = cu_grid(d, j->a.rows, 1);
    if (j->a.kind == ZT_CROSS_ENTROPY) {
        ZT_LAUNCH(ck_loss_count, 1, LO_TOTAL, 0, cu_stream(d), *j);
        unsigned few = cu_of(d)->multiprocessors * LO_ROWS;
        few = few < grid ? few : grid;
        CU_DTYPE(dt, T, ZT_LAUNCH(ck_entropy<T>, few, LO_ROW, 0, cu_stream(d), *j));
    } else {
        float factor = (float)((double)j->a.factor / count);
        CU_DTYPE(dt, T, ZT_LAUNCH(ck_elements<T>, grid, LO_THREADS, 0, cu_stream(d), *j, factor));
    }
    ZT_LAUNCH(ck_loss_total, 1, LO_TOTAL, 0, cu_stream(d), *j);
}

void cu_loss(zt_device *d, ckpt_dtype dt, const zt_loss *a)
{
    if (!cu_ready(d, dt, zt_ok_loss(a), "loss"))
        return;
    double count = a->kind == ZT_CROSS_ENTROPY ? 0 : (double)a->rows * (double)a->classes;
    if (a->rows == 0) {
        *a->loss = 0 / count; // the mean of an empty set is NaN
        return;
    }
    lo_job j = {*a, (double *)cu_scratch(d, a->rows * sizeof(double)), cu_of(d)->notes};
    if (!j.row_loss)
        return;
    j.a.ld = zt_stride(a->ld, a->classes);
    lo_launch(d, dt, &j, count);
    if (cu_launched(d, "loss") && cu_fetch(d)) {
        const cu_notes *n = cu_of(d)->host_notes;
        *a->loss = n->sum / (a->kind == ZT_CROSS_ENTROPY ? n->count : count);
    }
}
