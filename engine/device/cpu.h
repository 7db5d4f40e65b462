/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.h: declares the operations of the CPU device, for its table (cpu.c), its tests, and each
 * other.
 *
 *     cpu.c              the table, memory
 *     cpu_pool.c         threads and their scratch
 *     cpu_matmul.c       linear, linear_grad, matmul
 *     cpu_elementwise.c  vectors, blocks of rows
 *     cpu_act.c          activations
 *     cpu_attention.c    attention; cpu_bias.c: its bias by distance
 *     cpu_norm.c cpu_embed.c cpu_loss.c cpu_rope.c cpu_dropout.c cpu_update.c
 *
 * device.h documents the operations at their structs.
 */
#ifndef ZT_DEVICE_CPU_H
#define ZT_DEVICE_CPU_H

#include "engine/device/arguments.h"
#include "engine/device/device.h"

/* Vectors of n elements. */
void zt_cpu_cast(zt_device *d, uint64_t n, void *to, ckpt_dtype to_dtype, const void *from,
                 ckpt_dtype from_dtype);
void zt_cpu_accumulate(zt_device *d, const zt_accumulate *a);
void zt_cpu_scale(zt_device *d, ckpt_dtype dt, uint64_t n, void *x, float factor);
void zt_cpu_add(zt_device *d, ckpt_dtype dt, uint64_t n, void *y, const void *x);
double zt_cpu_sum_squares(zt_device *d, ckpt_dtype dt, uint64_t n, const void *x);

/* Layers; dt is the dtype of activations and weights. */
void zt_cpu_linear(zt_device *d, ckpt_dtype dt, const zt_linear *a);
void zt_cpu_linear_grad(zt_device *d, ckpt_dtype dt, const zt_linear_grad *a);
void zt_cpu_matmul(zt_device *d, ckpt_dtype dt, const zt_matmul *a);
void zt_cpu_act(zt_device *d, ckpt_dtype dt, zt_act act, uint64_t n, void *y, const void *x);
void zt_cpu_act_grad(zt_device *d, ckpt_dtype dt, const zt_act_grad *a);
void zt_cpu_swiglu(zt_device *d, ckpt_dtype dt, const zt_swiglu *a);
void zt_cpu_swiglu_grad(zt_device *d, ckpt_dtype dt, const zt_swiglu *a);
void zt_cpu_norm(zt_device *d, ckpt_dtype dt, const zt_norm *a);
void zt_cpu_norm_grad(zt_device *d, ckpt_dtype dt, const zt_norm_grad *a);
void zt_cpu_embed(zt_device *d, ckpt_dtype dt, const zt_embed *a);
void zt_cpu_embed_grad(zt_device *d, ckpt_dtype dt, const zt_embed_grad *a);
void zt_cpu_attention(zt_device *d, ckpt_dtype dt, const zt_attention *a);
void zt_cpu_attention_grad(zt_device *d, ckpt_dtype dt, const zt_attention_grad *a);
void zt_cpu_rope(zt_device *d, ckpt_dtype dt, const zt_rope *a);
void zt_cpu_dropout(zt_device *d, ckpt_dtype dt, const zt_dropout *a);
void zt_cpu_loss(zt_device *d, ckpt_dtype dt, const zt_loss *a);
void zt_cpu_rows(zt_device *d, ckpt_dtype dt, const zt_rows *a);
void zt_cpu_update(zt_device *d, const zt_update *a);

/* Helpers that operations share. */

/* Elements per block: as fp32 several blocks fit into a worker's first-level cache. */
#define ZT_CPU_BLOCK 1024u

/* The n elements of x from element `at` on, as fp32: x itself if it is F32, otherwise converted
 * into `room` [n]. */
const float *zt_cpu_read(ckpt_dtype dt, const void *x, uint64_t at, uint64_t n, float *room);

/*
 * Convert to and from fp32, element `at` of the dt side; store rounds to nearest even.  F32: a
 * copy.
 */
void zt_cpu_load(ckpt_dtype dt, float *to, const void *from, uint64_t at, uint64_t n);
void zt_cpu_store(ckpt_dtype dt, void *to, uint64_t at, const float *from, uint64_t n);

/*
 * Write n sums x, each rounded once, to elements `at`... of a gradient.  With `add`, round them,
 * add the old values and round again, as torch does when it adds one finished gradient to another.
 */
void zt_cpu_put_sum(ckpt_dtype dt, void *to, uint64_t at, const float *x, uint64_t n, bool add);

/* y = a + b for n elements, in the calling thread; y may be a or b. */
void zt_cpu_sum(float *y, const float *a, const float *b, uint64_t n);

/* y = act(x) for n elements, in the calling thread; y may be x. */
void zt_cpu_act_block(zt_act act, uint64_t n, float *y, const float *x);

/* Address of element `at`. */
static inline void *zt_cpu_at(ckpt_dtype dt, void *x, uint64_t at)
{
    return (char *)x + at * zt_size(dt);
}

static inline const void *zt_cpu_const_at(ckpt_dtype dt, const void *x, uint64_t at)
{
    return (const char *)x + at * zt_size(dt);
}

#endif
