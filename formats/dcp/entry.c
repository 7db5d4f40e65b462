/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.c: one entry of a data file: all that torch.save writes of one object, at an offset.
 *
 * An entry of a tensor is looked into when its bytes are wanted, not when the checkpoint is opened:
 * a large one has a million.
 */
#include <inttypes.h>

#include "formats/dcp/dcp.h"
#include "formats/torch/torch.h"
#include "libckpt/base/dtype.h"

int ckpt_dcp_object(ckpt_value **out, ckpt_map *map, ckpt_io *io, uint32_t file,
                    const ckpt_dcp_place *place, ckpt_err *err)
{
    ckpt_torch_range range = {.io = io, .file = file, .at = place->at, .n = place->n};

    return ckpt_torch_inner(out, map, &range, err);
}

/* Says what the entry should be. */
static int en_mismatch(const ckpt_io *io, const ckpt_source *s, const ckpt_dcp_inner *inner,
                       const char *what, ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EMISMATCH,
                     "%s: the entry at offset %" PRIu64 ", for a chunk of %.200s, holds %s",
                     io->name, s->at, inner->name, what);
}

/* The tensor is the chunk: dtype and shape. */
static const char *en_differs(const ckpt_value *v, const ckpt_dcp_inner *inner)
{
    const ckpt_tensor_value *t = v && v->kind == CKPT_V_TENSOR ? v->as.tensor : NULL;

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
    return (t->flags & (CKPT_TENSOR_CONJ | CKPT_TENSOR_NEG)) ? "a lazily conjugated tensor" : NULL;
}

/* Bytes from one element to the next; false: too many, or not row-major where that is asked. */
static bool en_strides(const ckpt_tensor_value *t, int64_t *stride)
{
    uint64_t width = ckpt_dtype_get(t->dtype)->bits / 8, row = 1, bytes;

    for (uint32_t k = t->ndim; k-- > 0;) {
        bool one = t->shape[k] == 1;
        if (!stride && !one && t->stride[k] != row)
            return false;
        row *= t->shape[k]; // the product fits: .metadata's shape was checked
        if (!ckpt_mul(one ? 0 : t->stride[k], width, &bytes) || bytes > INT64_MAX)
            return false;
        if (stride)
            stride[k] = (int64_t)bytes;
    }
    return true;
}

/* Take over where the storage lies. */
static int en_take(ckpt_source *s, const ckpt_source *found, const ckpt_io *io,
                   const ckpt_dcp_inner *inner, ckpt_err *err)
{
    if (found->n_bytes != s->n_bytes)
        return en_mismatch(io, s, inner, "a tensor whose storage has other bytes than its own",
                           err);
    s->coding = found->coding;
    s->swap = found->swap;
    s->has_crc = found->has_crc;
    s->crc = found->crc;
    s->at = found->at;
    s->n_stored = found->n_stored;
    s->inner = NULL;
    return CKPT_OK;
}

int ckpt_dcp_look(ckpt_source *source, ckpt_io *io, int64_t *stride, ckpt_err *err)
{
    const ckpt_dcp_inner *inner = source->inner;
    const ckpt_dcp_place place = {.file = source->file, .at = source->at, .n = source->n_stored};
    ckpt_map *map = NULL;
    ckpt_value *v = NULL;
    const char *differs = NULL;
    int rc = ckpt_map_new(&map, 0, err);

    if (rc == CKPT_OK)
        rc = ckpt_dcp_object(&v, map, io, source->file, &place, err);
    if (rc == CKPT_OK)
        differs = en_differs(v, inner);
    if (rc == CKPT_OK && !differs && !en_strides(v->as.tensor, stride))
        differs = "a tensor that is not row-major, though .metadata says so";
    if (rc == CKPT_OK && !differs && v->as.tensor->offset != 0)
        differs = "a tensor that does not begin where its storage does";
    if (rc == CKPT_OK)
        rc = differs
                 ? en_mismatch(io, source, inner, differs, err)
                 : en_take(source, &map->sources.at[v->as.tensor->storage->source], io, inner, err);
    ckpt_map_free(map);
    return rc;
}
