/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peft.h: declares the parsing of an adapter's tensor names into module and part.
 */
#ifndef CKPT_FORMATS_PEFT_PEFT_H
#define CKPT_FORMATS_PEFT_PEFT_H

#include "ckpt_shape.h"
#include "formats/peft/config.h"

/* The part of a module that a tensor is; the rest of its name is the module's path. */
typedef enum ckpt_peft_part {
    CKPT_PEFT_A,         /* ".lora_A.weight" [r, in] */
    CKPT_PEFT_B,         /* ".lora_B.weight" [out, r] */
    CKPT_PEFT_B_BIAS,    /* ".lora_B.bias" [out] */
    CKPT_PEFT_TABLE_A,   /* ".lora_embedding_A" [r, rows of the embedding] */
    CKPT_PEFT_TABLE_B,   /* ".lora_embedding_B" [width of the embedding, r] */
    CKPT_PEFT_MAGNITUDE, /* ".lora_magnitude_vector" [out] */
    /* other kinds of adapters, in the order of ckpt_peft_kind; update.h has their shapes */
    CKPT_PEFT_IA3,
    CKPT_PEFT_HADA_W1_A,
    CKPT_PEFT_HADA_W1_B,
    CKPT_PEFT_HADA_W2_A,
    CKPT_PEFT_HADA_W2_B,
    CKPT_PEFT_HADA_T1,
    CKPT_PEFT_HADA_T2,
    CKPT_PEFT_LOKR_W1,
    CKPT_PEFT_LOKR_W1_A,
    CKPT_PEFT_LOKR_W1_B,
    CKPT_PEFT_LOKR_W2,
    CKPT_PEFT_LOKR_W2_A,
    CKPT_PEFT_LOKR_W2_B,
    CKPT_PEFT_LOKR_T2,
    CKPT_PEFT_VERA_B,
    CKPT_PEFT_VERA_D,
    CKPT_PEFT_OFT,
    CKPT_PEFT_OFT_TABLE,
    /* parts of all kinds */
    CKPT_PEFT_BASE_WEIGHT, /* ".base_layer.weight": the unmodified weight */
    CKPT_PEFT_BASE_BIAS,   /* ".base_layer.bias": trained, replaces the base's */
    /* ".trainable_tokens_delta", beside LoRA after ".token_adapter": rows of an embedding */
    CKPT_PEFT_TOKENS,
    CKPT_PEFT_PLAIN, /* a whole tensor under the base's name, which it replaces */
    /* ".original_module.": the unmodified module that modules_to_save replaced; saved with all
     * biases */
    CKPT_PEFT_ORIGINAL,
    CKPT_PEFT_N_PARTS
} ckpt_peft_part;

/* Names of VeRA's matrices that all modules share: [r, most inputs] and [most outputs, r]. */
#define CKPT_PEFT_VERA_SHARED_A "base_model.vera_A"
#define CKPT_PEFT_VERA_SHARED_B "base_model.vera_B"

typedef struct ckpt_peft_name {
    ckpt_peft_part part;
    const char *module; /* n bytes; PLAIN: the tensor's whole name */
    size_t n;
} ckpt_peft_name;

/*
 * Parse a name; false if it does not begin with "base_model.model.".  A PLAIN name may still
 * contain ".modules_to_save", which the base's name lacks.
 */
bool ckpt_peft_parse(ckpt_peft_name *out, const char *name);

/* The kind of adapter that a part belongs to; N_KINDS: adapters of all kinds may have it. */
ckpt_peft_kind ckpt_peft_kind_of(ckpt_peft_part part);

/*
 * Convert a tensor's name in training to its name in an adapter's file, without the adapter's name
 * ("lora_A.default.weight", "modules_to_save.default.weight").
 *
 * out      room for the length of name
 * adapter  out: the adapter's name inside `name`, of length *n; if *n is 0, the tensor belongs to
 *          no adapter, and out is a copy of name
 */
void ckpt_peft_saved_name(char *out, const char *name, const char **adapter, size_t *n);

/* True if the tensors have the names of a model in training, with adapter names in them. */
bool ckpt_peft_is_live(const ckpt_map *map);

/*
 * The path of a run's adapter_config.json, in the map's arena: the given one, or the one in the
 * run's folder.
 *
 * Errors   CKPT_EUSAGE: there is none; CKPT_ELIMIT
 */
int ckpt_peft_config_of(const char **out, ckpt_map *map, const char *given, ckpt_err *err);

/*
 * Warn of modules of the base that the adapter, which was opened from path, has in other layers
 * only.
 */
int ckpt_peft_gaps(ckpt_map *map, const ckpt_map *adapter, const ckpt_peft_config *config,
                   const char *path, ckpt_err *err);

/*
 * Compare an adapter, which was opened from path, with the modules that its configuration chooses:
 * warn of updates of others.
 *
 * Errors  CKPT_EMISSING: it has no tensor of a module of the base that modules_to_save names
 */
int ckpt_peft_chosen(ckpt_map *map, const ckpt_map *adapter, const ckpt_peft_config *config,
                     const char *path, ckpt_err *err);

/* Warn of adapters in subfolders of an adapter's folder, unless adapter->further names them. */
int ckpt_peft_others(ckpt_map *map, const ckpt_adapter *adapter, ckpt_err *err);

#endif
