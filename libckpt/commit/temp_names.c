/* SPDX-License-Identifier: Apache-2.0 */
/*
 * temp_names.c: recognises the names of incomplete outputs.
 */
#include "libckpt/commit/temp_names.h"

#include <stdbool.h>
#include <string.h>

enum { LEFT_RANDOM = 6 }; /* letters and digits in a name of a temporary file */

/* True if the string ends in `end` and is longer. */
static bool left_ends(const char *name, size_t n, const char *end)
{
    size_t m = strlen(end);

    return n > m && memcmp(name + n - m, end, m) == 0;
}

/* True if s begins with the random part of a name: at the end of the string, or before ".tmp". */
static bool left_is_random(const char *s, bool at_end)
{
    static const char lower[] = "0123456789abcdefghijklmnopqrstuvwxyz",
                      any[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return strspn(s, at_end ? any : lower) == LEFT_RANDOM && (!at_end || !s[LEFT_RANDOM]);
}

ckpt_left_kind ckpt_left_name(const char *name)
{
    static const char mark[] = ".ckpt-", tail[] = ".tmp", spool[] = ".ckpt-spool-";
    size_t n = strlen(name), n_mark = sizeof mark - 1, n_tail = sizeof tail - 1;

    if (name[0] != '.')
        return CKPT_LEFT_NONE;
    // a file of decoded records (spool.c), which has a name only for a moment
    if (strncmp(name, spool, sizeof spool - 1) == 0)
        return left_is_random(name + sizeof spool - 1, true) ? CKPT_LEFT_FILE : CKPT_LEFT_NONE;
    // a dot, at least one byte of the final name, and the suffix
    if (left_ends(name + 1, n - 1, ".ckpt-partial"))
        return CKPT_LEFT_FOLDER;
    if (!left_ends(name + 1, n - 1, tail) || n < 2 + n_mark + LEFT_RANDOM + n_tail)
        return CKPT_LEFT_NONE;
    const char *random = name + n - n_tail - LEFT_RANDOM;
    return memcmp(random - n_mark, mark, n_mark) == 0 && left_is_random(random, false)
               ? CKPT_LEFT_FILE
               : CKPT_LEFT_NONE;
}
