/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h: what the plugin libzerotrain-cuda.so exports of communicators (nccl.c); nccl_load.c calls
 * it.
 */
#ifndef ZT_COMM_NCCL_H
#define ZT_COMM_NCCL_H

#include "engine/comm/comm.h"
#include "engine/device/cuda_api.h"

/*
 * Collectives over the memory of `device`, by NCCL.  All ranks call it.
 *
 * base    the processes: spreads NCCL's id and is what abort ends; it stays the caller's, and
 *         outlives the result
 * Errors  CKPT_EUNSUPPORTED: built without NCCL; CKPT_EIO: NCCL's own (two ranks on one GPU are one
 *         of them)
 */
ZT_CUDA_EXPORT int zt_nccl_comm_new(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err);

#endif
