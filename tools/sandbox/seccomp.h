/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp.h: declares the filter that refuses system calls which a reader of checkpoints never
 * needs.
 */
#ifndef TOOLS_SECCOMP_H
#define TOOLS_SECCOMP_H

#include <stdbool.h>

/* True if this kernel and this architecture support it. */
bool seccomp_known(void);

/*
 * Enforce the filter for this thread and all that it starts; needs no_new_privs.  False: the kernel
 * refused.
 *
 * network  allow TCP and UDP to other machines, but no incoming connections
 * files    allow receiving descriptors from an existing socket
 */
bool seccomp_enforce(bool network, bool files);

#endif
