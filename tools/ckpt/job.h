/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h: one conversion: lay out, plan, run with progress and signals, say what was proved.
 *
 * Shared by `ckpt convert`, `ckpt reshard` and the drop-ins.
 */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include "ckpt.h"

typedef struct convert_job {
    const ckpt_map *from;
    ckpt_target target;
    ckpt_run_opts run;
    bool quiet;
    const char *doing; /* what progress calls it; NULL: "converting" */

    ckpt_map *to; /* after job_prepare */
    ckpt_plan *plan;
    ckpt_run_report report; /* after job_run */
    size_t n_said;          /* findings of `to` that were said */
} convert_job;

/* Take back the defaults of options that mean nothing to the target's format. */
void job_settle(ckpt_target *target);

/* Lay out; then plan, too.  Nothing is written. */
int job_lay_out(convert_job *j, ckpt_err *err);
int job_prepare(convert_job *j, ckpt_err *err);

/* What a view knows, into the report, as a run tells it. */
void job_take_counts(convert_job *j, const ckpt_view_counts *n);

/* How findings begin that say what became of single values (libckpt/claim/claim.h). */
#define JOB_REWRITTEN "rewritten: "
#define JOB_LEFT_OUT  "left out: "

/* A note of that kind, which is told as a result. */
bool job_is_value(const char *text, int severity);

/* Say what was noticed about the target since the last call: warnings, and notes when wanted. */
void job_say_findings(convert_job *j, bool notes);

/*
 * Options of a run whose outcome is refused where it is doubtful: overflow is refused unless it is
 * allowed, with strict every warning.
 */
void job_refuse(ckpt_run_opts *run, bool allow_overflow, bool strict);

/* What was converted all the same, but should not go unseen. */
void job_warn_values(const convert_job *j);

/* Why it failed: findings, and the options that would have helped, appended to err. */
void job_explain(convert_job *j, int rc, ckpt_err *err);

/* Carry it out, then warn of what the run noticed. */
int job_run(convert_job *j, ckpt_err *err);
void job_free(convert_job *j);

/*
 * What options changed of the model: the next fact of the source that says so, from *i on; false:
 * there are no more.
 */
bool job_change_at(const convert_job *j, size_t *i, const char **key, const char **text);

/* The closing line, without its newline. */
enum { CLOSING_ROOM = 1536 };
const char *job_closing(char buf[CLOSING_ROOM], const convert_job *j);

#endif
