/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_pool.c: runs items on threads, and limits the rate of the progress callback.
 */
#include <assert.h>
#include <pthread.h>
#include <time.h>

#include "libckpt/dist/team.h"
#include "libckpt/io/thread_pool.h"

enum { CREW_MAX = 64, CREW_TICK_NS = 50 * 1000 * 1000 };

struct ckpt_progress {
    pthread_mutex_t lock;
    ckpt_progress_fn fn; /* NULL: no callback */
    void *ctx;
    uint64_t done, total; /* bytes done and to do, of all processes as far as known here */
    uint64_t mine;        /* bytes done by this process */
    struct timespec told; /* time of the last call of fn */
    bool canceled;
    ckpt_team *team; /* the team that this process may wait for, or NULL */
};

static void crew_waits(void *ctx);

int ckpt_progress_new(ckpt_progress **out, const ckpt_run_opts *opts, uint64_t total, ckpt_err *err)
{
    assert(out);
    ckpt_progress *p = ckpt_alloc(sizeof *p);

    *out = NULL;
    if (!p || pthread_mutex_init(&p->lock, NULL) != 0) {
        ckpt_free(p);
        return ckpt_fail_memory(err);
    }
    if (opts) {
        p->fn = opts->progress;
        p->ctx = opts->progress_ctx;
    }
    p->total = total;
    p->team = p->fn ? ckpt_team_now() : NULL;
    if (p->team)
        ckpt_team_on_wait(p->team, crew_waits, p);
    *out = p;
    return CKPT_OK;
}

/* True once per tick. */
static bool crew_tick(ckpt_progress *p)
{
    struct timespec now;
    int64_t ns;

    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return true;
    ns = (int64_t)(now.tv_sec - p->told.tv_sec) * 1000000000 + (now.tv_nsec - p->told.tv_nsec);
    if (ns < CREW_TICK_NS)
        return false;
    p->told = now;
    return true;
}

/* Call back with the lock held: one thread at a time, and never again after a non-zero return. */
static int crew_tell(ckpt_progress *p, ckpt_err *err)
{
    if (!p->canceled && p->fn && p->fn(p->ctx, p->done, p->total) != 0)
        p->canceled = true;
    return p->canceled ? ckpt_fail(err, CKPT_ECANCELED, "interrupted") : CKPT_OK;
}

/*
 * Report the others' progress while this process waits for them. A cancellation is not lost,
 * because the next report returns it again.
 */
static void crew_waits(void *ctx)
{
    ckpt_progress *p = ctx;
    ckpt_err ignored = {0};

    pthread_mutex_lock(&p->lock);
    ckpt_team_done(p->team, p->mine, &p->done);
    p->done = p->done < p->total ? p->done : p->total;
    if (crew_tick(p))
        (void)crew_tell(p, &ignored);
    pthread_mutex_unlock(&p->lock);
}

int ckpt_progress_add(ckpt_progress *p, uint64_t n, ckpt_err *err)
{
    assert(p);
    ckpt_team *team = ckpt_team_now();
    int rc = team ? ckpt_team_check(team, err) : CKPT_OK;

    if (rc != CKPT_OK)
        return rc;
    pthread_mutex_lock(&p->lock);
    p->done = p->mine += n;
    if (team)
        ckpt_team_done(team, p->mine, &p->done);
    p->done = p->done < p->total ? p->done : p->total;
    if (p->canceled || (p->fn && crew_tick(p)))
        rc = crew_tell(p, err);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int ckpt_progress_end(ckpt_progress *p, ckpt_err *err)
{
    assert(p);
    int rc;

    pthread_mutex_lock(&p->lock);
    p->done = p->total;
    rc = crew_tell(p, err);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

void ckpt_progress_free(ckpt_progress *p)
{
    if (!p)
        return;
    if (p->team)
        ckpt_team_on_wait(p->team, NULL, NULL);
    pthread_mutex_destroy(&p->lock);
    ckpt_free(p);
}

/* State that the threads of one ckpt_crew_run share. */
typedef struct crew_state {
    pthread_mutex_t lock;
    uint64_t next, n_items;
    ckpt_crew_fn fn;
    void *ctx;
    int rc;         /* result of the lowest failed item */
    uint64_t item;  /* index of that item */
    ckpt_err first; /* error of that item */
} crew_state;

typedef struct crew_member {
    crew_state *state;
    unsigned worker;
} crew_member;

/* Take the next item; false when there is none, or one has failed. */
static bool crew_take(crew_state *s, uint64_t *item)
{
    bool some;

    pthread_mutex_lock(&s->lock);
    some = s->rc == CKPT_OK && s->next < s->n_items;
    if (some)
        *item = s->next++;
    pthread_mutex_unlock(&s->lock);
    return some;
}

/*
 * Record a failure. Items start in ascending order, so every item below a failed one has started
 * and will report. Keeping the lowest failure makes the result independent of timing.
 */
static void crew_failed(crew_state *s, uint64_t item, int rc, const ckpt_err *e)
{
    pthread_mutex_lock(&s->lock);
    if (s->rc == CKPT_OK || item < s->item) {
        s->rc = rc;
        s->item = item;
        s->first = *e;
    }
    pthread_mutex_unlock(&s->lock);
}

/* Main function of a thread. */
static void *crew_main(void *arg)
{
    const crew_member *m = arg;
    uint64_t item;

    while (crew_take(m->state, &item)) {
        ckpt_err e = {0};
        int rc = m->state->fn(m->state->ctx, m->worker, item, &e);

        if (rc != CKPT_OK)
            crew_failed(m->state, item, rc, &e);
    }
    return NULL;
}

int ckpt_crew_run(unsigned n_workers, uint64_t n_items, ckpt_crew_fn fn, void *ctx, ckpt_err *err)
{
    assert(n_workers > 0 && fn);
    crew_state s = {.n_items = n_items, .fn = fn, .ctx = ctx};
    crew_member member[CREW_MAX];
    pthread_t thread[CREW_MAX];
    unsigned n = n_workers < CREW_MAX ? n_workers : CREW_MAX;
    unsigned n_started = 0;

    if (pthread_mutex_init(&s.lock, NULL) != 0)
        return ckpt_fail_memory(err);
    if (n > n_items)
        n = (unsigned)n_items;
    for (unsigned i = 0; i < n; i++)
        member[i] = (crew_member){&s, i};
    // It works with fewer threads if some cannot start: worker 0 is this thread.
    while (n_started + 1 < n &&
           pthread_create(&thread[n_started], NULL, crew_main, &member[n_started + 1]) == 0)
        n_started++;
    if (n > 0)
        crew_main(&member[0]);
    for (unsigned i = 0; i < n_started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&s.lock);
    if (s.rc == CKPT_OK)
        return CKPT_OK;
    if (err && err->code == CKPT_OK)
        *err = s.first;
    return s.rc;
}

unsigned ckpt_crew_agreed(void)
{
    const ckpt_team *team = ckpt_team_now();

    return team ? team->threads : 0;
}
