/* SPDX-License-Identifier: Apache-2.0 */
/* made_from.h: declares the proof that a checkpoint is the conversion of another one. */
#ifndef TOOLS_CKPT_MADE_FROM_H
#define TOOLS_CKPT_MADE_FROM_H

#include "tools/ckpt/prepare.h"
#include "tools/cli/json_out.h"

/* What the proof has found. */
typedef struct made_from_counts {
    uint64_t tensors;   /* compared */
    uint64_t different; /* wrong values, shapes or dtypes */
    uint64_t missing, additional;
} made_from_counts;

/*
 * Compare every tensor of a checkpoint with the values that ckpt convert would write, and print the
 * differences (not if j is set: then they become elements of its open array).
 *
 * a        the options of the conversion; its source is the operand
 * out      the path of the checkpoint, whatever program has written it
 * Errors   CKPT_EDIFFERS; CKPT_EUNSUPPORTED: a format with training state; those of convert_prepare
 */
int made_from_prove(prepare_args *a, const char *out, double tolerance, json_out *j,
                    made_from_counts *n, ckpt_err *err);

#endif
