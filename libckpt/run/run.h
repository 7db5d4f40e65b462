/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h: executes a plan with a few threads in constant memory.
 *
 * Each worker takes the next job, reads its pieces (checksumming every byte of records with a CRC),
 * compares copies, converts, counts values that are not finite, checksums the result and writes it.
 * A file whose jobs are done is finished and synced at once (finish.h). At the end the run reads
 * the rest of records that were read only in part, compares all CRCs, and gives the files their
 * names. The result and its bytes depend neither on the number of threads, nor on how often a run
 * into a folder (to->folder) was interrupted and resumed.
 */
#ifndef CKPT_RUN_RUN_H
#define CKPT_RUN_RUN_H

#include "libckpt/commit/recompress.h"
#include "libckpt/copy/budget.h"
#include "libckpt/copy/crc_ledger.h"
#include "libckpt/copy/plan.h"
#include "libckpt/run/peers.h"

/*
 * Functions that the caller, outside of this folder, passes in; each may be NULL.
 *
 * seal     called after all checksums of a target file are known (plan.h)
 * seals    true if seal changes this file; NULL: it may change each
 * pack     writes the packed form of a finished target file (recompress.h)
 * check    decides whether the files of the target's folder (to->folder), now complete in `where`,
 *          may get their final names
 * read     receives the CRCs of everything that was read, sorted, for ckpt_run_scrub; the run then
 *          compares no CRC of a record itself
 * peers    the other processes (peers.h); NULL: none
 */
typedef struct ckpt_run_hooks {
    ckpt_plan_seal_fn seal;
    bool (*seals)(const ckpt_map *to, uint32_t file);
    ckpt_pack_fn pack;
    int (*check)(const ckpt_map *from, ckpt_map *to, const char *where, ckpt_err *err);
    ckpt_segments *read;
    const ckpt_peer_hooks *peers;
} ckpt_run_hooks;

/*
 * Execute a plan; ckpt_plan_run passes the formats' hooks.
 *
 * folder   receives the target's files; NULL when it has none
 * hooks    seal is called once per target file, from any thread but one at a time; all CRCs of that
 *          file's sources are known then. check is called once, before any final name is given.
 *          NULL: neither
 * Errors   CKPT_EUSAGE (outputs exist ...), CKPT_EFORMAT (a wrong CRC), CKPT_EMISMATCH (a copy
 *          differs), CKPT_EIO, CKPT_ELIMIT, CKPT_ECANCELED. After any of them no output exists.
 */
int ckpt_run(const ckpt_plan *plan, const char *folder, const ckpt_run_opts *opts,
             const ckpt_run_hooks *hooks, ckpt_run_report *report, ckpt_err *err);

/*
 * Read whole sources (decoded) and compare their CRCs, as `verify` does with every record of every
 * file. Problems go through ckpt_map_problem(map, CKPT_EFORMAT ...).
 *
 * known    sorted CRCs of stretches of this map's sources that were read already and are not read
 *          again unless they overlap. NULL: none
 * peers    the processes that share the work (peers.h); NULL: this one alone
 */
int ckpt_run_scrub(ckpt_map *map, const ckpt_segments *known, const ckpt_peer_hooks *peers,
                   const ckpt_run_opts *opts, ckpt_run_report *report, ckpt_err *err);

#endif
