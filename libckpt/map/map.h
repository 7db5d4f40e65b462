/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h: a checkpoint as a map from tensors to bytes (what ckpt.h's opaque ckpt_map is).
 *
 * Files, the sources (byte ranges of files, or memory) in them, the logical tensors whose extents
 * name sources, the tree of values, and what was noticed on the way.  The same structure describes
 * what is read and what is to be written: a driver's `place` gives a target map its files, sources,
 * extents and literal bytes.
 */
#ifndef CKPT_MAP_MAP_H
#define CKPT_MAP_MAP_H

#include "libckpt/base/vec.h"
#include "libckpt/map/value.h"

struct ckpt_format; /* format.h; map only carries the pointer */

typedef enum ckpt_source_kind {
    CKPT_SOURCE_FILE,   /* n_stored bytes of a file */
    CKPT_SOURCE_MEMORY, /* a buffer of this process */
    CKPT_SOURCE_ZERO,   /* zeros without end (padding) */
    /* what another process holds: it counts for layouts, reading it is an error */
    CKPT_SOURCE_ELSEWHERE,
    /* n_bytes that a function of whoever made the map reads: a GPU's memory (ckpt_far) */
    CKPT_SOURCE_FAR,
    CKPT_SOURCE_TENSOR, /* the dense row-major elements of a tensor of the same map (nest.h) */
    CKPT_SOURCE_MADE    /* elements that an operation computes (ckpt_make) */
} ckpt_source_kind;

/*
 * Bytes that cannot be had through a pointer.  Whoever makes the map makes this the first member of
 * a struct of its own and keeps it as long as the map.
 *
 * read  n bytes from offset `at`, all inside the source, to memory of the host.  Several threads
 *       call it at once.
 */
typedef struct ckpt_far ckpt_far;
struct ckpt_far {
    int (*read)(const ckpt_far *far, void *to, uint64_t n, uint64_t at, ckpt_err *err);
};

/*
 * What an operation reads its inputs with; one belongs to one thread and one call.
 *
 * read     count elements of tensor t from element `first` of its flattened form on, as values of
 *          dtype (NONE: t's own), into buf
 * scratch  n bytes that last until the operation returns or asks again; NULL: no memory
 * keep     n bytes that stay as the owner has left them until another asks on this thread, or the
 *          operation fails; *fresh: they are to be filled.  NULL: no memory
 */
typedef struct ckpt_inputs ckpt_inputs;
struct ckpt_inputs {
    int (*read)(ckpt_inputs *in, const ckpt_tensor *t, uint64_t first, uint64_t count,
                ckpt_dtype dtype, void *buf, ckpt_err *err);
    void *(*scratch)(ckpt_inputs *in, uint64_t n);
    void *(*keep)(ckpt_inputs *in, const void *owner, uint64_t n, bool *fresh);
};

/*
 * An operation that computes elements from those of other tensors.  Whoever makes the map makes
 * this the first member of a struct of its own and keeps it as long as the map.
 *
 * prepare  called once before the first make, by one thread: reads what is small and wanted whole.
 *          NULL: nothing to prepare.  It may be called again after it has failed.
 * make     n elements from element `at` on, into `to`.  Several threads call it at once; the same
 *          elements may be asked for more than once.
 * release  frees what prepare has made, when the map is freed; may come more than once.  NULL:
 *          nothing to free
 */
typedef struct ckpt_make ckpt_make;
struct ckpt_make {
    const char *name;                /* for messages: "model.norm.weight, merged" */
    ckpt_dtype dtype;                /* of the elements made */
    uint32_t n_inputs;               /* all tensors that prepare and make may read */
    const ckpt_tensor *const *input; /* of the same map, in its list or hidden */
    const char *terms; /* what the result depends on beside the inputs; two runs of equal terms
                          make equal bytes; may be NULL */
    int (*prepare)(ckpt_make *m, ckpt_inputs *in, ckpt_err *err);
    int (*make)(const ckpt_make *m, ckpt_inputs *in, void *to, uint64_t n, uint64_t at,
                ckpt_err *err);
    void (*release)(ckpt_make *m);
    uint8_t state; /* of prepare; whoever reads through the map keeps it, 0 to begin with */
};

typedef enum ckpt_coding { CKPT_RAW, CKPT_DEFLATE } ckpt_coding;

typedef struct ckpt_source {
    uint8_t kind; /* ckpt_source_kind */
    /* ckpt_coding of the stored bytes; offsets in extents are always into the decoded ones */
    uint8_t coding;
    uint8_t swap; /* bytes in a file of the other byte order */
    /* a whole file to be passed on: its records, checked elsewhere, are inside */
    uint8_t whole;
    uint8_t has_crc;   /* crc is known and must hold when any byte is used */
    uint32_t crc;      /* CRC-32 of the decoded bytes */
    uint32_t file;     /* index in the map's files (kind FILE) */
    uint64_t at;       /* byte offset in the file */
    uint64_t n_stored; /* bytes in the file */
    uint64_t n_bytes;  /* decoded bytes */
    /*
     * kind MEMORY: n_bytes; owned by whoever made the map; written to by plans that fill it. kind
     * FAR: a ckpt_far; only read.  kind MADE: a ckpt_make
     */
    void *memory;
    const ckpt_tensor *tensor; /* kind TENSOR */
    /*
     * kind FILE: at and n_stored are those of an archive that holds the bytes somewhere inside;
     * the driver's own, until ckpt_map.settle has found them.  NULL: they are where at says
     */
    const void *inner;
    const char *name; /* for messages: "archive/data/3"; may be NULL */
} ckpt_source;

/* Bytes that a driver wants written as they are: headers, directories, whole small files. */
typedef struct ckpt_literal {
    uint64_t at; /* offset in the file */
    uint64_t n;
    const void *bytes; /* in the map's arena */
} ckpt_literal;

CKPT_VEC(ckpt_literals, ckpt_literal);
CKPT_VEC(ckpt_storages, ckpt_storage *);

typedef struct ckpt_map_file {
    const char *path;   /* read: as opened.  written: relative to the target folder */
    const char *prefix; /* written torch files: name of the archive's top folder; else NULL */
    uint64_t size;
    /* read: identity, checked again when the file is opened and at the end */
    uint64_t dev, ino;
    int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
    const ckpt_input *input; /* read: whose bytes are the caller's; NULL: the file system's */
    const struct ckpt_format *format;
    ckpt_literals literals; /* written */
    /* written torch files: the tree to pickle; NULL: a dict of the file's tensors */
    ckpt_value *tree;
    /*
     * of tree, in the order of their records; each bound to a source of this map whose n_bytes are
     * set and whose place the driver fixes
     */
    ckpt_storages storages;
    void *state; /* written: the driver's own, between place and seal; in the arena */
    bool placed; /* written: its place was fixed by the directory driver already */
    bool packed; /* written: deflated when it is complete, so that `size` is that of its first form
                    until then (copy/pack.h) */
    /*
     * written: data-parallel rank whose file it is; UINT32_MAX: the same whichever rank writes it
     */
    uint32_t rank;
    /* written: by another process, which lays out the same: not planned, not made here */
    bool elsewhere;
} ckpt_map_file;

typedef enum ckpt_severity { CKPT_INFO, CKPT_WARNING, CKPT_ERROR } ckpt_severity;

typedef struct ckpt_finding {
    ckpt_severity severity;
    int code; /* CKPT_E* for errors, CKPT_OK otherwise */
    const char *text;
} ckpt_finding;

/* What was understood, for `info`: "stage" = 3, "world size" = 4, in order. */
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

/* A typed pair that a file begins with: "llama.block_count", U32, 32. */
typedef struct ckpt_key {
    const char *name;
    uint8_t type; /* ckpt_key_type, of each item where it is a list */
    bool list;
    /* BOOL, INT, FLOAT or STR that the type holds (F32, F64: INT too), or a LIST of such */
    const ckpt_value *value;
} ckpt_key;

CKPT_VEC(ckpt_keys, ckpt_key);
CKPT_VEC(ckpt_sources, ckpt_source);
CKPT_VEC(ckpt_map_files, ckpt_map_file);
CKPT_VEC(ckpt_tensors, ckpt_tensor *);
CKPT_VEC(ckpt_findings, ckpt_finding);
CKPT_VEC(ckpt_facts, ckpt_fact);
CKPT_VEC(ckpt_slots, uint32_t);
CKPT_VEC(ckpt_states, struct ckpt_state *);

/*
 * What the writer of a training target says it writes, and what became of the source's state when
 * it was read back (libckpt/claim/claim.h).  An entry is a moment or step count of one parameter,
 * or one value of a tree of values.
 */
typedef struct ckpt_claim {
    bool made;            /* the target holds training state */
    bool fresh;           /* moments and step counts begin anew */
    bool objects_dropped; /* values of unknown classes are left out */
    bool other_release;   /* which may list other names of the module as buffers, frozen or tied */
    bool joins_groups;    /* neighbours with equal settings become one parameter group */
    bool no_empty;    /* the source's trained parameters without elements are no longer trained */
    int stage;        /* as a reader will see it; -1: does not say */
    uint32_t world;   /* 0: does not say */
    ckpt_dtype dtype; /* of training; NONE: does not say */
    uint64_t n_carried, n_rewritten, n_left_out;
} ckpt_claim;

/* What a file's name in a folder is to those who read such folders. */
typedef enum ckpt_set_what {
    CKPT_SET_OTHER, /* nothing that they choose by */
    CKPT_SET_HEAD,  /* they take the first head that is there */
    CKPT_SET_PART,  /* a head leads to it: a shard */
    CKPT_SET_NEAR   /* a variant of such, which they take when asked for by name */
} ckpt_set_what;

typedef struct ckpt_set_name {
    uint8_t what;   /* ckpt_set_what */
    uint32_t order; /* heads: less is preferred */
    uint32_t kind;  /* which heads and parts belong together: safetensors, .bin */
} ckpt_set_name;

/*
 * Written, where files stand in a folder that may hold others and yet are one thing: all of them
 * replace what is there, or none does.  The last file is the head, and becomes visible last.
 */
typedef struct ckpt_set {
    const char *name; /* of the hidden folder that they are written to: ".NAME.ckpt-partial" */
    ckpt_set_name (*look)(const char *file_name); /* NULL: one file, which stands for itself */
    bool keep_others; /* heads of another kind stay, even those that readers would take before the
                         new one */
    bool alone; /* readers take all heads and parts that are there: none may stay beside the new
                   ones, and while they are replaced there is no head */
    const char
        *bridge; /* an index: text that leads to the parts under their hidden names; NULL: none */
    uint64_t n_bridge;
} ckpt_set;

/* A part's hidden name, made of its own; readers look at how it ends. */
#define CKPT_SET_HIDDEN ".ckpt-new.%s"

/*
 * What a layout map says of the model in the words of the target's programs (remap/remap.h).
 *
 * file     "config.json", in the map's arena; NULL: no layout map said anything
 * value    a DICT of what is known
 * missing  what is not known and has to be, for messages: "rope_theta, rms_norm_eps"; NULL: nothing
 * text     the configuration that was given, complete as it is, before `value`; or NULL
 */
typedef struct ckpt_map_config {
    const char *file;
    const ckpt_value *value;
    const char *missing;
    const char *text;
} ckpt_map_config;

typedef struct ckpt_map ckpt_map;
struct ckpt_io;

CKPT_VEC(ckpt_maps, ckpt_map *);

struct ckpt_map {
    ckpt_arena *arena;
    const char *path; /* what it was opened from: the folder or file understood */
    /* the folder of its model's configuration and tokenizer; NULL: they stand beside path */
    const char *model_folder;
    const char *format; /* "deepspeed", "safetensors", "torch" ... */
    ckpt_map_files files;
    ckpt_sources sources;
    ckpt_tensors tensors; /* in the order the checkpoint has them */
    ckpt_slots slots;     /* hash table over names: index + 1, 0 = free */
    ckpt_value *values;   /* root of the tree of values, or NULL */
    /* str -> str that the format carries beside tensors (safetensors' __metadata__) */
    ckpt_dict metadata;
    /*
     * what a layout map says that the target's file begins with (remap/remap.h), in its order; a
     * target map has those of the map it was laid out from, whose values it shares.  Empty: there
     * is no such map
     */
    ckpt_keys keys;
    ckpt_map_config config; /* of the map that is written from */
    ckpt_findings findings;
    ckpt_facts facts;
    ckpt_known known;     /* of the facts, those with a meaning of their own */
    ckpt_states states;   /* of training runs: one per model-parallel rank (state.h) */
    ckpt_maps children;   /* adopted (adopt.h): freed with this map */
    unsigned effects;     /* CKPT_TOOK_*: options that found something to act on */
    const char *no_state; /* why there is no training state where one would be, or NULL */
    bool no_optimizer;    /* because nothing of an optimizer was saved */
    /* written: data-parallel ranks that have files of their own (ckpt_map_file.rank); 0: no file
     * is of a rank */
    uint32_t ranks;
    /*
     * a state whose optimizer has parameters that the model is saved without, and which no_state
     * names: a layout map that makes the model's of them makes it the map's state; or NULL
     */
    struct ckpt_state *waiting;
    /*
     * Read: tensors stand in the order in which a model gave them: the format of all files keeps
     * it, or the driver knows; or why they do not, where there is more to say than that
     * safetensors sorts them
     */
    bool in_order;
    const char *no_order;
    /* what config.json beside it says of the model's type, where somebody has looked; or NULL */
    const char *model_type;
    bool collect; /* keep errors as findings instead of failing (verify) */
    /* Read: the folders that were listed for it, which are not asked for twice (copy/listing.h) */
    const struct ckpt_listed *listed;
    /*
     * Read: the driver is to keep what the headers of other files can be held against (header, its
     * own, in the arena); a map that has such, or NULL (ckpt_read_beside)
     */
    bool keep_header;
    const void *header;
    const ckpt_map *like;
    /*
     * Read: finds the bytes of a source that has `inner`, in the file that io reads; NULL: none
     * has.  Called by ckpt_settle alone (copy/settle.h), before any of them is read.
     */
    int (*settle)(ckpt_source *source, struct ckpt_io *io, ckpt_err *err);

    const char *into; /* written: the folder that receives the files; NULL: the runner says */

    /*
     * Written, where all files make one folder that appears complete or not at all: its name below
     * the target's path (one path part; files may then lie in folders of their own,
     * "zero/w/fp32.pt"), and a small file beside it that is replaced last of all ("latest" and its
     * text).  NULL: files stand alone.
     */
    const char *folder;
    const char *pointer, *pointer_text;
    ckpt_claim claim; /* written: training state */

    /* the head has a tensor of its own, or is tied, whatever the source's config.json says */
    bool untied, tied;
    /* what a written config.json is to say as quantization_config, JSON; NULL: what it says */
    const char *quantization;
    bool dequantized; /* config.json's quantization_config is not true any more */
    /*
     * rows that the tables of the vocabulary were given, and what config.json says (0: nothing);
     * vocab_size 0: they are as they were
     */
    uint64_t vocab_size, vocab_was;
    /* the weights are an adapter's: the bytes of its adapter_config.json; NULL: they are not, or it
       lies beside them */
    const char *adapter_config;
    uint64_t n_adapter_config;

    const ckpt_set
        *set; /* without a folder: what the files are together; NULL: each stands alone */
};

/* A new empty map; limit caps its arena (0: default). */
int ckpt_map_new(ckpt_map **out, uint64_t limit, ckpt_err *err);
CKPT_API void ckpt_map_free(ckpt_map *map);

/* Append; indexes are stable.  path and name are copied. */
int ckpt_map_add_file(ckpt_map *map, const ckpt_map_file *file, uint32_t *index, ckpt_err *err);
int ckpt_map_add_source(ckpt_map *map, const ckpt_source *source, uint32_t *index, ckpt_err *err);
int ckpt_map_add_literal(ckpt_map *map, uint32_t file, uint64_t at, const void *bytes, uint64_t n,
                         ckpt_err *err);

/*
 * Append a tensor.  Name and shape are copied.
 *
 * Errors   CKPT_EFORMAT: the name is not acceptable (reliability 3.5: UTF-8, at most 64 KiB, no
 *          NUL) or already there, more than CKPT_MAX_DIM axes, or the size overflows.
 */
int ckpt_map_add(ckpt_map *map, const char *name, uint64_t n_name, const ckpt_tensor *like,
                 ckpt_tensor **out, ckpt_err *err);

/* The same without entering it in the list: for twins. */
int ckpt_map_add_hidden(ckpt_map *map, const char *name, uint64_t n_name, const ckpt_tensor *like,
                        ckpt_tensor **out, ckpt_err *err);

/*
 * Give a tensor its extents: n of them, copied with their axes; empty ones are left out if it has
 * elements.
 */
int ckpt_map_back(ckpt_map *map, ckpt_tensor *t, const ckpt_extent *extent, uint32_t n,
                  ckpt_err *err);

/* A list of parts for tensors of the map: n of them, copied. */
int ckpt_map_parts(ckpt_map *map, const ckpt_part *part, uint32_t n, const ckpt_parts **out,
                   ckpt_err *err);

/* Give a tensor extents by a rule, which is copied; its parts are of ckpt_map_parts. */
int ckpt_map_cut(ckpt_map *map, ckpt_tensor *t, const ckpt_cut *cut, ckpt_err *err);

/* One flat extent that covers the whole tensor, contiguous from byte at of a source. */
int ckpt_map_back_whole(ckpt_map *map, ckpt_tensor *t, uint32_t source, uint64_t at, ckpt_err *err);

/* Index of a name, or SIZE_MAX. */
size_t ckpt_map_index(const ckpt_map *map, const char *name, size_t n);

/*
 * Rebuild the table of names after map->tensors was changed in place (dropped, renamed, reordered).
 * Errors   CKPT_EMISMATCH: two tensors have one name; CKPT_ELIMIT
 */
int ckpt_map_reindex(ckpt_map *map, ckpt_err *err);

/* Facts and findings: text is copied.  Failing to store one is CKPT_ELIMIT. */
int ckpt_map_fact(ckpt_map *map, ckpt_err *err, const char *key, const char *fmt, ...)
    CKPT_PRINTF(4, 5);
int ckpt_map_fact_int(ckpt_map *map, const char *key, int64_t number, ckpt_err *err);
int ckpt_map_note(ckpt_map *map, ckpt_severity severity, ckpt_err *err, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

/*
 * An inconsistency: with map->collect it becomes a finding and the result is CKPT_OK, so that the
 * reader goes on and reports them all; else it fails with the code.
 */
int ckpt_map_problem(ckpt_map *map, int code, ckpt_err *err, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

/* Each tensor covered exactly once by extents that lie inside their sources (owners only). */
CKPT_API int ckpt_map_check(const ckpt_map *map, ckpt_err *err);

/* True if n bytes are acceptable as a tensor name. */
bool ckpt_name_ok(const char *name, uint64_t n);

/* True if n bytes are well-formed UTF-8 without surrogates. */
bool ckpt_utf8_ok(const char *s, uint64_t n);

/* True if n bytes are one safe path part: 1..255 bytes, no '/', '\\', NUL; not "." or "..". */
bool ckpt_path_part_ok(const char *s, uint64_t n);

#endif
