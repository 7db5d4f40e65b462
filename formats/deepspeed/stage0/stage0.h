/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage0.h: stage 0: masters and optimizer state kept whole, in the model file.
 */
#ifndef CKPT_FORMATS_DS_STAGE0_H
#define CKPT_FORMATS_DS_STAGE0_H

#include "formats/deepspeed/module/module.h"

/* Masters and optimizer state of the model file as tensors of the map, and the state of the run. */
int ckpt_ds_stage0_build(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_module *module);

#endif
