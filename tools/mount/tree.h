/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h: declares the files of a view as a tree of folders, by index and by name. */
#ifndef TOOLS_MOUNT_TREE_H
#define TOOLS_MOUNT_TREE_H

#include <stddef.h>
#include <stdint.h>

#define MOUNT_FOLDER SIZE_MAX

/* Entry 0 is the root; the children of a folder are adjacent, ascending by name. */
typedef struct mount_entry {
    const char *name;
    size_t parent;
    size_t file;      /* index of the file, or MOUNT_FOLDER */
    uint64_t size;    /* bytes; 0 for folders */
    size_t first, n;  /* folders: range of the children */
    size_t n_folders; /* folders: number of children that are folders */
} mount_entry;

typedef struct mount_tree {
    mount_entry *at;
    size_t n, n_files;
    uint64_t n_bytes; /* size of all files */
    char *names;
} mount_tree;

/*
 * Make the tree of n files; path and size are callbacks for each file.
 *
 * Returns  0; else an errno: ENOMEM; EEXIST: a path occurs twice, or as file and folder; EINVAL: a
 *          path is absolute, or has an empty part, "." or ".."; ENAMETOOLONG. *bad is then the
 *          file's index.
 */
int mount_tree_make(mount_tree *out, size_t n, const char *(*path)(void *ctx, size_t file),
                    uint64_t (*size)(void *ctx, size_t file), void *ctx, size_t *bad);
void mount_tree_free(mount_tree *t);

/* Find the child of a folder by name, or SIZE_MAX. */
size_t mount_tree_find(const mount_tree *t, size_t folder, const char *name);

#endif
