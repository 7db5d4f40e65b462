/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: decides which bytes are acceptable as tensor names, as text, and as one part of a path.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/map/map.h"

/* Limit of a tensor's name; no framework writes longer ones, and messages stay bounded. */
enum { NA_MAX_NAME = 64 * 1024, NA_MAX_PART = 255 };

/*
 * Length in bytes of the UTF-8 sequence at s, of which n bytes are left; 0 if it is not well
 * formed. Source: The Unicode Standard, table 3-7 (the second byte's range depends on the first).
 */
static unsigned na_sequence(const unsigned char *s, uint64_t n)
{
    unsigned len = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    unsigned char low = 0x80, high = 0xBF;

    if (len == 0 || len > n || s[0] > 0xF4)
        return 0;
    if (s[0] == 0xE0) {
        low = 0xA0; // code points below U+0800 have shorter forms
    } else if (s[0] == 0xED) {
        high = 0x9F; // surrogates
    } else if (s[0] == 0xF0) {
        low = 0x90;
    } else if (s[0] == 0xF4) {
        high = 0x8F; // beyond U+10FFFF
    }
    if (len > 1 && (s[1] < low || s[1] > high))
        return 0;
    for (unsigned k = 2; k < len; k++) {
        if ((s[k] & 0xC0) != 0x80)
            return 0;
    }
    return len;
}

bool ckpt_utf8_ok(const char *s, uint64_t n)
{
    assert(s || n == 0);
    const unsigned char *p = (const unsigned char *)s;
    uint64_t at = 0;

    while (at < n) {
        unsigned len = na_sequence(p + at, n - at);

        if (len == 0)
            return false;
        at += len;
    }
    return true;
}

bool ckpt_name_ok(const char *name, uint64_t n)
{
    assert(name || n == 0);
    if (n > NA_MAX_NAME)
        return false;
    // The empty name is allowed, because a tensor that is the root of its file has it as path.
    return n == 0 || (!memchr(name, 0, (size_t)n) && ckpt_utf8_ok(name, n));
}

bool ckpt_path_part_ok(const char *s, uint64_t n)
{
    assert(s || n == 0);
    if (n < 1 || n > NA_MAX_PART)
        return false;
    if (s[0] == '.' && (n == 1 || (n == 2 && s[1] == '.')))
        return false;
    for (uint64_t k = 0; k < n; k++) {
        if (s[k] == '/' || s[k] == '\\' || s[k] == '\0')
            return false;
    }
    return true;
}
