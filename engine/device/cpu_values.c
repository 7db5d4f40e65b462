/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_values.c: converts values of any dtype to and from fp32, for the operations of the CPU
 * device.
 */
#include "engine/device/cpu.h"
#include "libckpt/base/cast.h"

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
