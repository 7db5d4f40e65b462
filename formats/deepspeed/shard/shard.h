/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h: reads one .pt file of a tag folder: its tree, sources, flat tensors and step counts.
 */
#ifndef CKPT_FORMATS_DS_SHARD_H
#define CKPT_FORMATS_DS_SHARD_H

#include "formats/deepspeed/folder/folder.h"

/* One open file; its tree lives until it is closed. */
typedef struct ckpt_ds_shard {
    ckpt_map *map;
    const char *path;
    uint32_t rank;
    /* index of the shard's file in the output map, then those of merged shards */
    uint32_t *file;
    uint32_t *source;        /* shard's source -> output map's; UINT32_MAX: not copied yet */
    ckpt_value *root;        /* a DICT */
    const ckpt_value *optim; /* optimizer files: optimizer_state_dict */
    ckpt_reader *reader;     /* reads step counts stored as tensors; created on first use */
    ckpt_value *tree;        /* copy of root in the output map's arena, or NULL */
    bool has_step;           /* CKPT_DS_STEPS: the root is a step count */
    double step;             /* that step count */
} ckpt_ds_shard;

/* A one-dimensional contiguous tensor of a shard. */
typedef struct ckpt_ds_flat {
    uint32_t source; /* number in the output map; unset if n is 0 */
    uint32_t dtype;  /* ckpt_dtype; NONE: the rank lacks the tensor */
    uint64_t at;     /* byte offset in the source */
    uint64_t n;      /* elements */
} ckpt_ds_flat;

/* Reads a file, whose root must be a dict. When the caller collects findings, a failure may leave
 * s->map NULL. */
int ckpt_ds_shard_open(ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_ds_part *part);

/* Handles one file, which is closed afterwards. */
typedef int (*ckpt_ds_shard_fn)(void *ctx, ckpt_ds_shard *s);

/* Content of files read one after another. */
typedef enum ckpt_ds_content {
    CKPT_DS_SHARDS, /* a dict */
    /*
     * one dict per rank; most differ only in tensor bytes, so several ranks may share one tree,
     * which fn must neither change nor keep
     */
    CKPT_DS_RANKS,
    CKPT_DS_VALUES, /* one value of any kind, in many small files */
    CKPT_DS_STEPS   /* the same; the threads read the step count */
} ckpt_ds_content;

/* Reads the files from part `first` on with several threads, and calls fn with ctx for each
 * readable file, in order. */
int ckpt_ds_shard_each(ckpt_ds_job *job, const ckpt_ds_parts *parts, size_t first,
                       ckpt_ds_content kind, ckpt_ds_shard_fn fn, void *ctx);

/* Frees the file's map and indices; a shard that was never opened is allowed. */
void ckpt_ds_shard_close(ckpt_ds_shard *s);

/* Moves the map of `from` into `into`, so one tree can hold values of both. */
int ckpt_ds_shard_merge(const ckpt_ds_job *job, ckpt_ds_shard *into, ckpt_ds_shard *from);

/* Returns the output map's index of a shard's source, copying the source on first use. */
int ckpt_ds_shard_source(const ckpt_ds_job *job, ckpt_ds_shard *s, uint32_t source, uint32_t *out);

/* Reads a value as a flat tensor; `what` names it in messages. */
int ckpt_ds_shard_flat(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                       const char *what, ckpt_ds_flat *out);

/* Maps t to the one extent of a tensor value. */
int ckpt_ds_shard_back(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_tensor_value *v,
                       ckpt_tensor *t);

/* Reads a step count: an int, a float, or a one-element tensor. *has is false for any other
 * value. */
int ckpt_ds_shard_step(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v, bool *has,
                       double *out);

/* Reads zero_stage in the form of any release; false if it is absent or has an unknown form. */
bool ckpt_ds_stage(const ckpt_value *v, int *out);

/* Returns ds_version of a shard, or NULL before 0.4.0. */
const ckpt_value *ckpt_ds_version(const ckpt_ds_shard *s);

/* Returns whether the version is at least a.b.c. */
bool ckpt_ds_version_at_least(const ckpt_value *version, int a, int b, int c);

/* Copies a shard's tree into the output map's arena once; its storages refer to the output map's
 * sources. */
int ckpt_ds_tree_copy(const ckpt_ds_job *job, ckpt_ds_shard *s, ckpt_value **out);

/* Copies one value of a shard's tree in the same way; NULL stays NULL. */
int ckpt_ds_value_copy(const ckpt_ds_job *job, ckpt_ds_shard *s, const ckpt_value *v,
                       ckpt_value **out);

#endif
