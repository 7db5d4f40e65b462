/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h: declares how to identify a process of this node and to see whether it still runs.
 * Linux only; the processes must see each other's pids.
 */
#ifndef ZT_COMM_PROCESS_H
#define ZT_COMM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A process of this node.  The start time is needed, because Linux may reuse a pid once its process
 * has ended.
 */
typedef struct zt_process {
    int64_t pid;
    uint64_t start; /* clock ticks since the machine's start; 0: unknown */
} zt_process;

/* A rank of this node. */
typedef struct zt_mate {
    zt_process process;
    int64_t rank;
} zt_mate;

/* The identity of the calling process. */
zt_process zt_process_self(void);

/*
 * False if the process has ended (zombies included).  True while it runs, and also if /proc does
 * not show it.
 */
bool zt_process_alive(zt_process p);

/* True if it is known to be stopped (SIGSTOP, SIGTSTP, a debugger). */
bool zt_process_stopped(zt_process p);

/* Seconds of a monotonic clock. */
double zt_process_clock(void);

#endif
