/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_load.c: NCCL's communicator from the CUDA plugin, which device/cuda_load.c opens.
 */
#include "engine/comm/nccl.h"

int zt_comm_nccl(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err)
{
    int (*make)(zt_comm **, zt_comm *, zt_device *, ckpt_err *) = NULL;
    int rc = zt_cuda_find("zt_nccl_comm_new", &make, err);

    *out = NULL;
    return rc == CKPT_OK ? make(out, base, device, err) : rc;
}
