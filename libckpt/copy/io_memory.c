/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_memory.c: borrowed memory as a ckpt_io.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/copy/io.h"

typedef struct iom_file {
    ckpt_io io;
    const uint8_t *bytes;
    char name[];
} iom_file;

static int iom_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const iom_file *f = (const iom_file *)io;

    (void)err;
    if (n > 0)
        memcpy(buf, f->bytes + at, (size_t)n);
    return CKPT_OK;
}

static void iom_close(ckpt_io *io)
{
    ckpt_free(io);
}

int ckpt_io_memory(ckpt_io **out, const char *name, const void *bytes, uint64_t n, ckpt_err *err)
{
    assert(out && name && (bytes || n == 0));
    size_t n_name = strlen(name) + 1;
    iom_file *f = ckpt_alloc(sizeof *f + n_name);

    *out = NULL;
    if (!f)
        return ckpt_fail_memory(err);
    memcpy(f->name, name, n_name);
    f->bytes = bytes;
    f->io = (ckpt_io){f->name, n, iom_read_at, iom_close};
    *out = &f->io;
    return CKPT_OK;
}
