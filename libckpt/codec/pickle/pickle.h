/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h: reads pickles with an interpreter that never imports a name, and writes pickles.
 *
 * The reader handles protocols 0 to 5, the writer uses protocol 2.  GLOBAL and similar opcodes push
 * an inert name; REDUCE, NEWOBJ and BUILD make inert nodes.  Exact names from torch, DeepSpeed and
 * numpy turn into tensors, storages, sizes, dtypes and ordered dicts; everything else stays an
 * object.  A name that can only serve to run code is refused (rules: libckpt/codec/pickle/trust.c).
 */
#ifndef CKPT_CODEC_PICKLE_H
#define CKPT_CODEC_PICKLE_H

#include "libckpt/base/vec.h"
#include "libckpt/map/map.h"

typedef struct ckpt_pickle_opts {
    const char *name; /* name in messages: "shard.pt: archive/data.pkl" */
    /* allow bytes after STOP (legacy torch files: several pickles in a row) */
    bool may_continue;
    bool legacy_storages; /* persistent ids have six fields (view metadata) */
    /*
     * Called for each object that has received its state; NULL: never called.
     *
     * True: the caller has taken over the object.  It becomes an INT of *number with its class as
     * `state`, a combination that no pickle can make, and its parts are freed unless another value
     * refers to them.  Therefore a pickle of a million objects needs no memory for their parts.
     * Such objects are not compared as keys of a dict.
     *
     * If all items that a list or dict gets at a time are such objects, and their numbers are
     * consecutive, they become one INT: as.taken has the first number and their count, at least 2.
     * In a dict that INT is the key, and keys and values alternate; the pair's value is None.
     */
    bool (*take)(void *ctx, const ckpt_object *o, int64_t *number);
    void *ctx;
    /*
     * Reads n bytes from offset `at`, for a pickle without bytes in memory; each is fetched twice
     * at most if `take` is set, else once.  NULL: the bytes are in memory.
     */
    int (*fetch)(void *ctx, void *to, uint64_t n, uint64_t at, ckpt_err *err);
    void *fetch_ctx;
    /* for tests: run the opcodes of each object, even of one that repeats another (repeat.c) */
    bool no_patterns;
} ckpt_pickle_opts;

CKPT_VEC(ckpt_values, ckpt_value *);

typedef struct ckpt_pickle {
    ckpt_value *root; /* in the arena */
    /*
     * one for each distinct key (empty ones: for each key and dtype), in the order of first use;
     * not yet bound to a source
     */
    ckpt_storages storages;
    ckpt_values globals; /* every distinct GLOBAL, in the order of first use */
    uint64_t n_objects;  /* nodes of unknown classes */
    uint64_t n_special;  /* tensors kept as objects: sparse, nested and other rare kinds */
    uint64_t end;        /* offset just after STOP */
    int protocol;
} ckpt_pickle;

/*
 * Read one pickle from n bytes.
 *
 * bytes    NULL: opts.fetch reads them
 * Errors   CKPT_EFORMAT (malformed; unknown storage class; tensor outside its storage; duplicate
 *          dict key ...), CKPT_EUNSAFE (a name that can run code), CKPT_ELIMIT (depth, memo, text
 *          numbers, memory), CKPT_EUNSUPPORTED (quantized or sparse tensors and other kinds that
 *          are recognised but not supported).
 * On failure `out` is empty.  ckpt_pickle_free releases the vectors; the nodes belong to the arena.
 */
int ckpt_pickle_read(ckpt_pickle *out, ckpt_arena *arena, const uint8_t *bytes, uint64_t n,
                     const ckpt_pickle_opts *opts, ckpt_err *err);
void ckpt_pickle_free(ckpt_pickle *p);

/*
 * Append the protocol-2 pickle of a tree to out, in the form of torch.save.
 *
 * Tensors are written by _rebuild_tensor_v2 (or _v3 for dtypes without typed storage),
 * _rebuild_parameter and _rebuild_from_type_v2 as the tree requires; storages as persistent ids;
 * unknown objects verbatim.  The memo preserves shared nodes.
 * Errors   CKPT_ELIMIT, CKPT_EUNSUPPORTED
 */
int ckpt_pickle_write(ckpt_bytes *out, ckpt_value *root, ckpt_err *err);

#endif
