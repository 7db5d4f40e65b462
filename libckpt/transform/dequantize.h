/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize.h: declares the decoders of quantized weights, which dequantize.c calls. */
#ifndef CKPT_TRANSFORM_DEQUANTIZE_H
#define CKPT_TRANSFORM_DEQUANTIZE_H

#include "libckpt/transform/dequant_part.h"

/*
 * The decoders, one for each form of weights: they check the parts and call ckpt_dequant_put.
 *
 * Errors  CKPT_EMISMATCH, CKPT_EUNSUPPORTED, CKPT_EMISSING: parts that are no such weight; those
 *         of ckpt_dequant_small and of the map
 */
int ckpt_dequant_mxfp4(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_blocks(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_scaled(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_columns(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_packed(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_codes(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_fp4(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_modelopt(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_mlx(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_torchao(ckpt_dequantizing *w, const ckpt_dequant_parts *p);
int ckpt_dequant_rows(ckpt_dequantizing *w, const ckpt_dequant_parts *p);

/*
 * Check shapes and dtypes of gpt-oss' MXFP4: [experts, out, blocks, 16] and [experts, out, blocks].
 */
int ckpt_dequant_mxfp4_check(const ckpt_dequantizing *w, const ckpt_dequant_parts *p);

/*
 * Keep a weight in blocks that another format stores too, under its own name: the scales move into
 * the blocks. gpt-oss' MXFP4 becomes ggml's.
 *
 * Errors  as above
 */
int ckpt_repack_mxfp4(ckpt_dequantizing *w, const ckpt_dequant_parts *p);

/* The attributes of a tensor of torchao's NVFP4Tensor or MXTensor. */
typedef struct ckpt_dequant_ao {
    bool nvfp4, swizzled;
    uint64_t n_block; /* columns with one scale */
    ckpt_dtype dtype; /* of the parameter */
} ckpt_dequant_ao;

/* Make a weight of these classes; errors as above. */
int ckpt_dequant_mx(ckpt_dequantizing *w, const ckpt_dequant_parts *p, const ckpt_dequant_ao *a);

/* True if the metadata have entries of torchao. */
bool ckpt_dequant_torchao_has(const ckpt_map *map);

/* Remove torchao's entries from the metadata, after its weights have become floats. */
void ckpt_dequant_torchao_forget(ckpt_map *map);

#endif
