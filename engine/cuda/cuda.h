/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.h: declares the internals that the files of the CUDA device share: the device struct, launch
 * macros, helpers of kernels.
 *
 *     device.cu  the table, memory, capability
 *     vector.cu  vectors and optimizer steps (compiled without fused multiply-add)
 *     matmul.cu  linear, linear_grad, matmul by cuBLASLt
 *     layers.cu  activations, rotation, dropout
 *     norm.cu embed.cu loss.cu attention.cu attention_grad.cu
 *     fused.cu   attention by cuDNN, if asked for
 *     place.cu   listing the GPUs
 *
 * device.h documents the operations at their structs.  All work runs on one stream; sums have an
 * order that depends on sizes alone.  Tests run the same sources on the CPU (tests/gpu/emulate), so
 * kernels must be launched by ZT_LAUNCH and declare shared memory by ZT_SHARED only.
 *
 * Names: cu_ on the host, ck_ in kernels.
 */
#ifndef ZT_CUDA_CUDA_H
#define ZT_CUDA_CUDA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

extern "C" {
#include "engine/device/arguments.h"
#include "engine/device/product.h"
#include "libckpt/base/mem.h"
}
#include "engine/cuda/api.h"
#include "engine/device/optimizer_formulas.h"

/* ---- launching ---- */

/*
 * ZT_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...): a template with commas goes
 * in parentheses.  ZT_SHARED: dynamic shared memory, aligned to 16 bytes.  ZT_SHARED_ARRAY: a fixed
 * number of elements.
 */
#ifdef ZT_EMULATED
#define ZT_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
    do {                                                                                           \
        auto zt_kernel = kernel;                                                                   \
        (void)(stream);                                                                            \
        zt_emu_launch_call((const void *)zt_kernel, (grid), (block), (shared),                     \
                           [=]() { zt_kernel(__VA_ARGS__); });                                     \
    } while (0)
#define ZT_SHARED(type, name)          type *name = (type *)(void *)zt_emu_shared
#define ZT_SHARED_ARRAY(type, name, n) alignas(32) static type name[n]
#else
#define ZT_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
    do {                                                                                           \
        auto zt_kernel = kernel;                                                                   \
        zt_kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__);                           \
    } while (0)
#define ZT_SHARED(type, name)                                                                      \
    extern __shared__ __align__(128) unsigned char zt_shared_bytes[];                              \
    type *name = (type *)(void *)zt_shared_bytes
#define ZT_SHARED_ARRAY(type, name, n) __shared__ __align__(32) type name[n]
#endif

/* Run a statement with T as the type of dt (F32, BF16, F16; cu_ready has refused all others). */
#define CU_DTYPE(dt, T, ...)                                                                       \
    do {                                                                                           \
        if ((dt) == CKPT_F32) {                                                                    \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        } else if ((dt) == CKPT_BF16) {                                                            \
            typedef __nv_bfloat16 T;                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef __half T;                                                                      \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* ---- the device ---- */

/* Results of kernels for the host; cu_fetch copies them. */
typedef struct cu_notes {
    double sum, count;
    float ratio;  /* LAMB's trust ratio times step size, for a later kernel */
    unsigned bad; /* errors of indices: CU_BAD_* bits */
} cu_notes;

enum { CU_BAD_INDEX = 1, CU_BAD_LABEL = 2 };

/* Copies from and to pageable host memory go through these pinned slots, in turn. */
#define CU_SLOTS      8u
#define CU_SLOT_BYTES (512u << 10)

/* Shared memory that CUDA reserves in each block (CUDA C++ programming guide, 8.x and 9.0). */
#define CU_SHARED_OWN 1024u

typedef struct cu_table cu_table; /* live allocations and their sizes */
typedef struct cu_blas cu_blas;   /* private to matmul.cu */
typedef struct cu_fused cu_fused; /* private to fused.cu */

typedef struct zt_cuda {
    zt_device device; /* first, so a zt_device * can be cast to zt_cuda * */
    int ordinal;
    int capability; /* 10 major + minor */
    unsigned multiprocessors;
    size_t max_shared; /* bytes of shared memory that a block may request */
    size_t all_shared; /* bytes of shared memory of a multiprocessor */
    bool deterministic;
    bool pools; /* memory comes from the driver's pool, which keeps freed blocks */
    cudaStream_t stream;
    cu_table *table;
    void *scratch; /* scratch memory of the current operation */
    uint64_t scratch_bytes;
    cu_notes *notes, *host_notes; /* the struct on the device; its pinned copy on the host */
    char *slots;                  /* CU_SLOTS x CU_SLOT_BYTES, pinned */
    cudaEvent_t slot_free[CU_SLOTS];
    unsigned slot;
    cu_blas *blas;
    cu_fused *fused; /* NULL: the own kernels compute attention */
} zt_cuda;

static inline zt_cuda *cu_of(zt_device *d)
{
    return (zt_cuda *)d;
}

static inline cudaStream_t cu_stream(zt_device *d)
{
    return ((zt_cuda *)d)->stream;
}

/* Call zt_ready (arguments.h), and make the device's GPU current in the calling thread. */
bool cu_ready(zt_device *d, ckpt_dtype dt, bool ok, const char *operation);

/* True if e is cudaSuccess; otherwise mark the device as failed. */
bool cu_try(zt_device *d, cudaError_t e, const char *what);

/* Check after ZT_LAUNCH that the launches were accepted. */
bool cu_launched(zt_device *d, const char *operation);

/*
 * Scratch device memory for one operation, aligned to 256 bytes.  The next call may return the same
 * block.  NULL: no memory, and the device has failed.
 */
void *cu_scratch(zt_device *d, uint64_t n_bytes);

/* Whether cu_scratch has so much memory; the device does not fail if it has not. */
bool cu_scratch_fits(zt_device *d, uint64_t n_bytes);

/*
 * Device memory beside the scratch memory.  NULL: no memory, and the device does not fail.
 */
void *cu_spare(zt_device *d, uint64_t n_bytes);
void cu_spare_free(zt_device *d, void *p); /* NULL is fine */

/* Wait for the stream, and update d->host_notes.  False: an error, and the device has failed. */
bool cu_fetch(zt_device *d);

/* Blocks for n items of work, at most enough to fill the GPU a few times, because kernels loop in
 * strides. */
unsigned cu_grid(zt_device *d, uint64_t n, unsigned per_block);

/* True if whole packs can be moved in one access: pointers (or NULL) are multiples of 16 bytes,
 * lengths are multiples of 8. */
static inline bool cu_wide(const void *a, const void *b, const void *c, uint64_t length)
{
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0 && length % 8 == 0;
}

cu_blas *cu_blas_new(zt_cuda *c); /* NULL: the device has failed */
void cu_blas_free(cu_blas *b);

/* The operations of the table.  device.h documents results and shapes at their structs.  All only
 * queue their work on the stream and return. */
void cu_cast(zt_device *d, uint64_t n, void *to, ckpt_dtype to_dtype, const void *from,
             ckpt_dtype from_dtype);
void cu_accumulate(zt_device *d, const zt_accumulate *a);
void cu_scale(zt_device *d, ckpt_dtype dt, uint64_t n, void *x, float factor);
void cu_add(zt_device *d, ckpt_dtype dt, uint64_t n, void *y, const void *x);
double cu_sum_squares(zt_device *d, ckpt_dtype dt, uint64_t n, const void *x);
void cu_linear(zt_device *d, ckpt_dtype dt, const zt_linear *a);
void cu_linear_grad(zt_device *d, ckpt_dtype dt, const zt_linear_grad *a);
void cu_matmul(zt_device *d, ckpt_dtype dt, const zt_matmul *a);
void cu_act(zt_device *d, ckpt_dtype dt, zt_act act, uint64_t n, void *y, const void *x);
void cu_act_grad(zt_device *d, ckpt_dtype dt, const zt_act_grad *a);
void cu_swiglu(zt_device *d, ckpt_dtype dt, const zt_swiglu *a);
void cu_swiglu_grad(zt_device *d, ckpt_dtype dt, const zt_swiglu *a);
void cu_norm(zt_device *d, ckpt_dtype dt, const zt_norm *a);
void cu_norm_grad(zt_device *d, ckpt_dtype dt, const zt_norm_grad *a);
void cu_embed(zt_device *d, ckpt_dtype dt, const zt_embed *a);
void cu_embed_grad(zt_device *d, ckpt_dtype dt, const zt_embed_grad *a);
void cu_attention(zt_device *d, ckpt_dtype dt, const zt_attention *a);
void cu_attention_grad(zt_device *d, ckpt_dtype dt, const zt_attention_grad *a);
void cu_rope(zt_device *d, ckpt_dtype dt, const zt_rope *a);
void cu_dropout(zt_device *d, ckpt_dtype dt, const zt_dropout *a);
void cu_loss(zt_device *d, ckpt_dtype dt, const zt_loss *a);
void cu_rows(zt_device *d, ckpt_dtype dt, const zt_rows *a);
void cu_update(zt_device *d, const zt_update *a);

/* y = act(x) for rows of `width`, x dense, y with stride ldy: the second half of cu_linear. */
void cu_act_rows(zt_device *d, ckpt_dtype dt, zt_act act, const zt_rows *a);

/* ---- elements in kernels ---- */

/*
 * Elements that a thread moves at once: 16 bytes of a 16-bit type, or two times 16 bytes of fp32.
 */
#define CK_PACK 8u

static __device__ __forceinline__ float ck_up(float x)
{
    return x;
}

static __device__ __forceinline__ float ck_up(__half x)
{
    return __half2float(x);
}

static __device__ __forceinline__ float ck_up(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* Round to T, to nearest even. */
template <typename T> static __device__ __forceinline__ T ck_down(float x);

template <> __device__ __forceinline__ float ck_down<float>(float x)
{
    return x;
}

template <> __device__ __forceinline__ __half ck_down<__half>(float x)
{
    return __float2half_rn(x);
}

template <> __device__ __forceinline__ __nv_bfloat16 ck_down<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* Round two numbers to T at once; the first one goes to the lower half. */
template <typename T> static __device__ __forceinline__ uint32_t ck_pair(float x, float y);

template <> __device__ __forceinline__ uint32_t ck_pair<__half>(float x, float y)
{
    const __half2 pair = __floats2half2_rn(x, y);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

template <> __device__ __forceinline__ uint32_t ck_pair<__nv_bfloat16>(float x, float y)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

/* x after rounding to T. */
template <typename T> static __device__ __forceinline__ float ck_round(float x)
{
    return ck_up(ck_down<T>(x));
}

/*
 * Read the pack at `at`; elements from n on become 0.  wide: use one access if the pack is whole.
 */
template <typename T>
static __device__ __forceinline__ void ck_read(float *x, const T *p, uint64_t at, uint64_t n,
                                               bool wide)
{
    if (wide && at + CK_PACK <= n) {
        union {
            uint4 whole[sizeof(T) / 2];
            T each[CK_PACK];
        } u = {};
        for (unsigned i = 0; i < sizeof(T) / 2; i++)
            u.whole[i] = ((const uint4 *)(const void *)(p + at))[i];
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++)
            x[i] = ck_up(u.each[i]);
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < CK_PACK; i++)
        x[i] = at + i < n ? ck_up(p[at + i]) : 0.0F;
}

/* Write a whole pack at an address that is a multiple of 16 bytes. */
static __device__ __forceinline__ void ck_write_pack(float *p, const float *x)
{
    for (unsigned i = 0; i < CK_PACK; i += 4)
        *(float4 *)(void *)(p + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
}

template <typename T> static __device__ __forceinline__ void ck_write_pack(T *p, const float *x)
{
    *(uint4 *)(void *)p = make_uint4(ck_pair<T>(x[0], x[1]), ck_pair<T>(x[2], x[3]),
                                     ck_pair<T>(x[4], x[5]), ck_pair<T>(x[6], x[7]));
}

/* Round and write the pack at `at`; writes no element from n on. */
template <typename T>
static __device__ __forceinline__ void ck_write(T *p, uint64_t at, uint64_t n, bool wide,
                                                const float *x)
{
    if (wide && at + CK_PACK <= n) {
        ck_write_pack(p + at, x);
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < CK_PACK; i++) {
        if (at + i < n)
            p[at + i] = ck_down<T>(x[i]);
    }
}

/*
 * ck_read for kernels with several dtypes; the branch is cheap, because all threads take the same
 * one.
 */
static __device__ __forceinline__ void ck_read_as(ckpt_dtype dt, float *x, const void *p,
                                                  uint64_t at, uint64_t n, bool wide)
{
    if (dt == CKPT_F32)
        ck_read(x, (const float *)p, at, n, wide);
    else if (dt == CKPT_BF16)
        ck_read(x, (const __nv_bfloat16 *)p, at, n, wide);
    else
        ck_read(x, (const __half *)p, at, n, wide);
}

static __device__ __forceinline__ void ck_write_as(ckpt_dtype dt, void *p, uint64_t at, uint64_t n,
                                                   bool wide, const float *x)
{
    if (dt == CKPT_F32)
        ck_write((float *)p, at, n, wide, x);
    else if (dt == CKPT_BF16)
        ck_write((__nv_bfloat16 *)p, at, n, wide, x);
    else
        ck_write((__half *)p, at, n, wide, x);
}

/* 2^x by the ex2 instruction: relative error 2^-22, results below 2^-126 become 0. */
static __device__ __forceinline__ float ck_exp2(float x)
{
#ifdef ZT_EMULATED
    return exp2f(x);
#else
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

#define CK_LOG2_E 0x1.715476p+0F /* log2(e) */

/*
 * exp(x) for a result that is rounded to T.  For 16-bit types one multiplication and ex2 are
 * enough: for results above 2^-24 the relative error is below 2^-18, which is 2^-6 of a rounding
 * of F16, and less of BF16.
 */
template <typename T> static __device__ __forceinline__ float ck_exp(float x)
{
    return sizeof(T) == 2 ? ck_exp2(x * CK_LOG2_E) : expf(x);
}

/* This thread's number in the grid, and the number of threads. */
static __device__ __forceinline__ uint64_t ck_thread(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint64_t ck_threads(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* Sum over the block, for all its threads, in a fixed order.  Blocks must be whole warps and
 * one-dimensional. */
template <typename V> static __device__ __forceinline__ V ck_block_sum(V x)
{
    ZT_SHARED_ARRAY(V, part, 32);
    for (int by = 16; by > 0; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    __syncthreads(); // other threads may still read an earlier sum
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    V sum = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++)
        sum += part[i];
    return sum;
}

/*
 * Store a gradient as zt_cpu_put_sum does: round it, then (if `add`) add it to the old value and
 * round again.
 */
template <typename T> static __device__ __forceinline__ void ck_put_sum(T *p, float x, bool add)
{
    *p = add ? ck_down<T>(ck_up(*p) + ck_round<T>(x)) : ck_down<T>(x);
}

#endif
