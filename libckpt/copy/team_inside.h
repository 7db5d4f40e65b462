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
    TEAM_BLOB = 1, /* a part of an exchange; id: its number and what it is */
    TEAM_ASK,      /* id: the question's */
    TEAM_NOTE,     /* id: as of a question; something to be taken note of */
    TEAM_ANSWER,   /* id: that of the question; a ckpt_err, then the bytes */
    TEAM_BEAT,     /* a sign of life; how many bytes were done */
    TEAM_STOP,     /* the sender has failed before the exchange of this id */
    TEAM_GONE      /* the sender leaves, with a ckpt_err */
};

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
    uint64_t seq;          /* of the next exchange; the collective thread's, read under lock */
    uint64_t stop_at;      /* somebody has failed before the exchange of this number */
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

/* Wait for a letter.  room: how many ids stand for the same exchange, of which one is right. */
int team_await(team_state *t, ckpt_letter **list, unsigned from, uint64_t id, uint64_t room,
               ckpt_letter **out, ckpt_err *err);

#endif
