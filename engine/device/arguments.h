/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments.h: declares the checks of operations' arguments.  Every kind of device calls them
 * before it computes.  They refuse NULL, sizes whose product overflows, and missing buffers if
 * there is work to do.
 */
#ifndef ZT_DEVICE_ARGUMENTS_H
#define ZT_DEVICE_ARGUMENTS_H

#include "engine/device/device.h"

/*
 * True if an operation can start: the device has not failed, its arguments are `ok` (see below),
 * and dt is F32, BF16 or F16.  Otherwise the device fails.
 */
bool zt_ready(zt_device *d, ckpt_dtype dt, bool ok, const char *operation);

/*
 * True if an operation's pointers are set, and its counts and sizes fit each other.  device.h
 * documents the arguments at each struct.
 */
bool zt_ok_accumulate(const zt_accumulate *a);
bool zt_ok_rows(const zt_rows *a);
bool zt_ok_linear(const zt_linear *a);
bool zt_ok_linear_grad(const zt_linear_grad *a);
bool zt_ok_matmul(const zt_matmul *a);
bool zt_ok_act(zt_act act, uint64_t n, const void *y, const void *x);
bool zt_ok_act_grad(const zt_act_grad *a);
bool zt_ok_swiglu(const zt_swiglu *a);
bool zt_ok_swiglu_grad(const zt_swiglu *a);
bool zt_ok_norm(const zt_norm *a);
bool zt_ok_norm_grad(const zt_norm_grad *a);
bool zt_ok_embed(const zt_embed *a);
bool zt_ok_embed_grad(const zt_embed_grad *a);
bool zt_ok_attention(const zt_attention *a);
bool zt_ok_attention_grad(const zt_attention_grad *a);
bool zt_ok_rope(const zt_rope *a);
bool zt_ok_dropout(const zt_dropout *a);
bool zt_ok_loss(const zt_loss *a);
bool zt_ok_update(const zt_update *a);

/* Elements of a head that are rotated. */
static inline uint64_t zt_turned(const zt_rope *a)
{
    return a->turned != 0 ? a->turned : a->width;
}

/* Distance between rows in elements; ld 0 stands for dense rows. */
static inline uint64_t zt_stride(uint64_t ld, uint64_t width)
{
    return ld != 0 ? ld : width;
}

/* Bytes of an element: 4 or 2. */
static inline uint64_t zt_size(ckpt_dtype dt)
{
    return dt == CKPT_F32 ? 4 : 2;
}

#endif
