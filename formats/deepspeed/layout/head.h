/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.h: declares rank 0's two files, which describe the run, and look-ups in an
 * optimizer_state_dict.
 */
#ifndef CKPT_FORMATS_DS_HEAD_H
#define CKPT_FORMATS_DS_HEAD_H

#include "formats/deepspeed/shard/shard.h"
#include "libckpt/map/state.h"

/* A layer with experts distributed by AutoEP (autoep.h). */
typedef struct ckpt_ds_moe_layer {
    const char *prefix; /* n_prefix bytes of its experts' names: "model.layers.0.mlp.experts" */
    size_t n_prefix;
    size_t n_module; /* bytes of the prefix that are the layer's path: "model.layers.0.mlp" */
    uint32_t n_experts, n_local; /* experts in the layer, and per expert-parallel rank */
    uint32_t ep;                 /* expert-parallel ranks */
} ckpt_ds_moe_layer;

CKPT_VEC(ckpt_ds_moe_layers, ckpt_ds_moe_layer);

/* Rank 0's two files, which stay open because other ranks are compared with them. */
typedef struct ckpt_ds_head {
    ckpt_ds_shard model, optim;
    const char *optimizer; /* stage 0 with experts: path of the rank's optimizer file; else NULL */
    int stage;
    uint32_t world;                /* data-parallel ranks */
    bool legacy;                   /* stage 1 of 0.3.x: has local_sub_partitions_of_fp32_groups */
    ckpt_ds_moe_layers autoep;     /* layers with AutoEP; names point into the model file */
    struct ckpt_ds_ranked *ranked; /* values that differ by rank (ranked.c) */
    ckpt_ranked *client;           /* members of model files that differ by rank (client.c) */
    ckpt_ranked *client_last;      /* the entry of the rank's last member that differs, or NULL */
} ckpt_ds_head;

/*
 * True for files of BF16_Optimizer, which stores no stage and ignores round_robin_gradients.
 */
bool ckpt_ds_is_bf16_optimizer(const ckpt_ds_head *head);

/* A value of the model file; NULL if it is absent or None. */
const ckpt_value *ckpt_ds_head_get(const ckpt_ds_head *head, const char *key);

/*
 * The state dict of the wrapped optimizer in an optimizer_state_dict, or NULL.
 */
const ckpt_value *ckpt_ds_optim_base(const ckpt_ds_head *head, const ckpt_value *optim);

/* The state of a flat group and interval, or NULL. */
ckpt_value *ckpt_ds_optim_state(const ckpt_ds_head *head, const ckpt_value *optim, size_t group,
                                uint32_t interval);

/* The entry of a rank's list for a group and interval; NULL beyond its end. */
ckpt_value *ckpt_ds_optim_flat(const ckpt_ds_head *head, ckpt_seq list, size_t group,
                               uint32_t interval);

#endif
