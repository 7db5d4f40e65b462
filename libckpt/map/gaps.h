/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gaps.h: finds a tensor that one layer of a model lacks although the other layers have it.
 *
 * Layers may differ on purpose (dense and MoE layers, attention and Mamba layers), so layers are
 * compared by their sets of names.  A layer has a gap only if another layer has all of its names
 * and more, and nothing stands in the place of the missing name; or if the names of the model's
 * type are known, and a layer lacks one of them.
 */
#ifndef CKPT_MAP_GAPS_H
#define CKPT_MAP_GAPS_H

#include "libckpt/map/map.h"

/* Numbered layers "<prefix>.<number>.<key>". */
typedef struct ckpt_stack {
    const char *prefix; /* not terminated by NUL */
    size_t n_prefix;
    const char *const *names; /* of the stack's tensors; NULL: those of the map are searched */
    size_t n_names;
    const uint32_t *kind; /* kind of each layer, which is compared with layers of its kind alone */
    size_t n_kind;        /* 0: kinds are not known; layers from this number on are not compared */
    uint64_t experts;     /* experts of a layer that has any; 0: not known */
    bool uniform;         /* all layers of a kind have the same names, but for adapters' */
    bool idle;            /* experts beyond these compute nothing, so some weights may be absent */
    /* [n_needed]: names that each layer of the type has, without ".weight", separated by blanks;
     * '#' is a number. NULL: not known */
    const char *const *needed;
    size_t n_needed;
} ckpt_stack;

/* A gap. */
typedef struct ckpt_gap {
    bool found;
    uint64_t layer;
    uint64_t here, there; /* how many tensors of this name the layer has, and should have */
    uint64_t like;        /* a complete layer; the layer itself if its own experts disagree */
    bool alone;           /* no other layer has the name: the model's type has it */
    char key[160];        /* name after the layer's number, an expert's number as '*' */
} ckpt_gap;

/*
 * Find the first gap in a stack of layers.
 *
 * Errors  CKPT_ELIMIT: out of memory
 */
int ckpt_gap_find(const ckpt_map *map, const ckpt_stack *stack, ckpt_gap *gap, ckpt_err *err);

#endif
