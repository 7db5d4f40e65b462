/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hashes.h: computes the SHA-256 of output files, and of the tensors in them, while a run writes
 * them.
 *
 * SHA-256 takes bytes in their order, but workers write blocks in any order. So a few threads
 * follow the workers: each hashes one file, or the tensors of one file, as far as its bytes have
 * been written, and reads them from the page cache, where they still are. Tensors whose bytes do
 * not lie together in one file get no hash here.
 */
#ifndef CKPT_COMMIT_HASHES_H
#define CKPT_COMMIT_HASHES_H

#include "libckpt/map/map.h"

/* The current path of file i, to free with ckpt_free; NULL: out of memory. */
typedef char *ckpt_hashes_path_fn(const void *ctx, uint32_t i);

/*
 * Start the threads, for the files of a target.
 *
 * path     called until the end, from any thread
 * Errors   CKPT_EUSAGE: h has the hashes of another run; CKPT_ELIMIT
 */
int ckpt_hashes_begin(ckpt_hashes *h, const ckpt_map *to, unsigned jobs, ckpt_hashes_path_fn *path,
                      const void *ctx, ckpt_err *err);

/* Report that n bytes from offset `at` of a file have their final values. Thread safe. */
int ckpt_hashes_wrote(ckpt_hashes *h, uint32_t file, uint64_t n, uint64_t at, ckpt_err *err);

/* Report that a file is complete, with zeros where nothing was written. Thread safe. */
int ckpt_hashes_complete(ckpt_hashes *h, uint32_t file, ckpt_err *err);

/*
 * Wait until everything is hashed. Call it before files get other names, once after begin.
 *
 * rc       the result of the run so far; after a failure the threads end at once
 */
int ckpt_hashes_end(ckpt_hashes *h, int rc, ckpt_err *err);

/*
 * Get the hash of a file of the finished run. False: none is known, or the file has changed since.
 */
bool ckpt_hashes_file(const ckpt_hashes *h, const char *folder, const char *name, char sha256[65]);

/* Get the hash of a tensor, from a map that has opened the output. */
bool ckpt_hashes_tensor(const ckpt_hashes *h, const ckpt_map *map, const ckpt_tensor *t,
                        char sha256[65]);

#endif
