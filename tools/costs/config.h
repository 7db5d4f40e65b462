/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: declares counting the parameters of a model that has only a config.json. */
#ifndef TOOLS_CONFIG_H
#define TOOLS_CONFIG_H

#include "tools/costs/shape.h"

/* Sizes of an architecture, in elements. */
typedef struct config_model {
    char class_name[64];      /* "LlamaForCausalLM" */
    uint64_t params, largest; /* shared parameters count once; largest module, without children */
    model_shape shape;
} config_model;

/*
 * Find the config.json of an operand that is not a checkpoint: the operand itself if its name ends
 * in .json, or that of a folder without any file that may hold weights.
 *
 * out     [room] its path; empty: there is none
 */
void config_alone(char *out, size_t room, const char *operand);

/*
 * Count the parameters of the model that a config.json describes, as zerotrain would create it.
 *
 * Errors  those of zt_model_config_read; CKPT_EUNSUPPORTED: an unknown architecture
 */
int config_count(config_model *out, const char *path, ckpt_err *err);

#endif
