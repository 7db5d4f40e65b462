/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchao.h: declares facts about torchao's classes that readers of pickles need.
 */
#ifndef CKPT_TRANSFORM_TORCHAO_H
#define CKPT_TRANSFORM_TORCHAO_H

#include "libckpt/map/map.h"

/* True for a class whose tensors can be dequantized. */
bool ckpt_torchao_known(const char *type);

/* True if qdata of this dtype has two numbers in a byte. */
bool ckpt_torchao_pairs(const char *type, ckpt_dtype qdata);

#endif
