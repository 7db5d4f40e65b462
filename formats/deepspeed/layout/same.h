/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same.h: what the ranks of a checkpoint must agree on beside their tensors.
 */
#ifndef CKPT_FORMATS_DS_SAME_H
#define CKPT_FORMATS_DS_SAME_H

#include "formats/deepspeed/layout/layout.h"

/* Equality of two trees, bounded; CKPT_ELIMIT when it could not be found out. */
int ckpt_ds_same(const ckpt_ds_job *job, const ckpt_value *a, const ckpt_value *b, bool *same);

/*
 * Settings of optimizer, loss scale, schedule and configuration of another rank than 0: as rank 0's
 * (same.c).  Numbers that an optimizer has found out by itself may differ: that is noted.
 * Errors  CKPT_EMISMATCH: what differs, on which rank, both values.
 */
int ckpt_ds_same_optim(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s);

/* The same of another rank's model file (stage 3): schedule and configuration. */
int ckpt_ds_same_model(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

/* The same of another model-parallel rank of a pipeline stage than its first, by their states. */
int ckpt_ds_same_slices(ckpt_ds_job *job, const ckpt_map *first, const ckpt_map *own, uint32_t mp);

/* param_shapes and frozen_param_shapes of another rank equal rank 0's. */
int ckpt_ds_params_check(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

#endif
