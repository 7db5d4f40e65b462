/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h: declares the arithmetic that the updates of adapters share.
 */
#ifndef CKPT_FORMATS_PEFT_PRODUCT_H
#define CKPT_FORMATS_PEFT_PRODUCT_H

#include <stdint.h>

#include "ckpt_shape.h"

enum { CKPT_PEFT_TILE = 1024 /* columns that are computed at a time */ };

/*
 * acc[0..n-1] += the sum over k < rank of left[k] * right[k * by + 0..n-1], in F32 with one fused
 * multiply-add for each k in turn, so that all processors compute the same bits.  torch 2.15 on
 * x86-64 computes the same, but for products of few columns and of ranks above 128.
 */
void ckpt_peft_product(float *acc, const float *left, const float *right, uint64_t by,
                       uint64_t rank, uint64_t n);

/* Round n values to a 16-bit dtype; NONE: do nothing. */
void ckpt_peft_round(ckpt_dtype dtype, float *x, uint64_t n);

#endif
