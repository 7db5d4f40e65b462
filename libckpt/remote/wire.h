/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: defines the interface between libckpt and the transport's library (libckpt-remote.so,
 * remote/curl).
 *
 * The transport sends one GET and passes the answer on.  It follows no redirect, does not retry and
 * makes no decisions: fetch.c does that.  It is a separate library, so that programs start and work
 * on machines without libcurl.
 */
#ifndef CKPT_REMOTE_WIRE_H
#define CKPT_REMOTE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_WIRE_VERSION 2u
#define CKPT_WIRE_PLUGIN  "libckpt-remote.so"
#define CKPT_WIRE_TABLE   "ckpt_wire_table" /* name of the symbol of the ckpt_wire_plugin */

/* How a request ended. */
typedef enum ckpt_wire_end {
    CKPT_WIRE_DONE,    /* an answer came, complete as far as the transport knows; see status */
    CKPT_WIRE_CUT,     /* the connection failed, stalled, or ended before the body did */
    CKPT_WIRE_STOPPED, /* a callback of the request ended it */
    CKPT_WIRE_TRUST,   /* the certificate of the server is not valid for its name (TLS) */
    CKPT_WIRE_WRONG    /* the request cannot be sent: bad URL, unsupported protocol, no memory */
} ckpt_wire_end;

typedef struct ckpt_wire_request {
    const char *url;
    const char *const *header; /* "Name: value", n_header of them */
    size_t n_header;
    const char *sign; /* "aws:amz:REGION:s3" for signed requests, or NULL */
    const char *user; /* "KEY:SECRET", with sign */
    const char *agent;
    unsigned connect_s;  /* seconds until the connection is established */
    unsigned stall_s;    /* seconds without a byte; also the window of least_rate */
    unsigned least_rate; /* bytes a second of a body, in each window */
    /*
     * Called with each header of the answer (value without blanks around it, terminated), then once
     * with name NULL after the last header.  got_body then receives the body.  Not 0: end the
     * request.
     */
    int (*got_header)(void *ctx, long status, const char *name, const char *value);
    int (*got_body)(void *ctx, const void *bytes, size_t n);
    bool (*stop)(void *ctx); /* called now and then; true ends the request */
    void *ctx;
} ckpt_wire_request;

typedef struct ckpt_wire_outcome {
    ckpt_wire_end end;
    long status;     /* HTTP status; 0: no answer came */
    char next[4096]; /* target of a redirect, absolute, or "".  The body need not have been read */
    char text[256];  /* the reason of a failure */
} ckpt_wire_outcome;

/* A connection, kept open between requests.  One thread uses it at a time. */
typedef struct ckpt_wire ckpt_wire;

typedef struct ckpt_wire_plugin {
    unsigned version; /* CKPT_WIRE_VERSION */
    int (*begin)(void);
    ckpt_wire *(*open)(void); /* NULL: no memory */
    void (*get)(ckpt_wire *wire, const ckpt_wire_request *request, ckpt_wire_outcome *out);
    void (*close)(ckpt_wire *wire);
} ckpt_wire_plugin;

#endif
