/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h: what every step of the reader is handed: where the result goes, and how to say what
 * is wrong.
 */
#ifndef CKPT_FORMATS_DS_JOB_H
#define CKPT_FORMATS_DS_JOB_H

#include "libckpt/format.h"

/* What was asked for, and where it goes: the map that is made, the options, what reads a file. */
typedef struct ckpt_ds_job {
    ckpt_map *map; /* its path is the tag folder's */
    const ckpt_open_opts *opts;
    ckpt_read_file *read;
    ckpt_err *err;
    bool broken; /* collecting, and something makes the layout unsure: no tensors */
} ckpt_ds_job;

/*
 * Report an inconsistency: fails with the code, or, when collecting, notes it, marks the layout
 * unsure and gives CKPT_OK.
 */
int ckpt_ds_problem(ckpt_ds_job *job, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

#endif
