/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c: keeps the tokens of a text in an unlinked temporary file, so that memory does not grow
 * with the text; and reads text line by line.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/data/source.h"

enum { STO_ROOM = 1 << 14 /* tokens that wait for a write */, STO_BLOCK = 1 << 16 };

struct zt_store {
    int fd;
    uint64_t written, n; /* tokens in the file, and in all */
    uint32_t wait[STO_ROOM];
};

/* Open a file without a name in TMPDIR, else /tmp. */
static int sto_open(int *fd, ckpt_err *err)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];

    folder = folder && *folder ? folder : "/tmp";
    if (snprintf(path, sizeof path, "%s/zerotrain-XXXXXX", folder) >= (int)sizeof path)
        return ckpt_fail(err, CKPT_EIO, "TMPDIR is too long");
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd < 0)
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: a temporary file for tokens cannot be made",
                             folder);
    (void)unlink(path);
    return CKPT_OK;
}

int zt_store_new(zt_store **out, ckpt_err *err)
{
    zt_store *s = ckpt_alloc(sizeof *s);
    int rc;

    if (!s)
        return ckpt_fail_memory(err);
    s->fd = -1;
    rc = sto_open(&s->fd, err);
    if (rc == CKPT_OK)
        *out = s;
    else
        zt_store_free(s);
    return rc;
}

void zt_store_free(zt_store *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        (void)close(s->fd);
    ckpt_free(s);
}

uint64_t zt_store_count(const zt_store *s)
{
    return s->n;
}

static int sto_flush(zt_store *s, ckpt_err *err)
{
    const uint8_t *p = (const uint8_t *)s->wait;
    uint64_t at = s->written * sizeof *s->wait;
    size_t n = (size_t)(s->n - s->written) * sizeof *s->wait;

    while (n > 0) {
        ssize_t put = pwrite(s->fd, p, n, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return ckpt_fail_sys(err, CKPT_EIO, put < 0 ? errno : ENOSPC,
                                 "the temporary file for tokens (TMPDIR) cannot be written");
        p += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    s->written = s->n;
    return CKPT_OK;
}

int zt_store_add(zt_store *s, uint32_t token, ckpt_err *err)
{
    int rc = s->n - s->written == STO_ROOM ? sto_flush(s, err) : CKPT_OK;

    if (rc == CKPT_OK)
        s->wait[s->n++ - s->written] = token;
    return rc;
}

int zt_store_read(zt_store *s, uint32_t *to, size_t n, uint64_t from, ckpt_err *err)
{
    assert(s && (to || n == 0) && from + n <= zt_store_count(s));
    uint8_t *p = (uint8_t *)to;
    uint64_t at = from * sizeof *to;
    size_t left = n * sizeof *to;
    int rc = s->n > s->written ? sto_flush(s, err) : CKPT_OK;

    while (rc == CKPT_OK && left > 0) {
        ssize_t got = pread(s->fd, p, left, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ckpt_fail_sys(err, CKPT_EIO, got < 0 ? errno : EIO,
                                 "the temporary file for tokens cannot be read");
        p += got;
        at += (uint64_t)got;
        left -= (size_t)got;
    }
    return rc;
}

/* ---- lines ---- */

int zt_lines_open(zt_lines *l, const char *path, uint64_t limit, ckpt_err *err)
{
    char head[3];
    struct stat st;

    *l = (zt_lines){.path = path, .limit = limit};
    l->file = fopen(path, "rbe");
    if (!l->file)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", path);
    if (fstat(fileno(l->file), &st) != 0 || !S_ISREG(st.st_mode))
        return ckpt_fail(err, CKPT_EIO, "%s: is not a regular file", path);
    if (!zt_data_mark(head, fread(head, 1, sizeof head, l->file)))
        rewind(l->file);
    return CKPT_OK;
}

void zt_lines_close(zt_lines *l)
{
    if (l->file)
        (void)fclose(l->file);
    ckpt_vec_free(&l->held);
    *l = (zt_lines){0};
}

/* Append more of the file to the bytes in memory; *more: false at the end of the file. */
static int sto_more(zt_lines *l, bool *more, ckpt_err *err)
{
    const size_t had = l->held.n;
    size_t got;

    if (l->done > 0) { // the lines before are not needed any more
        memmove(l->held.at, l->held.at + l->done, had - l->done);
        l->held.n = had - l->done;
        l->done = 0;
    }
    const size_t n = l->held.n;
    if (!ckpt_bytes_add(&l->held, NULL, STO_BLOCK))
        return ckpt_fail_memory(err);
    got = fread(l->held.at + n, 1, STO_BLOCK, l->file);
    l->held.n = n + got;
    *more = got > 0;
    if (ferror(l->file))
        return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", l->path);
    return CKPT_OK;
}

int zt_lines_next(zt_lines *l, ckpt_text *line, ckpt_err *err)
{
    size_t looked = 0;
    bool more = true;

    *line = (ckpt_text){NULL, 0};
    for (;;) {
        const char *s = l->held.n ? (const char *)l->held.at + l->done : "";
        const size_t n = l->held.n - l->done;
        const char *end = memchr(s + looked, '\n', n - looked);

        if (end || (!more && n > 0)) {
            const size_t size = end ? (size_t)(end - s) + 1 : n;
            l->number++;
            l->done += size;
            *line = (ckpt_text){s, size};
            return CKPT_OK;
        }
        if (!more)
            return CKPT_OK;
        looked = n;
        if (n > l->limit)
            return ckpt_fail(err, CKPT_ELIMIT,
                             "%s: line %" PRIu64 " has more than %" PRIu64 " bytes", l->path,
                             l->number + 1, l->limit);
        int rc = sto_more(l, &more, err);
        if (rc != CKPT_OK)
            return rc;
    }
}
