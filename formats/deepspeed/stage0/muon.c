/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muon.c: matches unnamed states of DeepSpeed's Muon, whose groups list matrices by size (stage 0).
 *
 * A parameter's name and number of axes select its half of Muon (set_optimizer_flags of
 * deepspeed/__init__.py). The class then sorts the matrices of each group by size; equal sizes keep
 * the module's order (original_muon.py).
 */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "formats/deepspeed/stage0/entry.h"

/* Reads a group's use_muon into *muon; false if the group lacks it. */
static bool dsum_says(const ckpt_dsu *u, size_t group, bool *muon)
{
    int64_t on = 0;

    if (group >= u->param_groups.n ||
        !ckpt_value_as_int(ckpt_value_get(u->param_groups.at[group], "use_muon"), &on))
        return false;
    *muon = on != 0;
    return true;
}

bool ckpt_dsu_is_muon(const ckpt_dsu *u, size_t group)
{
    bool muon = false;

    return u->masters.n == 0 && dsum_says(u, group, &muon) && muon;
}

/* Returns whether the name contains the word, in upper or lower case. */
static bool dsum_has(const ckpt_text *name, const char *word)
{
    uint64_t n = strlen(word);

    for (uint64_t i = 0; i + n <= name->n; i++) {
        if (strncasecmp(name->at + i, word, n) == 0)
            return true;
    }
    return false;
}

bool ckpt_dsu_muon_takes(const ckpt_dsu *u, size_t group, const ckpt_dsu_entry *e)
{
    const ckpt_text *name = &e->pair->key->as.text;
    bool muon = false;

    if (!dsum_says(u, group, &muon))
        return true;
    return muon == (e->copy->ndim >= 2 && !dsum_has(name, "embed") && !dsum_has(name, "lm_head"));
}

/* Sorts longer axes first, as Python compares tuples. */
static int dsum_by_size(const ckpt_tensor_value *a, const ckpt_tensor_value *b)
{
    for (uint32_t i = 0; i < a->ndim && i < b->ndim; i++) {
        if (a->shape[i] != b->shape[i])
            return a->shape[i] > b->shape[i] ? -1 : 1;
    }
    return a->ndim == b->ndim ? 0 : a->ndim > b->ndim ? -1 : 1;
}

/* Returns the first item that is not larger than a matrix; with `past`, the first that is
 * smaller. */
static uint64_t dsum_search(ckpt_dsu *u, size_t group, uint64_t n, const ckpt_tensor_value *of,
                            bool past)
{
    uint64_t low = 0, high = n;

    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        size_t at = ckpt_dsu_state_at(u, group, mid);
        const ckpt_value *v =
            at == SIZE_MAX ? NULL : ckpt_value_get(u->states.at[at].value, "momentum_buffer");
        if (!v || v->kind != CKPT_V_TENSOR)
            return n;
        int order = dsum_by_size(v->as.tensor, of);
        if (order < 0 || (past && order == 0))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void ckpt_dsu_muon_run(ckpt_dsu *u, size_t group, const ckpt_dsu_entry *e, uint64_t *first,
                       uint64_t *n)
{
    assert(e && first && n);
    uint64_t all = ckpt_value_seq(ckpt_value_get(u->param_groups.at[group], "params")).n;
    uint64_t end = dsum_search(u, group, all, e->copy, true);

    *first = dsum_search(u, group, all, e->copy, false);
    *n = *first < end ? end - *first : 0;
}
