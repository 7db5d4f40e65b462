/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scalar.h: one element of any dtype, decoded for people: printed, or as a double for statistics.
 */
#ifndef TOOLS_SCALAR_H
#define TOOLS_SCALAR_H

#include "ckpt.h"

/* What an element is to a reader of numbers. */
typedef enum scalar_class {
    SCALAR_REAL,     /* as_real */
    SCALAR_SIGNED,   /* as_signed */
    SCALAR_UNSIGNED, /* as_unsigned */
    SCALAR_BOOL,     /* as_unsigned */
    SCALAR_COMPLEX,  /* as_real and imag */
    SCALAR_BITS,     /* as_unsigned, of no arithmetic meaning */
    SCALAR_NONE      /* a dtype this program cannot take apart */
} scalar_class;

typedef struct scalar {
    scalar_class is;
    bool is_double; /* reals: needs up to 17 digits, not 9 */
    double as_real, imag;
    int64_t as_signed;
    uint64_t as_unsigned;
} scalar;

/* What the elements of a dtype are. */
scalar_class scalar_class_of(ckpt_dtype d);

/* Element i of a buffer of dtype d (in this machine's byte order, as ckpt_reader_read gives it). */
void scalar_get(scalar *out, ckpt_dtype d, const void *buf, size_t i);

/* The shortest text that reads back as the same number; buf is returned. */
enum { SCALAR_ROOM = 80 };
const char *scalar_text(char buf[SCALAR_ROOM], const scalar *s);

/* As a double, where one exists (not BITS, not COMPLEX). */
double scalar_real(const scalar *s);

#endif
