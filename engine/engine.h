/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: a training run as a library: tools/zerotrain is the program around it.
 *
 *     setup.c     configuration, model, runtime, data, in the order in which they need each other
 *     first.c     first weights: the model's, a checkpoint's, drawn
 *     agree.c     all ranks were told the same
 *     train.c     updates, saves, and what is written at the end
 *     evaluate.c  evaluation and prediction, over shards, without consolidating
 *
 * Every function here is called by all ranks; a failure of one is a failure of all, with the text
 * of the first.
 */
#ifndef ZT_ENGINE_H
#define ZT_ENGINE_H

#include <signal.h>

#include "engine/comm/patience.h"
#include "engine/save/save.h"
#include "engine/zero/zero.h"

/* What a run is told.  Strings belong to the caller. */
typedef struct zt_options {
    // what is trained
    const char *config, *model, *init, *groups, *freeze, *lora_targets;
    int64_t lora_rank;
    double lora_alpha, lora_dropout;
    bool dropout; /* use the model's dropout rates */
    // data
    const char *data, *eval_data, *vocab, *token_dtype;
    int64_t seq, max_samples, max_eval_samples; /* 0: all */
    bool cased, no_shuffle;
    // how long, how often
    int64_t max_steps, epochs, save_every, eval_every, keep, seed;
    // files
    const char *save, *load, *tag, *load_tag, *save_weights, *save_model, *predictions;
    bool module_only, not_strict, strict_config, async_save;
    bool force; /* replace outputs of earlier runs */
    // what to do
    bool evaluate, print_config, checkpointing, deterministic;
    const char *device;
    int64_t threads;
    const char *slots; /* the number of the GPU of each rank, by comma; NULL: as they come */
    zt_arguments args; /* for "auto" */
    // what every rank must have been told alike, as lines of name, tab and value; NULL: nothing
    const char *alike;
    const volatile sig_atomic_t *stop; /* not 0: this rank shall end early; NULL: never */
} zt_options;

/* Milliseconds of one part of a run, summed. */
enum { ZT_T_DATA, ZT_T_MICRO, ZT_T_UPDATE, ZT_T_SAVE, ZT_T_EVAL, ZT_T_COUNT };

typedef struct zt_engine zt_engine;

/* Everything a run needs, initial or resumed weights included. */
int zt_engine_new(zt_engine **out, const zt_options *opts, zt_comm *comm, ckpt_err *err);
void zt_engine_free(zt_engine *e);

/* Its configuration, "auto" filled in; with options.print_config all that an engine has. */
const zt_config *zt_engine_config(const zt_engine *e);

/* What a run is, from its start to its end; texts are the engine's. */
typedef struct zt_about {
    int rank, world;
    const zt_config *config;
    const char *class_name; /* of the model */
    uint64_t n_params, n_trained;
    const char *init;     /* where first weights are from; NULL: none but those of options.load */
    const char *drawn;    /* why they were drawn; NULL: they were not */
    bool drawn_warns;     /* other weights may have been meant */
    size_t n_drawn;       /* parameters that init lacks */
    size_t n_missing;     /* those that options.load lacks */
    int64_t total_steps;  /* updates of the whole run */
    const char *device;   /* NULL: the processor */
    const char *wire;     /* what GPUs exchange by; NULL: nothing of its own */
    const char *tag;      /* what options.load was, "" where the path says it */
    int64_t loaded_steps; /* updates that were made when it was saved */
    bool with_optimizer;  /* moments, steps, schedule and scaler came back too */
} zt_about;

/* Told without the other ranks. */
void zt_engine_about(const zt_engine *e, zt_about *out);

/* How far it is, and what it has taken. */
typedef struct zt_standing {
    int64_t steps;    /* updates made, skipped ones included */
    int64_t made;     /* those that this process made */
    int64_t samples;  /* that they saw, of all ranks */
    zt_scaler scaler; /* for the next update */
    zt_memory memory; /* of this rank */
    double seconds[ZT_T_COUNT];
    zt_traffic traffic; /* of this rank in its updates: not of the start, saves, evaluations */
    bool counted;       /* false: traffic has the words alone, tensors go another way */
} zt_standing;

/* Told without the other ranks. */
void zt_engine_standing(const zt_engine *e, zt_standing *out);

/*
 * The traffic of every rank so far, world of them at out: all ranks call it.
 *
 * Errors  CKPT_ELIMIT, CKPT_EIO
 */
int zt_engine_traffic(const zt_engine *e, zt_traffic *out, ckpt_err *err);

/* All ranks get a failure that one of them has: its code and text. */
int zt_engine_agree(const zt_engine *e, int rc, ckpt_err *err);

/*
 * Check at the start whether the files of the end can be written, so that a run does not fail after
 * its training: the folders exist, and no earlier run has left a file there.
 */
int zt_engine_try_outputs(zt_engine *e, ckpt_err *err);

/* What an update did; loss over all ranks. */
typedef struct zt_progress {
    zt_step step;
    double loss;
    uint64_t tokens;
    double seconds;
    zt_traffic traffic; /* of this rank */
} zt_progress;

/* The micro steps of one update, and the update.  *stop: it was the last, or a rank shall end. */
int zt_engine_step(zt_engine *e, zt_progress *p, bool *stop, ckpt_err *err);

/* A checkpoint in opts->save; an asynchronous one ends in zt_engine_finish. */
int zt_engine_save(zt_engine *e, ckpt_err *err);

/* What went wrong beside saves that are good; true once for each, on the rank that met it. */
bool zt_engine_remark(zt_engine *e, ckpt_err *out);

/* Names of checkpoints that opts->keep has removed since the last call; true: there are some. */
bool zt_engine_gone(zt_engine *e, char out[ZT_SAVE_NAMES]);

/* What is written once, at the end: opts->save_weights, opts->save_model. */
int zt_engine_finish(zt_engine *e, ckpt_err *err);

/* Mean loss, and for classifiers the share of right answers (NaN: no classes), over opts->eval_data
 * or data. */
typedef struct zt_score {
    double loss, accuracy;
    uint64_t samples;
} zt_score;
int zt_engine_evaluate(zt_engine *e, zt_score *score, ckpt_err *err);

/* Classes and their probabilities of every sample, as JSON lines in order, by rank 0. */
int zt_engine_predict(zt_engine *e, const char *path, ckpt_err *err);

double zt_now(void); /* seconds, monotonic */

#endif
