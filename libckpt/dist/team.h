/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h: lets the processes of a team exchange data while they carry out one command together.
 *
 * All have the same maps and plans, because they run the same program on the same headers; they
 * differ only in the jobs of a plan that each of them does. All processes make collective calls in
 * the same order, from one thread; each call has a number, so that processes out of step get an
 * error instead of waiting. ckpt_team.h (join, leave) is the public side.
 */
#ifndef CKPT_DIST_TEAM_H
#define CKPT_DIST_TEAM_H

#include "libckpt/base/vec.h"
#include "libckpt/dist/transport.h"

typedef struct ckpt_team {
    unsigned rank, n;
    unsigned n_nodes;
    uint32_t *node; /* per rank: its machine, numbered from 0 in the order of their lowest ranks */
    char **host;    /* per node */
    bool local;     /* paths name folders on each machine: ckpt_team_local */
    /*
     * the last ckpt_team_agree had the same result on all processes: no process was lost during it
     */
    bool decided;
    bool spread;     /* outputs as well: ckpt_team_spread */
    uint32_t *place; /* n_places: the node of each rank of the output; NULL: not given */
    size_t n_places;
    unsigned threads; /* worker threads of each process, the same for all */
} ckpt_team;

/* This process's team; NULL: it works alone, or has called ckpt_team_alone. */
ckpt_team *ckpt_team_now(void);

/* This process's team even after ckpt_team_alone, because it can still ask others. */
ckpt_team *ckpt_team_any(void);

/* Do the following work alone although the process is in a team; calls come in pairs. */
void ckpt_team_alone(bool alone);

/* The lowest rank of a machine. */
unsigned ckpt_team_first(const ckpt_team *t, unsigned node);

/* One blob of each process. */
typedef struct ckpt_blobs {
    unsigned ranks;
    const uint8_t **at;
    size_t *n;
    ckpt_letter *held; /* messages that hold the blobs */
} ckpt_blobs;

/* Release them; zeroed ones are fine. */
void ckpt_blobs_free(ckpt_blobs *b);

/*
 * Collective: allgather. Every process gets the bytes of all.
 *
 * Errors   of all these functions: CKPT_EIO with the process that is lost, or has left, and its
 *          message; CKPT_ELIMIT
 */
int ckpt_team_all(ckpt_team *t, const void *bytes, size_t n, ckpt_blobs *out, ckpt_err *err);

/* Collective: alltoall. parts[r] goes to rank r; *out gets the parts of all ranks for this one. */
int ckpt_team_deal(ckpt_team *t, const ckpt_bytes *parts, ckpt_blobs *out, ckpt_err *err);

/* Collective: broadcast of rank 0's bytes; n is 0 in the other processes. */
int ckpt_team_tell(ckpt_team *t, const void *bytes, size_t n, ckpt_blobs *out, ckpt_err *err);

/*
 * Collective. Each process passes its result; all get that of the lowest process that failed by
 * itself. The others learn of a failure at once (ckpt_team_check), so they need not finish first. A
 * failing process may call this early; pending collectives of the others then fail until they call
 * it too.
 */
int ckpt_team_agree(ckpt_team *t, int rc, ckpt_err *err);

/* CKPT_ECANCELED: another process has failed, so this one may stop.  Thread safe. */
int ckpt_team_check(ckpt_team *t, ckpt_err *err);

/* True if rc only comes from ckpt_team_check: another process has failed, not this one. */
bool ckpt_team_echoes(ckpt_team *t, int rc);

/* ---- questions ---- */

/*
 * Ask a process; it answers from a separate thread. The caller frees *out, the answer. Thread safe,
 * not collective.
 *
 * Errors  those of the answer; CKPT_EIO: the process is lost
 */
int ckpt_team_ask(ckpt_team *t, unsigned rank, const void *bytes, size_t n, ckpt_letter **out,
                  ckpt_err *err);

/* Send a process a note and wait until it has handled it. Thread safe. */
int ckpt_team_note(ckpt_team *t, unsigned rank, const void *bytes, size_t n, ckpt_err *err);

/* The function that handles notes to this process, on a separate thread; NULL: none. */
typedef int (*ckpt_team_note_fn)(void *ctx, const void *bytes, size_t n, ckpt_err *err);
void ckpt_team_on_note(ckpt_team *t, ckpt_team_note_fn fn, void *ctx);

/* Appends the answer to a question to `answer`. */
typedef int (*ckpt_team_answer_fn)(const ckpt_letter *question, ckpt_bytes *answer, ckpt_err *err);

/* ---- progress ---- */

/* Set this process's progress; *all gets the sum of all processes, as far as it is known here. */
void ckpt_team_done(ckpt_team *t, uint64_t n_bytes, uint64_t *all);

/* Called several times a second while this process waits for others; NULL: no call. */
typedef void (*ckpt_team_wait_fn)(void *ctx);
void ckpt_team_on_wait(ckpt_team *t, ckpt_team_wait_fn fn, void *ctx);

/* Begin a run with the given shares; far: bytes that each process reads from other machines. */
void ckpt_team_begin(ckpt_team *t, const uint64_t *share, const uint64_t *far);

/* Collective. Exchange the counts of messages and bytes. */
int ckpt_team_count(ckpt_team *t, ckpt_err *err);

/* ---- start ---- */

typedef struct ckpt_team_opts {
    unsigned limit;      /* as in ckpt_team_join */
    const char *version; /* must be equal on all processes */
    ckpt_team_answer_fn answer;
} ckpt_team_opts;

/* As ckpt_team_join. */
int ckpt_team_start(const ckpt_mail *mail, const ckpt_team_opts *opts, ckpt_err *err);

#endif
