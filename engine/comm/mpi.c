/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.c: owns the communicator of the processes that an MPI launcher started.
 *
 * If all ranks are on one node, bytes travel through shared memory (shm.c), and MPI only starts and
 * ends the job.  With several nodes, or if ranks cannot share memory, or with ZT_COMM_SHARED=0 in
 * the environment, bytes travel in MPI messages of bounded size, and this file sums them in rank
 * order.
 *
 * Processes that notice the end of a rank:
 * - every rank of its own node that waits (node.c, mp_wait): within about a second, by its number
 * - on other nodes, the launcher: mpirun ends the whole job when a process is killed; srun does so
 *   with --kill-on-bad-exit=1 (and whenever a rank of its node calls MPI_Abort)
 *
 * A rank that hangs without ending, or is stopped, is named after some seconds if the waiting ranks
 * can tell which one it is (patience.h).
 */
#define _GNU_SOURCE
#include "engine/comm/comm.h"

#ifndef ZT_HAVE_MPI

int zt_comm_mpi(zt_comm **out, ckpt_err *err)
{
    *out = NULL;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "several processes need MPI, and this program was built without it: build it "
                     "again where mpicc is installed (Debian: libopenmpi-dev), or run one process");
}

#else

#include <assert.h>
#include <mpi.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/link.h"
#include "engine/comm/node.h"
#include "engine/comm/patience.h"
#include "engine/comm/sum.h"
#include "libckpt/base/mem.h"

#define MP_HALF    (4u << 20)  /* bytes that reduce_scatter receives at a time, over all ranks */
#define MP_MESSAGE (16u << 20) /* bytes of the largest message */
#define MP_TAG     1
#define MP_EAGER   0.02 /* seconds of waiting before pauses begin */
#define MP_LOOK    1.0  /* seconds between checks of the node's other processes */

/* link.way is the node, or this struct if bytes travel by MPI. */
typedef struct mp_comm {
    zt_link link; /* first, so a zt_comm * can be cast to mp_comm * */
    MPI_Comm comm, local;
    bool began;         /* MPI_Init was called here */
    MPI_Win window;     /* the node's memory */
    zt_node node;       /* used if node.memory is set */
    unsigned char *buf; /* staging buffer: two halves of `half` bytes */
    uint64_t half;
    MPI_Request *req; /* [2][2 * world], one set per half */
    int *peer;        /* rank that each request waits for; -1: all */
    zt_mate *mate;    /* [local_world] */
    ckpt_err broken;  /* first failure of MPI: messages may never complete after it */
} mp_comm;

/* ---- errors and waiting ---- */

static int mp_broken(mp_comm *m, ckpt_err *err)
{
    return m->broken.code == CKPT_OK ? CKPT_OK
                                     : ckpt_fail(err, m->broken.code, "%s", m->broken.text);
}

/* Turn an MPI return value into an error of the operation. */
static int mp_result(mp_comm *m, int code, const char *what, ckpt_err *err)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;

    if (code == MPI_SUCCESS)
        return CKPT_OK;
    MPI_Error_string(code, text, &n);
    ckpt_fail(&m->broken, CKPT_EIO, "%s: rank %d on %s: %s", what, m->link.base.rank, m->link.host,
              text);
    return mp_broken(m, err);
}

/* Check that the node's other ranks still run. */
static int mp_look(mp_comm *m, const char *what, ckpt_err *err)
{
    for (int i = 0; i < m->link.base.local_world; i++) {
        const zt_mate *p = &m->mate[i];

        if (p->rank != m->link.base.rank && !zt_process_alive(p->process)) {
            ckpt_fail(&m->broken, CKPT_EIO,
                      "%s: rank %d on %s (process %lld) has ended unexpectedly", what, (int)p->rank,
                      m->link.host, (long long)p->process.pid);
            return mp_broken(m, err);
        }
    }
    return CKPT_OK;
}

/*
 * Find the rank that requests under way wait for: a rank of this node that is stopped, else the
 * peer of an incomplete request (collective requests have none).
 */
static zt_missing mp_missing(mp_comm *m, MPI_Request *req, int n)
{
    zt_missing who = {.rank = -1};
    int done = 0;

    for (int i = 0; i < m->link.base.local_world; i++) {
        const zt_mate *p = &m->mate[i];
        if (p->rank != m->link.base.rank && zt_process_stopped(p->process)) {
            return (zt_missing){.rank = (int)p->rank, .host = m->link.host, .process = p->process};
        }
    }
    for (int i = 0; i < n && who.rank < 0; i++) {
        const int *peer = &m->peer[req + i - m->req];
        if (req[i] != MPI_REQUEST_NULL && *peer >= 0 &&
            MPI_Request_get_status(req[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
            who.rank = *peer;
    }
    return who;
}

/* The checks of a wait, to be made about once a second. */
static int mp_watch(mp_comm *m, zt_patience *p, MPI_Request *req, int n, const char *what,
                    ckpt_err *err)
{
    zt_missing who;
    int rc = mp_look(m, what, err);

    if (rc != CKPT_OK)
        return rc;
    who = mp_missing(m, req, n);
    // the two lowest ranks of a node print, because one of them may be the missing one
    rc =
        zt_patience_look(p, what, m->link.base.rank, m->link.base.local_rank < 2, &who, &m->broken);
    return rc == CKPT_OK ? rc : mp_broken(m, err);
}

/* Record which rank a request waits for (-1: all), and return the request. */
static MPI_Request *mp_at(mp_comm *m, MPI_Request *req, int peer)
{
    assert(req >= m->req && peer >= -1 && peer < m->link.base.world);
    m->peer[req - m->req] = peer;
    return req;
}

/*
 * Complete n requests.  MPI_Waitall cannot be used, because it keeps the core busy throughout and
 * never returns when a rank has ended.
 */
static int mp_wait(mp_comm *m, MPI_Request *req, int n, const zt_call *call, ckpt_err *err)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const char *what = zt_call_name(call->kind);
    double began = zt_process_clock(), now;
    zt_patience patience;
    int done = 0, rc = CKPT_OK;

    zt_patience_begin(&patience);
    while (rc == CKPT_OK) {
        rc = mp_result(m, MPI_Testall(n, req, &done, MPI_STATUSES_IGNORE), what, err);
        if (rc != CKPT_OK || done)
            break;
        now = zt_process_clock();
        if (now - began < MP_EAGER)
            sched_yield();
        else
            nanosleep(&pause, NULL);
        if (now - patience.looked >= MP_LOOK)
            rc = mp_watch(m, &patience, req, n, what, err);
    }
    return rc;
}

/* ---- operations by messages ---- */

/* Address of element `at` of part q of the destination. */
static unsigned char *mp_to(const zt_call *call, int q, uint64_t at)
{
    return (unsigned char *)call->to + ((uint64_t)q * call->n + at) * call->size;
}

static const unsigned char *mp_from(const zt_call *call, int q, uint64_t at)
{
    return (const unsigned char *)call->from + ((uint64_t)q * call->n + at) * call->size;
}

/* One chunk of an exchange: elements at .. at + count of every part go to their ranks, the received
 * ones to `to`. */
typedef struct mp_swap {
    const zt_call *call;
    uint64_t at, count;
    unsigned char *to; /* part q at q * step */
    uint64_t step;     /* bytes */
    MPI_Request *req;  /* 2 * (world - 1) */
} mp_swap;

static int mp_post(mp_comm *m, const mp_swap *s, ckpt_err *err)
{
    int me = m->link.base.rank, world = m->link.base.world, n_bytes, rc = CKPT_OK;
    const char *what = zt_call_name(s->call->kind);

    assert(s->count * s->call->size <= INT32_MAX);
    n_bytes = (int)(s->count * s->call->size);
    for (int d = 1; d < world && rc == CKPT_OK; d++) {
        int to = (me + d) % world, from = (me - d + world) % world;
        MPI_Request *req = s->req + 2 * (d - 1);

        rc = mp_result(m,
                       MPI_Irecv(s->to + (uint64_t)from * s->step, n_bytes, MPI_BYTE, from, MP_TAG,
                                 m->comm, mp_at(m, &req[0], from)),
                       what, err);
        if (rc == CKPT_OK)
            rc = mp_result(m,
                           MPI_Isend(mp_from(s->call, to, s->at), n_bytes, MPI_BYTE, to, MP_TAG,
                                     m->comm, mp_at(m, &req[1], to)),
                           what, err);
        zt_link_count(&m->link.traffic, s->call, (uint64_t)n_bytes, (uint64_t)n_bytes);
    }
    return rc;
}

static void mp_add(mp_comm *m, const mp_swap *s)
{
    const void **from = m->link.pointers;
    int me = m->link.base.rank, world = m->link.base.world;

    for (int q = 0; q < world; q++)
        from[q] = s->to + (uint64_t)q * s->step;
    from[me] = mp_from(s->call, me, s->at);
    zt_sum(mp_to(s->call, 0, s->at), from, world, s->count, s->call->dt, s->call->op);
}

/*
 * The next chunk's messages are under way while this chunk is summed, so the network is not idle.
 */
static int mp_reduce_scatter(void *way, const zt_call *call, ckpt_err *err)
{
    mp_comm *m = way;
    int world = m->link.base.world, n_req = 2 * (world - 1);
    uint64_t room = m->half / (uint64_t)world / call->size, n = call->n;
    mp_swap s[2];
    int rc = mp_broken(m, err), i = 0;

    for (int h = 0; h < 2; h++) {
        s[h] = (mp_swap){.call = call,
                         .at = h ? room : 0,
                         .to = m->buf + (uint64_t)h * m->half,
                         .step = room * call->size,
                         .req = m->req + 2 * h * world};
    }
    s[0].count = n < room ? n : room;
    if (rc == CKPT_OK)
        rc = mp_post(m, &s[0], err);
    for (uint64_t at = 0; at < n && rc == CKPT_OK; at += room, i ^= 1) {
        mp_swap *next = &s[i ^ 1];

        if (n - at > room) {
            next->at = at + room;
            next->count = n - next->at < room ? n - next->at : room;
            rc = mp_post(m, next, err);
        }
        if (rc == CKPT_OK)
            rc = mp_wait(m, s[i].req, n_req, call, err);
        if (rc == CKPT_OK)
            mp_add(m, &s[i]);
    }
    return rc;
}

/* Gather one small part of `n_bytes` from every rank, in one exchange. */
static int mp_gather_small(mp_comm *m, const zt_call *call, void *all, ckpt_err *err)
{
    int n_bytes = (int)(call->n * call->size);
    uint64_t others = call->n * call->size * (uint64_t)(m->link.base.world - 1);
    int rc = mp_result(m,
                       MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n_bytes, MPI_BYTE,
                                      m->comm, mp_at(m, m->req, -1)),
                       zt_call_name(call->kind), err);

    zt_link_count(&m->link.traffic, call, others, others);
    return rc == CKPT_OK ? mp_wait(m, m->req, 1, call, err) : rc;
}

/* Round s of the ring: pass the part received in the last round on to the right neighbour. */
static int mp_ring(mp_comm *m, const zt_call *call, int s, ckpt_err *err)
{
    int me = m->link.base.rank, world = m->link.base.world, rc = CKPT_OK;
    int right = (me + 1) % world, left = (me - 1 + world) % world;
    int out = (me - s + world) % world, in = (me - s - 1 + 2 * world) % world;
    uint64_t room = MP_MESSAGE / call->size;
    const char *what = zt_call_name(call->kind);

    assert(room > 0 && out >= 0 && in >= 0 && in < world);
    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += room) {
        uint64_t count = call->n - at < room ? call->n - at : room;
        int n_bytes = (int)(count * call->size);

        rc = mp_result(m,
                       MPI_Irecv(mp_to(call, in, at), n_bytes, MPI_BYTE, left, MP_TAG, m->comm,
                                 mp_at(m, &m->req[0], left)),
                       what, err);
        if (rc == CKPT_OK)
            rc = mp_result(m,
                           MPI_Isend(mp_to(call, out, at), n_bytes, MPI_BYTE, right, MP_TAG,
                                     m->comm, mp_at(m, &m->req[1], right)),
                           what, err);
        zt_link_count(&m->link.traffic, call, (uint64_t)n_bytes, (uint64_t)n_bytes);
        if (rc == CKPT_OK)
            rc = mp_wait(m, m->req, 2, call, err);
    }
    return rc;
}

/*
 * Gather in a ring, because each byte then enters a node at most once per rank of the node, mostly
 * from a neighbour on the same node.  Small parts take one exchange.
 */
static int mp_all_gather(void *way, const zt_call *call, ckpt_err *err)
{
    mp_comm *m = way;
    int rc = mp_broken(m, err), world = m->link.base.world;
    unsigned char *own = mp_to(call, m->link.base.rank, 0);

    if (own != call->from)
        memmove(own, call->from, (size_t)(call->n * call->size));
    if (rc == CKPT_OK && call->n * call->size * (uint64_t)world <= ZT_LINK_SMALL)
        return mp_gather_small(m, call, call->to, err);
    for (int s = 0; s < world - 1 && rc == CKPT_OK; s++)
        rc = mp_ring(m, call, s, err);
    return rc;
}

static int mp_reduce_small(void *way, const zt_call *call, ckpt_err *err)
{
    mp_comm *m = way;
    const void **from = m->link.pointers;
    uint64_t n_bytes = call->n * call->size;
    int rc = mp_broken(m, err), world = m->link.base.world;

    if (rc == CKPT_OK) {
        memcpy(m->buf + (uint64_t)m->link.base.rank * n_bytes, call->from, (size_t)n_bytes);
        rc = mp_gather_small(m, call, m->buf, err);
    }
    if (rc == CKPT_OK) {
        for (int q = 0; q < world; q++)
            from[q] = m->buf + (uint64_t)q * n_bytes;
        zt_sum(call->to, from, world, call->n, call->dt, call->op);
    }
    return rc;
}

/* Send elements at .. at + count of every other rank to the root, which sums them. */
static int mp_collect(mp_comm *m, const zt_call *call, uint64_t at, uint64_t count, ckpt_err *err)
{
    const void **from = m->link.pointers;
    int root = call->root, world = m->link.base.world, n_req = 0, rc = CKPT_OK;
    uint64_t n_bytes = count * call->size;

    for (int q = 0; q < world && rc == CKPT_OK; q++) {
        from[q] = q == root ? mp_from(call, 0, at) : m->buf + (uint64_t)q * n_bytes;
        if (q != root)
            rc = mp_result(m,
                           MPI_Irecv(m->buf + (uint64_t)q * n_bytes, (int)n_bytes, MPI_BYTE, q,
                                     MP_TAG, m->comm, mp_at(m, &m->req[n_req++], q)),
                           zt_call_name(call->kind), err);
    }
    zt_link_count(&m->link.traffic, call, 0, n_bytes * (uint64_t)(world - 1));
    if (rc == CKPT_OK)
        rc = mp_wait(m, m->req, n_req, call, err);
    if (rc == CKPT_OK)
        zt_sum(mp_to(call, 0, at), from, world, count, call->dt, call->op);
    return rc;
}

static int mp_reduce(void *way, const zt_call *call, ckpt_err *err)
{
    mp_comm *m = way;
    int rc = mp_broken(m, err);
    uint64_t room = m->half / (uint64_t)m->link.base.world / call->size;

    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += room) {
        uint64_t count = call->n - at < room ? call->n - at : room;

        if (m->link.base.rank == call->root) {
            rc = mp_collect(m, call, at, count, err);
            continue;
        }
        rc = mp_result(m,
                       MPI_Isend(mp_from(call, 0, at), (int)(count * call->size), MPI_BYTE,
                                 call->root, MP_TAG, m->comm, mp_at(m, m->req, call->root)),
                       zt_call_name(call->kind), err);
        zt_link_count(&m->link.traffic, call, count * call->size, 0);
        if (rc == CKPT_OK)
            rc = mp_wait(m, m->req, 1, call, err);
    }
    return rc;
}

static int mp_broadcast(void *way, const zt_call *call, ckpt_err *err)
{
    mp_comm *m = way;
    int rc = mp_broken(m, err);

    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += MP_MESSAGE) {
        uint64_t count = call->n - at < MP_MESSAGE ? call->n - at : MP_MESSAGE;

        rc = mp_result(
            m,
            MPI_Ibcast(mp_to(call, 0, at), (int)count, MPI_BYTE, call->root, m->comm,
                       mp_at(m, m->req, call->root == m->link.base.rank ? -1 : call->root)),
            zt_call_name(call->kind), err);
        if (call->root == m->link.base.rank)
            zt_link_count(&m->link.traffic, call, count * (uint64_t)(m->link.base.world - 1), 0);
        else
            zt_link_count(&m->link.traffic, call, 0, count);
        if (rc == CKPT_OK)
            rc = mp_wait(m, m->req, 1, call, err);
    }
    return rc;
}

static int mp_all_to_all(void *way, const zt_call *call, ckpt_err *err)
{
    mp_comm *m = way;
    int rc = mp_broken(m, err), me = m->link.base.rank, world = m->link.base.world;

    if (rc == CKPT_OK)
        memcpy(mp_to(call, me, 0), mp_from(call, me, 0), (size_t)(call->n * call->size));
    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += MP_MESSAGE) {
        mp_swap s = {.call = call,
                     .at = at,
                     .count = call->n - at < MP_MESSAGE ? call->n - at : MP_MESSAGE,
                     .to = mp_to(call, 0, at),
                     .step = call->n,
                     .req = m->req};

        rc = mp_post(m, &s, err);
        if (rc == CKPT_OK)
            rc = mp_wait(m, m->req, 2 * (world - 1), call, err);
    }
    return rc;
}

static int mp_barrier(void *way, const zt_call *call, ckpt_err *err)
{
    mp_comm *m = way;
    int rc = mp_broken(m, err);

    if (rc == CKPT_OK)
        rc = mp_result(m, MPI_Ibarrier(m->comm, mp_at(m, m->req, -1)), zt_call_name(call->kind),
                       err);
    return rc == CKPT_OK ? mp_wait(m, m->req, 1, call, err) : rc;
}

static const zt_link_ops mp_link_ops = {
    .reduce_scatter = mp_reduce_scatter,
    .all_gather = mp_all_gather,
    .reduce_small = mp_reduce_small,
    .reduce = mp_reduce,
    .broadcast = mp_broadcast,
    .all_to_all = mp_all_to_all,
    .barrier = mp_barrier,
};

/* ---- aborting and freeing ---- */

static void mp_sleep(long milliseconds)
{
    const struct timespec t = {.tv_sec = milliseconds / 1000,
                               .tv_nsec = milliseconds % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/*
 * After a shared failure all ranks call this, but its text should appear once.  On one node the
 * first rank prints; otherwise higher ranks wait, so the lowest one can end them first.
 */
static void mp_abort(zt_comm *c, int status, const char *text)
{
    mp_comm *m = (mp_comm *)(void *)c;
    bool first = !m->node.memory || zt_node_first(&m->node);

    if (!m->node.memory)
        mp_sleep(50 * (c->rank < 20 ? c->rank : 20));
    fflush(stdout);
    if (first) {
        fprintf(stderr, "rank %d on %s: %s\n", c->rank, c->host, text);
    } else {
        mp_sleep(500); // wait, so the abort does not cut the first rank's message
    }
    // if the launcher does not answer, SIGALRM ends this process
    signal(SIGALRM, SIG_DFL);
    alarm(10);
    MPI_Abort(MPI_COMM_WORLD, status ? status : 1);
    _exit(status ? status : 1);
}

static void mp_release(mp_comm *m)
{
    ckpt_free(m->buf);
    ckpt_free(m->req);
    ckpt_free(m->peer);
    ckpt_free(m->mate);
    ckpt_free(m->link.pointers);
    ckpt_free(m);
}

/*
 * Wait for all ranks first, because MPI_Finalize returns on no rank before all ranks have called
 * it.
 */
static void mp_free(zt_comm *c)
{
    mp_comm *m = (mp_comm *)(void *)c;
    zt_call call = {.kind = ZT_CALL_FREE, .dt = CKPT_U8, .size = 1};
    int rc = m->broken.code;

    if (rc == CKPT_OK && m->link.ops)
        rc = m->link.ops->barrier(m->link.way, &call, NULL);
    if (rc != CKPT_OK) {
        // messages may still arrive in these buffers: free them only if all bytes went through the
        // node
        if (m->node.memory) {
            zt_node_leave(&m->node);
            mp_release(m);
        }
        return;
    }
    if (m->window != MPI_WIN_NULL)
        MPI_Win_free(&m->window);
    MPI_Comm_free(&m->local);
    MPI_Comm_free(&m->comm);
    if (m->began)
        MPI_Finalize();
    mp_release(m);
}

static const zt_comm_ops mp_ops = {
    .name = "mpi",
    ZT_LINK_OPS,
    .abort = mp_abort,
    .free = mp_free,
};

/* ---- joining the job ---- */

/*
 * Find the lowest rank that has failed (well is false): -1: none; `world`: the ranks cannot be
 * asked.
 */
static int mp_poll(mp_comm *m, bool well)
{
    int world = m->link.base.world, mine = well ? world : m->link.base.rank, lowest;

    if (MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, m->comm) != MPI_SUCCESS)
        return world;
    return lowest == world ? -1 : lowest;
}

/* Start MPI, and set rank and world. */
static int mp_begin(mp_comm *m, ckpt_err *err)
{
    zt_comm *c = &m->link.base;
    int begun = 0, level, rc;

    MPI_Initialized(&begun);
    if (!begun && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return ckpt_fail(err, CKPT_EIO, "MPI_Init_thread failed");
    m->began = !begun;
    rc = mp_result(m, MPI_Comm_dup(MPI_COMM_WORLD, &m->comm), "starting", err);
    if (rc != CKPT_OK)
        return rc;
    MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->comm, &c->rank);
    MPI_Comm_size(m->comm, &c->world);
    if (c->world == 1 && zt_comm_launched())
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "the launcher started several processes, but MPI sees only this one: use "
                         "the mpirun of the MPI that this program was built with, or srun "
                         "--mpi=pmix (srun --mpi=list shows what there is)");
    rc = mp_result(
        m, MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &m->local),
        "starting", err);
    if (rc == CKPT_OK) {
        MPI_Comm_set_errhandler(m->local, MPI_ERRORS_RETURN);
        MPI_Comm_rank(m->local, &c->local_rank);
        MPI_Comm_size(m->local, &c->local_world);
    }
    return rc;
}

/* Allocate the buffers, and find the ranks of this node. */
static int mp_prepare(mp_comm *m, ckpt_err *err)
{
    zt_comm *c = &m->link.base;
    uint64_t world = (uint64_t)c->world, least = world * world * sizeof(uint64_t);
    zt_mate me = {.process = zt_process_self(), .rank = c->rank};
    int bad;

    // a half must fit one element from each rank to each rank
    m->half = least > MP_HALF ? least : MP_HALF;
    m->buf = ckpt_alloc(2 * m->half);
    m->req = ckpt_alloc(4 * world * sizeof *m->req);
    m->peer = ckpt_alloc(4 * world * sizeof *m->peer);
    m->mate = ckpt_alloc((size_t)c->local_world * sizeof *m->mate);
    m->link.pointers = ckpt_alloc(world * sizeof *m->link.pointers);
    bad = mp_poll(m, m->buf && m->req && m->peer && m->mate && m->link.pointers);
    if (bad != -1)
        return ckpt_fail(err, CKPT_ELIMIT, "rank %d: out of memory", bad);
    return mp_result(
        m,
        MPI_Allgather(&me, (int)sizeof me, MPI_BYTE, m->mate, (int)sizeof me, MPI_BYTE, m->local),
        "starting", err);
}

/*
 * Open MPI makes a window as a file in /dev/shm.  If that is too small, rank 0 gets an error and
 * the others wait for ever (4.1.4; containers have 64 MiB there), so check first that twice the
 * space is free.
 */
static bool mp_room(uint64_t n_bytes)
{
    struct statvfs s;
    struct rlimit limit;

    return (statvfs("/dev/shm", &s) != 0 || (uint64_t)s.f_bavail * s.f_frsize / 2 >= n_bytes) &&
           (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur / 2 >= n_bytes);
}

/*
 * Share memory if all ranks are on this node, no rank has ZT_COMM_SHARED=0, and there is enough
 * space.
 */
static int mp_share(mp_comm *m, ckpt_err *err)
{
    const zt_comm *c = &m->link.base;
    const char *shared = getenv("ZT_COMM_SHARED");
    uint64_t n_bytes = zt_node_bytes(c->world);
    bool wanted = c->local_world == c->world && !(shared && strcmp(shared, "0") == 0);
    MPI_Aint size;
    void *base = NULL;
    int unit, rc;

    if (mp_poll(m, wanted && mp_room(n_bytes)) != -1)
        return CKPT_OK;
    rc = mp_result(m,
                   MPI_Win_allocate_shared(c->rank == 0 ? (MPI_Aint)n_bytes : 0, 1, MPI_INFO_NULL,
                                           m->local, &base, &m->window),
                   "starting", err);
    if (rc == CKPT_OK)
        rc = mp_result(m, MPI_Win_shared_query(m->window, 0, &size, &unit, &base), "starting", err);
    if (rc != CKPT_OK)
        return rc;
    m->node = (zt_node){.rank = c->rank,
                        .world = c->world,
                        .host = m->link.host,
                        .mate = m->mate,
                        .pointers = m->link.pointers,
                        .traffic = &m->link.traffic};
    zt_node_begin(&m->node, base);
    return mp_result(m, MPI_Barrier(m->local), "starting", err);
}

static int mp_connect(mp_comm *m, ckpt_err *err)
{
    int rc = mp_begin(m, err);

    if (rc == CKPT_OK) {
        zt_link_name_host(&m->link);
        rc = mp_prepare(m, err);
    }
    if (rc == CKPT_OK && m->link.base.world > 1) {
        rc = mp_share(m, err);
        m->link.ops = m->node.memory ? &zt_shm_ops : &mp_link_ops;
        m->link.way = m->node.memory ? (void *)&m->node : (void *)m;
    }
    return rc;
}

int zt_comm_mpi(zt_comm **out, ckpt_err *err)
{
    mp_comm *m = ckpt_alloc(sizeof *m);
    int rc;

    *out = NULL;
    if (!m)
        return ckpt_fail_memory(err);
    m->link.base.ops = &mp_ops;
    m->link.base.traffic = &m->link.traffic;
    m->comm = m->local = MPI_COMM_NULL;
    m->window = MPI_WIN_NULL;
    rc = mp_connect(m, err);
    if (rc != CKPT_OK) {
        // do not finalize MPI: the program ends now, and the launcher with it
        mp_release(m);
        return rc;
    }
    *out = &m->link.base;
    return CKPT_OK;
}

#endif
