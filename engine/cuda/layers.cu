/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.cu: computes element-wise operations on the GPU: activations, Llama's gate, rotation,
 * dropout.
 *
 * A thread moves packs of 8 elements, because memory bounds all of these kernels.
 */
#include <math.h>

#include "engine/cuda/cuda.h"

#define LA_THREADS 256u

static unsigned la_grid(zt_device *d, uint64_t n)
{
    return cu_grid(d, n, LA_THREADS * CK_PACK);
}

/* ---- activations ---- */

/*
 * The formulas of formulas.h for results of 16 bits, in fewer instructions, because the exact ones
 * take longer than memory.  p is sigmoid(z), q sigmoid(-z); neither cancels.
 */
typedef struct la_sigmoid {
    float p, q;
} la_sigmoid;

static __device__ __forceinline__ la_sigmoid ck_sigmoid(float z)
{
    // 2^120: division by more than 2^126 would give 0, and q with it
    float e = ck_exp2(fminf(-CK_LOG2_E * z, 120.0F)), p = __fdividef(1.0F, 1.0F + e);
    return {p, e * p};
}

/*
 * tanh of GELU's inner value.  Its absolute error is 2^-23 near 0, where it is added to 1.  Near -1
 * and 1 it is the fp32 number that the exact tanh rounds to, so GELU's tails have its bits.
 */
static __device__ __forceinline__ float ck_gelu_tanh(float x)
{
    la_sigmoid s = ck_sigmoid(2.0F * ZT_TANH_SCALE * (x + ZT_TANH_CUBIC * (x * x * x)));
    return x > 0.0F ? 1.0F - 2.0F * s.q : 2.0F * s.p - 1.0F;
}

template <typename T> static __device__ __forceinline__ void ck_act_one(zt_act act, float *x)
{
    if (sizeof(T) == 2 && act == ZT_GELU_TANH)
        *x = 0.5F * *x * (1.0F + ck_gelu_tanh(*x));
    else if (sizeof(T) == 2 && act == ZT_SILU)
        *x = *x * ck_sigmoid(*x).p;
    else
        zt_f_act(act, x);
}

template <typename T>
static __device__ __forceinline__ void ck_act_slope(zt_act act, float *dy, const float *x)
{
    const float at = *x;
    if (sizeof(T) == 2 && act == ZT_GELU_TANH) {
        const float t = ck_gelu_tanh(at), inner = 1.0F + 3.0F * ZT_TANH_CUBIC * (at * at);
        *dy = *dy * (0.5F * (1.0F + t) + 0.5F * at * (1.0F - t * t) * (ZT_TANH_SCALE * inner));
    } else if (sizeof(T) == 2 && act == ZT_SILU) {
        const la_sigmoid s = ck_sigmoid(at);
        *dy = *dy * (s.p * (1.0F + at * s.q));
    } else {
        zt_f_act_grad(act, dy, x);
    }
}

/* Kernel: y = act(x), row by row. */
template <typename T>
static __global__ void __launch_bounds__(LA_THREADS) ck_act(zt_act act, zt_rows a, bool wide)
{
    uint64_t packs = (a.width + CK_PACK - 1) / CK_PACK;
    for (uint64_t i = ck_thread(); i < a.rows * packs; i += ck_threads()) {
        uint64_t row = a.rows == 1 ? 0 : i / packs, at = (i - row * packs) * CK_PACK;
        float x[CK_PACK];
        ck_read(x, (const T *)a.from + row * a.ld_from, at, a.width, wide);
        for (unsigned k = 0; k < CK_PACK; k++)
            ck_act_one<T>(act, &x[k]);
        ck_write((T *)a.to + row * a.ld_to, at, a.width, wide, x);
    }
}

void cu_act_rows(zt_device *d, ckpt_dtype dt, zt_act act, const zt_rows *a)
{
    zt_rows r = *a;
    bool one = r.rows == 1 || (r.ld_to == r.width && r.ld_from == r.width);
    bool wide = cu_wide(r.from, r.to, NULL, one ? 0 : r.ld_to | r.ld_from);
    if (one) { // adjacent rows are handled as one row
        r.width *= r.rows;
        r.rows = 1;
    }
    CU_DTYPE(dt, T,
             ZT_LAUNCH(ck_act<T>, la_grid(d, r.rows * (r.width + CK_PACK - 1)), LA_THREADS, 0,
                       cu_stream(d), act, r, wide));
    (void)cu_launched(d, "act");
}

void cu_act(zt_device *d, ckpt_dtype dt, zt_act act, uint64_t n, void *y, const void *x)
{
    if (cu_ready(d, dt, zt_ok_act(act, n, y, x), "act") && n > 0) {
        zt_rows r = {1, n, n, n, false, x, y};
        cu_act_rows(d, dt, act, &r);
    }
}

template <typename T>
static __global__ void __launch_bounds__(LA_THREADS) ck_act_grad(zt_act_grad a, bool wide)
{
    for (uint64_t at = ck_thread() * CK_PACK; at < a.n; at += ck_threads() * CK_PACK) {
        float x[CK_PACK], dy[CK_PACK];
        ck_read(x, (const T *)a.pre, at, a.n, wide);
        ck_read(dy, (const T *)a.dy, at, a.n, wide);
        for (unsigned k = 0; k < CK_PACK; k++)
            ck_act_slope<T>(a.act, &dy[k], &x[k]);
        ck_write((T *)a.dx, at, a.n, wide, dy);
    }
}

void cu_act_grad(zt_device *d, ckpt_dtype dt, const zt_act_grad *a)
{
    if (!cu_ready(d, dt, zt_ok_act_grad(a), "act_grad") || a->n == 0)
        return;
    bool wide = cu_wide(a->pre, a->dy, a->dx, 0);
    CU_DTYPE(dt, T,
             ZT_LAUNCH(ck_act_grad<T>, la_grid(d, a->n), LA_THREADS, 0, cu_stream(d), *a, wide));
    (void)cu_launched(d, "act_grad");
}

template <typename T>
static __device__ __forceinline__ void ck_swiglu_one(zt_act act, float *gate, const float *up)
{
    ck_act_one<T>(act == ZT_ACT_NONE ? ZT_SILU : act, gate);
    *gate = *gate * *up;
}

/* Replace gate and up by their gradients, as zt_f_swiglu_grad does. */
template <typename T>
static __device__ __forceinline__ void ck_swiglu_slope(zt_act act, float *gate, float *up,
                                                       const float *dy)
{
    const float x = *gate;
    if (sizeof(T) == 4 || (act != ZT_ACT_NONE && act != ZT_SILU)) {
        zt_f_swiglu_grad(act, gate, up, dy);
        return;
    }
    const la_sigmoid s = ck_sigmoid(x);
    *gate = *up * (*dy * (s.p * (1.0F + x * s.q)));
    *up = x * s.p * *dy;
}

template <typename T>
static __global__ void __launch_bounds__(LA_THREADS) ck_swiglu(zt_swiglu a, bool wide)
{
    for (uint64_t at = ck_thread() * CK_PACK; at < a.n; at += ck_threads() * CK_PACK) {
        float gate[CK_PACK], up[CK_PACK];
        ck_read(gate, (const T *)a.gate, at, a.n, wide);
        ck_read(up, (const T *)a.up, at, a.n, wide);
        for (unsigned k = 0; k < CK_PACK; k++)
            ck_swiglu_one<T>(a.act, &gate[k], &up[k]);
        ck_write((T *)a.y, at, a.n, wide, gate);
    }
}

void cu_swiglu(zt_device *d, ckpt_dtype dt, const zt_swiglu *a)
{
    if (!cu_ready(d, dt, zt_ok_swiglu(a), "swiglu") || a->n == 0)
        return;
    bool wide = cu_wide(a->gate, a->up, a->y, 0);
    CU_DTYPE(dt, T,
             ZT_LAUNCH(ck_swiglu<T>, la_grid(d, a->n), LA_THREADS, 0, cu_stream(d), *a, wide));
    (void)cu_launched(d, "swiglu");
}

template <typename T>
static __global__ void __launch_bounds__(LA_THREADS) ck_swiglu_grad(zt_swiglu a, bool wide)
{
    for (uint64_t at = ck_thread() * CK_PACK; at < a.n; at += ck_threads() * CK_PACK) {
        float gate[CK_PACK], up[CK_PACK], dy[CK_PACK];
        ck_read(gate, (const T *)a.gate, at, a.n, wide);
        ck_read(up, (const T *)a.up, at, a.n, wide);
        ck_read(dy, (const T *)a.dy, at, a.n, wide);
        for (unsigned k = 0; k < CK_PACK; k++)
            ck_swiglu_slope<T>(a.act, &gate[k], &up[k], &dy[k]);
        ck_write((T *)a.dgate, at, a.n, wide, gate);
        ck_write((T *)a.dup, at, a.n, wide, up);
    }
}

void cu_swiglu_grad(zt_device *d, ckpt_dtype dt, const zt_swiglu *a)
{
    if (!cu_ready(d, dt, zt_ok_swiglu_grad(a), "swiglu_grad") || a->n == 0)
        return;
    bool wide = cu_wide(a->gate, a->up, a->dy, 0) && cu_wide(a->dgate, a->dup, NULL, 0);
    CU_DTYPE(dt, T,
             ZT_LAUNCH(ck_swiglu_grad<T>, la_grid(d, a->n), LA_THREADS, 0, cu_stream(d), *a, wide));
    (void)cu_launched(d, "swiglu_grad");
}

/* ---- rotation ---- */

/* Rotate one pack of the lower half of a head's vector with its partners in the upper half. */
template <typename T>
static __global__ void __launch_bounds__(LA_THREADS) ck_rope(zt_rope a, bool wide)
{
    uint64_t half = a.turned / 2, packs = (half + CK_PACK - 1) / CK_PACK;
    float sign = a.inverse ? -1.0F : 1.0F;
    for (uint64_t i = ck_thread(); i < a.rows * a.heads * packs; i += ck_threads()) {
        uint64_t at = i % packs * CK_PACK, head = i / packs % a.heads, row = i / packs / a.heads;
        uint64_t angle = row % a.seq * half;
        T *low = (T *)a.x + row * a.ld + head * a.width, *high = low + half;
        float x[CK_PACK], y[CK_PACK], c[CK_PACK], s[CK_PACK];
        ck_read(x, low, at, half, wide);
        ck_read(y, high, at, half, wide);
        ck_read(c, a.cos + angle, at, half, wide);
        ck_read(s, a.sin + angle, at, half, wide);
        for (unsigned k = 0; k < CK_PACK; k++) {
            s[k] *= sign;
            zt_f_rotate(&x[k], &y[k], &c[k], &s[k]);
        }
        ck_write(low, at, half, wide, x);
        ck_write(high, at, half, wide, y);
    }
}

void cu_rope(zt_device *d, ckpt_dtype dt, const zt_rope *a)
{
    if (!cu_ready(d, dt, zt_ok_rope(a), "rope") || a->rows == 0 || a->heads == 0 || a->width == 0)
        return;
    zt_rope r = *a;
    r.ld = zt_stride(a->ld, a->heads * a->width);
    r.turned = zt_turned(a);
    bool wide = cu_wide(r.x, r.cos, r.sin, r.ld | r.width | r.turned / 2);
    unsigned grid = la_grid(d, r.rows * r.heads * (r.turned / 2 + CK_PACK - 1));
    CU_DTYPE(dt, T, ZT_LAUNCH(ck_rope<T>, grid, LA_THREADS, 0, cu_stream(d), r, wide));
    (void)cu_launched(d, "rope");
}

/* ---- dropout ---- */

typedef struct la_drop {
    zt_dropout a;
    zt_keep keep;
} la_drop;

template <typename T>
static __device__ __forceinline__ void ck_drop(const la_drop &j, uint64_t i, uint32_t word)
{
    if (i < j.a.n) {
        float x = ck_up(((const T *)j.a.x)[i]) *
                  ((int32_t)(word >> 8) >= j.keep.least ? j.keep.factor : 0.0F);
        if (j.a.add) { // adding 0 instead would lose the sign of a zero
            x += ck_up(((const T *)j.a.add)[i]);
        }
        ((T *)j.a.y)[i] = ck_down<T>(x);
    }
}

/*
 * A thread makes one block of random words, for four elements that are 16 apart (philox.h).  So 16
 * neighbours make 64 elements in a row, and each access of a warp covers whole 32-byte pieces.
 */
template <typename T> static __global__ void __launch_bounds__(LA_THREADS) ck_dropout(la_drop j)
{
    for (uint64_t b = ck_thread(); b / 16 * 64 < j.a.n; b += ck_threads()) {
        const philox4x32_ctr_t word = zt_philox_block(j.a.seed, b, 0);
        for (unsigned w = 0; w < 4; w++)
            ck_drop<T>(j, b / 16 * 64 + w * 16 + b % 16, word.v[w]);
    }
}

/* Dropout rate 0: y = x [+ add]. */
static void la_no_drop(zt_device *d, ckpt_dtype dt, const zt_dropout *a)
{
    if (!a->add) {
        d->ops->copy(d, a->y, a->x, a->n * zt_size(dt));
    } else if (a->y == a->add) {
        d->ops->add(d, dt, a->n, a->y, a->x);
    } else {
        d->ops->copy(d, a->y, a->x, a->n * zt_size(dt));
        d->ops->add(d, dt, a->n, a->y, a->add);
    }
}

void cu_dropout(zt_device *d, ckpt_dtype dt, const zt_dropout *a)
{
    if (!cu_ready(d, dt, zt_ok_dropout(a), "dropout") || a->n == 0)
        return;
    if (a->p == 0) {
        la_no_drop(d, dt, a);
        return;
    }
    la_drop j = {*a, zt_keep_of(a->p)};
    unsigned grid = cu_grid(d, a->n, 4 * LA_THREADS);
    CU_DTYPE(dt, T, ZT_LAUNCH(ck_dropout<T>, grid, LA_THREADS, 0, cu_stream(d), j));
    (void)cu_launched(d, "dropout");
}
