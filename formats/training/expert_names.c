/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expert_names.c: finds the number of an expert in the name of its parameter.
 */
#include "formats/training/expert_names.h"

#include <assert.h>
#include <string.h>

/* The text after the last "experts.w1." (w2, w3) of a name, or NULL. */
static const char *expert_autoep(const char *name)
{
    static const char mark[] = "experts.w";
    const char *found = NULL;

    for (const char *p = strstr(name, mark); p; p = strstr(p + 1, mark)) {
        const char *w = p + sizeof mark - 1;
        if (*w >= '1' && *w <= '3' && w[1] == '.' && (p == name || p[-1] == '.'))
            found = w + 2;
    }
    return found;
}

bool ckpt_train_expert_number(const char *name, size_t *at, size_t *n, uint64_t *number)
{
    assert(name && at && n && number);
    const char *mark = strstr(name, CKPT_TRAIN_EXPERTS), *p;
    const char *autoep = mark ? NULL : expert_autoep(name);

    if (!mark && !autoep)
        return false;
    p = autoep ? autoep : mark + sizeof CKPT_TRAIN_EXPERTS - 1;
    *at = (size_t)(p - name);
    *number = 0;
    for (*n = 0; *n < 9 && p[*n] >= '0' && p[*n] <= '9'; (*n)++)
        *number = *number * 10 + (uint64_t)(p[*n] - '0');
    return *n > 0 && p[*n] == (autoep ? '\0' : '.');
}
