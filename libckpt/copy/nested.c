/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nested.c: finds the location of each source inside a nested archive, once.
 *
 * It stores the location in the map, which many threads may read; one lock for the process protects
 * the search. A thread that has called ckpt_settle for a tensor has held the lock, and may read the
 * tensor's sources without it.
 */
#include <pthread.h>

#include "libckpt/copy/nested.h"
#include "libckpt/io/io.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"

static pthread_mutex_t stl_lock = PTHREAD_MUTEX_INITIALIZER;

/* A file of a pool with the interface of a ckpt_io. */
typedef struct stl_io {
    ckpt_io io; /* first, so that a pointer to it is a pointer to stl_io */
    ckpt_io_pool *pool;
    uint32_t file;
} stl_io;

static int stl_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const stl_io *s = (const stl_io *)(const void *)io;

    return ckpt_io_pool_read(s->pool, s->file, buf, n, at, err);
}

static int stl_source(const ckpt_map *map, ckpt_io_pool **pool, uint32_t source, ckpt_err *err)
{
    ckpt_source *s = &map->sources.at[source];
    int rc = CKPT_OK;

    if (!s->inner)
        return CKPT_OK;
    if (!*pool)
        rc = ckpt_io_pool_new(pool, map, 0, err);
    if (rc != CKPT_OK)
        return rc;
    stl_io io = {
        .io = {.name = map->files.at[s->file].path,
               .size = map->files.at[s->file].size,
               .read_at = stl_read_at},
        .pool = *pool,
        .file = s->file,
    };
    return map->settle(s, &io.io, err);
}

static int stl_whole(const ckpt_map *map, ckpt_io_pool **pool, const ckpt_tensor *t, unsigned depth,
                     ckpt_err *err);

static int stl_tensor(const ckpt_map *map, ckpt_io_pool **pool, const ckpt_tensor *t,
                      unsigned depth, ckpt_err *err)
{
    const ckpt_tensor *in;
    int rc = CKPT_OK;

    for (uint32_t i = 0; rc == CKPT_OK && i < t->n_extents; i++) {
        const ckpt_source *s = &map->sources.at[ckpt_extent_source(t, i)];

        rc = stl_source(map, pool, ckpt_extent_source(t, i), err);
        for (uint32_t k = 0; rc == CKPT_OK && (in = ckpt_source_input(s, k)) != NULL; k++)
            rc = stl_whole(map, pool, in, depth + 1, err);
    }
    return rc;
}

/*
 * Settle a tensor, or its owner, with copies and addends, and the tensors inside those. The reader
 * reports sources that are nested too deeply.
 */
static int stl_whole(const ckpt_map *map, ckpt_io_pool **pool, const ckpt_tensor *t, unsigned depth,
                     ckpt_err *err)
{
    int rc = CKPT_OK;

    if (depth > CKPT_NEST_MAX)
        return CKPT_OK;
    t = t->owner ? t->owner : t;
    for (const ckpt_tensor *a = t; rc == CKPT_OK && a; a = a->addend) {
        for (const ckpt_tensor *twin = a; rc == CKPT_OK && twin; twin = twin->twin)
            rc = stl_tensor(map, pool, twin, depth, err);
    }
    return rc;
}

int ckpt_settle_all(const ckpt_map *map, const ckpt_tensor *const *t, size_t n, ckpt_err *err)
{
    ckpt_io_pool *pool = NULL;
    int rc = CKPT_OK;

    if (!map->settle)
        return CKPT_OK;
    (void)pthread_mutex_lock(&stl_lock);
    for (size_t i = 0; rc == CKPT_OK && i < n; i++)
        rc = t[i] ? stl_whole(map, &pool, t[i], 0, err) : CKPT_OK;
    ckpt_io_pool_free(pool);
    (void)pthread_mutex_unlock(&stl_lock);
    return rc;
}

int ckpt_settle(const ckpt_map *map, const ckpt_tensor *t, ckpt_err *err)
{
    return ckpt_settle_all(map, &t, 1, err);
}
