/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename_log.h: carries out or undoes a list of renames as a whole, even if the process is killed.
 *
 * It works on two folders: `top`, with the final names, and `aside`, a hidden folder below it
 * (publish.h). During the work the list is in aside, in the file "moves". The folders show for each
 * move whether it was made, so that a later process that finds the list can continue: if the
 * deciding move was made (the one that shows readers the new files), forward to the end; else back
 * to the start.
 *
 * "moves" is a sequence of moves: a byte of ckpt_move_kind, then from, to and save, each followed
 * by a NUL; at the end an 'E'. from is below "new", "mid" or "was", save below "was", to not in
 * aside.
 */
#ifndef CKPT_COMMIT_RENAME_LOG_H
#define CKPT_COMMIT_RENAME_LOG_H

#include "libckpt/base/err.h"
#include "libckpt/base/vec.h"

typedef enum ckpt_move_kind {
    CKPT_MOVE_IN = '+',     /* rename aside/from to top/to, which does not exist */
    CKPT_MOVE_OUT = '-',    /* top/to becomes aside/save */
    CKPT_MOVE_OVER = '=',   /* rename aside/from to top/to, and keep the old file as aside/save */
    CKPT_MOVE_FOLDER = 'm', /* make the folder top/to if it does not exist */
    CKPT_MOVE_INTO = 'f',   /* the folder top/to exists and gets files */
    CKPT_MOVE_SYNC = '.',   /* sync all moves before it */
    CKPT_MOVE_COUNTS = '*'  /* the move before it (IN, OUT or OVER) is the deciding one */
} ckpt_move_kind;

typedef struct ckpt_move {
    char kind;                    /* ckpt_move_kind */
    const char *from, *to, *save; /* "" if the kind has none */
} ckpt_move;

CKPT_VEC(ckpt_moves, ckpt_move);

/* The two folders, and the path for messages. */
typedef struct ckpt_mover {
    int top, aside;
    bool skip_fsync;
    const char *shown;
} ckpt_mover;

/*
 * Write the list down and carry it out. A failure undoes it; *stuck: the undo failed too, and the
 * contents of aside must stay for ckpt_moves_recover.
 *
 * Errors   CKPT_EUSAGE: a name that should be free is not; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_moves_run(const ckpt_mover *m, const ckpt_moves *list, bool *stuck, ckpt_err *err);

/*
 * Finish or undo a list that a killed run has left in aside; without a list do nothing.
 *
 * Returns  0 or an errno value: then nothing in aside may be removed. EBADMSG: the file is not a
 *          list, or a file that it moves is lost; EPERM: its owner is a user whose list must not be
 *          followed here
 */
int ckpt_moves_recover(const ckpt_mover *m);

#endif
