/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h: outputs that get their names when they are complete, and survive being killed: a folder,
 * or a set of files.
 *
 * PATH/.<folder>.ckpt-partial/ (a set: its name) holds, while a run lasts,
 *
 *     journal        whose run it is, and which files are finished; locked by that run
 *     new/           the files
 *     pointer        the text for PATH/<pointer>
 *     old, pointer.old   what was replaced, where names cannot be exchanged in one step
 *
 * Order: files, their folders, PATH's parents and the pointer's text are on the disk before new/
 * becomes PATH/<folder>; that is on the disk before the pointer names it; and the journal, which
 * lets the next run continue from any point between, goes last.  A reported failure takes all of it
 * back.
 *
 * The files of a set (map.h) get their names one by one, in the order of set.h.  While that lasts
 * there are also
 *
 *     moves          the list of renames (moves.h)
 *     was/, mid/     what was replaced, and the hidden second names of parts
 */
#ifndef CKPT_COPY_STAGE_H
#define CKPT_COPY_STAGE_H

#include "libckpt/copy/dir.h"
#include "libckpt/copy/journal.h"
#include "libckpt/copy/set.h"

typedef struct ckpt_stage ckpt_stage;

typedef struct ckpt_stage_opts {
    bool force; /* replace an existing folder */
    bool no_fsync;
    unsigned jobs; /* threads to sync folders with */
} ckpt_stage_opts;

/*
 * Lock the staging folder in dir, made if absent, and read what an earlier run of the same kind has
 * left there. to->folder, to->pointer and to->set are as map.h has them.
 *
 * Errors   CKPT_EUSAGE: PATH/<folder> exists and force is off, or holds an input; another run is
 *          writing there; CKPT_EUNSAFE: a name is no path part
 */
int ckpt_stage_open(ckpt_stage **out, const ckpt_dir *dir, const ckpt_map *to,
                    const ckpt_map *inputs, const ckpt_stage_opts *opts, ckpt_err *err);

/*
 * Files that the earlier run has finished, and the folder that they are in; to be looked at before
 * they are trusted.
 */
const ckpt_journal_entries *ckpt_stage_kept(const ckpt_stage *s);
int ckpt_stage_fd(const ckpt_stage *s);

/*
 * The path of that folder, from ckpt_stage_begin on; the caller frees it (ckpt_free).  NULL: out of
 * memory.
 */
char *ckpt_stage_path(const ckpt_stage *s);

/* What a set leaves beside it; from open on. */
const ckpt_set_stays *ckpt_stage_stays(const ckpt_stage *s);

/* Files of an old set that were removed because the new one has none of their names; after commit.
 */
size_t ckpt_stage_gone(const ckpt_stage *s);

/* Bytes that an earlier run had left, and that were removed because this one could not use them;
 * after begin. */
uint64_t ckpt_stage_dropped(const ckpt_stage *s);

/*
 * Begin to write: n_kept files were found to be as the journal has them.  *anew: the earlier run's
 * folder is of no use after all, nothing is kept.  From here on ckpt_stage_fd is where files are
 * written.
 */
int ckpt_stage_begin(ckpt_stage *s, size_t n_kept, bool *anew, ckpt_err *err);

/* n files are complete and synced.  Thread safe. */
int ckpt_stage_done(ckpt_stage *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);

/* All files are: give the folder its name, and let the pointer name it. */
int ckpt_stage_commit(ckpt_stage *s, ckpt_err *err);

/* What was not committed is removed.  NULL is fine. */
void ckpt_stage_close(ckpt_stage *s);

#endif
