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
 * List the frozen parameters of unsharded files that may be buffers: their names are not those of
 * known parameters, and their modules have no trained parameters.  Returns a text such as
 * "rope.inv_freq, pos.table and 3 more", "" if there are none, NULL if memory runs out.
 */
const char *ckpt_train_doubtful(ckpt_arena *arena, const ckpt_map *map, const ckpt_state *state);

#endif
