/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h: which shard of a Hugging Face folder each tensor goes to.
 *
 * The rule of huggingface_hub 2.4 (and of zero_to_fp32, which uses it): walk the tensors in order.
 * One that shares the bytes of an earlier one goes with it and counts nothing.  One larger than the
 * limit becomes a shard of its own at once, while the shard that is open stays open.  If the open
 * shard and the tensor exceed the limit together, the open one is closed first.  Shards are
 * numbered in the order of closing.
 */
#ifndef CKPT_FORMATS_HF_SPLIT_H
#define CKPT_FORMATS_HF_SPLIT_H

#include "libckpt/base/err.h"

typedef struct ckpt_hf_item {
    uint64_t n_bytes; /* of its storage */
    size_t
        storage; /* index of the item that stands for the storage: itself, or what it is tied to */
} ckpt_hf_item;

typedef struct ckpt_hf_sums {
    uint32_t n_shards; /* at least 1, also when there is nothing to write */
    uint64_t total;    /* bytes, each storage counted once */
} ckpt_hf_sums;

/*
 * Assign n items to shards.
 *
 * limit    bytes; 0: no limit
 * shard    n results, from 0
 * Errors   CKPT_ELIMIT: out of memory, or the total overflows
 */
int ckpt_hf_split(const ckpt_hf_item *item, size_t n, uint64_t limit, uint32_t *shard,
                  ckpt_hf_sums *sums, ckpt_err *err);

#endif
