/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c: the communicator of processes that meet in a folder: started by hand, by srun
 * without MPI, or by torchrun, with nothing but a folder that all of them see.
 *
 *     ZEROTRAIN_STORE   the folder, empty or not there yet: one for each run
 *     RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
 *                       as torchrun sets them; else srun's SLURM_PROCID, SLURM_NTASKS,
 *                       SLURM_LOCALID, SLURM_NTASKS_PER_NODE; the local ones may be missing: 0, 1
 *
 * An operation is a meeting: each rank leaves a file with what the others need of it, reads theirs,
 * and removes its own file of the meeting before, which by then everybody has read.  So a rank has
 * two files at most, of at most ST_PIECE bytes: longer messages are several meetings.
 *
 *     rank.R       who R is: host, process
 *     op.N.R       rank R's part of meeting N, complete once it is there (written beside, renamed)
 *     abort        the text of the rank that gave up
 *
 * It is made for small messages: agreeing, counters, NCCL's id, losses.  All operations work, sums
 * as comm.h says, but at the speed of a file system, and memory is never shared.  Training that
 * moves its gradients over it is slow; GPUs exchange theirs by NCCL.  Over NFS the folder must be
 * mounted with short attribute caching (actimeo=1).
 *
 * A rank of this host that ends is noticed within a second or so; one of another host when nothing
 * of it has come for ZEROTRAIN_STORE_TIMEOUT seconds (600).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/link.h"
#include "engine/comm/patience.h"
#include "engine/comm/sum.h"
#include "libckpt/base/mem.h"

#define ST_PIECE   (UINT64_C(16) << 20) /* bytes of a file */
#define ST_MAX     65536                /* ranks */
#define ST_EAGER   0.05                 /* seconds of looking without long pauses */
#define ST_LOOK    1.0                  /* seconds between looks whether the others run */
#define ST_TIMEOUT 600

/* Who a rank is, as its file says. */
typedef struct st_mate {
    zt_process process;
    char host[256];
    int64_t rank, world;
} st_mate;

typedef struct st_comm {
    zt_link link; /* first: a zt_comm * is one of these */
    int dir;
    uint64_t meeting; /* number of the latest */
    double timeout;
    st_mate *mate;      /* world of them */
    int *fd;            /* files of a meeting */
    unsigned char *buf; /* ST_PIECE: what the others' files hold */
    uint64_t room;      /* bytes of a rank in buf */
    ckpt_err broken;    /* the first failure: the ranks may be apart */
} st_comm;

/* ---- the environment ---- */

/* A count from the first variable that is set; -1: none is, or it is no number. */
static long st_count(const char *name, const char *other)
{
    const char *text = getenv(name);
    char *end = NULL;
    long n;

    text = text && *text ? text : getenv(other);
    if (!text || !*text)
        return -1;
    n = strtol(text, &end, 10);
    return *end == 0 && n >= 0 && n <= ST_MAX ? n : -1;
}

bool zt_comm_stored(void)
{
    const char *dir = getenv("ZEROTRAIN_STORE");

    return dir && *dir;
}

static int st_place(zt_comm *c, ckpt_err *err)
{
    long rank = st_count("RANK", "SLURM_PROCID"), world = st_count("WORLD_SIZE", "SLURM_NTASKS");
    long local = st_count("LOCAL_RANK", "SLURM_LOCALID");
    long mates = st_count("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE");

    if (rank < 0 || world < 1 || rank >= world)
        return ckpt_fail(
            err, CKPT_EUSAGE,
            "ZEROTRAIN_STORE is set: RANK and WORLD_SIZE (or srun's SLURM_PROCID and "
            "SLURM_NTASKS) must say which of how many processes this is; found %ld of %ld",
            rank, world);
    c->rank = (int)rank;
    c->world = (int)world;
    c->local_rank = local >= 0 ? (int)local : 0;
    c->local_world = mates > c->local_rank ? (int)mates : c->local_rank + 1;
    return CKPT_OK;
}

/* ---- files ---- */

static int st_broken(st_comm *s, ckpt_err *err)
{
    return s->broken.code == CKPT_OK ? CKPT_OK
                                     : ckpt_fail(err, s->broken.code, "%s", s->broken.text);
}

/* Keep a failure of the folder. */
static int st_sys(st_comm *s, const char *name, int sys, ckpt_err *err)
{
    if (sys == EPIPE)
        ckpt_fail(&s->broken, CKPT_EIO, "rank %d on %s: %s/%s: the file ends too early",
                  s->link.base.rank, s->link.host, getenv("ZEROTRAIN_STORE"), name);
    else
        ckpt_fail_sys(&s->broken, CKPT_EIO, sys, "rank %d on %s: %s/%s", s->link.base.rank,
                      s->link.host, getenv("ZEROTRAIN_STORE"), name);
    return st_broken(s, err);
}

/* Exactly n bytes; 0, or an errno value (EPIPE: the file is shorter). */
static int st_read(int fd, void *to, uint64_t n, uint64_t at)
{
    unsigned char *p = to;

    while (n > 0) {
        ssize_t did = pread(fd, p, (size_t)n, (off_t)at);

        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            return did < 0 ? errno : EPIPE;
        p += did;
        at += (uint64_t)did;
        n -= (uint64_t)did;
    }
    return 0;
}

static int st_write_all(int fd, const void *from, uint64_t n)
{
    const unsigned char *p = from;

    while (n > 0) {
        ssize_t did = write(fd, p, (size_t)n);

        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            return did < 0 ? errno : ENOSPC;
        p += did;
        n -= (uint64_t)did;
    }
    return 0;
}

/* A file that is there completely or not at all; `fresh`: it must not be there yet. */
static int st_leave(st_comm *s, const char *name, const void *bytes, uint64_t n, bool fresh)
{
    char hidden[64];
    int fd, sys;

    snprintf(hidden, sizeof hidden, ".%d.tmp", s->link.base.rank);
    fd = openat(s->dir, hidden, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    sys = st_write_all(fd, bytes, n);
    if (close(fd) != 0 && sys == 0)
        sys = errno;
    if (sys == 0 && fresh)
        sys = linkat(s->dir, hidden, s->dir, name, 0) == 0 ? 0 : errno;
    else if (sys == 0)
        sys = renameat(s->dir, hidden, s->dir, name) == 0 ? 0 : errno;
    (void)unlinkat(s->dir, hidden, 0);
    return sys;
}

/* ---- waiting ---- */

/* The text of a rank that gave up; false: none did. */
static bool st_given_up(st_comm *s, ckpt_err *err)
{
    char text[512] = "";
    int fd = openat(s->dir, "abort", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        (void)close(fd);
    if (n < 0)
        return false;
    // it goes to a terminal
    for (ssize_t i = 0; i < n; i++)
        text[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i];
    ckpt_fail(&s->broken, CKPT_EIO, "%s", text);
    (void)st_broken(s, err);
    return true;
}

/* Does rank q still run, as far as can be told? */
static int st_look(st_comm *s, int q, double since, ckpt_err *err)
{
    const st_mate *m = &s->mate[q];
    bool known = m->process.pid > 0, here = known && strcmp(m->host, s->link.host) == 0;

    if (st_given_up(s, err))
        return s->broken.code;
    if (here && !zt_process_alive(m->process))
        ckpt_fail(&s->broken, CKPT_EIO,
                  "rank %d on %s (process %" PRId64 ") has ended unexpectedly", q, m->host,
                  m->process.pid);
    else if (since > s->timeout)
        ckpt_fail(&s->broken, CKPT_EIO,
                  "rank %d%s%s: nothing came for %.0f s (ZEROTRAIN_STORE_TIMEOUT)", q,
                  known ? " on " : "", known ? m->host : "", since);
    return st_broken(s, err);
}

/* Rank q does not come: one of the others says so, and --wait-limit ends it. */
static int st_late(st_comm *s, int q, zt_patience *p, ckpt_err *err)
{
    const st_mate *m = &s->mate[q];
    bool here = strcmp(m->host, s->link.host) == 0;
    zt_missing who = {.rank = q, .host = *m->host ? m->host : NULL};
    int me = s->link.base.rank;

    if (here)
        who.process = m->process;
    return zt_patience_look(p, "meeting", me, me == (q == 0), &who, &s->broken) == CKPT_OK
               ? CKPT_OK
               : st_broken(s, err);
}

/* Open a file of rank q when it is there. */
static int st_await(st_comm *s, const char *name, int q, int *fd, ckpt_err *err)
{
    double began = zt_process_clock(), now;
    struct timespec pause = {.tv_nsec = 50000};
    zt_patience patience;
    int rc = CKPT_OK;

    zt_patience_begin(&patience);
    for (;;) {
        // a pipe in its place must not be waited for: reading it ends at once
        *fd = openat(s->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (*fd >= 0)
            return CKPT_OK;
        if (errno != ENOENT && errno != ESTALE)
            return st_sys(s, name, errno, err);
        now = zt_process_clock();
        if (now - patience.looked > ST_LOOK) {
            rc = st_look(s, q, now - began, err);
            rc = rc == CKPT_OK ? st_late(s, q, &patience, err) : rc;
        }
        if (rc != CKPT_OK)
            return rc;
        nanosleep(&pause, NULL);
        if (now - began > ST_EAGER && pause.tv_nsec < 5000000)
            pause.tv_nsec += pause.tv_nsec / 4;
    }
}

static void st_name(char *out, size_t room, uint64_t meeting, int rank)
{
    snprintf(out, room, "op.%" PRIu64 ".%d", meeting, rank);
}

/* ---- a meeting ---- */

/* What every file begins with: ranks that make different calls are told so. */
typedef struct st_head {
    uint64_t kind, arg, n, dt;
} st_head;

/* Leave `mine`, open everybody's; what was left before is read by all. */
static int st_meet(st_comm *s, const zt_call *call, const void *mine, uint64_t n_bytes,
                   ckpt_err *err)
{
    st_head head = {(uint64_t)call->kind, call->arg, call->n, (uint64_t)call->dt}, theirs;
    int me = s->link.base.rank, world = s->link.base.world, rc = st_broken(s, err), sys;
    char name[64];

    if (rc != CKPT_OK)
        return rc;
    memcpy(s->buf, &head, sizeof head);
    if (n_bytes > 0)
        memcpy(s->buf + sizeof head, mine, (size_t)n_bytes);
    s->meeting++;
    st_name(name, sizeof name, s->meeting, me);
    sys = st_leave(s, name, s->buf, sizeof head + n_bytes, false);
    if (sys != 0)
        return st_sys(s, name, sys, err);
    for (int q = 0; q < world; q++)
        s->fd[q] = -1;
    for (int q = 0; q < world && rc == CKPT_OK; q++) {
        st_name(name, sizeof name, s->meeting, q);
        rc = st_await(s, name, q, &s->fd[q], err);
        sys = rc == CKPT_OK ? st_read(s->fd[q], &theirs, sizeof theirs, 0) : 0;
        if (rc == CKPT_OK && sys != 0)
            rc = st_sys(s, name, sys, err);
        if (rc == CKPT_OK && memcmp(&theirs, &head, sizeof head) != 0) {
            ckpt_fail(&s->broken, CKPT_EIO,
                      "%s of %" PRIu64 " elements: rank %d is in %s of %" PRIu64
                      ": all ranks must make the same calls",
                      zt_call_name(call->kind), call->n, q, zt_call_name((zt_call_kind)theirs.kind),
                      theirs.n);
            rc = st_broken(s, err);
        }
    }
    if (rc == CKPT_OK) {
        st_name(name, sizeof name, s->meeting - 1, me);
        (void)unlinkat(s->dir, name, 0);
    }
    return rc;
}

/* n bytes of rank q's part, from `at` on. */
static int st_take(st_comm *s, int q, void *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    int sys = st_read(s->fd[q], to, n, sizeof(st_head) + at);

    return sys == 0 ? CKPT_OK : st_sys(s, "a meeting's file", sys, err);
}

static void st_part(st_comm *s)
{
    for (int q = 0; q < s->link.base.world; q++) {
        if (s->fd[q] >= 0)
            (void)close(s->fd[q]);
        s->fd[q] = -1;
    }
}

/* ---- operations ---- */

static unsigned char *st_at(const zt_call *call, void *p, uint64_t element)
{
    return (unsigned char *)p + element * call->size;
}

/* count elements of everybody, from element `at` of their files on, joined into `to`. */
static int st_join(st_comm *s, const zt_call *call, void *to, uint64_t count, uint64_t at,
                   ckpt_err *err)
{
    int world = s->link.base.world, rc = CKPT_OK;
    uint64_t step = s->room / call->size;

    for (uint64_t i = 0; i < count && rc == CKPT_OK; i += step) {
        uint64_t m = count - i < step ? count - i : step;

        for (int q = 0; q < world && rc == CKPT_OK; q++) {
            s->link.pointers[q] = s->buf + (uint64_t)q * s->room;
            rc = st_take(s, q, s->buf + (uint64_t)q * s->room, m * call->size,
                         (at + i) * call->size, err);
        }
        if (rc == CKPT_OK)
            zt_sum(st_at(call, to, i), s->link.pointers, world, m, call->dt, call->op);
    }
    return rc;
}

/* Elements of a meeting when each rank leaves `parts` runs of them. */
static uint64_t st_step(const zt_call *call, uint64_t parts)
{
    uint64_t n = (ST_PIECE - sizeof(st_head)) / parts / call->size;

    return n > 0 ? n : 1;
}

/* A meeting per run of elements: every rank's run of every part, side by side. */
static int st_reduce_scatter(void *way, const zt_call *call, ckpt_err *err)
{
    st_comm *s = way;
    uint64_t world = (uint64_t)s->link.base.world, rank = (uint64_t)s->link.base.rank;
    uint64_t step = st_step(call, world);
    unsigned char *mine = ckpt_alloc((size_t)(step * world * call->size));
    int rc = mine ? CKPT_OK : ckpt_fail_memory(&s->broken);

    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += step) {
        uint64_t m = call->n - at < step ? call->n - at : step;

        for (uint64_t r = 0; r < world; r++)
            memcpy(mine + r * m * call->size,
                   (const unsigned char *)call->from + (r * call->n + at) * call->size,
                   (size_t)(m * call->size));
        rc = st_meet(s, call, mine, world * m * call->size, err);
        if (rc == CKPT_OK)
            rc = st_join(s, call, st_at(call, call->to, at), m, rank * m, err);
        st_part(s);
    }
    ckpt_free(mine);
    return rc == CKPT_OK ? rc : st_broken(s, err);
}

static int st_all_gather(void *way, const zt_call *call, ckpt_err *err)
{
    st_comm *s = way;
    uint64_t step = st_step(call, 1);
    int rc = CKPT_OK, world = s->link.base.world;

    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += step) {
        uint64_t m = call->n - at < step ? call->n - at : step;

        rc = st_meet(s, call, (const unsigned char *)call->from + at * call->size, m * call->size,
                     err);
        for (int q = 0; q < world && rc == CKPT_OK; q++)
            rc = st_take(s, q, st_at(call, call->to, (uint64_t)q * call->n + at), m * call->size, 0,
                         err);
        st_part(s);
    }
    return rc;
}

/* On the ranks that want it; to may be from, which was left in a file before. */
static int st_reduce_to(st_comm *s, const zt_call *call, bool wanted, ckpt_err *err)
{
    uint64_t step = st_step(call, 1);
    int rc = CKPT_OK;

    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += step) {
        uint64_t m = call->n - at < step ? call->n - at : step;

        rc = st_meet(s, call, (const unsigned char *)call->from + at * call->size, m * call->size,
                     err);
        if (rc == CKPT_OK && wanted)
            rc = st_join(s, call, st_at(call, call->to, at), m, 0, err);
        st_part(s);
    }
    return rc;
}

static int st_reduce_small(void *way, const zt_call *call, ckpt_err *err)
{
    return st_reduce_to(way, call, true, err);
}

static int st_reduce(void *way, const zt_call *call, ckpt_err *err)
{
    st_comm *s = way;

    return st_reduce_to(s, call, s->link.base.rank == call->root, err);
}

static int st_broadcast(void *way, const zt_call *call, ckpt_err *err)
{
    st_comm *s = way;
    bool root = s->link.base.rank == call->root;
    uint64_t step = st_step(call, 1);
    int rc = CKPT_OK;

    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += step) {
        uint64_t m = call->n - at < step ? call->n - at : step;

        rc = st_meet(s, call, st_at(call, call->to, at), root ? m * call->size : 0, err);
        if (rc == CKPT_OK && !root)
            rc = st_take(s, call->root, st_at(call, call->to, at), m * call->size, 0, err);
        st_part(s);
    }
    return rc;
}

static int st_all_to_all(void *way, const zt_call *call, ckpt_err *err)
{
    st_comm *s = way;
    uint64_t world = (uint64_t)s->link.base.world, rank = (uint64_t)s->link.base.rank;
    uint64_t step = st_step(call, world);
    unsigned char *mine = ckpt_alloc((size_t)(step * world * call->size));
    int rc = mine ? CKPT_OK : ckpt_fail_memory(&s->broken);

    for (uint64_t at = 0; at < call->n && rc == CKPT_OK; at += step) {
        uint64_t m = call->n - at < step ? call->n - at : step, bytes = m * call->size;

        for (uint64_t r = 0; r < world; r++)
            memcpy(mine + r * bytes,
                   (const unsigned char *)call->from + (r * call->n + at) * call->size,
                   (size_t)bytes);
        rc = st_meet(s, call, mine, world * bytes, err);
        for (uint64_t q = 0; q < world && rc == CKPT_OK; q++)
            rc = st_take(s, (int)q, st_at(call, call->to, q * call->n + at), bytes, rank * bytes,
                         err);
        st_part(s);
    }
    ckpt_free(mine);
    return rc == CKPT_OK ? rc : st_broken(s, err);
}

static int st_barrier(void *way, const zt_call *call, ckpt_err *err)
{
    int rc = st_meet(way, call, NULL, 0, err);

    st_part(way);
    return rc;
}

static const zt_link_ops st_link_ops = {
    .reduce_scatter = st_reduce_scatter,
    .all_gather = st_all_gather,
    .reduce_small = st_reduce_small,
    .reduce = st_reduce,
    .broadcast = st_broadcast,
    .all_to_all = st_all_to_all,
    .barrier = st_barrier,
    .alloc = zt_link_plain_alloc,
    .release = zt_link_plain_release,
};

/* ---- the end ---- */

/* The first rank to come here prints, and leaves its text for the others; they end with it. */
static void st_abort(zt_comm *c, int status, const char *text)
{
    st_comm *s = (st_comm *)(void *)c;
    char line[480];
    int n = snprintf(line, sizeof line, "rank %d on %s: %s", c->rank, c->host, text);

    n = n < 0 ? 0 : n >= (int)sizeof line ? (int)sizeof line - 1 : n;
    fflush(stdout);
    if (st_leave(s, "abort", line, (uint64_t)n, true) == 0)
        fprintf(stderr, "%s\n", line);
    _exit(status ? status : 1);
}

static void st_release(st_comm *s)
{
    if (s->dir >= 0)
        (void)close(s->dir);
    ckpt_free(s->mate);
    ckpt_free(s->fd);
    ckpt_free(s->buf);
    ckpt_free(s->link.pointers);
    ckpt_free(s);
}

/* Rank 0: once all have told that they read nothing any more, the folder is emptied for another
 * run. */
static void st_clean(st_comm *s)
{
    int world = s->link.base.world, rc = CKPT_OK;
    char name[64];

    for (int q = 0; q < world && rc == CKPT_OK; q++) {
        int fd = -1;

        snprintf(name, sizeof name, "left.%d", q);
        rc = st_await(s, name, q, &fd, NULL);
        if (fd >= 0)
            (void)close(fd);
    }
    for (int q = 0; q < world && rc == CKPT_OK; q++) {
        snprintf(name, sizeof name, "left.%d", q);
        (void)unlinkat(s->dir, name, 0);
        snprintf(name, sizeof name, "rank.%d", q);
        (void)unlinkat(s->dir, name, 0);
        st_name(name, sizeof name, s->meeting, q);
        (void)unlinkat(s->dir, name, 0);
    }
}

/* Nobody knows of the last meeting's files whether all have read them: so each says that it has. */
static void st_free(zt_comm *c)
{
    st_comm *s = (st_comm *)(void *)c;
    zt_call call = {.kind = ZT_CALL_FREE, .dt = CKPT_U8, .size = 1};
    char name[64];
    int rc = s->broken.code;

    if (!s->link.ops) {
        (void)unlinkat(s->dir, "rank.0", 0);
    } else if (rc == CKPT_OK) {
        rc = st_meet(s, &call, NULL, 0, NULL);
        st_part(s);
        snprintf(name, sizeof name, "left.%d", c->rank);
        if (rc == CKPT_OK)
            (void)st_leave(s, name, "", 0, false);
        if (rc == CKPT_OK && c->rank == 0)
            st_clean(s);
    }
    st_release(s);
}

static const zt_comm_ops st_ops = {
    .name = "store",
    .all_reduce = zt_link_all_reduce,
    .reduce_scatter = zt_link_reduce_scatter,
    .all_gather = zt_link_all_gather,
    .reduce = zt_link_reduce,
    .broadcast = zt_link_broadcast,
    .all_to_all = zt_link_all_to_all,
    .barrier = zt_link_barrier,
    .start = zt_link_start,
    .wait = zt_link_wait,
    .alloc = zt_link_alloc,
    .release = zt_link_release,
    .abort = st_abort,
    .free = st_free,
};

/* ---- the beginning ---- */

static int st_folder(st_comm *s, ckpt_err *err)
{
    const char *path = getenv("ZEROTRAIN_STORE");

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "ZEROTRAIN_STORE: %s cannot be made", path);
    s->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->dir >= 0 ? CKPT_OK : ckpt_fail_sys(err, CKPT_EIO, errno, "ZEROTRAIN_STORE: %s", path);
}

/* This rank's own file; one of another run in its place is told. */
static int st_enter(st_comm *s, ckpt_err *err)
{
    st_mate me = {
        .process = zt_process_self(), .rank = s->link.base.rank, .world = s->link.base.world};
    char name[64];
    int sys;

    memcpy(me.host, s->link.host, sizeof me.host);
    snprintf(name, sizeof name, "rank.%d", s->link.base.rank);
    sys = st_leave(s, name, &me, sizeof me, true);
    if (sys == EEXIST)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "ZEROTRAIN_STORE: %s is in use by another run, or one has left its files "
                         "there: give each run an empty folder",
                         getenv("ZEROTRAIN_STORE"));
    return sys == 0 ? CKPT_OK : st_sys(s, name, sys, err);
}

/* Everybody is there, and counts the same number of ranks. */
static int st_gather_mates(st_comm *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    for (int q = 0; q < s->link.base.world && rc == CKPT_OK; q++) {
        char name[64];
        int fd = -1, sys;

        snprintf(name, sizeof name, "rank.%d", q);
        rc = st_await(s, name, q, &fd, err);
        if (rc != CKPT_OK)
            break;
        sys = st_read(fd, &s->mate[q], sizeof s->mate[q], 0);
        (void)close(fd);
        s->mate[q].host[sizeof s->mate[q].host - 1] = 0;
        if (sys != 0)
            rc = st_sys(s, name, sys, err);
        else if (s->mate[q].world != s->link.base.world || s->mate[q].rank != q)
            rc = ckpt_fail(err, CKPT_EUSAGE, "rank %d is one of %" PRId64 " ranks, this one of %d",
                           q, s->mate[q].world, s->link.base.world);
    }
    return rc;
}

static int st_room(st_comm *s, ckpt_err *err)
{
    uint64_t world = (uint64_t)s->link.base.world;

    // whole cache lines of each rank
    s->room = ST_PIECE / world / 64 * 64;
    s->mate = ckpt_alloc(world * sizeof *s->mate);
    s->fd = ckpt_alloc(world * sizeof *s->fd);
    s->buf = ckpt_alloc(ST_PIECE + sizeof(st_head));
    s->link.pointers = ckpt_alloc(world * sizeof *s->link.pointers);
    return s->mate && s->fd && s->buf && s->link.pointers ? CKPT_OK : ckpt_fail_memory(err);
}

int zt_comm_store(zt_comm **out, ckpt_err *err)
{
    st_comm *s = ckpt_alloc(sizeof *s);
    long timeout = st_count("ZEROTRAIN_STORE_TIMEOUT", "ZEROTRAIN_STORE_TIMEOUT");
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    s->dir = -1;
    s->timeout = timeout > 0 ? (double)timeout : ST_TIMEOUT;
    s->link.base.ops = &st_ops;
    zt_link_name_host(&s->link);
    rc = st_place(&s->link.base, err);
    if (rc == CKPT_OK)
        rc = st_folder(s, err);
    if (rc == CKPT_OK)
        rc = st_room(s, err);
    if (rc == CKPT_OK)
        rc = st_enter(s, err);
    if (rc == CKPT_OK)
        rc = st_gather_mates(s, err);
    if (rc != CKPT_OK) {
        st_release(s);
        return rc;
    }
    if (s->link.base.world > 1) {
        s->link.ops = &st_link_ops;
        s->link.way = s;
    }
    *out = &s->link.base;
    return CKPT_OK;
}
