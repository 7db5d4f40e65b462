/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joint.h: what the processes of a team tell each other about a run that they carry out together.
 *
 * Each does its share of the jobs (share.h).  Checksums of stretches, counts and findings are
 * brought together; rank 0 makes the outputs, notes what is finished, and gives the names; where
 * outputs are spread (spread.h), one process of each machine does.  Without a team all of this does
 * nothing, and a run is that of one process.
 */
#ifndef CKPT_COPY_JOINT_H
#define CKPT_COPY_JOINT_H

#include "libckpt/copy/share.h"
#include "libckpt/copy/sink.h"
#include "libckpt/copy/spread.h"
#include "libckpt/copy/team.h"
#include "libckpt/copy/work.h"

typedef struct ckpt_joint {
    ckpt_team *team; /* NULL: this process is alone */
    const ckpt_plan *plan;
    ckpt_share share;   /* alone: not made */
    ckpt_spread spread; /* outputs that are not spread: zeros */
    unsigned leader;    /* the process that makes this one's outputs */
    bool was_local;     /* before ckpt_joint_look */
    size_t n_told;      /* findings of the target that all have */
} ckpt_joint;

/*
 * Collective.  All have read the same headers, of files that are still the same.
 *
 * Errors  CKPT_EMISMATCH: they have not
 */
int ckpt_joint_same(ckpt_team *t, const ckpt_map *map, ckpt_err *err);

/*
 * Collective, as all that follows.  Whether this run is one of a team, and whose jobs are whose.
 *
 * Errors  CKPT_EMISMATCH: the processes have different plans; those of ckpt_share_make
 */
int ckpt_joint_open(ckpt_joint *j, const ckpt_plan *plan, ckpt_err *err);
void ckpt_joint_close(ckpt_joint *j);

/* True if this process makes the outputs: for all, or for its machine, which gets some. */
bool ckpt_joint_leads(const ckpt_joint *j);

/* True if outputs are spread over machines, and the process that makes those of a machine. */
bool ckpt_joint_spread(const ckpt_joint *j);
unsigned ckpt_joint_leader(const ckpt_joint *j, unsigned node);

/* True if the file is made by one machine and copied to others; the bytes of all copies. */
bool ckpt_joint_copied(const ckpt_joint *j, uint32_t file);
uint64_t ckpt_joint_copies(const ckpt_joint *j);

/* True if this process seals the file. */
bool ckpt_joint_home(const ckpt_joint *j, uint32_t file);

/* True if several processes write the file. */
bool ckpt_joint_shared(const ckpt_joint *j, uint32_t file);

/* The k-th run of this process's jobs; false: there are no more. */
bool ckpt_joint_jobs(const ckpt_joint *j, size_t k, size_t *first, size_t *end);

/* ckpt_team_agree, or rc. */
int ckpt_joint_agree(const ckpt_joint *j, int rc, ckpt_err *err);

/* Per file: 1 if this machine does not get it; NULL: it gets all.  ckpt_free is due. */
int ckpt_joint_elsewhere(const ckpt_joint *j, uint8_t **out, ckpt_err *err);

/*
 * Outputs that are spread are about to be looked at as one folder, by all; ckpt_joint_looked is due
 * in any case.
 *
 * where  in: the path at which a leader has them; out: that of all, to be freed; NULL: they have it
 *        at different ones, as a run leaves it that was killed while names were given.  What it had
 *        written was looked at before
 * rc     the outcome so far
 */
int ckpt_joint_look(ckpt_joint *j, char **where, int rc, ckpt_err *err);
int ckpt_joint_looked(ckpt_joint *j, int rc, ckpt_err *err);

/* Outputs that their maker has opened as *sink; the others open them for writing. */
int ckpt_joint_sink(ckpt_joint *j, ckpt_sink **sink, const char *folder, const ckpt_sink_opts *opts,
                    ckpt_err *err);

/* All get what the others have found since the last call, in the order of ranks. */
int ckpt_joint_findings(ckpt_joint *j, ckpt_err *err);

/* The same of any map's findings from *n_told on, by all of a team. */
int ckpt_joint_exchange(ckpt_team *team, ckpt_map *map, size_t *n_told, ckpt_err *err);

/* What was found of each target tensor, summed; and the lowest mismatch. */
int ckpt_joint_tallies(ckpt_joint *j, ckpt_work *work, ckpt_err *err);

/*
 * CRCs of stretches that were read.
 *
 * all   every process gets all of them; else each gets those of the records that it is to check
 */
int ckpt_joint_segments(ckpt_joint *j, ckpt_segments *read, bool all, ckpt_err *err);

/* parts[r] goes to rank r, whose own part comes back in *mine with what the others have for it. */
int ckpt_joint_deal(ckpt_joint *j, ckpt_segments *parts, ckpt_segments *mine, ckpt_err *err);

/* ckpt_team_count, or nothing. */
int ckpt_joint_count(ckpt_joint *j, ckpt_err *err);

/* The sum over all processes of n counters. */
int ckpt_joint_sum(ckpt_joint *j, uint64_t *counter, size_t n, ckpt_err *err);

#endif
