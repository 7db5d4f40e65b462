/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base64.c: owns base64 in the url-safe alphabet (RFC 4648, section 5), with padding.
 */
#include <string.h>

#include "engine/config/fields.h"

static const char b64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

char *ds_base64(ckpt_arena *arena, const void *p, size_t n)
{
    const uint8_t *in = p;
    char *out = ckpt_arena_array(arena, n / 3 + 2, 4); // zeroed: the end is there
    char *to = out;

    for (size_t i = 0; out && i < n; i += 3) {
        uint32_t v = (uint32_t)in[i] << 16;

        v |= i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0;
        v |= i + 2 < n ? (uint32_t)in[i + 2] : 0;
        to[0] = b64_alphabet[v >> 18];
        to[1] = b64_alphabet[v >> 12 & 63];
        to[2] = i + 1 < n ? b64_alphabet[v >> 6 & 63] : '=';
        to[3] = i + 2 < n ? b64_alphabet[v & 63] : '=';
        to += 4;
    }
    return out;
}

/* The value of a digit, or -1. */
static int b64_digit(char c)
{
    const char *p = c != '\0' ? strchr(b64_alphabet, c) : NULL;

    if (c == '+' || c == '/')
        return c == '+' ? 62 : 63;
    return p ? (int)(p - b64_alphabet) : -1;
}

char *ds_unbase64(ckpt_arena *arena, const char *text, size_t *n)
{
    size_t length = strlen(text), pad = 0;
    uint32_t bits = 0;
    char *out;

    while (pad < 2 && length > pad && text[length - 1 - pad] == '=')
        pad++;
    if (length == 0 || length % 4 != 0)
        return NULL;
    out = ckpt_arena_alloc(arena, length / 4 * 3 + 1);
    *n = 0;
    for (size_t i = 0; out && i < length - pad; i++) {
        int digit = b64_digit(text[i]);

        if (digit < 0)
            return NULL;
        bits = bits << 6 | (uint32_t)digit;
        // Six bits come in; a byte is complete with the second, third and fourth digit of four.
        if (i % 4 != 0)
            out[(*n)++] = (char)(uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return out;
}
