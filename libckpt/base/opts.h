/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h: option structs as callers have them, whatever release they were compiled for.
 *
 * Each begins with its size as its caller knows it.  0 is that of the first release, whose structs
 * are those of now, or ckpt_opts_take_since's.
 */
#ifndef CKPT_OPTS_H
#define CKPT_OPTS_H

#include "libckpt/base/err.h"

/*
 * Copy a caller's struct into our own of room bytes.  Members that the caller does not know are
 * zero, which is their default; of those that we do not know all bytes must be.  theirs may be
 * NULL: all defaults.
 *
 * Errors   CKPT_EUSAGE: it asks for something that this release does not have, or has no such size
 */
int ckpt_opts_take(void *own, size_t room, const void *theirs, const char *what, ckpt_err *err);

/* The same for a struct of `first` bytes in the first release, which a size of 0 stands for. */
int ckpt_opts_take_since(void *own, size_t room, size_t first, const void *theirs, const char *what,
                         ckpt_err *err);

/* The other way, for a struct that is filled: as much as its caller has room for; NULL is fine. */
void ckpt_opts_give(void *theirs, const void *own, size_t room);

#endif
