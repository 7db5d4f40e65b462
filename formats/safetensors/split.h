/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h: declares the division of a Hugging Face folder's tensors into shards.
 *
 * The rule of huggingface_hub 2.4 (and of zero_to_fp32, which uses it): walk the tensors in order.
 * A tensor that shares the bytes of an earlier one joins its shard and adds no size.  A tensor
 * larger than the limit becomes a shard of its own at once, while the open shard stays open.  If
 * the open shard and the tensor together exceed the limit, the open one is closed first.  Shards
 * are numbered in the order of closing.
 */
#ifndef CKPT_FORMATS_SAFETENSORS_SPLIT_H
#define CKPT_FORMATS_SAFETENSORS_SPLIT_H

#include "libckpt/base/err.h"

typedef struct ckpt_hf_item {
    uint64_t n_bytes; /* size of its storage */
    /* index of the item that owns the storage: itself, or the tensor that it is tied to */
    size_t storage;
} ckpt_hf_item;

typedef struct ckpt_hf_sums {
    uint32_t n_shards; /* at least 1, even without tensors */
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
