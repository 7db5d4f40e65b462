/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks.h: the hooks (peers.h) of the processes of a team that carry out one run together.
 *
 * Each process does its share of the jobs (partition.h). The processes exchange checksums of
 * stretches, counts and findings; rank 0 makes the outputs, notes finished files, and gives final
 * names; if outputs are spread (placement.h), one process of each machine does. Without a team the
 * run uses one process.
 */
#ifndef CKPT_DIST_RUN_HOOKS_H
#define CKPT_DIST_RUN_HOOKS_H

#include "libckpt/dist/run/partition.h"
#include "libckpt/dist/run/placement.h"
#include "libckpt/dist/team.h"
#include "libckpt/run/peers.h"

/* The state of these hooks. */
typedef struct ckpt_joint {
    ckpt_team *team;
    ckpt_share share;   /* zeros without a plan */
    ckpt_spread spread; /* zeros: outputs are not spread */
    unsigned leader;    /* the process that creates this process's output files */
} ckpt_joint;

extern const ckpt_peer_hooks ckpt_team_peers;

/* Two of the hooks (peers.h): exchange and give. */
int ckpt_team_exchange(ckpt_peers *p, const ckpt_results *r, ckpt_err *err);
int ckpt_team_give(ckpt_peers *p, ckpt_work *work, ckpt_segments *seg, ckpt_segments *mine,
                   ckpt_err *err);

/*
 * Collective. Check that all processes have read the same headers, from files that are still the
 * same.
 *
 * Errors  CKPT_EMISMATCH: they have not
 */
int ckpt_team_same_map(ckpt_team *t, const ckpt_map *map, ckpt_err *err);

#endif
