/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c: owns the opening of the CUDA plugin, and what is said where there is none.
 *
 * Where it is looked for: the path in ZEROTRAIN_CUDA_PLUGIN, which then is the only one; else
 * ../lib beside the program (a build folder, or an installation under any prefix), then where the
 * system's loader looks.
 */
#define _GNU_SOURCE // secure_getenv
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cuda/load.h"

#include "engine/cuda/api.h"

#define CUL_NAME "libzerotrain-cuda.so"
#define CUL_PATH 4096

/* Looked up once; the plugin stays open, for its threads and its driver cannot be unloaded. */
typedef struct cul_plugin {
    void *handle;
    int (*api)(void);
    int (*gpus)(int, unsigned char *);
    int (*device)(zt_device **, int, bool, ckpt_err *);
    int (*comm)(zt_comm **, zt_comm *, zt_device *, ckpt_err *);
    ckpt_err err; /* why there is none */
    bool tried;
} cul_plugin;

static cul_plugin cul_it;
static pthread_mutex_t cul_mutex = PTHREAD_MUTEX_INITIALIZER;

/* In ../lib/ckpt (installed) or ../lib (built) beside the program; false: in neither. */
static bool cul_beside(char *out, size_t room)
{
    static const char *const places[] = {"lib/ckpt", "lib"};
    char exe[CUL_PATH];
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
        int m = snprintf(out, room, "%s/../%s/%s", exe, places[i], CUL_NAME);
        if (m > 0 && (size_t)m < room && access(out, F_OK) == 0)
            return true;
    }
    return false;
}

/* Open the first that opens; a file that is there and does not open is told rather than passed
 * over. */
static int cul_open(cul_plugin *p, ckpt_err *err)
{
    const char *given = secure_getenv("ZEROTRAIN_CUDA_PLUGIN");
    char path[CUL_PATH + 64];
    const char *why;

    if (given && *given)
        p->handle = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    else if (cul_beside(path, sizeof path))
        p->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    else
        p->handle = dlopen(CUL_NAME, RTLD_NOW | RTLD_LOCAL);
    if (p->handle)
        return CKPT_OK;
    why = dlerror();
#ifndef ZT_HAVE_CUDA
    if (!(given && *given))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "this program was built without CUDA: build it again where nvcc is on "
                         "PATH, or name a plugin in ZEROTRAIN_CUDA_PLUGIN");
#endif
    // the loader's text names the file, or the CUDA library, that is missing
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "the CUDA plugin cannot be loaded: %.300s",
                     why ? why : CUL_NAME);
}

/* A function of the plugin into the pointer at `to`: ISO C has no cast from an object's pointer. */
static bool cul_find(const cul_plugin *p, const char *name, void *to)
{
    void *at = dlsym(p->handle, name);

    memcpy(to, &at, sizeof at);
    return at != NULL;
}

static int cul_look(cul_plugin *p, ckpt_err *err)
{
    int rc = cul_open(p, err);

    if (rc != CKPT_OK)
        return rc;
    if (!cul_find(p, "zt_cuda_api", &p->api) || !cul_find(p, "zt_cuda_gpus", &p->gpus) ||
        !cul_find(p, "zt_cuda_device_new", &p->device) ||
        !cul_find(p, "zt_nccl_comm_new", &p->comm))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is no plugin of this program", CUL_NAME);
    if (p->api() != ZT_CUDA_API)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s is of interface %d, this program of %d: build both together", CUL_NAME,
                         p->api(), ZT_CUDA_API);
    return CKPT_OK;
}

/* The plugin, or why there is none. */
static int cul_get(const cul_plugin **out, ckpt_err *err)
{
    int rc;

    pthread_mutex_lock(&cul_mutex);
    if (!cul_it.tried) {
        (void)cul_look(&cul_it, &cul_it.err);
        cul_it.tried = true;
    }
    *out = &cul_it;
    rc = cul_it.err.code;
    pthread_mutex_unlock(&cul_mutex);
    return rc == CKPT_OK ? CKPT_OK : ckpt_fail(err, rc, "%s", cul_it.err.text);
}

int zt_cuda_new(zt_device **out, int ordinal, bool deterministic, ckpt_err *err)
{
    const cul_plugin *p;
    int rc = cul_get(&p, err);

    *out = NULL;
    return rc == CKPT_OK ? p->device(out, ordinal, deterministic, err) : rc;
}

int zt_cuda_count(int *n, ckpt_err *err)
{
    const cul_plugin *p;
    zt_device *d = NULL;
    int rc = cul_get(&p, err);

    *n = rc == CKPT_OK ? p->gpus(0, NULL) : 0;
    if (rc != CKPT_OK || *n > 0)
        return rc;
    // no GPU, no driver or one too old: opening one tells which
    rc = p->device(&d, 0, false, err);
    zt_device_free(d);
    return rc == CKPT_OK ? ckpt_fail(err, CKPT_EUNSUPPORTED, "no GPU can be counted") : rc;
}

int zt_cuda_identity(int ordinal, unsigned char uuid[16], ckpt_err *err)
{
    const cul_plugin *p;
    int rc = cul_get(&p, err);

    memset(uuid, 0, ZT_CUDA_UUID);
    if (rc == CKPT_OK && p->gpus(ordinal, uuid) <= ordinal)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "there is no GPU %d", ordinal);
    return rc;
}

int zt_cuda_comm(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err)
{
    const cul_plugin *p;
    int rc = cul_get(&p, err);

    *out = NULL;
    return rc == CKPT_OK ? p->comm(out, base, device, err) : rc;
}
