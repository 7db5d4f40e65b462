/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: the files of a view as folders, by number and by name.
 */
#ifndef TOOLS_MOUNT_TREE_H
#define TOOLS_MOUNT_TREE_H

#include <stddef.h>
#include <stdint.h>

#define MOUNT_FOLDER SIZE_MAX

/* Entry 0 is the root; children of a folder follow each other, ascending by name. */
typedef struct mount_entry {
    const char *name;
    size_t parent;
    size_t file;      /* number of the file, or MOUNT_FOLDER */
    uint64_t size;    /* bytes; of a folder 0 */
    size_t first, n;  /* of a folder: its children */
    size_t n_folders; /* of a folder: how many of them are folders */
} mount_entry;

typedef struct mount_tree {
    mount_entry *at;
    size_t n, n_files;
    uint64_t n_bytes; /* of all files */
    char *names;
} mount_tree;

/*
 * The tree of n files; path and size give those of a file.
 *
 * Returns  0; else an errno: ENOMEM; EEXIST: a path is twice there, or a file and a folder; EINVAL:
 *          a path is absolute, or has an empty part, "." or ".."; ENAMETOOLONG.  *bad is then the
 *          file in question.
 */
int mount_tree_make(mount_tree *out, size_t n, const char *(*path)(void *ctx, size_t file),
                    uint64_t (*size)(void *ctx, size_t file), void *ctx, size_t *bad);
void mount_tree_free(mount_tree *t);

/* The child of a folder by its name, or SIZE_MAX. */
size_t mount_tree_find(const mount_tree *t, size_t folder, const char *name);

#endif
