/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.c: extracts parameters from FSDP1's flat parameters, which have one axis and are sharded
 * over the ranks without regard to parameter bounds.
 */
#include <assert.h>
#include <string.h>

#include "formats/fsdp_ranks/ranks.h"
#include "libckpt/base/dtype.h"

uint64_t ckpt_ranks_flat_n(const ckpt_ranks_item *item, uint32_t group)
{
    uint64_t n = 0;

    for (size_t i = 0; i < item->piece.n; i++) {
        if (item->piece.at[i].rank < group && !ckpt_add(n, item->piece.at[i].n, &n))
            return UINT64_MAX; // no parameter is as large
    }
    return n;
}

int ckpt_ranks_flat(ckpt_ranks_item *out, const ckpt_ranks_item *from, ckpt_arena *arena,
                    const ckpt_ranks_range *range, ckpt_err *err)
{
    assert(out && from && range && range->group > 0);
    const uint64_t first = range->first, n = range->n;
    uint64_t *shape = ckpt_arena_array(arena, 1, sizeof *shape), at = 0;
    uint32_t copy = 0;

    *out = *from;
    out->ndim = 1;
    out->shape = shape;
    memset(&out->piece, 0, sizeof out->piece);
    if (!shape)
        return ckpt_fail_memory(err);
    *shape = n;
    // pieces are in rank order, because files are read in rank order
    for (size_t i = 0; i < from->piece.n; i++) {
        const ckpt_ranks_piece *p = &from->piece.at[i];
        ckpt_axis *axis;
        ckpt_ranks_piece *slot;
        uint64_t lo, hi, skip = 0;
        if (p->rank / range->group != copy) {
            copy = p->rank / range->group;
            at = 0;
        }
        lo = at > first ? at : first;
        hi = at + p->n < first + n ? at + p->n : first + n;
        skip = lo - at;
        at += p->n;
        if (lo >= hi)
            continue;
        axis = ckpt_arena_array(arena, 2, sizeof *axis);
        slot = axis ? ckpt_vec_push(&out->piece) : NULL;
        if (!slot)
            return ckpt_fail_memory(err);
        *axis = (ckpt_axis){lo - first, hi - lo, p->axis[0].stride};
        *slot = *p;
        slot->axis = axis;
        slot->n = hi - lo;
        (void)ckpt_dtype_bytes(from->dtype, skip, &skip); // cannot fail: inside the storage
        slot->at = p->at + skip;
    }
    return CKPT_OK;
}
