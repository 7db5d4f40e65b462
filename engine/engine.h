/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: a training run as a library: tools/zerotrain is the program around it.
 *
 *     setup.c     configuration, model, runtime, data, in the order in which they need each other
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
#include <stdio.h>

#include "engine/comm/patience.h"
#include "engine/data/data.h"
#include "engine/save/save.h"
#include "libckpt/base/vec.h"

/* What a run is told.  Strings belong to the caller. */
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
    const char *save, *load, *tag, *load_tag, *save_weights, *save_model, *predictions;
    bool module_only, not_strict, strict_config, async_save;
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

/* What is to be written at the end must be known to be impossible at the start: folders of outputs.
 */
int zt_engine_try_outputs(const zt_engine *e, ckpt_err *err);

/* What an update did; loss over all ranks. */
typedef struct zt_progress {
    zt_step step;
    double loss;
    uint64_t tokens;
    double seconds;
} zt_progress;

/* The micro steps of one update, and the update.  *stop: it was the last, or a rank shall end. */
int zt_engine_step(zt_engine *e, zt_progress *p, bool *stop, ckpt_err *err);

/* A checkpoint in opts->save; an asynchronous one ends in zt_engine_finish. */
int zt_engine_save(zt_engine *e, ckpt_err *err);

/* What is written once, at the end: opts->save_weights, opts->save_model. */
int zt_engine_finish(zt_engine *e, ckpt_err *err);

/* Mean loss, and for classifiers the share of right answers (NaN: no classes), over opts->eval_data
 * or data. */
typedef struct zt_score {
    double loss, accuracy;
    uint64_t samples;
} zt_score;
int zt_engine_evaluate(zt_engine *e, zt_data *data, zt_score *score, ckpt_err *err);

/* Classes and their probabilities of every sample, as JSON lines in order, by rank 0. */
int zt_engine_predict(zt_engine *e, const char *path, ckpt_err *err);

double zt_now(void); /* seconds, monotonic */

#endif
