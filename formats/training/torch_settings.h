/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_settings.h: declares the completion of a group's settings, as torch's optimizers need them.
 */
#ifndef CKPT_FORMATS_TRAINING_TORCH_SETTINGS_H
#define CKPT_FORMATS_TRAINING_TORCH_SETTINGS_H

#include "libckpt/map/state.h"

/*
 * Add the settings that torch's optimizer requires and DeepSpeed's Adam does not have.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_torch_settings(ckpt_value **out, ckpt_map *to, const ckpt_state *state,
                              const ckpt_group *g, ckpt_err *err);

#endif
