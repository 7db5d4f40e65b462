/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.h: assigns layers to pipeline stages, and builds a stage's module from its layer files.
 */
#ifndef CKPT_FORMATS_DS_PIPE_H
#define CKPT_FORMATS_DS_PIPE_H

#include "formats/deepspeed/layout/head.h"

/* Prefix of the parameters of tied layers. */
#define CKPT_DS_TIED "tied_modules."

/* Assignment of layers to pipeline stages. */
typedef struct ckpt_ds_pipe ckpt_ds_pipe;

/*
 * Assigns the layers of all n stages before a stage is read, because a stage ends where the next
 * begins. model[s] is the path of stage s's model file.
 *
 * out  the caller frees it, even after a failure
 */
int ckpt_ds_pipe_new(ckpt_ds_pipe **out, ckpt_ds_job *job, const ckpt_ds_folder *dir,
                     const char *const *model, uint32_t n);

/* Frees the assignment and closes its files; NULL is allowed. */
void ckpt_ds_pipe_free(ckpt_ds_pipe *pipe);

/* Builds the module of the stage of dir->mp from its layer files. */
int ckpt_ds_pipe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                        const ckpt_ds_pipe *pipe);

#endif
