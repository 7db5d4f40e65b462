/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h: writing a set of files so that they appear complete or not at all.
 *
 * Files that stand alone: each is written under a temporary name in the target folder (O_EXCL |
 * O_NOFOLLOW, preallocated), synced, and renamed when all are; then the folder is synced.  Until
 * commit, nothing under a final name changes.  Files that make one folder (target->folder) or
 * belong together (target->set): they are written under their names into a staging folder
 * (stage.h), and get their place when all are; files that an interrupted run of the same kind has
 * finished are kept. Source of the order: OSDI'14 (ALICE) for why file
 * and folder need fsync.
 */
#ifndef CKPT_COPY_SINK_H
#define CKPT_COPY_SINK_H

#include "libckpt/copy/crew.h"
#include "libckpt/copy/journal.h"
#include "libckpt/copy/pack.h"
#include "libckpt/copy/set.h"

typedef struct ckpt_sink ckpt_sink;

typedef struct ckpt_sink_opts {
    bool force;               /* replace existing files (only by the final rename) */
    bool no_fsync;            /* scratch use: skip every fsync */
    unsigned jobs;            /* threads that look at files to be kept, and sync folders; 0: one */
    ckpt_progress *progress;  /* asked now and then whether to go on, or NULL */
    bool let_go;              /* what is on the disk needs no page cache any more (behind.h) */
    bool shared;              /* other processes write to the same files (ckpt_sink_attach) */
    const uint8_t *elsewhere; /* per file: 1 if this machine does not get it; NULL: it gets all */
} ckpt_sink_opts;

/*
 * Make the folder (and its parents) if absent, check free space (CKPT_EIO with the bytes needed),
 * refuse existing names without force and any target that is one of `inputs`' files (dev and ino),
 * and create one temporary file per file of `target`; in a staging folder only the large ones, the
 * others when they are first written.  Both maps are borrowed.
 */
int ckpt_sink_open(ckpt_sink **out, const char *folder, const ckpt_map *target,
                   const ckpt_map *inputs, const ckpt_sink_opts *opts, ckpt_err *err);

/*
 * What another process needs to write to the same files: where they are, their names for now, and
 * which of them are kept.
 */
int ckpt_sink_describe(const ckpt_sink *sink, ckpt_bytes *out, ckpt_err *err);

typedef struct ckpt_sink_how {
    const uint8_t *described; /* n bytes of ckpt_sink_describe */
    size_t n;
    /* called for files that are finished, where a journal is kept (ckpt_sink_note) */
    int (*note)(void *ctx, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);
    void *ctx;
} ckpt_sink_how;

/*
 * Open the files of a sink of another process for writing.  It is the other one that gives them
 * their names, or removes them.
 */
int ckpt_sink_attach(ckpt_sink **out, const char *folder, const ckpt_map *target,
                     const ckpt_sink_how *how, const ckpt_sink_opts *opts, ckpt_err *err);

/* A sink of a machine that gets no file at all. */
int ckpt_sink_nothing(ckpt_sink **out, const char *folder, const ckpt_map *target, ckpt_err *err);

/* Where file i is for now.  NULL: out of memory, or there is no such file.  ckpt_free is due. */
char *ckpt_sink_file_path(const ckpt_sink *sink, uint32_t i);

/* Files that another process has finished.  Thread safe. */
int ckpt_sink_note(ckpt_sink *sink, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);

/* What this process has written of file i is on the disk; others write to it too. */
int ckpt_sink_flush(ckpt_sink *sink, uint32_t i, ckpt_err *err);

/*
 * True if file i is there already, as an interrupted run has written it.  A NULL sink keeps
 * nothing.
 */
bool ckpt_sink_kept(const ckpt_sink *sink, uint32_t i);

/* What a set leaves beside it. */
const ckpt_set_stays *ckpt_sink_stays(const ckpt_sink *sink);

/* Files of an old set that were removed with it, after commit. */
size_t ckpt_sink_gone(const ckpt_sink *sink);

/* Bytes that a killed run had left, of no use to this one: removed. */
uint64_t ckpt_sink_dropped(const ckpt_sink *sink);

/*
 * Write n bytes at an offset of file i.  Thread safe for disjoint ranges.  Starts write-back early.
 * Writing to a file that is kept does nothing.
 */
int ckpt_sink_write(ckpt_sink *sink, uint32_t i, const void *bytes, uint64_t n, uint64_t at,
                    ckpt_err *err);

/* CRC-32 of all bytes of file i, read back.  Thread safe. */
int ckpt_sink_crc(ckpt_sink *sink, uint32_t i, uint32_t *crc, ckpt_err *err);

/*
 * n files are complete: sync them, then note them in the staging folder's journal.  entry[].crc is
 * only looked at there; for a file that is kept it is what this run would have written, and must be
 * what is there.  Thread safe.
 */
int ckpt_sink_finish(ckpt_sink *sink, const ckpt_journal_entry *entry, size_t n, ckpt_err *err);

/*
 * Where the files of one folder are before it has its name; NULL: files stand alone, or out of
 * memory.  The caller frees it.
 */
char *ckpt_sink_path(const ckpt_sink *sink);

/*
 * Let files that are to be packed (ckpt_map_file.packed) be replaced by their packed forms, in a
 * staging folder; after they are finished, before commit.
 */
int ckpt_sink_pack(ckpt_sink *sink, ckpt_map *target, ckpt_pack_fn pack, ckpt_err *err);

/*
 * All files are: rename all in order, last file last, and sync the folder; or rename the folder
 * they are in.
 */
int ckpt_sink_commit(ckpt_sink *sink, ckpt_err *err);

/*
 * Take a commit back: of files that belong together others could not be given their names.  False:
 * some stay, and can be replaced with force.
 */
bool ckpt_sink_undo(ckpt_sink *sink);

/* Whether others could be is not known: what was committed stays for the next run. */
void ckpt_sink_leave(ckpt_sink *sink);

/* Frees; what was not committed is unlinked, folders made for it are removed again. */
void ckpt_sink_close(ckpt_sink *sink);

#endif
