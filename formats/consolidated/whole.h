/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole.h: declares the check that a folder has the files of all ranks.
 */
#ifndef CKPT_FORMATS_CONSOLIDATED_WHOLE_H
#define CKPT_FORMATS_CONSOLIDATED_WHOLE_H

#include "libckpt/format.h"

/*
 * Compare the sizes of a map's tensors with those of the whole model, to find missing ranks.
 *
 * map     tensors of n ranks; with several ranks under "mp_rank_RR/"
 * list    the folder; its params.json is used if present
 * Errors  CKPT_EMISSING: ranks, layers or rows are missing; CKPT_EMISMATCH: params.json belongs to
 *         another model.  If the map collects findings, both become findings
 */
int ckpt_con_whole(ckpt_map *map, const ckpt_listing *list, uint32_t n, ckpt_err *err);

#endif
