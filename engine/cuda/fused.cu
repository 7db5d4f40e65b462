/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused.cu: chooses the calls that cuDNN computes, keeps their plans, and checks each plan's first
 * results.
 *
 * A check computes the call by the plain family of kernels, which round outputs only, and measures
 * how far the tensor family and cuDNN are from that: for the vector of each head in each row the
 * norm of the difference, relative to the norm of the vector.  A vector shorter than 1/8 of the
 * mean one counts as that long, because gradients that cancel are rounding errors alone: dq of a
 * query that sees one key is an example.
 *
 * The tensor family (attention.h) rounds the factors of its products to dt, as cuDNN does.  Its
 * distance from the plain results is therefore what rounding does to these data: about one unit
 * roundoff, and more where large terms cancel.  cuDNN may be FU_TIMES as far from the plain results
 * as the tensor family is.  A wrong mask, scale or stride changes some or all of a vector.  If
 * FU_TIMES the tensor family's distance is so large that it would hide that, the check decides
 * nothing, and the next call is checked.
 */
#include "engine/cuda/fused.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cudnn.h"

/* Plans of a device.  More shapes than this are left to the own kernels: a run with a new shape in
 * each step would otherwise compile all the time. */
#define FU_PLANS 64u

/* Calls after which a plan is given up that no check has decided. */
#define FU_TRIES 16u

/* Distances that rounding explains: so many times that of the tensor family, but at least
 * FU_LEAST_*; from FU_HIDDEN on they hide errors.  Those of lse are relative to numbers of at least
 * 1, and no data change them. */
#define FU_TIMES      8
#define FU_LEAST_BF16 0x1p-6
#define FU_LEAST_F16  0x1p-9
#define FU_LEAST_LSE  0x1p-10
#define FU_HIDDEN     0.25

#define FU_THREADS 128

typedef enum fu_state {
    FU_NEW,    /* not checked yet */
    FU_GOOD,   /* checked */
    FU_REFUSED /* own kernels compute the call */
} fu_state;

typedef struct fu_plan {
    cu_dnn_call call;
    cu_dnn_plan *plan; /* NULL: could not be built */
    uint64_t n_bytes;  /* of device memory for a run */
    fu_state state;
    unsigned tries; /* checks without a result */
} fu_plan;

struct cu_fused {
    cu_dnn *library;
    int ordinal;
    bool off;  /* true: a result was wrong */
    bool full; /* true: a shape found no free plan */
    unsigned n_plans;
    uint64_t n_calls; /* computed by cuDNN */
    double worst;     /* greatest distance in a check that passed */
    fu_plan plan[FU_PLANS];
};

/* An output that both ways compute: rows with stride ld, heads side by side. */
typedef struct fu_output {
    const char *name;
    void *at;
    ckpt_dtype dt;
    int batch, rows, heads, width;
    uint64_t ld;
    double least; /* distance that is always rounding */
} fu_output;

typedef struct fu_outputs {
    fu_output each[3];
    unsigned n;
} fu_outputs;

/* ---- messages ---- */

static void fu_version(const cu_fused *f, char (&text)[40])
{
    const unsigned long long v = cu_dnn_version(f->library);

    snprintf(text, sizeof text, "cuDNN %llu.%llu.%llu", v / 10000, v / 100 % 100, v % 100);
}

/* Describe a call for people. */
static void fu_name(const cu_dnn_call &c, char (&text)[160])
{
    const cu_dnn_tensor &q = c.tensor[CU_DNN_Q], &k = c.tensor[CU_DNN_K];

    snprintf(text, sizeof text,
             "%s of %lld x %lld queries, %lld keys, %lld/%lld heads of %lld, %s%s",
             c.backward ? "gradients" : "attention", (long long)q.n[0], (long long)q.n[2],
             (long long)k.n[2], (long long)q.n[1], (long long)k.n[1], (long long)q.n[3],
             ckpt_dtype_name(c.dt), c.causal ? ", causal" : "");
}

/* Warn about a call; "OWN compute it" follows the text. */
static void fu_warn(const cu_fused *f, const cu_dnn_call &c, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fu_warn(const cu_fused *f, const cu_dnn_call &c, const char *format, ...)
{
    char version[40], name[160], why[600];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    fu_version(f, version);
    fu_name(c, name);
    fprintf(stderr, "zerotrain: GPU %d: %s, %s: %s\n", f->ordinal, version, name, why);
}

static void fu_refuse(cu_fused *f, fu_plan *p, const char *why)
{
    p->state = FU_REFUSED;
    fu_warn(f, p->call, "%s; the plugin's own kernels compute it", why);
}

void cu_fused_text(const cu_fused *f, char *text, uint64_t n)
{
    char version[40];
    unsigned good = 0;

    if (!f) {
        snprintf(text, n, "the plugin's kernels");
        return;
    }
    for (unsigned i = 0; i < f->n_plans; i++)
        good += f->plan[i].state == FU_GOOD;
    fu_version(f, version);
    snprintf(text, n, "%s: %u of %u plans checked, %llu calls, greatest difference %.2g%s", version,
             good, f->n_plans, (unsigned long long)f->n_calls, f->worst,
             f->off ? "; off, because a result was wrong" : "");
}

/* ---- opening ---- */

int cu_fused_new(cu_fused **out, zt_cuda *c, ckpt_err *err)
{
    const char *text = getenv("ZEROTRAIN_ATTENTION");
    ckpt_err why = {};

    *out = NULL;
    if (!text || !*text || strcmp(text, "own") == 0)
        return CKPT_OK;
    if (strcmp(text, "cudnn") != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "ZEROTRAIN_ATTENTION is '%.40s': expected own or cudnn",
                         text);
    if (c->deterministic)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "ZEROTRAIN_ATTENTION=cudnn: the sums of cuDNN's gradients depend on "
                         "timing; leave out --deterministic or the variable");
    cu_fused *f = (cu_fused *)ckpt_alloc(sizeof *f);

    if (!f)
        return ckpt_fail_memory(err);
    f->ordinal = c->ordinal;
    if (cu_dnn_open(&f->library, (void *)c->stream, c->capability, &why) != CKPT_OK) {
        ckpt_free(f);
        return ckpt_fail(err, CKPT_EUSAGE, "ZEROTRAIN_ATTENTION=cudnn: %s", why.text);
    }
    *out = f;
    return CKPT_OK;
}

void cu_fused_free(cu_fused *f)
{
    if (!f)
        return;
    for (unsigned i = 0; i < f->n_plans; i++)
        cu_dnn_plan_free(f->plan[i].plan);
    cu_dnn_close(f->library);
    ckpt_free(f);
}

/* ---- choosing ---- */

/*
 * True if cuDNN computes such calls as device.h defines them.  A single key that is seen leaves
 * gradients without digits, which no check can judge.
 */
static bool fu_suits(const cu_at_call &c, const zt_attention *a)
{
    const bool whole = c.vector && c.lse && (uintptr_t)c.lse % 16 == 0;

    return c.dt != CKPT_F32 && whole && c.width <= AT_WIDEST && !c.drop && !c.mask &&
           c.window >= c.seq && c.alibi.whole == 0 && !a->bias && !(c.cap > 0.0F) &&
           (c.causal ? c.queries : c.seq) > 1;
}

static bool fu_is(const cu_dnn_call &x, const cu_dnn_call &y)
{
    return x.dt == y.dt && x.backward == y.backward && x.causal == y.causal && x.scale == y.scale &&
           memcmp(x.tensor, y.tensor, sizeof x.tensor) == 0;
}

/* The plan of a call, or NULL: there are too many. */
static fu_plan *fu_find(cu_fused *f, const cu_dnn_call &call)
{
    ckpt_err err = {};

    for (unsigned i = 0; i < f->n_plans; i++) {
        if (fu_is(f->plan[i].call, call))
            return &f->plan[i];
    }
    if (f->n_plans == FU_PLANS) {
        if (!f->full)
            fu_warn(f, call,
                    "there are %u plans for other shapes already; the plugin's own "
                    "kernels compute all further shapes",
                    FU_PLANS);
        f->full = true;
        return NULL;
    }
    fu_plan *p = &f->plan[f->n_plans++];

    p->call = call;
    if (cu_dnn_plan_new(&p->plan, f->library, &call, &p->n_bytes, &err) != CKPT_OK)
        fu_refuse(f, p, err.text);
    return p;
}

/* ---- comparing ---- */

/* Kernel: a block writes the greatest difference of a row of one head of one sequence. */
template <typename T>
static __global__ void __launch_bounds__(FU_THREADS)
    ck_fused_apart(fu_output o, const T *want, float least, float *worst)
{
    ZT_SHARED_ARRAY(float, each, FU_THREADS);
    const int head = (int)blockIdx.x % o.heads, batch = (int)blockIdx.x / o.heads;
    float most = 0;

    for (int r = (int)threadIdx.x; r < o.rows; r += FU_THREADS) {
        const uint64_t row = (uint64_t)batch * o.rows + r, column = (uint64_t)head * o.width;
        const T *x = want + row * o.heads * o.width + column;
        const T *y = (const T *)o.at + row * o.ld + column;
        float norm = 0, apart = 0;

        for (int i = 0; i < o.width; i++) {
            const float a = ck_up(x[i]), b = ck_up(y[i]);

            norm += a * a;
            apart += (a - b) * (a - b);
        }
        apart = sqrtf(apart) / fmaxf(sqrtf(norm), least);
        most = apart <= most ? most : apart < INFINITY ? apart : INFINITY; // NaN: INFINITY
    }
    each[threadIdx.x] = most;
    __syncthreads();
    for (int i = 0; threadIdx.x == 0 && i < FU_THREADS; i++)
        most = fmaxf(most, each[i]);
    if (threadIdx.x == 0)
        worst[blockIdx.x] = most;
}

static uint64_t fu_elements(const fu_output &o)
{
    return (uint64_t)o.batch * o.rows * o.heads * o.width;
}

/*
 * Compare an output with the dense one at `want`; room: device memory for a number a head.
 * Returns  the greatest distance; infinite: the output tells nothing, because `want` is zero or not
 *          finite, or the device has failed
 */
static double fu_apart(zt_device *d, const fu_output &o, const void *want, float *room)
{
    const unsigned n = (unsigned)(o.batch * o.heads);
    const double vectors = (double)o.batch * o.rows * o.heads;
    const double mean = sqrt(cu_sum_squares(d, o.dt, fu_elements(o), want) / vectors);
    const bool lse = o.dt == CKPT_F32;
    const float least = lse ? 1.0F : (float)(mean / 8);
    float *host = (float *)ckpt_alloc(n * sizeof *host);
    double worst = 0;

    if (!host || !isfinite(mean) || mean <= 0 || d->err.code != CKPT_OK) {
        ckpt_free(host);
        return (double)INFINITY;
    }
    CU_DTYPE(o.dt, T,
             ZT_LAUNCH(ck_fused_apart<T>, n, FU_THREADS, 0, cu_stream(d), o, (const T *)want, least,
                       room));
    (void)cu_launched(d, "comparing attention");
    d->ops->get(d, host, room, n * sizeof *host);
    for (unsigned i = 0; i < n; i++)
        worst = host[i] > worst ? (double)host[i] : worst;
    ckpt_free(host);
    return worst;
}

/* ---- checking ---- */

static fu_output fu_rows(const char *name, const cu_at_call &c, void *at, bool keys, uint64_t ld)
{
    return {name,
            at,
            c.dt,
            c.batch,
            keys ? c.seq : c.queries,
            keys ? c.kv_heads : c.heads,
            c.width,
            ld,
            c.dt == CKPT_F16 ? FU_LEAST_F16 : FU_LEAST_BF16};
}

static fu_outputs fu_outputs_of(const cu_at_call &c, bool backward)
{
    if (backward)
        return {{fu_rows("dq", c, c.dq, false, c.ldq), fu_rows("dk", c, c.dk, true, c.ldk),
                 fu_rows("dv", c, c.dv, true, c.ldv)},
                3};
    // lse is a vector of one number for each query of a head
    return {{fu_rows("o", c, c.o, false, c.ldo),
             {"lse", c.lse, CKPT_F32, c.batch * c.heads, c.queries, 1, 1, 1, FU_LEAST_LSE},
             {}},
            2};
}

/* Bytes of a dense copy, in whole pieces of 16. */
static uint64_t fu_bytes(const fu_output &o)
{
    const uint64_t n = fu_elements(o) * (o.dt == CKPT_F32 ? 4 : 2);

    return (n + 15) / 16 * 16;
}

/* A call, and what it was made of; g NULL: the forward pass. */
typedef struct fu_pass {
    const cu_at_call &c;
    const zt_attention *a;
    const zt_attention_grad *g;
} fu_pass;

/* Run the own kernels of a call; exact: those that round outputs only. */
static void fu_own(zt_device *d, const fu_pass &pass, bool exact)
{
    cu_at_call own = pass.c;

    own.exact = exact;
    if (pass.g)
        cu_at_backward(d, &own, pass.g);
    else
        cu_at_forward(d, &own, pass.a);
}

/* Copy all outputs to dense arrays. */
static void fu_copy(zt_device *d, const fu_outputs &outs, char *to)
{
    for (unsigned i = 0; i < outs.n; i++) {
        const fu_output &o = outs.each[i];
        zt_rows r = {};

        r.rows = (uint64_t)o.batch * o.rows;
        r.width = (uint64_t)o.heads * o.width;
        r.ld_from = o.ld;
        r.from = o.at;
        r.to = to;
        cu_rows(d, o.dt, &r);
        to += fu_bytes(o);
    }
}

/* Distances of all outputs from their copies. */
typedef struct fu_distances {
    double each[3];
} fu_distances;

static fu_distances fu_measure(zt_device *d, const fu_outputs &outs, const char *copy, float *room)
{
    fu_distances x = {};

    for (unsigned i = 0; i < outs.n; i++) {
        x.each[i] = fu_apart(d, outs.each[i], copy, room);
        copy += fu_bytes(outs.each[i]);
    }
    return x;
}

static int fu_start(zt_device *d, const fu_plan *p, const cu_at_call &c, ckpt_err *err)
{
    void *const at[CU_DNN_TENSORS] = {(void *)c.q,    (void *)c.k, (void *)c.v, c.o, c.lse,
                                      (void *)c.dout, c.dq,        c.dk,        c.dv};
    void *room = cu_scratch(d, p->n_bytes + 1);

    return room ? cu_dnn_plan_run(p->plan, at, room, err) : CKPT_OK;
}

/*
 * Decide on a plan; true: it is good.
 *
 * own,dnn  distances of the tensor family and of cuDNN
 */
static bool fu_judge(cu_fused *f, fu_plan *p, const fu_outputs &outs, const fu_distances &own,
                     const fu_distances &dnn)
{
    double worst = 0;

    for (unsigned i = 0; i < outs.n; i++) {
        const fu_output &o = outs.each[i];
        const double most = fmax(o.least, o.dt == CKPT_F32 ? 0 : FU_TIMES * own.each[i]);

        if (most > FU_HIDDEN) {
            if (++p->tries == FU_TRIES)
                fu_refuse(f, p,
                          "its results cannot be checked: they are zero, not finite or lost "
                          "in rounding");
            return false;
        }
        if (!(dnn.each[i] <= most)) {
            fu_warn(f, p->call,
                    "%s is wrong by %.3g of a row's norm, and rounding explains at most %.3g; the "
                    "plugin's own kernels compute all attention from now on",
                    o.name, dnn.each[i], most);
            f->off = true;
            return false;
        }
        // lse has another measure
        worst = o.dt == CKPT_F32 ? worst : fmax(worst, dnn.each[i]);
    }
    p->state = FU_GOOD;
    f->worst = fmax(f->worst, worst);
    return true;
}

/* Compare a plan's first results in `room`; true: they stay in the outputs. */
static bool fu_check(zt_device *d, cu_fused *f, fu_plan *p, const fu_pass &pass, char *copy,
                     float *room)
{
    const fu_outputs outs = fu_outputs_of(pass.c, pass.g != NULL);
    ckpt_err err = {};

    fu_own(d, pass, true);
    fu_copy(d, outs, copy);
    fu_own(d, pass, false);
    const fu_distances own = fu_measure(d, outs, copy, room);

    if (fu_start(d, p, pass.c, &err) != CKPT_OK) {
        fu_refuse(f, p, err.text);
        return false;
    }
    const fu_distances dnn = fu_measure(d, outs, copy, room);

    return d->err.code == CKPT_OK && fu_judge(f, p, outs, own, dnn);
}

/* Run a plan for the first time; the own kernels compute the call again if it is not good. */
static void fu_first(zt_device *d, cu_fused *f, fu_plan *p, const fu_pass &pass)
{
    const fu_outputs outs = fu_outputs_of(pass.c, pass.g != NULL);
    const uint64_t heads = (uint64_t)pass.c.batch * pass.c.heads * sizeof(float);
    bool good = false;
    uint64_t n = 0;

    for (unsigned i = 0; i < outs.n; i++)
        n += fu_bytes(outs.each[i]);
    char *copy = (char *)cu_spare(d, n + heads);

    if (copy && cu_scratch_fits(d, p->n_bytes + 1))
        good = fu_check(d, f, p, pass, copy, (float *)(void *)(copy + n));
    else
        fu_refuse(f, p, "there is too little device memory");
    f->n_calls += good;
    if (!good)
        fu_own(d, pass, false);
    cu_spare_free(d, copy);
}

bool cu_fused_run(zt_device *d, const cu_at_call &c, const zt_attention *a,
                  const zt_attention_grad *g)
{
    cu_fused *f = cu_of(d)->fused;
    cu_dnn_call call;
    ckpt_err err = {};

    if (!f || f->off || !fu_suits(c, a))
        return false;
    cu_dnn_describe(&call, c.dt, a, g);
    fu_plan *p = fu_find(f, call);

    if (!p || p->state == FU_REFUSED)
        return false;
    if (p->state == FU_NEW) {
        fu_first(d, f, p, {c, a, g});
        return true;
    }
    f->n_calls++;
    if (fu_start(d, p, c, &err) != CKPT_OK)
        zt_device_fail(d, err.code, err.text);
    return true;
}
