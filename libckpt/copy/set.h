/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h: which renames make a set of files, in a folder that may hold another, replace it.
 *
 * Readers of model folders take the first of several names that is there (a head), and an index
 * leads on to further files (parts).  At every instant between the renames they find the old set,
 * the new one, or none at all:
 *
 *   - where the head alone decides, it comes last, and what it replaces goes after it;
 *   - where an index keeps its name and parts of its keep theirs, a bridge comes in between: an
 *     index of the new parts under hidden names, which counts until all have their own;
 *   - where files beside them change, which no head leads to (config.json), or names cannot be
 *     doubled for a bridge, the old heads go first: for a moment there is no model.
 */
#ifndef CKPT_COPY_SET_H
#define CKPT_COPY_SET_H

#include "libckpt/copy/dir.h"
#include "libckpt/copy/moves.h"

typedef struct ckpt_set_job {
    const ckpt_dir *dir;
    const ckpt_map *to, *inputs; /* the target map, with its set; what is read, or NULL */
    bool force;                  /* replace what is there */
    bool no_fsync;
} ckpt_set_job;

/* Files that readers of such sets look for, and that stay beside the new one: may be loaded
 * instead. */
typedef struct ckpt_set_stays {
    size_t n;
    char first[256]; /* by name; empty: none */
} ckpt_set_stays;

/*
 * Look at the folder that a target map's set is to go into.
 *
 * Errors   CKPT_EUSAGE: a file exists, or readers would prefer another set that is there, and force
 *          is off; something that is read, or a folder, stands in the way; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_set_check(const ckpt_set_job *job, ckpt_set_stays *stays, ckpt_err *err);

/*
 * Give the files in aside/new their names.
 *
 * n_gone  old files whose names the new set does not have: removed
 * stuck   as of ckpt_moves_run
 */
int ckpt_set_commit(const ckpt_set_job *job, int aside, size_t *n_gone, bool *stuck, ckpt_err *err);

#endif
