/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_multiply.c: oneDNN's products as zt_cpu_multiply asks for them, of whole numbers, which are
 * exact: of fp32 on every processor, and of BF16 where it is used.
 */
#include <stdlib.h>

#include "engine/device/cpu_bf16.h"
#include "libckpt/base/cast.h"
#include "tests/unit/unit.h"

enum { M = 37, N = 50, K = 70, PAD = 6, ROOM = (K + PAD) * (K + PAD) };

static float number(unsigned i, unsigned seed)
{
    return (float)((int)((i * 7 + i / 3 * seed) % 15) - 7);
}

/* Element [row, column] of an operand of which `ld` apart rows are stored. */
static float at(unsigned seed, bool transposed, unsigned row, unsigned column, unsigned ld)
{
    return number(transposed ? column * ld + row : row * ld + column, seed);
}

static void try_product(ckpt_dtype dt, bool a_transposed, bool b_transposed, unsigned pad)
{
    static float a[ROOM], b[ROOM], f[ROOM], c[M * N];
    unsigned lda = (a_transposed ? M : K) + pad, ldb = (b_transposed ? K : N) + pad;
    void *to[] = {a, b};
    for (unsigned which = 0; which < 2; which++) {
        for (unsigned i = 0; i < ROOM; i++)
            f[i] = number(i, which + 2);
        ckpt_cast_find(dt, CKPT_F32)(to[which], f, ROOM);
    }
    for (unsigned i = 0; i < M * N; i++)
        c[i] = (float)i;
    zt_cpu_product p = {.dt = dt,
                        .a_transposed = a_transposed,
                        .b_transposed = b_transposed,
                        .m = M,
                        .n = N,
                        .k = K,
                        .a = a,
                        .b = b,
                        .c = c,
                        .lda = lda,
                        .ldb = ldb};
    bool made = zt_cpu_multiply(&p);
    // of BF16 oneDNN may lack fast code for some strides; the caller then computes in fp32
    if (dt == CKPT_BF16 && !made)
        return;
    assert_true(made);
    for (unsigned i = 0; i < M * N; i++) {
        float sum = (float)i;
        for (unsigned k = 0; k < K; k++)
            sum += at(2, a_transposed, i / N, k, lda) * at(3, b_transposed, k, i % N, ldb);
        if (sum != c[i])
            fail_msg("[%u, %u]: %g, expected %g", i / N, i % N, (double)c[i], (double)sum);
    }
}

static void products(void **state)
{
    (void)state;
#ifdef ZT_ONEDNN
    for (unsigned way = 0; way < 8; way++) {
        try_product(CKPT_F32, way & 1, way & 2, way & 4 ? PAD : 0);
        if (zt_cpu_has_bf16())
            try_product(CKPT_BF16, way & 1, way & 2, way & 4 ? PAD : 0);
    }
#else
    assert_false(zt_cpu_has_bf16());
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
