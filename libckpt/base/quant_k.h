/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k.h: declares the parts of the K-quantizers that have bodies for several processors.
 * Private to base/.
 *
 * All bodies give the same bits, because each run is computed alone in the same order; eight runs
 * fit the lanes of a register.
 */
#ifndef CKPT_BASE_QUANT_K_H
#define CKPT_BASE_QUANT_K_H

#include "libckpt/base/quant.h"

enum { CKPT_QK_RUN = 32, CKPT_QK_LANES = 8 }; /* values of the longest run; runs computed at once */

/* A run around zero with a smaller maximum becomes all zeros. */
#define CKPT_QK_TINY 1e-15f

/* The search of fit_min: levels 0..most, and the tried steps of the inverse scale. */
typedef struct ckpt_qk_search {
    int n, most; /* values of a run: 16 or 32 */
    float from, by;
    int steps;
    /*
     * true: weights and errors are magnitudes; false: weights are magnitudes above the root mean
     * square, and errors are squared
     */
    bool absolute;
} ckpt_qk_search;

/* The levels of a run with scale and minimum; the minimum is subtracted. */
typedef struct ckpt_qk_run {
    float scale, low;
    uint8_t level[CKPT_QK_RUN];
} ckpt_qk_run;

/* Functions for adjacent runs. */
typedef struct ckpt_qk_body {
    /* find scale, minimum and levels for eight runs of s->n values each */
    void (*fit_min)(const ckpt_qk_search *s, const float *x, ckpt_qk_run *out);
    /* find scales and levels for eight runs of 16 values; a level -32..31 is stored plus 32 */
    void (*fit_sym)(const float *x, float *scale, uint8_t *levels);
    /* the same for levels -4..3, stored plus 4; then improve one level at a time */
    void (*fit_sweep)(const float *x, float *scale, uint8_t *levels);
    /* levels of n (16 or 32) values: rint((x + add) / step), clamped to low..high, minus low */
    void (*level)(uint8_t *to, const float *x, int n, const float step[2], const int range[2]);
} ckpt_qk_body;

/* The portable body (quant_k_fit.c). */
extern const ckpt_qk_body ckpt_qk_portable;

/* Convert n_elems of F32 to super-blocks of Q2_K .. Q6_K with a body. */
void ckpt_quant_k(ckpt_dtype type, const ckpt_qk_body *body, void *restrict dst,
                  const void *restrict src, size_t n_elems);

#endif
