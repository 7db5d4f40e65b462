/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h: records the finished files of a run, so that the same command can resume it.
 *
 * A text file. Its first line identifies the run by a fingerprint of everything that determines the
 * output; each further line names a finished file, or the folder before it gets its final name.
 * Every line begins with the CRC-32 of its rest, so that a line torn by a power cut ends the
 * journal.
 */
#ifndef CKPT_COMMIT_JOURNAL_H
#define CKPT_COMMIT_JOURNAL_H

#include <pthread.h>

#include "libckpt/map/map.h"

/* A file that is complete and synced. */
typedef struct ckpt_journal_entry {
    uint32_t file; /* index in the target map */
    uint32_t crc;  /* CRC-32 of all its bytes */
    uint64_t size;
} ckpt_journal_entry;

CKPT_VEC(ckpt_journal_entries, ckpt_journal_entry);

typedef struct ckpt_journal {
    int fd;            /* open for reading and writing */
    const char *where; /* path of its folder, in messages */
    bool skip_fsync;
    pthread_mutex_t lock; /* protects end */
    uint64_t end;         /* bytes: complete lines */
    ckpt_journal_entries entry;
    bool has_place; /* this folder was about to get its final name */
    uint64_t dev, ino;
} ckpt_journal;

/*
 * 64 hexadecimal digits of SHA-256 over everything that determines a run's output: folder, pointer,
 * files and literals, tensors and their extents on both sides, the identity of every input file
 * (path, size, ino, mtime), and the bytes of inputs in memory.
 */
int ckpt_journal_fingerprint(char out[65], const ckpt_map *to, const ckpt_map *from,
                             bool skip_fsync, ckpt_err *err);

/*
 * Read a journal; j->fd, where and skip_fsync are set. *match: it belongs to this run, and its
 * entries are in j.
 */
int ckpt_journal_read(ckpt_journal *j, const char *fingerprint, bool *match, ckpt_err *err);

/* Start a new journal with its first line; or cut an old one after its last complete line. */
int ckpt_journal_begin(ckpt_journal *j, const char *fingerprint, ckpt_err *err);
int ckpt_journal_go_on(ckpt_journal *j, ckpt_err *err);

/* Add lines for n files of `to`: one write, one sync. Thread safe. */
int ckpt_journal_files(ckpt_journal *j, const ckpt_journal_entry *entry, size_t n,
                       const ckpt_map *to, ckpt_err *err);

/* Add the line for the folder. */
int ckpt_journal_place(ckpt_journal *j, uint64_t dev, uint64_t ino, ckpt_err *err);

#endif
