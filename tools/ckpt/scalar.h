/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scalar.h: declares one element of any dtype, decoded for printing, or as a double for statistics.
 */
#ifndef TOOLS_SCALAR_H
#define TOOLS_SCALAR_H

#include "ckpt.h"

/* Kinds of elements, with the members of scalar that hold them. */
typedef enum scalar_class {
    SCALAR_REAL,     /* as_real */
    SCALAR_SIGNED,   /* as_signed */
    SCALAR_UNSIGNED, /* as_unsigned */
    SCALAR_BOOL,     /* as_unsigned */
    SCALAR_COMPLEX,  /* as_real and imag */
    SCALAR_BITS,     /* as_unsigned, without arithmetic meaning */
    SCALAR_NONE      /* dtype that this program cannot decode */
} scalar_class;

typedef struct scalar {
    scalar_class is;
    bool is_double; /* reals: 17 digits may be necessary, not 9 */
    double as_real, imag;
    int64_t as_signed;
    uint64_t as_unsigned;
} scalar;

/* The kind of a dtype's elements. */
scalar_class scalar_class_of(ckpt_dtype d);

/*
 * Decode element i of a buffer of dtype d (in this machine's byte order, as from ckpt_reader_read).
 */
void scalar_get(scalar *out, ckpt_dtype d, const void *buf, size_t i);

/* Format the shortest text that reads back as the same number; returns buf. */
enum { SCALAR_ROOM = 80 };
const char *scalar_text(char buf[SCALAR_ROOM], const scalar *s);

/* Convert to double; not for BITS and COMPLEX. */
double scalar_real(const scalar *s);

#endif
