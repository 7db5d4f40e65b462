/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c: tests whether names have the order of named_parameters(), which walks each module of a
 * model once.
 */
#include <stdlib.h>
#include <string.h>

#include "libckpt/map/order.h"

/* A run of adjacent names with one prefix, which is in its first name. */
typedef struct wk_run {
    const char *name;
    size_t n; /* bytes of the prefix, which ends before a dot */
} wk_run;

CKPT_VEC(wk_runs, wk_run);

/* qsort: equal prefixes become adjacent. */
static int wk_order(const void *pa, const void *pb)
{
    const wk_run *a = pa, *b = pb;
    int c = memcmp(a->name, b->name, a->n < b->n ? a->n : b->n);

    return c != 0 ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* Add the prefixes of a name that the previous name does not have. */
static bool wk_add(wk_runs *runs, const char *name, const char *before)
{
    size_t same = 0; // bytes in common

    while (name[same] && name[same] == before[same])
        same++;
    for (size_t n = same; name[n]; n++) {
        // a common part that ends before a dot in both names is the same module
        if (name[n] != '.' || (n == same && before[n] == '.'))
            continue;
        wk_run *run = ckpt_vec_push(runs);
        if (!run)
            return false;
        *run = (wk_run){name, n};
    }
    return true;
}

int ckpt_order_twice(ckpt_tensor *const *list, size_t n, const char **odd, ckpt_err *err)
{
    const char *before = "";
    wk_runs runs = {0};
    bool ok = true;

    *odd = NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = wk_add(&runs, list[i]->name, before);
        before = list[i]->name;
    }
    if (runs.n > 0)
        qsort(runs.at, runs.n, sizeof *runs.at, wk_order);
    for (size_t i = 1; i < runs.n && !*odd; i++) {
        if (wk_order(&runs.at[i - 1], &runs.at[i]) == 0)
            *odd = runs.at[i].name;
    }
    ckpt_vec_free(&runs);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

size_t ckpt_order_prefix(ckpt_tensor *const *list, size_t n)
{
    size_t same = n > 0 ? strlen(list[0]->name) : 0;

    for (size_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < same && list[i]->name[k] == list[0]->name[k])
            k++;
        same = k;
    }
    while (same > 0 && list[0]->name[same - 1] != '.')
        same--;
    return same;
}

size_t ckpt_order_layer(const char *name)
{
    for (const char *c = name; *c; c++) {
        size_t digits = strspn(c, "0123456789");
        if (digits > 0 && (c == name || c[-1] == '.') && c[digits] == '.')
            return (size_t)(c - name) + digits;
    }
    return 0;
}
