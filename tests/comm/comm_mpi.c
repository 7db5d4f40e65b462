/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_mpi.c: the communicator of several processes, run under mpirun by run_comm.sh.
 *
 *     comm_mpi checks [some]   every operation against sums formed here; prints PASS or FAIL lines;
 *                              some: without the variants that take longest
 *     comm_mpi staged [some]   the same, through the buffers of staged.c on the CPU device
 *     comm_mpi kill RANK       RANK kills itself in a loop of collectives
 *     comm_mpi leave RANK      RANK frees its communicator while the others go on
 *     comm_mpi abort RANK      RANK aborts; without it every rank does
 *     comm_mpi differ          rank 1 calls something else
 *     comm_mpi agree RANK      RANK fails, the others do not: all end with its code
 *     comm_mpi bench [MIB]     GB/s of the large operations
 *
 * Values are a function of rank and index, so every rank knows what all others hold.
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/comm.h"
#include "libckpt/base/cast.h"

static zt_comm *comm;
static ckpt_err err;

/* The communicator's memory, filled with a pattern. */
static unsigned char *take(uint64_t n)
{
    unsigned char *p = comm->ops->alloc(comm, n);

    if (!p)
        comm->ops->abort(comm, 1, "no memory for a test");
    memset(p, 0x55, n);
    return p;
}

static void give(unsigned char *p)
{
    comm->ops->release(comm, p);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static uint32_t width(ckpt_dtype dt)
{
    return ckpt_dtype_get(dt)->bits / 8;
}

/*
 * Element i of rank's buffer.  Magnitudes differ by 2^24 and signs alternate, so that a sum formed
 * in another order, or rounded in between, has other bits.
 */
static double magnitude(uint64_t h)
{
    return ((double)(h >> 40) / (1 << 24) - 0.5) * (double)(1u << h % 25) / (1 << 12);
}

static void value(ckpt_dtype dt, int rank, uint64_t i, void *out)
{
    uint64_t h = mix(i * 1315423911u + (uint64_t)rank * 2654435761u + 17);
    double d;
    float f;

    switch ((int)dt) {
    case CKPT_F64:
        d = magnitude(h);
        memcpy(out, &d, 8);
        break;
    case CKPT_F32:
        f = (float)magnitude(h);
        memcpy(out, &f, 4);
        break;
    case CKPT_F16:
    case CKPT_BF16:
        f = (float)magnitude(h);
        ckpt_cast_find_portable(dt, CKPT_F32)(out, &f, 1);
        break;
    case CKPT_U8:
        *(unsigned char *)out = (unsigned char)h;
        break;
    default:
        memcpy(out, &h, width(dt));
        break;
    }
}

static double join(double a, double b, zt_reduce op)
{
    if (op == ZT_SUM)
        return a + b;
    return op == ZT_MAX ? fmax(a, b) : fmin(a, b);
}

static int64_t join_int(int64_t a, int64_t b, zt_reduce op)
{
    if (op == ZT_SUM)
        return (int64_t)((uint64_t)a + (uint64_t)b);
    return op == ZT_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static void expect_int(ckpt_dtype dt, uint64_t i, zt_reduce op, void *out)
{
    int64_t all = 0;

    for (int q = 0; q < comm->world; q++) {
        int64_t v = 0;
        int32_t v4;

        value(dt, q, i, &v);
        if (dt == CKPT_I32) {
            memcpy(&v4, &v, 4);
            v = v4;
        }
        all = q ? join_int(all, v, op) : v;
    }
    memcpy(out, &all, width(dt));
}

/* What all ranks' elements i make together, formed one by one. */
static void expect(ckpt_dtype dt, uint64_t i, zt_reduce op, void *out)
{
    double d = 0, v8;
    float f = 0, v4;
    unsigned char raw[8];

    if (dt == CKPT_I32 || dt == CKPT_I64) {
        expect_int(dt, i, op, out);
        return;
    }
    for (int q = 0; q < comm->world; q++) {
        value(dt, q, i, raw);
        if (dt == CKPT_F64) {
            memcpy(&v8, raw, 8);
            d = q ? join(d, v8, op) : v8;
        } else {
            ckpt_cast_find_portable(CKPT_F32, dt)(&v4, raw, 1);
            f = q ? (float)join((double)f, (double)v4, op) : v4;
        }
    }
    if (dt == CKPT_F64)
        memcpy(out, &d, 8);
    else
        ckpt_cast_find_portable(dt, CKPT_F32)(out, &f, 1);
}

/* ---- cases ---- */

static void fill(unsigned char *p, ckpt_dtype dt, uint64_t n)
{
    uint32_t w = width(dt);

    for (uint64_t i = 0; i < n; i++)
        value(dt, comm->rank, i, p + i * w);
}

static bool is_joined(const unsigned char *p, ckpt_dtype dt, zt_reduce op, uint64_t at, uint64_t n)
{
    unsigned char raw[8];

    for (uint64_t i = 0; i < n; i++) {
        expect(dt, at + i, op, raw);
        if (memcmp(raw, p + i * width(dt), width(dt)) != 0)
            return false;
    }
    return true;
}

/* Elements at .. at + n of `rank`. */
static bool is_of(const unsigned char *p, ckpt_dtype dt, int rank, uint64_t at, uint64_t n)
{
    uint32_t w = width(dt);
    unsigned char raw[8];

    for (uint64_t i = 0; i < n; i++) {
        value(dt, rank, at + i, raw);
        if (memcmp(raw, p + i * w, w) != 0)
            return false;
    }
    return true;
}

static bool all_reduce(ckpt_dtype dt, uint64_t n, zt_reduce op)
{
    unsigned char *x = take(n * width(dt));
    bool ok;

    fill(x, dt, n);
    ok = comm->ops->all_reduce(comm, x, n, dt, op, &err) == CKPT_OK && is_joined(x, dt, op, 0, n);
    give(x);
    return ok;
}

static bool reduce_scatter(ckpt_dtype dt, uint64_t n, bool in_place)
{
    uint64_t whole = n * (uint64_t)comm->world, own = n * (uint64_t)comm->rank;
    unsigned char *from = take(whole * width(dt)), *to = take(n * width(dt));
    unsigned char *out = in_place ? from + own * width(dt) : to;
    bool ok;

    fill(from, dt, whole);
    ok = comm->ops->reduce_scatter(comm, out, from, n, dt, &err) == CKPT_OK &&
         is_joined(out, dt, ZT_SUM, own, n);
    // the other parts are only read
    for (int q = 0; q < comm->world && ok; q++) {
        uint64_t at = (uint64_t)q * n;

        ok = (in_place && q == comm->rank) || is_of(from + at * width(dt), dt, comm->rank, at, n);
    }
    give(from);
    give(to);
    return ok;
}

static bool all_gather(ckpt_dtype dt, uint64_t n, bool in_place)
{
    uint64_t whole = n * (uint64_t)comm->world, own = n * (uint64_t)comm->rank;
    unsigned char *from = take(n * width(dt)), *to = take(whole * width(dt));
    unsigned char *in = in_place ? to + own * width(dt) : from;
    bool ok;

    fill(in, dt, n);
    ok = comm->ops->all_gather(comm, to, in, n, dt, &err) == CKPT_OK;
    for (int q = 0; q < comm->world && ok; q++)
        ok = is_of(to + (uint64_t)q * n * width(dt), dt, q, 0, n);
    give(from);
    give(to);
    return ok;
}

static bool reduce(ckpt_dtype dt, uint64_t n)
{
    unsigned char *x = take(n * width(dt));
    bool ok = true;

    for (int root = 0; root < comm->world && ok; root++) {
        fill(x, dt, n);
        ok = comm->ops->reduce(comm, x, n, dt, root, &err) == CKPT_OK &&
             (comm->rank == root ? is_joined(x, dt, ZT_SUM, 0, n) : is_of(x, dt, comm->rank, 0, n));
    }
    give(x);
    return ok;
}

static bool broadcast(uint64_t n)
{
    unsigned char *x = take(n);
    bool ok = true;

    for (int root = 0; root < comm->world && ok; root++) {
        fill(x, CKPT_U8, n);
        ok = comm->ops->broadcast(comm, x, n, root, &err) == CKPT_OK &&
             is_of(x, CKPT_U8, root, 0, n);
    }
    give(x);
    return ok;
}

static bool all_to_all(uint64_t n)
{
    uint64_t whole = n * (uint64_t)comm->world;
    unsigned char *from = take(whole), *to = take(whole);
    bool ok;

    fill(from, CKPT_U8, whole);
    ok = comm->ops->all_to_all(comm, to, from, n, &err) == CKPT_OK;
    for (int q = 0; q < comm->world && ok; q++)
        ok = is_of(to + (uint64_t)q * n, CKPT_U8, q, (uint64_t)comm->rank * n, n);
    give(from);
    give(to);
    return ok;
}

/* ---- what is special ---- */

static bool nan_wins(void)
{
    bool ok = true;

    for (int q = 0; q < comm->world; q++) {
        float x[2] = {comm->rank == q ? NAN : 1.0f, comm->rank == q ? INFINITY : 1.0f}, y = x[0];

        ok = comm->ops->all_reduce(comm, x, 2, CKPT_F32, ZT_MAX, &err) == CKPT_OK && isnan(x[0]) &&
             isinf(x[1]) && ok;
        ok =
            comm->ops->all_reduce(comm, &y, 1, CKPT_F32, ZT_MIN, &err) == CKPT_OK && isnan(y) && ok;
    }
    return ok;
}

static bool pending(void)
{
    enum { N = 70001 };
    uint64_t world = (uint64_t)comm->world;
    unsigned char *from[ZT_COMM_PENDING], *to[ZT_COMM_PENDING];
    zt_collective w = {.n = N, .dt = CKPT_F32};
    bool ok = true;

    for (int i = 0; i < ZT_COMM_PENDING; i++) {
        from[i] = take(N * world * 4);
        to[i] = take(N * world * 4);
        fill(from[i], CKPT_F32, N * world);
        w.kind = i % 2 ? ZT_ALL_GATHER : ZT_REDUCE_SCATTER;
        w.to = to[i];
        w.from = from[i];
        ok = comm->ops->start(comm, &w, &err) == CKPT_OK && ok;
    }
    ok = comm->ops->start(comm, &w, NULL) == CKPT_EUSAGE && ok;
    for (int i = 0; i < ZT_COMM_PENDING; i++) {
        ok = comm->ops->wait(comm, &err) == CKPT_OK && ok;
        if (i % 2)
            ok = is_of(to[i] + (world - 1) * N * 4, CKPT_F32, comm->world - 1, 0, N) && ok;
        else
            ok = is_joined(to[i], CKPT_F32, ZT_SUM, (uint64_t)comm->rank * N, N) && ok;
    }
    ok = comm->ops->wait(comm, NULL) == CKPT_EUSAGE && ok;
    for (int i = 0; i < ZT_COMM_PENDING; i++) {
        give(from[i]);
        give(to[i]);
    }
    return ok;
}

/* Every set of failing ranks: all ranks get the code and the text of the lowest. */
static bool agreement(void)
{
    bool ok = true;

    for (int set = 0; set < 1 << comm->world; set++) {
        bool fails = set >> comm->rank & 1;
        ckpt_err e = {.code = CKPT_OK};
        char text[64];
        int lowest = 0, rc = CKPT_OK;

        if (fails)
            rc = ckpt_fail(&e, comm->rank % 2 ? CKPT_EFORMAT : CKPT_ELIMIT, "trouble on rank %d",
                           comm->rank);
        rc = zt_comm_agree(comm, rc, &e);
        if (set == 0) {
            ok = rc == CKPT_OK && e.code == CKPT_OK && ok;
            continue;
        }
        while (!(set >> lowest & 1))
            lowest++;
        snprintf(text, sizeof text, "trouble on rank %d", lowest);
        ok = rc == (lowest % 2 ? CKPT_EFORMAT : CKPT_ELIMIT) && e.code == rc &&
             strcmp(e.text, text) == 0 && ok;
    }
    // without a struct the code still travels
    ok =
        zt_comm_agree(comm, comm->rank == comm->world - 1 ? CKPT_EIO : CKPT_OK, NULL) == CKPT_EIO &&
        ok;
    return ok;
}

/* Allocating is each rank's own affair: other sizes, other order, gaps; pieces keep their bytes. */
static bool allocation(void)
{
    enum { N = 24 };
    unsigned char *p[N] = {NULL};
    uint64_t size[N] = {0};
    bool ok = !comm->ops->alloc(comm, UINT64_MAX / 2);

    for (int step = 0; step < 600; step++) {
        uint64_t h = mix((uint64_t)(step * comm->world + comm->rank) + 5);
        int i = (int)(h % N);

        for (uint64_t k = 0; p[i] && k < size[i]; k += 997)
            ok = p[i][k] == (unsigned char)i && ok;
        comm->ops->release(comm, p[i]);
        size[i] = (h >> 8) % (step % 50 ? 20000 : 5000000);
        p[i] = comm->ops->alloc(comm, size[i]);
        ok = p[i] && (uintptr_t)p[i] % 64 == 0 && ok;
        if (p[i])
            memset(p[i], i, size[i]);
    }
    for (int i = 0; i < N; i++)
        comm->ops->release(comm, p[i]);
    comm->ops->release(comm, NULL);
    return ok;
}

/* Wrong arguments are the caller's alone: nothing was sent, and the next operation works. */
static bool refusals(void)
{
    float x[8] = {0};
    bool ok = comm->ops->all_reduce(comm, x, 1, CKPT_U8, ZT_SUM, NULL) == CKPT_EUNSUPPORTED;

    ok = comm->ops->reduce_scatter(comm, x, x, 1, CKPT_BOOL, NULL) == CKPT_EUNSUPPORTED && ok;
    ok = comm->ops->all_gather(comm, x, x, UINT64_MAX / 4, CKPT_F32, NULL) == CKPT_ELIMIT && ok;
    ok = comm->ops->broadcast(comm, x, 4, comm->world, NULL) == CKPT_EUSAGE && ok;
    ok = comm->ops->reduce(comm, x, 4, CKPT_F32, -1, NULL) == CKPT_EUSAGE && ok;
    ok = comm->ops->all_reduce(comm, NULL, 4, CKPT_F32, ZT_SUM, NULL) == CKPT_EUSAGE && ok;
    return comm->ops->barrier(comm, &err) == CKPT_OK && ok;
}

static bool identity(void)
{
    int32_t sum = 1, local = comm->local_rank == 0;
    bool ok = comm->rank >= 0 && comm->rank < comm->world && comm->local_rank >= 0 &&
              comm->local_rank < comm->local_world && comm->host[0] &&
              strcmp(comm->ops->name, comm->device ? "staged" : "mpi") == 0;

    ok = comm->ops->all_reduce(comm, &sum, 1, CKPT_I32, ZT_SUM, &err) == CKPT_OK && ok;
    ok = comm->ops->all_reduce(comm, &local, 1, CKPT_I32, ZT_SUM, &err) == CKPT_OK && ok;
    return ok && sum == comm->world && local >= 1;
}

/* ---- reporting ---- */

static void report(const char *name, bool ok)
{
    ckpt_err e = {.code = CKPT_OK};
    int rc = zt_comm_agree(
        comm, ok ? CKPT_OK : ckpt_fail(&e, CKPT_EDIFFERS, "rank %d: %s", comm->rank, err.text), &e);

    if (comm->rank == 0 && rc == CKPT_OK)
        printf("PASS %s\n", name);
    else if (comm->rank == 0)
        printf("FAIL %s: %s\n", name, e.text);
    fflush(stdout);
}

static bool some; // no large buffers

static void checks_of(ckpt_dtype dt)
{
    // past the small limit, past a staging half, past a message half; primes, and few elements
    static const uint64_t size[] = {0, 1, 2, 3, 5, 1009, 2049, 65537, 300007};
    char name[128];

    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        uint64_t n = size[s];
        bool ok[6] = {false};

        if (n > 100000 && ((dt != CKPT_F32 && dt != CKPT_BF16) || some)) {
            continue; // the paths are the same: time
        }
        if (dt != CKPT_U8) {
            for (int op = 0; op < 3; op++)
                ok[op] = all_reduce(dt, n, (zt_reduce)op);
            ok[3] = reduce_scatter(dt, n, false) && reduce_scatter(dt, n, true) && reduce(dt, n);
        } else {
            ok[0] = ok[1] = broadcast(n) && broadcast(n * 11);
            ok[2] = ok[3] = all_to_all(n) && all_to_all(n * 11);
        }
        ok[4] = all_gather(dt, n, false);
        ok[5] = all_gather(dt, n, true);
        snprintf(name, sizeof name, "%s %" PRIu64 " (%d%d%d%d%d%d)", ckpt_dtype_name(dt), n, ok[0],
                 ok[1], ok[2], ok[3], ok[4], ok[5]);
        report(name, ok[0] && ok[1] && ok[2] && ok[3] && ok[4] && ok[5]);
    }
}

static void checks(void)
{
    static const ckpt_dtype type[] = {CKPT_F32, CKPT_F64, CKPT_F16, CKPT_BF16,
                                      CKPT_I32, CKPT_I64, CKPT_U8};

    report("identity", identity());
    for (size_t t = 0; t < sizeof type / sizeof *type; t++)
        checks_of(type[t]);
    if (!some)
        report("broadcast past a message", broadcast(17000001));
    report("nan wins", nan_wins());
    report("pending", pending());
    report("agreement", agreement());
    // a device keeps the failure to allocate that is tried there
    report("allocation", comm->device || allocation());
    report("refusals", refusals());
}

/* ---- ends ---- */

/* Collectives of all kinds until one fails; true while all went well. */
static int loop_once(unsigned char *x, uint64_t n)
{
    int rc = comm->ops->all_reduce(comm, x, n, CKPT_F32, ZT_MAX, &err);

    if (rc == CKPT_OK)
        rc = comm->ops->broadcast(comm, x, n, 0, &err);
    if (rc == CKPT_OK)
        rc = comm->ops->barrier(comm, &err);
    return rc;
}

static int end_in_loop(const char *how, int victim)
{
    unsigned char *x = take(400000);
    int rc = CKPT_OK;

    fill(x, CKPT_F32, 100000);
    for (int i = 0; i < 1000000 && rc == CKPT_OK; i++) {
        if (i == 200 && comm->rank == victim) {
            if (strcmp(how, "kill") == 0) {
                raise(SIGKILL);
            } else if (strcmp(how, "leave") == 0) {
                zt_comm_free(comm);
                return 3;
            }
            comm->ops->abort(comm, 9, "the test's own trouble");
        }
        rc = loop_once(x, 100000);
    }
    comm->ops->abort(comm, 7, err.text);
    return 1;
}

static int differ(void)
{
    float x[64] = {0};
    int rc = comm->rank == 1 ? comm->ops->all_gather(comm, x, x + comm->rank, 1, CKPT_F32, &err)
                             : comm->ops->all_reduce(comm, x, 3, CKPT_F32, ZT_SUM, &err);

    printf("rank %d: %s\n", comm->rank, err.text);
    fflush(stdout);
    if (rc == CKPT_EIO && comm->ops->barrier(comm, NULL) == CKPT_OK) {
        zt_comm_free(comm);
        return 0;
    }
    return 1;
}

static int agree(int victim)
{
    int rc = CKPT_OK;

    if (comm->rank == victim)
        rc = ckpt_fail(&err, CKPT_EMISSING, "rank %d misses its file", comm->rank);
    rc = zt_comm_agree(comm, rc, &err);
    if (rc != CKPT_OK)
        comm->ops->abort(comm, ckpt_err_status(rc), err.text);
    return 1;
}

/* ---- speed ---- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef int (*moved)(unsigned char *whole, unsigned char *part, uint64_t n);

static int move_gather(unsigned char *whole, unsigned char *part, uint64_t n)
{
    return comm->ops->all_gather(comm, whole, part, n, CKPT_F32, &err);
}

static int move_in_place(unsigned char *whole, unsigned char *part, uint64_t n)
{
    (void)part;
    return comm->ops->all_gather(comm, whole, whole + (uint64_t)comm->rank * n * 4, n, CKPT_F32,
                                 &err);
}

static int move_sum(unsigned char *whole, unsigned char *part, uint64_t n)
{
    return comm->ops->reduce_scatter(comm, part, whole, n, CKPT_F32, &err);
}

static int move_sum_bf16(unsigned char *whole, unsigned char *part, uint64_t n)
{
    return comm->ops->reduce_scatter(comm, part, whole, 2 * n, CKPT_BF16, &err);
}

static int move_all(unsigned char *whole, unsigned char *part, uint64_t n)
{
    (void)part;
    return comm->ops->all_reduce(comm, whole, n * (uint64_t)comm->world, CKPT_F32, ZT_SUM, &err);
}

/* Bytes of the whole buffer per second, the best of some runs. */
static void bench_one(const char *name, moved move, uint64_t part)
{
    uint64_t whole = part * (uint64_t)comm->world;
    unsigned char *w = take(whole), *p = take(part);
    double best = 1e30;

    memset(w, 0, whole); // pages, and finite numbers
    memset(p, 0, part);
    for (int i = 0; i < 8; i++) {
        double t;

        comm->ops->barrier(comm, &err);
        t = seconds();
        if (move(w, p, part / 4) != CKPT_OK)
            comm->ops->abort(comm, 1, err.text);
        t = seconds() - t;
        best = t < best ? t : best;
    }
    if (comm->rank == 0)
        printf("%-20s %6.2f GB/s  %8.2f ms\n", name, (double)whole / best * 1e-9, best * 1e3);
    give(w);
    give(p);
}

static void bench_small(void)
{
    double t, x = 1;

    comm->ops->barrier(comm, &err);
    t = seconds();
    for (int i = 0; i < 2000; i++)
        comm->ops->all_reduce(comm, &x, 1, CKPT_F64, ZT_MAX, &err);
    if (comm->rank == 0)
        printf("%-20s %8.2f us each\n", "all_reduce of 1", (seconds() - t) / 2000 * 1e6);
}

static int bench(uint64_t mib)
{
    bench_one("all_gather F32", move_gather, mib << 20);
    bench_one("all_gather in place", move_in_place, mib << 20);
    bench_one("reduce_scatter F32", move_sum, mib << 20);
    bench_one("reduce_scatter BF16", move_sum_bf16, mib << 20);
    bench_one("all_reduce F32", move_all, mib << 20);
    bench_small();
    zt_comm_free(comm);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "checks";
    int number = argc > 2 ? atoi(argv[2]) : -1;

    some = argc > 2 && strcmp(argv[2], "some") == 0;
    if (zt_comm_mpi(&comm, &err) != CKPT_OK) {
        fprintf(stderr, "%s\n", err.text);
        return err.code == CKPT_EUNSUPPORTED ? 77 : 1;
    }
    if (strcmp(what, "staged") == 0) {
        zt_comm *below = comm;
        zt_device *device = NULL;

        // on a device whose memory is the host's the checks can look at what arrives
        if (zt_cpu_new(&device, 1, &err) != CKPT_OK ||
            zt_comm_staged(&comm, below, device, &err) != CKPT_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        checks();
        zt_comm_free(comm);
        zt_device_free(device);
        zt_comm_free(below);
        return 0;
    }
    if (strcmp(what, "checks") == 0) {
        checks();
        zt_comm_free(comm);
        return 0;
    }
    if (strcmp(what, "refuse") == 0) {
        zt_comm_free(comm);
        return 0;
    }
    if (strcmp(what, "bench") == 0)
        return bench(number > 0 ? (uint64_t)number : 64);
    if (strcmp(what, "differ") == 0)
        return differ();
    if (strcmp(what, "agree") == 0)
        return agree(number);
    if (strcmp(what, "abort") == 0 && number < 0)
        comm->ops->abort(comm, 9, "the test's own trouble");
    return end_in_loop(what, number);
}
