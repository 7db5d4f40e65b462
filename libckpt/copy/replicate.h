/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicate.h: files that several machines get, from the one that has made them to the others.
 */
#ifndef CKPT_COPY_REPLICATE_H
#define CKPT_COPY_REPLICATE_H

#include "libckpt/copy/finish.h"

/*
 * Collective.  Copy what is finished (ckpt_joint_copied), prove it, and finish it here too.
 *
 * Each round doubles the machines that have a file, so that none sends it to all of them.
 *
 * n_written  is added to: bytes that this process has written
 * Errors     CKPT_EIO: what has arrived is not what was made; those of reading and writing
 */
int ckpt_replicate(ckpt_finish *f, unsigned n_workers, uint64_t *n_written, ckpt_err *err);

#endif
