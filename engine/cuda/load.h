/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h: declares GPU devices and communicators for the engine.  The first call opens the plugin
 * libzerotrain-cuda.so (load.c).
 *
 * Errors of all calls: CKPT_EUNSUPPORTED: built without CUDA; the plugin or one of its libraries is
 * missing; no GPU, or one that is too old.
 */
#ifndef ZT_CUDA_LOAD_H
#define ZT_CUDA_LOAD_H

#include "engine/comm/comm.h"
#include "engine/device/device.h"

/* A device for GPU number `ordinal`; `deterministic` as for zt_cuda_device_new (api.h). */
int zt_cuda_new(zt_device **out, int ordinal, bool deterministic, ckpt_err *err);

/* The number of GPUs that this process sees, at least one. */
int zt_cuda_count(int *n, ckpt_err *err);

/* Identity (UUID) of a GPU, unique across machines. */
int zt_cuda_identity(int ordinal, unsigned char uuid[16], ckpt_err *err);

/* Write the name of a GPU into name[n]; "" if the plugin has no names. */
void zt_cuda_card(int ordinal, char *name, uint64_t n);

/* Write what has computed the device's attention so far into text[n]; "" if the plugin does not
 * say. */
void zt_cuda_attends(zt_device *device, char *text, uint64_t n);

/*
 * A communicator that exchanges the memory of `device` between the processes of `base` by NCCL, for
 * ranks with a GPU each.  base stays the caller's and must outlive the result; all ranks must call
 * it.
 */
int zt_cuda_comm(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err);

#endif
