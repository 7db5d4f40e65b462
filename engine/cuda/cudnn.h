/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn.h: declares plans of cuDNN's fused attention: a description of a call, and its execution.
 *
 * fused.cu chooses the calls and checks the results.  cudnn.cpp hands the descriptions to cuDNN,
 * and alone includes its headers; on the emulated GPU tests/gpu/emulate/cudnn.cpp computes from
 * them.  Tests build plans for GPUs that are not there (tests/gpu/absent/plans.cpp).
 */
#ifndef ZT_CUDA_CUDNN_H
#define ZT_CUDA_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

extern "C" {
#include "engine/device/arguments.h"
#include "engine/device/device.h"
}

/* Oldest usable cuDNN, as the library counts: 10000 major + 100 minor + patch. */
#define CU_DNN_LEAST 90500u

/* Four axes of a tensor: sequences, heads, rows, columns; strides in elements. */
typedef struct cu_dnn_tensor {
    int64_t n[4], stride[4];
} cu_dnn_tensor;

/* Tensors of a call; those from dout on belong to the backward pass only. */
typedef enum cu_dnn_which {
    CU_DNN_Q,
    CU_DNN_K,
    CU_DNN_V,
    CU_DNN_O,
    CU_DNN_LSE, /* fp32 [sequences, heads, rows, 1]: natural logarithms, as zt_attention's lse */
    CU_DNN_DOUT,
    CU_DNN_DQ,
    CU_DNN_DK,
    CU_DNN_DV,
    CU_DNN_TENSORS
} cu_dnn_which;

/*
 * Attention without addresses.
 *
 * dt      BF16 or F16: all tensors but lse
 * causal  query q sees the keys 0 .. q, even if there are fewer queries than keys
 */
typedef struct cu_dnn_call {
    ckpt_dtype dt;
    bool backward, causal;
    float scale;
    cu_dnn_tensor tensor[CU_DNN_TENSORS];
} cu_dnn_call;

/* One tensor: rows with stride ld, the vectors of their heads side by side. */
static inline cu_dnn_tensor cu_dnn_rows(uint64_t batch, uint64_t heads, uint64_t rows,
                                        uint64_t width, uint64_t ld)
{
    return {{(int64_t)batch, (int64_t)heads, (int64_t)rows, (int64_t)width},
            {(int64_t)(rows * ld), (int64_t)width, (int64_t)ld, 1}};
}

/*
 * Describe a call whose arguments are valid, and whose sizes fit into 32 bits.
 *
 * g  the backward pass of a; NULL: the forward pass
 */
static inline void cu_dnn_describe(cu_dnn_call *c, ckpt_dtype dt, const zt_attention *a,
                                   const zt_attention_grad *g)
{
    const uint64_t queries = a->queries != 0 ? a->queries : a->seq;
    const uint64_t wide = a->heads * a->width, narrow = a->kv_heads * a->width;
    const uint64_t ldq = zt_stride(a->ldq, wide), ldo = zt_stride(a->ldo, wide);
    const uint64_t ldk = zt_stride(a->ldk, narrow), ldv = zt_stride(a->ldv, narrow);
    cu_dnn_tensor *t = c->tensor;

    *c = {};
    c->dt = dt;
    c->backward = g != NULL;
    c->causal = a->causal;
    c->scale = a->scale;
    t[CU_DNN_Q] = cu_dnn_rows(a->batch, a->heads, queries, a->width, ldq);
    t[CU_DNN_K] = cu_dnn_rows(a->batch, a->kv_heads, a->seq, a->width, ldk);
    t[CU_DNN_V] = cu_dnn_rows(a->batch, a->kv_heads, a->seq, a->width, ldv);
    t[CU_DNN_O] = cu_dnn_rows(a->batch, a->heads, queries, a->width, ldo);
    t[CU_DNN_LSE] = {{(int64_t)a->batch, (int64_t)a->heads, (int64_t)queries, 1},
                     {(int64_t)(a->heads * queries), (int64_t)queries, 1, 1}};
    if (g) {
        t[CU_DNN_DOUT] =
            cu_dnn_rows(a->batch, a->heads, queries, a->width, zt_stride(g->lddo, wide));
        t[CU_DNN_DQ] = t[CU_DNN_Q];
        t[CU_DNN_DK] = t[CU_DNN_K];
        t[CU_DNN_DV] = t[CU_DNN_V];
    }
}

typedef struct cu_dnn cu_dnn;           /* the library, opened for one GPU */
typedef struct cu_dnn_plan cu_dnn_plan; /* compiled for one call */

/*
 * Load the library for the current GPU.
 *
 * stream      the cudaStream_t on which plans run
 * capability  10 major + minor
 * Errors      CKPT_EUNSUPPORTED: built without cuDNN's headers; a library is missing or too old
 */
int cu_dnn_open(cu_dnn **out, void *stream, int capability, ckpt_err *err);

/*
 * Load it for a GPU that need not be there; its plans can be built, but not run.
 *
 * properties  of the GPU: JSON, as cuDNN writes it (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
 */
int cu_dnn_open_absent(cu_dnn **out, const char *properties, int capability, ckpt_err *err);

void cu_dnn_close(cu_dnn *c); /* NULL is fine */

/* The library's version, as CU_DNN_LEAST counts. */
uint64_t cu_dnn_version(const cu_dnn *c);

/*
 * Build a plan.  It takes about half a second, because cuDNN compiles a kernel.
 *
 * n_bytes  output: bytes of device memory that each run needs
 * Errors   CKPT_EUNSUPPORTED: cuDNN has no kernel for the call (the text is cuDNN's)
 */
int cu_dnn_plan_new(cu_dnn_plan **out, cu_dnn *c, const cu_dnn_call *call, uint64_t *n_bytes,
                    ckpt_err *err);

/*
 * Queue a run of a plan.
 *
 * at    addresses of the tensors, multiples of 16; NULL for those that the pass lacks
 * room  device memory of the plan's size
 */
int cu_dnn_plan_run(cu_dnn_plan *p, void *const at[CU_DNN_TENSORS], void *room, ckpt_err *err);

void cu_dnn_plan_free(cu_dnn_plan *p); /* NULL is fine */

#endif
