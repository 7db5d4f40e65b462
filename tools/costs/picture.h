/* SPDX-License-Identifier: Apache-2.0 */
/*
 * picture.h: what training takes, as bars: memory of a rank in each stage, and what it sends.
 */
#ifndef COSTS_PICTURE_H
#define COSTS_PICTURE_H

#include "tools/costs/activations.h"

/*
 * Write an SVG of its own, which gets its name when it is complete.
 *
 * model    its path, or NULL
 * wide     training in fp32
 * Errors   CKPT_EUSAGE: there is such a file and force is off, or it is the model's; CKPT_EIO;
 *          CKPT_ELIMIT
 */
int picture_write(const char *path, bool force, const acts_job *job, const char *model, bool wide,
                  ckpt_err *err);

#endif
