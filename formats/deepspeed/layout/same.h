/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same.h: declares the comparison of the values, other than tensors, that all ranks must have in
 * common.
 */
#ifndef CKPT_FORMATS_DS_SAME_H
#define CKPT_FORMATS_DS_SAME_H

#include "formats/deepspeed/layout/layout.h"

/* Compare two trees with a limit; CKPT_ELIMIT if memory runs out. */
int ckpt_ds_same(const ckpt_ds_job *job, const ckpt_value *a, const ckpt_value *b, bool *same);

/*
 * Compare settings of the optimizer, loss scale, schedule and configuration of a rank with rank
 * 0's. Numbers that an optimizer estimates may differ; a note reports them.
 *
 * Errors  CKPT_EMISMATCH with the rank and both values
 */
int ckpt_ds_same_optim(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_shard *s);

/* Compare schedule and configuration of a rank's model file (stage 3). */
int ckpt_ds_same_model(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

/* Compare a model-parallel rank of a pipeline stage with the stage's first rank, by their
 * states. */
int ckpt_ds_same_slices(ckpt_ds_job *job, const ckpt_map *first, const ckpt_map *own, uint32_t mp);

/* Compare param_shapes and frozen_param_shapes of a rank with rank 0's. */
int ckpt_ds_params_check(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

#endif
