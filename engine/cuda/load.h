/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h: GPUs for the engine, through the plugin libzerotrain-cuda.so, which the first call here
 * opens (load.c).
 *
 * Errors of all calls: CKPT_EUNSUPPORTED: built without CUDA, the plugin or a library of it is
 * missing, no GPU, one that is too old.
 */
#ifndef ZT_CUDA_LOAD_H
#define ZT_CUDA_LOAD_H

#include "engine/comm/comm.h"
#include "engine/device/device.h"

/* GPU number `ordinal` as a device; `deterministic` as for zt_cuda_device_new (api.h). */
int zt_cuda_new(zt_device **out, int ordinal, bool deterministic, ckpt_err *err);

/* The number of GPUs that this process sees, at least one. */
int zt_cuda_count(int *n, ckpt_err *err);

/* Bytes that tell this GPU from any other, of this machine or another. */
int zt_cuda_identity(int ordinal, unsigned char uuid[16], ckpt_err *err);

/*
 * The processes of `base`, exchanging the memory of `device` by NCCL: for ranks with a GPU each.
 * base stays the caller's and outlives the result; all ranks call it.
 */
int zt_cuda_comm(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err);

#endif
