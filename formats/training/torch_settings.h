/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_settings.h: declares the completion of a group's settings for torch's optimizers.
 */
#ifndef CKPT_FORMATS_TRAINING_TORCH_SETTINGS_H
#define CKPT_FORMATS_TRAINING_TORCH_SETTINGS_H

#include "libckpt/map/state.h"

/*
 * Complete a group's settings to those of torch's optimizer, because DeepSpeed's Adam lacks some.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_torch_settings(ckpt_value **out, ckpt_map *to, const ckpt_state *state,
                              const ckpt_group *g, ckpt_err *err);

#endif
