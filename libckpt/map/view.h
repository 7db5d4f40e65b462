/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h: a strided view of a storage, as trees of values have them, as the extent of a tensor.
 */
#ifndef CKPT_MAP_VIEW_H
#define CKPT_MAP_VIEW_H

#include "libckpt/map/map.h"

/* True if the elements lie row-major without gaps; strides of axes of one element do not count. */
bool ckpt_view_is_plain(const ckpt_tensor_value *v);

/*
 * Give a tensor the one extent that a view describes: flat where the elements lie without gaps,
 * else a box with the view's own strides.
 *
 * t       of the view's dtype and shape; one without elements gets no extent
 * v       has a storage
 * source  what the map calls the storage's bytes
 * file    begins messages
 * Errors  CKPT_EFORMAT: the view begins outside its storage, or a stride overflows; CKPT_ELIMIT
 */
int ckpt_view_back(ckpt_map *map, ckpt_tensor *t, const ckpt_tensor_value *v, uint32_t source,
                   const char *file, ckpt_err *err);

#endif
