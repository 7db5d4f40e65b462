/* SPDX-License-Identifier: Apache-2.0 */
/*
 * universal.h: what the files of the universal checkpoint driver share.  Not for anyone else.
 *
 *     folder.c   from what the user named to one output folder: its model files, its parameters
 *     files.c    thousands of small torch files, a few at a time by several threads
 *     read.c     the driver's reader: names and roles from the model file, values from zero/
 *     facts.c    what was understood, for `info`
 *     state.c    parameter groups and optimizer values in the form that writers take
 *     write.c    the driver's writer: which files there are, one folder per parameter
 *     model.c    the two model files, written
 *     optim.c    zero/optimizer_state.pt, written
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
 * The model files are DeepSpeed's own, so that what reads them there
 * (formats/deepspeed/module) is used here too.
 */
#ifndef CKPT_FORMATS_UNIVERSAL_H
#define CKPT_FORMATS_UNIVERSAL_H

#include "formats/deepspeed/module/module.h"
#include "formats/deepspeed/module/state.h"
#include "formats/deepspeed/write/write.h"
#include "formats/rules/rules.h"

/* A folder below zero/, by name: nested ones ("a/b") where a parameter's name has slashes. */
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

/* A file to read, and what it is of. */
typedef struct ckpt_uni_want {
    const char *path;
    const char *state; /* "fp32", "exp_avg", "step" */
    size_t param;      /* index in ckpt_uni.param */
} ckpt_uni_want;

CKPT_VEC(ckpt_uni_wants, ckpt_uni_want);

/* A parameter, or another entry of zero/, on its way into the map. */
typedef struct ckpt_uni_param {
    ckpt_ds_param shape; /* name and group; its shape only where shapes are known */
    size_t entry;        /* in the folder; SIZE_MAX: it has none */
    ckpt_tensor *t;      /* once fp32.pt was read */
    bool trained;        /* else a tensor that only zero/ holds: frozen */
    bool has_step;
    double step;
    ckpt_ds_scalar scalar; /* the same as bytes */
    ckpt_value *step_tree; /* the same as a value of the large map's arena */
} ckpt_uni_param;

CKPT_VEC(ckpt_uni_params, ckpt_uni_param);

/* The state of one gather. */
typedef struct ckpt_uni {
    ckpt_ds_job job;
    ckpt_ds_head head; /* the model file, and zero/optimizer_state.pt */
    ckpt_ds_module module;
    const char *tag;
    ckpt_uni_folder dir;
    ckpt_uni_params param; /* those of param_shapes in their order; then what only zero/ knows */
    size_t n_shapes;       /* how many param_shapes lists */
    bool shapes_whole; /* its shapes are those of the whole parameters: one model-parallel rank */
    uint64_t *n_part;  /* parameters of each dict of param_shapes */
    size_t n_parts;
    size_t last_step; /* the parameter whose step_tree was copied last */
    size_t n_narrow;  /* masters that are not float32, and the first's file */
    const char *narrow;
} ckpt_uni;

/* ---- folder.c ---- */

/* 0..100 from names, and from what zero/ holds. */
int ckpt_uni_probe(const ckpt_listing *list);

/* Find the folder, its model files and its parameters; sets the map's path and u->tag. */
int ckpt_uni_folder_find(ckpt_uni *u, const ckpt_listing *list);

/* Free its lists; names and paths are the map's. */
void ckpt_uni_folder_free(ckpt_uni_folder *dir);

/* Index of a parameter's entry, or SIZE_MAX. */
size_t ckpt_uni_entry_find(const ckpt_uni_folder *dir, const char *name);

/* ---- complete.c ---- */

/*
 * Does every trained parameter have the kinds of state that those of its kind have?
 *
 * Errors  CKPT_EMISSING, a finding where they are collected; a warning where only weights are read
 */
int ckpt_uni_complete(ckpt_uni *u);

/*
 * Open model files that are not read, those of stage 3 beside whole ones: damage in them, or
 * another step, is worth a finding.
 */
int ckpt_uni_models(ckpt_uni *u);

/* ---- files.c ---- */

/* A file that was read, and what for; its root is of any kind. */
typedef struct ckpt_uni_file {
    const ckpt_uni_want *want;
    ckpt_ds_shard *shard;
} ckpt_uni_file;

/* What is done with one file; it is closed afterwards. */
typedef int (*ckpt_uni_file_fn)(ckpt_uni *u, ckpt_uni_file *f);

/* Read the files of a list, all of one state, and hand those that could be read to fn in order;
 * step counts are read with their files. */
int ckpt_uni_files_each(ckpt_uni *u, const ckpt_uni_wants *wants, ckpt_uni_file_fn fn);

/* ---- facts.c ---- */

/* Stage, world, steps and so on as facts of the map. */
int ckpt_uni_facts(ckpt_uni *u);

/* ---- state.c ---- */

/* Stage 3 keeps one step count for all in optimizer_state.pt, that of sub-group 0: give it to the
 * parameters. */
int ckpt_uni_common_step(ckpt_uni *u);

/* The state of the run for writers, and step counts as tensors (with_optimizer). */
int ckpt_uni_state_make(ckpt_uni *u);

/* ---- write.c ---- */

/* What is being written. */
typedef struct ckpt_uni_write {
    ckpt_dsw_job job;
    ckpt_dsw_how how; /* stage, release, dtype, new_dtype and fresh are set */
    bool whole; /* the model file of stages 1 and 2, and what they need of optimizer_state.pt */
    bool parts; /* the same of stage 3 */
    bool flat;  /* bare flat tensors: all that stage 3 reads before 0.19.3 */
    const ckpt_value *info; /* universal_checkpoint_info of the source, or NULL */
    ckpt_uni_rules
        *rules; /* how tensor-parallel slices are cut; NULL where nothing speaks of any */
} ckpt_uni_write;

/* The driver's writer: a run folder with one universal checkpoint (ckpt_directory.scatter). */
int ckpt_uni_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

/* The step count of a group as a value of a file, zero for a fresh optimizer; None where the
 * optimizer counts none. */
ckpt_value *ckpt_uni_write_step(ckpt_uni_write *w, ckpt_torch_tree *t, const ckpt_group *g);

/* True if a group's optimizer counts steps. */
bool ckpt_uni_write_steps(const ckpt_uni_write *w, const ckpt_group *g);

/* ---- model.c ---- */

/* mp_rank_00_model_states.pt with the module, or zero_pp_rank_0_mp_rank_00_model_states.pt with
 * placeholders. */
int ckpt_uni_model_file(ckpt_uni_write *w, bool parts, const char *name);

/* ---- optim.c ---- */

/* zero/optimizer_state.pt. */
int ckpt_uni_optim_file(ckpt_uni_write *w, const char *name);

#endif
