/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_sharded.h: torch's sharded safetensors: names of files and of what they say, for the
 * reader (hf_sharded.c) and the writer (write.c).
 *
 * A model as torch.distributed.checkpoint's HuggingFaceStorageWriter(save_distributed=True) leaves
 * it (torch 2.8 and later): files of their own for each rank, and no .metadata:
 *
 *     shard-00002-model-00001-of-00003.safetensors
 *           ^rank + 1   ^file, of as many as the writer's fqn_to_index_mapping names
 *
 * Each holds the boxes of one rank as tensors under the names of their whole tensors, and in its
 * "__metadata__" where they begin:
 *
 *     "DCP_VERSION": "1.0"
 *     "DCP_SHARDING_INFO": text of the JSON {name: {"saved_offsets": [element of each axis]}}
 *
 * The shapes of the whole tensors are written nowhere: they end where the last box does.
 */
#ifndef CKPT_FORMATS_HF_SHARDED_H
#define CKPT_FORMATS_HF_SHARDED_H

#include "libckpt/format.h"

/* What a file name says, from 1. */
typedef struct ckpt_hfs_name {
    uint32_t rank, file, of;
} ckpt_hfs_name;

/* Read a file's name; false: it is no such file. */
bool ckpt_hfs_parse(const char *name, ckpt_hfs_name *out);

/* ckpt_directory.scatter: weights alone, cut as FSDP2 cuts them. */
int ckpt_hfs_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

#define CKPT_HFS_INFO    "DCP_SHARDING_INFO"
#define CKPT_HFS_VERSION "DCP_VERSION"
#define CKPT_HFS_OFFSETS "saved_offsets"

#endif
