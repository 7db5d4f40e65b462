/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k.h: the parts of the K-quantizers that have bodies for several processors.  Private to
 * base/.
 *
 * All bodies give the same bits: each run is treated alone, in the same order, so that eight of
 * them fit the lanes of a register.
 */
#ifndef CKPT_BASE_QUANT_K_H
#define CKPT_BASE_QUANT_K_H

#include "libckpt/base/quant.h"

enum { CKPT_QK_RUN = 32, CKPT_QK_LANES = 8 }; /* values of the longest run; runs done at once */

/* Below this a run around zero is all zeros. */
#define CKPT_QK_TINY 1e-15f

/* How fit_min searches: levels 0..most, and the steps of the inverse scale that are tried. */
typedef struct ckpt_qk_search {
    int n, most; /* values of a run: 16 or 32 */
    float from, by;
    int steps;
    /* weights are magnitudes, and errors too; else weights are magnitudes above the root mean
     * square, and errors are squared */
    bool absolute;
} ckpt_qk_search;

/* Levels of a run with scale and minimum; the minimum is what is subtracted. */
typedef struct ckpt_qk_run {
    float scale, low;
    uint8_t level[CKPT_QK_RUN];
} ckpt_qk_run;

/* Of runs that lie one after the other. */
typedef struct ckpt_qk_body {
    /* scale, minimum and levels of eight runs of s->n values */
    void (*fit_min)(const ckpt_qk_search *s, const float *x, ckpt_qk_run *out);
    /* scales of eight runs of 16 values, with levels -32..31 counted from 0 */
    void (*fit_sym)(const float *x, float *scale, uint8_t *levels);
    /* the same, -4..3, improved one by one */
    void (*fit_sweep)(const float *x, float *scale, uint8_t *levels);
    /* levels of n (16 or 32) values: rint((x + add) / step) within low..high, counted from low */
    void (*level)(uint8_t *to, const float *x, int n, const float step[2], const int range[2]);
} ckpt_qk_body;

/* The body that every processor has (quant_k_fit.c). */
extern const ckpt_qk_body ckpt_qk_portable;

/* n_elems of F32 into super-blocks of Q2_K .. Q6_K by a body. */
void ckpt_quant_k(ckpt_dtype type, const ckpt_qk_body *body, void *restrict dst,
                  const void *restrict src, size_t n_elems);

#endif
