/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.c: keeps the known sites, and answers for addresses: kind, open file, folder listing.
 *
 * A site lasts until its address is opened anew or 32 later sites have displaced it; an open file
 * keeps its site alive.  Therefore all files of one checkpoint come from one listing, and a program
 * that opens the checkpoint again later sees its new state.
 */
#include "libckpt/remote/site.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_extra.h"
#include "libckpt/io/address.h"
#include "libckpt/io/unwritten.h"
#include "libckpt/remote/remote.h"

enum {
    SIT_KEPT = 32,   /* sites to keep */
    SIT_AHEAD = 512, /* shards to open together */
    SIT_PATH = 4096  /* bytes of an address */
};

static const ckpt_site_kind *const sit_kinds[] = {&ckpt_site_https, &ckpt_site_http, &ckpt_site_hf,
                                                  &ckpt_site_s3};

/*
 * all: guards the list of sites and their counts of users.  work: guards the contents of sites, and
 * is held during the network requests of a listing.  Lock order: work, then all.
 */
static struct {
    pthread_mutex_t all, work;
    ckpt_site *first;
} sit_it = {.all = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_MUTEX_INITIALIZER};

/* ---- sites ---- */

static void sit_free(ckpt_site *s)
{
    for (size_t i = 0; i < s->opened.n; i++)
        ckpt_remote_file_free(s->opened.at[i]);
    ckpt_vec_free(&s->opened);
    ckpt_index_free(&s->by_name);
    ckpt_vec_free(&s->files);
    ckpt_arena_free(s->arena);
    ckpt_free(s);
}

static void sit_release(ckpt_site *s)
{
    bool last;

    pthread_mutex_lock(&sit_it.all);
    last = --s->n_users == 0;
    pthread_mutex_unlock(&sit_it.all);
    if (last)
        sit_free(s);
}

/* Remove the sites of this root from the list, and the oldest one if the list is too long. */
static void sit_forget(const char *root)
{
    ckpt_site *gone = NULL, **at;
    size_t n = 0;

    pthread_mutex_lock(&sit_it.all);
    for (at = &sit_it.first; *at;) {
        ckpt_site *s = *at;

        if (strcmp(s->root, root) == 0 || ++n >= SIT_KEPT) {
            *at = s->next;
            s->next = gone;
            gone = s;
        } else {
            at = &s->next;
        }
    }
    pthread_mutex_unlock(&sit_it.all);
    for (ckpt_site *next; gone; gone = next) {
        next = gone->next;
        sit_release(gone);
    }
}

/* Make a site for an address and put it on the list, with one user. */
static int sit_make(ckpt_site **out, const char *address, bool *is_dir, ckpt_err *err)
{
    ckpt_site *s = ckpt_alloc(sizeof *s);
    int rc = s ? CKPT_OK : ckpt_fail_memory(err);

    *out = NULL;
    if (rc != CKPT_OK)
        return rc;
    s->arena = ckpt_arena_new(0);
    s->n_users = 2;
    s->left = ckpt_fetch_budget();
    for (size_t i = 0; i < sizeof sit_kinds / sizeof *sit_kinds; i++) {
        if (strncmp(address, sit_kinds[i]->scheme, strlen(sit_kinds[i]->scheme)) == 0)
            s->kind = sit_kinds[i];
    }
    assert(s->kind);
    rc = s->arena ? s->kind->cut(s, address, is_dir, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK && s->kind->at_once) {
        pthread_mutex_lock(&sit_it.work);
        rc = ckpt_site_list(s, err);
        pthread_mutex_unlock(&sit_it.work);
    }
    if (rc != CKPT_OK) {
        sit_free(s);
        return rc;
    }
    sit_forget(s->root);
    pthread_mutex_lock(&sit_it.all);
    s->next = sit_it.first;
    sit_it.first = s;
    pthread_mutex_unlock(&sit_it.all);
    *out = s;
    return CKPT_OK;
}

/*
 * The part of an address below a root: "" for the root itself; NULL: the address is not below it.
 */
static const char *sit_below(const char *root, const char *address)
{
    size_t n = strlen(root);

    if (strncmp(root, address, n) != 0 || (address[n] != 0 && address[n] != '/'))
        return NULL;
    return address + n + strspn(address + n, "/");
}

/* Find the deepest known site above an address and add a user to it.  NULL: there is none. */
static ckpt_site *sit_known(const char *address)
{
    ckpt_site *best = NULL;

    pthread_mutex_lock(&sit_it.all);
    for (ckpt_site *s = sit_it.first; s; s = s->next) {
        if (sit_below(s->root, address) && (!best || strlen(s->root) > strlen(best->root)))
            best = s;
    }
    if (best)
        best->n_users++;
    pthread_mutex_unlock(&sit_it.all);
    return best;
}

static int sit_find(ckpt_site **out, const char *address, ckpt_err *err)
{
    bool is_dir;

    *out = sit_known(address);
    return *out ? CKPT_OK : sit_make(out, address, &is_dir, err);
}

/* ---- files ---- */

typedef struct sit_io {
    ckpt_io io; /* first, so that a pointer to it is a pointer to sit_io */
    ckpt_site *site;
    ckpt_remote_file *file;
} sit_io;

static int sit_read_at(ckpt_io *io, void *buf, uint64_t n, uint64_t at, ckpt_err *err)
{
    return ckpt_remote_file_read(((sit_io *)(void *)io)->file, buf, n, at, err);
}

static void sit_close(ckpt_io *io)
{
    sit_io *f = (sit_io *)(void *)io;

    sit_release(f->site);
    ckpt_free(f);
}

/*
 * True for "model-00001-of-00191.safetensors": one of many shards, all of which the caller will
 * open.
 */
static bool sit_is_shard(const char *name)
{
    return strstr(name, "-of-") && ckpt_site_is_file(name);
}

/*
 * Open the other shards of a listing together with the first one, because one request at a time
 * would take far longer.  The caller holds `work`.
 */
static void sit_ahead(ckpt_site *s, const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(name, '.');
    size_t n_folder = slash ? (size_t)(slash - name) + 1 : 0, n = 0;
    ckpt_remote_file **o;

    if (!s->listed || s->ahead || !sit_is_shard(name) || !ckpt_site_find(s, name))
        return;
    s->ahead = true;
    o = ckpt_alloc(SIT_AHEAD * sizeof *o);
    for (size_t i = 0; o && i < s->files.n && n < SIT_AHEAD; i++) {
        const char *other = s->files.at[i].name, *ends = strrchr(other, '.');

        if (strncmp(other, name, n_folder) == 0 && !strchr(other + n_folder, '/') &&
            sit_is_shard(other) && strcmp(ends, dot) == 0 &&
            ckpt_site_get(&o[n], s, other, &(ckpt_err){0}) == CKPT_OK)
            n++;
    }
    if (o)
        ckpt_remote_file_open_all(o, n, s->until);
    ckpt_free(o);
}

static int sit_open_file(ckpt_remote_file **out, ckpt_site *s, const char *address, ckpt_err *err)
{
    const char *name = sit_below(s->root, address);
    int64_t until;
    int rc = CKPT_OK;

    *out = NULL;
    pthread_mutex_lock(&sit_it.work);
    if ((s->kind->tells && s->listed && !ckpt_site_find(s, name)) ||
        (s->alone && strcmp(name, s->given_name) != 0))
        rc = ckpt_fail(err, CKPT_EMISSING, "%s: the listing of its folder does not contain it",
                       address);
    if (rc == CKPT_OK)
        rc = ckpt_site_get(out, s, name, err);
    ckpt_site_begin(s);
    until = s->until;
    if (rc == CKPT_OK)
        sit_ahead(s, name);
    pthread_mutex_unlock(&sit_it.work);
    if (rc == CKPT_OK)
        rc = ckpt_remote_file_open(*out, until, err);
    pthread_mutex_lock(&sit_it.work);
    ckpt_site_end(s);
    pthread_mutex_unlock(&sit_it.work);
    return rc;
}

static int sit_open(ckpt_io **out, const char *address, ckpt_err *err)
{
    ckpt_remote_file *file = NULL;
    ckpt_site *s = NULL;
    sit_io *f = NULL;
    int rc = sit_find(&s, address, err);

    *out = NULL;
    if (rc == CKPT_OK)
        rc = sit_open_file(&file, s, address, err);
    if (rc == CKPT_OK) {
        f = ckpt_alloc(sizeof *f);
        rc = f ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc != CKPT_OK) {
        if (s)
            sit_release(s);
        return rc;
    }
    f->site = s;
    f->file = file;
    f->io = (ckpt_io){.name = ckpt_remote_file_name(file),
                      .size = ckpt_remote_file_size(file),
                      .read_at = sit_read_at,
                      .close = sit_close};
    // the identity is no device of this machine, and its number changes with the file's version
    f->io.id = (ckpt_identity){.dev = UINT64_MAX, .ino = ckpt_remote_file_identity(file)};
    *out = &f->io;
    return CKPT_OK;
}

/* ---- folders ---- */

/* Add one file to the entries of a folder, or the subfolder that holds it. */
static int sit_entry(ckpt_entries *all, ckpt_map *map, const ckpt_site_file *f, size_t n_folder,
                     ckpt_err *err)
{
    const char *name = f->name + n_folder;
    size_t n = strcspn(name, "/");
    const ckpt_entry *last = all->n ? &all->at[all->n - 1] : NULL;
    ckpt_entry *e;

    // files of one subfolder are adjacent, so comparing with the last entry avoids duplicates
    if (name[n] && last && last->is_dir && strlen(last->name) == n &&
        memcmp(last->name, name, n) == 0)
        return CKPT_OK;
    e = ckpt_vec_push(all);
    if (e) {
        e->name = ckpt_arena_string(map->arena, name, n);
        e->is_dir = name[n] != 0;
        e->size = name[n] ? 0 : f->size;
    }
    return e && e->name ? CKPT_OK : ckpt_fail_memory(err);
}

static int sit_list(ckpt_entries *all, ckpt_map *map, const char *folder, ckpt_err *err)
{
    char path[SIT_PATH];
    size_t n = strlen(folder), first, count;
    ckpt_site *s = NULL;
    int rc = CKPT_OK;

    while (n > 0 && folder[n - 1] == '/')
        n--;
    if (n >= sizeof path)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: too long for an address", folder);
    memcpy(path, folder, n);
    path[n] = 0;
    s = sit_known(path);
    // only addresses below an opened one are listed: a folder above was not named by the user
    if (!s)
        return ckpt_fail(err, CKPT_EMISSING, "%s: is not below an opened address", path);
    const char *below = sit_below(s->root, path);
    pthread_mutex_lock(&sit_it.work);
    rc = ckpt_site_list(s, err);
    count = rc == CKPT_OK ? ckpt_site_range(s, below, &first) : 0;
    for (size_t i = 0; rc == CKPT_OK && i < count; i++)
        rc = sit_entry(all, map, &s->files.at[first + i], *below ? strlen(below) + 1 : 0, err);
    pthread_mutex_unlock(&sit_it.work);
    if (rc == CKPT_OK && count == 0)
        rc = ckpt_fail(err, CKPT_EMISSING, "%s: no files were found there%s", path,
                       s->kind->tells ? "" : " (ckpt-remote(7) says what is looked for)");
    sit_release(s);
    return rc;
}

/* ---- the kind of an address ---- */

static int sit_kind(const char *address, bool *is_dir, ckpt_err *err)
{
    ckpt_site *s = NULL;
    const char *below;
    size_t first;
    int rc = strlen(address) < SIT_PATH
                 ? CKPT_OK
                 : ckpt_fail(err, CKPT_ELIMIT, "%.100s...: too long for an address", address);

    if (rc == CKPT_OK)
        rc = sit_make(&s, address, is_dir, err);
    if (rc != CKPT_OK)
        return rc;
    if (s->kind->at_once) {
        char path[SIT_PATH];
        size_t n = strlen(address);

        while (n > strlen(s->root) && address[n - 1] == '/')
            n--;
        memcpy(path, address, n);
        path[n] = 0;
        below = sit_below(s->root, path);
        *is_dir = !below || !*below || ckpt_site_range(s, below, &first) > 0;
        if (!*is_dir && !ckpt_site_find(s, below))
            rc = ckpt_fail(err, CKPT_EMISSING, "%s: no such file among the %zu of %s", address,
                           s->files.n, s->root);
    }
    sit_release(s);
    return rc;
}

/*
 * True if the server gives no version of a file that needs more than one request: parts of two
 * versions could then mix.
 */
static bool sit_unmarked(const char *address)
{
    ckpt_site *s = sit_known(address);
    ckpt_remote_file *file = NULL;
    bool unmarked = false;

    if (!s)
        return false;
    pthread_mutex_lock(&sit_it.work);
    if (ckpt_site_get(&file, s, sit_below(s->root, address), &(ckpt_err){0}) == CKPT_OK &&
        ckpt_remote_file_open(file, 0, &(ckpt_err){0}) == CKPT_OK)
        unmarked = !ckpt_remote_file_marked(file) && ckpt_remote_file_size(file) > CKPT_REMOTE_HEAD;
    pthread_mutex_unlock(&sit_it.work);
    sit_release(s);
    return unmarked;
}

static const ckpt_address_server sit_server = {
    .kind = sit_kind, .open = sit_open, .list = sit_list, .unmarked = sit_unmarked};

bool ckpt_path_is_remote(const char *path)
{
    return path && ckpt_address_is(path) && !ckpt_unwritten_is(path);
}

int ckpt_remote_begin(ckpt_err *err)
{
    int rc = ckpt_fetch_begin(err);

    if (rc == CKPT_OK) {
        ckpt_hf_begin();
        ckpt_address_serve(&sit_server);
    }
    return rc;
}
