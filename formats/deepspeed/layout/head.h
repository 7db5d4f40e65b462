/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.h: rank 0's two files, which say what there is, and where an optimizer_state_dict keeps
 * what.
 */
#ifndef CKPT_FORMATS_DS_HEAD_H
#define CKPT_FORMATS_DS_HEAD_H

#include "formats/deepspeed/shard/shard.h"

/* A layer whose experts AutoEP has spread over ranks (autoep.h). */
typedef struct ckpt_ds_moe_layer {
    const char *prefix; /* of its experts' names: "model.layers.0.mlp.experts", n_prefix bytes */
    size_t n_prefix;
    size_t n_module; /* bytes of it that are the layer's own path: "model.layers.0.mlp" */
    uint32_t n_experts, n_local; /* of all ranks, and of one expert-parallel rank */
    uint32_t ep;                 /* expert-parallel ranks */
} ckpt_ds_moe_layer;

CKPT_VEC(ckpt_ds_moe_layers, ckpt_ds_moe_layer);

/* Rank 0's two files, which stay open for the others to be compared with, and what they say. */
typedef struct ckpt_ds_head {
    ckpt_ds_shard model, optim;
    int stage;
    uint32_t world;            /* data-parallel ranks */
    bool legacy;               /* stage 1 of 0.3.x: local_sub_partitions_of_fp32_groups */
    ckpt_ds_moe_layers autoep; /* of a run with AutoEP; names are the model file's */
} ckpt_ds_head;

/*
 * Are the files those of BF16_Optimizer, which writes no stage and ignores round_robin_gradients?
 */
bool ckpt_ds_is_bf16_optimizer(const ckpt_ds_head *head);

/* A value of the model file; NULL when it is absent or None. */
const ckpt_value *ckpt_ds_head_get(const ckpt_ds_head *head, const char *key);

/*
 * What an optimizer_state_dict keeps: the state dict of the optimizer that the wrapper drives.
 * NULL: nothing.
 */
const ckpt_value *ckpt_ds_optim_base(const ckpt_ds_head *head, const ckpt_value *optim);

/* Of a flat group and interval its state; NULL: none. */
ckpt_value *ckpt_ds_optim_state(const ckpt_ds_head *head, const ckpt_value *optim, size_t group,
                                uint32_t interval);

/* What a rank's list of groups holds for a group and interval; NULL beyond its end. */
ckpt_value *ckpt_ds_optim_flat(const ckpt_ds_head *head, ckpt_seq list, size_t group,
                               uint32_t interval);

#endif
