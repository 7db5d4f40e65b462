/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp.h: what the files of the driver for PyTorch's distributed checkpoints share, and what drivers
 * for programs that build on them (formats/megatron) take of it.
 *
 *     metadata.c  .metadata -> items, their chunks, and where each chunk lies
 *     entry.c     one entry of a data file: a whole torch archive at an offset
 *     layout.c    which items are weights, moments, settings: what get_state_dict and its
 *                 relatives put where
 *     dcp.c       the driver: files, tensors with their extents
 *     steps.c     runs: which of several checkpoints
 *     lanes.c     experts of several ranks: one group, and back
 *
 *     values.c    objects and tensors at the ends of their paths: the tree of values
 *     state.c     the training state: groups, their settings, which moments there are
 *     members.c   kinds of moments, and what is one value for a parameter
 *     keep.c      what is kept of a DeepSpeed run's own values
 *     beside.c    schedule and other files beside accelerate's pairs, Lightning's meta.pt
 *
 * A checkpoint, as torch.distributed.checkpoint 2.0 to 2.15 writes it:
 *
 *     .metadata           a pickle (protocol 4), written last: without it the save did not finish
 *     __{rank}_{i}.distcp  entries one after another; each is all that torch.save writes of one
 *                          chunk of a tensor, or of one Python object
 *
 * Metadata has `state_dict_metadata` {name: TensorStorageMetadata or BytesStorageMetadata},
 * `storage_data` {MetadataIndex(name, offset): _StorageInfo(relative_path, offset, length)} and
 * `planner_data` {name: path of keys}, which tells where the dots of a name cut.
 */
#ifndef CKPT_FORMATS_DCP_H
#define CKPT_FORMATS_DCP_H

#include "libckpt/base/vec.h"
#include "libckpt/format.h"
#include "libckpt/map/state.h"

/* An entry of a data file. */
typedef struct ckpt_dcp_place {
    uint32_t file;  /* in ckpt_dcp_metadata.file */
    uint64_t at, n; /* bytes: offset, length */
} ckpt_dcp_place;

/* A box of a tensor, and the entry that holds it. */
typedef struct ckpt_dcp_chunk {
    const uint64_t *start, *count; /* elements, one of each for each axis of the tensor */
    ckpt_dcp_place place;
} ckpt_dcp_chunk;

/* A tensor, or an object that is kept as bytes. */
typedef struct ckpt_dcp_item {
    ckpt_text name;         /* flattened: keys joined by '.' */
    const ckpt_value *path; /* TUPLE of STR and INT; NULL: planner_data does not say */
    uint32_t order;         /* in planner_data; UINT32_MAX: not there */
    bool is_tensor;
    ckpt_dtype dtype;
    uint32_t ndim;
    uint32_t flags; /* CKPT_TENSOR_GRAD */
    const uint64_t *shape;
    size_t first, n; /* its chunks: chunk[first .. first+n); an object has one, without a box */
} ckpt_dcp_item;

CKPT_VEC(ckpt_dcp_items, ckpt_dcp_item);
CKPT_VEC(ckpt_dcp_chunks, ckpt_dcp_chunk);
/* A data file: its name in the folder of its .metadata, and from the checkpoint's. */
typedef struct ckpt_dcp_file {
    ckpt_text name;
    const char *path;
} ckpt_dcp_file;

CKPT_VEC(ckpt_dcp_files, ckpt_dcp_file);

/* What .metadata says.  Texts and paths live in the arena that it was read into. */
typedef struct ckpt_dcp_metadata {
    ckpt_dcp_items item; /* as the program's dicts had them */
    ckpt_dcp_chunks chunk;
    ckpt_dcp_files file; /* names of data files, in order of first use */
    size_t n_loose;      /* entries of storage_data that belong to no item */
    const char *loose;   /* the name of one of them */
} ckpt_dcp_metadata;

#define CKPT_DCP_METADATA ".metadata"

/*
 * Append what a .metadata says; a zeroed struct is empty.
 *
 * prefix   of its folder below `folder`: "" or "optimizer_0/"
 * Errors   those of the pickle machine; CKPT_EFORMAT: a part is missing or of another kind;
 *          CKPT_EMISMATCH: a chunk has no entry, or lies outside its tensor; CKPT_EUNSAFE: a data
 *          file's name leaves the folder.  What was appended is to be freed all the same
 */
int ckpt_dcp_metadata_read(ckpt_dcp_metadata *out, ckpt_arena *arena, const char *folder,
                           const char *prefix, ckpt_err *err);
void ckpt_dcp_metadata_free(ckpt_dcp_metadata *m);

struct ckpt_dsw_job;
struct ckpt_state;

/* ---- describe.c, settings.c, write.c ---- */

/*
 * Append the pickle of .metadata.  item->path and the files' paths are those to be written.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_describe(ckpt_bytes *out, const ckpt_dcp_metadata *from, ckpt_err *err);

/*
 * The settings of a group as torch's optimizer of its kind has them: Adam's of DeepSpeed lack some.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_settings(ckpt_value **out, ckpt_map *to, const ckpt_state *state, const ckpt_group *g,
                      ckpt_err *err);

/* The driver's writer (ckpt_directory.scatter). */
int ckpt_dcp_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

/* ---- lanes.c ---- */

/* The state with the parameters of all lanes in each group: a copy in the arena, or s itself where
 * no group has several. */
int ckpt_dcp_lanes_join(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                        ckpt_err *err);

/*
 * Groups whose name is that of several lanes get them back, their parameters lane after lane.
 *
 * odd     the name of a group whose parameters are not those of its lanes, or NULL
 */
int ckpt_dcp_lanes_cut(ckpt_state *s, const char **odd, ckpt_err *err);

/* ---- steps.c ---- */

/* Of accelerate and the Trainer: folders with the model and its optimizer, a number for each. */
#define CKPT_DCP_MODEL     "pytorch_model_fsdp_"
#define CKPT_DCP_OPTIMIZER "optimizer_"

/* A folder is one checkpoint, finished or not; its save has finished. */
bool ckpt_dcp_is_one(const ckpt_listing *list);
bool ckpt_dcp_done(const ckpt_listing *list);

/* A folder holds checkpoints of a kind in folders of their own, or in those of its `checkpoint`. */
bool ckpt_dcp_is_run(const ckpt_listing *list, const ckpt_run_layout *kind);

/* The number that a folder's name ends in, as text; false: it ends in none. */
bool ckpt_dcp_number_of(char out[CKPT_RUN_NAME], const char *folder);

/*
 * From what the user named to the folder of one checkpoint: itself, or of a run the newest
 * finished.
 *
 * kind    what such checkpoints are
 * asked   the tag, or NULL
 * list    becomes the checkpoint's, and map->path its folder
 * Errors  CKPT_EMISSING: no run, none finished, not the tag; CKPT_EUNSAFE: the tag is a path
 */
int ckpt_dcp_find(ckpt_map *map, ckpt_listing *list, const ckpt_run_layout *kind, const char *asked,
                  ckpt_err *err);

/* ---- programs.c ---- */

/* What a program expects of a folder that it loads. */
typedef struct ckpt_dcp_layout {
    const char *name;      /* ckpt_target.layout */
    const char *model;     /* the key above parameters; NULL: they stand at the root */
    const char *optimizer; /* the key above its dict */
    bool flat;             /* the dict's keys are "state.<parameter>.<moment>" */
    bool scheduled;        /* groups have initial_lr, as a scheduler of torch sets it */
    /* folders, "" or with a '/'; of_optimizer NULL: all is in one */
    const char *of_model, *of_optimizer;
} ckpt_dcp_layout;

/*
 * The layout of this name; NULL: torch's.
 *
 * Errors  CKPT_EUSAGE: there is none
 */
int ckpt_dcp_layout_find(const ckpt_dcp_layout **out, const char *name, ckpt_err *err);

/* Name the folder as the program looks for it, unless the target does; say what it lacks there. */
int ckpt_dcp_program_folder(struct ckpt_dsw_job *job, const ckpt_dcp_layout *layout);

/*
 * Values beside model and optimizer, a DICT: those of the source that FSDP has a place for, and
 * those that the program asks for besides.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_program_values(ckpt_value **out, ckpt_map *to, const ckpt_map *from,
                            const struct ckpt_state *state, const ckpt_dcp_layout *layout,
                            ckpt_err *err);

/* Give a group's settings initial_lr: that of DeepSpeed's configuration, or lr. */
int ckpt_dcp_initial_lr(ckpt_value *settings, ckpt_arena *arena, const struct ckpt_state *state,
                        ckpt_err *err);

/* ---- run.c ---- */

/*
 * Begin a folder of FSDP's: what cannot be written is refused, what is left out is said, the
 * folder's name and the claim are set.
 *
 * job     its state is set: NULL for weights alone
 * ranks   set: the target's, or those of the source
 * Errors  CKPT_EUSAGE: what only DeepSpeed has; CKPT_EUNSUPPORTED: several model-parallel ranks
 */
int ckpt_dcp_begin(struct ckpt_dsw_job *job, uint32_t *ranks);

enum { CKPT_DCP_RANKS = 65536 }; /* that are written for at most */

/*
 * Rows that a rank has of a tensor, as FSDP2 cuts it (torch.chunk): ceil(rows / ranks) for each
 * rank, so that the last ones may have fewer, or none.
 *
 * start   set: the first of them; rows where there are none
 * Returns how many
 */
uint64_t ckpt_dcp_rows(uint64_t rows, uint32_t ranks, uint32_t rank, uint64_t *start);

/* What a tensor is written in. */
ckpt_dtype ckpt_dcp_written(const ckpt_target *target, const ckpt_tensor *t);

/* ---- layout.c ---- */

typedef enum ckpt_dcp_what {
    CKPT_DCP_OTHER,  /* whatever the program saved beside them; its name is the item's */
    CKPT_DCP_WEIGHT, /* of the model: a parameter or a buffer */
    CKPT_DCP_MOMENT, /* optimizer state of one parameter: `key` of `name` */
    CKPT_DCP_FLAT,   /* the same of several, or of nobody knows which; its name is the item's */
    CKPT_DCP_SETTING /* of a parameter group: `key` of group `name`, a number or a parameter */
} ckpt_dcp_what;

typedef struct ckpt_dcp_role {
    ckpt_dcp_what what;
    bool trained;     /* WEIGHT: an optimizer has it */
    const char *name; /* of the parameter or buffer, as the module has it; of the group */
    const char *key;  /* "exp_avg", "lr"; NULL: none */
} ckpt_dcp_role;

/*
 * Say of each item what it is.
 *
 * out     room for m->item.n
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                   ckpt_err *err);

typedef int ckpt_dcp_roles_fn(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                              ckpt_err *err);

/* ---- dcp.c ---- */

/*
 * Read .metadata of a folder (of accelerate: of its pair) into a map: files, the tensors that
 * `roles` gives a meaning, and the tree of values.  Moments are left out unless opts ask for the
 * optimizer.  No state is made.
 *
 * Errors  those of .metadata and of objects; CKPT_EMISSING: a data file is not there;
 *         CKPT_EMISMATCH: chunks that overlap or leave holes
 */
int ckpt_dcp_read(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                  ckpt_dcp_roles_fn *roles, ckpt_err *err);

/* ---- values.c ---- */

/* A tensor as a leaf, without a storage.  NULL: no memory. */
ckpt_value *ckpt_dcp_leaf(ckpt_arena *arena, const ckpt_tensor *t);

/*
 * Put leaves where the program had them.
 *
 * leaf    for each item its value; NULL: left out
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_tree(ckpt_value **out, const ckpt_dcp_metadata *m, ckpt_value *const *leaf,
                  ckpt_arena *arena, ckpt_err *err);

/* ---- state.c ---- */

/*
 * Make the training state of a map whose weights and moments are listed, and whose values are the
 * tree; step counts are those of the tensors "step/<parameter>".  Where there is none, or none that
 * can be told, the map's no_state says why.
 *
 * in_order  the map's tensors stand as the model's dict has them
 * Errors    CKPT_EFORMAT: settings of another kind than torch's; CKPT_EMISMATCH: parameters of one
 *           group were stepped differently often; those of reading the counts
 */
int ckpt_dcp_state(ckpt_map *map, bool in_order, ckpt_err *err);

/*
 * A parameter group's settings with 'params' as training formats have it: the group's number.
 * NULL: no memory.
 */
ckpt_value *ckpt_dcp_fields(ckpt_arena *arena, const ckpt_value *settings, size_t number);

/* What the parameters are trained in: what they are kept in. */
ckpt_dtype ckpt_dcp_dtype(const ckpt_state *s);

/* ---- keep.c ---- */

/* True for members of a run's state that FSDP has a place for: the schedule, a program's own. */
bool ckpt_dcp_keeps(const struct ckpt_state *state, const ckpt_pair *p);

/* A member that says how DeepSpeed's own files are laid out. */
bool ckpt_dcp_is_layout(const ckpt_pair *p);

/* A member of a run's file is kept for the way back: plain data, and not of the layout. */
bool ckpt_dcp_kept_plain(ckpt_arena *arena, const ckpt_pair *p);

/*
 * Add "deepspeed" to the values beside model and optimizer, a DICT: what the run holds and FSDP has
 * no place for.  Nothing for runs of other frameworks.
 *
 * from    the map that has the state
 * Errors  CKPT_ELIMIT; those of reading the count of steps
 */
int ckpt_dcp_keep(ckpt_value *values, ckpt_arena *arena, const ckpt_map *from,
                  const ckpt_state *state, ckpt_err *err);

/* A pair of the values read is such a dict. */
bool ckpt_dcp_is_kept(const ckpt_pair *p);

/*
 * Make the state that of the DeepSpeed run whose values the map keeps, if it does.
 *
 * root   the state's model, a DICT, with what the program has beside it; gets members
 * steps  that the optimizer has made: other than those written with the values, they are left out
 *        with a warning
 * Errors CKPT_ELIMIT
 */
int ckpt_dcp_take_back(ckpt_map *map, ckpt_state *state, ckpt_value *root, int64_t steps,
                       ckpt_err *err);

/* ---- members.c ---- */

/*
 * Complete the groups' entries of a state without prefix: a flat tensor for each kind of moments
 * ("<kind>/<parameter>" of the map), and what is one value for a parameter.  Steps are the caller's
 * unless they are objects.
 *
 * orphans    parameters that have moments and are not of the map; `file` is the number of the group
 *            that trains one, + 1, or 0; NULL: there are none
 * optimizer  the dict whose "state" has such values by the parameters' names, or NULL
 * Errors     those of reading values; no_state is set where parameters of one group differ
 */
int ckpt_dcp_entries(ckpt_map *map, ckpt_state *state, const ckpt_map *orphans,
                     const ckpt_value *optimizer, ckpt_err *err);

/* What the optimizer keeps of state->param[param], of group g: a DICT, or NULL. */
const ckpt_value *ckpt_dcp_kept(const ckpt_state *state, const ckpt_group *g, size_t param);

/* True for a pair of it that no tensor of the map stands for: one value for a parameter. */
bool ckpt_dcp_member(const ckpt_map *from, const ckpt_state *state, const ckpt_group *g,
                     const ckpt_pair *p);

/* ---- beside.c ---- */

/* The file of a schedule beside a run's state; NULL: there is none. */
const char *ckpt_dcp_schedule(const ckpt_listing *list);

/* Name the files beside a run's state that no reader has a place for. */
int ckpt_dcp_left(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/*
 * Both, of a run whose state is read: the schedule becomes its lr_scheduler, and what Lightning's
 * meta.pt has becomes values of the run.
 *
 * Errors  those of torch files
 */
int ckpt_dcp_beside(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/* ---- entry.c ---- */

/*
 * The object of an entry, with its storages as sources of the map.
 *
 * io      the data file, which is file number `file` of the map
 * Errors  those of torch archives; CKPT_EFORMAT: the entry is not inside the file
 */
int ckpt_dcp_object(ckpt_value **out, ckpt_map *map, ckpt_io *io, uint32_t file,
                    const ckpt_dcp_place *place, ckpt_err *err);

/* What an entry of a tensor must hold (ckpt_source.inner). */
typedef struct ckpt_dcp_inner {
    const char *name; /* of the tensor */
    ckpt_dtype dtype;
    uint32_t ndim;
    const uint64_t *count; /* elements of the chunk */
    ckpt_axis *axis; /* of the extent that the source backs: strides as of a row-major chunk */
} ckpt_dcp_inner;

/*
 * Find the bytes of a chunk: the storage in the archive that the entry is (ckpt_map.settle).  A
 * chunk that is dense but not row-major, as torch.save keeps a transposed tensor, has its extent's
 * strides set.
 *
 * source  at and n_stored are those of the entry, and become the storage's; `inner` becomes NULL
 * Errors  those of torch archives; CKPT_EMISMATCH: it holds something else than the chunk
 */
int ckpt_dcp_settle(ckpt_source *source, ckpt_io *io, ckpt_err *err);

#endif
