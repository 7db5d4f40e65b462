/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.c: finding and loading the transport's library.
 */
#define _GNU_SOURCE // dladdr, secure_getenv
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/remote/fetch.h"

enum { PLG_PATH = 4096 };

/*
 * Near the file that holds this: a program has us linked in, and a library is in a folder of
 * libraries.
 */
static void *plg_beside(void)
{
    static const char *const where[] = {"", "ckpt/", "../ckpt/", "../lib/", "../lib/ckpt/"};
    static const char here;
    char path[PLG_PATH + 64], self[PLG_PATH];
    const char *slash;
    Dl_info info = {0};
    const char *name = dladdr(&here, &info) != 0 ? info.dli_fname : NULL;
    ssize_t n;

    if (name && strchr(name, '/')) {
        (void)snprintf(self, sizeof self, "%s", name);
    } else {
        n = readlink("/proc/self/exe", self, sizeof self - 1);
        self[n > 0 ? n : 0] = 0;
    }
    slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof where / sizeof *where; i++) {
        int m = snprintf(path, sizeof path, "%.*s/%s%s", (int)(slash - self), self, where[i],
                         CKPT_WIRE_PLUGIN);

        if (m > 0 && (size_t)m < sizeof path && access(path, F_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(CKPT_WIRE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
}

int ckpt_wire_load(const ckpt_wire_plugin **out, ckpt_err *err)
{
    const char *given = secure_getenv("CKPT_REMOTE_PLUGIN");
    void *lib = given && *given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : plg_beside();
    const ckpt_wire_plugin *p = NULL;

    if (!lib) {
        const char *why = dlerror();

        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "addresses are read through libcurl, by %s, which cannot be loaded: "
                         "%.200s; it is built where libcurl's headers are (Debian: "
                         "libcurl4-openssl-dev)",
                         CKPT_WIRE_PLUGIN, why ? why : "no reason is known");
    }
    p = dlsym(lib, CKPT_WIRE_TABLE);
    if (!p || p->version != CKPT_WIRE_VERSION)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is of another version than this library",
                         given && *given ? given : CKPT_WIRE_PLUGIN);
    if (p->begin() != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "libcurl cannot be started");
    *out = p;
    return CKPT_OK;
}
