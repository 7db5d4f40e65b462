/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blas.cpp: owns the emulation's matrix products.
 */
#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

struct zt_emu_blas {
    int unused;
};

struct zt_emu_product {
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
};

struct zt_emu_matrix {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};

struct zt_emu_preference {
    size_t workspace;
};

/* For all four: new, and gone. */
template <typename T> static cublasStatus_t bl_new(T **out)
{
    *out = (T *)calloc(1, sizeof(T));
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t bl_free(void *p)
{
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    return bl_new(h);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    return bl_free(h);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS ? "success" : "not supported by the emulation";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    cublasStatus_t s = bl_new(d);
    if (s == CUBLAS_STATUS_SUCCESS) {
        (*d)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    }
    return s;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return bl_free(d);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attr,
                                              const void *value, size_t n)
{
    void *field = attr == CUBLASLT_MATMUL_DESC_TRANSA     ? (void *)&d->a
                  : attr == CUBLASLT_MATMUL_DESC_TRANSB   ? (void *)&d->b
                  : attr == CUBLASLT_MATMUL_DESC_EPILOGUE ? (void *)&d->epilogue
                                                          : (void *)&d->bias;
    size_t size = attr == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof d->bias : 4;
    if (n != size) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field, value, n);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *m, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    cublasStatus_t s = bl_new(m);
    if (s == CUBLAS_STATUS_SUCCESS) {
        **m = {type, rows, columns, ld};
    }
    return s;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m)
{
    return bl_free(m);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    return bl_new(p);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return bl_free(p);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *value, size_t n)
{
    if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        memcpy(&p->workspace, value, n);
    } else if (n != 4) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* op(X) has `rows` rows and `columns` columns. */
static bool bl_shape(const zt_emu_matrix *x, cublasOperation_t op, uint64_t rows, uint64_t columns)
{
    bool turned = op == CUBLAS_OP_T;
    return x->rows == (turned ? columns : rows) && x->columns == (turned ? rows : columns) &&
           x->rows > 0 && x->columns > 0 && x->ld >= (int64_t)x->rows;
}

static uint64_t bl_inner(const zt_emu_product *d, const zt_emu_matrix *a)
{
    return d->a == CUBLAS_OP_T ? a->rows : a->columns;
}

static bool bl_fits(const zt_emu_product *d, const zt_emu_matrix *a, const zt_emu_matrix *b,
                    const zt_emu_matrix *to)
{
    uint64_t k = bl_inner(d, a);
    return bl_shape(a, d->a, to->rows, k) && bl_shape(b, d->b, k, to->columns) &&
           to->ld >= (int64_t)to->rows;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t to,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    *found = 0;
    if (wanted < 1 || !bl_fits(d, a, b, to) || memcmp(c, to, sizeof *c) != 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (a->type != CUDA_R_32F && (a->ld % 2 || b->ld % 2 || to->ld % 2)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    memset(results, 0, sizeof *results);
    results->state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static float bl_get(const void *p, cudaDataType_t type, uint64_t i)
{
    return type == CUDA_R_32F   ? ((const float *)p)[i]
           : type == CUDA_R_16F ? __half2float(((const __half *)p)[i])
                                : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

static void bl_put(void *p, cudaDataType_t type, uint64_t i, float x)
{
    if (type == CUDA_R_32F) {
        ((float *)p)[i] = x;
    } else if (type == CUDA_R_16F) {
        ((__half *)p)[i] = __float2half_rn(x);
    } else {
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(x);
    }
}

/* op(X) as fp32, row-major (rows of A) or column-major (columns of B): both run along k. */
static float *bl_panel(const void *x, const zt_emu_matrix *m, bool along_columns)
{
    float *p = (float *)malloc(m->rows * m->columns * sizeof *p);
    if (!p) {
        zt_emu_die("out of memory");
    }
    for (uint64_t j = 0; j < m->columns; j++) {
        for (uint64_t i = 0; i < m->rows; i++) {
            float v = bl_get(x, m->type, j * (uint64_t)m->ld + i);
            p[along_columns ? j * m->rows + i : i * m->columns + j] = v;
        }
    }
    return p;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t, void *to, cublasLtMatrixLayout_t to_layout,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t)
{
    float al = *(const float *)alpha, be = *(const float *)beta;
    uint64_t k = bl_inner(d, a_layout);
    if (!bl_fits(d, a_layout, b_layout, to_layout)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    zt_emu_enter();
    float *pa = bl_panel(a, a_layout, d->a == CUBLAS_OP_T);
    float *pb = bl_panel(b, b_layout, d->b == CUBLAS_OP_N);
    for (uint64_t j = 0; j < to_layout->columns; j++) {
        for (uint64_t i = 0; i < to_layout->rows; i++) {
            uint64_t at = j * (uint64_t)to_layout->ld + i;
            float sum[4] = {0, 0, 0, 0};
            for (uint64_t x = 0; x < k; x++) {
                sum[x % 4] += pa[i * k + x] * pb[j * k + x];
            }
            float v = al * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
            v += be != 0 ? be * bl_get(c, to_layout->type, at) : 0;
            v += d->epilogue == CUBLASLT_EPILOGUE_BIAS ? bl_get(d->bias, to_layout->type, i) : 0;
            bl_put(to, to_layout->type, at, v);
        }
    }
    free(pa);
    free(pb);
    zt_emu_leave();
    return CUBLAS_STATUS_SUCCESS;
}
