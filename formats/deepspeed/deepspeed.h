/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed.h: what the files of the DeepSpeed directory driver share.  Not for anyone else.
 *
 *     names.c    file names, prefixes, ranks
 *     folder.c   from what the user named to one tag folder, sorted by rank
 *     shard.c    one .pt file: its tree, its sources, flat tensors and step counts in it
 *     params.c   parameters and groups from param_shapes, also where old releases hid them
 *     optim.c    one rank's optimizer file: flat groups and states, compared with rank 0's
 *     value.c    what the optimizer keeps once for a group
 *     flat.c     stages 1 and 2: slices to extents, and the check by param_slice_mappings
 *     stage3.c    stage 3: partitions to extents, frozen fragments
 *     swap.c     stage 3: groups that NVMe offload left in swap files
 *     module.c   buffers, frozen parameters, 16-bit copies, shared names
 *     stage0.c     stage 0: masters kept whole
 *     pipe.c     pipeline stages: the module from layer files
 *     experts.c      experts: the module from expert files, parameters of all expert-parallel ranks
 *     grid.c     several model-parallel ranks: each read alone, then put into one map
 *     join.c     several model-parallel ranks: slices joined to full tensors
 *     tree.c     rank 0's tree of values, copied
 *     state.c    groups and optimizer values in the form that writers take
 *     deepspeed.c   the driver: resolve, read all ranks, build the map
 *
 * Read from the files of DeepSpeed 0.3.16 to 0.19.8; the layout arithmetic is in
 * libckpt/map/zero_*.h.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_H
#define CKPT_FORMATS_DEEPSPEED_H

#include "libckpt/format.h"
#include "libckpt/map/state.h"
#include "libckpt/map/zero_param.h"

/* ---- names.c ---- */

typedef enum ckpt_ds_kind {
    CKPT_DS_OTHER,
    CKPT_DS_MODEL,      /* mp_rank_00_model_states.pt */
    CKPT_DS_MODEL_RANK, /* zero_pp_rank_3_mp_rank_00_model_states.pt */
    CKPT_DS_OPTIM,      /* [bf16_]zero_pp_rank_3_mp_rank_00[_]optim_states.pt */
    CKPT_DS_EXPERT,     /* [layer_0_]expert_1_mp_rank_00_model_states.pt */
    CKPT_DS_LAYER,      /* layer_03-model_states.pt, layer_03-model_00-model_states.pt */
    CKPT_DS_EXPP        /* expp_rank_0_mp_rank_00_optim_states.pt */
} ckpt_ds_kind;

typedef struct ckpt_ds_name {
    ckpt_ds_kind kind;
    bool bf16;   /* has the prefix bf16_ */
    uint32_t dp; /* data-parallel rank; 0 where the name has none.  Layer files: the layer; expert
                    files: the expert; expp files: the expert-parallel rank */
    uint32_t mp; /* model-parallel rank; of layer files the tensor-parallel one */
    uint32_t layer; /* expert files: the number of their layer among those that have experts */
    bool has_layer; /* their name tells it */
} ckpt_ds_name;

/* What a file name says; kind OTHER for everything that DeepSpeed does not write. */
ckpt_ds_name ckpt_ds_name_parse(const char *name);

/* True for the names of model and optimizer shards, of all kinds. */
bool ckpt_ds_name_is_shard(const char *name);

/* N of "checkpoint-N" in *out; false for any other name. */
bool ckpt_ds_name_run(const char *name, uint64_t *out);

/* ---- folder.c ---- */

typedef struct ckpt_ds_part {
    const char *path;
    uint32_t rank; /* as ckpt_ds_name.dp */
    uint32_t mp, layer;
    bool bf16, has_layer;
} ckpt_ds_part;

CKPT_VEC(ckpt_ds_parts, ckpt_ds_part);

/* A tag folder's files, by ascending rank: of all model-parallel ranks, or those of one. */
typedef struct ckpt_ds_folder {
    const char *path; /* of the tag folder */
    const char *tag;
    uint32_t mp;          /* the one model-parallel rank */
    uint32_t n_mp;        /* model-parallel ranks that the tag folder has */
    const char *model;    /* mp_rank_00_model_states.pt, or NULL */
    ckpt_ds_parts wholes; /* the same of all model-parallel ranks */
    ckpt_ds_parts models; /* one per rank: stage 3 */
    ckpt_ds_parts optims;
    ckpt_ds_parts experts, layers; /* parts of the model beside it */
    /* stage 0 with experts: the optimizer of each expert-parallel rank */
    ckpt_ds_parts expps;
    bool offloaded; /* has offloaded_tensors/ */
    /* stage 0 with experts, read as one of ep expert-parallel ranks: that one, and the file that
       has its optimizer; else 0 and NULL */
    uint32_t ep, ep_rank;
    const char *optimizer;
} ckpt_ds_folder;

/* ---- the state of one gather ---- */

/* One opened file; root and all below live until it is closed. */
typedef struct ckpt_ds_shard {
    ckpt_map *map;
    const char *path;
    uint32_t rank;
    /* shard's file -> the large map's: its own, then those merged into it */
    uint32_t *file;
    uint32_t *source;        /* shard's source -> the large map's, UINT32_MAX: not copied yet */
    ckpt_value *root;        /* a DICT */
    const ckpt_value *optim; /* optimizer files: optimizer_state_dict */
    ckpt_reader *reader;     /* for step counts that are tensors; made when needed */
    ckpt_value *tree;        /* the copy of root in the large map's arena, once it was made */
} ckpt_ds_shard;

/* A one-dimensional contiguous tensor of a shard. */
typedef struct ckpt_ds_flat {
    uint32_t source; /* in the large map; without meaning when n is 0 */
    uint32_t dtype;  /* ckpt_dtype; NONE: the rank has no such tensor */
    uint64_t at;     /* byte offset in the source */
    uint64_t n;      /* elements */
} ckpt_ds_flat;

typedef struct ckpt_ds_param {
    const char *name; /* n_name bytes, and a terminator */
    uint64_t n_name;
    const uint64_t *shape; /* elements */
    uint32_t ndim;
    uint32_t group; /* index in ckpt_ds_layout.group */
    uint64_t numel;
    uint64_t at; /* stage 3: element offset of its partition in the sub-group's flat tensor */
} ckpt_ds_param;

/* A parameter group (stages 1, 2) or a sub-group (stage 3). */
typedef struct ckpt_ds_group {
    size_t first, n;  /* its parameters (stage 3: set by the walk over flat sizes) */
    size_t part;      /* index of its first flat tensor in a column */
    uint32_t of;      /* parameter group that it belongs to (stages 1, 2: its own number) */
    uint32_t n_parts; /* flat tensors over all ranks of a lane, in layout order */
    /*
     * experts: expert-parallel ranks, of which each has its own parameters; else 1. Parameters and
     * flat tensors of lane e follow those of lane e - 1
     */
    uint32_t lanes;
    uint32_t intervals;      /* stage 1 of 0.3.x: communication intervals; else 1 */
    ckpt_zero_flat flat;     /* stages 1, 2 */
    ckpt_zero_flat shuffled; /* round_robin_gradients: as param_slice_mappings were computed */
    uint64_t *order;         /* round_robin_gradients: shuffled parameter k is parameter order[k] */
    bool has_step;           /* rank 0's optimizer keeps a step count */
    bool own_step;           /* in the state of this very group */
    double step;             /* as rank 0 has it */
    const char *swapped;     /* stage 3: id of the swap files that hold the group, or NULL */
} ckpt_ds_group;

/* The flat tensors of one kind (masters, exp_avg ...), of all groups and ranks. */
typedef struct ckpt_ds_column {
    const char *name; /* NULL: the master weights */
    ckpt_ds_flat *at; /* n_parts of all groups */
} ckpt_ds_column;

CKPT_VEC(ckpt_ds_params, ckpt_ds_param);
CKPT_VEC(ckpt_ds_groups, ckpt_ds_group);
CKPT_VEC(ckpt_ds_columns, ckpt_ds_column);
CKPT_VEC(ckpt_ds_pairs, ckpt_pair);
CKPT_VEC(ckpt_ds_extents, ckpt_extent);
CKPT_VEC(ckpt_ds_axes, ckpt_axis);

/* Which layers of a pipeline are whose (pipe.c). */
typedef struct ckpt_ds_pipe ckpt_ds_pipe;

/* Entries of a dict, found by name: sorted once. */
typedef struct ckpt_ds_index {
    const ckpt_pair **at;
    size_t n;
} ckpt_ds_index;

/* What was asked for, and where it goes: the map that is made, the options, what reads a file. */
typedef struct ckpt_ds_job {
    ckpt_map *map; /* its path is the tag folder's */
    const ckpt_open_opts *opts;
    ckpt_read_file *read;
    ckpt_err *err;
    bool broken; /* collecting, and something makes the layout unsure: no tensors */
} ckpt_ds_job;

/* Rank 0's two files, which stay open for the others to be compared with, and what they say. */
typedef struct ckpt_ds_head {
    ckpt_ds_shard model, optim;
    int stage;
    uint32_t world; /* data-parallel ranks */
    bool legacy;    /* stage 1 of 0.3.x: local_sub_partitions_of_fp32_groups */
} ckpt_ds_head;

/* Where every parameter lies: groups in order, their parameters, the flat tensors of all ranks. */
typedef struct ckpt_ds_layout {
    ckpt_ds_params params;
    ckpt_ds_groups group;
    size_t n_groups;        /* parameter groups */
    size_t n_parts;         /* of each column */
    ckpt_ds_columns column; /* [0] masters */
} ckpt_ds_layout;

/* The model's state_dict, and what each entry of it is. */
typedef struct ckpt_ds_module {
    ckpt_dict dict;        /* model's "module" */
    ckpt_ds_index by_name; /* the same, sorted */
    uint8_t *seen;         /* per entry: what it is; 0: not accounted for */
    bool layered;          /* put together from the files of a pipeline's layers */
    ckpt_ds_params frozen;
    ckpt_ds_flat *fragment; /* stage 3: frozen.n * world */
} ckpt_ds_module;

/* The extents of one tensor while they are made. */
typedef struct ckpt_ds_boxes {
    ckpt_ds_extents extent;
    ckpt_ds_axes axis; /* one per extent */
} ckpt_ds_boxes;

/*
 * Report an inconsistency: fails with the code, or, when collecting, notes it, marks the layout
 * unsure and gives CKPT_OK.
 */
int ckpt_ds_problem(ckpt_ds_job *job, int code, const char *fmt, ...)
    CKPT_PRINTF(3, 4); // problem.c

/* The flat tensor of a rank in a column. */
static inline size_t ckpt_ds_slot(const ckpt_ds_group *g, uint32_t world, uint32_t interval,
                                  uint32_t rank)
{
    if (g->lanes > 1)
        return g->part + (size_t)(rank % g->lanes) * g->n_parts + rank / g->lanes;
    return g->part + (size_t)interval * world + rank;
}

/* ---- slice.c ---- */

/* What the data ranks of a part are. */
typedef struct ckpt_ds_run {
    int stage;
    uint32_t world;
} ckpt_ds_run;

/*
 * Read the files of a folder's one model-parallel rank into job->map: tensors, facts, values,
 * state.  Collecting, job->broken says that no tensors could be made.
 *
 * pipe  which layers are whose, of pipeline runs; else NULL
 * run   is set
 */
int ckpt_ds_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_pipe *pipe,
                 ckpt_ds_run *run);

/* ---- folder.c ---- */

/* Find the tag folder and its files, and refuse the layouts that are recognised but not handled. */
int ckpt_ds_folder_find(ckpt_ds_job *job, ckpt_ds_folder *dir, const ckpt_listing *list);
void ckpt_ds_folder_free(ckpt_ds_folder *dir);

/*
 * The files of one model-parallel rank: of `slice`, its tensor-parallel rank, among the layer
 * files.  What is given must be freed, also after a failure.
 */
int ckpt_ds_folder_slice(ckpt_ds_job *job, const ckpt_ds_folder *dir, uint32_t mp, uint32_t slice,
                         ckpt_ds_folder *out);

/* Ranks are 0..n-1 without gap, surplus or double; one prefix style. */
int ckpt_ds_folder_check(ckpt_ds_job *job, const ckpt_ds_parts *parts, const char *what);

/* The path that a rank's file would have, by those of the other ranks (parts is not empty). */
const char *ckpt_ds_folder_lost(const ckpt_ds_job *job, const ckpt_ds_parts *parts, uint32_t rank);

/* ---- shard.c ---- */

/* Read a file; its root must be a dict.  Where a collecting reader only noted a failure, s->map is
 * NULL. */
int ckpt_ds_shard_open(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_ds_part *part);

/*
 * Read the files from part `first` on, a few at a time by several threads, and hand those that
 * could be read to fn in order; each is closed after it.
 */
typedef int (*ckpt_ds_shard_fn)(void *ctx, ckpt_ds_shard *s);
int ckpt_ds_shard_each(ckpt_ds_job *job, const ckpt_ds_parts *parts, size_t first,
                       ckpt_ds_shard_fn fn, void *ctx);
void ckpt_ds_shard_close(ckpt_ds_shard *s);

/* Let a shard take over another's map, so that values of both may stand in one tree.  `from` then
 * has no map. */
int ckpt_ds_shard_merge(const ckpt_ds_job *job, ckpt_ds_shard *into, ckpt_ds_shard *from);

/* The large map's index of a shard's source. */
int ckpt_ds_shard_source(const ckpt_ds_job *job, ckpt_ds_shard *s, uint32_t source, uint32_t *out);

/* A value as a flat tensor; what names it for messages. */
int ckpt_ds_shard_flat(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                       const char *what, ckpt_ds_flat *out);

/* Give t the one extent that a tensor value describes. */
int ckpt_ds_shard_back(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_tensor_value *v,
                       ckpt_tensor *t);

/* A step count: an int, a float, or a tensor of one element, which is read. *has is false for
 * anything else. */
int ckpt_ds_shard_step(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v, bool *has,
                       double *out);

/* zero_stage as every release writes it; false if absent or of no known form. */
bool ckpt_ds_stage(const ckpt_value *v, int *out);

/*
 * Are the files those of BF16_Optimizer, which writes no stage and ignores round_robin_gradients?
 */
bool ckpt_ds_is_bf16_optimizer(const ckpt_ds_head *head);

/* ds_version of a shard, or NULL before 0.4.0. */
const ckpt_value *ckpt_ds_version(const ckpt_ds_shard *s);

/* True if the version is at least a.b.c. */
bool ckpt_ds_version_at_least(const ckpt_value *version, int a, int b, int c);

/* ---- index.c ---- */

/* Sort a dict's str keys; find one: NULL when it is not there. */
int ckpt_ds_index_new(ckpt_ds_index *out, ckpt_dict dict, ckpt_err *err);
void ckpt_ds_index_free(ckpt_ds_index *ix);
const ckpt_pair *ckpt_ds_index_find(const ckpt_ds_index *ix, const char *name, uint64_t n);

/*
 * Give the model file another module: the entries of `more` behind those that it has (keep), or in
 * their place.  No name may be there twice.
 */
int ckpt_ds_module_set(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_pairs *more,
                       bool keep);

/* ---- params.c ---- */

/* Append the entries of a dict name -> shape. */
int ckpt_ds_params_add(const ckpt_ds_job *job, ckpt_ds_params *out, const ckpt_value *dict,
                       uint32_t group, const char *what);

/* Parameters and groups from param_shapes of the model or optimizer file. */
int ckpt_ds_params_read(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                        ckpt_ds_layout *layout);

/* Equality of two trees, bounded; CKPT_ELIMIT when it could not be found out. */
int ckpt_ds_same(const ckpt_ds_job *job, const ckpt_value *a, const ckpt_value *b, bool *same);

/* Settings of optimizer, loss scale, schedule and configuration of another rank than 0: as rank 0's
 * (same.c).  Errors  CKPT_EMISMATCH: what differs, on which rank, both values. */
int ckpt_ds_same_optim(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);
int ckpt_ds_same_model(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

/* The same of another model-parallel rank of a pipeline stage than its first, by their states. */
int ckpt_ds_same_slices(ckpt_ds_job *job, const ckpt_map *first, const ckpt_map *own, uint32_t mp);

/* param_shapes and frozen_param_shapes of another rank equal rank 0's. */
int ckpt_ds_params_check(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_shard *s);

/* ---- optim_dict.c ---- */

/* What an optimizer_state_dict keeps: the state dict of the optimizer that the wrapper drives; of a
 * flat group and interval its state; of a parameter group its entry of param_groups; NULL:
 * nothing. */
const ckpt_value *ckpt_ds_optim_base(const ckpt_ds_head *head, const ckpt_value *optim);
ckpt_value *ckpt_ds_optim_state(const ckpt_ds_head *head, const ckpt_value *optim, size_t group,
                                uint32_t interval);
ckpt_value *ckpt_ds_optim_entry(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                const ckpt_value *optim, size_t group);

/* What a rank's list of groups holds for a group and interval; NULL beyond its end. */
ckpt_value *ckpt_ds_optim_flat(const ckpt_ds_head *head, ckpt_seq list, size_t group,
                               uint32_t interval);

/* The step count of a flat group, wherever the release keeps it; *own: in the group's own state. */
const ckpt_value *ckpt_ds_optim_step(const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                                     const ckpt_value *optim, size_t group, bool *own);

/* ---- optim.c ---- */

/* Find the groups and make the columns, from rank 0's file. */
int ckpt_ds_optim_begin(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);

/* Take in one rank's file: its flat tensors, and everything that must be as in rank 0's. */
int ckpt_ds_optim_read(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                       ckpt_ds_layout *layout, ckpt_ds_shard *s);

/* Steps of all groups for people: "4", or "4, 4, 7" where they differ; NULL when no optimizer keeps
 * any. */
const char *ckpt_ds_optim_steps(const ckpt_ds_job *job, const ckpt_ds_layout *layout);

/* ---- value.c ---- */

/* Say which values of the optimizer's state are not the same on a rank as on rank 0, and which
 * entries are of no known form. */
int ckpt_ds_value_check(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_layout *layout,
                        ckpt_ds_shard *s);

/* ---- flat.c: stages 1 and 2 ---- */

/* Lay out groups from rank 0's slices. */
int ckpt_ds_flat_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_layout *layout);
void ckpt_ds_layout_free(ckpt_ds_layout *layout);

/* The parameters that a rank says its slices hold are those that the layout gives it. */
int ckpt_ds_flat_mappings(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                          const ckpt_ds_shard *s);

/* Every slice is as long as its place in the layout asks. */
int ckpt_ds_flat_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                       const ckpt_ds_layout *layout);

/* How the ranks keep a kind of state of a group. */
typedef enum ckpt_ds_form {
    CKPT_DS_ABSENT, /* no rank has any, or it is something else */
    CKPT_DS_CUT,    /* sliced as the masters are */
    CKPT_DS_WHOLE   /* of each parameter that touches its slice a rank has all elements (Muon) */
} ckpt_ds_form;

/* The form of a column in a group of stages 1 and 2, by the lengths that the ranks have. */
int ckpt_ds_flat_form(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                      const ckpt_ds_column *c, size_t group, ckpt_ds_form *form);

/* Extents of a parameter in a column, into ds->extent; form is CUT or WHOLE. */
int ckpt_ds_flat_extents(const ckpt_ds_job *job, const ckpt_ds_layout *layout, ckpt_ds_boxes *boxes,
                         const ckpt_ds_column *c, const ckpt_ds_param *p, ckpt_ds_form form);

/* Add elements first..first+count-1, from element `at` of a flat tensor; merged with the extent
 * before where it goes on. */
int ckpt_ds_extent_add(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, const ckpt_ds_flat *from,
                       uint64_t at, uint64_t first, uint64_t count);

/* Give a tensor what is in ds->extent. */
int ckpt_ds_extent_back(const ckpt_ds_job *job, ckpt_ds_boxes *boxes, ckpt_tensor *t);
void ckpt_ds_boxes_free(ckpt_ds_boxes *boxes);

/* Give a tensor the elements of a flat tensor from element `at` on. */
int ckpt_ds_flat_back(const ckpt_ds_job *job, const ckpt_ds_flat *from, uint64_t at,
                      ckpt_tensor *t);

/* ---- stage3.c: stage 3 ---- */

/*
 * Walk the parameters over rank 0's flat tensors, which they fill; compare the other ranks' sizes
 * with rank 0's.
 *
 * holds    every rank has a column's state for a sub-group, none (false), or it is a problem
 * extents  of a parameter in a column, from each rank's partition, into ds->extent
 * Errors   CKPT_EMISMATCH; CKPT_EFORMAT: sizes overflow
 */
int ckpt_ds_part_begin(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                       ckpt_ds_layout *layout);
int ckpt_ds_part_check(ckpt_ds_job *job, const ckpt_ds_folder *dir, const ckpt_ds_head *head,
                       const ckpt_ds_layout *layout);
int ckpt_ds_part_holds(ckpt_ds_job *job, const ckpt_ds_head *head, const ckpt_ds_layout *layout,
                       const ckpt_ds_column *c, size_t group, bool *holds);
int ckpt_ds_part_extents(const ckpt_ds_job *job, const ckpt_ds_head *head,
                         const ckpt_ds_layout *layout, ckpt_ds_boxes *boxes,
                         const ckpt_ds_column *c, const ckpt_ds_param *p);

/* Take in one rank's fragments of the frozen parameters; their extents. */
int ckpt_ds_part_frozen(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        ckpt_ds_shard *s);
int ckpt_ds_part_frozen_extents(const ckpt_ds_job *job, const ckpt_ds_head *head,
                                const ckpt_ds_module *module, ckpt_ds_boxes *boxes, size_t frozen);

/* ---- swap.c: stage 3 with NVMe offload ---- */

/* The id of the swap file behind an empty flat tensor, or NULL. */
const char *ckpt_ds_swap_id(const ckpt_ds_job *job, const ckpt_value *v);

/* Let a column's tensors of the groups that were swapped out point into their swap files. */
int ckpt_ds_swap_bind(const ckpt_ds_job *job, const ckpt_ds_head *head,
                      const ckpt_ds_layout *layout, ckpt_ds_column *c);

/* ---- module.c ---- */

/* CKPT_EUNSUPPORTED: AutoEP has spread the run's experts over ranks. */
int ckpt_ds_module_whole(const ckpt_ds_job *job, const ckpt_ds_head *head);

/* Complete the model file's `module` from the files beside it, which must all be there. */
int ckpt_ds_module_gather(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                          const ckpt_ds_pipe *pipe);

/* Find the module's entries, and what of them are buffers; after sort, frozen and trained ones. */
int ckpt_ds_module_begin(ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module);
int ckpt_ds_module_sort(const ckpt_ds_job *job, const ckpt_ds_head *head, ckpt_ds_module *module,
                        const ckpt_ds_params *trained);
void ckpt_ds_module_free(ckpt_ds_module *module);

/* Buffers, frozen parameters and tied names of the module as tensors of the map. */
int ckpt_ds_module_add_buffers(const ckpt_ds_job *job, ckpt_ds_head *head,
                               const ckpt_ds_module *module);
int ckpt_ds_module_add_frozen(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module);
int ckpt_ds_module_add_aliases(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module);

/* Say what about the module's copies is not as in other runs. */
int ckpt_ds_module_note(const ckpt_ds_job *job, const ckpt_ds_head *head);

/* Add one tensor of a shard under a name. */
int ckpt_ds_module_add(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_text *name,
                       const ckpt_tensor_value *v, ckpt_role role, ckpt_tensor **out);

/* The 16-bit copy of a parameter as its twin. */
int ckpt_ds_module_twin(ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                        ckpt_tensor *t);

/* ---- pipe.c: pipeline stages ---- */

/* Before the names of what several layers share. */
#define CKPT_DS_TIED "tied_modules."

/* What is known of all stages before one of them is read; model[s] is the model file of stage s. */
typedef struct ckpt_ds_pipe ckpt_ds_pipe;
int ckpt_ds_pipe_new(ckpt_ds_pipe **out, ckpt_ds_job *job, const ckpt_ds_folder *dir,
                     const char *const *model, uint32_t n);
void ckpt_ds_pipe_free(ckpt_ds_pipe *pipe);

/* The module of the stage ds->dir.mp belongs to, from its layers' files. */
int ckpt_ds_pipe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head,
                        const ckpt_ds_pipe *pipe);

/* ---- experts.c: mixture of experts ---- */

/* The module with the experts' files. */
int ckpt_ds_moe_module(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head);

/* Expert-parallel ranks of a group, as rank 0's files show them. */
uint32_t ckpt_ds_moe_lanes(const ckpt_ds_head *head, size_t group);

/*
 * The parameters of the other expert-parallel ranks, behind rank 0's, under global expert numbers.
 */
int ckpt_ds_moe_params(const ckpt_ds_job *job, ckpt_ds_layout *layout);

/* Stage 0: the optimizer of the expert-parallel rank that is read instead of the model file's. */
int ckpt_ds_moe_optimizer(ckpt_ds_job *job, const ckpt_ds_folder *dir, ckpt_ds_head *head);

/* ---- grid.c: several model-parallel ranks ---- */

/* True if the folder's files must be read in several parts. */
bool ckpt_ds_grid_needed(const ckpt_ds_folder *dir);
int ckpt_ds_grid_read(ckpt_ds_job *job, const ckpt_ds_folder *dir);

/* ---- join.c ---- */

/* One part of a model: a model-parallel rank, or an expert-parallel one of stage 0. */
typedef struct ckpt_ds_slice {
    ckpt_map *map;  /* adopted by the large map */
    uint32_t stage; /* pipeline stage */
    uint32_t tp;    /* tensor-parallel rank in it */
    bool broken;    /* collecting, and no tensors could be made */
    bool adopted;
} ckpt_ds_slice;

/* All parts, by stage and then by tensor-parallel rank. */
typedef struct ckpt_ds_grid {
    ckpt_ds_job *job;
    const ckpt_ds_folder *dir;
    ckpt_ds_slice *slice;
    uint32_t n, tp, pp;
    uint32_t ep; /* stage 0 with experts: parts are expert-parallel ranks; else 0 */
} ckpt_ds_grid;

/* universal_checkpoint_info, wherever the release keeps it; NULL: nowhere. */
const ckpt_value *ckpt_ds_join_info(const ckpt_ds_grid *grid);

/* Make the large map's tensors and its one state of all slices. */
int ckpt_ds_join(ckpt_ds_grid *grid);

/* ---- stage0.c: stage 0 ---- */

/* Masters and optimizer state of the model file as tensors of the map, and the state of the run. */
int ckpt_ds_full_build(ckpt_ds_job *job, ckpt_ds_head *head, ckpt_ds_module *module);

/* ---- tree.c ---- */

/* Copy a shard's tree into the large map's arena, once; storages name the large map's sources. */
int ckpt_ds_tree_copy(const ckpt_ds_job *job, ckpt_ds_shard *s, ckpt_value **out);

/* ---- state.c ---- */

/* The state of the run for writers: parameter groups in layout order and what belongs to them; and
 * the step counts as tensors (with_optimizer). */
int ckpt_ds_state_make(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                       const ckpt_ds_layout *layout);

/* A new state with all that the model file says: version, dtype, stage, ranks.  Its parameters and
 * groups are left empty. */
int ckpt_ds_state_new(const ckpt_ds_job *job, ckpt_ds_head *head, const ckpt_ds_module *module,
                      ckpt_state **out);

/* What runs train in, up to NONE: what a target with training state may ask for. */
extern const ckpt_dtype ckpt_ds_dtypes[];

/* A value of a shard that holds for many parameters, as four bytes of F32. */
typedef struct ckpt_ds_scalar {
    bool has;        /* it is a number */
    uint32_t source; /* in the large map: the file's bytes, or memory */
    uint64_t at;     /* bytes */
} ckpt_ds_scalar;

/* Where one number of the optimizer's state lies; a Python number gets memory of its own. */
int ckpt_ds_state_scalar(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                         ckpt_ds_scalar *out);

/* Add the tensor "<kind>/<parameter>" without axes. */
int ckpt_ds_state_add_scalar(const ckpt_ds_job *job, const char *kind, const char *param,
                             const ckpt_ds_scalar *scalar);

#endif
