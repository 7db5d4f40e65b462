/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.c: converts between text and numbers.
 */
#define _POSIX_C_SOURCE 200809L // newlocale, uselocale
#include "libckpt/base/number.h"

#include <assert.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char num_digits[] = "0123456789";

const char *ckpt_scan_u64(const char *text, uint64_t *out)
{
    assert(text && out);
    const char *at = text;
    uint64_t n = 0;

    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');

        if (n > (UINT64_MAX - digit) / 10)
            return NULL;
        n = n * 10 + digit;
    }
    if (at == text)
        return NULL;
    *out = n;
    return at;
}

bool ckpt_parse_u64(const char *text, uint64_t *out)
{
    uint64_t n;
    const char *rest = ckpt_scan_u64(text, &n);

    if (!rest || *rest)
        return false;
    *out = n;
    return true;
}

bool ckpt_parse_i64(const char *text, int64_t *out)
{
    assert(text && out);
    const bool minus = *text == '-';
    uint64_t n;

    if (!ckpt_parse_u64(text + (minus || *text == '+'), &n) || n > (uint64_t)INT64_MAX + minus)
        return false;
    // the order of the operations keeps INT64_MIN from overflowing
    *out = minus && n > 0 ? -(int64_t)(n - 1) - 1 : (int64_t)n;
    return true;
}

/* The length of the number at the start of a text; 0: there is none. */
static size_t num_length(const char *text)
{
    size_t n = text[0] == '+' || text[0] == '-', whole = strspn(text + n, num_digits), part = 0;

    n += whole;
    if (text[n] == '.') {
        part = strspn(text + n + 1, num_digits);
        n += whole + part > 0 ? 1 + part : 0;
    }
    if (whole + part == 0)
        return 0;
    if (text[n] == 'e' || text[n] == 'E') {
        size_t sign = text[n + 1] == '+' || text[n + 1] == '-';
        size_t digits = strspn(text + n + 1 + sign, num_digits);

        n += digits > 0 ? 1 + sign + digits : 0;
    }
    return n;
}

/* Select the C locale for this thread; returns the locale to give to num_restore. */
static locale_t num_plain(void)
{
    // the C library does not allocate for this locale, so it cannot fail and need not be freed
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);

    return plain ? uselocale(plain) : (locale_t)0;
}

static void num_restore(locale_t before)
{
    if (before)
        (void)uselocale(before);
}

const char *ckpt_scan_f64(const char *text, double *out)
{
    assert(text && out);
    const size_t n = num_length(text), sign = text[0] == '+' || text[0] == '-';

    if (n == 0)
        return NULL;
    // strtod would read all of "0x10", but here the number ends after the 0
    if (n == sign + 1 && text[sign] == '0') {
        *out = text[0] == '-' ? -0.0 : 0.0;
        return text + n;
    }
    locale_t before = num_plain();
    *out = strtod(text, NULL);
    num_restore(before);
    return isfinite(*out) ? text + n : NULL;
}

bool ckpt_parse_f64(const char *text, double *out)
{
    assert(text && out);
    const size_t n = num_length(text);

    return n > 0 && !text[n] && ckpt_scan_f64(text, out) != NULL;
}

/* Print with more and more digits until the text reads back as x. */
static char *num_print(char out[CKPT_NUMBER_TEXT], double x, int least, bool narrow)
{
    const int most = narrow ? FLT_DECIMAL_DIG : DBL_DECIMAL_DIG;
    locale_t before = num_plain();

    for (int digits = least; digits <= most; digits++) {
        // a NaN may have a sign, which printf would show
        (void)snprintf(out, CKPT_NUMBER_TEXT, "%.*g", digits, isnan(x) ? fabs(x) : x);
        const double back = narrow ? (double)strtof(out, NULL) : strtod(out, NULL);
        // < and >, because compilers warn about == on floats
        if (!(back < x || back > x))
            break;
    }
    num_restore(before);
    return out;
}

char *ckpt_print_f64(char out[CKPT_NUMBER_TEXT], double x, int least)
{
    assert(out && least > 0 && least <= DBL_DECIMAL_DIG);
    return num_print(out, x, least, false);
}

char *ckpt_print_f32(char out[CKPT_NUMBER_TEXT], float x, int least)
{
    assert(out && least > 0 && least <= FLT_DECIMAL_DIG);
    return num_print(out, (double)x, least, true);
}
