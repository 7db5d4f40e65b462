/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron.h: the interface between the files of the driver for Megatron-LM's checkpoints (private
 * to it).
 *
 *     marks.c     recognises checkpoints by names in a folder
 *     folder.c    goes from the user's path to the folder of one iteration
 *     names.c     parses names: layers, experts, weight decay, optimizer state
 *     rules.c     rules for joining tensor-parallel slices and stacking layers
 *     buffer.c    reads the flat buffers of the distributed optimizer
 *     groups.c    assigns parameters to the optimizer's groups
 *     state.c     builds the training state: groups, masters, moments, step counts
 *     dist_state.c  finds the state in a torch_dist folder
 *     fsdp.c      reads checkpoints of Megatron-FSDP
 *     facts.c     reads the run's arguments
 *     trainer.c   reads the configuration of Megatron-Bridge and NeMo 2 instead of arguments
 *     megatron.c  the driver: torch_dist folders
 *     write.h     the writer of torch_dist folders
 *     legacy.h    folders with a file for each rank
 *
 * A run of Megatron-LM with Megatron-Core:
 *
 *     latest_checkpointed_iteration.txt   "3", or "release"
 *     iter_0000003/, or release/          one checkpoint
 *         metadata.json                   written last: without it the save did not finish
 *         common.pt                       unsharded values: arguments, groups, scheduler
 *         .metadata, *.distcp             a distributed checkpoint of PyTorch (formats/dcp)
 *
 * NeMo 2 has the same in NAME/weights, with the prefix "module." before all names, and NAME/context
 * with the configuration.  Megatron-Bridge adds train_state.pt and run_config.yaml.
 *
 * Layers of the same structure are stacked: "decoder.layers.mlp.linear_fc1.weight" has all of them
 * along its first axis.
 */
#ifndef CKPT_FORMATS_MEGATRON_H
#define CKPT_FORMATS_MEGATRON_H

#include "formats/dcp/dcp.h"
#include "libckpt/map/slices.h"

#define CKPT_MEG_TRACKER "latest_checkpointed_iteration.txt"
#define CKPT_MEG_COMMON  "common.pt"
#define CKPT_MEG_DONE    "metadata.json"
/* folders of a checkpoint of NeMo 2: the torch_dist checkpoint, and the configuration */
#define CKPT_MEG_WEIGHTS "weights"
#define CKPT_MEG_CONTEXT "context"
/* name in common.pt of another framework's lr_scheduler: Megatron-LM would load that as its own */
#define CKPT_MEG_SCHEDULE "run_lr_scheduler"
/* among the kept values of a DeepSpeed run: a list of the values that ckpt added for Megatron */
#define CKPT_MEG_ADDED "added"

/* The state of the reader, passed to every step. */
typedef struct ckpt_meg_job {
    ckpt_map *map;            /* its path is the iteration's folder */
    const ckpt_listing *list; /* content of that folder */
    const ckpt_open_opts *opts;
    const ckpt_map *common; /* common.pt, owned by the map; NULL: absent */
    const ckpt_value *root; /* its tree, a DICT, or NULL */
    const ckpt_value *rest; /* the run's other values; NULL: use the map's */
    ckpt_err *err;
} ckpt_meg_job;

/* ---- marks.c ---- */

enum { CKPT_MEG_DIGITS = 18 }; /* digits of an iteration's number */

/* True for a folder with one torch_dist checkpoint, complete or not. */
bool ckpt_meg_is_dist(const ckpt_listing *list);

/* True for an iteration's folder name: "iter_" and digits. */
bool ckpt_meg_is_iter(const char *name);

/* True for a checkpoint's folder of NeMo 2, which has a torch_dist checkpoint in "weights". */
bool ckpt_meg_is_nemo(const ckpt_listing *list);

/* ---- folder.c ---- */

/* Describe runs for `ckpt doctor` (ckpt_run_layout). */
bool ckpt_meg_is_tag(const ckpt_listing *list);
bool ckpt_meg_folder(char out[CKPT_RUN_NAME], const char *text);
bool ckpt_meg_text(char out[CKPT_RUN_NAME], const char *folder);

/*
 * Go to the folder of one iteration: by the tag, by the tracker file, or the given one.
 *
 * list    in: the user's folder; out: the iteration's
 * Errors  CKPT_EMISSING: no folder of that name, or neither tag nor tracker; CKPT_EFORMAT: the
 *         tracker does not name an iteration; CKPT_EUNSAFE: it names a path outside the run
 */
int ckpt_meg_find(ckpt_map *map, ckpt_listing *list, const ckpt_open_opts *opts, ckpt_err *err);

/* ---- names.c ---- */

/* Decide the roles of a torch_dist checkpoint's items (ckpt_dcp_roles_fn). */
int ckpt_meg_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                   ckpt_err *err);

/* True for a parameter of experts that are spread over ranks. */
bool ckpt_meg_is_expert(const char *name);

/* True for a tensor of the model that the optimizer does not train. */
bool ckpt_meg_is_buffer(const char *name);

/*
 * Find the second name of a norm that Transformer Engine may fuse with the layer behind it.  The
 * norm before experts: Megatron-Core's local layers know it by the fused name, those of Transformer
 * Engine by a name of its own.  Multi-latent attention, and dense layers with it: the opposite.
 *
 * out    NULL: the name is another tensor's
 * false  no memory
 */
bool ckpt_meg_second(const char **out, ckpt_arena *arena, const char *name);

/*
 * Turn the tensors with second names into twins of the first ones, to which they must be equal: a
 * checkpoint that ckpt has written has both.
 */
int ckpt_meg_twins(ckpt_map *map, ckpt_err *err);

/* The number of axes that stacking adds before a parameter's own: layers, experts. */
uint32_t ckpt_meg_stacked(const char *name);

/* ---- rules.c ---- */

/*
 * Find the rule for joining a parameter's slices; axes are those of one layer.
 *
 * map      has the parameter and its neighbours, stacked or not, whole or slices of one rank
 * lead     number of axes that stacking adds before the parameter's own
 * Returns  false: no rule for the name
 */
bool ckpt_meg_rule(ckpt_slice_rule *out, const ckpt_map *map, const char *name, uint32_t lead);

/* One tensor-parallel rank's slice of a layer of a weight, or of all of it. */
typedef struct ckpt_meg_part {
    const ckpt_tensor *weight; /* the weight in the map */
    uint64_t layer;
    uint32_t tp;
    ckpt_tensor *slice; /* hidden: not in the map's list */
} ckpt_meg_part;

CKPT_VEC(ckpt_meg_parts, ckpt_meg_part);

/*
 * Join slices and stack layers: adds "<kind>/<weight>" to the map for every weight with parts.  If
 * every rank has the whole weight, the ranks' copies become twins of the first.
 *
 * parts   in: any order; out: sorted
 * Errors  CKPT_EMISMATCH: some parts are missing, or do not fit; those of ckpt_slices_join
 */
int ckpt_meg_stack(ckpt_map *map, const char *kind, ckpt_meg_parts *parts, uint32_t tp,
                   ckpt_err *err);

/* ---- buffer.c ---- */

/* A parameter of a model-parallel rank, and its position in the rank's flat buffers. */
typedef struct ckpt_meg_param {
    const char *name;
    const ckpt_tensor *weight; /* the weight whose part it is; NULL: unknown */
    uint64_t layer;            /* index of the layer in the stacked weight */
    uint32_t ndim;
    const uint64_t *shape; /* shape of this rank's slice */
    uint64_t n;            /* elements */
    size_t bucket;
    uint64_t at; /* elements from the start of the bucket */
} ckpt_meg_param;

CKPT_VEC(ckpt_meg_params, ckpt_meg_param);

/*
 * Compute the position of each parameter: bucket and at.
 *
 * param    n parameters in the order of named_parameters()
 * size     elements of each of n_buckets buckets, up to the end of the last parameter
 * Returns  false: the parameters do not fill the buckets exactly
 * Source   megatron/core/distributed/param_and_grad_buffer.py of Megatron-Core 0.16.  It closes
 *          buckets at a size that is not saved, so the bucket sizes are used instead.  Checked
 *          against the layouts that the fixtures recorded (tests/golden/megatron.py)
 */
bool ckpt_meg_layout(ckpt_meg_param *param, size_t n, const uint64_t *size, size_t n_buckets);

/* Make a hidden tensor of a parameter's elements in its bucket, which has one axis and flat
 * extents. */
int ckpt_meg_cut(ckpt_map *map, const ckpt_tensor *bucket, const ckpt_meg_param *param,
                 ckpt_tensor **out, ckpt_err *err);

/*
 * Replace the buffers of a torch_dist checkpoint by tensors "<kind>/<weight>".
 *
 * why     the reason if the buffers stay; NULL: done, or there are none
 */
int ckpt_meg_buffers(ckpt_meg_job *job, const char **why);

/* ---- facts.c ---- */

/* Add the run's arguments as facts of the map. */
int ckpt_meg_facts(ckpt_meg_job *job, const char *layout);

/* An argument of the run, or NULL. */
const ckpt_value *ckpt_meg_value(const ckpt_meg_job *job, const char *name);

/* An integer argument of the run, or 0. */
int64_t ckpt_meg_arg(const ckpt_meg_job *job, const char *name);

/* True if a flag of the run exists and is true. */
bool ckpt_meg_flag(const ckpt_meg_job *job, const char *name);

/* ---- fsdp.c ---- */

/* True for an iteration's folder of Megatron-FSDP: .metadata has a name of Megatron-LM's. */
bool ckpt_meg_is_fsdp(const ckpt_listing *list);

/* Decide the roles of a checkpoint of Megatron-FSDP (ckpt_dcp_roles_fn). */
int ckpt_meg_fsdp_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                        ckpt_err *err);

/*
 * Complete a map that was read with these roles: join the halves of gated layers, add facts, and
 * with the optimizer the training state.
 *
 * Errors  CKPT_EMISSING, CKPT_EMISMATCH: a half is missing, or does not fit; CKPT_EFORMAT: values
 *         of another kind than Megatron's; CKPT_ELIMIT
 */
int ckpt_meg_fsdp(ckpt_meg_job *job);

/* ---- trainer.c ---- */

/*
 * Add "args" to a tree that has none, from the configuration of Megatron-Bridge or NeMo 2 if there
 * is one.  A finding names its file, and settings that no layout map carries.
 *
 * root    a DICT of the map
 * Errors  CKPT_ELIMIT, CKPT_EIO
 */
int ckpt_meg_trainer(ckpt_meg_job *job, ckpt_value *root);

/* ---- groups.c ---- */

/* A parameter group, and the properties by which parameters are assigned to it. */
typedef struct ckpt_meg_group {
    const ckpt_value *settings; /* a DICT */
    bool decays, expert, decoupled;
    bool norms_decay; /* a property of the run: norms of queries and keys have weight decay */
    bool has_step;
    int64_t step;
    const char **name; /* the sorted names of its parameters; NULL: the rules say which they are */
    size_t n_names;
} ckpt_meg_group;

CKPT_VEC(ckpt_meg_groups, ckpt_meg_group);

/*
 * Append the groups of a list.
 *
 * step    the optimizer's common step count, for groups without their own; NULL: none
 * Errors  CKPT_EFORMAT: not a list of dicts
 */
int ckpt_meg_groups_add(ckpt_meg_groups *out, const ckpt_meg_job *job, const ckpt_value *list,
                        const double *step);

/* True for a parameter with weight decay by default. */
bool ckpt_meg_decays(const char *name, uint32_t ndim);

/* The index of a parameter's only group; groups->n: none, or several. */
size_t ckpt_meg_group_of(const ckpt_meg_groups *groups, const char *name, uint32_t ndim);

/* ---- state.c ---- */

/* Record why there is no training state; `name` is appended unless NULL.  Errors: CKPT_ELIMIT. */
int ckpt_meg_none(ckpt_map *map, const char *why, const char *name, ckpt_err *err);

/*
 * Build the training state of a map with weights and their state as "<kind>/<weight>".  fp32
 * masters become the weights, with the model's weights as twins.  There is no state if groups
 * cannot be assigned.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_meg_state(ckpt_meg_job *job, const ckpt_meg_groups *groups);

/* ---- dist_state.c ---- */

/*
 * Build the training state of a torch_dist checkpoint that was read with its optimizer; no_state
 * gives the reason if there is none.
 *
 * Errors  CKPT_EFORMAT: values of another kind than Megatron's; CKPT_ELIMIT
 */
int ckpt_meg_dist_state(ckpt_meg_job *job);

#endif
