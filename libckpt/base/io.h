/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io.h: defines files for reading at offsets: on disk, in memory, or elsewhere.  libckpt/io opens
 * them.
 */
#ifndef CKPT_BASE_IO_H
#define CKPT_BASE_IO_H

#include "ckpt_types.h"

/* The identity of a file and the times of its last change; zeros: not known. */
typedef struct ckpt_identity {
    uint64_t dev, ino;
    int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
} ckpt_identity;

typedef struct ckpt_io ckpt_io;

struct ckpt_io {
    const char *name; /* name in messages: the path */
    uint64_t size;    /* bytes, from fstat at opening */
    ckpt_identity id; /* from the same fstat */
    /*
     * Reads exactly n bytes at offset at, which the caller has checked against size; CKPT_EIO
     * otherwise.
     */
    int (*read_at)(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err);
    void (*close)(ckpt_io *io);
    /*
     * Drop the pages of later reads from the page cache (page_cache.h); NULL: there are none to
     * drop.
     */
    void (*let_go)(ckpt_io *io);
};

#endif
