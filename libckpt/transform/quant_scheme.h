/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_scheme.h: describes the quantization of a folder's weights, from its config.json.
 */
#ifndef CKPT_TRANSFORM_QUANT_SCHEME_H
#define CKPT_TRANSFORM_QUANT_SCHEME_H

#include "libckpt/map/map.h"

/* Limit of block sizes in one configuration, because its groups of modules may differ. */
#define CKPT_QUANT_BLOCKS 8u

/* Ways to store quantized weights, as flags. */
typedef enum ckpt_quant_ways {
    CKPT_QUANT_SCALED = 1, /* low-precision numbers with scales: fp8, int8, MXFP4 */
    CKPT_QUANT_PACKED = 2, /* compressed-tensors' words of integers */
    CKPT_QUANT_GPTQ = 4,
    CKPT_QUANT_AWQ = 8,
    CKPT_QUANT_BNB4 = 16,      /* bitsandbytes' NF4 and FP4 */
    CKPT_QUANT_BNB8 = 32,      /* bitsandbytes' int8 */
    CKPT_QUANT_FP4 = 64,       /* compressed-tensors' NVFP4 and MXFP4 */
    CKPT_QUANT_MODELOPT = 128, /* ModelOpt's FP8 and NVFP4 */
    CKPT_QUANT_MLX = 256,
    CKPT_QUANT_GEMV = 512, /* AWQ's words of rows */
    CKPT_QUANT_TORCHAO = 1024
} ckpt_quant_ways;

typedef struct ckpt_quant_scheme {
    const char *scale; /* suffix of the scales' names: "_scale_inv"; NULL: unknown */
    unsigned ways;     /* ckpt_quant_ways; one configuration of compressed-tensors may have two */
    bool integers;     /* I8 weights too */
    bool plain;        /* a scale may apply to a whole tensor, or to each row */
    bool exponents;    /* U8 scales are exponents, of BF16 (mxfp8) */
    uint64_t block[CKPT_QUANT_BLOCKS][2]; /* rows and columns with one scale */
    uint32_t n_blocks;
    /* packed integers */
    unsigned bits;       /* 1 << 4: four bits occur */
    bool even, uneven;   /* weights without zero points occur, and weights with them */
    bool even8, uneven8; /* the same of weights that are not packed */
    uint64_t group;      /* columns of a group; 0: all */
    bool varies;         /* modules may have other bits and groups, which tensors show */
    bool less_one;       /* zero points are stored less one */
    bool reorders;       /* GPTQ's desc_act: groups have columns in any order, which g_idx has */
    /* MLX: the configuration; a member with the name of a module has the settings of that module */
    const ckpt_value *modules;
} ckpt_quant_scheme;

/*
 * Parse a quantization_config.
 *
 * q       NULL: there is none; then names and shapes of tensors decide
 * path    of the model, for messages
 * Errors  CKPT_EUNSUPPORTED: an unsupported method, format or strategy, with its name;
 *         CKPT_EFORMAT: bad sizes; CKPT_ELIMIT
 */
int ckpt_quant_scheme_of(ckpt_quant_scheme *out, const ckpt_value *q, const char *path,
                         ckpt_err *err);

/* How MLX stores the numbers of a module. */
typedef struct ckpt_quant_mlx {
    const char *mode; /* "affine", "mxfp4", "nvfp4", "mxfp8" */
    uint64_t group;   /* columns with one scale */
    unsigned bits;
} ckpt_quant_mlx;

/*
 * Find the settings of a module in MLX's configuration.
 *
 * module  its name of n bytes: "model.layers.0.mlp.down_proj"
 * Errors  CKPT_EUNSUPPORTED: another mode or number of bits; CKPT_EFORMAT: bad sizes;
 *         CKPT_EMISMATCH: the module is not quantized
 */
int ckpt_quant_mlx_of(const ckpt_quant_scheme *scheme, const char *module, size_t n,
                      ckpt_quant_mlx *out, const char *path, ckpt_err *err);

/*
 * Compute the rows and columns of a matrix that share one scale.
 *
 * size    rows and columns of the matrix
 * grid    of its scales
 * block   result; the last blocks may be smaller
 * Errors  CKPT_EMISMATCH, without a message: no block size of the scheme, or two of them, give such
 *         a grid
 */
int ckpt_quant_block_of(const ckpt_quant_scheme *scheme, const uint64_t size[2],
                        const uint64_t grid[2], uint64_t block[2]);

#endif
