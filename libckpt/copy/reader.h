/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader.h: reads values of single tensors into the caller's memory (public: see ckpt.h).
 */
#ifndef CKPT_COPY_READER_H
#define CKPT_COPY_READER_H

#include "libckpt/map/map.h"

typedef struct ckpt_reader ckpt_reader;

/* The public functions, documented in ckpt.h and ckpt_extra.h. */
CKPT_API int ckpt_tensor_read(const ckpt_map *map, const ckpt_tensor *t, ckpt_dtype dtype,
                              void *buf, ckpt_err *err);
CKPT_API int ckpt_reader_new(ckpt_reader **out, const ckpt_map *map, ckpt_err *err);
CKPT_API int ckpt_reader_read(ckpt_reader *r, const ckpt_tensor *t, uint64_t first, uint64_t count,
                              ckpt_dtype dtype, void *buf, ckpt_err *err);
CKPT_API int ckpt_reader_read_slice(ckpt_reader *r, const ckpt_tensor *t, const ckpt_slice *part,
                                    ckpt_dtype dtype, void *buf, ckpt_err *err);
CKPT_API int ckpt_reader_read_box(ckpt_reader *r, const ckpt_tensor *t, const uint64_t *start,
                                  const uint64_t *count, ckpt_dtype dtype, void *buf,
                                  const int64_t *stride, ckpt_err *err);
CKPT_API void ckpt_reader_free(ckpt_reader *r);
CKPT_API void ckpt_reader_skip_crc(ckpt_reader *r);
CKPT_API void ckpt_reader_compare(ckpt_reader *r);

#endif
