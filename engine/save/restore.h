/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore.h: the values of a checkpoint that are not tensors, back into a run.
 */
#ifndef ZT_SAVE_RESTORE_H
#define ZT_SAVE_RESTORE_H

#include "engine/zero/zero.h"
#include "libckpt/map/state.h"

/*
 * Counters, the optimizer's settings per group, schedule and loss scaler from a checkpoint's trees.
 *
 * from    per parameter of the model its tensor in the checkpoint, or NULL
 * step    the optimizer's step count, or -1 where the checkpoint has none
 * Errors  CKPT_EFORMAT: a counter or a setting that no run has; CKPT_EUNSUPPORTED: a setting that
 *         updates here do not have; CKPT_EMISMATCH: parameters that were updated by different
 *         settings are one group now; CKPT_ELIMIT
 */
int zt_restore(zt_zero *z, const ckpt_state *state, const ckpt_tensor *const *from, int64_t step,
               ckpt_err *err);

#endif
