/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.h: declares an embedding some of whose rows an adapter replaces when it is read.
 *
 * peft 0.21 trains single rows (tuners/trainable_tokens/layer.py) with an adapter of its own, or
 * beside LoRA (trainable_token_indices), and stores the new rows in the order of the indices.
 */
#ifndef CKPT_FORMATS_PEFT_TOKENS_H
#define CKPT_FORMATS_PEFT_TOKENS_H

#include "libckpt/map/nest.h"

/* A row that is replaced. */
typedef struct ckpt_token {
    uint64_t row; /* of the embedding */
    uint64_t at;  /* row of the new values */
} ckpt_token;

typedef struct ckpt_tokens {
    const ckpt_tensor *base; /* the embedding, a matrix */
    const ckpt_tensor *rows; /* matrix of the new values, of equal width */
    const ckpt_token *token; /* n of them by ascending row, each row once; in the map's arena */
    uint64_t n;
} ckpt_tokens;

/*
 * Make t, a listed matrix, tokens->base, a hidden tensor with its former content, with some rows
 * replaced; t becomes F32, with its old dtype for exports.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_tokens_put(ckpt_map *map, ckpt_tensor *t, const ckpt_tokens *tokens, ckpt_err *err);

#endif
