/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nested.h: finds the bytes of sources that are inside nested archives.
 */
#ifndef CKPT_COPY_NESTED_H
#define CKPT_COPY_NESTED_H

#include "libckpt/map/map.h"

/*
 * Find the bytes of all sources of a tensor's extents, and of its twins and addends. Several
 * threads may call it for one map at once. Maps without such sources cost nothing.
 *
 * Errors  those of the driver's settle; CKPT_EIO: a file changed since the map was read
 */
int ckpt_settle(const ckpt_map *map, const ckpt_tensor *t, ckpt_err *err);

/* The same for a list of n tensors. */
int ckpt_settle_all(const ckpt_map *map, const ckpt_tensor *const *t, size_t n, ckpt_err *err);

#endif
