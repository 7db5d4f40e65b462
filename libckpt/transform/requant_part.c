/* SPDX-License-Identifier: Apache-2.0 */
/* requant_part.c: replaces a matrix by computed tensors, for the forms of ckpt_map_quantize. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/map/extent.h"
#include "libckpt/map/nest.h"
#include "libckpt/transform/requant.h"

int ckpt_requant_push(ckpt_requant *w, ckpt_tensor *t)
{
    ckpt_tensor **slot = ckpt_vec_push(&w->made);

    if (!slot)
        return ckpt_fail_memory(w->err);
    *slot = t;
    return CKPT_OK;
}

/* Let a tensor have the elements that make computes. */
static int rqp_back(ckpt_requant *w, ckpt_tensor *t, ckpt_make *make)
{
    uint32_t source = 0;
    int rc;

    make->name = t->name;
    make->dtype = t->dtype;
    rc = ckpt_map_add_made(w->map, make, t->n_elems, &source, w->err);
    return rc == CKPT_OK ? ckpt_map_back_whole(w->map, t, source, 0, w->err) : rc;
}

static int rqp_is_new(const ckpt_requant *w, const char *name)
{
    return ckpt_map_index(w->map, name, strlen(name)) == SIZE_MAX
               ? CKPT_OK
               : ckpt_fail(w->err, CKPT_EMISMATCH, "a tensor %.200s exists already", name);
}

int ckpt_requant_add(ckpt_requant *w, const ckpt_tensor *t, const char *name,
                     const ckpt_tensor *like, ckpt_make *make)
{
    ckpt_tensor as = *like, *made = NULL;
    int rc = rqp_is_new(w, name);

    as.role = t->role;
    as.file = t->file;
    if (rc == CKPT_OK)
        rc = ckpt_map_add_hidden(w->map, name, strlen(name), &as, &made, w->err);
    if (rc == CKPT_OK)
        rc = rqp_back(w, made, make);
    return rc == CKPT_OK ? ckpt_requant_push(w, made) : rc;
}

int ckpt_requant_replace(ckpt_requant *w, ckpt_tensor *t, const char *name, const ckpt_tensor *like,
                         ckpt_make *make)
{
    uint64_t *shape = ckpt_arena_copy(w->map->arena, like->shape, like->ndim * sizeof *shape);
    uint64_t n = 1;
    int rc = shape ? CKPT_OK : ckpt_fail_memory(w->err);

    if (rc == CKPT_OK && strcmp(name, t->name) != 0)
        rc = rqp_is_new(w, name);
    if (rc != CKPT_OK)
        return rc;
    for (uint32_t i = 0; i < like->ndim; i++)
        n *= shape[i]; // no more than the matrix has
    t->name = name;
    t->dtype = like->dtype;
    t->ndim = like->ndim;
    t->shape = shape;
    t->n_elems = n;
    t->export_dtype = CKPT_DTYPE_NONE;
    t->twin = t->addend = NULL;
    t->flags &= CKPT_TENSOR_GRAD | CKPT_TENSOR_PARAMETER;
    return rqp_back(w, t, make);
}

ckpt_dtype ckpt_requant_dtype(const ckpt_requant *w, const ckpt_tensor *t)
{
    ckpt_dtype of = w->opts.dtype != CKPT_DTYPE_NONE     ? w->opts.dtype
                    : t->export_dtype != CKPT_DTYPE_NONE ? t->export_dtype
                                                         : t->dtype;
    return of == CKPT_F16 || of == CKPT_BF16 ? of : CKPT_F32;
}

int ckpt_requant_not_finite(const char *name, uint64_t first, uint64_t last, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "%.200s: NaN or infinity in rows %" PRIu64 " to %" PRIu64
                     " cannot be quantized; --quantize-skip leaves the weight as it is",
                     name, first, last);
}
