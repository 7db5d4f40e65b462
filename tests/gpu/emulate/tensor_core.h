/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_core.h: the instructions by which kernels use tensor cores, for the emulation:
 * mma.m16n8k16, ldmatrix.x4, and cp.async, which feeds them (async_copy.cpp).
 *
 * Which lane holds which element is what the PTX ISA says at these instructions ("Matrix fragments
 * for mma.m16n8k16", "ldmatrix").  What the hardware demands of addresses is checked.  Sums are
 * formed in the order of k and rounded to nearest; the hardware promises neither.
 */
#ifndef ZT_EMULATE_TENSOR_CORE_H
#define ZT_EMULATE_TENSOR_CORE_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

static inline float zt_emu_number(__half, uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

static inline float zt_emu_number(__nv_bfloat16, uint16_t bits)
{
    return __bfloat162float(__ushort_as_bfloat16(bits));
}

struct zt_emu_product {
    float *c;
    const uint32_t *a, *b;
};

/* The warp's operands as whole matrices, their product, and the lanes' shares of it. */
template <typename T> static void zt_emu_multiply(void **args, unsigned mask)
{
    float a[16][16], b[16][8];
    if (mask != 0xffffffffu)
        zt_emu_die("mma: not all lanes of the warp are there");
    for (unsigned lane = 0; lane < 32; lane++) {
        const zt_emu_product *p = (const zt_emu_product *)args[lane];
        unsigned group = lane / 4, in_group = lane % 4;
        for (unsigned i = 0; i < 8; i++) {
            unsigned row = group + (i / 2 % 2 ? 8 : 0), k = in_group * 2 + i % 2 + (i >= 4 ? 8 : 0);
            a[row][k] = zt_emu_number(T(), (uint16_t)(p->a[i / 2] >> 16 * (i % 2)));
        }
        for (unsigned i = 0; i < 4; i++) {
            unsigned k = in_group * 2 + i % 2 + (i >= 2 ? 8 : 0);
            b[k][group] = zt_emu_number(T(), (uint16_t)(p->b[i / 2] >> 16 * (i % 2)));
        }
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        const zt_emu_product *p = (const zt_emu_product *)args[lane];
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
            float sum = p->c[i];
            for (unsigned k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            p->c[i] = sum;
        }
    }
}

/* c += a b. */
template <typename T>
static inline void zt_emu_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const uint32_t b[2] = {b0, b1};
    zt_emu_product p = {c, a, b};
    zt_emu_warp(0xffffffffu, &p, zt_emu_multiply<T>);
}

struct zt_emu_pieces {
    const uint16_t *row; /* of piece lane / 8 */
    uint32_t *to;
    bool turned;
};

static inline void zt_emu_take_pieces(void **args, unsigned mask)
{
    if (mask != 0xffffffffu)
        zt_emu_die("ldmatrix: not all lanes of the warp are there");
    for (unsigned lane = 0; lane < 32; lane++) {
        const zt_emu_pieces *mine = (const zt_emu_pieces *)args[lane];
        for (unsigned i = 0; i < 8; i++) {
            unsigned row = lane / 4, column = lane % 4 * 2 + i % 2, piece = i / 2;
            if (mine->turned) {
                row = column;
                column = lane / 4;
            }
            uint32_t x = ((const zt_emu_pieces *)args[piece * 8 + row])->row[column];
            mine->to[piece] = i % 2 ? mine->to[piece] | x << 16 : x;
        }
    }
}

/* Four 8 x 8 pieces of 16-bit numbers; lane l gives the place of row l % 8 of piece l / 8. */
static inline void zt_emu_ldmatrix(uint32_t (&to)[4], const void *row, bool turned)
{
    if ((uintptr_t)row % 16 != 0)
        zt_emu_die("ldmatrix: a row's address is no multiple of 16 bytes");
    zt_emu_pieces p = {(const uint16_t *)row, to, turned};
    zt_emu_warp(0xffffffffu, &p, zt_emu_take_pieces);
}

/* ---- copies (async_copy.cpp) ---- */

/* Go on after all threads of the block that can go on have come to where they wait (emulate.cpp).
 */
void zt_emu_later(void);

/* Begin to copy 16 bytes, or zeros if !there, to shared memory. */
void zt_emu_copy16(void *to, const void *from, bool there);

/* This thread's copies so far are one batch more. */
void zt_emu_copy_batch(void);

/* Wait for this thread's batches, but for the latest ones. */
void zt_emu_copy_wait(unsigned but);

/* The thread ends. */
void zt_emu_copy_end(void);

#endif
