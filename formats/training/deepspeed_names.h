/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed_names.h: parses file names of a DeepSpeed tag folder into kind, prefix and ranks.
 */
#ifndef CKPT_FORMATS_TRAINING_DEEPSPEED_NAMES_H
#define CKPT_FORMATS_TRAINING_DEEPSPEED_NAMES_H

#include "libckpt/include/ckpt.h"

typedef enum ckpt_ds_kind {
    CKPT_DS_OTHER,
    CKPT_DS_MODEL,      /* mp_rank_00_model_states.pt */
    CKPT_DS_MODEL_RANK, /* zero_pp_rank_3_mp_rank_00_model_states.pt */
    CKPT_DS_OPTIM,      /* [bf16_]zero_pp_rank_3_mp_rank_00[_]optim_states.pt */
    CKPT_DS_EXPERT,     /* [layer_0_]expert_1_mp_rank_00_model_states.pt */
    CKPT_DS_LAYER,      /* layer_03-model_states.pt, layer_03-model_00-model_states.pt */
    CKPT_DS_EXPP        /* expp_rank_0_mp_rank_00_optim_states.pt */
} ckpt_ds_kind;

typedef struct ckpt_ds_name {
    ckpt_ds_kind kind;
    bool bf16; /* has the prefix bf16_ */
    /* data-parallel rank, or 0. Layer files: the layer; expert files: the expert; expp files: the
     * expert-parallel rank */
    uint32_t dp;
    uint32_t mp;    /* model-parallel rank; layer files: tensor-parallel rank */
    uint32_t layer; /* expert files: index of their layer among layers with experts */
    bool has_layer; /* the name contains the layer */
} ckpt_ds_name;

/* Parses a file name; kind OTHER for every name that DeepSpeed does not write. */
ckpt_ds_name ckpt_ds_name_parse(const char *name);

/* Returns whether a name is that of a model or optimizer shard of any kind. */
bool ckpt_ds_name_is_shard(const char *name);

/* Sets *out to N of "checkpoint-N"; false for any other name. */
bool ckpt_ds_name_run(const char *name, uint64_t *out);

#endif
