/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.h: one map taking over another: its files, its sources and everything that names them.
 *
 * A checkpoint of several parts (model-parallel ranks, layers, experts) is read part by part, each
 * into a map of its own, and the parts are then put into one map.  Nothing is copied but the tables
 * of files and sources: tensors, trees and texts stay where they are, and the part lives as long as
 * the map that adopted it.  merge.h says when a map is merged instead.
 */
#ifndef CKPT_MAP_ADOPT_H
#define CKPT_MAP_ADOPT_H

#include "libckpt/map/map.h"

/*
 * Append a child's files and sources to a map, and let the child's extents and storages name them
 * there.
 *
 * child   a map that was read; from CKPT_OK on it belongs to `map` and is freed with it, until then
 *         to the caller. Its findings move to the map; its facts and values stay its own.
 * prefix  its tensors are entered in the map's list under prefix + name, and its states move to the
 *         map under that prefix; NULL: they do not, and the caller makes tensors of them
 * Errors  CKPT_EFORMAT: a name is there already; CKPT_ELIMIT.  The child can then only be freed.
 */
int ckpt_map_adopt(ckpt_map *map, ckpt_map *child, const char *prefix, ckpt_err *err);

#endif
