/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_count.c: counts values that are not finite or did not fit another dtype, and changes signs
 * and the order of bytes.
 */
#include <assert.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/cast_bits.h"
#include "libckpt/base/cast_x86.h"

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
    {CKPT_F64, 8, true, ~(1ull << 63), 0, 0x7ffull << 52},
    {CKPT_F32, 4, true, 0x7fffffff, 0, 0x7f800000},
    {CKPT_F16, 2, true, 0x7fff, 0, 0x7c00},
    {CKPT_BF16, 2, true, 0x7fff, 0, 0x7f80},
    {CKPT_F8_E4M3, 1, false, 0x7f, 0, 0x7e},
    {CKPT_F8_E5M2, 1, true, 0x7f, 0, 0x7c},
    {CKPT_F8_E4M3FNUZ, 1, false, 0xff, 0x7f, 0xfe}, // the only NaN is 0x80, "minus zero"
    {CKPT_F8_E5M2FNUZ, 1, false, 0xff, 0x7f, 0xfe},
    {CKPT_F8_E8M0, 1, false, 0xff, 0, 0xfe},
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

/* ---- blocks ---- */

/* Where blocks of ggml have their half-precision scales: ggml-common.h's structs. */
typedef struct cast_scales {
    ckpt_dtype dtype;
    uint8_t n; /* number of scales */
    uint16_t at[2];
} cast_scales;

static const cast_scales cast_blocks[] = {
    {CKPT_Q4_0, 1, {0}},    {CKPT_Q4_1, 2, {0, 2}}, {CKPT_Q5_0, 1, {0}},
    {CKPT_Q5_1, 2, {0, 2}}, {CKPT_Q8_0, 1, {0}},    {CKPT_Q2_K, 2, {80, 82}},
    {CKPT_Q3_K, 1, {108}},  {CKPT_Q4_K, 2, {0, 2}}, {CKPT_Q5_K, 2, {0, 2}},
    {CKPT_Q6_K, 1, {208}},  {CKPT_IQ2_XXS, 1, {0}}, {CKPT_IQ2_XS, 1, {0}},
    {CKPT_IQ2_S, 1, {0}},   {CKPT_IQ3_XXS, 1, {0}}, {CKPT_IQ3_S, 1, {0}},
    {CKPT_IQ1_S, 1, {0}},   {CKPT_IQ4_NL, 1, {0}},  {CKPT_IQ4_XS, 1, {0}},
    {CKPT_TQ1_0, 1, {52}},  {CKPT_TQ2_0, 1, {64}},  {CKPT_Q1_0, 1, {0}},
};

static const cast_scales *cast_scales_of(ckpt_dtype d)
{
    for (size_t i = 0; i < sizeof cast_blocks / sizeof *cast_blocks; i++) {
        if (cast_blocks[i].dtype == d)
            return &cast_blocks[i];
    }
    return NULL;
}

/* The kind of a block's elements, by its scales: 0 finite, 1 infinite, 2 NaN. */
static int cast_block(const cast_scales *s, const unsigned char *block)
{
    int worst = 0;

    for (unsigned i = 0; i < s->n; i++) {
        uint64_t v = cast_load(block + s->at[i], 2) & 0x7fff;
        int is = v > 0x7c00 ? 2 : v == 0x7c00;

        worst = is > worst ? is : worst;
    }
    return worst;
}

/* Count the elements of blocks with such scales. */
static void cast_count_blocks(const cast_scales *s, const unsigned char *p, size_t n_elems,
                              uint64_t found[2])
{
    const ckpt_dtype_info *info = ckpt_dtype_get(s->dtype);

    for (size_t i = 0; i < n_elems / info->per; i++, p += info->bytes) {
        int is = cast_block(s, p);

        if (is)
            found[is == 1] += info->per;
    }
}

/*
 * Count the elements of MXFP4 that exceed F32: codes of E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6) times
 * 2^(exponent - 127), where only the three highest exponents reach 2^128. OCP's specification calls
 * the highest one NaN, but ggml and transformers compute with it.
 */
static uint64_t cast_count_mxfp4(const unsigned char *p, size_t n_elems)
{
    static const uint8_t first[] = {6, 4, 2}; // the lowest infinite code, for 253, 254 and 255
    const ckpt_dtype_info *info = ckpt_dtype_get(CKPT_MXFP4);
    uint64_t n_inf = 0;

    for (size_t i = 0; i < n_elems / info->per; i++, p += info->bytes) {
        for (unsigned k = 1; p[0] >= 253 && k < info->bytes; k++) {
            n_inf += (p[k] & 7) >= first[p[0] - 253];
            n_inf += (p[k] >> 4 & 7) >= first[p[0] - 253];
        }
    }
    return n_inf;
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
    const cast_scales *scales = cast_scales_of(d);
    uint64_t found[2] = {0, 0};

    if (scales)
        cast_count_blocks(scales, p, n_elems, found);
    if (d == CKPT_MXFP4)
        found[1] += cast_count_mxfp4(p, n_elems);
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
    const unsigned bits = ckpt_dtype_get(d)->bits;
    uint64_t found = 0;
    size_t done = ckpt_zeros_x86(bits, p, n, &found);
    const unsigned char *at = (const unsigned char *)p + done * bits / 8;

    n -= done;
    switch (bits) {
    case 64:
        return found + cast_zeros(at, 8, n);
    case 32:
        return found + cast_zeros(at, 4, n);
    case 16:
        return found + cast_zeros(at, 2, n);
    default:
        return found + cast_zeros(at, 1, n);
    }
}

/* Count elements that E4M3 cannot hold: those above 464 round to its largest number, 448. */
static uint64_t cast_count_saturated(ckpt_dtype from, const void *src, size_t n)
{
    static const double limit = 464;
    ckpt_cast_fn wide = ckpt_cast_find(CKPT_F64, from);
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

enum { CAST_BLOCK_MOST = 256 }; /* elements of the largest block */

/* True if a block's scales are 0, and so all its elements. */
static bool cast_is_void(const cast_scales *s, const unsigned char *block)
{
    uint64_t any = 0;

    for (unsigned i = 0; i < s->n; i++)
        any |= cast_load(block + s->at[i], 2) & 0x7fff;
    return any == 0;
}

/* True if an element is so large that the scale of its block cannot round to 0. */
static bool cast_is_large(ckpt_dtype from, const unsigned char *src, size_t n)
{
    static const float limit = 0x1p-10f;
    float x[CAST_BLOCK_MOST];
    bool large = false;

    ckpt_cast_find(CKPT_F32, from)(x, src, n);
    for (size_t i = 0; i < n; i++)
        large = large || x[i] > limit || x[i] < -limit;
    return large;
}

/*
 * Count the elements of blocks whose scale became infinite, NaN or 0 although the source elements
 * are finite.
 */
static void cast_lost_blocks(ckpt_lost *sum, const cast_scales *s, ckpt_dtype from,
                             const unsigned char *dst, const unsigned char *src, size_t n_elems)
{
    const ckpt_dtype_info *to = ckpt_dtype_get(s->dtype), *own = ckpt_dtype_get(from);

    assert(to->per <= CAST_BLOCK_MOST);
    for (size_t i = 0; i < n_elems / to->per; i++) {
        const unsigned char *block = src + i * to->per * own->bytes;
        const bool over = cast_block(s, dst + i * to->bytes);
        uint64_t before[2] = {0};

        if (!over && !cast_is_void(s, dst + i * to->bytes))
            continue;
        ckpt_count_nonfinite(from, block, to->per, &before[0], &before[1]);
        if (before[0] + before[1] > 0)
            continue;
        if (over)
            sum->n_over += to->per;
        else if (cast_is_large(from, block, to->per))
            sum->n_void += to->per;
    }
}

/* True if an element is not zero; the search ends at the first. */
static bool cast_live(ckpt_dtype d, const unsigned char *p, size_t n)
{
    const ckpt_dtype_info *info = ckpt_dtype_get(d);
    const size_t some = info->per > 1 ? info->per : CAST_ZERO_BLOCK;
    const ckpt_cast_fn plain = info->per > 1 ? ckpt_cast_find(CKPT_F32, d) : NULL;
    float x[CAST_BLOCK_MOST];

    assert(info->per <= CAST_BLOCK_MOST);
    for (size_t at = 0; at < n; at += some) {
        const size_t m = n - at < some ? n - at : some;
        const unsigned char *from = p + at / info->per * info->bytes;

        if (plain)
            plain(x, from, m);
        if (plain ? cast_count_zeros(CKPT_F32, x, m) < m : cast_count_zeros(d, from, m) < m)
            return true;
    }
    return false;
}

void ckpt_count_lost(ckpt_lost *sum, ckpt_dtype to, ckpt_dtype from, const void *dst,
                     const void *src, size_t n_elems)
{
    assert(sum && ((dst && src) || n_elems == 0));
    uint64_t before[2] = {0}, after[2] = {0};
    const ckpt_dtype_info *a = ckpt_dtype_get(from), *b = ckpt_dtype_get(to);

    const cast_scales *scales = a->per == 1 && a->kind == CKPT_IS_FLOAT ? cast_scales_of(to) : NULL;
    if (scales)
        cast_lost_blocks(sum, scales, from, dst, src, n_elems);
    if (a->per == 1 && a->kind == CKPT_IS_FLOAT && (scales || b->kind == CKPT_IS_FLOAT)) {
        sum->n_live_before += cast_live(from, src, n_elems);
        sum->n_live += cast_live(to, dst, n_elems);
    }
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
