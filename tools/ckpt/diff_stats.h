/* SPDX-License-Identifier: Apache-2.0 */
/* diff_stats.h: declares the report of ckpt diff --stats. */
#ifndef TOOLS_CKPT_DIFF_STATS_H
#define TOOLS_CKPT_DIFF_STATS_H

#include "libckpt/base/vec.h"
#include "tools/cli/json_out.h"

/* A group of tensors, and its name, which is owned. */
typedef struct diff_stat {
    ckpt_diff_group group;
    char *name;
} diff_stat;

CKPT_VEC(diff_stats, diff_stat);

/* Add a copy of a group; not 0: out of memory. */
int diff_stats_add(diff_stats *groups, const ckpt_diff_group *g);
void diff_stats_free(diff_stats *groups);

/* Print a table with a line for each group, or the array "groups". */
void diff_stats_text(const diff_stats *groups);
void diff_stats_json(json_out *j, const diff_stats *groups);

#endif
