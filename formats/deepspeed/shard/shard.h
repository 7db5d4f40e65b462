/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h: one .pt file of a tag folder: its tree, its sources, the flat tensors and step counts
 * in it.
 */
#ifndef CKPT_FORMATS_DS_SHARD_H
#define CKPT_FORMATS_DS_SHARD_H

#include "formats/deepspeed/folder/folder.h"

/* One opened file; root and all below live until it is closed. */
typedef struct ckpt_ds_shard {
    ckpt_map *map;
    const char *path;
    uint32_t rank;
    /* shard's file -> the large map's: its own, then those merged into it */
    uint32_t *file;
    uint32_t *source;        /* shard's source -> the large map's, UINT32_MAX: not copied yet */
    ckpt_value *root;        /* a DICT */
    const ckpt_value *optim; /* optimizer files: optimizer_state_dict */
    ckpt_reader *reader;     /* for step counts that are tensors; made when needed */
    ckpt_value *tree;        /* the copy of root in the large map's arena, once it was made */
    bool has_step;           /* CKPT_DS_STEPS: the root is a step count ... */
    double step;             /* ... this one */
} ckpt_ds_shard;

/* A one-dimensional contiguous tensor of a shard. */
typedef struct ckpt_ds_flat {
    uint32_t source; /* in the large map; without meaning when n is 0 */
    uint32_t dtype;  /* ckpt_dtype; NONE: the rank has no such tensor */
    uint64_t at;     /* byte offset in the source */
    uint64_t n;      /* elements */
} ckpt_ds_flat;

/* Read a file; its root must be a dict.  Where a collecting reader only noted a failure, s->map is
 * NULL. */
int ckpt_ds_shard_open(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_ds_part *part);

/* What is done with one file; it is closed afterwards. */
typedef int (*ckpt_ds_shard_fn)(void *ctx, ckpt_ds_shard *s);

/* What files hold that are read one after another. */
typedef enum ckpt_ds_content {
    CKPT_DS_SHARDS, /* a dict */
    /* the same, mostly equal but for their tensors' bytes, so that several may have one tree: fn
       changes nothing of it, and keeps nothing */
    CKPT_DS_RANKS,
    CKPT_DS_VALUES, /* one value of any kind, in files that are small and many */
    CKPT_DS_STEPS   /* the same, of which the threads read the step count */
} ckpt_ds_content;

/* Read the files from part `first` on, a few at a time by several threads, and hand those that
 * could be read to fn, with ctx, in order. */
int ckpt_ds_shard_each(ckpt_ds_job *job, const ckpt_ds_parts *parts, size_t first,
                       ckpt_ds_content kind, ckpt_ds_shard_fn fn, void *ctx);

/* Free the file's map and what was noted about it; one that was never opened is fine. */
void ckpt_ds_shard_close(ckpt_ds_shard *s);

/* Let a shard take over another's map, so that values of both may stand in one tree.  `from` then
 * has no map. */
int ckpt_ds_shard_merge(const ckpt_ds_job *job, ckpt_ds_shard *into, ckpt_ds_shard *from);

/* The large map's index of a shard's source. */
int ckpt_ds_shard_source(const ckpt_ds_job *job, ckpt_ds_shard *s, uint32_t source, uint32_t *out);

/* A value as a flat tensor; what names it for messages. */
int ckpt_ds_shard_flat(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                       const char *what, ckpt_ds_flat *out);

/* Give t the one extent that a tensor value describes. */
int ckpt_ds_shard_back(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_tensor_value *v,
                       ckpt_tensor *t);

/* A step count: an int, a float, or a tensor of one element, which is read. *has is false for
 * anything else. */
int ckpt_ds_shard_step(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v, bool *has,
                       double *out);

/* zero_stage as every release writes it; false if absent or of no known form. */
bool ckpt_ds_stage(const ckpt_value *v, int *out);

/* ds_version of a shard, or NULL before 0.4.0. */
const ckpt_value *ckpt_ds_version(const ckpt_ds_shard *s);

/* True if the version is at least a.b.c. */
bool ckpt_ds_version_at_least(const ckpt_value *version, int a, int b, int c);

/* Copy a shard's tree into the large map's arena, once; storages name the large map's sources. */
int ckpt_ds_tree_copy(const ckpt_ds_job *job, ckpt_ds_shard *s, ckpt_value **out);

#endif
