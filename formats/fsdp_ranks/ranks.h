/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h: what the files of the driver for per-rank FSDP files share.  Not for anyone else.
 *
 *     part.c     a DTensor or ShardedTensor of a pickle -> boxes of the whole tensor
 *     join.c     what all ranks have under one name -> a tensor of the map, copies as its twins
 *     numbers.c  which parameters the optimizer's numbers mean
 *     flat.c     FSDP1: pieces of flattened parameters
 *     run.c      what the files make: weights, state, the tree of values
 *     ranks.c    the driver of folders with files of each rank
 *     names.c    names of files
 *     runs.c     runs of verl and SkyRL: which folder
 *     full.c     the driver of whole model and optimizer dicts
 *     write.c    the writer of files of each rank
 *
 * A checkpoint, as verl, SkyRL and their kin write it, one file of each kind for each rank:
 *
 *     model_world_size_{W}_rank_{R}.pt        torch.save(model.state_dict())
 *     optim_world_size_{W}_rank_{R}.pt        torch.save(optimizer.state_dict()), keyed by number
 *     extra_state_world_size_{W}_rank_{R}.pt  {"lr_scheduler": ..., "rng": ...}
 *
 * Tensors in them are objects of torch.distributed that say themselves where this rank's part lies.
 */
#ifndef CKPT_FORMATS_FSDP_RANKS_H
#define CKPT_FORMATS_FSDP_RANKS_H

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/format.h"

enum { CKPT_RANKS_MAX = 65536 };

/* The fact that tells on what devices the mesh was. */
#define CKPT_RANKS_DEVICE "device"

/* ---- runs.c ---- */

/* A folder holds steps of a run (global_step_N); is a step, of models' folders. */
bool ckpt_ranks_is_run(const ckpt_listing *list);
bool ckpt_ranks_is_step(const ckpt_listing *list);

/* Runs of SkyRL and verl, for the doctor: by their trackers, steps with a folder for each model. */
extern const ckpt_run_layout ckpt_ranks_skyrl, ckpt_ranks_verl;

/*
 * From what the user named to the folder of one model's files.
 *
 * list    becomes that folder's, and map->path its path
 * asked   a tag, or NULL
 * Errors  CKPT_EMISSING: no run, no such step, several models in it; CKPT_EFORMAT: the tracker
 */
int ckpt_ranks_descend(ckpt_map *map, ckpt_listing *list, const char *asked, ckpt_err *err);

/* ---- write.c ---- */

/* The driver's writer (ckpt_directory.scatter). */
int ckpt_ranks_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                       ckpt_err *err);

/* ---- part.c ---- */

/* Whose file is read. */
typedef struct ckpt_ranks_where {
    const char *file; /* begins messages */
    const char *key;  /* the tensor's, for messages */
    uint32_t rank, world;
} ckpt_ranks_where;

typedef enum ckpt_ranks_kind {
    CKPT_RANKS_PLAIN, /* an ordinary tensor: the whole, or what FSDP1 keeps of a flat one */
    CKPT_RANKS_DTENSOR,
    CKPT_RANKS_SHARDED /* ShardedTensor */
} ckpt_ranks_kind;

/* A box of the whole tensor, and its elements as the file has them. */
typedef struct ckpt_ranks_box {
    uint64_t start[CKPT_MAX_DIM], count[CKPT_MAX_DIM]; /* elements */
    const ckpt_tensor_value *local;                    /* of the shape `count` */
} ckpt_ranks_box;

CKPT_VEC(ckpt_ranks_boxes, ckpt_ranks_box);

/* What one rank has of a tensor. */
typedef struct ckpt_ranks_part {
    ckpt_ranks_kind kind;
    ckpt_dtype dtype;
    uint32_t ndim;
    uint64_t shape[CKPT_MAX_DIM]; /* of the whole tensor */
    uint32_t copies;              /* ranks that the description gives the same box; 1: none */
    ckpt_ranks_boxes box;         /* without empty ones */
    const char *device;           /* where the parts were: "cuda"; NULL: not told */
} ckpt_ranks_part;

/* True for what ckpt_ranks_part_read can read: a tensor, or an object that is a part of one. */
bool ckpt_ranks_is_part(const ckpt_value *v);

/*
 * Read a tensor of a rank's file.
 *
 * out     zeroed; its boxes are to be freed (ckpt_vec_free), also on failure
 * Errors  CKPT_EFORMAT: the description is not complete; CKPT_EMISMATCH: it is of another rank, or
 *         the local tensor has not the shape that it gives; CKPT_EUNSUPPORTED: placements that are
 *         no part of a tensor
 * Source  torch.distributed.tensor of 2.2 to 2.15: _dtensor_spec.py, placement_types.py
 */
int ckpt_ranks_part_read(ckpt_ranks_part *out, const ckpt_value *v, const ckpt_ranks_where *where,
                         ckpt_err *err);

/* ---- join.c ---- */

/* A box of an item, and whose it is. */
typedef struct ckpt_ranks_piece {
    uint32_t rank, source; /* source: of the map */
    uint64_t at;           /* bytes in the source */
    uint64_t n;            /* elements */
    const ckpt_axis *axis; /* one of each for each axis of the item */
    bool rows;             /* whole rows, without gaps: an interval of the flattened tensor */
} ckpt_ranks_piece;

CKPT_VEC(ckpt_ranks_pieces, ckpt_ranks_piece);

/* What all ranks have under one name. */
typedef struct ckpt_ranks_item {
    const char *name;
    ckpt_ranks_kind kind;
    ckpt_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint32_t copies;
    const char *device;
    bool uneven;     /* plain tensors of several shapes */
    uint32_t n_held; /* ranks that have it */
    ckpt_ranks_pieces piece;
} ckpt_ranks_item;

CKPT_VEC(ckpt_ranks_items, ckpt_ranks_item);

typedef struct ckpt_ranks_set {
    ckpt_ranks_items item; /* as the first rank that has them had them */
    ckpt_index index;
} ckpt_ranks_set;

/* Release the items; the set is empty then. */
void ckpt_ranks_set_free(ckpt_ranks_set *set);

/* The item of a name, or NULL. */
ckpt_ranks_item *ckpt_ranks_find(const ckpt_ranks_set *set, const char *name);

/* A file whose tensors join a set. */
typedef struct ckpt_ranks_file {
    ckpt_map *map;      /* the one that is made */
    const ckpt_map *of; /* the one that the file was read into */
    uint32_t *source;   /* for each source of `of`: its number in map, UINT32_MAX: not yet */
    ckpt_ranks_where where;
} ckpt_ranks_file;

/*
 * Add what a file has under a name.
 *
 * Errors  those of ckpt_ranks_part_read; CKPT_EMISMATCH: other ranks say another dtype or shape
 */
int ckpt_ranks_add(ckpt_ranks_set *set, const ckpt_ranks_file *file, const char *name,
                   const ckpt_value *v, ckpt_err *err);

/* What a tensor of the map is to be. */
typedef struct ckpt_ranks_name {
    const char *name;
    uint32_t role;               /* ckpt_role */
    const ckpt_ranks_item *like; /* of a flattened item: whose shape it has; NULL: its own */
} ckpt_ranks_name;

/*
 * Make a tensor of the map of an item; boxes that several ranks have are its twins.
 *
 * out     NULL: not wanted
 * Errors  those of ckpt_map_add
 */
int ckpt_ranks_emit(ckpt_tensor **out, ckpt_map *map, ckpt_ranks_item *item,
                    const ckpt_ranks_name *as, ckpt_err *err);

/* True if both are the same bytes of the same files: tied names. */
bool ckpt_ranks_same(const ckpt_ranks_item *a, const ckpt_ranks_item *b);

/* ---- flat.c ---- */

/*
 * Elements first..first+n-1 of what plain tensors of one axis are in the order of their ranks, as
 * an item of one axis.
 *
 * group   ranks that together hold it; the others repeat them
 * Errors  CKPT_ELIMIT
 */
int ckpt_ranks_flat(ckpt_ranks_item *out, const ckpt_ranks_item *from, ckpt_arena *arena,
                    uint64_t first, uint64_t n, uint32_t group, ckpt_err *err);

/* How many elements they are. */
uint64_t ckpt_ranks_flat_n(const ckpt_ranks_item *item, uint32_t group);

/* ---- numbers.c ---- */

/* An optimizer's parameters, by number. */
typedef struct ckpt_ranks_param {
    const char *name;             /* NULL: not known */
    const ckpt_ranks_item *model; /* the parameter */
    size_t number;                /* in the optimizer: of its state */
    uint64_t first;               /* FSDP1: where it begins in the flat parameter */
} ckpt_ranks_param;

CKPT_VEC(ckpt_ranks_params, ckpt_ranks_param);

typedef enum ckpt_ranks_form {
    CKPT_RANKS_WHOLE,  /* state has the parameter's shape */
    CKPT_RANKS_PIECES, /* FSDP1, use_orig_params: one axis, parts of the flattened parameter */
    CKPT_RANKS_UNITS   /* FSDP1: the state of a flat parameter, which several parameters make */
} ckpt_ranks_form;

typedef struct ckpt_ranks_numbers {
    const ckpt_ranks_set *model, *optim; /* optim: names "<kind>/<number>" */
    const ckpt_value *groups;            /* param_groups of the first rank */
    uint32_t group;                      /* ranks that together hold one copy */
    ckpt_ranks_params param;             /* found: in the order of the groups */
    ckpt_ranks_form form;
    size_t n;        /* parameters that the optimizer numbers */
    const char *why; /* NULL: all are known; else why not */
} ckpt_ranks_numbers;

/*
 * Find out which parameters the optimizer's numbers mean.  Numbers go by the order of the model's
 * parameters, group by group; shapes must leave one way alone, else `why` says what is missing.
 *
 * Errors  CKPT_EFORMAT: param_groups are none; CKPT_ELIMIT
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

/* A file's name, taken apart. */
typedef struct ckpt_ranks_file_name {
    ckpt_ranks_file_kind kind;
    uint32_t world, rank; /* world 0: the name does not tell */
} ckpt_ranks_file_name;

/* "<kind>[_world_size_W]_rank_R.pt"; false: another name. */
bool ckpt_ranks_name_parse(const char *name, ckpt_ranks_file_name *out);

/* How sure a folder's names make that it holds files of ranks: 57 with the world's size; 54; 0. */
int ckpt_ranks_sure(const ckpt_listing *list);

/* A folder holds files of ranks. */
bool ckpt_ranks_is_one(const ckpt_listing *list);

/* What is read, from the first file to the map; zeroed but for the first members. */
typedef struct ckpt_ranks_run {
    ckpt_map *map;
    const char *path; /* of the folder; begins messages */
    uint32_t world;   /* ranks that have files */
    bool with_optimizer;
    ckpt_err *err;
    ckpt_ranks_set model, optim;
    bool rngs;    /* other ranks than the first have kept generators of random numbers */
    bool by_name; /* the optimizer's keys are names */
    ckpt_value *root[CKPT_RANKS_KINDS]; /* what the first rank's files hold, or NULL */
    ckpt_ranks_numbers numbers;
} ckpt_ranks_run;

/* What is done with the object of a file. */
typedef int ckpt_ranks_take(ckpt_ranks_run *r, const ckpt_ranks_file *file, ckpt_value *root);

/*
 * Read a file of a rank.  The first rank's object stays in the map; others are freed after `take`.
 *
 * name    in the folder
 * Errors  those of torch archives, and of take
 */
int ckpt_ranks_read(ckpt_ranks_run *r, const char *name, ckpt_ranks_file_kind kind, uint32_t rank,
                    ckpt_ranks_take *take);

/* Take a model's dict, an optimizer's, and values beside them; ranks in ascending order. */
ckpt_ranks_take ckpt_ranks_take_model, ckpt_ranks_take_optim, ckpt_ranks_take_extra;

/*
 * When all files are taken: tensors, values, facts, and the training state.
 *
 * Errors  CKPT_EMISMATCH: ranks do not fit together; those of ckpt_ranks_number, ckpt_dcp_state
 */
int ckpt_ranks_finish(ckpt_ranks_run *r);

/* Release what the run holds beside the map. */
void ckpt_ranks_run_free(ckpt_ranks_run *r);

#endif
