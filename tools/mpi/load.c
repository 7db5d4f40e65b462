/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c: finding and loading the MPI plugin.
 */
#define _GNU_SOURCE // secure_getenv
#include "tools/mpi/load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/out.h"
#include "tools/mpi/mail.h"

enum { LOAD_PATH = 4096 };

/* In ../lib/ckpt (installed) or ../lib (built) beside the program; false: in neither. */
static bool load_beside(char *out, size_t room)
{
    static const char *const places[] = {"lib/ckpt", "lib"};
    char exe[LOAD_PATH];
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
        int m = snprintf(out, room, "%s/../%s/%s", exe, places[i], MAIL_PLUGIN);
        if (m > 0 && (size_t)m < room && access(out, F_OK) == 0)
            return true;
    }
    return false;
}

/* A function of the plugin into the pointer at `to`: ISO C has no cast from an object's pointer. */
static bool load_find(void *plugin, const char *name, void *to)
{
    void *at = dlsym(plugin, name);

    memcpy(to, &at, sizeof at);
    return at != NULL;
}

int plugin_load(int (**start)(ckpt_mail *, char *, size_t), void (**close)(void), ckpt_err *err)
{
    const char *given = secure_getenv("CKPT_MPI_PLUGIN");
    char path[LOAD_PATH + 64];
    void *plugin;

    // Open MPI's own plugins look for its functions among those of all libraries
    if (given && *given)
        plugin = dlopen(given, RTLD_NOW | RTLD_GLOBAL);
    else if (load_beside(path, sizeof path))
        plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    else
        plugin = dlopen(MAIL_PLUGIN, RTLD_NOW | RTLD_GLOBAL);
    if (!plugin)
        return fail(err, CKPT_EUNSUPPORTED,
                    "a launcher has started several processes, and the MPI plugin cannot be "
                    "loaded: %.300s; build where mpicc is (Debian: libopenmpi-dev), or start one "
                    "process (CKPT_MPI=no)",
                    dlerror());
    if (!load_find(plugin, MAIL_OPEN, start) || !load_find(plugin, MAIL_CLOSE, close))
        return fail(err, CKPT_EUNSUPPORTED, "%s is no plugin of this program", MAIL_PLUGIN);
    return CKPT_OK;
}
