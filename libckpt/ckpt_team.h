/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_team.h: several processes that run one program text as one.
 *
 * After ckpt_team_join every process calls the same functions of ckpt.h with the same arguments.
 * Headers are read by one process and sent to the others; ckpt_plan_run, ckpt_verify and ckpt_diff
 * share their work; outputs get their names once, when every process has written its part.  All
 * get the same outcome: the first failure's code and text.  A part of ckpt.h, which includes it;
 * installed beside it.
 */
#ifndef CKPT_TEAM_H
#define CKPT_TEAM_H

#include <stdbool.h>
#include <stddef.h>

#include "ckpt_types.h"

/*
 * How letters travel between the processes: MPI, or whatever else a program has.  The functions are
 * called by one thread, which the library starts; letters from one process arrive in order.
 */
typedef struct ckpt_mail {
    size_t size; /* sizeof this struct */
    unsigned rank, n_ranks;
    const char *host; /* the same text for all processes of one machine, and only for these */
    void *ctx;
    /*
     * Begin to send n bytes (at most 2^30), which stay as they are until `sent` says 1.
     * Returns  something to ask `sent` for; NULL: it failed
     */
    void *(*send)(void *ctx, unsigned to, const void *bytes, size_t n);
    /* 1: the bytes may go, and so may the ticket; 0: not yet; -1: it failed */
    int (*sent)(void *ctx, void *ticket);
    /* 1: a letter is there, from whom and how long; 0: none; -1: it failed */
    int (*look)(void *ctx, unsigned *from, size_t *n);
    /* Its n bytes.  Returns 0, or -1: it failed */
    int (*take)(void *ctx, void *bytes, size_t n);
    const char *(*why)(void *ctx); /* what failed */
    /* End all processes at once, when one of them cannot be waited for; says why */
    void (*abort)(void *ctx, int status, const char *why);
} ckpt_mail;

/* Seconds without a sign of life after which a process is taken for lost. */
#define CKPT_TEAM_LIMIT 60

/*
 * Become one of mail->n_ranks processes, all of which call this; once in a process's life.
 *
 * mail   is copied; what it points to stays until ckpt_team_leave has returned
 * limit  seconds as of CKPT_TEAM_LIMIT; 0: that
 * Errors CKPT_EUSAGE: the processes are of different versions; CKPT_EIO, CKPT_ELIMIT
 */
CKPT_API int ckpt_team_join(const ckpt_mail *mail, unsigned limit, ckpt_err *err);

/* Processes that an MPI launcher says it has started, by the environment; -1: none did. */
CKPT_API long ckpt_team_launched(void);

/* Processes, and which one this is: 1 and 0 without a team. */
CKPT_API unsigned ckpt_team_size(void);
CKPT_API unsigned ckpt_team_rank(void);

/*
 * All processes call it with what has to be the same for all of them, as text; without a team it
 * does nothing.
 *
 * what    what the text is, for a message
 * Errors  CKPT_EUSAGE: it is not the same, for all; those of a process that is lost
 */
CKPT_API int ckpt_team_same(const char *what, const char *text, ckpt_err *err);

/*
 * From here on a folder that is opened is that of each machine, and each holds a part of its files:
 * listings are those of all machines.  A file that several have must be the same on all of them.
 * All processes call it alike; without a team it does nothing.
 */
CKPT_API void ckpt_team_local(bool local);

/*
 * From here on outputs go to each machine's own disk, in a folder of the same path: a machine gets
 * the files of its ranks, and those that are of no rank.  All processes call it alike; without a
 * team it does nothing.
 *
 * host    names of n machines, as ckpt_mail.host has them or up to the first dot: that of each rank
 *         of what is written, ranks of model parallelism inner ones; NULL: each process stands for
 *         as many ranks, in their order
 * Errors  CKPT_EMISSING: no process is on a machine of such a name
 */
CKPT_API int ckpt_team_spread(const char *const *host, size_t n, ckpt_err *err);

/*
 * The same by a hostfile of a training job: lines of `host slots=N`, the first ranks to the first.
 *
 * Errors  CKPT_EFORMAT with the line, CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT, as of ckpt_team_spread
 */
CKPT_API int ckpt_team_hostfile(const char *path, ckpt_err *err);

/* One of the processes, as this one knows it. */
typedef struct ckpt_team_member {
    const char *host;
    uint64_t n_share, n_done; /* bytes read and written in this run: to do, done so far */
    /* of all runs that have ended: letters and bytes sent, and the bytes of other machines' files
     * that the plans had it read */
    uint64_t n_letters, n_sent, n_far;
} ckpt_team_member;

/* False: there is no such process. */
CKPT_API bool ckpt_team_look(unsigned rank, ckpt_team_member *out);

/*
 * Leave with an outcome; the last thing said to the others.  They fail with it if they still work.
 *
 * Returns  the outcome of all: that of the first process that failed, in err
 */
CKPT_API int ckpt_team_leave(int rc, ckpt_err *err);

#endif
