/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c: parses the names of the ranks' files: kind, world size, rank.
 */
#include <assert.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "libckpt/base/number.h"

const char *const ckpt_ranks_file_kinds[CKPT_RANKS_KINDS] = {"model", "optim", "extra_state"};

/* Parse a number without leading zeros, as programs print it. */
static bool rfn_number(const char **at, uint32_t *out)
{
    uint64_t n = 0;
    const char *end = ckpt_scan_u64(*at, &n);

    if (!end || end - *at > 5 || (end - *at > 1 && **at == '0'))
        return false;
    *out = (uint32_t)n;
    *at = end;
    return true;
}

/* Parse "<kind>[_world_size_W]_rank_R.pt". */
bool ckpt_ranks_name_parse(const char *name, ckpt_ranks_file_name *out)
{
    assert(name && out);
    static const char world[] = "_world_size_", rank[] = "_rank_";

    for (size_t k = 0; k < CKPT_RANKS_KINDS; k++) {
        size_t n = strlen(ckpt_ranks_file_kinds[k]);
        const char *at = name + n;
        *out = (ckpt_ranks_file_name){.kind = (ckpt_ranks_file_kind)k};
        if (strncmp(name, ckpt_ranks_file_kinds[k], n) != 0)
            continue;
        if (strncmp(at, world, sizeof world - 1) == 0) {
            at += sizeof world - 1;
            if (!rfn_number(&at, &out->world) || out->world == 0)
                return false;
        }
        if (strncmp(at, rank, sizeof rank - 1) != 0)
            return false;
        at += sizeof rank - 1;
        return rfn_number(&at, &out->rank) && strcmp(at, ".pt") == 0;
    }
    return false;
}

/* 57 if names have the world size, 54 if not, 0 if there are no such files. */
int ckpt_ranks_sure(const ckpt_listing *list)
{
    ckpt_ranks_file_name name;
    int sure = 0;

    for (size_t i = 0; i < list->n; i++) {
        if (!list->entry[i].is_dir && ckpt_ranks_name_parse(list->entry[i].name, &name) &&
            name.kind != CKPT_RANKS_EXTRA)
            sure = name.world ? 57 : sure ? sure : 54;
    }
    return sure;
}

bool ckpt_ranks_is_one(const ckpt_listing *list)
{
    return ckpt_ranks_sure(list) > 0;
}
