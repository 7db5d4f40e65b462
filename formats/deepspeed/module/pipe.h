/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.h: pipeline stages: which layers are whose, and the module of a stage from its layers'
 * files.
 */
#ifndef CKPT_FORMATS_DS_PIPE_H
#define CKPT_FORMATS_DS_PIPE_H

#include "formats/deepspeed/layout/head.h"

/* Before the names of what several layers share. */
#define CKPT_DS_TIED "tied_modules."

/* Which layers of a pipeline are whose. */
typedef struct ckpt_ds_pipe ckpt_ds_pipe;

/*
 * Look over all n stages before one of them is read; model[s] is the model file of stage s.
 *
 * out  also after a failure it must be freed
 */
int ckpt_ds_pipe_new(ckpt_ds_pipe **out, ckpt_ds_job *job, const ckpt_ds_folder *dir,
                     const char *const *model, uint32_t n);

/* Free it, and close the files it was found in; NULL is fine. */
void ckpt_ds_pipe_free(ckpt_ds_pipe *pipe);

/* The module of the stage that dir->mp belongs to, from its layers' files. */
int ckpt_ds_pipe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                        const ckpt_ds_pipe *pipe);

#endif
