/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_pool.c: keeps a limited number of a map's input files open.
 *
 * It also checks that a file has not changed since the map was read: when it is opened again, and
 * once more at the end.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "libckpt/io/address.h"
#include "libckpt/io/file_locations.h"
#include "libckpt/io/io.h"

typedef struct pool_file {
    ckpt_io *io;        /* NULL: closed */
    ckpt_map_file seen; /* of a replica: its attributes at the first opening */
    unsigned n_users;   /* reads in progress, during which it must stay open */
    bool was_read;      /* it was read since the last check */
    uint64_t used_at;   /* clock value of the last use, to find the least recently used */
} pool_file;

struct ckpt_io_pool {
    const ckpt_map *map;
    pthread_mutex_t lock;
    uint64_t clock;
    unsigned n_open, max_open;
    bool let_go, watch;
    uint32_t *open; /* indexes of the open files; capacity: n files */
    size_t n;
    pool_file *file;
};

unsigned ckpt_io_open_limit(void)
{
    struct rlimit lim;
    rlim_t n;

    if (getrlimit(RLIMIT_NOFILE, &lim) != 0)
        return 64;
    n = lim.rlim_cur / 4;
    return n < 2 ? 2 : n > 512 ? 512 : (unsigned)n;
}

int ckpt_io_pool_new(ckpt_io_pool **out, const ckpt_map *map, unsigned max_open, ckpt_err *err)
{
    assert(out && map);
    ckpt_io_pool *p = ckpt_alloc(sizeof *p);
    size_t n = map->files.n;

    *out = NULL;
    if (!p)
        return ckpt_fail_memory(err);
    p->map = map;
    p->n = n;
    p->max_open = max_open > 0 ? max_open : ckpt_io_open_limit();
    // One spare element, because an allocation of nothing may be NULL.
    p->file = ckpt_alloc((n + 1) * sizeof *p->file);
    p->open = ckpt_alloc((n + 1) * sizeof *p->open);
    if (!p->file || !p->open || pthread_mutex_init(&p->lock, NULL) != 0) {
        ckpt_free(p->open);
        ckpt_free(p->file);
        ckpt_free(p);
        return ckpt_fail_memory(err);
    }
    *out = p;
    return CKPT_OK;
}

void ckpt_io_pool_let_go(ckpt_io_pool *p)
{
    assert(p);
    p->let_go = true;
}

void ckpt_io_pool_watch(ckpt_io_pool *p)
{
    assert(p);
    p->watch = true;
}

/* Close the i-th of the open files. */
static void pool_close(ckpt_io_pool *p, unsigned i)
{
    pool_file *f = &p->file[p->open[i]];

    ckpt_io_close(f->io);
    f->io = NULL;
    p->open[i] = p->open[--p->n_open];
}

/* Close the least recently used idle file. If all are busy, the limit is exceeded for a moment. */
static void pool_make_room(ckpt_io_pool *p)
{
    unsigned best = p->n_open;

    for (unsigned i = 0; i < p->n_open; i++) {
        const pool_file *f = &p->file[p->open[i]];

        if (f->n_users == 0 && (best == p->n_open || f->used_at < p->file[p->open[best]].used_at))
            best = i;
    }
    if (best < p->n_open)
        pool_close(p, best);
}

/*
 * True if both describe the same, unchanged file. Only the size counts if the map has no inode,
 * because it was made by hand, and if each machine has its own copy of the file.
 */
static bool pool_same(const ckpt_map_file *was, const ckpt_map_file *now, bool replica)
{
    if (was->size != now->size)
        return false;
    if ((was->ino == 0 && was->dev == 0) || replica)
        return true;
    // Devices do not count in a team, because each machine numbers a shared file system itself.
    return (was->dev == now->dev || ckpt_team_any()) && was->ino == now->ino &&
           was->mtime_s == now->mtime_s && was->mtime_ns == now->mtime_ns &&
           was->ctime_s == now->ctime_s && was->ctime_ns == now->ctime_ns;
}

/* True if each machine of a team has its own disk, and this file is on some of them. */
static bool pool_replica(const char *path)
{
    ckpt_team *t = ckpt_team_any();

    return t && ckpt_places_find(t, path).known;
}

/* Open a file of the map and check that it has not changed since the map was read. */
static int pool_open(ckpt_io_pool *p, uint32_t i, ckpt_err *err)
{
    const ckpt_map_file *was = &p->map->files.at[i];
    ckpt_map_file now = {0};
    ckpt_io *io = NULL;
    int rc;

    if (p->n_open >= p->max_open)
        pool_make_room(p);
    rc = ckpt_io_data(&io, was, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt_io_identify(io, &now);
    if (!pool_same(was, &now, pool_replica(was->path))) {
        ckpt_io_close(io);
        return ckpt_io_unlike(was->path, err);
    }
    if (p->file[i].seen.ino == 0)
        p->file[i].seen = now;
    if (p->let_go && io->let_go)
        io->let_go(io);
    p->file[i].io = io;
    p->open[p->n_open++] = i;
    return CKPT_OK;
}

/* Get a file for one read; it stays open until the count of users goes down again. */
static int pool_get(ckpt_io_pool *p, uint32_t i, ckpt_io **out, ckpt_err *err)
{
    int rc = CKPT_OK;

    pthread_mutex_lock(&p->lock);
    if (!p->file[i].io)
        rc = pool_open(p, i, err);
    if (rc == CKPT_OK) {
        p->file[i].was_read = true;
        p->file[i].n_users++;
        p->file[i].used_at = ++p->clock;
        *out = p->file[i].io;
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/*
 * Look up the current attributes of a file: under its name on this machine, or through the process
 * that reads it for this one.
 */
static int pool_look(const ckpt_map_file *was, bool replica, ckpt_map_file *now, ckpt_err *err)
{
    ckpt_io *io = NULL;
    struct stat st;
    int rc;

    if (replica) {
        rc = ckpt_io_data(&io, was, err);
        if (rc == CKPT_OK)
            ckpt_io_identify(io, now);
        ckpt_io_close(io);
        return rc;
    }
    // each answer was checked to come from the same file
    if (ckpt_address_is(was->path)) {
        *now = *was;
        return CKPT_OK;
    }
    if (stat(was->path, &st) != 0)
        return errno == ENOENT ? ckpt_io_unlike(was->path, err)
                               : ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot stat", was->path);
    const ckpt_io seen = {.size = (uint64_t)st.st_size, .id = ckpt_identity_of(&st)};
    ckpt_io_identify(&seen, now);
    return CKPT_OK;
}

/* Check that a file that was read has not changed since the map was made. */
static int pool_check_one(const ckpt_io_pool *p, size_t i, ckpt_err *err)
{
    const ckpt_map_file *was = &p->map->files.at[i];
    ckpt_map_file now = {0};
    bool replica = pool_replica(was->path);
    int rc = was->input ? CKPT_OK : pool_look(was, replica, &now, err);

    if (rc == CKPT_OK && !was->input && !pool_same(replica ? &p->file[i].seen : was, &now, false))
        rc = ckpt_io_unlike(was->path, err);
    return rc;
}

int ckpt_io_pool_read(ckpt_io_pool *p, uint32_t file, void *buf, uint64_t n, uint64_t at,
                      ckpt_err *err)
{
    assert(p && (buf || n == 0));
    ckpt_io *io = NULL;
    int rc;

    if (file >= p->n)
        return ckpt_fail(err, CKPT_EUSAGE, "the map has no file %u", (unsigned)file);
    rc = pool_get(p, file, &io, err);
    if (rc != CKPT_OK)
        return rc;
    // The lock is not held while reading; the count of users keeps the file open.
    rc = ckpt_io_read(io, buf, n, at, err);
    pthread_mutex_lock(&p->lock);
    p->file[file].n_users--;
    pthread_mutex_unlock(&p->lock);
    return rc == CKPT_OK && p->watch ? pool_check_one(p, file, err) : rc;
}

int ckpt_io_pool_check(ckpt_io_pool *p, ckpt_err *err)
{
    assert(p);
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < p->n; i++) {
        if (!p->file[i].was_read)
            continue;
        // Only another read needs another check; readers check after each call.
        p->file[i].was_read = false;
        rc = pool_check_one(p, i, err);
    }
    return rc;
}

void ckpt_io_pool_free(ckpt_io_pool *p)
{
    if (!p)
        return;
    while (p->n_open > 0)
        pool_close(p, 0);
    pthread_mutex_destroy(&p->lock);
    ckpt_free(p->open);
    ckpt_free(p->file);
    ckpt_free(p);
}
