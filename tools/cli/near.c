/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.c: computes distances between words: bytes inserted, deleted, replaced, or swapped with the
 * next.
 */
#include "tools/cli/near.h"

#include <string.h>

/* Maximum length, because three rows of this length are on the stack. */
enum { NEAR_MAX = 255 };

static size_t near_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits from a to b (optimal string alignment); rows are prefixes of a, columns prefixes of b. */
static size_t near_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][NEAR_MAX + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];

    for (size_t k = 0; k <= m; k++)
        above[k] = before[k] = k;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t k = 1; k <= m; k++) {
            size_t change = above[k - 1] + (a[i - 1] != b[k - 1]);

            row[k] = near_least(change, near_least(above[k], row[k - 1]) + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                row[k] = near_least(row[k], before[k - 2] + 1);
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[m];
}

void near_begin(near_word *w, const char *word, size_t n)
{
    *w = (near_word){.word = word, .length = n, .limit = 1 + n / 3};
}

void near_try(near_word *w, const char *candidate)
{
    size_t m = strlen(candidate);

    // the difference of the lengths alone exceeds the limit
    if (w->length > NEAR_MAX || m > NEAR_MAX || w->limit == 0 || m > w->length + w->limit ||
        w->length > m + w->limit)
        return;
    size_t distance = near_distance(w->word, w->length, candidate, m);
    // with all of its letters replaced, a short word is another word
    if (distance <= w->limit && distance < m) {
        w->best = candidate;
        w->limit = distance - (distance > 0);
    }
}
