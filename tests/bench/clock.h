/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h: a clock of workers that queue at servers, for simulate.c.
 *
 * A worker has one thing to do at a time.  It does its job step by step: waits by itself, then
 * queues at a server, which serves one after another, first come first served, at its rate.
 */
#ifndef TESTS_BENCH_CLOCK_H
#define TESTS_BENCH_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define CLOCK_NOBODY UINT32_MAX
#define CLOCK_STEPS  2048 /* of one job at most */

/* A disk, a link, a file system. */
typedef struct clock_server {
    double rate;    /* bytes a second; 0: without limit */
    double free_at; /* s: when it has served all that came so far */
    double busy;    /* s */
    double n_bytes; /* served */
} clock_server;

typedef struct clock_step {
    double wait;     /* s, in which nobody else is kept from anything */
    uint32_t server; /* then; CLOCK_NOBODY: only the wait */
    double n_bytes;  /* that the server is asked for */
} clock_step;

/*
 * The steps of a worker's next job, at most CLOCK_STEPS; 0: it has none left.
 */
typedef unsigned (*clock_next_fn)(void *ctx, uint32_t worker, clock_step *steps);

typedef struct clock_run {
    clock_server *server; /* counts go on from run to run; free_at is set to 0 */
    uint32_t n_servers;
    uint32_t n_workers;
    clock_next_fn next;
    void *ctx;
    double *end; /* per worker: when it had nothing left, s */
} clock_run;

/* Let all workers work from 0 on until none has a job left; the time of the last, or -1: memory. */
double clock_go(clock_run *r);

#endif
