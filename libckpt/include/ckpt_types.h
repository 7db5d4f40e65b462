/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_types.h: defines the types that the public header and every folder of the library share.
 *
 * Error codes, dtypes, boxes, extents, tensors, and the options and the report of a run. Installed
 * beside ckpt.h, which includes it. Compiles alone as C11 and C++17.
 */
#ifndef CKPT_TYPES_H
#define CKPT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_API               __attribute__((visibility("default")))
#define CKPT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CKPT_API
#define CKPT_PRINTF(fmt, args)
#endif

/* The error codes: X(name, value, exit status of the tools, text). Values never change meaning. */
#define CKPT_ERRORS(X)                                                                             \
    X(OK, 0, 0, "success")                                                                         \
    X(EDIFFERS, -1, 1, "the compared checkpoints differ")                                          \
    X(EUSAGE, -2, 2, "wrong argument")                                                             \
    X(EFORMAT, -3, 3, "damaged or malformed file")                                                 \
    X(EUNSUPPORTED, -4, 3, "well formed, but not supported")                                       \
    X(EUNSAFE, -5, 4, "refused: the file asks to run code or to leave its folder")                 \
    X(EMISSING, -6, 5, "a file or tensor is missing")                                              \
    X(EMISMATCH, -7, 5, "ranks or replicas disagree")                                              \
    X(ELIMIT, -8, 6, "out of memory, or over a limit")                                             \
    X(EIO, -9, 7, "input/output error")                                                            \
    X(ECANCELED, -10, 130, "interrupted")                                                          \
    X(EDOUBT, -11, 9, "refused: values would be lost, or something is doubtful")                   \
    X(EDIGEST, -12, 8, "a hash or signature does not match")

#define CKPT_ERROR_ENUM(name, value, status, text) CKPT_##name = (value),
enum { CKPT_ERRORS(CKPT_ERROR_ENUM) CKPT_ERROR_END_ = -13 };
#undef CKPT_ERROR_ENUM

/* A checkpoint: its tensors, and where their bytes lie (ckpt.h). */
typedef struct ckpt_map ckpt_map;

/*
 * One failure. It lives in the caller's struct, without allocation, so that it works when memory is
 * exhausted.
 */
typedef struct ckpt_err {
    int code;       /* CKPT_OK or one of the codes above */
    int sys;        /* errno of the failed call, or 0 */
    char text[504]; /* where, found, expected, what to do; always terminated */
} ckpt_err;

/*
 * Element types. The order is part of the ABI, so new ones are appended. F4 and F6 are packed
 * without gaps, ggml's types in blocks; shapes always count elements.
 */
typedef enum ckpt_dtype {
    CKPT_DTYPE_NONE = 0,
    CKPT_F64,
    CKPT_F32,
    CKPT_F16,
    CKPT_BF16,
    CKPT_F8_E4M3, /* torch float8_e4m3fn: no infinity, NaN is S.1111.111 */
    CKPT_F8_E5M2,
    CKPT_F8_E4M3FNUZ,
    CKPT_F8_E5M2FNUZ,
    CKPT_F8_E8M0, /* torch float8_e8m0fnu: powers of two */
    CKPT_F6_E2M3,
    CKPT_F6_E3M2,
    CKPT_F4, /* e2m1, two in a byte */
    CKPT_I64,
    CKPT_I32,
    CKPT_I16,
    CKPT_I8,
    CKPT_U64,
    CKPT_U32,
    CKPT_U16,
    CKPT_U8,
    CKPT_BOOL,
    CKPT_C128,  /* two F64 */
    CKPT_C64,   /* two F32 */
    CKPT_C32,   /* two F16 */
    CKPT_BITS8, /* torch bits8, bits1x8, bits2x4, bits4x2: bytes without arithmetic */
    CKPT_BITS16,
    /* ggml's, whose elements lie in blocks (ckpt_dtype_block): numbers with a common scale */
    CKPT_Q4_0,
    CKPT_Q4_1,
    CKPT_Q5_0,
    CKPT_Q5_1,
    CKPT_Q8_0,
    CKPT_Q2_K,
    CKPT_Q3_K,
    CKPT_Q4_K,
    CKPT_Q5_K,
    CKPT_Q6_K,
    CKPT_Q8_K,
    CKPT_IQ2_XXS,
    CKPT_IQ2_XS,
    CKPT_IQ3_XXS,
    CKPT_IQ1_S,
    CKPT_IQ4_NL,
    CKPT_IQ3_S,
    CKPT_IQ2_S,
    CKPT_IQ4_XS,
    CKPT_IQ1_M,
    CKPT_TQ1_0,
    CKPT_TQ2_0,
    CKPT_MXFP4,
    CKPT_NVFP4,
    CKPT_Q1_0,
    CKPT_N_DTYPES
} ckpt_dtype;

/* The role of a tensor in its checkpoint. */
typedef enum ckpt_role {
    /* a plain tensor, or a trained parameter (its fp32 master if there is one) */
    CKPT_ROLE_WEIGHT = 0,
    CKPT_ROLE_FROZEN, /* a parameter that is not trained */
    CKPT_ROLE_BUFFER, /* module state that is not a parameter */
    CKPT_ROLE_STATE,  /* optimizer state; its name is "<state>/<parameter>" */
    CKPT_ROLE_OTHER   /* a tensor that a program saved beside model and optimizer */
} ckpt_role;

enum {
    CKPT_TENSOR_GRAD = 1u << 0,      /* requires_grad */
    CKPT_TENSOR_PARAMETER = 1u << 1, /* torch.nn.Parameter */
    CKPT_TENSOR_CONJ = 1u << 2, /* stored values are the complex conjugate of the logical ones */
    CKPT_TENSOR_NEG = 1u << 3,  /* stored values are the negated logical ones */
    CKPT_TENSOR_LAGS = 1u << 4, /* a copy that may differ: differences are counted, not refused */
    /* it has several extents, which were checked and left out (ckpt_open_opts.outline) */
    CKPT_TENSOR_OUTLINE = 1u << 5
};

#define CKPT_MAX_DIM 64u

/*
 * Options of opening, or of a target, that had an effect. An option that was set without its flag
 * changed nothing.
 */
enum {
    CKPT_USED_TAG = 1u << 0,        /* the checkpoint has tags, and the given one selected it */
    CKPT_USED_STATE = 1u << 1,      /* with_optimizer: there is optimizer state */
    CKPT_USED_FROZEN = 1u << 2,     /* skip_frozen: some parameters were left out */
    CKPT_USED_SLICES = 1u << 3,     /* keep_slices, set or not: there are slices of several ranks */
    CKPT_USED_RULES = 1u << 4,      /* slice_rules: slices were joined by these rules */
    CKPT_USED_WHOLE = 1u << 5,      /* whole_checkpoint: the path names one of several shards */
    CKPT_USED_CRC = 1u << 6,        /* require_crc: the format of the files has checksums */
    CKPT_USED_COPIES = 1u << 7,     /* ignore_copies: there are 16-bit copies beside masters */
    CKPT_USED_OBJECTS = 1u << 8,    /* keep_objects, drop_objects: there are unknown classes */
    CKPT_USED_SUB_GROUPS = 1u << 9, /* sub_group_size: the target has sub-groups */
    CKPT_USED_NAMES = 1u << 10      /* keep_names: names have prefixes of wrappers */
};

/* One axis of a box: elements start..start+count-1; in the source they are stride bytes apart. */
typedef struct ckpt_axis {
    uint64_t start, count; /* elements */
    int64_t stride;        /* bytes; 0 is a broadcast; the readers never make it negative */
} ckpt_axis;

/*
 * The location of the elements of one box of a tensor.
 *
 * ndim is the tensor's own number of axes, or 1 for a *flat* extent: an interval of the tensor
 * flattened row-major (ZeRO partitions tensors this way; for a 1-axis tensor both forms are the
 * same). A tensor without axes has one flat extent of one element. Packed elements (F4, F6, blocks
 * of ggml's types) have no byte address, so extents begin and end with whole blocks, and the stride
 * of their last axis, along which blocks follow each other, is 0.
 */
typedef struct ckpt_extent {
    uint32_t source; /* index in the map's table of sources */
    uint32_t ndim;
    uint64_t at;           /* byte offset in the source of the box's first element */
    const ckpt_axis *axis; /* ndim axes, in the map's arena */
} ckpt_extent;

/*
 * A logical tensor of a map. Everything it points to lives and dies with the map. Only the library
 * makes tensors: each has further members of the library's own behind these.
 */
typedef struct ckpt_tensor {
    const char *name; /* UTF-8, no NUL inside */
    ckpt_dtype dtype; /* of the elements as the extents hold them */
    /* default dtype of an export without --dtype; NONE: the same as dtype */
    ckpt_dtype export_dtype;
    uint32_t ndim;
    const uint64_t *shape; /* elements; row-major */
    uint64_t n_elems;      /* product of shape */
    uint32_t role;         /* ckpt_role */
    uint32_t flags;        /* CKPT_TENSOR_* */
    /* boxes that cover each element exactly once, flat ones ascending: ckpt_tensor_extent */
    uint32_t n_extents;
    uint32_t file; /* target maps: the output file that holds it */
    /* tied: the tensor of this map that holds the bytes, or NULL */
    const struct ckpt_tensor *owner;
    /* target maps: its name in the source map; NULL: a record with parts of several, or of none */
    const char *origin;
#ifdef CKPT_TENSOR_INTERNAL /* only in the library's own build; programs never define it */
    CKPT_TENSOR_INTERNAL
#endif
} ckpt_tensor;

/* Storage for an extent that ckpt_tensor_extent computes. */
typedef struct ckpt_box {
    ckpt_extent extent;
    ckpt_axis axis;
} ckpt_box;

/*
 * A file outside of the file system: its bytes come from the caller, who keeps ctx valid until the
 * map is freed.
 *
 * read_at  reads exactly n bytes at offset `at`, within n_bytes, into buf. Many threads call it at
 *          once. Returns 0, or the errno of the failure
 */
typedef struct ckpt_input {
    size_t size; /* sizeof this struct, or 0: see ckpt.h */
    uint64_t n_bytes;
    int (*read_at)(void *ctx, void *buf, uint64_t n, uint64_t at);
    void *ctx;
} ckpt_input;

/* A slice of one axis: count elements start, start + step ...; step 0 is 1. */
typedef struct ckpt_slice {
    uint64_t start, count, step;
} ckpt_slice;

/*
 * The facts about the training run of a checkpoint that programs act on. Texts live as long as the
 * map; NULL: not known.
 */
typedef struct ckpt_training_info {
    size_t size;              /* sizeof this struct, or 0: see ckpt.h; not changed */
    bool training;            /* the format keeps training state (CKPT_READS_STATE) */
    int stage;                /* stage of ZeRO; -1: not known */
    uint32_t world;           /* data-parallel ranks; 0: not known */
    int64_t step;             /* global_steps; -1: not known */
    const char *tag;          /* "global_step4" */
    const char *version;      /* version of DeepSpeed: "0.12.6" */
    const char *model_type;   /* config.json: "llama" */
    const char *architecture; /* config.json: "LlamaForCausalLM" */
    const char *quantized;    /* config.json: "fp8, blocks of 128 x 128"; NULL: not quantized */
} ckpt_training_info;

/*
 * Called now and then, and at the end, by one thread at a time, which may be one of the library's.
 * done and total are bytes; those of a conversion are bytes read plus bytes written. A non-zero
 * return cancels the run (CKPT_ECANCELED); no call follows.
 */
typedef int (*ckpt_progress_fn)(void *ctx, uint64_t done, uint64_t total);

/* Whether the pages that a run adds to the page cache stay there. */
typedef enum ckpt_cache {
    CKPT_CACHE_AUTO, /* drop them if the run reads and writes more than half of the memory */
    CKPT_CACHE_KEEP,
    CKPT_CACHE_DROP /* drop them, except of files that were mostly cached before the run */
} ckpt_cache;

/* Hashes of the bytes that a run writes (ckpt_extra.h). */
typedef struct ckpt_hashes ckpt_hashes;

typedef struct ckpt_run_opts {
    size_t size;     /* sizeof this struct, or 0: see ckpt.h */
    uint64_t memory; /* bytes of payload buffers in all; 0: 256 MiB */
    unsigned jobs;   /* threads; 0: one per processor, at most 8 */
    bool force;      /* replace existing outputs */
    bool skip_fsync; /* do not wait for the disk: for scratch use only */
    ckpt_progress_fn progress;
    void *progress_ctx;
    /*
     * write infinity for a value that overflows its new dtype; false: such a value fails the run
     * (CKPT_EDOUBT) before any output appears
     */
    bool allow_overflow;
    /* fail the run (CKPT_EDOUBT) for every warning: values that are not finite ... */
    bool strict;
    ckpt_cache cache;
    ckpt_hashes *hashes; /* gets the SHA-256 of everything that is written; or NULL */
} ckpt_run_opts;

/* The counts and checks of a run. */
typedef struct ckpt_run_report {
    size_t size; /* sizeof this struct, or 0: see ckpt.h; not changed */
    uint64_t n_tensors, n_elems;
    uint64_t n_read, n_written; /* payload bytes; a deflated output counts the bytes of its file */
    uint64_t n_records_checked; /* records with a correct CRC */
    uint64_t n_records_no_crc;  /* records without one */
    uint64_t n_compared;        /* elements equal to their 16-bit copy */
    uint64_t n_nan, n_inf;      /* elements of the output (if only reading: of the source) */
    uint64_t n_files;
    double seconds;
    /* elements that differ from their 16-bit copy in a run that lets copies differ (ZenFlow) */
    uint64_t n_unlike;
    /* of n_files: finished by an interrupted run before; their bytes are not in n_written */
    uint64_t n_files_kept;
    /*
     * Entries of the training state: a moment or step count of a parameter, a value of a group, a
     * scheduler ...
     */
    uint64_t n_state_carried, n_state_rewritten, n_state_left_out;
    uint64_t n_source_nan, n_source_inf; /* numbers in the source, before conversion */
    /*
     * elements beyond the range of their new dtype: written as infinity, or as its largest number
     */
    uint64_t n_over;
    uint64_t n_zero; /* elements that were not zero and were rounded to zero */
    /* the run dropped the pages that it had added to the page cache (ckpt_cache) */
    bool let_go;
    /* ckpt_verify: bytes of tensors, and the part of them that no checksum of their file covers */
    uint64_t n_payload, n_unvouched;
} ckpt_run_report;

/* Counts of the reads through a view so far. Later releases append members. */
typedef struct ckpt_view_counts {
    uint64_t n_held;   /* records with a correct CRC */
    uint64_t n_bad;    /* records with a wrong CRC */
    uint64_t n_partly; /* records read only in part: their CRC is unknown */
    uint64_t n_no_crc; /* records without a CRC */
    /* elements, as in ckpt_run_report; an element that was converted twice counts twice */
    uint64_t n_elems, n_compared, n_nan, n_inf, n_source_nan, n_source_inf, n_over, n_zero;
} ckpt_view_counts;

/* Receives the bytes of a file in order; an error ends the stream and is returned. */
typedef int (*ckpt_view_write_fn)(void *ctx, const void *bytes, uint64_t n, ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
