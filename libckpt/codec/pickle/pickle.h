/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h: the pickle codec: an interpreter that never resolves a name, and a writer.
 *
 * Reads protocols 0 to 5, writes protocol 2.  GLOBAL and its kin push an inert name; REDUCE, NEWOBJ
 * and BUILD make inert nodes.  A small switch over exact names turns what torch, DeepSpeed and
 * numpy write into tensors, storages, sizes, dtypes, ordered dicts; everything else stays an
 * object.  Names that could only be there to run code are refused (rules:
 * libckpt/codec/pickle/trust.c).
 */
#ifndef CKPT_CODEC_PICKLE_H
#define CKPT_CODEC_PICKLE_H

#include "libckpt/base/vec.h"
#include "libckpt/map/map.h"

typedef struct ckpt_pickle_opts {
    const char *name; /* for messages: "shard.pt: archive/data.pkl" */
    /* bytes after STOP are allowed (legacy torch files: several pickles in a row) */
    bool may_continue;
    bool legacy_storages; /* persistent ids have six fields (view metadata) */
    /*
     * Called for each object that has got its state, NULL: for none.  True: it was taken over, and
     * becomes an INT of *number whose `state` is its class (no pickle can make such a one); what it
     * was made of goes, unless something else refers to it.  So a pickle of a million objects needs
     * no memory for their parts.  As keys of a dict they are not compared.
     */
    bool (*take)(void *ctx, const ckpt_object *o, int64_t *number);
    void *ctx;
} ckpt_pickle_opts;

CKPT_VEC(ckpt_values, ckpt_value *);

typedef struct ckpt_pickle {
    ckpt_value *root; /* in the arena */
    /*
     * one per distinct key (empty ones: per key and dtype), in order of first use; source still
     * unbound
     */
    ckpt_storages storages;
    ckpt_values globals; /* every distinct GLOBAL met, in order */
    uint64_t n_objects;  /* nodes of unknown classes */
    uint64_t n_special;  /* tensors kept as objects: sparse, nested and other rare kinds */
    uint64_t end;        /* offset just after STOP */
    int protocol;
} ckpt_pickle;

/*
 * Read one pickle from n bytes.
 *
 * Errors   CKPT_EFORMAT (malformed; unknown storage class; tensor outside its storage; duplicate
 *          dict key ...), CKPT_EUNSAFE (a name that can run code), CKPT_ELIMIT (depth, memo, text
 *          numbers, memory), CKPT_EUNSUPPORTED (quantized or sparse tensors and other kinds that
 *          are recognised but not handled).
 * On failure nothing is left in out.  ckpt_pickle_free releases the vectors (nodes belong to the
 * arena).
 */
int ckpt_pickle_read(ckpt_pickle *out, ckpt_arena *arena, const uint8_t *bytes, uint64_t n,
                     const ckpt_pickle_opts *opts, ckpt_err *err);
void ckpt_pickle_free(ckpt_pickle *p);

/*
 * Append the protocol-2 pickle of a tree to out, as torch.save's pickler writes it: tensors by
 * _rebuild_tensor_v2 (or _v3 for dtypes without typed storage), _rebuild_parameter and
 * _rebuild_from_type_v2 where the tree has them; storages as persistent ids; unknown objects
 * verbatim.  Identities are kept by memo.
 * Errors   CKPT_ELIMIT, CKPT_EUNSUPPORTED
 */
int ckpt_pickle_write(ckpt_bytes *out, ckpt_value *root, ckpt_err *err);

#endif
