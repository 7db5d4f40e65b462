/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h: the interface between the reader and the writer of safetensors files.
 *
 * Layout (the library's format, as of safetensors 0.8.0):
 *
 *     u64 n, little-endian | n bytes of JSON, padded with spaces | data, to the end of the file
 *
 * The JSON is one object: name -> {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]},
 * offsets in bytes from the start of the data, elements row-major; and optionally "__metadata__",
 * an object of string -> string.  Tensors lie without holes from 0 to the end of the file.
 */
#ifndef CKPT_FORMATS_SAFETENSORS_H
#define CKPT_FORMATS_SAFETENSORS_H

#include "libckpt/base/dtype.h"
#include "libckpt/format.h"

extern const ckpt_format ckpt_format_safetensors;

#define CKPT_ST_HEADER_MAX UINT64_C(100000000) /* limit of the library, in bytes of JSON */
#define CKPT_ST_METADATA   "__metadata__"

/* ckpt_format.place: makes the same header and offsets as the library's writer. */
int ckpt_safetensors_place(ckpt_map *to, uint32_t file, ckpt_err *err);

extern const ckpt_format ckpt_format_safetensors;

#endif
