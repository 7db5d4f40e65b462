/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: declares the members of adapter_config.json that affect merging (peft 0.21,
 * tuners/KIND/config.py).
 */
#ifndef CKPT_FORMATS_PEFT_CONFIG_H
#define CKPT_FORMATS_PEFT_CONFIG_H

#include "formats/rules/pattern.h"
#include "libckpt/map/map.h"

/* The kinds of adapters that are merged. */
typedef enum ckpt_peft_kind {
    CKPT_PEFT_KIND_LORA,
    CKPT_PEFT_KIND_IA3,
    CKPT_PEFT_KIND_LOHA,
    CKPT_PEFT_KIND_LOKR,
    CKPT_PEFT_KIND_VERA,
    CKPT_PEFT_KIND_OFT,
    CKPT_PEFT_KIND_TOKENS, /* rows of embeddings only */
    CKPT_PEFT_N_KINDS
} ckpt_peft_kind;

typedef struct ckpt_peft_config {
    const char *path; /* path of the file, for messages */
    ckpt_peft_kind kind;
    int64_t r;    /* LoRA, LoHa, LoKr, VeRA; else 0 */
    double alpha; /* LoRA, LoHa, LoKr; else 0 */
    bool rslora, dora, lora_bias, fan_in_fan_out;
    bool tying;           /* modules_to_save has the head that is tied to an embedding in it, too */
    const char *bias;     /* "none", "all", "lora_only" */
    const char *odd_init; /* an initialization that changes the base, or NULL */
    const ckpt_value *ranks, *alphas; /* dicts pattern -> number, or NULL */
    const ckpt_value *saved;          /* list of modules_to_save, or NULL */
    const ckpt_value *parameters;     /* list of target_parameters, or NULL */
    const ckpt_value *targets;        /* target_modules: a list, an expression, or NULL */
    const ckpt_value *layers;         /* layers_to_transform without layers_pattern, or NULL */
    bool some_layers;                 /* the adapter may be only for some layers of the base */
    /* indices of trained tokens: a list, or a dict from module to list; or NULL */
    const ckpt_value *tokens;
    const ckpt_value *feedforward; /* IA3: feedforward_modules, or NULL */
    /* OFT: the constrained form, one block for all, and the series in place of the inverse */
    bool coft, block_share, cayley_neumann;
    double eps;             /* OFT: of the constrained form */
    uint32_t neumann_terms; /* OFT: of the series */
    ckpt_uni_patterns *patterns;
} ckpt_peft_config;

/*
 * Read a file; strings and values live in the arena.
 *
 * Errors  CKPT_EMISSING, CKPT_EFORMAT; CKPT_EUNSUPPORTED: not one of these kinds, or with a member
 *         whose effect on the weights is not known (the message names it)
 */
int ckpt_peft_config_read(ckpt_peft_config *out, ckpt_arena *a, const char *path, ckpt_err *err);

/* Refuse kinds other than LoRA (CKPT_EUNSUPPORTED); `what` completes "only LORA". */
int ckpt_peft_only_lora(const ckpt_peft_config *c, const char *what, ckpt_err *err);

/* The setting by which a LoRA adapter changes more than its products B A do; NULL: none does. */
const char *ckpt_peft_beyond_products(const ckpt_peft_config *c);

/* The kind as peft_type has it: "LORA". */
const char *ckpt_peft_kind_name(ckpt_peft_kind kind);

/*
 * Set *yes if IA3 scales the inputs of a module, not its outputs, as feedforward_modules states.
 *
 * Errors  those of patterns
 */
int ckpt_peft_feedforward(const ckpt_peft_config *c, const char *module, bool *yes, ckpt_err *err);

/* Free the memory of the configuration outside of the arena; a zeroed one is fine. */
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
