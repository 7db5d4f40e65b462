/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npz.h: declares the npz driver, and functions for the header of one numpy array (.npy).
 *
 * The layout of an array (numpy.lib.format; checked against numpy 1.x and 2.x):
 *
 *     "\x93NUMPY"  6 bytes
 *     version      2 bytes: 1.0 (length of 2 bytes), 2.0 and 3.0 (of 4; 3.0 is UTF-8)
 *     length       bytes of the header, little-endian
 *     header       a Python dict {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
 *                  padded with spaces and a newline, so that the data begin at a multiple of 64
 *     data         the elements, row-major, or column-major with fortran_order
 *
 * An archive (.npz) is a zip with a member NAME.npy for each array.
 */
#ifndef CKPT_FORMATS_NPZ_H
#define CKPT_FORMATS_NPZ_H

#include "libckpt/base/vec.h"
#include "libckpt/format.h"

extern const ckpt_format ckpt_format_npz;

enum {
    CKPT_NPY_LEAD = 12,         /* bytes from which the header's length follows, in every version */
    CKPT_NPY_HEADER = 64 * 1024 /* largest header accepted, in bytes */
};

typedef struct ckpt_npy {
    ckpt_dtype dtype; /* NONE: Python objects, stored as a pickle */
    bool swap;        /* big-endian */
    bool fortran;     /* column-major */
    bool raw;         /* a type unknown to numpy ('|V2', as it stores bfloat16 of ml_dtypes) */
    uint32_t ndim;
    uint64_t shape[CKPT_MAX_DIM];
    uint64_t n_header; /* bytes before the data */
} ckpt_npy;

/*
 * Compute the header's size in bytes from the first n <= CKPT_NPY_LEAD bytes of the file.
 *
 * name    name of the file, for messages
 * Errors  CKPT_EFORMAT: not an array, or an unknown version; CKPT_ELIMIT
 */
int ckpt_npy_length(uint64_t *out, const uint8_t *head, size_t n, const char *name, ckpt_err *err);

/*
 * Parse a complete header of n bytes.
 *
 * Errors  CKPT_EFORMAT; CKPT_EUNSUPPORTED: records with fields, strings, dates, a width that no
 *         ckpt dtype has
 */
int ckpt_npy_parse(ckpt_npy *out, const uint8_t *head, size_t n, const char *name, ckpt_err *err);

/* numpy's name of a dtype ("<f4").  *as_bits: numpy lacks the dtype, and the name is an integer
 * type of the same size.  NULL: the elements do not fill whole bytes. */
const char *ckpt_npy_descr(ckpt_dtype d, bool *as_bits);

/* Append the header of a row-major array; false when memory is exhausted. */
bool ckpt_npy_put(ckpt_bytes *out, const char *descr, const uint64_t *shape, uint32_t ndim);

/* The writer's half of the driver (write.c). */
int ckpt_npz_place(ckpt_map *to, uint32_t file, ckpt_err *err);
int ckpt_npz_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);
int ckpt_npz_pack(ckpt_map *to, uint32_t file, ckpt_packing *p, ckpt_err *err);

#endif
