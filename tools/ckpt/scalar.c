/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scalar.c: decodes single elements.
 *
 * One routine decodes small floats from their layout (exponent and mantissa bits, bias, patterns
 * that are not finite), as the formats' papers and torch define them.
 */
#include "tools/ckpt/scalar.h"
#include "libckpt/base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Meaning of the largest exponent, and of a lone sign bit. */
typedef enum small_special {
    SMALL_IEEE,  /* largest exponent: infinity and NaN */
    SMALL_FN,    /* NaN if all bits but the sign are 1; no infinity */
    SMALL_FNUZ,  /* NaN is the pattern of minus zero; no infinity */
    SMALL_FINITE /* every pattern is a number */
} small_special;

typedef struct small_float {
    unsigned exponent, mantissa; /* bits */
    int bias;
    small_special special;
} small_float;

/* Decode a bit pattern exactly, because a double holds every small float. */
static double small_decode(const small_float *f, unsigned bits)
{
    unsigned sign_bit = 1u << (f->exponent + f->mantissa), magnitude = bits & (sign_bit - 1);
    unsigned e = magnitude >> f->mantissa, m = magnitude & ((1u << f->mantissa) - 1);
    unsigned top = (1u << f->exponent) - 1;
    double sign = bits & sign_bit ? -1.0 : 1.0;

    // patterns that are not numbers, by kind of format
    if (f->special == SMALL_IEEE && e == top)
        return m ? (double)NAN : sign * (double)INFINITY;
    if (f->special == SMALL_FN && magnitude == sign_bit - 1)
        return (double)NAN;
    if (f->special == SMALL_FNUZ && bits == sign_bit)
        return (double)NAN;
    // subnormal: no hidden bit, and the exponent of the smallest normal
    if (e == 0)
        return sign * ldexp((double)m, 1 - f->bias - (int)f->mantissa);
    return sign * ldexp((double)(m | (1u << f->mantissa)), (int)e - f->bias - (int)f->mantissa);
}

/* The layout of a dtype of at most 16 bits; NULL for other dtypes. */
static const small_float *small_of(ckpt_dtype d)
{
    static const small_float f16 = {5, 10, 15, SMALL_IEEE}, bf16 = {8, 7, 127, SMALL_IEEE};
    static const small_float e4m3 = {4, 3, 7, SMALL_FN}, e5m2 = {5, 2, 15, SMALL_IEEE};
    static const small_float e4m3fnuz = {4, 3, 8, SMALL_FNUZ}, e5m2fnuz = {5, 2, 16, SMALL_FNUZ};
    static const small_float e2m1 = {2, 1, 1, SMALL_FINITE};

    switch ((int)d) {
    case CKPT_F16:
        return &f16;
    case CKPT_BF16:
        return &bf16;
    case CKPT_F8_E4M3:
        return &e4m3;
    case CKPT_F8_E5M2:
        return &e5m2;
    case CKPT_F8_E4M3FNUZ:
        return &e4m3fnuz;
    case CKPT_F8_E5M2FNUZ:
        return &e5m2fnuz;
    case CKPT_F4:
        return &e2m1;
    default:
        return NULL;
    }
}

scalar_class scalar_class_of(ckpt_dtype d)
{
    switch ((int)d) {
    case CKPT_F64:
    case CKPT_F32:
    case CKPT_F8_E8M0:
        return SCALAR_REAL;
    case CKPT_I64:
    case CKPT_I32:
    case CKPT_I16:
    case CKPT_I8:
        return SCALAR_SIGNED;
    case CKPT_U64:
    case CKPT_U32:
    case CKPT_U16:
    case CKPT_U8:
        return SCALAR_UNSIGNED;
    case CKPT_BOOL:
        return SCALAR_BOOL;
    case CKPT_C128:
    case CKPT_C64:
    case CKPT_C32:
        return SCALAR_COMPLEX;
    case CKPT_BITS8:
    case CKPT_BITS16:
        return SCALAR_BITS;
    default:
        // six-bit types are packed, so single elements have no bytes of their own
        return small_of(d) ? SCALAR_REAL : SCALAR_NONE;
    }
}

/* The bits of element i, width bytes each. */
static uint64_t scalar_bits(const void *buf, size_t i, size_t width)
{
    const unsigned char *at = (const unsigned char *)buf + i * width;
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;

    switch (width) {
    case 8:
        memcpy(&u64, at, 8);
        return u64;
    case 4:
        memcpy(&u32, at, 4);
        return u32;
    case 2:
        memcpy(&u16, at, 2);
        return u16;
    default:
        return *at;
    }
}

/* Decode a float of 64, 32, 16 or 8 bits, or element i of packed four-bit ones (the low half of a
 * byte first). */
static double scalar_float(ckpt_dtype d, const void *buf, size_t i)
{
    const small_float *small = small_of(d);
    uint64_t bits;
    float f;
    double x;

    switch ((int)d) {
    case CKPT_F64:
        memcpy(&x, (const char *)buf + 8 * i, 8);
        return x;
    case CKPT_F32:
        memcpy(&f, (const char *)buf + 4 * i, 4);
        return (double)f;
    case CKPT_F8_E8M0:
        // exponent only: powers of two, without sign and zero
        bits = scalar_bits(buf, i, 1);
        return bits == 0xff ? (double)NAN : ldexp(1.0, (int)bits - 127);
    case CKPT_F4:
        bits = scalar_bits(buf, i / 2, 1) >> (4 * (i % 2));
        return small_decode(small, (unsigned)bits & 0xf);
    default:
        return small_decode(small, (unsigned)scalar_bits(buf, i, ckpt_dtype_bits(d) / 8));
    }
}

/* Decode a complex element: real and imaginary part are adjacent. */
static void scalar_complex(scalar *out, ckpt_dtype d, const void *buf, size_t i)
{
    ckpt_dtype part = d == CKPT_C128 ? CKPT_F64 : d == CKPT_C64 ? CKPT_F32 : CKPT_F16;

    out->is_double = d == CKPT_C128;
    out->as_real = scalar_float(part, buf, 2 * i);
    out->imag = scalar_float(part, buf, 2 * i + 1);
}

void scalar_get(scalar *out, ckpt_dtype d, const void *buf, size_t i)
{
    size_t width = ckpt_dtype_bits(d) / 8;

    *out = (scalar){.is = scalar_class_of(d)};
    switch (out->is) {
    case SCALAR_REAL:
        out->is_double = d == CKPT_F64;
        out->as_real = scalar_float(d, buf, i);
        break;
    case SCALAR_SIGNED: {
        // sign-extend by shifting the sign bit to the top and back
        unsigned shift = (unsigned)(64 - 8 * width);
        out->as_signed = (int64_t)(scalar_bits(buf, i, width) << shift) >> shift;
        break;
    }
    case SCALAR_COMPLEX:
        scalar_complex(out, d, buf, i);
        break;
    case SCALAR_UNSIGNED:
    case SCALAR_BOOL:
    case SCALAR_BITS:
        out->as_unsigned = scalar_bits(buf, i, width);
        break;
    case SCALAR_NONE:
        break;
    }
}

/* Format so that the text reads back as the same number. */
static const char *real_text(char *buf, double x, bool is_double)
{
    return is_double ? ckpt_print_f64(buf, x, 15) : ckpt_print_f32(buf, (float)x, 6);
}

const char *scalar_text(char buf[SCALAR_ROOM], const scalar *s)
{
    size_t n;

    switch (s->is) {
    case SCALAR_REAL:
        return real_text(buf, s->as_real, s->is_double);
    case SCALAR_SIGNED:
        (void)snprintf(buf, SCALAR_ROOM, "%" PRId64, s->as_signed);
        break;
    case SCALAR_UNSIGNED:
        (void)snprintf(buf, SCALAR_ROOM, "%" PRIu64, s->as_unsigned);
        break;
    case SCALAR_BOOL:
        (void)snprintf(buf, SCALAR_ROOM, "%s", s->as_unsigned ? "true" : "false");
        break;
    case SCALAR_COMPLEX:
        (void)real_text(buf, s->as_real, s->is_double);
        n = strlen(buf);
        // 1+2j, 1-2j: the second sign is always written
        if (!signbit(s->imag))
            buf[n++] = '+';
        (void)real_text(buf + n, s->imag, s->is_double);
        (void)strcat(buf, "j");
        break;
    case SCALAR_BITS:
        (void)snprintf(buf, SCALAR_ROOM, "0x%02" PRIx64, s->as_unsigned);
        break;
    case SCALAR_NONE:
        (void)snprintf(buf, SCALAR_ROOM, "?");
        break;
    }
    return buf;
}

double scalar_real(const scalar *s)
{
    if (s->is == SCALAR_REAL)
        return s->as_real;
    return s->is == SCALAR_SIGNED ? (double)s->as_signed : (double)s->as_unsigned;
}
