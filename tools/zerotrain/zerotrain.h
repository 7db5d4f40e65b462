/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zerotrain.h: the program around the engine: what it is told, how it starts, what it tells.
 *
 *     options.c  the command line and JSON files of options
 *     trainer.c  the names that Trainer has for options
 *     others.c   names that others have, and zerotrain has not
 *     hostfile.c hosts and slots, include and exclude filters
 *     launch.c   hosts and slots to an mpirun command
 *     run.c      updates, saves and evaluations in turn, until the end or a signal
 *     events.c   what TensorBoard's event files are made of
 *     monitor.c  event files and csv_monitor's files
 *     plot.c     loss and learning rate as an SVG
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

/* What Trainer's names were given; see trainer.c. */
typedef struct told_trainer {
    const char *deepspeed, *train_file, *validation_file, *output_dir, *resume;
    double epochs, warmup_ratio;
    int64_t save_steps, save_total_limit, eval_steps, max_seq_length;
    bool gradient_checkpointing, do_train, do_eval, do_predict;
    const char *model;
} told_trainer;

enum { TOLD_NOTES = 24 };

/* What zerotrain is told: the engine's options, and the program's own. */
typedef struct told {
    zt_options run;
    told_trainer trainer;
    const char *metrics;     /* a file, "-", or NULL */
    const char *tensorboard; /* a folder for event files, or NULL */
    const char *plot;        /* an SVG, or NULL */
    int64_t logging_steps;   /* 0: as the configuration says */
    bool quiet, profile;
    // where the ranks are started
    const char *hostfile, *include, *exclude;
    int64_t num_nodes, num_slots, local_rank, wait_limit;
    const char *notes[TOLD_NOTES]; /* of names without effect here */
    size_t n_notes;
    // what was asked for instead of a run
    bool help, help_all, version;
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

/* ---- trainer.c ---- */

/*
 * Put what was given under Trainer's names where ours is.
 * Errors  CKPT_EUSAGE: two values for one setting, a value that has no equivalent
 */
int trainer_names(told *t, const cli_line *line, ckpt_err *err);

/* ---- others.c ---- */

/*
 * Words of a command line as the table of options knows them: switches lose their true, names that
 * mean nothing here leave.  The new array belongs to the arena.
 *
 * Errors  CKPT_EUSAGE: a name that asks for what is not there, with the way out; CKPT_ELIMIT
 */
int others_words(told *t, int *argc, char ***argv, ckpt_err *err);

/* The same of a member of a file of options; *known: it is no option of ours.  Errors as above. */
int others_member(told *t, const char *name, const char *value, bool *known, ckpt_err *err);

/* What is to be said of a command line that was taken. */
void others_notes(const told *t);

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

/* ---- monitor.c ---- */

/* An event file; fd -1: none. */
typedef struct monitor_file {
    int fd;
    const char *path;
} monitor_file;

enum { MONITOR_FILES = 2 };

/* --tensorboard, and the blocks of the configuration. */
typedef struct monitor {
    monitor_file event[MONITOR_FILES];
    const char *csv; /* folder of csv_monitor, or NULL */
} monitor;

typedef struct monitor_value {
    const char *name; /* "Train/Samples/train_loss" */
    double value;
} monitor_value;

/*
 * By rank 0: open what is asked for; write numbers that belong to x; close.  What was written is in
 * the files when monitor_write returns.
 * Errors  CKPT_EIO with the file, CKPT_ELIMIT
 */
int monitor_open(monitor *m, const told *t, const zt_config *c, ckpt_err *err);
int monitor_write(monitor *m, int64_t x, const monitor_value *v, size_t n, ckpt_err *err);
int monitor_close(monitor *m, ckpt_err *err);

/* ---- plot.c ---- */

typedef struct plot_point {
    int64_t step;
    double loss, lr;
} plot_point;

enum { PLOT_POINTS = 2000 };

/* Zeroed: nothing yet. */
typedef struct plot {
    size_t n;
    int64_t each, left; /* updates that a point stands for, and that the last one lacks */
    plot_point at[PLOT_POINTS];
} plot;

/* An update; each is one more than the last. */
void plot_add(plot *p, const plot_point *one);

/* Whether the file could be written, before anything is trained.  Errors: CKPT_EIO */
int plot_try(const char *path, ckpt_err *err);

/* Replace the file by a picture of what there is.  Errors: CKPT_EIO */
int plot_write(const plot *p, const char *path, ckpt_err *err);

/* ---- report.c ---- */

typedef struct report {
    zt_engine *engine;
    zt_about about; /* of it */
    const told *told;
    FILE *metrics; /* rank 0, as all that follows */
    monitor monitor;
    plot *plot;        /* --plot; or NULL */
    bool live;         /* standard error is a terminal: a line that each update writes anew */
    double fast, slow; /* running means of the loss, over about 10 and 50 updates; 0: none yet */
    double pace;       /* and of seconds an update takes */
} report;

/* Rank 0 opens --metrics (appends where a run goes on); all ranks get the same code. */
int report_open(report *r, ckpt_err *err);

/* A step, or a score of an evaluation: lines for people, one line of JSON for --metrics. */
int report_step(report *r, const zt_progress *p, ckpt_err *err);
int report_score(report *r, const zt_score *s, ckpt_err *err);

void report_save(const report *r); /* what a save could not do beside saving, if anything */
void report_start(const report *r);

/* A run that does not train: where its weights are from. */
void report_weights(zt_engine *e, const told *t);
void report_profile(const report *r);

/* With --profile: what every rank has sent to others and received; all ranks call it. */
int report_traffic(const report *r, ckpt_err *err);
int report_close(report *r, ckpt_err *err);

#endif
