/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c: reading the many small files of zero/, a few at a time by several threads.
 *
 * Each file becomes a map of its own; what is needed of it goes into the large map, in the order of
 * the list, whatever thread was first.
 */
#include <string.h>

#include "formats/universal/universal.h"
#include "libckpt/copy/crew.h"
#include "libckpt/copy/run.h"

enum { UX_AHEAD = 16 }; /* files read ahead per thread */

/* One file read ahead of its turn. */
typedef struct ux_read {
    ckpt_map *map;
    bool has_step;
    double step;
    int rc;
    ckpt_err err;
} ux_read;

typedef struct ux_batch {
    ckpt_read_file *read;
    const ckpt_uni_want *want;
    ux_read *file;
} ux_batch;

/* A step count is a value of the tree or a tensor of one element, whose bytes are read here. */
static int ux_step(ux_read *f, const char *path)
{
    const ckpt_ds_job alone = {.err = &f->err};
    ckpt_ds_shard s = {.map = f->map, .path = path};
    int rc = ckpt_ds_shard_step(&alone, &s, f->map->values, &f->has_step, &f->step);

    // The map stays with the file.
    s.map = NULL;
    ckpt_ds_shard_close(&s);
    return rc;
}

/* What a thread does with one file.  A failure is kept with the file: which one is told must not
 * depend on the threads.
 */
static int ux_item(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    ux_batch *b = ctx;
    ux_read *f = &b->file[item];

    (void)worker;
    (void)err;
    memset(f, 0, sizeof *f);
    f->rc = b->read(&f->map, b->want[item].path, &f->err);
    if (f->rc == CKPT_OK && strcmp(b->want[item].state, "step") == 0)
        f->rc = ux_step(f, b->want[item].path);
    return CKPT_OK;
}

/* True for failures that are about the file, so that a collecting reader may go on with the next.
 */
static bool ux_about_file(int code)
{
    return code == CKPT_EFORMAT || code == CKPT_EUNSAFE || code == CKPT_EUNSUPPORTED ||
           code == CKPT_EMISSING;
}

/* Enter a file that was read in the large map. */
static int ux_enter(ckpt_uni *u, ckpt_ds_shard *s)
{
    s->file = ckpt_alloc(sizeof *s->file);
    s->source = ckpt_alloc((s->map->sources.n + 1) * sizeof *s->source);
    if (!s->file || !s->source)
        return ckpt_fail_memory(u->job.err);
    memset(s->source, 0xff, (s->map->sources.n + 1) * sizeof *s->source);
    return ckpt_map_add_file(u->job.map, &s->map->files.at[0], s->file, u->job.err);
}

/* Take over a file that was read, and hand it on. */
static int ux_hand(ckpt_uni *u, const ckpt_uni_want *want, ux_read *r, ckpt_uni_file_fn fn)
{
    ckpt_uni_file f = {.want = want, .has_step = r->has_step, .step = r->step};
    ckpt_ds_shard *s = &f.shard;
    int rc = CKPT_OK;

    if (r->rc != CKPT_OK && u->job.map->collect && ux_about_file(r->rc))
        return ckpt_ds_problem(&u->job, r->rc, "%s", r->err.text);
    if (r->rc != CKPT_OK) {
        if (u->job.err && u->job.err->code == CKPT_OK)
            *u->job.err = r->err;
        return r->rc;
    }
    s->map = r->map;
    s->path = want->path;
    r->map = NULL;
    f.root = s->root = s->map->values;
    if (f.root) {
        rc = ux_enter(u, s);
        if (rc == CKPT_OK)
            rc = fn(u, &f);
    } else {
        rc = ckpt_ds_problem(&u->job, CKPT_EFORMAT, "%s: not a torch file", want->path);
    }
    ckpt_ds_shard_close(s);
    return rc;
}

int ckpt_uni_files_each(ckpt_uni *u, const ckpt_uni_wants *wants, ckpt_uni_file_fn fn)
{
    unsigned threads = ckpt_run_jobs(0);
    size_t most = (size_t)threads * UX_AHEAD;
    ux_batch b = {.read = u->job.read, .file = ckpt_alloc(most * sizeof *b.file)};
    int rc = b.file ? CKPT_OK : ckpt_fail_memory(u->job.err);

    for (size_t i = 0; rc == CKPT_OK && i < wants->n; i += most) {
        size_t n = wants->n - i < most ? wants->n - i : most;
        b.want = &wants->at[i];
        // What no thread came to counts as not read.
        for (size_t k = 0; k < n; k++)
            b.file[k] = (ux_read){.rc = CKPT_ELIMIT};
        rc = ckpt_crew_run(n < threads ? (unsigned)n : threads, n, ux_item, &b, u->job.err);
        for (size_t k = 0; k < n; k++) {
            if (rc == CKPT_OK)
                rc = ux_hand(u, &b.want[k], &b.file[k], fn);
            ckpt_map_free(b.file[k].map);
        }
    }
    ckpt_free(b.file);
    return rc;
}
