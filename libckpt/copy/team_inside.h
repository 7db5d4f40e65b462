/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team_inside.h: the state of a team, for team.c, exchange.c and team_join.c.
 */
#ifndef CKPT_COPY_TEAM_INSIDE_H
#define CKPT_COPY_TEAM_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/copy/team.h"

enum team_kind {
    TEAM_BLOB = 1, /* a part of an exchange; id: TEAM_ID */
    TEAM_ASK,      /* id: the question's */
    TEAM_NOTE,     /* id: as of a question; something to be taken note of */
    TEAM_ANSWER,   /* id: that of the question; a ckpt_err, then the bytes */
    TEAM_BEAT,     /* a sign of life; how many bytes were done */
    TEAM_STOP,     /* the sender has failed in the round of this id */
    TEAM_GONE      /* the sender leaves, with a ckpt_err */
};

/*
 * Exchanges are numbered: a round ends with an agreement, which is its last step.  Who fails in the
 * middle of a round goes to the agreement at once, and all are at the same number again after it.
 */
#define TEAM_LAST_STEP ((UINT64_C(1) << 28) - 1)
#define TEAM_ID(round, step, what)                                                                 \
    ((uint64_t)(round) << 32 | (uint64_t)(step) << 4 | (uint64_t)(what))
#define TEAM_ROUND_OF(id) ((id) >> 32)
#define TEAM_STEP_OF(id)  ((id) >> 4 & TEAM_LAST_STEP)

/* What is known of another process. */
typedef struct team_mate {
    double heard;  /* when it last gave a sign */
    uint64_t done; /* bytes, as it said */
    bool gone;
    uint64_t n_share, n_letters, n_sent, n_far; /* as of ckpt_team_member */
} team_mate;

typedef struct team_state {
    ckpt_team team; /* first */
    ckpt_mail mail;
    double limit;
    ckpt_post *post;
    ckpt_team_opts opts;
    pthread_t clerk;
    bool has_clerk;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t news;
    ckpt_letter *blobs;              /* that nobody has fetched yet */
    ckpt_letter *answers;            /* the same */
    ckpt_letter *asked, **asked_end; /* questions for the clerk */
    uint64_t next_ask;
    ckpt_team_wait_fn waits;
    void *waits_ctx;
    pthread_mutex_t noting; /* of the next two */
    ckpt_team_note_fn note;
    void *note_ctx;
    team_mate *mate;
    ckpt_err left; /* how another process has left: nothing can be done together any more */
    ckpt_err lost; /* why nothing can be exchanged any more */
    bool vanished; /* it is that a process has given no sign of life */
    double lost_at;
    bool met; /* all have said who they are */
    bool closing;
    double ticked, beaten;
    uint64_t round;        /* agreements so far; the collective thread's, read under lock */
    uint64_t step;         /* exchanges since the last of them; the collective thread's own */
    bool failing;          /* the round ends with a failure of this process; the same thread's */
    uint64_t stopped;      /* rounds up to this one, not counting it, have failed somewhere */
    _Atomic uint64_t done; /* bytes of this process */
} team_state;

/* The team that this process is in, or NULL. */
team_state *team_here(void);

/* Start its threads, and end them: what is to be sent goes first, for some seconds. */
int team_open(team_state *t, ckpt_err *err);
void team_close(team_state *t, double seconds);

/* Send bytes to all others. */
void team_say_all(team_state *t, enum team_kind kind, uint64_t id, const void *p, size_t n);

/* Put a letter to the front of a list. */
void team_keep(ckpt_letter **list, ckpt_letter *l);

/*
 * Wait for the letter of an exchange, or (list is that of the answers) for an answer.
 *
 * Errors  CKPT_ECANCELED: another process has failed in this round, and the letter may never come;
 *         CKPT_EIO: the processes have come apart, or one is lost
 */
int team_await(team_state *t, ckpt_letter **list, unsigned from, uint64_t id, ckpt_letter **out,
               ckpt_err *err);

#endif
