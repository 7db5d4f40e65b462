/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c: opens the CUDA plugin, or reports why it cannot be opened.
 *
 * If ZEROTRAIN_CUDA_PLUGIN is set, it tries only that path.  Otherwise it tries ../lib beside the
 * program (a build folder, or an installation under any prefix), then the paths of the system's
 * loader.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/load.h"

#include "engine/cuda/api.h"
#include "libckpt/base/plugin.h"

#define CUL_NAME "libzerotrain-cuda.so"

/* Opened once and never closed, because the plugin's threads and driver cannot be unloaded. */
typedef struct cul_plugin {
    void *handle;
    int (*api)(void);
    int (*gpus)(int, unsigned char *);
    int (*device)(zt_device **, int, bool, ckpt_err *);
    void (*name)(int, char *, uint64_t);              /* NULL: a plugin of an older build */
    void (*attention)(zt_device *, char *, uint64_t); /* likewise */
    int (*comm)(zt_comm **, zt_comm *, zt_device *, ckpt_err *);
    ckpt_err err; /* the reason for its absence */
    bool tried;
} cul_plugin;

static cul_plugin cul_it;
static pthread_mutex_t cul_mutex = PTHREAD_MUTEX_INITIALIZER;

/*
 * Open the first plugin that is found.  A file that exists but cannot be opened is an error; no
 * other path is tried then.
 */
static int cul_open(cul_plugin *p, ckpt_err *err)
{
    static const ckpt_plugin_want want = {.file = CUL_NAME,
                                          .variable = "ZEROTRAIN_CUDA_PLUGIN",
                                          .library = "CUDA",
                                          .package = "nvidia-cuda-toolkit"};
    char why[400];

    p->handle = ckpt_plugin_open(&want, why, sizeof why);
    if (p->handle)
        return CKPT_OK;
#ifndef ZT_HAVE_CUDA
    const char *given = getenv(want.variable);

    if (!(given && *given))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "this program was built without CUDA: build it again where nvcc is on "
                         "PATH, or name a plugin in ZEROTRAIN_CUDA_PLUGIN");
#endif
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "the CUDA plugin cannot be loaded: %s", why);
}

static int cul_look(cul_plugin *p, ckpt_err *err)
{
    int rc = cul_open(p, err);

    if (rc != CKPT_OK)
        return rc;
    if (!ckpt_plugin_find(p->handle, "zt_cuda_api", &p->api) ||
        !ckpt_plugin_find(p->handle, "zt_cuda_gpus", &p->gpus) ||
        !ckpt_plugin_find(p->handle, "zt_cuda_device_new", &p->device) ||
        !ckpt_plugin_find(p->handle, "zt_nccl_comm_new", &p->comm))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is not a plugin of zerotrain", CUL_NAME);
    (void)ckpt_plugin_find(p->handle, "zt_cuda_name", &p->name);
    (void)ckpt_plugin_find(p->handle, "zt_cuda_attention", &p->attention);
    if (p->api() != ZT_CUDA_API)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s has plugin interface %d, but this program needs %d: build both from "
                         "the same source",
                         CUL_NAME, p->api(), ZT_CUDA_API);
    return CKPT_OK;
}

/* Get the plugin, or the error of opening it. */
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
    // opening GPU 0 shows whether the GPU, the driver or its version is missing
    rc = p->device(&d, 0, false, err);
    zt_device_free(d);
    return rc == CKPT_OK
               ? ckpt_fail(err, CKPT_EUNSUPPORTED, "the CUDA plugin opens GPU 0 but counts no GPUs")
               : rc;
}

int zt_cuda_identity(int ordinal, unsigned char uuid[16], ckpt_err *err)
{
    const cul_plugin *p;
    int rc = cul_get(&p, err);

    memset(uuid, 0, ZT_CUDA_UUID);
    if (rc == CKPT_OK && p->gpus(ordinal, uuid) <= ordinal)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "this machine has no GPU %d", ordinal);
    return rc;
}

void zt_cuda_card(int ordinal, char *name, uint64_t n)
{
    const cul_plugin *p;
    ckpt_err err = {0};

    name[0] = '\0';
    if (cul_get(&p, &err) == CKPT_OK && p->name)
        p->name(ordinal, name, n);
}

void zt_cuda_attends(zt_device *device, char *text, uint64_t n)
{
    const cul_plugin *p;
    ckpt_err err = {0};

    text[0] = '\0';
    if (cul_get(&p, &err) == CKPT_OK && p->attention)
        p->attention(device, text, n);
}

int zt_cuda_comm(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err)
{
    const cul_plugin *p;
    int rc = cul_get(&p, err);

    *out = NULL;
    return rc == CKPT_OK ? p->comm(out, base, device, err) : rc;
}
