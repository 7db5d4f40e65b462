/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_folders.h: declares the search for the checkpoint to read in a run's folder.
 */
#ifndef CKPT_FORMATS_TRAINING_STEP_FOLDERS_H
#define CKPT_FORMATS_TRAINING_STEP_FOLDERS_H

#include "libckpt/format.h"

/* True if a folder, or its `checkpoint` folder, has subfolders with checkpoints of a kind. */
bool ckpt_train_is_run(const ckpt_listing *list, const ckpt_run_layout *kind);

/* The number of the newest finished checkpoint of a kind in a run's folder; -1: there is none. */
int64_t ckpt_train_newest(const ckpt_listing *list, const ckpt_run_layout *kind);

/* Copy the number at the end of a folder's name; false if there is none. */
bool ckpt_train_number_of(char out[CKPT_RUN_NAME], const char *folder);

/*
 * Go from the user's path to the folder of one checkpoint: itself, or the newest finished one of a
 * run.
 *
 * kind    the layout that recognises such checkpoints
 * asked   the tag, or NULL
 * list    in: the user's folder; out: the checkpoint's, which is also map->path
 * Errors  CKPT_EMISSING: no run, no finished checkpoint, or no such tag; CKPT_EUNSAFE: the tag is a
 *         path
 */
int ckpt_train_find_step(ckpt_map *map, ckpt_listing *list, const ckpt_run_layout *kind,
                         const char *asked, ckpt_err *err);

#endif
