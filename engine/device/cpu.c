/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.c: owns the CPU device: its table of operations, its memory, and the checks before an
 * operation.
 */
#define _DEFAULT_SOURCE // madvise
#include "engine/device/cpu.h"

#include <string.h>
#include <sys/mman.h>

#include "engine/device/cpu_pool.h"
#include "libckpt/base/cast.h"
#include "libckpt/base/mem.h"

#define CC_ALIGN 64u

/* Minimum size for huge pages, which reduce misses of address translation. */
#define CC_LARGE (4u << 20)
#define CC_PAGE  ((uintptr_t)2 << 20)

/* Bytes per range of a long copy. */
#define CC_COPY (1u << 20)

/* Header before each block that alloc() returns; takes CC_ALIGN bytes. */
typedef struct cc_head {
    void *memory;
    uint64_t n_bytes;
} cc_head;

/*
 * Ask the kernel for huge pages where the block contains complete ones.  It is only advice, so
 * failures do not matter.
 */
static void cc_advise(void *p, uint64_t n)
{
#ifdef MADV_HUGEPAGE
    uintptr_t first = ((uintptr_t)p + CC_PAGE - 1) & ~(CC_PAGE - 1);
    uintptr_t last = ((uintptr_t)p + (uintptr_t)n) & ~(CC_PAGE - 1);
    if (n >= CC_LARGE && last > first)
        (void)madvise((char *)p + (first - (uintptr_t)p), last - first, MADV_HUGEPAGE);
#else
    (void)p;
    (void)n;
#endif
}

static void *cc_alloc(zt_device *d, uint64_t n_bytes)
{
    if (!d || d->err.code != CKPT_OK)
        return NULL;
    char *memory = NULL;
    if (n_bytes <= SIZE_MAX - 2 * CC_ALIGN)
        memory = ckpt_alloc((size_t)n_bytes + 2 * CC_ALIGN);
    if (!memory) {
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for a tensor");
        return NULL;
    }
    char *p = memory + 2 * CC_ALIGN - (uintptr_t)memory % CC_ALIGN;
    cc_head *head = (cc_head *)(void *)(p - CC_ALIGN);
    head->memory = memory;
    head->n_bytes = n_bytes;
    cc_advise(p, n_bytes);
    d->allocated += n_bytes;
    d->peak = d->allocated > d->peak ? d->allocated : d->peak;
    return p;
}

static void cc_release(zt_device *d, void *p)
{
    if (!p)
        return;
    const cc_head *head = (const cc_head *)(void *)((char *)p - CC_ALIGN);
    d->allocated -= head->n_bytes;
    ckpt_free(head->memory);
}

typedef struct cc_bytes {
    char *to;
    const char *from; /* NULL: zeros */
} cc_bytes;

static void cc_copy_range(void *ctx, uint64_t first, uint64_t last, unsigned worker)
{
    const cc_bytes *b = ctx;
    (void)worker;
    if (b->from)
        memcpy(b->to + first, b->from + first, last - first);
    else
        memset(b->to + first, 0, last - first);
}

static void cc_copy(zt_device *d, void *to, const void *from, uint64_t n_bytes)
{
    if (!zt_ready(d, CKPT_F32, n_bytes == 0 || (to && from), "copy") || n_bytes == 0)
        return;
    uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if ((a > b ? a - b : b - a) < n_bytes) {
        memmove(to, from, n_bytes); // they overlap
        return;
    }
    cc_bytes job = {to, from};
    zt_cpu_parallel(d, n_bytes, CC_COPY, cc_copy_range, &job);
}

static void cc_zero(zt_device *d, void *p, uint64_t n_bytes)
{
    if (!zt_ready(d, CKPT_F32, n_bytes == 0 || p, "zero"))
        return;
    cc_bytes job = {p, NULL};
    zt_cpu_parallel(d, n_bytes, CC_COPY, cc_copy_range, &job);
}

static void cc_sync(zt_device *d)
{
    (void)d; // nothing to wait for: every operation returns when it is done
}

static void cc_free(zt_device *d)
{
    zt_cpu *c = (zt_cpu *)d;
    zt_cpu_pool_free(c->pool);
    ckpt_free(c);
}

static const zt_device_ops cc_ops = {
    .name = "cpu",
    .alloc = cc_alloc,
    .release = cc_release,
    .put = cc_copy,
    .get = cc_copy,
    .alloc_host = cc_alloc,
    .release_host = cc_release,
    .copy = cc_copy,
    .zero = cc_zero,
    .sync = cc_sync,
    .free = cc_free,
    .cast = zt_cpu_cast,
    .accumulate = zt_cpu_accumulate,
    .scale = zt_cpu_scale,
    .add = zt_cpu_add,
    .sum_squares = zt_cpu_sum_squares,
    .linear = zt_cpu_linear,
    .linear_grad = zt_cpu_linear_grad,
    .matmul = zt_cpu_matmul,
    .act = zt_cpu_act,
    .act_grad = zt_cpu_act_grad,
    .swiglu = zt_cpu_swiglu,
    .swiglu_grad = zt_cpu_swiglu_grad,
    .norm = zt_cpu_norm,
    .norm_grad = zt_cpu_norm_grad,
    .embed = zt_cpu_embed,
    .embed_grad = zt_cpu_embed_grad,
    .attention = zt_cpu_attention,
    .attention_grad = zt_cpu_attention_grad,
    .rope = zt_cpu_rope,
    .dropout = zt_cpu_dropout,
    .loss = zt_cpu_loss,
    .rows = zt_cpu_rows,
    .update = zt_cpu_update,
};

int zt_cpu_new(zt_device **out, unsigned n_threads, ckpt_err *err)
{
    zt_cpu *c = ckpt_alloc(sizeof *c);
    if (!c)
        return ckpt_fail_memory(err);
    int rc = zt_cpu_pool_new(&c->pool, n_threads, err);
    if (rc != CKPT_OK) {
        ckpt_free(c);
        return rc;
    }
    c->device.ops = &cc_ops;
    c->device.host = true;
    *out = &c->device;
    return CKPT_OK;
}
