/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h: reads all files of one model-parallel rank.
 */
#ifndef CKPT_FORMATS_DS_SLICE_H
#define CKPT_FORMATS_DS_SLICE_H

#include "formats/deepspeed/module/pipe.h"

/* ZeRO stage and data-parallel world size of a part. */
typedef struct ckpt_ds_run {
    int stage;
    uint32_t world;
} ckpt_ds_run;

/*
 * Reads the files of a folder's only model-parallel rank into job->map: tensors, facts, values,
 * state. When the caller collects findings, job->broken means that the map has no tensors.
 *
 * pipe  assignment of layers to pipeline stages, or NULL
 * run   output
 */
int ckpt_ds_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_pipe *pipe,
                 ckpt_ds_run *run);

#endif
