/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: a training run, from its options to its files.
 *
 *     options.c   what a run is told, from the command line and JSON files
 *     setup.c     configuration, model, runtime, data, in the order in which they need each other
 *     agree.c     all ranks were told the same
 *     train.c     the loop: micro steps, updates, saving, stopping
 *     evaluate.c  evaluation and prediction, over shards, without consolidating
 *     report.c    metrics as JSON lines, progress, profile
 *     launch.c    hosts and slots to an mpirun command
 *     main.c      the program
 *
 * Every function here is called by all ranks; a failure of one is a failure of all, with the text
 * of the first.
 */
#ifndef ZT_ENGINE_H
#define ZT_ENGINE_H

#include <stdio.h>

#include "engine/config/hostfile.h"
#include "engine/data/data.h"
#include "engine/save/save.h"
#include "libckpt/base/vec.h"

/* What a run is told.  Strings belong to argv or to the arena of zt_options_read. */
typedef struct zt_options {
    // what is trained
    const char *config, *model, *init, *groups, *freeze, *lora_targets;
    int64_t lora_rank;
    double lora_alpha, lora_dropout;
    bool dropout; /* use the model's dropout rates */
    // data
    const char *data, *eval_data, *vocab, *token_dtype;
    int64_t seq;
    bool cased, no_shuffle;
    // how long, how often
    int64_t max_steps, epochs, save_every, eval_every, keep, seed;
    // files
    const char *save, *load, *tag, *load_tag, *metrics, *save_weights, *save_model, *predictions;
    bool module_only, not_strict, strict_config, async_save;
    // what to do
    bool evaluate, print_config, profile, quiet, help, version, checkpointing, z0_quirk,
        deterministic;
    const char *device;
    int64_t threads;
    // launching
    const char *hostfile, *include, *exclude, *slots;
    int64_t num_nodes, num_slots, local_rank, wait_limit;
    zt_arguments args; /* for "auto" */
} zt_options;

/*
 * Options from the command line; "--args FILE" takes more of them from a JSON object, under the
 * same names.
 * '-' and '_' are the same in names.
 *
 * Errors  CKPT_EUSAGE: the option, and what it wants; CKPT_EFORMAT, CKPT_EMISSING: the JSON file
 */
int zt_options_read(zt_options *out, ckpt_arena *arena, int argc, char **argv, ckpt_err *err);

/* The list of options, for --help. */
void zt_options_help(FILE *out);

/* What must be the same on all ranks, as lines of name, tab and value; false: out of memory.  Of
 * what a path names, only whether it is given. */
bool zt_options_lines(const zt_options *o, ckpt_bytes *to);

/* Milliseconds of one part of a run, summed. */
enum { ZT_T_DATA, ZT_T_MICRO, ZT_T_UPDATE, ZT_T_SAVE, ZT_T_EVAL, ZT_T_COUNT };

typedef struct zt_engine {
    const zt_options *opts;
    ckpt_arena *arena;
    zt_comm *comm;
    zt_device *device;
    zt_comm *wire; /* of a GPU's memory; NULL: the device is the host, or this rank is alone */
    unsigned char gpu[16]; /* its identity */
    unsigned threads;      /* of this rank, on the processor */
    zt_config config;
    zt_model_config model_config;
    zt_model *model;
    zt_zero *zero;
    zt_data *data, *eval_data;
    zt_saver *saver;
    zt_loaded loaded;
    const char *vocab; /* of text; NULL: none */
    bool lower_case;
    size_t n_drawn;           /* parameters that --init lacks */
    uint64_t batch_size, seq; /* micro batch, tokens of a sample */
    int64_t total_steps;      /* updates of the whole run */
    FILE *metrics;            /* rank 0 */
    double seconds[ZT_T_COUNT];
} zt_engine;

/*
 * agree.c: options, configuration, model and data are the same on all ranks.
 *
 * Errors  CKPT_EMISMATCH: what differs, on which rank, both values
 */
int zt_agree_start(const zt_engine *e, ckpt_err *err);

/* Everything a run needs, initial or resumed weights included. */
int zt_engine_new(zt_engine **out, const zt_options *opts, zt_comm *comm, ckpt_err *err);
void zt_engine_free(zt_engine *e);

/* Train to the end; SIGTERM, SIGINT and SIGUSR1 save (where --save is given) and end it early. */
int zt_engine_train(zt_engine *e, ckpt_err *err);

/* Mean loss, and for classifiers the share of right answers (NaN: no classes), over opts->eval_data
 * or data. */
typedef struct zt_score {
    double loss, accuracy;
    uint64_t samples;
} zt_score;
int zt_engine_evaluate(zt_engine *e, zt_data *data, zt_score *score, ckpt_err *err);

/* Classes and their probabilities of every sample, as JSON lines in order, by rank 0. */
int zt_engine_predict(zt_engine *e, const char *path, ckpt_err *err);

/* ---- report.c ---- */

/* What an update did, for people and for metrics; loss over all ranks. */
typedef struct zt_progress {
    zt_step step;
    double loss;
    uint64_t tokens;
    double seconds;
} zt_progress;
int zt_report_open(zt_engine *e, ckpt_err *err);
int zt_report_step(zt_engine *e, const zt_progress *p, ckpt_err *err);
int zt_report_score(zt_engine *e, const zt_score *s, ckpt_err *err);
void zt_report_save(const zt_engine *e); /* what a save could not do beside saving, if anything */
void zt_report_start(const zt_engine *e);
void zt_report_profile(const zt_engine *e);
int zt_report_close(zt_engine *e, ckpt_err *err);
double zt_now(void); /* seconds, monotonic */

/* ---- launch.c ---- */

/*
 * Replace this process by an mpirun that starts it on the hosts chosen; returns only on failure.
 * Errors  as zt_hosts_read and zt_hosts_filter; CKPT_EMISSING: no mpirun
 */
int zt_launch(const zt_options *opts, int argc, char **argv, ckpt_err *err);

#endif
