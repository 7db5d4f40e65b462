/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prepare.c: acquires resources early, for programs that drop privileges.
 */
#include "ckpt_extra.h"
#include "libckpt/base/digest.h"
#include "libckpt/format.h"
#include "libckpt/io/spool.h"
#include "libckpt/remote/remote.h"

/* Use a digest once: this reads OpenSSL's configuration and loads the providers in it. */
static int prepare_digest(ckpt_err *err)
{
    ckpt_sha256 *sha = NULL;
    uint8_t digest[32];
    int rc = ckpt_sha256_new(&sha, err);

    if (rc == CKPT_OK)
        rc = ckpt_sha256_end(sha, digest, err);
    ckpt_sha256_free(sha);
    return rc;
}

int ckpt_prepare(unsigned flags, ckpt_err *err)
{
    ckpt_err_clear(err);
    int rc = flags & CKPT_PREPARE_WRITE ? prepare_digest(err) : CKPT_OK;

    if (rc == CKPT_OK && (flags & CKPT_PREPARE_FETCH))
        rc = ckpt_remote_begin(err);
    return rc == CKPT_OK && (flags & CKPT_PREPARE_READ) ? ckpt_spool_prepare(err) : rc;
}
