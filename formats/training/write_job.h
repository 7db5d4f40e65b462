/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_job.h: declares the input and output of a writer of training state, and the findings about
 * values that its target cannot store.
 */
#ifndef CKPT_FORMATS_TRAINING_WRITE_JOB_H
#define CKPT_FORMATS_TRAINING_WRITE_JOB_H

#include "libckpt/format.h"
#include "libckpt/map/state.h"

/* The input and output of the writer. */
typedef struct ckpt_train_job {
    const ckpt_map *from;
    ckpt_map *to;
    const ckpt_state *state;
    const ckpt_target *target;
    const char *program; /* name of the program that loads the output, for messages; NULL: FSDP */
    ckpt_err *err;
} ckpt_train_job;

/*
 * Add a finding of `head` and `text` once, because every file of a run has the same values.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_train_note_once(const ckpt_train_job *job, ckpt_severity severity, const char *head,
                         const char *text);

/* Report a value that the target cannot store, with the reason: "left out: clip_grad: stage 3 ...";
 * a warning if the run continues differently without it. */
int ckpt_train_left_out(const ckpt_train_job *job, ckpt_severity severity, const char *fmt, ...)
    CKPT_PRINTF(3, 4);

/*
 * The state_dict of the optimizer that DeepSpeed's wraps: states, groups, and members of the
 * optimizer's own; NULL if the run has none.
 */
const ckpt_value *ckpt_train_wrapped(const ckpt_state *state);

/* True for a member of that dict that belongs to the optimizer alone. */
bool ckpt_train_wrapped_own(const ckpt_pair *p);

/* Report these members, for a target that cannot store them. */
int ckpt_train_wrapped_left(const ckpt_train_job *job);

/*
 * Check objects of unknown classes: the user must decide if they are copied or dropped.  If there
 * are any, sets CKPT_USED_OBJECTS in the target's effects.
 *
 * own     values that differ by rank and are written, too; NULL: none
 * Errors   CKPT_EUNSAFE: there are such objects, and the target's options do not decide
 */
int ckpt_train_objects(const ckpt_train_job *job, const ckpt_ranked *own);

#endif
