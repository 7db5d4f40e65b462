/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: allocates the runtime's memory from the device or the communicator, and frees it. */
#include <assert.h>

#include "engine/zero/own.h"

/* Allocate from device `of`; NULL: from the communicator, which owns device memory then. */
static void *my_take(zt_zero *z, zt_device *of, uint64_t n_bytes, uint64_t *count)
{
    zr_own *o = zr_of(z);
    zt_device *d = of ? of : z->device;
    zr_block *b = ckpt_vec_push(&o->blocks);
    uint64_t n = n_bytes < 64 ? 64 : (n_bytes + 63) & ~UINT64_C(63);

    assert(count && d);
    if (!b || n < n_bytes) {
        o->failed = true;
        return NULL;
    }
    b->of = of;
    b->p = of ? of->ops->alloc(of, n) : z->wire->ops->alloc(z->wire, n);
    if (!b->p) {
        o->failed = true;
        return NULL;
    }
    *count += n;
    d->ops->zero(d, b->p, n);
    return b->p;
}

void *zr_alloc(zt_zero *z, uint64_t n_bytes, uint64_t *count, bool travels)
{
    return my_take(z, travels && z->comm->world > 1 ? NULL : z->device, n_bytes, count);
}

void *zr_alloc_home(zt_zero *z, uint64_t n_bytes, uint64_t *count)
{
    return my_take(z, zr_of(z)->home, n_bytes, count);
}

/* Free in reverse order, because the communicator allocates like a stack. */
void zr_free_blocks(zt_zero *z)
{
    zr_own *o = zr_of(z);

    for (size_t i = o->blocks.n; i-- > 0;) {
        const zr_block *b = &o->blocks.at[i];

        if (!b->p)
            continue;
        if (b->of)
            b->of->ops->release(b->of, b->p);
        else
            z->wire->ops->release(z->wire, b->p);
    }
    ckpt_vec_free(&o->blocks);
}
