/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lineage.h: declares which checkpoints of a folder belong to this run: those that it wrote, and
 * those of the runs from which it resumed.  It must not replace any others.
 *
 * Each tag folder that zerotrain writes has a small text file, ".zerotrain".  It has one line for
 * each ancestor process, the oldest first, then one for the writer: 16 hexadecimal digits that
 * identify the process, a blank, and a step.  An ancestor's step is the one from which its
 * successor resumed, because later checkpoints of the ancestor are another branch.  The writer's
 * step is that of the checkpoint.  Lines of facts about the run follow, each after "- ": a name, a
 * tab and a value.
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
    uint64_t id;           /* identity of this process */
    zt_lineage_steps from; /* earlier processes of the run, each with a step */
    bool resumed;          /* the run resumed from a checkpoint, described below */
    bool chosen;           /* the user named the checkpoint, so it may not be the one in `latest` */
    dev_t dev;             /* the checkpoint's folder */
    ino_t ino;             /* 0: unknown */
    dev_t run_dev;         /* the folder that contains the checkpoint's folder */
    ino_t run_ino;         /* 0: unknown */
    int64_t step;          /* updates made */
    const char *facts;     /* lines that each checkpoint keeps; borrowed; NULL: none */
} zt_lineage;

/* A run that did not resume. */
void zt_lineage_begin(zt_lineage *l);
void zt_lineage_free(zt_lineage *l);

/*
 * Note the checkpoint that was loaded: path as the user gave it, tag from zt_load; named: the user
 * gave the tag.  A checkpoint without a readable .zerotrain has no known ancestors.
 */
void zt_lineage_resume(zt_lineage *l, const char *path, const char *tag, bool named, int64_t step);

/*
 * Read the facts that the checkpoint kept, without the "- " of each line; free with ckpt_free.
 * NULL: none.
 */
char *zt_lineage_facts(const char *path, const char *tag);

/* True if the checkpoint `name` of an open folder belongs to this run or its ancestors. */
bool zt_lineage_has(const zt_lineage *l, int dir, const char *name);

/* True if a folder holds model states, so it is a checkpoint and no other folder of the user. */
bool zt_lineage_is_tag(int dir, const char *name);

/*
 * Refuse to save as `name` in an open folder if a folder of that name has files, but no file of a
 * checkpoint: a run never replaces it.
 * Errors  CKPT_EUSAGE
 */
int zt_lineage_spare(int dir, const char *shown, const char *name, ckpt_err *err);

/* True if this run may replace the existing checkpoint `name` of an open folder. */
bool zt_lineage_may_replace(const zt_lineage *l, int dir, const char *name);

/* Write .zerotrain into the open folder of a checkpoint.  Errors: CKPT_EIO, CKPT_ELIMIT */
int zt_lineage_mark(const zt_lineage *l, int folder, const char *shown, int64_t step,
                    ckpt_err *err);

/* Where a run saves. */
typedef struct zt_lineage_place {
    const char *dir, *tag; /* tag: name of the checkpoints, NULL: "global_step<N>" */
    bool force;            /* checkpoints of other runs may be replaced */
} zt_lineage_place;

/*
 * Check before training that saving will replace no checkpoint of another run, unless forced, and
 * no folder without a checkpoint.
 *
 * remark  gets a warning if replacing is allowed but unexpected; otherwise unchanged
 * Errors  CKPT_EUSAGE: saving would replace some (the text lists the user's options); CKPT_EIO
 */
int zt_lineage_check(const zt_lineage *l, const zt_lineage_place *to, ckpt_err *remark,
                     ckpt_err *err);

#endif
