/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h: implements products by tensor cores whose results stay in registers.
 *
 * The unit is mma.m16n8k16: [16, 16] of T by [16, 8], summed in fp32.  The PTX ISA defines which
 * lane holds which elements ("Matrix fragments for mma.m16n8k16"); with g = lane / 4 and t = lane %
 * 4,
 *
 *     sums   [16, 8]    x[0], x[1]: row g, columns 2t, 2t + 1;  x[2], x[3]: row g + 8
 *     left   [16, 16]   pairs of T: row g, columns 2t ..; row g + 8; then columns 2t + 8 .. of both
 *     right  [16, 8]    pairs of T: column g, rows 2t ..; rows 2t + 8 ..
 *
 * So two sums side by side, rounded to T, form a left factor in the same lanes: scores become the
 * factor of the next product without passing through shared memory (Dao 2023), and an operation on
 * one row concerns only four neighbouring lanes.
 *
 * Matrices in shared memory have CK_TC_PAD elements more per row than columns, so eight rows start
 * in eight different groups of banks, and loads do not wait for each other.
 */
#ifndef ZT_CUDA_TENSOR_H
#define ZT_CUDA_TENSOR_H

#include "engine/cuda/cuda.h"

#ifdef ZT_EMULATED
#include "tensor_core.h"
#endif

#define CK_TC_PAD 8

/* This lane's part of a [16, 8] piece of sums. */
typedef struct ck_tc_sums {
    float x[4];
} ck_tc_sums;

/* Row and column, within a piece, of this lane's element i. */
static __device__ __forceinline__ int ck_tc_row(int i)
{
    return (int)threadIdx.x % 32 / 4 + i / 2 * 8;
}

static __device__ __forceinline__ int ck_tc_col(int i)
{
    return (int)threadIdx.x % 4 * 2 + i % 2;
}

template <int M, int N> static __device__ __forceinline__ void ck_tc_clear(ck_tc_sums (&acc)[M][N])
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++)
        acc[i / 4 / N][i / 4 % N].x[i % 4] = 0;
}

/* ---- instructions ------------------------------------------------------------------------ */

template <typename T>
static __device__ __forceinline__ void ck_tc_mma(ck_tc_sums &c, const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1);

#ifdef ZT_EMULATED
template <typename T>
static inline void ck_tc_mma(ck_tc_sums &c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    zt_emu_mma<T>(c.x, a, b0, b1);
}
#else
/* The same instruction for both types. */
#define CK_TC_MMA(T, name)                                                                         \
    template <>                                                                                    \
    __device__ __forceinline__ void ck_tc_mma<T>(ck_tc_sums & c, const uint32_t(&a)[4],            \
                                                 uint32_t b0, uint32_t b1)                         \
    {                                                                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));              \
    }

CK_TC_MMA(__half, "f16")
CK_TC_MMA(__nv_bfloat16, "bf16")
#undef CK_TC_MMA
#endif

/* Load four [8, 8] pieces of 16-bit numbers; lane l gives the address of row l % 8 of piece l / 8.
 * Register i gets row g, columns 2t and 2t + 1 of piece i. */
static __device__ __forceinline__ void ck_tc_load(uint32_t (&to)[4], const void *row)
{
#ifdef ZT_EMULATED
    zt_emu_ldmatrix(to, row, false);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/* The same, transposed: rows 2t and 2t + 1, column g. */
static __device__ __forceinline__ void ck_tc_load_turned(uint32_t (&to)[4], const void *row)
{
#ifdef ZT_EMULATED
    zt_emu_ldmatrix(to, row, true);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/* ---- products ---------------------------------------------------------------------------- */

/* acc = x y': 16 M rows of x, 8 N rows of y (N even), W columns; both in shared memory. */
template <typename T, int W, int M, int N>
static __device__ __forceinline__ void ck_tc_scores(ck_tc_sums (&acc)[M][N], const T *x, const T *y)
{
    const int ld = W + CK_TC_PAD, lane = (int)threadIdx.x % 32;
    const T *left = x + lane % 16 * ld + lane / 16 * 8;
    const T *right = y + (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8;

    ck_tc_clear(acc);
#pragma unroll(W > 64 && M > 1 ? 1 : 4) // unrolling further would exceed the registers
    for (int k = 0; k < W; k += 16) {
        uint32_t a[M][4];

#pragma unroll
        for (int m = 0; m < M; m++)
            ck_tc_load(a[m], left + m * 16 * ld + k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];

            ck_tc_load(b, right + n * 8 * ld + k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                ck_tc_mma<T>(acc[m][n], a[m], b[0], b[1]);
                ck_tc_mma<T>(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* acc += p x: p are sums, rounded to T; x has 8 K rows (K even) of W columns in shared memory. */
template <typename T, int W, int M, int K>
static __device__ __forceinline__ void ck_tc_gather(ck_tc_sums (&acc)[M][W / 8],
                                                    const ck_tc_sums (&p)[M][K], const T *x)
{
    const int ld = W + CK_TC_PAD, lane = (int)threadIdx.x % 32;
    const T *right = x + lane % 16 * ld + lane / 16 * 8;

#pragma unroll
    for (int k = 0; k < K; k += 2) {
        uint32_t a[M][4];

#pragma unroll
        for (int i = 0; i < M * 4; i++) {
            const float *pair = &p[i / 4][k + i % 4 / 2].x[i % 2 * 2];

            a[i / 4][i % 4] = ck_pair<T>(pair[0], pair[1]);
        }
#pragma unroll
        for (int n = 0; n < W / 8; n += 2) {
            uint32_t b[4];

            ck_tc_load_turned(b, right + k * 8 * ld + n * 8);
#pragma unroll
            for (int m = 0; m < M; m++) {
                ck_tc_mma<T>(acc[m][n], a[m], b[0], b[1]);
                ck_tc_mma<T>(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Put 16 M rows of sums, rounded to T, into shared memory; row m * 16 + half * 8 + g of this lane
 * multiplied by factor[m][half]. */
template <typename T, int W, int M>
static __device__ __forceinline__ void ck_tc_put(T *to, const ck_tc_sums (&acc)[M][W / 8],
                                                 const float (&factor)[M][2])
{
    const int ld = W + CK_TC_PAD;

#pragma unroll
    for (int i = 0; i < M * (W / 8) * 2; i++) {
        const int m = i / 2 / (W / 8), n = i / 2 % (W / 8), half = i % 2;
        const float *pair = &acc[m][n].x[half * 2], f = factor[m][half];
        T *at = to + (m * 16 + ck_tc_row(half * 2)) * ld + n * 8 + ck_tc_col(0);

        *(uint32_t *)(void *)at = ck_pair<T>(pair[0] * f, pair[1] * f);
    }
}

#endif
