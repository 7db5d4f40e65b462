/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: declares the members of adapter_config.json that affect merging (peft 0.21,
 * tuners/lora/config.py).
 */
#ifndef CKPT_FORMATS_PEFT_CONFIG_H
#define CKPT_FORMATS_PEFT_CONFIG_H

#include "formats/rules/pattern.h"
#include "libckpt/map/map.h"

typedef struct ckpt_peft_config {
    const char *path; /* path of the file, for messages */
    int64_t r;
    double alpha;
    bool rslora, dora, lora_bias, fan_in_fan_out;
    const char *bias;                 /* "none", "all", "lora_only" */
    const char *odd_init;             /* an initialization that changes the base, or NULL */
    const ckpt_value *ranks, *alphas; /* dicts pattern -> number, or NULL */
    const ckpt_value *saved;          /* list of modules_to_save, or NULL */
    const ckpt_value *parameters;     /* list of target_parameters, or NULL */
    bool some_layers;                 /* the adapter may be only for some layers of the base */
    ckpt_uni_patterns *patterns;
} ckpt_peft_config;

/*
 * Read a file; strings and values live in the arena.
 *
 * Errors  CKPT_EMISSING, CKPT_EFORMAT; CKPT_EUNSUPPORTED: not LoRA, or a kind of LoRA whose update
 * is
 *         not a sum (the message names it)
 */
int ckpt_peft_config_read(ckpt_peft_config *out, ckpt_arena *a, const char *path, ckpt_err *err);
void ckpt_peft_config_free(ckpt_peft_config *c);

/*
 * The rank and scale (alpha / r, or alpha / sqrt(r)) of a module: of the first pattern P for which
 * (.*\.)?(P)$ matches its path from the start, else the configuration's defaults.
 *
 * Errors  those of patterns; CKPT_EFORMAT: the rank is not positive
 */
int ckpt_peft_scale(const ckpt_peft_config *c, const char *module, uint64_t *rank, double *scale,
                    ckpt_err *err);

/* True if modules_to_save contains a module on a tensor's path. */
bool ckpt_peft_saves(const ckpt_peft_config *c, const char *name);

#endif
