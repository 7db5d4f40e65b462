/* SPDX-License-Identifier: Apache-2.0 */
/*
 * far_device.c: a device whose memory the host cannot touch, as a plugin like that for CUDA, for
 * machines without a GPU.  It computes by the CPU's table, so a run on it must give the CPU's bits;
 * and whoever above that table reads its memory, or gives it memory of the host, is caught.
 *
 *     ZEROTRAIN_CUDA_PLUGIN=.../far_device.so zerotrain --device cuda ...
 *
 * Its memory is one range of addresses that has no access rights but during an operation.  Every
 * pointer to a tensor is checked to lie in it, every pointer to the host's memory not to.
 * Two threads in it at once are caught, too.  In the environment
 *     FAR_DEVICE_OWN=1   gives each process a device of its own, so that zerotrain takes the way
 * over zt_nccl_comm_new FAR_DEVICE_MOST=n  ends the process when a copy from or to the host is
 * longer than n bytes FAR_DEVICE_GETS=n  makes the device fail in the get after n ones
 */
#define _DEFAULT_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/cuda/api.h"
#include "libckpt/base/mem.h"

#define FR_ROOM  ((size_t)1 << 36) /* addresses, not memory */
#define FR_ALIGN ((size_t)64)
#define FR_PAGE  ((size_t)4096)

/* Ascending; spans that touch have nothing between them. */
typedef struct fr_span {
    size_t at, n_bytes;
} fr_span;

typedef struct fr_device {
    zt_device device; /* first: a zt_device * is one of these */
    zt_device *cpu;
    unsigned char *base;
    size_t top; /* bytes that were ever given out, in pages */
    fr_span *span;
    size_t n, room;
    uint64_t most, gets; /* of the environment */
    atomic_flag busy;
} fr_device;

static fr_device *fr_of(zt_device *d)
{
    return (fr_device *)(void *)d;
}

static bool fr_inside(const fr_device *f, const void *p)
{
    const unsigned char *q = p;

    return q >= f->base && q < f->base + FR_ROOM;
}

/* ---- memory ---- */

static void fr_protect(fr_device *f, int rights)
{
    if (f->top > 0 && mprotect(f->base, f->top, rights) != 0)
        abort();
}

/* The first gap that is large enough. */
static void *fr_alloc(zt_device *d, uint64_t n_bytes)
{
    fr_device *f = fr_of(d);
    size_t n = ((size_t)n_bytes + FR_ALIGN) & ~(FR_ALIGN - 1), at = 0, i = 0;

    if (d->err.code != CKPT_OK)
        return NULL;
    if (f->n == f->room) {
        size_t room = 2 * f->room + 64;
        fr_span *span = ckpt_resize(f->span, room * sizeof *span);

        if (!span)
            return NULL;
        f->span = span;
        f->room = room;
    }
    while (i < f->n && f->span[i].at - at < n) {
        at = f->span[i].at + f->span[i].n_bytes;
        i++;
    }
    if (n_bytes > FR_ROOM / 2 || FR_ROOM - at < n) {
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for a tensor");
        return NULL;
    }
    memmove(&f->span[i + 1], &f->span[i], (f->n - i) * sizeof *f->span);
    f->span[i] = (fr_span){at, n};
    f->n++;
    if (at + n > f->top)
        f->top = (at + n + FR_PAGE - 1) & ~(FR_PAGE - 1);
    d->allocated += n;
    d->peak = d->allocated > d->peak ? d->allocated : d->peak;
    // what is not written must not be taken for zeros
    fr_protect(f, PROT_READ | PROT_WRITE);
    memset(f->base + at, 0x7f, n);
    fr_protect(f, PROT_NONE);
    return f->base + at;
}

static void fr_release(zt_device *d, void *p)
{
    fr_device *f = fr_of(d);

    for (size_t i = 0; p && i < f->n; i++) {
        if (f->base + f->span[i].at == p) {
            d->allocated -= f->span[i].n_bytes;
            memmove(&f->span[i], &f->span[i + 1], (f->n - i - 1) * sizeof *f->span);
            f->n--;
            return;
        }
    }
    if (p) {
        fprintf(stderr, "far device: release of what it has not given out\n");
        abort();
    }
}

/* ---- operations ---- */

/* Begin: all of `far` are the device's or NULL; memory becomes readable. */
static bool fr_begin(zt_device *d, const char *name, const void *const *far, size_t n)
{
    fr_device *f = fr_of(d);

    if (d->err.code != CKPT_OK)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (far[i] && !fr_inside(f, far[i])) {
            fprintf(stderr, "far device: %s is given host memory as tensor %zu\n", name, i);
            abort();
        }
    }
    if (atomic_flag_test_and_set(&f->busy)) {
        fprintf(stderr, "far device: %s while another thread is in it\n", name);
        abort();
    }
    fr_protect(f, PROT_READ | PROT_WRITE);
    return true;
}

static void fr_end(zt_device *d)
{
    fr_device *f = fr_of(d);
    ckpt_err err = {0};

    fr_protect(f, PROT_NONE);
    atomic_flag_clear(&f->busy);
    if (zt_device_check(f->cpu, &err) != CKPT_OK)
        zt_device_fail(d, err.code, err.text);
}

static void fr_host(zt_device *d, const void *p)
{
    if (fr_inside(fr_of(d), p)) {
        fprintf(stderr, "far device: its own memory is given as the host's\n");
        abort();
    }
}

/* An operation: the pointers that must be the device's, then the CPU's operation of that name. */
#define FR_DO(d, op, arguments, ...)                                                               \
    do {                                                                                           \
        const void *const far[] = {__VA_ARGS__};                                                   \
        if (fr_begin(d, #op, far, sizeof far / sizeof far[0])) {                                   \
            fr_of(d)->cpu->ops->op arguments;                                                      \
            fr_end(d);                                                                             \
        }                                                                                          \
    } while (0)
#define FR_CPU (fr_of(d)->cpu)

static void fr_length(const zt_device *d, uint64_t n)
{
    if (n > ((const fr_device *)(const void *)d)->most) {
        fprintf(stderr, "far device: %llu bytes are copied at once\n", (unsigned long long)n);
        abort();
    }
}

static void fr_put(zt_device *d, void *to, const void *host, uint64_t n)
{
    fr_host(d, host);
    fr_length(d, n);
    FR_DO(d, put, (FR_CPU, to, host, n), to);
}

static void fr_get(zt_device *d, void *host, const void *from, uint64_t n)
{
    fr_host(d, host);
    fr_length(d, n);
    if (fr_of(d)->gets-- == 0)
        zt_device_fail(d, CKPT_EIO, "its memory cannot be read any more");
    FR_DO(d, get, (FR_CPU, host, from, n), from);
}

/* Plain memory of the host: the processor device's. */
static void *fr_alloc_host(zt_device *d, uint64_t n)
{
    void *p = d->err.code == CKPT_OK ? FR_CPU->ops->alloc_host(FR_CPU, n) : NULL;

    if (!p)
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for a buffer");
    return p;
}

static void fr_release_host(zt_device *d, void *p)
{
    FR_CPU->ops->release_host(FR_CPU, p);
}

static void fr_copy(zt_device *d, void *to, const void *from, uint64_t n)
{
    FR_DO(d, copy, (FR_CPU, to, from, n), to, from);
}

static void fr_zero(zt_device *d, void *p, uint64_t n)
{
    FR_DO(d, zero, (FR_CPU, p, n), p);
}

static void fr_sync(zt_device *d)
{
    (void)d;
}

static void fr_free(zt_device *d)
{
    fr_device *f = fr_of(d);

    if (f->n > 0)
        fprintf(stderr, "far device: %zu blocks were not released\n", f->n);
    if (f->cpu->allocated > 0)
        fprintf(stderr, "far device: memory of the host was not released\n");
    (void)munmap(f->base, FR_ROOM);
    zt_device_free(f->cpu);
    ckpt_free(f->span);
    ckpt_free(f);
}

static void fr_cast(zt_device *d, uint64_t n, void *to, ckpt_dtype to_dtype, const void *from,
                    ckpt_dtype from_dtype)
{
    FR_DO(d, cast, (FR_CPU, n, to, to_dtype, from, from_dtype), to, from);
}

static void fr_accumulate(zt_device *d, const zt_accumulate *a)
{
    FR_DO(d, accumulate, (FR_CPU, a), a->acc, a->x);
}

static void fr_scale(zt_device *d, ckpt_dtype dt, uint64_t n, void *x, float factor)
{
    FR_DO(d, scale, (FR_CPU, dt, n, x, factor), x);
}

static void fr_add(zt_device *d, ckpt_dtype dt, uint64_t n, void *y, const void *x)
{
    FR_DO(d, add, (FR_CPU, dt, n, y, x), y, x);
}

static double fr_sum_squares(zt_device *d, ckpt_dtype dt, uint64_t n, const void *x)
{
    double sum = 0;

    if (fr_begin(d, "sum_squares", &x, 1)) {
        sum = FR_CPU->ops->sum_squares(FR_CPU, dt, n, x);
        fr_end(d);
    }
    return sum;
}

static void fr_linear(zt_device *d, ckpt_dtype dt, const zt_linear *a)
{
    FR_DO(d, linear, (FR_CPU, dt, a), a->x, a->w, a->b, a->y, a->pre);
}

static void fr_linear_grad(zt_device *d, ckpt_dtype dt, const zt_linear_grad *a)
{
    FR_DO(d, linear_grad, (FR_CPU, dt, a), a->x, a->w, a->dy, a->dx, a->dw, a->db);
}

static void fr_matmul(zt_device *d, ckpt_dtype dt, const zt_matmul *a)
{
    FR_DO(d, matmul, (FR_CPU, dt, a), a->a, a->b, a->c);
}

static void fr_act(zt_device *d, ckpt_dtype dt, zt_act act, uint64_t n, void *y, const void *x)
{
    FR_DO(d, act, (FR_CPU, dt, act, n, y, x), y, x);
}

static void fr_act_grad(zt_device *d, ckpt_dtype dt, const zt_act_grad *a)
{
    FR_DO(d, act_grad, (FR_CPU, dt, a), a->pre, a->dy, a->dx);
}

static void fr_swiglu(zt_device *d, ckpt_dtype dt, const zt_swiglu *a)
{
    FR_DO(d, swiglu, (FR_CPU, dt, a), a->gate, a->up, a->y);
}

static void fr_swiglu_grad(zt_device *d, ckpt_dtype dt, const zt_swiglu *a)
{
    FR_DO(d, swiglu_grad, (FR_CPU, dt, a), a->gate, a->up, a->dy, a->dgate, a->dup);
}

static void fr_norm(zt_device *d, ckpt_dtype dt, const zt_norm *a)
{
    FR_DO(d, norm, (FR_CPU, dt, a), a->x, a->add, a->w, a->b, a->sum, a->y, a->mean, a->rstd);
}

static void fr_norm_grad(zt_device *d, ckpt_dtype dt, const zt_norm_grad *a)
{
    FR_DO(d, norm_grad, (FR_CPU, dt, a), a->x, a->w, a->dy, a->mean, a->rstd, a->dx, a->dw, a->db);
}

static void fr_embed(zt_device *d, ckpt_dtype dt, const zt_embed *a)
{
    FR_DO(d, embed, (FR_CPU, dt, a), a->token, a->kind, a->word, a->position, a->type, a->y);
}

static void fr_embed_grad(zt_device *d, ckpt_dtype dt, const zt_embed_grad *a)
{
    FR_DO(d, embed_grad, (FR_CPU, dt, a), a->token, a->kind, a->dy, a->dword, a->dposition,
          a->dkind);
}

static void fr_attention(zt_device *d, ckpt_dtype dt, const zt_attention *a)
{
    FR_DO(d, attention, (FR_CPU, dt, a), a->mask, a->q, a->k, a->v, a->o, a->lse);
}

static void fr_attention_grad(zt_device *d, ckpt_dtype dt, const zt_attention_grad *a)
{
    FR_DO(d, attention_grad, (FR_CPU, dt, a), a->fw.mask, a->fw.q, a->fw.k, a->fw.v, a->fw.o,
          a->fw.lse, a->dout, a->dq, a->dk, a->dv);
}

static void fr_rope(zt_device *d, ckpt_dtype dt, const zt_rope *a)
{
    FR_DO(d, rope, (FR_CPU, dt, a), a->cos, a->sin, a->x);
}

static void fr_dropout(zt_device *d, ckpt_dtype dt, const zt_dropout *a)
{
    FR_DO(d, dropout, (FR_CPU, dt, a), a->x, a->add, a->y);
}

static void fr_loss(zt_device *d, ckpt_dtype dt, const zt_loss *a)
{
    fr_host(d, a->loss);
    FR_DO(d, loss, (FR_CPU, dt, a), a->label, a->target, a->logits);
}

static void fr_rows(zt_device *d, ckpt_dtype dt, const zt_rows *a)
{
    FR_DO(d, rows, (FR_CPU, dt, a), a->from, a->to);
}

static void fr_update(zt_device *d, const zt_update *a)
{
    FR_DO(d, update, (FR_CPU, a), a->p, a->m, a->v, a->g, a->low);
}

static const zt_device_ops fr_ops = {
    .name = "cuda",
    .alloc = fr_alloc,
    .release = fr_release,
    .put = fr_put,
    .get = fr_get,
    .alloc_host = fr_alloc_host,
    .release_host = fr_release_host,
    .copy = fr_copy,
    .zero = fr_zero,
    .sync = fr_sync,
    .free = fr_free,
    .cast = fr_cast,
    .accumulate = fr_accumulate,
    .scale = fr_scale,
    .add = fr_add,
    .sum_squares = fr_sum_squares,
    .linear = fr_linear,
    .linear_grad = fr_linear_grad,
    .matmul = fr_matmul,
    .act = fr_act,
    .act_grad = fr_act_grad,
    .swiglu = fr_swiglu,
    .swiglu_grad = fr_swiglu_grad,
    .norm = fr_norm,
    .norm_grad = fr_norm_grad,
    .embed = fr_embed,
    .embed_grad = fr_embed_grad,
    .attention = fr_attention,
    .attention_grad = fr_attention_grad,
    .rope = fr_rope,
    .dropout = fr_dropout,
    .loss = fr_loss,
    .rows = fr_rows,
    .update = fr_update,
};

/* ---- the plugin ---- */

int zt_cuda_api(void)
{
    return ZT_CUDA_API;
}

/* Bits of the GPUs that can be opened, in FAR_DEVICE_GPUS; without it there is one. */
static unsigned long fr_gpus(void)
{
    const char *text = getenv("FAR_DEVICE_GPUS");

    return text && *text ? strtoul(text, NULL, 0) : 1;
}

int zt_cuda_gpus(int ordinal, unsigned char uuid[ZT_CUDA_UUID])
{
    const char *own = getenv("FAR_DEVICE_OWN");
    long id = (own && *own == '1' ? (long)getpid() : 1) + ((long)ordinal << 32);
    int n = 0;

    while (fr_gpus() >> n)
        n++;
    if (uuid && ordinal < n) {
        memset(uuid, 0, ZT_CUDA_UUID);
        memcpy(uuid, &id, sizeof id);
    }
    return n;
}

static uint64_t fr_setting(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : UINT64_MAX;
}

int zt_cuda_device_new(zt_device **out, int ordinal, bool deterministic, ckpt_err *err)
{
    fr_device *f;
    int rc;

    (void)deterministic;
    if (ordinal < 0 || ordinal > 30 || !(fr_gpus() >> ordinal & 1))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "this machine has no GPU %d", ordinal);
    f = ckpt_alloc(sizeof *f);
    if (!f)
        return ckpt_fail_memory(err);
    rc = zt_cpu_new(&f->cpu, 1, err);
    if (rc == CKPT_OK) {
        void *base =
            mmap(NULL, FR_ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        f->base = base == MAP_FAILED ? NULL : base;
        rc = f->base ? CKPT_OK : ckpt_fail_memory(err);
    }
    if (rc != CKPT_OK) {
        zt_device_free(f->cpu);
        ckpt_free(f);
        return rc;
    }
    f->device.ops = &fr_ops;
    f->most = fr_setting("FAR_DEVICE_MOST");
    f->gets = fr_setting("FAR_DEVICE_GETS");
    atomic_flag_clear(&f->busy);
    *out = &f->device;
    return CKPT_OK;
}

/* What NCCL is for a GPU: another copy of the staged communicator, told apart by nothing but who
 * made it. */
int zt_nccl_comm_new(zt_comm **out, zt_comm *base, zt_device *device, ckpt_err *err)
{
    return zt_comm_staged(out, base, device, err);
}

void *zt_cuda_stream(zt_device *d)
{
    (void)d;
    return NULL;
}
