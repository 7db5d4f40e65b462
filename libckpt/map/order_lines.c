/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_lines.c: parses a caller's list of parameters.
 */
#include <string.h>

#include "libckpt/map/order.h"

int ckpt_order_lines(const char *text, ckpt_order_line *use, void *ctx)
{
    const char *at = text;
    int rc = CKPT_OK;

    for (uint64_t line = 1; rc == CKPT_OK && *at; line++) {
        const char *end = at + strcspn(at, "\n"), *from = at + strspn(at, " \t\r");
        size_t n = from < end ? (size_t)(end - from) : 0;
        while (n > 0 && strchr(" \t\r", from[n - 1]))
            n--;
        at = *end ? end + 1 : end;
        if (n == 0 || *from != '#')
            rc = use(ctx, line, from, n);
    }
    return rc;
}
