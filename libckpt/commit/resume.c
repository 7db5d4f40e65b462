/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resume.c: reads back the files that an interrupted run has finished.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "libckpt/base/digest.h"
#include "libckpt/commit/resume.h"
#include "libckpt/io/dir.h"

enum { KEEP_BLOCK = 1 << 18 /* bytes per read */ };

typedef struct keep_state {
    ckpt_kept *kept;
    const ckpt_keep *where;
} keep_state;

int ckpt_keep_sum(int fd, uint64_t size, ckpt_progress *progress, uint32_t *crc, bool *whole,
                  ckpt_err *err)
{
    assert(fd >= 0 && crc && whole);
    uint8_t *buf = ckpt_alloc(KEEP_BLOCK);
    uint64_t done = 0;
    ssize_t got = 1;
    int rc = CKPT_OK;

    *crc = 0;
    if (!buf)
        return ckpt_fail_memory(err);
    while (rc == CKPT_OK && done < size && got > 0) {
        do
            got = pread(fd, buf, size - done < KEEP_BLOCK ? (size_t)(size - done) : KEEP_BLOCK,
                        (off_t)done);
        while (got < 0 && errno == EINTR);
        if (got > 0) {
            *crc = ckpt_crc32(*crc, buf, (size_t)got);
            done += (uint64_t)got;
        }
        if (progress)
            rc = ckpt_progress_add(progress, 0, err);
    }
    ckpt_free(buf);
    *whole = done == size;
    return rc;
}

/* Check one file of the target, if the journal lists it. */
static int keep_file(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    const keep_state *s = ctx;
    const ckpt_map_file *f = &s->where->to->files.at[item];
    ckpt_kept *k = &s->kept[item];
    struct stat st;
    uint32_t crc = 0;
    bool whole = false;
    int fd, rc = CKPT_OK;

    (void)worker;
    if (!k->listed)
        return CKPT_OK;
    do
        fd = openat(s->where->at, f->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return CKPT_OK;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->size)
        rc = ckpt_keep_sum(fd, f->size, s->where->progress, &crc, &whole, err);
    (void)close(fd);
    k->kept = whole && crc == k->crc;
    return rc;
}

int ckpt_keep_look(ckpt_kept *kept, const ckpt_keep *where, const ckpt_journal_entries *list,
                   ckpt_err *err)
{
    assert(where && where->to && list && (kept || where->to->files.n == 0));
    const ckpt_map_files *files = &where->to->files;
    keep_state s = {.kept = kept, .where = where};

    if (list->n == 0)
        return CKPT_OK;
    // The last of several lines for one file counts.
    for (size_t i = 0; i < list->n; i++) {
        const ckpt_journal_entry *e = &list->at[i];

        if (e->file < files->n)
            kept[e->file] =
                (ckpt_kept){.listed = e->size == files->at[e->file].size, .crc = e->crc};
    }
    return ckpt_crew_run(where->jobs > 0 ? where->jobs : 1, files->n, keep_file, &s, err);
}
