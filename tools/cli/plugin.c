/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c: finding and loading a plugin.
 */
#define _GNU_SOURCE // secure_getenv
#include "tools/cli/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLUGIN_PATH = 4096 };

/* In ../lib/ckpt (installed) or ../lib (built) beside the program; false: in neither. */
static bool plugin_beside(char *out, size_t room, const char *file)
{
    static const char *const places[] = {"lib/ckpt", "lib"};
    char exe[PLUGIN_PATH];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash;

    if (n <= 0)
        return false;
    exe[n] = 0;
    slash = strrchr(exe, '/');
    if (!slash)
        return false;
    *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int m = snprintf(out, room, "%s/../%s/%s", exe, places[i], file);
        if (m > 0 && (size_t)m < room && access(out, F_OK) == 0)
            return true;
    }
    return false;
}

void *plugin_open(const char *file, const char *variable, bool global, char *why, size_t room)
{
    const char *given = secure_getenv(variable);
    char path[PLUGIN_PATH + 64];
    int how = RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL);
    void *plugin;

    if (given && *given)
        plugin = dlopen(given, how);
    else if (plugin_beside(path, sizeof path, file))
        plugin = dlopen(path, how);
    else
        plugin = dlopen(file, how);
    if (!plugin)
        (void)snprintf(why, room, "%s", dlerror());
    return plugin;
}

/* ISO C has no cast from an object's pointer to a function's. */
bool plugin_find(void *plugin, const char *name, void *to)
{
    void *at = dlsym(plugin, name);

    memcpy(to, &at, sizeof at);
    return at != NULL;
}
