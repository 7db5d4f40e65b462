/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h: declares the members of a run, for the files of this folder. */
#ifndef ZT_INSIDE_H
#define ZT_INSIDE_H

#include "engine/data/data.h"
#include "engine/data/prompts.h"
#include "engine/engine.h"
#include "engine/save/save.h"
#include "libckpt/base/vec.h"

struct zt_engine {
    const zt_options *opts;
    ckpt_arena *arena;
    zt_comm *comm;
    zt_device *device;
    /* communicator for GPU memory; NULL: the device is the host, or there is one rank */
    zt_comm *wire;
    unsigned char gpu[16]; /* identity of the GPU */
    unsigned threads;      /* threads of the CPU device on this rank */
    zt_config config;
    zt_model_config model_config;
    zt_model *model;
    zt_zero *zero;
    zt_data *data, *eval_data;
    uint64_t n_silent[2]; /* of their samples, those without a label */
    uint64_t data_sum;    /* zt_data_sum of `data` over all ranks */
    zt_prompts prompts;   /* of --generate */
    zt_ids ends;          /* tokens that end a generated text */
    zt_saver *saver;
    zt_loaded loaded;
    char unlike_model[ZT_UNLIKE], unlike_data[ZT_UNLIKE]; /* see zt_about */
    const char *unlike_path;
    const char *vocab; /* path of the vocabulary of text data; NULL: none */
    bool lower_case;
    const char *init;         /* source of initial weights; NULL: random, or only --load */
    const char *drawn;        /* reason for random weights; NULL: they are not random */
    bool drawn_warns;         /* the user may have meant other weights */
    size_t n_drawn;           /* parameters that init lacks */
    size_t n_unused;          /* tensors of init that the model lacks */
    uint64_t batch_size, seq; /* samples per micro batch, tokens per sample */
    uint64_t decoder_seq;     /* T5: tokens per target */
    int64_t total_steps;      /* updates of the complete run */
    double seconds[ZT_T_COUNT];
    uint64_t paced_tokens; /* of updates after the first */
    double paced_seconds;
    char card[64];      /* name of the GPU, or "" */
    zt_traffic traffic; /* traffic of zt_engine_step */
    int64_t made;       /* successful calls of zt_engine_step */
    int64_t saved;      /* step of the last save; 0: none */
    zt_best best;
    double *counts;    /* of an evaluation: see ev_count; NULL: none yet */
    zt_class *classes; /* [model_config.labels], of the last evaluation */
};

/*
 * first.c: choose the source of the initial weights (e->init, e->drawn); load them, then those of
 * --load, which replace them.  All ranks must call zt_first_fill.
 *
 * Errors  CKPT_EUSAGE: --evaluate or --predict without weights; those of zt_load_initial, zt_load
 */
int zt_first_choose(zt_engine *e, ckpt_err *err);
int zt_first_fill(zt_engine *e, ckpt_err *err);

/*
 * best.c: before training, check the metric of --save-best and read the best checkpoint of the
 * resumed run; after an evaluation, compare its score (equal on all ranks, because scores are sums
 * over ranks), and note the checkpoint of this step as the best; at the end, load the best weights
 * for the final outputs, if they are wanted.  All ranks must call each.
 *
 * Errors  CKPT_EUSAGE: the metric; CKPT_EIO: best.json cannot be written; those of zt_load
 */
int zt_best_begin(zt_engine *e, ckpt_err *err);
bool zt_best_is(const zt_engine *e, const zt_score *score);
int zt_best_note(zt_engine *e, const zt_score *score, ckpt_err *err);
int zt_best_load(zt_engine *e, ckpt_err *err);

/*
 * generate.c: with --generate, read the prompts and the tokens that end a text.
 *
 * Errors  CKPT_EUSAGE, CKPT_EUNSUPPORTED: the model generates no text; those of zt_prompts_read
 */
int zt_generate_open(zt_engine *e, ckpt_err *err);

/*
 * generate_config.c: read the tokens that end a text, and T5's first token.
 *
 * Errors  CKPT_EFORMAT: a file or token that is wrong; CKPT_EUNSUPPORTED: a setting that changes
 *         texts; CKPT_EIO, CKPT_EMISSING: an unreadable file
 */
int zt_generate_settings(zt_engine *e, ckpt_err *err);

/* ---- sample.c ---- */

/* How a token is chosen. */
typedef struct zt_sampling {
    double temperature; /* 0: the most probable token */
    uint64_t top_k;     /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
} zt_sampling;

typedef struct zt_candidate {
    float logit;
    int32_t id;
} zt_candidate;

/*
 * Choose a token by n logits.  The choice depends on the seed, the prompt's number and the token's
 * place in the text alone.
 *
 * room    memory for n candidates
 * Returns the token; -1: a logit is not a number
 */
int32_t zt_sample(const zt_sampling *s, const float *logits, uint64_t n, const uint32_t place[2],
                  zt_candidate *room);

/* The folder of --model, or the folder of its file; *named: the user gave the folder itself.  NULL:
 * no memory. */
const char *zt_model_folder(zt_engine *e, bool *named);

/* Path of a file in it; NULL: it does not exist, or no memory. */
const char *zt_model_beside(zt_engine *e, const char *name);

/*
 * agree.c: check that options, configuration, model and data are equal on all ranks.
 *
 * Errors  CKPT_EMISMATCH: the first difference, its rank, both values
 */
int zt_agree_start(const zt_engine *e, ckpt_err *err);

/* Add the settings of the model as lines of name, tab and value; false: no memory. */
bool zt_agree_model(const zt_model_config *m, ckpt_bytes *to);

/*
 * facts.c: keep with each checkpoint the settings of the model and the samples that the run reads;
 * compare a loaded checkpoint's, for zt_about, or the config.json beside weights.  Weights alone do
 * not show them.
 *
 * Errors  CKPT_ELIMIT: no memory
 */
int zt_facts_keep(zt_engine *e, ckpt_err *err);
int zt_facts_compare(zt_engine *e, const zt_load_opts *from, ckpt_err *err);
int zt_facts_beside(zt_engine *e, const char *path, ckpt_err *err);

#endif
