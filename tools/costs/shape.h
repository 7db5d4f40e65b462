/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.h: layers, hidden size and heads of a model that is open.
 */
#ifndef SHAPE_H
#define SHAPE_H

#include "ckpt.h"

/* 0: not known. */
typedef struct model_shape {
    uint64_t layers, hidden, heads;
} model_shape;

/*
 * What its config.json says; else layers are what names number ("layers.11.", "h.11."), and the
 * hidden size is that of most tensors of one axis (norms and biases).  Heads cannot be seen.
 */
void shape_of(model_shape *out, const ckpt_map *map);

#endif
