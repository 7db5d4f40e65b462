/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.c: owns the communicator of GPUs, which runs collectives over device memory by NCCL.  Part
 * of the CUDA plugin.
 *
 * Operations run on a stream of their own.  One event makes it wait for the device's earlier work,
 * another makes the device's stream wait for the result, so the host never waits.  So a started
 * operation runs while the device computes; wait then makes the device's stream wait for it.
 *
 * Sums are NCCL's: their order depends on the algorithm and the path between the GPUs that NCCL
 * chooses, and 16-bit sums are rounded at every hop, while the other communicators compute them in
 * fp32 and round once.  They do not depend on timing: equal runs on equal machines have equal bits
 * (NCCL_ALGO=Ring, NCCL_PROTO=Simple pin the choice).
 *
 * If a rank fails, the other ranks' kernels wait for ever, and no call reports it.  So a thread
 * watches NCCL's asynchronous errors, the ranks of this host (process.h), and the progress of the
 * stream: if queued work has not ended after ZEROTRAIN_NCCL_TIMEOUT seconds (600), a rank is
 * missing.  The thread then ends the job, and with the process the driver ends the kernels.
 * ncclCommAbort cannot be used, because the kernels would end as if they had succeeded, and the
 * rank would go on.
 */
#define _GNU_SOURCE
#include "engine/cuda/api.h"

#ifndef ZT_HAVE_NCCL

int zt_nccl_comm_new(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err)
{
    (void)base;
    (void)device;
    *out = NULL;
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "several ranks on GPUs need NCCL, and the CUDA plugin was built without it: "
                     "build it again where nccl.h is installed (Debian: libnccl-dev)");
}

#else

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/comm/process.h"
#include "libckpt/base/mem.h"
#include "libckpt/base/number.h"

#define NC_LOOK    200 /* milliseconds between checks */
#define NC_TIMEOUT 600 /* seconds */
/*
 * Blocks from this size on come from NCCL and are registered with it; it allocates pages of 2 MiB.
 */
#define NC_LARGE   (UINT64_C(2) << 20)

/* A block that nc_alloc returned. */
typedef struct nc_block {
    void *p;
    void *handle; /* handle from ncclCommRegister; NULL: not registered */
    uint64_t n_bytes;
    bool ours; /* true: from ncclMemAlloc; false: from the device */
} nc_block;

typedef struct nc_mate {
    zt_process process;
    char host[64];
} nc_mate;

typedef struct nc_comm {
    zt_comm base; /* first, so a zt_comm * can be cast to nc_comm * */
    zt_comm *below;
    zt_device *d;
    int ordinal;
    ncclComm_t comm;
    cudaStream_t compute, stream;
    cudaEvent_t ready;                 /* follows the device's work before an operation */
    cudaEvent_t done[ZT_COMM_PENDING]; /* ring of started operations, the oldest at `first` */
    unsigned first, n_pending;
    nc_block *block;
    size_t n_blocks, room;
    nc_mate *mate;    /* world of them */
    cudaEvent_t mark; /* the watch's marker in the stream */
    double timeout;
    pthread_t watch;
    pthread_mutex_t lock; /* protects the members that the watch reads */
    pthread_cond_t wake;
    bool watched, stop, locks;
    bool joined; /* true: all ranks have joined, and comm is valid */
} nc_comm;

static nc_comm *nc_of(zt_comm *c)
{
    return (nc_comm *)(void *)c;
}

/* ---- errors ---- */

static int nc_result(nc_comm *n, ncclResult_t r, const char *what, ckpt_err *err)
{
    if (r == ncclSuccess || r == ncclInProgress)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EIO, "%s: rank %d on %s: NCCL: %s (%.200s)", what, n->base.rank,
                     n->base.host, ncclGetErrorString(r), n->comm ? ncclGetLastError(n->comm) : "");
}

static int nc_cuda(nc_comm *n, cudaError_t e, const char *what, ckpt_err *err)
{
    if (e == cudaSuccess)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EIO, "%s: rank %d on %s: CUDA: %s", what, n->base.rank, n->base.host,
                     cudaGetErrorString(e));
}

static int nc_type(ckpt_dtype dt, bool sum, ncclDataType_t *out, ckpt_err *err)
{
    switch ((int)dt) {
    case CKPT_F32:
        *out = ncclFloat32;
        return CKPT_OK;
    case CKPT_F64:
        *out = ncclFloat64;
        return CKPT_OK;
    case CKPT_F16:
        *out = ncclFloat16;
        return CKPT_OK;
    case CKPT_BF16:
        *out = ncclBfloat16;
        return CKPT_OK;
    case CKPT_I32:
        *out = ncclInt32;
        return CKPT_OK;
    case CKPT_I64:
        *out = ncclInt64;
        return CKPT_OK;
    case CKPT_U8:
        *out = ncclUint8;
        if (!sum)
            return CKPT_OK;
        break;
    default:
        break;
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "dtype %s is not supported by collectives%s",
                     ckpt_dtype_name(dt), sum ? " that sum" : "");
}

/* Refuse arguments on which NCCL would crash or hang. */
static int nc_check(const nc_comm *n, uint64_t count, const void *to, const void *from, int root,
                    ckpt_err *err)
{
    if (count > (UINT64_C(1) << 60) / (uint64_t)n->base.world)
        return ckpt_fail(err, CKPT_ELIMIT, "a collective of %llu elements is too large",
                         (unsigned long long)count);
    if (count > 0 && (!to || !from))
        return ckpt_fail(err, CKPT_EUSAGE, "a collective has no buffer");
    if (root < 0 || root >= n->base.world)
        return ckpt_fail(err, CKPT_EUSAGE, "root %d is not one of the %d ranks", root,
                         n->base.world);
    return CKPT_OK;
}

/* ---- order of the two streams ---- */

/* Make the stream wait for the device. */
static int nc_before(nc_comm *n, ckpt_err *err)
{
    cudaError_t e = cudaEventRecord(n->ready, n->compute);

    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(n->stream, n->ready, 0);
    return nc_cuda(n, e, "a collective", err);
}

/* Make the device wait for the stream. */
static int nc_after(nc_comm *n, ckpt_err *err)
{
    cudaError_t e = cudaEventRecord(n->ready, n->stream);

    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(n->compute, n->ready, 0);
    return nc_cuda(n, e, "a collective", err);
}

/* Finish queueing an operation; r is NCCL's result. */
static int nc_queued(nc_comm *n, ncclResult_t r, const char *what, ckpt_err *err)
{
    int rc = nc_result(n, r, what, err);

    return rc == CKPT_OK ? nc_after(n, err) : rc;
}

/* ---- operations ---- */

static int nc_all_reduce(zt_comm *c, void *x, uint64_t count, ckpt_dtype dt, zt_reduce op,
                         ckpt_err *err)
{
    nc_comm *n = nc_of(c);
    const ncclRedOp_t how = op == ZT_SUM ? ncclSum : op == ZT_MAX ? ncclMax : ncclMin;
    ncclDataType_t type;
    int rc = nc_type(dt, true, &type, err);

    rc = rc == CKPT_OK ? nc_check(n, count, x, x, 0, err) : rc;
    rc = rc == CKPT_OK && count ? nc_before(n, err) : rc;
    if (rc != CKPT_OK || count == 0)
        return rc;
    return nc_queued(n, ncclAllReduce(x, x, count, type, how, n->comm, n->stream), "all_reduce",
                     err);
}

/* Queue a reduce_scatter or all_gather, the two operations that can be started ahead of use. */
static int nc_queue(nc_comm *n, const zt_collective *w, ckpt_err *err)
{
    bool sum = w->kind == ZT_REDUCE_SCATTER;
    ncclDataType_t type;
    int rc = nc_type(w->dt, sum, &type, err);

    rc = rc == CKPT_OK ? nc_check(n, w->n, w->to, w->from, 0, err) : rc;
    rc = rc == CKPT_OK && w->n ? nc_before(n, err) : rc;
    if (rc != CKPT_OK || w->n == 0)
        return rc;
    if (sum)
        return nc_result(n,
                         ncclReduceScatter(w->from, w->to, w->n, type, ncclSum, n->comm, n->stream),
                         "reduce_scatter", err);
    return nc_result(n, ncclAllGather(w->from, w->to, w->n, type, n->comm, n->stream), "all_gather",
                     err);
}

static int nc_reduce_scatter(zt_comm *c, void *to, const void *from, uint64_t count, ckpt_dtype dt,
                             ckpt_err *err)
{
    const zt_collective w = {
        .kind = ZT_REDUCE_SCATTER, .to = to, .from = from, .n = count, .dt = dt};
    int rc = nc_queue(nc_of(c), &w, err);

    return rc == CKPT_OK ? nc_after(nc_of(c), err) : rc;
}

static int nc_all_gather(zt_comm *c, void *to, const void *from, uint64_t count, ckpt_dtype dt,
                         ckpt_err *err)
{
    const zt_collective w = {.kind = ZT_ALL_GATHER, .to = to, .from = from, .n = count, .dt = dt};
    int rc = nc_queue(nc_of(c), &w, err);

    return rc == CKPT_OK ? nc_after(nc_of(c), err) : rc;
}

/* Reduce in place on the root; the other ranks' values stay unchanged. */
static int nc_reduce(zt_comm *c, void *x, uint64_t count, ckpt_dtype dt, int root, ckpt_err *err)
{
    nc_comm *n = nc_of(c);
    ncclDataType_t type;
    int rc = nc_type(dt, true, &type, err);

    rc = rc == CKPT_OK ? nc_check(n, count, x, x, root, err) : rc;
    rc = rc == CKPT_OK && count ? nc_before(n, err) : rc;
    if (rc != CKPT_OK || count == 0)
        return rc;
    return nc_queued(n, ncclReduce(x, x, count, type, ncclSum, root, n->comm, n->stream), "reduce",
                     err);
}

static int nc_broadcast(zt_comm *c, void *x, uint64_t n_bytes, int root, ckpt_err *err)
{
    nc_comm *n = nc_of(c);
    int rc = nc_check(n, n_bytes, x, x, root, err);

    rc = rc == CKPT_OK && n_bytes ? nc_before(n, err) : rc;
    if (rc != CKPT_OK || n_bytes == 0)
        return rc;
    return nc_queued(n, ncclBroadcast(x, x, n_bytes, ncclUint8, root, n->comm, n->stream),
                     "broadcast", err);
}

/* One send and one receive per rank, in one group, so none waits for another. */
static int nc_all_to_all(zt_comm *c, void *to, const void *from, uint64_t n_bytes, ckpt_err *err)
{
    nc_comm *n = nc_of(c);
    int rc = nc_check(n, n_bytes, to, from, 0, err);
    ncclResult_t r, end;

    rc = rc == CKPT_OK && n_bytes ? nc_before(n, err) : rc;
    if (rc != CKPT_OK || n_bytes == 0)
        return rc;
    r = ncclGroupStart();
    for (int q = 0; q < c->world && r == ncclSuccess; q++) {
        uint64_t at = (uint64_t)q * n_bytes;

        r = ncclSend((const char *)from + at, n_bytes, ncclUint8, q, n->comm, n->stream);
        if (r == ncclSuccess)
            r = ncclRecv((char *)to + at, n_bytes, ncclUint8, q, n->comm, n->stream);
    }
    end = ncclGroupEnd();
    return nc_queued(n, r == ncclSuccess ? end : r, "all_to_all", err);
}

/* Wait only for the processes; their queued work may still be under way. */
static int nc_barrier(zt_comm *c, ckpt_err *err)
{
    return nc_of(c)->below->ops->barrier(nc_of(c)->below, err);
}

static int nc_start(zt_comm *c, const zt_collective *what, ckpt_err *err)
{
    nc_comm *n = nc_of(c);
    unsigned slot = (n->first + n->n_pending) % ZT_COMM_PENDING;
    int rc;

    if (n->n_pending == ZT_COMM_PENDING)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "start: %d operations are already running: wait for one first",
                         ZT_COMM_PENDING);
    rc = nc_queue(n, what, err);
    if (rc == CKPT_OK)
        rc = nc_cuda(n, cudaEventRecord(n->done[slot], n->stream), "start", err);
    if (rc == CKPT_OK)
        n->n_pending++;
    return rc;
}

static int nc_wait(zt_comm *c, ckpt_err *err)
{
    nc_comm *n = nc_of(c);
    unsigned slot = n->first;

    if (n->n_pending == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "wait: no operation is running");
    n->first = (n->first + 1) % ZT_COMM_PENDING;
    n->n_pending--;
    return nc_cuda(n, cudaStreamWaitEvent(n->compute, n->done[slot], 0), "wait", err);
}

/* ---- memory ---- */

/*
 * Allocate from NCCL; if that fails, release the memory that the device's pool only keeps, and
 * retry.
 */
static ncclResult_t nc_take_large(nc_comm *n, nc_block *b)
{
    ncclResult_t r = ncclMemAlloc(&b->p, b->n_bytes);
    cudaMemPool_t pool;

    if (r != ncclSuccess && cudaStreamSynchronize(n->compute) == cudaSuccess &&
        cudaDeviceGetDefaultMemPool(&pool, n->ordinal) == cudaSuccess &&
        cudaMemPoolTrimTo(pool, 0) == cudaSuccess) {
        (void)cudaGetLastError();
        r = ncclMemAlloc(&b->p, b->n_bytes);
    }
    return r;
}

/*
 * Large blocks come from NCCL and are registered, so it moves them without copies.  NCCL's manual
 * requires this on all ranks or none, so a rank on which it fails has failed.
 */
static void nc_take(nc_comm *n, nc_block *b)
{
    ncclResult_t r;

    if (b->n_bytes < NC_LARGE) {
        b->p = n->d->ops->alloc(n->d, b->n_bytes);
        return;
    }
    r = nc_take_large(n, b);
    b->ours = r == ncclSuccess;
    if (b->ours)
        r = ncclCommRegister(n->comm, b->p, b->n_bytes, &b->handle);
    if (r != ncclSuccess) {
        char text[160];

        (void)cudaGetLastError();
        (void)snprintf(text, sizeof text,
                       "NCCL cannot allocate or register a buffer of %llu bytes: %s",
                       (unsigned long long)b->n_bytes, ncclGetErrorString(r));
        zt_device_fail(n->d, CKPT_ELIMIT, text);
        if (b->ours)
            (void)ncclMemFree(b->p);
        b->p = NULL;
        return;
    }
    n->d->allocated += b->n_bytes;
    n->d->peak = n->d->allocated > n->d->peak ? n->d->allocated : n->d->peak;
}

static void *nc_alloc(zt_comm *c, uint64_t n_bytes)
{
    nc_comm *n = nc_of(c);
    nc_block b = {.n_bytes = n_bytes};

    if (n->n_blocks == n->room) {
        size_t room = 2 * n->room + 64;
        nc_block *block = ckpt_resize(n->block, room * sizeof *block);

        if (!block)
            return NULL;
        n->block = block;
        n->room = room;
    }
    nc_take(n, &b);
    if (b.p)
        n->block[n->n_blocks++] = b;
    return b.p;
}

static void nc_release(zt_comm *c, void *p)
{
    nc_comm *n = nc_of(c);

    for (size_t i = n->n_blocks; p && i-- > 0;) {
        nc_block b = n->block[i];

        if (b.p != p)
            continue;
        n->block[i] = n->block[--n->n_blocks];
        if (!b.ours) {
            n->d->ops->release(n->d, p);
            return;
        }
        // wait first: NCCL unmaps at once, even under queued kernels; the watch goes on meanwhile
        (void)cudaStreamSynchronize(n->compute);
        (void)cudaStreamSynchronize(n->stream);
        if (b.handle)
            (void)ncclCommDeregister(n->comm, b.handle);
        (void)ncclMemFree(p);
        n->d->allocated -= b.n_bytes;
        return;
    }
}

/* ---- the watching thread ---- */

/* Fail if a rank of this host has ended. */
static int nc_look_at_mates(nc_comm *n, ckpt_err *err)
{
    for (int q = 0; q < n->base.world; q++) {
        const nc_mate *m = &n->mate[q];

        if (q != n->base.rank && strncmp(m->host, n->base.host, sizeof m->host - 1) == 0 &&
            !zt_process_alive(m->process))
            return ckpt_fail(err, CKPT_EIO, "rank %d on %s (process %lld) has ended unexpectedly",
                             q, m->host, (long long)m->process.pid);
    }
    return CKPT_OK;
}

/*
 * Fail if the stream does not advance.  *since: time at which the marker was queued; 0: not queued.
 */
static int nc_look_at_stream(nc_comm *n, double *since, ckpt_err *err)
{
    double now = zt_process_clock();
    cudaError_t e = *since > 0 ? cudaEventQuery(n->mark) : cudaSuccess;

    if (e == cudaSuccess) {
        *since = now;
        e = cudaEventRecord(n->mark, n->stream);
    }
    if (e != cudaSuccess && e != cudaErrorNotReady) // this rank's GPU has failed
        return nc_cuda(n, e, "a collective", err);
    if (now - *since > n->timeout)
        return ckpt_fail(err, CKPT_EIO,
                         "a collective has not ended within %.0f s (ZEROTRAIN_NCCL_TIMEOUT): a "
                         "rank or the network hangs",
                         n->timeout);
    return CKPT_OK;
}

/*
 * Fail if an error is found.  *since: see nc_look_at_stream; before all ranks are in NCCL, the
 * start of the wait.
 */
static int nc_look(nc_comm *n, double *since, ckpt_err *err)
{
    ncclResult_t async = ncclSuccess;
    int rc = nc_look_at_mates(n, err);

    if (rc != CKPT_OK || n->joined) {
        if (rc == CKPT_OK && ncclCommGetAsyncError(n->comm, &async) == ncclSuccess)
            rc = nc_result(n, async, "a collective", err);
        return rc == CKPT_OK ? nc_look_at_stream(n, since, err) : rc;
    }
    if (zt_process_clock() - *since > n->timeout)
        return ckpt_fail(err, CKPT_EIO,
                         "NCCL has not started within %.0f s (ZEROTRAIN_NCCL_TIMEOUT): a rank is "
                         "missing, or the network between the ranks does not work",
                         n->timeout);
    return CKPT_OK;
}

static void *nc_watch(void *ctx)
{
    nc_comm *n = ctx;
    double since = zt_process_clock();
    bool joined = false;
    ckpt_err err = {0};

    (void)cudaSetDevice(n->ordinal);
    pthread_mutex_lock(&n->lock);
    while (!n->stop) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += NC_LOOK * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&n->wake, &n->lock, &until);
        if (n->joined && !joined) {
            joined = true;
            since = 0;
        }
        if (!n->stop && nc_look(n, &since, &err) != CKPT_OK)
            n->below->ops->abort(n->below, 7, err.text);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* ---- creating and freeing ---- */

static void nc_abort(zt_comm *c, int status, const char *text)
{
    nc_of(c)->below->ops->abort(nc_of(c)->below, status, text);
}

static void nc_free(zt_comm *c)
{
    nc_comm *n = nc_of(c);

    if (n->stream) // the watch is still running
        (void)cudaStreamSynchronize(n->stream);
    if (n->watched) {
        pthread_mutex_lock(&n->lock);
        n->stop = true;
        pthread_cond_signal(&n->wake);
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->watch, NULL);
    }
    if (n->locks) {
        pthread_mutex_destroy(&n->lock);
        pthread_cond_destroy(&n->wake);
    }
    if (n->comm)
        (void)ncclCommDestroy(n->comm);
    for (unsigned i = 0; i < ZT_COMM_PENDING; i++) {
        if (n->done[i])
            (void)cudaEventDestroy(n->done[i]);
    }
    if (n->ready)
        (void)cudaEventDestroy(n->ready);
    if (n->mark)
        (void)cudaEventDestroy(n->mark);
    if (n->stream)
        (void)cudaStreamDestroy(n->stream);
    ckpt_free(n->block);
    ckpt_free(n->mate);
    ckpt_free(n);
}

static const zt_comm_ops nc_ops = {
    .name = "nccl",
    .all_reduce = nc_all_reduce,
    .reduce_scatter = nc_reduce_scatter,
    .all_gather = nc_all_gather,
    .reduce = nc_reduce,
    .broadcast = nc_broadcast,
    .all_to_all = nc_all_to_all,
    .barrier = nc_barrier,
    .start = nc_start,
    .wait = nc_wait,
    .alloc = nc_alloc,
    .release = nc_release,
    .abort = nc_abort,
    .free = nc_free,
};

/*
 * Make stream, events and tables.  The stream has high priority, so messages leave while kernels
 * are still queued.
 */
static int nc_prepare(nc_comm *n, ckpt_err *err)
{
    int low = 0, high = 0;
    cudaError_t e = cudaGetDevice(&n->ordinal);

    n->mate = ckpt_alloc((size_t)n->base.world * sizeof *n->mate);
    if (!n->mate)
        return ckpt_fail_memory(err);
    if (e == cudaSuccess)
        e = cudaDeviceGetStreamPriorityRange(&low, &high);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(&n->stream, cudaStreamNonBlocking, high);
    for (unsigned i = 0; i < ZT_COMM_PENDING && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&n->done[i], cudaEventDisableTiming);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&n->ready, cudaEventDisableTiming);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&n->mark, cudaEventDisableTiming);
    return nc_cuda(n, e, "NCCL's stream", err);
}

/* Exchange NCCL's id and the identities of all ranks. */
static int nc_meet(nc_comm *n, ncclUniqueId *id, ckpt_err *err)
{
    nc_mate me = {.process = zt_process_self()};
    zt_comm *below = n->below;
    int rc = CKPT_OK;

    // make NCCL take all buffers at its start: at the first collective of each kind the device's
    // pool may have the rest of the memory; a value set by the user stays
    (void)setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    if (n->base.rank == 0)
        rc = nc_result(n, ncclGetUniqueId(id), "NCCL's id", err);
    rc = zt_comm_agree(below, rc, err);
    if (rc == CKPT_OK)
        rc = below->ops->broadcast(below, id, sizeof *id, 0, err);
    strncpy(me.host, n->base.host, sizeof me.host - 1);
    return rc == CKPT_OK ? below->ops->all_gather(below, n->mate, &me, sizeof me, CKPT_U8, err)
                         : rc;
}

static int nc_begin_watch(nc_comm *n, ckpt_err *err)
{
    const char *text = getenv("ZEROTRAIN_NCCL_TIMEOUT");
    double seconds = NC_TIMEOUT;

    if (text && *text && (!ckpt_parse_f64(text, &seconds) || seconds <= 0))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "ZEROTRAIN_NCCL_TIMEOUT is '%.40s': expected a number of seconds above 0",
                         text);
    n->timeout = seconds;
    if (pthread_mutex_init(&n->lock, NULL) != 0)
        return ckpt_fail_memory(err);
    (void)pthread_cond_init(&n->wake, NULL);
    n->locks = true;
    n->watched = pthread_create(&n->watch, NULL, nc_watch, n) == 0;
    return n->watched ? CKPT_OK
                      : ckpt_fail(err, CKPT_ELIMIT, "cannot start the thread that watches NCCL");
}

/*
 * Join NCCL.  The watch starts before, because a rank that ends meanwhile would leave the others
 * waiting.
 */
static int nc_join(nc_comm *n, ncclUniqueId id, ckpt_err *err)
{
    ncclComm_t comm = NULL;
    int rc = nc_begin_watch(n, err);

    if (rc == CKPT_OK)
        rc = nc_result(n, ncclCommInitRank(&comm, n->base.world, id, n->base.rank),
                       "ncclCommInitRank failed", err);
    if (rc == CKPT_OK) {
        pthread_mutex_lock(&n->lock);
        n->comm = comm;
        n->joined = true;
        pthread_mutex_unlock(&n->lock);
    }
    return rc;
}

int zt_nccl_comm_new(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err)
{
    nc_comm *n = ckpt_alloc(sizeof *n);
    ncclUniqueId id;
    int rc = n ? CKPT_OK : ckpt_fail_memory(err);

    *out = NULL;
    memset(&id, 0, sizeof id);
    if (n) {
        n->base = *base;
        n->base.ops = &nc_ops;
        n->base.traffic = NULL;
        n->base.device = device;
        n->below = base;
        n->d = device;
        n->compute = zt_cuda_stream(device);
        rc = nc_prepare(n, err);
    }
    // so far, only this rank knows of its failure; after this, either all ranks enter NCCL or none
    // does
    rc = zt_comm_agree(base, rc, err);
    if (rc == CKPT_OK)
        rc = nc_meet(n, &id, err);
    if (rc == CKPT_OK)
        rc = nc_join(n, id, err);
    rc = zt_comm_agree(base, rc, err);
    if (rc == CKPT_OK)
        *out = &n->base;
    else if (n)
        nc_free(&n->base);
    return rc;
}

#endif
