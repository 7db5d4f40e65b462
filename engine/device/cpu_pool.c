/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_pool.c: runs a fixed set of threads that wait for jobs, first spinning, then asleep.
 *
 * A job is open until all its ranges have been taken; a worker enters it by raising the count in
 * `state`.  The caller closes the job and waits only for the workers inside, so a thread which the
 * kernel wakes late delays no other.
 *
 * OpenMP (oneDNN brings libgomp along) is not used here, because its teams wait for every member at
 * the end of a loop, and spin.  That costs most of the time if other programs use the CPUs too.
 * With two threads on two CPUs under four-fold load, a step of a small GPT-2 took 4.4 ms by this
 * pool and 46.6 ms by `parallel for schedule(dynamic)`, one of BERT of MiniLM's size 1.2 s and 2.3
 * s (medians, taking turns); in the best tenth of the steps 3.0 and 2.6 ms, 0.71 and 1.01 s.  Also,
 * libgomp ends the process if it cannot start a thread, and the thread sanitizer does not see its
 * synchronisation.
 */
#define _GNU_SOURCE
#include "engine/device/cpu_pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "libckpt/base/mem.h"

#define CP_MAX_THREADS 128u
#define CP_OPEN        0x80000000u
#define CP_COUNT       0x7fffffffu

/* Spins of a worker before it sleeps: about 100 us, longer than gaps inside a training step. */
#define CP_SPINS 2000u

/* Maximum ranges per worker: enough for others to take over the rest of a slow worker's share. */
#define CP_RANGES 32u

typedef struct cp_worker {
    _Alignas(64) atomic_uint_fast64_t next; /* first range of its share that is not yet taken */
    uint64_t end;                           /* end of its share */
    void *scratch;
    uint64_t scratch_bytes;
    zt_cpu_pool *pool;
    pthread_t thread;
    unsigned number;
} cp_worker;

struct zt_cpu_pool {
    _Alignas(64)
        atomic_uint_fast64_t state; /* number of the job << 32 | CP_OPEN | workers inside */
    _Alignas(64) atomic_uint sleeping;
    pthread_mutex_t mutex;
    pthread_cond_t work;
    atomic_bool stop;
    unsigned n, n_started, spins;
    uint64_t jobs;

    /* The current job; written before threads may take ranges of it. */
    uint64_t total, length; /* elements of the job, and of one range */
    zt_cpu_body body;
    void *ctx;
    void *memory; /* memory of this struct, as allocated */
    cp_worker worker[];
};

static void cp_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void cp_run_share(zt_cpu_pool *p, cp_worker *from, unsigned number)
{
    for (;;) {
        uint64_t i = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
        if (i >= from->end)
            return;
        uint64_t first = i * p->length;
        uint64_t last = p->total - first < p->length ? p->total : first + p->length;
        p->body(p->ctx, first, last, number);
    }
}

/* Take ranges until none is left, first those of this worker's own share. */
static void cp_run(zt_cpu_pool *p, unsigned number)
{
    assert(number < p->n && p->body);
    for (unsigned i = 0; i < p->n; i++)
        cp_run_share(p, &p->worker[(number + i) % p->n], number);
}

/* Wait for a job other than `seen`; returns the new state. */
static uint64_t cp_await(zt_cpu_pool *p, uint64_t seen)
{
    uint64_t s = 0;
    for (unsigned i = 0; i < p->spins; i++) {
        s = atomic_load(&p->state);
        if (s >> 32 != seen)
            return s;
        cp_pause();
    }
    pthread_mutex_lock(&p->mutex);
    // the caller stores the state, then reads `sleeping`; the worker does the reverse, so one of
    // them notices
    atomic_fetch_add(&p->sleeping, 1);
    while ((s = atomic_load(&p->state)) >> 32 == seen)
        pthread_cond_wait(&p->work, &p->mutex);
    atomic_fetch_sub(&p->sleeping, 1);
    pthread_mutex_unlock(&p->mutex);
    return s;
}

static void *cp_main(void *arg)
{
    cp_worker *w = arg;
    zt_cpu_pool *p = w->pool;
    uint64_t seen = 0;
    for (;;) {
        uint64_t s = cp_await(p, seen);
        if (atomic_load(&p->stop))
            return NULL;
        seen = s >> 32;
        while (s & CP_OPEN) {
            if (atomic_compare_exchange_weak(&p->state, &s, s + 1)) {
                seen = s >> 32; // the exchange may have found a later job
                cp_run(p, w->number);
                atomic_fetch_sub(&p->state, 1);
                break;
            }
        }
    }
}

/* Publish another job to the workers. */
static void cp_publish(zt_cpu_pool *p, uint64_t flags)
{
    p->jobs = (p->jobs + 1) & 0xffffffffu;
    atomic_store(&p->state, p->jobs << 32 | flags);
    if (atomic_load(&p->sleeping) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->mutex);
    }
}

/* Divide the job into ranges, which are multiples of grain, and those into shares. */
static void cp_share_out(zt_cpu_pool *p, uint64_t n, uint64_t grain)
{
    uint64_t grains = n / grain + (n % grain != 0);
    uint64_t wanted = (uint64_t)p->n * CP_RANGES;
    uint64_t per_range = grains / wanted + (grains % wanted != 0);
    uint64_t ranges = grains / per_range + (grains % per_range != 0);
    assert(grain > 0 && per_range > 0 && ranges <= wanted);
    p->total = n;
    p->length = per_range * grain;
    for (unsigned i = 0; i < p->n; i++) {
        // ranges * i cannot overflow, because ranges <= wanted
        atomic_store_explicit(&p->worker[i].next, ranges * i / p->n, memory_order_relaxed);
        p->worker[i].end = ranges * (i + 1) / p->n;
    }
}

void zt_cpu_parallel(zt_device *d, uint64_t n, uint64_t grain, zt_cpu_body body, void *ctx)
{
    zt_cpu_pool *p = ((zt_cpu *)d)->pool;
    grain = grain ? grain : 1;
    if (n == 0)
        return;
    if (n <= grain || p->n_started == 0) {
        body(ctx, 0, n, 0);
        return;
    }
    cp_share_out(p, n, grain);
    p->body = body;
    p->ctx = ctx;
    cp_publish(p, CP_OPEN);
    cp_run(p, 0);
    uint64_t s = atomic_fetch_and(&p->state, ~(uint64_t)CP_OPEN);
    for (unsigned i = 0; s & CP_COUNT; i++) {
        if (i < p->spins)
            cp_pause();
        else
            sched_yield();
        s = atomic_load(&p->state);
    }
}

void *zt_cpu_scratch(zt_device *d, unsigned worker, uint64_t n_bytes)
{
    cp_worker *w = &((zt_cpu *)d)->pool->worker[worker];
    assert(worker < ((zt_cpu *)d)->pool->n);
    if (n_bytes > w->scratch_bytes) {
        ckpt_free(w->scratch);
        w->scratch_bytes = 0;
        w->scratch = n_bytes < SIZE_MAX - 64 ? ckpt_alloc((size_t)n_bytes + 64) : NULL;
        if (!w->scratch) {
            zt_device_fail(d, CKPT_ELIMIT, "out of memory for the workspace of a thread");
            return NULL;
        }
        w->scratch_bytes = n_bytes;
    }
    uintptr_t start = w->scratch ? (uintptr_t)w->scratch : 64;
    return (char *)w->scratch + (64 - start % 64) % 64;
}

/* Number of CPUs on which this process may run. */
static unsigned cp_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (unsigned)n : 1;
}

/*
 * Start the workers with all signals blocked, because a handler must not run on their stack during
 * a matrix product (cpu_sgemm.h).
 */
static int cp_start(zt_cpu_pool *p, ckpt_err *err)
{
    sigset_t all, before;
    int rc = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (unsigned i = 1; rc == 0 && i < p->n; i++) {
        rc = pthread_create(&p->worker[i].thread, NULL, cp_main, &p->worker[i]);
        p->n_started += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? CKPT_OK
                   : ckpt_fail_sys(err, CKPT_ELIMIT, rc,
                                   "cannot start thread %u of %u of the CPU device",
                                   p->n_started + 1, p->n);
}

int zt_cpu_pool_new(zt_cpu_pool **out, unsigned n_threads, ckpt_err *err)
{
    unsigned processors = cp_processors();
    unsigned n = n_threads ? n_threads : processors;
    if (n > CP_MAX_THREADS)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "cannot start %u threads for the CPU device: the limit is %u", n,
                         CP_MAX_THREADS);
    size_t bytes = sizeof(zt_cpu_pool) + n * sizeof(cp_worker);
    void *memory = ckpt_alloc(bytes + 64);
    if (!memory)
        return ckpt_fail_memory(err);
    zt_cpu_pool *p = (void *)((char *)memory + (64 - (uintptr_t)memory % 64) % 64);
    p->memory = memory;
    p->n = n;
    p->spins =
        n <= processors ? CP_SPINS : 0; // with more threads than CPUs, a spinning worker takes time
                                        // from others
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->work, NULL);
    for (unsigned i = 0; i < n; i++) {
        p->worker[i].pool = p;
        p->worker[i].number = i;
    }
    int rc = cp_start(p, err);
    if (rc != CKPT_OK) {
        zt_cpu_pool_free(p);
        return rc;
    }
    *out = p;
    return CKPT_OK;
}

void zt_cpu_pool_free(zt_cpu_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    cp_publish(p, 0);
    for (unsigned i = 1; i <= p->n_started; i++)
        pthread_join(p->worker[i].thread, NULL);
    for (unsigned i = 0; i < p->n; i++)
        ckpt_free(p->worker[i].scratch);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mutex);
    ckpt_free(p->memory);
}
