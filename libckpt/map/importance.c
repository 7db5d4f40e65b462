/* SPDX-License-Identifier: Apache-2.0 */
/* importance.c: finds the importance of a tensor's columns. */
#include "libckpt/map/importance.h"

#include <inttypes.h>
#include <string.h>

int ckpt_importance_find(ckpt_importance *out, const ckpt_map *matrix, const ckpt_tensor *t,
                         ckpt_err *err)
{
    const size_t at = ckpt_map_index(matrix, t->name, strlen(t->name));
    const ckpt_importance *by = at == SIZE_MAX ? NULL : matrix->tensors.at[at]->importance;
    const uint64_t columns = t->ndim ? t->shape[t->ndim - 1] : 0;
    const uint64_t rows = t->ndim > 1 ? t->shape[t->ndim - 2] : 1;

    *out = (ckpt_importance){NULL, columns, rows};
    if (!by || t->n_elems == 0)
        return CKPT_OK;
    if (by->columns == t->n_elems / rows) {
        out->of = by->of;
        return CKPT_OK;
    }
    if (strcmp(t->name, "token_embd.weight") == 0 ||
        strcmp(t->name, "per_layer_token_embd.weight") == 0)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "%s: tensor %.200s: the importance matrix has %" PRIu64
                     " values for it, expected %" PRIu64
                     " (columns of all its matrices): the matrix is of another model",
                     matrix->path, t->name, by->columns, t->n_elems / rows);
}
