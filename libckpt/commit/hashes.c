/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hashes.c: follows the workers of a run, and hashes the bytes that they have written.
 */
#include "libckpt/commit/hashes.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt_extra.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/dtype.h"
#include "libckpt/io/dir.h"
#include "libckpt/io/io.h"
#include "libckpt/io/thread_pool.h"
#include "libckpt/map/extent.h"

/* Bytes that are read at a time: they stay in the processor's second cache. */
enum { HASH_BLOCK = 128 * 1024 };

/* Written bytes first..end-1 of a file. */
typedef struct hash_stretch {
    uint64_t first, end;
} hash_stretch;

CKPT_VEC(hash_stretches, hash_stretch);

/* The bytes of a tensor, and their hash. */
typedef struct hash_range {
    uint64_t at, n;
    uint8_t digest[32];
    bool known;
} hash_range;

CKPT_VEC(hash_ranges, hash_range);

typedef struct hash_file {
    uint64_t size;
    bool elsewhere;
    hash_stretches written; /* ascending, apart from each other */
    hash_ranges tensors;    /* ascending */
    ckpt_identity id;       /* when it was hashed */
    uint8_t digest[32];
    bool known;
} hash_file;

struct ckpt_hashes {
    pthread_mutex_t lock; /* protects `written`, stopped */
    pthread_cond_t more;
    pthread_t thread;
    bool begun, started, stopped;
    unsigned jobs;
    ckpt_hashes_path_fn *path; /* while the run lasts */
    const void *path_ctx;
    hash_file *file;
    size_t n;
    ckpt_err err; /* of the threads */
};

int ckpt_hashes_new(ckpt_hashes **out, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_hashes *h = ckpt_alloc(sizeof *h);

    if (!out) {
        ckpt_free(h);
        return ckpt_fail(err, CKPT_EUSAGE, "no place for the hashes");
    }
    *out = NULL;
    if (!h)
        return ckpt_fail_memory(err);
    if (pthread_mutex_init(&h->lock, NULL) != 0 || pthread_cond_init(&h->more, NULL) != 0) {
        ckpt_free(h);
        return ckpt_fail_memory(err);
    }
    *out = h;
    return CKPT_OK;
}

void ckpt_hashes_free(ckpt_hashes *h)
{
    if (!h)
        return;
    for (size_t i = 0; h->file && i < h->n; i++) {
        ckpt_vec_free(&h->file[i].written);
        ckpt_vec_free(&h->file[i].tensors);
    }
    ckpt_free(h->file);
    pthread_cond_destroy(&h->more);
    pthread_mutex_destroy(&h->lock);
    ckpt_free(h);
}

/* ---- tensors in files ---- */

/*
 * True if a box holds the whole tensor, row-major and dense. Packed elements have no stride along
 * their last axis.
 */
static bool hash_dense(const ckpt_tensor *t, const ckpt_extent *e)
{
    uint64_t n = 1, stride; // elements of the axes after this one, and their bytes

    for (uint32_t k = e->ndim; k-- > 0;) {
        const ckpt_axis *x = &e->axis[k];
        uint64_t size = e->ndim == 1 ? t->n_elems : t->shape[k];
        bool free = size == 1 || (k == e->ndim - 1 && ckpt_dtype_packed(t->dtype));

        if (x->start != 0 || x->count != size ||
            (!free && (!ckpt_dtype_bytes(t->dtype, n, &stride) || x->stride < 0 ||
                       (uint64_t)x->stride != stride)))
            return false;
        n *= size; // at most n_elems
    }
    return true;
}

/* The place of a tensor's bytes, if they lie together in one file and unchanged; else false. */
static bool hash_place(const ckpt_map *map, const ckpt_tensor *t, uint32_t *file, uint64_t *at,
                       uint64_t *n)
{
    ckpt_box room;
    const ckpt_extent *e;
    const ckpt_source *s;

    t = t->owner ? t->owner : t;
    if (t->n_extents != 1 || t->n_elems == 0 || (t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)) ||
        !ckpt_dtype_bytes(t->dtype, t->n_elems, n))
        return false;
    e = ckpt_extent_of(t, 0, &room);
    s = &map->sources.at[e->source];
    if (s->kind != CKPT_SOURCE_FILE || s->coding != CKPT_RAW || s->swap > 1 || s->inner ||
        !hash_dense(t, e) || !ckpt_within(e->at, *n, s->n_bytes))
        return false;
    *file = s->file;
    return ckpt_add(s->at, e->at, at);
}

static int hash_by_place(const void *pa, const void *pb)
{
    const hash_range *a = pa, *b = pb;

    return (a->at > b->at) - (a->at < b->at);
}

/* List the tensors of each file. */
static int hash_list_tensors(ckpt_hashes *h, const ckpt_map *to, ckpt_err *err)
{
    for (size_t i = 0; i < to->tensors.n; i++) {
        const ckpt_tensor *t = to->tensors.at[i];
        hash_range *range;
        uint64_t at, n;
        uint32_t file;

        if (t->owner || !hash_place(to, t, &file, &at, &n) || file >= h->n)
            continue;
        range = ckpt_vec_push(&h->file[file].tensors);
        if (!range)
            return ckpt_fail_memory(err);
        *range = (hash_range){.at = at, .n = n};
    }
    for (size_t i = 0; i < h->n; i++) {
        if (h->file[i].tensors.n > 1)
            qsort(h->file[i].tensors.at, h->file[i].tensors.n, sizeof *h->file[i].tensors.at,
                  hash_by_place);
    }
    return CKPT_OK;
}

/* ---- following ---- */

/* Wait until byte `at` of a file is written; the end of its stretch, or 0 if the run has failed. */
static uint64_t hash_wait(ckpt_hashes *h, const hash_file *f, uint64_t at)
{
    uint64_t end = 0;

    pthread_mutex_lock(&h->lock);
    while (!h->stopped && end == 0) {
        for (size_t i = 0; i < f->written.n && f->written.at[i].first <= at; i++)
            end = f->written.at[i].end > at ? f->written.at[i].end : end;
        if (end == 0)
            pthread_cond_wait(&h->more, &h->lock);
    }
    end = h->stopped ? 0 : end;
    pthread_mutex_unlock(&h->lock);
    return end;
}

/* The state of a thread that hashes parts of one file. */
typedef struct hash_reader {
    ckpt_hashes *h;
    const hash_file *f;
    char *path;
    int fd; /* -1: not open yet, because the file may not exist before its first byte */
    uint8_t *buf;
    ckpt_sha256 *sha;
} hash_reader;

/* Hash bytes at..at+n-1 as they are written; CKPT_ECANCELED: the run has failed. */
static int hash_follow(hash_reader *r, uint64_t at, uint64_t n, uint8_t digest[32], ckpt_err *err)
{
    const uint64_t end = at + n;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && at < end) {
        uint64_t known = hash_wait(r->h, r->f, at);

        if (known == 0)
            return ckpt_fail(err, CKPT_ECANCELED, "the run has ended before its files were hashed");
        if (r->fd < 0)
            r->fd = open(r->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        for (known = known < end ? known : end; rc == CKPT_OK && at < known;) {
            uint64_t m = known - at < HASH_BLOCK ? known - at : HASH_BLOCK;

            if (r->fd < 0 || ckpt_pread(r->fd, r->buf, m, at) != 0)
                return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot read back, to hash it",
                                     r->path);
            rc = ckpt_sha256_add(r->sha, r->buf, (size_t)m, err);
            at += m;
        }
    }
    return rc == CKPT_OK ? ckpt_sha256_end(r->sha, digest, err) : rc;
}

/* Hash a whole file, and remember its identity. */
static int hash_whole(hash_reader *r, hash_file *f, ckpt_err *err)
{
    struct stat st;
    int rc = hash_follow(r, 0, f->size, f->digest, err);

    if (rc == CKPT_OK && r->fd >= 0) {
        if (fstat(r->fd, &st) != 0)
            return ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot stat", r->path);
        f->id = ckpt_identity_of(&st);
        f->known = true;
    }
    return rc;
}

/* Items 2 i and 2 i + 1: file i, and its tensors. */
static int hash_item(void *ctx, unsigned worker, uint64_t item, ckpt_err *err)
{
    ckpt_hashes *h = ctx;
    hash_file *f = &h->file[item / 2];
    hash_reader r = {.h = h, .f = f, .fd = -1};
    int rc = CKPT_OK;

    (void)worker;
    if (f->elsewhere || (item % 2 && f->tensors.n == 0))
        return CKPT_OK;
    r.path = h->path(h->path_ctx, (uint32_t)(item / 2));
    r.buf = ckpt_alloc(HASH_BLOCK);
    if (!r.path || !r.buf)
        rc = ckpt_fail_memory(err);
    if (rc == CKPT_OK)
        rc = ckpt_sha256_new(&r.sha, err);
    if (rc == CKPT_OK && item % 2 == 0)
        rc = hash_whole(&r, f, err);
    for (size_t i = 0; rc == CKPT_OK && item % 2 && i < f->tensors.n; i++) {
        hash_range *t = &f->tensors.at[i];

        rc = hash_follow(&r, t->at, t->n, t->digest, err);
        t->known = rc == CKPT_OK;
    }
    if (r.fd >= 0)
        (void)close(r.fd);
    ckpt_sha256_free(r.sha);
    ckpt_free(r.path);
    ckpt_free(r.buf);
    return rc;
}

static void *hash_thread(void *ctx)
{
    ckpt_hashes *h = ctx;

    (void)ckpt_crew_run(h->jobs, 2 * (uint64_t)h->n, hash_item, h, &h->err);
    return NULL;
}

/* ---- the run ---- */

int ckpt_hashes_begin(ckpt_hashes *h, const ckpt_map *to, unsigned jobs, ckpt_hashes_path_fn *path,
                      const void *ctx, ckpt_err *err)
{
    int rc;

    if (h->begun)
        return ckpt_fail(err, CKPT_EUSAGE, "the hashes belong to another run");
    h->begun = true;
    h->path = path;
    h->path_ctx = ctx;
    h->jobs = jobs < 2 ? 2 : jobs; // a file, and its tensors
    h->file = ckpt_alloc((to->files.n + 1) * sizeof *h->file);
    if (!h->file)
        return ckpt_fail_memory(err);
    h->n = to->files.n;
    for (uint32_t i = 0; i < h->n; i++) {
        // the size of a packed file is not known yet
        h->file[i].elsewhere = to->files.at[i].elsewhere || to->files.at[i].packed;
        h->file[i].size = to->files.at[i].size;
    }
    rc = hash_list_tensors(h, to, err);
    // without a thread, everything is hashed at the end
    if (rc == CKPT_OK)
        h->started = pthread_create(&h->thread, NULL, hash_thread, h) == 0;
    return rc;
}

/* Add a stretch to a sorted list and join it with those that it touches. */
static bool hash_add(hash_stretches *list, uint64_t first, uint64_t end)
{
    size_t low = 0, high = list->n, n_joined = 0;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (list->at[middle].end < first)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + n_joined < list->n && list->at[low + n_joined].first <= end) {
        const hash_stretch *s = &list->at[low + n_joined++];

        first = s->first < first ? s->first : first;
        end = s->end > end ? s->end : end;
    }
    if (n_joined == 0) {
        const hash_stretch *last = ckpt_vec_push(list);

        if (!last)
            return false;
        memmove(list->at + low + 1, list->at + low, (list->n - 1 - low) * sizeof *list->at);
    }
    if (n_joined > 1) {
        memmove(list->at + low + 1, list->at + low + n_joined,
                (list->n - low - n_joined) * sizeof *list->at);
        list->n -= n_joined - 1;
    }
    list->at[low] = (hash_stretch){first, end};
    return true;
}

int ckpt_hashes_wrote(ckpt_hashes *h, uint32_t file, uint64_t n, uint64_t at, ckpt_err *err)
{
    bool ok;

    assert(h && file < h->n);
    if (n == 0)
        return CKPT_OK;
    pthread_mutex_lock(&h->lock);
    ok = hash_add(&h->file[file].written, at, at + n);
    pthread_cond_broadcast(&h->more);
    pthread_mutex_unlock(&h->lock);
    return ok ? CKPT_OK : ckpt_fail_memory(err);
}

int ckpt_hashes_complete(ckpt_hashes *h, uint32_t file, ckpt_err *err)
{
    return ckpt_hashes_wrote(h, file, h->file[file].size, 0, err);
}

int ckpt_hashes_end(ckpt_hashes *h, int rc, ckpt_err *err)
{
    if (rc != CKPT_OK) {
        pthread_mutex_lock(&h->lock);
        h->stopped = true;
        pthread_cond_broadcast(&h->more);
        pthread_mutex_unlock(&h->lock);
    }
    if (h->started)
        (void)pthread_join(h->thread, NULL);
    else if (rc == CKPT_OK)
        (void)hash_thread(h);
    h->started = false;
    return rc == CKPT_OK && h->err.code != CKPT_OK ? ckpt_fail(err, h->err.code, "%s", h->err.text)
                                                   : rc;
}

/* ---- looking up ---- */

/* The hashed file with this identity. Renaming changes the time of its last change, no more. */
static const hash_file *hash_find(const ckpt_hashes *h, const ckpt_identity *id, uint64_t size)
{
    for (size_t i = 0; i < h->n; i++) {
        const hash_file *f = &h->file[i];

        if (f->known && f->size == size && f->id.ino == id->ino && f->id.dev == id->dev &&
            f->id.mtime_s == id->mtime_s && f->id.mtime_ns == id->mtime_ns)
            return f;
    }
    return NULL;
}

bool ckpt_hashes_file(const ckpt_hashes *h, const char *folder, const char *name, char sha256[65])
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = ckpt_alloc(n);
    const hash_file *f = NULL;
    struct stat st;

    if (path)
        (void)snprintf(path, n, "%s/%s", folder, name);
    if (path && stat(path, &st) == 0) {
        const ckpt_identity id = ckpt_identity_of(&st);

        f = hash_find(h, &id, (uint64_t)st.st_size);
    }
    ckpt_free(path);
    if (f)
        ckpt_sha256_hex(f->digest, sha256);
    return f != NULL;
}

bool ckpt_hashes_tensor(const ckpt_hashes *h, const ckpt_map *map, const ckpt_tensor *t,
                        char sha256[65])
{
    const ckpt_map_file *file;
    const hash_file *f;
    const hash_range *hit;
    hash_range key = {0};
    uint32_t i;

    if (!hash_place(map, t, &i, &key.at, &key.n))
        return false;
    file = &map->files.at[i];
    f = hash_find(h,
                  &(ckpt_identity){.dev = file->dev,
                                   .ino = file->ino,
                                   .mtime_s = file->mtime_s,
                                   .mtime_ns = file->mtime_ns},
                  file->size);
    hit = f && f->tensors.n > 0
              ? bsearch(&key, f->tensors.at, f->tensors.n, sizeof key, hash_by_place)
              : NULL;
    if (!hit || !hit->known || hit->n != key.n)
        return false;
    ckpt_sha256_hex(hit->digest, sha256);
    return true;
}
