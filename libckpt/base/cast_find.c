/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_find.c: finds the function for a conversion: plain dtypes, blocks, and other floats to
 * blocks and back through F32.
 */
#include "libckpt/base/cast.h"
#include "libckpt/base/cast_x86.h"
#include "libckpt/base/quant.h"
#include "libckpt/base/quant_x86.h"

/* ---- other floats, through F32 ---- */

enum { CFD_CHUNK = 1024 }; /* elements: a multiple of every block */

static void cfd_via(void *restrict dst, const void *restrict src, size_t n, ckpt_dtype to,
                    ckpt_dtype from)
{
    const ckpt_dtype_info *a = ckpt_dtype_get(from), *b = ckpt_dtype_get(to);
    ckpt_cast_fn in = ckpt_cast_find(CKPT_F32, from), out = ckpt_cast_find(to, CKPT_F32);
    const uint8_t *p = src;
    uint8_t *q = dst;
    float wide[CFD_CHUNK];

    while (n > 0) {
        size_t some = n < CFD_CHUNK ? n : CFD_CHUNK;

        in(wide, p, some);
        out(q, wide, some);
        p += some / a->per * a->bytes;
        q += some / b->per * b->bytes;
        n -= some;
    }
}

#define CFD_VIA(to, from)                                                                          \
    static void cfd_##to##_##from(void *restrict dst, const void *restrict src, size_t n)          \
    {                                                                                              \
        cfd_via(dst, src, n, CKPT_##to, CKPT_##from);                                              \
    }

/* X(float) for floats that go through F32. */
#define CFD_FLOATS(X, type)                                                                        \
    X(type, F64) X(type, F16) X(type, BF16) X(type, F8_E4M3) X(type, F8_E5M2)

#define CFD_IN(type, from)       CFD_VIA(type, from)
#define CFD_OUT(type, to)        CFD_VIA(to, type)
#define CFD_IN_ROW(type, from)   {CKPT_##type, CKPT_##from, cfd_##type##_##from},
#define CFD_OUT_ROW(type, to)    {CKPT_##to, CKPT_##type, cfd_##to##_##type},
#define CFD_WRITTEN(id)          CFD_FLOATS(CFD_IN, id)
#define CFD_WRITTEN_ROWS(id, fn) {CKPT_##id, CKPT_F32, fn}, CFD_FLOATS(CFD_IN_ROW, id)
#define CFD_READ(id)             CFD_FLOATS(CFD_OUT, id)
#define CFD_READ_ROWS(id)        CFD_FLOATS(CFD_OUT_ROW, id)

CFD_WRITTEN(Q4_0)
CFD_WRITTEN(Q4_1)
CFD_WRITTEN(Q5_0)
CFD_WRITTEN(Q5_1)
CFD_WRITTEN(Q8_0)
CFD_WRITTEN(Q2_K)
CFD_WRITTEN(Q3_K)
CFD_WRITTEN(Q4_K)
CFD_WRITTEN(Q5_K)
CFD_WRITTEN(Q6_K)
CFD_WRITTEN(MXFP4)

CFD_READ(Q4_0)
CFD_READ(Q4_1)
CFD_READ(Q5_0)
CFD_READ(Q5_1)
CFD_READ(Q8_0)
CFD_READ(Q2_K)
CFD_READ(Q3_K)
CFD_READ(Q4_K)
CFD_READ(Q5_K)
CFD_READ(Q6_K)
CFD_READ(Q8_K)
CFD_READ(IQ4_NL)
CFD_READ(IQ4_XS)
CFD_READ(TQ1_0)
CFD_READ(TQ2_0)
CFD_READ(MXFP4)
CFD_READ(NVFP4)

static const struct {
    ckpt_dtype to, from;
    ckpt_cast_fn fn;
} cfd_table[] = {
    CFD_WRITTEN_ROWS(Q4_0, ckpt_quant_q4_0) CFD_WRITTEN_ROWS(Q4_1, ckpt_quant_q4_1)
        CFD_WRITTEN_ROWS(Q5_0, ckpt_quant_q5_0) CFD_WRITTEN_ROWS(Q5_1, ckpt_quant_q5_1)
            CFD_WRITTEN_ROWS(Q8_0, ckpt_quant_q8_0) CFD_WRITTEN_ROWS(Q2_K, ckpt_quant_q2_k)
                CFD_WRITTEN_ROWS(Q3_K, ckpt_quant_q3_k) CFD_WRITTEN_ROWS(Q4_K, ckpt_quant_q4_k)
                    CFD_WRITTEN_ROWS(Q5_K, ckpt_quant_q5_k) CFD_WRITTEN_ROWS(Q6_K, ckpt_quant_q6_k)
                        CFD_WRITTEN_ROWS(MXFP4, ckpt_quant_mxfp4) CFD_READ_ROWS(Q4_0)
                            CFD_READ_ROWS(Q4_1) CFD_READ_ROWS(Q5_0) CFD_READ_ROWS(Q5_1)
                                CFD_READ_ROWS(Q8_0) CFD_READ_ROWS(Q2_K) CFD_READ_ROWS(Q3_K)
                                    CFD_READ_ROWS(Q4_K) CFD_READ_ROWS(Q5_K) CFD_READ_ROWS(Q6_K)
                                        CFD_READ_ROWS(Q8_K) CFD_READ_ROWS(IQ4_NL)
                                            CFD_READ_ROWS(IQ4_XS) CFD_READ_ROWS(TQ1_0)
                                                CFD_READ_ROWS(TQ2_0) CFD_READ_ROWS(MXFP4)
                                                    CFD_READ_ROWS(NVFP4)};

/* The function for a conversion between blocks and floats. */
static ckpt_cast_fn cfd_blocks(ckpt_dtype to, ckpt_dtype from)
{
    if (to == CKPT_F32)
        return ckpt_dequant_find(from);
    for (size_t i = 0; i < sizeof cfd_table / sizeof *cfd_table; i++) {
        if (cfd_table[i].to == to && cfd_table[i].from == from)
            return cfd_table[i].fn;
    }
    return NULL;
}

ckpt_cast_fn ckpt_cast_find(ckpt_dtype to, ckpt_dtype from)
{
    ckpt_cast_fn fast = NULL;

    if (!ckpt_dtype_packed(to) && !ckpt_dtype_packed(from)) {
        fast = ckpt_cast_find_x86(to, from);
        return fast ? fast : ckpt_cast_find_portable(to, from);
    }
    if (from == CKPT_F32 && ckpt_x86_usable())
        fast = ckpt_quant_find_x86(to);
    return fast ? fast : cfd_blocks(to, from);
}

bool ckpt_dtype_converts(ckpt_dtype to, ckpt_dtype from)
{
    if ((unsigned)to >= CKPT_N_DTYPES || (unsigned)from >= CKPT_N_DTYPES)
        return false;
    return to == from || ckpt_cast_find(to, from);
}
