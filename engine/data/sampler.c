/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.c: computes a permutation of samples one index at a time, without a table.
 *
 * It is a Feistel network over the smallest even number of bits that holds n, applied again until
 * the result is below n (cycle walking, Black & Rogaway 2002): a bijection for every key.  It is
 * equal on every rank, and a rank can start at any index.
 */
#include <assert.h>

#include "engine/data/source.h"

#define SP_ROUNDS 6

uint64_t zt_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* One pass of the network over 2 * half bits. */
static uint64_t sp_permute(uint64_t x, unsigned half, uint64_t key)
{
    uint64_t mask = (UINT64_C(1) << half) - 1, left = x >> half, right = x & mask;

    for (uint64_t r = 0; r < SP_ROUNDS; r++) {
        uint64_t next = left ^ (zt_mix(right + key + r * UINT64_C(0x9e3779b97f4a7c15)) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t zt_sample_at(uint64_t n, uint64_t i, uint64_t seed, uint64_t epoch, bool shuffle)
{
    uint64_t key = zt_mix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ zt_mix(epoch * 2 + 1), x = i;
    unsigned half = 1;

    assert(i < n);
    if (!shuffle || n < 2)
        return i;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n)
        half++;
    do
        x = sp_permute(x, half, key);
    while (x >= n);
    return x;
}
