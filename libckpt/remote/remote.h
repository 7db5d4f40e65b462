/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote.h: addresses for the rest of the library.
 */
#ifndef CKPT_REMOTE_REMOTE_H
#define CKPT_REMOTE_REMOTE_H

#include "libckpt/base/err.h"

/*
 * Make addresses readable: loads the transport, reads settings and tokens.  Once; later calls cost
 * nothing.
 *
 * Errors   CKPT_EUNSUPPORTED: the transport is not there, or the library was built without;
 *          CKPT_EUSAGE: a setting in the environment is wrong
 */
int ckpt_remote_begin(ckpt_err *err);

#endif
