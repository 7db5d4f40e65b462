/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_param.h: computes the location of each element in ZeRO stage 3: every parameter is
 * partitioned by itself, and partitions are gathered in sub-groups.
 *
 * Source: deepspeed/runtime/zero/stage3.py and partition_parameters.py, releases 0.3.16 to 0.19.8.
 * All numbers are elements.
 */
#ifndef CKPT_MAP_ZERO_PARAM_H
#define CKPT_MAP_ZERO_PARAM_H

#include "libckpt/map/zero_flat.h"

/* Elements of each rank's partition of a parameter: ceil(numel / world). */
uint64_t ckpt_zero_partition(uint64_t numel, uint32_t world);

/*
 * Iterate over the runs of one parameter, ascending by rank; run.at counts from the start of its
 * partition. Cursor as in zero_flat.
 */
bool ckpt_zero_param_next(uint64_t numel, uint32_t world, uint64_t *cursor, ckpt_zero_run *run);

/*
 * Assign one parameter group's parameters to sub-groups.
 *
 * numel           n sizes in layout order
 * sub_group_size  elements (config key sub_group_size, default 1e9): a sub-group ends after the
 *                 parameter whose partition makes the count reach it
 * group           n results: sub-group of each parameter, from *next up; *next is advanced past the
 *                 last
 */
void ckpt_zero_sub_groups(const uint64_t *numel, uint64_t n, uint32_t world,
                          uint64_t sub_group_size, uint32_t *group, uint32_t *next);

#endif
