/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.h: folders that are made for outputs, synced, searched, and taken away again.
 */
#ifndef CKPT_COPY_DIR_H
#define CKPT_COPY_DIR_H

#include <sys/stat.h>

#include "libckpt/map/map.h"

/* A folder that receives outputs, and which of the folders above it are our work. */
typedef struct ckpt_dir {
    char *path; /* without slashes at its end */
    int fd;     /* -1: not open */
    size_t n_made;
    /* lengths, within path, of the folders that were made: the first is the outermost */
    size_t *made;
} ckpt_dir;

/* Zeroed, but not open: what ckpt_dir_close takes. */
#define CKPT_DIR_NONE ((ckpt_dir){.fd = -1})

/* Make the folder and its parents if absent, and open it.  To be closed, also on failure. */
int ckpt_dir_make(ckpt_dir *d, const char *path, ckpt_err *err);

/* Open a folder that is there. */
int ckpt_dir_open(ckpt_dir *d, const char *path, ckpt_err *err);

/* A new folder is only safe once its parent is synced. */
int ckpt_dir_sync_made(ckpt_dir *d, ckpt_err *err);

/* Of the folders that were made, remove those with paths longer than n that nothing is in. */
void ckpt_dir_unmake(ckpt_dir *d, size_t n);

/*
 * Close; folders that were made are removed if nothing is in them.  To keep them set n_made to 0.
 */
void ckpt_dir_close(ckpt_dir *d);

/*
 * fsync and fdatasync that go on when interrupted.  A sync that failed is final: the kernel may
 * have dropped the pages.
 */
int ckpt_fsync(int fd);
int ckpt_fdatasync(int fd);

/*
 * All n bytes at an offset of a file, however often the kernel stops on the way.
 *
 * Returns  0; -1 and errno: EIO where the file ends before them, ENOSPC where nothing is written
 */
int ckpt_pread(int fd, void *buf, uint64_t n, uint64_t at);
int ckpt_pwrite(int fd, const void *bytes, uint64_t n, uint64_t at);

/*
 * True if something below the folder `top` may be followed: it was made by somebody who can rename
 * what is in top anyway.  In a sticky folder (/tmp) that is this user or the folder's owner.
 */
bool ckpt_dir_may_follow(int top, int fd);

/* Descriptor of a folder below `at` that is no link; -1 and errno. */
int ckpt_dir_open_at(int at, const char *name);

/*
 * Called with everything below a folder, and the folder last: contents come before what holds them.
 * A result other than 0 ends the walk.
 */
typedef int (*ckpt_dir_fn)(void *ctx, int at, const char *name, const struct stat *st);

/*
 * Walk over name below `at` (a file is walked over too).  No link is followed, no other file system
 * entered, nothing allocated with ckpt_alloc.
 *
 * Returns  0, an errno value, or what fn returned
 */
int ckpt_dir_walk(int at, const char *name, ckpt_dir_fn fn, void *ctx);

/*
 * Remove name below `at` with all that is in it; 0 (also when there is nothing) or an errno value.
 */
int ckpt_dir_remove(int at, const char *name);

/* True if a name is plain path parts, divided by single slashes. */
bool ckpt_dir_parts_ok(const char *name);

/*
 * Every file of a map to be written has a plain name (below to->folder, or of a set: plain parts),
 * no two have the same, and none is what another one needs as a folder.  shown is the folder that
 * messages name.
 *
 * Errors   CKPT_EUNSAFE, CKPT_EUSAGE, CKPT_ELIMIT
 */
int ckpt_dir_check_names(const ckpt_map *to, const char *shown, ckpt_err *err);

/*
 * What stands at an output's name can make way for a file: nothing, or a regular file; never a
 * device, a pipe, a socket, or a link.  Folders pass.  links: a link to a file may be replaced.
 *
 * at, name  where it is looked for; shown: the path, for messages
 * Errors    CKPT_EUSAGE
 */
int ckpt_dir_check_place(int at, const char *name, const char *shown, bool links, ckpt_err *err);

/* True if st is one of the files that are read: by identity, so that links do not fool us. */
bool ckpt_dir_is_input(const ckpt_map *inputs, const struct stat *st);

/* 1 if one of the files that are read lies in name below `at`, 0 if none does, -1 and errno. */
int ckpt_dir_has_input(int at, const char *name, const ckpt_map *inputs);

#endif
