/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs_out.h: declares printing the results of costs.h and activations.h, for people and as JSON.
 */
#ifndef COSTS_OUT_H
#define COSTS_OUT_H

#include "tools/cli/json_out.h"
#include "tools/costs/activations.h"

/* Print a table for a checked job.  Errors: CKPT_ELIMIT. */
int costs_print(const costs_job *job, ckpt_err *err);

/* Add the members "ranks" to "traffic" to the open object.  Errors: CKPT_ELIMIT. */
int costs_json(const costs_job *job, json_out *j, ckpt_err *err);

/*
 * The same for activations: a table, and the member "activations"; the job must have been checked.
 */
int acts_print(const acts_job *job, ckpt_err *err);
int acts_json(const acts_job *job, json_out *j, ckpt_err *err);

#endif
