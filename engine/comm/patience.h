/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience.h: declares the limits on waiting for another rank: a message after some seconds, a
 * failure after --wait-limit.
 */
#ifndef ZT_COMM_PATIENCE_H
#define ZT_COMM_PATIENCE_H

#include "engine/comm/process.h"
#include "libckpt/base/err.h"

/* One wait.  Time in which this process was suspended does not count. */
typedef struct zt_patience {
    double looked, waited, tell; /* seconds; tell: when the next message is due */
} zt_patience;

/* The rank that others wait for, as far as it is known. */
typedef struct zt_missing {
    int rank;           /* -1: unknown */
    int more;           /* number of further missing ranks */
    const char *host;   /* NULL: unknown */
    zt_process process; /* pid 0: unknown, or of another host */
} zt_missing;

/* Begin a wait. */
void zt_patience_begin(zt_patience *p);

/*
 * Call this about once a second during a wait.
 *
 * what   the operation
 * rank   the waiting rank; tells: it prints the message, on standard error
 * Errors CKPT_EIO: longer than the limit
 */
int zt_patience_look(zt_patience *p, const char *what, int rank, bool tells, const zt_missing *whom,
                     ckpt_err *err);

/* Set the seconds after which a wait of this process fails; 0 (default): never. */
void zt_patience_limit(double seconds);

#endif
