/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.c: owns the counter-based generator and what is drawn with it.
 */
#include "engine/device/philox.h"

#include <math.h>

#include "engine/device/vmath.h"

#define PX_ROUNDS 10u

/* The paper's multipliers, and what is added to the key after each round (golden ratio, sqrt(3) -
 * 1). */
#define PX_MUL_0 0xD2511F53u
#define PX_MUL_1 0xCD9E8D57u
#define PX_ADD_0 0x9E3779B9u
#define PX_ADD_1 0xBB67AE85u

/* Blocks computed side by side, and their words. */
#define PX_SIDE  16u
#define PX_WORDS (4u * PX_SIDE)

/* Last word of the counter for normal values. */
enum { PX_NORMAL = 1 };

void zt_philox(uint32_t out[4], const uint32_t key[2], const uint32_t counter[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};

    for (uint32_t round = 0; round < PX_ROUNDS; round++) {
        const uint64_t a = (uint64_t)PX_MUL_0 * c[0];
        const uint64_t b = (uint64_t)PX_MUL_1 * c[2];

        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ (key[0] + round * PX_ADD_0);
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ (key[1] + round * PX_ADD_1);
        c[3] = (uint32_t)a;
    }
    for (unsigned i = 0; i < 4; i++)
        out[i] = c[i];
}

typedef uint32_t px_u32 __attribute__((vector_size(64)));
typedef uint64_t px_u64 __attribute__((vector_size(64)));

/* high and low 32 bits of c * by: products of the even lanes, and of the odd ones. */
ZT_INLINE void px_multiply(const px_u32 *c, uint64_t by, px_u32 *high, px_u32 *low)
{
    const px_u64 c64 = (px_u64)*c;
    const px_u64 even = (c64 & UINT32_MAX) * by, odd = (c64 >> 32) * by;

    *high = (px_u32)((even >> 32) | (odd & ~(uint64_t)UINT32_MAX));
    *low = (px_u32)((even & UINT32_MAX) | (odd << 32));
}

/* Words of PX_SIDE blocks in a row, the first with counter `block`. */
ZT_INLINE void px_blocks(uint64_t seed, uint64_t block, uint32_t out[PX_WORDS])
{
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    // lanes are blocks; `block` is a multiple of PX_SIDE, so the lower word does not overflow
    px_u32 c[4] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {0}, {0}, {0}};

    c[0] += (uint32_t)block;
    c[1] += (uint32_t)(block >> 32);
    for (unsigned round = 0; round < PX_ROUNDS; round++) {
        px_u32 high_a, low_a, high_b, low_b;

        px_multiply(&c[0], PX_MUL_0, &high_a, &low_a);
        px_multiply(&c[2], PX_MUL_1, &high_b, &low_b);
        c[0] = high_b ^ c[1] ^ key_0;
        c[1] = low_b;
        c[2] = high_a ^ c[3] ^ key_1;
        c[3] = low_a;
        key_0 += PX_ADD_0;
        key_1 += PX_ADD_1;
    }
    memcpy(out, c, sizeof c);
}

/*
 * Elements of one group of PX_WORDS that lie in first .. last; *from is the first of them in the
 * group, the return value their number.
 */
static unsigned px_part(uint64_t group, uint64_t first, uint64_t last, unsigned *from)
{
    const uint64_t start = group * PX_WORDS;
    const uint64_t rest = last - start;

    *from = start < first ? (unsigned)(first - start) : 0;
    return (rest < PX_WORDS ? (unsigned)rest : PX_WORDS) - *from;
}

ZT_CLONES void zt_philox_words(uint64_t seed, uint64_t first, uint64_t n, uint32_t *out)
{
    uint32_t words[PX_WORDS];

    for (uint64_t i = 0; i < n;) {
        const uint64_t group = (first + i) / PX_WORDS;
        unsigned from;
        const unsigned count = px_part(group, first + i, first + n, &from);

        px_blocks(seed, group * PX_SIDE, words);
        memcpy(out + i, words + from, count * sizeof *out);
        i += count;
    }
}

ZT_CLONES void zt_philox_keep(uint64_t seed, float p, uint64_t first, uint64_t n, float *out)
{
    // u >= p for u = (word >> 8) / 2^24; p 2^24 is exact, and so is the comparison of integers
    const int32_t least = (int32_t)ceilf(p * 0x1p+24F);
    const float factor = p < 1.0F ? (float)(1.0 / (1.0 - (double)p)) : 0.0F;
    uint32_t words[PX_WORDS];
    float keep[PX_WORDS];

    for (uint64_t i = 0; i < n;) {
        const uint64_t group = (first + i) / PX_WORDS;
        unsigned from;
        const unsigned count = px_part(group, first + i, first + n, &from);

        px_blocks(seed, group * PX_SIDE, words);
        for (unsigned w = 0; w < PX_WORDS; w++)
            keep[w] = (int32_t)(words[w] >> 8) >= least ? factor : 0.0F;
        memcpy(out + i, keep + from, count * sizeof *out);
        i += count;
    }
}

/* A pair of independent normal values made from one block. */
static void px_pair(uint64_t seed, uint64_t pair, double out[2])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), 0, PX_NORMAL};
    uint32_t w[4];

    zt_philox(w, key, counter);
    // 53 bits each: the first in (0, 1], so that its logarithm is finite, the second in [0, 1)
    const double u = ((double)(w[0] >> 5) * 0x1p26 + (double)(w[1] >> 6) + 1.0) * 0x1p-53;
    const double v = ((double)(w[2] >> 5) * 0x1p26 + (double)(w[3] >> 6)) * 0x1p-53;
    const double radius = sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

void zt_philox_normal(uint64_t seed, double std, uint64_t first, uint64_t n, float *out)
{
    double pair[2] = {0, 0};

    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = first + i;

        if (i == 0 || at % 2 == 0)
            px_pair(seed, at / 2, pair);
        out[i] = (float)(std * pair[at % 2]);
    }
}
