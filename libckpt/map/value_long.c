/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value_long.c: converts integers beyond 64 bits between decimal digits and two's complement bytes.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/map/value.h"

enum { VN_BYTES = 256 }; // the limit of the pickle reader

/* Negate n little-endian bytes in place. */
static void vn_negate(uint8_t *number, size_t n)
{
    unsigned carry = 1;

    for (size_t i = 0; i < n; i++) {
        carry += (uint8_t)~number[i];
        number[i] = (uint8_t)carry;
        carry >>= 8;
    }
}

ckpt_value *ckpt_value_decimal(ckpt_arena *a, const char *digits)
{
    assert(a && digits);
    uint8_t number[VN_BYTES] = {0};
    bool minus = digits[0] == '-';
    size_t n = 1;
    int64_t small;
    ckpt_value *v;

    if (ckpt_parse_i64(digits, &small))
        return ckpt_value_int(a, small);
    for (const char *p = digits + minus; *p; p++) {
        unsigned carry = (unsigned)(*p - '0');
        for (size_t i = 0; i < n; i++) {
            carry += number[i] * 10u;
            number[i] = (uint8_t)carry;
            carry >>= 8;
        }
        if (carry == 0)
            continue;
        if (n == VN_BYTES - 1) // the last byte is for the sign
            return NULL;
        number[n++] = (uint8_t)carry;
    }
    n += number[n - 1] >> 7;
    if (minus)
        vn_negate(number, n);
    v = ckpt_value_str(a, (const char *)number, n);
    if (v)
        v->kind = CKPT_V_LONG;
    return v;
}

size_t ckpt_value_digits(char out[CKPT_VALUE_DIGITS], ckpt_text s)
{
    uint8_t number[VN_BYTES];
    char digits[CKPT_VALUE_DIGITS];
    size_t n = s.n < VN_BYTES ? (size_t)s.n : VN_BYTES, at = sizeof digits;
    bool minus = n > 0 && ((unsigned char)s.at[n - 1] & 0x80u) != 0;

    memcpy(number, s.at, n);
    if (minus)
        vn_negate(number, n);
    digits[--at] = 0;
    do { // by repeated division
        unsigned rest = 0;

        for (size_t i = n; i-- > 0;) {
            rest = rest << 8 | number[i];
            number[i] = (uint8_t)(rest / 10);
            rest %= 10;
        }
        digits[--at] = (char)('0' + rest);
        while (n > 0 && number[n - 1] == 0)
            n--;
    } while (n > 0);
    if (minus)
        digits[--at] = '-';
    memcpy(out, digits + at, sizeof digits - at);
    return sizeof digits - at - 1;
}
