/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_crc_ledger.c: CRCs of records from CRCs of stretches, in any order, with gaps, overlaps and
 * repeats.
 */
#include "libckpt/copy/crc_ledger.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

enum { SIZE = 1000000 };

static help_dir dir;
static uint8_t bytes[SIZE];
static ckpt_map *map;
static ckpt_feed feed;
static uint64_t seed = 5;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

static int setup(void **state)
{
    ckpt_err err = {0};

    (void)state;
    help_dir_make(&dir);
    help_noise(bytes, SIZE, 1);
    help_write(help_join(&dir, "f"), bytes, SIZE);
    map = help_map();
    (void)help_source(map, help_input(map, help_join(&dir, "f")), 0, SIZE);
    return ckpt_feed_open(&feed, map, NULL, 0, &err);
}

static int teardown(void **state)
{
    (void)state;
    ckpt_feed_close(&feed);
    ckpt_map_free(map);
    help_remove(dir.path);
    return 0;
}

static void add(ckpt_segments *s, uint64_t at, uint64_t n)
{
    ckpt_err err = {0};

    assert_int_equal(ckpt_ledger_add(s, 0, at, n, ckpt_crc32(0, bytes + at, n), &err), CKPT_OK);
}

/* Disjoint stretches with gaps, dealt out to two lists in turn, some of them twice. */
static void test_gaps_are_read(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        ckpt_segments part[2] = {{0}}, all = {0};
        uint64_t missing = 0, n_read = 0;
        uint32_t crc = 0;
        ckpt_err err = {0};

        for (uint64_t at = draw(2) * 77; at < SIZE;) {
            uint64_t n = 1 + draw(50000), gap = draw(3) == 0 ? draw(9999) : 0;

            n = SIZE - at < n ? SIZE - at : n;
            gap = SIZE - at - n < gap ? SIZE - at - n : gap;
            add(&part[draw(2)], at, n);
            if (draw(4) == 0)
                add(&part[draw(2)], at, n);
            missing += gap;
            at += n + gap;
        }
        assert_int_equal(ckpt_ledger_move(&all, &part[0], &err), CKPT_OK);
        assert_int_equal(ckpt_ledger_move(&all, &part[1], &err), CKPT_OK);
        assert_int_equal(part[0].n + part[1].n, 0);
        ckpt_ledger_sort(&all);
        missing += all.at[0].at;
        assert_int_equal(ckpt_ledger_group(&all, 0), all.n);
        assert_int_equal(ckpt_ledger_record(&feed, all.at, all.n, &crc, &n_read, &err), CKPT_OK);
        assert_int_equal(crc, ckpt_crc32(0, bytes, SIZE));
        assert_int_equal(n_read, missing);
        ckpt_vec_free(&all);
    }
}

/* Overlaps, and marks for strided use: the record is read once, whatever the segments say. */
static void test_overlaps_are_read_whole(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        ckpt_segments all = {0};
        uint64_t n_read = 0;
        uint32_t crc = 0;
        ckpt_err err = {0};

        add(&all, 100, 500);
        add(&all, kind == 0 ? 599 : 600, 10);
        for (unsigned i = 0; i < 3 && kind == 1; i++)
            assert_int_equal(ckpt_ledger_add(&all, 0, 0, 0, 0, &err), CKPT_OK);
        assert_int_equal(all.n, kind == 0 ? 2 : 3);
        ckpt_ledger_sort(&all);
        assert_int_equal(ckpt_ledger_record(&feed, all.at, all.n, &crc, &n_read, &err), CKPT_OK);
        assert_int_equal(crc, ckpt_crc32(0, bytes, SIZE));
        assert_int_equal(n_read, SIZE);
        ckpt_vec_free(&all);
    }
}

/* The same stretch with two CRCs: the file changed between two reads; no join may hide that. */
static void test_two_truths(void **state)
{
    ckpt_segments all = {0};
    uint64_t n_read = 0;
    uint32_t crc = 0;
    ckpt_err err = {0};

    (void)state;
    add(&all, 0, SIZE);
    add(&all, 0, SIZE);
    all.at[1].crc ^= 1;
    ckpt_ledger_sort(&all);
    assert_int_equal(all.n, 2);
    assert_int_equal(ckpt_ledger_record(&feed, all.at, all.n, &crc, &n_read, &err), CKPT_OK);
    assert_int_equal(n_read, SIZE);
    assert_int_equal(crc, ckpt_crc32(0, bytes, SIZE));
    ckpt_vec_free(&all);
}

static void test_written(void **state)
{
    static uint8_t out[20000];
    ckpt_segments all = {0};
    uint32_t crc = 0;
    ckpt_err err = {0};

    (void)state;
    memcpy(out + 10, bytes + 10, 90);
    memcpy(out + 9000, bytes + 9000, 1000);
    add(&all, 9000, 1000);
    add(&all, 10, 90);
    ckpt_ledger_sort(&all);
    assert_int_equal(ckpt_ledger_written(all.at, all.n, sizeof out, &crc, &err), CKPT_OK);
    assert_int_equal(crc, ckpt_crc32(0, out, sizeof out));
    assert_int_equal(ckpt_ledger_written(all.at, all.n, 9999, &crc, &err), CKPT_EMISMATCH);
    err = (ckpt_err){0};
    add(&all, 9999, 2);
    assert_int_equal(ckpt_ledger_written(all.at, all.n, sizeof out, &crc, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "twice"));
    ckpt_vec_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gaps_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overlaps_are_read_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_truths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_written, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
