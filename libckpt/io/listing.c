/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.c: lists a folder, with numbers in names sorted by value: rank_2 before rank_10.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/io/address.h"
#include "libckpt/io/listing.h"

enum { LISTING_MAX = 4 << 20 }; /* entries: far more than in any real folder */

static bool listing_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compare two runs of digits by value; both pointers are moved past them. */
static int listing_numbers(const char **a, const char **b)
{
    while (**a == '0' && listing_is_digit((*a)[1]))
        (*a)++;
    while (**b == '0' && listing_is_digit((*b)[1]))
        (*b)++;
    size_t n = 0, m = 0;
    while (listing_is_digit((*a)[n]))
        n++;
    while (listing_is_digit((*b)[m]))
        m++;
    int order = n != m ? (n < m ? -1 : 1) : strncmp(*a, *b, n);
    *a += n;
    *b += m;
    return order;
}

/*
 * Runs of digits compare as numbers: rank 10 comes after rank 9. Names that differ only in leading
 * zeros are ordered at the end, so that the order is total.
 */
static int listing_compare(const void *pa, const void *pb)
{
    const char *a = ((const ckpt_entry *)pa)->name, *b = ((const ckpt_entry *)pb)->name;

    while (*a && *b) {
        if (listing_is_digit(*a) && listing_is_digit(*b)) {
            int order = listing_numbers(&a, &b);
            if (order)
                return order;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    if (*a || *b)
        return *a ? 1 : -1;
    return strcmp(((const ckpt_entry *)pa)->name, ((const ckpt_entry *)pb)->name);
}

/*
 * Add one name. Links are followed; an entry that has vanished, or a dangling link, counts as an
 * empty file.
 */
static int listing_add(ckpt_entries *all, ckpt_map *map, int fd, const char *name, ckpt_err *err)
{
    struct stat st;
    ckpt_entry *e = all->n < LISTING_MAX ? ckpt_vec_push(all) : NULL;

    if (!e)
        return ckpt_fail_memory(err);
    if (fstatat(fd, name, &st, 0) == 0) {
        e->is_dir = S_ISDIR(st.st_mode);
        e->size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    }
    e->name = ckpt_arena_string(map->arena, name, strlen(name));
    return e->name ? CKPT_OK : ckpt_fail_memory(err);
}

/* An earlier listing for a map, in its arena. */
struct ckpt_listed {
    const struct ckpt_listed *next;
    const char *folder;
    const ckpt_entry *entry;
    size_t n;
};

bool ckpt_listing_known(ckpt_listing *out, ckpt_map *map, const char *folder)
{
    const struct ckpt_listed *l = map->listed;

    while (l && strcmp(l->folder, folder) != 0)
        l = l->next;
    if (l)
        *out = (ckpt_listing){.folder = l->folder, .entry = l->entry, .n = l->n, .map = map};
    return l != NULL;
}

int ckpt_listing_of(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_entries *all,
                    ckpt_err *err)
{
    struct ckpt_listed *l = ckpt_arena_alloc(map->arena, sizeof *l);

    if (all->n)
        qsort(all->at, all->n, sizeof *all->at, listing_compare);
    out->folder = ckpt_arena_string(map->arena, folder, strlen(folder));
    out->entry = ckpt_arena_copy(map->arena, all->at, all->n * sizeof *all->at);
    out->n = all->n;
    out->map = map;
    if (!l || !out->folder || !out->entry)
        return ckpt_fail_memory(err);
    *l = (struct ckpt_listed){map->listed, out->folder, out->entry, out->n};
    map->listed = l;
    return CKPT_OK;
}

int ckpt_listing_read_here(ckpt_listing *out, ckpt_map *map, const char *folder, ckpt_err *err)
{
    assert(out && folder);
    ckpt_entries all = {0};
    int rc = CKPT_OK;
    DIR *dir = NULL;

    memset(out, 0, sizeof *out);
    if (ckpt_address_is(folder)) {
        rc = ckpt_address_list(&all, map, folder, err);
        if (rc == CKPT_OK)
            rc = ckpt_listing_of(out, map, folder, &all, err);
        ckpt_vec_free(&all);
        return rc;
    }
    dir = opendir(folder);
    if (!dir)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot list the folder",
                             folder);
    errno = 0;
    for (struct dirent *d; rc == CKPT_OK && (d = readdir(dir)); errno = 0) {
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            rc = listing_add(&all, map, dirfd(dir), d->d_name, err);
    }
    if (rc == CKPT_OK && errno)
        rc = ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot list the folder", folder);
    closedir(dir);
    if (rc == CKPT_OK)
        rc = ckpt_listing_of(out, map, folder, &all, err);
    ckpt_vec_free(&all);
    return rc;
}

const ckpt_entry *ckpt_listing_find(const ckpt_listing *list, const char *name)
{
    assert(list && name);
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->entry[i].name, name) == 0)
            return &list->entry[i];
    }
    return NULL;
}

bool ckpt_listing_has(const ckpt_listing *list, const char *name, bool is_dir)
{
    const ckpt_entry *e = ckpt_listing_find(list, name);

    return e && e->is_dir == is_dir;
}

/* ---- paths ---- */

const char *ckpt_path_join(ckpt_arena *arena, const char *folder, const char *name)
{
    size_t n = strlen(folder);

    return ckpt_arena_printf(arena, n && folder[n - 1] == '/' ? "%s%s" : "%s/%s", folder, name);
}

const char *ckpt_path_base(ckpt_arena *arena, const char *path)
{
    size_t n = strlen(path), from;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/';)
        from--;
    return ckpt_arena_string(arena, path + from, n - from);
}
