/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish.h: outputs that get their names when they are complete, and survive being killed: a
 * folder, or a set of files.
 *
 * PATH/.<folder>.ckpt-partial/ (a set: its name) holds, while a run lasts,
 *
 *     journal        whose run it is, and which files are finished; locked by that run
 *     new/           the files
 *     pointer        the text for PATH/<pointer>, which is `latest` (latest.h)
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
#ifndef CKPT_COPY_PUBLISH_H
#define CKPT_COPY_PUBLISH_H

#include "libckpt/copy/dir.h"
#include "libckpt/copy/journal.h"
#include "libckpt/copy/set.h"

typedef struct ckpt_publish ckpt_publish;

typedef struct ckpt_publish_opts {
    bool force; /* replace an existing folder */
    bool no_fsync;
    unsigned jobs;      /* threads to sync folders with */
    size_t n_elsewhere; /* files of the target that are another machine's */
} ckpt_publish_opts;

/*
 * Lock the staging folder in dir, made if absent, and read what an earlier run of the same kind has
 * left there. to->folder, to->pointer and to->set are as map.h has them.
 *
 * Errors   CKPT_EUSAGE: PATH/<folder> exists and force is off, or holds an input; another run is
 *          writing there; CKPT_EUNSAFE: a name is no path part
 */
int ckpt_publish_open(ckpt_publish **out, const ckpt_dir *dir, const ckpt_map *to,
                      const ckpt_map *inputs, const ckpt_publish_opts *opts, ckpt_err *err);

/*
 * Files that the earlier run has finished, and the folder that they are in; to be looked at before
 * they are trusted.
 */
const ckpt_journal_entries *ckpt_publish_kept(const ckpt_publish *s);
int ckpt_publish_fd(const ckpt_publish *s);

/*
 * The path of that folder, from ckpt_publish_begin on; the caller frees it (ckpt_free).  NULL: out
 * of memory.
 */
char *ckpt_publish_path(const ckpt_publish *s);

/* What a set leaves beside it; from open on. */
const ckpt_set_stays *ckpt_publish_stays(const ckpt_publish *s);

/* Files of an old set that were removed because the new one has none of their names; after commit.
 */
size_t ckpt_publish_gone(const ckpt_publish *s);

/* Bytes that an earlier run had left, and that were removed because this one could not use them;
 * after begin. */
uint64_t ckpt_publish_dropped(const ckpt_publish *s);

/*
 * Begin to write: n_kept files were found to be as the journal has them.  *anew: the earlier run's
 * folder is of no use after all, nothing is kept.  From here on ckpt_publish_fd is where files are
 * written.
 */
int ckpt_publish_begin(ckpt_publish *s, size_t n_kept, bool *anew, ckpt_err *err);

/* n files are complete and synced.  Thread safe. */
int ckpt_publish_done(ckpt_publish *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);

/* All files are: give the folder its name, and let the pointer name it. */
int ckpt_publish_commit(ckpt_publish *s, ckpt_err *err);

/*
 * Take back what was committed: others, whose part belongs to it, have failed.  False: names stay
 * as they were given, those of a set among them, or what cannot be undone is left to the next run.
 */
bool ckpt_publish_undo(ckpt_publish *s);

/* What was committed stays, with the journal, so that the next run can go on from it. */
void ckpt_publish_leave(ckpt_publish *s);

/* What was not committed is removed.  NULL is fine. */
void ckpt_publish_close(ckpt_publish *s);

#endif
