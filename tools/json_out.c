/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_out.c: JSON to stdout.
 *
 * Values go out as they come, so that a report of any length takes no memory.  Commas and
 * indentation follow from two facts per open container: does it have a member yet, is it on one
 * line.
 */
#include "tools/json_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/out.h"

/* Length of the well-formed UTF-8 sequence at s (RFC 3629), 0 when it is none. */
static size_t json_utf8(const unsigned char *s)
{
    unsigned char from = 0x80, to = 0xbf;
    size_t n;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    // no overlong forms, no surrogates, nothing above U+10FFFF: the first continuation decides
    if (s[0] == 0xe0)
        from = 0xa0;
    else if (s[0] == 0xf0)
        from = 0x90;
    if (s[0] == 0xed)
        to = 0x9f;
    else if (s[0] == 0xf4)
        to = 0x8f;
    if (s[1] < from || s[1] > to)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

/* A string in quotes: short escapes, \u for other controls, U+FFFD for what is no UTF-8. */
static void json_string(const char *text)
{
    static const char special[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
    const unsigned char *s = (const unsigned char *)text;

    out_bytes("\"", 1);
    while (*s) {
        const char *found = strchr(special, *s);
        size_t n = json_utf8(s);
        // found is NULL for the terminator, which the loop never meets
        if (found) {
            out_printf("\\%c", letter[found - special]);
        } else if (*s < 0x20 || *s == 0x7f) {
            out_printf("\\u%04x", *s);
        } else if (n == 0) {
            out_bytes("\\ufffd", 6);
            n = 1;
        } else {
            out_bytes(s, n);
        }
        s += n;
    }
    out_bytes("\"", 1);
}

/* The open container is written on one line. */
static bool json_flat(const json_out *j)
{
    return j->flat_from != 0 && j->depth >= j->flat_from;
}

/* A new line, indented for the open container. */
static void json_line(const json_out *j)
{
    out_printf("\n%*s", (int)(2 * j->depth), "");
}

void json_key(json_out *j, const char *key)
{
    // the document itself has neither comma nor line in front
    if (j->depth > 0) {
        bool flat = json_flat(j), more = j->filled[j->depth];
        if (more)
            out_bytes(flat ? ", " : ",", flat ? 2 : 1);
        if (!flat)
            json_line(j);
        j->filled[j->depth] = true;
    }
    if (key) {
        json_string(key);
        out_bytes(": ", 2);
    }
}

void json_open(json_out *j, const char *key, char bracket)
{
    json_key(j, key);
    out_bytes(&bracket, 1);
    j->depth++;
    j->filled[j->depth] = false;
}

void json_open_flat(json_out *j, const char *key, char bracket)
{
    json_open(j, key, bracket);
    // inner containers are on the line of the outer one anyway
    if (j->flat_from == 0)
        j->flat_from = j->depth;
}

void json_close(json_out *j, char bracket)
{
    bool flat = json_flat(j), filled = j->filled[j->depth];

    // one line ends with the container that began it
    if (j->flat_from == j->depth)
        j->flat_from = 0;
    j->depth--;
    if (filled && !flat)
        json_line(j);
    out_bytes(&bracket, 1);
}

void json_begin(json_out *j)
{
    *j = (json_out){0};
    json_open(j, NULL, '{');
    json_uint(j, "schema", 1);
}

void json_end(json_out *j)
{
    json_close(j, '}');
    out_bytes("\n", 1);
}

void json_text(json_out *j, const char *key, const char *text)
{
    json_key(j, key);
    if (text)
        json_string(text);
    else
        out_bytes("null", 4);
}

void json_uint(json_out *j, const char *key, uint64_t n)
{
    json_key(j, key);
    out_printf("%" PRIu64, n);
}

void json_int(json_out *j, const char *key, int64_t n)
{
    json_key(j, key);
    out_printf("%" PRId64, n);
}

void json_bool(json_out *j, const char *key, bool b)
{
    json_key(j, key);
    out_printf("%s", b ? "true" : "false");
}

void json_literal(json_out *j, const char *key, const char *text)
{
    json_key(j, key);
    out_bytes(text, strlen(text));
}

void json_real(json_out *j, const char *key, double x)
{
    char text[40];

    // JSON has no such numbers; Python and JavaScript know these words
    if (isnan(x)) {
        json_text(j, key, "NaN");
        return;
    }
    if (isinf(x)) {
        json_text(j, key, x < 0 ? "-Infinity" : "Infinity");
        return;
    }
    // the shortest spelling that reads back as the same number
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, x);
        if (digits == 17 || !(strtod(text, NULL) < x || strtod(text, NULL) > x))
            break;
    }
    json_literal(j, key, text);
}
