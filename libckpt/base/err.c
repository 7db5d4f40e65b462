/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.c: formats the texts of failures: keeps the first one, cut to fit and safe to print.
 *
 * It never allocates, so that a failure can be recorded when memory is exhausted.
 */
#include <assert.h>

#include "libckpt/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Space for the text of an errno value; the longest one of the C library has about 50 bytes. */
#define ERR_SYS_ROOM 96

/*
 * Length of the well-formed UTF-8 sequence at s, which has n > 0 bytes, or 0.
 *
 * Refused: overlong forms, surrogates, above U+10FFFF, C0 and C1 controls and DEL (U+009B alone
 * begins an escape sequence on some terminals). Source: Unicode standard, table 3-7.
 */
static size_t err_utf8(const unsigned char *s, size_t n)
{
    unsigned char low = 0x80, high = 0xbf; // bounds of the second byte
    size_t len = 0;

    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        len = 2;
        low = s[0] == 0xc2 ? 0xa0 : 0x80; // U+0080..U+009F are C1 controls
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        len = 3;
        low = s[0] == 0xe0 ? 0xa0 : 0x80;
        high = s[0] == 0xed ? 0x9f : 0xbf;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        len = 4;
        low = s[0] == 0xf0 ? 0x90 : 0x80;
        high = s[0] == 0xf4 ? 0x8f : 0xbf;
    }
    if (len == 0 || len > n || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return len;
}

/* Replace each byte that a terminal must not get by '?'. */
static void err_clean(char *text)
{
    unsigned char *s = (unsigned char *)text;
    size_t n = strlen(text);

    for (size_t i = 0; i < n;) {
        size_t len = err_utf8(s + i, n - i);

        if (len == 0) {
            s[i] = '?';
            len = 1;
        }
        i += len;
    }
}

/* Drop a UTF-8 sequence that the cut at room bytes has broken, so that it does not become '?'. */
static void err_trim(char *text)
{
    size_t n = strlen(text);
    size_t tail = 0; // continuation bytes at the end

    while (tail < 3 && tail < n && ((unsigned char)text[n - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail < n) {
        unsigned char lead = (unsigned char)text[n - 1 - tail];
        size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;

        if (lead >= 0xc0 && tail + 1 < need)
            text[n - 1 - tail] = '\0';
    }
}

/* Format into room bytes of err->text. */
CKPT_PRINTF(3, 0)
static void err_format(ckpt_err *err, size_t room, const char *fmt, va_list args)
{
    int n = vsnprintf(err->text, room, fmt, args);

    if (n < 0) {
        // only a result above INT_MAX or a bad wide string gets here; the code's text remains
        snprintf(err->text, room, "%s", ckpt_err_text(err->code));
    } else if ((size_t)n >= room) {
        err_trim(err->text);
    }
    err_clean(err->text);
}

int ckpt_fail(ckpt_err *err, int code, const char *fmt, ...)
{
    assert(code != CKPT_OK && fmt);
    va_list args;

    if (!err)
        return code;
    if (err->code != CKPT_OK)
        return err->code;
    err->code = code;
    err->sys = 0;
    va_start(args, fmt);
    err_format(err, sizeof err->text, fmt, args);
    va_end(args);
    return code;
}

int ckpt_open_code(int sys)
{
    return sys == ENOENT || sys == ENOTDIR || sys == ELOOP ? CKPT_EMISSING : CKPT_EIO;
}

int ckpt_fail_sys(ckpt_err *err, int code, int sys, const char *fmt, ...)
{
    assert(code != CKPT_OK && fmt);
    char reason[ERR_SYS_ROOM];
    va_list args;
    size_t n;

    if (!err)
        return code;
    if (err->code != CKPT_OK)
        return err->code;
    err->code = code;
    err->sys = sys;
    va_start(args, fmt);
    // a long name is cut, but never the reason
    err_format(err, sizeof err->text - ERR_SYS_ROOM - 2, fmt, args);
    va_end(args);
    if (strerror_r(sys, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "errno %d", sys);
    n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, ": %s", reason);
    return code;
}

int ckpt_fail_memory(ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ELIMIT, "out of memory");
}

#define ERR_TEXT(name, value, status, text)                                                        \
    case value:                                                                                    \
        return text;
#define ERR_STATUS(name, value, status, text)                                                      \
    case value:                                                                                    \
        return status;

const char *ckpt_err_text(int code)
{
    switch (code) {
        CKPT_ERRORS(ERR_TEXT)
    default:
        return "unknown error";
    }
}

int ckpt_err_status(int code)
{
    switch (code) {
        CKPT_ERRORS(ERR_STATUS)
    default:
        // an unknown code must never pass for success
        return 3;
    }
}
