/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_values.c: what operations of the CPU device begin with: checks, and values of any dtype as
 * fp32.
 */
#include <string.h>

#include "engine/device/cpu.h"
#include "libckpt/base/cast.h"

bool zt_cpu_ready(zt_device *d, ckpt_dtype dt, bool ok, const char *operation)
{
    if (!d || d->err.code != CKPT_OK)
        return false;
    char text[160] = "";
    int code = CKPT_OK;
    const char *what = NULL;
    if (!ok) {
        code = CKPT_EUSAGE;
        what = ": an argument that it needs is missing or out of range";
    } else if (dt != CKPT_F32 && dt != CKPT_BF16 && dt != CKPT_F16) {
        code = CKPT_EUNSUPPORTED;
        what = ": dtypes are F32, BF16, F16";
    } else {
        return true;
    }
    strncat(text, operation, 80);
    strncat(text, what, 79);
    zt_device_fail(d, code, text);
    return false;
}

void zt_cpu_load(ckpt_dtype dt, float *to, const void *from, uint64_t at, uint64_t n)
{
    ckpt_cast_find(CKPT_F32, dt)(to, zt_cpu_const_at(dt, from, at), n);
}

void zt_cpu_store(ckpt_dtype dt, void *to, uint64_t at, const float *from, uint64_t n)
{
    ckpt_cast_find(dt, CKPT_F32)(zt_cpu_at(dt, to, at), from, n);
}

const float *zt_cpu_read(ckpt_dtype dt, const void *x, uint64_t at, uint64_t n, float *room)
{
    if (dt == CKPT_F32)
        return (const float *)x + at;
    zt_cpu_load(dt, room, x, at, n);
    return room;
}
