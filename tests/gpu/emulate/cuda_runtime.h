/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime.h: the part of CUDA that this project uses, run on the processor: for tests where no
 * GPU is.
 *
 * It stands in for the toolkit's header of the same name when a .cu file is compiled by a plain C++
 * compiler with this folder first in the include path.  What kernels see is here, and the runtime's
 * functions; emulate.cpp has the rest.
 *
 * How it works
 *   - One block runs at a time, each of its threads on a stack of its own.  A thread runs until it
 *     waits for others (__syncthreads, a shuffle ...) or ends; then the next one runs.
 *   - Nothing is parallel, but the order of threads within a block may be turned round
 *     (ZT_EMULATE_ORDER=reverse): a kernel that lacks a barrier gives other results then.
 *   - Device memory can be touched by kernels and copies only; host code that reads it crashes.
 *   - Copies to pinned host memory arrive when the host waits for them, not earlier.
 *
 * Environment: ZT_EMULATE_ORDER (forward, reverse), ZT_EMULATE_DEVICES (how many; 1),
 * ZT_EMULATE_CAPABILITY (90 for 9.0), ZT_EMULATE_MEMORY (bytes per device).
 */
#ifndef ZT_EMULATE_CUDA_RUNTIME_H
#define ZT_EMULATE_CUDA_RUNTIME_H

#define ZT_EMULATED 1

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n)   __attribute__((aligned(n)))
#define CUDART_VERSION 13000

// ---- vectors --------------------------------------------------------------------------------
// clang-format off
struct uint3 { unsigned x, y, z; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }
// clang-format on

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

// ---- the running thread ---------------------------------------------------------------------
// They change whenever another thread of the block gets to run.
extern uint3 zt_emu_thread, zt_emu_block;
extern dim3 zt_emu_block_size, zt_emu_grid_size;
extern char *zt_emu_shared; /* dynamic shared memory of the block */

#define threadIdx zt_emu_thread
#define blockIdx  zt_emu_block
#define blockDim  zt_emu_block_size
#define gridDim   zt_emu_grid_size

// ---- launching ------------------------------------------------------------------------------
typedef struct zt_emu_stream *cudaStream_t;
typedef struct zt_emu_event *cudaEvent_t;

/* fn(arg) is the kernel with its arguments; kernel its address, for attributes. */
void zt_emu_launch(const void *kernel, dim3 grid, dim3 block, size_t shared, void (*fn)(void *),
                   void *arg);

template <typename F>
static inline void zt_emu_launch_call(const void *kernel, dim3 grid, dim3 block, size_t shared,
                                      F call)
{
    zt_emu_launch(
        kernel, grid, block, shared, [](void *f) { (*(F *)f)(); }, &call);
}

// ---- threads that meet ----------------------------------------------------------------------
/* All living threads of the block wait for each other; returns how many gave `yes`. */
unsigned zt_emu_barrier(int yes);

/*
 * Lanes in `mask` of the warp wait for each other; the last one calls fn for all.
 *
 * arg  of each lane; fn gets those of all lanes, NULL for the ones that are not there
 */
void zt_emu_warp(unsigned mask, void *arg, void (*fn)(void **args, unsigned mask));

/* Report a misuse and end the process. */
[[noreturn]] void zt_emu_die(const char *text);

static inline unsigned zt_emu_lane(void)
{
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}

static inline void __syncthreads(void)
{
    zt_emu_barrier(0);
}

static inline int __syncthreads_or(int yes)
{
    return zt_emu_barrier(yes != 0) != 0;
}

static inline int __syncthreads_count(int yes)
{
    return (int)zt_emu_barrier(yes != 0);
}

static inline int __syncthreads_and(int yes)
{
    return zt_emu_barrier(yes == 0) == 0;
}

static inline void zt_emu_nothing(void **, unsigned)
{
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    zt_emu_warp(mask, NULL, zt_emu_nothing);
}

template <typename T> struct zt_emu_value {
    T in, out;
    int from; /* lane whose value is wanted */
};

template <typename T> static void zt_emu_exchange(void **args, unsigned mask)
{
    for (int i = 0; i < 32; i++) {
        if (mask >> i & 1) {
            zt_emu_value<T> *v = (zt_emu_value<T> *)args[i];
            if (!(mask >> v->from & 1))
                zt_emu_die("a shuffle reads a lane that does not take part");
            v->out = ((zt_emu_value<T> *)args[v->from])->in;
        }
    }
}

template <typename T> static inline T zt_emu_shuffle(unsigned mask, T x, int from)
{
    zt_emu_value<T> v = {x, x, from};
    zt_emu_warp(mask, &v, zt_emu_exchange<T>);
    return v.out;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32)
{
    int lane = (int)zt_emu_lane();
    return zt_emu_shuffle(mask, x, lane / width * width + (from & (width - 1)));
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32)
{
    int lane = (int)zt_emu_lane(), from = lane ^ with;
    return zt_emu_shuffle(mask, x, from / width > lane / width ? lane : from);
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    int lane = (int)zt_emu_lane(), from = lane + (int)by;
    return zt_emu_shuffle(mask, x, from / width != lane / width ? lane : from);
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    int lane = (int)zt_emu_lane(), from = lane - (int)by;
    return zt_emu_shuffle(mask, x, from < lane / width * width ? lane : from);
}

struct zt_emu_vote {
    int yes;
    unsigned all;
};

static inline void zt_emu_votes(void **args, unsigned mask)
{
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        all |= mask >> i & 1 && ((zt_emu_vote *)args[i])->yes ? 1u << i : 0;
    for (int i = 0; i < 32; i++) {
        if (mask >> i & 1)
            ((zt_emu_vote *)args[i])->all = all;
    }
}

static inline unsigned __ballot_sync(unsigned mask, int yes)
{
    zt_emu_vote v = {yes, 0};
    zt_emu_warp(mask, &v, zt_emu_votes);
    return v.all;
}

static inline int __any_sync(unsigned mask, int yes)
{
    return __ballot_sync(mask, yes) != 0;
}

static inline int __all_sync(unsigned mask, int yes)
{
    return __ballot_sync(mask, !yes) == 0;
}

static inline void __threadfence(void)
{
}

static inline void __threadfence_block(void)
{
}

[[noreturn]] static inline void __trap(void)
{
    zt_emu_die("a kernel trapped");
}

// ---- arithmetic -----------------------------------------------------------------------------
// libm declares functions of these names
#define __expf(x)  expf(x)
#define __logf(x)  logf(x)
#define __log2f(x) log2f(x)
// clang-format off
template <typename T> static inline T zt_emu_bits(const void *p) { T t; memcpy(&t, p, sizeof t); return t; }
static inline float __uint_as_float(unsigned x) { return zt_emu_bits<float>(&x); }
static inline float __int_as_float(int x) { return zt_emu_bits<float>(&x); }
static inline unsigned __float_as_uint(float x) { return zt_emu_bits<unsigned>(&x); }
static inline int __float_as_int(float x) { return zt_emu_bits<int>(&x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline uint64_t min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
static inline unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }
template <typename T> static inline void __stcs(T *p, T x) { *p = x; }
template <typename T> static inline T atomicAdd(T *p, T x) { T old = *p; *p = (T)(old + x); return old; }
template <typename T> static inline T atomicMax(T *p, T x) { T old = *p; *p = old > x ? old : x; return old; }
template <typename T> static inline T atomicOr(T *p, T x) { T old = *p; *p = old | x; return old; }
template <typename T> static inline T atomicExch(T *p, T x) { T old = *p; *p = x; return old; }
// clang-format on

// ---- the runtime ----------------------------------------------------------------------------
typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600
} cudaError_t;

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
} cudaMemcpyKind;

typedef enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMemoryPoolsSupported = 115
} cudaDeviceAttr;

typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
} cudaFuncAttribute;

typedef enum cudaMemoryType {
    cudaMemoryTypeUnregistered,
    cudaMemoryTypeHost,
    cudaMemoryTypeDevice,
    cudaMemoryTypeManaged
} cudaMemoryType;

typedef enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 } cudaMemPoolAttr;
typedef struct zt_emu_pool *cudaMemPool_t;

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, l2CacheSize, pciBusID, pciDeviceID;
    int pciDomainID, memoryPoolsSupported;
};

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

#define cudaStreamNonBlocking    1u
#define cudaEventDisableTiming   2u
#define cudaHostAllocDefault     0u
#define cudaHostAllocPortable    1u
#define cudaHostRegisterDefault  0u
#define cudaHostRegisterPortable 1u

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);
cudaError_t zt_emu_allow_shared(const void *kernel, size_t bytes);

template <typename F>
static inline cudaError_t cudaFuncSetAttribute(F *kernel, cudaFuncAttribute attr, int value)
{
    return attr == cudaFuncAttributeMaxDynamicSharedMemorySize
               ? zt_emu_allow_shared((const void *)kernel, (size_t)value)
               : cudaSuccess;
}

cudaError_t zt_emu_malloc(void **p, size_t n);
cudaError_t zt_emu_malloc_host(void **p, size_t n);

// the toolkit's header takes any kind of pointer in C++, too
template <typename T> static inline cudaError_t cudaMalloc(T **p, size_t n)
{
    return zt_emu_malloc((void **)p, n);
}

template <typename T> static inline cudaError_t cudaMallocAsync(T **p, size_t n, cudaStream_t)
{
    return zt_emu_malloc((void **)p, n);
}

template <typename T> static inline cudaError_t cudaMallocHost(T **p, size_t n)
{
    return zt_emu_malloc_host((void **)p, n);
}

template <typename T> static inline cudaError_t cudaHostAlloc(T **p, size_t n, unsigned)
{
    return zt_emu_malloc_host((void **)p, n);
}

cudaError_t cudaFree(void *p);
cudaError_t cudaFreeAsync(void *p, cudaStream_t s);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attr, void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep);

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s = NULL);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t s = NULL);
cudaError_t cudaMemset(void *p, int value, size_t n);
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s = NULL);

cudaError_t cudaStreamCreate(cudaStream_t *s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = NULL);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

/* For the emulation's own files: keep an error and return it; sizes of the emulated device. */
cudaError_t zt_emu_fail(cudaError_t e);
size_t zt_emu_capacity(void);
size_t zt_emu_most_shared(void);

/* Open and close device memory for what runs on the "device" (also the emulated library). */
void zt_emu_enter(void);
void zt_emu_leave(void);

#endif
