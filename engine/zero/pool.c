/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: implements a first-fit allocator in one block of memory. */
#include "engine/zero/pool.h"

#include <assert.h>
#include <string.h>

#include "libckpt/base/mem.h"

int zr_pool_new(zr_pool *p, uint32_t room, ckpt_err *err)
{
    *p = (zr_pool){.room = room, .limit = UINT64_MAX};
    p->span = ckpt_alloc(((size_t)room + 1) * sizeof *p->span);
    return !p->span ? ckpt_fail_memory(err) : CKPT_OK;
}

void zr_pool_free(zr_pool *p)
{
    ckpt_free(p->span);
    memset(p, 0, sizeof *p);
}

uint64_t zr_pool_take(zr_pool *p, uint64_t n_bytes)
{
    uint64_t n = n_bytes == 0 ? 64 : (n_bytes + 63) & ~UINT64_C(63);
    uint64_t at = 0;
    uint32_t i = 0;

    assert(p->n <= p->room && n_bytes <= UINT64_MAX - 63);
    for (; i < p->n && p->span[i].at - at < n; i++)
        at = p->span[i].at + p->span[i].n_bytes;
    if (p->n == p->room || n > p->limit || at > p->limit - n)
        return UINT64_MAX;
    memmove(p->span + i + 1, p->span + i, (p->n - i) * sizeof *p->span);
    p->span[i] = (zr_span){.at = at, .n_bytes = n};
    p->n++;
    p->peak = at + n > p->peak ? at + n : p->peak;
    return at;
}

void zr_pool_give(zr_pool *p, uint64_t at)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->span[i].at == at) {
            p->n--;
            memmove(p->span + i, p->span + i + 1, (p->n - i) * sizeof *p->span);
            return;
        }
    }
    assert(false); // only taken spans are given back
}
