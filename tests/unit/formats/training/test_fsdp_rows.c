/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fsdp_rows.c: rows of each rank under FSDP2, compared with torch.chunk done element by element,
 * and numbers at the end of folder names.
 */
#include "formats/training/step_folders.h"
#include "formats/training/to_fsdp.h"
#include "tests/unit/unit.h"

/* torch.chunk: chunks of the smallest size with which `ranks` of them hold all rows. */
static uint64_t chunk_size(uint64_t rows, uint32_t ranks)
{
    uint64_t size = 0;

    while (size * ranks < rows)
        size++;
    return size;
}

static void small(void **state)
{
    (void)state;
    for (uint64_t rows = 0; rows <= 40; rows++) {
        for (uint32_t ranks = 1; ranks <= 20; ranks++) {
            uint64_t size = chunk_size(rows, ranks), next = 0;

            for (uint32_t rank = 0; rank < ranks; rank++) {
                uint64_t start = 99, n = ckpt_train_fsdp_rows(rows, ranks, rank, &start), want = 0;

                for (uint64_t i = 0; i < rows; i++)
                    want += i / size == rank;
                assert_int_equal(n, want);
                assert_int_equal(start, next); // no hole; `rows` after the last
                next += n;
            }
            assert_int_equal(next, rows);
        }
    }
}

static void large(void **state)
{
    static const uint64_t rows[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63,
                                    UINT64_C(1) << 32, UINT32_MAX};
    static const uint32_t ranks[] = {1, 2, 3, 7, CKPT_TRAIN_RANKS, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
            uint64_t first = 1, last = 0, middle = 0;
            uint64_t n = ckpt_train_fsdp_rows(rows[i], ranks[k], 0, &first);
            uint64_t m = ckpt_train_fsdp_rows(rows[i], ranks[k], ranks[k] - 1, &last);
            uint64_t o = ckpt_train_fsdp_rows(rows[i], ranks[k], ranks[k] / 2, &middle);

            assert_true(first == 0 && n > 0 && n <= rows[i]);
            assert_true(last <= rows[i] && m <= rows[i] - last && m <= n);
            assert_true(middle <= last && o <= n && o >= m);
            assert_true(last == rows[i] || last / n == ranks[k] - 1);
            // the last rank ends with the last row
            assert_true(last + m == rows[i]);
        }
    }
}

static void numbers(void **state)
{
    static const struct {
        const char *folder, *number;
    } cases[] = {
        {"step-100", "100"}, {"checkpoint_7", "7"},
        {"0", "0"},          {"a1b22", "22"},
        {"step-", NULL},     {"", NULL},
        {"12a", NULL},       {"pytorch_model_fsdp_0", "0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[CKPT_RUN_NAME] = "";
        bool is = ckpt_train_number_of(out, cases[i].folder);

        if (is != (cases[i].number != NULL))
            fail_msg("'%s' %d", cases[i].folder, is);
        if (is)
            assert_string_equal(out, cases[i].number);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small),
        cmocka_unit_test(large),
        cmocka_unit_test(numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
