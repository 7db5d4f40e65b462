/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: declares a training run as a library; tools/zerotrain is the program around it.
 *
 *     setup.c     configuration, model, runtime, data, in the order of their dependencies
 *     first.c     initial weights: the model folder's, a checkpoint's, or random
 *     agree.c     the check that all ranks got the same inputs
 *     facts.c     settings of the model and the data that checkpoints keep and loading compares
 *     train.c     updates, saves, and the final outputs
 *     evaluate.c  evaluation and prediction, over shards, without consolidating
 *     generate.c   generation of text; generate_config.c: its settings; sample.c: the choice of
 *                  each token
 *     best.c      the checkpoint with the best score
 *     scores.c    precision, recall and F1 of classes
 *
 * All ranks must call every function here, except as noted.  If one rank fails, all ranks fail,
 * with the text of the first.
 */
#ifndef ZT_ENGINE_H
#define ZT_ENGINE_H

#include <signal.h>

#include "engine/comm/patience.h"
#include "engine/data/data.h"
#include "engine/save/save.h"
#include "engine/scores.h"
#include "engine/zero/zero.h"

/* Options of a run.  Strings belong to the caller. */
typedef struct zt_options {
    // model
    const char *config, *model, *init, *groups, *freeze, *lora_targets;
    int64_t lora_rank;
    double lora_alpha, lora_dropout;
    bool dropout; /* use the model's dropout rates */
    // data
    const char *data, *eval_data, *vocab, *token_dtype;
    int64_t seq, max_samples, max_eval_samples; /* 0: all */
    bool cased, no_shuffle, packing;
    // length and intervals
    int64_t max_steps, epochs, save_every, eval_every, keep, seed;
    // files
    const char *save, *load, *tag, *load_tag, *save_weights, *save_model, *predictions;
    const char *generate; /* file for generated text, "-": standard output; NULL: no generation */
    bool module_only, not_strict, strict_config, async_save;
    bool force;            /* replace outputs of earlier runs */
    const char *save_best; /* metric whose best checkpoint is kept; NULL: none */
    int best_greater;      /* 1, -1: a greater, a smaller value is better; 0: by the metric */
    bool load_best;        /* the final outputs have the weights of the best checkpoint */
    bool save_epochs, eval_epochs; /* save, evaluate after each pass over the data */
    // generation; temperature 0: the most probable token
    int64_t max_new_tokens, top_k; /* top_k 0, top_p 1: all tokens */
    double temperature, top_p;
    bool tokens; /* write tokens, as JSON */
    // mode and device
    bool evaluate, print_config, checkpointing, deterministic;
    bool profile; /* wait for the device at the end of each part whose time is measured */
    const char *device;
    int64_t threads;
    const char *slots; /* GPU numbers of the ranks, separated by commas; NULL: automatic */
    zt_arguments args; /* the values for "auto" */
    // further inputs that must be equal on all ranks: lines of name, tab and value; NULL: none
    const char *alike;
    const volatile sig_atomic_t *stop; /* not 0: this rank requests an early end; NULL: never */
} zt_options;

/* Parts of a run whose time is measured. */
enum { ZT_T_DATA, ZT_T_MICRO, ZT_T_UPDATE, ZT_T_SAVE, ZT_T_EVAL, ZT_T_COUNT };

typedef struct zt_engine zt_engine;

/* Create a run, with initial or resumed weights. */
int zt_engine_new(zt_engine **out, const zt_options *opts, zt_comm *comm, ckpt_err *err);
void zt_engine_free(zt_engine *e);

/*
 * The configuration with "auto" filled in; with options.print_config the engine has nothing else.
 */
const zt_config *zt_engine_config(const zt_engine *e);

enum { ZT_UNLIKE = 400 };

/* Facts about a run that do not change; the engine owns the texts. */
typedef struct zt_about {
    int rank, world;
    const zt_config *config;
    const char *class_name; /* class name of the model */
    uint64_t n_params, n_trained;
    const char *init;     /* source of the initial weights; NULL: none except options.load */
    const char *drawn;    /* reason for random weights; NULL: they are not random */
    bool drawn_warns;     /* the user may have meant other weights */
    size_t n_drawn;       /* parameters that init lacks */
    size_t n_unused;      /* tensors of init that the model lacks */
    size_t n_missing;     /* parameters that the checkpoint of options.load lacks */
    int64_t total_steps;  /* updates of the complete run */
    const char *device;   /* NULL: the processor */
    const char *wire;     /* transport between GPUs; NULL: none */
    const char *card;     /* name of the GPU; "": none, or the plugin does not say */
    const char *products; /* how the processor multiplies bf16; NULL: nothing trains in it there */
    uint64_t flops;       /* operations of one token of training, see zt_engine_about */
    const char *tag;      /* tag of options.load; "": the path names it */
    int64_t loaded_steps; /* updates before the checkpoint was saved */
    bool with_optimizer;  /* moments, steps, schedule and scaler were restored too */
    int64_t optimizer_updates, updates; /* of the checkpoint, see zt_loaded */
    const char *replaced;               /* see zt_loaded */
    bool fresh_schedule;                /* see zt_loaded */
    // differences from the model of the loaded weights in unlike_path, and from the samples of the
    // resumed run: "heads of the model 4 4 8 (now: 2 2 16)"; "": none
    const char *unlike_path, *unlike_model, *unlike_data;
    zt_data_unused unused[2]; /* of options.data and options.eval_data */
    uint64_t n_silent[2];     /* samples without a label in them */
    uint64_t n_samples[2];    /* in them */
    uint64_t row[2];          /* most tokens of a sample in them */
    uint64_t positions;       /* max_position_embeddings of the model */
    uint64_t reach;           /* see zt_model_config_reach */
} zt_about;

/*
 * Needs no other rank.
 *
 * flops  6 N + 12 L d T for N parameters, L layers of width d, and T tokens of a sample (Chowdhery
 *        et al. 2022, appendix B): forward and backward, without those of recomputed activations
 */
void zt_engine_about(const zt_engine *e, zt_about *out);

/* Progress of a run, and its resources. */
typedef struct zt_standing {
    int64_t steps;       /* updates, skipped ones included */
    int64_t made;        /* updates that this process made */
    int64_t samples;     /* samples of all ranks in these updates */
    zt_scaler scaler;    /* loss scaler for the next update */
    zt_memory memory;    /* memory of this rank */
    uint64_t peak;       /* most bytes of device memory that were in use at once */
    char attention[200]; /* what has computed it on the GPU; "": a processor, or not known */
    double seconds[ZT_T_COUNT];
    zt_home_times home; /* of updates on the host, with offload_optimizer beside a GPU */
    /* tokens of all ranks, and seconds, of all updates but the first, which allocates memory */
    uint64_t paced_tokens;
    double paced_seconds;
    zt_traffic traffic; /* traffic of this rank's updates, without start, saves, evaluations */
    /* false: traffic counts only words, because another library sends the tensors */
    bool counted;
} zt_standing;

/* Needs no other rank. */
void zt_engine_standing(const zt_engine *e, zt_standing *out);

/* Complete passes over the data so far.  Needs no other rank. */
int64_t zt_engine_epochs(const zt_engine *e);

/*
 * Get the traffic of every rank so far into out [world]; all ranks must call it.
 *
 * Errors  CKPT_ELIMIT, CKPT_EIO
 */
int zt_engine_traffic(const zt_engine *e, zt_traffic *out, ckpt_err *err);

/* If one rank has a failure, all ranks get its code and text. */
int zt_engine_agree(const zt_engine *e, int rc, ckpt_err *err);

/*
 * Check at the start whether the final outputs can be written, so a run does not fail after its
 * training: the folders exist, and no earlier run has left a file there.
 */
int zt_engine_try_outputs(zt_engine *e, ckpt_err *err);

/* Result of an update; loss over all ranks. */
typedef struct zt_progress {
    zt_step step;
    double loss;
    uint64_t tokens;
    double seconds;
    zt_traffic traffic; /* traffic of this rank */
} zt_progress;

/*
 * Run the micro steps of one update, then the update itself.  *stop: it was the last one, or a rank
 * requested to stop.
 */
int zt_engine_step(zt_engine *e, zt_progress *p, bool *stop, ckpt_err *err);

/* Save a checkpoint in opts->save; zt_engine_finish waits for an asynchronous one. */
int zt_engine_save(zt_engine *e, ckpt_err *err);

/*
 * Get a failure that did not prevent a save.  Returns true once for each, on the rank where it
 * happened.
 */
bool zt_engine_remark(zt_engine *e, ckpt_err *out);

/* Get the names of checkpoints removed by opts->keep since the last call; true: there are some. */
bool zt_engine_gone(zt_engine *e, char out[ZT_SAVE_NAMES]);

/* Write the final outputs: opts->save_weights, opts->save_model. */
int zt_engine_finish(zt_engine *e, ckpt_err *err);

/*
 * Result of an evaluation over opts->eval_data or data.  Numbers that a model does not have are
 * NaN.
 */
typedef struct zt_score {
    double loss;
    double perplexity;            /* e to the loss; models whose labels are tokens */
    double accuracy;              /* classifiers with one label per sample, and all members below */
    double precision, recall, f1; /* macro averages */
    uint64_t samples;
    const zt_class *classes; /* [n_classes]; the engine's, until its next evaluation */
    size_t n_classes;        /* 0: not such a classifier, or no sample has a label */
} zt_score;
int zt_engine_evaluate(zt_engine *e, zt_score *score, ckpt_err *err);

/* The best checkpoint so far. */
typedef struct zt_best {
    char tag[256];
    int64_t step; /* 0: none yet */
    const char *metric;
    double value;
} zt_best;

/*
 * After an evaluation: with opts->save_best, if the score is the best so far, save a checkpoint
 * unless this step has one, and note it as the best.
 *
 * Errors  those of a save; CKPT_EIO: best.json cannot be written
 */
int zt_engine_best(zt_engine *e, const zt_score *score, bool *better, ckpt_err *err);

/* NULL: none yet.  Needs no other rank. */
const zt_best *zt_engine_get_best(const zt_engine *e);

/* Write the class and probabilities of every sample, as JSON lines in order; rank 0 writes. */
int zt_engine_predict(zt_engine *e, const char *path, ckpt_err *err);

/*
 * Continue every prompt of opts->data, and write the texts to opts->generate in order; rank 0
 * writes.  A file gets its name when it is complete.
 */
int zt_engine_generate(zt_engine *e, ckpt_err *err);

double zt_now(void); /* seconds, monotonic */

#endif
