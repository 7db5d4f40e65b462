/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h: finds entries of a dict by name.
 */
#ifndef CKPT_FORMATS_DS_INDEX_H
#define CKPT_FORMATS_DS_INDEX_H

#include "libckpt/map/value.h"

/* Entries of a dict, sorted by name. */
typedef struct ckpt_ds_index {
    const ckpt_pair **at;
    size_t n;
} ckpt_ds_index;

/* Sorts a dict's str keys; the dict keeps its entries. */
int ckpt_ds_index_new(ckpt_ds_index *out, ckpt_dict dict, ckpt_err *err);

/* Frees the index. */
void ckpt_ds_index_free(ckpt_ds_index *ix);

/* Returns the entry of a name of n bytes, or NULL. */
const ckpt_pair *ckpt_ds_index_find(const ckpt_ds_index *ix, const char *name, uint64_t n);

#endif
