/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.h: fetches parts of files by HTTP ranges, and small files completely; handles retries,
 * redirects and changed files.
 *
 * Source   RFC 9110: ranges (14), validators and preconditions (8.8, 13), redirects (15.4),
 *          Retry-After (10.2.3)
 */
#ifndef CKPT_REMOTE_FETCH_H
#define CKPT_REMOTE_FETCH_H

#include "libckpt/base/vec.h"
#include "libckpt/remote/wire.h"

#define CKPT_FETCH_URL 4096u /* bytes of a URL, with its terminator */

/* The credentials for one host, which no other host receives; NULLs: none. */
typedef struct ckpt_fetch_key {
    const char *header[2]; /* "Authorization: Bearer ..." */
    const char *sign;      /* "aws:amz:REGION:s3" */
    const char *user;      /* "KEY:SECRET" */
    const char *help;      /* advice to the user in the message of a refusal */
} ckpt_fetch_key;

typedef struct ckpt_fetch_from {
    const char *name; /* name in messages: the address */
    const char *url;
    const char *direct; /* the target of an earlier redirect, or NULL */
    const ckpt_fetch_key *key;
    int64_t until; /* time by ckpt_fetch_now() at which the budget of the opening is spent, or 0 */
} ckpt_fetch_from;

/*
 * The version of the file that the first answer was of: all later answers must be of the same
 * version.
 */
typedef struct ckpt_fetch_seen {
    bool known;
    uint64_t total; /* bytes of the file */
    char etag[256]; /* ETag with its quotes; "": none */
    char modified[64];
    char origin[256];            /* the origin that gave the ETag */
    char direct[CKPT_FETCH_URL]; /* the target of the redirects, "": there was none */
} ckpt_fetch_seen;

/* A range of a file: n bytes from offset `at` on, into buf. */
typedef struct ckpt_fetch_part {
    void *buf;
    uint64_t n, at;
    uint64_t got; /* bytes received: less than n only at the end of the file */
} ckpt_fetch_part;

/*
 * Fetch a range of a file, or its part up to the end of the file.
 *
 * seen  if not known yet, this fills it in; otherwise the file must still be that version
 * Errors   CKPT_EMISSING: 404 or 410; CKPT_EIO: refused (401, 403), changed meanwhile, cut off or
 *          silent after all tries; CKPT_EUNSUPPORTED: no ranges, or an encoding; CKPT_EUNSAFE: a
 *          redirect to plain HTTP; CKPT_ELIMIT: the budget is spent; CKPT_ECANCELED
 */
int ckpt_fetch_range(const ckpt_fetch_from *from, ckpt_fetch_part *part, ckpt_fetch_seen *seen,
                     ckpt_err *err);

/*
 * Fetch a complete answer of at most max bytes and append it to `out`.
 *
 * next  receives the URL of `Link: <...>; rel="next"`, or ""; may be NULL
 */
int ckpt_fetch_all(const ckpt_fetch_from *from, ckpt_bytes *out, uint64_t max,
                   char next[CKPT_FETCH_URL], ckpt_err *err);

/* True if two URLs have scheme, host and port in common. */
bool ckpt_fetch_same_origin(const char *a, const char *b);

/* ---- the transport (load.c) ---- */

/* Load the transport's library and find its table (plugin.c).  Errors: CKPT_EUNSUPPORTED */
int ckpt_wire_load(const ckpt_wire_plugin **out, ckpt_err *err);

/* Load the transport and read the settings; see ckpt_remote_begin. */
int ckpt_fetch_begin(ckpt_err *err);

/* Take an idle connection, or open a new one; NULL: no memory. */
ckpt_wire *ckpt_wire_take(void);
void ckpt_wire_give(ckpt_wire *wire);
void ckpt_wire_get(ckpt_wire *wire, const ckpt_wire_request *request, ckpt_wire_outcome *out);

/* The settings: seconds without a byte before a request fails, and the number of retries. */
unsigned ckpt_fetch_stall(void);
unsigned ckpt_fetch_retries(void);

/* Milliseconds of the monotonic clock. */
int64_t ckpt_fetch_now(void);

/* Milliseconds that one opening may spend on the network: on the listing and the heads of files. */
int64_t ckpt_fetch_budget(void);

/*
 * Add to the counts of ckpt_remote_progress: n more files are open, `wanted` more are to be opened.
 */
void ckpt_fetch_opened(int64_t n, int64_t wanted);

/* True if the program wants to end (ckpt_remote_set_stop). */
bool ckpt_fetch_stopped(void);

#endif
