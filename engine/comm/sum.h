/* SPDX-License-Identifier: Apache-2.0 */
/* sum.h: declares the element-wise reduction of the values of several ranks, in rank order. */
#ifndef ZT_COMM_SUM_H
#define ZT_COMM_SUM_H

#include "engine/comm/comm.h"

/*
 * to [n] = from[0][i] op from[1][i] op ... op from[world - 1][i], from left to right.
 *
 * dt    F32, F16, BF16: in fp32, rounded once at the end; F64: in fp64; I32, I64: modulo 2^32, 2^64
 * op    MAX and MIN: NaN wins
 * to    may be one of the from's; no other overlap
 */
void zt_sum(void *to, const void *const *from, int world, uint64_t n, ckpt_dtype dt, zt_reduce op);

#endif
