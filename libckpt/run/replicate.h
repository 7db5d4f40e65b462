/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicate.h: copies files that several machines need from the machine that made them to the
 * others.
 */
#ifndef CKPT_RUN_REPLICATE_H
#define CKPT_RUN_REPLICATE_H

#include "libckpt/run/finish.h"

/*
 * Collective. Copy the finished files (ckpt_joint_copied), check their CRCs, and finish the copies.
 *
 * Each round doubles the machines that have a file, so that no machine sends it to all others.
 *
 * n_written  increased by the bytes that this process has written
 * Errors     CKPT_EIO: the received bytes have a wrong CRC; those of reading and writing
 */
int ckpt_replicate(ckpt_finish *f, unsigned n_workers, uint64_t *n_written, ckpt_err *err);

#endif
