/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.h: are the files of all ranks there, by params.json and by the shapes of their slices?
 */
#ifndef CKPT_FORMATS_CONSOLIDATED_WHOLE_H
#define CKPT_FORMATS_CONSOLIDATED_WHOLE_H

#include "libckpt/format.h"

/*
 * Hold what is in a map against what says how large the model is.
 *
 * map   tensors of n ranks; of several ones under "mp_rank_RR/"
 * list  the folder; params.json is read where it is there
 * Errors  CKPT_EMISSING: ranks, layers or rows that should be there are not; CKPT_EMISMATCH:
 *         params.json is of another model; both are findings where the map collects them
 */
int ckpt_con_whole(ckpt_map *map, const ckpt_listing *list, uint32_t n, ckpt_err *err);

#endif
