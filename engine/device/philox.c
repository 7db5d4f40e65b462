/* SPDX-License-Identifier: Apache-2.0 */
/* philox.c: computes dropout masks and normal values from Random123's counter-based generator. */
#include "engine/device/philox.h"

#include <math.h>

#include "engine/device/formulas.h"

/* Number of blocks computed side by side, and of their words. */
#define PX_SIDE  16u
#define PX_WORDS (4u * PX_SIDE)

/* Last word of the counter for normal and uniform values. */
enum { PX_NORMAL = 1, PX_UNIFORM };

/* Words of PX_SIDE consecutive blocks; compilers compute the blocks side by side. */
ZT_INLINE void px_blocks(uint64_t seed, uint64_t block, uint32_t out[PX_WORDS])
{
    for (uint32_t i = 0; i < PX_SIDE; i++) {
        const philox4x32_ctr_t word = zt_philox_block(seed, block + i, 0);

        for (unsigned k = 0; k < 4; k++)
            out[k * PX_SIDE + i] = word.v[k];
    }
}

/*
 * The elements of one group of PX_WORDS that lie in first .. last: *from is the index of the first
 * in the group, the return value their number.
 */
static unsigned px_part(uint64_t group, uint64_t first, uint64_t last, unsigned *from)
{
    const uint64_t start = group * PX_WORDS;
    const uint64_t rest = last - start;

    *from = start < first ? (unsigned)(first - start) : 0;
    return (rest < PX_WORDS ? (unsigned)rest : PX_WORDS) - *from;
}

ZT_CLONES void zt_philox_keep(uint64_t seed, float p, uint64_t first, uint64_t n, float *out)
{
    const zt_keep k = zt_keep_of(p);
    uint32_t words[PX_WORDS];
    float keep[PX_WORDS];

    for (uint64_t i = 0; i < n;) {
        const uint64_t group = (first + i) / PX_WORDS;
        unsigned from;
        const unsigned count = px_part(group, first + i, first + n, &from);

        px_blocks(seed, group * PX_SIDE, words);
        for (unsigned w = 0; w < PX_WORDS; w++)
            keep[w] = (int32_t)(words[w] >> 8) >= k.least ? k.factor : 0.0F;
        memcpy(out + i, keep + from, count * sizeof *out);
        i += count;
    }
}

/* Two independent normal values from one block. */
static void px_pair(uint64_t seed, uint64_t pair, double out[2])
{
    const philox4x32_ctr_t block = zt_philox_block(seed, pair, PX_NORMAL);
    const uint32_t *w = block.v;

    // 53 bits each: u is in (0, 1], so its logarithm is finite; v is in [0, 1)
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

double zt_philox_uniform(uint64_t seed, uint64_t i)
{
    const philox4x32_ctr_t block = zt_philox_block(seed, i, PX_UNIFORM);

    return ((double)(block.v[0] >> 5) * 0x1p26 + (double)(block.v[1] >> 6)) * 0x1p-53;
}
