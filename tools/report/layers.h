/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.h: declares the tensors of a map by layer, with bytes per dtype.
 *
 * A layer's name is the tensor's name up to its first numeric part ("model.layers.7"); names
 * without one use all but the last part ("transformer.wte").
 */
#ifndef TOOLS_LAYERS_H
#define TOOLS_LAYERS_H

#include "ckpt.h"
#include "libckpt/base/index.h"

typedef struct layer {
    char *name;
    uint64_t n_tensors, n_elems, n_bytes; /* tied names count only as tensors */
    uint64_t bytes_of[CKPT_N_DTYPES];
} layer;

typedef struct layers {
    layer *at; /* in the order of their first tensors */
    size_t n, room;
    uint32_t *of;                                 /* layer of each tensor of the map */
    uint64_t bytes_of[CKPT_N_DTYPES], most_bytes; /* bytes per dtype; bytes of the largest layer */
    ckpt_index names;                             /* finds the layers by name */
} layers;

/* Length of the layer's name within a tensor's name. */
size_t layer_of(const char *name);

/* The rest of a tensor's name after its layer, without the dot: "attn.weight"; may be "". */
const char *layer_rest(const char *name);

/* Sort a map's tensors into layers.  Errors: CKPT_ELIMIT */
int layers_make(layers *out, const ckpt_map *map, ckpt_err *err);
void layers_free(layers *l);

/* Find the layer with the first n bytes of a name, or add it; SIZE_MAX: out of memory. */
size_t layers_find(layers *l, const char *name, size_t n);

#endif
