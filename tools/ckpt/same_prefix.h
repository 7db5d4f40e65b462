/* SPDX-License-Identifier: Apache-2.0 */
/* same_prefix.h: declares the removal of a prefix that only one side of a comparison has. */
#ifndef TOOLS_CKPT_SAME_PREFIX_H
#define TOOLS_CKPT_SAME_PREFIX_H

#include "ckpt_shape.h"

enum { PREFIX_ROOM = 64 };

/*
 * Find a prefix, with its dot, without which most tensors of `map` have the names of `other`, and
 * remove it: "bert." of a model with a head, whose base model has names without it.
 *
 * prefix   "": none was removed
 * Errors   those of ckpt_map_select
 */
int same_prefix(char prefix[PREFIX_ROOM], ckpt_map *map, const ckpt_map *other, ckpt_err *err);

#endif
