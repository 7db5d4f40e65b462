/* SPDX-License-Identifier: Apache-2.0 */
/*
 * around.h: checks the files that trainers write beside a checkpoint and that no driver reads.
 */
#ifndef CKPT_AROUND_H
#define CKPT_AROUND_H

#include "libckpt/io/listing.h"

/*
 * Warn about truncated files beside a checkpoint, and about missing ones that its trainer needs for
 * a resume: random states, the schedule, trainer_state.json, configurations. Names of other files
 * and the map's optimizer show which files are expected.
 *
 * map     the checkpoint, opened with its problems collected
 * list    its folder; list->read is set
 * Errors  CKPT_ELIMIT: no memory; CKPT_EIO: a file cannot be read
 */
int ckpt_around(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

#endif
