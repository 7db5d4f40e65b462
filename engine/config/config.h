/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: what a run is told: the ds_config.json, with every key honoured, or refused by name.
 *
 *     hjson.c    HJSON as DeepSpeed reads it, into a tree of values
 *     keys.c     the keys, their types, defaults and ranges, and what becomes of each here: a table
 *     fields.c   values of a block, by that table
 *     config.c   files, what keys mean together, which combinations cannot be
 *     batch.c    train_batch_size = micro batch x accumulation x world
 *     auto.c     values that are "auto", from the command line as the Trainer of transformers fills
 *                them
 *     print.c    the resolved configuration as JSON
 *     base64.c   in which launchers pass files as arguments
 *
 * Source: DeepSpeed 0.19.8, runtime/config.py, runtime/zero/config.py, runtime/precision_config.py,
 * launcher/runner.py.
 */
#ifndef ZT_CONFIG_CONFIG_H
#define ZT_CONFIG_CONFIG_H

#include <stdio.h>

#include "engine/optim/optim.h"

/*
 * Parse HJSON text: comments, trailing commas, unquoted keys and strings, missing outer braces; a
 * key twice in one object is an error.  Objects become DICT, numbers INT or FLOAT, null NONE.  name
 * is for messages, which give the line.
 *
 * Errors  CKPT_EFORMAT, CKPT_ELIMIT (depth over 64, 16 MiB of text)
 */
int zt_hjson_parse(ckpt_value **out, ckpt_arena *arena, const char *text, size_t n,
                   const char *name, ckpt_err *err);
int zt_hjson_read(ckpt_value **out, ckpt_arena *arena, const char *path, ckpt_err *err);

/* Bytes that a JSON file beside a model, or one of options, may have. */
#define ZT_JSON_BYTES (UINT64_C(16) << 20)

typedef enum zt_place { ZT_ON_DEVICE, ZT_ON_CPU, ZT_ON_NVME } zt_place;

typedef struct zt_offload {
    zt_place place;   /* what the stage makes of it */
    zt_place asked;   /* as the file has it */
    const char *path; /* nvme_path */
    int64_t buffer_count;
    uint64_t buffer_size, max_in_cpu; /* elements */
    bool pin, pipeline_read, pipeline_write;
    double ratio;
} zt_offload;

/* The fp16 block as read, whether enabled or not; zt_config.scaler is what follows from it. */
typedef struct zt_fp16 {
    bool enabled, consecutive;
    double loss_scale; /* 0: dynamic */
    int64_t power, window, hysteresis, min_scale;
} zt_fp16;

typedef enum zt_tag_check { ZT_TAG_WARN, ZT_TAG_IGNORE, ZT_TAG_FAIL } zt_tag_check;

/* A monitor's block: its files are in path/job. */
typedef struct zt_monitor {
    bool enabled;
    const char *path, *job; /* path "": where the program was started */
} zt_monitor;

/* The resolved configuration.  Sizes are elements. */
typedef struct zt_config {
    const ckpt_value *json; /* as read, "auto" filled in: goes into checkpoints as ds_config */

    int64_t train_batch, micro_batch, accumulation;
    double clipping;        /* 0: none */
    ckpt_dtype dtype;       /* F32, F16, BF16 */
    ckpt_dtype accum_dtype; /* of accumulated gradients */
    ckpt_dtype comm_dtype;  /* of gradients on the way */
    bool check_grad_overflow;
    bool prescale;
    double predivide;
    bool sum_gradients; /* gradient_allreduce_op */
    zt_optim optim;
    zt_schedule schedule;
    zt_scaler scaler;
    bool allow_untested;

    int stage;
    bool contiguous, reduce_scatter, round_robin, overlap, compute_grad_norm, aligned;
    uint64_t reduce_bucket, gather_bucket, sub_group_size, prefetch_bucket, persistence,
        model_persistence;
    uint64_t max_live, max_reuse;
    bool gather_16bit_on_save;
    bool elastic_checkpoint;
    zt_offload offload_optimizer, offload_param;
    uint64_t aio_block;
    int64_t aio_depth, aio_threads;

    bool node_local; /* checkpoint.use_node_local_storage */
    zt_tag_check tag_validation;
    bool load_universal;
    bool activation_checkpointing; /* the block is there, or asked for on the command line */
    int64_t steps_per_print;       /* 0 or not given: every 10 */
    bool wall_clock;
    zt_fp16 fp16;
    zt_monitor tensorboard, csv_monitor;

    /*
     * Remarks for the user, one line each: keys accepted without effect here, tolerated spellings.
     * NULL-terminated.
     */
    const char *const *notes;
    /* of each note: a key is not known, hence without effect, which also quiet runs say */
    const bool *note_warns;
} zt_config;

/*
 * Arguments that "auto" values are taken from: the names and defaults of transformers'
 * TrainingArguments.
 */
typedef struct zt_arguments {
    int64_t per_device_train_batch_size, gradient_accumulation_steps;
    double learning_rate, adam_beta1, adam_beta2, adam_epsilon, weight_decay, max_grad_norm,
        warmup_steps;
    int64_t total_steps; /* of the run: for schedules */
    int64_t hidden_size; /* of the model; 0: unknown, sizes that need it are an error */
    bool fp16, bf16;
    bool given[16];         /* which were given on the command line: indexed by zt_argument */
    bool save_on_each_node; /* checkpoints are written on every node */
} zt_arguments;

/* Places in zt_arguments.given. */
typedef enum zt_argument {
    ZT_ARG_MICRO_BATCH,
    ZT_ARG_ACCUMULATION,
    ZT_ARG_LR,
    ZT_ARG_BETA1,
    ZT_ARG_BETA2,
    ZT_ARG_EPSILON,
    ZT_ARG_WEIGHT_DECAY,
    ZT_ARG_CLIPPING,
    ZT_ARG_WARMUP,
    ZT_ARG_FP16,
    ZT_ARG_BF16,
    ZT_ARG_TOTAL_STEPS,
    ZT_ARG_N
} zt_argument;

/* TrainingArguments' defaults; total_steps and hidden_size are 0, nothing is given. */
void zt_arguments_default(zt_arguments *a);

/*
 * Read, fill and check a configuration.  args NULL: "auto" is as DeepSpeed itself takes it.
 *
 * With args, a value that is "auto" comes from them; a value that is there and differs from an
 * argument that was given is an error that names all such; and what was given is used where the
 * file has no such key.  json is filled in place and, like every text in *out, must outlive it.
 *
 * Errors  CKPT_EUSAGE: a value (key, found, allowed) or the batch sizes; CKPT_EUNSUPPORTED: a key
 *         or value that is not for this engine; CKPT_EFORMAT: not HJSON
 */
int zt_config_read(zt_config *out, ckpt_arena *arena, const char *path_or_base64,
                   const zt_arguments *args, int world, ckpt_err *err);
int zt_config_parse(zt_config *out, ckpt_arena *arena, ckpt_value *json, const zt_arguments *args,
                    int world, ckpt_err *err);

/*
 * True where DeepSpeed makes its optimizer for the processor (DeepSpeedCPUAdam and others): an
 * offload_optimizer block says so, at stage 0 too (engine.py, zero_use_cpu_optimizer).
 */
bool zt_config_is_cpu_optimizer(const zt_config *c);
/*
 * True where DeepSpeed wraps the optimizer in its BF16_Optimizer (engine.py, _configure_optimizer),
 * which has files of its own form and lays parameters out as they come, whatever
 * round_robin_gradients says.
 */
bool zt_config_is_bf16_optimizer(const zt_config *c);

/*
 * The resolved configuration in the shape of ds_config.json, so that what is printed can be read
 * again and means the same; every setting that the optimizer and the schedule have is there.
 * NULL: memory is exhausted.  Texts are borrowed from c.
 */
const ckpt_value *zt_config_tree(const zt_config *c, ckpt_arena *arena);

/* The same as JSON.  Errors: CKPT_EIO, CKPT_ELIMIT. */
int zt_config_print(const zt_config *c, FILE *out, ckpt_err *err);

#endif
