/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish.h: gives complete outputs their final names, and survives being killed: for a folder, or
 * a set of files.
 *
 * During a run PATH/.<folder>.ckpt-partial/ (of a set: its name) holds
 *
 *    journal            the run's identity, and its finished files; locked by that run
 *    new/               the files
 *    pointer            the text for PATH/<pointer>, which is `latest` (latest.h)
 *    old, pointer.old   the replaced outputs, if names cannot be exchanged in one step
 *
 * Order: files, their folders, PATH's parents and the pointer's text are synced before new/ becomes
 * PATH/<folder>; that is synced before the pointer names it; and the journal, with which the next
 * run can continue from any point between, is removed last. A reported failure undoes all of it.
 *
 * The files of a set (map.h) get their names one by one, in the order of fileset.h. During that
 * time there are also
 *
 *    moves              the list of renames (rename_log.h)
 *    was/, mid/         the replaced files, and the hidden second names of parts
 */
#ifndef CKPT_COMMIT_PUBLISH_H
#define CKPT_COMMIT_PUBLISH_H

#include "libckpt/commit/fileset.h"
#include "libckpt/commit/journal.h"
#include "libckpt/io/dir.h"

typedef struct ckpt_publish ckpt_publish;

typedef struct ckpt_publish_opts {
    bool force; /* replace an existing folder */
    bool skip_fsync;
    unsigned jobs;      /* threads that sync folders */
    size_t n_elsewhere; /* files of the target that belong to other machines */
} ckpt_publish_opts;

/*
 * Lock the staging folder in dir, which is made if absent, and read the journal of an earlier run
 * of the same command. to->folder, to->pointer and to->set are as in map.h.
 *
 * Errors   CKPT_EUSAGE: PATH/<folder> exists and force is off, or holds an input; another run is
 *          writing there; CKPT_EUNSAFE: a name is not a path part
 */
int ckpt_publish_open(ckpt_publish **out, const ckpt_dir *dir, const ckpt_map *to,
                      const ckpt_map *inputs, const ckpt_publish_opts *opts, ckpt_err *err);

/*
 * Files that the earlier run has finished, and their folder; the caller must check them before use.
 */
const ckpt_journal_entries *ckpt_publish_kept(const ckpt_publish *s);
int ckpt_publish_fd(const ckpt_publish *s);

/*
 * The path of that folder, after ckpt_publish_begin; the caller frees it (ckpt_free). NULL: out of
 * memory.
 */
char *ckpt_publish_path(const ckpt_publish *s);

/* The old files that a set leaves in its folder; after open. */
const ckpt_set_stays *ckpt_publish_stays(const ckpt_publish *s);

/*
 * The number of files of an old set that were removed because the new one has none of these names;
 * after commit.
 */
size_t ckpt_publish_gone(const ckpt_publish *s);

/* Bytes of an earlier run that were removed because this one could not use them; after begin. */
uint64_t ckpt_publish_dropped(const ckpt_publish *s);

/*
 * Begin to write, with n_kept files that match the journal. *anew: the earlier run's folder cannot
 * be used, so no file is kept. From now on ckpt_publish_fd is the folder for new files.
 */
int ckpt_publish_begin(ckpt_publish *s, size_t n_kept, bool *anew, ckpt_err *err);

/* Record n files as complete and synced. Thread safe. */
int ckpt_publish_done(ckpt_publish *s, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);

/* Commit after all files are done: give the folder its name, and make the pointer name it. */
int ckpt_publish_commit(ckpt_publish *s, ckpt_err *err);

/*
 * Undo the commit, because other processes failed to commit their part. False: the names stay, as
 * they do for a set, or the undo is left to the next run.
 */
bool ckpt_publish_undo(ckpt_publish *s);

/* Keep the committed outputs and the journal, so that the next run can continue from them. */
void ckpt_publish_leave(ckpt_publish *s);

/* Remove everything that was not committed. NULL is fine. */
void ckpt_publish_close(ckpt_publish *s);

#endif
