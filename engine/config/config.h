/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h: declares reading ds_config.json, whose keys are all either honoured or refused by name.
 *
 *     hjson.c    HJSON as DeepSpeed reads it, into a tree of values
 *     keys.c     tables of the keys: type, default, range, and effect in this engine
 *     fields.c   reading the values of a block by its table
 *     config.c   loading files, rules over several keys, refused combinations
 *     batch.c    train_batch_size = micro batch x accumulation x world
 *     auto.c     "auto" values, filled from the command line as transformers' Trainer does
 *     print.c    the resolved configuration as JSON
 *     base64.c   decoding a configuration that a launcher passes as an argument
 *
 * Source: DeepSpeed 0.19.8, runtime/config.py, runtime/zero/config.py, runtime/precision_config.py,
 * launcher/runner.py.
 */
#ifndef ZT_CONFIG_CONFIG_H
#define ZT_CONFIG_CONFIG_H

#include <stdio.h>

#include "engine/optim/optim.h"

/*
 * Parse HJSON text: comments, trailing commas, unquoted keys and strings, missing outer braces.  A
 * repeated key in one object is an error.  Objects become DICT, numbers INT or FLOAT, null NONE.
 * name appears in messages, with the line.
 *
 * Errors  CKPT_EFORMAT, CKPT_ELIMIT (depth over 64, 16 MiB of text)
 */
int zt_hjson_parse(ckpt_value **out, ckpt_arena *arena, const char *text, size_t n,
                   const char *name, ckpt_err *err);
int zt_hjson_read(ckpt_value **out, ckpt_arena *arena, const char *path, ckpt_err *err);

/* Maximum size in bytes of a model's JSON files, and of JSON files with options. */
#define ZT_JSON_BYTES (UINT64_C(16) << 20)

typedef enum zt_place { ZT_ON_DEVICE, ZT_ON_CPU, ZT_ON_NVME } zt_place;

typedef struct zt_offload {
    zt_place place;   /* effective at this stage */
    zt_place asked;   /* as given in the file */
    const char *path; /* nvme_path */
    int64_t buffer_count;
    uint64_t buffer_size, max_in_cpu; /* elements */
    bool pin, pipeline_read, pipeline_write;
    double ratio;
} zt_offload;

/* The fp16 block as read, even if fp16 is disabled; zt_config.scaler is derived from it. */
typedef struct zt_fp16 {
    bool enabled, consecutive;
    double loss_scale; /* 0: dynamic */
    int64_t power, window, hysteresis, min_scale;
} zt_fp16;

typedef enum zt_tag_check { ZT_TAG_WARN, ZT_TAG_IGNORE, ZT_TAG_FAIL } zt_tag_check;

/* A monitor's block; the monitor's files go to path/job. */
typedef struct zt_monitor {
    bool enabled;
    const char *path, *job; /* path "": the working directory */
} zt_monitor;

/* The resolved configuration.  Sizes are elements. */
typedef struct zt_config {
    const ckpt_value *json; /* as read, with "auto" filled in; checkpoints store it as ds_config */

    int64_t train_batch, micro_batch, accumulation;
    double clipping;        /* 0: none */
    ckpt_dtype dtype;       /* F32, F16, BF16 */
    ckpt_dtype accum_dtype; /* dtype of accumulated gradients */
    ckpt_dtype comm_dtype;  /* dtype of gradients in collectives */
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
    bool activation_checkpointing; /* true: requested by the block, or by an option */
    int64_t steps_per_print;       /* 0 or not given: every 10 */
    bool wall_clock;
    zt_fp16 fp16;
    zt_monitor tensorboard, csv_monitor;

    /*
     * Notes for the user, one line each: keys that have no effect here, old spellings that are
     * still accepted.  NULL-terminated.
     */
    const char *const *notes;
    /* true: the note names an unknown key (no effect); printed even by quiet runs */
    const bool *note_warns;
} zt_config;

/*
 * Arguments that fill "auto" values.  Names and defaults are those of transformers'
 * TrainingArguments.
 */
typedef struct zt_arguments {
    int64_t per_device_train_batch_size, gradient_accumulation_steps;
    double learning_rate, adam_beta1, adam_beta2, adam_epsilon, weight_decay, max_grad_norm,
        warmup_steps;
    int64_t total_steps; /* updates of the run, for schedules */
    int64_t hidden_size; /* the model's; 0: unknown, so computing sizes from it fails */
    bool fp16, bf16;
    bool fp16_full_eval, bf16_full_eval; /* fill "auto" like fp16 and bf16, and do nothing else */
    bool given[16];         /* true: given on the command line; indexed by zt_argument */
    bool save_on_each_node; /* every node writes checkpoints */
    /* schedule of transformers for a configuration without one; its arguments as a JSON object */
    const char *lr_scheduler_type, *lr_scheduler_kwargs; /* NULL: none */
} zt_arguments;

/* Indices of zt_arguments.given. */
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

/* Set TrainingArguments' defaults; total_steps and hidden_size become 0, `given` all false. */
void zt_arguments_default(zt_arguments *a);

/*
 * Read, fill and check a configuration.  args NULL: "auto" has the meaning that DeepSpeed itself
 * gives it.
 *
 * With args, they replace "auto" values.  If the file has other values than arguments that the user
 * gave, one error names them all.  A given argument also applies if the file lacks its key.  json
 * is filled in place; json and its texts must outlive *out, which borrows them.
 *
 * Errors  CKPT_EUSAGE: a value (key, found, allowed) or the batch sizes; CKPT_EUNSUPPORTED: a key
 *         or value that this engine does not support; CKPT_EFORMAT: not HJSON
 */
int zt_config_read(zt_config *out, ckpt_arena *arena, const char *path_or_base64,
                   const zt_arguments *args, int world, ckpt_err *err);
int zt_config_parse(zt_config *out, ckpt_arena *arena, ckpt_value *json, const zt_arguments *args,
                    int world, ckpt_err *err);

/*
 * True if DeepSpeed would choose its CPU optimizer (DeepSpeedCPUAdam and others).  It does so if
 * there is an offload_optimizer block, even at stage 0 (engine.py, zero_use_cpu_optimizer).
 */
bool zt_config_is_cpu_optimizer(const zt_config *c);
/*
 * True if DeepSpeed would wrap the optimizer in its BF16_Optimizer (engine.py,
 * _configure_optimizer).  That class writes optimizer files of its own form and ignores
 * round_robin_gradients when it lays out parameters.
 */
bool zt_config_is_bf16_optimizer(const zt_config *c);

/*
 * The resolved configuration in the shape of ds_config.json, so the output can be read again with
 * the same meaning.  It has every setting of the optimizer and the schedule.  NULL: out of memory.
 * Texts are borrowed from c.
 */
const ckpt_value *zt_config_tree(const zt_config *c, ckpt_arena *arena);

/* Print zt_config_tree as JSON.  Errors: CKPT_EIO, CKPT_ELIMIT. */
int zt_config_print(const zt_config *c, FILE *out, ckpt_err *err);

#endif
