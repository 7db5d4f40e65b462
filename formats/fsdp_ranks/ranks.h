/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h: the interface between the files of the driver for per-rank FSDP files (private to it).
 *
 *     part.c     reads a DTensor or ShardedTensor: boxes of the whole tensor
 *     join.c     joins the ranks' boxes into a tensor of the map; copies become its twins
 *     numbers.c  maps the optimizer's numbers to parameters
 *     flat.c     extracts parameters from FSDP1's flat parameters
 *     run.c      makes weights, state and the tree of values from the files
 *     ranks.c    the driver for folders with a file per rank
 *     names.c    parses file names
 *     runs.c     finds the folder in a run of verl or SkyRL
 *     full.c     the driver for unsharded model and optimizer dicts
 *     beside.c   a model folder with an optimizer beside the weights
 *     trained.c  decides which weights of such a dict the optimizer trains
 *     write.c    the writer of per-rank files
 *
 * A checkpoint of verl, SkyRL and similar programs, with one file of each kind per rank:
 *
 *     model_world_size_{W}_rank_{R}.pt        torch.save(model.state_dict())
 *     optim_world_size_{W}_rank_{R}.pt        torch.save(optimizer.state_dict()), keyed by number
 *     extra_state_world_size_{W}_rank_{R}.pt  {"lr_scheduler": ..., "rng": ...}
 *
 * Tensors are objects of torch.distributed that describe their part of the whole tensor.
 */
#ifndef CKPT_FORMATS_FSDP_RANKS_H
#define CKPT_FORMATS_FSDP_RANKS_H

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/format.h"
#include "libckpt/map/state.h"
#include "libckpt/map/whole.h"

enum { CKPT_RANKS_MAX = 65536 };

/* Key of the fact that has the mesh's device type. */
#define CKPT_RANKS_DEVICE "device"

/* ---- runs.c ---- */

/* True for a run's folder with steps (global_step_N); ckpt_ranks_is_step: for a step with folders
 * of models. */
bool ckpt_ranks_is_run(const ckpt_listing *list);
bool ckpt_ranks_is_step(const ckpt_listing *list);

/* Runs of SkyRL and verl for `ckpt doctor`: a tracker, and steps with a folder for each model. */
extern const ckpt_run_layout ckpt_ranks_skyrl, ckpt_ranks_verl;

/*
 * Go from the user's path to the folder of one model's files.
 *
 * list    in: the user's folder; out: the model's, which is also map->path
 * asked   a tag, or NULL
 * Errors  CKPT_EMISSING: no run, no such step, or several models in it; CKPT_EFORMAT: a malformed
 *         tracker
 */
int ckpt_ranks_descend(ckpt_map *map, ckpt_listing *list, const char *asked, ckpt_err *err);

/* ---- write.c ---- */

/* ckpt_directory.scatter of the format fsdp-ranks (write.c). */
int ckpt_ranks_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                       ckpt_err *err);

/* ---- trained.c ---- */

/* Key under which Lightning's WeightAveraging stores the trained weights. */
#define CKPT_RANKS_AVERAGED "current_model_state"

/*
 * Make the weights that the optimizer trains the model of a dict with one model and its copies, and
 * list the copies.
 *
 * root    the dict
 * file    prefix of messages
 * Errors  CKPT_EUNSUPPORTED: the only model is an average, or the model is 16-bit and the dict may
 *         also hold its float32 masters
 */
int ckpt_ranks_trained(ckpt_map *map, ckpt_whole *whole, const ckpt_value *root, const char *file,
                       ckpt_err *err);

/* ---- part.c ---- */

/* The tensor that is read, and the rank whose file it is in. */
typedef struct ckpt_ranks_where {
    const char *file; /* prefix of messages */
    const char *key;  /* name of the tensor, for messages */
    uint32_t rank, world;
} ckpt_ranks_where;

typedef enum ckpt_ranks_kind {
    CKPT_RANKS_PLAIN, /* an ordinary tensor: whole, or FSDP1's part of a flat one */
    CKPT_RANKS_DTENSOR,
    CKPT_RANKS_SHARDED /* ShardedTensor */
} ckpt_ranks_kind;

/* A box of the whole tensor, and the file's tensor with its elements. */
typedef struct ckpt_ranks_box {
    uint64_t start[CKPT_MAX_DIM], count[CKPT_MAX_DIM]; /* elements */
    const ckpt_tensor_value *local;                    /* the rank's tensor, of shape `count` */
} ckpt_ranks_box;

CKPT_VEC(ckpt_ranks_boxes, ckpt_ranks_box);

/* One rank's part of a tensor. */
typedef struct ckpt_ranks_part {
    ckpt_ranks_kind kind;
    ckpt_dtype dtype;
    uint32_t ndim;
    uint64_t shape[CKPT_MAX_DIM]; /* shape of the whole tensor */
    uint32_t copies;              /* number of ranks that have the same box, as the tensor states */
    ckpt_ranks_boxes box;         /* without empty boxes */
    const char *device;           /* device type of the parts: "cuda"; NULL: unknown */
} ckpt_ranks_part;

/* True for a value that ckpt_ranks_part_read accepts: a tensor, or an object with a part of one. */
bool ckpt_ranks_is_part(const ckpt_value *v);

/*
 * Read a tensor of a rank's file.
 *
 * out     in: zeroed; the caller frees its boxes (ckpt_vec_free), after a failure too
 * Errors  CKPT_EFORMAT: the description is incomplete; CKPT_EMISMATCH: it belongs to another rank,
 *         or the local tensor has another shape; CKPT_EUNSUPPORTED: a placement other than shards
 *         and copies
 * Source  torch.distributed.tensor of 2.2 to 2.15: _dtensor_spec.py, placement_types.py
 */
int ckpt_ranks_part_read(ckpt_ranks_part *out, const ckpt_value *v, const ckpt_ranks_where *where,
                         ckpt_err *err);

/* ---- join.c ---- */

/* A box of an item in one rank's file. */
typedef struct ckpt_ranks_piece {
    uint32_t rank, source; /* rank with the piece; index of the source in the map */
    uint64_t at;           /* bytes in the source */
    uint64_t n;            /* elements */
    const ckpt_axis *axis; /* one per axis of the item */
    bool rows;             /* whole rows without gaps: an interval of the flattened tensor */
} ckpt_ranks_piece;

CKPT_VEC(ckpt_ranks_pieces, ckpt_ranks_piece);

/* All ranks' pieces under one name. */
typedef struct ckpt_ranks_item {
    const char *name;
    ckpt_ranks_kind kind;
    ckpt_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint32_t copies;
    const char *device;
    bool uneven;     /* plain tensors with different shapes */
    uint32_t n_held; /* number of ranks that have it */
    ckpt_ranks_pieces piece;
} ckpt_ranks_item;

CKPT_VEC(ckpt_ranks_items, ckpt_ranks_item);

typedef struct ckpt_ranks_set {
    ckpt_ranks_items item; /* in the order of first appearance */
    ckpt_index index;
} ckpt_ranks_set;

/* Free the items; the set is empty afterwards. */
void ckpt_ranks_set_free(ckpt_ranks_set *set);

/* Find the item of a name, or NULL. */
ckpt_ranks_item *ckpt_ranks_find(const ckpt_ranks_set *set, const char *name);

/* A file whose tensors are added to a set. */
typedef struct ckpt_ranks_file {
    ckpt_map *map;    /* the output map */
    ckpt_map *of;     /* the map of the file */
    uint32_t *source; /* by source in `of`: number of its copy in `map`, or UINT32_MAX */
    ckpt_ranks_where where;
} ckpt_ranks_file;

/*
 * Add a file's tensor under a name.
 *
 * Errors  those of ckpt_ranks_part_read; CKPT_EMISMATCH: dtype or shape differs from other ranks
 */
int ckpt_ranks_add(ckpt_ranks_set *set, const ckpt_ranks_file *file, const char *name,
                   const ckpt_value *v, ckpt_err *err);

/* Name, role and shape of a tensor to make. */
typedef struct ckpt_ranks_name {
    const char *name;
    uint32_t role;               /* ckpt_role */
    const ckpt_ranks_item *like; /* item whose shape a flattened item gets; NULL: its own */
} ckpt_ranks_name;

/*
 * Make a tensor of the map from an item; boxes of several ranks become its twins.
 *
 * out     NULL: not needed
 * Errors  those of ckpt_map_add
 */
int ckpt_ranks_emit(ckpt_tensor **out, ckpt_map *map, ckpt_ranks_item *item,
                    const ckpt_ranks_name *as, ckpt_err *err);

/* True if both items have the same bytes of the same files, so their names are tied. */
bool ckpt_ranks_same(const ckpt_ranks_item *a, const ckpt_ranks_item *b);

/* ---- flat.c ---- */

/* Elements of a flat parameter: plain tensors with one axis, concatenated in rank order. */
typedef struct ckpt_ranks_range {
    uint64_t first, n;
    uint32_t group; /* number of ranks that together hold one copy; the other ranks repeat it */
} ckpt_ranks_range;

/* Make an item of a range of a flat parameter.  Errors: CKPT_ELIMIT */
int ckpt_ranks_flat(ckpt_ranks_item *out, const ckpt_ranks_item *from, ckpt_arena *arena,
                    const ckpt_ranks_range *range, ckpt_err *err);

/* The number of elements of the flat parameter, which `group` ranks hold together. */
uint64_t ckpt_ranks_flat_n(const ckpt_ranks_item *item, uint32_t group);

/* ---- numbers.c ---- */

/* A parameter of an optimizer. */
typedef struct ckpt_ranks_param {
    const char *name;             /* NULL: unknown */
    const ckpt_ranks_item *model; /* the parameter */
    size_t number;                /* the optimizer's number, the key of its state */
    uint32_t group;               /* index of its group */
    uint64_t first;               /* FSDP1: first element in the flat parameter */
} ckpt_ranks_param;

CKPT_VEC(ckpt_ranks_params, ckpt_ranks_param);

typedef enum ckpt_ranks_form {
    CKPT_RANKS_WHOLE,  /* state has the parameter's shape */
    CKPT_RANKS_PIECES, /* FSDP1, use_orig_params: one axis, pieces of the flattened parameter */
    CKPT_RANKS_UNITS   /* FSDP1: state of a flat parameter made of several parameters */
} ckpt_ranks_form;

typedef struct ckpt_ranks_numbers {
    const ckpt_ranks_set *model, *optim; /* optim: names "<kind>/<number>" */
    const ckpt_value *groups;            /* param_groups of the first rank */
    const char *order;                   /* the caller's list of parameters, or NULL */
    uint32_t group;                      /* number of ranks that together hold one copy */
    ckpt_ranks_params param;             /* result, in the order of the numbers */
    ckpt_ranks_form form;
    size_t n;        /* number of parameters in the optimizer */
    bool positions;  /* the numbers are the positions of `param` in the optimizer's groups */
    bool assumed;    /* nothing but the model shows their order: there is no state, and no list */
    const char *why; /* NULL: all are known; else the reason */
} ckpt_ranks_numbers;

/* True for the statistics of a batch norm, which are no parameters of an optimizer. */
bool ckpt_ranks_is_buffer(const ckpt_ranks_set *model, const ckpt_ranks_item *item);

/*
 * Map the optimizer's numbers to parameters.  Numbers follow the model's order, group by group or
 * over all groups; the caller's list replaces the model's order.  If shapes allow several
 * assignments, `why` gives the reason for the failure.
 *
 * Errors  CKPT_EFORMAT: invalid param_groups; CKPT_EUSAGE: invalid list; CKPT_ELIMIT
 */
int ckpt_ranks_number(ckpt_ranks_numbers *out, ckpt_arena *arena, const char *path, ckpt_err *err);

/* ---- run.c ---- */

typedef enum ckpt_ranks_file_kind {
    CKPT_RANKS_MODEL,
    CKPT_RANKS_OPTIM,
    CKPT_RANKS_EXTRA,
    CKPT_RANKS_KINDS
} ckpt_ranks_file_kind;

/* ---- names.c ---- */

/* "model", "optim", "extra_state". */
extern const char *const ckpt_ranks_file_kinds[CKPT_RANKS_KINDS];

/* A parsed file name. */
typedef struct ckpt_ranks_file_name {
    ckpt_ranks_file_kind kind;
    uint32_t world, rank; /* world 0: not in the name */
} ckpt_ranks_file_name;

/* Parse "<kind>[_world_size_W]_rank_R.pt"; false for other names. */
bool ckpt_ranks_name_parse(const char *name, ckpt_ranks_file_name *out);

/* The score of a folder by its file names: 57 with the world size, 54 without, or 0. */
int ckpt_ranks_sure(const ckpt_listing *list);

/* True for a folder with per-rank files. */
bool ckpt_ranks_is_one(const ckpt_listing *list);

/* The state of reading a checkpoint; zeroed except for the first members. */
typedef struct ckpt_ranks_run {
    ckpt_map *map;
    const char *path; /* path of the folder; prefix of messages */
    uint32_t world;   /* number of ranks with files */
    bool with_optimizer, ignore_copies;
    const char *order;    /* the caller's list of parameters, or NULL */
    const char *no_order; /* the reason why the order of the model's dict is unknown, or NULL */
    ckpt_err *err;
    ckpt_ranks_set model, optim;
    ckpt_ranked *client; /* values in extra_state that differ by rank, without `at` */
    bool by_name;        /* the optimizer's keys are names */
    ckpt_value *root[CKPT_RANKS_KINDS]; /* values of the first rank's files, or NULL */
    ckpt_ranks_numbers numbers;
} ckpt_ranks_run;

/* Takes over the object of a file. */
typedef int ckpt_ranks_take(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root);

/*
 * Read a file of a rank.  The first rank's object stays in the map; others are freed after `take`.
 *
 * name    name of the file in the folder
 * Errors  those of torch archives, and of take
 */
int ckpt_ranks_read(ckpt_ranks_run *r, const char *name, ckpt_ranks_file_kind kind, uint32_t rank,
                    ckpt_ranks_take *take);

/* Give `take` an object that is read already; file->of has its sources. */
int ckpt_ranks_use(ckpt_ranks_run *r, ckpt_ranks_file *file, ckpt_ranks_file_kind kind,
                   ckpt_value *root, ckpt_ranks_take *take);

/* ---- beside.c ---- */

/* True for a folder that may hold such a run: it has an optimizer, and no model file of FSDP. */
bool ckpt_ranks_beside(const ckpt_listing *list);

/*
 * Read the model and the optimizer of such a folder.
 *
 * weights  the map of the model folder; the caller frees it
 * Errors   CKPT_EUNSUPPORTED: packed weights; those of ckpt_ranks_read
 */
int ckpt_ranks_read_beside(ckpt_ranks_run *r, ckpt_map *weights, const ckpt_listing *list);

/* Take a model's dict, an optimizer's, or other values; the caller calls these in rank order. */
ckpt_ranks_take ckpt_ranks_take_model, ckpt_ranks_take_optim, ckpt_ranks_take_extra;

/*
 * Make tensors, values, facts and training state, after all files were read.
 *
 * Errors  CKPT_EMISMATCH: ranks do not fit together; those of ckpt_ranks_number and
 *         ckpt_train_torch_state
 */
int ckpt_ranks_finish(ckpt_ranks_run *r);

/* Free the run's data; the map stays. */
void ckpt_ranks_run_free(ckpt_ranks_run *r);

#endif
