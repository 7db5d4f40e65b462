/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: what the transport's library (libckpt-remote.so, remote/curl) and libckpt say to each
 * other.
 *
 * The transport sends one GET and hands on what comes.  It follows no redirect, tries nothing
 * twice and decides nothing: that is fetch.c's part.  It is a library of its own, so that programs
 * start and work where there is no libcurl.
 */
#ifndef CKPT_REMOTE_WIRE_H
#define CKPT_REMOTE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_WIRE_VERSION 2u
#define CKPT_WIRE_PLUGIN  "libckpt-remote.so"
#define CKPT_WIRE_TABLE   "ckpt_wire_table" /* the symbol that is looked up: a ckpt_wire_plugin */

/* How a request ended. */
typedef enum ckpt_wire_end {
    CKPT_WIRE_DONE,    /* an answer came, whole as far as the transport knows; see status */
    CKPT_WIRE_CUT,     /* the connection failed, stalled, or ended before the body did */
    CKPT_WIRE_STOPPED, /* a function of the request ended it */
    CKPT_WIRE_TRUST,   /* the other side is not who it should be (TLS) */
    CKPT_WIRE_WRONG    /* it cannot be asked at all: a bad URL, no such protocol, no memory */
} ckpt_wire_end;

typedef struct ckpt_wire_request {
    const char *url;
    const char *const *header; /* "Name: value", n_header of them */
    size_t n_header;
    const char *sign; /* "aws:amz:REGION:s3" for requests that are signed, or NULL */
    const char *user; /* "KEY:SECRET", with sign */
    const char *agent;
    unsigned connect_s;  /* seconds until a connection stands */
    unsigned stall_s;    /* seconds without a byte; also the window of least_rate */
    unsigned least_rate; /* bytes a second of a body, over each window */
    /*
     * Called with each header of the answer (value without blanks around it, terminated), then once
     * with name NULL when all have come, then with the body.  Not 0: the request ends.
     */
    int (*got_header)(void *ctx, long status, const char *name, const char *value);
    int (*got_body)(void *ctx, const void *bytes, size_t n);
    bool (*stop)(void *ctx); /* asked now and then */
    void *ctx;
} ckpt_wire_request;

typedef struct ckpt_wire_outcome {
    ckpt_wire_end end;
    long status;     /* of HTTP; 0: none came */
    char next[4096]; /* where a redirect leads, absolute; "".  Its body need not have been read */
    char text[256];  /* what went wrong */
} ckpt_wire_outcome;

/* A connection that is kept between requests; of one thread at a time. */
typedef struct ckpt_wire ckpt_wire;

typedef struct ckpt_wire_plugin {
    unsigned version; /* CKPT_WIRE_VERSION */
    int (*begin)(void);
    ckpt_wire *(*open)(void); /* NULL: no memory */
    void (*get)(ckpt_wire *wire, const ckpt_wire_request *request, ckpt_wire_outcome *out);
    void (*close)(ckpt_wire *wire);
} ckpt_wire_plugin;

#endif
