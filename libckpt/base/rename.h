/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename.h: renameat2, also with a C library that does not declare it, for example musl 1.2.3.
 *
 * A file that includes this header defines _GNU_SOURCE.
 */
#ifndef CKPT_BASE_RENAME_H
#define CKPT_BASE_RENAME_H

#include <stdio.h>

#ifndef RENAME_NOREPLACE
#include <sys/syscall.h>
#include <unistd.h>

#define RENAME_NOREPLACE 1u
#define RENAME_EXCHANGE  2u

static inline int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned how)
{
    return (int)syscall(SYS_renameat2, from_at, from, to_at, to, how);
}
#endif

#endif
