/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp.h: system calls that a reader of checkpoints never needs fail from now on.
 */
#ifndef TOOLS_SECCOMP_H
#define TOOLS_SECCOMP_H

#include <stdbool.h>

/* This kernel and this processor have it. */
bool seccomp_known(void);

/*
 * From now on, for this thread and all that it starts; needs no_new_privs.  False: refused.
 *
 * network  connections to other machines are made: by TCP and UDP, and nobody connects to us
 * files    descriptors are taken from a socket that is there
 */
bool seccomp_enforce(bool network, bool files);

#endif
