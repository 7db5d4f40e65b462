/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weigh.c: converts rows of floats to quantized blocks, through F32, with their importance.
 */
#include "libckpt/base/weigh.h"

#include <assert.h>

#include "libckpt/base/cast.h"
#include "libckpt/base/mem.h"
#include "libckpt/base/quant_row.h"

bool ckpt_dtype_weighs(ckpt_dtype type)
{
    return type != CKPT_Q8_0 && type >= CKPT_Q4_0 && type <= CKPT_Q6_K;
}

bool ckpt_weigh(const ckpt_weighing *how, void *restrict dst, const void *restrict src,
                uint64_t n_elems)
{
    assert(ckpt_dtype_weighs(how->to) && how->by->of && how->by->columns > 0);
    assert(how->first % how->by->columns == 0 && n_elems % how->by->columns == 0);
    const uint64_t columns = how->by->columns, first = how->first / columns;
    const ckpt_cast_fn wide = ckpt_cast_find(CKPT_F32, how->from);
    const ckpt_qk_body *body = ckpt_qk_body_at(0);
    uint64_t n_from = 0, n_to = 0;
    float *row = ckpt_alloc((size_t)columns * sizeof *row);

    if (!row || !wide || !ckpt_dtype_bytes(how->from, columns, &n_from) ||
        !ckpt_dtype_bytes(how->to, columns, &n_to)) {
        ckpt_free(row);
        return false;
    }
    for (uint64_t i = 0; i < n_elems / columns; i++) {
        wide(row, (const uint8_t *)src + i * n_from, (size_t)columns);
        ckpt_quant_row(how->to, body, (uint8_t *)dst + i * n_to, row,
                       how->by->of + (first + i) / how->by->rows * columns, (size_t)columns);
    }
    ckpt_free(row);
    return true;
}
