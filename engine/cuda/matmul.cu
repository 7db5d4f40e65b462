/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul.cu: computes matrix products on the GPU by cuBLASLt: linear maps, their gradients, general
 * products.
 *
 * Products of 16-bit matrices run on tensor cores and sum in fp32; those of fp32 are exact fp32 (no
 * TF32).  Activations run separately, because they must see the rounded value (device.h), while the
 * library's fused ones see the unrounded one (and its GELU is the tanh form only).
 *
 * The library's kernels differ in whether they round once, after adding a bias or old values to the
 * product, or once more in between.  On an H100 (cuBLASLt 13.0) kernels that do not split k round
 * product and bias to dt, then add the old value and round again; kernels that split k round once.
 * Whether such kernels are allowed (deterministic) changes nothing: tests/gpu/orders.c prints it.
 * PyTorch calls the same kernels, so its results vary in the same way; tests/gpu/test_device.c
 * accepts these orders and no other.
 *
 * The library chooses a kernel once per shape.  Kernels that sum parts of k in dt, or in an order
 * that varies, are excluded; with `deterministic`, all kernels that split k.  If the library has no
 * kernel (odd strides, for example), a plain one here computes the product.
 *
 * The CPU rounds a weight's gradient before it adds it to the old one (w_add), so results differ by
 * at most one rounding of the product.
 */
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "engine/cuda/cuda.h"

/* NVIDIA's recommendation for 9.0; earlier GPUs need less. */
#define MM_WORKSPACE ((size_t)32 << 20)

/* Size of the table of plans, a power of two; at three quarters all plans are dropped. */
#define MM_PLANS 1024u

#define MM_SIDE   16u  /* side of the plain kernel's tiles */
#define MM_CHUNKS 256u /* partial sums of a bias gradient */
#define MM_ROWS   8u   /* rows that a block reads at once for them; 32 packs of columns */
#define MM_LANES  32u  /* threads per column of partial sums, for 32 columns */

/* The properties on which a plan depends; compared byte by byte. */
typedef struct mm_key {
    uint64_t m, n, k, lda, ldb, ldc;
    uint32_t dt, flags, align_a, align_b, align_c, used;
} mm_key;

typedef struct mm_plan {
    mm_key key;
    bool none; /* the library has no kernel */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
} mm_plan;

struct cu_blas {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    mm_plan plan[MM_PLANS];
    unsigned used;
};

static bool mm_try(zt_device *d, cublasStatus_t s)
{
    char text[120];
    if (s == CUBLAS_STATUS_SUCCESS)
        return true;
    snprintf(text, sizeof text, "cuBLASLt: %s (%d)", cublasLtGetStatusString(s), (int)s);
    zt_device_fail(d, s == CUBLAS_STATUS_ALLOC_FAILED ? CKPT_ELIMIT : CKPT_EIO, text);
    return false;
}

/* ---- plans ---- */

static void mm_drop(mm_plan *p)
{
    if (p->desc)
        (void)cublasLtMatmulDescDestroy(p->desc);
    cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c};
    for (unsigned i = 0; i < 3; i++) {
        if (layouts[i])
            (void)cublasLtMatrixLayoutDestroy(layouts[i]);
    }
    memset(p, 0, sizeof *p);
}

/* The largest power of two, at most 16, that divides an address. */
static uint32_t mm_align(const void *p)
{
    uintptr_t bits = (uintptr_t)p | 16;
    return (uint32_t)(bits & (~bits + 1));
}

static mm_key mm_key_of(ckpt_dtype dt, const zt_product *p)
{
    mm_key k;
    memset(&k, 0, sizeof k); // padding is compared too, so it must be 0
    k.m = p->m;
    k.n = p->n;
    k.k = p->k;
    k.lda = p->lda;
    k.ldb = p->ldb;
    k.ldc = p->ldc;
    k.dt = (uint32_t)dt;
    k.flags = (p->a_transposed ? 1u : 0) | (p->b_transposed ? 2u : 0) | (p->bias ? 4u : 0) |
              (p->beta != 0 ? 8u : 0);
    k.align_a = mm_align(p->a);
    k.align_b = mm_align(p->b);
    k.align_c = mm_align(p->c);
    k.used = 1;
    return k;
}

/* FNV-1a over 64-bit words. */
static uint64_t mm_hash(const mm_key *k)
{
    uint64_t word[sizeof *k / 8], h = 0xcbf29ce484222325u;
    memcpy(word, k, sizeof word);
    for (unsigned i = 0; i < sizeof word / sizeof *word; i++)
        h = (h ^ word[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static bool mm_set(zt_device *d, mm_plan *p, cublasLtMatmulDescAttributes_t attr, int32_t value)
{
    return mm_try(d, cublasLtMatmulDescSetAttribute(p->desc, attr, &value, sizeof value));
}

static bool mm_set_bias(zt_device *d, mm_plan *p, const void *bias)
{
    return mm_try(d, cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                    &bias, sizeof bias));
}

/*
 * The library's matrices are column-major, so it computes C' = op(B)' op(A)': its first operand is
 * our B, which is B' if read by columns.
 */
static bool mm_describe(zt_device *d, ckpt_dtype dt, const zt_product *p, mm_plan *plan)
{
    cudaDataType_t type = dt == CKPT_F32 ? CUDA_R_32F : dt == CKPT_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    bool at = p->a_transposed, bt = p->b_transposed;
    return mm_try(d, cublasLtMatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
           // an address with a bias' least alignment, because the library's choice may depend on it
           mm_set_bias(d, plan, p->bias ? (char *)cu_of(d)->blas->workspace + 16 : NULL) &&
           mm_set(d, plan, CUBLASLT_MATMUL_DESC_TRANSA, bt ? CUBLAS_OP_T : CUBLAS_OP_N) &&
           mm_set(d, plan, CUBLASLT_MATMUL_DESC_TRANSB, at ? CUBLAS_OP_T : CUBLAS_OP_N) &&
           mm_set(d, plan, CUBLASLT_MATMUL_DESC_EPILOGUE,
                  p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT) &&
           mm_try(d, cublasLtMatrixLayoutCreate(&plan->a, type, bt ? p->k : p->n, bt ? p->n : p->k,
                                                (int64_t)p->ldb)) &&
           mm_try(d, cublasLtMatrixLayoutCreate(&plan->b, type, at ? p->m : p->k, at ? p->k : p->m,
                                                (int64_t)p->lda)) &&
           mm_try(d, cublasLtMatrixLayoutCreate(&plan->c, type, p->n, p->m, (int64_t)p->ldc));
}

static bool mm_prefer(zt_device *d, cublasLtMatmulPreferenceAttributes_t attr, uint32_t value)
{
    cu_blas *b = cu_of(d)->blas;
    return mm_try(d,
                  cublasLtMatmulPreferenceSetAttribute(b->preference, attr, &value, sizeof value));
}

/* Let the library choose a kernel; false only if the device has failed. */
static bool mm_choose(zt_device *d, mm_plan *p)
{
    cu_blas *b = cu_of(d)->blas;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    if (!mm_prefer(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->key.align_b) ||
        !mm_prefer(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->key.align_a) ||
        !mm_prefer(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->key.align_c) ||
        !mm_prefer(d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->key.align_c))
        return false;
    cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(b->handle, p->desc, p->a, p->b, p->c, p->c,
                                                      b->preference, 1, &result, &found);
    p->none = s == CUBLAS_STATUS_NOT_SUPPORTED || (s == CUBLAS_STATUS_SUCCESS && found == 0);
    if (p->none)
        return true;
    p->algo = result.algo;
    return mm_try(d, s);
}

/* Find the plan of a product, or make it; NULL: the device has failed. */
static mm_plan *mm_find(zt_device *d, ckpt_dtype dt, const zt_product *p)
{
    cu_blas *b = cu_of(d)->blas;
    mm_key key = mm_key_of(dt, p);
    if (b->used > MM_PLANS / 4 * 3) {
        for (unsigned i = 0; i < MM_PLANS; i++)
            mm_drop(&b->plan[i]);
        b->used = 0;
    }
    unsigned i = (unsigned)mm_hash(&key) % MM_PLANS;
    while (b->plan[i].key.used) {
        if (memcmp(&b->plan[i].key, &key, sizeof key) == 0)
            return &b->plan[i];
        i = (i + 1) % MM_PLANS;
    }
    mm_plan *plan = &b->plan[i];
    plan->key = key;
    if (!mm_describe(d, dt, p, plan) || !mm_choose(d, plan)) {
        mm_drop(plan);
        return NULL;
    }
    b->used++;
    return plan;
}

cu_blas *cu_blas_new(zt_cuda *c)
{
    zt_device *d = &c->device;
    cu_blas *b = (cu_blas *)ckpt_alloc(sizeof *b);
    size_t workspace = MM_WORKSPACE;
    uint32_t schemes =
        c->deterministic ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (!b) {
        zt_device_fail(d, CKPT_ELIMIT, "out of memory");
        return NULL;
    }
    c->blas = b;
    bool ok = mm_try(d, cublasLtCreate(&b->handle)) &&
              mm_try(d, cublasLtMatmulPreferenceCreate(&b->preference)) &&
              cu_try(d, cudaMalloc(&b->workspace, workspace), "workspace of matrix products") &&
              mm_try(d, cublasLtMatmulPreferenceSetAttribute(
                            b->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                            sizeof workspace)) &&
              mm_prefer(d, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    if (!ok) {
        cu_blas_free(b);
        c->blas = NULL;
        return NULL;
    }
    return b;
}

void cu_blas_free(cu_blas *b)
{
    if (!b)
        return;
    for (unsigned i = 0; i < MM_PLANS; i++)
        mm_drop(&b->plan[i]);
    if (b->preference)
        (void)cublasLtMatmulPreferenceDestroy(b->preference);
    if (b->handle)
        (void)cublasLtDestroy(b->handle);
    (void)cudaFree(b->workspace);
    ckpt_free(b);
}

/* ---- the plain kernel ---- */

/*
 * Kernel: a block computes a tile of C, one element per thread, from tiles of A and B in shared
 * memory.
 */
template <typename T>
static __global__ void __launch_bounds__(MM_SIDE *MM_SIDE) ck_plain(zt_product p)
{
    ZT_SHARED_ARRAY(float, a, MM_SIDE *(MM_SIDE + 1));
    ZT_SHARED_ARRAY(float, b, MM_SIDE *(MM_SIDE + 1));
    unsigned y = threadIdx.x / MM_SIDE, x = threadIdx.x % MM_SIDE;
    uint64_t across = (p.n + MM_SIDE - 1) / MM_SIDE;
    uint64_t row = blockIdx.x / across * MM_SIDE + y, column = blockIdx.x % across * MM_SIDE + x;
    float sum = 0.0F;
    for (uint64_t k = 0; k < p.k; k += MM_SIDE) {
        const T *pa =
            (const T *)p.a + (p.a_transposed ? (k + x) * p.lda + row : row * p.lda + k + x);
        const T *pb =
            (const T *)p.b + (p.b_transposed ? column * p.ldb + k + y : (k + y) * p.ldb + column);
        __syncthreads();
        a[y * (MM_SIDE + 1) + x] = row < p.m && k + x < p.k ? ck_up(*pa) : 0.0F;
        b[y * (MM_SIDE + 1) + x] = column < p.n && k + y < p.k ? ck_up(*pb) : 0.0F;
        __syncthreads();
        for (unsigned i = 0; i < MM_SIDE; i++)
            sum += a[y * (MM_SIDE + 1) + i] * b[i * (MM_SIDE + 1) + x];
    }
    if (row < p.m && column < p.n) {
        T *c = (T *)p.c + row * p.ldc + column;
        sum = p.alpha * sum;
        sum += p.beta != 0.0F ? p.beta * ck_up(*c) : 0.0F; // with beta 0, C is not read, because
                                                           // uninitialised memory may be NaN
        sum += p.bias ? ck_up(((const T *)p.bias)[column]) : 0.0F;
        *c = ck_down<T>(sum);
    }
}

static void mm_plain(zt_device *d, ckpt_dtype dt, const zt_product *p)
{
    uint64_t blocks = (p->m + MM_SIDE - 1) / MM_SIDE * ((p->n + MM_SIDE - 1) / MM_SIDE);
    if (blocks > INT32_MAX) {
        zt_device_fail(d, CKPT_ELIMIT, "matrix product: over 2^31 - 1 tiles");
        return;
    }
    CU_DTYPE(dt, T,
             ZT_LAUNCH(ck_plain<T>, (unsigned)blocks, MM_SIDE * MM_SIDE, 0, cu_stream(d), *p));
}

/* ---- any product ---- */

/* The library reads a bias in whole registers, so one that is less aligned is copied first. */
static const void *mm_bias(zt_device *d, ckpt_dtype dt, const zt_product *p)
{
    if (mm_align(p->bias) == 16)
        return p->bias;
    size_t n = p->n * zt_size(dt);
    void *room = cu_scratch(d, n);
    return room && cu_try(d,
                          cudaMemcpyAsync(room, p->bias, n, cudaMemcpyDeviceToDevice, cu_stream(d)),
                          "a bias")
               ? room
               : NULL;
}

/* True if all sizes fit an int, which the library uses internally. */
static bool mm_fits(const zt_product *p)
{
    return p->m <= INT32_MAX && p->n <= INT32_MAX && p->k <= INT32_MAX && p->lda <= INT32_MAX &&
           p->ldb <= INT32_MAX && p->ldc <= INT32_MAX;
}

static void mm_run(zt_device *d, ckpt_dtype dt, const zt_product *p)
{
    cu_blas *b = cu_of(d)->blas;
    if (p->m == 0 || p->n == 0)
        return;
    if (!mm_fits(p)) {
        zt_device_fail(d, CKPT_ELIMIT, "matrix product: a side is over 2^31 - 1");
        return;
    }
    mm_plan *plan = p->k > 0 ? mm_find(d, dt, p) : NULL;
    if (p->k == 0 || (plan && plan->none)) {
        mm_plain(d, dt, p);
        (void)cu_launched(d, "matrix product");
        return;
    }
    if (!plan)
        return;
    if (p->bias) {
        const void *bias = mm_bias(d, dt, p);
        if (!bias || !mm_set_bias(d, plan, bias))
            return;
    }
    (void)mm_try(d, cublasLtMatmul(b->handle, plan->desc, &p->alpha, p->b, plan->a, p->a, plan->b,
                                   &p->beta, p->c, plan->c, p->c, plan->c, &plan->algo,
                                   b->workspace, MM_WORKSPACE, cu_stream(d)));
}

/* ---- column sums ---- */

typedef struct mm_columns {
    const void *x;
    void *to;
    float *part;                    /* [chunks, width] */
    uint64_t rows, width, ld, each; /* each: rows per chunk */
    unsigned chunks;
    bool add, wide;
} mm_columns;

/* Add the rows from `row` on, each MM_ROWS-th, of one pack of columns. */
template <typename T, bool WIDE>
static __device__ __forceinline__ void ck_column_rows(const mm_columns &s, uint64_t row,
                                                      uint64_t last, uint64_t at, float *sum)
{
#pragma unroll 8
    for (; row < last; row += MM_ROWS) {
        float x[CK_PACK];
        ck_read(x, (const T *)s.x + row * s.ld, at, WIDE ? at + CK_PACK : s.width, WIDE);
#pragma unroll
        for (unsigned i = 0; i < CK_PACK; i++)
            sum[i] += x[i];
    }
}

/*
 * Sum one chunk of rows (y of the grid) for 32 packs of columns (x).  Each warp adds every
 * MM_ROWS-th row, so that many reads are under way; then the sums of the warps are added in order.
 */
template <typename T>
static __global__ void __launch_bounds__(MM_ROWS * 32) ck_columns(mm_columns s)
{
    ZT_SHARED_ARRAY(float, all, MM_ROWS * 32 * CK_PACK);
    uint64_t first = blockIdx.y * s.each, last = first + s.each < s.rows ? first + s.each : s.rows;
    uint64_t row = first + threadIdx.x / 32;
    uint64_t at = ((uint64_t)blockIdx.x * 32 + threadIdx.x % 32) * CK_PACK;
    float sum[CK_PACK] = {};
    if (at < s.width && s.wide)
        ck_column_rows<T, true>(s, row, last, at, sum);
    else if (at < s.width)
        ck_column_rows<T, false>(s, row, last, at, sum);
#pragma unroll
    for (unsigned i = 0; i < CK_PACK; i++)
        all[threadIdx.x * CK_PACK + i] = sum[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 32 * CK_PACK; i += MM_ROWS * 32) {
        uint64_t column = (uint64_t)blockIdx.x * 32 * CK_PACK + i;
        float x = 0.0F;
        for (unsigned k = 0; k < MM_ROWS; k++)
            x += all[k * 32 * CK_PACK + i];
        if (column < s.width)
            s.part[blockIdx.y * s.width + column] = x;
    }
}

template <typename T>
static __global__ void __launch_bounds__(32 * MM_LANES) ck_columns_total(mm_columns s)
{
    ZT_SHARED_ARRAY(float, lanes, 32 * MM_LANES);
    unsigned lane = threadIdx.x / 32;
    uint64_t column = (uint64_t)blockIdx.x * 32 + threadIdx.x % 32;
    float sum = 0.0F;
#pragma unroll 8
    for (unsigned i = lane; i < (column < s.width ? s.chunks : 0); i += MM_LANES)
        sum += s.part[i * s.width + column];
    lanes[threadIdx.x] = sum;
    __syncthreads();
    if (lane > 0 || column >= s.width)
        return;
    for (unsigned i = 1; i < MM_LANES; i++)
        sum += lanes[i * 32 + threadIdx.x];
    ck_put_sum((T *)s.to + column, sum, s.add);
}

/* Bias gradient: db = sum of the rows of dy. */
static void mm_column_sums(zt_device *d, ckpt_dtype dt, const zt_linear_grad *a, uint64_t lddy)
{
    mm_columns s = {a->dy, a->db, NULL, a->rows, a->out, lddy, 0, 0, a->b_add, false};
    uint64_t chunks = a->rows / 64 + 1;
    s.chunks = chunks < MM_CHUNKS ? (unsigned)chunks : MM_CHUNKS;
    s.each = a->rows / s.chunks + (a->rows % s.chunks != 0);
    s.wide = cu_wide(a->dy, NULL, NULL, lddy) && a->out % CK_PACK == 0;
    s.part = (float *)cu_scratch(d, s.chunks * a->out * sizeof *s.part);
    if (!s.part)
        return;
    const unsigned columns = 32 * CK_PACK;
    dim3 grid((unsigned)((a->out + columns - 1) / columns), s.chunks);
    CU_DTYPE(dt, T, ZT_LAUNCH(ck_columns<T>, grid, MM_ROWS * 32, 0, cu_stream(d), s));
    CU_DTYPE(dt, T,
             ZT_LAUNCH(ck_columns_total<T>, (unsigned)((a->out + 31) / 32), 32 * MM_LANES, 0,
                       cu_stream(d), s));
    (void)cu_launched(d, "bias gradient");
}

/* ---- operations ---- */

void cu_linear(zt_device *d, ckpt_dtype dt, const zt_linear *a)
{
    if (!cu_ready(d, dt, zt_ok_linear(a), "linear") || a->rows == 0)
        return;
    zt_product p = zt_product_linear(a);
    const uint64_t ldy = p.ldc;
    if (a->act != ZT_ACT_NONE && a->pre) { // pre is dense, y may not be
        p.c = a->pre;
        p.ldc = a->out;
    }
    mm_run(d, dt, &p);
    if (a->act != ZT_ACT_NONE && d->err.code == CKPT_OK) {
        zt_rows r = {a->rows, a->out, ldy, p.ldc, false, p.c, a->y};
        cu_act_rows(d, dt, a->act, &r);
    }
}

void cu_linear_grad(zt_device *d, ckpt_dtype dt, const zt_linear_grad *a)
{
    if (!cu_ready(d, dt, zt_ok_linear_grad(a), "linear_grad"))
        return;
    if (a->dx) {
        const zt_product p = zt_product_dx(a);
        mm_run(d, dt, &p);
    }
    if (a->dw) {
        zt_product p = zt_product_dw(a);
        p.beta = p.sum ? 1.0F : 0.0F; // cuBLASLt adds in the same call
        mm_run(d, dt, &p);
    }
    if (a->db && d->err.code == CKPT_OK)
        mm_column_sums(d, dt, a, zt_stride(a->lddy, a->out));
}

void cu_matmul(zt_device *d, ckpt_dtype dt, const zt_matmul *a)
{
    if (!cu_ready(d, dt, zt_ok_matmul(a), "matmul") || a->m == 0 || a->n == 0)
        return;
    const zt_product p = zt_product_matmul(a);
    mm_run(d, dt, &p);
}
