/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coverage.h: decides whether a list of files, which a manifest or a signature vouches for, has all
 * files that a checkpoint is read from.
 *
 * Files are compared by device and inode, after following links, because a checkpoint may refer to
 * a file by another path than the list does.
 */
#ifndef CKPT_COVERAGE_H
#define CKPT_COVERAGE_H

#include "ckpt_extra.h"
#include "libckpt/base/vec.h"

typedef struct ckpt_file_id {
    uint64_t dev, ino;
} ckpt_file_id;

CKPT_VEC(ckpt_coverage, ckpt_file_id);

/* Add a file of the list; one that does not exist covers nothing. Free with ckpt_vec_free. */
int ckpt_coverage_add(ckpt_coverage *c, const char *path, ckpt_err *err);

/*
 * The next file that the list lacks: the path itself, if it is a file, then those of the map.
 *
 * map      the opened checkpoint, or NULL
 * at       the place of the walk, 0 at its start
 * Returns  NULL: there is no other one
 */
const char *ckpt_coverage_gap(ckpt_coverage *c, const char *path, const ckpt_map *map, size_t *at);

/*
 * Open a checkpoint to know its files: tag and whole_checkpoint of `open` count; NULL: a shard
 * stands for its checkpoint.
 *
 * out      after a failure NULL; but if only the optimizer state is damaged, a map of the rest
 */
int ckpt_coverage_open(ckpt_map **out, const char *path, const ckpt_open_opts *open, ckpt_err *err);

#endif
