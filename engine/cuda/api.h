/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h: what the plugin libzerotrain-cuda.so exports: devices, and the communicator of NCCL.
 *
 * The plugin is opened by load.c when a run asks for a GPU, so the program itself starts where
 * no CUDA library is installed.  Both sides share the structs of device.h and comm.h: they must
 * come from one build, which zt_cuda_api() tells.  Memory and errors do not cross: each side frees
 * what it has allocated, through the tables.
 */
#ifndef ZT_CUDA_API_H
#define ZT_CUDA_API_H

#ifdef __cplusplus
extern "C" {
#endif

#include "engine/comm/comm.h"
#include "engine/device/device.h"

/* Counted up when a struct of device.h or comm.h, or a function here, changes. */
#define ZT_CUDA_API 3

#define ZT_CUDA_EXPORT __attribute__((visibility("default")))

/* ZT_CUDA_API of the build that the plugin comes from. */
ZT_CUDA_EXPORT int zt_cuda_api(void);

/* Bytes that tell one GPU from any other, of this machine or another. */
#define ZT_CUDA_UUID 16

/*
 * The number of GPUs that this process may use (CUDA_VISIBLE_DEVICES counts), 0: none, or no
 * driver.
 *
 * uuid  the identity of number `ordinal`, which must be below the number; NULL: not wanted
 */
ZT_CUDA_EXPORT int zt_cuda_gpus(int ordinal, unsigned char uuid[ZT_CUDA_UUID]);

/*
 * GPU number `ordinal` as a device.
 *
 * deterministic  also where it costs time: libraries' algorithms are chosen so that repeated runs
 *                have equal bits
 * Errors         CKPT_EUNSUPPORTED: no GPU, a driver that is too old, compute capability below 8.0
 *                (the text says what was found and what is needed); CKPT_ELIMIT
 */
ZT_CUDA_EXPORT int zt_cuda_device_new(zt_device **out, int ordinal, bool deterministic,
                                      ckpt_err *err);

/* The cudaStream_t on which all work of the device is queued. */
ZT_CUDA_EXPORT void *zt_cuda_stream(zt_device *d);

/*
 * Collectives over the memory of `device`, by NCCL.  All ranks call it.
 *
 * base    the processes: spreads NCCL's id and is what abort ends; it stays the caller's, and
 *         outlives the result
 * Errors  CKPT_EUNSUPPORTED: built without NCCL; CKPT_EIO: NCCL's own (two ranks on one GPU are one
 *         of them)
 */
ZT_CUDA_EXPORT int zt_nccl_comm_new(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err);

#ifdef __cplusplus
}
#endif

#endif
