/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requant.h: declares the forms of ckpt_map_quantize, and their helpers.
 *
 *     requantize.c      finds the form, chooses the matrices
 *     requant_part.c    replaces a matrix by computed tensors
 *     requant_fp8.c     fp8 numbers with a scale for a block or a row
 *     requant_group.c   forms with a scale for a group of columns, and their driver
 *     requant_codes.c   the arithmetic of one group, of each form
 */
#ifndef CKPT_TRANSFORM_REQUANT_H
#define CKPT_TRANSFORM_REQUANT_H

#include "ckpt_extra.h"
#include "libckpt/base/cast.h"
#include "libckpt/map/map.h"

/* Limit of a group's columns. */
#define CKPT_REQUANT_GROUP 1024u

struct ckpt_requant_form;

/* A run of ckpt_map_quantize. */
typedef struct ckpt_requant {
    ckpt_map *map;
    ckpt_quantize opts;
    const struct ckpt_requant_form *form;
    uint64_t block[2];  /* rows and columns with one scale; 0: a whole row */
    ckpt_tensors made;  /* the new list */
    ckpt_bytes skipped; /* linear layers that stay unchanged, as JSON */
    uint64_t n_made, n_skipped;
    uint64_t n_more;  /* floats of more than two axes: experts in one tensor, convolutions */
    const char *more; /* the name of the first */
    uint64_t matched; /* one bit per pattern of unchanged weights: it has matched a matrix */
    ckpt_err *err;
} ckpt_requant;

/* Replace a matrix, which blocks divide evenly, by its quantized numbers and their scales. */
typedef int ckpt_requant_weight_fn(ckpt_requant *w, ckpt_tensor *t);

/* Set map->quantization and its key.  list: modules that stay unquantized, as JSON */
typedef int ckpt_requant_config_fn(ckpt_requant *w, const char *list);

typedef struct ckpt_requant_form {
    const char *name;  /* "w4a16" */
    unsigned sizes;    /* numbers that may follow the name: 0, 1 (":64") or 2 (":64x128") */
    uint64_t block[2]; /* their defaults */
    unsigned bits;
    bool mlx; /* for MLX, which quantizes embeddings and heads, too */
    ckpt_requant_weight_fn *weight;
    ckpt_requant_config_fn *config;
} ckpt_requant_form;

/* ---- requant_part.c ---- */

/* Append a tensor to the new list. */
int ckpt_requant_push(ckpt_requant *w, ckpt_tensor *t);

/*
 * Add a tensor computed by make beside the matrix t.
 *
 * like    dtype, ndim, shape
 * make    name and dtype are set here; lives in the map's arena
 * Errors  CKPT_EMISMATCH: a tensor of this name exists already
 */
int ckpt_requant_add(ckpt_requant *w, const ckpt_tensor *t, const char *name,
                     const ckpt_tensor *like, ckpt_make *make);

/* Let a computed tensor take the place of the matrix t; the same arguments. */
int ckpt_requant_replace(ckpt_requant *w, ckpt_tensor *t, const char *name, const ckpt_tensor *like,
                         ckpt_make *make);

/* The dtype of a form's arithmetic: that of the output's floats. */
ckpt_dtype ckpt_requant_dtype(const ckpt_requant *w, const ckpt_tensor *t);

/* The error for numbers that are not finite, in rows first to last of a matrix. */
int ckpt_requant_not_finite(const char *name, uint64_t first, uint64_t last, ckpt_err *err);

/* ---- requant_fp8.c ---- */

ckpt_requant_weight_fn ckpt_requant_fp8;
ckpt_requant_config_fn ckpt_requant_fp8_block_config, ckpt_requant_fp8_channel_config;

/* ---- requant_group.c ---- */

ckpt_requant_weight_fn ckpt_requant_int, ckpt_requant_nvfp4, ckpt_requant_mxfp4, ckpt_requant_mlx;
ckpt_requant_config_fn ckpt_requant_int_config, ckpt_requant_nvfp4_config,
    ckpt_requant_mxfp4_config, ckpt_requant_mlx_config;

/* ---- requant_codes.c ---- */

/* How the numbers of a matrix are computed. */
typedef struct ckpt_requant_how {
    uint64_t group; /* columns, at most CKPT_REQUANT_GROUP */
    unsigned bits;
    ckpt_dtype of;              /* dtype of the arithmetic: F32, F16, BF16 */
    ckpt_cast_fn narrow, widen; /* to and from `of`; NULL: F32 */
    /* NVFP4: E4M3 of a scale and back, and the factor of the whole tensor */
    ckpt_cast_fn to_fp8, from_fp8;
    float whole;
} ckpt_requant_how;

/*
 * Compute a group's elements of one tensor.
 *
 * x   the group's values, already rounded to the dtype of the arithmetic; may be overwritten
 * to  the elements
 */
typedef void ckpt_requant_code(const ckpt_requant_how *how, float *x, void *to);

/* compressed-tensors' integers: words of numbers, scales */
ckpt_requant_code ckpt_requant_int_words, ckpt_requant_int_scale;
/* compressed-tensors' NVFP4 and MXFP4: pairs of numbers, scales */
ckpt_requant_code ckpt_requant_nvfp4_pairs, ckpt_requant_nvfp4_scale;
ckpt_requant_code ckpt_requant_mxfp4_pairs, ckpt_requant_mxfp4_scale;
/* MLX's affine numbers: words, scales, biases */
ckpt_requant_code ckpt_requant_mlx_words, ckpt_requant_mlx_scale, ckpt_requant_mlx_bias;

/* NVFP4: the factor of the whole tensor, from its largest magnitude. */
float ckpt_requant_nvfp4_whole(const ckpt_requant_how *how, float max);

/* Round n values to the dtype of the arithmetic, at most CKPT_REQUANT_GROUP. */
void ckpt_requant_round(const ckpt_requant_how *how, float *x, uint64_t n);

#endif
