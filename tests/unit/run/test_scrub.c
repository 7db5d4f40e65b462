/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_scrub.c: whole records, in ranges and decoded, against their CRCs.
 */
#include "libckpt/base/digest.h"
#include "tests/unit/copy/help.h"
#include "tests/unit/unit.h"

static help_dir dir;

static int setup(void **state)
{
    (void)state;
    help_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    help_remove(dir.path);
    return 0;
}

static void test_scrub(void **state)
{
    enum { SIZE = 70 * 1024 * 1024 }; // several ranges
    const ckpt_run_opts opts = {.jobs = 2};
    uint8_t *bytes = ckpt_alloc(SIZE);
    ckpt_map *map = help_map();
    ckpt_run_report report = {0};
    ckpt_err err = {0};
    ckpt_bytes z;
    uint32_t file;

    (void)state;
    help_noise(bytes, 100000, 1);
    memcpy(bytes + SIZE - 1000, bytes, 1000);
    help_write(help_join(&dir, "big"), bytes, SIZE);
    file = help_input(map, help_join(&dir, "big"));
    (void)help_source(map, file, 0, SIZE);
    help_crc(map, 0, bytes, SIZE);
    (void)help_source(map, file, 500, 0);
    help_crc(map, 1, bytes, 0);
    (void)help_source(map, file, 500, 100);
    z = help_deflate(bytes, 100000);
    help_write(help_join(&dir, "z"), z.at, z.n);
    (void)help_source(map, help_input(map, help_join(&dir, "z")), 0, 100000);
    map->sources.at[3].coding = CKPT_DEFLATE;
    map->sources.at[3].n_stored = z.n;
    help_crc(map, 3, bytes, 100000);
    assert_int_equal(ckpt_run_scrub(map, NULL, NULL, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_records_checked, 3);
    assert_int_equal(report.n_records_no_crc, 1);
    assert_int_equal(report.n_read, SIZE + 100000);
    // two wrong records: the first is the failure; collected, both are findings
    map->sources.at[0].crc ^= 0x80;
    map->sources.at[3].crc ^= 0x80;
    assert_int_equal(ckpt_run_scrub(map, NULL, NULL, &opts, &report, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "big: record 'rec'"));
    err = (ckpt_err){0};
    map->collect = true;
    assert_int_equal(ckpt_run_scrub(map, NULL, NULL, &opts, &report, &err), CKPT_OK);
    assert_int_equal(map->findings.n, 2);
    assert_int_equal(report.n_records_checked, 1);
    // a record beyond its file
    (void)help_source(map, file, SIZE - 10, 20);
    help_crc(map, 4, bytes, 20);
    assert_int_equal(ckpt_run_scrub(map, NULL, NULL, &opts, &report, &err), CKPT_OK);
    assert_int_equal(map->findings.n, 5);
    ckpt_vec_free(&z);
    ckpt_free(bytes);
    ckpt_map_free(map);
}

/* Stretches that were read already are not read again, and count as they were read. */
static void test_known(void **state)
{
    const ckpt_run_opts opts = {.jobs = 1};
    uint8_t bytes[1000];
    ckpt_map *map = help_map();
    ckpt_run_report report = {0};
    ckpt_segments known = {0};
    ckpt_err err = {0};
    uint32_t file;

    (void)state;
    help_noise(bytes, sizeof bytes, 2);
    help_write(help_join(&dir, "rec"), bytes, sizeof bytes);
    file = help_input(map, help_join(&dir, "rec"));
    for (uint32_t i = 0; i < 3; i++) {
        (void)help_source(map, file, 300 * i, 300);
        help_crc(map, i, bytes + 300 * (size_t)i, 300);
    }
    // of the first record the middle, of the last all of it; one of a record that is not there
    assert_int_equal(ckpt_ledger_add(&known, 0, 100, 50, ckpt_crc32(0, bytes + 100, 50), &err), 0);
    assert_int_equal(ckpt_ledger_add(&known, 2, 0, 300, ckpt_crc32(0, bytes + 600, 300), &err), 0);
    assert_int_equal(ckpt_ledger_add(&known, 9, 0, 300, 0, &err), 0);
    assert_int_equal(ckpt_run_scrub(map, &known, NULL, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_records_checked, 3);
    assert_int_equal(report.n_read, 550);
    // what was read then was not what the record should be
    known.at[1].crc ^= 1;
    map->collect = true;
    assert_int_equal(ckpt_run_scrub(map, &known, NULL, &opts, &report, &err), CKPT_OK);
    assert_int_equal(map->findings.n, 1);
    // stretches that overlap, or stand for the whole, prove nothing: it is read again
    known.at[1].n = 0;
    assert_int_equal(ckpt_run_scrub(map, &known, NULL, &opts, &report, &err), CKPT_OK);
    assert_int_equal(report.n_read, 850);
    known.at[1].n = 301;
    assert_int_equal(ckpt_run_scrub(map, &known, NULL, &opts, &report, &err), CKPT_OK);
    assert_true(report.n_read == 850 && map->findings.n == 1);
    ckpt_vec_free(&known);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_scrub, setup, teardown),
        cmocka_unit_test_setup_teardown(test_known, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
