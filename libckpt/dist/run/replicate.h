/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicate.h: copies files that several machines need from the machine that made them to the
 * others.
 */
#ifndef CKPT_DIST_RUN_REPLICATE_H
#define CKPT_DIST_RUN_REPLICATE_H

#include "libckpt/run/peers.h"

/*
 * Collective, the copy hook of a team (peers.h). Copy the finished files, check their CRCs, and
 * finish the copies.
 *
 * Each round doubles the machines that have a file, so that no machine sends it to all others.
 *
 * Errors     CKPT_EIO: the received bytes have a wrong CRC; those of reading and writing
 */
int ckpt_replicate(ckpt_peers *p, ckpt_work *work, const uint32_t *crc, unsigned n_workers,
                   uint64_t *n_written, ckpt_err *err);

#endif
