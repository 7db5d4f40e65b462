/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_part.c: opens a part of a file as a file, for archives inside the data files of distributed
 * checkpoints.
 */
#include <inttypes.h>

#include "libckpt/io/io.h"

typedef struct iopt_part {
    ckpt_io io; /* first, so that a pointer to it is a pointer to iopt_part */
    ckpt_io *whole;
    uint64_t at;
} iopt_part;

static int iopt_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const iopt_part *p = (const iopt_part *)(const void *)io;

    return p->whole->read_at(p->whole, buf, n, p->at + at, err);
}

static void iopt_close(ckpt_io *io)
{
    ckpt_free(io);
}

int ckpt_io_part(ckpt_io **out, ckpt_io *whole, uint64_t at, uint64_t n, ckpt_err *err)
{
    iopt_part *p;

    *out = NULL;
    if (!ckpt_within(at, n, whole->size))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: needs %" PRIu64 " bytes at offset %" PRIu64
                         ", but the file has %" PRIu64 ": it is cut short or damaged",
                         whole->name, n, at, whole->size);
    p = ckpt_alloc(sizeof *p);
    if (!p)
        return ckpt_fail_memory(err);
    *p = (iopt_part){
        .io = {.name = whole->name, .size = n, .read_at = iopt_read_at, .close = iopt_close},
        .whole = whole,
        .at = at};
    *out = &p->io;
    return CKPT_OK;
}
