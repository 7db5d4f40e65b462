/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zerotrain.h: the program around the engine: what it is told, how it starts, what it tells.
 *
 *     options.c  the command line and JSON files of options
 *     launch.c   hosts and slots to an mpirun command
 *     run.c      updates, saves and evaluations in turn, until the end or a signal
 *     report.c   metrics as JSON lines, progress, profile
 *     main.c     which of these, and the exit status
 */
#ifndef TOOLS_ZEROTRAIN_H
#define TOOLS_ZEROTRAIN_H

#include <signal.h>

#include "engine/engine.h"
#include "tools/cli/table.h"

/* ---- options.c ---- */

/* The command line of zerotrain: for --help, and completion. */
extern const cli_verb options_verb;

/* What was asked for instead of a run. */
typedef struct options_asked {
    bool help, version;
    const char *completion; /* of this shell; or NULL */
} options_asked;

/*
 * Options from the command line; "--args FILE" takes more of them from a JSON object, under the
 * same names.  Texts, and what all ranks must have been told alike, belong to the arena.
 *
 * Errors  CKPT_EUSAGE: the option, and what it wants; CKPT_EFORMAT, CKPT_EMISSING: the JSON file
 */
int options_read(zt_options *out, options_asked *asked, ckpt_arena *arena, int argc, char **argv,
                 ckpt_err *err);

/* ---- launch.c ---- */

/*
 * Replace this process by an mpirun that starts it on the hosts chosen; returns only on failure.
 * Errors  as zt_hosts_read and zt_hosts_filter; CKPT_EMISSING: no mpirun
 */
int launch(const zt_options *opts, int argc, char **argv, ckpt_err *err);

/* ---- run.c ---- */

/* Set by SIGTERM, SIGINT and SIGUSR1 (which mpirun and srun pass on to the ranks). */
extern volatile sig_atomic_t run_stop;

/* Train to the end; SIGTERM, SIGINT and SIGUSR1 save (where --save is given) and end it early. */
int run_train(zt_engine *e, ckpt_err *err);

/* --evaluate: the score on standard output, and as a line of --metrics. */
int run_evaluate(zt_engine *e, ckpt_err *err);

/* ---- report.c ---- */

typedef struct report {
    zt_engine *engine;
    FILE *metrics; /* rank 0 */
} report;

/* Rank 0 opens --metrics (appends where a run goes on); all ranks get the same code. */
int report_open(report *r, ckpt_err *err);

/* A step, or a score of an evaluation: lines for people, one line of JSON for --metrics. */
int report_step(report *r, const zt_progress *p, ckpt_err *err);
int report_score(report *r, const zt_score *s, ckpt_err *err);

void report_save(const report *r); /* what a save could not do beside saving, if anything */
void report_start(const report *r);
void report_profile(const report *r);
int report_close(report *r, ckpt_err *err);

#endif
