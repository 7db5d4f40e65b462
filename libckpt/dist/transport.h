/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h: runs the thread through which a process sends and receives messages.
 *
 * Only this thread calls the transport, because most MPI libraries want one thread, and because a
 * thread that waits for a message must not keep another one from sending.
 */
#ifndef CKPT_DIST_TRANSPORT_H
#define CKPT_DIST_TRANSPORT_H

#include "ckpt_team.h"
#include "libckpt/base/mem.h"

typedef struct ckpt_letter {
    struct ckpt_letter *next; /* the list that it is in */
    unsigned peer;            /* the other process */
    uint32_t kind;            /* the caller's */
    uint64_t id;              /* the caller's */
    size_t n;
    uint8_t *bytes; /* n of them, after this struct in memory */
} ckpt_letter;

/* Limit of a message's bytes. */
#define CKPT_LETTER_MAX (UINT64_C(1) << 29)

/*
 * A new message of n bytes, which the caller fills; free it with ckpt_free, or pass it to
 * ckpt_post_send. NULL: out of memory.
 */
ckpt_letter *ckpt_letter_new(unsigned peer, uint32_t kind, uint64_t id, size_t n);

/*
 * Functions that the thread calls: deliver takes over a message that has arrived; tick runs several
 * times a second, for time-outs.
 */
typedef struct ckpt_post_calls {
    void (*deliver)(void *ctx, ckpt_letter *letter);
    void (*tick)(void *ctx);
    /* the transport or memory has failed: no more messages will arrive */
    void (*broken)(void *ctx, const char *why);
    void *ctx;
} ckpt_post_calls;

typedef struct ckpt_post ckpt_post;

/* Start the thread. Everything in calls and mail must stay valid until ckpt_post_close. */
int ckpt_post_open(ckpt_post **out, const ckpt_mail *mail, const ckpt_post_calls *calls,
                   ckpt_err *err);

/*
 * Send a message and take it over. It waits while many bytes are under way, except when the thread
 * itself sends. Thread safe.
 */
void ckpt_post_send(ckpt_post *p, ckpt_letter *letter);

/* Get the numbers of messages and bytes sent so far. */
void ckpt_post_count(ckpt_post *p, uint64_t *n_letters, uint64_t *n_bytes);

/* Wait at most `seconds` until all is sent, and end the thread. NULL is fine. */
void ckpt_post_close(ckpt_post *p, double seconds);

/* Seconds of a monotonic clock. */
double ckpt_post_clock(void);

#endif
