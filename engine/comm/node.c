/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: owns the barrier of a node's ranks, in memory that they share. */
#define _GNU_SOURCE
#include "engine/comm/node.h"

#include <assert.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/patience.h"

#define ND_PAGE   4096u
#define ND_SPINS  4000
#define ND_YIELDS 64
#define ND_LOOK   1.0 /* seconds between checks of the other processes */
#define ND_CACHE  64
#define ND_RANK   (ND_PAGE + 2 * (uint64_t)ZT_NODE_HALF) /* bytes of one rank */

/* Each word on which ranks wait has a cache line of its own, so other writes do not disturb it. */
typedef struct nd_meeting {
    _Alignas(ND_CACHE) _Atomic uint32_t arrived; /* number of ranks in the current meeting */
    _Alignas(ND_CACHE) _Atomic uint32_t met; /* number of meetings, modulo 2^32; the futex word */
    _Alignas(ND_CACHE) _Atomic uint32_t asleep;
    _Atomic uint32_t ended; /* 1 + number of a rank that ended; 0: none */
    _Atomic uint32_t late;  /* true: that rank runs, but a wait for it exceeded the limit */
    _Atomic uint32_t spoken;
} nd_meeting;

/* The operation that a rank is about to do. */
typedef struct nd_call {
    uint32_t kind, arg, dt;
    uint64_t n;
} nd_call;

/* The part of the shared memory that one rank writes and all ranks read. */
typedef struct nd_record {
    _Atomic uint32_t left;  /* 1: the rank ended normally */
    _Atomic uint32_t comes; /* meetings that this rank has entered, modulo 2^32 */
    // two, used in turns, because a rank may start the next operation while another reads this
    // one's
    nd_call call[2];
} nd_record;

_Static_assert(sizeof(nd_meeting) <= ND_PAGE && sizeof(nd_record) <= ND_PAGE, "a page each");

uint64_t zt_node_bytes(int world)
{
    return 2 * ND_PAGE + (uint64_t)world * ND_RANK; // the extra page is for alignment
}

static nd_meeting *nd_shared(const zt_node *n)
{
    return (nd_meeting *)(void *)n->memory;
}

static nd_record *nd_of(const zt_node *n, int rank)
{
    assert(rank >= 0 && rank < n->world);
    return (nd_record *)(void *)(n->memory + ND_PAGE + (uint64_t)rank * ND_RANK);
}

unsigned char *zt_node_half(const zt_node *n, int rank, unsigned half)
{
    assert(half < 2);
    return (unsigned char *)nd_of(n, rank) + ND_PAGE + (uint64_t)half * ZT_NODE_HALF;
}

void zt_node_begin(zt_node *n, void *memory)
{
    n->memory = (unsigned char *)memory + (ND_PAGE - (uintptr_t)memory % ND_PAGE);
    assert((uintptr_t)n->memory % ND_PAGE == 0);
    if (n->rank == 0)
        memset(n->memory, 0, ND_PAGE);
    memset(nd_of(n, n->rank), 0, ND_RANK);
}

/* ---- meeting ---- */

static long nd_futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *t)
{
    return syscall(SYS_futex, word, what, value, t, NULL, 0);
}

static void nd_wake(zt_node *n)
{
    if (atomic_load(&nd_shared(n)->asleep))
        nd_futex(&nd_shared(n)->met, FUTEX_WAKE, INT32_MAX, NULL);
}

bool zt_node_first(zt_node *n)
{
    return atomic_exchange(&nd_shared(n)->spoken, 1) == 0;
}

void zt_node_leave(zt_node *n)
{
    // waiting ranks see it at their next check
    atomic_store(&nd_of(n, n->rank)->left, 1);
}

static int nd_fail_ended(const zt_node *n, const zt_call *call, ckpt_err *err)
{
    int q = (int)atomic_load(&nd_shared(n)->ended) - 1;
    bool left = atomic_load(&nd_of(n, q)->left) != 0;

    if (atomic_load(&nd_shared(n)->late))
        return ckpt_fail(err, CKPT_EIO, "%s: rank %d on %s did not arrive in time (--wait-limit)",
                         zt_call_name(call->kind), q, n->host);
    return ckpt_fail(err, CKPT_EIO, "%s: rank %d on %s (process %lld) has %s",
                     zt_call_name(call->kind), q, n->host, (long long)n->mate[q].process.pid,
                     left ? "left the run before its end" : "ended unexpectedly");
}

/* Check that all other ranks still run. */
static void nd_look(zt_node *n)
{
    for (int q = 0; q < n->world; q++) {
        uint32_t none = 0;

        if (q != n->rank &&
            (atomic_load(&nd_of(n, q)->left) || !zt_process_alive(n->mate[q].process))) {
            atomic_compare_exchange_strong(&nd_shared(n)->ended, &none, (uint32_t)q + 1);
            nd_futex(&nd_shared(n)->met, FUTEX_WAKE, INT32_MAX, NULL);
            return;
        }
    }
}

/* Find the missing ranks.  *first: the lowest rank that is present, which prints for all. */
static zt_missing nd_missing(const zt_node *n, int *first)
{
    uint32_t comes = atomic_load(&nd_of(n, n->rank)->comes);
    zt_missing m = {.rank = -1, .host = n->host};

    *first = n->rank;
    for (int q = n->world - 1; q >= 0; q--) {
        uint32_t theirs = atomic_load(&nd_of(n, q)->comes);

        if (theirs == comes) {
            *first = q;
        } else if (theirs ==
                   comes - 1) { // rank q has not arrived (a higher count: it has left already)
            m.more += m.rank >= 0;
            m.rank = q;
            m.process = n->mate[q].process;
        }
    }
    return m;
}

/* During a wait: check whether other ranks have ended or are late. */
static int nd_watch(zt_node *n, zt_patience *p, const zt_call *call, ckpt_err *err)
{
    int first = 0, rc;
    uint32_t none = 0;
    zt_missing m;

    nd_look(n);
    m = nd_missing(n, &first);
    if (m.rank < 0 || atomic_load(&nd_shared(n)->ended))
        return CKPT_OK;
    rc = zt_patience_look(p, zt_call_name(call->kind), n->rank, first == n->rank, &m, err);
    if (rc != CKPT_OK) {
        atomic_store(&nd_shared(n)->late, 1);
        atomic_compare_exchange_strong(&nd_shared(n)->ended, &none, (uint32_t)m.rank + 1);
    }
    return rc;
}

static void nd_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Wait until the count of meetings is no longer `before`. */
static int nd_wait(zt_node *n, uint32_t before, const zt_call *call, ckpt_err *err)
{
    const struct timespec second = {.tv_sec = 1};
    _Atomic uint32_t *met = &nd_shared(n)->met;
    zt_patience patience;
    int rc = CKPT_OK;

    for (int i = 0; i < ND_SPINS + ND_YIELDS; i++) {
        if (atomic_load_explicit(met, memory_order_acquire) != before)
            return CKPT_OK;
        if (i < ND_SPINS)
            nd_pause();
        else
            sched_yield();
    }
    zt_patience_begin(&patience);
    for (;;) {
        atomic_fetch_add(&nd_shared(n)->asleep, 1);
        nd_futex(met, FUTEX_WAIT, before, &second);
        atomic_fetch_sub(&nd_shared(n)->asleep, 1);
        if (zt_process_clock() - patience.looked >= ND_LOOK)
            rc = nd_watch(n, &patience, call, err);
        // check this last: a rank may have met all others and then ended normally, which is no
        // failure
        if (atomic_load(met) != before)
            return CKPT_OK;
        if (rc != CKPT_OK || atomic_load(&nd_shared(n)->ended))
            return rc != CKPT_OK ? rc : nd_fail_ended(n, call, err);
    }
}

int zt_node_again(zt_node *n, const zt_call *call, ckpt_err *err)
{
    nd_meeting *s = nd_shared(n);
    uint32_t before;

    if (atomic_load(&s->ended))
        return nd_fail_ended(n, call, err);
    before = atomic_load(&s->met); // cannot change before this rank arrives
    atomic_fetch_add(&nd_of(n, n->rank)->comes, 1);
    if (atomic_fetch_add(&s->arrived, 1) + 1 == (uint32_t)n->world) {
        atomic_store(&s->arrived, 0);
        atomic_store(&s->met, before + 1);
        nd_wake(n);
        return CKPT_OK;
    }
    return nd_wait(n, before, call, err);
}

static int nd_fail_differs(const nd_call *mine, const nd_call *theirs, int rank, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EIO,
                     "%s of %" PRIu64 " elements of %s: rank %d is in %s of %" PRIu64
                     " elements of %s: all ranks must make the same calls",
                     zt_call_name((zt_call_kind)mine->kind), mine->n,
                     ckpt_dtype_name((ckpt_dtype)mine->dt), rank,
                     zt_call_name((zt_call_kind)theirs->kind), theirs->n,
                     ckpt_dtype_name((ckpt_dtype)theirs->dt));
}

int zt_node_meet(zt_node *n, const zt_call *call, ckpt_err *err)
{
    unsigned turn = ++n->turn & 1;
    nd_call *mine = &nd_of(n, n->rank)->call[turn];
    int rc;

    *mine = (nd_call){(uint32_t)call->kind, call->arg, (uint32_t)call->dt, call->n};
    rc = zt_node_again(n, call, err);
    for (int q = 0; q < n->world && rc == CKPT_OK; q++) {
        const nd_call *r = &nd_of(n, q)->call[turn];

        if (r->kind != mine->kind || r->arg != mine->arg || r->dt != mine->dt || r->n != mine->n)
            rc = nd_fail_differs(mine, r, q, err);
    }
    return rc;
}
