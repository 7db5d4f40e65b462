/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused.h: declares attention by cuDNN's fused kernels instead of the plugin's own.
 *
 * ZEROTRAIN_ATTENTION=cudnn asks for it.  cuDNN then computes the calls that keep lse (training)
 * and are plain: fp16 or bf16, heads up to AT_WIDEST, rows that start at multiples of 16 bytes; no
 * mask, window, dropout, ALiBi, bias or cap.  The plugin's own kernels compute all others.
 *
 * Both round the same factors to dt (attention.h), so they differ by those roundings alone, with
 * one exception: with grouped heads cuDNN rounds dk and dv of each query head to dt before it adds
 * them.  cuDNN also adds up dq in an order that depends on timing, so repeated runs may differ, and
 * a deterministic device refuses it.
 *
 * The first call of each plan also runs the own kernels and compares the results.  If cuDNN's are
 * further from the exact ones than rounding explains (fused.cu), a warning names the greatest
 * distance, and the own kernels compute everything from then on.  A call that cuDNN refuses is left
 * to the own kernels, with a warning.  Warnings go to the standard error, as the operations have no
 * other way to give them.
 */
#ifndef ZT_CUDA_FUSED_H
#define ZT_CUDA_FUSED_H

#include "engine/cuda/attention.h"

/*
 * Read ZEROTRAIN_ATTENTION for a device whose stream exists.
 *
 * out     NULL: own kernels were asked for, or nothing
 * Errors  CKPT_EUSAGE: an unknown value, a deterministic device, or cuDNN cannot be loaded: never
 *         CKPT_EUNSUPPORTED, by which `--device auto` would choose the processor
 */
int cu_fused_new(cu_fused **out, zt_cuda *c, ckpt_err *err);

void cu_fused_free(cu_fused *f); /* NULL is fine; the stream must be idle */

/*
 * Compute a call by cuDNN, if it is one of those; false: the caller must compute it.
 *
 * a  what c was made of
 * g  the backward pass; NULL: the forward pass
 */
bool cu_fused_run(zt_device *d, const cu_at_call &c, const zt_attention *a,
                  const zt_attention_grad *g);

/* Write a line about what has computed attention so far into text[n]. */
void cu_fused_text(const cu_fused *f, char *text, uint64_t n);

#endif
