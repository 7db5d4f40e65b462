/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp.h: the interface between the files of the driver for PyTorch's distributed checkpoints (DCP),
 * and with drivers for programs that build on DCP (formats/megatron).
 *
 *     metadata.c  reads .metadata: items, their chunks, and the entry of each chunk
 *     parts.c     reads the small objects of .metadata, one set per chunk
 *     entry.c reads one entry of a data file: a complete torch archive at an offset
 *     layout.c    decides which items are weights, moments, settings
 *     dcp.c       the reader: files, tensors with their extents
 *     steps.c     finds the checkpoint of a run
 *     lanes.c joins experts of several expert-parallel ranks into one group, and splits such a
 *     group
 *     values.c    builds the tree of values from objects and tensors
 *     state.c     builds the training state: groups, settings, step counts
 *     members.c   finds kinds of moments, and single values per parameter
 *     names.c     matches names of the model and its optimizer, if only one of the two is wrapped
 *     masters.c   compares 16-bit parameters with float32 masters beside them
 *     keep.c      keeps a DeepSpeed run's own values, and restores them
 *     beside.c    reads the schedule and Lightning's meta.pt
 *     write.c     the writer; describe.c writes .metadata, run.c and settings.c convert a run's
 *                 values, programs.c knows the layouts that programs load
 *
 * A checkpoint, as torch.distributed.checkpoint 2.0 to 2.15 writes it:
 *
 *     .metadata           a pickle (protocol 4), written last: without it the save did not finish
 *     __{rank}_{i}.distcp  entries one after another; each is a complete torch.save archive of one
 *                          chunk of a tensor, or of one Python object
 *
 * Metadata has `state_dict_metadata` {name: TensorStorageMetadata or BytesStorageMetadata},
 * `storage_data` {MetadataIndex(name, offset): _StorageInfo(relative_path, offset, length)} and
 * `planner_data` {name: path of keys}, which is needed to split a name, because keys can contain
 * dots.
 */
#ifndef CKPT_FORMATS_DCP_H
#define CKPT_FORMATS_DCP_H

#include "libckpt/base/vec.h"
#include "libckpt/format.h"
#include "libckpt/map/state.h"

/* An entry of a data file. */
typedef struct ckpt_dcp_place {
    uint32_t file;  /* index in ckpt_dcp_metadata.file */
    uint64_t at, n; /* bytes: offset, length */
} ckpt_dcp_place;

/* A box of a tensor, and the entry with its bytes. */
typedef struct ckpt_dcp_chunk {
    const uint64_t *start, *count; /* elements, one value per axis of the tensor */
    ckpt_dcp_place place;
} ckpt_dcp_chunk;

/* A tensor, or an object stored as bytes. */
typedef struct ckpt_dcp_item {
    ckpt_text name;         /* flattened: keys joined by '.' */
    const ckpt_value *path; /* TUPLE of STR and INT; NULL: not in planner_data */
    uint32_t order;         /* index in planner_data, or UINT32_MAX */
    bool is_tensor;
    ckpt_dtype dtype;
    uint32_t ndim;
    uint32_t flags; /* CKPT_TENSOR_GRAD */
    const uint64_t *shape;
    size_t first, n; /* its chunks: chunk[first .. first+n); an object has one without a box */
} ckpt_dcp_item;

CKPT_VEC(ckpt_dcp_items, ckpt_dcp_item);
CKPT_VEC(ckpt_dcp_chunks, ckpt_dcp_chunk);
/*
 * A data file: its name in the folder of its .metadata, and its path below the checkpoint's folder.
 */
typedef struct ckpt_dcp_file {
    ckpt_text name;
    const char *path;
} ckpt_dcp_file;

CKPT_VEC(ckpt_dcp_files, ckpt_dcp_file);

/* The content of .metadata.  Texts and paths live in the arena given to the reader. */
typedef struct ckpt_dcp_metadata {
    ckpt_dcp_items item; /* in the order of the program's dicts */
    ckpt_dcp_chunks chunk;
    ckpt_dcp_files file; /* data files in the order of first use */
    size_t n_loose;      /* number of entries of storage_data that belong to no item */
    const char *loose;   /* name of the first such entry */
} ckpt_dcp_metadata;

#define CKPT_DCP_METADATA ".metadata"

/*
 * Append the content of a .metadata to *out; a zeroed struct is empty.
 *
 * prefix   path of its folder below `folder`: "" or "optimizer_0/"
 * Errors   those of the pickle reader; CKPT_EFORMAT: a part is missing or of another kind;
 *          CKPT_EMISMATCH: a chunk has no entry, or lies outside its tensor; CKPT_EUNSAFE: a data
 *          file's name leaves the folder.  *out must be freed after an error too
 */
int ckpt_dcp_metadata_read(ckpt_dcp_metadata *out, ckpt_arena *arena, const char *folder,
                           const char *prefix, ckpt_err *err);
void ckpt_dcp_metadata_free(ckpt_dcp_metadata *m);

struct ckpt_train_job;
struct ckpt_state;

/* ---- describe.c, settings.c, write.c ---- */

/*
 * Append the pickle of .metadata.  item->path and the paths of files are written as they are.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_describe(ckpt_bytes *out, const ckpt_dcp_metadata *from, ckpt_err *err);

/*
 * Complete a group's settings to those of torch's optimizer, because DeepSpeed's Adam lacks some.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_settings(ckpt_value **out, ckpt_map *to, const ckpt_state *state, const ckpt_group *g,
                      ckpt_err *err);

/* ckpt_directory.scatter of the format dcp (write.c). */
int ckpt_dcp_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

/* ---- lanes.c ---- */

/*
 * Copy the state into the arena so that each group has the parameters of all expert-parallel ranks
 * (lanes); *out is s itself if no group has several lanes.
 */
int ckpt_dcp_lanes_join(const ckpt_state **out, const ckpt_state *s, ckpt_arena *arena,
                        ckpt_err *err);

/*
 * Split groups into lanes again if their name gives the number of lanes; the group's parameters are
 * sorted by lane.
 *
 * odd     out: the name of a group whose parameters do not fit its lanes, or NULL
 */
int ckpt_dcp_lanes_cut(ckpt_state *s, const char **odd, ckpt_err *err);

/* ---- steps.c ---- */

/* Folder names of accelerate and the Trainer, for model and optimizer; a number follows. */
#define CKPT_DCP_MODEL     "pytorch_model_fsdp_"
#define CKPT_DCP_OPTIMIZER "optimizer_"

/* True if a folder is one checkpoint, finished or not. ckpt_dcp_done: true if its save finished. */
bool ckpt_dcp_is_one(const ckpt_listing *list);
bool ckpt_dcp_done(const ckpt_listing *list);

/* True if a folder, or its `checkpoint` folder, has subfolders with checkpoints of a kind. */
bool ckpt_dcp_is_run(const ckpt_listing *list, const ckpt_run_layout *kind);

/* Copy the number at the end of a folder's name; false if there is none. */
bool ckpt_dcp_number_of(char out[CKPT_RUN_NAME], const char *folder);

/*
 * Go from the user's path to the folder of one checkpoint: itself, or the newest finished one of a
 * run.
 *
 * kind    the layout that recognises such checkpoints
 * asked   the tag, or NULL
 * list    in: the user's folder; out: the checkpoint's, which is also map->path
 * Errors  CKPT_EMISSING: no run, no finished checkpoint, or no such tag; CKPT_EUNSAFE: the tag is a
 *         path
 */
int ckpt_dcp_find(ckpt_map *map, ckpt_listing *list, const ckpt_run_layout *kind, const char *asked,
                  ckpt_err *err);

/* ---- programs.c ---- */

/* The names and folders that a program expects of a DCP checkpoint. */
typedef struct ckpt_dcp_layout {
    const char *name;      /* ckpt_target.layout */
    const char *model;     /* key of the dict of parameters; NULL: they are at the root */
    const char *optimizer; /* key of the optimizer's dict */
    bool flat;             /* the dict's keys are "state.<parameter>.<moment>" */
    bool scheduled;        /* groups have initial_lr, as a scheduler of torch sets it */
    /* folders, "" or with a '/'; of_optimizer NULL: everything is in of_model */
    const char *of_model, *of_optimizer;
} ckpt_dcp_layout;

/*
 * Find the layout of this name; NULL means torch's.
 *
 * Errors  CKPT_EUSAGE: unknown name
 */
int ckpt_dcp_layout_find(const ckpt_dcp_layout **out, const char *name, ckpt_err *err);

/* Name the folder as the program expects, unless the target has a tag; report files that the
 * program loads but ckpt does not write. */
int ckpt_dcp_program_folder(struct ckpt_train_job *job, const ckpt_dcp_layout *layout);

/*
 * Make the DICT of values other than model and optimizer: the source's values that FSDP can store,
 * and values that the program requires.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_program_values(ckpt_value **out, ckpt_map *to, const ckpt_map *from,
                            const struct ckpt_state *state, const ckpt_dcp_layout *layout,
                            ckpt_err *err);

/* Set initial_lr in a group's settings, from DeepSpeed's configuration or else from lr. */
int ckpt_dcp_initial_lr(ckpt_value *settings, ckpt_arena *arena, const struct ckpt_state *state,
                        ckpt_err *err);

/* ---- run.c ---- */

/*
 * Begin an FSDP output: refuse a source that cannot be written, report dropped values, set the
 * folder's name and the claim.
 *
 * job     job->state is set; NULL if only weights are written
 * ranks   out: the number of ranks, from the target or else the source
 * Errors  CKPT_EUSAGE: an option that only DeepSpeed has; CKPT_EUNSUPPORTED: several model-parallel
 *         ranks
 */
int ckpt_dcp_begin(struct ckpt_train_job *job, uint32_t *ranks);

enum { CKPT_DCP_RANKS = 65536 }; /* largest number of output ranks */

/*
 * Compute a rank's rows of a tensor under FSDP2 (torch.chunk): ceil(rows / ranks) per rank, so the
 * last ranks may have fewer rows or none.
 *
 * start    out: the first row; `rows` if the rank has none
 * Returns  the number of rows
 */
uint64_t ckpt_dcp_rows(uint64_t rows, uint32_t ranks, uint32_t rank, uint64_t *start);

/* The dtype in which a tensor is written. */
ckpt_dtype ckpt_dcp_written(const ckpt_target *target, const ckpt_tensor *t);

/* ---- layout.c ---- */

typedef enum ckpt_dcp_what {
    CKPT_DCP_OTHER,  /* anything else; its name is the item's */
    CKPT_DCP_WEIGHT, /* a parameter or a buffer of the model */
    CKPT_DCP_MOMENT, /* optimizer state of one parameter: `key` of `name` */
    CKPT_DCP_FLAT,   /* state of several or of unknown parameters; its name is the item's */
    CKPT_DCP_SETTING /* a group's setting: `key` of group `name`, a number or a parameter */
} ckpt_dcp_what;

typedef struct ckpt_dcp_role {
    ckpt_dcp_what what;
    bool trained;     /* WEIGHT: an optimizer trains it */
    const char *name; /* the module's name of the parameter or buffer, or the group's */
    const char *key;  /* "exp_avg", "lr"; NULL: none */
} ckpt_dcp_role;

/*
 * Decide the role of each item.
 *
 * out     array of m->item.n roles
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_roles(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                   ckpt_err *err);

typedef int ckpt_dcp_roles_fn(ckpt_dcp_role *out, const ckpt_dcp_metadata *m, ckpt_arena *arena,
                              ckpt_err *err);

/* ---- dcp.c ---- */

/*
 * Read .metadata of a folder (or of accelerate's pair) into a map: files, tensors with the roles
 * from `roles`, and the tree of values.  Moments are read only with with_optimizer.  The map gets
 * no state.
 *
 * Errors  those of .metadata and of objects; CKPT_EMISSING: a data file is missing;
 *         CKPT_EMISMATCH: chunks overlap or leave holes
 */
int ckpt_dcp_read(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                  ckpt_dcp_roles_fn *roles, ckpt_err *err);

/* ---- values.c ---- */

/* Make a leaf for a tensor, without a storage.  NULL: no memory. */
ckpt_value *ckpt_dcp_leaf(ckpt_arena *arena, const ckpt_tensor *t);

/*
 * Build the tree of values from the items' paths.
 *
 * leaf    the value of each item; NULL: leave the item out
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_tree(ckpt_value **out, const ckpt_dcp_metadata *m, ckpt_value *const *leaf,
                  ckpt_arena *arena, ckpt_err *err);

/* ---- state.c ---- */

/* What the files tell about the order of an optimizer's parameters. */
typedef enum ckpt_dcp_order {
    CKPT_DCP_UNORDERED, /* the map's tensors have no order */
    CKPT_DCP_BY_MODEL,  /* the map's tensors have the order of the model's dict */
    CKPT_DCP_BY_NUMBER  /* also, the optimizer names its parameters by position */
} ckpt_dcp_order;

/*
 * Build the training state of a map that has weights, moments and the tree of values; step counts
 * come from the tensors "step/<parameter>".  If there is no state, or it cannot be expressed,
 * map->no_state gives the reason.
 *
 * Errors   CKPT_EFORMAT: settings of another kind than torch's; CKPT_EMISMATCH: step counts differ
 *          within one group; errors of reading the counts
 */
int ckpt_dcp_state(ckpt_map *map, ckpt_dcp_order order, bool ignore_copies, ckpt_err *err);

/*
 * Copy a parameter group's settings; 'params' becomes the group's number, as training formats store
 * it.  NULL: no memory.
 */
ckpt_value *ckpt_dcp_fields(ckpt_arena *arena, const ckpt_value *settings, size_t number);

/* The training dtype, which is taken from the dtype of the stored parameters. */
ckpt_dtype ckpt_dcp_dtype(const ckpt_state *s);

/* ---- names.c ---- */

/*
 * Give weights the optimizer's names for them, where the two differ only in the words of wrappers
 * ("module.", "_orig_mod.").
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_names(ckpt_map *map, const ckpt_value *optimizer, ckpt_err *err);

/* ---- masters.c ---- */

/*
 * Find float32 masters of the state's 16-bit parameters: optimizer state ("master_param/<name>",
 * as TransformerEngine has it) or tensors beside the model ("master_params.<name>"), by a word of
 * their key. Each becomes a tensor that is compared with the parameter's 16-bit values when it is
 * read, unless the caller ignores copies. state->masters gets the key of the first.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_masters(ckpt_map *map, ckpt_state *state, bool ignore_copies, ckpt_err *err);

/* ---- keep.c ---- */

/* True for members of a run's state that FSDP can store: the schedule, and the program's own. */
bool ckpt_dcp_keeps(const struct ckpt_state *state, const ckpt_pair *p);

/* True for a member that describes the layout of DeepSpeed's own files. */
bool ckpt_dcp_is_layout(const ckpt_pair *p);

/* True for a member that can be kept for the way back: plain data that does not describe the
 * layout. */
bool ckpt_dcp_kept_plain(ckpt_arena *arena, const ckpt_pair *p);

/*
 * Add "deepspeed" to the DICT of values other than model and optimizer, with the run's values that
 * FSDP cannot store.  Does nothing for runs of other frameworks.
 *
 * from    the map whose state has these values
 * Errors  CKPT_ELIMIT; those of reading the step counts
 */
int ckpt_dcp_keep(ckpt_value *values, ckpt_arena *arena, const ckpt_map *from,
                  const ckpt_state *state, ckpt_err *err);

/* True for the pair "deepspeed" that ckpt_dcp_keep writes. */
bool ckpt_dcp_is_kept(const ckpt_pair *p);

/*
 * Restore the state of the DeepSpeed run whose values the map keeps, if there are any.
 *
 * root    the state's model, a DICT; kept members are added to it
 * steps   the optimizer's step count; kept values of another step are dropped with a warning
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_take_back(ckpt_map *map, ckpt_state *state, ckpt_value *root, int64_t steps,
                       ckpt_err *err);

/* ---- members.c ---- */

/*
 * Complete the groups' optimizer entries of a state without prefix: a flat tensor for each kind of
 * moments ("<kind>/<parameter>" of the map), and single values per parameter.  The caller sets step
 * counts, unless they are objects.
 *
 * orphans    parameters that have moments but are not in the map, or NULL; the `file` of each is 1
 *            + the number of the group that trains it, or 0
 * optimizer  the dict whose "state" has values by parameter name, or NULL
 * Errors     those of reading values.  If parameters of one group differ, no_state is set
 */
int ckpt_dcp_entries(ckpt_map *map, ckpt_state *state, const ckpt_map *orphans,
                     const ckpt_value *optimizer, ckpt_err *err);

/* The optimizer's entry for state->param[param] of group g: a DICT, or NULL. */
const ckpt_value *ckpt_dcp_kept(const ckpt_state *state, const ckpt_group *g, size_t param);

/* True for a pair of that entry that is a single value per parameter, without a tensor in the
 * map. */
bool ckpt_dcp_member(const ckpt_map *from, const ckpt_state *state, const ckpt_group *g,
                     const ckpt_pair *p);

/* ---- beside.c ---- */

/* The key that marks a dict of Lightning. */
#define CKPT_DCP_LIGHTNING "pytorch-lightning_version"

/*
 * Rename a single entry of lr_schedulers in a dict of Lightning to lr_scheduler, which is the name
 * everywhere else; other dicts stay as they are.  false: no memory.
 */
bool ckpt_dcp_lightning(ckpt_arena *arena, ckpt_value *root);

/* The name of the schedule's file in a run's folder, or NULL. */
const char *ckpt_dcp_schedule(const ckpt_listing *list);

/* Report the other files in a run's folder that no reader uses. */
int ckpt_dcp_left(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/*
 * Warn about the files of further models that accelerate puts next to the first
 * (model_1.safetensors, pytorch_model_fsdp_1.bin) and that the map does not read.
 *
 * refuse  the caller wants a run, which has one model
 * Errors  CKPT_EUNSUPPORTED: refused
 */
int ckpt_dcp_further(ckpt_map *map, const ckpt_listing *list, bool refuse, ckpt_err *err);

/*
 * The name of a file that only a training run has (schedule, states of random number generators),
 * or NULL.
 */
const char *ckpt_dcp_of_run(const ckpt_listing *list);

/*
 * Handle a folder without an optimizer: warn if another file belongs to a run.
 *
 * optimizer  the name that it would have
 * Errors     CKPT_EMISSING: the caller asks for the run
 */
int ckpt_dcp_no_optimizer(ckpt_map *map, const ckpt_listing *list, const char *optimizer,
                          const ckpt_open_opts *opts, ckpt_err *err);

/* Warn if the optimizer of the map's run has made more steps than trainer_state.json of the Trainer
 * counts, if that file exists. */
int ckpt_dcp_trainer_steps(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/*
 * Read the other files in a run's folder: the schedule becomes lr_scheduler, and Lightning's
 * meta.pt becomes values of the run.  Warn if meta.pt is missing or belongs to another save.
 *
 * Errors  those of torch files
 */
int ckpt_dcp_beside(ckpt_map *map, const ckpt_listing *list, ckpt_err *err);

/* ---- entry.c ---- */

/*
 * Read the object of an entry; its storages become sources of the map.
 *
 * io      the data file, file number `file` of the map
 * Errors  those of torch archives; CKPT_EFORMAT: the entry is not inside the file
 */
int ckpt_dcp_object(ckpt_value **out, ckpt_map *map, ckpt_io *io, uint32_t file,
                    const ckpt_dcp_place *place, ckpt_err *err);

/* The expected content of a tensor's entry (ckpt_source.inner). */
typedef struct ckpt_dcp_inner {
    const char *name; /* name of the tensor */
    ckpt_dtype dtype;
    uint32_t ndim;
    const uint64_t *count; /* elements of the chunk */
    /* axes of the extent, with the strides of a row-major chunk */
    ckpt_axis *axis;
} ckpt_dcp_inner;

/*
 * Find the storage with a chunk's bytes inside its entry's archive (ckpt_map.settle).  torch.save
 * keeps a transposed tensor dense but not row-major; for such a chunk the extent's strides are set.
 *
 * source  in: at and n_stored are the entry's; out: they are the storage's, and `inner` is NULL
 * Errors  those of torch archives; CKPT_EMISMATCH: the archive does not hold the chunk
 */
int ckpt_dcp_settle(ckpt_source *source, ckpt_io *io, ckpt_err *err);

#endif
