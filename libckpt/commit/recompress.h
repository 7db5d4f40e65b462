/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recompress.h: rewrites a finished file in a compressed form. The size of that form is known only
 * at its end.
 *
 * A plan fixes every offset before the first byte, and jobs end in any order; a deflated record has
 * no place until everything before it is written. Therefore a file to be packed is first written
 * and checked like any other, and then, before it gets its name, read once from beginning to end
 * and written to a second file. The disk holds both during that time; memory holds a buffer.
 */
#ifndef CKPT_COMMIT_RECOMPRESS_H
#define CKPT_COMMIT_RECOMPRESS_H

#include "libckpt/io/io.h"
#include "libckpt/io/thread_pool.h"

/* Write n bytes of the packed form, anywhere. */
int ckpt_packing_write(ckpt_packing *p, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err);

typedef struct ckpt_pack_job {
    int at;            /* descriptor of the folder with the file; no other process writes to it */
    const char *shown; /* path of the file, in messages */
    bool skip_fsync;
    ckpt_progress *progress;
    ckpt_pack_fn pack;
} ckpt_pack_job;

/*
 * Replace file `file` of `to`, complete in its folder, by its packed form and sync it; the map gets
 * the new size.
 *
 * Errors  CKPT_EIO; those of pack. The stored file is then unchanged
 */
int ckpt_pack_file(const ckpt_pack_job *job, ckpt_map *to, uint32_t file, ckpt_err *err);

#endif
