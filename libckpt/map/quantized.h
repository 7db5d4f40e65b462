/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.h: whether the weights of a map are stored as small numbers whose scales are tensors of
 * their own ("X.weight" and "X.weight_scale_inv"), so that no number means anything alone.
 */
#ifndef CKPT_MAP_QUANTIZED_H
#define CKPT_MAP_QUANTIZED_H

#include "libckpt/map/map.h"

/* config.json or a tensor's name says that the weights are quantized. */
bool ckpt_quantized(const ckpt_map *map);

/*
 * Refuse what takes the stored numbers for values.
 *
 * doing   for the message: "a change of dtype"
 * Errors  CKPT_EUNSUPPORTED: config.json or a tensor's name says that the weights are quantized
 */
int ckpt_quantized_refuse(const ckpt_map *map, const char *doing, ckpt_err *err);

#endif
