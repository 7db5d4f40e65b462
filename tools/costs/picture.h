/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h: declares the picture of a rank's memory in each stage, and of its traffic, as bars. */
#ifndef COSTS_PICTURE_H
#define COSTS_PICTURE_H

#include "tools/costs/activations.h"

/*
 * Write a standalone SVG file, which gets its name when it is complete.
 *
 * model    its path, or NULL
 * wide     training in fp32
 * Errors   CKPT_EUSAGE: the file exists and force is off, or it is the model; CKPT_EIO; CKPT_ELIMIT
 */
int picture_write(const char *path, bool force, const acts_job *job, const char *model, bool wide,
                  ckpt_err *err);

#endif
