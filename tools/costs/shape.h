/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h: declares layers, hidden size and heads of an open model. */
#ifndef SHAPE_H
#define SHAPE_H

#include "ckpt.h"

/* Sizes of a model; 0: not known. */
typedef struct model_shape {
    uint64_t layers, hidden, heads;
} model_shape;

/*
 * Read the sizes from the model's config.json.  Without one, layers come from numbers in names
 * ("layers.11.", "h.11."), and the hidden size is that of most tensors with one axis (norms and
 * biases).  The number of heads is not visible then.
 */
void shape_of(model_shape *out, const ckpt_map *map);

#endif
