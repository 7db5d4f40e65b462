/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp.h: the interface between the files of the driver for PyTorch's distributed checkpoints (DCP),
 * and with drivers for programs that build on DCP (formats/megatron).
 *
 *     metadata.c  reads .metadata: items, their chunks, and the entry of each chunk
 *     parts.c     reads the small objects of .metadata, one set per chunk
 *     chunks.c    keeps chunks as rows
 *     entry.c reads one entry of a data file: a complete torch archive at an offset
 *     layout.c    decides which items are weights, moments, settings
 *     dcp.c       the reader: files, tensors with their extents
 *     values.c    builds the tree of values from objects and tensors
 *     write.c     the writer; pack.c places items in files, describe.c writes .metadata,
 *                 programs.c knows the layouts that programs load
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

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/format.h"
#include "libckpt/map/state.h"

/* The position of an entry in a data file. */
typedef struct ckpt_dcp_place {
    uint32_t file;  /* index in ckpt_dcp_metadata.file */
    uint64_t at, n; /* bytes: offset, length */
} ckpt_dcp_place;

/* A box of a tensor, and the entry with its bytes. */
typedef struct ckpt_dcp_chunk {
    const uint64_t *start, *count; /* elements, one value per axis of the tensor; NULL: an object */
    ckpt_dcp_place place;
} ckpt_dcp_chunk;

/*
 * The form in which chunks are kept, because there can be millions of them: lists of numbers
 * repeat from tensor to tensor, and are stored once.
 */
typedef struct ckpt_dcp_row {
    uint32_t start, count; /* indexes in ckpt_dcp_metadata.list; CKPT_INDEX_NONE: an object */
    uint32_t entry;        /* index in ckpt_dcp_metadata.entry */
} ckpt_dcp_row;

/* A list of sizes or offsets in elements, one per axis; in the arena. */
typedef struct ckpt_dcp_list {
    const uint64_t *at;
    uint32_t n;
} ckpt_dcp_list;

/*
 * A pair of storage_data while .metadata is read: the key (MetadataIndex) and the position
 * (_StorageInfo); later the position alone.
 */
typedef struct ckpt_dcp_entry {
    uint64_t at, n;    /* bytes: offset, length */
    uint32_t file;     /* while it is read: index in ckpt_dcp_parts.text; then: in .file */
    uint32_t name;     /* index in ckpt_dcp_parts.text */
    uint32_t offset;   /* index in ckpt_dcp_metadata.list; CKPT_INDEX_NONE: no axes */
    bool listed, used; /* storage_data has it; a chunk is in it */
} ckpt_dcp_entry;

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

/*
 * Set the extent of a range of complete rows, for dtypes with several elements in a byte (F4).  The
 * range is one interval of elements, because a stride counts bytes.  axis: room for one axis
 */
void ckpt_dcp_packed_rows(ckpt_extent *e, ckpt_axis *axis, const uint64_t *shape, uint32_t ndim,
                          uint64_t first, uint64_t n);

/* True if a chunk holds no element. */
bool ckpt_dcp_is_empty(const ckpt_dcp_item *item, const ckpt_dcp_chunk *c);

CKPT_VEC(ckpt_dcp_items, ckpt_dcp_item);
CKPT_VEC(ckpt_dcp_rows, ckpt_dcp_row);
CKPT_VEC(ckpt_dcp_lists, ckpt_dcp_list);
CKPT_VEC(ckpt_dcp_entries, ckpt_dcp_entry);
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
    ckpt_dcp_rows chunk;
    ckpt_dcp_lists list;
    ckpt_dcp_entries entry;
    ckpt_dcp_files file; /* data files in the order of first use */
    size_t n_loose;      /* number of entries of storage_data that belong to no item */
    const char *loose;   /* name of the first such entry */
    size_t n_others;     /* number of members that torch does not write */
    const char *other;   /* name of the first such member */
} ckpt_dcp_metadata;

#define CKPT_DCP_METADATA ".metadata"

/* Chunk i, and its place alone. */
ckpt_dcp_chunk ckpt_dcp_chunk_at(const ckpt_dcp_metadata *m, size_t i);
ckpt_dcp_place ckpt_dcp_place_of(const ckpt_dcp_metadata *m, size_t i);

/* Append a chunk; start and count are not copied.  false: no memory. */
bool ckpt_dcp_add_chunk(ckpt_dcp_metadata *m, const ckpt_dcp_chunk *chunk, uint32_t ndim);

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

/* ---- pack.c ---- */

/* A folder that is written: its data files, one per rank, and the items in them. */
typedef struct ckpt_dcp_pack {
    ckpt_map *to;
    const ckpt_map *from;
    bool drop_objects;      /* as ckpt_target's */
    ckpt_dcp_metadata meta; /* placed items; files by rank */
    uint32_t *file;         /* by rank: number of its file in the target map */
    uint32_t ranks;
    ckpt_err *err;
} ckpt_dcp_pack;

/* A box of a tensor, in elements, and the rank whose file gets it. */
typedef struct ckpt_dcp_box {
    const uint64_t *start, *count;
    uint32_t rank;
} ckpt_dcp_box;

/* A tensor to write. */
typedef struct ckpt_dcp_packed {
    const char *name; /* NULL: the keys of the path, joined by '.' */
    ckpt_value *path; /* NULL: the name is not flattened */
    const ckpt_tensor *tensor;
    const char *kind; /* a unique word if the tensor is written several times; or NULL */
    ckpt_dtype dtype;
    /* the shape if it is larger than the tensor's: all other elements are zero; or NULL */
    const uint64_t *shape;
    const ckpt_dcp_box *box; /* n boxes that cover the shape */
    uint32_t n;
} ckpt_dcp_packed;

/* Begin a data file per rank in a folder: "" or "optimizer_0/".  Errors: CKPT_ELIMIT. */
int ckpt_dcp_pack_files(ckpt_dcp_pack *p, const char *folder);

/* Write a tensor of the source, one entry for each box.  Errors: CKPT_ELIMIT. */
int ckpt_dcp_pack_tensor(ckpt_dcp_pack *p, const ckpt_dcp_packed *what);

/* Write an object in rank 0's file, as torch.save does.  Errors: CKPT_ELIMIT. */
int ckpt_dcp_pack_object(ckpt_dcp_pack *p, const char *name, ckpt_value *path, const ckpt_value *v);

/* Write another name for an object that was written, by its item.  Errors: CKPT_ELIMIT. */
int ckpt_dcp_pack_again(ckpt_dcp_pack *p, const char *name, size_t of);

/* Write the folder's .metadata.  Errors: CKPT_ELIMIT. */
int ckpt_dcp_pack_metadata(ckpt_dcp_pack *p, const char *folder);

/* ---- describe.c, write.c ---- */

/*
 * Append the pickle of .metadata.  item->path and the paths of files are written as they are; if no
 * item has a path, planner_data is None.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_describe(ckpt_bytes *out, const ckpt_dcp_metadata *from, ckpt_err *err);

/* ckpt_directory.scatter of the format dcp (write.c). */
int ckpt_dcp_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

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
 * no state.  Callers that need the tensors' extents pass opts without `outline`.
 *
 * Errors  those of .metadata and of objects; CKPT_EMISSING: a data file is missing;
 *         CKPT_EMISMATCH: chunks overlap or leave holes
 */
int ckpt_dcp_read(ckpt_map *map, const ckpt_listing *list, const ckpt_open_opts *opts,
                  ckpt_dcp_roles_fn *roles, ckpt_err *err);

/* ---- values.c ---- */

/*
 * Build the tree of values from the items' paths.
 *
 * leaf    the value of each item; NULL: leave the item out
 * Errors  CKPT_ELIMIT
 */
int ckpt_dcp_tree(ckpt_value **out, const ckpt_dcp_metadata *m, ckpt_value *const *leaf,
                  ckpt_arena *arena, ckpt_err *err);

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
