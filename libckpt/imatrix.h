/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imatrix.h: reads importance matrices of llama.cpp (llama-imatrix).
 *
 * GGUF: of each weight X the tensors X.in_sum2 (sums of the squares of its inputs: columns,
 * matrices) and X.counts (one for each matrix); keys imatrix.datasets, .chunk_count, .chunk_size.
 * The older form, little-endian:
 *
 *     i32 n_entries | entries | i32 chunks | i32 n, n bytes: the dataset
 *     entry:  i32 n, n bytes: the weight | i32 calls | i32 n | n F32: means, times calls
 *
 * The last two members may be absent. Source: llama.cpp's common/imatrix-loader.cpp and
 * tools/quantize/quantize.cpp, of 2026.
 */
#ifndef CKPT_IMATRIX_H
#define CKPT_IMATRIX_H

#include "libckpt/map/map.h"

/*
 * Read an importance matrix (llama-imatrix): for each weight, the mean squares of its inputs by
 * column. *out has a tensor for each weight; its member `importance` has the numbers. The keys
 * quantize.imatrix.* of *out go into the files that are quantized with it.
 *
 * Errors   CKPT_EFORMAT: damaged, or another kind of file; CKPT_EUNSUPPORTED; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_imatrix_open(ckpt_map **out, const char *path, ckpt_err *err);

#endif
