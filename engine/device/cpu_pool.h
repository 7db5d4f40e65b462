/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_pool.h: declares the threads of the CPU device, and the scratch memory that each thread
 * keeps.
 *
 * One job runs at a time.  The calling thread is worker 0 and takes part.  Bodies must not depend
 * on the borders of ranges, nor on the worker that runs them, so results are equal for any number
 * of threads.
 */
#ifndef ZT_DEVICE_CPU_POOL_H
#define ZT_DEVICE_CPU_POOL_H

#include "engine/device/device.h"

typedef struct zt_cpu_pool zt_cpu_pool;

/* The CPU device behind a zt_device. */
typedef struct zt_cpu {
    zt_device device;
    zt_cpu_pool *pool;
} zt_cpu;

typedef void (*zt_cpu_body)(void *ctx, uint64_t first, uint64_t last, unsigned worker);

/* n_threads 0: one per CPU on which this process may run. */
int zt_cpu_pool_new(zt_cpu_pool **out, unsigned n_threads, ckpt_err *err);
void zt_cpu_pool_free(zt_cpu_pool *p);

/*
 * Split 0..n into ranges and run body on each; returns when all are done.
 *
 * grain   ranges begin at its multiples and only the last one may be shorter; 0 stands for 1.
 *         Choose it so that a range takes about 10 us or more; a worker may get several ranges in
 *         turn
 * worker  the number of the thread, below the device's number of threads
 *
 * A body must not call this again, because only one job runs at a time.  It may call
 * zt_device_fail.
 */
void zt_cpu_parallel(zt_device *d, uint64_t n, uint64_t grain, zt_cpu_body body, void *ctx);

/*
 * Scratch of one worker: n_bytes aligned to 64, contents undefined.  It stays valid until the
 * worker's next call, which may return other memory.  NULL: no memory; the device has failed.
 */
void *zt_cpu_scratch(zt_device *d, unsigned worker, uint64_t n_bytes);

#endif
