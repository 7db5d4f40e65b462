/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.cu: owns the CUDA device: its table of operations, memory, errors, and the check that a
 * GPU is new enough.
 */
#include <new>
#include <stdio.h>
#include <string.h>
#include <unordered_map>

#include "engine/cuda/fused.h"

/* Lowest compute capability: bfloat16 on tensor cores and cp.async need 8.0. */
#define CD_CAPABILITY 80

/* Device memory is allocated in multiples of this, the runtime's own alignment. */
#define CD_ALIGN 256u

/* ---- errors ---- */

bool cu_try(zt_device *d, cudaError_t e, const char *what)
{
    char text[200];
    if (e == cudaSuccess)
        return true;
    snprintf(text, sizeof text, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
    zt_device_fail(d, e == cudaErrorMemoryAllocation ? CKPT_ELIMIT : CKPT_EIO, text);
    return false;
}

bool cu_launched(zt_device *d, const char *operation)
{
    return cu_try(d, cudaGetLastError(), operation);
}

/* Make the GPU current in this thread.  The last choice is remembered, because calling
 * cudaSetDevice each time would cost more. */
static bool cd_select(zt_device *d)
{
    static thread_local int selected = -1;
    int ordinal = cu_of(d)->ordinal;
    if (selected != ordinal) {
        if (!cu_try(d, cudaSetDevice(ordinal), "choosing the GPU"))
            return false;
        selected = ordinal;
    }
    return true;
}

bool cu_ready(zt_device *d, ckpt_dtype dt, bool ok, const char *operation)
{
    return zt_ready(d, dt, ok, operation) && cd_select(d);
}

/* Live allocations: address -> bytes. */
struct cu_table {
    std::unordered_map<void *, uint64_t> bytes;
};

/* Add an allocation; false: no memory. */
static bool cd_enter(cu_table *t, void *p, uint64_t n_bytes)
{
    try {
        t->bytes.emplace(p, n_bytes);
    } catch (const std::bad_alloc &) {
        return false;
    }
    return true;
}

/* ---- memory ---- */

/*
 * The driver's pool keeps freed blocks (see cd_keep_pool) and reuses them in the order of the
 * stream, so neither call waits for the GPU.  It also remaps pages if free memory is fragmented.
 */
static cudaError_t cd_take(zt_cuda *c, void **p, uint64_t n_bytes)
{
    uint64_t n = n_bytes < CD_ALIGN ? CD_ALIGN : n_bytes;
    if (n > SIZE_MAX - CD_ALIGN)
        return cudaErrorMemoryAllocation;
    if (!c->pools)
        return cudaMalloc(p, (size_t)n);
    cudaError_t e = cudaMallocAsync(p, (size_t)n, c->stream);
    cudaMemPool_t pool;
    if (e == cudaErrorMemoryAllocation && cudaStreamSynchronize(c->stream) == cudaSuccess &&
        cudaDeviceGetDefaultMemPool(&pool, c->ordinal) == cudaSuccess &&
        cudaMemPoolTrimTo(pool, 0) == cudaSuccess) {
        (void)cudaGetLastError();
        // retry, because freed memory has been returned to the driver now
        e = cudaMallocAsync(p, (size_t)n, c->stream);
    }
    return e;
}

static void cd_give(zt_cuda *c, void *p)
{
    if (p && c->pools) {
        (void)cudaFreeAsync(p, c->stream);
    } else if (p) {
        (void)cudaStreamSynchronize(c->stream); // cudaFree might not wait for kernels that use it
        (void)cudaFree(p);
    }
}

static void *cd_alloc(zt_device *d, uint64_t n_bytes)
{
    zt_cuda *c = cu_of(d);
    void *p = NULL;
    if (!cu_ready(d, CKPT_F32, true, "alloc"))
        return NULL;
    cudaError_t e = cd_take(c, &p, n_bytes);
    if (e != cudaSuccess) {
        char text[160];
        size_t left = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&left, &total);
        snprintf(
            text, sizeof text,
            "out of memory for a tensor of %llu bytes: tensors take %llu, the GPU has %llu (%s)",
            (unsigned long long)n_bytes, (unsigned long long)d->allocated,
            (unsigned long long)total, cudaGetErrorName(e));
        zt_device_fail(d, e == cudaErrorMemoryAllocation ? CKPT_ELIMIT : CKPT_EIO, text);
        return NULL;
    }
    if (!cd_enter(c->table, p, n_bytes)) {
        cd_give(c, p);
        zt_device_fail(d, CKPT_ELIMIT, "out of memory for the list of tensors");
        return NULL;
    }
    d->allocated += n_bytes;
    d->peak = d->allocated > d->peak ? d->allocated : d->peak;
    return p;
}

static void cd_release(zt_device *d, void *p)
{
    zt_cuda *c = cu_of(d);
    if (!p || !d)
        return;
    const auto live = c->table->bytes.find(p);
    if (live == c->table->bytes.end()) {
        zt_device_fail(d, CKPT_EUSAGE, "release: the tensor is not of this device");
        return;
    }
    d->allocated -= live->second;
    c->table->bytes.erase(live);
    if (cd_select(d))
        cd_give(c, p);
}

static cudaError_t cd_grow_scratch(zt_cuda *c, uint64_t n_bytes)
{
    if (n_bytes <= c->scratch_bytes)
        return cudaSuccess;
    // the stream frees the old block after earlier operations that use it
    cd_give(c, c->scratch);
    c->scratch = NULL;
    c->scratch_bytes = 0;
    cudaError_t e = cd_take(c, &c->scratch, n_bytes);
    if (e == cudaSuccess)
        c->scratch_bytes = n_bytes;
    return e;
}

void *cu_scratch(zt_device *d, uint64_t n_bytes)
{
    zt_cuda *c = cu_of(d);
    return cu_try(d, cd_grow_scratch(c, n_bytes), "out of memory for an operation") ? c->scratch
                                                                                    : NULL;
}

bool cu_scratch_fits(zt_device *d, uint64_t n_bytes)
{
    if (cd_grow_scratch(cu_of(d), n_bytes) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}

void *cu_spare(zt_device *d, uint64_t n_bytes)
{
    void *p = NULL;
    if (cd_take(cu_of(d), &p, n_bytes) == cudaSuccess)
        return p;
    (void)cudaGetLastError();
    return NULL;
}

void cu_spare_free(zt_device *d, void *p)
{
    cd_give(cu_of(d), p);
}

static void *cd_alloc_host(zt_device *d, uint64_t n_bytes)
{
    void *p = NULL;
    if (!cu_ready(d, CKPT_F32, true, "alloc_host"))
        return NULL;
    cudaError_t e = n_bytes > SIZE_MAX - CD_ALIGN
                        ? cudaErrorMemoryAllocation
                        : cudaHostAlloc(&p, (size_t)n_bytes + CD_ALIGN, cudaHostAllocDefault);
    return cu_try(d, e, "out of pinned memory of the host") ? p : NULL;
}

static void cd_release_host(zt_device *d, void *p)
{
    if (d && p && cd_select(d))
        (void)cudaFreeHost(p);
}

/* ---- copies ---- */

/* The next slot, once the GPU has finished the slot's last copy. */
static char *cd_slot(zt_device *d, unsigned *which)
{
    zt_cuda *c = cu_of(d);
    *which = c->slot++ % CU_SLOTS;
    if (!cu_try(d, cudaEventSynchronize(c->slot_free[*which]), "waiting for a copy"))
        return NULL;
    return c->slots + (size_t)*which * CU_SLOT_BYTES;
}

static size_t cd_piece(uint64_t n_bytes, uint64_t at)
{
    return n_bytes - at < CU_SLOT_BYTES ? (size_t)(n_bytes - at) : CU_SLOT_BYTES;
}

static bool cd_is_pinned(const void *p)
{
    cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return a.type == cudaMemoryTypeHost;
}

/*
 * True if a copy needs no slot: the host memory is pinned, and the copy is so large that asking
 * costs little.
 */
static bool cd_is_direct(const void *host, uint64_t n_bytes)
{
    return n_bytes > CU_SLOT_BYTES && cd_is_pinned(host);
}

/* Copy from or to pinned memory, and wait for it. */
static void cd_direct(zt_device *d, void *to, const void *from, uint64_t n_bytes,
                      cudaMemcpyKind kind, const char *what)
{
    zt_cuda *c = cu_of(d);
    if (cu_try(d, cudaMemcpyAsync(to, from, n_bytes, kind, c->stream), what))
        (void)cu_try(d, cudaStreamSynchronize(c->stream), what);
}

/*
 * Copy the host's bytes to slots before returning, so the caller may reuse them; the GPU gets them
 * in the order of the stream.
 */
static void cd_put(zt_device *d, void *to, const void *host, uint64_t n_bytes)
{
    zt_cuda *c = cu_of(d);
    if (!cu_ready(d, CKPT_F32, n_bytes == 0 || (to && host), "put"))
        return;
    if (cd_is_direct(host, n_bytes)) {
        cd_direct(d, to, host, n_bytes, cudaMemcpyHostToDevice, "put");
        return;
    }
    for (uint64_t at = 0; at < n_bytes; at += CU_SLOT_BYTES) {
        unsigned i = 0;
        size_t n = cd_piece(n_bytes, at);
        char *room = cd_slot(d, &i);
        if (!room)
            return;
        memcpy(room, (const char *)host + at, n);
        if (!cu_try(d, cudaMemcpyAsync((char *)to + at, room, n, cudaMemcpyHostToDevice, c->stream),
                    "put") ||
            !cu_try(d, cudaEventRecord(c->slot_free[i], c->stream), "put"))
            return;
    }
}

/* A slot with bytes on their way to pageable memory. */
typedef struct cd_coming {
    char *room, *to;
    size_t n;
    unsigned slot;
} cd_coming;

static bool cd_arrive(zt_device *d, cd_coming *k)
{
    if (k->n > 0) {
        if (!cu_try(d, cudaEventSynchronize(cu_of(d)->slot_free[k->slot]), "get"))
            return false;
        memcpy(k->to, k->room, k->n);
    }
    k->n = 0;
    return true;
}

/*
 * Half of the slots are filled by the GPU while the host empties the others, so the two copies
 * overlap.
 */
static void cd_get_pieces(zt_device *d, char *host, const char *from, uint64_t n_bytes)
{
    zt_cuda *c = cu_of(d);
    cd_coming coming[CU_SLOTS / 2] = {};
    unsigned turn = 0;
    for (uint64_t at = 0; at < n_bytes; at += CU_SLOT_BYTES) {
        cd_coming *k = &coming[turn++ % (CU_SLOTS / 2)];
        if (!cd_arrive(d, k))
            return;
        k->room = cd_slot(d, &k->slot);
        if (!k->room)
            return;
        size_t n = cd_piece(n_bytes, at);
        if (!cu_try(d, cudaMemcpyAsync(k->room, from + at, n, cudaMemcpyDeviceToHost, c->stream),
                    "get") ||
            !cu_try(d, cudaEventRecord(c->slot_free[k->slot], c->stream), "get"))
            return;
        k->to = host + at;
        k->n = n;
    }
    for (unsigned i = 0; i < CU_SLOTS / 2; i++) {
        if (!cd_arrive(d, &coming[i]))
            return;
    }
}

static void cd_get(zt_device *d, void *host, const void *from, uint64_t n_bytes)
{
    if (!cu_ready(d, CKPT_F32, n_bytes == 0 || (host && from), "get") || n_bytes == 0)
        return;
    if (cd_is_direct(host, n_bytes)) {
        cd_direct(d, host, from, n_bytes, cudaMemcpyDeviceToHost, "get");
        return;
    }
    cd_get_pieces(d, (char *)host, (const char *)from, n_bytes);
}

static void cd_copy(zt_device *d, void *to, const void *from, uint64_t n_bytes)
{
    zt_cuda *c = cu_of(d);
    if (!cu_ready(d, CKPT_F32, n_bytes == 0 || (to && from), "copy") || n_bytes == 0 || to == from)
        return;
    uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if ((a > b ? a - b : b - a) < n_bytes) { // they overlap
        void *room = cu_scratch(d, n_bytes);
        if (!room ||
            !cu_try(d, cudaMemcpyAsync(room, from, n_bytes, cudaMemcpyDeviceToDevice, c->stream),
                    "copy"))
            return;
        from = room;
    }
    (void)cu_try(d, cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToDevice, c->stream),
                 "copy");
}

static void cd_zero(zt_device *d, void *p, uint64_t n_bytes)
{
    if (cu_ready(d, CKPT_F32, n_bytes == 0 || p, "zero") && n_bytes > 0)
        (void)cu_try(d, cudaMemsetAsync(p, 0, n_bytes, cu_stream(d)), "zero");
}

bool cu_fetch(zt_device *d)
{
    zt_cuda *c = cu_of(d);
    size_t n = sizeof *c->notes;
    if (!cu_try(d, cudaMemcpyAsync(c->host_notes, c->notes, n, cudaMemcpyDeviceToHost, c->stream),
                "a result") ||
        !cu_try(d, cudaStreamSynchronize(c->stream), "an operation on the GPU"))
        return false;
    if (c->host_notes->bad & CU_BAD_INDEX)
        zt_device_fail(d, CKPT_EUSAGE,
                       "embed: a token or token type is outside its embedding table");
    else if (c->host_notes->bad & CU_BAD_LABEL)
        zt_device_fail(d, CKPT_EUSAGE, "loss: a label is not one of the classes");
    return c->host_notes->bad == 0;
}

static void cd_sync(zt_device *d)
{
    if (cu_ready(d, CKPT_F32, true, "sync"))
        (void)cu_fetch(d);
}

unsigned cu_grid(zt_device *d, uint64_t n, unsigned per_block)
{
    uint64_t blocks = n / per_block + (n % per_block != 0),
             most = (uint64_t)cu_of(d)->multiprocessors * 16;
    blocks = blocks < most ? blocks : most;
    return blocks > 0 ? (unsigned)blocks : 1;
}

/* ---- creating and freeing ---- */

static void cd_free_pinned(zt_cuda *c)
{
    for (unsigned i = 0; i < CU_SLOTS; i++) {
        if (c->slot_free[i])
            (void)cudaEventDestroy(c->slot_free[i]);
    }
    if (c->slots)
        (void)cudaFreeHost(c->slots);
    if (c->host_notes)
        (void)cudaFreeHost(c->host_notes);
}

static void cd_free(zt_device *d)
{
    zt_cuda *c = cu_of(d);
    (void)cd_select(d);
    if (c->stream)
        (void)cudaStreamSynchronize(c->stream);
    cu_blas_free(c->blas);
    cu_fused_free(c->fused);
    if (c->table)
        for (const auto &live : c->table->bytes)
            cd_give(c, live.first);
    cd_give(c, c->scratch);
    cd_give(c, c->notes);
    cd_free_pinned(c);
    if (c->stream) {
        (void)cudaStreamSynchronize(c->stream);
        (void)cudaStreamDestroy(c->stream);
    }
    delete c->table;
    ckpt_free(c);
}

static zt_device_ops cd_table(void)
{
    zt_device_ops t = {};
    t.name = "cuda";
    t.alloc = cd_alloc;
    t.release = cd_release;
    t.put = cd_put;
    t.get = cd_get;
    t.alloc_host = cd_alloc_host;
    t.release_host = cd_release_host;
    t.copy = cd_copy;
    t.zero = cd_zero;
    t.sync = cd_sync;
    t.free = cd_free;
    t.cast = cu_cast;
    t.accumulate = cu_accumulate;
    t.scale = cu_scale;
    t.add = cu_add;
    t.sum_squares = cu_sum_squares;
    t.linear = cu_linear;
    t.linear_grad = cu_linear_grad;
    t.matmul = cu_matmul;
    t.act = cu_act;
    t.act_grad = cu_act_grad;
    t.swiglu = cu_swiglu;
    t.swiglu_grad = cu_swiglu_grad;
    t.norm = cu_norm;
    t.norm_grad = cu_norm_grad;
    t.embed = cu_embed;
    t.embed_grad = cu_embed_grad;
    t.attention = cu_attention;
    t.attention_grad = cu_attention_grad;
    t.rope = cu_rope;
    t.dropout = cu_dropout;
    t.loss = cu_loss;
    t.rows = cu_rows;
    t.update = cu_update;
    return t;
}

/* Check that the GPU exists and is new enough. */
static int cd_check(int ordinal, cudaDeviceProp *prop, ckpt_err *err)
{
    int n = 0, driver = 0, built = CUDART_VERSION;
    cudaError_t e = cudaGetDeviceCount(&n);
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    if (e == cudaErrorInsufficientDriver || (driver > 0 && driver / 1000 < built / 1000))
        return driver == 0
                   ? ckpt_fail(err, CKPT_EUNSUPPORTED,
                               "no NVIDIA driver is loaded; this build needs one "
                               "for CUDA %d.%d or later",
                               built / 1000, built % 1000 / 10)
                   : ckpt_fail(err, CKPT_EUNSUPPORTED,
                               "the NVIDIA driver is too old: it supports CUDA %d.%d, but this "
                               "build needs %d.%d or later",
                               driver / 1000, driver % 1000 / 10, built / 1000, built % 1000 / 10);
    if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "no NVIDIA GPU is visible to this process; one of compute "
                         "capability %d.%d or later is needed",
                         CD_CAPABILITY / 10, CD_CAPABILITY % 10);
    if (e != cudaSuccess)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "CUDA cannot be initialized: %s",
                         cudaGetErrorString(e));
    if (ordinal < 0 || ordinal >= n)
        return ckpt_fail(
            err, CKPT_EUNSUPPORTED,
            "GPU %d was requested, but the number of GPUs visible to this process is %d", ordinal,
            n);
    e = cudaGetDeviceProperties(prop, ordinal);
    if (e != cudaSuccess)
        return ckpt_fail(err, CKPT_EIO, "GPU %d: %s", ordinal, cudaGetErrorString(e));
    if (prop->major * 10 + prop->minor < CD_CAPABILITY)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "GPU %d (%s) has compute capability %d.%d, but %d.%d or later is needed",
                         ordinal, prop->name, prop->major, prop->minor, CD_CAPABILITY / 10,
                         CD_CAPABILITY % 10);
    return CKPT_OK;
}

/* Make the pool keep freed memory; otherwise it goes back to the driver at each wait. */
static bool cd_keep_pool(zt_device *d)
{
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    return cu_try(d, cudaDeviceGetDefaultMemPool(&pool, cu_of(d)->ordinal), "the memory pool") &&
           cu_try(d, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all),
                  "the memory pool");
}

static bool cd_start_pinned(zt_device *d)
{
    zt_cuda *c = cu_of(d);
    size_t n = (size_t)CU_SLOTS * CU_SLOT_BYTES;
    if (!cu_try(d, cudaHostAlloc((void **)&c->slots, n, cudaHostAllocDefault), "pinned memory") ||
        !cu_try(d,
                cudaHostAlloc((void **)&c->host_notes, sizeof *c->host_notes, cudaHostAllocDefault),
                "pinned memory"))
        return false;
    for (unsigned i = 0; i < CU_SLOTS; i++) {
        if (!cu_try(d, cudaEventCreateWithFlags(&c->slot_free[i], cudaEventDisableTiming),
                    "an event"))
            return false;
    }
    return true;
}

static bool cd_start(zt_device *d)
{
    zt_cuda *c = cu_of(d);
    c->table = new (std::nothrow) cu_table;
    if (!c->table) {
        zt_device_fail(d, CKPT_ELIMIT, "out of memory");
        return false;
    }
    if (!cd_select(d) || (c->pools && !cd_keep_pool(d)) ||
        !cu_try(d, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream") ||
        !cd_start_pinned(d) ||
        !cu_try(d, cd_take(c, (void **)&c->notes, sizeof *c->notes), "out of memory") ||
        !cu_try(d, cudaMemsetAsync(c->notes, 0, sizeof *c->notes, c->stream), "zero"))
        return false;
    c->blas = cu_blas_new(c);
    return c->blas && cu_fetch(d);
}

int zt_cuda_device_new(zt_device **out, int ordinal, bool deterministic, ckpt_err *err)
{
    static zt_device_ops table;
    cudaDeviceProp prop;
    int rc = cd_check(ordinal, &prop, err);
    if (rc != CKPT_OK)
        return rc;
    zt_cuda *c = (zt_cuda *)ckpt_alloc(sizeof *c);
    if (!c)
        return ckpt_fail_memory(err);
    table = cd_table();
    c->device.ops = &table;
    c->ordinal = ordinal;
    c->capability = prop.major * 10 + prop.minor;
    c->deterministic = deterministic;
    c->multiprocessors = (unsigned)prop.multiProcessorCount;
    c->max_shared = prop.sharedMemPerBlockOptin;
    c->all_shared = prop.sharedMemPerMultiprocessor;
    c->pools = prop.memoryPoolsSupported != 0;
    rc = cd_start(&c->device) ? cu_fused_new(&c->fused, c, err) : zt_device_check(&c->device, err);
    if (rc != CKPT_OK) {
        cd_free(&c->device);
        return rc;
    }
    *out = &c->device;
    return CKPT_OK;
}

void zt_cuda_attention(zt_device *d, char *text, uint64_t n)
{
    cu_fused_text(cu_of(d)->fused, text, n);
}

void *zt_cuda_stream(zt_device *d)
{
    return (void *)cu_of(d)->stream;
}
