/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h: which process is which, and whether it still runs.  Linux; processes of one node that
 * see each other's numbers.
 */
#ifndef ZT_COMM_PROCESS_H
#define ZT_COMM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* A number may be given again once its process has ended: the time of its start tells them apart.
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

/* This one. */
zt_process zt_process_self(void);

/* False if it has ended (a zombie included); true while it runs, and if that cannot be told. */
bool zt_process_alive(zt_process p);

/* True if it is known to be stopped (SIGSTOP, SIGTSTP, a debugger). */
bool zt_process_stopped(zt_process p);

/* Seconds that only go forward. */
double zt_process_clock(void);

#endif
