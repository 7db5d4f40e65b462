/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffers.h: declares the choice between buffers and frozen parameters.
 */
#ifndef CKPT_FORMATS_TRAINING_BUFFERS_H
#define CKPT_FORMATS_TRAINING_BUFFERS_H

#include "libckpt/map/state.h"

/*
 * Make buffers of those frozen parameters of a map that are probably buffers.  Call it when the
 * groups of the state are complete.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_train_buffers(ckpt_map *map, const ckpt_state *state, ckpt_err *err);

/*
 * List the frozen parameters of unsharded files that may be buffers, because neither their names
 * nor those beside them show what they are: "rope.inv_freq, pos.table and 3 more".  "": none; NULL:
 * no memory.
 */
const char *ckpt_train_doubtful(ckpt_arena *arena, const ckpt_map *map, const ckpt_state *state);

#endif
