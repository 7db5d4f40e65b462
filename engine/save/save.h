/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.h: declares checkpoints of a run.  Saving is a plan from live memory to files, resuming a
 * plan from files to live memory.
 *
 *     live.c      the runtime's memory as a ckpt_map with its training state (libckpt/map/state.h)
 *     save.c      each rank writes its own files of DeepSpeed's layout; they are published together
 *                 or not at all
 *     load.c      any checkpoint that libckpt reads, at any world size and stage, into this rank's
 *                 partitions
 *     tree.c      the values that are not tensors, as DeepSpeed saves them; restore.c loads them
 *                 into a run
 *     weights.c   only the weights: a file, a model folder, an adapter's PEFT folder
 *     keep.c      removal of old checkpoints; lineage.c: which checkpoints belong to this run
 *     same.c      comparison of ranks: files that they read, their state
 *     together.c  the check that all ranks write into one folder
 */
#ifndef ZT_SAVE_SAVE_H
#define ZT_SAVE_SAVE_H

#include "engine/zero/zero.h"

typedef struct zt_save_opts {
    const char *dir;
    const char *tag;   /* NULL: "global_step<N>" */
    int64_t keep;      /* keep the newest K tags; 0: all */
    const char *spare; /* a tag that `keep` neither removes nor counts; or NULL */
    bool force;        /* replace a checkpoint of another run that has the tag's name */
    bool async;        /* return once memory may change again; the files follow (zt_save_wait) */
    const ckpt_value *client_state; /* DICT whose members are added to the model file; or NULL */
} zt_save_opts;

typedef struct zt_saver zt_saver;

/* Create the saver of a run; zero is borrowed. */
int zt_saver_new(zt_saver **out, zt_zero *zero, ckpt_err *err);
void zt_saver_free(zt_saver *s); /* cancels a save under way; NULL is fine */

/* The runtime that a saver saves; borrowed. */
zt_zero *zt_saver_zero(const zt_saver *s);

/*
 * Save; all ranks must call it.  Writes DeepSpeed's files for this stage and world (model_states,
 * optim_states, `latest`).  With gather_16bit_on_save in stage 3, zt_save_weights replaces
 * pytorch_model.bin.  A failed save leaves no visible file.
 */
int zt_save(zt_saver *s, const zt_save_opts *opts, ckpt_err *err);

/* Wait for the save under way; all ranks get the same outcome. */
int zt_save_wait(zt_saver *s, ckpt_err *err);

/*
 * Get a failure that did not prevent a save, such as an old checkpoint that cannot be removed.
 * Returns true once for each, on the rank where it happened.
 */
bool zt_save_remark(zt_saver *s, ckpt_err *out);

/* Get the names of old checkpoints removed since the last call; true: there are some. */
enum { ZT_SAVE_NAMES = 512 };
bool zt_save_gone(zt_saver *s, char out[ZT_SAVE_NAMES]);

/* The failure that zt_save_remark will return, for other files to fill in. */
ckpt_err *zt_saver_remark(zt_saver *s);

typedef struct zt_weights_opts {
    /* a safetensors file; or, ending in '/', a Hugging Face folder (for a model with adapters,
     * their PEFT folder) */
    const char *path;
    bool low;           /* the working weights instead of the fp32 masters */
    bool force;         /* replace an existing output */
    const char *folder; /* the model's folder, whose other files are copied into a folder */
    /* the model's configuration, if it is not the folder's config.json; or NULL */
    const char *config;
    const char *base; /* adapters: path of their base model; NULL: unknown */
} zt_weights_opts;

/*
 * Save only the weights; rank 0 writes them.  All ranks must call it.
 *
 * Errors  CKPT_EUSAGE: the output exists; those of ckpt_layout and ckpt_plan_run
 */
int zt_save_weights(zt_saver *s, const zt_weights_opts *opts, ckpt_err *err);

/* Check on rank 0, before training, that zt_save_weights would succeed.  Errors as above. */
int zt_try_weights(zt_saver *s, const zt_weights_opts *opts, ckpt_err *err);

typedef struct zt_load_opts {
    const char *path; /* run folder, tag folder, a consolidated or a universal checkpoint */
    const char *tag;  /* NULL: `latest` */
    bool module_only; /* only weights */
    /* missing parameters keep their values; unknown tensors are ignored */
    bool not_strict;
} zt_load_opts;

enum { ZT_REPLACED = 400 };

typedef struct zt_loaded {
    char tag[256];
    bool with_optimizer; /* moments, steps, schedule, scaler and counters were restored too */
    int64_t global_steps;
    /*
     * optimizer_updates: number of updates that the optimizer has counted; -1: it keeps no count.
     * updates: the number according to the model file's counters. The two differ if the files are
     * from different saves, or if the run was once started from weights without optimizer state.
     */
    int64_t optimizer_updates, updates;
    size_t n_missing, n_unknown; /* not_strict */
    char replaced[ZT_REPLACED];  /* settings of the configuration that have no effect, or "" */
    bool fresh_schedule; /* the checkpoint has no state of a schedule, so it begins at step 0 */
} zt_loaded;

/*
 * Note that the run resumed from this checkpoint with its optimizer, so later saves descend from
 * it.
 */
void zt_saver_resume(zt_saver *s, const zt_load_opts *from, const zt_loaded *loaded);

/* Keep lines of facts (name, tab, value) with each checkpoint; they must outlive the saver. */
void zt_saver_keep_facts(zt_saver *s, const char *facts);

/* Read the facts of the checkpoint that was loaded; free with ckpt_free.  NULL: it has none. */
char *zt_loaded_facts(const zt_load_opts *from, const zt_loaded *loaded);

/*
 * Check before training that saves will not replace another run's checkpoints.  Every rank that
 * creates a folder must call it.
 *
 * Errors  CKPT_EUSAGE: they would (the text lists the user's options); CKPT_EIO
 */
int zt_saver_try(zt_saver *s, const zt_save_opts *opts, ckpt_err *err);

/*
 * Load a checkpoint.  All ranks must call it; each reads only the parts that it holds.  Calls
 * zt_zero_refresh at its end.
 */
int zt_load(zt_zero *z, const zt_load_opts *opts, zt_loaded *loaded, ckpt_err *err);

/* Where a checkpoint and a model differ. */
typedef struct zt_lacking {
    size_t n_missing; /* parameters that the checkpoint lacks */
    size_t n_frozen;  /* of these, the frozen ones */
    size_t n_unknown; /* tensors of the checkpoint that the model lacks; buffers do not count */
} zt_lacking;

/*
 * Load initial weights from a checkpoint.  Its names may equal the model's, have a prefix ("w0/"),
 * or lack the model's own prefix.  `lacking` is set even if the call fails because of it.
 */
int zt_load_initial(zt_zero *z, const char *path, bool strict, zt_lacking *lacking, ckpt_err *err);

#endif
