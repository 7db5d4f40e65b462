/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h: declares the interface between ckpt and its FUSE plugin.
 *
 * The plugin is a library of its own, so ckpt starts on machines without libfuse.  It knows nothing
 * about checkpoints.
 */
#ifndef TOOLS_MOUNT_PLUGIN_H
#define TOOLS_MOUNT_PLUGIN_H

#include "ckpt.h"
#include "tools/mount/tree.h"

/* Names of the plugin and of its table, and the version of this interface. */
#define MOUNT_PLUGIN  "libckpt-mount.so"
#define MOUNT_TABLE   "ckpt_mount_table"
#define MOUNT_VERSION 2u

/* The tree to serve.  Several threads call the functions. */
typedef struct mount_served {
    const mount_tree *tree;
    int64_t time; /* time of all files, seconds since the epoch */
    unsigned n_threads;
    void *ctx;
    /*
     * read: get bytes [at, at + n) of a file, which are inside it.  ahead: prepare them for a
     * likely read.
     *
     * Returns  0 or an errno; negative: bytes returned earlier may be wrong, so caches must not
     *          return them again
     */
    int (*read)(void *ctx, size_t file, void *buf, size_t n, uint64_t at);
    int (*ahead)(void *ctx, size_t file, uint64_t n, uint64_t at);
} mount_served;

/* The plugin's functions.  why: a buffer of `room` bytes for an error text. */
typedef struct mount_plugin {
    unsigned version;
    /*
     * Mount at dir, with the privileges of fusermount3 or of root.
     *
     * from     source that `mount` displays
     * Returns  the device for serve, or -1: see why
     */
    int (*attach)(const char *dir, const char *from, bool allow_other, char *why, size_t room);
    /*
     * Answer requests from the device until a signal (HUP, INT, TERM) or an unmount.  Calls
     * `ending` when it stops answering, even after a failure; then closes fd, so waiting requests
     * fail.
     *
     * Returns  0, or -1: see why
     */
    int (*serve)(int fd, const mount_served *served, void (*ending)(void *ctx), char *why,
                 size_t room);
    /* True if serving must end, so waiting for a source is useless. */
    bool (*ended)(void);
} mount_plugin;

#endif
