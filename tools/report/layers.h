/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.h: the tensors of a map by layer: what of it is of which dtype.
 *
 * A layer is what the name says up to its first part that is a number ("model.layers.7"); of names
 * without one, all but the last part ("transformer.wte").
 */
#ifndef TOOLS_LAYERS_H
#define TOOLS_LAYERS_H

#include "ckpt.h"

typedef struct layer {
    char *name;
    uint64_t n_tensors, n_elems, n_bytes; /* tied names have elements and bytes of their own not */
    uint64_t bytes_of[CKPT_N_DTYPES];
} layer;

typedef struct layers {
    layer *at; /* in the order in which the map has them first */
    size_t n;
    uint32_t *of;                                 /* of each tensor of the map */
    uint64_t bytes_of[CKPT_N_DTYPES], most_bytes; /* of all; of the largest layer */
    size_t *slot;                                 /* by hash of the name: index + 1 */
    size_t n_slots;
} layers;

/* How many bytes of a tensor's name are its layer's. */
size_t layer_of(const char *name);

/* What of a tensor's name stands behind its layer, without the dot: "attn.weight"; "": nothing. */
const char *layer_rest(const char *name);

/* Sort a map's tensors.  Errors: CKPT_ELIMIT */
int layers_make(layers *out, const ckpt_map *map, ckpt_err *err);
void layers_free(layers *l);

/*
 * The layer with the first n bytes of a name, added if it is not there; SIZE_MAX: out of memory.
 */
size_t layers_find(layers *l, const char *name, size_t n);

#endif
