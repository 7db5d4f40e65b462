/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.h: checkpoints of a run: saving is a plan from live memory to files, resuming one from files
 * to live memory.
 *
 *     live.c     the runtime's memory as a ckpt_map with its training state (libckpt/map/state.h)
 *     save.c     each rank writes its own files of DeepSpeed's layout; together they appear or do
 *                not
 *     load.c     any checkpoint that libckpt reads, at any world size and stage, into this rank's
 *                partitions
 *     tree.c     the values beside tensors, as DeepSpeed saves them; restore.c: back into a run
 *     weights.c  weights alone: a file, a model folder, an adapter's PEFT folder
 *     keep.c     which old checkpoints stay; lineage.c: which of them are this run's
 *     same.c     what ranks must have equal: files that they read, the state that they are in
 *     together.c the folder of a run is one for all ranks that write into it
 */
#ifndef ZT_SAVE_SAVE_H
#define ZT_SAVE_SAVE_H

#include "engine/zero/zero.h"

typedef struct zt_save_opts {
    const char *dir;
    const char *tag; /* NULL: "global_step<N>" */
    int64_t keep;    /* the newest K tags stay; 0: all */
    bool force;      /* replace checkpoints of other runs that have the tag's name */
    bool async;      /* return when memory may change again; the files follow (zt_save_wait) */
    const ckpt_value *client_state; /* DICT, goes into the model file as keys of its own; or NULL */
} zt_save_opts;

typedef struct zt_saver zt_saver;

/* One per run; zero is borrowed. */
int zt_saver_new(zt_saver **out, zt_zero *zero, ckpt_err *err);
void zt_saver_free(zt_saver *s); /* a save under way is given up; NULL is fine */

/* The runtime that it saves. */
zt_zero *zt_saver_zero(const zt_saver *s);

/*
 * Save: all ranks call it.  DeepSpeed's files for this stage and world (model_states, optim_states,
 * `latest`; in stage 3 with gather_16bit_on_save pytorch_model.bin's place is zt_save_weights).
 * Nothing of a failed save is visible.
 */
int zt_save(zt_saver *s, const zt_save_opts *opts, ckpt_err *err);

/* Finish the save that is under way; its outcome on all ranks. */
int zt_save_wait(zt_saver *s, ckpt_err *err);

/*
 * What went wrong beside a save that is good: an old checkpoint that cannot be removed.  True once
 * for each, on the rank that met it.
 */
bool zt_save_remark(zt_saver *s, ckpt_err *out);

/* Names of old checkpoints that made room since the last call; true: there are some. */
enum { ZT_SAVE_NAMES = 512 };
bool zt_save_gone(zt_saver *s, char out[ZT_SAVE_NAMES]);

/* What a save is to tell beside its outcome; see zt_save_remark. */
ckpt_err *zt_saver_remark(zt_saver *s);

typedef struct zt_weights_opts {
    /* a safetensors file; or, ending in '/', a Hugging Face folder, or, of a model with adapters,
       their PEFT folder */
    const char *path;
    bool low;           /* the working weights, not the fp32 masters */
    bool force;         /* replace what is there */
    const char *folder; /* of the model, whose files go along with a folder */
    const char *config; /* its configuration where that is not the folder's config.json; or NULL */
    const char *base;   /* of adapters: where the model is that they belong to; NULL: unknown */
} zt_weights_opts;

/*
 * Weights alone, written by rank 0.  All ranks call it.
 *
 * Errors  CKPT_EUSAGE: something is there already; those of ckpt_layout and ckpt_plan_run
 */
int zt_save_weights(zt_saver *s, const zt_weights_opts *opts, ckpt_err *err);

/* Rank 0, before anything is trained: the same could be written.  Errors as above. */
int zt_try_weights(zt_saver *s, const zt_weights_opts *opts, ckpt_err *err);

typedef struct zt_load_opts {
    const char *path; /* run folder, tag folder, or a consolidated or universal checkpoint */
    const char *tag;  /* NULL: `latest` */
    bool module_only; /* weights alone */
    /* parameters that are missing keep their values; unknown ones are passed over */
    bool not_strict;
} zt_load_opts;

typedef struct zt_loaded {
    char tag[256];
    bool with_optimizer; /* moments, steps, schedule, scaler and counters came back too */
    int64_t global_steps;
    size_t n_missing, n_unknown; /* not_strict */
} zt_loaded;

/* What is saved from now on has grown from what was loaded, with its optimizer. */
void zt_saver_resume(zt_saver *s, const zt_load_opts *from, const zt_loaded *loaded);

/*
 * Before anything is trained: saves harm no other run's checkpoints.  Each writer calls it.
 *
 * Errors  CKPT_EUSAGE: they would, and what to do; CKPT_EIO
 */
int zt_saver_try(zt_saver *s, const zt_save_opts *opts, ckpt_err *err);

/* All ranks call it; each reads only what it holds.  Ends with zt_zero_refresh. */
int zt_load(zt_zero *z, const zt_load_opts *opts, zt_loaded *loaded, ckpt_err *err);

/*
 * Initial weights from a checkpoint: names as they are, with a prefix ("w0/"), or with the model's
 * left out.  n_missing, where not NULL, gets how many parameters it lacks, also when it is refused
 * for them.
 */
int zt_load_initial(zt_zero *z, const char *path, bool strict, size_t *n_missing, ckpt_err *err);

#endif
