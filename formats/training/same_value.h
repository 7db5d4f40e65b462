/* SPDX-License-Identifier: Apache-2.0 */
/*
 * same_value.h: declares the comparison of values with tensors from the files of two ranks.
 */
#ifndef CKPT_FORMATS_TRAINING_SAME_VALUE_H
#define CKPT_FORMATS_TRAINING_SAME_VALUE_H

#include "libckpt/map/map.h"

/* One side of the comparison: the map with the bytes of the value's tensors. */
typedef struct ckpt_train_side {
    ckpt_map *map;
    ckpt_reader *reader; /* made when it is needed; the caller frees it (ckpt_reader_free) */
} ckpt_train_side;

/*
 * True if two values are equal.  Tensors are equal if their records have one checksum; small ones
 * are read if they have not.  Bounded: values that share too many others count as different.
 *
 * a, b  may be NULL
 */
bool ckpt_train_same_value(ckpt_train_side *x, const ckpt_value *a, ckpt_train_side *y,
                           const ckpt_value *b);

/* The member of a dict with a key; the search begins at *hint and leaves it behind the member, so
 * that dicts in one order take linear time.  NULL: none. */
const ckpt_value *ckpt_train_member(ckpt_dict dict, const ckpt_value *key, uint64_t *hint);

#endif
