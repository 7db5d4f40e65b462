/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.c: events in the order of time, from a heap that holds one for each worker.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/clock.h"

/* At a time a worker comes to its next step. */
typedef struct ck_event {
    double at;
    uint32_t worker;
} ck_event;

/* The steps of a worker's job, and how many are done. */
typedef struct ck_job {
    clock_step *step;
    unsigned n, done, room;
} ck_job;

typedef struct ck_state {
    ck_event *heap;
    uint32_t n;
    ck_job *job;
} ck_state;

/* Ties are broken by number, so that runs repeat. */
static bool ck_before(const ck_event *a, const ck_event *b)
{
    return a->at < b->at || (a->at == b->at && a->worker < b->worker);
}

/* Let the event at the heap's top sink to where it belongs. */
static void ck_sink(ck_state *s)
{
    ck_event e = s->heap[0];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child + 1 < s->n && ck_before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (child >= s->n || !ck_before(&s->heap[child], &e))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = e;
}

/* Ask for a worker's next job; false: memory. */
static bool ck_next(clock_run *r, ck_job *job, uint32_t worker, clock_step *steps)
{
    job->done = 0;
    job->n = r->next(r->ctx, worker, steps);
    if (job->n > job->room) {
        clock_step *more = realloc(job->step, job->n * sizeof *more);

        if (!more)
            return false;
        job->step = more;
        job->room = job->n;
    }
    if (job->n > 0)
        memcpy(job->step, steps, job->n * sizeof *steps);
    return true;
}

/* The step that begins at a time, after its wait: when it ends. */
static double ck_serve(clock_run *r, const clock_step *step, double at)
{
    clock_server *s;
    double takes;

    if (step->server == CLOCK_NOBODY)
        return at;
    s = &r->server[step->server];
    takes = s->rate > 0 ? step->n_bytes / s->rate : 0;
    if (s->free_at < at)
        s->free_at = at;
    s->free_at += takes;
    s->busy += takes;
    s->n_bytes += step->n_bytes;
    return s->free_at;
}

/* One event after the other. */
static double ck_loop(clock_run *r, ck_state *s, clock_step *steps)
{
    double last = 0;

    while (s->n > 0) {
        ck_event *e = &s->heap[0];
        ck_job *job = &s->job[e->worker];

        if (job->done < job->n)
            e->at = ck_serve(r, &job->step[job->done++], e->at);
        if (job->done == job->n && !ck_next(r, job, e->worker, steps))
            return -1;
        if (job->n > 0) {
            e->at += job->step[job->done].wait;
        } else {
            r->end[e->worker] = e->at;
            last = e->at > last ? e->at : last;
            s->heap[0] = s->heap[--s->n];
        }
        if (s->n > 0)
            ck_sink(s);
    }
    return last;
}

double clock_go(clock_run *r)
{
    ck_state s = {.heap = calloc(r->n_workers, sizeof *s.heap),
                  .job = calloc(r->n_workers, sizeof *s.job)};
    clock_step *steps = calloc(CLOCK_STEPS, sizeof *steps);
    double last = -1;

    for (uint32_t i = 0; i < r->n_servers; i++)
        r->server[i].free_at = 0;
    if (s.heap && s.job && steps) {
        s.n = r->n_workers;
        for (uint32_t i = 0; i < s.n; i++)
            s.heap[i] = (ck_event){0, i};
        last = ck_loop(r, &s, steps);
    }
    for (uint32_t i = 0; s.job && i < r->n_workers; i++)
        free(s.job[i].step);
    free(s.heap);
    free(s.job);
    free(steps);
    return last;
}
