/* SPDX-License-Identifier: Apache-2.0 */
/* tied.c: finds the tensor that a tied name repeats. */
#include "libckpt/inspect/tied.h"

#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/map/order.h"
#include "libckpt/transform/keymap/head.h"

enum { TID_BLOCK = 1 << 14 /* elements compared at a time, of up to 16 bytes */ };

/* The owner of a tensor's bytes. */
static const ckpt_tensor *tid_owner(const ckpt_tensor *t)
{
    return t->owner ? t->owner : t;
}

/* A name for t's bytes that the other map has; NULL: none. */
static const ckpt_tensor *tid_shared(const ckpt_map *map, const ckpt_map *other,
                                     const ckpt_tensor *t)
{
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *u = map->tensors.at[i];

        if (u != t && tid_owner(u) == tid_owner(t) && ckpt_map_find(other, u->name))
            return u;
    }
    return NULL;
}

/* Set *same if two tensors have equal bytes. */
static int tid_compare(bool *same, ckpt_reader *r, const ckpt_tensor *t, const ckpt_tensor *u,
                       ckpt_err *err)
{
    uint8_t *a = ckpt_alloc((size_t)TID_BLOCK * 32), *b = a ? a + (size_t)TID_BLOCK * 16 : NULL;
    int rc = a ? CKPT_OK : ckpt_fail_memory(err);

    for (uint64_t at = 0; rc == CKPT_OK && *same && at < t->n_elems; at += TID_BLOCK) {
        const uint64_t n = t->n_elems - at < TID_BLOCK ? t->n_elems - at : TID_BLOCK;
        uint64_t n_bytes = 0;

        *same = ckpt_dtype_bytes(t->dtype, n, &n_bytes);
        rc = ckpt_reader_read(r, t, at, n, CKPT_DTYPE_NONE, a, err);
        if (rc == CKPT_OK)
            rc = ckpt_reader_read(r, u, at, n, CKPT_DTYPE_NONE, b, err);
        *same = *same && rc == CKPT_OK && memcmp(a, b, (size_t)n_bytes) == 0;
    }
    ckpt_free(a);
    return rc;
}

int ckpt_tied_to(const ckpt_tensor **out, const ckpt_map *map, const ckpt_map *other,
                 ckpt_reader *r, const ckpt_tensor *t, ckpt_err *err)
{
    const ckpt_tensor *table = tid_shared(map, other, t);
    bool same = true;
    int rc = CKPT_OK;

    *out = table;
    if (table || t->role == CKPT_ROLE_STATE)
        return CKPT_OK;
    table = ckpt_order_table(map, t->name);
    table = table || ckpt_head_of(map) != t ? table : ckpt_head_table(map);
    if (!table || table == t || table->dtype != t->dtype || !ckpt_head_same_shape(table, t) ||
        !ckpt_map_find(other, table->name))
        return CKPT_OK;
    rc = tid_compare(&same, r, t, table, err);
    *out = rc == CKPT_OK && same ? table : NULL;
    return rc;
}
