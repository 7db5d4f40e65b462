/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_scores.h: declares operations of the CPU's attention on rows of numbers.  n: whole lanes. */
#ifndef ZT_DEVICE_CPU_SCORES_H
#define ZT_DEVICE_CPU_SCORES_H

#include <stdint.h>

/* s = cap * tanh(s / cap). */
void zt_scores_cap(float *s, uint64_t n, float cap);

/* slope = 1 - (y / cap)^2, the derivatives of capped scores y. */
void zt_scores_slope(float *slope, const float *y, uint64_t n, float cap);

/* d = d * slope. */
void zt_scores_uncap(float *d, const float *slope, uint64_t n);

/* Multiply row r of x [rows, width] by factor[r]; width may be any. */
void zt_scores_scale(float *x, uint64_t rows, uint64_t width, const float *factor);

#endif
