/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.h: all files of one model-parallel rank.
 */
#ifndef CKPT_FORMATS_DS_SLICE_H
#define CKPT_FORMATS_DS_SLICE_H

#include "formats/deepspeed/module/pipe.h"

/* What the data ranks of a part are. */
typedef struct ckpt_ds_run {
    int stage;
    uint32_t world;
} ckpt_ds_run;

/*
 * Read the files of a folder's one model-parallel rank into job->map: tensors, facts, values,
 * state.  Collecting, job->broken says that no tensors could be made.
 *
 * pipe  which layers are whose, of pipeline runs; else NULL
 * run   is set
 */
int ckpt_ds_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_pipe *pipe,
                 ckpt_ds_run *run);

#endif
