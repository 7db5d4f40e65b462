/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_config.h: declares look-ups in the configuration that DeepSpeed stores with a run, and in its
 * list of AutoEP's layers.
 */
#ifndef CKPT_FORMATS_TRAINING_DS_CONFIG_H
#define CKPT_FORMATS_TRAINING_DS_CONFIG_H

#include "libckpt/map/state.h"

/* A value of the source's ds_config by section and key ("zero_optimization", "stage"), or NULL. */
const ckpt_value *ckpt_train_config_get(const ckpt_state *state, const char *section,
                                        const char *key);

/* A number of ds_config, int or float as in JSON; `otherwise` if absent. */
uint64_t ckpt_train_config_number(const ckpt_state *state, const char *section, const char *key,
                                  uint64_t otherwise);

/* True if a value of ds_config exists and is not zero. */
bool ckpt_train_config_flag(const ckpt_state *state, const char *section, const char *key);

/* ds_autoep_layers of the source; n is 0 without AutoEP. */
ckpt_seq ckpt_train_autoep_layers(const ckpt_state *state);

/* The expert-parallel size of a source with AutoEP, or 0. */
uint32_t ckpt_train_autoep(const ckpt_state *state);

#endif
