/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lora.h: a weight with a low-rank update, computed where it is read.
 *
 * In F32, as peft 0.21's merge_and_unload on a processor (tuners/lora/layer.py, variants.py): delta
 * = (B A) scale, turned where the stored matrix is, and rounded to the dtype of a 16-bit adapter;
 * then the sum with the weight; with DoRA (https://arxiv.org/abs/2402.09353), each output's row
 * times its magnitude over its norm.  One rounding to the weight's dtype is left to whoever writes
 * it.
 */
#ifndef CKPT_FORMATS_PEFT_LORA_H
#define CKPT_FORMATS_PEFT_LORA_H

#include "libckpt/map/nest.h"

/* What the update is made of. */
typedef struct ckpt_lora {
    const ckpt_tensor *base;      /* the weight: n_mats matrices of rows x cols as stored */
    const ckpt_tensor *a;         /* [n_mats * rank, in], matrix after matrix; NULL: ones */
    const ckpt_tensor *b;         /* [out, rank * n_mats], the matrices' columns in turn */
    const ckpt_tensor *magnitude; /* DoRA: [out], or NULL */
    uint64_t n_mats, rows, cols, rank;
    bool turned;      /* a row is an input, not an output */
    double scale;     /* of B A */
    ckpt_dtype round; /* the update is rounded to it first; NONE: it is not */
    const char *name; /* of the weight */
} ckpt_lora;

/*
 * Let t, a tensor of the list, be lora->base with the update; base is a hidden tensor that has what
 * t had.  t becomes F32, with its old dtype for exports.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_lora_put(ckpt_map *map, ckpt_tensor *t, const ckpt_lora *lora, ckpt_err *err);

#endif
