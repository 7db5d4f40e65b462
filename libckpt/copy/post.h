/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.h: the thread through which a process sends and receives letters.
 *
 * All calls of the mail are made by this thread: most MPI libraries are happiest so, and nobody
 * who waits for a letter keeps another from being sent.
 */
#ifndef CKPT_COPY_POST_H
#define CKPT_COPY_POST_H

#include "ckpt_team.h"
#include "libckpt/base/mem.h"

typedef struct ckpt_letter {
    struct ckpt_letter *next; /* the list it is in */
    unsigned peer;            /* to or from whom */
    uint32_t kind;            /* the caller's */
    uint64_t id;              /* the caller's */
    size_t n;
    uint8_t *bytes; /* n of them, behind this struct */
} ckpt_letter;

/* Bytes of the longest letter. */
#define CKPT_LETTER_MAX (UINT64_C(1) << 29)

/* An empty letter of n bytes, to be filled; ckpt_free, or ckpt_post_send.  NULL: no memory. */
ckpt_letter *ckpt_letter_new(unsigned peer, uint32_t kind, uint64_t id, size_t n);

/*
 * What the thread calls: a letter that has come, which is taken over; and, several times a second,
 * a look at the clock.
 */
typedef struct ckpt_post_calls {
    void (*deliver)(void *ctx, ckpt_letter *letter);
    void (*tick)(void *ctx);
    /* mail or memory has failed: nothing arrives any more */
    void (*broken)(void *ctx, const char *why);
    void *ctx;
} ckpt_post_calls;

typedef struct ckpt_post ckpt_post;

/* Start the thread.  What calls and mail point to stays until ckpt_post_close. */
int ckpt_post_open(ckpt_post **out, const ckpt_mail *mail, const ckpt_post_calls *calls,
                   ckpt_err *err);

/*
 * Send a letter, which is taken over.  Waits while much is on its way; not for those whom the
 * thread itself sends.  Thread safe.
 */
void ckpt_post_send(ckpt_post *p, ckpt_letter *letter);

/* Letters and bytes sent so far. */
void ckpt_post_count(ckpt_post *p, uint64_t *n_letters, uint64_t *n_bytes);

/* Wait until all is sent, at most `seconds`, and end the thread.  NULL is fine. */
void ckpt_post_close(ckpt_post *p, double seconds);

/* Seconds of a clock that nothing sets. */
double ckpt_post_clock(void);

#endif
