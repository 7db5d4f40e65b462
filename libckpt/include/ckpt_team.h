/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_team.h: lets several processes run one program together.
 *
 * After ckpt_team_join every process calls the same functions of ckpt.h with the same arguments.
 * One process reads headers and sends them to the others; ckpt_plan_run, ckpt_verify and ckpt_diff
 * divide their work; outputs get their final names once, after every process has written its part.
 * All processes return the same result: the code and text of the first failure. A part of
 * ckpt_extra.h: it is not stable yet and may change in any release.
 */
#ifndef CKPT_TEAM_H
#define CKPT_TEAM_H

#include <stdbool.h>
#include <stddef.h>

#include "ckpt_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The transport of messages between the processes: MPI, or another of the program's. One thread,
 * which the library starts, calls these functions; messages from one process arrive in order.
 */
typedef struct ckpt_mail {
    size_t size; /* sizeof this struct */
    unsigned rank, n_ranks;
    const char *host; /* the same text for all processes of one machine, and only for these */
    void *ctx;
    /*
     * Begin to send n bytes (at most 2^30), which stay unchanged until `sent` returns 1.
     * Returns  a ticket to pass to `sent`; NULL: failure
     */
    void *(*send)(void *ctx, unsigned to, const void *bytes, size_t n);
    /* 1: the bytes and the ticket may be released; 0: not yet; -1: failure */
    int (*sent)(void *ctx, void *ticket);
    /* 1: a message has arrived, from process *from, n bytes long; 0: none; -1: failure */
    int (*look)(void *ctx, unsigned *from, size_t *n);
    /* Receive its n bytes. Returns 0, or -1: failure */
    int (*take)(void *ctx, void *bytes, size_t n);
    const char *(*why)(void *ctx); /* the reason of the last failure */
    /* End all processes at once, because one of them no longer responds; print `why` */
    void (*abort)(void *ctx, int status, const char *why);
} ckpt_mail;

/* Default seconds without a message after which a process counts as lost. */
#define CKPT_TEAM_LIMIT 60

/*
 * Join a group of mail->n_ranks processes, all of which call this; only once in a process's life.
 *
 * mail     is copied; its members must stay valid until ckpt_team_leave returns
 * limit    seconds without a message after which a process counts as lost; 0: CKPT_TEAM_LIMIT
 * Errors   CKPT_EUSAGE: the processes run different versions; CKPT_EIO, CKPT_ELIMIT
 */
CKPT_API int ckpt_team_join(const ckpt_mail *mail, unsigned limit, ckpt_err *err);

/*
 * The number of processes that an MPI launcher has started, from the environment; -1: no launcher.
 */
CKPT_API long ckpt_team_launched(void);

/* The number of processes, and the rank of this one: 1 and 0 without a team. */
CKPT_API unsigned ckpt_team_size(void);
CKPT_API unsigned ckpt_team_rank(void);

/*
 * Check that all processes have the same text; all of them call it. Without a team it does nothing.
 *
 * label    names the text in messages: "working folder"
 * Errors   CKPT_EUSAGE: the texts differ, on all processes; those of a lost process
 */
CKPT_API int ckpt_team_same(const char *label, const char *text, ckpt_err *err);

/*
 * From now on each machine has its own copy of an opened folder, with a part of the files: a
 * listing combines those of all machines. A file on several machines must be the same on all of
 * them. All processes make the same call; without a team it does nothing.
 */
CKPT_API void ckpt_team_local(bool local);

/*
 * From now on outputs go to each machine's own disk, in a folder of the same path: a machine gets
 * the files of its ranks, and the files that belong to no rank. All processes make the same call;
 * without a team it does nothing.
 *
 * host     n machine names, as in ckpt_mail.host or up to the first dot: the machine of each rank
 *          of the output, ranks of model parallelism innermost; NULL: the ranks are divided evenly
 *          over the processes, in their order
 * Errors   CKPT_EMISSING: no process runs on a machine of this name
 */
CKPT_API int ckpt_team_spread(const char *const *host, size_t n, ckpt_err *err);

/*
 * Do the same with the hostfile of a training job: lines of `host slots=N`; the first ranks go to
 * the first host.
 *
 * Errors   CKPT_EFORMAT with the line, CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT, as ckpt_team_spread
 */
CKPT_API int ckpt_team_hostfile(const char *path, ckpt_err *err);

/* This process's view of one process of the team. */
typedef struct ckpt_team_member {
    const char *host;
    uint64_t n_share, n_done; /* bytes read and written in this run: its share, and done so far */
    /*
     * over all finished runs: messages and bytes sent, and the bytes that its plans read from files
     * on other machines
     */
    uint64_t n_letters, n_sent, n_far;
} ckpt_team_member;

/* Returns false if there is no such process. */
CKPT_API bool ckpt_team_member_at(unsigned rank, ckpt_team_member *out);

/*
 * Leave the team and send this process's result to the others; if it is a failure, processes that
 * still work fail with it.
 *
 * Returns  the common result: CKPT_OK, or the failure of the first process that failed, also in err
 */
CKPT_API int ckpt_team_leave(int rc, ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
