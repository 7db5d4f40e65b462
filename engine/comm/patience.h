/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience.h: waiting for ranks that do not come: said after some seconds, ended after
 * --wait-limit.
 */
#ifndef ZT_COMM_PATIENCE_H
#define ZT_COMM_PATIENCE_H

#include "engine/comm/process.h"
#include "libckpt/base/err.h"

/* One wait.  Time in which this process did not run itself (a job that was suspended) does not
 * count. */
typedef struct zt_patience {
    double looked, waited, tell; /* seconds; tell: when it is said next */
} zt_patience;

/* Whom a rank waits for, as far as it knows. */
typedef struct zt_missing {
    int rank;           /* -1: it cannot be told which */
    int more;           /* others that are missing too */
    const char *host;   /* NULL: unknown */
    zt_process process; /* pid 0: unknown, or of another host */
} zt_missing;

/* The wait begins now. */
void zt_patience_begin(zt_patience *p);

/*
 * To be called about once a second.
 *
 * what   the operation
 * rank   who waits; tells: it is the one that says so, on standard error
 * Errors CKPT_EIO: longer than the limit
 */
int zt_patience_look(zt_patience *p, const char *what, int rank, bool tells, const zt_missing *whom,
                     ckpt_err *err);

/* Seconds after which a wait is a failure, of this process; 0 (at first): never. */
void zt_patience_limit(double seconds);

#endif
