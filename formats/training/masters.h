/* SPDX-License-Identifier: Apache-2.0 */
/*
 * masters.h: declares the comparison of 16-bit parameters with their float32 masters.
 */
#ifndef CKPT_FORMATS_TRAINING_MASTERS_H
#define CKPT_FORMATS_TRAINING_MASTERS_H

#include "libckpt/map/state.h"

/*
 * Find float32 masters of the state's 16-bit parameters: optimizer state ("master_param/<name>",
 * as TransformerEngine has it) or tensors beside the model ("master_params.<name>"), by a word of
 * their key. Each becomes a tensor that is compared with the parameter's 16-bit values when it is
 * read, unless the caller ignores copies. state->masters gets the key of the first.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_masters(ckpt_map *map, ckpt_state *state, bool ignore_copies, ckpt_err *err);

#endif
