/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.h: a finished file is written anew, in a form whose size is known only at its end.
 *
 * A plan fixes every offset before the first byte, and jobs end in any order; what is deflated has
 * no place before all that stands in front of it is written.  So a file that is to be packed is
 * written and proved like any other, and then, before it gets its name, read once more from
 * beginning to end and written beside itself.  The disk holds both for that time; memory holds a
 * buffer.
 */
#ifndef CKPT_COPY_PACK_H
#define CKPT_COPY_PACK_H

#include "libckpt/copy/crew.h"
#include "libckpt/copy/io.h"

/* Both forms of a file, for the one who packs it. */
typedef struct ckpt_packing {
    ckpt_io *stored; /* the finished file; what is read of it counts as progress */
    ckpt_io *packed; /* what was written so far, to be read again */
    int fd;          /* of packed */
} ckpt_packing;

/* Write n bytes of the packed form, anywhere. */
int ckpt_packing_write(ckpt_packing *p, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err);

/* Writes the packed form of target file `file` from p->stored. */
typedef int (*ckpt_pack_fn)(ckpt_map *to, uint32_t file, ckpt_packing *p, ckpt_err *err);

typedef struct ckpt_pack_job {
    int at;            /* the folder that the file is in, which nobody else writes to */
    const char *shown; /* its path, for messages */
    bool no_fsync;
    ckpt_progress *progress;
    ckpt_pack_fn pack;
} ckpt_pack_job;

/*
 * Let file `file` of `to`, complete in its folder, be replaced by its packed form, which then is on
 * the disk; its size in the map becomes that of the packed form.
 *
 * Errors  CKPT_EIO; those of pack.  The stored file is as it was then
 */
int ckpt_pack_file(const ckpt_pack_job *job, ckpt_map *to, uint32_t file, ckpt_err *err);

#endif
