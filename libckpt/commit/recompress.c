/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recompress.c: packs a finished file into a second one and replaces the first.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/commit/recompress.h"
#include "libckpt/io/dir.h"

/* One of the two files. */
typedef struct pack_io {
    ckpt_io io;
    int fd;
    ckpt_progress *progress; /* NULL: reads do not count as progress */
} pack_io;

static int pack_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const pack_io *f = (const pack_io *)io;

    if (ckpt_pread(f->fd, buf, n, at) != 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno,
                             "%s: cannot read %" PRIu64 " bytes at offset %" PRIu64, io->name, n,
                             at);
    return f->progress ? ckpt_progress_add(f->progress, n, err) : CKPT_OK;
}

int ckpt_packing_write(ckpt_packing *p, const void *bytes, uint64_t n, uint64_t at, ckpt_err *err)
{
    uint64_t end;

    if (!ckpt_add(at, n, &end) || end > INT64_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the file has more than 2^63 bytes",
                         p->packed->name);
    if (ckpt_pwrite(p->fd, bytes, n, at) != 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno,
                             "%s: cannot write %" PRIu64 " bytes at offset %" PRIu64,
                             p->packed->name, n, at);
    if (end > p->packed->size)
        p->packed->size = end;
    return CKPT_OK;
}

static int pack_open(int at, const char *name, const char *shown, int flags, int *fd, ckpt_err *err)
{
    do
        *fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC, 0666);
    while (*fd < 0 && errno == EINTR);
    return *fd >= 0 ? CKPT_OK : ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot open", shown);
}

/* Pack into the new file, and sync it. */
static int pack_write(const ckpt_pack_job *job, ckpt_map *to, uint32_t file, pack_io *stored,
                      pack_io *packed, ckpt_err *err)
{
    ckpt_packing both = {.stored = &stored->io, .packed = &packed->io, .fd = packed->fd};
    int rc = job->pack(to, file, &both, err);

    if (rc == CKPT_OK && !job->skip_fsync && ckpt_fsync(packed->fd) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot write to the disk", packed->io.name);
    return rc;
}

int ckpt_pack_file(const ckpt_pack_job *job, ckpt_map *to, uint32_t file, ckpt_err *err)
{
    assert(job && job->pack && to && file < to->files.n);
    ckpt_map_file *f = &to->files.at[file];
    // the folder belongs to this run: only the file itself can have this name
    const char *temp = strcmp(f->path, ".packing") != 0 ? ".packing" : ".packing-2";
    const char *shown = ckpt_arena_printf(to->arena, "%s/%s", job->shown, f->path);
    pack_io stored = {.io = {.name = shown, .size = f->size, .read_at = pack_read_at},
                      .progress = job->progress};
    pack_io packed = {.io = {.name = shown, .read_at = pack_read_at}};
    int rc = shown ? CKPT_OK : ckpt_fail_memory(err);

    stored.fd = packed.fd = -1;
    if (rc == CKPT_OK)
        rc = pack_open(job->at, f->path, shown, O_RDONLY, &stored.fd, err);
    if (rc == CKPT_OK)
        rc = pack_open(job->at, temp, shown, O_RDWR | O_CREAT | O_TRUNC, &packed.fd, err);
    if (rc == CKPT_OK)
        rc = pack_write(job, to, file, &stored, &packed, err);
    if (stored.fd >= 0)
        (void)close(stored.fd);
    if (packed.fd >= 0 && close(packed.fd) != 0 && errno != EINTR && rc == CKPT_OK)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot close", shown);
    if (rc == CKPT_OK && renameat(job->at, temp, job->at, f->path) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno,
                           "%s: cannot replace the file by its compressed form", shown);
    if (rc == CKPT_OK)
        f->size = packed.io.size;
    else if (packed.fd >= 0)
        (void)unlinkat(job->at, temp, 0);
    return rc;
}
