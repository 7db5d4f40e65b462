/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapting.h: declares the merge of an adapter into the map of its base model, in parts that its
 * files share.
 */
#ifndef CKPT_FORMATS_PEFT_ADAPTING_H
#define CKPT_FORMATS_PEFT_ADAPTING_H

#include "ckpt_shape.h"
#include "formats/peft/peft.h"

/* A tensor of the adapter. */
typedef struct ckpt_adapt_item {
    ckpt_peft_name name;
    const ckpt_tensor *t;
} ckpt_adapt_item;

typedef struct ckpt_adapting {
    ckpt_map *map;   /* map of the base model */
    ckpt_map *child; /* map of the adapter; owned by the base's map once adopted */
    bool adopted;
    ckpt_adapter opts;
    ckpt_peft_config config;
    const char *model_type; /* the base's model_type, from its config.json; or NULL */
    bool headed;            /* the base may have an lm_head tied to its embedding */
    ckpt_adapt_item *item;  /* sorted by module */
    size_t n_items;
    const ckpt_tensor *shared_a, *shared_b; /* VeRA's matrices, which are no item; or NULL */
    const ckpt_tensor *head_rows; /* trained rows of a head that is tied in the base; or NULL */
    const ckpt_tensor *head_base; /* the unmodified weight of that head in the file; or NULL */
    const ckpt_tensor *table;     /* an embedding that this adapter changes first; or NULL */
    uint64_t n_merged, n_replaced, n_tokens; /* n_tokens: modules with trained tokens */
    ckpt_err *err;
} ckpt_adapting;

/* The adapter's tensors of one module. */
typedef struct ckpt_adapt_module {
    char *name;
    const ckpt_tensor *part[CKPT_PEFT_N_PARTS];
} ckpt_adapt_module;

/*
 * Merge an adapter in PEFT's names, or that of a run.  A failure leaves the map half changed.
 *
 * Errors   those of the functions below, of the configuration and of dequantizing
 */
int ckpt_adapt_all(ckpt_adapting *a);

/* The base's tensor of exactly this name, or NULL. */
ckpt_tensor *ckpt_adapt_at(const ckpt_adapting *a, const char *name);

/*
 * The base's tensor of a name of the adapter, or NULL.  Files of a bare model lack the first part
 * of names in the adapter ("transformer.h.0..."); other files have an additional first part.
 */
ckpt_tensor *ckpt_adapt_find(const ckpt_adapting *a, const char *name);

/* A tensor's shape as text, "[2, 3]"; returns text. */
const char *ckpt_adapt_shape(char text[120], const ckpt_tensor *t);

/* The name of a module's tensor, in the map's arena; NULL: no memory. */
const char *ckpt_adapt_name(const ckpt_adapting *a, const char *module, const char *last);

/* True for modules with transposed matrices (transformers' Conv1D). */
bool ckpt_adapt_is_conv1d(const ckpt_adapting *a, const char *module);

/*
 * The dtype to which each step of an update is rounded: the adapter's, if it has 16 bits and is
 * that of the base t; NONE otherwise.  On a base of another dtype peft computes in F32.
 */
ckpt_dtype ckpt_adapt_round(const ckpt_tensor *t, ckpt_dtype adapter);

/* The computation by which another adapter changed a tensor, or NULL. */
const ckpt_make *ckpt_adapt_merged(const ckpt_adapting *a, const ckpt_tensor *t);

/*
 * Replace a tensor by a whole tensor of the adapter, or add it, if the configuration shows that it
 * was trained.
 *
 * Errors   CKPT_EUNSUPPORTED, CKPT_EMISSING: it was not; CKPT_EMISMATCH: another shape; CKPT_ELIMIT
 */
int ckpt_adapt_plain(ckpt_adapting *a, const char *name, const ckpt_tensor *by);

/*
 * Hide t's content, so that a computed tensor can take its place.
 *
 * out    out: a hidden tensor with the content of t, or of `by`, a copy of the unmodified base in
 *        the adapter's file, if `by` is not NULL and no other adapter changed t
 * alone  whether the update needs the unchanged base (DoRA)
 * Errors CKPT_EUNSUPPORTED: t's dtype, or another adapter before; CKPT_EMISMATCH; CKPT_ELIMIT
 */
int ckpt_adapt_hide(const ckpt_tensor **out, ckpt_adapting *a, ckpt_tensor *t,
                    const ckpt_tensor *by, bool alone);

/* Merge the factors of a linear module, a convolution, a stack of experts or an embedding (LoRA).
 */
int ckpt_adapt_lora(ckpt_adapting *a, const ckpt_adapt_module *m);

/*
 * Merge a module of another kind than LoRA.
 *
 * Errors   CKPT_EMISSING, CKPT_EMISMATCH, CKPT_EUNSUPPORTED: tensors that are missing, do not fit
 *          the base, or that peft does not give such a module; CKPT_ELIMIT
 */
int ckpt_adapt_kind(ckpt_adapting *a, const ckpt_adapt_module *m);

/*
 * Replace the rows of a module's embedding that the adapter trained.
 *
 * Errors   CKPT_EMISSING, CKPT_EMISMATCH: the configuration has no indices, or others, or they do
 *          not fit the base; CKPT_EUNSUPPORTED; CKPT_ELIMIT
 */
int ckpt_adapt_tokens(ckpt_adapting *a, const ckpt_adapt_module *m);

/* Check after all modules that no trained tokens are missing (CKPT_EMISSING). */
int ckpt_adapt_tokens_end(const ckpt_adapting *a);

/* lora_bias: add the scaled bias of B to the module's bias. */
int ckpt_adapt_lora_bias(ckpt_adapting *a, const ckpt_adapt_module *m);

#endif
