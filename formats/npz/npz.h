/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npz.h: numpy's arrays: the header of one (.npy), and archives of them (.npz).
 *
 * An array is, as numpy.lib.format writes it (checked against numpy 1.x and 2.x):
 *
 *     "\x93NUMPY"  6 bytes
 *     version      2 bytes: 1.0 (length of 2 bytes), 2.0 and 3.0 (of 4; 3.0 is UTF-8)
 *     length       of what follows before the data, little-endian
 *     header       a Python dict {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), },
 *                  padded with spaces to a multiple of 64 from the file's begin, and a newline
 *     data         the elements, row-major, or column-major with fortran_order
 *
 * An archive is a zip with a member NAME.npy for each array.
 */
#ifndef CKPT_FORMATS_NPZ_H
#define CKPT_FORMATS_NPZ_H

#include "libckpt/base/vec.h"
#include "libckpt/format.h"

extern const ckpt_format ckpt_format_npz;

enum {
    CKPT_NPY_LEAD = 12,         /* bytes that tell the header's length, in every version */
    CKPT_NPY_HEADER = 64 * 1024 /* bytes that a header may take */
};

typedef struct ckpt_npy {
    ckpt_dtype dtype; /* NONE: Python objects, kept as a pickle */
    bool swap;        /* big-endian */
    bool fortran;     /* column-major */
    bool raw;         /* numpy knows no type for it ('|V2': what bfloat16 of ml_dtypes becomes) */
    uint32_t ndim;
    uint64_t shape[CKPT_MAX_DIM];
    uint64_t n_header; /* bytes before the data */
} ckpt_npy;

/*
 * The bytes that a header takes, from its first CKPT_NPY_LEAD (n: how many of them there are).
 *
 * name    for messages
 * Errors  CKPT_EFORMAT: no array, or of an unknown version; CKPT_ELIMIT
 */
int ckpt_npy_length(uint64_t *out, const uint8_t *head, size_t n, const char *name, ckpt_err *err);

/*
 * A whole header of n bytes.
 *
 * Errors  CKPT_EFORMAT; CKPT_EUNSUPPORTED: records with fields, strings, dates, a width that no
 *         type here has
 */
int ckpt_npy_parse(ckpt_npy *out, const uint8_t *head, size_t n, const char *name, ckpt_err *err);

/* What numpy calls a dtype ("<f4"); *as_bits: it has none, and this holds the same bits.  NULL: its
 * elements do not fill bytes. */
const char *ckpt_npy_descr(ckpt_dtype d, bool *as_bits);

/* Append the header of a row-major array; false when memory is exhausted. */
bool ckpt_npy_put(ckpt_bytes *out, const char *descr, const uint64_t *shape, uint32_t ndim);

/* The writer's half of the driver (write.c). */
int ckpt_npz_place(ckpt_map *to, uint32_t file, ckpt_err *err);
int ckpt_npz_seal(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);
int ckpt_npz_pack(ckpt_map *to, uint32_t file, ckpt_packing *p, ckpt_err *err);

#endif
