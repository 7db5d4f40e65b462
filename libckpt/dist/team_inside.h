/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team_inside.h: defines the state of a team, for team.c, collectives.c and team_join.c.
 */
#ifndef CKPT_DIST_TEAM_INSIDE_H
#define CKPT_DIST_TEAM_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/dist/team.h"

enum team_kind {
    TEAM_BLOB = 1, /* data of a collective; id: TEAM_ID */
    TEAM_ASK,      /* id: number of the question */
    TEAM_NOTE,     /* a note; id: as of a question */
    TEAM_ANSWER,   /* id: that of the question; a ckpt_err, then the bytes */
    TEAM_BEAT,     /* a heartbeat, with the bytes done */
    TEAM_STOP,     /* the sender has failed in the round of this id */
    TEAM_GONE      /* the sender leaves, with a ckpt_err */
};

/*
 * Collectives are numbered by round and step: a round ends with ckpt_team_agree, its last step. A
 * process that fails in the middle of a round jumps to that step, so that all processes have the
 * same number again afterwards.
 */
#define TEAM_LAST_STEP ((UINT64_C(1) << 28) - 1)
#define TEAM_ID(round, step, what)                                                                 \
    ((uint64_t)(round) << 32 | (uint64_t)(step) << 4 | (uint64_t)(what))
#define TEAM_ROUND_OF(id) ((id) >> 32)
#define TEAM_STEP_OF(id)  ((id) >> 4 & TEAM_LAST_STEP)

/* State of another process, as this process knows it. */
typedef struct team_mate {
    double heard;  /* time of its last message */
    uint64_t done; /* bytes done, from its last heartbeat */
    bool gone;
    uint64_t n_share, n_letters, n_sent, n_far; /* as in ckpt_team_member */
} team_mate;

typedef struct team_state {
    ckpt_team team; /* first */
    ckpt_mail mail;
    double limit;
    ckpt_post *post;
    ckpt_team_opts opts;
    pthread_t clerk;
    bool has_clerk;
    pthread_mutex_t lock; /* protects all members below */
    pthread_cond_t news;
    ckpt_letter *blobs;              /* received data that no call has fetched yet */
    ckpt_letter *answers;            /* received answers that no call has fetched yet */
    ckpt_letter *asked, **asked_end; /* questions for the answering thread */
    uint64_t next_ask;
    ckpt_team_wait_fn waits;
    void *waits_ctx;
    pthread_mutex_t noting; /* protects the next two */
    ckpt_team_note_fn note;
    void *note_ctx;
    team_mate *mate;
    ckpt_err left; /* error of a process that has left: collectives are impossible from now on */
    ckpt_err lost; /* the reason why this process cannot exchange messages any more */
    bool vanished; /* the reason in `lost` is a process that sends no heartbeats */
    double lost_at;
    bool met; /* all processes have introduced themselves */
    bool closing;
    double ticked, beaten;
    /* agreements so far; only the collective thread writes it, others read it under lock */
    uint64_t round;
    /* exchanges since the last agreement; only the collective thread uses it */
    uint64_t step;
    /* this process reports a failure at the end of the round; only the collective thread uses it */
    bool failing;
    uint64_t stopped;      /* some process has failed in each round before this number */
    _Atomic uint64_t done; /* bytes of this process */
} team_state;

/* This process's team, or NULL. */
team_state *team_here(void);

/*
 * Start its threads, and end them: closing first sends queued messages, for some seconds. tick is
 * called with t, several times a second.
 */
int team_open(team_state *t, void (*tick)(void *ctx), ckpt_err *err);
void team_close(team_state *t, double seconds);

/* Send a message with n bytes; without memory for it, do not send it. */
void team_say(team_state *t, unsigned to, enum team_kind kind, uint64_t id, const void *p,
              size_t n);

/* Send bytes to all others. */
void team_say_all(team_state *t, enum team_kind kind, uint64_t id, const void *p, size_t n);

/* Record that no more exchange is possible; the caller holds the lock. The first reason stays. */
void team_lose(team_state *t, const ckpt_err *why);

/* Send heartbeats and notice missing ones; ctx is the team_state. */
void team_tick(void *ctx);

/* Prepend a message to a list. */
void team_keep(ckpt_letter **list, ckpt_letter *l);

/*
 * Wait for a message of an exchange, or (if list is the answers) for an answer.
 *
 * Errors  CKPT_ECANCELED: another process has failed in this round, so the message may never come;
 *         CKPT_EIO: the processes are out of step, or one is lost
 */
int team_await(team_state *t, ckpt_letter **list, unsigned from, uint64_t id, ckpt_letter **out,
               ckpt_err *err);

/* The processors that a process may use; n is 0 if they are not known. */
typedef struct team_processors {
    uint32_t n;
    uint8_t at[128]; /* a bit for each of the first 1024 */
} team_processors;

/* Fill a zeroed struct with the processors of this process. */
void team_see_processors(team_processors *p);

/*
 * The number of threads for each of n processes, so that the fullest machine has a processor for
 * each: at most 8. Processes that are bound to different processors of a machine share the sum of
 * them.
 *
 * node     per process, the number of its machine
 */
unsigned team_threads(const team_processors *const *each, const uint32_t *node, unsigned n);

#endif
