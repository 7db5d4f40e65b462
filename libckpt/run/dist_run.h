/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_run.h: exchanges data between the processes of a team that carry out one run together.
 *
 * Each process does its share of the jobs (partition.h). The processes exchange checksums of
 * stretches, counts and findings; rank 0 makes the outputs, notes finished files, and gives final
 * names; if outputs are spread (placement.h), one process of each machine does. Without a team all
 * functions do nothing, and the run uses one process.
 */
#ifndef CKPT_RUN_DIST_RUN_H
#define CKPT_RUN_DIST_RUN_H

#include "libckpt/commit/sink.h"
#include "libckpt/copy/work.h"
#include "libckpt/dist/team.h"
#include "libckpt/run/partition.h"
#include "libckpt/run/placement.h"

typedef struct ckpt_joint {
    ckpt_team *team; /* NULL: this process works alone */
    const ckpt_plan *plan;
    ckpt_share share;   /* without a team: not set */
    ckpt_spread spread; /* zeros: outputs are not spread */
    unsigned leader;    /* the process that creates this process's output files */
    bool was_local;     /* before ckpt_joint_look */
    size_t n_told;      /* findings of the target that all processes have */
} ckpt_joint;

/*
 * Collective. Check that all processes have read the same headers, from files that are still the
 * same.
 *
 * Errors  CKPT_EMISMATCH: they have not
 */
int ckpt_joint_same(ckpt_team *t, const ckpt_map *map, ckpt_err *err);

/*
 * Collective, like all functions below. Detect whether this run belongs to a team, and divide its
 * jobs.
 *
 * Errors  CKPT_EMISMATCH: the processes have different plans; those of ckpt_share_make
 */
int ckpt_joint_open(ckpt_joint *j, const ckpt_plan *plan, ckpt_err *err);
void ckpt_joint_close(ckpt_joint *j);

/*
 * True if this process creates outputs: for all processes or, if outputs are spread, for its
 * machine if that gets any.
 */
bool ckpt_joint_leads(const ckpt_joint *j);

/* True if several processes carry out the run. */
bool ckpt_joint_several(const ckpt_joint *j);

/* True if the last ckpt_joint_agree had the same result on all of several processes. */
bool ckpt_joint_decided(const ckpt_joint *j);

/* True if outputs are spread over machines; how many; and the process that makes those of one. */
bool ckpt_joint_spread(const ckpt_joint *j);
size_t ckpt_joint_machines(const ckpt_joint *j);
unsigned ckpt_joint_leader(const ckpt_joint *j, unsigned node);

/* True if one machine makes the file and others copy it; and the bytes of all copies. */
bool ckpt_joint_copied(const ckpt_joint *j, uint32_t file);
uint64_t ckpt_joint_copies(const ckpt_joint *j);

/* True if this process finishes the file (finish.h). */
bool ckpt_joint_home(const ckpt_joint *j, uint32_t file);

/* True if several processes write the file. */
bool ckpt_joint_shared(const ckpt_joint *j, uint32_t file);

/* The k-th run of this process's jobs; false: there are no more. */
bool ckpt_joint_jobs(const ckpt_joint *j, size_t k, size_t *first, size_t *end);

/* Call ckpt_team_agree; without a team, return rc. */
int ckpt_joint_agree(const ckpt_joint *j, int rc, ckpt_err *err);

/*
 * Per file: 1 if this machine does not get it; NULL: it gets all. The caller frees it with
 * ckpt_free.
 */
int ckpt_joint_elsewhere(const ckpt_joint *j, uint8_t **out, ckpt_err *err);

/*
 * Begin to read the outputs, spread ones as one folder from all processes, others from the leader
 * alone; the caller must call ckpt_joint_looked in any case.
 *
 * where    in: the leader's path of the outputs; out: the common path, which the caller frees;
 *          NULL: the leaders have different paths, because an earlier run was killed while it gave
 *          names. Its outputs were checked before that
 * rc       the result so far
 */
int ckpt_joint_look(ckpt_joint *j, char **where, int rc, ckpt_err *err);
int ckpt_joint_looked(ckpt_joint *j, int rc, ckpt_err *err);

/* Open *sink, which the leader has opened, for writing in the other processes. */
int ckpt_joint_sink(ckpt_joint *j, ckpt_sink **sink, const char *folder, const ckpt_sink_opts *opts,
                    ckpt_err *err);

/* Stop to record files in the sink for other processes, because it will be closed. */
void ckpt_joint_unsink(ckpt_joint *j);

/* Let the leader do the following work alone, without the other processes; calls come in pairs. */
void ckpt_joint_aside(bool aside);

/*
 * Exchange the findings since the last call, so that all processes have them in the order of ranks.
 */
int ckpt_joint_findings(ckpt_joint *j, ckpt_err *err);

/* The same for any map's findings from *n_told on, among all processes of a team. */
int ckpt_joint_exchange(ckpt_team *team, ckpt_map *map, size_t *n_told, ckpt_err *err);

/* Sum the counts of each target tensor; the lowest tensor with a mismatch wins. */
int ckpt_joint_tallies(ckpt_joint *j, ckpt_work *work, ckpt_err *err);

/*
 * Exchange CRCs of stretches that were read.
 *
 * all      every process gets all of them; else each gets those of the records that it must check
 */
int ckpt_joint_segments(ckpt_joint *j, ckpt_segments *read, bool all, ckpt_err *err);

/* Send parts[r] to rank r; *mine gets this process's own part and those of the others for it. */
int ckpt_joint_deal(ckpt_joint *j, ckpt_segments *parts, ckpt_segments *mine, ckpt_err *err);

/* Call ckpt_team_count; without a team, do nothing. */
int ckpt_joint_count(ckpt_joint *j, ckpt_err *err);

/* Sum n counters over all processes. */
int ckpt_joint_sum(ckpt_joint *j, uint64_t *counter, size_t n, ckpt_err *err);

#endif
