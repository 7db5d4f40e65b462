/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c: converts between floating dtypes in integer code, and has the searches and changes that
 * depend on the bits of a float.
 *
 * Every pair goes source -> bits of an F64 -> destination. The first step is exact (F64 holds every
 * value of the narrower formats), so only the second rounds. Integer code does not depend on the
 * thread's rounding mode or on "flush to zero", and a NaN keeps its sign and the upper bits of its
 * payload and becomes quiet, as IEEE 754 requires. Only BF16 to F32 is a plain shift, also for
 * signalling NaNs, as in torch. Sources: IEEE 754-2019; "FP8 formats for deep learning" (OCP, E4M3
 * and E5M2); compared with torch's conversions on all 16-bit patterns.
 */
#include <assert.h>

#include "libckpt/base/cast.h"

#include <string.h>

#include "libckpt/base/cast_int.h"
#include "libckpt/base/cast_plain.h"
#include "libckpt/base/cast_x86.h"

#define CAST_INLINE static inline __attribute__((always_inline))

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

/* One element at p, which need not be aligned. */
CAST_INLINE uint64_t cast_load(const unsigned char *p, unsigned bytes)
{
    uint64_t v8;
    uint32_t v4;
    uint16_t v2;

    switch (bytes) {
    case 8:
        memcpy(&v8, p, 8);
        return v8;
    case 4:
        memcpy(&v4, p, 4);
        return v4;
    case 2:
        memcpy(&v2, p, 2);
        return v2;
    default:
        return *p;
    }
}

CAST_INLINE void cast_store(unsigned char *p, unsigned bytes, uint64_t v)
{
    uint32_t v4 = (uint32_t)v;
    uint16_t v2 = (uint16_t)v;

    switch (bytes) {
    case 8:
        memcpy(p, &v, 8);
        break;
    case 4:
        memcpy(p, &v4, 4);
        break;
    case 2:
        memcpy(p, &v2, 2);
        break;
    default:
        *p = (unsigned char)v;
        break;
    }
}

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

ckpt_cast_fn ckpt_cast_plain(ckpt_dtype to, ckpt_dtype from)
{
    ckpt_cast_fn fast = ckpt_cast_find_x86(to, from);

    return fast ? fast : ckpt_cast_find_portable(to, from);
}

/*
 * The test for values that are not finite: with v = (bits + add) & mask, NaN is v > last, infinity
 * is v == last if the format has one.
 */
typedef struct cast_special {
    ckpt_dtype dtype; /* dtype of one part, because a complex number has two */
    unsigned bytes;
    bool inf;
    uint64_t mask, add, last;
} cast_special;

static const cast_special cast_specials[] = {
    {CKPT_F64, 8, true, ~F64_SIGN, 0, F64_INF},     {CKPT_F32, 4, true, 0x7fffffff, 0, 0x7f800000},
    {CKPT_F16, 2, true, 0x7fff, 0, 0x7c00},         {CKPT_BF16, 2, true, 0x7fff, 0, 0x7f80},
    {CKPT_F8_E4M3, 1, false, 0x7f, 0, 0x7e},        {CKPT_F8_E5M2, 1, true, 0x7f, 0, 0x7c},
    {CKPT_F8_E4M3FNUZ, 1, false, 0xff, 0x7f, 0xfe}, // the only NaN is 0x80, "minus zero"
    {CKPT_F8_E5M2FNUZ, 1, false, 0xff, 0x7f, 0xfe}, {CKPT_F8_E8M0, 1, false, 0xff, 0, 0xfe},
};

/* The dtype of a complex number's parts; any other dtype is its own part. */
static ckpt_dtype cast_part(ckpt_dtype d)
{
    if (d == CKPT_C128)
        return CKPT_F64;
    if (d == CKPT_C64)
        return CKPT_F32;
    return d == CKPT_C32 ? CKPT_F16 : d;
}

/*
 * Count n elements of `parts` parts of `bytes` each (a constant after inlining); an element with
 * both NaN and infinity counts as NaN.
 */
CAST_INLINE void cast_count(const cast_special *s, unsigned bytes, const unsigned char *p, size_t n,
                            unsigned parts, uint64_t found[2])
{
    uint64_t n_nan = 0, n_inf = 0;

    for (size_t i = 0; i < n; i++) {
        bool nan = false, inf = false;

        for (unsigned k = 0; k < parts; k++, p += bytes) {
            uint64_t v = (cast_load(p, bytes) + s->add) & s->mask;

            nan |= v > s->last;
            inf |= v == s->last;
        }
        n_nan += nan;
        n_inf += s->inf && !nan && inf;
    }
    found[0] += n_nan;
    found[1] += n_inf;
}

/* Elements to examine singly before the fast search continues. */
#define CAST_COUNT_BLOCK 1024u

void ckpt_count_nonfinite(ckpt_dtype d, const void *p, size_t n_elems, uint64_t *n_nan,
                          uint64_t *n_inf)
{
    assert((p || n_elems == 0) && n_nan && n_inf);
    const unsigned char *at = p;
    ckpt_dtype part = cast_part(d);
    unsigned parts = part == d ? 1 : 2;
    const cast_special *s = NULL;
    uint64_t found[2] = {0, 0};

    for (size_t i = 0; i < sizeof cast_specials / sizeof *cast_specials; i++)
        s = cast_specials[i].dtype == part ? &cast_specials[i] : s;
    while (s && n_elems > 0) {
        // the number of skipped parts is even, so whole elements are skipped
        size_t skip = ckpt_finite_prefix_x86(part, at, n_elems * parts) / parts;
        size_t some = n_elems - skip < CAST_COUNT_BLOCK ? n_elems - skip : CAST_COUNT_BLOCK;

        at += skip * parts * s->bytes;
        switch (s->bytes) {
        case 8:
            cast_count(s, 8, at, some, parts, found);
            break;
        case 4:
            cast_count(s, 4, at, some, parts, found);
            break;
        case 2:
            cast_count(s, 2, at, some, parts, found);
            break;
        default:
            cast_count(s, 1, at, some, parts, found);
            break;
        }
        at += some * parts * s->bytes;
        n_elems -= skip + some;
    }
    *n_nan += found[0];
    *n_inf += found[1];
}

/* ---- losses of a conversion ---- */

/*
 * Elements of a block in which zeros are counted: a constant, so that compilers use wide registers.
 */
#define CAST_ZERO_BLOCK 64u

/* Count elements of `bytes` bytes (a constant after inlining) that are +0 or -0. */
CAST_INLINE uint64_t cast_zeros(const unsigned char *p, unsigned bytes, size_t n)
{
    const uint64_t top = (1ull << (8 * bytes - 1)) - 1;
    uint64_t found = 0;

    for (; n >= CAST_ZERO_BLOCK; n -= CAST_ZERO_BLOCK, p += CAST_ZERO_BLOCK * bytes) {
        uint64_t here = 0;

        for (size_t i = 0; i < CAST_ZERO_BLOCK; i++)
            here += (cast_load(p + i * bytes, bytes) & top) == 0;
        found += here;
    }
    for (size_t i = 0; i < n; i++)
        found += (cast_load(p + i * bytes, bytes) & top) == 0;
    return found;
}

static uint64_t cast_count_zeros(ckpt_dtype d, const void *p, size_t n)
{
    switch (ckpt_dtype_get(d)->bits) {
    case 64:
        return cast_zeros(p, 8, n);
    case 32:
        return cast_zeros(p, 4, n);
    case 16:
        return cast_zeros(p, 2, n);
    default:
        return cast_zeros(p, 1, n);
    }
}

/* Count elements that E4M3 cannot hold: those above 464 round to its largest number, 448. */
static uint64_t cast_count_saturated(ckpt_dtype from, const void *src, size_t n)
{
    static const double limit = 464;
    ckpt_cast_fn wide = ckpt_cast_plain(CKPT_F64, from);
    const unsigned char *at = src;
    size_t size = ckpt_dtype_get(from)->bits / 8u;
    uint64_t found = 0;
    double x[CAST_ZERO_BLOCK];

    while (n > 0) {
        size_t some = n < CAST_ZERO_BLOCK ? n : CAST_ZERO_BLOCK;

        wide(x, at, some);
        for (size_t i = 0; i < some; i++)
            found += x[i] > limit || x[i] < -limit;
        at += some * size;
        n -= some;
    }
    return found;
}

void ckpt_count_lost(ckpt_lost *sum, ckpt_dtype to, ckpt_dtype from, const void *dst,
                     const void *src, size_t n_elems)
{
    assert(sum && ((dst && src) || n_elems == 0));
    uint64_t before[2] = {0}, after[2] = {0};
    const ckpt_dtype_info *a = ckpt_dtype_get(from), *b = ckpt_dtype_get(to);

    // wider formats hold all numbers of narrower ones; block types have their own rounding
    if (to == from || a->per > 1 || b->per > 1 || b->bits > a->bits || a->kind != CKPT_IS_FLOAT ||
        b->kind != CKPT_IS_FLOAT)
        return;
    ckpt_count_nonfinite(from, src, n_elems, &before[0], &before[1]);
    ckpt_count_nonfinite(to, dst, n_elems, &after[0], &after[1]);
    if (to == CKPT_F8_E4M3)
        sum->n_over += cast_count_saturated(from, src, n_elems);
    else
        sum->n_over += after[1] - before[1];
    sum->n_zero += cast_count_zeros(to, dst, n_elems) - cast_count_zeros(from, src, n_elems);
}

void ckpt_swap_bytes(void *p, size_t n_bytes, unsigned unit)
{
    assert((p || n_bytes == 0) && unit > 0);
    unsigned char *at = p;

    if (unit < 2)
        return;
    for (; n_bytes >= unit; n_bytes -= unit, at += unit) {
        // the load is in the machine's order, so the upper bytes of the swapped word are the
        // element
        cast_store(at, unit, __builtin_bswap64(cast_load(at, unit)) >> (64 - 8 * unit));
    }
}

/*
 * Flip the sign of every step-th part, from part `first` on.
 *
 * Integers are negated modulo their width, as in torch. Dtypes without a sign (BOOL, bits, E8M0)
 * and packed ones do not change, because torch never sets its lazy bits on them.
 */
static void cast_flip(ckpt_dtype part, unsigned char *p, size_t n_parts, size_t first, size_t step)
{
    const ckpt_dtype_info *info = ckpt_dtype_get(part);
    unsigned bytes = info->bits / 8u;
    bool fnuz = part == CKPT_F8_E4M3FNUZ || part == CKPT_F8_E5M2FNUZ;
    bool whole = info->kind == CKPT_IS_INT || info->kind == CKPT_IS_UINT;
    uint64_t sign = bytes == 0 ? 0 : 1ull << (8 * bytes - 1);

    if (part == CKPT_F8_E8M0 || bytes == 0 || (!whole && info->kind != CKPT_IS_FLOAT))
        return;
    for (size_t i = first; i < n_parts; i += step) {
        uint64_t v = cast_load(p + i * bytes, bytes);
        // zero and NaN of the FNUZ formats have no other sign
        uint64_t flipped = fnuz && (v & ~sign) == 0 ? v : v ^ sign;

        cast_store(p + i * bytes, bytes, whole ? 0 - v : flipped);
    }
}

void ckpt_negate(ckpt_dtype d, void *p, size_t n_elems)
{
    assert(p || n_elems == 0);
    ckpt_dtype part = cast_part(d);

    cast_flip(part, p, part == d ? n_elems : 2 * n_elems, 0, 1);
}

void ckpt_conjugate(ckpt_dtype d, void *p, size_t n_elems)
{
    assert(p || n_elems == 0);
    if (ckpt_dtype_get(d)->kind == CKPT_IS_COMPLEX)
        cast_flip(cast_part(d), p, 2 * n_elems, 1, 2);
}
