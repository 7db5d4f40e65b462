/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h: represents a checkpoint as a map from tensors to bytes (ckpt.h's opaque ckpt_map).
 *
 * A map has files, sources in them (byte ranges of files, or memory), logical tensors whose extents
 * refer to sources, the tree of values, and the findings. The same structure describes inputs and
 * outputs: a driver's `place` gives a target map its files, sources, extents and literal bytes.
 */
#ifndef CKPT_MAP_MAP_H
#define CKPT_MAP_MAP_H

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/file_format.h"
#include "libckpt/map/state.h"
#include "libckpt/map/value.h"

typedef enum ckpt_source_kind {
    CKPT_SOURCE_FILE,   /* n_stored bytes of a file */
    CKPT_SOURCE_MEMORY, /* a buffer of this process */
    CKPT_SOURCE_ZERO,   /* endless zeros (padding) */
    /* bytes in another process: layouts may use their size, reading them is an error */
    CKPT_SOURCE_ELSEWHERE,
    /* n_bytes that a function of the map's maker reads: a GPU's memory (ckpt_far) */
    CKPT_SOURCE_FAR,
    CKPT_SOURCE_TENSOR, /* the dense row-major elements of a tensor of the same map (nest.h) */
    CKPT_SOURCE_MADE    /* computed elements (ckpt_make) */
} ckpt_source_kind;

/*
 * Bytes without a host pointer. The map's maker embeds this as the first member of its own struct
 * and keeps it as long as the map.
 *
 * read     copies n bytes from offset `at`, all inside the source, to host memory. Several threads
 *          call it at once.
 */
typedef struct ckpt_far ckpt_far;
struct ckpt_far {
    int (*read)(const ckpt_far *far, void *to, uint64_t n, uint64_t at, ckpt_err *err);
};

/*
 * The functions that give an operation its inputs; one object serves one thread and one call.
 *
 * read     reads part->count elements of tensor t from element part->start of its flattened form,
 *          as values of dtype (NONE: t's own), into buf; part has no stride
 * scratch  returns n bytes that last until the operation returns or calls it again; NULL: no memory
 * keep     returns n bytes that keep the owner's contents until another owner calls on this thread,
 *          or the operation fails; *fresh: the caller must fill them. NULL: no memory
 */
typedef struct ckpt_inputs ckpt_inputs;
struct ckpt_inputs {
    int (*read)(ckpt_inputs *in, const ckpt_tensor *t, const ckpt_axis *part, ckpt_dtype dtype,
                void *buf, ckpt_err *err);
    void *(*scratch)(ckpt_inputs *in, uint64_t n);
    void *(*keep)(ckpt_inputs *in, const void *owner, uint64_t n, bool *fresh);
};

/*
 * An operation that computes elements from those of other tensors. The map's maker embeds this as
 * the first member of its own struct and keeps it as long as the map.
 *
 * prepare  called once before the first make, by one thread: reads small inputs that the operation
 *          needs whole. NULL: nothing to prepare. It may be called again after a failure.
 * make     computes n elements from element `at` into `to`. Several threads call it at once, and
 *          may compute the same elements more than once.
 * step     most elements of one call of make, which then does not cross a multiple of it, so that
 *          scratch memory does not grow with the caller's blocks; 0: any number
 * release  frees the results of prepare, when the map is freed; may be called more than once. NULL:
 *          nothing to free
 */
typedef struct ckpt_make ckpt_make;
struct ckpt_make {
    const char *name;                /* name in messages: "model.norm.weight, merged" */
    ckpt_dtype dtype;                /* dtype of the computed elements */
    uint32_t n_inputs;               /* number of tensors that prepare and make may read */
    const ckpt_tensor *const *input; /* these tensors, of the same map, in its list or hidden */
    /*
     * the other values that the result depends on; two runs with equal terms compute equal bytes;
     * may be NULL
     */
    const char *terms;
    uint64_t step;
    int (*prepare)(ckpt_make *m, ckpt_inputs *in, ckpt_err *err);
    int (*make)(const ckpt_make *m, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                ckpt_err *err);
    void (*release)(ckpt_make *m);
    uint8_t state; /* whether prepare was called: 0 at first; only the map's reader changes it */
};

typedef enum ckpt_coding { CKPT_RAW, CKPT_DEFLATE } ckpt_coding;

typedef struct ckpt_source {
    uint8_t kind; /* ckpt_source_kind */
    /* ckpt_coding of the stored bytes; offsets in extents always refer to the decoded ones */
    uint8_t coding;
    uint8_t swap; /* size of the byte-swapped unit, in a file of the other byte order */
    /* a complete file to copy unchanged: it contains records that are checked elsewhere */
    uint8_t whole;
    uint8_t has_crc;   /* crc is known and must match before any byte is used */
    uint32_t crc;      /* CRC-32 of the decoded bytes */
    uint32_t file;     /* index in the map's files (kind FILE) */
    uint64_t at;       /* byte offset in the file */
    uint64_t n_stored; /* bytes in the file */
    uint64_t n_bytes;  /* decoded bytes */
    /*
     * kind MEMORY: n_bytes, owned by the map's maker; plans that fill it write to it. kind FAR: a
     * ckpt_far, only read. kind MADE: a ckpt_make
     */
    void *memory;
    const ckpt_tensor *tensor; /* kind TENSOR */
    /*
     * kind FILE: at and n_stored are those of an archive that contains the bytes; the driver's own
     * data, until ckpt_map.settle has found them. NULL: the bytes lie at `at`
     */
    const void *inner;
    const char *name; /* name in messages: "archive/data/3"; may be NULL */
} ckpt_source;

/* Bytes that a driver writes itself: headers, directories, complete small files. */
typedef struct ckpt_literal {
    uint64_t at; /* offset in the file */
    uint64_t n;
    const void *bytes; /* in the map's arena */
} ckpt_literal;

CKPT_VEC(ckpt_literals, ckpt_literal);
CKPT_VEC(ckpt_storages, ckpt_storage *);

/*
 * Written: one of several models in a map. All of its tensors' names begin with `prefix` ("unet/"),
 * which its files leave out; they store `metadata` instead of the map's.
 */
typedef struct ckpt_component {
    const char *prefix;
    ckpt_dict metadata;
} ckpt_component;

typedef struct ckpt_map_file {
    const char *path;   /* read: as opened. written: relative to the target folder */
    const char *prefix; /* written torch files: name of the archive's top folder; else NULL */
    uint64_t size;
    /* read: identity, checked again when the file is opened and at the end of a run */
    uint64_t dev, ino;
    int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
    const ckpt_input *input; /* read: the caller provides the bytes; NULL: the file system does */
    const ckpt_format *format;
    ckpt_literals literals; /* written */
    /* written torch files: the tree to pickle; NULL: a dict of the file's tensors */
    ckpt_value *tree;
    /*
     * storages of tree, in the order of their records; each refers to a source of this map whose
     * n_bytes are set and whose offset the driver fixes
     */
    ckpt_storages storages;
    void *state; /* written: the driver's own data, between place and seal; in the arena */
    bool placed; /* written: the directory driver has already fixed its offsets */
    /*
     * written: deflated after it is complete; until then `size` is that of its uncompressed form
     * (commit/recompress.h)
     */
    bool packed;
    /*
     * written: the data-parallel rank that owns the file; UINT32_MAX: any rank writes the same file
     */
    uint32_t rank;
    /* written: by another process with the same layout, so this one neither plans nor writes it */
    bool elsewhere;
    const ckpt_component *component; /* written safetensors files: its model; NULL: the whole map */
} ckpt_map_file;

typedef enum ckpt_severity { CKPT_INFO, CKPT_WARNING, CKPT_ERROR } ckpt_severity;

typedef struct ckpt_finding {
    ckpt_severity severity;
    int code; /* CKPT_E* for errors, CKPT_OK otherwise */
    const char *text;
    /*
     * a static name: a layout map that looks up "args.<argument>" withdraws the finding; or NULL
     */
    const char *argument;
} ckpt_finding;

/* A fact about the checkpoint, for `info`: "stage" = 3, "world size" = 4. */
typedef struct ckpt_fact {
    const char *key;
    const char *text; /* printable form */
    int64_t number;
    bool is_number;
} ckpt_fact;

/* Types of keys, with GGUF's numbers (ggml, gguf.h, enum gguf_type). */
typedef enum ckpt_key_type {
    CKPT_KEY_U8 = 0,
    CKPT_KEY_I8 = 1,
    CKPT_KEY_U16 = 2,
    CKPT_KEY_I16 = 3,
    CKPT_KEY_U32 = 4,
    CKPT_KEY_I32 = 5,
    CKPT_KEY_F32 = 6,
    CKPT_KEY_BOOL = 7,
    CKPT_KEY_STRING = 8,
    CKPT_KEY_U64 = 10,
    CKPT_KEY_I64 = 11,
    CKPT_KEY_F64 = 12
} ckpt_key_type;

/* A typed pair at the start of a file: "llama.block_count", U32, 32. */
typedef struct ckpt_key {
    const char *name;
    uint8_t type; /* ckpt_key_type, of each item where it is a list */
    bool list;
    /* BOOL, INT, FLOAT or STR that fits the type (F32, F64: INT too), or a LIST of these */
    const ckpt_value *value;
} ckpt_key;

CKPT_VEC(ckpt_keys, ckpt_key);
CKPT_VEC(ckpt_sources, ckpt_source);
CKPT_VEC(ckpt_map_files, ckpt_map_file);
CKPT_VEC(ckpt_findings, ckpt_finding);
CKPT_VEC(ckpt_facts, ckpt_fact);
CKPT_VEC(ckpt_slots, uint32_t);
CKPT_VEC(ckpt_states, ckpt_state *);

/*
 * The declaration of a training target's writer about its output, and the fate of the source's
 * state after libckpt read the output back (libckpt/readback/readback.h). An entry is a moment or
 * step count of one parameter, or one value of a tree of values.
 */
typedef struct ckpt_claim {
    bool made;         /* the target holds training state */
    bool fresh;        /* moments and step counts are reset */
    bool drop_objects; /* values of unknown classes are dropped */
    /* for another release, which may list other names of the module as buffers, frozen or tied */
    bool other_release;
    bool keeps_ranked; /* the output keeps values that differ by rank: it has the same partitions */
    bool keeps_client; /* the output keeps the program's values that differ by rank */
    bool joins_groups; /* adjacent groups with equal settings become one parameter group */
    bool regroups;     /* groups are divided by names and shapes, and have another order */
    bool no_empty;     /* trained parameters without elements become frozen ones */
    int stage;         /* the stage in the output; -1: not declared */
    uint32_t world;    /* 0: not declared */
    ckpt_dtype dtype;  /* dtype of training; NONE: not declared */
    uint64_t n_carried, n_rewritten, n_left_out;
} ckpt_claim;

/* The role of a file name for programs that load such a folder. */
typedef enum ckpt_set_what {
    CKPT_SET_OTHER, /* loaders ignore it */
    CKPT_SET_HEAD,  /* loaders take the first head that exists */
    CKPT_SET_PART,  /* a shard, which a head refers to */
    CKPT_SET_NEAR   /* a variant of a head or shard, which loaders take only if asked for by name */
} ckpt_set_what;

typedef struct ckpt_set_name {
    uint8_t what;   /* ckpt_set_what */
    uint32_t order; /* heads: loaders prefer a smaller number */
    uint32_t kind;  /* heads and parts with the same number belong together: safetensors, .bin */
} ckpt_set_name;

/*
 * Written: the files of one model, in a folder that may hold other files. All of them replace the
 * old ones, or none does. The last file is the head and becomes visible last.
 */
typedef struct ckpt_set {
    const char *name; /* the hidden folder that they are written to: ".NAME.ckpt-partial" */
    ckpt_set_name (*look)(const char *file_name); /* NULL: a single file */
    /* keep heads of another kind, even those that loaders prefer to the new one */
    bool keep_others;
    /*
     * loaders read all heads and parts in the folder, so no old one may stay beside the new ones,
     * and no head may exist during the replacement
     */
    bool alone;
    /* heads and parts also lie in the folders of new files; `look` gets "unet/NAME" then */
    bool deep;
    const char
        *bridge; /* text of an index that refers to the parts by their hidden names; NULL: none */
    uint64_t n_bridge;
} ckpt_set;

/* The hidden name of a part. Loaders check the suffix, so the name ends in the part's own name. */
#define CKPT_SET_HIDDEN ".ckpt-new.%s"

/*
 * The model's configuration in the terms of the target format, as computed by a layout map
 * (keymap/keymap.h).
 *
 * file     "config.json", in the map's arena; NULL: no layout map was applied
 * value    a DICT of the known keys
 * missing  required keys without a value, for messages: "rope_theta, rms_norm_eps"; NULL: none
 * lost     keys of the source that change what the model computes and that `value` does not
 *          express, with their values, for messages; NULL: none
 * text     the caller's complete configuration, which `value` overrides; or NULL
 */
typedef struct ckpt_map_config {
    const char *file;
    const ckpt_value *value;
    const char *missing;
    const char *lost;
    const char *text;
} ckpt_map_config;

CKPT_VEC(ckpt_maps, ckpt_map *);

/* Whether a run's weights are those that its optimizer trains and not those that it evaluates. */
typedef enum ckpt_free_mode {
    CKPT_MODE_PLAIN,   /* no optimizer that distinguishes the two was seen */
    CKPT_MODE_UNKNOWN, /* a schedule-free optimizer, with settings that were not read */
    CKPT_MODE_TRAINS   /* a schedule-free optimizer, in training mode */
} ckpt_free_mode;

struct ckpt_map {
    ckpt_arena *arena;
    const char *path; /* the folder or file that was opened */
    /* the folder of the model's configuration and tokenizer; NULL: the folder of path */
    const char *model_folder;
    const char *format; /* "deepspeed", "safetensors", "torch" ... */
    ckpt_map_files files;
    ckpt_sources sources;
    ckpt_tensors tensors; /* in the checkpoint's order */
    ckpt_index names;     /* finds the tensors by name */
    ckpt_value *values;   /* root of the tree of values, or NULL */
    /* str -> str metadata of the format (safetensors' __metadata__) */
    ckpt_dict metadata;
    /*
     * the keys that the target's file begins with, as computed by a layout map (keymap/keymap.h),
     * in its order. A target map shares the values of its source map. Empty: no layout map was
     * applied
     */
    ckpt_keys keys;
    ckpt_map_config config; /* configuration of the source map */
    ckpt_findings findings;
    ckpt_facts facts;
    ckpt_training_info known; /* the facts that programs act on */
    ckpt_states states;       /* states of training runs: one per model-parallel rank (state.h) */
    ckpt_maps children;       /* adopted (adopt.h): freed with this map */
    unsigned effects;         /* CKPT_USED_*: options that had an effect */
    const char *no_state; /* the reason why a training format has no training state here, or NULL */
    bool no_optimizer;    /* true if the reason is that no optimizer state was saved */
    /*
     * written: data-parallel ranks with their own files (ckpt_map_file.rank); 0: no file belongs to
     * a rank
     */
    uint32_t ranks;
    /*
     * a state whose optimizer has parameters that the saved model lacks; no_state names them. A
     * layout map that makes them from the model's tensors turns it into the map's state; or NULL
     */
    ckpt_state *waiting;
    /*
     * Read: true if tensors have the order of the model, because the format of all files keeps it
     * or the driver knows it. no_order: the reason why not, if it is another than safetensors'
     * sorting
     */
    bool in_order;
    const char *no_order;
    /* the model_type in config.json, if it was looked up; or NULL */
    const char *model_type;
    bool collect; /* collect errors as findings instead of failing (verify) */
    bool outline; /* read: it may lack extents (CKPT_TENSOR_OUTLINE), so no tensor may be read */
    /*
     * Read: the folders that were already listed, so that they are not listed twice
     * (io/listing.h)
     */
    const struct ckpt_listed *listed;
    /*
     * Read: keep_header asks the driver to keep the data with which it compares the headers of
     * other files (header, in the arena). like: a map with such a header, or NULL
     * (ckpt_read_beside)
     */
    bool keep_header;
    const void *header;
    const ckpt_map *like;
    /*
     * Read: finds the bytes of a source with `inner`, in the file that io reads; NULL: no source
     * has it. Only ckpt_settle calls it (copy/nested.h), before any of these sources is read.
     */
    int (*settle)(ckpt_source *source, ckpt_io *io, ckpt_err *err);

    const char *into; /* written: the folder that receives the files; NULL: the runner decides */
    /* written: the importance matrix that its tensors are quantized by, a child; or NULL */
    const ckpt_map *importance;
    /* read: for messages, the kind of a file that is no model; NULL: it may be one */
    const char *other;

    /*
     * Written: the name, below the target's path, of a folder that contains all files and appears
     * complete or not at all (one path part; files may lie in subfolders, "zero/w/fp32.pt"), and a
     * small file beside it that is replaced last ("latest" and its text). NULL: the files have no
     * common folder.
     */
    const char *folder;
    const char *pointer, *pointer_text;
    ckpt_claim claim; /* written: training state */

    /*
     * the head has its own values, or is tied, even if the source's config.json declares otherwise
     */
    bool untied, tied;
    bool selected; /* the caller has selected tensors by their names */
    ckpt_free_mode mode;
    bool averaged; /* the caller has chosen averaged weights (ckpt_map_take_weights) */
    /* the tensors that were not selected; they show if the head is tied, for example */
    ckpt_tensor *const *left_out;
    size_t n_left_out;
    /*
     * the parts of a program's dict, if a model is one of several: ckpt_whole_text; NULL: a model
     * alone, or the caller has chosen the tensors
     */
    const char *dicts;
    /*
     * how the output's numbers are quantized, as JSON, for config.json; NULL: as in the source.
     * Its key: "quantization_config", or "quantization" for MLX
     */
    const char *quantization, *quantization_key;
    bool dequantized; /* config.json's quantization_config no longer applies */
    /* read: a pickle has tensors of quantized classes, of which ckpt_open makes floats */
    bool wrapped;
    /* read: a folder in it with a config.json of its own, by which its weights are quantized */
    const char *quantized_part;
    /*
     * the new number of rows of the vocabulary's tables, and the number in config.json (0: none);
     * vocab_size 0: unchanged
     */
    uint64_t vocab_size, vocab_was;
    /*
     * the weights are an adapter's: the bytes of its adapter_config.json; NULL: they are not, or
     * the file is in the checkpoint's folder
     */
    const char *adapter_config;
    uint64_t n_adapter_config;

    /*
     * without a folder: how the files are published together; NULL: each file is published by
     * itself
     */
    const ckpt_set *set;
};

/* A new empty map; limit caps its arena (0: default). */
int ckpt_map_create(ckpt_map **out, uint64_t limit, ckpt_err *err);
CKPT_API void ckpt_map_free(ckpt_map *map);

/* Append; indexes never change. path and name are copied. */
int ckpt_map_add_file(ckpt_map *map, const ckpt_map_file *file, uint32_t *index, ckpt_err *err);
int ckpt_map_add_source(ckpt_map *map, const ckpt_source *source, uint32_t *index, ckpt_err *err);
int ckpt_map_add_literal(ckpt_map *map, uint32_t file, uint64_t at, const void *bytes, uint64_t n,
                         ckpt_err *err);

/* The same as ckpt_map_add_source, for a name that lives as long as the source. */
int ckpt_map_push_source(ckpt_map *map, const ckpt_source *source, uint32_t *index, ckpt_err *err);

/*
 * Append a tensor. Name and shape are copied.
 *
 * Errors   CKPT_EFORMAT: the name is not acceptable (UTF-8, at most 64 KiB, no NUL) or exists
 *          already, more than CKPT_MAX_DIM axes, or the size overflows.
 */
int ckpt_map_add(ckpt_map *map, const char *name, uint64_t n_name, const ckpt_tensor *like,
                 ckpt_tensor **out, ckpt_err *err);

/* Add a hidden tensor with the current values of t, whose own are about to change. */
int ckpt_map_hide(ckpt_map *map, const ckpt_tensor *t, const ckpt_tensor **out, ckpt_err *err);

/* The same as ckpt_map_add, but outside of the map's list: for twins. */
int ckpt_map_add_hidden(ckpt_map *map, const char *name, uint64_t n_name, const ckpt_tensor *like,
                        ckpt_tensor **out, ckpt_err *err);

/* Append such a tensor to the list. CKPT_EFORMAT: its name exists already; CKPT_ELIMIT */
int ckpt_map_append(ckpt_map *map, ckpt_tensor *t, ckpt_err *err);

/*
 * Give a tensor n extents, copied with their axes; empty ones are dropped if the tensor has
 * elements.
 */
int ckpt_map_back(ckpt_map *map, ckpt_tensor *t, const ckpt_extent *extent, uint32_t n,
                  ckpt_err *err);

/* Copy n parts into the map, for tensors to refer to. */
int ckpt_map_parts(ckpt_map *map, const ckpt_part *part, uint32_t n, const ckpt_parts **out,
                   ckpt_err *err);

/* Give a tensor extents by rule; the rule is copied, its parts come from ckpt_map_parts. */
int ckpt_map_cut(ckpt_map *map, ckpt_tensor *t, const ckpt_cut *cut, ckpt_err *err);

/* Give a tensor one flat contiguous extent, from byte `at` of a source. */
int ckpt_map_back_whole(ckpt_map *map, ckpt_tensor *t, uint32_t source, uint64_t at, ckpt_err *err);

/* Index of a name, or SIZE_MAX. */
size_t ckpt_map_index(const ckpt_map *map, const char *name, size_t n);

/*
 * Rebuild the table of names after a change of map->tensors in place (dropped, renamed, reordered).
 *
 * Errors   CKPT_EMISMATCH: two tensors have one name; CKPT_ELIMIT
 */
int ckpt_map_reindex(ckpt_map *map, ckpt_err *err);

/* Add facts and findings; texts are copied. CKPT_ELIMIT: out of memory. */
int ckpt_map_fact(ckpt_map *map, ckpt_err *err, const char *key, const char *fmt, ...)
    CKPT_PRINTF(4, 5);
int ckpt_map_fact_int(ckpt_map *map, const char *key, int64_t number, ckpt_err *err);
int ckpt_map_note(ckpt_map *map, ckpt_severity severity, ckpt_err *err, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

/* Add a finding unless the map has it, so a finding of several ranks is reported once. */
int ckpt_map_note_once(ckpt_map *map, ckpt_severity severity, ckpt_err *err, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

/*
 * Report an inconsistency. With map->collect it becomes a finding and the result is CKPT_OK: the
 * reader goes on and reports them all; otherwise it fails with the code.
 */
int ckpt_map_problem(ckpt_map *map, int code, ckpt_err *err, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

/* Check that extents inside their sources cover each element of each owner exactly once. */
CKPT_API int ckpt_map_check(const ckpt_map *map, ckpt_err *err);

/* The same for one tensor with its copies and addends. */
int ckpt_map_check_tensor(const ckpt_map *map, const ckpt_tensor *t, ckpt_err *err);

/* Refuse a map without extents (ckpt_open_opts.outline) before its tensors are read. */
int ckpt_map_readable(const ckpt_map *map, ckpt_err *err);

/* True if n bytes are acceptable as a tensor name. */
bool ckpt_name_ok(const char *name, uint64_t n);

/* True if n bytes are well-formed UTF-8 without surrogates. */
bool ckpt_utf8_ok(const char *s, uint64_t n);

/* True if n bytes are one safe path part: 1..255 bytes, no '/', '\\', NUL; not "." or "..". */
bool ckpt_path_part_ok(const char *s, uint64_t n);

#endif
