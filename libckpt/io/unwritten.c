/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwritten.c: reads the files of views under their addresses.
 */
#include "libckpt/io/unwritten.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { UWR_MOST = 64 }; /* addresses at once */

static struct {
    pthread_mutex_t lock;
    const ckpt_unwritten *files[UWR_MOST];
} uwr_all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* One open file. */
typedef struct uwr_file {
    ckpt_io io;
    const ckpt_unwritten *files;
    size_t i;
    char name[];
} uwr_file;

bool ckpt_unwritten_is(const char *path)
{
    return strncmp(path, CKPT_UNWRITTEN, sizeof CKPT_UNWRITTEN - 1) == 0;
}

int ckpt_unwritten_add(unsigned *number, const ckpt_unwritten *files, ckpt_err *err)
{
    unsigned i = 0;

    pthread_mutex_lock(&uwr_all.lock);
    while (i < UWR_MOST && uwr_all.files[i])
        i++;
    if (i < UWR_MOST)
        uwr_all.files[i] = files;
    pthread_mutex_unlock(&uwr_all.lock);
    *number = i < UWR_MOST ? i + 1 : 0;
    return *number ? CKPT_OK
                   : ckpt_fail(err, CKPT_ELIMIT, "more than %d views are open as checkpoints",
                               UWR_MOST);
}

void ckpt_unwritten_remove(unsigned number)
{
    if (number == 0)
        return;
    pthread_mutex_lock(&uwr_all.lock);
    uwr_all.files[number - 1] = NULL;
    pthread_mutex_unlock(&uwr_all.lock);
}

/* Find the files of an address; *below: the path in it, without a slash at its end. */
static int uwr_find(const ckpt_unwritten **out, const char *address, const char **below,
                    ckpt_err *err)
{
    char *end;
    unsigned long number = strtoul(address + sizeof CKPT_UNWRITTEN - 1, &end, 10);

    *out = NULL;
    pthread_mutex_lock(&uwr_all.lock);
    if (number > 0 && number <= UWR_MOST)
        *out = uwr_all.files[number - 1];
    pthread_mutex_unlock(&uwr_all.lock);
    while (*end == '/')
        end++;
    *below = end;
    return *out ? CKPT_OK : ckpt_fail(err, CKPT_EMISSING, "%s: there is no such view", address);
}

/* The number of the file with this path; n_files: there is none. */
static size_t uwr_index(const ckpt_unwritten *files, const char *path)
{
    size_t i = 0;

    while (i < files->n_files && strcmp(files->path(files->ctx, i), path) != 0)
        i++;
    return i;
}

/* The rest of a path below a folder ("": all paths), or NULL. */
static const char *uwr_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    while (n > 0 && folder[n - 1] == '/')
        n--;
    if (n == 0)
        return path;
    return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static int uwr_kind(const char *address, bool *is_dir, ckpt_err *err)
{
    const ckpt_unwritten *files;
    const char *below;
    int rc = uwr_find(&files, address, &below, err);

    if (rc == CKPT_OK)
        *is_dir = uwr_index(files, below) == files->n_files;
    return rc;
}

static int uwr_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    const uwr_file *f = (const uwr_file *)io;

    return f->files->read(f->files->ctx, f->i, buf, n, at, err);
}

static void uwr_close(ckpt_io *io)
{
    ckpt_free(io);
}

static int uwr_open(ckpt_io **out, const char *address, ckpt_err *err)
{
    const ckpt_unwritten *files;
    const char *below;
    size_t n = strlen(address) + 1;
    int rc = uwr_find(&files, address, &below, err);

    if (rc != CKPT_OK)
        return rc;
    size_t i = uwr_index(files, below);
    if (i == files->n_files)
        return ckpt_fail(err, CKPT_EMISSING, "%s: the view has no such file", address);
    uwr_file *f = ckpt_alloc(sizeof *f + n);
    if (!f)
        return ckpt_fail_memory(err);
    memcpy(f->name, address, n);
    f->files = files;
    f->i = i;
    f->io = (ckpt_io){.name = f->name,
                      .size = files->size(files->ctx, i),
                      .read_at = uwr_read_at,
                      .close = uwr_close};
    *out = &f->io;
    return CKPT_OK;
}

/* Add the part of a path up to its first slash; a folder may be known from an earlier path. */
static int uwr_add(ckpt_entries *all, ckpt_map *map, const char *path, uint64_t size, ckpt_err *err)
{
    size_t n = strcspn(path, "/");

    for (size_t k = 0; path[n] == '/' && k < all->n; k++) {
        if (strncmp(all->at[k].name, path, n) == 0 && all->at[k].name[n] == 0)
            return CKPT_OK;
    }
    ckpt_entry *e = ckpt_vec_push(all);
    if (!e)
        return ckpt_fail_memory(err);
    *e = (ckpt_entry){.name = ckpt_arena_string(map->arena, path, n),
                      .is_dir = path[n] == '/',
                      .size = path[n] == '/' ? 0 : size};
    return e->name ? CKPT_OK : ckpt_fail_memory(err);
}

static int uwr_list(ckpt_entries *all, ckpt_map *map, const char *folder, ckpt_err *err)
{
    const ckpt_unwritten *files;
    const char *in;
    int rc = uwr_find(&files, folder, &in, err);

    for (size_t i = 0; rc == CKPT_OK && i < files->n_files; i++) {
        const char *path = uwr_below(files->path(files->ctx, i), in);

        if (path)
            rc = uwr_add(all, map, path, files->size(files->ctx, i), err);
    }
    return rc == CKPT_OK && all->n == 0
               ? ckpt_fail(err, CKPT_EMISSING, "%s: the view has no such folder", folder)
               : rc;
}

/* A view checks itself that its source does not change. */
static bool uwr_unmarked(const char *address)
{
    (void)address;
    return false;
}

const ckpt_address_server ckpt_unwritten_server = {
    .kind = uwr_kind, .open = uwr_open, .list = uwr_list, .unmarked = uwr_unmarked};
