/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_put.c: writes the output of the tree printers: buffering, numbers, escapes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/hidden.h"
#include "libckpt/base/number.h"
#include "libckpt/inspect/tree.h"
#include "libckpt/map/map.h"

void ckpt_tree_fail(ckpt_tree *t, int code, const char *text)
{
    if (t->rc == CKPT_OK)
        t->rc = ckpt_fail(t->err, code, "%s", text);
}

void ckpt_tree_flush(ckpt_tree *t)
{
    int rc = t->rc == CKPT_OK && t->n_held > 0 ? t->fn(t->ctx, t->held, t->n_held) : 0;

    t->n_held = 0;
    if (rc != 0)
        ckpt_tree_fail(t, rc < 0 && rc > CKPT_ERROR_END_ ? rc : CKPT_ECANCELED,
                       "the tree of values could not be written");
}

void ckpt_tree_put(ckpt_tree *t, const char *s, size_t n)
{
    while (n > 0 && t->rc == CKPT_OK) {
        size_t room = sizeof t->held - t->n_held, part = n < room ? n : room;

        memcpy(t->held + t->n_held, s, part);
        t->n_held += part;
        s += part;
        n -= part;
        if (t->n_held == sizeof t->held)
            ckpt_tree_flush(t);
    }
}

void ckpt_tree_puts(ckpt_tree *t, const char *s)
{
    ckpt_tree_put(t, s, strlen(s));
}

void ckpt_tree_printf(ckpt_tree *t, const char *fmt, ...)
{
    char text[256]; // only for numbers and fixed words
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n > 0)
        ckpt_tree_put(t, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void ckpt_tree_float(ckpt_tree *t, double f)
{
    char text[CKPT_NUMBER_TEXT];

    ckpt_tree_puts(t, ckpt_print_f64(text, f, 15));
    if (isfinite(f) && !strpbrk(text, ".e"))
        ckpt_tree_puts(t, ".0");
}

void ckpt_tree_int(ckpt_tree *t, const ckpt_value *v)
{
    char digits[CKPT_VALUE_DIGITS];

    if (v->kind == CKPT_V_LONG)
        ckpt_tree_put(t, digits, ckpt_value_digits(digits, v->as.text));
    else
        ckpt_tree_printf(t, "%" PRId64, v->as.i);
}

/* Bytes of the well-formed character at s, or 0. */
static size_t tree_character(const char *s, uint64_t n)
{
    unsigned c = (unsigned char)*s;
    size_t size = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;

    return size <= n && ckpt_utf8_ok(s, size) ? size : 0;
}

/* The code of a well-formed character. */
static uint32_t tree_code(const char *s, size_t size)
{
    uint32_t code = size < 2 ? (unsigned char)*s : (unsigned char)*s & (0x7fu >> size);

    for (size_t i = 1; i < size; i++)
        code = code << 6 | ((unsigned char)s[i] & 0x3f);
    return code;
}

/* Print an escape if a character needs one between quotes; false: it does not. */
static bool tree_escape(ckpt_tree *t, unsigned char c, char quote)
{
    static const char from[] = "\n\r\t\b\f", into[] = "nrtbf";
    const char *at = c != '\0' ? strchr(from, c) : NULL;

    if (c == (unsigned char)quote || c == '\\')
        ckpt_tree_printf(t, "\\%c", c);
    else if (at)
        ckpt_tree_printf(t, "\\%c", into[at - from]);
    else if (c < 0x20 || c == 0x7F)
        ckpt_tree_printf(t, "\\u%04x", c);
    else
        return false;
    return true;
}

void ckpt_tree_escaped(ckpt_tree *t, ckpt_text s, char quote, uint64_t max)
{
    uint64_t end = max != 0 && s.n > max ? max : s.n;

    for (uint64_t i = 0; i < end && t->rc == CKPT_OK;) {
        size_t size = tree_character(s.at + i, s.n - i);

        if (size == 0) {
            ckpt_tree_puts(t, "\xEF\xBF\xBD");
            // a surrogate has three bytes
            i += (unsigned char)s.at[i] == 0xED && s.n - i >= 3 ? 3 : 1;
            continue;
        }
        uint32_t code = tree_code(s.at + i, size);
        if (size > 1 && ckpt_hidden(code)) {
            // they control terminals, or reverse the line
            if (code > 0xffff)
                ckpt_tree_printf(t, "\\u%04x", (unsigned)(0xd800 + ((code - 0x10000) >> 10)));
            ckpt_tree_printf(t, "\\u%04x",
                             (unsigned)(code > 0xffff ? 0xdc00 + (code & 0x3ff) : code));
        } else if (!tree_escape(t, (unsigned char)s.at[i], quote)) {
            ckpt_tree_put(t, s.at + i, size);
        }
        i += size;
    }
    if (end < s.n)
        ckpt_tree_puts(t, "...");
}

void ckpt_tree_quoted(ckpt_tree *t, ckpt_text s, char quote, uint64_t max)
{
    ckpt_tree_put(t, &quote, 1);
    ckpt_tree_escaped(t, s, quote, max);
    ckpt_tree_put(t, &quote, 1);
}

void ckpt_tree_hex(ckpt_tree *t, ckpt_text s, uint64_t max)
{
    for (uint64_t i = 0; i < s.n && i < max; i++)
        ckpt_tree_printf(t, "%02x", (unsigned)(unsigned char)s.at[i]);
}
