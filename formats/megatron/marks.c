/* SPDX-License-Identifier: Apache-2.0 */
/*
 * marks.c: recognises checkpoints by the names in a folder.
 */
#include <assert.h>
#include <string.h>

#include "formats/megatron/legacy.h"
#include "libckpt/base/number.h"

bool ckpt_meg_is_iter(const char *name)
{
    size_t n = strlen(name);

    return n > 5 && n - 5 <= CKPT_MEG_DIGITS && strncmp(name, "iter_", 5) == 0 &&
           strspn(name + 5, "0123456789") == n - 5;
}

bool ckpt_meg_is_dist(const ckpt_listing *list)
{
    const ckpt_entry *common = ckpt_listing_find(list, CKPT_MEG_COMMON),
                     *done = ckpt_listing_find(list, CKPT_MEG_DONE);

    return (common && !common->is_dir) ||
           (done && !done->is_dir && ckpt_listing_find(list, CKPT_DCP_METADATA));
}

bool ckpt_meg_is_nemo(const ckpt_listing *list)
{
    return ckpt_listing_has(list, CKPT_MEG_WEIGHTS, true) &&
           ckpt_listing_has(list, CKPT_MEG_CONTEXT, true);
}

unsigned ckpt_meg_numbers(const char *name, uint32_t out[3])
{
    assert(name && out);
    static const char start[] = "mp_rank_";
    unsigned n = 0;

    if (strncmp(name, start, sizeof start - 1) != 0)
        return 0;
    name += sizeof start - 1;
    while (n < 3) {
        uint64_t number = 0;
        const char *rest = ckpt_scan_u64(name, &number);
        if (!rest || rest - name > 6)
            return 0;
        out[n++] = (uint32_t)number;
        name = rest;
        if (!*name)
            return n;
        if (*name++ != '_')
            return 0;
    }
    return 0;
}

bool ckpt_meg_is_legacy(const ckpt_listing *list)
{
    uint32_t number[3];

    for (size_t i = 0; i < list->n; i++) {
        if (list->entry[i].is_dir && ckpt_meg_numbers(list->entry[i].name, number))
            return true;
    }
    return false;
}
