/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lineage.h: which checkpoints of a folder belong to this run: it has written them, or has grown
 * from them.  All others are somebody else's, and stay as they are.
 *
 * A tag folder that zerotrain writes holds a small text, ".zerotrain": a line for each process that
 * the run has grown from, the oldest first, then one of its writer: 16 hexadecimal digits that no
 * other process has, a blank, and a step.  Of an ancestor it is the step that the next one resumed
 * from: its later checkpoints are another branch.  Of the writer it is the step of the checkpoint.
 */
#ifndef ZT_SAVE_LINEAGE_H
#define ZT_SAVE_LINEAGE_H

#include <stdbool.h>
#include <sys/types.h>

#include "libckpt/base/err.h"
#include "libckpt/base/vec.h"

typedef struct zt_lineage_step {
    uint64_t id;
    int64_t step;
} zt_lineage_step;

CKPT_VEC(zt_lineage_steps, zt_lineage_step);

typedef struct zt_lineage {
    uint64_t id;           /* of this process */
    zt_lineage_steps from; /* its ancestors */
    bool resumed;          /* it goes on with a checkpoint, which the following describe */
    bool chosen;           /* that was named, and is not what `latest` says */
    dev_t dev;             /* its folder */
    ino_t ino;             /* 0: unknown */
    dev_t run_dev;         /* the folder that it is in */
    ino_t run_ino;         /* 0: unknown */
    int64_t step;          /* updates that were made */
} zt_lineage;

/* A run that has grown from nothing. */
void zt_lineage_begin(zt_lineage *l);
void zt_lineage_free(zt_lineage *l);

/*
 * It goes on with what was loaded: path as it was given, tag as zt_load tells it; named: the tag
 * was asked for.  A checkpoint without a text that can be read has no ancestors that are known.
 */
void zt_lineage_resume(zt_lineage *l, const char *path, const char *tag, bool named, int64_t step);

/* True if the checkpoint `name` of an open folder is of this run or of its ancestors. */
bool zt_lineage_has(const zt_lineage *l, int dir, const char *name);

/* True if a folder holds model states: it is a checkpoint and nothing else of the user's. */
bool zt_lineage_is_tag(int dir, const char *name);

/* It may take the name of a checkpoint of an open folder that is there already. */
bool zt_lineage_may_replace(const zt_lineage *l, int dir, const char *name);

/* Write the text into the open folder of a checkpoint.  Errors: CKPT_EIO, CKPT_ELIMIT */
int zt_lineage_mark(const zt_lineage *l, int folder, const char *shown, int64_t step,
                    ckpt_err *err);

/*
 * Before anything is trained: saving into this folder harms no other run.
 *
 * tag      name of the checkpoints, NULL: "global_step<N>"
 * remark   gets what is allowed, and worth a warning; or stays as it is
 * Errors   CKPT_EUSAGE: it does, with the ways out; CKPT_EIO
 */
int zt_lineage_check(const zt_lineage *l, const char *dir, const char *tag, ckpt_err *remark,
                     ckpt_err *err);

#endif
