/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peft.h: names of an adapter's tensors: what belongs to which module of the base.
 */
#ifndef CKPT_FORMATS_PEFT_PEFT_H
#define CKPT_FORMATS_PEFT_PEFT_H

#include "formats/peft/config.h"

/* What a tensor of an adapter is to its module; the rest of its name is the module's path. */
typedef enum ckpt_peft_part {
    CKPT_PEFT_A,           /* ".lora_A.weight" [r, in] */
    CKPT_PEFT_B,           /* ".lora_B.weight" [out, r] */
    CKPT_PEFT_B_BIAS,      /* ".lora_B.bias" [out] */
    CKPT_PEFT_TABLE_A,     /* ".lora_embedding_A" [r, rows of the table] */
    CKPT_PEFT_TABLE_B,     /* ".lora_embedding_B" [width of the table, r] */
    CKPT_PEFT_MAGNITUDE,   /* ".lora_magnitude_vector" [out] */
    CKPT_PEFT_BASE_WEIGHT, /* ".base_layer.weight": what was adapted, unmodified */
    CKPT_PEFT_BASE_BIAS,   /* ".base_layer.bias": trained, it replaces the base's */
    CKPT_PEFT_PLAIN,       /* a whole tensor of the base, by its name: it replaces the base's */
    /* ".original_module.": what modules_to_save replaced, unmodified; peft saves it along with all
       biases */
    CKPT_PEFT_ORIGINAL,
    CKPT_PEFT_N_PARTS
} ckpt_peft_part;

typedef struct ckpt_peft_name {
    ckpt_peft_part part;
    const char *module; /* n bytes; PLAIN: the tensor's whole name */
    size_t n;
} ckpt_peft_name;

/*
 * Take a name apart; false when it does not begin as PEFT's do, "base_model.model.".  A PLAIN name
 * may have ".modules_to_save" in it still, which the base's name has not.
 */
bool ckpt_peft_parse(ckpt_peft_name *out, const char *name);

/*
 * The name of a live module's tensor as an adapter's file has it: without the adapter's own name
 * ("lora_A.default.weight", "modules_to_save.default.weight").
 *
 * out      room for as much as name
 * adapter  gets where that name stands and its length; 0: the tensor is of no adapter, and out is
 *          the name itself
 */
void ckpt_peft_saved_name(char *out, const char *name, const char **adapter, size_t *n);

/* True if the tensors have the names of a model in training, with those of its adapters. */
bool ckpt_peft_is_live(const ckpt_map *map);

/*
 * The path of a run's adapter_config.json, in the map's arena: the one given, or the one beside it.
 *
 * Errors   CKPT_EUSAGE: there is none; CKPT_ELIMIT
 */
int ckpt_peft_config_of(const char **out, ckpt_map *map, const char *given, ckpt_err *err);

#endif
