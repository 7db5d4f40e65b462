/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mounted file whose bytes cost nothing: what is left is FUSE, the limit of every such file system.
 *
 *   null_mount PLUGIN DIR BYTES      until SIGTERM; the file is DIR/model.safetensors
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "tools/mount/plugin.h"

static const char *null_path(void *ctx, size_t file)
{
    (void)ctx;
    (void)file;
    return "model.safetensors";
}

static uint64_t null_size(void *ctx, size_t file)
{
    (void)file;
    return *(const uint64_t *)ctx;
}

static int null_read(void *ctx, size_t file, void *buf, size_t n, uint64_t at)
{
    (void)ctx;
    (void)file;
    (void)buf;
    (void)n;
    (void)at;
    return 0;
}

static int null_ahead(void *ctx, size_t file, uint64_t n, uint64_t at)
{
    (void)ctx;
    (void)file;
    (void)n;
    (void)at;
    return 0;
}

static void null_ending(void *ctx)
{
    (void)ctx;
}

static int stop(const char *why)
{
    (void)fprintf(stderr, "null_mount: %s\n", why);
    return 1;
}

int main(int argc, char **argv)
{
    void *lib = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const mount_plugin *p = lib ? dlsym(lib, MOUNT_TABLE) : NULL;
    uint64_t size = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    mount_tree tree;
    mount_served served = {
        .tree = &tree, .n_threads = 4, .ctx = &size, .read = null_read, .ahead = null_ahead};
    char why[256] = "";
    size_t bad;
    int fd = -1, rc;

    if (!p)
        return stop("usage: null_mount PLUGIN DIR BYTES");
    if (mount_tree_make(&tree, 1, null_path, null_size, &size, &bad) != 0)
        return stop("out of memory");
    fd = p->attach(argv[2], "null", false, why, sizeof why);
    if (fd < 0)
        return stop(why);
    rc = p->serve(fd, &served, null_ending, why, sizeof why);
    (void)umount2(argv[2], MNT_DETACH);
    mount_tree_free(&tree);
    return rc == 0 ? 0 : stop(why);
}
