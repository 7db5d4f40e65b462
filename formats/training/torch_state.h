/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_state.h: declares the making of a training state from the dicts of torch's optimizers.
 */
#ifndef CKPT_FORMATS_TRAINING_TORCH_STATE_H
#define CKPT_FORMATS_TRAINING_TORCH_STATE_H

#include "libckpt/map/state.h"

/* The order of an optimizer's parameters, as far as the files show it. */
typedef enum ckpt_train_order {
    CKPT_TRAIN_UNORDERED, /* the map's tensors have no order */
    CKPT_TRAIN_BY_MODEL,  /* the map's tensors have the order of the model's dict */
    CKPT_TRAIN_BY_NUMBER  /* also, the optimizer names its parameters by position */
} ckpt_train_order;

/*
 * Build the training state of a map that has weights, moments and the tree of values; step counts
 * come from the tensors "step/<parameter>".  If there is no state, or it cannot be expressed,
 * map->no_state gives the reason.
 *
 * ignore_copies  do not compare 16-bit weights with their float32 masters
 * Errors   CKPT_EFORMAT: settings of another kind than torch's; CKPT_EMISMATCH: step counts differ
 *          within one group; errors of reading the counts
 */
int ckpt_train_torch_state(ckpt_map *map, ckpt_train_order order, bool ignore_copies,
                           ckpt_err *err);

/*
 * Copy a parameter group's settings. In the copy, 'params' is the group's number, as in DeepSpeed's
 * files.  NULL: no memory.
 */
ckpt_value *ckpt_train_fields(ckpt_arena *arena, const ckpt_value *settings, size_t number);

/* The training dtype: the dtype of the stored parameters. */
ckpt_dtype ckpt_train_dtype(const ckpt_state *s);

#endif
