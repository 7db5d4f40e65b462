/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c: reads one remote file, and keeps recently read blocks of all files in a shared LRU cache.
 */
#include "libckpt/remote/file.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    RFL_AHEAD = 1 << 20,     /* bytes of the longest block in the cache */
    RFL_PAYLOAD = 256 << 10, /* a read of this many bytes or more bypasses the cache */
    RFL_KEPT = 64 << 20,     /* bytes of all blocks in the cache */
    RFL_THREADS = 16
};

typedef struct rfl_block {
    struct rfl_block *newer, *older; /* the LRU list of the blocks of all files */
    ckpt_remote_file *of;
    uint64_t at, n;
    uint8_t bytes[];
} rfl_block;

struct ckpt_remote_file {
    char *name, *url;
    const ckpt_fetch_key *key;
    ckpt_fetch_seen seen;
    ckpt_err failed;     /* the error of the opening, if it failed */
    uint64_t end, ahead; /* of the block read last: offset of its end, and its length */
};

/* The cache of all files.  Its lock also guards the fields of each file. */
static struct {
    pthread_mutex_t lock;
    rfl_block *newest, *oldest;
    uint64_t n_bytes;
} rfl_all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char *rfl_copy(const char *s)
{
    size_t n = strlen(s) + 1;
    char *to = ckpt_alloc(n);

    return to ? memcpy(to, s, n) : NULL;
}

int ckpt_remote_file_new(ckpt_remote_file **out, const char *name, const char *url,
                         const ckpt_fetch_key *key, ckpt_err *err)
{
    assert(out && name && url);
    ckpt_remote_file *o = ckpt_alloc(sizeof *o);

    *out = NULL;
    if (!o)
        return ckpt_fail_memory(err);
    o->name = rfl_copy(name);
    o->url = rfl_copy(url);
    o->key = key;
    if (!o->name || !o->url) {
        ckpt_remote_file_free(o);
        return ckpt_fail_memory(err);
    }
    *out = o;
    return CKPT_OK;
}

/* ---- blocks; the caller holds the lock ---- */

static void rfl_unlink(rfl_block *b)
{
    *(b->newer ? &b->newer->older : &rfl_all.newest) = b->older;
    *(b->older ? &b->older->newer : &rfl_all.oldest) = b->newer;
    b->newer = b->older = NULL;
}

static void rfl_link(rfl_block *b)
{
    b->older = rfl_all.newest;
    *(rfl_all.newest ? &rfl_all.newest->newer : &rfl_all.oldest) = b;
    rfl_all.newest = b;
}

static void rfl_drop(rfl_block *b)
{
    rfl_unlink(b);
    rfl_all.n_bytes -= b->n;
    ckpt_free(b);
}

/* Put a block into the cache; the least recently used blocks are evicted for it. */
static void rfl_keep(rfl_block *b)
{
    while (rfl_all.oldest && rfl_all.n_bytes + b->n > RFL_KEPT)
        rfl_drop(rfl_all.oldest);
    rfl_link(b);
    rfl_all.n_bytes += b->n;
}

/* Copy at most n bytes from `at` on out of the cache; returns the number of bytes. */
static uint64_t rfl_from_kept(ckpt_remote_file *o, uint8_t *buf, uint64_t n, uint64_t at)
{
    for (rfl_block *b = rfl_all.newest; b; b = b->older) {
        if (b->of == o && at >= b->at && at < b->at + b->n) {
            uint64_t has = b->at + b->n - at;

            has = has < n ? has : n;
            memcpy(buf, b->bytes + (at - b->at), (size_t)has);
            rfl_unlink(b);
            rfl_link(b);
            return has;
        }
    }
    return 0;
}

void ckpt_remote_file_free(ckpt_remote_file *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&rfl_all.lock);
    for (rfl_block *b = rfl_all.newest, *older; b; b = older) {
        older = b->older;
        if (b->of == o)
            rfl_drop(b);
    }
    pthread_mutex_unlock(&rfl_all.lock);
    ckpt_free(o->name);
    ckpt_free(o->url);
    ckpt_free(o);
}

/* ---- reading ---- */

/*
 * Fetch a part of the known version of the file, until the budget is spent. The lock is not held,
 * so other threads can go on.
 */
static int rfl_fetch(ckpt_remote_file *o, ckpt_fetch_part *p, int64_t until, ckpt_err *err)
{
    ckpt_fetch_seen *seen = ckpt_alloc(sizeof *seen);
    char *direct = ckpt_alloc(CKPT_FETCH_URL);
    const ckpt_fetch_from from = {o->name, o->url, direct, o->key, until};
    int rc = seen && direct ? CKPT_OK : ckpt_fail_memory(err);

    if (rc == CKPT_OK) {
        pthread_mutex_lock(&rfl_all.lock);
        *seen = o->seen;
        memcpy(direct, seen->direct, CKPT_FETCH_URL);
        pthread_mutex_unlock(&rfl_all.lock);
        rc = ckpt_fetch_range(&from, p, seen, err);
    }
    if (rc == CKPT_OK) {
        pthread_mutex_lock(&rfl_all.lock);
        if (!o->seen.known)
            o->seen = *seen;
        // if two threads open the file at once, both must have seen the same version
        if (o->seen.total != seen->total || strcmp(o->seen.etag, seen->etag) != 0)
            rc = ckpt_fail(err, CKPT_EIO,
                           "%s: changed while being read, on its server: start again", o->name);
        memcpy(o->seen.direct, seen->direct, CKPT_FETCH_URL);
        pthread_mutex_unlock(&rfl_all.lock);
    }
    ckpt_free(direct);
    ckpt_free(seen);
    return rc;
}

/* Fetch a block of n bytes from `at` on and put it into the cache. */
static int rfl_fetch_block(ckpt_remote_file *o, uint64_t n, uint64_t at, int64_t until,
                           ckpt_err *err)
{
    rfl_block *b = ckpt_alloc(sizeof *b + (size_t)n);
    ckpt_fetch_part part = {.n = n, .at = at};
    int rc;

    if (!b)
        return ckpt_fail_memory(err);
    part.buf = b->bytes;
    rc = rfl_fetch(o, &part, until, err);
    if (rc != CKPT_OK || part.got == 0) {
        ckpt_free(b);
        return rc;
    }
    b->of = o;
    b->at = at;
    b->n = part.got;
    pthread_mutex_lock(&rfl_all.lock);
    rfl_keep(b);
    o->end = at + part.got;
    o->ahead = n;
    pthread_mutex_unlock(&rfl_all.lock);
    return CKPT_OK;
}

int ckpt_remote_file_open(ckpt_remote_file *o, int64_t until, ckpt_err *err)
{
    ckpt_err why = {0};
    bool known;
    int rc;

    pthread_mutex_lock(&rfl_all.lock);
    known = o->seen.known;
    why = o->failed;
    pthread_mutex_unlock(&rfl_all.lock);
    if (known)
        return CKPT_OK;
    if (why.code != CKPT_OK)
        return ckpt_fail(err, why.code, "%s", why.text);
    rc = rfl_fetch_block(o, CKPT_REMOTE_HEAD, 0, until, &why);
    if (rc == CKPT_OK)
        return CKPT_OK;
    pthread_mutex_lock(&rfl_all.lock);
    o->failed = why;
    pthread_mutex_unlock(&rfl_all.lock);
    return ckpt_fail(err, rc, "%s", why.text);
}

/*
 * Choose offset and length of the block to fetch for n bytes at `at`.  Sequential reads get ever
 * longer blocks; a block at the end of the file reaches backwards, because archives have their
 * directory there.
 */
static uint64_t rfl_plan(ckpt_remote_file *o, uint64_t n, uint64_t *at)
{
    uint64_t size, len = CKPT_REMOTE_HEAD;

    pthread_mutex_lock(&rfl_all.lock);
    size = o->seen.total;
    if (*at == o->end && o->ahead > 0)
        len = 2 * o->ahead < RFL_AHEAD ? 2 * o->ahead : RFL_AHEAD;
    pthread_mutex_unlock(&rfl_all.lock);
    len = len < n ? n : len;
    if (len >= size) {
        *at = 0;
        return size;
    }
    if (*at > size - len)
        *at = size - len;
    return len;
}

int ckpt_remote_file_read(ckpt_remote_file *o, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    assert(o && (buf || n == 0) && o->seen.known);
    uint8_t *to = buf;
    int rc = CKPT_OK;

    while (rc == CKPT_OK && n > 0) {
        uint64_t has;

        pthread_mutex_lock(&rfl_all.lock);
        has = rfl_from_kept(o, to, n, at);
        pthread_mutex_unlock(&rfl_all.lock);
        if (has == 0 && n >= RFL_PAYLOAD) {
            rc = rfl_fetch(o, &(ckpt_fetch_part){.buf = to, .n = n, .at = at}, 0, err);
            has = n;
        } else if (has == 0) {
            uint64_t from = at, len = rfl_plan(o, n, &from);

            rc = rfl_fetch_block(o, len, from, 0, err);
        }
        to += has;
        at += has;
        n -= has;
    }
    return rc;
}

/* ---- the properties of a file ---- */

const char *ckpt_remote_file_name(const ckpt_remote_file *o)
{
    return o->name;
}

uint64_t ckpt_remote_file_size(ckpt_remote_file *o)
{
    assert(o->seen.known);
    return o->seen.total;
}

bool ckpt_remote_file_marked(ckpt_remote_file *o)
{
    assert(o->seen.known);
    return o->seen.etag[0] || o->seen.modified[0];
}

/* FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/). */
static uint64_t rfl_hash(uint64_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * UINT64_C(0x100000001b3);
    return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

uint64_t ckpt_remote_file_identity(ckpt_remote_file *o)
{
    assert(o->seen.known);
    uint64_t h = rfl_hash(UINT64_C(0xcbf29ce484222325), o->name);

    h = rfl_hash(h, o->seen.etag);
    if (!o->seen.etag[0])
        h = rfl_hash(h, o->seen.modified);
    return (h ^ o->seen.total) | 1;
}

/* ---- opening many files at once ---- */

typedef struct rfl_queue {
    ckpt_remote_file *const *o;
    size_t n;
    int64_t until;
    atomic_size_t next, n_open;
    atomic_bool failed;
} rfl_queue;

static void *rfl_worker(void *ctx)
{
    rfl_queue *q = ctx;

    // after the first failure no thread starts another file: a server that is down would cost
    // minutes for each one
    for (size_t i; !atomic_load(&q->failed) && (i = atomic_fetch_add(&q->next, 1)) < q->n;) {
        int rc = ckpt_remote_file_open(q->o[i], q->until, &(ckpt_err){0});

        if (rc != CKPT_OK && rc != CKPT_EMISSING) {
            atomic_store(&q->failed, true);
        } else {
            atomic_fetch_add(&q->n_open, 1);
            ckpt_fetch_opened(1, 0);
        }
    }
    return NULL;
}

void ckpt_remote_file_open_all(ckpt_remote_file *const *o, size_t n, int64_t until)
{
    rfl_queue q = {.o = o, .n = n, .until = until};
    pthread_t thread[RFL_THREADS];
    size_t n_threads = 0;

    ckpt_fetch_opened(0, (int64_t)n);

    while (n_threads < RFL_THREADS && n_threads + 1 < n &&
           pthread_create(&thread[n_threads], NULL, rfl_worker, &q) == 0)
        n_threads++;
    (void)rfl_worker(&q);
    while (n_threads > 0)
        (void)pthread_join(thread[--n_threads], NULL);
    ckpt_fetch_opened(-(int64_t)atomic_load(&q.n_open), -(int64_t)n);
}
