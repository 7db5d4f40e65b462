/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h: a dict's names, sorted once.
 */
#ifndef CKPT_FORMATS_DS_INDEX_H
#define CKPT_FORMATS_DS_INDEX_H

#include "libckpt/map/value.h"

/* Entries of a dict, found by name: sorted once. */
typedef struct ckpt_ds_index {
    const ckpt_pair **at;
    size_t n;
} ckpt_ds_index;

/* Sort a dict's str keys; the entries stay the dict's. */
int ckpt_ds_index_new(ckpt_ds_index *out, ckpt_dict dict, ckpt_err *err);

/* Free the order. */
void ckpt_ds_index_free(ckpt_ds_index *ix);

/* The entry of a name of n bytes, or NULL. */
const ckpt_pair *ckpt_ds_index_find(const ckpt_ds_index *ix, const char *name, uint64_t n);

#endif
