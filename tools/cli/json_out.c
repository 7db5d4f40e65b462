/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_out.c: prints JSON to stdout.
 *
 * Values are printed at once, so a report of any length needs no memory.  Commas and indentation
 * follow from two facts per open container: whether it has a member, and whether it is on one line.
 */
#include "tools/cli/json_out.h"
#include "libckpt/base/hidden.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "tools/cli/out.h"

/* Print a code point as a JSON escape. */
static void json_escape(uint32_t code)
{
    if (code < 0x10000) {
        out_printf("\\u%04x", code);
        return;
    }
    code -= 0x10000;
    out_printf("\\u%04x\\u%04x", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
}

/*
 * Print a string in quotes: short escapes, \u for invisible characters, U+FFFD for invalid UTF-8.
 */
static void json_string(const char *text)
{
    static const char special[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";

    out_bytes("\"", 1);
    while (*text) {
        const char *found = strchr(special, *text);
        size_t n = text_utf8(text);
        // found is never the terminator, because the loop ends before it
        if (found) {
            out_printf("\\%c", letter[found - special]);
        } else if (n == 0) {
            out_bytes("\\ufffd", 6);
            n = 1;
        } else if (ckpt_hidden(text_code(text, n))) {
            json_escape(text_code(text, n));
        } else {
            out_bytes(text, n);
        }
        text += n;
    }
    out_bytes("\"", 1);
}

/* True if the open container is on one line. */
static bool json_flat(const json_out *j)
{
    return j->flat_from != 0 && j->depth >= j->flat_from;
}

/* Begin a line, indented for the open container. */
static void json_line(const json_out *j)
{
    out_printf("\n%*s", (int)(2 * j->depth), "");
}

void json_key(json_out *j, const char *key)
{
    // nothing precedes the document itself
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
    // inner containers of a one-line container are on its line
    if (j->flat_from == 0)
        j->flat_from = j->depth;
}

void json_close(json_out *j, char bracket)
{
    bool flat = json_flat(j), filled = j->filled[j->depth];

    // the container that began the line ends it
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
    char text[CKPT_NUMBER_TEXT];

    // JSON lacks these numbers; Python and JavaScript know the words
    if (isnan(x)) {
        json_text(j, key, "NaN");
        return;
    }
    if (isinf(x)) {
        json_text(j, key, x < 0 ? "-Infinity" : "Infinity");
        return;
    }
    json_literal(j, key, ckpt_print_f64(text, x, 15));
}
