/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h: makes nodes for the calls and persistent ids in a pickle: tensors, storages, sizes,
 * dicts.
 *
 * The machine (read.c), which owns the stack, and the files for calls (call.c, tensor.c,
 * storage.c), which make nodes, share it.  No function here reads the stream.
 */
#ifndef CKPT_CODEC_PICKLE_TORCH_H
#define CKPT_CODEC_PICKLE_TORCH_H

#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/pattern.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/pickle/trust.h"

/* Marks of nodes during the reading of a pickle; all are 0 again when the reader returns. */
#define CKPT_PK_FRESH 0x80000000u /* a container that the closing walk has not visited yet */
/* a set that shares the items of a list, so no item may be added */
#define CKPT_PK_FIXED  0x40000000u
#define CKPT_PK_SHARED 0x20000000u /* a container that was read from the memo, or duplicated */
#define CKPT_PK_NUMBER                                                                             \
    0x00FFFFFFu /* dicts: 1 + number of its index of keys.  GLOBAL: number of its name */

/* A name in the pickle, with its node and its class of trust. */
typedef struct ckpt_pk_name {
    ckpt_value *global; /* the GLOBAL */
    ckpt_value *node;   /* the node to push: the GLOBAL, or a DTYPE */
    ckpt_name_id id;
    bool free; /* known to be called by data with any arguments (call.c) */
    /* of a class that the caller takes objects of (repeat.c): */
    ckpt_pk_pattern *pattern;
    unsigned n_patterns, n_tries; /* its patterns, and the recordings for them */
} ckpt_pk_name;

CKPT_VEC(ckpt_pk_names, ckpt_pk_name);
CKPT_VEC(ckpt_pk_indexes, ckpt_index);

/* The state of reading one pickle. */
typedef struct ckpt_pk {
    ckpt_pickle *out;
    ckpt_arena *arena;
    const ckpt_pickle_opts *opts;
    ckpt_err *err;
    uint64_t at;            /* offset of the current opcode */
    uint64_t n_copies_left; /* items and bytes that calls may still copy or examine */
    uint64_t arena_cap;     /* limit of the arena's total size */
    ckpt_pk_names names;
    ckpt_index name_index, storage_index;
    ckpt_pk_indexes dicts;               /* indexes of dicts that are too large for a linear scan */
    ckpt_value *none, *yes, *no, *empty; /* the constants; empty: the tuple () */
} ckpt_pk;

/* Record a failure, prefixed with the pickle's name and the opcode's offset. */
int ckpt_pk_fail(const ckpt_pk *p, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* The length of a text, limited for a message. */
static inline int ckpt_pk_cut(ckpt_text s)
{
    return s.n > 80 ? 80 : (int)s.n;
}

/* Fail because an allocation failed. */
static inline int ckpt_pk_no_memory(const ckpt_pk *p)
{
    return ckpt_pk_fail(p, CKPT_ELIMIT, "out of memory, or over the limit for one pickle");
}

/* Make a node; NULL: failed, already recorded.  Containers get a mark for the closing walk. */
ckpt_value *ckpt_pk_node(const ckpt_pk *p, ckpt_value_kind kind);

/*
 * Count the work of a call, because a short call can refer to values of any size; CKPT_ELIMIT: too
 * much work.
 */
int ckpt_pk_charge(ckpt_pk *p, uint64_t n);

/* Make or find the node of a name; unsafe names are refused. */
int ckpt_pk_name_node(ckpt_pk *p, ckpt_value **out, ckpt_text module, ckpt_text name);

/* The classification of a node's name; CKPT_NAME_UNSAFE: the node is not a name. */
ckpt_name_id ckpt_pk_id(const ckpt_pk *p, const ckpt_value *v);

/*
 * Refuse a value that may only be called and not stored: getattr, functools.partial ... A stored
 * one could be called later by another object.
 */
int ckpt_pk_check_item(const ckpt_pk *p, const ckpt_value *v);

/* Hash a dict key or an item of a set; an unhashable one fails, and a long one counts as work. */
int ckpt_pk_hash(ckpt_pk *p, const ckpt_value *key, uint32_t *out);

/* Set a key of a dict-like node; duplicates and unhashable keys are errors. */
int ckpt_pk_set_item(ckpt_pk *p, ckpt_value *dict, ckpt_value *key, ckpt_value *value);

/* Set keys and values, which alternate: an even number of items. */
int ckpt_pk_set_items(ckpt_pk *p, ckpt_value *dict, const ckpt_seq *items);

/* Compute the result of calling callee with a tuple of arguments (REDUCE, INST, OBJ). */
int ckpt_pk_call(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args);

/* Compute the result of cls.__new__(cls, *args, **kwargs); kwargs NULL for NEWOBJ. */
int ckpt_pk_make(ckpt_pk *p, ckpt_value **out, ckpt_value *cls, ckpt_value *args,
                 ckpt_value *kwargs);

/* Handle BUILD: give an object its state. */
int ckpt_pk_build(ckpt_pk *p, ckpt_value *v, ckpt_value *state);

/* Find the storage of a persistent id, or the class in a legacy ('module', ...) id. */
int ckpt_pk_persistent(ckpt_pk *p, ckpt_value **out, ckpt_value *id);

/* Handle the calls of torch._utils and torch._tensor, which make tensors (tensor.c). */
int ckpt_pk_tensor(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args);

/* True for the names that ckpt_pk_tensor handles. */
bool ckpt_pk_rebuilds(ckpt_name_id id);

/* Make an OBJECT for a call; it keeps the callee and the arguments. */
int ckpt_pk_object(ckpt_pk *p, ckpt_value **out, ckpt_object_form form, ckpt_value *cls,
                   ckpt_value *args);

#endif
