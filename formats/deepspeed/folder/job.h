/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h: declares the context of all reading steps and the report of problems.
 */
#ifndef CKPT_FORMATS_DS_JOB_H
#define CKPT_FORMATS_DS_JOB_H

#include "libckpt/format.h"

/* Output map, options, file reader and error of one gather. */
typedef struct ckpt_ds_job {
    ckpt_map *map; /* the output map; its path is the tag folder */
    const ckpt_open_opts *opts;
    ckpt_read_file *read;
    ckpt_err *err;
    bool broken; /* when collecting findings: the layout is unreliable, so no tensors are added */
} ckpt_ds_job;

/*
 * Reports an inconsistency: fails with the code or, when the caller collects findings, records a
 * finding, sets job->broken and returns CKPT_OK.
 */
int ckpt_ds_problem(ckpt_ds_job *job, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

#endif
