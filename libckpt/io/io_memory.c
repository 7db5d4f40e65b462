/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_memory.c: implements ckpt_io for borrowed memory and for a caller's functions.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/io/io.h"

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
    f->io = (ckpt_io){.name = f->name, .size = n, .read_at = iom_read_at, .close = iom_close};
    *out = &f->io;
    return CKPT_OK;
}

/* ---- a caller's functions ---- */

typedef struct iom_input {
    ckpt_io io;
    const ckpt_input *input;
    char name[];
} iom_input;

static int iom_input_read(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const iom_input *f = (const iom_input *)io;
    int rc = n > 0 ? f->input->read_at(f->input->ctx, buf, n, at) : 0;

    return rc == 0 ? CKPT_OK
                   : ckpt_fail_sys(err, CKPT_EIO, rc,
                                   "%s: cannot read %" PRIu64 " bytes at offset %" PRIu64, io->name,
                                   n, at);
}

int ckpt_io_input(ckpt_io **out, const char *name, const ckpt_input *input, ckpt_err *err)
{
    size_t n_name = strlen(name) + 1;
    iom_input *f = ckpt_alloc(sizeof *f + n_name);

    *out = NULL;
    if (!f)
        return ckpt_fail_memory(err);
    memcpy(f->name, name, n_name);
    f->input = input;
    f->io = (ckpt_io){
        .name = f->name, .size = input->n_bytes, .read_at = iom_input_read, .close = iom_close};
    *out = &f->io;
    return CKPT_OK;
}
