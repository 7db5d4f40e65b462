/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.h: reading bytes at offsets: from a regular file, or from memory.
 */
#ifndef CKPT_COPY_IO_H
#define CKPT_COPY_IO_H

#include <sys/stat.h>

#include "libckpt/map/map.h"

typedef struct ckpt_io ckpt_io;

/* Which file it is, and when it was changed; zeros: not known. */
typedef struct ckpt_identity {
    uint64_t dev, ino;
    int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
} ckpt_identity;

/* Of a file as stat saw it. */
ckpt_identity ckpt_identity_of(const struct stat *st);

/* Two of one file, which nobody has changed between; machines number a shared one's device as they
 * like. */
bool ckpt_identity_same(const ckpt_identity *a, const ckpt_identity *b);

struct ckpt_io {
    const char *name; /* for messages: the path */
    uint64_t size;    /* bytes, as fstat saw it at opening */
    ckpt_identity id; /* of the same moment */
    /*
     * Exactly n bytes at offset at, which the caller has checked against size; CKPT_EIO otherwise.
     */
    int (*read_at)(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err);
    void (*close)(ckpt_io *io);
    /* What is read from here on is let go behind (behind.h); NULL: there is nothing to let go. */
    void (*let_go)(ckpt_io *io);
};

/*
 * Open a regular file for reading: O_CLOEXEC | O_NONBLOCK, then fstat must say S_ISREG, so that a
 * FIFO or a device named as a shard neither blocks nor lies.
 *
 * Errors   CKPT_EMISSING (ENOENT), CKPT_EIO, CKPT_EFORMAT (not a regular file), CKPT_ELIMIT
 */
int ckpt_io_open_here(ckpt_io **out, const char *path, ckpt_err *err);

/*
 * The same for its headers: of the processes of a team one opens the file, and reads for the others
 * (io_open.c).
 */
int ckpt_io_open(ckpt_io **out, const char *path, ckpt_err *err);

/* Borrowed memory as a file. */
int ckpt_io_memory(ckpt_io **out, const char *name, const void *bytes, uint64_t n, ckpt_err *err);

/* A caller's functions as a file; input is borrowed. */
int ckpt_io_input(ckpt_io **out, const char *name, const ckpt_input *input, ckpt_err *err);

/* Any file of a map, as it was opened before: for its headers, and for its data. */
int ckpt_io_again(ckpt_io **out, const ckpt_map_file *file, ckpt_err *err);
int ckpt_io_data(ckpt_io **out, const ckpt_map_file *file, ckpt_err *err);

/*
 * Of a team: whether this process sees the files that the others have read headers of, as far as a
 * few of them say; without one nothing is looked at.
 *
 * Errors  CKPT_EIO: it does not
 */
int ckpt_io_see(const ckpt_map *map, ckpt_err *err);

/* The failure for a file that is not what it was, or what another process has seen: CKPT_EIO. */
int ckpt_io_unlike(const char *path, ckpt_err *err);

/*
 * n bytes of another file from offset at, as a file of its own name; `whole` is borrowed.
 *
 * Errors   CKPT_EFORMAT: they are not inside the file; CKPT_ELIMIT
 */
int ckpt_io_part(ckpt_io **out, ckpt_io *whole, uint64_t at, uint64_t n, ckpt_err *err);

/* Checked read: CKPT_EFORMAT if [at, at+n) is outside the file. */
int ckpt_io_read(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err);

/* Fill path, size and identity of an opened file (memory: no identity). */
void ckpt_io_identify(const ckpt_io *io, ckpt_map_file *out);

void ckpt_io_close(ckpt_io *io); /* NULL is fine */

/*
 * A pool that keeps at most max_open files of a map open (a 1024-rank directory exceeds the usual
 * limit of descriptors).  Thread safe.  Opening checks that the file is still the one the map was
 * read from.
 */
typedef struct ckpt_io_pool ckpt_io_pool;

/* For the files of map, which must outlive the pool; max_open 0: what the limits of the process
 * allow. */
int ckpt_io_pool_new(ckpt_io_pool **out, const ckpt_map *map, unsigned max_open, ckpt_err *err);

/* What is read through it is let go behind (behind.h); before the first read. */
void ckpt_io_pool_let_go(ckpt_io_pool *pool);

/*
 * Every read looks whether its file is still the same; for readers that live long, instead of
 * ckpt_io_pool_check.  Before the first read.
 */
void ckpt_io_pool_watch(ckpt_io_pool *pool);

/* Exactly n bytes at offset `at` of a file of the map.  Errors: those of ckpt_io_open and
 * ckpt_io_read; CKPT_EIO: not the file any more that the map was read from. */
int ckpt_io_pool_read(ckpt_io_pool *pool, uint32_t file, void *buf, uint64_t n, uint64_t at,
                      ckpt_err *err);

/*
 * Every file that was read is still the same (size, mtime, ctime, inode): else CKPT_EIO, "changed
 * while being read".
 */
int ckpt_io_pool_check(ckpt_io_pool *pool, ckpt_err *err);
void ckpt_io_pool_free(ckpt_io_pool *pool);

/* A whole small file (at most max bytes, else CKPT_ELIMIT) into memory; *out with ckpt_free. */
int ckpt_io_slurp(char **out, uint64_t *n, const char *path, uint64_t max, ckpt_err *err);

#endif
