/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime.cpp: owns what the emulated runtime tells about its devices and errors.
 */
#include "cuda_runtime.h"

#include <stdio.h>

#define EM_SHARED_DEFAULT (48u << 10)
#define EM_SHARED_MOST    (227u << 10)
#define EM_MEMORY         ((size_t)8 << 30)

static thread_local cudaError_t em_error;
static thread_local int em_device;

cudaError_t zt_emu_fail(cudaError_t e)
{
    em_error = e;
    return e;
}

/* Like devices 8.0: 163 KiB, 8.6: 99 KiB, 9.0: 227 KiB. */
size_t zt_emu_most_shared(void)
{
    const char *text = getenv("ZT_EMULATE_CAPABILITY");
    int capability = text ? atoi(text) : 90;
    return capability >= 90 ? EM_SHARED_MOST : capability > 80 ? 99u << 10 : 163u << 10;
}

size_t zt_emu_capacity(void)
{
    const char *text = getenv("ZT_EMULATE_MEMORY");
    return text ? (size_t)strtoull(text, NULL, 10) : EM_MEMORY;
}

static int em_devices(void)
{
    const char *text = getenv("ZT_EMULATE_DEVICES");
    return text ? atoi(text) : 1;
}

static int em_capability(void)
{
    const char *text = getenv("ZT_EMULATE_CAPABILITY");
    return text ? atoi(text) : 90;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = em_devices();
    return *n > 0 ? cudaSuccess : zt_emu_fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = em_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= em_devices()) {
        return zt_emu_fail(cudaErrorInvalidDevice);
    }
    em_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    if (device < 0 || device >= em_devices()) {
        return zt_emu_fail(cudaErrorInvalidDevice);
    }
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "emulated GPU");
    prop->totalGlobalMem = zt_emu_capacity();
    prop->sharedMemPerBlock = EM_SHARED_DEFAULT;
    prop->sharedMemPerBlockOptin = zt_emu_most_shared();
    prop->sharedMemPerMultiprocessor = zt_emu_most_shared() + 1024;
    prop->major = em_capability() / 10;
    prop->minor = em_capability() % 10;
    prop->multiProcessorCount = 4;
    prop->l2CacheSize = 1 << 20;
    prop->pciBusID = device;
    prop->memoryPoolsSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device)
{
    struct cudaDeviceProp prop;
    cudaError_t e = cudaGetDeviceProperties(&prop, device);
    if (e != cudaSuccess) {
        return e;
    }
    switch (attr) {
    case cudaDevAttrMultiProcessorCount:
        *value = prop.multiProcessorCount;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = prop.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = prop.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)prop.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
    default:
        return zt_emu_fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int)
{
    *pool = NULL;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t)
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = em_error;
    em_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return em_error;
}

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorInsufficientDriver:
    case cudaErrorNotReady:
    default:
        return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    return cudaGetErrorName(e);
}
