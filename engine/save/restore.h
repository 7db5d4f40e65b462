/* SPDX-License-Identifier: Apache-2.0 */
/* restore.h: declares restoring those values of a checkpoint that are not tensors into a run. */
#ifndef ZT_SAVE_RESTORE_H
#define ZT_SAVE_RESTORE_H

#include "engine/save/save.h"
#include "engine/zero/zero.h"
#include "libckpt/map/state.h"

/*
 * Restore counters, the optimizer's settings per group, schedule and loss scaler from a checkpoint.
 *
 * from    per parameter of the model its tensor in the checkpoint, or NULL
 * step    the optimizer's step count, or -1 if the checkpoint has none
 * out     gets `replaced` and `fresh_schedule`
 * Errors  CKPT_EFORMAT: an impossible counter or setting; CKPT_EUNSUPPORTED: a setting that this
 *         optimizer does not have; CKPT_EMISMATCH: parameters from groups with different settings
 *         are in one group now; CKPT_ELIMIT
 */
int zt_restore(zt_zero *z, const ckpt_state *state, const ckpt_tensor *const *from, int64_t step,
               zt_loaded *out, ckpt_err *err);

#endif
