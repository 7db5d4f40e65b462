/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.h: joining maps of single files into the map of the folder they stand in.
 *
 * There are two ways from a map into another.  Merging copies: tensors that the caller chooses, and
 * names, one at a time, and the other map is freed (files of a model folder).  Adopting (adopt.h)
 * moves: trees and states come along, which would be much to copy and name their sources in many
 * places, and the other map lives on inside (parts of a checkpoint).  Files and sources go the same
 * way in both: ckpt_map_merge_files.
 */
#ifndef CKPT_MERGE_H
#define CKPT_MERGE_H

#include "libckpt/map/map.h"

/*
 * Append the files and sources of one map to another.
 *
 * file_base    gets the index in `into` of from's file 0
 * source_base  gets the index in `into` of from's source 0: what ckpt_map_merge_tensor needs
 * Errors       CKPT_ELIMIT
 */
int ckpt_map_merge_files(ckpt_map *into, const ckpt_map *from, uint32_t *file_base,
                         uint32_t *source_base, ckpt_err *err);

/*
 * Append a tensor of another map under a name of the caller's choice, with its extents and its
 * twin.
 *
 * A tied tensor is tied to the tensor of `into` that has its owner's own name.  Where there is none
 * (the owner is dropped, or comes later), it takes over the owner's bytes; a caller who renames
 * sets
 * (*out)->owner itself.
 * source_base  where ckpt_map_merge_files put the sources of t's map
 * Errors       CKPT_EFORMAT: the name is taken; CKPT_ELIMIT
 */
int ckpt_map_merge_tensor(ckpt_map *into, const char *name, const ckpt_tensor *t,
                          uint32_t source_base, ckpt_tensor **out, ckpt_err *err);

/* Append what was noticed and the string pairs; of pairs with one key the first stays. */
int ckpt_map_merge_notes(ckpt_map *into, const ckpt_map *from, ckpt_err *err);

#endif
