/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h: mixtures of experts: what their files add to the model file.
 */
#ifndef CKPT_FORMATS_DS_EXPERTS_H
#define CKPT_FORMATS_DS_EXPERTS_H

#include "formats/deepspeed/layout/head.h"

/* The module with the experts' files. */
int ckpt_ds_moe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head);

/* Stage 0: the optimizer of the expert-parallel rank that is read instead of the model file's. */
int ckpt_ds_moe_optimizer(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head);

#endif
