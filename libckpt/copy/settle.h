/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settle.h: finding the bytes of sources that lie inside archives of their own.
 */
#ifndef CKPT_COPY_SETTLE_H
#define CKPT_COPY_SETTLE_H

#include "libckpt/map/map.h"

/*
 * Find the bytes of all sources that a tensor's extents name, and those of its twins and addends.
 * Several threads may ask for the same map at once.  Nothing is done for maps without such sources.
 *
 * Errors  those of the driver's settle; CKPT_EIO: a file changed since the map was read
 */
int ckpt_settle(const ckpt_map *map, const ckpt_tensor *t, ckpt_err *err);

/* The same for a list of n tensors. */
int ckpt_settle_all(const ckpt_map *map, const ckpt_tensor *const *t, size_t n, ckpt_err *err);

#endif
