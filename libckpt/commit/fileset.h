/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fileset.h: chooses the renames that put a set of files into a folder and replace an older set
 * there.
 *
 * Loaders of model folders take the first of several names that exists (a head); an index refers to
 * further files (parts). At every instant between the renames they find the old set, the new one,
 * or none at all:
 *
 *   - if the head alone decides, it is renamed last, and the old files go after it;
 *   - if an index and some of its parts keep their names, a bridge comes in between: an index of
 *     the new parts under hidden names, which is in place until all parts have their final names;
 *   - if files change that no head refers to (config.json), or names cannot be linked twice for a
 *     bridge, the old heads go first: for a moment there is no model.
 */
#ifndef CKPT_COMMIT_FILESET_H
#define CKPT_COMMIT_FILESET_H

#include "libckpt/commit/rename_log.h"
#include "libckpt/io/dir.h"

typedef struct ckpt_set_job {
    const ckpt_dir *dir;
    const ckpt_map *to, *inputs; /* the target map, with its set; the map of the inputs, or NULL */
    bool force;                  /* replace existing files */
    bool skip_fsync;
} ckpt_set_job;

/*
 * Files in the folder that loaders of such sets look for, and that stay beside the new set: they
 * could be loaded instead.
 */
typedef struct ckpt_set_stays {
    size_t n;
    char first[256]; /* name of the first file; "": there is none */
} ckpt_set_stays;

/*
 * Check the folder that receives a target map's set.
 *
 * Errors   CKPT_EUSAGE: a file exists, or loaders would prefer an existing other set, and force is
 *          off; an input, or a folder, has one of the names; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_set_check(const ckpt_set_job *job, ckpt_set_stays *stays, ckpt_err *err);

/*
 * Give the files in aside/new their final names.
 *
 * n_gone   number of removed old files whose names the new set does not have
 * stuck    as in ckpt_moves_run
 */
int ckpt_set_commit(const ckpt_set_job *job, int aside, size_t *n_gone, bool *stuck, ckpt_err *err);

#endif
