/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h: declares the interface of the plugin libzerotrain-cuda.so: devices, and the NCCL
 * communicator.
 *
 * load.c opens the plugin when a run asks for a GPU, so the program itself starts on machines
 * without CUDA libraries.  Program and plugin share the structs of device.h and comm.h, so both
 * must come from one build; zt_cuda_api() tests this.  Memory and error states are not shared: each
 * side frees its own allocations, through the tables.
 */
#ifndef ZT_CUDA_API_H
#define ZT_CUDA_API_H

#ifdef __cplusplus
extern "C" {
#endif

#include "engine/comm/comm.h"
#include "engine/device/device.h"

/* Must be incremented when a struct of device.h or comm.h, or a function here, changes. */
#define ZT_CUDA_API 3

#define ZT_CUDA_EXPORT __attribute__((visibility("default")))

/* The plugin's ZT_CUDA_API. */
ZT_CUDA_EXPORT int zt_cuda_api(void);

/* Length of a UUID, which identifies a GPU across machines. */
#define ZT_CUDA_UUID 16

/*
 * The number of GPUs that this process may use (CUDA_VISIBLE_DEVICES counts), 0: none, or no
 * driver.
 *
 * uuid  filled with the identity of GPU `ordinal`, which must be below the number; may be NULL
 */
ZT_CUDA_EXPORT int zt_cuda_gpus(int ordinal, unsigned char uuid[ZT_CUDA_UUID]);

/*
 * A device for GPU number `ordinal`.
 *
 * deterministic  use library algorithms whose repeated runs have equal bits, even if they are
 *                slower
 * Errors         CKPT_EUNSUPPORTED: no GPU, a driver that is too old, compute capability below 8.0
 *                (the text gives the found and the needed version); CKPT_ELIMIT; of
 *                ZEROTRAIN_ATTENTION: fused.h
 */
ZT_CUDA_EXPORT int zt_cuda_device_new(zt_device **out, int ordinal, bool deterministic,
                                      ckpt_err *err);

/*
 * Write the name of GPU `ordinal` ("NVIDIA H100 80GB HBM3") into name[n]; "" if there is none.  The
 * program works without this function, so that plugins of older builds can be measured with it.
 */
ZT_CUDA_EXPORT void zt_cuda_name(int ordinal, char *name, uint64_t n);

/*
 * Write a line about what computes the device's attention, as text for people, into text[n].  The
 * program works without this function, as without zt_cuda_name.
 */
ZT_CUDA_EXPORT void zt_cuda_attention(zt_device *d, char *text, uint64_t n);

/* The cudaStream_t on which all work of the device is queued. */
ZT_CUDA_EXPORT void *zt_cuda_stream(zt_device *d);

/*
 * A communicator over the memory of `device`, by NCCL.  All ranks must call it.
 *
 * base    communicator of the processes: it distributes NCCL's id, and abort ends its processes; it
 *         stays the caller's and must outlive the result
 * Errors  CKPT_EUNSUPPORTED: built without NCCL; CKPT_EIO: an NCCL error (for example, two ranks on
 *         one GPU)
 */
ZT_CUDA_EXPORT int zt_nccl_comm_new(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err);

#ifdef __cplusplus
}
#endif

#endif
