/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.h: open, convert, compare and verify checkpoints of large models.
 *
 * A checkpoint of any format opens as a map: logical tensors, where their bytes lie, and a tree of
 * values.  Opening reads headers only and never runs anything a file contains.  Converting lays out
 * a target map, makes a plan, and runs it in constant memory; outputs appear complete or not at
 * all.
 *
 *     ckpt_map *map = NULL;
 *     ckpt_err err = {0};
 *     if (ckpt_open(&map, "run/checkpoint-500", NULL, &err) == CKPT_OK) {
 *         ckpt_target target = {.format = "hf", .path = "out"};
 *         ckpt_convert(map, &target, NULL, NULL, &err);
 *     }
 *     if (err.code != CKPT_OK)
 *         fprintf(stderr, "%s\n", err.text);
 *     ckpt_map_free(map);
 *
 * Conventions: functions that can fail return CKPT_OK or a negative code and fill err (which may be
 * NULL).  They clear err first, so one ckpt_err serves any number of calls; only ckpt_team_leave
 * reads it.  Out-parameters come first and are owned by the caller; pointers returned otherwise are
 * borrowed from the handle.  What is looked up may be wanted in part: such out-parameters may be
 * NULL.  A path, map, target or callback that is missing is CKPT_EUSAGE, and a NULL handle has no
 * tensors, facts or files.  Handles may be read by many threads at once.  The library never prints,
 * exits or installs handlers.
 *
 * Option structs, and the report, may be NULL or zeroed for defaults.  Each begins with `size`:
 * sizeof the struct as the program was compiled, or 0, which stands for the struct of the first
 * release, 0.1.  Later releases append members, so that programs of before go on working, and
 * refuse members that are set and that they do not have.  Initialise with {.size = sizeof
 * (ckpt_target), ...} to use what was appended.  Structs that the library hands out grow at their
 * ends too.
 */
#ifndef CKPT_H
#define CKPT_H

#include <stdbool.h>

#include "ckpt_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_VERSION "0.1.0"

typedef struct ckpt_map ckpt_map;
typedef struct ckpt_value ckpt_value;
typedef struct ckpt_plan ckpt_plan;
typedef struct ckpt_reader ckpt_reader;
typedef struct ckpt_view ckpt_view;

/* Version of the library linked, "0.1.0"; the errors' texts and the tools' exit statuses. */
CKPT_API const char *ckpt_version(void);
CKPT_API const char *ckpt_err_text(int code);
CKPT_API int ckpt_err_status(int code);

enum { CKPT_TO_READ = 1, CKPT_TO_WRITE = 2, CKPT_TO_FETCH = 4 }; /* for ckpt_prepare */

/*
 * For programs that give up rights (Landlock, seccomp) before they open a checkpoint: does now what
 * would be refused later.  CKPT_TO_READ opens the temporary file without a name, in TMPDIR or else
 * /tmp, for decoded records that are too large for memory; it stays open until the process ends.
 * CKPT_TO_WRITE loads the configuration of OpenSSL, whose digests guard outputs that can be
 * resumed.  CKPT_TO_FETCH loads what reads addresses.  Before other threads use the library.
 *
 * Errors   CKPT_EIO: there is no place for the file; what needs none still works.  CKPT_ELIMIT;
 *          CKPT_EUNSUPPORTED, CKPT_EUSAGE: addresses cannot be read
 */
CKPT_API int ckpt_prepare(unsigned what, ckpt_err *err);

/*
 * Addresses (ckpt-remote(7)): true of paths that are not this machine's, which ckpt_open and all
 * that opens a checkpoint take as well.  Waiting for other machines ends with CKPT_ECANCELED soon
 * after `stop` says true: it is asked several times a second, by any thread that waits; NULL:
 * nobody is asked.
 */
CKPT_API bool ckpt_path_is_remote(const char *path);
typedef bool ckpt_remote_stop_fn(void *ctx);
CKPT_API void ckpt_remote_stop_with(ckpt_remote_stop_fn *stop, void *ctx);
/* True while the heads of files on other machines are fetched: n_open of n_all are there.  For
 * `stop`, so that a program can show what it waits for. */
CKPT_API bool ckpt_remote_opening(uint64_t *n_open, uint64_t *n_all);

/*
 * Whether an output may have this path, which need not exist: everything that writes asks this.
 *
 * Errors   CKPT_EUSAGE: an address of any scheme; a device, pipe or socket; a link, unless it leads
 *          to a folder
 */
CKPT_API int ckpt_check_output(const char *path, ckpt_err *err);

/* Names of element types: "F32", and what users type ("bf16", "float32", any case; CKPT_DTYPE_NONE:
 * unknown); bits of one element, 0 of CKPT_DTYPE_NONE and of ggml's types; elements of a block (1:
 * they are not packed) and, unless bytes is NULL, its bytes. */
CKPT_API const char *ckpt_dtype_name(ckpt_dtype d);
CKPT_API ckpt_dtype ckpt_dtype_parse(const char *text);
CKPT_API unsigned ckpt_dtype_bits(ckpt_dtype d);
CKPT_API unsigned ckpt_dtype_block(ckpt_dtype d, unsigned *bytes);

/* Elements of `from` can be converted to `to`; equal dtypes always can. */
CKPT_API bool ckpt_dtype_converts(ckpt_dtype to, ckpt_dtype from);

/* ---- opening ---- */

typedef struct ckpt_open_opts {
    size_t size;     /* sizeof this struct, or 0: see above */
    const char *tag; /* DeepSpeed: this tag instead of the one in `latest` */
    /* a path to one shard means the checkpoint it belongs to, not the file alone */
    bool whole_checkpoint;
    bool with_optimizer; /* also map optimizer state, as tensors named "exp_avg/<parameter>" */
    bool no_frozen;      /* leave frozen parameters out */
    bool collect;        /* keep inconsistencies as findings and go on where possible (verify) */
    bool require_crc;    /* records without checksum are an error */
    /* model-parallel ranks stay apart, as "mp_rank_01/<name>", instead of being joined */
    bool keep_slices;
    /*
     * text of a universal_checkpoint_info (JSON) that says how to join them; NULL: the checkpoint's
     * own
     */
    const char *slice_rules;
    /*
     * tensor-parallel slices that nothing says how to join: along their first axis (DeepSpeed's
     * --inject_missing_state); without it they are refused
     */
    bool join_first_axis;
    bool ignore_copies; /* DeepSpeed: do not compare masters with the module's 16-bit copies */
    /* what is opened is to be a run: a torch file with a model and its optimizer is read as one */
    bool training;
    /*
     * DeepSpeed: the weights that the model files hold whole, in the run's dtype, and nothing of
     * the optimizer's files, which may be missing; stage 3 has none such (CKPT_EMISSING)
     */
    bool weights_only;
} ckpt_open_opts;

/*
 * Open a checkpoint: a file of any known format, a model folder, a DeepSpeed run, checkpoint or tag
 * folder, or one of its shards.
 *
 * Errors   CKPT_EMISSING, CKPT_EFORMAT, CKPT_EUNSUPPORTED, CKPT_EUNSAFE, CKPT_EMISMATCH,
 *          CKPT_ELIMIT, CKPT_EIO
 */
CKPT_API int ckpt_open(ckpt_map **out, const char *path, const ckpt_open_opts *opts, ckpt_err *err);
CKPT_API void ckpt_map_free(ckpt_map *map);

/*
 * Open a file of any known file format whose bytes come from the caller (ckpt_types.h); all that
 * takes a map takes this one.  Options of folders mean nothing to it.
 *
 * name    of the file, for messages; a single array is named after it
 * Errors  CKPT_EUSAGE; those of ckpt_open
 */
CKPT_API int ckpt_open_input(ckpt_map **out, const char *name, const ckpt_input *input,
                             const ckpt_open_opts *opts, ckpt_err *err);

/* An array in the caller's memory. */
typedef struct ckpt_array {
    size_t size; /* sizeof this struct, or 0: see above */
    const char *name;
    ckpt_dtype dtype;
    uint32_t ndim;         /* 0: one element */
    const uint64_t *shape; /* ndim of them */
    const void *data;      /* row-major, little-endian; may be NULL where an axis is 0 */
} ckpt_array;

/*
 * An empty map to put arrays into, and then to convert: what a program has in memory is written to
 * any format.  Names, shapes and texts are copied; data stay the caller's until the map is freed.
 *
 * name    for messages
 * Errors  CKPT_EUSAGE, CKPT_ELIMIT; CKPT_EFORMAT: a name that is there already or is no UTF-8
 */
CKPT_API int ckpt_map_of_memory(ckpt_map **out, const char *name, ckpt_err *err);
CKPT_API int ckpt_map_put(ckpt_map *map, const ckpt_array *array, ckpt_err *err);

/* A pair for formats that carry them beside tensors; errors as above. */
CKPT_API int ckpt_map_put_metadata(ckpt_map *map, const char *key, const char *text, ckpt_err *err);

/* what was understood: the file or folder read */
CKPT_API const char *ckpt_map_path(const ckpt_map *map);
/* the name of the format it was read as: "deepspeed" */
CKPT_API const char *ckpt_map_format(const ckpt_map *map);

/* CKPT_TOOK_*: which options changed what was read */
CKPT_API unsigned ckpt_map_effects(const ckpt_map *map);

/*
 * Tensors in the order of the checkpoint; they live as long as the map.  NULL: i is past the end.
 */
CKPT_API size_t ckpt_map_count(const ckpt_map *map);
CKPT_API const ckpt_tensor *ckpt_map_tensor(const ckpt_map *map, size_t i);
CKPT_API const ckpt_tensor *ckpt_map_find(const ckpt_map *map, const char *name); /* or NULL */
CKPT_API uint64_t ckpt_tensor_bytes(const ckpt_tensor *t);

/*
 * The files that hold it, or will: path (of targets below the target's path; NULL: i is past the
 * end) and bytes.
 */
CKPT_API size_t ckpt_map_n_files(const ckpt_map *map);
CKPT_API const char *ckpt_map_file_path(const ckpt_map *map, size_t i);
CKPT_API uint64_t ckpt_map_file_size(const ckpt_map *map, size_t i);

/*
 * Target maps: the folder that receives the files: the target's path, or that of its one file; NULL
 * for other maps.
 */
CKPT_API const char *ckpt_map_into(const ckpt_map *map);

/*
 * Target maps: name of the folder below the target's path that all files lie in and that appears
 * complete or not at all, and of the small file beside it that names it ("latest"), each NULL when
 * there is none.
 */
CKPT_API const char *ckpt_map_folder(const ckpt_map *map);
CKPT_API const char *ckpt_map_pointer(const ckpt_map *map);

/* What was understood ("stage", "3"), in order; false when i is past the end. */
CKPT_API bool ckpt_map_fact_at(const ckpt_map *map, size_t i, const char **key, const char **text,
                               bool *is_number);

/* The same for programs: those that have a meaning of their own.  A NULL map: nothing is known. */
CKPT_API void ckpt_map_known(const ckpt_map *map, ckpt_known *out);

/*
 * What was noticed: 0 information, 1 warning, 2 error (only with collect); false when i is past the
 * end.
 */
CKPT_API bool ckpt_map_finding_at(const ckpt_map *map, size_t i, int *severity, int *code,
                                  const char **text);

/* String pairs that the format carries beside tensors (safetensors' __metadata__). */
CKPT_API bool ckpt_map_metadata_at(const ckpt_map *map, size_t i, const char **key,
                                   const char **text);

/*
 * Where the bytes of an extent (ckpt_tensor_extent) are: path of the file, name of the record (or
 * NULL), offset in the file (UINT64_MAX: compressed).
 */
CKPT_API bool ckpt_map_where(const ckpt_map *map, const ckpt_extent *e, const char **path,
                             const char **record, uint64_t *at);

/* Each element of each tensor is covered exactly once, by bytes that exist. */
CKPT_API int ckpt_map_check(const ckpt_map *map, ckpt_err *err);

/* ---- the tree of values ---- */

typedef enum ckpt_tree_format { CKPT_TREE_TEXT, CKPT_TREE_JSON } ckpt_tree_format;

/*
 * Print the tree of values through a callback, in linear size: shared nodes are printed once and
 * referred to after.  max_depth 0 means 100; max_items (per container) 0 means all.  path
 * ("optimizer_state_dict.loss_scaler") selects a sub-tree, NULL the root.
 */
typedef int (*ckpt_write_fn)(void *ctx, const char *text, size_t n);
typedef struct ckpt_tree_opts {
    size_t size; /* sizeof this struct, or 0: see above */
    ckpt_tree_format format;
    const char *path;
    unsigned max_depth;
    uint64_t max_items;
} ckpt_tree_opts;
CKPT_API int ckpt_tree_print(const ckpt_map *map, const ckpt_tree_opts *opts, ckpt_write_fn fn,
                             void *ctx, ckpt_err *err);

/* What a value is to a program; Python's types of one kind are not told apart. */
typedef enum ckpt_kind {
    CKPT_KIND_NONE, /* None, and what is not there */
    CKPT_KIND_BOOL,
    CKPT_KIND_INT, /* of 64 bits */
    CKPT_KIND_FLOAT,
    CKPT_KIND_TEXT, /* UTF-8, terminated */
    CKPT_KIND_BYTES,
    CKPT_KIND_LIST,   /* lists, tuples, sets */
    CKPT_KIND_DICT,   /* in the order of insertion */
    CKPT_KIND_TENSOR, /* whose values a map's tensors have */
    CKPT_KIND_OTHER   /* longer integers, classes, dtypes, objects: ckpt_tree_print shows them */
} ckpt_kind;

/*
 * The tree of values, node by node: its root, or NULL.  Nodes live as long as the map.  They form a
 * graph, which may share nodes and have cycles: a walk needs a limit of its own.
 */
CKPT_API const ckpt_value *ckpt_map_values(const ckpt_map *map);
CKPT_API ckpt_kind ckpt_value_type(const ckpt_value *v);

/*
 * The value as a number: false, and 0, when it is none.  Integers are booleans and enumerations
 * too; floats are integers too, rounded where they are beyond 2^53.
 */
CKPT_API bool ckpt_value_to_int(const ckpt_value *v, int64_t *out);
CKPT_API bool ckpt_value_to_float(const ckpt_value *v, double *out);

/* TEXT and BYTES: n bytes, and a terminator that is not counted; false for others. */
CKPT_API bool ckpt_value_to_text(const ckpt_value *v, const char **text, size_t *n);

/*
 * Items of a list or dict: how many (0: none, or no container), the i-th value, its key in a dict,
 * and the value of a text key; NULL: there is none.
 */
CKPT_API size_t ckpt_value_count(const ckpt_value *v);
CKPT_API const ckpt_value *ckpt_value_item(const ckpt_value *v, size_t i);
CKPT_API const ckpt_value *ckpt_value_key(const ckpt_value *v, size_t i);
CKPT_API const ckpt_value *ckpt_value_member(const ckpt_value *v, const char *key);

/* ---- what becomes of a map's tensors before they are written ---- */

#include "ckpt_shape.h"

/* ---- several processes ---- */

#include "ckpt_team.h"

/* ---- converting ---- */

enum { CKPT_STAGE_NONE = -1 }; /* for ckpt_target.stage */

typedef struct ckpt_target {
    size_t size;             /* sizeof this struct, or 0: see above */
    const char *format;      /* "hf": what ckpt_format_at lists with CKPT_CAN_WRITE */
    const char *path;        /* the file or folder to write */
    ckpt_dtype dtype;        /* of all floating tensors; NONE: each tensor's export dtype */
    uint64_t max_shard_size; /* bytes, folders; 0: no limit */
    /* hf folders: do not copy config.json, tokenizer files ... from beside the source */
    bool no_side_files;
    bool keep_other_weights; /* hf folders, replaced by force: weights of the other kind
                                (safetensors, .bin) stay even where loaders would prefer them; else
                                they go */

    /*
     * "zero" and "universal": training state.  path is the run folder, the files go into a tag
     * folder in it
     */
    const char *tag; /* name of the tag folder; NULL: the source's, or "global_step0" */
    /* 1, 2, 3; CKPT_STAGE_NONE: without ZeRO ("stage 0"), of a source that is; 0: the source's */
    int stage;
    uint32_t world;          /* data-parallel ranks; 0: the source's; hf-sharded and dcp, too */
    uint64_t sub_group_size; /* stage 3, elements; 0: the source's, or DeepSpeed's default 1e9 */
    /* release of DeepSpeed to write for, "0.12.6"; NULL: the source's, or the newest known */
    const char *version;
    bool fresh_optimizer; /* moments of zero and step 0 instead of the source's */
    bool objects_kept;    /* objects of unknown classes are written back verbatim ... */
    bool objects_dropped; /* ... or left out; neither: they are refused (CKPT_EUNSAFE) */
    /*
     * names of the trained parameters, one a line, in the order in which the optimizer gets them;
     * '#' begins a comment; '*' stands for all others in the order of the file.  Of weights alone
     * an empty line begins a new group; the parameters of a run stay in their groups, and those of
     * one that DeepSpeed has saved in their order
     */
    const char *order_text;
    bool deflate; /* npz: as numpy.savez_compressed; takes room on the disk for both forms */
    /* dcp: names and folders of "torch" (get_state_dict; NULL too), "torchtitan", "accelerate" */
    const char *layout;
    /*
     * the dtype of floating tensors by their names as they are written, instead of one for all:
     * "f32:*norm*,bf16:*": DTYPE:GLOB, the first match wins, what matches none keeps its export
     * dtype; not for training state; or NULL
     */
    const char *dtypes;
    /* gguf: types by llama.cpp's rules of this name, "q4_k_m", instead of one dtype; or NULL */
    const char *mixture;
} ckpt_target;

/*
 * Give a map of weights alone (a model folder, a torch or safetensors file) the training state of a
 * run that has not begun, so that "zero" and "universal" targets can be laid out from it: AdamW at
 * step 0, moments of zero.  Formats that hold weights alone (CKPT_TAKES_WEIGHTS) need none, and get
 * none.  A map that has training state is left as it is, but for the order that
 * target->order_text gives to the parameters in its groups.
 *
 * The order of the parameters is target->order_text; without it, that of the model type in
 * config.json where it is known, or the file's own for torch files.  Floating tensors that
 * order_text does not list become frozen parameters.
 *
 * Errors   CKPT_EUSAGE: a bad order, none that is known, no stage, world size or dtype;
 *          CKPT_EMISSING: nothing to train; CKPT_EUNSUPPORTED: moments without step counts
 */
CKPT_API int ckpt_map_warm_start(ckpt_map *map, const ckpt_target *target, ckpt_err *err);

/*
 * Can such a target be made: does its format exist, can it be written, does it hold that dtype, and
 * does every field that is set mean something to it?  Layout asks first; ask before opening a
 * source to fail sooner.
 *
 * Errors   CKPT_EUSAGE, naming what can be had instead
 */
CKPT_API int ckpt_target_check(const ckpt_target *target, ckpt_err *err);

/* Lay out a target map: names, dtypes, shards and offsets, headers and all; nothing is written. */
CKPT_API int ckpt_layout(ckpt_map **out, const ckpt_map *from, const ckpt_target *target,
                         ckpt_err *err);

/* Plan the copy from a map to a map laid out from it, for the buffers that opts allow. */
CKPT_API int ckpt_plan_new(ckpt_plan **out, const ckpt_map *from, ckpt_map *to,
                           const ckpt_run_opts *opts, ckpt_err *err);
CKPT_API void ckpt_plan_sizes(const ckpt_plan *plan, uint64_t *n_read, uint64_t *n_write,
                              uint64_t *n_jobs);

/* Carry it out: ckpt_map_into of the target map receives its files. */
CKPT_API int ckpt_plan_run(const ckpt_plan *plan, const ckpt_run_opts *opts,
                           ckpt_run_report *report, ckpt_err *err);
CKPT_API void ckpt_plan_free(ckpt_plan *plan);

/* The four steps in one: layout, plan, run, free. */
CKPT_API int ckpt_convert(const ckpt_map *from, const ckpt_target *target,
                          const ckpt_run_opts *opts, ckpt_run_report *report, ckpt_err *err);

/* ---- reading values ---- */

/* Reads tensors of a map; one reader per thread. */
CKPT_API int ckpt_reader_new(ckpt_reader **out, const ckpt_map *map, ckpt_err *err);
CKPT_API void ckpt_reader_free(ckpt_reader *r);

/*
 * Do not check CRCs of records stored as they are, for a look at a few elements of a large one:
 * without this the whole record is read.  What is read later is not checked either.
 */
CKPT_API void ckpt_reader_trust(ckpt_reader *r);

/*
 * Elements first..first+count-1 of a tensor flattened row-major, as dtype (NONE: its own), into
 * buf.  The CRC of a record is checked the first time a byte of it is used.
 */
CKPT_API int ckpt_reader_read(ckpt_reader *r, const ckpt_tensor *t, uint64_t first, uint64_t count,
                              ckpt_dtype dtype, void *buf, ckpt_err *err);

/*
 * A part of a tensor with axes: the elements start, start + step ... of each axis, count of them.
 *
 * part     one for each axis of t
 * dtype    of the elements in buf, row-major and dense; NONE: its own
 * Errors   CKPT_EUSAGE: outside the tensor; CKPT_EUNSUPPORTED: no such conversion, or elements of
 *          less than a byte (F4, F6); those of ckpt_reader_read
 */
CKPT_API int ckpt_reader_slice(ckpt_reader *r, const ckpt_tensor *t, const ckpt_slice *part,
                               ckpt_dtype dtype, void *buf, ckpt_err *err);

/*
 * Elements start[k]..start[k]+count[k]-1 of each axis into the caller's layout: a loader reads its
 * slice of a parameter to where it wants it, and nothing else.
 *
 * start    one for each axis of t; count too
 * dtype    of the elements in buf; NONE: the tensor's own
 * stride   bytes from an element to the next of each axis, any order of axes; what lies between is
 *          left as it is.  Of an axis with one element it means nothing.  Elements must not
 *          overlap.  NULL: row-major and dense
 * Errors   CKPT_EUSAGE: outside the tensor; a stride that is negative or less than an element; more
 *          bytes than a buffer can have; those of ckpt_reader_slice
 */
CKPT_API int ckpt_reader_read_box(ckpt_reader *r, const ckpt_tensor *t, const uint64_t *start,
                                  const uint64_t *count, ckpt_dtype dtype, void *buf,
                                  const int64_t *stride, ckpt_err *err);

/* ---- files without writing them ---- */

typedef struct ckpt_view_opts {
    size_t size;              /* sizeof this struct, or 0: see above */
    const ckpt_run_opts *run; /* memory, jobs, allow_overflow, no_doubt are heeded; or NULL */
    /* a record is read whole and its CRC compared before its first byte is given out; else as soon
     * as all of it was read */
    bool check_first;
} ckpt_view_opts;

/*
 * The files of a laid-out target, to be read at any offset without being written.  Opening costs
 * what a plan costs; memory is bounded whatever the model's size.  Both maps outlive the view, and
 * the target gets its checksums.
 *
 * Torch archives have checksums of 0, as torch writes them after
 * torch.serialization.set_crc32_options(False); everything else is, byte by byte, what
 * ckpt_plan_run writes.  Files that are to be deflated have no view.
 */
CKPT_API int ckpt_view_new(ckpt_view **out, const ckpt_map *from, ckpt_map *to,
                           const ckpt_view_opts *opts, ckpt_err *err);
CKPT_API void ckpt_view_free(ckpt_view *view);

/*
 * How many files there are; path (relative to where the target would be, the pointer to the newest
 * tag included) and bytes of file i.  NULL: there is no such file.
 */
CKPT_API size_t ckpt_view_n_files(const ckpt_view *view);
CKPT_API const char *ckpt_view_path(const ckpt_view *view, size_t i);
CKPT_API uint64_t ckpt_view_size(const ckpt_view *view, size_t i);

/*
 * n bytes of file i from offset `at` on, in any order, from any number of threads.
 *
 * Errors   CKPT_EUSAGE: not all inside the file; CKPT_EFORMAT: a record of the source is not what
 *          was written; CKPT_EMISMATCH: a copy differs; CKPT_EDOUBT: values that run refuses;
 *          CKPT_EIO, CKPT_ELIMIT.  The message has file and record; what was read of a bad record
 *          before may be damaged
 */
CKPT_API int ckpt_view_read(ckpt_view *view, size_t i, void *buf, uint64_t n, uint64_t at,
                            ckpt_err *err);

/*
 * Make what a read of these bytes will need, in this thread, as far as a worker and memory are free
 * for it: for who reads in order, while somebody looks at what was read before.  Only of a file
 * that was read before.
 *
 * Errors   those of the read, which finds a damaged record again but does not say so in full
 */
CKPT_API int ckpt_view_ahead(ckpt_view *view, size_t i, uint64_t n, uint64_t at, ckpt_err *err);

/*
 * File i from its first byte to its last, with all checksums: the bytes that ckpt_plan_run would
 * write.  Before ckpt_view_read of that file.  At its end all records that were read are whole.
 *
 * Errors   as above: bytes that came out before may then be damaged; those of write
 */
CKPT_API int ckpt_view_stream(ckpt_view *view, size_t i, ckpt_view_write_fn write, void *ctx,
                              ckpt_err *err);
CKPT_API void ckpt_view_count(ckpt_view *view, ckpt_view_counts *out);

/* ---- checking ---- */

/* Something that was found: 0 information, 1 warning, 2 error, whose code it is (else CKPT_OK).  A
 * non-zero return ends the run (CKPT_ECANCELED), and nothing more is told. */
typedef int (*ckpt_finding_fn)(void *ctx, int severity, int code, const char *text);

typedef struct ckpt_verify_opts {
    size_t size;                /* sizeof this struct, or 0: see above */
    const ckpt_open_opts *open; /* collect and with_optimizer are taken as set; or NULL */
    const ckpt_run_opts *run;   /* or NULL */
    ckpt_finding_fn finding;    /* receives what is found, or NULL */
    void *finding_ctx;
    /* Sees the map once its structure has held, and gets finding_ctx; or NULL. */
    void (*opened)(void *ctx, const ckpt_map *map);
} ckpt_verify_opts;

/*
 * Check everything about a checkpoint: structure, every CRC, what libzip sees in its archives,
 * copies against masters, NaN and infinities.
 * Returns the most severe problem's code (CKPT_EFORMAT before CKPT_EMISMATCH), or CKPT_OK;
 * CKPT_ECANCELED when finding or run's progress returned something else than 0.
 */
CKPT_API int ckpt_verify(const char *path, const ckpt_verify_opts *opts, ckpt_run_report *report,
                         ckpt_err *err);

typedef struct ckpt_diff_opts {
    size_t size; /* sizeof this struct, or 0: see above */
    /* |a - b| <= tolerance counts as equal; 0: by value (equal bits, or equal after widening) */
    double tolerance;
    bool ignore_dtype; /* compare values across dtypes silently */
    /* called now and then with bytes of A compared; of several processes, by this one; or NULL */
    ckpt_progress_fn progress;
    void *progress_ctx;
} ckpt_diff_opts;

typedef struct ckpt_difference {
    const char *name;
    const char *what; /* "only in A", "only in B", "shape", "dtype", "values" */
    const ckpt_tensor *a, *b;
    uint64_t n_different, first; /* values: how many elements, and the first of them */
    double max_abs; /* the largest distance; below 0: of values that are compared by bits */
} ckpt_difference;

typedef int (*ckpt_difference_fn)(void *ctx, const ckpt_difference *d);

/*
 * Compare two maps by name and value.  CKPT_EDIFFERS when anything differs; CKPT_ECANCELED when
 * progress returned something else than 0.
 */
CKPT_API int ckpt_diff(const ckpt_map *a, const ckpt_map *b, const ckpt_diff_opts *opts,
                       ckpt_difference_fn fn, void *ctx, ckpt_err *err);

/* ---- runs ---- */

typedef enum ckpt_tag_health {
    CKPT_TAG_WHOLE,
    CKPT_TAG_PARTIAL, /* files are missing: a process did not save, or a copy was cut */
    CKPT_TAG_ROTTEN,  /* files are damaged, or unsafe */
    /* files of several runs or world sizes lie side by side, or contradict each other */
    CKPT_TAG_MIXED,
    CKPT_TAG_UNKNOWN /* not judged: a layout that is not read, or the files could not be read */
} ckpt_tag_health;

typedef struct ckpt_tag {
    const char *name; /* "global_step4"; of a run in the folder: "checkpoint-4/global_step4" */
    ckpt_tag_health health;
    int code;           /* CKPT_OK, or that of the gravest problem */
    const char *reason; /* its text, paths as seen from the tag; "" when whole */
    int64_t step;       /* global_steps; -1: not known */
    int stage;          /* -1: not known */
    uint32_t world;     /* 0: not known */
    uint64_t n_bytes;   /* of all its files */
    size_t n_problems;
    /* `latest` names it, after what was fixed (universal: `latest_universal`) */
    bool is_latest;
    bool is_universal;
} ckpt_tag;

/* What the pointer of one run, `latest`, is good for. */
typedef struct ckpt_run_health {
    const char *name; /* "" for the folder itself; "checkpoint-4" for a run in it */
    /* "latest"; "latest_universal" where nothing but universal checkpoints are */
    const char *pointer;
    const char *latest; /* the tag that the pointer names; NULL: it is not there, or names none */
    const char *newest; /* the newest whole tag, which `latest` could name; NULL: none is whole */
    const char *fixed;  /* the tag that fix_latest made it name; NULL: it was left alone */
    int code;           /* CKPT_OK: it names a whole tag (after fixing) */
    const char *reason; /* "" when it does */
} ckpt_run_health;

/* The callbacks get strings that live until ckpt_doctor returns; a non-zero result stops it. */
typedef struct ckpt_doctor_opts {
    size_t size;     /* sizeof this struct, or 0: see above */
    bool deep;       /* check every CRC and value too, not only structure */
    bool fix_latest; /* let `latest` name the newest whole tag, if it names another or none */
    const ckpt_run_opts *run; /* progress: called with (0, 0) before each tag, too; or NULL */
    int (*tag)(void *ctx, const ckpt_tag *tag); /* for each tag of a run, oldest first; or NULL */
    /* Everything noticed: of a tag after tag() for it, then of the run (tag NULL).  code CKPT_OK: a
       remark, such as the left-overs of an interrupted conversion. */
    int (*problem)(void *ctx, const char *tag, int code, const char *text);
    int (*health)(void *ctx, const ckpt_run_health *run); /* after the tags of each run; or NULL */
    void *ctx;
} ckpt_doctor_opts;

/*
 * Look at every tag of a run folder, of each run in a folder of runs (checkpoint-N), or at one tag
 * folder.
 *
 * Returns CKPT_OK when `latest` names a whole tag at the end (of several runs: that of the last,
 * which a resume takes; one tag folder: when it is whole), else the code of what is wrong with it,
 * and in err the reason.
 * Errors   CKPT_EMISSING (also: there are no tags here), CKPT_EMISMATCH, CKPT_EFORMAT,
 *          CKPT_EUNSAFE, CKPT_EUNSUPPORTED, CKPT_EUSAGE, CKPT_ELIMIT, CKPT_EIO, CKPT_ECANCELED
 */
CKPT_API int ckpt_doctor(const char *path, const ckpt_doctor_opts *opts, ckpt_err *err);

/*
 * Something that an interrupted run of this library left behind: a temporary file, or a folder of
 * files not yet complete.
 */
typedef struct ckpt_leftover {
    const char *name; /* in the folder */
    bool is_dir;
    uint64_t n_bytes, n_files;
    int64_t age;      /* seconds since it was last written to */
    const char *kept; /* why it stays; NULL: it was removed (dry_run: would be) */
} ckpt_leftover;

typedef struct ckpt_clean_opts {
    size_t size;  /* sizeof this struct, or 0: see above */
    bool dry_run; /* remove nothing */
    bool force;   /* young temporary files too; never what a live process holds */
    /* called for each; non-zero stops; or NULL */
    int (*leftover)(void *ctx, const ckpt_leftover *l);
    void *ctx;
} ckpt_clean_opts;

/*
 * Remove what interrupted runs left in a folder: ".NAME.ckpt-XXXXXX.tmp" files that nobody has
 * locked, when the youngest of them is over an hour old; ".NAME.ckpt-partial" folders whose journal
 * nobody has locked: what such a run was replacing is put in order first.  Follows no link.
 *
 * Errors   CKPT_EUSAGE: not a folder; CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT, CKPT_ECANCELED
 */
CKPT_API int ckpt_clean(const char *folder, const ckpt_clean_opts *opts, ckpt_err *err);

/* ---- formats ---- */

/* What can be done with a format, and which fields of ckpt_target mean something to it. */
enum {
    CKPT_CAN_READ = 1u,
    CKPT_CAN_WRITE = 2u,
    CKPT_MAKES_TENSORS = 4u, /* written: training state; tag, stage ... mean something */
    CKPT_TAKES_LIMIT = 8u,   /* max_shard_size */
    CKPT_TAKES_SIDE = 16u,   /* no_side_files, keep_other_weights */
    CKPT_IS_FOLDER = 32u,    /* path is a folder, not one file */
    CKPT_HAS_TAGS = 64u,     /* read: a run with several checkpoints; ckpt_open_opts.tag chooses */
    CKPT_HOLDS_STATE = 128u, /* read: of runs, with the state of their optimizers */
    CKPT_KEEPS_ORDER = 256u, /* read: tensors stand in the order in which a model gave them */
    CKPT_HAS_RANKS = 512u,   /* written: a file for each rank, so that stage and world are needed,
                                and model-parallel slices (keep_slices) stay apart */
    CKPT_TAKES_DEFLATE = 1024u, /* deflate */
    CKPT_TAKES_LAYOUT = 2048u,  /* layout */
    CKPT_TAKES_WORLD = 4096u,   /* world */
    CKPT_TAKES_WEIGHTS = 8192u  /* written: of weights alone, too, which need no order */
};

/* What a format's driver says of it; lives as long as the program. */
typedef struct ckpt_format_info {
    const char *name;     /* "torch", as in ckpt_target.format and ckpt_map_format */
    const char *aliases;  /* other names for ckpt_target.format, a space between; or NULL */
    const char *suffixes; /* ".pt .pth .bin", the usual one first; NULL: names tell nothing */
    const char *signs;    /* what a folder is known by, for people; or NULL */
    const char *note;     /* a line for people: versions, limits */
    unsigned caps;        /* the flags above */
    /* that floats can be written in, up to NONE; NULL: all that they convert to */
    const ckpt_dtype *dtypes;
    /* what ckpt_target.mixture may be, a space between; NULL: it means nothing */
    const char *mixtures;
    /* written: the side of layout maps whose names its programs know, "gguf"; NULL: any */
    const char *layout;
} ckpt_format_info;

/* The table of formats, files before folders; NULL: i is past the end. */
CKPT_API const ckpt_format_info *ckpt_format_at(size_t i);

/* A format by its name or another name of it; NULL: unknown. */
CKPT_API const ckpt_format_info *ckpt_format_named(const char *name);

/*
 * The format that is written to a file of this name, by its suffix; NULL: the suffix says nothing.
 */
CKPT_API const char *ckpt_format_of(const char *path);

/* The flags of one format; 0 for an unknown name. */
CKPT_API unsigned ckpt_format_caps(const char *name);

#ifdef __cplusplus
}
#endif
#endif
