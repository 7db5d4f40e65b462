/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h: holds the tree of everything in a checkpoint that is not tensor bytes.
 *
 * It is Python's data model as far as checkpoints need it, but inert: an unknown class stays a node
 * with its name, arguments and state, and can be written back; ckpt never resolves or calls
 * anything. Nodes live in an arena and are shared by pointer: the tree is a graph (possibly cyclic)
 * with the identities of the pickle. Walk it with a visited mark or a depth limit, never by plain
 * recursion, because that would not end.
 */
#ifndef CKPT_MAP_VALUE_H
#define CKPT_MAP_VALUE_H

#include "libckpt/base/mem.h"

typedef enum ckpt_value_kind {
    CKPT_V_NONE,
    CKPT_V_BOOL,  /* as.i: 0 or 1 */
    CKPT_V_INT,   /* as.i */
    CKPT_V_LONG,  /* beyond 64 bits: as.text holds two's complement bytes, little-endian */
    CKPT_V_FLOAT, /* as.f */
    /* as.text: UTF-8 (lone surrogates only if the pickle had them), may contain NULs */
    CKPT_V_STR,
    CKPT_V_BYTES,     /* as.text */
    CKPT_V_BYTEARRAY, /* as.text */
    CKPT_V_LIST,      /* as.seq */
    CKPT_V_TUPLE,     /* as.seq */
    CKPT_V_SIZE,      /* torch.Size: as.seq of ints */
    CKPT_V_SET,       /* as.seq */
    CKPT_V_FROZENSET, /* as.seq */
    CKPT_V_DICT,      /* as.map, insertion order */
    /* collections.OrderedDict: as.map; state = the argument of BUILD (_metadata), or NULL */
    CKPT_V_ODICT,
    CKPT_V_GLOBAL, /* a class or function that is only named: as.global */
    /* torch.<dtype>: as.dtype; a dtype unknown to this build is a GLOBAL instead */
    CKPT_V_DTYPE,
    CKPT_V_STORAGE, /* a storage outside of a tensor: as.storage */
    CKPT_V_TENSOR,  /* as.tensor */
    CKPT_V_OBJECT   /* an object made by a call or a class: as.object */
} ckpt_value_kind;

typedef struct ckpt_value ckpt_value;

typedef struct ckpt_text {
    const char *at; /* n bytes, and a terminator that n does not count */
    uint64_t n;
} ckpt_text;

/*
 * Containers. room is the array's capacity if ckpt_seq_add or ckpt_dict_add allocated it. Code that
 * sets at and n to its own array of exactly n leaves room 0; adding to it then copies the array
 * first.
 */
typedef struct ckpt_seq {
    ckpt_value **at;
    uint64_t n;
    uint64_t room;
} ckpt_seq;

typedef struct ckpt_pair {
    ckpt_value *key, *value;
} ckpt_pair;

typedef struct ckpt_dict {
    ckpt_pair *at;
    uint64_t n;
    uint64_t room;
} ckpt_dict;

/* A dotted Python name: module "torch._utils", name "_rebuild_tensor_v2". */
typedef struct ckpt_global {
    ckpt_text module, name;
} ckpt_global;

/* The storage of one or more tensors: a record of the file. */
typedef struct ckpt_storage {
    ckpt_text key;      /* "0": record data/<key> of a zip, or the key of a legacy file */
    ckpt_text location; /* "cpu", "cuda:0": only kept for writing back */
    ckpt_dtype dtype;   /* CKPT_DTYPE_NONE: untyped; n_elems then counts bytes */
    uint64_t n_elems;
    uint64_t n_bytes;
    uint32_t source; /* index in the map's sources, UINT32_MAX until bound to a record */
} ckpt_storage;

typedef struct ckpt_tensor_value {
    ckpt_storage *storage; /* NULL: a meta tensor without bytes */
    ckpt_dtype dtype;
    uint32_t ndim;
    const uint64_t *shape;  /* elements */
    const uint64_t *stride; /* elements */
    uint64_t offset;        /* elements of dtype from the start of the storage */
    uint32_t flags;         /* CKPT_TENSOR_* */
    ckpt_value *state;      /* Python attributes (_rebuild_from_type_v2, _with_state), or NULL */
    ckpt_value *type;       /* GLOBAL of the subclass given to _rebuild_from_type_v2, or NULL */
} ckpt_tensor_value;

typedef enum ckpt_object_form {
    CKPT_BY_REDUCE,
    CKPT_BY_NEWOBJ,
    CKPT_BY_NEWOBJ_EX,
    CKPT_BY_PERSID
} ckpt_object_form;

typedef struct ckpt_object {
    ckpt_object_form form;
    ckpt_value *cls;    /* GLOBAL, or an OBJECT that stands for a callable; NULL for PERSID */
    ckpt_value *args;   /* TUPLE (PERSID: the id itself) */
    ckpt_value *kwargs; /* DICT or NULL */
    ckpt_value *state;  /* BUILD, or NULL */
    ckpt_seq items;     /* APPENDS, ADDITEMS */
    ckpt_dict pairs;    /* SETITEMS */
} ckpt_object;

struct ckpt_value {
    ckpt_value_kind kind;
    uint32_t mark;     /* for walkers; 0 between walks */
    ckpt_value *state; /* ODICT and other containers that got a BUILD; or NULL */
    union {
        int64_t i;
        /* several objects that the reader's caller took over (ckpt_pickle_opts.take) */
        struct {
            int64_t first;
            uint64_t n;
        } taken;
        double f;
        ckpt_text text;
        ckpt_seq seq;
        ckpt_dict map;
        ckpt_global global;
        ckpt_dtype dtype;
        ckpt_storage *storage;
        ckpt_tensor_value *tensor;
        ckpt_object *object;
    } as;
};

/* Constructors, in the arena; NULL when it is exhausted. Strings are copied. */
ckpt_value *ckpt_value_new(ckpt_arena *a, ckpt_value_kind kind);
ckpt_value *ckpt_value_int(ckpt_arena *a, int64_t i);
ckpt_value *ckpt_value_float(ckpt_arena *a, double f);
ckpt_value *ckpt_value_bool(ckpt_arena *a, bool b);
ckpt_value *ckpt_value_str(ckpt_arena *a, const char *s, uint64_t n);
ckpt_value *ckpt_value_cstr(ckpt_arena *a, const char *s);

/*
 * An integer in decimal digits, perhaps after '-': INT if 64 bits hold it, else LONG. NULL: the
 * arena is exhausted, or the number takes more than 255 bytes.
 */
ckpt_value *ckpt_value_decimal(ckpt_arena *a, const char *digits);

enum { CKPT_VALUE_DIGITS = 640 }; /* room for 256 bytes in decimal, a sign and a terminator */

/* The bytes of a LONG as decimal digits, terminated; returns their number. */
size_t ckpt_value_digits(char out[CKPT_VALUE_DIGITS], ckpt_text bytes);

/* Grow a container by one (amortised): false when the arena is exhausted. */
bool ckpt_seq_add(ckpt_arena *a, ckpt_seq *seq, ckpt_value *item);
bool ckpt_dict_add(ckpt_arena *a, ckpt_dict *map, ckpt_value *key, ckpt_value *value);
bool ckpt_dict_add_cstr(ckpt_arena *a, ckpt_dict *map, const char *key, ckpt_value *value);

/* The value of a str key in a DICT or ODICT; NULL if v is NULL, no dict, or lacks it.  Linear. */
ckpt_value *ckpt_value_get(const ckpt_value *v, const char *key);

/* True for nodes that may hold others, which a walk of the graph must visit only once. */
bool ckpt_value_has_children(const ckpt_value *v);

/* True if v is a STR equal to s. */
bool ckpt_value_is(const ckpt_value *v, const char *s);

/* True for GLOBAL module.name. */
bool ckpt_value_is_global(const ckpt_value *v, const char *module, const char *name);

/*
 * Sequence view of LIST, TUPLE, SIZE, SET, FROZENSET (else an empty one); map view of DICT, ODICT.
 */
ckpt_seq ckpt_value_seq(const ckpt_value *v);
ckpt_dict ckpt_value_map(const ckpt_value *v);

/*
 * Read an INT or BOOL into *out, or an OBJECT of an enum class whose one argument is an int,
 * because some checkpoints store it that way.
 */
bool ckpt_value_as_int(const ckpt_value *v, int64_t *out);

/*
 * Compare two trees without tensors by content, bounded: false as soon as more than max_nodes pairs
 * were compared. Tensors compare by dtype and shape only.
 */
bool ckpt_value_equal(const ckpt_value *a, const ckpt_value *b, uint64_t max_nodes);

/*
 * The same, for messages that state a difference: memory that runs out is none.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_value_compare(bool *equal, const ckpt_value *a, const ckpt_value *b, uint64_t max_nodes,
                       ckpt_err *err);

#endif
