/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h: writes a set of files so that they appear complete or not at all.
 *
 * Files that are published one by one: each is written under a temporary name in the target folder
 * (O_EXCL | O_NOFOLLOW, preallocated), synced, and renamed after all are synced; then the folder is
 * synced. Until commit, no final name changes. Files that make one folder (target->folder) or
 * belong together (target->set): they are written under their own names into a staging folder
 * (publish.h), and get their place when all are done; files that an interrupted run of the same
 * command has finished are kept. Source of the order, and of the need to sync file and folder:
 * OSDI'14 (ALICE).
 */
#ifndef CKPT_COMMIT_SINK_H
#define CKPT_COMMIT_SINK_H

#include "libckpt/commit/fileset.h"
#include "libckpt/commit/journal.h"
#include "libckpt/commit/recompress.h"
#include "libckpt/io/thread_pool.h"

typedef struct ckpt_sink ckpt_sink;

typedef struct ckpt_sink_opts {
    bool force;               /* replace existing files (only with the final rename) */
    bool skip_fsync;          /* scratch use: skip every fsync */
    unsigned jobs;            /* threads that check kept files, and sync folders; 0: one */
    ckpt_progress *progress;  /* shows a cancellation; or NULL */
    bool let_go;              /* drop synced pages from the page cache (page_cache.h) */
    bool shared;              /* other processes write to the same files (ckpt_sink_attach) */
    const uint8_t *elsewhere; /* per file: 1 if this machine does not get it; NULL: it gets all */
    ckpt_hashes *hashes;      /* learns of every write (hashes.h); or NULL */
} ckpt_sink_opts;

/*
 * Make the folder (and its parents) if absent, check free space (CKPT_EIO with the bytes needed),
 * refuse existing names without force and any target that is one of `inputs`' files (dev and ino),
 * and create one temporary file per file of `target`; in a staging folder only the large ones, the
 * others at their first write. Both maps are borrowed.
 */
int ckpt_sink_open(ckpt_sink **out, const char *folder, const ckpt_map *target,
                   const ckpt_map *inputs, const ckpt_sink_opts *opts, ckpt_err *err);

/*
 * Describe the sink for another process that writes to the same files: their folder, their current
 * names, and the kept ones.
 */
int ckpt_sink_describe(const ckpt_sink *sink, ckpt_bytes *out, ckpt_err *err);

typedef struct ckpt_sink_how {
    const uint8_t *described; /* n bytes of ckpt_sink_describe */
    size_t n;
    /* called for finished files, in the process that keeps the journal (ckpt_sink_note) */
    int (*note)(void *ctx, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);
    void *ctx;
} ckpt_sink_how;

/*
 * Open the files of another process's sink for writing. That process gives them their names, or
 * removes them.
 */
int ckpt_sink_attach(ckpt_sink **out, const char *folder, const ckpt_map *target,
                     const ckpt_sink_how *how, const ckpt_sink_opts *opts, ckpt_err *err);

/* A sink for a machine that gets no file. */
int ckpt_sink_nothing(ckpt_sink **out, const char *folder, const ckpt_map *target, ckpt_err *err);

/*
 * The current path of file i. NULL: out of memory, or there is no such file. Free it with
 * ckpt_free.
 */
char *ckpt_sink_file_path(const ckpt_sink *sink, uint32_t i);

/* Record files that another process has finished. Thread safe. */
int ckpt_sink_note(ckpt_sink *sink, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);

/* Sync this process's part of file i, which others write to as well. */
int ckpt_sink_flush(ckpt_sink *sink, uint32_t i, ckpt_err *err);

/* True if file i is complete from an interrupted run. A NULL sink keeps no file. */
bool ckpt_sink_kept(const ckpt_sink *sink, uint32_t i);

/* The old files that a set leaves in its folder. */
const ckpt_set_stays *ckpt_sink_stays(const ckpt_sink *sink);

/* The number of files of an old set that were removed with it, after commit. */
size_t ckpt_sink_gone(const ckpt_sink *sink);

/* Bytes of a killed run that were removed because this one could not use them. */
uint64_t ckpt_sink_dropped(const ckpt_sink *sink);

/*
 * Write n bytes at an offset of file i. Thread safe for disjoint ranges. Starts write-back early.
 * Writing to a kept file does nothing.
 */
int ckpt_sink_write(ckpt_sink *sink, uint32_t i, const void *bytes, uint64_t n, uint64_t at,
                    ckpt_err *err);

/* CRC-32 of all bytes of file i, which it reads back. Thread safe. */
int ckpt_sink_crc(ckpt_sink *sink, uint32_t i, uint32_t *crc, ckpt_err *err);

/*
 * Sync n complete files, then record them in the staging folder's journal. entry[].crc is used only
 * there; for a kept file it is the CRC of this run's bytes, and must equal that of the file. Thread
 * safe.
 */
int ckpt_sink_finish(ckpt_sink *sink, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);

/*
 * The path of the target's folder before it has its name; NULL: files are published one by one, or
 * out of memory. The caller frees it.
 */
char *ckpt_sink_path(const ckpt_sink *sink);

/*
 * Replace the files to be packed (ckpt_map_file.packed) by their packed forms, in a staging folder;
 * call it after they are finished, before commit.
 */
int ckpt_sink_pack(ckpt_sink *sink, ckpt_map *target, ckpt_pack_fn pack, ckpt_err *err);

/*
 * Commit after all files are finished: rename them in order, the last file last, and sync the
 * folder; or rename their folder.
 */
int ckpt_sink_commit(ckpt_sink *sink, ckpt_err *err);

/*
 * Undo a commit, because other processes could not commit their files. False: some files stay, and
 * can be replaced with force.
 */
bool ckpt_sink_undo(ckpt_sink *sink);

/*
 * Keep the committed files for the next run, because it is unknown whether the others could commit
 * theirs.
 */
void ckpt_sink_leave(ckpt_sink *sink);

/* Free; unlink everything that was not committed and remove the folders that were made for it. */
void ckpt_sink_close(ckpt_sink *sink);

#endif
