/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_files.h: declares the files that accelerate, Lightning and the Trainer of transformers put
 * beside model and optimizer.
 */
#ifndef CKPT_FORMATS_TRAINING_RUN_FILES_H
#define CKPT_FORMATS_TRAINING_RUN_FILES_H

#include "libckpt/format.h"

/* Folder names of accelerate and the Trainer, for model and optimizer; a number follows. */
#define CKPT_TRAIN_FSDP_MODEL     "pytorch_model_fsdp_"
#define CKPT_TRAIN_FSDP_OPTIMIZER "optimizer_"

/* The key that marks a dict of Lightning. */
#define CKPT_TRAIN_LIGHTNING "pytorch-lightning_version"

/*
 * Rename a single entry of lr_schedulers in a dict of Lightning to lr_scheduler, which is the name
 * everywhere else; other dicts stay as they are.  false: no memory.
 */
bool ckpt_train_lightning(ckpt_arena *arena, ckpt_value *root);

/* The name of the schedule's file in a run's folder, or NULL. */
const char *ckpt_train_schedule(const ckpt_listing *list);

/* Report the other files in a run's folder that no reader uses. */
int ckpt_train_files_left(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/*
 * Warn about the files of further models that accelerate puts next to the first
 * (model_1.safetensors, pytorch_model_fsdp_1.bin) and that the map does not read.
 *
 * refuse  the caller wants a run, which has one model
 * Errors  CKPT_EUNSUPPORTED: refused
 */
int ckpt_train_further_models(ckpt_map *map, const ckpt_listing *list, bool refuse, ckpt_err *err);

/*
 * The name of a file that only a training run has (schedule, states of random number generators),
 * or NULL.
 */
const char *ckpt_train_file_of_run(const ckpt_listing *list);

/*
 * Handle a folder without an optimizer: warn if another file belongs to a run.
 *
 * optimizer  the name that it would have
 * Errors     CKPT_EMISSING: the caller asks for the run
 */
int ckpt_train_no_optimizer(ckpt_map *map, const ckpt_listing *list, const char *optimizer,
                            const ckpt_open_opts *opts, ckpt_err *err);

/* Warn if other files of a run are there, and its optimizer had a schedule, but no file has it. */
int ckpt_train_no_schedule(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/* Warn if the optimizer of the map's run has made more steps than trainer_state.json of the Trainer
 * counts, if that file exists. */
int ckpt_train_trainer_steps(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/*
 * Read the other files in a run's folder: the schedule becomes lr_scheduler, and Lightning's
 * meta.pt becomes values of the run.  Warn if meta.pt is missing or belongs to another save.
 *
 * Errors  those of torch files
 */
int ckpt_train_run_files(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

#endif
