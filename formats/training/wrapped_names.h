/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrapped_names.h: declares how names match if only the model or only its optimizer is wrapped.
 */
#ifndef CKPT_FORMATS_TRAINING_WRAPPED_NAMES_H
#define CKPT_FORMATS_TRAINING_WRAPPED_NAMES_H

#include "libckpt/map/state.h"

/*
 * Give weights the optimizer's names for them, where the two differ only in the words of wrappers
 * ("module.", "_orig_mod.").
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_wrapped_names(ckpt_map *map, const ckpt_value *optimizer, ckpt_err *err);

#endif
