/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h: the executor: carries out a plan with a few threads in constant memory.
 *
 * Each worker takes the next job, reads its pieces (checksumming every byte of records that have a
 * CRC), compares the twin, converts, counts what is not finite, checksums the result and writes it.
 * A file whose jobs are done is sealed and synced at once (finish.h).  When all are, records that
 * were read only in part are read to their end, all CRCs are compared, and the files get their
 * names.  Result and bytes do not depend on the number of threads, nor on how often a run into a
 * folder (to->folder) was interrupted and started again.
 */
#ifndef CKPT_COPY_RUN_H
#define CKPT_COPY_RUN_H

#include "libckpt/copy/budget.h"
#include "libckpt/copy/ledger.h"
#include "libckpt/copy/pack.h"
#include "libckpt/copy/plan.h"

/*
 * What the wiring above this room hands down; each may be NULL.
 *
 * seal   what the format wants done to a target file once all checksums are known (format.h's seal)
 * pack   a target file that is to be packed is finished: write its packed form (pack.h)
 * check  all files of the one folder that the target makes (to->folder) are written, in `where`:
 *        may they appear?
 * read   no CRC of a record is compared here: those of all that was read are put in it, sorted, for
 *        ckpt_run_scrub
 */
typedef int (*ckpt_run_seal_fn)(ckpt_map *to, uint32_t file, uint64_t known, ckpt_err *err);

typedef struct ckpt_run_hooks {
    ckpt_run_seal_fn seal;
    ckpt_pack_fn pack;
    int (*check)(const ckpt_map *from, ckpt_map *to, const char *where, ckpt_err *err);
    ckpt_segments *read;
} ckpt_run_hooks;

/*
 * Carry out a plan; ckpt_plan_run is this with the formats' hooks.
 *
 * folder  receives the target's files; NULL when it has none
 * hooks   seal is called once per target file, from any thread but one at a time; all CRCs of that
 *         file's sources are known then.  check is called once, before anything has its final name.
 *         NULL: neither
 * Errors  CKPT_EUSAGE (outputs exist ...), CKPT_EFORMAT (a CRC does not hold), CKPT_EMISMATCH (a
 *         copy differs), CKPT_EIO, CKPT_ELIMIT, CKPT_ECANCELED.  After any of them no output
 *         exists.
 */
int ckpt_run(const ckpt_plan *plan, const char *folder, const ckpt_run_opts *opts,
             const ckpt_run_hooks *hooks, ckpt_run_report *report, ckpt_err *err);

/*
 * Read whole sources (decoded) and compare their CRCs: what `verify` does with every record of
 * every file. Problems go through ckpt_map_problem(map, CKPT_EFORMAT ...).
 *
 * known  CRCs of stretches that were read already, of this map's sources and sorted; they are not
 *        read again unless they overlap.  NULL: none
 */
int ckpt_run_scrub(ckpt_map *map, const ckpt_segments *known, const ckpt_run_opts *opts,
                   ckpt_run_report *report, ckpt_err *err);

#endif
