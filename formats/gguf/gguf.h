/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.h: what the files of the GGUF driver share.
 *
 *     gguf.c   the driver
 *     keys.c   ggml's types by number; keys by name
 *     read.c   header, keys and tensors of a file
 *     split.c  the files of a model that was split
 *     write.c  a file laid out: keys, tensors, data
 *
 * A file, version 2 or 3:
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_keys | keys | tensors | 0 .. | data
 *     key:     string, u32 type, value          string: u64 n, n bytes of UTF-8
 *     array:   u32 type, u64 n, n values
 *     tensor:  string, u32 n_dims, u64 dim (the fastest first), u32 type, u64 offset in the data
 *
 * Data and each tensor begin at multiples of general.alignment, 32 by default.  A version whose
 * bytes are reversed marks a file in the other byte order.  Source: ggml's gguf.h and gguf.cpp, of
 * 2025 (ggml 0.25).
 */
#ifndef CKPT_FORMATS_GGUF_H
#define CKPT_FORMATS_GGUF_H

#include "libckpt/format.h"

enum {
    CKPT_GGUF_DIMS = 4,
    CKPT_GGUF_NAME = 64, /* bytes of a tensor's name, with a terminator */
    CKPT_GGUF_ALIGN = 32,
    CKPT_GGUF_ARRAY = 9 /* the type of arrays, which ckpt_key_type lacks */
};

/* Keys of a model that was split over several files. */
#define CKPT_GGUF_ALIGNMENT "general.alignment"
#define CKPT_GGUF_SPLIT     "split."
#define CKPT_GGUF_NO        "split.no"
#define CKPT_GGUF_COUNT     "split.count"
#define CKPT_GGUF_TENSORS   "split.tensors.count"

/* The dtype of a type's number, NONE: ggml has no such type (any more); its number, -1: none. */
ckpt_dtype ckpt_gguf_dtype(uint32_t type);
int ckpt_gguf_type(ckpt_dtype d);

/* What ckpt_format.read and .place do. */
int ckpt_gguf_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);
int ckpt_gguf_place(ckpt_map *to, uint32_t file, ckpt_err *err);

/* The key of this name; NULL: there is none. */
const ckpt_key *ckpt_gguf_key(const ckpt_map *map, const char *name);

/* Its value where it is a whole number from 0 on. */
bool ckpt_gguf_number(const ckpt_map *map, const char *name, uint64_t *out);

/*
 * Is what was read of a file that is not named as one of several a whole model, by its own keys?
 * What is named so is held against its name and the others when they are put together.
 *
 * Errors  CKPT_EMISSING, a finding where the map collects them
 */
int ckpt_gguf_whole(ckpt_map *map, const char *path, ckpt_err *err);

extern const ckpt_format ckpt_format_gguf;

#endif
