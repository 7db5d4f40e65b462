/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_scheme.h: how the weights of a folder are quantized, by what its config.json says.
 */
#ifndef CKPT_QUANT_SCHEME_H
#define CKPT_QUANT_SCHEME_H

#include "libckpt/map/map.h"

/* Sizes of blocks that one configuration may name: its groups of modules may differ. */
#define CKPT_QUANT_BLOCKS 8u

typedef struct ckpt_quant_scheme {
    const char *scale; /* how the names of scales end: "_scale_inv"; NULL: nothing says it */
    bool integers;     /* I8 weights too */
    bool plain;        /* a scale may stand for a whole tensor, or for each row */
    uint64_t block[CKPT_QUANT_BLOCKS][2]; /* rows and columns that have one scale */
    uint32_t n_blocks;
} ckpt_quant_scheme;

/*
 * Understand a quantization_config.
 *
 * q       NULL: there is none.  Names and shapes of tensors then say what they can
 * path    of the model, for messages
 * Errors  CKPT_EUNSUPPORTED: a method, format or strategy that is not read as floats, with its
 *         name; CKPT_EFORMAT: sizes that are none; CKPT_ELIMIT
 */
int ckpt_quant_scheme_of(ckpt_quant_scheme *out, const ckpt_value *q, const char *path,
                         ckpt_err *err);

/*
 * How many rows and columns of a matrix one scale is for.
 *
 * size    rows and columns of the matrix
 * grid    of its scales
 * block   made: the last ones may be cut
 * Errors  CKPT_EMISMATCH, without a message: no blocks of the scheme, or those of two sizes, make
 *         such a grid
 */
int ckpt_quant_block_of(const ckpt_quant_scheme *scheme, const uint64_t size[2],
                        const uint64_t grid[2], uint64_t block[2]);

#endif
