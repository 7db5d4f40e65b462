/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.h: the interface between the files of the GGUF driver.
 *
 *     gguf.c   the driver's table
 *     keys.c   ggml's type numbers; look-up of keys
 *     read.c   reads header, keys and tensors of a file
 *     split.c  reads and divides a model in several files
 *     whole.c  compares tensors with the keys of the architecture
 *     write.c  lays out a file: keys, tensors, data
 *
 * A file, version 2 or 3:
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_keys | keys | tensors | 0 .. | data
 *     key:     string, u32 type, value          string: u64 n, n bytes of UTF-8
 *     array:   u32 type, u64 n, n values
 *     tensor:  string, u32 n_dims, u64 dim (the fastest first), u32 type, u64 offset in the data
 *
 * Data and each tensor begin at multiples of general.alignment, 32 by default.  A version number
 * with reversed bytes means that the file has the other byte order.  Source: ggml's gguf.h and
 * gguf.cpp, of 2025 (ggml 0.25).
 */
#ifndef CKPT_FORMATS_GGUF_H
#define CKPT_FORMATS_GGUF_H

#include "libckpt/format.h"

enum {
    CKPT_GGUF_DIMS = 4,
    CKPT_GGUF_NAME = 64, /* bytes of a tensor's name, with a terminator */
    CKPT_GGUF_ALIGN = 32,
    CKPT_GGUF_ARRAY = 9 /* the type number of arrays, absent from ckpt_key_type */
};

/* Keys about alignment, and keys of a model in several files. */
#define CKPT_GGUF_ALIGNMENT "general.alignment"
#define CKPT_GGUF_SPLIT     "split."
#define CKPT_GGUF_NO        "split.no"
#define CKPT_GGUF_COUNT     "split.count"
#define CKPT_GGUF_TENSORS   "split.tensors.count"

/* The dtype of a type number; NONE for unknown or removed types.  ckpt_gguf_type is the inverse; -1
 * for a dtype that ggml lacks. */
ckpt_dtype ckpt_gguf_dtype(uint32_t type);
int ckpt_gguf_type(ckpt_dtype d);

/* Implement ckpt_format.read and .place. */
int ckpt_gguf_read(ckpt_map *map, ckpt_io *io, uint32_t file, ckpt_err *err);
int ckpt_gguf_place(ckpt_map *to, uint32_t file, ckpt_err *err);

/* Find a key by name, or NULL. */
const ckpt_key *ckpt_gguf_key(const ckpt_map *map, const char *name);

/* Get the value of a key if it is an integer >= 0. */
bool ckpt_gguf_number(const ckpt_map *map, const char *name, uint64_t *out);

/*
 * Check by its keys that a file is a complete model, unless its name marks it as one of several.
 * The reader checks such files when it joins them.
 *
 * Errors  CKPT_EMISSING, recorded as a finding if the map collects them
 */
int ckpt_gguf_whole(ckpt_map *map, const char *path, ckpt_err *err);

/*
 * Check that the tensors of all files are those of the model in the keys: blocks, tensors that each
 * block needs, and sizes.
 *
 * Errors  CKPT_EMISSING, CKPT_EMISMATCH, recorded as findings if the map collects them; CKPT_ELIMIT
 */
int ckpt_gguf_blocks(ckpt_map *map, const char *name, ckpt_err *err);

extern const ckpt_format ckpt_format_gguf;
extern const ckpt_format ckpt_format_mmproj;

#endif
