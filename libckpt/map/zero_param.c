/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_param.c: lays out ZeRO stage 3: every parameter is partitioned by itself, and partitions are
 * gathered in sub-groups.
 *
 * Rank r holds elements [r*p, min((r+1)*p, numel)) of a parameter, p = ceil(numel / w); the rest of
 * its p elements is padding that DeepSpeed never writes and that may hold anything.
 */
#include <assert.h>

#include "libckpt/map/zero_param.h"

uint64_t ckpt_zero_partition(uint64_t numel, uint32_t world)
{
    if (world == 0) {
        return 0; // without ranks there are no elements, so the loops below end at once
    }
    return numel / world + (numel % world != 0);
}

bool ckpt_zero_param_next(uint64_t numel, uint32_t world, uint64_t *cursor, ckpt_zero_run *run)
{
    assert(cursor && run);
    uint64_t part = ckpt_zero_partition(numel, world);
    uint64_t left, room;

    if (part == 0 || *cursor >= numel)
        return false;
    left = numel - *cursor;
    run->rank = (uint32_t)(*cursor / part); // below world: cursor < numel <= part * world
    run->first = *cursor;
    run->at = *cursor % part;
    room = part - run->at;
    run->count = left < room ? left : room;
    *cursor += run->count;
    return true;
}

void ckpt_zero_sub_groups(const uint64_t *numel, uint64_t n, uint32_t world,
                          uint64_t sub_group_size, uint32_t *group, uint32_t *next)
{
    assert(world > 0 && next && ((numel && group) || n == 0));
    uint64_t count = 0; // elements of one rank in the open sub-group

    for (uint64_t i = 0; i < n; i++) {
        group[i] = *next;
        if (!ckpt_add(count, ckpt_zero_partition(numel[i], world), &count)) {
            count = UINT64_MAX; // certainly full
        }
        if (count >= sub_group_size || i + 1 == n) {
            (*next)++;
            count = 0;
        }
    }
}
