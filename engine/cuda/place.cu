/* SPDX-License-Identifier: Apache-2.0 */
/* place.cu: lists the GPUs, and returns the plugin's interface version. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include "engine/cuda/api.h"

int zt_cuda_api(void)
{
    return ZT_CUDA_API;
}

int zt_cuda_gpus(int ordinal, unsigned char uuid[ZT_CUDA_UUID])
{
    int n = 0;

    // a missing driver and a missing GPU give the same answer here, but zt_cuda_device_new
    // distinguishes them
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    if (uuid && ordinal >= 0 && ordinal < n) {
        memset(uuid, 0, ZT_CUDA_UUID);
#ifdef ZT_EMULATED
        // all emulated processes share one GPU, so they return the same identity
        uuid[0] = (unsigned char)(ordinal + 1);
#else
        cudaDeviceProp prop;

        if (cudaGetDeviceProperties(&prop, ordinal) == cudaSuccess)
            memcpy(uuid, prop.uuid.bytes, ZT_CUDA_UUID);
#endif
    }
    return n;
}

void zt_cuda_name(int ordinal, char *name, uint64_t n)
{
#ifdef ZT_EMULATED
    snprintf(name, n, "emulated GPU %d", ordinal);
#else
    cudaDeviceProp prop;

    if (cudaGetDeviceProperties(&prop, ordinal) == cudaSuccess)
        snprintf(name, n, "%s", prop.name);
    else
        snprintf(name, n, "%s", "");
#endif
}
