/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule_free.h: computes the weights that schedule-free optimizers evaluate from the weights
 * that they train.
 */
#ifndef CKPT_TRANSFORM_SCHEDULE_FREE_H
#define CKPT_TRANSFORM_SCHEDULE_FREE_H

#include "libckpt/map/map.h"

/* The word for the weights that a schedule-free optimizer evaluates with. */
#define CKPT_SCHEDULE_FREE "schedule-free"

/*
 * Replace the trained parameters of each state by the weights of evaluation. The states then no
 * longer belong to the parameters.
 *
 * A schedule-free optimizer (Defazio et al. 2024, package schedulefree) trains y, keeps z, and
 * evaluates x, with y = (1 - beta) z + beta x. While a group's `train_mode` is true, the parameters
 * are y, so x = y + (1 - 1 / beta) (z - y); beta is betas[0], or the momentum of SGD. Otherwise
 * the parameters are x already.
 *
 * Errors   CKPT_EMISSING: no state, or a group without `train_mode`; CKPT_EUNSUPPORTED: a state of
 *          another form; CKPT_EFORMAT: beta is not above 0 and at most 1; CKPT_EMISMATCH: z has
 *          another shape than its parameter
 */
int ckpt_schedule_free(ckpt_map *map, ckpt_err *err);

#endif
