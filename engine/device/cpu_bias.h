/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_bias.h: declares the bias by distance of the CPU's attention. */
#ifndef ZT_DEVICE_CPU_BIAS_H
#define ZT_DEVICE_CPU_BIAS_H

#include "engine/device/device.h"

/* The bias of one call, a list of all distances for each head, and the sums of its gradients. */
typedef struct zt_bias {
    uint64_t n;  /* distances */
    float *at;   /* [heads, n]; NULL: none */
    float *grad; /* [batch, heads, n]; NULL: not computed */
} zt_bias;

/*
 * Read the bias of a (queries set); a without a bias: nothing.  with_grad: make room for gradients,
 * which are 0.  False: out of memory, a failure of the device.
 */
bool zt_bias_new(zt_bias *b, zt_device *d, ckpt_dtype dt, const zt_attention *a, bool with_grad);
void zt_bias_free(zt_bias *b);

/* Sum the gradients over sequences, in their order, and round them once. */
void zt_bias_grad(const zt_bias *b, ckpt_dtype dt, const zt_attention *a, void *dbias);

#endif
