/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quant_row.h: quantizes rows with the importance of each column, bit for bit as ggml. Private to
 * base/.
 */
#ifndef CKPT_BASE_QUANT_ROW_H
#define CKPT_BASE_QUANT_ROW_H

#include "libckpt/base/quant_k.h"

/*
 * Quantize a complete row of n_elems values to a type that ckpt_dtype_weighs (weigh.h).
 *
 * importance   of each value: finite, and at least 0
 */
void ckpt_quant_row(ckpt_dtype type, const ckpt_qk_body *body, void *restrict dst,
                    const float *restrict x, const float *restrict importance, size_t n_elems);

#endif
