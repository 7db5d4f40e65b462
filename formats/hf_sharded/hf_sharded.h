/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf_sharded.h: the interface between the reader (hf_sharded.c) and the writer (write.c) of torch's
 * sharded safetensors.
 *
 * torch.distributed.checkpoint's HuggingFaceStorageWriter(save_distributed=True) (torch 2.8 and
 * later) writes separate files for each rank, and no .metadata:
 *
 *     shard-00002-model-00001-of-00003.safetensors
 *           ^rank + 1   ^file, and the number of files in the writer's fqn_to_index_mapping
 *
 * Each file holds the boxes of one rank under the names of their whole tensors, and in its
 * "__metadata__" the position of each box:
 *
 *     "DCP_VERSION": "1.0"
 *     "DCP_SHARDING_INFO": text of the JSON {name: {"saved_offsets": [element of each axis]}}
 *
 * The shapes of the whole tensors are not stored: each axis ends at the end of the last box.
 */
#ifndef CKPT_FORMATS_HF_SHARDED_H
#define CKPT_FORMATS_HF_SHARDED_H

#include "libckpt/format.h"

/* The numbers of a file name, from 1. */
typedef struct ckpt_hfs_name {
    uint32_t rank, file, of;
} ckpt_hfs_name;

/* Parse a file name; false if it is not of this format. */
bool ckpt_hfs_parse(const char *name, ckpt_hfs_name *out);

/* ckpt_directory.scatter: writes the weights only, cut as FSDP2 cuts them. */
int ckpt_hfs_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target, ckpt_err *err);

#define CKPT_HFS_INFO    "DCP_SHARDING_INFO"
#define CKPT_HFS_VERSION "DCP_VERSION"
#define CKPT_HFS_OFFSETS "saved_offsets"

#endif
