/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ties.h: declares the comparison of a tied head with its table.
 */
#ifndef CKPT_TRANSFORM_TIES_H
#define CKPT_TRANSFORM_TIES_H

#include "libckpt/map/map.h"

/* The head that has a tensor of its own; NULL: there is none. */
ckpt_tensor *ckpt_ties_head(const ckpt_map *map);

/*
 * Make the head another name of the embedding, so that the run compares both.
 *
 * Errors  CKPT_EMISMATCH: shapes or dtypes differ; CKPT_EMISSING: there is no embedding
 */
int ckpt_ties_prove(ckpt_map *map, ckpt_tensor *head, ckpt_err *err);

#endif
