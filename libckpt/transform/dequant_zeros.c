/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequant_zeros.c: decodes the zero points of matrices in words, whose numbers have the layout of
 * the matrix.
 */
#include "libckpt/transform/dequant_words.h"

unsigned ckpt_words_across(uint64_t r)
{
    return (unsigned)(r % 2 * 16 + r % 8 / 2 * 4);
}

void ckpt_words_add_one(const ckpt_words *m, uint32_t *word, uint64_t n)
{
    uint32_t ones = m->bits == 8 ? 0x01010101u : m->bits == 4 ? 0x11111111u : 0x55555555u;

    for (uint64_t i = 0; m->bits != 3 && i < n; i++)
        word[i] += ones;
}

float ckpt_words_zero(const ckpt_words *m, const uint32_t *word, uint64_t r)
{
    uint32_t z = m->layout == CKPT_WORDS_ACROSS ? word[r / 8] >> ckpt_words_across(r) & 15
                                                : ckpt_dequant_number(word, m->bits, r);

    return (float)(int)(m->less_one && m->bits == 3 ? (z + 1) & 7 : z);
}
