/* SPDX-License-Identifier: Apache-2.0 */
/*
 * importance.h: looks up an importance matrix that was read.
 */
#ifndef CKPT_MAP_IMPORTANCE_H
#define CKPT_MAP_IMPORTANCE_H

#include "libckpt/base/weigh.h"
#include "libckpt/map/map.h"

/*
 * Find the importance of the columns of a tensor by its name; out->of is NULL if the matrix has no
 * entry for it.
 *
 * Errors   CKPT_EMISMATCH: the entry has another size. That of an embedding counts as absent then,
 *          as in llama.cpp
 */
int ckpt_importance_find(ckpt_importance *out, const ckpt_map *matrix, const ckpt_tensor *t,
                         ckpt_err *err);

#endif
