/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.h: makes, syncs, searches and removes folders for outputs, and reads and writes complete
 * ranges of files.
 */
#ifndef CKPT_IO_DIR_H
#define CKPT_IO_DIR_H

#include <sys/stat.h>

#include "libckpt/map/map.h"

/* A folder that receives outputs, and the folders above it that ckpt has made. */
typedef struct ckpt_dir {
    char *path; /* without slashes at its end */
    int fd;     /* -1: not open */
    size_t n_made;
    /*
     * for each folder that was created, outermost first: the length of the prefix of path that
     * names it
     */
    size_t *made;
} ckpt_dir;

/* Zeroed and not open: a valid argument of ckpt_dir_close. */
#define CKPT_DIR_NONE ((ckpt_dir){.fd = -1})

/* Make the folder and its parents if absent, and open it. The caller closes it, also on failure. */
int ckpt_dir_make(ckpt_dir *d, const char *path, ckpt_err *err);

/* Open an existing folder. */
int ckpt_dir_open(ckpt_dir *d, const char *path, ckpt_err *err);

/* Sync the parents of the folders that were made, because a new folder is only safe after that. */
int ckpt_dir_sync_made(ckpt_dir *d, ckpt_err *err);

/* Remove the created folders whose paths are longer than n, if they are empty. */
void ckpt_dir_unmake(ckpt_dir *d, size_t n);

/* Close, and remove the folders that were made, if they are empty. Set n_made to 0 to keep them. */
void ckpt_dir_close(ckpt_dir *d);

/*
 * fsync and fdatasync that continue when interrupted. A failed sync is final, because the kernel
 * may have dropped the pages.
 */
int ckpt_fsync(int fd);
int ckpt_fdatasync(int fd);

/*
 * Read or write all n bytes at an offset, in as many calls as the kernel needs.
 *
 * Returns  0; -1 and errno: EIO if the file ends before them, ENOSPC if the kernel writes nothing
 */
int ckpt_pread(int fd, void *buf, uint64_t n, uint64_t at);
int ckpt_pwrite(int fd, const void *bytes, uint64_t n, uint64_t at);

/*
 * True if a file or folder below the folder `top` may be followed: its owner could rename the
 * contents of top anyway. In a sticky folder (/tmp) these owners are this user and the folder's
 * owner.
 */
bool ckpt_dir_may_follow(int top, int fd);

/* Open a folder below `at` that is not a link; -1 and errno. */
int ckpt_dir_open_at(int at, const char *name);

/*
 * Called for each file and folder below a folder, and at last for the folder itself: contents come
 * before their folder. A non-zero result ends the walk.
 */
typedef int (*ckpt_dir_fn)(void *ctx, int at, const char *name, const struct stat *st);

/*
 * Walk over name below `at` (name may be a file). It follows no link, enters no other file system
 * and does not allocate with ckpt_alloc.
 *
 * Returns  0, an errno value, or the result of fn
 */
int ckpt_dir_walk(int at, const char *name, ckpt_dir_fn fn, void *ctx);

/* Remove name below `at` with its contents; 0 (also if it does not exist) or an errno value. */
int ckpt_dir_remove(int at, const char *name);

/* True if a name consists of plain path parts, separated by single slashes. */
bool ckpt_dir_parts_ok(const char *name);

/*
 * Check that every file of a target map has a plain name (below to->folder, or of a set: plain
 * parts), that no two are equal, and that none is a folder of another one. shown: the folder for
 * messages.
 *
 * Errors   CKPT_EUNSAFE, CKPT_EUSAGE, CKPT_ELIMIT
 */
int ckpt_dir_check_names(const ckpt_map *to, const char *shown, ckpt_err *err);

/*
 * Check that an output can have a name: nothing has it, or a regular file or a folder does; never a
 * device, a pipe, a socket, or a link. links: a link to a file may be replaced.
 *
 * at, name the folder and the name in it; shown: the path, for messages
 * Errors    CKPT_EUSAGE
 */
int ckpt_dir_check_place(int at, const char *name, const char *shown, bool links, ckpt_err *err);

/*
 * True if st is one of the input files. It compares identities, because links could hide an input.
 */
bool ckpt_dir_is_input(const ckpt_map *inputs, const struct stat *st);

/* 1 if the folder `name` in `at` contains an input file, at any depth; 0 if not; -1 and errno. */
int ckpt_dir_has_input(int at, const char *name, const ckpt_map *inputs);

#endif
