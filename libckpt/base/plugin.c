/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c: finds and loads plugins.
 */
#define _GNU_SOURCE // secure_getenv
#include "libckpt/base/plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLG_PATH = 4096 };

/* The path in a line of /proc/self/maps, if its range contains the address; NULL: it does not. */
static char *plg_mapped(char *line, uintptr_t address)
{
    char *path = strchr(line, '/'), *end;
    uintptr_t first = strtoumax(line, &end, 16),
              last = *end == '-' ? strtoumax(end + 1, &end, 16) : 0;

    if (!path || address < first || address >= last)
        return NULL;
    path[strcspn(path, "\n")] = 0;
    return path;
}

/* The real path of the file with this code; false: the kernel does not provide it. */
static bool plg_self(char self[PLG_PATH])
{
    static const char here;
    char line[PLG_PATH + 128];
    FILE *f = fopen("/proc/self/maps", "re");
    const char *path = NULL;

    while (f && !path && fgets(line, sizeof line, f))
        path = plg_mapped(line, (uintptr_t)&here);
    if (f)
        (void)fclose(f);
    return path && snprintf(self, PLG_PATH, "%s", path) < PLG_PATH;
}

/* True if this code is part of a program instead of libckpt.so. */
static bool plg_is_program(const char *self)
{
    char exe[PLG_PATH];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    exe[n > 0 ? n : 0] = 0;
    return strcmp(exe, self) == 0;
}

/*
 * Find the plugin near this code: in the folder of a library or below it, or in ../lib of a
 * program.
 */
static bool plg_near(char *out, size_t room, const char *file)
{
    static const char *const program[] = {"../lib/ckpt/", "../lib/", NULL};
    static const char *const library[] = {"", "ckpt/", "../ckpt/", NULL};
    char self[PLG_PATH];
    char *name = plg_self(self) ? strrchr(self, '/') : NULL;

    if (!name)
        return false;
    // a program may be in a folder that others can write (/tmp), so its own folder is not searched
    const char *const *place = plg_is_program(self) ? program : library;
    for (; *place; place++) {
        int n = snprintf(out, room, "%.*s/%s%s", (int)(name - self), self, *place, file);
        if (n > 0 && (size_t)n < room && access(out, F_OK) == 0)
            return true;
    }
    return false;
}

/* True if the text begins with the name of a file that was not found. */
static bool plg_missing(const char *text, const char *file)
{
    return strncmp(text, file, strlen(file)) == 0 && strstr(text, "cannot open shared");
}

/* Explain a failure. The loader names the missing file: the plugin, or a library that it needs. */
static void plg_why(const ckpt_plugin_want *want, const char *given, char *why, size_t room)
{
    const char *text = dlerror();

    text = text ? text : want->file;
    if (given && *given && plg_missing(text, given))
        (void)snprintf(why, room, "%.200s (%s)", text, want->variable);
    else if (plg_missing(text, want->file))
        (void)snprintf(why, room,
                       "this installation has no %s: install the Debian package of ckpt, or build "
                       "ckpt from its source where %s is installed",
                       want->file, want->library);
    else if (strstr(text, "cannot open shared"))
        (void)snprintf(why, room, "%.200s; install %s (Debian: %s)", text, want->library,
                       want->package);
    else
        (void)snprintf(why, room, "%.200s", text);
}

void *ckpt_plugin_open(const ckpt_plugin_want *want, char *why, size_t room)
{
    const char *given = secure_getenv(want->variable);
    char path[2 * PLG_PATH];
    int how = RTLD_NOW | (want->global ? RTLD_GLOBAL : RTLD_LOCAL);
    void *plugin;

    if (given && *given)
        plugin = dlopen(given, how);
    else if (plg_near(path, sizeof path, want->file))
        plugin = dlopen(path, how);
    else
        plugin = dlopen(want->file, how);
    if (!plugin)
        plg_why(want, given, why, room);
    return plugin;
}

/* Copy the bytes, because ISO C has no cast from an object pointer to a function pointer. */
bool ckpt_plugin_find(void *plugin, const char *name, void *to)
{
    void *at = dlsym(plugin, name);

    memcpy(to, &at, sizeof at);
    return at != NULL;
}
