/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfile.h: selects the hosts and slots of a job, in the way of DeepSpeed's launcher.
 *
 * Source: deepspeed/launcher/runner.py 0.19.8; the tests have cases with its results.
 */
#ifndef CKPT_BASE_HOSTFILE_H
#define CKPT_BASE_HOSTFILE_H

#include "libckpt/base/err.h"
#include "libckpt/base/mem.h"

typedef struct ckpt_host {
    const char *name;
    uint32_t n_slots;
    const uint32_t *slot; /* ascending as selected */
} ckpt_host;

typedef struct ckpt_hosts {
    const ckpt_host *at;
    size_t n;
} ckpt_hosts;

typedef struct ckpt_host_filter {
    const char *include, *exclude; /* "h1@h2:0,2"; NULL or "": none */
    int64_t num_nodes, num_slots;  /* --num_nodes, --num_gpus; below 1: not given */
} ckpt_host_filter;

/* Errors  CKPT_EFORMAT: a line (its number); CKPT_EMISSING; CKPT_EUSAGE: a filter */
int ckpt_hosts_parse(ckpt_hosts *out, ckpt_arena *arena, const char *text, size_t n,
                     const char *name, ckpt_err *err);
int ckpt_hosts_read(ckpt_hosts *out, ckpt_arena *arena, const char *path, ckpt_err *err);
int ckpt_hosts_filter(ckpt_hosts *out, ckpt_arena *arena, const ckpt_hosts *all,
                      const ckpt_host_filter *f, ckpt_err *err);

/* Arguments for mpirun: "-np 4 --host a:2,b:2 ...", NULL-terminated; NULL: out of memory. */
const char *const *ckpt_hosts_mpirun(ckpt_arena *arena, const ckpt_hosts *hosts);

#endif
