/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves.h: a list of renames that is carried out as a whole or undone as a whole, whatever is
 * killed.
 *
 * Two folders take part: `top`, where names count, and `aside`, a hidden one below it (stage.h).
 * The list lies in aside as the file "moves" while it is at work.  Every move can be told done from
 * not done by what is there, so that whoever finds the list can go on: when the move that counts
 * (the one that lets readers see what is new) was made, to the end; else back to the beginning.
 *
 * "moves" is a sequence of moves: a byte of ckpt_move_kind, then from, to and save, each with a NUL
 * behind it; at the end an 'E'.  from is below "new", "mid" or "was", save below "was", to
 * not in aside.
 */
#ifndef CKPT_COPY_MOVES_H
#define CKPT_COPY_MOVES_H

#include "libckpt/base/err.h"
#include "libckpt/base/vec.h"

typedef enum ckpt_move_kind {
    CKPT_MOVE_IN = '+',     /* aside/from becomes top/to, a free name */
    CKPT_MOVE_OUT = '-',    /* top/to becomes aside/save */
    CKPT_MOVE_OVER = '=',   /* aside/from becomes top/to, whose old file is kept as aside/save */
    CKPT_MOVE_FOLDER = 'm', /* the folder top/to is made if it is not there */
    CKPT_MOVE_INTO = 'f',   /* the folder top/to, which was there before, gets files */
    CKPT_MOVE_SYNC = '.',   /* all before it is on the disk */
    CKPT_MOVE_COUNTS = '*'  /* the move before it (IN, OUT or OVER) is the one that counts */
} ckpt_move_kind;

typedef struct ckpt_move {
    char kind;                    /* ckpt_move_kind */
    const char *from, *to, *save; /* "" where the kind has none */
} ckpt_move;

CKPT_VEC(ckpt_moves, ckpt_move);

/* The two folders, and the path that messages name. */
typedef struct ckpt_mover {
    int top, aside;
    bool no_fsync;
    const char *shown;
} ckpt_mover;

/*
 * Write the list down and carry it out.  A failure undoes it; *stuck: even that failed, and what
 * lies in aside must stay for ckpt_moves_recover.
 *
 * Errors   CKPT_EUSAGE: a name that was to be free is not; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_moves_run(const ckpt_mover *m, const ckpt_moves *list, bool *stuck, ckpt_err *err);

/*
 * Finish or undo a list that a killed run has left in aside; without one do nothing.
 *
 * Returns  0 or an errno value: then nothing in aside may be removed.  EBADMSG: it is no list, or
 *          what it moves is lost; EPERM: it is of a user whose list must not be followed here
 */
int ckpt_moves_recover(const ckpt_mover *m);

#endif
