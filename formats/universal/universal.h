/* SPDX-License-Identifier: Apache-2.0 */
/*
 * universal.h: the interface between the files of the universal checkpoint driver (private to it).
 *
 *     folder.c    finds the output folder, its model files and its parameters
 *     files.c     reads thousands of small torch files with several threads
 *     read.c      the reader: names and roles from the model file, values from zero/
 *     complete.c  reports missing files of zero/
 *     beside.c    reports values in files of zero/ that nothing reads
 *     facts.c     fills in the facts for `ckpt info`
 *     state.c     builds parameter groups and optimizer values for writers
 *     write.c     the writer: chooses the files, one folder per parameter
 *     model.c     writes the two model files
 *     optim.c     writes zero/optimizer_state.pt
 *     step.c      finds and writes step counts
 *
 * The layout, as DeepSpeed 0.7.4 to 0.19.8 write and read it:
 *     run/latest_universal                          text: the name of the folder below
 *     run/<tag>/mp_rank_00_model_states.pt          the model file of stages 1 and 2, or
 *               zero_pp_rank_{d}_mp_rank_00_...     those of stage 3
 *               zero/optimizer_state.pt             loss scale, parameter groups
 *               zero/<parameter>/fp32.pt            {'param': tensor ...}; stage 3: a flat tensor
 *                                exp_avg.pt ...     the same, one file per kind of state
 *                                step.pt            a number or a tensor of one element
 *
 * The model files are DeepSpeed's native ones, so this driver reads them with the functions of
 * formats/deepspeed/module.
 */
#ifndef CKPT_FORMATS_UNIVERSAL_H
#define CKPT_FORMATS_UNIVERSAL_H

#include "formats/deepspeed/module/module.h"
#include "formats/deepspeed/module/state.h"
#include "formats/deepspeed/write/write.h"
#include "formats/rules/rules.h"

/* A folder below zero/; its name has slashes ("a/b") if the parameter's name has. */
typedef struct ckpt_uni_entry {
    const char *name;
    const char *path;
    size_t first, n; /* its files: file[first .. first+n) of the folder */
} ckpt_uni_entry;

CKPT_VEC(ckpt_uni_entries, ckpt_uni_entry);
CKPT_VEC(ckpt_uni_names, const char *);

/* An output folder of the converter. */
typedef struct ckpt_uni_folder {
    ckpt_ds_parts whole; /* mp_rank_{rank}_model_states.pt, by model-parallel rank */
    ckpt_ds_parts parts; /* zero_pp_rank_{rank}_mp_rank_00_model_states.pt, by data-parallel rank */
    uint32_t n_mp;       /* model-parallel ranks that have model files */
    const char *optim;   /* zero/optimizer_state.pt, or NULL */
    ckpt_uni_entries entry; /* sorted by name */
    ckpt_uni_names file;    /* names of the .pt files of all entries, without ".pt" */
} ckpt_uni_folder;

/* A file to read, and the parameter that it belongs to. */
typedef struct ckpt_uni_want {
    const char *path;
    const char *state; /* "fp32", "exp_avg", "step" */
    size_t param;      /* index in ckpt_uni.param */
} ckpt_uni_want;

CKPT_VEC(ckpt_uni_wants, ckpt_uni_want);

/* A parameter, or another entry of zero/, before it enters the map. */
typedef struct ckpt_uni_param {
    ckpt_ds_param shape; /* name and group; the shape only if param_shapes gives it */
    size_t entry;        /* index in dir.entry, or SIZE_MAX */
    ckpt_tensor *t;      /* NULL until fp32.pt was read */
    bool trained;        /* false: a frozen tensor that only zero/ holds, not the module */
    bool has_step;
    double step;
    ckpt_ds_scalar scalar; /* the step as bytes */
    ckpt_value *step_tree; /* the step as a value in the map's arena */
} ckpt_uni_param;

CKPT_VEC(ckpt_uni_params, ckpt_uni_param);

/* The state of one gather. */
typedef struct ckpt_uni {
    ckpt_ds_job job;
    ckpt_ds_head head; /* the model file, and zero/optimizer_state.pt */
    ckpt_ds_module module;
    const char *tag;
    ckpt_uni_folder dir;
    ckpt_uni_params param; /* param_shapes in its order, then entries that only zero/ has */
    size_t n_shapes;       /* parameters in param_shapes */
    bool shapes_whole;     /* one model-parallel rank: shapes are those of whole parameters */
    uint64_t *n_part;      /* number of parameters in each dict of param_shapes */
    size_t n_parts;
    size_t last_step;   /* index of the parameter whose step_tree was copied last */
    size_t n_narrow;    /* number of masters that are not float32 */
    size_t n_beside;    /* values beside the tensors of zero/ that nothing reads */
    const char *beside; /* the first one's file and name */
    const char *narrow;
} ckpt_uni;

/* ---- folder.c ---- */

/* A score of 0 to 100 from the file names and the contents of zero/. */
int ckpt_uni_probe(const ckpt_listing *list);

/* Find the folder, its model files and its parameters; sets the map's path and u->tag. */
int ckpt_uni_folder_find(ckpt_uni *u, const ckpt_listing *list);

/* Free the lists of a folder; its names and paths belong to the map. */
void ckpt_uni_folder_free(ckpt_uni_folder *dir);

/* Index of a parameter's entry, or SIZE_MAX. */
size_t ckpt_uni_entry_find(const ckpt_uni_folder *dir, const char *name);

/* ---- complete.c ---- */

/*
 * Check that every trained parameter has the kinds of state of its optimizer's other parameters.
 *
 * Errors  CKPT_EMISSING, recorded as a finding if the map collects them; only a warning if just the
 *         weights are read
 */
int ckpt_uni_complete(ckpt_uni *u);

/*
 * Check that each rank of the run has its model file.
 *
 * Errors  CKPT_EMISSING, recorded as a finding if the map collects them: the file of a
 *         tensor-parallel rank, or of rank 0 at stage 3, is missing; for other ranks that is only a
 *         warning
 */
int ckpt_uni_ranks(ckpt_uni *u);

/*
 * Compare the counters, the version and the schedule of a model file with those of the first.
 *
 * Errors  CKPT_EMISMATCH, recorded as a finding if the map collects them: the files belong to
 *         different saves
 */
int ckpt_uni_same_save(ckpt_uni *u, const ckpt_ds_shard *s);

/*
 * Open the stage 3 model files whose values are not used, to report damage in them, or files of
 * another save.
 */
int ckpt_uni_models(ckpt_uni *u);

/* ---- files.c ---- */

/* A file that was read, and its request; the root may be of any kind. */
typedef struct ckpt_uni_file {
    const ckpt_uni_want *want;
    ckpt_ds_shard *shard;
} ckpt_uni_file;

/* Handles one file; the caller closes it afterwards. */
typedef int (*ckpt_uni_file_fn)(ckpt_uni *u, ckpt_uni_file *f);

/* Read the files of a list, which all have one kind of state, and call fn in list order for each
 * readable one.  Step counts are read together with their files. */
int ckpt_uni_files_each(ckpt_uni *u, const ckpt_uni_wants *wants, ckpt_uni_file_fn fn);

/* ---- beside.c ---- */

/*
 * Count the members of a parameter's file that are neither its tensor nor DeepSpeed's notes about
 * it; warn of them, once all files are read.
 */
int ckpt_uni_beside(ckpt_uni *u, const ckpt_uni_file *f);
int ckpt_uni_say_beside(ckpt_uni *u);

/* ---- facts.c ---- */

/* Add stage, world size, steps and so on as facts of the map. */
int ckpt_uni_facts(ckpt_uni *u);

/* ---- state.c ---- */

/* Give every parameter the step of sub-group 0, because stage 3 keeps one step count in
 * optimizer_state.pt. */
int ckpt_uni_common_step(ckpt_uni *u);

/* Build the run's state for writers, and with with_optimizer the step tensors. */
int ckpt_uni_state_make(ckpt_uni *u);

/* ---- write.c ---- */

/* The output that is being written. */
typedef struct ckpt_uni_write {
    ckpt_train_job job;
    ckpt_dsw_how how; /* stage, release, dtype, new_dtype and fresh are set */
    bool whole; /* write the model file of stages 1 and 2 and their entries of optimizer_state.pt */
    bool parts; /* write those of stage 3 */
    bool flat;  /* bare flat tensors, because stage 3 reads no other form before 0.19.3 */
    const ckpt_value *info; /* universal_checkpoint_info of the source, or NULL */
    /* the source's rules for cutting tensor-parallel slices, or NULL */
    ckpt_uni_rules *rules;
} ckpt_uni_write;

/* Write a run folder with one universal checkpoint (ckpt_directory.scatter). */
int ckpt_uni_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

/* A group's step count as a value of the output: zero for a fresh optimizer, None for an optimizer
 * that counts no steps. */
ckpt_value *ckpt_uni_write_step(ckpt_uni_write *w, ckpt_torch_tree *t, const ckpt_group *g);

/* True if a group's optimizer counts steps. */
bool ckpt_uni_write_steps(const ckpt_uni_write *w, const ckpt_group *g);

/* ---- model.c ---- */

/* Write mp_rank_00_model_states.pt with the module or, with `parts`,
 * zero_pp_rank_0_mp_rank_00_model_states.pt with placeholders. */
int ckpt_uni_model_file(ckpt_uni_write *w, bool parts, const char *name);

/* ---- optim.c ---- */

/* Write zero/optimizer_state.pt. */
int ckpt_uni_optim_file(ckpt_uni_write *w, const char *name);

#endif
