/* SPDX-License-Identifier: Apache-2.0 */
/* sorted.c: finds the keys that begin a text, by bisection of a sorted list, byte by byte. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/inside.h"

static int srt_compare(const void *a, const void *b)
{
    const tz_token *x = *(const tz_token *const *)a, *y = *(const tz_token *const *)b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

int tz_sorted_make(tz_sorted *s, const tz_token *token, size_t n, ckpt_err *err)
{
    assert(s && (token || n == 0));
    uint32_t k = 0;

    s->at = ckpt_alloc(n * sizeof *s->at + 1);
    if (!s->at || n > UINT32_MAX / 2)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (token[i].n > 0)
            s->at[s->n++] = &token[i];
    }
    if (s->n > 0)
        qsort((void *)s->at, s->n, sizeof *s->at, srt_compare);
    for (unsigned byte = 0; byte < 256; byte++) {
        while (k < s->n && (uint8_t)s->at[k]->text[0] < byte)
            k++;
        s->first[byte] = k;
    }
    s->first[256] = s->n;
    return CKPT_OK;
}

void tz_sorted_free(tz_sorted *s)
{
    ckpt_free((void *)s->at);
    *s = (tz_sorted){0};
}

/* The first key in [lo, hi) whose byte at `depth` is not below `byte`. */
static uint32_t srt_bound(const tz_sorted *s, const tz_walk *w, unsigned byte)
{
    uint32_t lo = w->lo, hi = w->hi;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if ((uint8_t)s->at[mid]->text[w->depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const tz_token *tz_walk_next(const tz_sorted *s, tz_walk *w, const char *text, size_t n)
{
    if (w->depth == 0 && n > 0) {
        w->lo = s->first[(uint8_t)text[0]];
        w->hi = s->first[(uint8_t)text[0] + 1];
        w->depth = 1;
    }
    // all keys in [lo, hi) begin with the first `depth` bytes of the text; at most one is equal
    while (w->lo < w->hi) {
        if (s->at[w->lo]->n == w->depth)
            return s->at[w->lo++];
        if (w->depth >= n)
            break;
        uint32_t lo = srt_bound(s, w, (uint8_t)text[w->depth]);
        w->hi = srt_bound(s, w, (unsigned)(uint8_t)text[w->depth] + 1);
        w->lo = lo;
        w->depth++;
    }
    return NULL;
}
