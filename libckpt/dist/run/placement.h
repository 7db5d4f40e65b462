/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h: assigns a target's files to the machines of a team that each have their own disk
 * (ckpt_team_spread).
 *
 * A machine gets the files of its ranks. Every machine needs the files that belong to no rank: one
 * makes them, the others get copies (replicate.h).
 */
#ifndef CKPT_DIST_RUN_PLACEMENT_H
#define CKPT_DIST_RUN_PLACEMENT_H

#include "libckpt/dist/team.h"
#include "libckpt/map/map.h"

/* Zeros: outputs are not spread. */
typedef struct ckpt_spread {
    uint32_t *maker; /* per file of the target: the machine with the processes that write it */
    uint8_t *copied; /* per file: 1 if the other machines with files get copies of it */
    uint32_t *node;  /* n_nodes machines that get files, ascending */
    size_t n_nodes;
} ckpt_spread;

/*
 * Errors   CKPT_EUSAGE: ranks do not fit the processes, or the named hosts; CKPT_ELIMIT. The caller
 *          must call ckpt_spread_free in any case
 */
int ckpt_spread_make(ckpt_spread *out, const ckpt_team *t, const ckpt_map *to, ckpt_err *err);
void ckpt_spread_free(ckpt_spread *s);

/* Check that a target's ranks fit the machines, if outputs are spread; errors as above. */
int ckpt_spread_check(const ckpt_map *to, ckpt_err *err);

/* True if the machine gets any file; true if it gets this one. */
bool ckpt_spread_has(const ckpt_spread *s, unsigned node);
bool ckpt_spread_gets(const ckpt_spread *s, unsigned node, uint32_t file);

#endif
