/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_run.h: running a plan elsewhere than where it was laid out to be, and the check that ends a
 * run: for the engine, whose processes write to one hidden folder.
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

/* What a file's format has to say of the bytes before `known` (format.h's seal); most: nothing. */
int ckpt_plan_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);

/* A file that is passed on as it is, which is one source: its records have the CRCs they came with.
 */
int ckpt_plan_check_source(const ckpt_map *from, uint32_t source, ckpt_err *err);

/* Carry a plan out: `folder` receives the files of the target map.  Errors as ckpt_plan_run. */
int ckpt_plan_run_in(const ckpt_plan *plan, const char *folder, const ckpt_run_opts *opts,
                     ckpt_run_report *report, ckpt_err *err);

#endif
