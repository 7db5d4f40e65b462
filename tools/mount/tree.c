/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: makes folders from sorted paths, level by level. */
#include "tools/mount/tree.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A file during construction: the rest of its path below the folder that is being split. */
typedef struct tree_path {
    const char *rest;
    size_t file;
} tree_path;

/* Sort key of a byte; '/' sorts first, so paths of one folder are adjacent. */
static unsigned tree_key(char c)
{
    return c == 0 ? 0 : c == '/' ? 1 : 1 + (unsigned)(unsigned char)c;
}

static int tree_order(const void *pa, const void *pb)
{
    const char *a = ((const tree_path *)pa)->rest, *b = ((const tree_path *)pb)->rest;

    while (*a && *a == *b) {
        a++;
        b++;
    }
    return (tree_key(*a) > tree_key(*b)) - (tree_key(*a) < tree_key(*b));
}

/* Find the length of a path's first part; an errno if it is not allowed. */
static int tree_part(const char *path, size_t *n)
{
    *n = strcspn(path, "/");
    if (*n == 0 || (*n == 1 && path[0] == '.') || (*n == 2 && memcmp(path, "..", 2) == 0))
        return EINVAL;
    return *n > NAME_MAX ? ENAMETOOLONG : 0;
}

/* Maximum number of entries that a path adds: its parts. */
static size_t tree_parts(const char *path)
{
    size_t n = 1;

    for (; *path; path++)
        n += *path == '/';
    return n;
}

typedef struct tree_maker {
    mount_tree *t;
    tree_path *path; /* per file, ascending; a folder being split is a range of these */
    size_t *end;     /* per folder entry: the end of its range, which begins at .first for now */
    char *name;      /* memory for the next name */
    size_t *bad;
} tree_maker;

/* Add a child of a folder: the paths [i, end) begin with the same n bytes. */
static int tree_add(tree_maker *m, size_t folder, size_t i, size_t end, size_t n)
{
    mount_entry *e = &m->t->at[m->t->n];
    bool file = m->path[i].rest[n] == 0;

    *m->bad = m->path[i].file;
    // a path that ends here sorts first; any other path would continue below a file
    if (file && end - i > 1)
        return EEXIST;
    *e = (mount_entry){.name = m->name, .parent = folder, .file = MOUNT_FOLDER, .first = i};
    if (file)
        e->file = m->path[i].file;
    m->end[m->t->n++] = end;
    memcpy(m->name, m->path[i].rest, n);
    m->name[n] = 0;
    m->name += n + 1;
    for (size_t k = i; !file && k < end; k++)
        m->path[k].rest += n + 1;
    return 0;
}

/* Add the children of a folder after all existing entries. */
static int tree_split(tree_maker *m, size_t folder)
{
    size_t i = m->t->at[folder].first, end = m->end[folder], first = m->t->n;

    while (i < end) {
        size_t n, k = i + 1;
        int rc = tree_part(m->path[i].rest, &n);

        *m->bad = m->path[i].file;
        while (rc == 0 && k < end && strncmp(m->path[k].rest, m->path[i].rest, n) == 0 &&
               (m->path[k].rest[n] == '/' || m->path[k].rest[n] == 0))
            k++;
        if (rc == 0)
            rc = tree_add(m, folder, i, k, n);
        if (rc != 0)
            return rc;
        m->t->at[folder].n_folders += m->t->at[m->t->n - 1].file == MOUNT_FOLDER;
        i = k;
    }
    m->t->at[folder].first = first;
    m->t->at[folder].n = m->t->n - first;
    return 0;
}

/* Allocate the maximum number of entries and names. */
static int tree_room(tree_maker *m, size_t n, const char *(*path)(void *, size_t), void *ctx)
{
    size_t n_entries = 1, n_bytes = 1;

    for (size_t i = 0; i < n; i++) {
        n_entries += tree_parts(path(ctx, i));
        n_bytes += strlen(path(ctx, i)) + 1;
    }
    m->t->at = calloc(n_entries, sizeof *m->t->at);
    m->t->names = malloc(n_bytes);
    m->path = calloc(n + 1, sizeof *m->path);
    m->end = calloc(n_entries, sizeof *m->end);
    return m->t->at && m->t->names && m->path && m->end ? 0 : ENOMEM;
}

int mount_tree_make(mount_tree *out, size_t n, const char *(*path)(void *ctx, size_t file),
                    uint64_t (*size)(void *ctx, size_t file), void *ctx, size_t *bad)
{
    assert(out && path && size && bad);
    tree_maker m = {.t = out, .bad = bad};
    int rc;

    *out = (mount_tree){.n_files = n};
    *bad = 0;
    rc = tree_room(&m, n, path, ctx);
    for (size_t i = 0; rc == 0 && i < n; i++)
        m.path[i] = (tree_path){.rest = path(ctx, i), .file = i};
    if (rc == 0) {
        qsort(m.path, n, sizeof *m.path, tree_order);
        m.name = out->names;
        *m.name++ = 0;
        out->at[0] = (mount_entry){.name = out->names, .file = MOUNT_FOLDER};
        m.end[0] = n;
        out->n = 1;
    }
    for (size_t i = 0; rc == 0 && i < out->n; i++) {
        if (out->at[i].file == MOUNT_FOLDER) {
            rc = tree_split(&m, i);
        } else {
            out->at[i].first = 0;
            out->at[i].size = size(ctx, out->at[i].file);
            out->n_bytes += out->at[i].size;
        }
    }
    free(m.path);
    free(m.end);
    if (rc != 0)
        mount_tree_free(out);
    return rc;
}

void mount_tree_free(mount_tree *t)
{
    if (!t)
        return;
    free(t->at);
    free(t->names);
    *t = (mount_tree){0};
}

size_t mount_tree_find(const mount_tree *t, size_t folder, const char *name)
{
    assert(folder < t->n);
    size_t low = t->at[folder].first, high = low + t->at[folder].n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(t->at[middle].name, name);

        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}
