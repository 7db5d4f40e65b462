/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_bits.h: loads and stores elements of 1, 2, 4 or 8 bytes. Private to base/.
 */
#ifndef CKPT_BASE_CAST_BITS_H
#define CKPT_BASE_CAST_BITS_H

#include <stdint.h>
#include <string.h>

#define CAST_INLINE static inline __attribute__((always_inline))

/* One element at p, which need not be aligned; `bytes` is a constant after inlining. */
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

/* Store the low bytes of v as one element at p. */
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

#endif
