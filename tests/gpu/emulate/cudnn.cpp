/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudnn.cpp: owns the emulation's cuDNN: computes attention from the same descriptions, in double.
 *
 * ZT_EMULATE_CUDNN makes it another library:
 *     none      cannot be loaded
 *     refuses   builds no plan
 *     fails     builds plans whose runs fail; fails-later: from the third run on
 *     wrong-o, wrong-lse, wrong-dq, wrong-dk, wrong-dv    has this output wrong
 */
#include "engine/cuda/cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

struct cu_dnn {
    unsigned runs;
};

struct cu_dnn_plan {
    cu_dnn *library;
    cu_dnn_call call;
};

static bool dn_is(const char *what)
{
    const char *mode = getenv("ZT_EMULATE_CUDNN");

    return mode && strcmp(mode, what) == 0;
}

int cu_dnn_open(cu_dnn **out, void *, int, ckpt_err *err)
{
    *out = NULL;
    if (dn_is("none"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "libcudnn.so.9 cannot be loaded: emulated");
    *out = (cu_dnn *)calloc(1, sizeof(cu_dnn));
    return *out ? CKPT_OK : ckpt_fail_memory(err);
}

void cu_dnn_close(cu_dnn *c)
{
    free(c);
}

uint64_t cu_dnn_version(const cu_dnn *)
{
    return 90000;
}

int cu_dnn_plan_new(cu_dnn_plan **out, cu_dnn *c, const cu_dnn_call *call, uint64_t *n_bytes,
                    ckpt_err *err)
{
    *out = NULL;
    *n_bytes = 1000;
    if (dn_is("refuses"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "cuDNN: no kernel computes it");
    *out = (cu_dnn_plan *)calloc(1, sizeof **out);
    if (!*out)
        return ckpt_fail_memory(err);
    (*out)->library = c;
    (*out)->call = *call;
    return CKPT_OK;
}

void cu_dnn_plan_free(cu_dnn_plan *p)
{
    free(p);
}

/* ---- tensors by their strides ---- */

/* A run: the description and the addresses. */
typedef struct run {
    const cu_dnn_call *call;
    void *const *at;
} run;

/* Where an element lies, counted from the tensor's first one. */
static int64_t dn_at(const run &r, int which, int64_t batch, int64_t head, int64_t row,
                     int64_t column)
{
    const int64_t *s = r.call->tensor[which].stride;

    return batch * s[0] + head * s[1] + row * s[2] + column * s[3];
}

static double dn_get(const run &r, int which, int64_t at)
{
    const void *p = r.at[which];

    if (which == CU_DNN_LSE)
        return (double)((const float *)p)[at];
    return r.call->dt == CKPT_F16 ? (double)__half2float(((const __half *)p)[at])
                                  : (double)__bfloat162float(((const __nv_bfloat16 *)p)[at]);
}

static void dn_set(const run &r, int which, int64_t at, double x)
{
    void *p = r.at[which];

    if (which == CU_DNN_LSE)
        ((float *)p)[at] = (float)x;
    else if (r.call->dt == CKPT_F16)
        ((__half *)p)[at] = __float2half_rn((float)x);
    else
        ((__nv_bfloat16 *)p)[at] = __float2bfloat16_rn((float)x);
}

/* ---- attention ---- */

/* A query: its sequence, head and row, and the head of its keys. */
typedef struct query {
    int64_t batch, head, row, key_head;
} query;

static double dn_dot(const run &r, int x, const query &q, int y, int64_t key)
{
    const int64_t n = r.call->tensor[x].n[3];
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += dn_get(r, x, dn_at(r, x, q.batch, q.head, q.row, i)) *
               dn_get(r, y, dn_at(r, y, q.batch, q.key_head, key, i));
    return sum;
}

static int64_t dn_seen(const run &r, const query &q)
{
    const int64_t keys = r.call->tensor[CU_DNN_K].n[2];

    return r.call->causal && q.row + 1 < keys ? q.row + 1 : keys;
}

static void dn_forward(const run &r, const query &q)
{
    const int64_t keys = dn_seen(r, q), width = r.call->tensor[CU_DNN_V].n[3];
    std::vector<double> p((size_t)keys);
    double top = -INFINITY, sum = 0;

    for (int64_t k = 0; k < keys; k++) {
        p[(size_t)k] = (double)r.call->scale * dn_dot(r, CU_DNN_Q, q, CU_DNN_K, k);
        top = fmax(top, p[(size_t)k]);
    }
    for (double &x : p) {
        x = exp(x - top);
        sum += x;
    }
    for (int64_t i = 0; i < width; i++) {
        double o = 0;

        for (int64_t k = 0; k < keys; k++)
            o += p[(size_t)k] / sum *
                 dn_get(r, CU_DNN_V, dn_at(r, CU_DNN_V, q.batch, q.key_head, k, i));
        dn_set(r, CU_DNN_O, dn_at(r, CU_DNN_O, q.batch, q.head, q.row, i), o);
    }
    dn_set(r, CU_DNN_LSE, dn_at(r, CU_DNN_LSE, q.batch, q.head, q.row, 0), top + log(sum));
}

/* Sums of gradients in double, in the order of the description. */
typedef struct sums {
    std::vector<double> dq, dk, dv;
} sums;

static size_t dn_dense(const run &r, int which, int64_t batch, int64_t head, int64_t row)
{
    const int64_t *n = r.call->tensor[which].n;

    return (size_t)(((batch * n[1] + head) * n[2] + row) * n[3]);
}

static void dn_backward(const run &r, const query &q, sums *s)
{
    const int64_t keys = dn_seen(r, q), width = r.call->tensor[CU_DNN_Q].n[3];
    const size_t dq = dn_dense(r, CU_DNN_DQ, q.batch, q.head, q.row);
    const double lse = dn_get(r, CU_DNN_LSE, dn_at(r, CU_DNN_LSE, q.batch, q.head, q.row, 0));
    const double scale = (double)r.call->scale;
    double delta = 0;

    for (int64_t i = 0; i < width; i++)
        delta += dn_get(r, CU_DNN_O, dn_at(r, CU_DNN_O, q.batch, q.head, q.row, i)) *
                 dn_get(r, CU_DNN_DOUT, dn_at(r, CU_DNN_DOUT, q.batch, q.head, q.row, i));
    for (int64_t k = 0; k < keys; k++) {
        const size_t dk = dn_dense(r, CU_DNN_DK, q.batch, q.key_head, k);
        const double p = exp(scale * dn_dot(r, CU_DNN_Q, q, CU_DNN_K, k) - lse);
        const double ds = p * (dn_dot(r, CU_DNN_DOUT, q, CU_DNN_V, k) - delta) * scale;

        for (int64_t i = 0; i < width; i++) {
            const size_t e = (size_t)i;

            s->dq[dq + e] +=
                ds * dn_get(r, CU_DNN_K, dn_at(r, CU_DNN_K, q.batch, q.key_head, k, i));
            s->dk[dk + e] +=
                ds * dn_get(r, CU_DNN_Q, dn_at(r, CU_DNN_Q, q.batch, q.head, q.row, i));
            s->dv[dk + e] +=
                p * dn_get(r, CU_DNN_DOUT, dn_at(r, CU_DNN_DOUT, q.batch, q.head, q.row, i));
        }
    }
}

static void dn_store(const run &r, int which, const std::vector<double> &from)
{
    const int64_t *n = r.call->tensor[which].n;

    for (int64_t e = 0; e < n[0] * n[1] * n[2] * n[3]; e++) {
        const int64_t row = e / n[3], head = row / n[2];

        dn_set(r, which, dn_at(r, which, head / n[1], head % n[1], row % n[2], e % n[3]),
               from[(size_t)e]);
    }
}

/* Make an output wrong in one head alone. */
static void dn_spoil(const run &r)
{
    static const char *const names[CU_DNN_TENSORS] = {
        "", "", "", "wrong-o", "wrong-lse", "", "wrong-dq", "wrong-dk", "wrong-dv"};

    for (int w = CU_DNN_O; w < CU_DNN_TENSORS; w++) {
        const int64_t *n = r.call->tensor[w].n;

        if (!dn_is(names[w]) || !r.at[w] || (r.call->backward && w <= CU_DNN_LSE))
            continue;
        for (int64_t i = 0; i < n[2] * n[3]; i++) {
            const int64_t at = dn_at(r, w, 0, n[1] - 1, i / n[3], i % n[3]);

            dn_set(r, w, at, dn_get(r, w, at) * 1.0625);
        }
    }
}

static void dn_compute(const run &r)
{
    const int64_t *n = r.call->tensor[CU_DNN_Q].n, *m = r.call->tensor[CU_DNN_K].n;
    const size_t nq = (size_t)(n[0] * n[1] * n[2] * n[3]), nk = (size_t)(m[0] * m[1] * m[2] * m[3]);
    sums s = {std::vector<double>(nq), std::vector<double>(nk), std::vector<double>(nk)};

    for (int64_t i = 0; i < n[0] * n[1] * n[2]; i++) {
        const int64_t head = i / n[2] % n[1];
        const query q = {i / n[2] / n[1], head, i % n[2], head / (n[1] / m[1])};

        if (r.call->backward)
            dn_backward(r, q, &s);
        else
            dn_forward(r, q);
    }
    if (r.call->backward) {
        dn_store(r, CU_DNN_DQ, s.dq);
        dn_store(r, CU_DNN_DK, s.dk);
        dn_store(r, CU_DNN_DV, s.dv);
    }
    dn_spoil(r);
}

int cu_dnn_plan_run(cu_dnn_plan *p, void *const at[CU_DNN_TENSORS], void *room, ckpt_err *err)
{
    const unsigned runs = ++p->library->runs;

    if (dn_is("fails") || (dn_is("fails-later") && runs > 2))
        return ckpt_fail(err, CKPT_EIO, "cuDNN: emulated failure");
    zt_emu_enter();
    memset(room, 0xFF, 1000); // as much as the plan asked for
    dn_compute({&p->call, at});
    zt_emu_leave();
    return CKPT_OK;
}
