/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h: the processes that carry out one command together, and what they say to each other.
 *
 * All have the same maps and plans, for they run the same text over the same headers; what differs
 * is which jobs of a plan each of them does.  Collective calls are made by all, in the same order,
 * by one thread; each has a number, so that processes that have come apart are told rather than
 * waited for.  ckpt_team.h (join, leave) is the public side.
 */
#ifndef CKPT_COPY_TEAM_H
#define CKPT_COPY_TEAM_H

#include "libckpt/base/vec.h"
#include "libckpt/copy/post.h"

typedef struct ckpt_team {
    unsigned rank, n;
    unsigned n_nodes;
    uint32_t *node;  /* per rank: its machine, from 0 on in the order of their lowest ranks */
    char **host;     /* per node */
    bool local;      /* paths name folders of each machine's own: ckpt_team_local */
    bool decided;    /* the last ckpt_team_agree was the same for all: nobody was lost on the way */
    bool spread;     /* outputs as well: ckpt_team_spread */
    uint32_t *place; /* n_places: the node of each rank of what is written; NULL: not said */
    size_t n_places;
    unsigned threads; /* workers each process should have: the same for all */
} ckpt_team;

/* The team that this process is in; NULL: it works alone, or a part of its work is its own. */
ckpt_team *ckpt_team_now(void);

/* The team that it is in, also while its work is its own: others can still be asked. */
ckpt_team *ckpt_team_any(void);

/*
 * What follows is done by this process for itself, though it is in a team; calls come in pairs.
 */
void ckpt_team_alone(bool alone);

/* One blob of each process. */
typedef struct ckpt_blobs {
    unsigned ranks;
    const uint8_t **at;
    size_t *n;
    ckpt_letter *held; /* where they are */
} ckpt_blobs;

/* Release them; zeroed ones are fine. */
void ckpt_blobs_free(ckpt_blobs *b);

/*
 * Collective.  All bytes of all processes at all of them.
 *
 * Errors  of all of these: CKPT_EIO with the process that is lost, or has left, and its words;
 *         CKPT_ELIMIT
 */
int ckpt_team_all(ckpt_team *t, const void *bytes, size_t n, ckpt_blobs *out, ckpt_err *err);

/* Collective.  parts[r] of this process goes to rank r; *out has what each has for this one. */
int ckpt_team_deal(ckpt_team *t, const ckpt_bytes *parts, ckpt_blobs *out, ckpt_err *err);

/* Collective.  The bytes of rank 0 at all; the other processes' n is 0. */
int ckpt_team_tell(ckpt_team *t, const void *bytes, size_t n, ckpt_blobs *out, ckpt_err *err);

/*
 * Collective.  Each has an outcome; all get that of the lowest process that failed by itself.  The
 * others learn of a failure at once, so that they need not finish first (ckpt_team_check).  Who
 * fails may come here from anywhere: the exchanges of all others fail until they are here, too.
 */
int ckpt_team_agree(ckpt_team *t, int rc, ckpt_err *err);

/* CKPT_ECANCELED: another process has failed, so that this one may stop.  Thread safe. */
int ckpt_team_check(ckpt_team *t, ckpt_err *err);

/* True if an outcome is only that of ckpt_team_check: the failure is another process's. */
bool ckpt_team_echoes(ckpt_team *t, int rc);

/* ---- questions ---- */

/*
 * Ask a process, which answers from a thread of its own.  *out: the answer, to be freed.  Thread
 * safe, not collective.
 *
 * Errors  those of the answer; CKPT_EIO: it is lost
 */
int ckpt_team_ask(ckpt_team *t, unsigned rank, const void *bytes, size_t n, ckpt_letter **out,
                  ckpt_err *err);

/* Tell a process something that it takes note of, when it has done so.  Thread safe. */
int ckpt_team_note(ckpt_team *t, unsigned rank, const void *bytes, size_t n, ckpt_err *err);

/* Who takes note of what is told to this process, on a thread of its own; NULL: nobody. */
typedef int (*ckpt_team_note_fn)(void *ctx, const void *bytes, size_t n, ckpt_err *err);
void ckpt_team_on_note(ckpt_team *t, ckpt_team_note_fn fn, void *ctx);

/* Puts the answer to a question behind what is in `answer` already. */
typedef int (*ckpt_team_answer_fn)(const ckpt_letter *question, ckpt_bytes *answer, ckpt_err *err);

/* ---- progress ---- */

/* How far this process is; what all have done so far, as far as it is known here. */
void ckpt_team_done(ckpt_team *t, uint64_t n_bytes, uint64_t *all);

/* Called several times a second while this process waits for others; NULL: nothing is. */
typedef void (*ckpt_team_wait_fn)(void *ctx);
void ckpt_team_on_wait(ckpt_team *t, ckpt_team_wait_fn fn, void *ctx);

/* A run begins, whose jobs are shared like that; far: bytes of other machines that are read. */
void ckpt_team_begin(ckpt_team *t, const uint64_t *share, const uint64_t *far);

/* Collective.  All learn what each has sent. */
int ckpt_team_count(ckpt_team *t, ckpt_err *err);

/* ---- the whole ---- */

typedef struct ckpt_team_opts {
    unsigned limit;      /* as of ckpt_team_join */
    const char *version; /* which must be that of all */
    ckpt_team_answer_fn answer;
} ckpt_team_opts;

/* As ckpt_team_join. */
int ckpt_team_start(const ckpt_mail *mail, const ckpt_team_opts *opts, ckpt_err *err);

#endif
