/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h: declares the steps of a conversion: layout, plan, a run with progress and signals, the
 * closing line.
 *
 * `ckpt convert`, `ckpt reshard` and the drop-ins share it.
 */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include "ckpt.h"

struct json_out;

typedef struct convert_job {
    const ckpt_map *from;
    ckpt_target target;
    ckpt_run_opts run;
    bool quiet;
    bool merged;       /* an adapter or another model is merged into the source */
    const char *doing; /* the verb of the progress line; NULL: "converting" */
    /* adds members to the report in JSON; or NULL */
    void (*more)(struct json_out *j, const void *ctx);
    const void *more_ctx;

    ckpt_map *to;  /* after job_prepare */
    bool replaces; /* the output existed: after manifest_check_place */
    ckpt_plan *plan;
    ckpt_run_report report; /* after job_run */
    size_t n_said;          /* number of findings of `to` already printed */
} convert_job;

/* Reset the defaults of options that have no meaning for the target's format. */
void job_settle(ckpt_target *target);

/* Lay out; job_prepare then makes the plan too.  They write nothing. */
int job_lay_out(convert_job *j, ckpt_err *err);
int job_prepare(convert_job *j, ckpt_err *err);

/* Copy the counts of a view into the report. */
void job_take_counts(convert_job *j, const ckpt_view_counts *n);

/* First words of findings about single values (libckpt/readback/readback.h). */
#define JOB_REWRITTEN "rewritten: "
#define JOB_LEFT_OUT  "left out: "

/* True for a note about a single value, which is printed as a result. */
bool job_is_value(const char *text, int severity);

/* Print the findings about the target since the last call: warnings, and notes if requested. */
void job_say_findings(convert_job *j, bool notes);

/*
 * Make a run refuse doubtful results: overflow unless it is allowed, and with strict every warning.
 */
void job_refuse(ckpt_run_opts *run, bool allow_overflow, bool strict);

/* Warn about values that were converted but may need attention. */
void job_warn_values(const convert_job *j);

/* Append findings and helpful options to err after a failure. */
void job_explain(convert_job *j, int rc, ckpt_err *err);

/* Run the plan, then print its warnings. */
int job_run(convert_job *j, ckpt_err *err);
void job_free(convert_job *j);

/*
 * Get the next change that options made to the model (a fact of the source), from *i on; false:
 * there are no more.
 */
bool job_change_at(const convert_job *j, size_t *i, const char **key, const char **text);

/* Format the closing line, without its newline. */
enum { CLOSING_ROOM = 1536 };
const char *job_closing(char buf[CLOSING_ROOM], const convert_job *j);

#endif
