/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.h: detects weights stored as low-precision numbers with scales in other tensors
 * ("X.weight" and "X.weight_scale_inv"), which mean nothing without their scales.
 */
#ifndef CKPT_MAP_QUANTIZED_H
#define CKPT_MAP_QUANTIZED_H

#include "libckpt/map/map.h"

/* True if config.json or a tensor's name shows that the weights are quantized. */
bool ckpt_quantized(const ckpt_map *map);

/*
 * Refuse an operation that would use the stored numbers as values.
 *
 * doing    for the message: "a change of dtype"
 * Errors   CKPT_EUNSUPPORTED: config.json or a tensor's name shows that the weights are quantized
 */
int ckpt_quantized_refuse(const ckpt_map *map, const char *doing, ckpt_err *err);

/*
 * A weight matrix of integers in a model that has matrices of floats, too, and is not quantized as
 * far as its names and its configuration show: the scales are missing.  NULL: none.
 */
const ckpt_tensor *ckpt_quantized_code(const ckpt_map *map);

/*
 * Refuse an operation that makes floats of a model with such a matrix.
 *
 * doing    as above
 * Errors   CKPT_EUNSUPPORTED
 */
int ckpt_quantized_codes(const ckpt_map *map, const char *doing, ckpt_err *err);

#endif
