/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h: declares devices, which hold tensors and compute on them, by one table of operations
 * per kind of device.
 *
 * All code above this table (models, ZeRO runtime, optimizers, checkpoints) uses nothing else, so a
 * new kind of device needs only a new table.  Pointers to tensors are device pointers: the caller
 * may read them only if `host` is set.  Tensors are dense and row-major unless a struct has an `ld`
 * (elements from one row to the next; 0: dense).
 *
 * Precision: `dt` is the dtype in which the model is trained: CKPT_F32, CKPT_BF16 or CKPT_F16.
 * Weights, activations and their gradients have it.  Each operation computes in fp32 and rounds its
 * outputs once (to nearest even).  Products of BF16 by AMX read and write subnormal numbers as 0.
 *
 * Errors: operations return nothing.  The device keeps the first failure (out of memory, a failed
 * kernel), and all later operations do nothing; zt_device_check() returns it.  Callers check once
 * per micro step, and before results leave the process.  An operation that gets a NULL for a
 * required pointer fails in the same way.
 *
 * Order: a device runs its operations in the order of the calls.  Only one thread at a time may use
 * a device; callers with several threads must serialise them.
 */
#ifndef ZT_DEVICE_DEVICE_H
#define ZT_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/err.h"

typedef struct zt_device zt_device;

typedef enum zt_act { ZT_ACT_NONE, ZT_GELU, ZT_GELU_TANH, ZT_RELU, ZT_TANH, ZT_SILU } zt_act;

/*
 * y = act(x w' + b): x [rows, in], y [rows, out].
 *
 * w      [out, in], or [in, out] with w_in_out (GPT-2's Conv1D)
 * b      [out] or NULL
 * pre    output for the backward pass if act is not NONE: x w' + b (may be NULL in evaluation);
 *        else unused
 */
typedef struct zt_linear {
    uint64_t rows, in, out;
    uint64_t ldx, ldy; /* elements; 0: dense */
    bool w_in_out;
    bool y_add; /* add to the old y (act NONE only) */
    zt_act act;
    const void *x, *w, *b;
    void *y, *pre;
} zt_linear;

/*
 * Gradients of y = x w' + b.
 *
 * dx     NULL: not computed; dx_add: add to the old values
 * dw,db  NULL: frozen; w_add, b_add: add to the old values (rounded in dt), otherwise overwrite
 */
typedef struct zt_linear_grad {
    uint64_t rows, in, out;
    uint64_t ldx, lddy, lddx;
    bool w_in_out, dx_add, w_add, b_add;
    const void *x, *w, *dy;
    void *dx, *dw, *db;
} zt_linear_grad;

/*
 * C = alpha op(A) op(B) + beta C, row-major: C [m, n], op(A) [m, k], op(B) [k, n]; dense.
 */
typedef struct zt_matmul {
    uint64_t m, n, k;
    bool a_transposed, b_transposed;
    float alpha, beta;
    const void *a, *b;
    void *c;
} zt_matmul;

/*
 * Layer norm, or RMS norm (rms set, b NULL), of s = x + add (add NULL: s = x) over rows of `width`.
 *
 * sum        output: s, if add is given (may be x or add itself)
 * mean,rstd  output: [rows] fp32, for the backward pass (rms has no mean); NULL in evaluation
 * Source     y = (s - mean) * rstd * w + b, rstd = 1/sqrt(var + eps), biased variance (Ba et al.
 *            2016); rms: y = w * round(s / sqrt(mean(s^2) + eps)) (Zhang & Sennrich 2019, rounding
 *            as in LlamaRMSNorm)
 * once       rms: round only y, as in Olmo2RMSNorm
 * plus_one   rms: multiply by 1 + w instead of w, in fp32, as in Gemma2RMSNorm
 */
typedef struct zt_norm {
    uint64_t rows, width;
    bool rms, once, plus_one;
    float eps;
    const void *x, *add, *w, *b;
    void *sum, *y;
    float *mean, *rstd;
} zt_norm;

/*
 * Gradients of zt_norm.  x is s.  dx_add: dx += , because dx holds the residual's gradient.  dw, db
 * as in zt_linear_grad.
 */
typedef struct zt_norm_grad {
    uint64_t rows, width;
    bool rms, once, plus_one, dx_add, w_add, b_add;
    const void *x, *w, *dy;
    const float *mean, *rstd;
    void *dx, *dw, *db;
} zt_norm_grad;

/*
 * y[i] = word[token[i]] + position[i % seq] + type[kind[i]]; position and type may be NULL (kind
 * NULL: row 0).  The caller must have checked tokens against `vocab` and kinds against `n_types`.
 */
typedef struct zt_embed {
    uint64_t rows, seq, width, vocab, n_types;
    const int32_t *token, *kind;
    const void *word, *position, *type;
    void *y;
} zt_embed;

/*
 * Gradients of zt_embed: rows with equal indices are summed in fp32, rounded once.  padding: the
 * row of `word` that gets no gradient, or -1.
 */
typedef struct zt_embed_grad {
    uint64_t rows, seq, n_positions, width, vocab, n_types;
    int64_t padding;
    const int32_t *token, *kind;
    const void *dy;
    /* NULL: frozen or missing.  Without *_add all of the table is overwritten. */
    void *dword, *dposition, *dkind;
    bool word_add, position_add, kind_add;
} zt_embed_grad;

/*
 * Scaled dot-product attention with grouped heads.  A head's vector starts at row * ld + head *
 * width.
 *
 * queries    only the first queries of each sequence are computed (a classifier reads only these of
 *            its last block); 0: all, seq.  Without `causal` q may be another sequence than k and
 *            v, with any number of queries (cross-attention)
 * q, o       [batch * queries, heads, width], k, v [batch * seq, kv_heads, width]; query head h
 *            uses key head h / (heads / kv_heads)
 * window     with `causal`: a query sees this many keys, itself the last; 0: all before it
 * scale      of scores, above 0
 * cap        scaled scores become cap * tanh(score / cap) (Gemma 2, arXiv 2408.00118); 0: none.
 *            Not with alibi or bias
 * alibi      add a number to each scaled score that depends on head and key alone (Press et al.
 *            2022, as in BLOOM): zt_alibi_slope times the key's place after the sequence's first
 *            unmasked key, rounded to dt; lse then lacks that of the query's own key, unrounded
 * mask       [batch, seq] int32: keys with 0 are masked out; NULL: none.  A query whose keys are
 *            hidden gets the mean of v over all keys of its sequence (with `causal` later ones
 *            too), as transformers' explicit attention does when it masks with the lowest number;
 *            its scores still pass gradients on.
 * bias       [queries + seq - 1, heads]: row k - q + queries - 1 is added to the scaled score of
 *            query q and key k (relative positions); NULL: none
 * lse        [batch, heads, queries] fp32: log of the sum of exponents, for the backward pass
 * p, seed    dropout on probabilities: rate, and the key of its mask (zt_dropout); p 0: none
 *
 * No T x T matrix outlives the call (Dao et al. 2022).
 */
typedef struct zt_attention {
    uint64_t batch, seq, queries, heads, kv_heads, width, window;
    uint64_t ldq, ldk, ldv, ldo;
    float scale, cap;
    bool causal, alibi;
    const int32_t *mask;
    float p;
    uint64_t seed;
    const void *q, *k, *v, *bias;
    void *o;
    float *lse;
} zt_attention;

/*
 * Gradients of zt_attention; fw.o is the forward output and is overwritten.  dq, dk, dv have the
 * strides of q, k, v.  dbias has the shape of bias and is overwritten; NULL: not computed.
 */
typedef struct zt_attention_grad {
    zt_attention fw;
    uint64_t lddo;
    const void *dout;
    void *dq, *dk, *dv, *dbias;
} zt_attention_grad;

/*
 * Rotate the two halves of each head's vector in place: (a, b) -> (a cos - b sin, b cos + a sin);
 * inverse for gradients.  x [rows, heads, width] with ld; cos, sin [seq, turned / 2] in fp32, which
 * the caller has rounded to dt.  turned: only the first elements of each vector are rotated, as two
 * halves; 0: width.
 */
typedef struct zt_rope {
    uint64_t rows, seq, heads, width, ld, turned;
    bool inverse;
    const float *cos, *sin;
    void *x;
} zt_rope;

/*
 * y = x * keep / (1 - p) [+ add].  keep[i] depends on (seed, i) alone (Philox4x32-10, Salmon et al.
 * 2011), so the backward pass and recomputation get it again from the same seed.  y may be x or
 * add.
 */
typedef struct zt_dropout {
    uint64_t n, seed;
    float p; /* 0: y = x [+ add] */
    const void *x, *add;
    void *y;
} zt_dropout;

typedef enum zt_loss_kind {
    /* label [rows] int32; rows with ZT_IGNORE are left out; mean over the others (0/0 = NaN) */
    ZT_CROSS_ENTROPY,
    ZT_MSE, /* target [rows, classes] float; mean over all elements */
    ZT_BCE  /* target [rows, classes] float in 0..1; x are logits; mean over all elements */
} zt_loss_kind;

#define ZT_IGNORE (-100)

/*
 * Mean loss of logits [rows, classes] (ld), stored in *loss on the host.  With `grad` the logits
 * are overwritten by factor * d loss / d logits.
 */
typedef struct zt_loss {
    zt_loss_kind kind;
    uint64_t rows, classes, ld;
    const int32_t *label; /* device pointer */
    const float *target;
    void *logits;
    bool grad;
    float factor;
    double *loss;
} zt_loss;

/* Copy (or add) rows to a block with another stride. */
typedef struct zt_rows {
    uint64_t rows, width, ld_to, ld_from; /* elements */
    bool add;
    const void *from;
    void *to;
} zt_rows;

typedef enum zt_update_kind { ZT_ADAM, ZT_SGD, ZT_ADAGRAD, ZT_LION, ZT_LAMB } zt_update_kind;

/*
 * One optimizer step over n elements of an fp32 master copy; formulas: optim/optim.h.
 *
 * g          gradient in g_dtype, multiplied by g_scale (unscaling and clipping together) before
 *            use; not changed
 * m, v       state [n], fp32; NULL if the optimizer has none
 * low        the new value is also written here, rounded to low_dtype; NULL if p itself is the
 *            weight
 */
typedef struct zt_update {
    zt_update_kind kind;
    uint64_t n;
    float *p, *m, *v;
    const void *g;
    ckpt_dtype g_dtype;
    float g_scale;
    void *low;
    ckpt_dtype low_dtype;
    double lr, beta1, beta2, eps, weight_decay;
    double step_size;   /* ADAM: lr / (1 - beta1^t); LAMB: lr sqrt(1-beta2^t) / (1 - beta1^t) */
    double denominator; /* ADAM: 1 / sqrt(1 - beta2^t) */
    bool decoupled;     /* ADAM, SGD: decoupled weight decay (AdamW), otherwise L2 */
    bool first;         /* SGD: momentum buffers are new */
    bool nesterov, eps_inside;
    double dampening, min_coeff, max_coeff;
    /*
     * ADAM: compute 1 - beta in fp64, as torch does; otherwise in fp32, as DeepSpeed's kernels do
     */
    bool exact;
    /*
     * LION: an update of 0 increases the weight (CUDA class); otherwise its sign bit decides (CPU
     * class)
     */
    bool zero_up;
} zt_update;

/*
 * acc = factor * x, or acc += factor * x.  If factor is not 1, the product is rounded to x_dtype
 * first.
 */
typedef struct zt_accumulate {
    uint64_t n;
    void *acc;
    ckpt_dtype acc_dtype;
    const void *x;
    ckpt_dtype x_dtype;
    float factor;
    bool add;
} zt_accumulate;

/* dx = dy * act'(pre); dx may be dy. */
typedef struct zt_act_grad {
    zt_act act;
    uint64_t n;
    const void *pre, *dy;
    void *dx;
} zt_act_grad;

/*
 * y = act(gate) * up, and its gradients.  y may be gate or up, dgate may be gate, dup may be up.
 */
typedef struct zt_swiglu {
    uint64_t n;
    zt_act act; /* ZT_ACT_NONE: SILU */
    const void *gate, *up;
    void *y;        /* forward */
    const void *dy; /* backward */
    void *dgate, *dup;
} zt_swiglu;

typedef struct zt_device_ops {
    const char *name; /* "cpu", "cuda" */

    /*
     * Memory: n bytes aligned to 64, contents undefined; NULL if there is none, and the device
     * fails.  After put and get the caller may use the host's bytes: put has read them, get has
     * written them.
     */
    void *(*alloc)(zt_device *d, uint64_t n_bytes);
    void (*release)(zt_device *d, void *p);
    void (*put)(zt_device *d, void *to, const void *host, uint64_t n_bytes);
    void (*get)(zt_device *d, void *host, const void *from, uint64_t n_bytes);
    /*
     * Host memory, aligned to 64, with which put and get are fastest, because a GPU accesses it
     * directly (pinned).  Counted in `allocated` only if it is the device's own memory (host).
     */
    void *(*alloc_host)(zt_device *d, uint64_t n_bytes);
    void (*release_host)(zt_device *d, void *p);
    void (*copy)(zt_device *d, void *to, const void *from, uint64_t n_bytes);
    void (*zero)(zt_device *d, void *p, uint64_t n_bytes);
    void (*sync)(zt_device *d);
    void (*free)(zt_device *d);

    /* Vectors of n elements. */
    void (*cast)(zt_device *d, uint64_t n, void *to, ckpt_dtype to_dtype, const void *from,
                 ckpt_dtype from_dtype);
    void (*accumulate)(zt_device *d, const zt_accumulate *a);
    void (*scale)(zt_device *d, ckpt_dtype dt, uint64_t n, void *x, float factor);
    void (*add)(zt_device *d, ckpt_dtype dt, uint64_t n, void *y, const void *x); /* y += x */
    /* Sum of squares in fp64, on the host; not finite if any element is not. */
    double (*sum_squares)(zt_device *d, ckpt_dtype dt, uint64_t n, const void *x);

    /* Layers. */
    void (*linear)(zt_device *d, ckpt_dtype dt, const zt_linear *a);
    void (*linear_grad)(zt_device *d, ckpt_dtype dt, const zt_linear_grad *a);
    void (*matmul)(zt_device *d, ckpt_dtype dt, const zt_matmul *a);
    void (*act)(zt_device *d, ckpt_dtype dt, zt_act act, uint64_t n, void *y, const void *x);
    void (*act_grad)(zt_device *d, ckpt_dtype dt, const zt_act_grad *a);
    void (*swiglu)(zt_device *d, ckpt_dtype dt, const zt_swiglu *a);
    void (*swiglu_grad)(zt_device *d, ckpt_dtype dt, const zt_swiglu *a);
    void (*norm)(zt_device *d, ckpt_dtype dt, const zt_norm *a);
    void (*norm_grad)(zt_device *d, ckpt_dtype dt, const zt_norm_grad *a);
    void (*embed)(zt_device *d, ckpt_dtype dt, const zt_embed *a);
    void (*embed_grad)(zt_device *d, ckpt_dtype dt, const zt_embed_grad *a);
    void (*attention)(zt_device *d, ckpt_dtype dt, const zt_attention *a);
    void (*attention_grad)(zt_device *d, ckpt_dtype dt, const zt_attention_grad *a);
    void (*rope)(zt_device *d, ckpt_dtype dt, const zt_rope *a);
    void (*dropout)(zt_device *d, ckpt_dtype dt, const zt_dropout *a);
    void (*loss)(zt_device *d, ckpt_dtype dt, const zt_loss *a); /* dt: of the logits */
    void (*rows)(zt_device *d, ckpt_dtype dt, const zt_rows *a);

    void (*update)(zt_device *d, const zt_update *a);
} zt_device_ops;

struct zt_device {
    const zt_device_ops *ops;
    bool host;          /* the device's memory is host memory */
    uint64_t allocated; /* bytes now, and the maximum so far */
    uint64_t peak;
    ckpt_err err; /* first failure; CKPT_OK: none */
};

/*
 * A CPU device: fp32 matrix products by a BLAS, all operations over n_threads threads (0: one per
 * CPU on which this process may run).  Results do not depend on the number of threads.
 */
int zt_cpu_new(zt_device **out, unsigned n_threads, ckpt_err *err);

/* CKPT_OK, or the first failure of the device's operations so far. */
int zt_device_check(zt_device *d, ckpt_err *err);

/* Record a failure (for operations); later ones are ignored. */
void zt_device_fail(zt_device *d, int code, const char *text);

void zt_device_free(zt_device *d); /* NULL is fine */

#endif
