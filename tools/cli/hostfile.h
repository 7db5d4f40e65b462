/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostfile.h: which slots of which hosts a job uses, as DeepSpeed's launcher understands it.
 *
 * Source: deepspeed/launcher/runner.py 0.19.8; cases with results in the tests.
 */
#ifndef TOOLS_CLI_HOSTFILE_H
#define TOOLS_CLI_HOSTFILE_H

#include "libckpt/base/err.h"
#include "libckpt/base/mem.h"

typedef struct cli_host {
    const char *name;
    uint32_t n_slots;
    const uint32_t *slot; /* ascending as selected */
} cli_host;

typedef struct cli_hosts {
    const cli_host *at;
    size_t n;
} cli_hosts;

typedef struct cli_host_filter {
    const char *include, *exclude; /* "h1@h2:0,2"; NULL or "": none */
    int64_t num_nodes, num_slots;  /* --num_nodes, --num_gpus; below 1: not given */
} cli_host_filter;

/* Errors  CKPT_EFORMAT: a line (its number); CKPT_EMISSING; CKPT_EUSAGE: a filter */
int cli_hosts_parse(cli_hosts *out, ckpt_arena *arena, const char *text, size_t n, const char *name,
                    ckpt_err *err);
int cli_hosts_read(cli_hosts *out, ckpt_arena *arena, const char *path, ckpt_err *err);
int cli_hosts_filter(cli_hosts *out, ckpt_arena *arena, const cli_hosts *all,
                     const cli_host_filter *f, ckpt_err *err);

/* Arguments for mpirun: "-np 4 --host a:2,b:2 ...", NULL-terminated; NULL: out of memory. */
const char *const *cli_hosts_mpirun(ckpt_arena *arena, const cli_hosts *hosts);

#endif
