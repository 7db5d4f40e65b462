/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_part.h: defines types and functions that decoders of quantized weights share.
 */
#ifndef CKPT_TRANSFORM_DEQUANT_PART_H
#define CKPT_TRANSFORM_DEQUANT_PART_H

#include "libckpt/base/cast.h"
#include "libckpt/base/index.h"
#include "libckpt/transform/quant_scheme.h"

/* Tensors that belong to a weight, besides its scales. */
#define CKPT_DEQUANT_OTHERS 6u

typedef struct ckpt_dequantizing {
    ckpt_map *map;
    bool *gone;                 /* per tensor of the map: remove it from the list */
    ckpt_dtype model;           /* dtype of the model by its configuration, or by other tensors */
    bool rounded;               /* round values to that dtype */
    bool blocks;                /* keep weights in blocks that another format stores too */
    bool own;                   /* outputs have the dtype of each weight, not the model's */
    bool transposed;            /* a type of model with linear layers of [in, out] */
    uint64_t n_vocab, n_hidden; /* the sizes of its embedding; 0: unknown */
    ckpt_reader *reader;        /* for ckpt_dequant_small; NULL until then */
    ckpt_index said;            /* the map's metadata, by key; empty until a format looks one up */
    ckpt_quant_scheme scheme;
    uint64_t n_made, n_others;
    uint64_t n_kept; /* weights among n_made that stay in blocks */
    ckpt_err *err;
} ckpt_dequantizing;

/* A quantized weight with the tensors that belong to it. */
typedef struct ckpt_dequant_parts {
    ckpt_tensor *weight, *scale;
    ckpt_tensor *other[CKPT_DEQUANT_OTHERS]; /* as the form lists them; NULL: missing */
    const char *name;                        /* of the result */
} ckpt_dequant_parts;

/* How F32 results are rounded. */
typedef struct ckpt_dequant_round {
    ckpt_cast_fn own;    /* first to the dtype in which the format computes; NULL: that is F32 */
    ckpt_cast_fn narrow; /* then to the dtype of the result; NULL: the result is F32 */
    ckpt_dtype dtype;    /* of the result */
} ckpt_dequant_round;

/*
 * Choose how results are rounded: to the dtype `own` in which the format computes, then to the
 * model's dtype if the caller wants that.
 */
void ckpt_dequant_rounding(const ckpt_dequantizing *w, ckpt_dequant_round *round, ckpt_dtype own);

/* Round n results. `to` may be x if the result is F32 and computed in F32. */
void ckpt_dequant_finish(const ckpt_dequant_round *round, void *to, const float *x, uint64_t n);

/* Unpack number i of a line of words, which have their first number in their lowest bits. */
uint32_t ckpt_dequant_number(const uint32_t *word, unsigned bits, uint64_t i);

/* Unpack blocks of 32 numbers, each of `bits` words. */
void ckpt_dequant_unpack(const uint32_t *word, unsigned bits, uint64_t blocks, float *to);

/* The path of the source, for messages. */
const char *ckpt_dequant_path(const ckpt_dequantizing *w);

/* The quantization of the weights, for messages. */
const char *ckpt_dequant_how(const ckpt_dequantizing *w);

/* Refuse scales that do not fit their weight by shape or dtype. */
int ckpt_dequant_misfit(const ckpt_dequantizing *w, const ckpt_tensor *t, const ckpt_tensor *part);

/* Refuse a part of a packed weight that does not fit it by shape or dtype. */
int ckpt_dequant_unfit(const ckpt_dequantizing *w, const ckpt_dequant_parts *p,
                       const ckpt_tensor *part);

/* Refuse a packed weight of a model whose linear layers store [in, out]. */
int ckpt_dequant_turned(const ckpt_dequantizing *w, const ckpt_dequant_parts *p);

/*
 * Read all elements of a small tensor of the source, before its values change.
 *
 * dtype   of the elements in buf; CKPT_DTYPE_NONE: the tensor's own
 */
int ckpt_dequant_small(ckpt_dequantizing *w, const ckpt_tensor *t, ckpt_dtype dtype, void *buf);

/*
 * Replace the weight by the results of an operation.
 *
 * make    with inputs and function
 * dtype   of the results
 * shape   ndim sizes in the map's arena; NULL: the shape stays
 */
int ckpt_dequant_put(ckpt_dequantizing *w, const ckpt_dequant_parts *p, ckpt_make *make,
                     ckpt_dtype dtype, const uint64_t *shape, uint32_t ndim);

#endif
