/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_copy.h: a tree of values, copied into another arena.
 *
 * What is shared stays shared and cycles end.  Nothing is written to the source, so that several
 * threads may copy one tree.
 */
#ifndef CKPT_MAP_VALUE_COPY_H
#define CKPT_MAP_VALUE_COPY_H

#include "libckpt/map/value.h"

typedef struct ckpt_value_copier {
    ckpt_arena *arena; /* where the copy goes */
    /* the source may go before the copy: texts, shapes and strides are copied too */
    bool whole;
    void *ctx; /* of the functions below */

    /* The storage that stands for one of the source's; false: it cannot be had. */
    bool (*storage)(void *ctx, const ckpt_storage *from, ckpt_storage **to);

    /* True: the value becomes None, an entry of a dict goes with its key.  NULL: nothing does. */
    bool (*drop)(const void *ctx, const ckpt_value *from);

    /* Called once for each value below; false: stop.  NULL: nobody looks. */
    bool (*meet)(void *ctx, const ckpt_value *from);
} ckpt_value_copier;

/* The copy; NULL where memory is exhausted or a function has said no. */
ckpt_value *ckpt_value_copy(const ckpt_value_copier *copier, const ckpt_value *v);

#endif
