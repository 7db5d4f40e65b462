/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_copy.h: copies a tree of values into another arena.
 *
 * Shared nodes stay shared, and cycles end. It never writes to the source, so several threads may
 * copy one tree.
 */
#ifndef CKPT_MAP_VALUE_COPY_H
#define CKPT_MAP_VALUE_COPY_H

#include "libckpt/map/value.h"

typedef struct ckpt_value_copier {
    ckpt_arena *arena; /* arena of the copy */
    /* the copy may outlive the source: copy texts, shapes and strides too */
    bool whole;
    void *ctx; /* argument of the functions below */

    /*
     * Finds the target's storage that corresponds to a storage of the source; false: there is none.
     */
    bool (*storage)(void *ctx, const ckpt_storage *from, ckpt_storage **to);

    /*
     * True: the value becomes None, and an entry of a dict is dropped with its key. NULL: keep all.
     */
    bool (*drop)(const void *ctx, const ckpt_value *from);

    /* Called once for each value below v; false: stop. NULL: no calls. */
    bool (*meet)(void *ctx, const ckpt_value *from);
} ckpt_value_copier;

/* Copy v; NULL if memory is exhausted or a function returned false. */
ckpt_value *ckpt_value_copy(const ckpt_value_copier *copier, const ckpt_value *v);

#endif
