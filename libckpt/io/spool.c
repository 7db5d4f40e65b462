/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool.c: keeps decoded records in memory or in an unnamed temporary file.
 */
#define _GNU_SOURCE // O_TMPFILE, secure_getenv
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/io/dir.h"
#include "libckpt/io/spool.h"

typedef struct spool_record {
    uint8_t *bytes; /* the decoded bytes; NULL: they are in the file */
    uint64_t at, n; /* offset in the file; number of bytes */
    bool begun, whole;
} spool_record;

/*
 * The file that was opened early, -1: none, and its used bytes: each spool uses different ranges.
 */
static int spool_ahead = -1;
static uint64_t spool_ahead_end;
static pthread_mutex_t spool_ahead_lock = PTHREAD_MUTEX_INITIALIZER;

struct ckpt_spool {
    pthread_mutex_t lock;
    char *folder;
    uint64_t heap; /* bytes that may still be allocated */
    bool shared;   /* the file opened by ckpt_spool_prepare can be used */
    int fd;        /* -1: no file yet */
    uint64_t end;  /* end of the file */
    size_t n;
    spool_record *record;
};

int ckpt_spool_new(ckpt_spool **out, size_t n, const char *folder, uint64_t heap, ckpt_err *err)
{
    assert(out);
    const char *where = folder ? folder : secure_getenv("TMPDIR");
    ckpt_spool *s = ckpt_alloc(sizeof *s);
    size_t n_where;

    *out = NULL;
    if (!s)
        return ckpt_fail_memory(err);
    if (!where || where[0] == 0)
        where = "/tmp";
    n_where = strlen(where) + 1;
    s->fd = -1;
    s->shared = !folder;
    s->heap = heap;
    s->n = n;
    s->folder = ckpt_alloc(n_where);
    s->record = ckpt_alloc((n + 1) * sizeof *s->record);
    if (!s->folder || !s->record || pthread_mutex_init(&s->lock, NULL) != 0) {
        ckpt_free(s->record);
        ckpt_free(s->folder);
        ckpt_free(s);
        return ckpt_fail_memory(err);
    }
    memcpy(s->folder, where, n_where);
    *out = s;
    return CKPT_OK;
}

/* An unnamed file disappears by itself, however the process ends. */
static int spool_create(ckpt_spool *s, ckpt_err *err)
{
    char *path;
    size_t n = strlen(s->folder) + sizeof "/.ckpt-spool-XXXXXX";

    if (s->shared && spool_ahead >= 0)
        s->fd = fcntl(spool_ahead, F_DUPFD_CLOEXEC, 0);
    else
        s->fd = open(s->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd >= 0)
        return CKPT_OK;
    // Not every file system has O_TMPFILE: create a named file and unlink it.
    path = ckpt_alloc(n);
    if (!path)
        return ckpt_fail_memory(err);
    (void)snprintf(path, n, "%s/.ckpt-spool-XXXXXX", s->folder);
    s->fd = mkostemp(path, O_CLOEXEC);
    if (s->fd >= 0)
        (void)unlink(path);
    ckpt_free(path);
    if (s->fd >= 0)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, errno,
                         "%s: cannot create a temporary file for decoded records", s->folder);
}

/* Reserve the next n_bytes of the file, which is created if there is none. */
static int spool_reserve_file(ckpt_spool *s, spool_record *r, uint64_t n_bytes, ckpt_err *err)
{
    bool shared = s->shared && spool_ahead >= 0;
    uint64_t *end = shared ? &spool_ahead_end : &s->end, after;
    int rc = s->fd < 0 ? spool_create(s, err) : CKPT_OK;

    if (rc != CKPT_OK)
        return rc;
    pthread_mutex_lock(&spool_ahead_lock);
    bool fits = ckpt_add(*end, n_bytes, &after) && after <= INT64_MAX;
    r->at = *end;
    r->n = fits ? n_bytes : 0;
    *end = fits ? after : *end;
    pthread_mutex_unlock(&spool_ahead_lock);
    if (!fits)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%s: decoded records of %" PRIu64 " bytes do not fit in one file",
                         s->folder, n_bytes);
    return CKPT_OK;
}

int ckpt_spool_begin(ckpt_spool *s, size_t i, uint64_t n_bytes, ckpt_err *err)
{
    assert(i < s->n);
    spool_record *r = &s->record[i];
    int rc = CKPT_OK;

    pthread_mutex_lock(&s->lock);
    // The record was begun before but not completed: reuse its memory or its place in the file.
    if (r->begun) {
        pthread_mutex_unlock(&s->lock);
        return CKPT_OK;
    }
    // A record that does not fit the rest of the memory goes to the file; smaller ones after it may
    // still fit.
    if (n_bytes > 0 && n_bytes <= s->heap) {
        r->bytes = ckpt_alloc((size_t)n_bytes);
        if (!r->bytes)
            rc = ckpt_fail_memory(err);
        else
            s->heap -= n_bytes;
    } else if (n_bytes > 0) {
        rc = spool_reserve_file(s, r, n_bytes, err);
    }
    r->begun = rc == CKPT_OK;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int ckpt_spool_write(ckpt_spool *s, size_t i, const void *bytes, uint64_t n, uint64_t at,
                     ckpt_err *err)
{
    assert(i < s->n && (bytes || n == 0));
    const spool_record *r = &s->record[i];

    if (r->bytes) {
        memcpy(r->bytes + at, bytes, (size_t)n);
        return CKPT_OK;
    }
    if (ckpt_pwrite(s->fd, bytes, n, r->at + at) == 0)
        return CKPT_OK;
    return ckpt_fail_sys(
        err, CKPT_EIO, errno,
        "%s: cannot write %" PRIu64 " bytes of a decoded record to a temporary file", s->folder, n);
}

void ckpt_spool_end(ckpt_spool *s, size_t i)
{
    assert(i < s->n);
    pthread_mutex_lock(&s->lock);
    s->record[i].whole = true;
    pthread_mutex_unlock(&s->lock);
}

bool ckpt_spool_has(ckpt_spool *s, size_t i)
{
    assert(i < s->n);
    bool has;

    pthread_mutex_lock(&s->lock);
    has = s->record[i].whole;
    pthread_mutex_unlock(&s->lock);
    return has;
}

int ckpt_spool_read(ckpt_spool *s, size_t i, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    assert(i < s->n && (buf || n == 0));
    const spool_record *r = &s->record[i];

    if (r->bytes) {
        memcpy(buf, r->bytes + at, (size_t)n);
        return CKPT_OK;
    }
    if (ckpt_pread(s->fd, buf, n, r->at + at) == 0)
        return CKPT_OK;
    return ckpt_fail_sys(err, CKPT_EIO, errno,
                         "%s: cannot read a decoded record back from a temporary file", s->folder);
}

void ckpt_spool_free(ckpt_spool *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        ckpt_free(s->record[i].bytes);
    // The shared file stays open: give this spool's part of it back to the disk.
    for (size_t i = 0; s->shared && spool_ahead >= 0 && i < s->n; i++) {
        if (s->record[i].n > 0)
            (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            (off_t)s->record[i].at, (off_t)s->record[i].n);
    }
    // Closing the unnamed file deletes it.
    if (s->fd >= 0)
        (void)close(s->fd);
    pthread_mutex_destroy(&s->lock);
    ckpt_free(s->record);
    ckpt_free(s->folder);
    ckpt_free(s);
}

int ckpt_spool_prepare(ckpt_err *err)
{
    ckpt_spool *s = NULL;
    int rc = spool_ahead < 0 ? ckpt_spool_new(&s, 0, NULL, 0, err) : CKPT_OK;

    if (rc == CKPT_OK && s)
        rc = spool_create(s, err);
    if (rc == CKPT_OK && s) {
        spool_ahead = s->fd;
        s->fd = -1;
    }
    ckpt_spool_free(s);
    return rc;
}
