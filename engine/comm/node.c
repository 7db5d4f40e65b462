/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c: owns the segments that the ranks of a node share: making and mapping them, the pool's
 * pages, and the meeting point.
 */
#define _GNU_SOURCE
#include "engine/comm/node.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/patience.h"
#include "libckpt/base/mem.h"
#include "libckpt/base/vec.h"

#define ND_NONE    UINT64_MAX
#define ND_PAGE    4096u
#define ND_HUGE    (2u << 20) /* large pieces start at multiples: huge pages, where allowed */
#define ND_POOL    ((uint64_t)ND_HUGE * 2) /* where the pool begins: after head and halves */
#define ND_SPINS   4000
#define ND_YIELDS  64
#define ND_LOOK    1.0 /* seconds between looks at the other processes */
#define ND_HALF(h) ((uint64_t)ND_PAGE + (uint64_t)(h)*ZT_NODE_HALF)
#define ND_CACHE   64

_Static_assert(ND_PAGE + 2ull * ZT_NODE_HALF <= ND_POOL, "halves reach into the pool");

/* What a rank is about to do. */
typedef struct nd_record {
    uint32_t kind, arg, dt;
    uint64_t n, place; /* place: offset in the segment, ND_NONE */
} nd_record;

/*
 * The head of a segment.  The first block is used in rank 0's only; each word that is waited for
 * has a cache line of its own.
 */
typedef struct nd_head {
    _Alignas(ND_CACHE) _Atomic uint32_t arrived; /* at the meeting under way */
    _Alignas(ND_CACHE) _Atomic uint32_t met;     /* meetings so far, modulo 2^32; slept on */
    _Alignas(ND_CACHE) _Atomic uint32_t asleep;
    _Atomic uint32_t ended; /* 1 + a rank found to have ended; 0: none */
    _Atomic uint32_t late;  /* it has not, but was waited for too long */
    _Atomic uint32_t spoken;

    _Alignas(ND_CACHE) _Atomic uint32_t left; /* this segment's rank ended in order */
    _Atomic uint32_t comes;                   /* meetings that it came to, modulo 2^32 */
    // two, used in turns: a rank may start the next operation while another still reads this one's
    nd_record record[2];
} nd_head;

_Static_assert(sizeof(nd_head) <= ND_PAGE, "the head is one page");

typedef struct nd_piece {
    uint64_t at, n; /* bytes of the own segment, whole pages */
} nd_piece;

CKPT_VEC(nd_pieces, nd_piece);

/* What a rank tells the others of itself; fd -1: it has no segment. */
typedef struct nd_card {
    zt_process process;
    int64_t fd;
    uint64_t size;
} nd_card;

typedef struct nd_peer {
    unsigned char *base; /* its segment, mapped here */
    nd_card card;
} nd_peer;

struct zt_node {
    int rank, world;
    char host[256];
    int fd;
    nd_peer *peer; /* of world; the own one too */
    const void **pointers;
    nd_head *shared;  /* rank 0's */
    nd_pieces pieces; /* ascending */
    uint32_t turn;    /* operations so far */
    uint32_t chunk;
};

/* ---- segments ---- */

static nd_head *nd_head_of(const zt_node *n, int rank)
{
    return (nd_head *)(void *)n->peer[rank].base;
}

/* As large as the machine's memory, and what the process's limits allow; 0: too little. */
static uint64_t nd_size(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t size = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    struct rlimit limit;

    size = (size + ND_HUGE - 1) / ND_HUGE * ND_HUGE + ND_POOL;
    // beyond this limit the kernel would end the process instead of returning an error
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size)
        size = limit.rlim_cur / ND_HUGE * ND_HUGE;
    return page == ND_PAGE && size > ND_POOL ? size : 0;
}

/* Make the own segment; a card with fd -1 says that it cannot be. */
static void nd_make(zt_node *n, nd_card *card)
{
    uint64_t size = nd_size();

    *card = (nd_card){.process = zt_process_self(), .fd = -1, .size = size};
    n->fd = size ? memfd_create("zt_comm", MFD_CLOEXEC) : -1;
    if (n->fd < 0)
        return;
    // head and halves get their pages now, so that nobody meets a full memory in them
    if (ftruncate(n->fd, (off_t)size) == 0 && fallocate(n->fd, 0, 0, (off_t)ND_POOL) == 0)
        card->fd = n->fd;
}

/* Map a rank's segment: the own one by its descriptor, another's through /proc. */
static bool nd_map(zt_node *n, int rank)
{
    nd_peer *p = &n->peer[rank];
    bool own = rank == n->rank;
    int fd = n->fd;
    char path[96];
    void *base;

    if (p->card.fd < 0)
        return false;
    if (!own) {
        snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, p->card.process.pid,
                 p->card.fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0)
        return false;
    // no other rank's numbers are ever written, but rank 0's head is
    base = mmap(NULL, p->card.size, own || rank == 0 ? PROT_READ | PROT_WRITE : PROT_READ,
                MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (!own)
        close(fd);
    if (base == MAP_FAILED)
        return false;
    p->base = base;
    madvise(base, p->card.size, MADV_DONTDUMP);
    madvise(base, p->card.size, MADV_HUGEPAGE);
    return true;
}

/* What all ranks answered to `well`, as an outcome. */
static int nd_agree(const zt_node_opts *opts, bool well, ckpt_err *err)
{
    int bad = opts->poll(opts->ctx, well);

    if (bad == -1)
        return CKPT_OK;
    if (bad < 0)
        return ckpt_fail(err, CKPT_EIO, "the ranks of %s cannot be asked", opts->host);
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "rank %d cannot share memory with the other ranks of %s", bad, opts->host);
}

/* The segment and all the others', mapped by every rank. */
static int nd_join(zt_node *n, const zt_node_opts *opts, nd_card *all, ckpt_err *err)
{
    nd_card card;
    bool well = true;
    int rc;

    nd_make(n, &card);
    rc = opts->tell(opts->ctx, &card, all, sizeof card, err);
    if (rc != CKPT_OK)
        return rc;
    for (int q = 0; q < n->world; q++)
        n->peer[q].card = all[q];
    for (int q = 0; q < n->world && well; q++)
        well = nd_map(n, q);
    rc = nd_agree(opts, well, err);
    if (rc == CKPT_OK)
        n->shared = nd_head_of(n, 0);
    return rc;
}

int zt_node_new(zt_node **out, const zt_node_opts *opts, ckpt_err *err)
{
    size_t world = (size_t)opts->world;
    zt_node *n = ckpt_alloc(sizeof *n);
    nd_card *all = ckpt_alloc(world * sizeof *all);
    int rc;

    *out = NULL;
    if (n) {
        n->rank = opts->rank;
        n->world = opts->world;
        n->fd = -1;
        snprintf(n->host, sizeof n->host, "%s", opts->host);
        n->peer = ckpt_alloc(world * sizeof *n->peer);
        n->pointers = ckpt_alloc(world * sizeof *n->pointers);
    }
    rc = nd_agree(opts, n && all && n->peer && n->pointers, err);
    if (rc == CKPT_OK)
        rc = nd_join(n, opts, all, err);
    ckpt_free(all);
    if (rc != CKPT_OK) {
        zt_node_free(n);
        n = NULL;
    }
    *out = n;
    return rc;
}

void zt_node_free(zt_node *n)
{
    if (!n)
        return;
    for (int q = 0; n->peer && q < n->world; q++) {
        if (n->peer[q].base)
            munmap(n->peer[q].base, n->peer[q].card.size);
    }
    if (n->fd >= 0)
        close(n->fd);
    ckpt_vec_free(&n->pieces);
    ckpt_free(n->pointers);
    ckpt_free(n->peer);
    ckpt_free(n);
}

int zt_node_rank(const zt_node *n)
{
    return n->rank;
}

int zt_node_world(const zt_node *n)
{
    return n->world;
}

unsigned char *zt_node_half(const zt_node *n, int rank, unsigned half)
{
    return n->peer[rank].base + ND_HALF(half);
}

unsigned zt_node_next_half(zt_node *n)
{
    return n->chunk++ & 1;
}

const void **zt_node_pointers(zt_node *n)
{
    return n->pointers;
}

/* ---- the pool ---- */

/* The first gap of n bytes; *i: before which piece.  ND_NONE: none. */
static uint64_t nd_gap(const zt_node *n, uint64_t n_bytes, size_t *i)
{
    uint64_t align = n_bytes >= ND_HUGE ? ND_HUGE : ND_PAGE, at = ND_POOL;
    uint64_t size = n->peer[n->rank].card.size;

    for (*i = 0; *i < n->pieces.n; (*i)++) {
        const nd_piece *p = &n->pieces.at[*i];

        at = (at + align - 1) / align * align;
        if (at <= p->at && n_bytes <= p->at - at)
            return at;
        at = p->at + p->n;
    }
    at = (at + align - 1) / align * align;
    return ckpt_within(at, n_bytes, size) ? at : ND_NONE;
}

void *zt_node_alloc(zt_node *n, uint64_t n_bytes)
{
    uint64_t whole, at;
    nd_piece *fresh;
    size_t i;
    int rc;

    if (!ckpt_add(n_bytes ? n_bytes : 1, ND_PAGE - 1, &whole))
        return NULL;
    whole = whole / ND_PAGE * ND_PAGE;
    at = nd_gap(n, whole, &i);
    fresh = at == ND_NONE ? NULL : ckpt_vec_push(&n->pieces);
    if (!fresh)
        return NULL;
    // pages now: without memory this is NULL here, not a signal at the first use
    do {
        rc = fallocate(n->fd, 0, (off_t)at, (off_t)whole);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        fallocate(n->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)whole);
        n->pieces.n--;
        return NULL;
    }
    memmove(&n->pieces.at[i + 1], &n->pieces.at[i], (n->pieces.n - 1 - i) * sizeof(nd_piece));
    n->pieces.at[i] = (nd_piece){.at = at, .n = whole};
    return n->peer[n->rank].base + at;
}

/* The offset of bytes that lie in the own pool as a whole; ND_NONE: they do not. */
static uint64_t nd_place(const zt_node *n, const void *p, uint64_t n_bytes)
{
    uintptr_t base = (uintptr_t)n->peer[n->rank].base, at = (uintptr_t)p;
    uint64_t size = n->peer[n->rank].card.size;

    if (!p || at < base + ND_POOL || !ckpt_within(at - base, n_bytes, size))
        return ND_NONE;
    return at - base;
}

bool zt_node_holds(const zt_node *n, const void *p, uint64_t n_bytes)
{
    return nd_place(n, p, n_bytes) != ND_NONE;
}

void zt_node_release(zt_node *n, void *p)
{
    uint64_t at = nd_place(n, p, 0);

    for (size_t i = 0; at != ND_NONE && i < n->pieces.n; i++) {
        nd_piece *piece = &n->pieces.at[i];

        if (piece->at == at) {
            // the pages go back at once, also those that other ranks have mapped
            fallocate(n->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                      (off_t)piece->n);
            memmove(piece, piece + 1, (n->pieces.n - 1 - i) * sizeof *piece);
            n->pieces.n--;
            return;
        }
    }
}

/* ---- meeting ---- */

static long nd_futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *t)
{
    return syscall(SYS_futex, word, what, value, t, NULL, 0);
}

static void nd_wake(zt_node *n)
{
    if (atomic_load(&n->shared->asleep))
        nd_futex(&n->shared->met, FUTEX_WAKE, INT32_MAX, NULL);
}

bool zt_node_first(zt_node *n)
{
    return atomic_exchange(&n->shared->spoken, 1) == 0;
}

void zt_node_leave(zt_node *n)
{
    // an own page of the own segment; others see it at their next look
    atomic_store(&nd_head_of(n, n->rank)->left, 1);
}

static int nd_fail_ended(const zt_node *n, const zt_call *call, ckpt_err *err)
{
    int q = (int)atomic_load(&n->shared->ended) - 1;
    bool left = atomic_load(&nd_head_of(n, q)->left) != 0;

    if (atomic_load(&n->shared->late))
        return ckpt_fail(err, CKPT_EIO, "%s: rank %d on %s did not come (--wait-limit)",
                         zt_call_name(call->kind), q, n->host);
    return ckpt_fail(err, CKPT_EIO, "%s: rank %d on %s (process %lld) has %s",
                     zt_call_name(call->kind), q, n->host, (long long)n->peer[q].card.process.pid,
                     left ? "left the run before its end" : "ended unexpectedly");
}

/* Look whether all other ranks still run. */
static void nd_look(zt_node *n)
{
    for (int q = 0; q < n->world; q++) {
        uint32_t none = 0;

        if (q != n->rank &&
            (atomic_load(&nd_head_of(n, q)->left) || !zt_process_alive(n->peer[q].card.process))) {
            atomic_compare_exchange_strong(&n->shared->ended, &none, (uint32_t)q + 1);
            nd_futex(&n->shared->met, FUTEX_WAKE, INT32_MAX, NULL);
            return;
        }
    }
}

/* Who is not here yet; *first: the lowest rank that is, which speaks for all. */
static zt_missing nd_missing(const zt_node *n, int *first)
{
    uint32_t comes = atomic_load(&nd_head_of(n, n->rank)->comes);
    zt_missing m = {.rank = -1, .host = n->host};

    *first = n->rank;
    for (int q = n->world - 1; q >= 0; q--) {
        uint32_t theirs = atomic_load(&nd_head_of(n, q)->comes);

        if (theirs == comes) {
            *first = q;
        } else if (theirs == comes - 1) { // more: it has met everybody and gone on
            m.more += m.rank >= 0;
            m.rank = q;
            m.process = n->peer[q].card.process;
        }
    }
    return m;
}

/* A look at the others in the course of a wait: have they ended, are they late. */
static int nd_watch(zt_node *n, zt_patience *p, const zt_call *call, ckpt_err *err)
{
    int first = 0, rc;
    uint32_t none = 0;
    zt_missing m;

    nd_look(n);
    m = nd_missing(n, &first);
    if (m.rank < 0 || atomic_load(&n->shared->ended))
        return CKPT_OK;
    rc = zt_patience_look(p, zt_call_name(call->kind), n->rank, first == n->rank, &m, err);
    if (rc != CKPT_OK) {
        atomic_store(&n->shared->late, 1);
        atomic_compare_exchange_strong(&n->shared->ended, &none, (uint32_t)m.rank + 1);
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
    _Atomic uint32_t *met = &n->shared->met;
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
        atomic_fetch_add(&n->shared->asleep, 1);
        nd_futex(met, FUTEX_WAIT, before, &second);
        atomic_fetch_sub(&n->shared->asleep, 1);
        if (zt_process_clock() - patience.looked >= ND_LOOK)
            rc = nd_watch(n, &patience, call, err);
        // last, so that a rank that met all others and then ended is no failure here
        if (atomic_load(met) != before)
            return CKPT_OK;
        if (rc != CKPT_OK || atomic_load(&n->shared->ended))
            return rc != CKPT_OK ? rc : nd_fail_ended(n, call, err);
    }
}

int zt_node_again(zt_node *n, const zt_call *call, ckpt_err *err)
{
    nd_head *s = n->shared;
    uint32_t before;

    if (atomic_load(&s->ended))
        return nd_fail_ended(n, call, err);
    before = atomic_load(&s->met); // cannot change before this rank arrives
    atomic_fetch_add(&nd_head_of(n, n->rank)->comes, 1);
    if (atomic_fetch_add(&s->arrived, 1) + 1 == (uint32_t)n->world) {
        atomic_store(&s->arrived, 0);
        atomic_store(&s->met, before + 1);
        nd_wake(n);
        return CKPT_OK;
    }
    return nd_wait(n, before, call, err);
}

static nd_record *nd_record_of(const zt_node *n, int rank, uint32_t turn)
{
    return &nd_head_of(n, rank)->record[turn & 1];
}

static int nd_fail_differs(const nd_record *mine, const nd_record *theirs, int rank, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EIO,
                     "%s of %" PRIu64 " elements of %s: rank %d is in %s of %" PRIu64
                     " elements of %s: all ranks must make the same calls",
                     zt_call_name((zt_call_kind)mine->kind), mine->n,
                     ckpt_dtype_name((ckpt_dtype)mine->dt), rank,
                     zt_call_name((zt_call_kind)theirs->kind), theirs->n,
                     ckpt_dtype_name((ckpt_dtype)theirs->dt));
}

int zt_node_meet(zt_node *n, const zt_call *call, const void *readable, uint64_t n_bytes,
                 ckpt_err *err)
{
    nd_record *mine = nd_record_of(n, n->rank, ++n->turn);
    int rc;

    *mine = (nd_record){.kind = (uint32_t)call->kind,
                        .arg = call->arg,
                        .dt = (uint32_t)call->dt,
                        .n = call->n,
                        .place = nd_place(n, readable, n_bytes)};
    rc = zt_node_again(n, call, err);
    for (int q = 0; q < n->world && rc == CKPT_OK; q++) {
        const nd_record *r = nd_record_of(n, q, n->turn);

        if (r->kind != mine->kind || r->arg != mine->arg || r->dt != mine->dt || r->n != mine->n)
            rc = nd_fail_differs(mine, r, q, err);
    }
    return rc;
}

const void *zt_node_source(const zt_node *n, int rank)
{
    uint64_t place = nd_record_of(n, rank, n->turn)->place;

    return place == ND_NONE ? NULL : n->peer[rank].base + place;
}
