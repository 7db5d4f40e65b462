/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c: stands in for the CUDA driver (libcuda.so.1) where there is none, so that cuDNN builds
 * plans for a GPU that is not there.
 *
 * cuDNN compiles a kernel for a plan, then loads it by the driver: here the loading succeeds and
 * does nothing.  All other calls report that there is no device.
 */
#include <stddef.h>

enum { OK = 0, NO_DEVICE = 100 };

static int loaded; /* its address is the handle of everything that was loaded */

static int load(void **out)
{
    *out = &loaded;
    return OK;
}

int cuLibraryLoadData(void **library);
int cuLibraryGetKernel(void **kernel);
int cuKernelGetFunction(void **function);
int cuModuleLoadDataEx(void **module);
int cuModuleLoadData(void **module);
int cuModuleGetFunction(void **function);

int cuLibraryLoadData(void **library)
{
    return load(library);
}

int cuLibraryGetKernel(void **kernel)
{
    return load(kernel);
}

int cuKernelGetFunction(void **function)
{
    return load(function);
}

int cuModuleLoadDataEx(void **module)
{
    return load(module);
}

int cuModuleLoadData(void **module)
{
    return load(module);
}

int cuModuleGetFunction(void **function)
{
    return load(function);
}

/* A call without effect. */
#define EMPTY(name, result)                                                                        \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return result;                                                                             \
    }

EMPTY(cuLibraryUnload, OK)
EMPTY(cuKernelGetAttribute, OK)
EMPTY(cuKernelSetAttribute, OK)
EMPTY(cuInit, NO_DEVICE)
EMPTY(cuDeviceGet, NO_DEVICE)
EMPTY(cuDeviceGetCount, NO_DEVICE)
EMPTY(cuDriverGetVersion, NO_DEVICE)
EMPTY(cuCtxGetCurrent, NO_DEVICE)
EMPTY(cuCtxGetLimit, NO_DEVICE)
EMPTY(cuCtxPopCurrent, NO_DEVICE)
EMPTY(cuCtxPushCurrent, NO_DEVICE)
EMPTY(cuStreamGetCtx, NO_DEVICE)
EMPTY(cuGetErrorName, NO_DEVICE)
EMPTY(cuGetErrorString, NO_DEVICE)
EMPTY(cuLibraryLoadFromFile, NO_DEVICE)
EMPTY(cuLinkAddData, NO_DEVICE)
EMPTY(cuLinkComplete, NO_DEVICE)
EMPTY(cuLinkCreate, NO_DEVICE)
EMPTY(cuLinkDestroy, NO_DEVICE)
EMPTY(cuLaunchCooperativeKernel, NO_DEVICE)
EMPTY(cuLaunchKernel, NO_DEVICE)
EMPTY(cuLaunchKernelEx, NO_DEVICE)
EMPTY(cuOccupancyMaxPotentialClusterSize, NO_DEVICE)
