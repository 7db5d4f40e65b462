/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_read.c: reads and streams the files of a view: completes a file's literals before its first
 * read, and lets one thread at a time stream it.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/copy/view_inside.h"

/* Wait until no other thread uses a file, and return its state. The caller holds the lock. */
static view_state vwr_wait(ckpt_view *v, const view_file *f)
{
    while (f->state == VIEW_BUSY)
        pthread_cond_wait(&v->change, &v->lock);
    return f->state;
}

/* Set a file's state and wake the waiting threads. */
static void vwr_settle(ckpt_view *v, view_file *f, view_state state)
{
    pthread_mutex_lock(&v->lock);
    f->state = (uint8_t)state;
    pthread_cond_broadcast(&v->change);
    pthread_mutex_unlock(&v->lock);
}

/* Set all checksums of a file to 0, which means none. */
static int vwr_seal_bare(ckpt_view *v, uint32_t file, ckpt_err *err)
{
    ckpt_map *to = v->plan->to;
    int rc;

    pthread_mutex_lock(&v->work.lock);
    for (size_t i = v->group[file]; i < v->group[file + 1]; i++) {
        to->sources.at[v->source[i]].crc = 0;
        to->sources.at[v->source[i]].has_crc = 1;
    }
    rc = v->hooks.seal(to, file, UINT64_MAX, err);
    pthread_mutex_unlock(&v->work.lock);
    return rc;
}

/* Complete all literals of a file before the first read. */
static int vwr_ready(ckpt_view *v, uint32_t file, ckpt_err *err)
{
    view_file *f = &v->file[file];
    view_state was;
    int rc = CKPT_OK;

    pthread_mutex_lock(&v->lock);
    was = vwr_wait(v, f);
    if (was == VIEW_NEW)
        f->state = VIEW_BUSY;
    pthread_mutex_unlock(&v->lock);
    if (was == VIEW_READY)
        return CKPT_OK;
    if (was == VIEW_SPENT)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: streaming it has failed; make a new view",
                         v->path[file]);
    if (v->hooks.sums && v->hooks.sums(v->plan->to, file)) {
        if (v->hooks.bare(v->plan->to, file)) {
            rc = vwr_seal_bare(v, file, err);
        } else {
            rc = ckpt_view_place(v, file, err);
            if (rc == CKPT_OK)
                rc = ckpt_view_pour(v, file, NULL, NULL, err);
        }
    }
    if (rc == CKPT_OK)
        rc = ckpt_view_place(v, file, err);
    vwr_settle(v, f, rc == CKPT_OK ? VIEW_READY : VIEW_NEW);
    return rc;
}

int ckpt_view_read(ckpt_view *v, size_t i, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    ckpt_err_clear(err);
    int rc;

    if (!v || i >= v->n_files || (!buf && n > 0))
        return ckpt_fail(err, CKPT_EUSAGE, "no view, no such file or no buffer to read into");
    if (!ckpt_within(at, n, ckpt_view_file_size(v, i)))
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s: %" PRIu64 " bytes from offset %" PRIu64 " exceed the end of the file",
                         v->path[i], n, at);
    if (n == 0)
        return CKPT_OK;
    if (i == v->plan->to->files.n) {
        memcpy(buf, v->plan->to->pointer_text + at, (size_t)n);
        return CKPT_OK;
    }
    rc = vwr_ready(v, (uint32_t)i, err);
    return rc == CKPT_OK ? ckpt_view_window(v, (uint32_t)i, buf, n, at, err) : rc;
}

int ckpt_view_stream(ckpt_view *v, size_t i, ckpt_view_write_fn write, void *ctx, ckpt_err *err)
{
    ckpt_err_clear(err);
    view_file *f;
    view_state was;
    int rc;

    if (!v || i >= v->n_files || !write)
        return ckpt_fail(err, CKPT_EUSAGE, "no view, no such file or nothing to write with");
    if (i == v->plan->to->files.n)
        return write(ctx, v->plan->to->pointer_text, ckpt_view_file_size(v, i), err);
    f = &v->file[i];
    pthread_mutex_lock(&v->lock);
    was = vwr_wait(v, f);
    if (was == VIEW_NEW)
        f->state = VIEW_BUSY;
    pthread_mutex_unlock(&v->lock);
    if (was != VIEW_NEW)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: was read or streamed already: make a new view",
                         v->path[i]);
    rc = ckpt_view_place(v, (uint32_t)i, err);
    if (rc == CKPT_OK)
        rc = ckpt_view_pour(v, (uint32_t)i, write, ctx, err);
    if (rc == CKPT_OK)
        rc = ckpt_proof_finish(v->proof, v->n_hands, err);
    if (rc == CKPT_OK)
        rc = ckpt_view_place(v, (uint32_t)i, err);
    vwr_settle(v, f, rc == CKPT_OK ? VIEW_READY : VIEW_SPENT);
    return rc;
}
