/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h: what calls and persistent ids in a pickle mean: tensors, storages, sizes, dicts.
 *
 * Shared by the machine (read.c), which owns the stack, and the calls (call.c,
 * tensor.c, storage.c), which make nodes.  Nothing here touches the stream.
 */
#ifndef CKPT_CODEC_PICKLE_TORCH_H
#define CKPT_CODEC_PICKLE_TORCH_H

#include "libckpt/base/index.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/pickle/trust.h"

/* Marks of nodes while a pickle is read; all are 0 again when the reader returns. */
#define CKPT_PK_FRESH  0x80000000u /* a container, not yet visited by the closing walk */
#define CKPT_PK_FIXED  0x40000000u /* a set whose items belong to a list: nothing may be added */
#define CKPT_PK_SHARED 0x20000000u /* a container that was taken out of the memo, or twice */
#define CKPT_PK_NUMBER                                                                             \
    0x00FFFFFFu /* dicts: 1 + number of the index of keys.  GLOBAL: of the name */

/* A name that was met: the node that stands for it, and what it is. */
typedef struct ckpt_pk_name {
    ckpt_value *global; /* the GLOBAL */
    ckpt_value *node;   /* what is pushed: the GLOBAL, or a DTYPE */
    ckpt_name_id id;
} ckpt_pk_name;

CKPT_VEC(ckpt_pk_names, ckpt_pk_name);
CKPT_VEC(ckpt_pk_indexes, ckpt_index);

/* What one reading of a pickle carries along. */
typedef struct ckpt_pk {
    ckpt_pickle *out;
    ckpt_arena *arena;
    const ckpt_pickle_opts *opts;
    ckpt_err *err;
    uint64_t at;            /* offset of the current opcode */
    uint64_t n_copies_left; /* items and bytes that calls may still copy or look at */
    uint64_t arena_cap;     /* bytes that the arena may have handed out */
    ckpt_pk_names names;
    ckpt_index name_index, storage_index;
    ckpt_pk_indexes dicts;               /* keys of dicts that outgrew a linear scan */
    ckpt_value *none, *yes, *no, *empty; /* empty: the tuple () */
} ckpt_pk;

/* Record a failure, prefixed with the pickle's name and the opcode's offset. */
int ckpt_pk_fail(const ckpt_pk *p, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* Cut a text for a message. */
static inline int ckpt_pk_cut(ckpt_text s)
{
    return s.n > 80 ? 80 : (int)s.n;
}

/* The failure of every allocation here. */
static inline int ckpt_pk_no_memory(const ckpt_pk *p)
{
    return ckpt_pk_fail(p, CKPT_ELIMIT, "out of memory, or over the limit for one pickle");
}

/* A node, or NULL with the failure recorded.  Containers are marked for the closing walk. */
ckpt_value *ckpt_pk_node(const ckpt_pk *p, ckpt_value_kind kind);

/* Count work that one short call can ask for on things of any size; CKPT_ELIMIT when it is too
 * much. */
int ckpt_pk_charge(ckpt_pk *p, uint64_t n);

/* The node of a name, refusing the unsafe ones. */
int ckpt_pk_name_node(ckpt_pk *p, ckpt_value **out, ckpt_text module, ckpt_text name);

/* What a node stands for: CKPT_NAME_UNSAFE if it is not a name at all. */
ckpt_name_id ckpt_pk_id(const ckpt_pk *p, const ckpt_value *v);

/* Refuse a value that must not be stored anywhere: getattr, functools.partial are only called. */
int ckpt_pk_check_item(const ckpt_pk *p, const ckpt_value *v);

/* Hash a dict key or an item of a set: what cannot be one fails, long ones are charged for. */
int ckpt_pk_hash(ckpt_pk *p, const ckpt_value *key, uint32_t *out);

/* Set a key of a dict-like node; duplicates and unhashable keys are errors. */
int ckpt_pk_set_item(ckpt_pk *p, ckpt_value *dict, ckpt_value *key, ckpt_value *value);

/* The same for a key and its value in turn: an even number of items. */
int ckpt_pk_set_items(ckpt_pk *p, ckpt_value *dict, const ckpt_seq *items);

/* The result of calling callee with a tuple of arguments (REDUCE, INST, OBJ). */
int ckpt_pk_call(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args);

/* The result of cls.__new__(cls, *args, **kwargs); kwargs NULL for NEWOBJ. */
int ckpt_pk_make(ckpt_pk *p, ckpt_value **out, ckpt_value *cls, ckpt_value *args,
                 ckpt_value *kwargs);

/* BUILD: give an object its state. */
int ckpt_pk_build(ckpt_pk *p, ckpt_value *v, ckpt_value *state);

/* What a persistent id stands for: a storage, or the class in a legacy ('module', ...) id. */
int ckpt_pk_persistent(ckpt_pk *p, ckpt_value **out, ckpt_value *id);

/* Tensors (tensor.c): the calls of torch._utils and torch._tensor. */
int ckpt_pk_tensor(ckpt_pk *p, ckpt_value **out, ckpt_value *callee, ckpt_value *args);

/* True for the names that ckpt_pk_tensor takes. */
bool ckpt_pk_rebuilds(ckpt_name_id id);

/* An object made by a call: kept with its callee and arguments. */
int ckpt_pk_object(ckpt_pk *p, ckpt_value **out, ckpt_object_form form, ckpt_value *cls,
                   ckpt_value *args);

#endif
