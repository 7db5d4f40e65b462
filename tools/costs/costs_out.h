/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs_out.h: what costs.h and activations.h count, for people and as JSON.
 */
#ifndef COSTS_OUT_H
#define COSTS_OUT_H

#include "tools/cli/json_out.h"
#include "tools/costs/activations.h"

/* A table to stdout, of a job that was checked.  Errors: CKPT_ELIMIT. */
int costs_print(const costs_job *job, ckpt_err *err);

/* The members "ranks" to "traffic" of the object that is open.  Errors: CKPT_ELIMIT. */
int costs_json(const costs_job *job, json_out *j, ckpt_err *err);

/*
 * The same of activations: a table, and the member "activations"; of a job that was checked, too.
 */
int acts_print(const acts_job *job, ckpt_err *err);
int acts_json(const acts_job *job, json_out *j, ckpt_err *err);

#endif
