/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_row.c: quantizes rows with the importance of each column.
 *
 * Blocks of 32 are weighed by the mean square of their row, super-blocks by their own (quant_k.c).
 * Sources: ggml-quants.c, quantize_row_q4_0_impl and its variants.
 */
#include "libckpt/base/quant_row.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { QR_BLOCK = 32, QR_MANY = QR_BLOCK * CKPT_QK_LANES };

/* Adjacent blocks of a row, with a weight for each value. */
typedef struct qr_blocks {
    float x[QR_MANY], w[QR_MANY];
} qr_blocks;

/*
 * Store a block: its scale, its minimum unless NULL, and its levels of four bits (most 15) or five.
 */
static void qr_put(uint8_t *to, float scale, const float *low, const uint8_t *level, int most)
{
    ckpt_half_put(to, scale);
    to += 2;
    if (low) {
        ckpt_half_put(to, -*low);
        to += 2;
    }
    ckpt_quant_pack(most == 15 ? to : to + 4, most == 15 ? NULL : to, level);
}

/* Quantize n blocks, at most CKPT_QK_LANES. */
static void qr_blocks_of(ckpt_dtype type, const ckpt_qk_body *body, uint8_t *to, const qr_blocks *b,
                         size_t n)
{
    const int most = type == CKPT_Q4_0 || type == CKPT_Q4_1 ? 15 : 31;
    const size_t bytes = ckpt_dtype_get(type)->bytes;

    if (type == CKPT_Q4_0 || type == CKPT_Q5_0) {
        const ckpt_qk_around search = {QR_BLOCK, (most + 1) / 2};
        uint8_t level[QR_MANY];
        float scale[CKPT_QK_LANES];

        body->fit_sym(&search, b->x, b->w, scale, level);
        for (size_t i = 0; i < n; i++)
            qr_put(to + i * bytes, scale[i], NULL, level + i * QR_BLOCK, most);
    } else {
        const ckpt_qk_search search = {QR_BLOCK, most, -0.9f, 0.05f, 36, false};
        ckpt_qk_run run[CKPT_QK_LANES];

        body->fit_min(&search, b->x, b->w, run);
        for (size_t i = 0; i < n; i++)
            qr_put(to + i * bytes, run[i].scale, &run[i].low, run[i].level, most);
    }
}

void ckpt_quant_row(ckpt_dtype type, const ckpt_qk_body *body, void *restrict dst,
                    const float *restrict x, const float *restrict importance, size_t n_elems)
{
    assert(n_elems > 0 && n_elems % ckpt_dtype_get(type)->per == 0);
    const size_t bytes = ckpt_dtype_get(type)->bytes;
    float squares = 0;

    if (ckpt_dtype_get(type)->per != QR_BLOCK) {
        ckpt_quant_k(type, body, dst, x, importance, n_elems);
        return;
    }
    for (size_t i = 0; i < n_elems; i++)
        squares += x[i] * x[i];
    squares /= (float)n_elems;
    for (size_t i = 0; i < n_elems; i += QR_MANY) {
        const size_t n = n_elems - i < QR_MANY ? n_elems - i : QR_MANY;
        qr_blocks b = {.x = {0}, .w = {0}};

        memcpy(b.x, x + i, n * sizeof *x);
        for (size_t k = 0; k < n; k++)
            b.w[k] = importance[i + k] * sqrtf(squares + x[i + k] * x[i + k]);
        qr_blocks_of(type, body, (uint8_t *)dst + i / QR_BLOCK * bytes, &b, n / QR_BLOCK);
    }
}
