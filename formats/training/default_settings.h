/* SPDX-License-Identifier: Apache-2.0 */
/*
 * default_settings.h: declares the making of settings for parameter groups that have none in the
 * checkpoint.
 */
#ifndef CKPT_FORMATS_TRAINING_DEFAULT_SETTINGS_H
#define CKPT_FORMATS_TRAINING_DEFAULT_SETTINGS_H

#include "libckpt/map/state.h"

/*
 * Make the settings of a group without settings (g->fields is NULL): those of the optimizer in
 * ds_config, or Adam's defaults. A warning reports the choice.
 *
 * Errors  CKPT_EUNSUPPORTED: unknown optimizer; CKPT_ELIMIT
 */
int ckpt_train_configured(ckpt_value **out, ckpt_map *to, const ckpt_state *state,
                          const ckpt_group *g, ckpt_err *err);

/*
 * Add the settings that the Adam classes of DeepSpeed (deepspeed/ops/adam/fused_adam.py,
 * cpu_adam.py) and torch need in a step; each class ignores the others' keys.  False: no memory.
 */
bool ckpt_train_adam(ckpt_arena *arena, ckpt_value *fields, ckpt_value *decoupled);

#endif
