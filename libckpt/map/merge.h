/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.h: merges maps of single files into the map of their folder.
 *
 * There are two ways to put one map into another. Merging copies: the caller chooses tensors and
 * their names one at a time, and the other map is freed (files of a model folder). Adopting
 * (adopt.h) moves: trees and states come along, because they are large and refer to their sources
 * in many places, and the other map lives on inside (parts of a checkpoint). Both append files and
 * sources with ckpt_map_merge_files.
 */
#ifndef CKPT_MERGE_H
#define CKPT_MERGE_H

#include "libckpt/map/map.h"

/*
 * Append the files and sources of one map to another.
 *
 * file_base    gets the index in `into` of from's file 0
 * source_base  gets the index in `into` of from's source 0, for ckpt_map_merge_tensor
 * Errors       CKPT_ELIMIT
 */
int ckpt_map_merge_files(ckpt_map *into, const ckpt_map *from, uint32_t *file_base,
                         uint32_t *source_base, ckpt_err *err);

/*
 * Append a tensor of another map under a given name, with its extents and its twin.
 *
 * A tied tensor is tied to the tensor of `into` that has its owner's name. If there is none,
 * because the owner was dropped or comes later, it gets the owner's bytes. A caller that renames
 * sets (*out)->owner itself.
 * source_base  from ckpt_map_merge_files, for the map of t
 * Errors       CKPT_EFORMAT: the name is taken; CKPT_ELIMIT
 */
int ckpt_map_merge_tensor(ckpt_map *into, const char *name, const ckpt_tensor *t,
                          uint32_t source_base, ckpt_tensor **out, ckpt_err *err);

/* Append findings and string pairs; the first of several pairs with one key wins. */
int ckpt_map_merge_notes(ckpt_map *into, const ckpt_map *from, ckpt_err *err);

#endif
