/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks.h: finds the stacks of numbered layers in the names of a model.
 */
#ifndef CKPT_FORMATS_HF_STACKS_H
#define CKPT_FORMATS_HF_STACKS_H

#include "libckpt/map/map.h"

enum { CKPT_HF_LAYERS = 1 << 16 }; /* more layers than any real model has */

/* The tensors "<prefix>.<number>.<rest>" of one prefix; the first number in a name counts. */
typedef struct ckpt_hf_stack {
    const char *prefix; /* not terminated by NUL */
    size_t n_prefix;
    uint64_t n;               /* different numbers */
    uint64_t hole;            /* the lowest number that no tensor has; n: none below the highest */
    const char *const *names; /* of the tensors, by number */
    size_t n_names;
} ckpt_hf_stack;

CKPT_VEC(ckpt_hf_stack_vec, ckpt_hf_stack);

typedef struct ckpt_hf_stacks {
    ckpt_hf_stack_vec stack; /* in the order of the model */
    const char **names;
} ckpt_hf_stacks;

/*
 * Find the stacks of a model's tensors. Free with ckpt_hf_stacks_free, after a failure, too.
 *
 * Errors  CKPT_ELIMIT: out of memory
 */
int ckpt_hf_stacks_find(ckpt_hf_stacks *out, const ckpt_map *map, ckpt_err *err);

/* Free the lists; the names belong to the map. */
void ckpt_hf_stacks_free(ckpt_hf_stacks *stacks);

/* True if the prefix is that of a model's layers; a Sequential has gaps at its activations. */
bool ckpt_hf_stack_is_layers(const ckpt_hf_stack *stack);

#endif
