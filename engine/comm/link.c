/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c: implements comm.h's operations for host memory: checks, the cases of one rank or no
 * elements, all_reduce as its two halves, and the ring of started operations.
 *
 * wait does the work of started operations.  There is no helper thread, because ranks usually fill
 * the cores of their node already (one rank per core): a thread that sums would slow down the
 * computation with which it should overlap, and sums are bound by memory, not by latency.
 */
#define _GNU_SOURCE
#include "engine/comm/link.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libckpt/base/mem.h"

#define LK_ALIGN 64u
#define LK_HUGE  ((uintptr_t)2 << 20) /* a huge page */

const char *zt_call_name(zt_call_kind kind)
{
    static const char *const name[] = {"nothing",    "reduce_scatter", "all_gather",
                                       "all_reduce", "reduce",         "broadcast",
                                       "all_to_all", "barrier",        "free"};
    unsigned k = (unsigned)kind;

    return k < sizeof name / sizeof *name ? name[k] : "an unknown operation";
}

void zt_link_count(zt_traffic *t, const zt_call *call, uint64_t sent, uint64_t received)
{
    bool words = call->kind == ZT_CALL_BROADCAST || call->dt == CKPT_F64 || call->dt == CKPT_I32 ||
                 call->dt == CKPT_I64;

    *(words ? &t->words_sent : &t->sent) += sent;
    *(words ? &t->words_received : &t->received) += received;
}

void zt_link_name_host(zt_link *l)
{
    if (gethostname(l->host, sizeof l->host - 1) != 0 || l->host[0] == 0)
        memcpy(l->host, "localhost", sizeof "localhost");
    l->base.host = l->host;
}

/*
 * Ask the kernel for huge pages where the block contains complete ones.  It is only advice, so
 * failures do not matter.
 */
static void lk_advise(unsigned char *p, uint64_t n_bytes)
{
#ifdef MADV_HUGEPAGE
    uintptr_t first = ((uintptr_t)p + LK_HUGE - 1) & ~(uintptr_t)(LK_HUGE - 1);
    uintptr_t last = ((uintptr_t)p + (uintptr_t)n_bytes) & ~(uintptr_t)(LK_HUGE - 1);

    if (first < last)
        (void)madvise(p + (first - (uintptr_t)p), last - first, MADV_HUGEPAGE);
#else
    (void)p;
    (void)n_bytes;
#endif
}

void *zt_link_alloc(zt_comm *c, uint64_t n_bytes)
{
    uint64_t n;
    void *p;

    (void)c;
    // ckpt_alloc counts and caps memory but aligns to 16: room for the pointer
    // and for aligning
    if (!ckpt_add(n_bytes, LK_ALIGN + sizeof p, &n) || n > SIZE_MAX / 2)
        return NULL;
    p = ckpt_alloc((size_t)n);
    if (p) {
        uintptr_t at = ((uintptr_t)p + sizeof p + LK_ALIGN - 1) & ~(uintptr_t)(LK_ALIGN - 1);
        unsigned char *q = (unsigned char *)p + (at - (uintptr_t)p);

        assert((uintptr_t)q % LK_ALIGN == 0 && q >= (unsigned char *)p + sizeof p);
        memcpy(q - sizeof p, &p, sizeof p);
        lk_advise(q, n_bytes);
        return q;
    }
    return NULL;
}

void zt_link_release(zt_comm *c, void *p)
{
    void *whole;

    (void)c;
    if (p) {
        memcpy(&whole, (unsigned char *)p - sizeof whole, sizeof whole);
        ckpt_free(whole);
    }
}

static zt_link *lk_of(zt_comm *c)
{
    return (zt_link *)(void *)c;
}

int zt_link_check(const zt_comm *c, zt_call *call, bool sum, ckpt_err *err)
{
    const ckpt_dtype_info *info = ckpt_dtype_get(call->dt);
    bool known = call->dt == CKPT_F32 || call->dt == CKPT_F64 || call->dt == CKPT_F16 ||
                 call->dt == CKPT_BF16 || call->dt == CKPT_I32 || call->dt == CKPT_I64;
    uint64_t total;

    assert(info && c->world > 0 && c->rank >= 0 && c->rank < c->world);
    call->size = info->bits / 8;
    if (!known && (sum || call->dt != CKPT_U8))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: dtype %s is not supported%s",
                         zt_call_name(call->kind), info->name, sum ? " for sums" : "");
    if (!ckpt_mul(call->n, call->size, &total) || !ckpt_mul(total, (uint64_t)c->world, &total) ||
        total > PTRDIFF_MAX)
        return ckpt_fail(
            err, CKPT_ELIMIT, "%s of %llu elements of %s on %d ranks exceeds the address space",
            zt_call_name(call->kind), (unsigned long long)call->n, info->name, c->world);
    if (call->n && (!call->to || !call->from))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: no buffer", zt_call_name(call->kind));
    return CKPT_OK;
}

/* With one rank, its own part is the result. */
static int lk_alone(const zt_call *call)
{
    if (call->to != call->from)
        memmove(call->to, call->from, (size_t)(call->n * call->size));
    return CKPT_OK;
}

int zt_link_reduce_scatter(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                           ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_call call = {
        .kind = ZT_CALL_REDUCE_SCATTER, .to = to, .from = from, .n = n, .dt = dt, .op = ZT_SUM};
    int rc = zt_link_check(c, &call, true, err);

    if (rc != CKPT_OK || n == 0)
        return rc;
    return l->ops ? l->ops->reduce_scatter(l->way, &call, err) : lk_alone(&call);
}

int zt_link_all_gather(zt_comm *c, void *to, const void *from, uint64_t n, ckpt_dtype dt,
                       ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_call call = {.kind = ZT_CALL_ALL_GATHER, .to = to, .from = from, .n = n, .dt = dt};
    int rc = zt_link_check(c, &call, false, err);

    if (rc != CKPT_OK || n == 0)
        return rc;
    return l->ops ? l->ops->all_gather(l->way, &call, err) : lk_alone(&call);
}

/*
 * Reduce the slices of x with two collectives, then the remainder (fewer elements than ranks) with
 * a small one.
 */
static int lk_reduce_large(zt_link *l, const zt_call *all, ckpt_err *err)
{
    unsigned char *x = all->to;
    uint64_t world = (uint64_t)l->base.world, m = all->n / world, left = all->n - m * world;
    zt_call half = *all;
    int rc;

    assert(m > 0 && all->size > 0); // smaller ones go another way
    half.n = m;
    half.to = x + (uint64_t)l->base.rank * m * all->size;
    rc = l->ops->reduce_scatter(l->way, &half, err);
    if (rc == CKPT_OK) {
        half.from = half.to;
        half.to = x;
        rc = l->ops->all_gather(l->way, &half, err);
    }
    if (rc == CKPT_OK && left) {
        half.n = left;
        half.to = x + m * world * all->size;
        half.from = half.to;
        rc = l->ops->reduce_small(l->way, &half, err);
    }
    return rc;
}

int zt_link_all_reduce(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, zt_reduce op, ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_call call = {.kind = ZT_CALL_ALL_REDUCE, .to = x, .from = x, .n = n, .dt = dt, .op = op};
    int rc = zt_link_check(c, &call, true, err);

    if (rc != CKPT_OK || n == 0 || !l->ops)
        return rc;
    call.arg = (uint32_t)op;
    if (n * call.size * (uint64_t)c->world <= ZT_LINK_SMALL || n < (uint64_t)c->world)
        return l->ops->reduce_small(l->way, &call, err);
    return lk_reduce_large(l, &call, err);
}

static int lk_check_root(const zt_comm *c, const zt_call *call, ckpt_err *err)
{
    return call->root >= 0 && call->root < c->world
               ? CKPT_OK
               : ckpt_fail(err, CKPT_EUSAGE, "%s: root %d is not one of the %d ranks",
                           zt_call_name(call->kind), call->root, c->world);
}

int zt_link_reduce(zt_comm *c, void *x, uint64_t n, ckpt_dtype dt, int root, ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_call call = {
        .kind = ZT_CALL_REDUCE, .to = x, .from = x, .n = n, .dt = dt, .op = ZT_SUM, .root = root};
    int rc = zt_link_check(c, &call, true, err);

    if (rc == CKPT_OK)
        rc = lk_check_root(c, &call, err);
    if (rc != CKPT_OK || n == 0 || !l->ops)
        return rc;
    call.arg = (uint32_t)root;
    return l->ops->reduce(l->way, &call, err);
}

int zt_link_broadcast(zt_comm *c, void *x, uint64_t n_bytes, int root, ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_call call = {
        .kind = ZT_CALL_BROADCAST, .to = x, .from = x, .n = n_bytes, .dt = CKPT_U8, .root = root};
    int rc = zt_link_check(c, &call, false, err);

    if (rc == CKPT_OK)
        rc = lk_check_root(c, &call, err);
    if (rc != CKPT_OK || n_bytes == 0 || !l->ops)
        return rc;
    call.arg = (uint32_t)root;
    return l->ops->broadcast(l->way, &call, err);
}

int zt_link_all_to_all(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_call call = {
        .kind = ZT_CALL_ALL_TO_ALL, .to = to, .from = from, .n = n_bytes, .dt = CKPT_U8};
    int rc = zt_link_check(c, &call, false, err);

    if (rc != CKPT_OK || n_bytes == 0)
        return rc;
    return l->ops ? l->ops->all_to_all(l->way, &call, err) : lk_alone(&call);
}

int zt_link_barrier(zt_comm *c, ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_call call = {.kind = ZT_CALL_BARRIER, .dt = CKPT_U8, .size = 1};

    return l->ops ? l->ops->barrier(l->way, &call, err) : CKPT_OK;
}

int zt_link_start(zt_comm *c, const zt_collective *what, ckpt_err *err)
{
    zt_link *l = lk_of(c);

    if (l->n_pending == ZT_COMM_PENDING)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "start: %d operations are already running: wait for one first",
                         ZT_COMM_PENDING);
    assert(l->first < ZT_COMM_PENDING && l->n_pending < ZT_COMM_PENDING);
    assert(what->kind == ZT_REDUCE_SCATTER || what->kind == ZT_ALL_GATHER);
    l->pending[(l->first + l->n_pending) % ZT_COMM_PENDING] = *what;
    l->n_pending++;
    return CKPT_OK;
}

int zt_link_wait(zt_comm *c, ckpt_err *err)
{
    zt_link *l = lk_of(c);
    zt_collective w;

    if (l->n_pending == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "wait: no operation is running");
    w = l->pending[l->first];
    l->first = (l->first + 1) % ZT_COMM_PENDING;
    l->n_pending--;
    if (w.kind == ZT_REDUCE_SCATTER)
        return c->ops->reduce_scatter(c, w.to, w.from, w.n, w.dt, err);
    return c->ops->all_gather(c, w.to, w.from, w.n, w.dt, err);
}
