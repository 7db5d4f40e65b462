/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_team.c: processes that work as one, by letters through memory that they share.
 */
#define _GNU_SOURCE // MAP_ANONYMOUS, usleep
#include <pthread.h>
#include <signal.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/dist/team_inside.h"
#include "libckpt/io/peer_io.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/copy/help_mail.h"
#include "tests/unit/unit.h"

/* ---- processes ---- */

enum { MAX = MAIL_MAX };

static help_dir dir;

/* What each process does: 0, or the line that is wrong. */
typedef int (*member)(ckpt_team *t);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            return __LINE__;                                                                       \
    } while (0)

static const char *version_of(unsigned rank)
{
    (void)rank;
    return "1";
}

static const char *(*version)(unsigned) = version_of;

/* What the processes of a test do. */
typedef struct member_life {
    member fn;
    unsigned limit;
} member_life;

/* One process's life; what it exits with. */
static int live(void *ctx)
{
    const member_life *life = ctx;
    const ckpt_mail mail = mail_mine();
    const ckpt_team_opts opts = {
        .limit = life->limit, .version = version(mail.rank), .answer = ckpt_far_answer};
    ckpt_err err = {0};
    int rc = ckpt_team_start(&mail, &opts, &err), line = 0;

    if (rc == CKPT_OK)
        line = life->fn(ckpt_team_now());
    if (line != 0)
        (void)fprintf(stderr, "rank %u: line %d\n", mail.rank, line);
    if (line != 0)
        return 1;
    return ckpt_team_leave(rc, &err) == CKPT_OK ? 0 : 2;
}

/* Run n processes; status[r] is what rank r ended with. */
static void run(unsigned n, unsigned limit, member fn, int *status)
{
    mail_run(n, live, &(member_life){fn, limit}, status);
}

static void all_well(unsigned n, member fn)
{
    int status[MAX];

    run(n, 20, fn, status);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(status[i], 0);
}

/* ---- threads ---- */

/* The processors first..first+n-1. */
static team_processors from_to(unsigned first, unsigned n)
{
    team_processors p = {.n = n};

    for (unsigned i = first; i < first + n; i++)
        p.at[i / 8] |= (uint8_t)(1u << i % 8);
    return p;
}

static void test_threads(void **unused)
{
    const team_processors all = from_to(0, 8), low = from_to(0, 4), high = from_to(4, 4),
                          one = from_to(1023, 1), none = {0}, many = from_to(0, 64);
    const team_processors *const free_ones[] = {&all, &all}, *const bound[] = {&low, &high},
                                 *const same[] = {&low, &low}, *const uneven[] = {&all, &one},
                                 *const unknown[] = {&none, &none}, *const large[] = {&many};
    const uint32_t together[] = {0, 0}, apart[] = {0, 1};

    (void)unused;
    assert_int_equal(team_threads(free_ones, together, 2), 4);
    assert_int_equal(team_threads(free_ones, apart, 2), 8);
    // each has four processors of its own
    assert_int_equal(team_threads(bound, together, 2), 4);
    assert_int_equal(team_threads(bound, apart, 2), 4);
    assert_int_equal(team_threads(same, together, 2), 2);
    assert_int_equal(team_threads(uneven, together, 2), 1);
    assert_int_equal(team_threads(unknown, together, 2), 1);
    assert_int_equal(team_threads(large, together, 1), 8);
}

/* ---- exchanges ---- */

/* Bytes that say whose and for whom they are. */
static size_t words(uint8_t *out, unsigned from, unsigned to)
{
    size_t n = (size_t)from * 1000 + to * 10;

    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(from * 31 + to * 7 + i);
    return n;
}

static int exchange(ckpt_team *t)
{
    static uint8_t text[MAX][5000], want[5000];
    ckpt_bytes parts[MAX] = {0};
    ckpt_blobs in = {0};
    ckpt_err err = {0};
    size_t n = words(text[0], t->rank, 9);

    CHECK(t->n_nodes == 2 && t->node[0] == 0 && t->node[2] == 1 && t->threads >= 1);
    CHECK(ckpt_team_all(t, text[0], n, &in, &err) == CKPT_OK && in.ranks == t->n);
    for (unsigned i = 0; i < t->n; i++)
        CHECK(in.n[i] == words(want, i, 9) && memcmp(in.at[i], want, in.n[i]) == 0);
    ckpt_blobs_free(&in);

    for (unsigned i = 0; i < t->n; i++)
        parts[i] = (ckpt_bytes){.at = text[i], .n = words(text[i], t->rank, i)};
    CHECK(ckpt_team_deal(t, parts, &in, &err) == CKPT_OK);
    for (unsigned i = 0; i < t->n; i++)
        CHECK(in.n[i] == words(want, i, t->rank) && memcmp(in.at[i], want, in.n[i]) == 0);
    ckpt_blobs_free(&in);

    n = words(text[0], 3, t->rank);
    CHECK(ckpt_team_tell(t, text[0], n, &in, &err) == CKPT_OK);
    CHECK(in.n[0] == words(want, 3, 0) && memcmp(in.at[0], want, in.n[0]) == 0);
    ckpt_blobs_free(&in);
    return 0;
}

static void test_exchange(void **state)
{
    (void)state;
    all_well(4, exchange);
    all_well(3, exchange);
}

/* ---- outcomes ---- */

static int vote(ckpt_team *t)
{
    ckpt_err err = {0};
    int rc;

    CHECK(ckpt_team_agree(t, CKPT_OK, &err) == CKPT_OK && err.code == CKPT_OK);
    // ranks 1 and 2 fail; the lowest is what all get
    rc = t->rank == 1   ? ckpt_fail(&err, CKPT_EFORMAT, "one")
         : t->rank == 2 ? ckpt_fail(&err, CKPT_EIO, "two")
                        : CKPT_OK;
    CHECK(ckpt_team_agree(t, rc, &err) == CKPT_EFORMAT && strcmp(err.text, "one") == 0);
    // rank 2 fails, and rank 0 stops because of that
    memset(&err, 0, sizeof err);
    if (t->rank == 2)
        rc = ckpt_fail(&err, CKPT_EMISMATCH, "late");
    else if (t->rank == 0)
        while ((rc = ckpt_team_check(t, &err)) == CKPT_OK)
            (void)usleep(1000);
    else
        rc = CKPT_OK;
    CHECK(t->rank != 0 || rc == CKPT_ECANCELED);
    CHECK(ckpt_team_agree(t, rc, &err) == CKPT_EMISMATCH && strcmp(err.text, "late") == 0);
    // and that is over
    CHECK(ckpt_team_check(t, NULL) == CKPT_OK);
    return 0;
}

static void test_agree(void **state)
{
    (void)state;
    all_well(3, vote);
}

/* A process fails where the others wait for it: at `step`, the second of two exchanges or before. */
static int fail_at(ckpt_team *t, unsigned rank, unsigned step, ckpt_err *err)
{
    uint8_t bytes[64] = {0};
    ckpt_bytes parts[MAX] = {0};
    ckpt_blobs in = {0};
    int rc = CKPT_OK;

    for (unsigned i = 0; rc == CKPT_OK && i < 3; i++) {
        if (t->rank == rank && i == step)
            return ckpt_fail(err, CKPT_ELIMIT, "no memory");
        rc = i == 0   ? ckpt_team_all(t, bytes, sizeof bytes, &in, err)
             : i == 1 ? ckpt_team_deal(t, parts, &in, err)
                      : ckpt_team_tell(t, bytes, t->rank == 0 ? sizeof bytes : 0, &in, err);
        ckpt_blobs_free(&in);
    }
    return rc;
}

static int halfway(ckpt_team *t)
{
    for (unsigned rank = 0; rank < t->n; rank++) {
        for (unsigned step = 0; step < 3; step++) {
            ckpt_err err = {0};
            int rc = fail_at(t, rank, step, &err);

            CHECK(ckpt_team_agree(t, rc, &err) == CKPT_ELIMIT);
            CHECK(strcmp(err.text, "no memory") == 0);
        }
    }
    // and all are in step again
    return exchange(t);
}

static void test_halfway(void **state)
{
    (void)state;
    all_well(3, halfway);
}

/* The same, and nobody comes to an agreement but by leaving. */
static int halfway_out(ckpt_team *t)
{
    ckpt_err err = {0};
    int rc = fail_at(t, 1, 1, &err);

    if (t->rank == 1)
        rc = ckpt_team_agree(t, rc, &err);
    _exit(ckpt_team_leave(rc, &err) == CKPT_ELIMIT && strcmp(err.text, "no memory") == 0 ? 0 : 9);
}

static void test_halfway_out(void **state)
{
    (void)state;
    all_well(3, halfway_out);
}

/* Rank 1 does something else than the others: nobody takes one thing for the other, or waits. */
static int apart(ckpt_team *t)
{
    uint8_t bytes[64] = {0};
    ckpt_blobs in = {0};
    ckpt_err err = {0};
    int rc = t->rank == 1 ? ckpt_team_agree(t, CKPT_OK, &err)
                          : ckpt_team_all(t, bytes, sizeof bytes, &in, &err);

    CHECK(rc == CKPT_EIO && strstr(err.text, "is at another step than rank"));
    ckpt_blobs_free(&in);
    _exit(ckpt_team_leave(rc, &err) == CKPT_EIO ? 0 : 9);
}

static void test_apart(void **state)
{
    (void)state;
    all_well(3, apart);
}

/* ---- files and notes ---- */

static int n_noted;

static int take_note(void *ctx, const void *bytes, size_t n, ckpt_err *err)
{
    int *sum = ctx;

    if (n != sizeof(int))
        return ckpt_fail(err, CKPT_EUSAGE, "a note of %zu bytes", n);
    memcpy(&n_noted, bytes, n);
    *sum += n_noted;
    return CKPT_OK;
}

static int far(ckpt_team *t)
{
    static uint8_t bytes[300000];
    ckpt_err err = {0};
    ckpt_io *io = NULL;
    int sum = 0, one = 1;
    char path[300];

    (void)snprintf(path, sizeof path, "%s/large", dir.path);
    for (unsigned owner = 0; owner < t->n; owner++) {
        if (owner == t->rank)
            continue;
        CHECK(ckpt_far_open(&io, t, owner, false, path, &err) == CKPT_OK && io->size == 300000);
        CHECK(io->id.ino != 0);
        // the beginning, the end, and a piece between that takes several letters of its own
        CHECK(ckpt_io_read(io, bytes, 300000, 0, &err) == CKPT_OK);
        for (size_t i = 0; i < sizeof bytes; i += 997)
            CHECK(bytes[i] == (uint8_t)(i * 131 >> 3));
        CHECK(ckpt_io_read(io, bytes, 10, 299990, &err) == CKPT_OK);
        CHECK(bytes[0] == (uint8_t)(299990u * 131 >> 3));
        CHECK(ckpt_io_read(io, bytes, 10, 299995, NULL) == CKPT_EFORMAT);
        ckpt_io_close(io);
        CHECK(ckpt_far_open(&io, t, owner, false, "/nowhere/at all", &err) == CKPT_EMISSING);
        CHECK(strstr(err.text, "/nowhere/at all"));
        memset(&err, 0, sizeof err);
    }
    if (t->rank == 0)
        ckpt_team_on_note(t, take_note, &sum);
    CHECK(ckpt_team_agree(t, CKPT_OK, &err) == CKPT_OK);
    CHECK(ckpt_team_note(t, 0, &one, sizeof one, &err) == CKPT_OK);
    CHECK(ckpt_team_note(t, 0, &one, 1, NULL) == CKPT_EUSAGE);
    CHECK(ckpt_team_agree(t, CKPT_OK, &err) == CKPT_OK);
    CHECK(t->rank != 0 || sum == (int)t->n);
    ckpt_team_on_note(t, NULL, NULL);
    return 0;
}

static void test_far(void **state)
{
    static uint8_t bytes[300000];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 131 >> 3);
    help_write(help_join(&dir, "large"), bytes, sizeof bytes);
    all_well(3, far);
}

/* A file that another one takes the place of: who opened the first does not go on in the second. */
static int replaced(ckpt_team *t)
{
    uint8_t bytes[64];
    ckpt_err err = {0};
    ckpt_io *first = NULL, *second = NULL;
    char path[300], other[300];

    (void)snprintf(path, sizeof path, "%s/large", dir.path);
    (void)snprintf(other, sizeof other, "%s/other", dir.path);
    if (t->rank == 1)
        CHECK(ckpt_far_open(&first, t, 0, false, path, &err) == CKPT_OK);
    CHECK(ckpt_team_agree(t, CKPT_OK, &err) == CKPT_OK);
    CHECK(t->rank != 0 || rename(other, path) == 0);
    CHECK(ckpt_team_agree(t, CKPT_OK, &err) == CKPT_OK);
    if (t->rank == 1) {
        // what came with the opening, and what does not
        CHECK(ckpt_io_read(first, bytes, 64, 0, &err) == CKPT_OK && bytes[0] == 'a');
        CHECK(ckpt_far_open(&second, t, 0, false, path, &err) == CKPT_OK);
        CHECK(ckpt_io_read(second, bytes, 64, 150000, &err) == CKPT_OK && bytes[0] == 'b');
        CHECK(ckpt_io_read(first, bytes, 64, 150000, &err) == CKPT_EIO);
        CHECK(strstr(err.text, "another file") != NULL);
        ckpt_io_close(first);
        ckpt_io_close(second);
    }
    return 0;
}

static void test_replaced(void **state)
{
    static uint8_t bytes[300000];

    (void)state;
    memset(bytes, 'a', sizeof bytes);
    help_write(help_join(&dir, "large"), bytes, sizeof bytes);
    memset(bytes, 'b', sizeof bytes);
    help_write(help_join(&dir, "other"), bytes, sizeof bytes);
    all_well(2, replaced);
}

/* Whoever asks, and however often: the one who answers opens a file once. */
static int often(ckpt_team *t)
{
    ckpt_err err = {0};
    ckpt_io *io = NULL;
    char path[300];

    (void)snprintf(path, sizeof path, "%s/large", dir.path);
    for (unsigned i = 0; t->rank != 0 && i < 3; i++) {
        CHECK(ckpt_far_open(&io, t, 0, false, path, &err) == CKPT_OK);
        ckpt_io_close(io);
    }
    return 0;
}

static void test_often(void **state)
{
    static char bytes[4096] __attribute__((aligned(16)));
    int in = inotify_init1(IN_NONBLOCK), n_opened = 0;
    ssize_t n;

    (void)state;
    help_write(help_join(&dir, "large"), "0123456789", 10);
    // events of one kind that follow each other are told once: closings are between
    assert_true(in >= 0);
    assert_true(inotify_add_watch(in, help_join(&dir, "large"), IN_OPEN | IN_CLOSE) >= 0);
    all_well(3, often);
    while ((n = read(in, bytes, sizeof bytes)) > 0) {
        for (char *p = bytes; p < bytes + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(void *)p;

            p += sizeof *e + e->len;
            n_opened += (e->mask & IN_OPEN) != 0;
        }
    }
    assert_int_equal(n_opened, 1);
    (void)close(in);
}

/* ---- who leaves, dies or differs ---- */

/* Rank 1 fails for itself; the others ask it all the same, and then learn of it. */
static int early(ckpt_team *t)
{
    ckpt_err err = {0};
    ckpt_io *io = NULL;
    char path[300];

    (void)snprintf(path, sizeof path, "%s/large", dir.path);
    if (t->rank == 1)
        _exit(ckpt_team_leave(ckpt_fail(&err, CKPT_ELIMIT, "no memory"), &err) == CKPT_ELIMIT ? 0
                                                                                              : 9);
    (void)usleep(200000);
    CHECK(ckpt_far_open(&io, t, 1, false, path, &err) == CKPT_OK);
    ckpt_io_close(io);
    CHECK(ckpt_team_agree(t, CKPT_OK, &err) == CKPT_ELIMIT && strcmp(err.text, "no memory") == 0);
    _exit(ckpt_team_leave(CKPT_ELIMIT, &err) == CKPT_ELIMIT ? 0 : 9);
}

static void test_early(void **state)
{
    int status[MAX];

    (void)state;
    help_write(help_join(&dir, "large"), "0123456789", 10);
    run(3, 20, early, status);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(status[i], 0);
}

static int dead(ckpt_team *t)
{
    ckpt_err err = {0};

    if (t->rank == 2)
        _exit(7);
    CHECK(ckpt_team_agree(t, CKPT_OK, &err) == CKPT_EIO);
    // rank 1 hears of rank 2 through nobody: it is told with the whole
    CHECK(t->rank != 0 || strstr(err.text, "rank 2 on second has not responded for 1 s"));
    (void)ckpt_team_leave(CKPT_EIO, &err);
    return 1;
}

static void test_dead(void **state)
{
    int status[MAX];

    (void)state;
    run(3, 1, dead, status);
    assert_int_equal(status[2], 7);
    assert_int_equal(status[0], MAIL_ABORTED);
    assert_int_equal(status[1], MAIL_ABORTED);
}

static const char *version_differs(unsigned rank)
{
    return rank == 2 ? "2" : "1";
}

static int never(ckpt_team *t)
{
    (void)t;
    return __LINE__;
}

static void test_versions(void **state)
{
    int status[MAX];

    (void)state;
    version = version_differs;
    run(3, 20, never, status);
    version = version_of;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(status[i], 2);
}

static int set_up(void **state)
{
    (void)state;
    help_dir_make(&dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange), cmocka_unit_test(test_agree),
        cmocka_unit_test(test_halfway),  cmocka_unit_test(test_halfway_out),
        cmocka_unit_test(test_apart),    cmocka_unit_test(test_far),
        cmocka_unit_test(test_replaced), cmocka_unit_test(test_often),
        cmocka_unit_test(test_early),    cmocka_unit_test(test_dead),
        cmocka_unit_test(test_versions), cmocka_unit_test(test_threads)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
