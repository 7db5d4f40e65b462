/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zerotrain.h: declares the program around the engine: its options, its start, its reports.
 *
 *     options.c   the command line and JSON files of options
 *     outputs.c   outputs that would replace an input or another output
 *     trainer.c   the option names of transformers' Trainer
 *     names.c     option names of other programs that zerotrain lacks
 *     others.c    what happens to such a name
 *     launch.c    hosts and slots to an mpirun command
 *     run.c       updates, saves and evaluations in turn, until the end or a signal
 *     events.c    records of TensorBoard's event files
 *     monitor.c   event files and csv_monitor's files
 *     plot.c      loss and learning rate as an SVG
 *     table.c     the table of an evaluation, and its JSON
 *     report.c    metrics as JSON lines, progress, profile
 *     main.c      mode and exit status
 */
#ifndef TOOLS_ZEROTRAIN_H
#define TOOLS_ZEROTRAIN_H

#include <signal.h>

#include "engine/engine.h"
#include "libckpt/base/hostfile.h"
#include "tools/cli/table.h"

/* ---- options.c ---- */

/* The command line of zerotrain, for --help and completion. */
extern const cli_verb options_verb;

/* Values given under Trainer's names; see trainer.c. */
typedef struct told_trainer {
    const char *deepspeed, *train_file, *validation_file, *output_dir, *resume;
    double epochs, warmup_ratio;
    int64_t save_steps, save_total_limit, eval_steps, max_seq_length;
    bool gradient_checkpointing, do_train, do_eval, do_predict, predict_with_generate;
    bool fp16_full_eval, bf16_full_eval, save_on_each_node;
    const char *model, *save_strategy, *eval_strategy;
    const char *metric_for_best_model, *greater_is_better;
    bool load_best_model_at_end;
    const char *lr_scheduler_type, *lr_scheduler_kwargs;
} told_trainer;

enum { TOLD_NOTES = 40 };

/* All options: the engine's, and the program's own. */
typedef struct told {
    zt_options run;
    told_trainer trainer;
    const char *metrics;     /* a file, "-", or NULL */
    const char *tensorboard; /* a folder for event files, or NULL */
    const char *plot;        /* an SVG, or NULL */
    int64_t logging_steps;   /* 0: the configuration's value */
    double peak_tflops;      /* 0: the peak of the GPU, if it is known */
    bool quiet;
    bool json; /* print the result of --evaluate, or --generate's tokens, as JSON */
    // hosts on which to start the ranks
    const char *hostfile, *include, *exclude;
    int64_t num_nodes, num_slots, local_rank, wait_limit;
    const char *notes[TOLD_NOTES]; /* notes about option names that have no effect here */
    size_t n_notes;
    // requests instead of a run
    bool help, help_all, version, names;
    const char *completion; /* shell whose completion script was requested; or NULL */
    ckpt_arena *arena;
} told;

/*
 * Read options from the command line; "--args FILE" reads more of them from a JSON object, under
 * the same names.  The arena owns the texts, and the lines that must be equal on all ranks.
 *
 * Errors  CKPT_EUSAGE: the option, and the expected value; CKPT_EFORMAT, CKPT_EMISSING: the JSON
 *         file
 */
int options_read(told *out, ckpt_arena *arena, int argc, char **argv, ckpt_err *err);

/* ---- outputs.c ---- */

/*
 * Refuse an output that would replace a file that the run reads, even with --force, or another
 * output.  Errors  CKPT_EUSAGE
 */
int outputs_check(const told *t, ckpt_err *err);

/* ---- trainer.c ---- */

/*
 * Copy values given under Trainer's names to our fields.  Errors CKPT_EUSAGE: two values for one
 * setting, a value that has no equivalent
 */
int trainer_names(told *t, const cli_line *line, ckpt_err *err);

/* ---- others.c ---- */

/*
 * Rewrite the words of a command line for the table of options: switches lose their "true", names
 * without effect here are removed.  The arena owns the new array.
 *
 * Errors  CKPT_EUSAGE: a name that requests a missing feature, with the alternative; CKPT_ELIMIT
 */
int others_words(told *t, int *argc, char ***argv, ckpt_err *err);

/*
 * The same for a member of a JSON file of options; *known: it is one of these names.  Errors as
 * above.
 */
int others_member(told *t, const char *name, const char *value, bool *known, ckpt_err *err);

/* True if it is a name of the table. */
bool others_known(const char *name);

/* The name of our option for another name of it (NAME_SAME); other names are returned unchanged. */
const char *others_ours(const char *name);

/* Print a line for each of these names: how it is handled, and why. */
void others_list(void);

/* Keep a note about an option; text must outlive t. */
void others_note(told *t, const char *text);

/* Print the notes about an accepted command line. */
void others_notes(const told *t);

/* ---- launch.c ---- */

/*
 * Replace this process by an mpirun that starts it on the chosen hosts; returns only on failure.
 * Errors  as ckpt_hosts_read and ckpt_hosts_filter; CKPT_EMISSING: no mpirun
 */
int launch(const told *t, int argc, char **argv, ckpt_err *err);

/* ---- run.c ---- */

/* Set by SIGTERM, SIGINT and SIGUSR1 (mpirun and srun forward them to the ranks). */
extern volatile sig_atomic_t run_stop;

/* Train to the end.  SIGTERM, SIGINT and SIGUSR1 end it early, after a save if --save is given. */
int run_train(zt_engine *e, const told *t, ckpt_err *err);

/* --evaluate: print the score to stdout, and as a line of --metrics. */
int run_evaluate(zt_engine *e, const told *t, ckpt_err *err);

/* ---- monitor.c ---- */

/* An event file; fd -1: closed. */
typedef struct monitor_file {
    int fd;
    const char *path;
} monitor_file;

enum { MONITOR_FILES = 2 };

/* The outputs of --tensorboard, and of the configuration's blocks. */
typedef struct monitor {
    monitor_file event[MONITOR_FILES];
    const char *csv; /* folder of csv_monitor, or NULL */
} monitor;

typedef struct monitor_value {
    const char *name; /* "Train/Samples/train_loss" */
    double value;
} monitor_value;

/*
 * On rank 0: open the requested outputs; write numbers at position x; close.  monitor_write returns
 * when the numbers are in the files.  Errors CKPT_EIO with the file, CKPT_ELIMIT
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

/* The points so far; zero it first. */
typedef struct plot {
    size_t n;
    /* updates that each point is the mean of; updates still missing in the last point */
    int64_t each, left;
    plot_point at[PLOT_POINTS];
} plot;

/* Add an update; step must increase by one. */
void plot_add(plot *p, const plot_point *one);

/* Check before training that the file can be written.  Errors: CKPT_EIO */
int plot_try(const char *path, ckpt_err *err);

/* Replace the file by a picture of all points.  Errors: CKPT_EIO */
int plot_write(const plot *p, const char *path, ckpt_err *err);

/* ---- table.c ---- */

/* Print scikit-learn's classification report; s->n_classes > 0. */
void table_print(FILE *out, const zt_score *s);

/*
 * Print a score as one JSON document; `report` has the members of scikit-learn's.
 *
 * Errors  CKPT_ELIMIT
 */
int table_json(FILE *out, const zt_score *s, int64_t step, ckpt_err *err);

/* ---- report.c ---- */

typedef struct report {
    zt_engine *engine;
    zt_about about; /* facts about it */
    const told *told;
    FILE *metrics; /* rank 0 only, and all members below */
    monitor monitor;
    plot *plot;        /* --plot; or NULL */
    bool live;         /* stderr is a terminal, so each update redraws a line */
    double fast, slow; /* running means of the loss, over about 10 and 50 updates; 0: none yet */
    double pace;       /* running mean of an update's seconds */
    int64_t n_made;    /* updates of this process */
    int64_t n_skipped; /* the last ones of them, if they were skipped */
    int64_t epochs;    /* complete passes over the data so far, on every rank */
} report;

/* Open --metrics on rank 0 (append if a run resumes); all ranks get the same code. */
int report_open(report *r, ckpt_err *err);

/*
 * Report a step, or a score of an evaluation: text for people, and one line of JSON for --metrics.
 */
int report_step(report *r, const zt_progress *p, ckpt_err *err);
int report_score(report *r, const zt_score *s, ckpt_err *err);

/* Warn at the end if the last updates of the run were skipped. */
void report_skipped(const report *r);

/* Print that the last score is the best; at the end, which checkpoint is the best. */
void report_better(const report *r);
void report_best(const report *r);

void report_save(const report *r); /* print problems that did not prevent the save, if any */
void report_start(const report *r);

/* For a run that does not train: print the source of its weights. */
void report_weights(zt_engine *e, const told *t);
void report_profile(const report *r);

/* With --profile: print the traffic of every rank; all ranks must call it. */
int report_traffic(const report *r, ckpt_err *err);
int report_close(report *r, ckpt_err *err);

#endif
