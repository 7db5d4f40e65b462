/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_comm_self.c: the communicator of one process, and the parts of the others that need no MPI:
 * sums in rank order, launchers' environments, processes that end, and the node's shared memory
 * between forked processes.
 */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/node.h"
#include "engine/comm/process.h"
#include "engine/comm/sum.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/mem.h"
#include "tests/unit/unit.h"

/* ---- one process ---- */

static int new_self(void **state)
{
    zt_comm *c;
    ckpt_err err = {.code = CKPT_OK};

    assert_int_equal(zt_comm_self(&c, &err), CKPT_OK);
    *state = c;
    return 0;
}

static int free_self(void **state)
{
    zt_comm_free(*state);
    return 0;
}

static void test_identity(void **state)
{
    const zt_comm *c = *state;

    assert_string_equal(c->ops->name, "self");
    assert_int_equal(c->rank, 0);
    assert_int_equal(c->world, 1);
    assert_int_equal(c->local_rank, 0);
    assert_int_equal(c->local_world, 1);
    assert_true(c->host[0] != 0);
    zt_comm_free(NULL);
}

static void test_operations(void **state)
{
    zt_comm *c = *state;
    float x[5] = {1, -2, 3, -4, NAN}, y[5] = {0}, z[5];
    ckpt_err err = {.code = CKPT_OK};

    memcpy(z, x, sizeof x);
    assert_int_equal(c->ops->all_reduce(c, x, 5, CKPT_F32, ZT_SUM, &err), CKPT_OK);
    assert_memory_equal(x, z, sizeof x);
    assert_int_equal(c->ops->reduce_scatter(c, y, x, 5, CKPT_F32, &err), CKPT_OK);
    assert_memory_equal(y, z, sizeof x);
    memset(y, 0, sizeof y);
    assert_int_equal(c->ops->all_gather(c, y, x, 5, CKPT_F32, &err), CKPT_OK);
    assert_memory_equal(y, z, sizeof x);
    assert_int_equal(c->ops->all_gather(c, y, y, 5, CKPT_F32, &err), CKPT_OK);
    assert_int_equal(c->ops->broadcast(c, y, sizeof y, 0, &err), CKPT_OK);
    assert_int_equal(c->ops->reduce(c, y, 5, CKPT_F32, 0, &err), CKPT_OK);
    assert_memory_equal(y, z, sizeof x);
    memset(y, 0, sizeof y);
    assert_int_equal(c->ops->all_to_all(c, y, x, 7, &err), CKPT_OK);
    assert_memory_equal(y, z, 7);
    assert_int_equal(((unsigned char *)y)[7], 0);
    assert_int_equal(c->ops->barrier(c, &err), CKPT_OK);
    assert_int_equal(c->ops->all_reduce(c, NULL, 0, CKPT_F32, ZT_SUM, &err), CKPT_OK);
}

static void test_refusals(void **state)
{
    zt_comm *c = *state;
    float x[4] = {0};
    ckpt_err err = {.code = CKPT_OK};

    assert_int_equal(c->ops->all_reduce(c, x, 4, CKPT_U8, ZT_SUM, &err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "all_reduce: dtype U8"));
    assert_int_equal(c->ops->all_gather(c, x, x, 1, CKPT_F8_E4M3, NULL), CKPT_EUNSUPPORTED);
    assert_int_equal(c->ops->all_gather(c, x, x, UINT64_MAX / 2, CKPT_F32, NULL), CKPT_ELIMIT);
    assert_int_equal(c->ops->broadcast(c, x, 4, 1, NULL), CKPT_EUSAGE);
    assert_int_equal(c->ops->broadcast(c, x, 4, -1, NULL), CKPT_EUSAGE);
    assert_int_equal(c->ops->reduce(c, x, 4, CKPT_F32, 1, NULL), CKPT_EUSAGE);
    assert_int_equal(c->ops->reduce_scatter(c, NULL, x, 4, CKPT_F32, NULL), CKPT_EUSAGE);
    assert_int_equal(c->ops->wait(c, NULL), CKPT_EUSAGE);
}

/* The ring of begun operations, filled and emptied so that it wraps around. */
static void test_pending(void **state)
{
    zt_comm *c = *state;
    int32_t from[64], to[64] = {0};
    int begun = 0, done = 0;

    for (int i = 0; i < 64; i++)
        from[i] = 100 + i;
    while (done < 40) {
        zt_collective w = {.n = 1, .dt = CKPT_I32, .to = &to[begun], .from = &from[begun]};
        int rc;

        w.kind = begun % 2 ? ZT_ALL_GATHER : ZT_REDUCE_SCATTER;
        rc = c->ops->start(c, &w, NULL);
        assert_int_equal(rc, begun - done == ZT_COMM_PENDING ? CKPT_EUSAGE : CKPT_OK);
        begun += rc == CKPT_OK;
        if (rc != CKPT_OK || begun % 5 == 0) {
            assert_int_equal(c->ops->wait(c, NULL), CKPT_OK);
            assert_int_equal(to[done], 100 + done);
            done++;
            assert_int_equal(to[done], 0); // the oldest only
        }
    }
    while (done < begun) {
        assert_int_equal(c->ops->wait(c, NULL), CKPT_OK);
        assert_int_equal(to[done], 100 + done);
        done++;
    }
}

static void test_memory(void **state)
{
    zt_comm *c = *state;

    for (uint64_t n = 0; n < 300; n += 13) {
        unsigned char *p = c->ops->alloc(c, n);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, n);
        c->ops->release(c, p);
    }
    assert_null(c->ops->alloc(c, UINT64_MAX));
    assert_null(c->ops->alloc(c, UINT64_MAX - 80));
    c->ops->release(c, NULL);
    ckpt_alloc_fail_at(0);
    assert_null(c->ops->alloc(c, 100));
    assert_int_equal(zt_comm_self(&c, NULL), CKPT_ELIMIT);
    assert_null(c);
    ckpt_alloc_fail_at(UINT64_MAX);
}

static void test_agree(void **state)
{
    zt_comm *c = *state;
    ckpt_err err = {.code = CKPT_OK};

    assert_int_equal(zt_comm_agree(c, CKPT_OK, &err), CKPT_OK);
    assert_int_equal(err.code, CKPT_OK);
    ckpt_fail(&err, CKPT_EMISSING, "no such thing");
    assert_int_equal(zt_comm_agree(c, CKPT_EMISSING, &err), CKPT_EMISSING);
    assert_string_equal(err.text, "no such thing");
    // a code without a text gets the usual one
    err = (ckpt_err){0};
    assert_int_equal(zt_comm_agree(c, CKPT_ELIMIT, &err), CKPT_ELIMIT);
    assert_string_equal(err.text, ckpt_err_text(CKPT_ELIMIT));
    assert_int_equal(zt_comm_agree(c, CKPT_EIO, NULL), CKPT_EIO);
}

/* abort ends the process with the status, and prints one line. */
static void test_abort(void **state)
{
    zt_comm *c = *state;
    int status, end[2];
    char text[512] = "", expected[512];
    pid_t child;

    assert_int_equal(pipe(end), 0);
    child = fork();
    if (child == 0) {
        dup2(end[1], STDERR_FILENO);
        c->ops->abort(c, 42, "the disk is full");
        _exit(0);
    }
    close(end[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    assert_true(read(end[0], text, sizeof text - 1) > 0);
    close(end[0]);
    snprintf(expected, sizeof expected, "rank 0 on %s: the disk is full\n", c->host);
    assert_string_equal(text, expected);
}

/* ---- launchers ---- */

static const char *const variables[] = {
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",     "MV2_COMM_WORLD_SIZE",  "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",         "SLURM_PROCID", "WORLD_SIZE",           "RANK",
    "LOCAL_WORLD_SIZE",     "LOCAL_RANK",   "OMPI_COMM_WORLD_RANK", "FLUX_JOB_SIZE"};

static bool launched(const char *name, const char *value, const char *name2, const char *value2)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    if (name)
        setenv(name, value, 1);
    if (name2)
        setenv(name2, value2, 1);
    return zt_comm_launched();
}

static void test_launched(void **state)
{
    (void)state;
    assert_false(launched(NULL, NULL, NULL, NULL));
    assert_true(launched("OMPI_COMM_WORLD_SIZE", "2", NULL, NULL));
    assert_false(launched("OMPI_COMM_WORLD_SIZE", "1", NULL, NULL));
    assert_true(launched("PMI_SIZE", "64", NULL, NULL));
    assert_true(launched("SLURM_STEP_NUM_TASKS", "2", NULL, NULL));
    // a batch script, not a step; mpirun -n 1 inside a step
    assert_false(launched("SLURM_NTASKS", "8", NULL, NULL));
    assert_false(launched("OMPI_COMM_WORLD_SIZE", "1", "SLURM_STEP_NUM_TASKS", "4"));
    assert_false(launched("OMPI_COMM_WORLD_SIZE", "many", NULL, NULL));
    assert_false(launched("PMI_SIZE", "", NULL, NULL));
    assert_false(launched(NULL, NULL, NULL, NULL));
}

/* What the environment names and what MPI has: one of them is wrong, or it is one run. */
static void test_alone(void **state)
{
    static const struct {
        const char *name, *value, *name2, *value2;
        bool launching, fine;
    } row[] = {
        {NULL, NULL, NULL, NULL, false, true},
        {"WORLD_SIZE", "2", "RANK", "0", false, false},
        {"WORLD_SIZE", "2", "RANK", "0", true, false}, // each would start an mpirun
        {"WORLD_SIZE", "1", "RANK", "0", false, true},
        {"WORLD_SIZE", "many", NULL, NULL, false, true},
        {"RANK", "1", NULL, NULL, false, false},
        {"LOCAL_RANK", "1", NULL, NULL, false, false},
        {"LOCAL_WORLD_SIZE", "2", NULL, NULL, false, false},
        {"OMPI_COMM_WORLD_RANK", "1", NULL, NULL, false, false},
        // a job of several tasks that srun has not started, and what may be done in it
        {"SLURM_NTASKS", "4", "SLURM_PROCID", "0", false, false},
        {"SLURM_NTASKS", "4", "SLURM_PROCID", "0", true, true},
        {"SLURM_NTASKS", "4", "SLURM_STEP_NUM_TASKS", "1", false, true},
        {"SLURM_NTASKS", "4", "OMPI_COMM_WORLD_SIZE", "8", false, true},
        {"SLURM_NTASKS", "1", "SLURM_PROCID", "0", false, true},
        {"FLUX_JOB_SIZE", "4", NULL, NULL, false, false},
        // MPI's processes, with torch's variables beside
        {"OMPI_COMM_WORLD_SIZE", "2", "WORLD_SIZE", "2", false, true},
        {"OMPI_COMM_WORLD_SIZE", "2", "LOCAL_WORLD_SIZE", "1", false, true},
        {"OMPI_COMM_WORLD_SIZE", "2", "WORLD_SIZE", "4", false, false},
        {"OMPI_COMM_WORLD_SIZE", "4", "WORLD_SIZE", "2", false, false},
        {"OMPI_COMM_WORLD_SIZE", "1", "WORLD_SIZE", "2", false, false},
        {"OMPI_COMM_WORLD_SIZE", "2", "RANK", "2", false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ckpt_err err = {0};
        int rc;

        (void)launched(row[i].name, row[i].value, row[i].name2, row[i].value2);
        rc = zt_comm_alone(row[i].launching, &err);
        if ((rc == CKPT_OK) != row[i].fine)
            fail_msg("%s=%s %s: %s", row[i].name, row[i].value, row[i].name2, err.text);
        if (rc != CKPT_OK) {
            assert_int_equal(rc, CKPT_EUSAGE);
            assert_non_null(strstr(err.text, "mpirun"));
        }
    }
    (void)launched(NULL, NULL, NULL, NULL);
}

/* ---- sums ---- */

/* Joining in rank order keeps what another order would lose, and 16-bit sums are rounded once. */
static void test_sum_order(void **state)
{
    float a[1] = {1e8f}, b[1] = {1}, c[1] = {-1e8f}, out[1];
    const void *abc[] = {a, b, c}, *acb[] = {a, c, b};
    // 256 + 1 + 1: in BF16 each addition of 1 would be lost; rounded once it is 258
    uint16_t n256 = 0x4380, n1 = 0x3f80, sum;
    const void *halves[] = {&n256, &n1, &n1};

    (void)state;
    zt_sum(out, abc, 3, 1, CKPT_F32, ZT_SUM);
    assert_true(out[0] == 0);
    zt_sum(out, acb, 3, 1, CKPT_F32, ZT_SUM);
    assert_true(out[0] == 1);
    zt_sum(&sum, halves, 3, 1, CKPT_BF16, ZT_SUM);
    assert_int_equal(sum, 0x4381);
    // F16: 2048 + 1 + 1 = 2050
    n256 = 0x6800;
    n1 = 0x3c00;
    zt_sum(&sum, halves, 3, 1, CKPT_F16, ZT_SUM);
    assert_int_equal(sum, 0x6801);
}

static void test_sum_integers(void **state)
{
    int32_t a = INT32_MAX, b = 1, c = -5, out;
    int64_t d = INT64_MIN, e = -1, out8;
    const void *i4[] = {&a, &b, &c}, *i8[] = {&d, &e};

    (void)state;
    zt_sum(&out, i4, 3, 1, CKPT_I32, ZT_SUM);
    assert_true(out == (int32_t)((uint32_t)INT32_MAX + 1u - 5u));
    zt_sum(&out, i4, 3, 1, CKPT_I32, ZT_MAX);
    assert_true(out == INT32_MAX);
    zt_sum(&out, i4, 3, 1, CKPT_I32, ZT_MIN);
    assert_true(out == -5);
    zt_sum(&out8, i8, 2, 1, CKPT_I64, ZT_SUM);
    assert_true(out8 == INT64_MAX);
    zt_sum(&out8, i8, 2, 1, CKPT_I64, ZT_MIN);
    assert_true(out8 == INT64_MIN);
    zt_sum(&out8, i8, 2, 1, CKPT_I64, ZT_MAX);
    assert_true(out8 == -1);
}

enum { SUM_N = 4999, SUM_WORLD = 5 };

/* Sum `world` buffers into one of them (alias -1: into another), against one addition after the
 * other. */
static void sum_case(size_t n, int world, int alias)
{
    static float x[SUM_WORLD][SUM_N], expected[SUM_N], out[SUM_N];
    float *to = alias < 0 ? out : x[alias];
    const void *from[SUM_WORLD];

    memset(out, 0, sizeof out);
    for (size_t i = 0; i < SUM_N; i++) {
        float sum = 0;

        for (int q = 0; q < SUM_WORLD; q++)
            x[q][i] = sinf((float)(i * 31 + (size_t)q * 977)) * (q % 2 ? 1e4f : 1e-3f);
        for (int q = 0; q < world; q++)
            sum = q ? sum + x[q][i] : x[q][i];
        expected[i] = i < n ? sum : to[i];
    }
    for (int q = 0; q < SUM_WORLD; q++)
        from[q] = x[q];
    zt_sum(to, from, world, n, CKPT_F32, ZT_SUM);
    assert_memory_equal(to, expected, sizeof expected);
}

/* Lengths around the block's, every alias. */
static void test_sum_lengths(void **state)
{
    static const size_t lengths[] = {0, 1, 7, 2047, 2048, 2049, 4096, SUM_N};

    (void)state;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        for (int world = 1; world <= SUM_WORLD; world++) {
            for (int alias = -1; alias < world; alias++)
                sum_case(lengths[l], world, alias);
        }
    }
}

static void test_sum_nan(void **state)
{
    double a = 1, b = (double)NAN, c = 2, out;
    const void *first[] = {&b, &a, &c}, *middle[] = {&a, &b, &c}, *last[] = {&a, &c, &b};
    const void *const *const orders[] = {first, middle, last};

    (void)state;
    for (int i = 0; i < 3; i++) {
        zt_sum(&out, orders[i], 3, 1, CKPT_F64, ZT_MAX);
        assert_true(isnan(out));
        zt_sum(&out, orders[i], 3, 1, CKPT_F64, ZT_MIN);
        assert_true(isnan(out));
    }
    b = (double)-INFINITY;
    zt_sum(&out, middle, 3, 1, CKPT_F64, ZT_MIN);
    assert_true(isinf(out) && out < 0);
    zt_sum(&out, middle, 3, 1, CKPT_F64, ZT_MAX);
    assert_true(out == 2);
}

/* ---- processes ---- */

static void test_process(void **state)
{
    zt_process me = zt_process_self(), other;
    int status;
    pid_t child;

    (void)state;
    assert_true(me.pid == getpid());
    assert_true(zt_process_alive(me));
    other = me;
    other.start ^= 1; // the number was given again
    assert_false(zt_process_alive(other));
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    other = (zt_process){.pid = child};
    assert_true(zt_process_alive(other));
    kill(child, SIGKILL);
    for (int i = 0; i < 500 && zt_process_alive(other); i++) {
        usleep(10000); // a zombie until it is waited for: ended all the same
    }
    assert_false(zt_process_alive(other));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(zt_process_alive(other));
}

/* ---- a node of forked processes ---- */

enum { WORLD = 3 };

/* What MPI does for a node: memory, and who the ranks are. */
typedef struct board {
    zt_mate mate[WORLD];
    _Atomic int begun;
    void *memory;
} board;

typedef struct child_of {
    board *b;
    int rank;
    const void *pointers[WORLD];
    zt_traffic traffic;
} child_of;

/* Every rank has begun before any of them meets. */
static zt_node open_node(child_of *c)
{
    zt_node n = {.rank = c->rank,
                 .world = WORLD,
                 .host = "here",
                 .mate = c->b->mate,
                 .pointers = c->pointers,
                 .traffic = &c->traffic};

    c->b->mate[c->rank] = (zt_mate){.process = zt_process_self(), .rank = c->rank};
    zt_node_begin(&n, c->b->memory);
    atomic_fetch_add(&c->b->begun, 1);
    while (atomic_load(&c->b->begun) < WORLD)
        usleep(100);
    return n;
}

typedef int (*body)(child_of *c);

/* Run `what` in WORLD processes: 0, or the rank + 1 of the first that failed; `killed` may be. */
static int run_ranks(body what, int killed)
{
    const int how = PROT_READ | PROT_WRITE, what_for = MAP_SHARED | MAP_ANONYMOUS;
    board *b = mmap(NULL, sizeof *b, how, what_for, -1, 0);
    pid_t child[WORLD];
    int bad = 0, status;

    assert_true(b != MAP_FAILED);
    b->memory = mmap(NULL, zt_node_bytes(WORLD), how, what_for, -1, 0);
    assert_true(b->memory != MAP_FAILED);
    for (int r = 0; r < WORLD; r++) {
        child[r] = fork();
        if (child[r] == 0) {
            child_of c = {.b = b, .rank = r};

            alarm(60);
            _exit(what(&c));
        }
    }
    for (int r = 0; r < WORLD; r++) {
        waitpid(child[r], &status, 0);
        if (r != killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !bad)
            bad = r + 1;
    }
    munmap(b->memory, zt_node_bytes(WORLD));
    munmap(b, sizeof *b);
    return bad;
}

/* Sums larger than a staging half, into other memory and in place. */
static int body_sums(child_of *c)
{
    enum { N = 200003 };
    zt_node n = open_node(c);
    bool ok = true;

    for (int round = 0; round < 4 && ok; round++) {
        float *x = malloc((size_t)N * WORLD * sizeof *x);
        float *y = round < 2 ? x + (size_t)c->rank * N : malloc(N * sizeof *y);
        zt_call call = {.kind = ZT_CALL_REDUCE_SCATTER, .n = N, .dt = CKPT_F32, .size = 4};

        for (int i = 0; i < N * WORLD; i++)
            x[i] = (float)(i % 1000 + c->rank);
        call.to = y;
        call.from = x;
        ok = zt_shm_ops.reduce_scatter(&n, &call, NULL) == CKPT_OK;
        for (int i = 0; i < N && ok; i++)
            ok = y[i] == (float)(WORLD * ((c->rank * N + i) % 1000) + 3);
        if (round >= 2)
            free(y);
        free(x);
    }
    return ok ? 0 : 1;
}

static void test_node_sums(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(body_sums, -1), 0);
}

/* A rank is killed while the others wait: they learn its number soon, and for good. */
static int body_killed(child_of *c)
{
    zt_call call = {.kind = ZT_CALL_BARRIER, .dt = CKPT_U8, .size = 1};
    ckpt_err err = {.code = CKPT_OK};
    double began;
    zt_node n = open_node(c);
    int rc = CKPT_OK;

    for (int i = 0; i < 50 && rc == CKPT_OK; i++)
        rc = zt_shm_ops.barrier(&n, &call, NULL);
    if (rc != CKPT_OK)
        return 1;
    if (c->rank == 1)
        raise(SIGKILL);
    began = zt_process_clock();
    rc = zt_shm_ops.barrier(&n, &call, &err);
    if (rc != CKPT_EIO || !strstr(err.text, "barrier: rank 1 on here"))
        return 2;
    rc = zt_shm_ops.barrier(&n, &call, NULL);
    return rc == CKPT_EIO && zt_process_clock() - began < 20 ? 0 : 3;
}

/* A rank leaves in order, too early: the same, with its reason.  Different calls are told apart. */
static int body_left(child_of *c)
{
    zt_call call = {.kind = ZT_CALL_BARRIER, .dt = CKPT_U8, .size = 1}, other = call;
    ckpt_err err = {.code = CKPT_OK};
    zt_node n = open_node(c);
    int rc;

    other.kind = ZT_CALL_FREE;
    if (zt_shm_ops.barrier(&n, c->rank == 2 ? &other : &call, &err) != CKPT_EIO ||
        !strstr(err.text, "all ranks must make the same calls"))
        return 1;
    if (c->rank == 2) {
        zt_node_leave(&n);
        sleep(3); // alive, and yet gone
        return 0;
    }
    err = (ckpt_err){0};
    rc = zt_shm_ops.barrier(&n, &call, &err);
    return rc == CKPT_EIO && strstr(err.text, "rank 2") && strstr(err.text, "left") ? 0 : 2;
}

static void test_node_ends(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(body_killed, 1), 0);
    assert_int_equal(run_ranks(body_left, -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_identity, new_self, free_self),
        cmocka_unit_test_setup_teardown(test_operations, new_self, free_self),
        cmocka_unit_test_setup_teardown(test_refusals, new_self, free_self),
        cmocka_unit_test_setup_teardown(test_pending, new_self, free_self),
        cmocka_unit_test_setup_teardown(test_memory, new_self, free_self),
        cmocka_unit_test_setup_teardown(test_agree, new_self, free_self),
        cmocka_unit_test_setup_teardown(test_abort, new_self, free_self),
        cmocka_unit_test(test_launched),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_sum_order),
        cmocka_unit_test(test_sum_integers),
        cmocka_unit_test(test_sum_lengths),
        cmocka_unit_test(test_sum_nan),
        cmocka_unit_test(test_process),
        cmocka_unit_test(test_node_sums),
        cmocka_unit_test(test_node_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
