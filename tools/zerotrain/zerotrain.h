/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zerotrain.h: the program around the engine: what it is told, how it starts, what it tells.
 *
 *     options.c  the command line and JSON files of options
 *     hostfile.c hosts and slots, include and exclude filters
 *     launch.c   hosts and slots to an mpirun command
 *     run.c      updates, saves and evaluations in turn, until the end or a signal
 *     report.c   metrics as JSON lines, progress, profile
 *     main.c     which of these, and the exit status
 */
#ifndef TOOLS_ZEROTRAIN_H
#define TOOLS_ZEROTRAIN_H

#include <signal.h>

#include "engine/engine.h"
#include "libckpt/base/hostfile.h"
#include "tools/cli/table.h"

/* ---- options.c ---- */

/* The command line of zerotrain: for --help, and completion. */
extern const cli_verb options_verb;

/* What zerotrain is told: the engine's options, and the program's own. */
typedef struct told {
    zt_options run;
    const char *metrics; /* a file, "-", or NULL */
    bool quiet, profile;
    // where the ranks are started
    const char *hostfile, *include, *exclude;
    int64_t num_nodes, num_slots, local_rank, wait_limit;
    // what was asked for instead of a run
    bool help, version;
    const char *completion; /* of this shell; or NULL */
    ckpt_arena *arena;
} told;

/*
 * Options from the command line; "--args FILE" takes more of them from a JSON object, under the
 * same names.  Texts, and what all ranks must have been told alike, belong to the arena.
 *
 * Errors  CKPT_EUSAGE: the option, and what it wants; CKPT_EFORMAT, CKPT_EMISSING: the JSON file
 */
int options_read(told *out, ckpt_arena *arena, int argc, char **argv, ckpt_err *err);

/* ---- launch.c ---- */

/*
 * Replace this process by an mpirun that starts it on the hosts chosen; returns only on failure.
 * Errors  as ckpt_hosts_read and ckpt_hosts_filter; CKPT_EMISSING: no mpirun
 */
int launch(const told *t, int argc, char **argv, ckpt_err *err);

/* ---- run.c ---- */

/* Set by SIGTERM, SIGINT and SIGUSR1 (which mpirun and srun pass on to the ranks). */
extern volatile sig_atomic_t run_stop;

/* Train to the end; SIGTERM, SIGINT and SIGUSR1 save (where --save is given) and end it early. */
int run_train(zt_engine *e, const told *t, ckpt_err *err);

/* --evaluate: the score on standard output, and as a line of --metrics. */
int run_evaluate(zt_engine *e, const told *t, ckpt_err *err);

/* ---- report.c ---- */

typedef struct report {
    zt_engine *engine;
    zt_about about; /* of it */
    const told *told;
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
