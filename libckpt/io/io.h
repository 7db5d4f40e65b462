/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.h: reads bytes at offsets: from a regular file, from memory, or through a caller's function.
 */
#ifndef CKPT_IO_IO_H
#define CKPT_IO_IO_H

#include <sys/stat.h>

#include "libckpt/base/io.h"
#include "libckpt/map/map.h"

/* From the result of stat. */
ckpt_identity ckpt_identity_of(const struct stat *st);

/*
 * True if both belong to one unchanged file. Device numbers do not count between machines, because
 * each machine numbers a shared file system itself.
 */
bool ckpt_identity_same(const ckpt_identity *a, const ckpt_identity *b);

/*
 * Open a regular file for reading: O_CLOEXEC | O_NONBLOCK, then fstat must report S_ISREG, so that
 * a FIFO or a device with the name of a shard neither blocks nor gives bytes.
 *
 * Errors   CKPT_EMISSING (ENOENT), CKPT_EIO, CKPT_EFORMAT (not a regular file), CKPT_ELIMIT
 */
int ckpt_io_open_here(ckpt_io **out, const char *path, ckpt_err *err);

/*
 * The same to read headers: in a team only one process opens the file, and reads for the others
 * (io_open.c).
 */
int ckpt_io_open(ckpt_io **out, const char *path, ckpt_err *err);

/* Borrowed memory as a file. */
int ckpt_io_memory(ckpt_io **out, const char *name, const void *bytes, uint64_t n, ckpt_err *err);

/* A file that a caller's functions read; input is borrowed. */
int ckpt_io_input(ckpt_io **out, const char *name, const ckpt_input *input, ckpt_err *err);

/* Open a file of a map again: for its headers, and for its data. */
int ckpt_io_again(ckpt_io **out, const ckpt_map_file *file, ckpt_err *err);
int ckpt_io_data(ckpt_io **out, const ckpt_map_file *file, ckpt_err *err);

/*
 * In a team: check, with a few files, that this process sees the files whose headers others have
 * read. Without a team it checks nothing.
 *
 * Errors  CKPT_EIO: it does not see them
 */
int ckpt_io_see(const ckpt_map *map, ckpt_err *err);

/* The failure for a file that has changed, or that differs from another process's: CKPT_EIO. */
int ckpt_io_unlike(const char *path, ckpt_err *err);

/*
 * n bytes of another file from offset at, as a file with its own name; `whole` is borrowed.
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
 * The number of files to keep open: a quarter of the process's limit, because the host program, and
 * inputs or outputs, need the rest.
 */
unsigned ckpt_io_open_limit(void);

/*
 * A pool that keeps at most max_open files of a map open, because a directory of 1024 ranks exceeds
 * the usual limit of descriptors. Thread safe. Opening checks that the file has not changed since
 * the map was read.
 */
typedef struct ckpt_io_pool ckpt_io_pool;

/*
 * For the files of map, which must outlive the pool; max_open 0: as many as the process may open.
 */
int ckpt_io_pool_new(ckpt_io_pool **out, const ckpt_map *map, unsigned max_open, ckpt_err *err);

/* Drop the pages of later reads (page_cache.h); call it before the first read. */
void ckpt_io_pool_let_go(ckpt_io_pool *pool);

/*
 * Check at every read that the file has not changed; for long-lived readers, instead of
 * ckpt_io_pool_check. Call it before the first read.
 */
void ckpt_io_pool_watch(ckpt_io_pool *pool);

/*
 * Read exactly n bytes at offset `at` of a file of the map. Errors: those of ckpt_io_open and
 * ckpt_io_read; CKPT_EIO: the file has changed since the map was read.
 */
int ckpt_io_pool_read(ckpt_io_pool *pool, uint32_t file, void *buf, uint64_t n, uint64_t at,
                      ckpt_err *err);

/*
 * Check that no file that was read has changed (size, mtime, ctime, inode): else CKPT_EIO, "changed
 * while being read".
 */
int ckpt_io_pool_check(ckpt_io_pool *pool, ckpt_err *err);
void ckpt_io_pool_free(ckpt_io_pool *pool);

/* Read a small file completely (at most max bytes, else CKPT_ELIMIT); free *out with ckpt_free. */
int ckpt_io_slurp(char **out, uint64_t *n, const char *path, uint64_t max, ckpt_err *err);

#endif
