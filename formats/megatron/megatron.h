/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron.h: what the files of the driver for Megatron-LM's checkpoints share.  Not for anyone
 * else.
 *
 *     marks.c     what names in a folder say of it
 *     folder.c    from what the user named to the folder of one iteration
 *     names.c     what a name says: layers, experts, weight decay, optimizer state
 *     rules.c     how tensor-parallel slices join, how layers are stacked
 *     buffer.c    the flat buffers of the distributed optimizer
 *     groups.c    which parameters are in which of the optimizer's groups
 *     state.c     the training state: groups, masters, moments, step counts
 *     dist_state.c  what of it a torch_dist folder has, and where
 *     facts.c     what the run's arguments tell
 *     megatron.c  the driver: torch_dist folders
 *     legacy.h    folders with a file for each rank
 *
 * A run, as Megatron-LM with Megatron-Core leaves it:
 *
 *     latest_checkpointed_iteration.txt   "3", or "release"
 *     iter_0000003/, or release/          one checkpoint
 *         metadata.json                   written last: without it the save did not finish
 *         common.pt                       what is not sharded: arguments, groups, scheduler
 *         .metadata, *.distcp             a distributed checkpoint of PyTorch (formats/dcp)
 *
 * Layers that are alike are stacked: "decoder.layers.mlp.linear_fc1.weight" has all of them along
 * its first axis.
 */
#ifndef CKPT_FORMATS_MEGATRON_H
#define CKPT_FORMATS_MEGATRON_H

#include "formats/dcp/dcp.h"
#include "libckpt/map/slices.h"

#define CKPT_MEG_TRACKER "latest_checkpointed_iteration.txt"
#define CKPT_MEG_COMMON  "common.pt"
#define CKPT_MEG_DONE    "metadata.json"

/* What every step of the reader is handed. */
typedef struct ckpt_meg_job {
    ckpt_map *map;            /* its path is the iteration's folder */
    const ckpt_listing *list; /* of that folder */
    const ckpt_open_opts *opts;
    const ckpt_map *common; /* common.pt, which the map owns; NULL: it is not there */
    const ckpt_value *root; /* its tree, a DICT, or NULL */
    const ckpt_value *rest; /* values of the run beside model and optimizer; NULL: the map's */
    ckpt_err *err;
} ckpt_meg_job;

/* ---- marks.c ---- */

enum { CKPT_MEG_DIGITS = 18 }; /* of an iteration's number */

/* The listing is of a folder with one checkpoint: torch_dist, whole or not. */
bool ckpt_meg_is_dist(const ckpt_listing *list);

/* A folder's name is that of an iteration: "iter_" and digits. */
bool ckpt_meg_is_iter(const char *name);

/* ---- folder.c ---- */

/* What the doctor is told of runs (ckpt_run_layout). */
bool ckpt_meg_is_tag(const ckpt_listing *list);
bool ckpt_meg_folder(char out[CKPT_RUN_NAME], const char *text);
bool ckpt_meg_text(char out[CKPT_RUN_NAME], const char *folder);

/*
 * Go down to the folder of one iteration: by the tag, by the tracker file, or because it is one.
 *
 * list    in: what was named; out: the iteration's
 * Errors  CKPT_EMISSING: there is none of that name, or nothing says which; CKPT_EFORMAT: a
 *         tracker file that names no iteration; CKPT_EUNSAFE: one that names another place
 */
int ckpt_meg_find(ckpt_map *map, ckpt_listing *list, const ckpt_open_opts *opts, ckpt_err *err);

/* ---- names.c ---- */

/* What items of a torch_dist checkpoint are (ckpt_dcp_roles_fn). */
int ckpt_meg_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                   ckpt_err *err);

/* A parameter of experts that are spread over ranks. */
bool ckpt_meg_is_expert(const char *name);

/* A tensor of the model that no optimizer has. */
bool ckpt_meg_is_buffer(const char *name);

/* Axes that stacking has put before a parameter's own: layers, experts. */
uint32_t ckpt_meg_stacked(const char *name);

/* ---- rules.c ---- */

/*
 * How the slices of a parameter join: axes are those of one layer.
 *
 * map     has the parameter and its neighbours, stacked or not, whole or slices of one rank
 * lead    axes that stacking has put before the parameter's own
 * Returns false: no rule is known for the name
 */
bool ckpt_meg_rule(ckpt_slice_rule *out, const ckpt_map *map, const char *name, uint32_t lead);

/* A layer of a weight, or all of it, as one tensor-parallel rank has it. */
typedef struct ckpt_meg_part {
    const ckpt_tensor *weight; /* of the map */
    uint64_t layer;
    uint32_t tp;
    ckpt_tensor *slice; /* not in the list of the map */
} ckpt_meg_part;

CKPT_VEC(ckpt_meg_parts, ckpt_meg_part);

/*
 * Join slices and stack layers: "<kind>/<weight>" of every weight that has parts, in the list of
 * the map; slices that are whole on every rank become copies of the first.
 *
 * parts   in any order; sorted
 * Errors  CKPT_EMISMATCH: some are missing, or do not fit; those of ckpt_slices_join
 */
int ckpt_meg_stack(ckpt_map *map, const char *kind, ckpt_meg_parts *parts, uint32_t tp,
                   ckpt_err *err);

/* ---- buffer.c ---- */

/* A parameter of a model-parallel rank, and where it lies in the rank's flat buffers. */
typedef struct ckpt_meg_param {
    const char *name;
    const ckpt_tensor *weight; /* of the map, which it is a part of; NULL: not known */
    uint64_t layer;            /* of the weight */
    uint32_t ndim;
    const uint64_t *shape; /* of this rank's part */
    uint64_t n;            /* elements */
    size_t bucket;
    uint64_t at; /* elements from the start of the bucket */
} ckpt_meg_param;

CKPT_VEC(ckpt_meg_params, ckpt_meg_param);

/*
 * Say where parameters lie: bucket and at of each.
 *
 * param    n of them, in the order of named_parameters()
 * size     elements of each of n_buckets buckets, up to the end of the last parameter
 * Returns  false: they do not fill the buckets exactly
 * Source   megatron/core/distributed/param_and_grad_buffer.py of Megatron-Core 0.16, where
 *          buckets close by a size that is not saved; here the sizes say it.  Checked against the
 *          layouts that the fixtures recorded (tests/golden/megatron.py)
 */
bool ckpt_meg_layout(ckpt_meg_param *param, size_t n, const uint64_t *size, size_t n_buckets);

/* A parameter's elements in its bucket (1 axis, flat extents), as a tensor that is not listed. */
int ckpt_meg_cut(ckpt_map *map, const ckpt_tensor *bucket, const ckpt_meg_param *param,
                 ckpt_tensor **out, ckpt_err *err);

/*
 * Put tensors "<kind>/<weight>" into the map in the place of the buffers of a torch_dist
 * checkpoint.
 *
 * why     what stands in the way, when nothing was done; NULL: done, or there are none
 */
int ckpt_meg_buffers(ckpt_meg_job *job, const char **why);

/* ---- facts.c ---- */

/* What the run's arguments tell, as facts of the map. */
int ckpt_meg_facts(ckpt_meg_job *job, const char *layout);

/* An argument of the run; NULL: not there. */
const ckpt_value *ckpt_meg_value(const ckpt_meg_job *job, const char *name);

/* A number among the arguments of the run; 0: not there. */
int64_t ckpt_meg_arg(const ckpt_meg_job *job, const char *name);

/* The same of a flag: it is there, and true. */
bool ckpt_meg_flag(const ckpt_meg_job *job, const char *name);

/* ---- groups.c ---- */

/* What a parameter group says of its parameters. */
typedef struct ckpt_meg_group {
    const ckpt_value *settings; /* a DICT */
    bool decays, expert, decoupled;
    bool norms_decay; /* of the run: norms of queries and keys decay like matrices */
    bool has_step;
    int64_t step;
} ckpt_meg_group;

CKPT_VEC(ckpt_meg_groups, ckpt_meg_group);

/*
 * Append the groups of a list.
 *
 * step    that their optimizer counts for all of them, where groups do not; NULL: it does not
 * Errors  CKPT_EFORMAT: no list of dicts
 */
int ckpt_meg_groups_add(ckpt_meg_groups *out, const ckpt_meg_job *job, const ckpt_value *list,
                        const double *step);

/* The one group of a parameter; groups->n: none, or several. */
size_t ckpt_meg_group_of(const ckpt_meg_groups *groups, const char *name, uint32_t ndim);

/* ---- state.c ---- */

/* There is no training state, and this is why: a name is appended, or NULL.  Errors: memory. */
int ckpt_meg_none(ckpt_map *map, const char *why, const char *name, ckpt_err *err);

/*
 * Make the training state of a map that has its weights, and their state as "<kind>/<weight>": fp32
 * masters become the weights, with the model's as their copies.  Where groups do not say whose they
 * are, there is none.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_meg_state(ckpt_meg_job *job, const ckpt_meg_groups *groups);

/* ---- dist_state.c ---- */

/*
 * The same of a torch_dist checkpoint that was read with its optimizer; no_state says why there is
 * none.
 *
 * Errors  CKPT_EFORMAT: values of another kind than Megatron's; CKPT_ELIMIT
 */
int ckpt_meg_dist_state(ckpt_meg_job *job);

#endif
