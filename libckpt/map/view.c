/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c: turns a strided view of a storage into the extent of a tensor.
 */
#include "libckpt/map/view.h"

#include <assert.h>
#include <inttypes.h>

#include "libckpt/base/dtype.h"

bool ckpt_view_is_plain(const ckpt_tensor_value *v)
{
    uint64_t expected = 1;

    for (uint32_t k = v->ndim; k-- > 0;) {
        if (v->shape[k] != 1 && v->stride[k] != expected)
            return false;
        expected *= v->shape[k]; // cannot overflow: the reader of the view has checked the product
    }
    return true;
}

/* Give the tensor one box with the view's own strides. */
static int view_back_box(ckpt_map *map, ckpt_tensor *t, const ckpt_tensor_value *v, ckpt_extent *e,
                         const char *file, ckpt_err *err)
{
    uint64_t width = ckpt_dtype_get(t->dtype)->bits / 8;
    ckpt_axis axis[CKPT_MAX_DIM];

    for (uint32_t k = 0; k < v->ndim; k++) {
        uint64_t by = width;

        // An axis of one element may have any stride; the reader has checked that the last element
        // is inside.
        if (v->shape[k] > 1 && (!ckpt_mul(v->stride[k], width, &by) || by > INT64_MAX))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: tensor %.200s: stride %" PRIu64 " overflows",
                             file, t->name, v->stride[k]);
        axis[k] = (ckpt_axis){0, v->shape[k], (int64_t)by};
    }
    e->ndim = v->ndim;
    e->axis = axis;
    return ckpt_map_back(map, t, e, 1, err);
}

int ckpt_view_back(ckpt_map *map, ckpt_tensor *t, const ckpt_tensor_value *v, uint32_t source,
                   const char *file, ckpt_err *err)
{
    ckpt_extent e = {.source = source};

    assert(v->storage && v->ndim == t->ndim && v->dtype == t->dtype);
    if (t->n_elems == 0)
        return CKPT_OK;
    if (source == UINT32_MAX || !ckpt_dtype_bytes(t->dtype, v->offset, &e.at) ||
        e.at > v->storage->n_bytes)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: tensor %.200s begins outside its storage", file,
                         t->name);
    // Packed elements never have gaps here, because the pickle reader refuses such views.
    if (ckpt_view_is_plain(v) || ckpt_dtype_packed(t->dtype))
        return ckpt_map_back_whole(map, t, source, e.at, err);
    return view_back_box(map, t, v, &e, file, err);
}
