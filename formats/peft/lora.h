/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora.h: declares a weight with a low-rank update that is computed when the weight is read.
 *
 * Computed in F32 like peft 0.21's merge_and_unload on a CPU (tuners/lora/layer.py, variants.py):
 * delta = (B A) scale, transposed if the stored matrix is, and rounded to the dtype of a 16-bit
 * adapter; then the sum with the weight; with DoRA (https://arxiv.org/abs/2402.09353) each output's
 * row times its magnitude over its norm.  The writer rounds the result once to the weight's dtype.
 */
#ifndef CKPT_FORMATS_PEFT_LORA_H
#define CKPT_FORMATS_PEFT_LORA_H

#include "libckpt/map/nest.h"

/* The operands of an update. */
typedef struct ckpt_lora {
    const ckpt_tensor *base;      /* the weight: n_mats matrices of rows x cols as stored */
    const ckpt_tensor *a;         /* [n_mats * rank, in], matrix after matrix; NULL: ones */
    const ckpt_tensor *b;         /* [out, rank * n_mats], the matrices' columns interleaved */
    const ckpt_tensor *magnitude; /* DoRA: [out], or NULL */
    uint64_t n_mats, rows, cols, rank;
    bool turned;      /* transposed: a row is an input, not an output */
    double scale;     /* factor of B A */
    ckpt_dtype round; /* round the update to this dtype first; NONE: do not */
    /* diffusers: round the factors, and a base that is itself a sum, to this dtype; NONE: do not */
    ckpt_dtype all;
    const char *name; /* name of the weight */
} ckpt_lora;

/*
 * Make t, a listed tensor, the sum of lora->base and the update; base is a hidden tensor with t's
 * former content.  t becomes F32, with its old dtype for exports.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_lora_put(ckpt_map *map, ckpt_tensor *t, const ckpt_lora *lora, ckpt_err *err);

#endif
