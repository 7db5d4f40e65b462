/* SPDX-License-Identifier: Apache-2.0 */
/*
 * philox.h: declares random numbers that depend on a key and a position alone, so any thread or
 * rank can compute any part of them again.
 *
 * Source  Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 *         SC 2011, by its authors' header (Random123).
 *
 * Streams: block b of a seed has the counter {b low, b high, 0, 0}. 16 blocks make 64 elements,
 * word by word: element i is word i % 64 / 16 of block i / 64 * 16 + i % 16.  Normal values come
 * from blocks of their own, with 1 as the last word of the counter, uniform ones with 2.
 */
#ifndef ZT_DEVICE_PHILOX_H
#define ZT_DEVICE_PHILOX_H

#include <stdint.h>

/*
 * Dropout: keep element i if the upper 24 bits of its word, as a number in [0, 1), are at least p.
 *
 * out  n factors of elements first .. first + n: 1 / (1 - p), or 0 for dropped ones
 * p    in [0, 1]
 */
void zt_philox_keep(uint64_t seed, float p, uint64_t first, uint64_t n, float *out);

/* Normal values with mean 0: elements first .. first + n of the seed (Box and Muller 1958, in
 * double). */
void zt_philox_normal(uint64_t seed, double std, uint64_t first, uint64_t n, float *out);

/* A uniform value in [0, 1), of 53 bits: element i of the seed. */
double zt_philox_uniform(uint64_t seed, uint64_t i);

#endif
