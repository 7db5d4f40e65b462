/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tied.h: declares the search for the tensor that a tied name repeats.
 *
 * Formats differ in the names that they store of tied weights: a folder of transformers has the
 * table alone, a state dict also the head.
 */
#ifndef CKPT_INSPECT_TIED_H
#define CKPT_INSPECT_TIED_H

#include "ckpt.h"
#include "libckpt/map/map.h"

/*
 * Find the tensor that t repeats and that another map has too: one with the same bytes, or the
 * table of a head with equal values, which ckpt reads.
 *
 * r      reads t's map
 * *out   NULL: t repeats no tensor of both maps
 * Errors those of reading
 */
int ckpt_tied_to(const ckpt_tensor **out, const ckpt_map *map, const ckpt_map *other,
                 ckpt_reader *r, const ckpt_tensor *t, ckpt_err *err);

#endif
