/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: a model that is known by its config.json alone: what its architecture has of
 * parameters.
 */
#ifndef TOOLS_CONFIG_H
#define TOOLS_CONFIG_H

#include "tools/costs/shape.h"

/* What an architecture has; elements. */
typedef struct config_model {
    char class_name[64];      /* "LlamaForCausalLM" */
    uint64_t params, largest; /* shared parameters once; of the largest module without children */
    model_shape shape;
} config_model;

/*
 * The config.json that an operand means where it is no checkpoint: the operand itself if its name
 * ends in .json, or that of a folder without any file that may hold weights.
 *
 * out      [room] its path; empty: the operand means none
 */
void config_alone(char *out, size_t room, const char *operand);

/*
 * Count the parameters of the model that a config.json describes, as zerotrain would make it.
 *
 * Errors  those of zt_model_config_read; CKPT_EUNSUPPORTED: an architecture that is not known
 */
int config_count(config_model *out, const char *path, ckpt_err *err);

#endif
