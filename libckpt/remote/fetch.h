/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.h: parts of files by HTTP ranges, and whole small answers, with all that can go wrong.
 *
 * Source   RFC 9110: ranges (14), validators and preconditions (8.8, 13), redirects (15.4),
 *          Retry-After (10.2.3)
 */
#ifndef CKPT_REMOTE_FETCH_H
#define CKPT_REMOTE_FETCH_H

#include "libckpt/base/vec.h"
#include "libckpt/remote/wire.h"

#define CKPT_FETCH_URL 4096u /* bytes of a URL, with its terminator */

/* What is shown to the host of a URL, and to no other one; NULLs: nothing. */
typedef struct ckpt_fetch_key {
    const char *header[2]; /* "Authorization: Bearer ..." */
    const char *sign;      /* "aws:amz:REGION:s3" */
    const char *user;      /* "KEY:SECRET" */
    const char *help;      /* what to do when it is refused, for messages */
} ckpt_fetch_key;

typedef struct ckpt_fetch_from {
    const char *name; /* for messages: the address */
    const char *url;
    const char *direct; /* where a redirect led to before, or NULL */
    const ckpt_fetch_key *key;
    int64_t until; /* ckpt_fetch_now() at which the budget of an opening is spent, or 0 */
} ckpt_fetch_from;

/* Which file an answer was of: all later ones must be of the same. */
typedef struct ckpt_fetch_seen {
    bool known;
    uint64_t total; /* bytes of the file */
    char etag[256]; /* with its quotes, "": none */
    char modified[64];
    char origin[256];            /* who said so */
    char direct[CKPT_FETCH_URL]; /* where redirects led to, "": nowhere */
} ckpt_fetch_seen;

/*
 * Bytes at, at+1 ... of a file: n of them, or up to its end.
 *
 * seen     not known: filled; known: the file must still be that one
 * got      bytes that came: less than n only at the end of the file
 * Errors   CKPT_EMISSING: 404 or 410; CKPT_EIO: refused (401, 403), changed meanwhile, cut off or
 *          silent after all tries; CKPT_EUNSUPPORTED: no ranges, or an encoding; CKPT_EUNSAFE: a
 *          redirect to plain HTTP; CKPT_ELIMIT: the budget is spent; CKPT_ECANCELED
 */
int ckpt_fetch_range(const ckpt_fetch_from *from, void *buf, uint64_t n, uint64_t at,
                     ckpt_fetch_seen *seen, uint64_t *got, ckpt_err *err);

/*
 * A whole answer of at most max bytes, appended to `out`.
 *
 * next     gets the URL of `Link: <...>; rel="next"`, or ""; may be NULL
 */
int ckpt_fetch_all(const ckpt_fetch_from *from, ckpt_bytes *out, uint64_t max,
                   char next[CKPT_FETCH_URL], ckpt_err *err);

/* True if two URLs have scheme, host and port in common. */
bool ckpt_fetch_same_origin(const char *a, const char *b);

/* ---- the transport (load.c) ---- */

/* Its table, from its library (plugin.c).  Errors: CKPT_EUNSUPPORTED */
int ckpt_wire_load(const ckpt_wire_plugin **out, ckpt_err *err);

/* Load it and read the settings; see ckpt_remote_begin. */
int ckpt_fetch_begin(ckpt_err *err);

/* A connection from those that are idle, or a new one; NULL: no memory. */
ckpt_wire *ckpt_wire_take(void);
void ckpt_wire_give(ckpt_wire *wire);
void ckpt_wire_get(ckpt_wire *wire, const ckpt_wire_request *request, ckpt_wire_outcome *out);

/* Seconds without a byte, and how often a failure is tried again. */
unsigned ckpt_fetch_stall(void);
unsigned ckpt_fetch_retries(void);

/* Milliseconds of a clock that nobody sets. */
int64_t ckpt_fetch_now(void);

/* Milliseconds that the network may take for one opening: its listing, and the heads of files. */
int64_t ckpt_fetch_budget(void);

/* Counts of ckpt_remote_opening: so many more are open, so many more are wanted. */
void ckpt_fetch_opened(int64_t n, int64_t wanted);

/* The program wants to end (ckpt_remote_stop_with). */
bool ckpt_fetch_stopped(void);

#endif
