/* SPDX-License-Identifier: Apache-2.0 */
/*
 * around.h: the files that trainers put around a checkpoint, which no driver reads.
 */
#ifndef CKPT_AROUND_H
#define CKPT_AROUND_H

#include "libckpt/copy/listing.h"

/*
 * Warn of files beside a checkpoint that are cut, and of those that its trainer would miss: random
 * states, the schedule, trainer_state.json, configurations.  What belongs together is known from
 * names and from the map's optimizer.
 *
 * map     the checkpoint, opened with its problems collected
 * list    its folder; list->read is set
 * Errors  CKPT_ELIMIT: no memory; CKPT_EIO: a file cannot be read
 */
int ckpt_around(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

#endif
