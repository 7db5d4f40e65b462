/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base64.c: decodes base64 (RFC 4648, both alphabets, with padding).  It checks the text before it
 * calls OpenSSL, because OpenSSL knows the standard alphabet only, skips white space and takes '='
 * anywhere.
 */
#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#include "engine/config/fields.h"

#define B64_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

char *ds_unbase64(ckpt_arena *arena, const char *text, size_t *n)
{
    const size_t length = strlen(text), digits = strspn(text, B64_DIGITS "-_");
    char *standard, *out;

    if (length == 0 || length % 4 != 0 || length > INT_MAX || length - digits > 2 ||
        strspn(text + digits, "=") != length - digits)
        return NULL;
    standard = ckpt_arena_string(arena, text, length);
    out = ckpt_arena_alloc(arena, length / 4 * 3);
    if (!standard || !out)
        return NULL;
    for (size_t i = 0; i < digits; i++)
        if (text[i] == '-' || text[i] == '_')
            standard[i] = text[i] == '-' ? '+' : '/';
    if (EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)standard, (int)length) < 0)
        return NULL;
    *n = length / 4 * 3 - (length - digits);
    return out;
}
