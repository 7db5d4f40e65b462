/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h: adds the entries of the expert files to the model file.
 */
#ifndef CKPT_FORMATS_DS_EXPERTS_H
#define CKPT_FORMATS_DS_EXPERTS_H

#include "formats/deepspeed/layout/head.h"

/* Adds the entries of all expert files to the module. */
int ckpt_ds_moe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head);

/* Stage 0: replaces the model file's optimizer by the optimizer file of the current expert-parallel
 * rank. */
int ckpt_ds_moe_optimizer(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head);

#endif
