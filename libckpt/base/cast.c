/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c: converts between floating dtypes in integer code.
 *
 * Every pair goes source -> bits of an F64 -> destination. The first step is exact (F64 holds every
 * value of the narrower formats), so only the second rounds. Integer code does not depend on the
 * thread's rounding mode or on "flush to zero", and a NaN keeps its sign and the upper bits of its
 * payload and becomes quiet, as IEEE 754 requires. Only BF16 to F32 is a plain shift, also for
 * signalling NaNs, as in torch. Sources: IEEE 754-2019; "FP8 formats for deep learning" (OCP, E4M3
 * and E5M2); compared with torch's conversions on all 16-bit patterns.
 */
#include "libckpt/base/cast.h"

#include <string.h>

#include "libckpt/base/cast_bits.h"
#include "libckpt/base/cast_int.h"

#define F64_SIGN  (1ull << 63)
#define F64_INF   (0x7ffull << 52)
#define F64_QUIET (1ull << 51)
#define F64_BIAS  1023

/* The fields of a format: sign, exponent and fraction from the top bit down. */
typedef struct cast_format {
    unsigned bytes;
    unsigned fraction; /* bits */
    int bias;
    bool inf; /* a full exponent means infinity or NaN; false: only all ones is NaN */
} cast_format;

static const cast_format cast_F64 = {8, 52, F64_BIAS, true};
static const cast_format cast_F32 = {4, 23, 127, true};
static const cast_format cast_F16 = {2, 10, 15, true};
static const cast_format cast_BF16 = {2, 7, 127, true};
static const cast_format cast_F8_E4M3 = {1, 3, 7, false};
static const cast_format cast_F8_E5M2 = {1, 2, 15, true};

/* The F64 bits of an element: exact; a NaN becomes quiet. */
CAST_INLINE uint64_t cast_decode(const cast_format *f, uint64_t v)
{
    unsigned up = 52 - f->fraction;
    uint64_t sign = v >> (8 * f->bytes - 1) << 63;
    uint64_t top = (1ull << (8 * f->bytes - 1)) - 1; // all bits but the sign
    uint64_t inf = top >> f->fraction << f->fraction;
    uint64_t a = v & top;

    if (f->bytes == 8) {
        return v; // a NaN passes this step unchanged; the next one handles it
    }
    if (f->inf ? a >= inf : a == top)
        return sign | F64_INF | (a & ~inf) << up | (f->inf && a == inf ? 0 : F64_QUIET);
    if (a >> f->fraction == 0) {
        // zero, or subnormal: a * 2^(1 - bias - fraction); shift its first one to the hidden bit
        unsigned lead;

        if (a == 0)
            return sign;
        lead = 63 - (unsigned)__builtin_clzll(a);
        a = (a << (52 - lead)) - (1ull << 52);
        return sign |
               (a + ((uint64_t)(F64_BIAS + 1 - f->bias - (int)f->fraction + (int)lead) << 52));
    }
    return sign | ((a << up) + ((uint64_t)(F64_BIAS - f->bias) << 52));
}

/*
 * The element nearest to the F64 bits v, ties to even. Overflow gives infinity, or the largest
 * number if the format has no infinity.
 */
CAST_INLINE uint64_t cast_encode(const cast_format *f, uint64_t v)
{
    unsigned down = 52 - f->fraction;
    uint64_t sign = v >> 63 << (8 * f->bytes - 1);
    uint64_t top = (1ull << (8 * f->bytes - 1)) - 1;
    // the first pattern that is not finite
    uint64_t inf = f->inf ? top >> f->fraction << f->fraction : top;
    uint64_t a = v & ~F64_SIGN;
    int exponent = (int)(a >> 52) - F64_BIAS + f->bias;
    uint64_t whole;

    if (f->bytes == 8)
        return v;
    if (a > F64_INF)
        return sign | inf | (((a | F64_QUIET) & (F64_QUIET * 2 - 1)) >> down);
    if (a >> 52 == 0 || exponent < -(int)f->fraction) {
        return sign; // below half of the smallest subnormal
    }
    // the significand with its hidden bit, to be cut by `down` bits, by more for a subnormal
    a = (a & (F64_QUIET * 2 - 1)) | F64_QUIET * 2;
    if (exponent < 1) {
        down += (unsigned)(1 - exponent);
        exponent = 1;
    }
    // to nearest, ties to even, without a branch, because random data would mispredict half of them
    whole = (a + (1ull << (down - 1)) - 1 + (a >> down & 1)) >> down;
    // adding lets a carry, and the hidden bit of a normal number, move into the exponent
    whole += (uint64_t)(exponent - 1) << f->fraction;
    return sign | (whole < inf ? whole : f->inf ? inf : inf - 1);
}

/* Convert one element after another; the formats are constants after inlining. */
CAST_INLINE void cast_each(unsigned char *restrict dst, const unsigned char *restrict src, size_t n,
                           const cast_format *to, const cast_format *from)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t v = cast_decode(from, cast_load(src + i * from->bytes, from->bytes));

        cast_store(dst + i * to->bytes, to->bytes, cast_encode(to, v));
    }
}

/* From this many 8-bit elements on it is cheaper to convert all 256 patterns first. */
#define CAST_TABLE_FROM 1024u

/* The conversion that the functions of all pairs share. */
CAST_INLINE void cast_run(unsigned char *restrict dst, const unsigned char *restrict src, size_t n,
                          const cast_format *to, const cast_format *from)
{
    unsigned char pattern[256], made[256 * 8];

    if (from->bytes > 1 || n < CAST_TABLE_FROM) {
        cast_each(dst, src, n, to, from);
        return;
    }
    for (unsigned k = 0; k < 256; k++)
        pattern[k] = (unsigned char)k;
    cast_each(made, pattern, 256, to, from);
    for (size_t i = 0; i < n; i++)
        memcpy(dst + i * to->bytes, made + (size_t)src[i] * to->bytes, to->bytes);
}

#define CAST_PAIR(to, from)                                                                        \
    static void cast_##to##_##from(void *restrict dst, const void *restrict src, size_t n)         \
    {                                                                                              \
        cast_run(dst, src, n, &cast_##to, &cast_##from);                                           \
    }

#define CAST_PAIRS_8(from) CAST_PAIR(F8_E4M3, from) CAST_PAIR(F8_E5M2, from)

CAST_PAIR(F32, F64)
CAST_PAIR(F16, F64)
CAST_PAIR(BF16, F64)
CAST_PAIRS_8(F64)
CAST_PAIR(F64, F32)
CAST_PAIRS_8(F32)
CAST_PAIR(F64, F16)
CAST_PAIR(F32, F16)
CAST_PAIR(BF16, F16)
CAST_PAIRS_8(F16)
CAST_PAIR(F64, BF16)
CAST_PAIR(F16, BF16)
CAST_PAIRS_8(BF16)
CAST_PAIR(F64, F8_E4M3)
CAST_PAIR(F32, F8_E4M3)
CAST_PAIR(F16, F8_E4M3)
CAST_PAIR(BF16, F8_E4M3)
CAST_PAIR(F8_E5M2, F8_E4M3)
CAST_PAIR(F64, F8_E5M2)
CAST_PAIR(F32, F8_E5M2)
CAST_PAIR(F16, F8_E5M2)
CAST_PAIR(BF16, F8_E5M2)
CAST_PAIR(F8_E4M3, F8_E5M2)
CAST_PAIR(F16, F32)

/* The most frequent pair has a shorter way: BF16 is the upper half of F32. */
static void cast_BF16_F32(void *restrict dst, const void *restrict src, size_t n)
{
    unsigned char *d = dst;
    const unsigned char *s = src;

    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)cast_load(s + 4 * i, 4);
        bool nan = (u & 0x7fffffffu) > 0x7f800000u;
        uint32_t rounded = u + 0x7fffu + (u >> 16 & 1);

        cast_store(d + 2 * i, 2, (nan ? u | 0x00400000u : rounded) >> 16);
    }
}

static void cast_F32_BF16(void *restrict dst, const void *restrict src, size_t n)
{
    unsigned char *d = dst;
    const unsigned char *s = src;

    for (size_t i = 0; i < n; i++)
        cast_store(d + 4 * i, 4, cast_load(s + 2 * i, 2) << 16);
}

#define CAST_COPY(bytes)                                                                           \
    static void cast_copy_##bytes(void *restrict dst, const void *restrict src, size_t n)          \
    {                                                                                              \
        if (n > 0) {                                                                               \
            memcpy(dst, src, n *bytes);                                                            \
        }                                                                                          \
    }

CAST_COPY(1)
CAST_COPY(2)
CAST_COPY(4)
CAST_COPY(8)

/* [to][from], both counted from F64 on: the order of the enum. */
#define CAST_N (CKPT_F8_E5M2 - CKPT_F64 + 1)
static const ckpt_cast_fn cast_table[CAST_N][CAST_N] = {
    {cast_copy_8, cast_F64_F32, cast_F64_F16, cast_F64_BF16, cast_F64_F8_E4M3, cast_F64_F8_E5M2},
    {cast_F32_F64, cast_copy_4, cast_F32_F16, cast_F32_BF16, cast_F32_F8_E4M3, cast_F32_F8_E5M2},
    {cast_F16_F64, cast_F16_F32, cast_copy_2, cast_F16_BF16, cast_F16_F8_E4M3, cast_F16_F8_E5M2},
    {cast_BF16_F64, cast_BF16_F32, cast_BF16_F16, cast_copy_2, cast_BF16_F8_E4M3,
     cast_BF16_F8_E5M2},
    {cast_F8_E4M3_F64, cast_F8_E4M3_F32, cast_F8_E4M3_F16, cast_F8_E4M3_BF16, cast_copy_1,
     cast_F8_E4M3_F8_E5M2},
    {cast_F8_E5M2_F64, cast_F8_E5M2_F32, cast_F8_E5M2_F16, cast_F8_E5M2_BF16, cast_F8_E5M2_F8_E4M3,
     cast_copy_1},
};

ckpt_cast_fn ckpt_cast_find_portable(ckpt_dtype to, ckpt_dtype from)
{
    // unsigned, so that a dtype before F64 is out of range too
    unsigned row = (unsigned)to - CKPT_F64, column = (unsigned)from - CKPT_F64;

    if (row >= CAST_N || column >= CAST_N)
        return ckpt_cast_find_int(to, from);
    return cast_table[row][column];
}
