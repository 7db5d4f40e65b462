/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt.h: opens, converts, compares and verifies checkpoints of large models.
 *
 * ckpt opens a checkpoint of any format as a map: its logical tensors, the locations of their
 * bytes, and a tree of values. Opening reads headers only and never runs code that a file contains.
 * A conversion lays out a target map, makes a plan, and runs the plan in constant memory; an output
 * appears complete or not at all.
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
 * NULL). They clear err first, so one ckpt_err serves any number of calls; only ckpt_team_leave
 * reads it. Messages are written for users of ckpt(1): they name its options (--force), which are
 * members of the option structs here. Out-parameters come first and are owned by the caller; a
 * handle that could not be made is NULL, and X_free accepts NULL. Other returned pointers are
 * borrowed from the handle. A look-up function accepts NULL for each out-parameter that the caller
 * does not need. For a list, X_count returns the number of items and X_at the item of an index;
 * past the end, X_at returns NULL or false. A missing path, map, target or callback is CKPT_EUSAGE,
 * and a NULL handle has no tensors, facts or files. A function that changes a map in place and
 * fails leaves the map as it was.
 *
 * The library reads option structs and their texts during the call only, unless a comment says
 * otherwise. A handle that is made from a map (target map, plan, reader) uses it: free the map
 * last. Many threads may read one map at once; each needs its own reader. A target map serves one
 * run, which adds its findings and checksums to it. The library never prints, exits or installs
 * signal handlers.
 *
 * Option structs and the report may be NULL or zeroed for defaults. In a flag, false is the safe
 * choice; a flag skip_X leaves X out. Each struct begins with `size`: sizeof the struct in the
 * compiled program, or 0 for the struct of the first release, 0.1. Later releases append members,
 * so older programs keep working; a library refuses a program that sets a member unknown to it.
 * Initialise with {.size = sizeof (ckpt_target), ...} to use appended members. Later releases also
 * append members to the structs that the library fills.
 *
 * This header is the stable part of the library. ckpt_extra.h, which includes it, declares the
 * rest: functions that may change in any release.
 */
#ifndef CKPT_H
#define CKPT_H

#include <stdbool.h>

#include "ckpt_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_VERSION "0.1.0"

typedef struct ckpt_plan ckpt_plan;
typedef struct ckpt_reader ckpt_reader;

/*
 * The version of the linked library, "0.1.0"; the text of an error code; the tools' exit status for
 * an error code.
 */
CKPT_API const char *ckpt_version(void);
CKPT_API const char *ckpt_err_text(int code);
CKPT_API int ckpt_err_status(int code);

/*
 * Element types. ckpt_dtype_name: "F32". ckpt_dtype_parse: reads a user's spelling ("bf16",
 * "float32", any case); CKPT_DTYPE_NONE: unknown. ckpt_dtype_bits: bits of one element, 0 for
 * CKPT_DTYPE_NONE and ggml's types, whose elements lie in blocks.
 */
CKPT_API const char *ckpt_dtype_name(ckpt_dtype d);
CKPT_API ckpt_dtype ckpt_dtype_parse(const char *text);
CKPT_API unsigned ckpt_dtype_bits(ckpt_dtype d);

/* ---- opening ---- */

typedef struct ckpt_open_opts {
    size_t size;     /* sizeof this struct, or 0: see above */
    const char *tag; /* DeepSpeed: open this tag instead of the one in `latest` */
    /* a path to one shard opens the checkpoint that the shard belongs to, not that file alone */
    bool whole_checkpoint;
    bool with_optimizer; /* also map optimizer state, as tensors named "exp_avg/<parameter>" */
    bool skip_frozen;    /* leave frozen parameters out */
    bool collect;        /* collect inconsistencies as findings and go on where possible (verify) */
    bool require_crc;    /* a record without a checksum is an error */
    /* keep the slices of model-parallel ranks apart, as "mp_rank_01/<name>"; false: join them */
    bool keep_slices;
    /*
     * the text of a universal_checkpoint_info (JSON) with the rules that join the slices; NULL: use
     * the checkpoint's own
     */
    const char *slice_rules;
    /*
     * join tensor-parallel slices without a rule along their first axis (DeepSpeed's
     * --inject_missing_state); false: refuse them
     */
    bool join_first_axis;
    bool ignore_copies; /* DeepSpeed: do not compare fp32 masters with the module's 16-bit copies */
    /* the caller wants a training run: read a torch file with a model and its optimizer as one */
    bool training;
    /*
     * DeepSpeed: read only the weights in the model files, in the run's dtype; the optimizer's
     * files may then be missing. Stage 3 stores no complete weights there (CKPT_EMISSING)
     */
    bool weights_only;
    /*
     * ckpt_target.order_text, for the parameters of an optimizer that names them by number without
     * param_names; NULL: the model's order
     */
    const char *order_text;
    /*
     * open the checkpoint to list it: names, dtypes, shapes and roles. It takes less memory where a
     * tensor is in thousands of parts (DCP), because their locations are checked and not kept: such
     * a tensor has no extents. To read a tensor's values, or to convert such a map, always fails
     * with CKPT_EUSAGE, in every format
     */
    bool outline;
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

/* An array in the caller's memory. */
typedef struct ckpt_array {
    size_t size; /* sizeof this struct, or 0: see above */
    const char *name;
    ckpt_dtype dtype;
    uint32_t ndim;         /* 0: one element */
    const uint64_t *shape; /* ndim sizes */
    const void *data;      /* row-major, little-endian; may be NULL where an axis is 0 */
} ckpt_array;

/*
 * Make an empty map to put arrays into, so that a program can convert arrays in memory to any
 * format. The map copies names, shapes and texts; the data stay the caller's until the map is
 * freed.
 *
 * name    for messages
 * Errors  CKPT_EUSAGE, CKPT_ELIMIT; CKPT_EFORMAT: the name exists already or is not UTF-8
 */
CKPT_API int ckpt_map_new(ckpt_map **out, const char *name, ckpt_err *err);
CKPT_API int ckpt_map_put(ckpt_map *map, const ckpt_array *array, ckpt_err *err);

/* Add a pair of strings, for formats that store metadata beside tensors. Errors as above. */
CKPT_API int ckpt_map_put_metadata(ckpt_map *map, const char *key, const char *text, ckpt_err *err);

/* the file or folder that was read */
CKPT_API const char *ckpt_map_path(const ckpt_map *map);
/* the name of its format: "deepspeed" */
CKPT_API const char *ckpt_map_format(const ckpt_map *map);

/* Tensors in the order of the checkpoint; they live as long as the map. */
CKPT_API size_t ckpt_map_tensor_count(const ckpt_map *map);
CKPT_API const ckpt_tensor *ckpt_map_tensor_at(const ckpt_map *map, size_t i);
CKPT_API const ckpt_tensor *ckpt_map_find(const ckpt_map *map, const char *name); /* or NULL */
CKPT_API uint64_t ckpt_tensor_bytes(const ckpt_tensor *t);

/*
 * The files of the map: those it was read from, or those of a target. The path of a target's file
 * is relative to the folder that holds all of them: the target's path, the tag folder in it, or the
 * folder of a single file (ckpt_map_output_dir, ckpt_map_output_folder). Sizes are bytes of whole
 * files, with headers. NULL: i is past the end.
 */
CKPT_API size_t ckpt_map_file_count(const ckpt_map *map);
CKPT_API const char *ckpt_map_file_path(const ckpt_map *map, size_t i);
CKPT_API uint64_t ckpt_map_file_size(const ckpt_map *map, size_t i);

/* The facts that ckpt read in the checkpoint ("stage", "3"), in order. */
CKPT_API size_t ckpt_map_fact_count(const ckpt_map *map);
CKPT_API bool ckpt_map_fact_at(const ckpt_map *map, size_t i, const char **key, const char **text,
                               bool *is_number);

/* The facts that programs act on, as members of a struct. A NULL map: nothing is known. */
CKPT_API void ckpt_map_training_info(const ckpt_map *map, ckpt_training_info *out);

/*
 * The findings: severity 0 information, 1 warning, 2 error with its code. Only a map that was
 * opened with collect has errors. The findings of a target map name everything that the output
 * leaves out or changes; ckpt_plan_run adds those of the run.
 */
CKPT_API size_t ckpt_map_finding_count(const ckpt_map *map);
CKPT_API bool ckpt_map_finding_at(const ckpt_map *map, size_t i, int *severity, int *code,
                                  const char **text);

/* String pairs that the format carries beside tensors (safetensors' __metadata__). */
CKPT_API size_t ckpt_map_metadata_count(const ckpt_map *map);
CKPT_API bool ckpt_map_metadata_at(const ckpt_map *map, size_t i, const char **key,
                                   const char **text);

/* ---- converting ---- */

enum { CKPT_STAGE_NONE = -1 }; /* for ckpt_target.stage */

typedef struct ckpt_target {
    size_t size;             /* sizeof this struct, or 0: see above */
    const char *format;      /* "hf": ckpt_format_at lists the names, with CKPT_CAN_WRITE */
    const char *path;        /* the file or folder to write; missing parent folders are created */
    ckpt_dtype dtype;        /* dtype of all floating tensors; NONE: each tensor's export dtype */
    uint64_t max_shard_size; /* bytes, folders; 0: no limit */
    /* hf folders: do not copy config.json, tokenizer files ... from the source's folder */
    bool skip_side_files;
    /*
     * hf folders that a run replaces (force): keep the existing weights of the other kind
     * (safetensors, .bin) even if loaders would prefer them; false: remove them
     */
    bool keep_other_weights;

    /*
     * "zero" and "universal": training state. path is the run folder; the files go into a tag
     * folder inside it
     */
    const char *tag; /* name of the tag folder; NULL: the source's, or "global_step0" */
    /*
     * 1, 2, 3; CKPT_STAGE_NONE: without ZeRO ("stage 0"), for a source without ZeRO; 0: the
     * source's
     */
    int stage;
    uint32_t world;          /* data-parallel ranks; 0: the source's; also for hf-sharded and dcp */
    uint64_t sub_group_size; /* stage 3, elements; 0: the source's, or DeepSpeed's default 1e9 */
    /* the DeepSpeed release to write for, "0.12.6"; NULL: the source's, or the newest known */
    const char *version;
    bool fresh_optimizer; /* write zero moments and step 0 instead of the source's */
    bool keep_objects;    /* write objects of unknown classes back verbatim ... */
    bool drop_objects;    /* ... or drop them; neither: refuse them (CKPT_EUNSAFE) */
    /*
     * Names of the trained parameters, one per line, in the order in which the optimizer gets them.
     * '#' begins a comment; '*' stands for all other parameters in the order of the file. If the
     * source has only weights, an empty line begins a new group. The parameters of a run stay in
     * their groups, and a group that DeepSpeed has saved keeps its order.
     */
    const char *order_text;
    /*
     * npz: compress, as numpy.savez_compressed does; during the run the disk holds the uncompressed
     * and the compressed file
     */
    bool deflate;
    /*
     * dcp: the program whose names and folders the output gets: "torch" (get_state_dict; also
     * NULL), "torchtitan", "accelerate"
     */
    const char *layout;
    /*
     * dtypes by output name instead of one dtype for all floating tensors: "f32:*norm*,bf16:*" is a
     * list of DTYPE:GLOB. The first match wins; a tensor without a match keeps its export dtype.
     * Not for training state; or NULL
     */
    const char *dtypes;
    /* gguf: use llama.cpp's mixture of this name, "q4_k_m", instead of one dtype; or NULL */
    const char *mixture;
    /*
     * zero, a run with AutoEP: number of expert-parallel ranks, a divisor of the world and of each
     * layer's number of experts; 0: the source's, or the largest that the world allows
     */
    uint32_t ep_size;
    /*
     * gguf with quantized types: path of llama.cpp's importance matrix (GGUF or the older form), by
     * which weights are quantized as llama-quantize --imatrix does; or NULL
     */
    const char *imatrix;
    /*
     * megatron-legacy: numbers of tensor-parallel ranks and of pipeline stages; 0: 1.  ep_size is
     * that of expert-parallel ranks
     */
    uint32_t tp_size, pp_size;
} ckpt_target;

/*
 * Check a target: its format exists, can be written and holds the dtype, and every field that is
 * set has a meaning for the format. ckpt_layout makes the same check first; call this before
 * opening a source to fail sooner.
 *
 * Errors   CKPT_EUSAGE; the text names the possible values
 */
CKPT_API int ckpt_target_check(const ckpt_target *target, ckpt_err *err);

/*
 * Lay out a target map: names, dtypes, shards, offsets and headers. It writes nothing, and existing
 * outputs are no error before ckpt_plan_run. The tensors of a format with training state are the
 * records of its files.
 *
 * Errors   those of ckpt_target_check; CKPT_EUNSUPPORTED: the source lacks something that the
 *          format needs, such as training state; those of ckpt_open
 */
CKPT_API int ckpt_layout(ckpt_map **out, const ckpt_map *from, const ckpt_target *target,
                         ckpt_err *err);

/*
 * Plan the copy from a map to a map that was laid out from it, for the buffers that opts allow
 * (memory, jobs). Pass the same opts to ckpt_plan_run.
 *
 * Errors   CKPT_EUSAGE, CKPT_EUNSUPPORTED, CKPT_EMISMATCH, CKPT_ELIMIT
 */
CKPT_API int ckpt_plan_new(ckpt_plan **out, const ckpt_map *from, ckpt_map *to,
                           const ckpt_run_opts *opts, ckpt_err *err);

/*
 * The size of a plan: bytes of tensors to read, with copies that are compared, and to write,
 * without headers (ckpt_map_file_size of the target map has them); the number of pieces that
 * threads copy one by one.
 */
CKPT_API void ckpt_plan_sizes(const ckpt_plan *plan, uint64_t *n_read, uint64_t *n_write,
                              uint64_t *n_jobs);

/*
 * Run the plan, once: write the target's files into ckpt_map_output_dir of the target map. After a
 * failure the outputs are as they were before, and the report is zero.
 *
 * Errors   CKPT_EUSAGE: an output exists and opts lack force; CKPT_EFORMAT: a record fails its CRC;
 *          CKPT_EMISMATCH: a copy differs; CKPT_EDOUBT: a value overflows, or strict refuses a
 *          warning; CKPT_ECANCELED: progress returned a non-zero value; CKPT_EIO, CKPT_ELIMIT
 */
CKPT_API int ckpt_plan_run(const ckpt_plan *plan, const ckpt_run_opts *opts,
                           ckpt_run_report *report, ckpt_err *err);
CKPT_API void ckpt_plan_free(ckpt_plan *plan);

/*
 * Lay out, plan, run and free in one call. Errors: those of the three. To see the findings of the
 * target map, call the three instead.
 */
CKPT_API int ckpt_convert(const ckpt_map *from, const ckpt_target *target,
                          const ckpt_run_opts *opts, ckpt_run_report *report, ckpt_err *err);

/* ---- reading values ---- */

/*
 * Read all elements of a tensor, row-major and dense, into buf. To read parts, or many tensors that
 * share compressed records, use a reader.
 *
 * t        a tensor of this map
 * dtype    of the elements in buf; NONE: the tensor's own, and buf then holds ckpt_tensor_bytes(t)
 *          bytes
 * buf      room for t->n_elems elements of dtype; may be NULL if the tensor has no elements
 * Errors   CKPT_EUSAGE; CKPT_EUNSUPPORTED: no such conversion; CKPT_EFORMAT: a record fails its
 *          CRC; CKPT_EIO, CKPT_ELIMIT. On failure the content of buf is undefined
 */
CKPT_API int ckpt_tensor_read(const ckpt_map *map, const ckpt_tensor *t, ckpt_dtype dtype,
                              void *buf, ckpt_err *err);

/* A reader of tensors of a map; use one reader per thread, and free it before the map. */
CKPT_API int ckpt_reader_new(ckpt_reader **out, const ckpt_map *map, ckpt_err *err);
CKPT_API void ckpt_reader_free(ckpt_reader *r);

/*
 * Read elements first..first+count-1 of a tensor flattened row-major, as dtype (NONE: its own),
 * into buf. The reader checks the CRC of a record before the first use of its bytes. Errors: those
 * of ckpt_tensor_read.
 */
CKPT_API int ckpt_reader_read(ckpt_reader *r, const ckpt_tensor *t, uint64_t first, uint64_t count,
                              ckpt_dtype dtype, void *buf, ckpt_err *err);

/*
 * Read a part of a tensor that has axes: along each axis, count elements start, start + step ...
 *
 * part     one per axis of t
 * dtype    of the elements in buf, row-major and dense; NONE: the tensor's own
 * Errors   CKPT_EUSAGE: outside the tensor; CKPT_EUNSUPPORTED: no such conversion, or elements
 *          smaller than a byte (F4, F6); those of ckpt_reader_read
 */
CKPT_API int ckpt_reader_read_slice(ckpt_reader *r, const ckpt_tensor *t, const ckpt_slice *part,
                                    ckpt_dtype dtype, void *buf, ckpt_err *err);

/* ---- checking ---- */

/*
 * Receives a finding: severity 0 information, 1 warning, 2 error with its code (otherwise CKPT_OK).
 * A non-zero return ends the run (CKPT_ECANCELED); no call follows.
 */
typedef int (*ckpt_finding_fn)(void *ctx, int severity, int code, const char *text);

typedef struct ckpt_verify_opts {
    size_t size;                /* sizeof this struct, or 0: see above */
    const ckpt_open_opts *open; /* collect and with_optimizer are always set; or NULL */
    const ckpt_run_opts *run;   /* or NULL */
    ckpt_finding_fn finding;    /* receives each finding, or NULL */
    void *finding_ctx;
    /* called with finding_ctx after the map's structure has passed its checks; or NULL */
    void (*opened)(void *ctx, const ckpt_map *map);
    ckpt_map **map; /* gets the map that `opened` gets, to free with ckpt_map_free; or NULL */
} ckpt_verify_opts;

/*
 * Verify a checkpoint: structure, every CRC, libzip's view of its archives, copies against masters,
 * NaN and infinities.
 *
 * Returns  the code of the most severe problem (CKPT_EFORMAT before CKPT_EMISMATCH), or CKPT_OK;
 *          CKPT_ECANCELED when finding or run's progress returned a non-zero value
 */
CKPT_API int ckpt_verify(const char *path, const ckpt_verify_opts *opts, ckpt_run_report *report,
                         ckpt_err *err);

typedef struct ckpt_difference {
    const char *name;
    const char *what; /* "only in A", "only in B", "shape", "dtype", "values" */
    const ckpt_tensor *a, *b;
    uint64_t n_different, first; /* values: number of differing elements, and the first */
    double max_abs;          /* the largest distance; below 0: the dtypes are compared by bits */
    double first_a, first_b; /* the values of the first one; NaN if they are compared by bits */
} ckpt_difference;

/*
 * Receives a difference, whose struct and texts live until it returns; the tensors are those of the
 * maps. A non-zero return ends the comparison, which still returns CKPT_EDIFFERS.
 */
typedef int (*ckpt_difference_fn)(void *ctx, const ckpt_difference *d);

/*
 * The tensors of both maps with one name but for numbers between dots, such as those of layers.
 * Elements that are NaN or infinite in A or B are counted, and left out of the distances.
 */
typedef struct ckpt_diff_group {
    const char *name; /* "model.layers.*.mlp.up_proj.weight" */
    uint64_t n_tensors, n_tensors_different;
    uint64_t n_elems, n_different;
    uint64_t n_nan_a, n_nan_b, n_inf_a, n_inf_b;
    /*
     * ||a - b|| / ||a||, infinite if A's elements are zero and B's are not; the cosine of a and b;
     * the largest |a - b|. NaN: not defined, because the elements are compared by bits, are zeros,
     * or too large for F64
     */
    double relative_error, cosine, max_abs;
} ckpt_diff_group;

/*
 * Receives a group, whose struct and text live until it returns; a non-zero return ends the
 * comparison (CKPT_ECANCELED).
 */
typedef int (*ckpt_diff_group_fn)(void *ctx, const ckpt_diff_group *g);

typedef struct ckpt_diff_opts {
    size_t size; /* sizeof this struct, or 0: see above */
    /*
     * |a - b| <= tolerance counts as equal; 0: compare by value (equal bits, or equal after
     * widening)
     */
    double tolerance;
    bool ignore_dtype; /* do not report a difference of dtypes */
    /* called now and then with the bytes of A compared so far by this process; or NULL */
    ckpt_progress_fn progress;
    void *progress_ctx;
    /* compare bits: the signs of zeros and the scales of quantized blocks count */
    bool exact;
    /*
     * values may also differ by one rounding in the finer dtype of A and B, and by 2^-20 of the
     * largest value near them (of 256 elements), as sums in another order do
     */
    bool rounded;
    /*
     * called with ckpt_diff's ctx for each name that only one map has and that repeats a tensor of
     * both, as a tied head repeats the embedding: "tied in A" or "tied in B", with the name's
     * tensor as a and the repeated one as b. It is no difference then. A non-zero return ends the
     * comparison (CKPT_ECANCELED). NULL: it is a difference
     */
    ckpt_difference_fn tied;
    /*
     * called with ckpt_diff's ctx for each group of compared tensors, after all differences, in the
     * order of A; the results do not depend on the number of processes. Or NULL, which is faster
     */
    ckpt_diff_group_fn group;
    /*
     * with rounded: the map that computes tensors of A under the same names; tensors that it only
     * copies are not rounded. NULL: any may be
     */
    const ckpt_map *computed;
    uint64_t *n_rounded; /* gets the elements added that are equal only by rounded; or NULL */
} ckpt_diff_opts;

/*
 * Compare two maps by name and value.
 *
 * fn       called with ctx for each difference, in the order of A, then of B; or NULL
 * Errors   CKPT_EDIFFERS: anything differs; CKPT_ECANCELED: progress returned a non-zero value;
 *          CKPT_EUSAGE: a map is NULL; those of ckpt_tensor_read
 */
CKPT_API int ckpt_diff(const ckpt_map *a, const ckpt_map *b, const ckpt_diff_opts *opts,
                       ckpt_difference_fn fn, void *ctx, ckpt_err *err);

/* ---- runs ---- */

typedef enum ckpt_tag_health {
    CKPT_TAG_WHOLE,
    CKPT_TAG_PARTIAL, /* files are missing: a process did not save, or a copy stopped early */
    CKPT_TAG_DAMAGED, /* files are damaged or unsafe */
    /* files of several runs or world sizes lie in one folder, or contradict each other */
    CKPT_TAG_MIXED,
    CKPT_TAG_UNKNOWN /* not judged: an unsupported layout, or unreadable files */
} ckpt_tag_health;

typedef struct ckpt_tag {
    const char *name; /* "global_step4"; for a run inside the folder: "checkpoint-4/global_step4" */
    ckpt_tag_health health;
    int code;           /* CKPT_OK, or the code of the most severe problem */
    const char *reason; /* text of that problem, with paths relative to the tag; "" when whole */
    int64_t step;       /* global_steps; -1: not known */
    int stage;          /* -1: not known */
    uint32_t world;     /* 0: not known */
    uint64_t n_bytes;   /* size of all its files */
    size_t n_problems;
    /* `latest` names it, after a repair (universal: `latest_universal`) */
    bool is_latest;
    bool is_universal;
} ckpt_tag;

/* The state of a run's pointer, the file `latest`. */
typedef struct ckpt_run_health {
    const char *name; /* "" for the folder itself; "checkpoint-4" for a run in it */
    /* "latest"; "latest_universal" if all checkpoints are universal */
    const char *pointer;
    /* the tag that the pointer names; NULL: the file is missing, or names no tag */
    const char *latest;
    const char *newest; /* the newest whole tag, which `latest` could name; NULL: no tag is whole */
    const char *fixed;  /* the tag that fix_latest wrote into the pointer; NULL: not changed */
    int code;           /* CKPT_OK: the pointer names a whole tag (after a repair) */
    const char *reason; /* text of the problem; "" if there is none */
} ckpt_run_health;

/*
 * The callbacks get strings that live until ckpt_doctor returns; a non-zero result stops
 * ckpt_doctor.
 */
typedef struct ckpt_doctor_opts {
    size_t size;     /* sizeof this struct, or 0: see above */
    bool deep;       /* check every CRC and value as well as the structure */
    bool fix_latest; /* make `latest` name the newest whole tag if it names another tag or none */
    const ckpt_run_opts *run; /* progress is also called with (0, 0) before each tag; or NULL */
    int (*tag)(void *ctx, const ckpt_tag *tag); /* gets each tag of a run, oldest first; or NULL */
    /*
     * Receives every problem: those of a tag after tag() for it, then those of the run (tag NULL).
     * code CKPT_OK: a remark, such as left-overs of an interrupted conversion.
     */
    int (*problem)(void *ctx, const char *tag, int code, const char *text);
    int (*health)(void *ctx, const ckpt_run_health *run); /* after the tags of each run; or NULL */
    void *ctx;
} ckpt_doctor_opts;

/*
 * Examine every tag of a run folder, of each run in a folder of runs (checkpoint-N), or one tag
 * folder.
 *
 * Returns  CKPT_OK when `latest` names a whole tag at the end (of several runs: `latest` of the
 *          last, because a resume takes that one; one tag folder: when it is whole), otherwise the
 *          code of the problem, with the reason in err
 * Errors   CKPT_EMISSING (also: no tags here), CKPT_EMISMATCH, CKPT_EFORMAT, CKPT_EUNSAFE,
 *          CKPT_EUNSUPPORTED, CKPT_EUSAGE, CKPT_ELIMIT, CKPT_EIO, CKPT_ECANCELED
 */
CKPT_API int ckpt_doctor(const char *path, const ckpt_doctor_opts *opts, ckpt_err *err);

/* ---- formats ---- */

/* The abilities of a format, and the fields of ckpt_target that it uses. */
enum {
    CKPT_CAN_READ = 1u,
    CKPT_CAN_WRITE = 2u,
    CKPT_WRITES_STATE = 4u,      /* written: training state; it uses tag, stage ... */
    CKPT_TAKES_SHARD_SIZE = 8u,  /* max_shard_size */
    CKPT_TAKES_SIDE_FILES = 16u, /* skip_side_files, keep_other_weights */
    CKPT_IS_FOLDER = 32u,        /* path is a folder, not one file */
    /* read: a run with several checkpoints; ckpt_open_opts.tag selects one */
    CKPT_HAS_TAGS = 64u,
    CKPT_READS_STATE = 128u, /* read: holds runs, with the state of their optimizers */
    CKPT_KEEPS_ORDER = 256u, /* read: tensors keep the order that the model gave them */
    /*
     * written: one file per rank; stage and world are needed, and model-parallel slices
     * (keep_slices) stay apart
     */
    CKPT_HAS_RANKS = 512u,
    CKPT_TAKES_DEFLATE = 1024u, /* deflate */
    CKPT_TAKES_LAYOUT = 2048u,  /* layout */
    CKPT_TAKES_WORLD = 4096u,   /* world */
    CKPT_TAKES_WEIGHTS = 8192u, /* written: can hold only weights; then no order is needed */
    /* tp_size, pp_size, ep_size; written: the driver cuts weights into the files of ranks */
    CKPT_TAKES_GRID = 16384u
};

/* A driver's description of its format; lives as long as the program. */
typedef struct ckpt_format_info {
    const char *name;     /* "torch", as in ckpt_target.format and ckpt_map_format */
    const char *aliases;  /* other names for ckpt_target.format, separated by spaces; or NULL */
    const char *suffixes; /* ".pt .pth .bin", the usual one first; NULL: the format has no suffix */
    const char *signs;    /* how people recognise such a folder; or NULL */
    const char *note;     /* a line for people: versions, limits */
    unsigned caps;        /* the flags above */
    /*
     * dtypes that floats can be written in, NONE after the last; NULL: every dtype that ckpt can
     * convert them to
     */
    const ckpt_dtype *dtypes;
    /* possible values of ckpt_target.mixture, separated by spaces; NULL: it is ignored */
    const char *mixtures;
    /* written: the layout-map side whose names the format's programs expect, "gguf"; NULL: any */
    const char *layout;
} ckpt_format_info;

/* The table of formats, files before folders. */
CKPT_API size_t ckpt_format_count(void);
CKPT_API const ckpt_format_info *ckpt_format_at(size_t i);

/* A format by its name or alias; NULL: unknown. */
CKPT_API const ckpt_format_info *ckpt_format_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
