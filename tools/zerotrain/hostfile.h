/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfile.h: which slots of which hosts a job uses, as DeepSpeed's launcher understands it.
 *
 * Source: deepspeed/launcher/runner.py 0.19.8; cases with results in the tests.
 */
#ifndef ZT_CONFIG_HOSTFILE_H
#define ZT_CONFIG_HOSTFILE_H

#include "libckpt/base/err.h"
#include "libckpt/base/mem.h"

typedef struct zt_host {
    const char *name;
    uint32_t n_slots;
    const uint32_t *slot; /* ascending as selected */
} zt_host;

typedef struct zt_hosts {
    const zt_host *at;
    size_t n;
} zt_hosts;

typedef struct zt_host_filter {
    const char *include, *exclude; /* "h1@h2:0,2"; NULL or "": none */
    int64_t num_nodes, num_slots;  /* --num_nodes, --num_gpus; below 1: not given */
} zt_host_filter;

/* Errors  CKPT_EFORMAT: a line (its number); CKPT_EMISSING; CKPT_EUSAGE: a filter */
int zt_hosts_parse(zt_hosts *out, ckpt_arena *arena, const char *text, size_t n, const char *name,
                   ckpt_err *err);
int zt_hosts_read(zt_hosts *out, ckpt_arena *arena, const char *path, ckpt_err *err);
int zt_hosts_filter(zt_hosts *out, ckpt_arena *arena, const zt_hosts *all, const zt_host_filter *f,
                    ckpt_err *err);

/* Arguments for mpirun: "-np 4 --host a:2,b:2 ...", NULL-terminated; NULL: out of memory. */
const char *const *zt_hosts_mpirun(ckpt_arena *arena, const zt_hosts *hosts);

#endif
