/* SPDX-License-Identifier: Apache-2.0 */
/*
 * masters.h: declares the comparison of 16-bit parameters with their float32 masters.
 */
#ifndef CKPT_FORMATS_TRAINING_MASTERS_H
#define CKPT_FORMATS_TRAINING_MASTERS_H

#include "libckpt/map/state.h"

/*
 * Find the float32 masters of the state's 16-bit parameters, by the word "master" in their keys:
 * optimizer state ("master_param/<name>", as TransformerEngine stores it) or tensors beside the
 * model ("master_params.<name>"). When a master is read, it is compared with the parameter's 16-bit
 * values, unless the caller ignores copies. state->masters gets the key of the first master.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_masters(ckpt_map *map, ckpt_state *state, bool ignore_copies, ckpt_err *err);

#endif
