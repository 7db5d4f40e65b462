/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c: streams a file of a view from its first byte to its last.
 *
 * Several threads compute windows, which leave in order. When a window leaves, the stream updates
 * the records' checksums. A literal that depends on a checksum is inserted when the checksum is
 * known, which is always before the literal's place: a format that stores a checksum earlier could
 * not be streamed, and none does.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/digest.h"
#include "libckpt/copy/view_inside.h"

#define ST_ROOM (UINT64_C(8) << 20)

/* A window under construction, or ready to leave. */
typedef struct pour_window {
    uint8_t *bytes;
    bool ready;
} pour_window;

typedef struct pour_state {
    ckpt_view *v;
    uint32_t file;
    ckpt_view_write_fn write;
    void *ctx;
    ckpt_progress *progress;
    pour_window *window; /* ring of n_windows windows: number i is window[i % n_windows] */
    unsigned n_windows;
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint64_t n_left; /* number of windows that have left */
    bool leaving;    /* a thread is passing a window to the caller */
    bool failed;
    // Only the thread that passes windows on uses the members below.
    /* n_sources sources of the file, ascending by place; number `summed` is being checksummed */
    const uint32_t *source;
    size_t n_sources, summed;
    uint32_t crc;
    /* number of the file's literals that are already copied into windows */
    size_t n_literals;
    ckpt_literals late; /* literals that were added afterwards, ascending */
    size_t first_late;
} pour_state;

static uint64_t pour_size(const pour_state *s)
{
    return s->v->plan->to->files.at[s->file].size;
}

/* Let the format add the literals that it can compute now. */
static int pour_seal(pour_state *s, uint64_t known, ckpt_err *err)
{
    ckpt_map *to = s->v->plan->to;
    const ckpt_literals *all = &to->files.at[s->file].literals;
    int rc = CKPT_OK;

    pthread_mutex_lock(&s->v->work.lock);
    if (s->v->hooks.seal)
        rc = s->v->hooks.seal(to, s->file, known, err);
    for (; rc == CKPT_OK && s->n_literals < all->n; s->n_literals++) {
        ckpt_literal *l = ckpt_vec_push(&s->late);

        if (!l)
            rc = ckpt_fail_memory(err);
        else
            *l = all->at[s->n_literals];
    }
    pthread_mutex_unlock(&s->v->work.lock);
    return rc;
}

/* Copy late literals into their window. */
static void pour_patch(pour_state *s, uint8_t *bytes, uint64_t n, uint64_t at)
{
    for (size_t i = s->first_late; i < s->late.n && s->late.at[i].at < at + n; i++) {
        const ckpt_literal *l = &s->late.at[i];
        uint64_t from = l->at > at ? l->at : at;
        uint64_t end = l->at + l->n < at + n ? l->at + l->n : at + n;

        if (from < end)
            memcpy(bytes + (from - at), (const uint8_t *)l->bytes + (from - l->at),
                   (size_t)(end - from));
        if (i == s->first_late && l->at + l->n <= at + n)
            s->first_late++;
    }
}

/* Checksum a window's bytes of records; a record that ends in it gets its checksum. */
static int pour_sum(pour_state *s, const uint8_t *bytes, uint64_t n, uint64_t at, ckpt_err *err)
{
    ckpt_map *to = s->v->plan->to;

    while (s->summed < s->n_sources) {
        ckpt_source *source = &to->sources.at[s->source[s->summed]];
        uint64_t end = source->at + source->n_bytes;
        uint64_t a = source->at > at ? source->at : at, b = end < at + n ? end : at + n;
        int rc;

        if (a < b)
            s->crc = ckpt_crc32(s->crc, bytes + (a - at), (size_t)(b - a));
        if (end > at + n)
            return CKPT_OK;
        source->crc = s->crc;
        source->has_crc = 1;
        s->crc = 0;
        s->summed++;
        rc = pour_seal(s, end, err);
        if (rc != CKPT_OK)
            return rc;
    }
    return CKPT_OK;
}

/* Pass a window on. */
static int pour_leave(pour_state *s, uint64_t item, ckpt_err *err)
{
    uint8_t *bytes = s->window[item % s->n_windows].bytes;
    uint64_t at = item * VIEW_WINDOW, size = pour_size(s);
    uint64_t n = size - at < VIEW_WINDOW ? size - at : VIEW_WINDOW;
    int rc = pour_sum(s, bytes, n, at, err);

    if (rc == CKPT_OK && at + n == size)
        rc = pour_seal(s, UINT64_MAX, err);
    if (rc == CKPT_OK)
        pour_patch(s, bytes, n, at);
    if (rc == CKPT_OK && s->write)
        rc = s->write(s->ctx, bytes, n, err);
    return rc == CKPT_OK ? ckpt_progress_add(s->progress, n, err) : rc;
}

/* Pass windows on while the next one is ready and no other thread does it. */
static int pour_drain(pour_state *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&s->lock);
    while (!s->leaving && !s->failed && s->window[s->n_left % s->n_windows].ready) {
        uint64_t item = s->n_left;

        s->leaving = true;
        pthread_mutex_unlock(&s->lock);
        rc = pour_leave(s, item, err);
        pthread_mutex_lock(&s->lock);
        s->leaving = false;
        s->failed = s->failed || rc != CKPT_OK;
        s->window[item % s->n_windows].ready = false;
        s->n_left++;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int pour_item(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    pour_state *s = ctx;
    pour_window *w = &s->window[item % s->n_windows];
    uint64_t at = item * VIEW_WINDOW, size = pour_size(s);
    bool failed;
    int rc;

    (void)worker;
    pthread_mutex_lock(&s->lock);
    while (!s->failed && item - s->n_left >= s->n_windows)
        pthread_cond_wait(&s->change, &s->lock);
    failed = s->failed;
    pthread_mutex_unlock(&s->lock);
    if (failed)
        return CKPT_OK;
    rc = ckpt_view_window(s->v, s->file, w->bytes,
                          size - at < VIEW_WINDOW ? size - at : VIEW_WINDOW, at, err);
    pthread_mutex_lock(&s->lock);
    w->ready = rc == CKPT_OK;
    s->failed = s->failed || rc != CKPT_OK;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    return rc == CKPT_OK ? pour_drain(s, err) : rc;
}

static int pour_by_place(const void *pa, const void *pb)
{
    const ckpt_source *const *a = pa, *const *b = pb;

    return ((*a)->at > (*b)->at) - ((*a)->at < (*b)->at);
}

/* List the file's sources in the order of their places. */
static int pour_sources(pour_state *s, uint32_t **out, ckpt_err *err)
{
    const ckpt_view *v = s->v;
    const ckpt_source *all = v->plan->to->sources.at;
    // a format without checksums needs none computed
    bool sums = v->hooks.sums && v->hooks.sums(v->plan->to, s->file);
    size_t first = v->group[s->file], n = sums ? v->group[s->file + 1] - first : 0;
    const ckpt_source **at = ckpt_alloc((n + 1) * sizeof *at);

    *out = ckpt_alloc((n + 1) * sizeof **out);
    if (at && *out) {
        for (size_t i = 0; i < n; i++)
            at[i] = &all[v->source[first + i]];
        qsort(at, n, sizeof *at, pour_by_place);
        for (size_t i = 0; i < n; i++)
            (*out)[i] = (uint32_t)(at[i] - all);
    }
    s->source = *out;
    s->n_sources = n;
    bool ok = at && *out;
    ckpt_free(at);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

static int pour_windows(pour_state *s, ckpt_err *err)
{
    int rc = CKPT_OK;

    s->n_windows = 2 * s->v->n_hands + 1;
    s->window = ckpt_alloc(s->n_windows * sizeof *s->window);
    if (!s->window)
        return ckpt_fail_memory(err);
    for (unsigned i = 0; rc == CKPT_OK && i < s->n_windows; i++) {
        s->window[i].bytes = ckpt_alloc(VIEW_WINDOW);
        rc = s->window[i].bytes ? CKPT_OK : ckpt_fail_memory(err);
    }
    return rc;
}

/*
 * Limit the blocks that a stream keeps, because it uses each only once, and a small cache stays in
 * the processor's caches.
 */
static void pour_shrink(ckpt_view *v)
{
    uint64_t few = (2 * (uint64_t)v->n_hands + 2) * v->plan->block;

    pthread_mutex_lock(&v->lock);
    few = few > ST_ROOM ? few : ST_ROOM;
    v->blocks.room = v->blocks.room < few ? v->blocks.room : few;
    pthread_mutex_unlock(&v->lock);
}

/* Stream all windows; the locks and buffers exist. */
static int pour_run(pour_state *s, ckpt_err *err)
{
    uint64_t size = pour_size(s);
    uint32_t *source = NULL;
    int rc = pour_sources(s, &source, err);

    s->n_literals = s->v->plan->to->files.at[s->file].literals.n;
    pour_shrink(s->v);
    if (rc == CKPT_OK)
        rc = pour_windows(s, err);
    // literals that depend on no data
    if (rc == CKPT_OK)
        rc = pour_seal(s, 0, err);
    if (rc == CKPT_OK)
        rc = ckpt_crew_run(s->v->n_hands, size / VIEW_WINDOW + (size % VIEW_WINDOW > 0), pour_item,
                           s, err);
    ckpt_free(source);
    for (unsigned i = 0; s->window && i < s->n_windows; i++)
        ckpt_free(s->window[i].bytes);
    ckpt_free(s->window);
    return rc;
}

int ckpt_view_pour(ckpt_view *v, uint32_t file, ckpt_view_write_fn write, void *ctx, ckpt_err *err)
{
    pour_state s = {.v = v, .file = file, .write = write, .ctx = ctx};
    int rc;

    if (pthread_mutex_init(&s.lock, NULL) != 0)
        return ckpt_fail_memory(err);
    if (pthread_cond_init(&s.change, NULL) != 0) {
        pthread_mutex_destroy(&s.lock);
        return ckpt_fail_memory(err);
    }
    rc = ckpt_progress_new(&s.progress, write ? &v->opts : NULL, pour_size(&s), err);
    if (rc == CKPT_OK)
        rc = pour_run(&s, err);
    if (rc == CKPT_OK)
        rc = ckpt_progress_end(s.progress, err);
    ckpt_progress_free(s.progress);
    ckpt_vec_free(&s.late);
    pthread_cond_destroy(&s.change);
    pthread_mutex_destroy(&s.lock);
    return rc;
}
