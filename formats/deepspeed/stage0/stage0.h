/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage0.h: reads masters and optimizer state of stage 0 from the model file, where they are not
 * partitioned.
 */
#ifndef CKPT_FORMATS_DS_STAGE0_H
#define CKPT_FORMATS_DS_STAGE0_H

#include "formats/deepspeed/module/module.h"

/* Adds the model file's masters and optimizer state to the map, and the state of the run. */
int ckpt_ds_stage0_build(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_module *module);

#endif
