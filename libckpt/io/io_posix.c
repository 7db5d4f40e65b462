/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_posix.c: implements ckpt_io for regular files.
 *
 * It has the rules for opening input: never block on a FIFO, never read a device, never rely on a
 * size that fstat did not confirm.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/address.h"
#include "libckpt/io/io.h"
#include "libckpt/io/page_cache.h"

/* A read of at least this size is payload, not headers. */
#define IOP_PAYLOAD (256u * 1024u)

typedef struct iop_file {
    ckpt_io io; /* first, so that a pointer to it is a pointer to iop_file */
    int fd;
    atomic_bool hinted;  /* the kernel knows that we read forwards */
    ckpt_behind *behind; /* NULL: pages stay in the page cache */
    char path[];
} iop_file;

/*
 * Ask for more read-ahead at the first read of payload, because opening a checkpoint, which reads
 * scattered headers, must not pay for it. It is only a hint, so a failure does not matter.
 */
static void iop_hint(iop_file *f, uint64_t n)
{
    if (n >= IOP_PAYLOAD && !atomic_exchange(&f->hinted, true))
        (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

/* The file behind a ckpt_io; the union takes the const away without a cast. */
static iop_file *iop_of(const ckpt_io *io)
{
    union {
        const ckpt_io *in;
        iop_file *out;
    } as = {io};

    return as.out;
}

/* Read all n bytes or fail: a short read means that the file was cut after it was opened. */
static int iop_read(iop_file *f, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const ckpt_io *io = &f->io;
    uint8_t *p = buf;

    while (n > 0) {
        // One call moves at most 2 GiB on Linux; 1 GiB steps keep ssize_t safe everywhere.
        size_t want = n < (1u << 30) ? (size_t)n : (size_t)1 << 30;
        ssize_t got = pread(f->fd, p, want, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ckpt_fail_sys(err, CKPT_EIO, errno,
                                 "%s: cannot read %zu bytes at offset %" PRIu64, io->name, want,
                                 at);
        if (got == 0)
            return ckpt_fail(err, CKPT_EIO,
                             "%s: ends at offset %" PRIu64 ", but had %" PRIu64
                             " bytes when it was opened: it was cut while being read",
                             io->name, at, io->size);
        p += got;
        n -= (uint64_t)got;
        at += (uint64_t)got;
    }
    return CKPT_OK;
}

static int iop_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    iop_file *f = iop_of(io);
    int rc;

    iop_hint(f, n);
    rc = iop_read(f, buf, n, at, err);
    if (f->behind && rc == CKPT_OK)
        ckpt_behind_after(f->behind, n, at);
    return rc;
}

static void iop_let_go(ckpt_io *io)
{
    iop_file *f = iop_of(io);

    if (!f->behind)
        f->behind = ckpt_behind_new(f->fd, io->size);
}

static void iop_close(ckpt_io *io)
{
    iop_file *f = iop_of(io);

    ckpt_behind_free(f->behind);
    // Nothing was written, so a failure of close does not matter.
    (void)close(f->fd);
    ckpt_free(f);
}

/* Links are followed, because hub caches consist of them. O_NONBLOCK: a FIFO must not block. */
static int iop_open_fd(int *out, const char *path, ckpt_err *err)
{
    int fd;

    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot open", path);
    *out = fd;
    return CKPT_OK;
}

int ckpt_io_open_here(ckpt_io **out, const char *path, ckpt_err *err)
{
    assert(out && path);
    size_t n = strlen(path) + 1;
    iop_file *f = ckpt_alloc(sizeof *f + n);
    struct stat st = {0};
    int rc;

    *out = NULL;
    if (!f)
        return ckpt_fail_memory(err);
    if (ckpt_address_is(path)) {
        ckpt_free(f);
        return ckpt_address_open(out, path, err);
    }
    rc = iop_open_fd(&f->fd, path, err);
    if (rc != CKPT_OK) {
        ckpt_free(f);
        return rc;
    }
    memcpy(f->path, path, n);
    if (fstat(f->fd, &st) != 0)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot stat", path);
    else if (!S_ISREG(st.st_mode))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: %s, not a regular file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a device, pipe or socket");
    f->io = (ckpt_io){.name = f->path,
                      .size = (uint64_t)st.st_size,
                      .id = ckpt_identity_of(&st),
                      .read_at = iop_read_at,
                      .close = iop_close,
                      .let_go = iop_let_go};
    if (rc != CKPT_OK)
        iop_close(&f->io);
    else
        *out = &f->io;
    return rc;
}

int ckpt_io_read(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    assert(io && (buf || n == 0));
    if (!ckpt_within(at, n, io->size))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "%s: needs %" PRIu64 " bytes at offset %" PRIu64
                         ", but the file has %" PRIu64 ": it is cut short or damaged",
                         io->name, n, at, io->size);
    return n == 0 ? CKPT_OK : io->read_at(io, buf, n, at, err);
}

ckpt_identity ckpt_identity_of(const struct stat *st)
{
    return (ckpt_identity){.dev = (uint64_t)st->st_dev,
                           .ino = (uint64_t)st->st_ino,
                           .mtime_s = (int64_t)st->st_mtim.tv_sec,
                           .mtime_ns = (int64_t)st->st_mtim.tv_nsec,
                           .ctime_s = (int64_t)st->st_ctim.tv_sec,
                           .ctime_ns = (int64_t)st->st_ctim.tv_nsec};
}

bool ckpt_identity_same(const ckpt_identity *a, const ckpt_identity *b)
{
    return a->ino == b->ino && a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns &&
           a->ctime_s == b->ctime_s && a->ctime_ns == b->ctime_ns;
}

void ckpt_io_identify(const ckpt_io *io, ckpt_map_file *out)
{
    assert(io && out);
    out->path = io->name;
    out->size = io->size;
    out->dev = io->id.dev;
    out->ino = io->id.ino;
    out->mtime_s = io->id.mtime_s;
    out->mtime_ns = io->id.mtime_ns;
    out->ctime_s = io->id.ctime_s;
    out->ctime_ns = io->id.ctime_ns;
}

void ckpt_io_close(ckpt_io *io)
{
    if (io)
        io->close(io);
}
