/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_page_cache.c: which runs let go of the page cache, and windows at the ends of files.
 */
#include <fcntl.h>
#include <unistd.h>

#include "libckpt/io/page_cache.h"
#include "tests/unit/unit.h"

static void when(void **state)
{
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    (void)state;
    assert_false(ckpt_behind_due(CKPT_CACHE_AUTO, 0));
    assert_false(ckpt_behind_due(CKPT_CACHE_AUTO, all / 4));
    assert_true(ckpt_behind_due(CKPT_CACHE_AUTO, all - all / 4));
    assert_true(ckpt_behind_due(CKPT_CACHE_AUTO, UINT64_MAX));
    assert_false(ckpt_behind_due(CKPT_CACHE_KEEP, UINT64_MAX));
    assert_true(ckpt_behind_due(CKPT_CACHE_DROP, 0));
}

/* Sizes around a window's; every read ends inside the file, some in two windows, some twice. */
static void ends(void **state)
{
    static const uint64_t size[] = {0,
                                    1,
                                    CKPT_BEHIND_WINDOW - 1,
                                    CKPT_BEHIND_WINDOW,
                                    CKPT_BEHIND_WINDOW + 1,
                                    3 * CKPT_BEHIND_WINDOW};
    FILE *f = tmpfile();

    (void)state;
    assert_non_null(f);
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        char last = 0;

        assert_int_equal(ftruncate(fileno(f), (off_t)size[i]), 0);
        ckpt_behind *b = ckpt_behind_new(fileno(f), size[i]);
        assert_non_null(b);
        ckpt_behind_after(b, 0, size[i]);
        ckpt_behind_after(b, size[i], 0);
        ckpt_behind_after(b, size[i] / 2, size[i] - size[i] / 2);
        ckpt_behind_after(b, size[i] > 0, size[i] > 0 ? size[i] - 1 : 0);
        ckpt_behind_free(b);
        // what was let go is read again as it was
        assert_int_equal(pread(fileno(f), &last, 1, size[i] > 0 ? (off_t)size[i] - 1 : 0),
                         size[i] > 0);
    }
    ckpt_behind_free(NULL);
    (void)fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(when),
        cmocka_unit_test(ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
