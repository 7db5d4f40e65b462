/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_run.h: runs a plan into another folder than that of its layout, and makes the check that
 * ends a run, for the engine, whose processes write to one hidden folder.
 */
#ifndef CKPT_PLAN_RUN_H
#define CKPT_PLAN_RUN_H

#include "ckpt.h"

/*
 * Reopen the folder of training state at `where` and compare it with the map it was laid out from.
 * Folders without a claim pass.
 *
 * to      the target map, with a claim about the output and findings about rewritten values; gets
 *         the counts
 * Errors  CKPT_EMISMATCH: the output differs from the claim; those of ckpt_open
 */
int ckpt_plan_check(const ckpt_map *from, ckpt_map *to, const char *where, ckpt_err *err);

/* Call the format's seal for the bytes before `known` (format.h); most formats have none. */
int ckpt_plan_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);

/* Check the CRCs of the records in a file that is copied unchanged, as one source. */
int ckpt_plan_check_source(const ckpt_map *from, uint32_t source, ckpt_err *err);

/* Run a plan; `folder` receives the target map's files. Errors as ckpt_plan_run. */
int ckpt_plan_run_in(const ckpt_plan *plan, const char *folder, const ckpt_run_opts *opts,
                     ckpt_run_report *report, ckpt_err *err);

#endif
