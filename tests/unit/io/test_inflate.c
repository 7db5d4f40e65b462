/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_inflate.c: deflate streams into exact sizes, whole and in steps, and every way they go
 * wrong.
 */
#include "libckpt/base/mem.h"
#include "libckpt/io/inflate.h"
#include "tests/unit/unit.h"

/*
 * A raw deflate stream of stored blocks, which needs no compressor: per block one byte (1: the
 * last), length, its complement, and the bytes as they are.
 */
static size_t pack(uint8_t *out, const uint8_t *in, size_t n, size_t block)
{
    size_t at = 0, k = 0;

    do {
        size_t step = n - k < block ? n - k : block;

        out[at++] = k + step == n;
        out[at++] = (uint8_t)step;
        out[at++] = (uint8_t)(step >> 8);
        out[at++] = (uint8_t)~step;
        out[at++] = (uint8_t)(~step >> 8);
        memcpy(out + at, in + k, step);
        at += step;
        k += step;
    } while (k < n);
    return at;
}

/* One hundred letters 'a' in ten bits of fixed codes: literal, match of 99 bytes at distance 1,
 * end. */
static const uint8_t run_of_a[] = {0x4B, 0x4C, 0xA4, 0x3D, 0x00, 0x00};

static void fill(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 31 + i / 256);
}

static void whole_streams(void **state)
{
    uint8_t in[1000], packed[1200], out[1000];
    ckpt_err err = {0};
    size_t n;

    (void)state;
    fill(in, sizeof in);
    n = pack(packed, in, sizeof in, 300);
    assert_int_equal(ckpt_inflate_all(out, sizeof out, packed, n, &err), CKPT_OK);
    assert_memory_equal(in, out, sizeof in);
    n = pack(packed, in, 0, 300);
    assert_int_equal(ckpt_inflate_all(out, 0, packed, n, &err), CKPT_OK);
    memset(out, 0, sizeof out);
    assert_int_equal(ckpt_inflate_all(out, 100, run_of_a, sizeof run_of_a, &err), CKPT_OK);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(out[i], 'a');
    assert_int_equal(out[100], 0);
}

static void expect(int code, uint64_t n_out, const uint8_t *packed, size_t n)
{
    uint8_t out[1024];
    ckpt_err err = {0};

    assert_int_equal(ckpt_inflate_all(out, n_out, packed, n, &err), code);
    assert_int_equal(err.code, code);
    assert_true(strlen(err.text) > 0);
}

static void wrong_sizes(void **state)
{
    uint8_t in[600], packed[800];
    size_t n;

    (void)state;
    fill(in, sizeof in);
    n = pack(packed, in, sizeof in, 300);
    expect(CKPT_EFORMAT, 601, packed, n); // a byte short
    expect(CKPT_ELIMIT, 599, packed, n);  // a byte too many: what a bomb does
    expect(CKPT_ELIMIT, 0, packed, n);
    packed[n] = 0;
    expect(CKPT_EFORMAT, 600, packed, n + 1); // bytes after the stream's end
    for (size_t cut = 0; cut < n; cut++)
        expect(CKPT_EFORMAT, 600, packed, cut);
}

static void damage(void **state)
{
    const uint8_t bad_block[] = {0x07, 0, 0};                    // block type 3 does not exist
    const uint8_t bad_length[] = {0x01, 5, 0, 0, 0, 1, 2, 3, 4}; // the complement is wrong
    const uint8_t bad_distance[] = {0x4B, 0x02, 0x61, 0x00};     // refers to before the start

    (void)state;
    expect(CKPT_EFORMAT, 100, bad_block, sizeof bad_block);
    expect(CKPT_EFORMAT, 100, bad_length, sizeof bad_length);
    expect(CKPT_EFORMAT, 100, bad_distance, sizeof bad_distance);
}

/* In steps of every small size, on both sides: the same bytes, and the end is told once reached. */
static void in_steps(void **state)
{
    uint8_t in[700], packed[900], out[700];
    size_t n;

    (void)state;
    fill(in, sizeof in);
    n = pack(packed, in, sizeof in, 99);
    for (size_t step = 1; step <= 17; step++) {
        ckpt_inflater *z = NULL;
        ckpt_err err = {0};
        const uint8_t *from = packed;
        uint8_t *to = out;
        size_t n_from = 0, n_to = 0;

        memset(out, 0, sizeof out);
        assert_int_equal(ckpt_inflater_new(&z, &err), CKPT_OK);
        while (!ckpt_inflater_ended(z)) {
            size_t given = (size_t)(from - packed), made = (size_t)(to - out);

            n_from = n - given < step ? n - given : step;
            n_to = sizeof out - made < 3 * step ? sizeof out - made : 3 * step;
            assert_int_equal(ckpt_inflater_run(z, &from, &n_from, &to, &n_to, &err), CKPT_OK);
        }
        assert_ptr_equal(from, packed + n);
        assert_ptr_equal(to, out + sizeof out);
        assert_memory_equal(in, out, sizeof in);
        ckpt_inflater_free(z);
    }
    ckpt_inflater_free(NULL);
}

static void no_memory(void **state)
{
    uint8_t in[10] = {0}, packed[20], out[10];
    size_t n = pack(packed, in, sizeof in, 10);
    int rc = CKPT_ELIMIT;

    (void)state;
    for (uint64_t k = 0; rc != CKPT_OK; k++) {
        ckpt_err err = {0};

        assert_true(k < 20);
        ckpt_alloc_fail_at(k);
        rc = ckpt_inflate_all(out, sizeof out, packed, n, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        if (rc != CKPT_OK)
            assert_int_equal(rc, CKPT_ELIMIT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_streams), cmocka_unit_test(wrong_sizes), cmocka_unit_test(damage),
        cmocka_unit_test(in_steps),      cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
