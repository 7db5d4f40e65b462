/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_run.h: the check that ends a run, for those who write without ckpt_plan_run (the engine).
 */
#ifndef CKPT_PLAN_RUN_H
#define CKPT_PLAN_RUN_H

#include "ckpt.h"

/*
 * Open the folder of training state at `where` again and compare it with the map it was laid out
 * from.  Folders without a claim pass.
 *
 * to      the target map: claim says what was meant, findings what was rewritten; gets the counts
 * Errors  CKPT_EMISMATCH: it says something else; what ckpt_open gives
 */
int ckpt_plan_check(const ckpt_map *from, ckpt_map *to, const char *where, ckpt_err *err);

#endif
