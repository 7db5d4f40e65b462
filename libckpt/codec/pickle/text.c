/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c: decodes the text forms in pickles: number and string literals of protocol 0, and long
 * integers.
 */
#include <assert.h>

#include "libckpt/codec/pickle/text.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/map/map.h"

#define TEXT_DIGITS_MAX 64u /* digits of a number in text form; 10^64 takes 27 bytes */
#define TEXT_LONG_BYTES 32u

bool ckpt_pk_text_ok(const char *s, uint64_t n)
{
    assert(s || n == 0);
    uint64_t from = 0;

    if (ckpt_utf8_ok(s, n))
        return true;
    // split at lone surrogates (ED A0..BF xx); the text between them must be valid UTF-8
    for (uint64_t i = 0; i + 3 <= n; i++) {
        if ((unsigned char)s[i] == 0xED && ((unsigned char)s[i + 1] & 0xE0u) == 0xA0 &&
            ((unsigned char)s[i + 2] & 0xC0u) == 0x80) {
            if (!ckpt_utf8_ok(s + from, i - from))
                return false;
            i += 2;
            from = i + 1;
        }
    }
    return ckpt_utf8_ok(s + from, n - from);
}

int ckpt_pk_long(const ckpt_pk *p, ckpt_value **out, const uint8_t *bytes, uint64_t n)
{
    assert(out && (bytes || n == 0));
    uint64_t low = 0;
    uint8_t sign = n > 0 && (bytes[n - 1] & 0x80u) != 0 ? 0xFF : 0;

    // drop a last byte that only repeats the sign
    while (n > 0 && bytes[n - 1] == sign && (n == 1 || ((bytes[n - 2] ^ sign) & 0x80u) == 0))
        n--;
    *out = ckpt_pk_node(p, n <= 8 ? CKPT_V_INT : CKPT_V_LONG);
    if (!*out)
        return CKPT_ELIMIT;
    if (n > 8) {
        (*out)->as.text.at = ckpt_arena_string(p->arena, (const char *)bytes, n);
        (*out)->as.text.n = n;
        return (*out)->as.text.at ? CKPT_OK : ckpt_pk_no_memory(p);
    }
    low = sign != 0 ? UINT64_MAX : 0;
    for (uint64_t i = n; i-- > 0;)
        low = low << 8 | bytes[i];
    memcpy(&(*out)->as.i, &low, sizeof low);
    return CKPT_OK;
}

int ckpt_pk_decimal(const ckpt_pk *p, ckpt_value **out, ckpt_text s)
{
    uint8_t number[TEXT_LONG_BYTES] = {0};
    bool minus = s.n > 0 && s.at[0] == '-';
    uint64_t i = minus, n = s.n - (s.n > 0 && s.at[s.n - 1] == 'L');
    unsigned carry;

    if (n - i > TEXT_DIGITS_MAX && n > i)
        return ckpt_pk_fail(p, CKPT_ELIMIT, "a number in text form has more than 64 digits");
    if (n <= i || (s.at[i] == '0' && n - i > 1))
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a number in text form is malformed");
    for (; i < n; i++) {
        if (s.at[i] < '0' || s.at[i] > '9')
            return ckpt_pk_fail(p, CKPT_EFORMAT, "a number in text form is malformed");
        carry = (unsigned)(s.at[i] - '0');
        for (size_t k = 0; k < sizeof number; k++) {
            carry += number[k] * 10u;
            number[k] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    carry = 1;
    for (size_t k = 0; minus && k < sizeof number; k++) {
        carry += (uint8_t)~number[k];
        number[k] = (uint8_t)carry;
        carry >>= 8;
    }
    return ckpt_pk_long(p, out, number, sizeof number);
}

int ckpt_pk_memo_number(const ckpt_pk *p, ckpt_text s, uint64_t *out)
{
    assert(out);
    *out = 0;
    if (s.n == 0 || s.n > 18) { // 10^18 fits into 64 bits
        return ckpt_pk_fail(p, CKPT_EFORMAT,
                            "a memo index is not a decimal number of 1 to 18 digits");
    }
    for (uint64_t i = 0; i < s.n; i++) {
        if (s.at[i] < '0' || s.at[i] > '9')
            return ckpt_pk_fail(p, CKPT_EFORMAT,
                                "a memo index is not a decimal number of 1 to 18 digits");
        *out = *out * 10 + (uint64_t)(s.at[i] - '0');
    }
    return CKPT_OK;
}

int ckpt_pk_float(const ckpt_pk *p, ckpt_value **out, ckpt_text s)
{
    char text[TEXT_DIGITS_MAX + 8];
    const char *word = text;
    double f = 0;

    if (s.n > TEXT_DIGITS_MAX)
        return ckpt_pk_fail(p, CKPT_ELIMIT, "a number in text form has more than 64 digits");
    memcpy(text, s.at, (size_t)s.n);
    text[s.n] = '\0';
    for (uint64_t i = 0; i < s.n; i++) {
        // the characters of repr(float), also of "inf" and "nan"
        if (!strchr("0123456789+-.eEinfa", text[i]) || text[i] == '\0')
            return ckpt_pk_fail(p, CKPT_EFORMAT, "a number in text form is malformed");
    }
    word += *word == '+' || *word == '-';
    if (strcmp(word, "inf") == 0 || strcmp(word, "nan") == 0)
        f = copysign(*word == 'i' ? (double)INFINITY : (double)NAN, *text == '-' ? -1 : 1);
    else if (!ckpt_parse_f64(text, &f) && !isinf(f)) // Python reads 1e999 as infinite
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a number in text form is malformed");
    *out = ckpt_pk_node(p, CKPT_V_FLOAT);
    if (!*out)
        return CKPT_ELIMIT;
    (*out)->as.f = f;
    return CKPT_OK;
}

/* Append a code point as UTF-8 (surrogates too). */
static char *text_put(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0u | c >> 6);
        *to++ = (char)(0x80u | (c & 0x3Fu));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0u | c >> 12);
        *to++ = (char)(0x80u | (c >> 6 & 0x3Fu));
        *to++ = (char)(0x80u | (c & 0x3Fu));
    } else {
        *to++ = (char)(0xF0u | c >> 18);
        *to++ = (char)(0x80u | (c >> 12 & 0x3Fu));
        *to++ = (char)(0x80u | (c >> 6 & 0x3Fu));
        *to++ = (char)(0x80u | (c & 0x3Fu));
    }
    return to;
}

/* Read n hexadecimal digits; false if there are fewer. */
static bool text_hex(ckpt_text s, uint64_t at, unsigned n, uint32_t *out)
{
    *out = 0;
    if (!ckpt_within(at, n, s.n))
        return false;
    for (uint64_t i = at; i < at + n; i++) {
        char c = s.at[i];

        if (!isxdigit((unsigned char)c))
            return false;
        *out = *out << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return true;
}

/* Make a text node with room for its bytes; *to: where to write them. */
static int text_node(const ckpt_pk *p, ckpt_value **out, ckpt_value_kind kind, uint64_t room,
                     char **to)
{
    *out = ckpt_pk_node(p, kind);
    *to = !*out ? NULL : ckpt_arena_alloc(p->arena, room + 1);
    if (!*to)
        return ckpt_pk_no_memory(p);
    (*out)->as.text.at = *to;
    return CKPT_OK;
}

int ckpt_pk_unicode(const ckpt_pk *p, ckpt_value **out, ckpt_text s)
{
    char *to;
    // a Latin-1 byte takes at most two bytes in UTF-8
    int rc = text_node(p, out, CKPT_V_STR, s.n * 2, &to);

    for (uint64_t i = 0; rc == CKPT_OK && i < s.n; i++) {
        uint32_t c = (unsigned char)s.at[i];
        char next = i + 1 < s.n ? s.at[i + 1] : '\0';

        if (c == '\\' && (next == 'u' || next == 'U')) {
            unsigned digits = next == 'u' ? 4 : 8;

            if (!text_hex(s, i + 2, digits, &c) || c > 0x10FFFF)
                return ckpt_pk_fail(p, CKPT_EFORMAT, "a text has an invalid escape sequence");
            i += 1 + digits;
        } else if (c == '\\' && next == '\\') {
            to = text_put(to, c); // an even number of backslashes does not begin an escape
            i++;
        }
        to = text_put(to, c);
    }
    if (rc == CKPT_OK)
        (*out)->as.text.n = (uint64_t)(to - (*out)->as.text.at);
    return rc;
}

/* Decode one escape of a Python 2 literal, after the backslash; false if it is malformed. */
static bool text_escape(ckpt_text s, uint64_t *i, char **to)
{
    static const char from[] = "\\'\"abfnrtv", into[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = s.at[*i] != '\0' ? strchr(from, s.at[*i]) : NULL;
    uint32_t c = 0;

    if (simple) {
        *(*to)++ = into[simple - from];
        (*i)++;
        return true;
    }
    if (s.at[*i] == 'x') {
        if (!text_hex(s, *i + 1, 2, &c))
            return false;
        *(*to)++ = (char)c;
        *i += 3;
        return true;
    }
    if (s.at[*i] < '0' || s.at[*i] > '7') {
        *(*to)++ = '\\'; // another backslash is an ordinary character
        return true;
    }
    for (unsigned digits = 0; digits < 3 && *i < s.n; digits++, (*i)++) {
        if (s.at[*i] < '0' || s.at[*i] > '7')
            break;
        c = c << 3 | (uint32_t)(s.at[*i] - '0');
    }
    *(*to)++ = (char)c;
    return true;
}

int ckpt_pk_old_string(const ckpt_pk *p, ckpt_value **out, const char *s, uint64_t n)
{
    char *to;
    int rc = text_node(p, out, ckpt_pk_text_ok(s, n) ? CKPT_V_STR : CKPT_V_BYTES, n, &to);

    if (rc == CKPT_OK) {
        memcpy(to, s, (size_t)n);
        (*out)->as.text.n = n;
    }
    return rc;
}

int ckpt_pk_string(const ckpt_pk *p, ckpt_value **out, ckpt_text s)
{
    uint64_t i = 1;
    char *to;
    int rc;

    if (s.n < 2 || (s.at[0] != '\'' && s.at[0] != '"') || s.at[s.n - 1] != s.at[0])
        return ckpt_pk_fail(p, CKPT_EFORMAT, "a string does not begin and end with the same quote");
    s.n--;
    rc = text_node(p, out, CKPT_V_STR, s.n, &to); // escapes only make the text shorter
    while (rc == CKPT_OK && i < s.n) {
        if (s.at[i] != '\\')
            *to++ = s.at[i++];
        else if (++i == s.n || !text_escape(s, &i, &to))
            return ckpt_pk_fail(p, CKPT_EFORMAT, "a string has an invalid escape sequence");
    }
    if (rc == CKPT_OK) {
        (*out)->as.text.n = (uint64_t)(to - (*out)->as.text.at);
        if (!ckpt_pk_text_ok((*out)->as.text.at, (*out)->as.text.n))
            (*out)->kind = CKPT_V_BYTES;
    }
    return rc;
}
