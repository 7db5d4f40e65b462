/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_locations.c: keeps the table of files on the disks of several machines, and lists folders of
 * all of them.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"
#include "libckpt/io/address.h"
#include "libckpt/io/file_locations.h"
#include "libckpt/io/peer_io.h"

/* A file in some listing. */
typedef struct plc_file {
    uint64_t hash; /* hash of its path, which is the same in all processes */
    char *path;
    uint8_t *seen; /* per node */
    uint64_t size;
    uint32_t sum; /* CRC-32 of the file's first and last bytes */
    unsigned first, unlike;
    bool is_dir;
} plc_file;

CKPT_VEC(plc_files, plc_file);

/* All such files. Entries are never removed. */
static struct {
    pthread_mutex_t lock;
    plc_files file;
    ckpt_index paths;
} plc_all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* FNV-1a. */
static uint64_t plc_hash(const char *path)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *path; path++)
        h = (h ^ (unsigned char)*path) * UINT64_C(0x100000001b3);
    return h;
}

/* ---- the table; the caller holds the lock ---- */

static bool plc_same(const void *ctx, uint32_t number, const void *key)
{
    const plc_files *all = ctx;

    return strcmp(all->at[number].path, key) == 0;
}

/* The file of a path, or NULL. */
static plc_file *plc_look(const char *path)
{
    uint32_t i = ckpt_index_find(&plc_all.paths, ckpt_hash_u64(plc_hash(path)), plc_same,
                                 &plc_all.file, path);

    return i != CKPT_INDEX_NONE ? &plc_all.file.at[i] : NULL;
}

/* Add a file, which no node sees yet; NULL: out of memory. */
static plc_file *plc_new(const ckpt_team *t, const char *path)
{
    uint64_t hash = plc_hash(path);
    size_t n = strlen(path) + 1;
    char *copy = ckpt_alloc(n);
    uint8_t *seen = ckpt_alloc(t->n_nodes);
    plc_file *f = copy && seen ? ckpt_vec_push(&plc_all.file) : NULL;

    if (f && !ckpt_index_add(&plc_all.paths, ckpt_hash_u64(hash), (uint32_t)plc_all.file.n - 1)) {
        plc_all.file.n--;
        f = NULL;
    }
    if (!f) {
        ckpt_free(copy);
        ckpt_free(seen);
        return NULL;
    }
    memcpy(copy, path, n);
    *f = (plc_file){.hash = hash, .path = copy, .seen = seen};
    return f;
}

/* Record that a node sees a file; NULL: out of memory. */
static const plc_file *plc_add(const ckpt_team *t, const char *path, const ckpt_far_entry *e,
                               unsigned node)
{
    plc_file *f = plc_look(path);

    if (!f) {
        f = plc_new(t, path);
        if (!f)
            return NULL;
        f->size = e->size;
        f->sum = e->sum;
        f->first = f->unlike = node;
        f->is_dir = e->is_dir;
    }
    f->seen[node] = 1;
    if (f->is_dir != e->is_dir || (!f->is_dir && (f->size != e->size || f->sum != e->sum)))
        f->unlike = node;
    return f;
}

/* ---- looking up ---- */

/* The node that reads a file for others: one of those that see it, chosen by its hash. */
static unsigned plc_node(const ckpt_team *t, const plc_file *f)
{
    unsigned n = 0, k;

    for (unsigned i = 0; i < t->n_nodes; i++)
        n += f->seen[i];
    assert(n > 0);
    k = (unsigned)((f->hash >> 20) % n);
    for (unsigned i = 0;; i++) {
        if (f->seen[i] && k-- == 0)
            return i;
    }
}

/* The k-th rank of a node, modulo their number. */
static unsigned plc_rank(const ckpt_team *t, unsigned node, uint64_t k)
{
    unsigned n = 0;

    for (unsigned i = 0; i < t->n; i++)
        n += t->node[i] == node;
    assert(n > 0);
    k %= n;
    for (unsigned i = 0;; i++) {
        if (t->node[i] == node && k-- == 0)
            return i;
    }
}

ckpt_place ckpt_places_find(ckpt_team *t, const char *path)
{
    ckpt_place p = {0};
    const plc_file *f;

    if (!t->local)
        return p;
    pthread_mutex_lock(&plc_all.lock);
    f = plc_look(path);
    if (f) {
        p.known = true;
        p.is_dir = f->is_dir;
        p.here = f->seen[t->node[t->rank]];
        p.owner = plc_rank(t, plc_node(t, f), f->hash >> 32);
        p.unlike[0] = f->first;
        p.unlike[1] = f->unlike;
    }
    pthread_mutex_unlock(&plc_all.lock);
    return p;
}

bool ckpt_places_sees(ckpt_team *t, const char *path, unsigned node)
{
    const plc_file *f;
    bool sees;

    if (!t->local)
        return true;
    pthread_mutex_lock(&plc_all.lock);
    f = plc_look(path);
    sees = !f || f->seen[node];
    pthread_mutex_unlock(&plc_all.lock);
    return sees;
}

unsigned ckpt_places_owner(ckpt_team *t, const char *path)
{
    const ckpt_place p = ckpt_places_find(t, path);

    return p.known ? p.owner : (unsigned)((plc_hash(path) >> 32) % t->n);
}

/* A path without its last part; "." if it has only one. */
static const char *plc_folder(ckpt_map *map, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return ".";
    return ckpt_arena_string(map->arena, path, slash == path ? 1 : (uint64_t)(slash - path));
}

int ckpt_places_learn(ckpt_team *t, const char *path, ckpt_place *out, ckpt_err *err)
{
    ckpt_listing list;
    ckpt_map *map = NULL;
    int rc = CKPT_OK;

    *out = ckpt_places_find(t, path);
    if (out->known || !t->local)
        return CKPT_OK;
    rc = ckpt_map_create(&map, 0, err);
    // A folder that no machine has contains no files; the later open reports that.
    if (rc == CKPT_OK)
        (void)ckpt_listing_read(&list, map, plc_folder(map, path), NULL);
    ckpt_map_free(map);
    *out = ckpt_places_find(t, path);
    return rc;
}

int ckpt_places_kind(const char *path, bool *is_dir, ckpt_err *err)
{
    ckpt_team *t = ckpt_team_now();
    ckpt_place p = {0};
    struct stat st;
    int sys, rc = CKPT_OK;

    if (ckpt_address_is(path))
        return ckpt_address_kind(path, is_dir, err);
    if (stat(path, &st) == 0) {
        *is_dir = S_ISDIR(st.st_mode);
        return CKPT_OK;
    }
    sys = errno;
    if (t)
        rc = ckpt_places_learn(t, path, &p, err);
    *is_dir = p.is_dir;
    return rc != CKPT_OK || p.known
               ? rc
               : ckpt_fail_sys(err, ckpt_open_code(sys), sys, "%s: cannot be opened", path);
}

/* ---- listings ---- */

/* Add one machine's entries to those of all. */
static int plc_join(ckpt_team *t, ckpt_map *map, ckpt_entries *all, const ckpt_far_listing *list,
                    unsigned node, ckpt_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const ckpt_far_entry *e = &list->entry[i];
        const char *path = strcmp(list->folder, ".") == 0
                               ? e->name
                               : ckpt_path_join(map->arena, list->folder, e->name);
        const plc_file *f = NULL;
        ckpt_entry *to;

        pthread_mutex_lock(&plc_all.lock);
        f = path ? plc_add(t, path, e, node) : NULL;
        pthread_mutex_unlock(&plc_all.lock);
        if (!f)
            return ckpt_fail_memory(err);
        // The first machine with a name decides its kind and size.
        if (f->first != node)
            continue;
        to = ckpt_vec_push(all);
        if (!to)
            return ckpt_fail_memory(err);
        *to = (ckpt_entry){
            .name = path + strlen(path) - strlen(e->name), .size = e->size, .is_dir = e->is_dir};
    }
    return CKPT_OK;
}

/* List a folder on all machines; the first process of each answers. */
static int plc_list(ckpt_team *t, ckpt_map *map, ckpt_entries *all, const char *folder,
                    ckpt_err *err)
{
    ckpt_err missing = {0};
    unsigned n = 0;
    int rc = CKPT_OK;

    for (unsigned node = 0; rc == CKPT_OK && node < t->n_nodes; node++) {
        ckpt_far_listing list = {0};
        ckpt_err why = {0};

        rc = ckpt_far_list(&list, t, plc_rank(t, node, 0), folder, &why);
        if (rc == CKPT_OK)
            rc = plc_join(t, map, all, &list, node, &why);
        n += rc == CKPT_OK;
        ckpt_far_list_free(&list);
        // A machine may lack the folder.
        if (rc == CKPT_EMISSING) {
            missing = missing.code == CKPT_OK ? why : missing;
            rc = CKPT_OK;
        }
        if (rc != CKPT_OK)
            return ckpt_fail(err, rc, "%s", why.text);
    }
    return n > 0 ? CKPT_OK : ckpt_fail(err, missing.code, "%s", missing.text);
}

int ckpt_listing_read(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_err *err)
{
    assert(out && map && folder);
    ckpt_team *t = ckpt_team_now();
    ckpt_entries all = {0};
    int rc;

    if (ckpt_listing_known(out, map, folder))
        return CKPT_OK;
    if (!t || !t->local)
        return ckpt_listing_read_here(out, map, folder, err);
    memset(out, 0, sizeof *out);
    rc = plc_list(t, map, &all, folder, err);
    if (rc == CKPT_OK)
        rc = ckpt_listing_of(out, map, folder, &all, err);
    ckpt_vec_free(&all);
    return rc;
}
