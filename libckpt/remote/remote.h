/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.h: prepares the library for remote addresses.
 */
#ifndef CKPT_REMOTE_REMOTE_H
#define CKPT_REMOTE_REMOTE_H

#include "libckpt/base/err.h"

/*
 * Prepare the reading of addresses: load the transport, read settings and tokens.  Only the first
 * call does this work.
 *
 * Errors   CKPT_EUNSUPPORTED: the transport is not installed, or the library was built without it;
 *          CKPT_EUSAGE: a setting in the environment is wrong
 */
int ckpt_remote_begin(ckpt_err *err);

#endif
