/* SPDX-License-Identifier: Apache-2.0 */
/*
 * style.c: writes the page's style and script, which the build made into strings, and their hashes.
 */
#include "tools/report/style.h"

#include <stdio.h>
#include <string.h>

/* picture_css, page_css, page_js: lines; SHA-256 of the elements' contents, in hexadecimal */
#include "tools/report/style.inc"

static void style_lines(sheet *s, const char *const *line)
{
    for (; *line; line++)
        sheet_put(s, *line, strlen(*line));
}

void style_picture(sheet *s)
{
    style_lines(s, picture_css);
}

void style_page(sheet *s)
{
    sheet_printf(s, "<style>");
    style_lines(s, picture_css);
    style_lines(s, page_css);
    sheet_printf(s, "</style>\n");
}

void style_script(sheet *s)
{
    sheet_printf(s, "<script>");
    style_lines(s, page_js);
    sheet_printf(s, "</script>\n");
}

/* Write a hash in the policy's form: base64. */
static void style_hash(sheet *s, const char *hex)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, n = 0, byte;

    sheet_printf(s, "'sha256-");
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2) {
        bits = bits << 8 | byte;
        for (n += 8; n >= 6; n -= 6)
            sheet_put(s, &digits[bits >> (n - 6) & 63], 1);
    }
    // 32 bytes leave two bits and one '=' of padding
    sheet_put(s, &digits[bits << (6 - n) & 63], 1);
    sheet_printf(s, "='");
}

void style_policy(sheet *s)
{
    sheet_printf(s, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                    "style-src ");
    style_hash(s, style_sha256);
    sheet_printf(s, "; script-src ");
    style_hash(s, script_sha256);
    sheet_printf(s, "; base-uri 'none'; form-action 'none'\">\n");
}
