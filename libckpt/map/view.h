/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h: turns a strided view of a storage, from the tree of values, into a tensor's extent.
 */
#ifndef CKPT_MAP_VIEW_H
#define CKPT_MAP_VIEW_H

#include "libckpt/map/map.h"

/* True if the elements are row-major without gaps; strides of axes of one element do not matter. */
bool ckpt_view_is_plain(const ckpt_tensor_value *v);

/*
 * Give a tensor the one extent that a view describes: flat if the elements have no gaps, else a box
 * with the view's own strides.
 *
 * t        of the view's dtype and shape; one without elements gets no extent
 * v        has a storage
 * source   index of the storage's bytes in the map
 * file     begins messages
 * Errors   CKPT_EFORMAT: the view begins outside its storage, or a stride overflows; CKPT_ELIMIT
 */
int ckpt_view_back(ckpt_map *map, ckpt_tensor *t, const ckpt_tensor_value *v, uint32_t source,
                   const char *file, ckpt_err *err);

#endif
