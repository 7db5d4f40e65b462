/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_peer_io.c: bytes that only a function can read, through plan, executor, reader, conversion
 * and fingerprint.
 */
#include <pthread.h>

#include "ckpt_extra.h"
#include "libckpt/commit/journal.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { ROWS = 300, WIDTH = 1000, N = ROWS * WIDTH };

/* Memory far away: how it was read, and when it is to fail. */
typedef struct island {
    ckpt_far far; /* first */
    const float *values;
    pthread_mutex_t *lock;
    uint64_t n_reads, longest;
    uint64_t fail_at; /* number of the read that fails; UINT64_MAX: none */
} island;

static help_dir dir;
static float values[N];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int island_read(const ckpt_far *far, void *to, uint64_t n, uint64_t at, ckpt_err *err)
{
    island *i = (island *)(uintptr_t)far;
    bool fails;

    pthread_mutex_lock(i->lock);
    fails = i->n_reads++ >= i->fail_at;
    i->longest = n > i->longest ? n : i->longest;
    pthread_mutex_unlock(i->lock);
    if (n == 0 || !ckpt_within(at, n, sizeof values))
        return ckpt_fail(err, CKPT_EUSAGE, "a read that no map asks for");
    if (fails)
        return ckpt_fail(err, CKPT_EIO, "the island is under water");
    memcpy(to, (const char *)i->values + at, (size_t)n);
    return CKPT_OK;
}

static void island_new(island *i, uint64_t fail_at)
{
    *i = (island){{island_read}, values, &lock, 0, 0, fail_at};
}

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    help_noise(values, sizeof values, 3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

static uint32_t far_source(ckpt_map *map, island *i)
{
    const ckpt_source s = {
        .kind = CKPT_SOURCE_FAR, .memory = i, .n_bytes = sizeof values, .name = "island"};
    uint32_t index = 0;
    ckpt_err err = {0};

    assert_int_equal(ckpt_map_add_source(map, &s, &index, &err), CKPT_OK);
    return index;
}

/* Maps that nobody has checked ask for bytes beyond the end, and for ones whose place wraps around:
 * the function is never called for them. */
static void no_lie_of_a_map_reaches_the_function(void **state)
{
    const uint64_t one[1] = {9};
    const struct {
        uint64_t at;
        int64_t stride;
    } lie[] = {{sizeof values - 35, 4},      {sizeof values, 4},
               {UINT64_MAX - 3, 4},          {UINT64_MAX - 35, 4},
               {0, (int64_t)sizeof values},  {4, INT64_MAX},
               {sizeof values - 4, 1 << 20}, {0, -4}};

    (void)state;
    for (size_t k = 0; k < sizeof lie / sizeof *lie; k++) {
        const ckpt_axis axis = {0, 9, lie[k].stride};
        ckpt_map *map = help_map();
        ckpt_reader *r = NULL;
        ckpt_err err = {0};
        float got[9];
        island i;

        island_new(&i, 0); // each call would be told
        const ckpt_extent e = {far_source(map, &i), 1, lie[k].at, &axis};
        help_back(map, help_tensor(map, "lie", CKPT_F32, 1, one), &e, 1);
        assert_int_not_equal(ckpt_map_check(map, &err), CKPT_OK);
        err = (ckpt_err){0};
        assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
        assert_int_not_equal(ckpt_reader_read(r, map->tensors.at[0], 0, 9, CKPT_F32, got, &err),
                             CKPT_OK);
        assert_null(strstr(err.text, "a read that no map asks for"));
        ckpt_reader_free(r);
        ckpt_map_free(map);
    }
}

/* "halves": the second half first; "turned": the values as a matrix, transposed. */
static ckpt_map *far_map(island *i)
{
    const uint64_t flat[1] = {N}, turned[2] = {WIDTH, ROWS};
    const ckpt_axis half[2] = {{0, N / 2, 4}, {N / 2, N / 2, 4}};
    const ckpt_axis across[2] = {{0, WIDTH, 4}, {0, ROWS, 4 * WIDTH}};
    ckpt_map *map = help_map();
    uint32_t s = far_source(map, i);
    const ckpt_extent halves[2] = {{s, 1, 2 * N, &half[0]}, {s, 1, 0, &half[1]}};
    const ckpt_extent view = {s, 2, 0, across};

    help_back(map, help_tensor(map, "halves", CKPT_F32, 1, flat), halves, 2);
    help_back(map, help_tensor(map, "turned", CKPT_F32, 2, turned), &view, 1);
    map->path = "the island";
    map->format = "memory";
    return map;
}

static float halves_at(uint64_t k)
{
    return values[(k + N / 2) % N];
}

static float turned_at(uint64_t k)
{
    return values[k % ROWS * WIDTH + k / ROWS];
}

/* Both tensors one after another in a file. */
static ckpt_map *file_map(void)
{
    const uint64_t flat[1] = {N}, turned[2] = {WIDTH, ROWS};
    ckpt_map *map = help_map();
    uint32_t file = help_output(map, "both", 2 * sizeof values);
    uint32_t s = help_source(map, file, 0, 2 * sizeof values);

    help_whole(map, help_tensor(map, "halves", CKPT_F32, 1, flat), s, 0);
    help_whole(map, help_tensor(map, "turned", CKPT_F32, 2, turned), s, sizeof values);
    return map;
}

static void through_plan_and_executor_by_several_threads(void **state)
{
    const ckpt_run_opts opts = {.jobs = 4, .memory = 400000};
    island i;
    ckpt_map *from = far_map(&i), *to = file_map();
    ckpt_err err = {0};
    uint64_t n = 0;
    uint8_t *bytes;

    (void)state;
    island_new(&i, UINT64_MAX);
    assert_int_equal(help_convert(&dir, from, to, &opts, NULL, &err), CKPT_OK);
    bytes = help_read(help_join(&dir, "out/both"), &n);
    assert_int_equal(n, 2 * sizeof values);
    for (uint64_t k = 0; k < N; k++) {
        const float want[2] = {halves_at(k), turned_at(k)};
        assert_memory_equal(bytes + 4 * k, &want[0], 4);
        assert_memory_equal(bytes + sizeof values + 4 * k, &want[1], 4);
    }
    // in pieces that the run's memory has room for, never a copy of all
    assert_true(i.n_reads > 4);
    assert_true(i.longest <= ckpt_run_block(opts.memory, opts.jobs));
    ckpt_free(bytes);
    ckpt_map_free(to);
    ckpt_map_free(from);
    help_remove(help_join(&dir, "out"));
}

static void through_the_reader(void **state)
{
    static float got[N];
    static double wide[N];
    island i;
    ckpt_map *map = far_map(&i);
    ckpt_reader *r = NULL;
    ckpt_err err = {0};

    (void)state;
    island_new(&i, UINT64_MAX);
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&r, map, &err), CKPT_OK);
    assert_int_equal(
        ckpt_reader_read(r, map->tensors.at[0], 77, N - 99, CKPT_DTYPE_NONE, got, &err), CKPT_OK);
    for (uint64_t k = 0; k < N - 99; k++)
        assert_true(got[k] == halves_at(k + 77));
    assert_int_equal(ckpt_reader_read(r, map->tensors.at[1], 1, N - 1, CKPT_F64, wide, &err),
                     CKPT_OK);
    for (uint64_t k = 0; k < N - 1; k++)
        assert_true(wide[k] == (double)turned_at(k + 1));
    i.fail_at = 0;
    assert_int_equal(ckpt_reader_read(r, map->tensors.at[0], 0, 9, CKPT_F32, got, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "under water"));
    ckpt_reader_free(r);
    ckpt_map_free(map);
}

/* Whichever read fails, its text is the run's, and no file has its name. */
static void a_failure_is_told_and_leaves_nothing(void **state)
{
    const ckpt_run_opts opts = {.jobs = 3, .memory = 400000};
    const ckpt_target target = {.path = help_join(&dir, "w.safetensors"), .format = "safetensors"};
    uint64_t n_reads = 1;
    int n_before = help_count(dir.path);

    (void)state;
    for (uint64_t at = 0; at < n_reads; at += 1 + n_reads / 7) {
        island i;
        ckpt_map *map = far_map(&i);
        ckpt_err err = {0};

        island_new(&i, UINT64_MAX);
        if (n_reads == 1) { // how many there are
            assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_OK);
            n_reads = i.n_reads;
            assert_int_equal(unlink(target.path), 0);
        }
        island_new(&i, at);
        assert_int_equal(ckpt_convert(map, &target, &opts, NULL, &err), CKPT_EIO);
        assert_non_null(strstr(err.text, "the island is under water"));
        assert_int_equal(access(target.path, F_OK), -1);
        assert_int_equal(help_count(dir.path), n_before);
        ckpt_map_free(map);
    }
}

static void the_bytes_are_part_of_a_fingerprint(void **state)
{
    island i;
    ckpt_map *from = far_map(&i), *to = file_map();
    char text[3][65];
    ckpt_err err = {0};

    (void)state;
    island_new(&i, UINT64_MAX);
    assert_int_equal(ckpt_journal_fingerprint(text[0], to, from, false, &err), CKPT_OK);
    assert_int_equal(ckpt_journal_fingerprint(text[1], to, from, false, &err), CKPT_OK);
    values[N - 1] += 1;
    assert_int_equal(ckpt_journal_fingerprint(text[2], to, from, false, &err), CKPT_OK);
    values[N - 1] -= 1;
    assert_string_equal(text[0], text[1]);
    assert_string_not_equal(text[0], text[2]);
    island_new(&i, 5);
    assert_int_equal(ckpt_journal_fingerprint(text[0], to, from, false, &err), CKPT_EIO);
    assert_non_null(strstr(err.text, "under water"));
    ckpt_map_free(to);
    ckpt_map_free(from);
}

static void what_does_not_fit_is_refused(void **state)
{
    const uint64_t more[1] = {N + 1};
    island i;
    ckpt_map *from = far_map(&i), *to = file_map();
    ckpt_tensor *t = help_tensor(from, "more", CKPT_F32, 1, more);
    ckpt_err err = {0};

    (void)state;
    island_new(&i, UINT64_MAX);
    help_whole(from, t, 0, 0);
    assert_int_equal(ckpt_map_check(from, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "island"));
    err = (ckpt_err){0};
    // it is read, never written
    from->tensors.n--;
    to->sources.at[0].kind = CKPT_SOURCE_FAR;
    to->sources.at[0].memory = &i;
    assert_int_equal(help_convert(&dir, from, to, &(ckpt_run_opts){0}, NULL, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "neither in a file nor in memory"));
    ckpt_map_free(to);
    ckpt_map_free(from);
    help_remove(help_join(&dir, "out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_plan_and_executor_by_several_threads),
        cmocka_unit_test(through_the_reader),
        cmocka_unit_test(a_failure_is_told_and_leaves_nothing),
        cmocka_unit_test(the_bytes_are_part_of_a_fingerprint),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(no_lie_of_a_map_reaches_the_function),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
