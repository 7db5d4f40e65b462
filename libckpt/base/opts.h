/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h: converts option structs of callers that were compiled for another release.
 *
 * Each struct begins with its size in the caller's release. 0 means the first release: the current
 * size, or the size given to ckpt_opts_take_since.
 */
#ifndef CKPT_OPTS_H
#define CKPT_OPTS_H

#include "libckpt/base/err.h"

/*
 * Copy a caller's struct into our own of room bytes. Members that the caller does not have become
 * zero, which is their default; members that we do not have must be zero. theirs may be NULL: all
 * defaults.
 *
 * Errors   CKPT_EUSAGE: the caller sets a member that this release lacks, or the size is impossible
 */
int ckpt_opts_take(void *own, size_t room, const void *theirs, const char *what, ckpt_err *err);

/*
 * The same for a struct that has grown: a size of 0 means `first`, its size in the first release.
 */
int ckpt_opts_take_since(void *own, size_t room, size_t first, const void *theirs, const char *what,
                         ckpt_err *err);

/*
 * The reverse for an output struct: copy as much as the caller's struct has room for; NULL is fine.
 */
void ckpt_opts_give(void *theirs, const void *own, size_t room);

#endif
