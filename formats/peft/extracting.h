/* SPDX-License-Identifier: Apache-2.0 */
/* extracting.h: declares the extraction of a LoRA adapter in parts that its files share. */
#ifndef CKPT_FORMATS_PEFT_EXTRACTING_H
#define CKPT_FORMATS_PEFT_EXTRACTING_H

#include "ckpt_shape.h"
#include "formats/peft/peft.h"
#include "libckpt/io/spool.h"

/* A tensor of the tuned model. */
typedef struct ckpt_xl_tensor {
    ckpt_tensor *t;
    const ckpt_tensor *base;
    const char *module; /* of a matrix of a linear layer: its name without ".weight"; else NULL */
    bool differs;       /* from the base */
    bool saved;         /* written whole */
    bool bias;          /* of a module with an update; saved beside its factors */
} ckpt_xl_tensor;

/* The factors of all matrices, two records for each; freed with the map. */
typedef struct ckpt_xl_store {
    ckpt_spool *spool;
} ckpt_xl_store;

typedef struct ckpt_xl_job {
    ckpt_map *map, *base;
    ckpt_extract opts;
    ckpt_training_info info;
    ckpt_reader *reader[2]; /* of the tuned model and of its base */
    ckpt_xl_tensor *all;
    ckpt_xl_tensor **sorted; /* all by name, once tensors are to be saved; else NULL */
    size_t n;
    void *piece[2];
    size_t n_changed, n_rest; /* matrices that differ; other tensors that differ */
    size_t n_coarse;          /* matrices with factors that the dtype rounds to zeros */
    const char *coarse;       /* the first of them */
    ckpt_xl_store *store;
    ckpt_err *err;
} ckpt_xl_job;

/* The length of the name of the module that has a tensor; 0: none. */
size_t ckpt_xl_parent(const char *name);

/* The last part of a module's name. */
const char *ckpt_xl_last(const char *module);

/* True for a module with a transposed matrix, [in, out]. */
bool ckpt_xl_turned(const ckpt_xl_job *j, const char *module);

/*
 * Take the model's type and architecture from the config.json that the caller gave.
 *
 * Errors   CKPT_EFORMAT: it is no JSON; CKPT_ELIMIT: no memory
 */
int ckpt_xl_read_config(ckpt_xl_job *j);

/*
 * Make adapter_config.json: peft's LoraConfig, with the other members at their defaults.
 *
 * Errors   CKPT_ELIMIT: no memory
 */
int ckpt_xl_config(const ckpt_xl_job *j);

#endif
