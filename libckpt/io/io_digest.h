/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_digest.h: computes the SHA-256 of a file.
 */
#ifndef CKPT_IO_IO_DIGEST_H
#define CKPT_IO_IO_DIGEST_H

#include "libckpt/io/io.h"
#include "libckpt/io/thread_pool.h"

/*
 * SHA-256 of all bytes of an open file.
 *
 * progress  gets the bytes read; or NULL
 * Errors    those of ckpt_io_read; CKPT_ELIMIT; CKPT_ECANCELED: the progress callback has stopped
 */
int ckpt_io_sha256(uint8_t out[32], ckpt_io *io, ckpt_progress *progress, ckpt_err *err);

#endif
