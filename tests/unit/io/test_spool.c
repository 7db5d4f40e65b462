/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spool.c: decoded records that do not fit in memory, in files of their own and in the one
 * that was opened ahead.
 */
#include "ckpt_extra.h"
#include "libckpt/io/spool.h"
#include "tests/unit/unit.h"

/* Two spools at a time, each with records of its own letter, read back whole. */
static void fill_and_compare(void)
{
    enum { RECORDS = 3, BYTES = 5000 };
    ckpt_spool *s[2] = {NULL, NULL};
    char text[BYTES], back[BYTES];

    for (int k = 0; k < 2; k++)
        assert_int_equal(ckpt_spool_new(&s[k], RECORDS, NULL, 10, NULL), CKPT_OK);
    for (size_t i = 0; i < RECORDS; i++) {
        for (int k = 0; k < 2; k++) {
            memset(text, 'a' + (int)(2 * i) + k, sizeof text);
            assert_int_equal(ckpt_spool_begin(s[k], i, BYTES, NULL), CKPT_OK);
            assert_int_equal(ckpt_spool_write(s[k], i, text, BYTES, 0, NULL), CKPT_OK);
            ckpt_spool_end(s[k], i);
        }
    }
    for (size_t i = 0; i < RECORDS; i++) {
        for (int k = 0; k < 2; k++) {
            memset(text, 'a' + (int)(2 * i) + k, sizeof text);
            assert_true(ckpt_spool_has(s[k], i));
            assert_int_equal(ckpt_spool_read(s[k], i, back, BYTES, 0, NULL), CKPT_OK);
            assert_memory_equal(text, back, BYTES);
        }
    }
    ckpt_spool_free(s[0]);
    ckpt_spool_free(s[1]);
}

static void test_own_files(void **state)
{
    (void)state;
    fill_and_compare();
}

/* After ckpt_prepare no folder is needed any more, and places of freed spools do no harm. */
static void test_opened_ahead(void **state)
{
    ckpt_spool *s = NULL;
    char one = 0;

    (void)state;
    assert_int_equal(ckpt_prepare(CKPT_PREPARE_READ | CKPT_PREPARE_WRITE, NULL), CKPT_OK);
    assert_int_equal(setenv("TMPDIR", "/nowhere/at/all", 1), 0);
    fill_and_compare();
    fill_and_compare();
    // a size that no file has
    assert_int_equal(ckpt_spool_new(&s, 1, NULL, 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_spool_begin(s, 0, UINT64_MAX - 5, NULL), CKPT_ELIMIT);
    ckpt_spool_free(s);
    fill_and_compare();
    // one that names its folder is not helped
    assert_int_equal(ckpt_spool_new(&s, 1, "/nowhere/at/all", 0, NULL), CKPT_OK);
    assert_int_equal(ckpt_spool_begin(s, 0, sizeof one, NULL), CKPT_EIO);
    ckpt_spool_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_files),
        cmocka_unit_test(test_opened_ahead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
