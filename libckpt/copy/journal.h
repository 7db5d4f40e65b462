/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.h: what an interrupted run has finished, for the next run of the same command.
 *
 * A text file.  Its first line says which run it belongs to, by a fingerprint of everything that
 * determines the output; each further line names a finished file, or the folder that is about to
 * get its name.  Every line begins with the CRC-32 of its rest, so that a line torn by a power cut
 * counts as not written, and ends the journal.
 */
#ifndef CKPT_COPY_JOURNAL_H
#define CKPT_COPY_JOURNAL_H

#include <pthread.h>

#include "libckpt/map/map.h"

/* A file that is complete and on the disk. */
typedef struct ckpt_journal_entry {
    uint32_t file; /* index in the target map */
    uint32_t crc;  /* CRC-32 of all its bytes */
    uint64_t size;
} ckpt_journal_entry;

CKPT_VEC(ckpt_journal_entries, ckpt_journal_entry);

typedef struct ckpt_journal {
    int fd;            /* open for reading and writing */
    const char *where; /* its folder, for messages */
    bool no_fsync;
    pthread_mutex_t lock; /* of end */
    uint64_t end;         /* bytes: whole lines */
    ckpt_journal_entries entry;
    bool has_place; /* the folder of this identity was about to get its final name */
    uint64_t dev, ino;
} ckpt_journal;

/*
 * 64 hexadecimal digits of SHA-256 over all that determines what a run writes: folder, pointer,
 * files and literals, tensors and their extents on both sides, the identity of every file read
 * (path, size, ino, mtime), and the bytes of what is read from memory.
 */
int ckpt_journal_fingerprint(char out[65], const ckpt_map *to, const ckpt_map *from, bool no_fsync,
                             ckpt_err *err);

/*
 * j->fd, where and no_fsync are set; *match: it is the journal of this run, and its lines are in j.
 */
int ckpt_journal_read(ckpt_journal *j, const char *fingerprint, bool *match, ckpt_err *err);

/* Empty it and write the first line; or cut off what follows the last whole line. */
int ckpt_journal_begin(ckpt_journal *j, const char *fingerprint, ckpt_err *err);
int ckpt_journal_go_on(ckpt_journal *j, ckpt_err *err);

/* Add lines for n files of `to`: one write, one sync.  Thread safe. */
int ckpt_journal_files(ckpt_journal *j, const ckpt_journal_entry *entry, size_t n,
                       const ckpt_map *to, ckpt_err *err);

/* Add the line for the folder. */
int ckpt_journal_place(ckpt_journal *j, uint64_t dev, uint64_t ino, ckpt_err *err);

#endif
