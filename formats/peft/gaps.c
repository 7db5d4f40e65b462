/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gaps.c: finds modules of the base that an adapter has for other layers and lacks here, because a
 * part of the adapter was lost.
 *
 * Modules are alike if their paths differ only in numbers ("h.0.attn.c_attn", "h.1.attn.c_attn").
 */
#include <assert.h>
#include <string.h>

#include "formats/peft/peft.h"

enum { GAP_MAX = 1 << 27 /* comparisons */ };

static bool gap_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* True if two paths of n and m bytes differ only in their numbers. */
static bool gap_alike(const char *a, size_t n, const char *b, size_t m)
{
    size_t i = 0, k = 0;

    while (i < n && k < m) {
        if (gap_digit(a[i]) && gap_digit(b[k])) {
            while (i < n && gap_digit(a[i]))
                i++;
            while (k < m && gap_digit(b[k]))
                k++;
        } else if (a[i++] != b[k++]) {
            return false;
        }
    }
    return i == n && k == m;
}

/* True if the adapter has updates of modules like this one, and none of this one. */
static bool gap_is(const ckpt_map *adapter, const char *module, size_t n)
{
    bool like = false;

    for (size_t i = 0; i < adapter->tensors.n; i++) {
        ckpt_peft_name name;
        if (!ckpt_peft_parse(&name, adapter->tensors.at[i]->name) ||
            ckpt_peft_kind_of(name.part) == CKPT_PEFT_N_KINDS)
            continue;
        if (name.n == n && memcmp(name.module, module, n) == 0)
            return false;
        like = like || gap_alike(name.module, name.n, module, n);
    }
    return like;
}

int ckpt_peft_gaps(ckpt_map *map, const ckpt_map *adapter, const ckpt_peft_config *config,
                   const char *path, ckpt_err *err)
{
    assert(map && adapter && config && path);
    static const char end[] = ".weight";
    const char *first = NULL;
    size_t missing = 0, n_first = 0;

    if (config->some_layers || map->tensors.n > GAP_MAX / (adapter->tensors.n + 1))
        return CKPT_OK;
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];
        size_t n = strlen(t->name);
        if (n < sizeof end || strcmp(t->name + n - (sizeof end - 1), end) != 0 ||
            !gap_is(adapter, t->name, n - (sizeof end - 1)))
            continue;
        first = first ? first : t->name;
        n_first = n_first ? n_first : n - (sizeof end - 1);
        missing++;
    }
    if (missing == 0)
        return CKPT_OK;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: has no update of %zu module%s of the base, such as %.*s, though it "
                         "has updates of the same module in other layers: a part of the adapter "
                         "may be missing",
                         path, missing, missing == 1 ? "" : "s", (int)n_first, first);
}
