/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrapped_names.h: declares the matching of the model's names with the optimizer's names, if a
 * wrapper (DDP, torch.compile) has changed only one of them.
 */
#ifndef CKPT_FORMATS_TRAINING_WRAPPED_NAMES_H
#define CKPT_FORMATS_TRAINING_WRAPPED_NAMES_H

#include "libckpt/map/state.h"

/*
 * Rename each weight to the optimizer's name for it, if the two differ only in prefixes that
 * wrappers add ("module.", "_orig_mod.").
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_wrapped_names(ckpt_map *map, const ckpt_value *optimizer, ckpt_err *err);

#endif
