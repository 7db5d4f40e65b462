/*
 * sink.h: writing a set of files so that they appear complete or not at all.
 *
 * Each file is written under a temporary name in the target folder (O_EXCL | O_NOFOLLOW, preallocated), synced,
 * and renamed when all are; then the folder is synced.  Until commit, nothing under a final name changes.
 * Source of the order: README, "What is promised"; OSDI'14 (ALICE) for why file and folder need fsync.
 */
#ifndef CKPT_COPY_SINK_H
#define CKPT_COPY_SINK_H

#include "libckpt/map/map.h"

typedef struct ckpt_sink ckpt_sink;

typedef struct ckpt_sink_opts {
    bool force;    /* replace existing files (only by the final rename) */
    bool no_fsync; /* scratch use: skip every fsync */
} ckpt_sink_opts;

/*
 * Make the folder (and its parents) if absent, check free space (CKPT_EIO with the bytes needed), refuse existing
 * names without force and any target that is one of `inputs`' files (dev and ino), and create one temporary
 * file per file of `target`.
 */
int ckpt_sink_open(ckpt_sink **out, const char *folder, const ckpt_map *target, const ckpt_map *inputs,
                   const ckpt_sink_opts *opts, ckpt_err *err);

/* Write n bytes at an offset of file i.  Thread safe for disjoint ranges.  Starts write-back early. */
int ckpt_sink_write(ckpt_sink *sink, uint32_t i, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err);

/* fsync and close file i (thread safe; once per file); then rename all in order, last file last, and sync the folder. */
int ckpt_sink_sync(ckpt_sink *sink, uint32_t i, ckpt_err *err);
int ckpt_sink_commit(ckpt_sink *sink, ckpt_err *err);

/* Frees; what was not committed is unlinked, folders made for it are removed again. */
void ckpt_sink_close(ckpt_sink *sink);

#endif
