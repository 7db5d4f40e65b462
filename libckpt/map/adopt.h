/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.h: lets one map take over another: its files, its sources and everything that refers to
 * them.
 *
 * ckpt reads a checkpoint of several parts (model-parallel ranks, layers, experts) part by part,
 * each into its own map, and then puts the parts into one map. Only the tables of files and sources
 * are copied: tensors, trees and texts stay in place, because the part lives as long as the map
 * that adopted it. merge.h explains when a map is merged instead.
 */
#ifndef CKPT_MAP_ADOPT_H
#define CKPT_MAP_ADOPT_H

#include "libckpt/map/map.h"

/*
 * Append a child's files and sources to a map, and make the child's extents and storages refer to
 * them there.
 *
 * child   a map that was read. It belongs to `map` and is freed with it after CKPT_OK; before that
 *         it stays the caller's. Its findings move to the map; its facts and values stay its own.
 * prefix  adds its tensors to the map's list as prefix + name and moves its states to the map under
 *         that prefix; NULL: neither, because the caller makes tensors from them
 * Errors  CKPT_EFORMAT: a name exists already; CKPT_ELIMIT. The child can then only be freed.
 */
int ckpt_map_adopt(ckpt_map *map, ckpt_map *child, const char *prefix, ckpt_err *err);

#endif
