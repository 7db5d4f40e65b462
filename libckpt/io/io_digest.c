/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_digest.c: computes the SHA-256 of a file.
 */
#include "libckpt/io/io_digest.h"
#include "libckpt/base/digest.h"

/* Bytes of one read: enough to make the calls cheap, little enough to stay in the second cache. */
enum { IOD_BLOCK = 256 * 1024 };

int ckpt_io_sha256(uint8_t out[32], ckpt_io *io, ckpt_progress *progress, ckpt_err *err)
{
    uint64_t block = io->size < IOD_BLOCK ? io->size : IOD_BLOCK;
    uint8_t *buf = ckpt_alloc((size_t)block + 1);
    ckpt_sha256 *s = NULL;
    int rc = buf ? ckpt_sha256_new(&s, err) : ckpt_fail_memory(err);

    for (uint64_t at = 0; rc == CKPT_OK && at < io->size; at += block) {
        uint64_t n = io->size - at < block ? io->size - at : block;

        rc = ckpt_io_read(io, buf, n, at, err);
        if (rc == CKPT_OK)
            rc = ckpt_sha256_add(s, buf, (size_t)n, err);
        if (rc == CKPT_OK && progress)
            rc = ckpt_progress_add(progress, n, err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_sha256_end(s, out, err);
    ckpt_sha256_free(s);
    ckpt_free(buf);
    return rc;
}
