/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_dropout.c: computes dropout on the CPU. */
#include "engine/device/cpu.h"
#include "engine/device/cpu_pool.h"
#include "engine/device/philox.h"

/* Minimum number of elements for another thread. */
#define DO_GRAIN (16u * ZT_CPU_BLOCK)

typedef struct do_job {
    ckpt_dtype dt;
    const zt_dropout *a;
} do_job;

/* Process elements at .. at + n, at most ZT_CPU_BLOCK. */
static void do_block(const do_job *j, uint64_t at, uint64_t n)
{
    const zt_dropout *a = j->a;
    float x[ZT_CPU_BLOCK], other[ZT_CPU_BLOCK];

    zt_cpu_load(j->dt, x, a->x, at, n);
    if (a->p > 0) {
        zt_philox_keep(a->seed, a->p, at, n, other);
        for (uint64_t i = 0; i < n; i++)
            x[i] *= other[i];
    }
    if (a->add) {
        zt_cpu_load(j->dt, other, a->add, at, n);
        for (uint64_t i = 0; i < n; i++)
            x[i] += other[i];
    }
    zt_cpu_store(j->dt, a->y, at, x, n);
}

static void do_body(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const do_job *j = (const do_job *)ctx;

    (void)worker;
    for (uint64_t at = first; at < last; at += ZT_CPU_BLOCK)
        do_block(j, at, last - at < ZT_CPU_BLOCK ? last - at : ZT_CPU_BLOCK);
}

void zt_cpu_dropout(zt_device *d, ckpt_dtype dt, const zt_dropout *a)
{
    do_job j = {.dt = dt, .a = a};

    if (zt_ready(d, dt, zt_ok_dropout(a), "dropout"))
        zt_cpu_parallel(d, a->n, DO_GRAIN, do_body, &j);
}
