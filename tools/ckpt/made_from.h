/* SPDX-License-Identifier: Apache-2.0 */
/* made_from.h: declares the proof that a command makes a checkpoint from others. */
#ifndef TOOLS_CKPT_MADE_FROM_H
#define TOOLS_CKPT_MADE_FROM_H

#include "tools/ckpt/merge.h"
#include "tools/ckpt/prepare.h"
#include "tools/cli/json_out.h"

/* A proof. */
typedef struct made_from {
    prepare_args *prepare; /* the options; their operands are the sources */
    const merge_how *merge;
    const char *out;       /* the checkpoint, written by any program */
    double tolerance;      /* below 0: as the conversion needs it */
    bool ignore_metadata;  /* only list its differences */
    const char *not_of_it; /* options that no conversion has (made_command_given) */
    json_out *j;           /* print members of its open object; NULL: text */
    /* check the opened sources; a failure ends the proof; or NULL */
    int (*opened)(void *ctx, const ckpt_map *from, ckpt_err *err);
    void *ctx;
} made_from;

/*
 * Compare every tensor and value of a checkpoint with those that ckpt convert, reshard or merge
 * would write, and print the differences and the command.  Nothing is written, and memory stays
 * constant.
 *
 * Errors   CKPT_EDIFFERS; CKPT_EUNSUPPORTED: a format that ckpt does not write; those of
 *          convert_prepare, merge_prepare and the view
 */
int made_from_prove(const made_from *p, ckpt_err *err);

#endif
