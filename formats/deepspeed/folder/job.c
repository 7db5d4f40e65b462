/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c: reports problems of a DeepSpeed folder as errors, or as findings when the caller collects
 * them.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "formats/deepspeed/folder/job.h"

int ckpt_ds_problem(ckpt_ds_job *job, int code, const char *fmt, ...)
{
    assert(job && code != CKPT_OK && fmt);
    char text[sizeof job->err->text];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    job->broken = true;
    return ckpt_map_problem(job->map, code, job->err, "%s", text);
}
