/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_bf16.c: computes matrix products of BF16 operands by oneDNN, in one thread.
 *
 * They are multiplied as they are only by AMX.  Two threads of a Xeon with AMX computed
 * 521 GFLOP/s of bf16 and 137 of fp32 (256 x 2304 x 768, oneDNN 2.6.3); with AVX-512 BF16 alone
 * they computed 45 to 72, so other processors convert to fp32 (cpu_matmul.c).
 */
#include "engine/device/cpu_bf16.h"

#ifdef ZT_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

#include "engine/device/cpu_sgemm.h"
#include "libckpt/base/cast.h"

static dnnl_engine_t bf_engine;

static void bf_start(void)
{
    if (dnnl_engine_create(&bf_engine, dnnl_cpu, 0) != dnnl_success)
        bf_engine = NULL;
}

static bool bf_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, bf_start);
    return bf_engine != NULL;
}

/* Operands of an execution: A, B, C. */
enum { BF_A, BF_B, BF_C, BF_N };

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t bf_desc;

static bool bf_describe(bf_desc *to, dnnl_data_type_t dt, const dnnl_dims_t dims,
                        const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(to, 2, dims, dt, strides) == dnnl_success;
}

static void bf_forget(bf_desc *d)
{
    if (*d)
        (void)dnnl_memory_desc_destroy(*d);
}

static bool bf_matmul(dnnl_primitive_desc_t *out, const bf_desc d[BF_N], dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(out, bf_engine, d[BF_A], d[BF_B], NULL, d[BF_C],
                                             attr) == dnnl_success;
}

static bool bf_memory(dnnl_memory_t *out, const bf_desc *d, void *at)
{
    return dnnl_memory_create(out, *d, bf_engine, at) == dnnl_success;
}
#else
typedef dnnl_memory_desc_t bf_desc;

static bool bf_describe(bf_desc *to, dnnl_data_type_t dt, const dnnl_dims_t dims,
                        const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(to, 2, dims, dt, strides) == dnnl_success;
}

static void bf_forget(bf_desc *d)
{
    (void)d;
}

static bool bf_matmul(dnnl_primitive_desc_t *out, const bf_desc d[BF_N], dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    return dnnl_matmul_desc_init(&op, &d[BF_A], &d[BF_B], NULL, &d[BF_C]) == dnnl_success &&
           dnnl_primitive_desc_create(out, &op, attr, bf_engine, NULL) == dnnl_success;
}

static bool bf_memory(dnnl_memory_t *out, const bf_desc *d, void *at)
{
    return dnnl_memory_create(out, d, bf_engine, at) == dnnl_success;
}
#endif

/* Describe a matrix [rows, columns], stored with its columns as rows if transposed. */
static bool bf_matrix(bf_desc *to, ckpt_dtype dt, const uint64_t shape[2], uint64_t ld,
                      bool transposed)
{
    const dnnl_dims_t dims = {(dnnl_dim_t)shape[0], (dnnl_dim_t)shape[1]};
    const dnnl_dims_t strides = {transposed ? 1 : (dnnl_dim_t)ld, transposed ? (dnnl_dim_t)ld : 1};
    return bf_describe(to, dt == CKPT_F32 ? dnnl_f32 : dnnl_bf16, dims, strides);
}

/* Make the attribute that adds the product to C. */
static bool bf_added(dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    bool ok = dnnl_primitive_attr_create(out) == dnnl_success &&
              dnnl_post_ops_create(&ops) == dnnl_success &&
#if DNNL_VERSION_MAJOR >= 3
              dnnl_post_ops_append_sum(ops, 1.0F, 0, dnnl_data_type_undef) == dnnl_success &&
#else
              dnnl_post_ops_append_sum(ops, 1.0F) == dnnl_success &&
#endif
              dnnl_primitive_attr_set_post_ops(*out, ops) == dnnl_success;
    if (ops)
        (void)dnnl_post_ops_destroy(ops);
    return ok;
}

/* False for oneDNN's plain loops, which are many times slower than its other code. */
static bool bf_fast(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) ==
               dnnl_success &&
           strncmp(name, "ref", 3) != 0;
}

/* Find or compile the product's code; oneDNN caches compiled code. */
static bool bf_code(dnnl_primitive_t *out, const bf_desc d[BF_N])
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool ok = bf_added(&attr) && bf_matmul(&pd, d, attr) && bf_fast(pd) &&
              dnnl_primitive_create(out, pd) == dnnl_success;
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    return ok;
}

static bool bf_execute(dnnl_primitive_t code, const bf_desc d[BF_N], void *const at[BF_N])
{
    static const int name[BF_N] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_exec_arg_t arg[BF_N];
    dnnl_stream_t stream = NULL;
    int n = 0;
    while (n < BF_N && bf_memory(&arg[n].memory, &d[n], at[n])) {
        arg[n].arg = name[n];
        n++;
    }
    bool ok = n == BF_N && dnnl_stream_create(&stream, bf_engine, 0) == dnnl_success &&
              dnnl_primitive_execute(code, stream, BF_N, arg) == dnnl_success &&
              dnnl_stream_wait(stream) == dnnl_success;
    if (stream)
        (void)dnnl_stream_destroy(stream);
    while (n > 0)
        (void)dnnl_memory_destroy(arg[--n].memory);
    return ok;
}

bool zt_cpu_multiply(const zt_cpu_product *p)
{
    bf_desc d[BF_N];
    void *const at[BF_N] = {(void *)(uintptr_t)p->a, (void *)(uintptr_t)p->b, p->c};
    dnnl_primitive_t code = NULL;

    if (!bf_ready())
        return false;
    zt_cpu_sgemm_alone();
    memset(d, 0, sizeof d);
    bool ok = bf_matrix(&d[BF_A], p->dt, (uint64_t[]){p->m, p->k}, p->lda, p->a_transposed) &&
              bf_matrix(&d[BF_B], p->dt, (uint64_t[]){p->k, p->n}, p->ldb, p->b_transposed) &&
              bf_matrix(&d[BF_C], CKPT_F32, (uint64_t[]){p->m, p->n}, p->n, false) &&
              bf_code(&code, d) && bf_execute(code, d, at);
    if (code)
        (void)dnnl_primitive_destroy(code);
    for (int i = 0; i < BF_N; i++)
        bf_forget(&d[i]);
    return ok;
}

/* ---- is it right, and faster? -------------------------------------------------------------- */

/* Sides of the trial: more than one tile of AMX, and a rest. */
enum { BF_SIDE = 40, BF_DEPTH = 72 };

typedef struct bf_trial {
    float f[BF_SIDE * BF_DEPTH];
    uint16_t a[BF_SIDE * BF_DEPTH], b[BF_SIDE * BF_DEPTH];
    float c[BF_SIDE * BF_SIDE];
} bf_trial;

/* Whole numbers -8 to 8: exact in BF16, and their sums are exact in fp32. */
static void bf_fill(bf_trial *t, uint16_t *to, unsigned seed)
{
    for (unsigned i = 0; i < BF_SIDE * BF_DEPTH; i++)
        t->f[i] = (float)((int)((i * 7 + seed + i / 5 * seed) % 17) - 8);
    ckpt_cast_find(CKPT_BF16, CKPT_F32)(to, t->f, (size_t)BF_SIDE * BF_DEPTH);
}

static float bf_at(const uint16_t *x, bool transposed, uint64_t row, uint64_t column, uint64_t ld)
{
    float v = 0;
    ckpt_cast_find(CKPT_F32,
                   CKPT_BF16)(&v, x + (transposed ? column * ld + row : row * ld + column), 1);
    return v;
}

static bool bf_exact(bf_trial *t, bool a_transposed, bool b_transposed)
{
    zt_cpu_product p = {.dt = CKPT_BF16,
                        .a_transposed = a_transposed,
                        .b_transposed = b_transposed,
                        .m = BF_SIDE,
                        .n = BF_SIDE,
                        .k = BF_DEPTH,
                        .a = t->a,
                        .b = t->b,
                        .c = t->c,
                        .lda = a_transposed ? BF_SIDE : BF_DEPTH,
                        .ldb = b_transposed ? BF_DEPTH : BF_SIDE};
    for (unsigned i = 0; i < BF_SIDE * BF_SIDE; i++)
        t->c[i] = (float)i;
    if (!zt_cpu_multiply(&p))
        return false;
    for (unsigned i = 0; i < BF_SIDE * BF_SIDE; i++) {
        float sum = (float)i;
        for (unsigned k = 0; k < BF_DEPTH; k++)
            sum += bf_at(t->a, a_transposed, i / BF_SIDE, k, p.lda) *
                   bf_at(t->b, b_transposed, k, i % BF_SIDE, p.ldb);
        if (sum != t->c[i])
            return false;
    }
    return true;
}

static bool bf_bf16;

static void bf_try(void)
{
    static bf_trial t;
    bf_bf16 = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) ==
              dnnl_cpu_isa_avx512_core_amx;
    bf_fill(&t, t.a, 3);
    bf_fill(&t, t.b, 11);
    for (unsigned way = 0; way < 4 && bf_bf16; way++)
        bf_bf16 = bf_exact(&t, way & 1, way & 2);
}

bool zt_cpu_has_bf16(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, bf_try);
    return bf_bf16;
}
#else
bool zt_cpu_multiply(const zt_cpu_product *p)
{
    (void)p;
    return false;
}

bool zt_cpu_has_bf16(void)
{
    return false;
}
#endif
