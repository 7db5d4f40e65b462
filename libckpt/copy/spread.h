/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.h: which machine of a team gets which files of a target, where each has a disk of its own
 * (ckpt_team_spread).
 *
 * A machine gets the files of its ranks.  What is of no rank every machine needs: one makes it, the
 * others get copies (replicate.h).
 */
#ifndef CKPT_COPY_SPREAD_H
#define CKPT_COPY_SPREAD_H

#include "libckpt/copy/team.h"
#include "libckpt/map/map.h"

/* Zeros: outputs are not spread. */
typedef struct ckpt_spread {
    uint32_t *maker; /* per file of the target: the machine whose processes write it */
    uint8_t *copied; /* per file: 1 if the other machines that get files have copies of it */
    uint32_t *node;  /* n_nodes: the machines that get files, ascending */
    size_t n_nodes;
} ckpt_spread;

/*
 * Errors   CKPT_EUSAGE: ranks do not fit the processes, or the hosts that were named; CKPT_ELIMIT.
 *          ckpt_spread_free is due in any case
 */
int ckpt_spread_make(ckpt_spread *out, const ckpt_team *t, const ckpt_map *to, ckpt_err *err);
void ckpt_spread_free(ckpt_spread *s);

/* Whether a target's ranks fit the machines, where outputs are spread; errors as of the same. */
int ckpt_spread_check(const ckpt_map *to, ckpt_err *err);

/* True if the machine gets files at all, and if it gets this one. */
bool ckpt_spread_has(const ckpt_spread *s, unsigned node);
bool ckpt_spread_gets(const ckpt_spread *s, unsigned node, uint32_t file);

#endif
