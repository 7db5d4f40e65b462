/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_k.h: declares the parts of the K-quantizers that have bodies for several processors.
 * Private to base/.
 *
 * All bodies give the same bits, because each run is computed alone in the same order. Sixteen runs
 * at once fill two registers of AVX2, or one of AVX-512.
 */
#ifndef CKPT_BASE_QUANT_K_H
#define CKPT_BASE_QUANT_K_H

#include "libckpt/base/quant.h"

enum { CKPT_QK_RUN = 32, CKPT_QK_LANES = 16 }; /* values of the longest run; runs at once */

/* A run around zero with a smaller maximum becomes all zeros. */
#define CKPT_QK_TINY 1e-15f

/* The search of fit_min: levels 0..most, and the tried steps of the inverse scale. */
typedef struct ckpt_qk_search {
    int n, most; /* n: values of a run, 16 or 32 */
    float from, by;
    int steps;
    /*
     * true: errors are magnitudes, and so are weights that are not given; false: errors are
     * squared, and these weights are magnitudes above the root mean square
     */
    bool absolute;
} ckpt_qk_search;

/* The runs of fit_sym: of n values (16 or 32), with levels -half..half-1. */
typedef struct ckpt_qk_around {
    unsigned n;
    int half;
} ckpt_qk_around;

/* The levels of a run with scale and minimum; the minimum is subtracted. */
typedef struct ckpt_qk_run {
    float scale, low;
    uint8_t level[CKPT_QK_RUN];
} ckpt_qk_run;

/*
 * Functions for CKPT_QK_LANES adjacent runs. w has a weight for each value; NULL: the weights that
 * ggml computes from the values alone.
 */
typedef struct ckpt_qk_body {
    /* find scale, minimum and levels for runs of s->n values each */
    void (*fit_min)(const ckpt_qk_search *s, const float *x, const float *w, ckpt_qk_run *out);
    /* find scales and levels for runs of s->n values; a level is stored plus s->half */
    void (*fit_sym)(const ckpt_qk_around *s, const float *x, const float *w, float *scale,
                    uint8_t *levels);
    /* the same for runs of 16 values and levels -4..3; then improve one level at a time */
    void (*fit_sweep)(const float *x, float *scale, uint8_t *levels);
    /* levels of n (16 or 32) values: rint((x + add) / step), clamped to low..high, minus low */
    void (*level)(uint8_t *to, const float *x, int n, const float step[2], const int range[2]);
} ckpt_qk_body;

/* The portable body (quant_k_fit.c). */
extern const ckpt_qk_body ckpt_qk_portable;

/* The AVX2 body, on x86-64. */
extern const ckpt_qk_body ckpt_qk_x86;

/* fit_sym for one run; returns its scale. */
float ckpt_qk_fit_sym(const ckpt_qk_around *s, const float *x, const float *w, uint8_t *levels);

/*
 * Quantize n scales or minima, of runs with these weights, to levels 0..most; returns their scale.
 * A negative level, and one above 255, keeps its low byte, as in ggml (make_qp_quants).
 */
float ckpt_qk_fit_scales(unsigned n, int most, const float *x, const float *w, uint8_t *level);

/*
 * Convert n_elems of F32 to super-blocks of Q2_K .. Q6_K with a body.
 *
 * w        a weight for each value, from an importance matrix, or NULL
 */
void ckpt_quant_k(ckpt_dtype type, const ckpt_qk_body *body, void *restrict dst,
                  const void *restrict src, const float *w, size_t n_elems);

/* The bodies for this processor, the fastest first; NULL: there are fewer. */
const ckpt_qk_body *ckpt_qk_body_at(unsigned i);

#endif
