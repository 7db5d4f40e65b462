/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.h: random numbers that depend on a key and a position alone, so that any thread or rank
 * can draw any part of them again.
 *
 * Source  Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 *         SC 2011.  The known answers of its authors are in tests/unit/engine/device/test_philox.c.
 *
 * Streams: block b of a seed has the counter {b low, b high, 0, 0}.  16 blocks make 64 elements,
 * word by word: element i is word i % 64 / 16 of block i / 64 * 16 + i % 16.  Normal values come
 * from blocks of their own, with 1 as the last word of the counter.
 */
#ifndef ZT_DEVICE_PHILOX_H
#define ZT_DEVICE_PHILOX_H

#include <stdint.h>

/* One block: out = bijection of the counter under the key. */
void zt_philox(uint32_t out[4], const uint32_t key[2], const uint32_t counter[4]);

/* Words of elements first .. first + n. */
void zt_philox_words(uint64_t seed, uint64_t first, uint64_t n, uint32_t *out);

/* A word as a number in [0, 1): its upper 24 bits. */
static inline float zt_philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24F;
}

/*
 * Dropout: keep element i where the uniform number of its word is not below p.
 *
 * out  n factors of elements first .. first + n: 1 / (1 - p), or 0 for what is dropped
 * p    in [0, 1]
 */
void zt_philox_keep(uint64_t seed, float p, uint64_t first, uint64_t n, float *out);

/* Normal values of mean 0: elements first .. first + n of the seed (Box and Muller 1958, in
 * double). */
void zt_philox_normal(uint64_t seed, double std, uint64_t first, uint64_t n, float *out);

#endif
