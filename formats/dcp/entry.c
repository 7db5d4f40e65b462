/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.c: reads one entry of a data file: a complete torch.save archive at an offset.
 *
 * A tensor's entry is parsed when its bytes are needed instead of at opening, because a large
 * checkpoint has a million entries.
 */
#include <assert.h>
#include <inttypes.h>

#include "formats/dcp/dcp.h"
#include "formats/torch/torch.h"
#include "libckpt/base/dtype.h"

int ckpt_dcp_object(ckpt_value **out, ckpt_map *map, ckpt_io *io, uint32_t file,
                    const ckpt_dcp_place *place, ckpt_err *err)
{
    assert(out && map && io && place);
    ckpt_torch_range range = {.io = io, .file = file, .at = place->at, .n = place->n};

    return ckpt_torch_inner(out, map, &range, err);
}

/* Fail with the entry's expected content. */
static int den_mismatch(const ckpt_io *io, const ckpt_source *s, const ckpt_dcp_inner *inner,
                        const char *what, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "%s: the entry at offset %" PRIu64 ", for a chunk of %.200s, holds %s",
                     io->name, s->at, inner->name, what);
}

/* Compare a value with the chunk's dtype and shape; returns the difference, or NULL. */
static const char *den_differs(const ckpt_value *v, const ckpt_dcp_inner *inner)
{
    const ckpt_tensor_value *t = v && v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;
    uint64_t row = 1;

    if (!t)
        return "no tensor";
    if (t->dtype != inner->dtype)
        return "a tensor of another dtype than .metadata says";
    if (t->ndim != inner->ndim)
        return "a tensor of another number of axes than .metadata says";
    for (uint32_t k = 0; k < t->ndim; k++) {
        if (t->shape[k] != inner->count[k])
            return "a tensor of another shape than .metadata says";
    }
    for (uint32_t k = t->ndim; k-- > 0 && ckpt_dtype_packed(t->dtype); row *= t->shape[k]) {
        if (t->shape[k] != 1 && t->stride[k] != row)
            return "packed elements in another order than row by row";
    }
    return (t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)) ? "a lazily conjugated tensor" : NULL;
}

/*
 * Compute the stride of each axis in bytes; false if the elements do not fill the storage exactly.
 */
static bool den_strides(const ckpt_tensor_value *t, uint64_t n_bytes, int64_t *stride)
{
    uint64_t width = ckpt_dtype_get(t->dtype)->bits / 8, last = 0, bytes, span;

    for (uint32_t k = 0; k < t->ndim; k++) {
        if (!ckpt_mul(t->shape[k] == 1 ? 0 : t->stride[k], width, &bytes) || bytes > INT64_MAX ||
            !ckpt_mul(bytes, t->shape[k] - 1, &span) || !ckpt_add(last, span, &last))
            return false;
        stride[k] = (int64_t)bytes;
    }
    return ckpt_add(last, width, &last) && last <= n_bytes;
}

/* Copy the storage's position into the source. */
static int den_take(ckpt_source *s, const ckpt_source *found, const ckpt_io *io,
                    const ckpt_dcp_inner *inner, ckpt_err *err)
{
    if (found->n_bytes != s->n_bytes)
        return den_mismatch(io, s, inner,
                            "a tensor whose storage has another size than .metadata says", err);
    s->coding = found->coding;
    s->swap = found->swap;
    s->has_crc = found->has_crc;
    s->crc = found->crc;
    s->at = found->at;
    s->n_stored = found->n_stored;
    s->inner = NULL;
    return CKPT_OK;
}

/* Check an entry's tensor against its chunk, then point the source to its storage. */
static int den_tensor(ckpt_source *source, const ckpt_map *map, const ckpt_value *v,
                      const ckpt_io *io, ckpt_err *err)
{
    const ckpt_dcp_inner *inner = source->inner;
    const char *differs = den_differs(v, inner);
    int64_t stride[CKPT_MAX_DIM];
    int rc;

    if (!differs && (!v->as.tensor->storage ||
                     v->as.tensor->storage->source >= map->sources.n)) // of the device "meta"
        differs = "a tensor without bytes";
    if (!differs && v->as.tensor->offset != 0)
        differs = "a tensor that does not start at the first element of its storage";
    if (!differs && !den_strides(v->as.tensor, source->n_bytes, stride))
        differs = "a tensor whose elements extend beyond its storage";
    if (differs)
        return den_mismatch(io, source, inner, differs, err);
    rc = den_take(source, &map->sources.at[v->as.tensor->storage->source], io, inner, err);
    for (uint32_t k = 0; rc == CKPT_OK && k < inner->ndim; k++)
        inner->axis[k].stride = stride[k];
    return rc;
}

int ckpt_dcp_settle(ckpt_source *source, ckpt_io *io, ckpt_err *err)
{
    assert(source && source->inner && io);
    const ckpt_dcp_place place = {.file = source->file, .at = source->at, .n = source->n_stored};
    ckpt_map *map = NULL;
    ckpt_value *v = NULL;
    int rc = ckpt_map_create(&map, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_dcp_object(&v, map, io, source->file, &place, err);
    if (rc == CKPT_OK)
        rc = den_tensor(source, map, v, io, err);
    ckpt_map_free(map);
    return rc;
}
