/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h: what ckpt and its FUSE plugin show each other.
 *
 * The plugin is a library of its own, so that ckpt starts where libfuse is not; it knows nothing of
 * checkpoints.
 */
#ifndef TOOLS_MOUNT_PLUGIN_H
#define TOOLS_MOUNT_PLUGIN_H

#include "ckpt.h"
#include "tools/mount/tree.h"

/* Name of the plugin, of its table, and of this contract. */
#define MOUNT_PLUGIN  "libckpt-mount.so"
#define MOUNT_TABLE   "ckpt_mount_table"
#define MOUNT_VERSION 2u

/* What is served.  The functions are called by several threads. */
typedef struct mount_served {
    const mount_tree *tree;
    int64_t time; /* of all that is there, seconds since the epoch */
    unsigned n_threads;
    void *ctx;
    /*
     * Bytes [at, at + n) of a file, which are inside it; the second makes them for a read that may
     * come soon.
     *
     * Returns  0 or an errno; a negative one: bytes that were given out before may be wrong, and
     *          are not to come from a cache again
     */
    int (*read)(void *ctx, size_t file, void *buf, size_t n, uint64_t at);
    int (*ahead)(void *ctx, size_t file, uint64_t n, uint64_t at);
} mount_served;

/* Texts say why not, in room bytes. */
typedef struct mount_plugin {
    unsigned version;
    /*
     * Mount at dir; the rights that this takes are those of fusermount3, or of root.
     *
     * from       what `mount` shows as its source
     * Returns    the device, which serve answers, or -1: why
     */
    int (*attach)(const char *dir, const char *from, bool allow_other, char *why, size_t room);
    /*
     * Answer requests from the device until a signal (HUP, INT, TERM) or somebody unmounts it.
     * Calls `ending` when no more are answered, also on failure; then closes fd, at which requests
     * that wait fail.
     *
     * Returns  0, or -1: why
     */
    int (*serve)(int fd, const mount_served *served, void (*ending)(void *ctx), char *why,
                 size_t room);
    /* Serving has been told to end: waiting for a source is of no use. */
    bool (*ended)(void);
} mount_plugin;

#endif
