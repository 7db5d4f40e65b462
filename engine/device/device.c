/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: owns the part that all kinds of devices share: the first failure, and freeing. */
#include "engine/device/device.h"

#include <pthread.h>

// needed, because operations can fail in several threads of a device
static pthread_mutex_t dv_mutex = PTHREAD_MUTEX_INITIALIZER;

void zt_device_fail(zt_device *d, int code, const char *text)
{
    if (!d || code == CKPT_OK)
        return;
    pthread_mutex_lock(&dv_mutex);
    ckpt_fail(&d->err, code, "%s device: %s", d->ops ? d->ops->name : "a", text ? text : "failed");
    pthread_mutex_unlock(&dv_mutex);
}

int zt_device_check(zt_device *d, ckpt_err *err)
{
    if (!d)
        return ckpt_fail(err, CKPT_EUSAGE, "no device");
    pthread_mutex_lock(&dv_mutex);
    ckpt_err first = d->err;
    pthread_mutex_unlock(&dv_mutex);
    if (first.code == CKPT_OK)
        return CKPT_OK;
    return ckpt_fail(err, first.code, "%s", first.text);
}

void zt_device_free(zt_device *d)
{
    if (d)
        d->ops->free(d);
}
