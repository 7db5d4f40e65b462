/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_layers.c: norms, embeddings and losses of the CPU device against double precision.
 */
#include "tests/unit/engine/device/help.h"
#include "tests/unit/unit.h"

static const struct {
    uint64_t rows, width;
} shapes[] = {{1, 1}, {3, 7}, {5, 33}, {67, 64}, {131, 100}, {12, 1030}};

static void free_all(dh_tensor *t, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        dh_free(&t[i]);
}

/* ---- norm ---------------------------------------------------------------------------------- */

enum { X, ADD, W, B, SUM, Y, DY, DX, DW, DB, N_NORM };

/* Mean and 1 / deviation of a row in double precision. */
static void moments(const float *x, uint64_t n, bool rms, double *mean, double *rstd)
{
    double m = 0, v = 0;
    for (uint64_t i = 0; i < n && !rms; i++)
        m += (double)x[i] / (double)n;
    for (uint64_t i = 0; i < n; i++)
        v += ((double)x[i] - m) * ((double)x[i] - m) / (double)n;
    *mean = m;
    *rstd = 1 / sqrt(v + (double)1e-5F);
}

static void check_norm(const zt_norm *a, const dh_tensor *t, const float *s)
{
    ckpt_dtype dt = t[Y].dt;
    for (uint64_t r = 0; r < a->rows; r++) {
        double mean, rstd;
        moments(s + r * a->width, a->width, a->rms, &mean, &rstd);
        assert_true(a->rms || fabs((double)a->mean[r] - mean) < 1e-6);
        assert_true(fabs((double)a->rstd[r] / rstd - 1) < 2e-6);
        for (uint64_t i = 0; i < a->width; i++) {
            double v = ((double)s[r * a->width + i] - mean) * rstd;
            v *= (double)t[W].v[i] + (a->plus_one ? 1 : 0);
            // RMS rounds before the weight
            double inner = a->rms && !a->once ? dh_eps(dt) * fabs(v) : 0;
            v += a->b ? (double)t[B].v[i] : 0;
            dh_near(&t[Y], r * a->width + i, v, (dh_bound){1.01, 4e-6 * (1 + rstd) + inner});
        }
    }
}

static void check_dx(const zt_norm_grad *a, const dh_tensor *t, const float *s)
{
    uint64_t n = a->width;
    const double one = a->plus_one ? 1 : 0;
    for (uint64_t r = 0; r < a->rows; r++) {
        double mean, rstd, c1 = 0, c2 = 0;
        const float *x = s + r * n, *dy = t[DY].v + r * n, *w = t[W].v;
        moments(x, n, a->rms, &mean, &rstd);
        for (uint64_t i = 0; i < n; i++) {
            double g = (double)dy[i] * ((double)w[i] + one) / (double)n;
            c1 += a->rms ? 0 : g;
            c2 += g * ((double)x[i] - mean) * rstd;
        }
        for (uint64_t i = 0; i < n; i++) {
            double v =
                (double)dy[i] * ((double)w[i] + one) - c1 - ((double)x[i] - mean) * rstd * c2;
            v = v * rstd + (a->dx_add ? (double)t[DX].v[r * n + i] : 0);
            dh_near(&t[DX], r * n + i, v, (dh_bound){1.01, 8e-6 * (1 + rstd)});
        }
    }
}

static void check_dw(const zt_norm_grad *a, const dh_tensor *t, const float *s)
{
    uint64_t n = a->width;
    double eps = dh_eps(t[DW].dt), *dw = calloc(3 * n, sizeof *dw);
    double *db = dw + n, *size = db + n;
    assert_non_null(dw);
    for (uint64_t r = 0; r < a->rows; r++) {
        double mean, rstd;
        moments(s + r * n, n, a->rms, &mean, &rstd);
        for (uint64_t i = 0; i < n; i++) {
            double dy = (double)t[DY].v[r * n + i];
            double addend = dy * ((double)s[r * n + i] - mean) * rstd;
            dw[i] += addend;
            db[i] += dy;
            size[i] += fabs(addend);
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        // RMS rounds xhat; a sum is rounded before it is added
        double noise = 1e-6 * (1 + size[i]) + (a->rms && !a->once ? eps * size[i] : 0);
        double old = a->w_add ? (double)t[DW].v[i] : 0, extra = a->w_add ? eps * fabs(dw[i]) : 0;
        dh_near(&t[DW], i, dw[i] + old, (dh_bound){1.01, noise + extra});
        if (a->db) {
            old = a->b_add ? (double)t[DB].v[i] : 0;
            extra = a->b_add ? eps * fabs(db[i]) : 0;
            dh_near(&t[DB], i, db[i] + old, (dh_bound){1.01, 1e-5 + extra});
        }
    }
    free(dw);
}

static void try_norm(uint64_t rows, uint64_t n, ckpt_dtype dt, unsigned flags)
{
    void *first[4] = {NULL, NULL, NULL, NULL};
    for (unsigned threads = 1; threads <= 3; threads++) {
        dh_tensor t[N_NORM];
        for (unsigned i = 0; i < N_NORM; i++)
            t[i] = dh_new(dt, i == W || i == B || i >= DW ? n : rows * n, 1, i + 1);
        float *mean = malloc(rows * sizeof *mean), *rstd = malloc(rows * sizeof *rstd);
        bool rms = flags & 1, add = flags & 2;
        zt_norm f = {.rows = rows, .width = n, .rms = rms, .eps = 1e-5F, .mean = mean};
        f.rstd = rstd;
        f.once = rms && flags & 16;
        f.plus_one = rms && flags & 32;
        f.x = t[X].p;
        f.add = add ? t[ADD].p : NULL;
        f.sum = t[SUM].p;
        f.w = t[W].p;
        f.b = rms ? NULL : t[B].p;
        f.y = t[Y].p;
        zt_norm_grad g = {.rows = rows, .width = n, .rms = rms, .mean = mean, .rstd = rstd};
        g.once = f.once;
        g.plus_one = f.plus_one;
        g.dx_add = flags & 4;
        g.w_add = flags & 8;
        g.b_add = flags & 8;
        g.x = add ? t[SUM].p : t[X].p;
        g.w = t[W].p;
        g.dy = t[DY].p;
        g.dx = t[DX].p;
        g.dw = t[DW].p;
        g.db = rms ? NULL : t[DB].p;
        zt_device *d = dh_device(threads);
        d->ops->norm(d, dt, &f);
        d->ops->norm_grad(d, dt, &g);
        dh_done(d);
        if (add) {
            for (uint64_t i = 0; i < rows * n; i++) {
                dh_near(&t[SUM], i, (double)t[X].v[i] + (double)t[ADD].v[i], (dh_bound){1.01, 0});
            }
            dh_read(&t[SUM], t[SUM].v);
        }
        if (threads == 1) {
            const float *s = add ? t[SUM].v : t[X].v;
            check_norm(&f, t, s);
            check_dx(&g, t, s);
            check_dw(&g, t, s);
        }
        dh_same(&first[0], &t[Y]);
        dh_same(&first[1], &t[DX]);
        dh_same(&first[2], &t[DW]);
        dh_same(&first[3], &t[DB]);
        free_all(t, N_NORM);
        free(mean);
        free(rstd);
    }
    for (unsigned i = 0; i < 4; i++)
        free(first[i]);
}

static void norm(void **state)
{
    (void)state;
    unsigned flags = 0;
    DH_EACH(i, shapes)
    {
        DH_EACH(k, dh_dtypes)
        {
            for (unsigned n = 0; n < 4; n++) {
                try_norm(shapes[i].rows, shapes[i].width, dh_dtypes[k], flags % 64);
                flags += 5;
            }
        }
    }
    for (flags = 0; flags < 64; flags++)
        try_norm(9, 50, CKPT_F32, flags);
    for (flags = 1; flags < 64; flags += 16)
        try_norm(9, 50, CKPT_BF16, flags);
}

/* dx over dy: the weights' gradients are as before.  A large common offset does no harm. */
static void norm_in_place(void **state)
{
    (void)state;
    enum { R = 40, N = 96 };
    dh_tensor x = dh_new(CKPT_F32, R * N, 1, 1), w = dh_new(CKPT_F32, N, 1, 2);
    dh_tensor dy = dh_new(CKPT_F32, R * N, 1, 3), dx = dh_new(CKPT_F32, R * N, 1, 4);
    dh_tensor dw = dh_new(CKPT_F32, N, 1, 5), dw2 = dh_new(CKPT_F32, N, 1, 6);
    float mean[R], rstd[R], *values = x.p;
    for (unsigned i = 0; i < R * N; i++)
        values[i] += 1000.0F;
    dh_read(&x, x.v);
    zt_norm f = {.rows = R, .width = N, .eps = 1e-5F, .x = x.p, .w = w.p, .b = w.p};
    f.y = dx.p;
    f.mean = mean;
    f.rstd = rstd;
    zt_norm_grad g = {.rows = R, .width = N, .x = x.p, .w = w.p, .dy = dy.p, .dx = dx.p};
    g.mean = mean;
    g.rstd = rstd;
    g.dw = dw.p;
    zt_device *d = dh_device(2);
    d->ops->norm(d, CKPT_F32, &f);
    for (unsigned i = 0; i < R * N; i++) {
        double m, s;
        moments(x.v + i / N * N, N, false, &m, &s);
        dh_near(&dx, i, ((double)x.v[i] - m) * s * (double)w.v[i % N] + (double)w.v[i % N],
                (dh_bound){1, 4e-4});
    }
    d->ops->norm_grad(d, CKPT_F32, &g);
    g.dx = dy.p;
    g.dw = dw2.p;
    d->ops->norm_grad(d, CKPT_F32, &g);
    dh_done(d);
    assert_memory_equal(dx.p, dy.p, R * N * 4);
    assert_memory_equal(dw.p, dw2.p, N * 4);
    dh_tensor *all[] = {&x, &w, &dy, &dx, &dw, &dw2};
    DH_EACH(i, all)
    {
        dh_free(all[i]);
    }
}

/* ---- embedding ----------------------------------------------------------------------------- */

enum { WORD, POSITION, TYPE, EY, EDY, DWORD, DPOSITION, DKIND, N_EMBED };

#define VOCAB     37u
#define POSITIONS 12u
#define TYPES     3u
#define SEQ       10u

static void check_embed(const zt_embed *a, const dh_tensor *t)
{
    for (uint64_t i = 0; i < a->rows * a->width; i++) {
        uint64_t row = i / a->width, c = i % a->width;
        double v = (double)t[WORD].v[(uint64_t)a->token[row] * a->width + c];
        v += a->position ? (double)t[POSITION].v[row % SEQ * a->width + c] : 0;
        uint64_t kind = a->kind ? (uint64_t)a->kind[row] : 0;
        v += a->type ? (double)t[TYPE].v[kind * a->width + c] : 0;
        dh_near(&t[EY], i, v, (dh_bound){1.01, 3e-7});
    }
}

/* Sum of dy over the rows whose index is k (index NULL: position). */
static double gathered(const zt_embed_grad *a, const dh_tensor *dy, const int32_t *index,
                       uint64_t k)
{
    double s = 0;
    uint64_t row = k / a->width, c = k % a->width;
    for (uint64_t i = 0; i < a->rows; i++) {
        uint64_t at = index ? (uint64_t)index[i] : i % SEQ;
        s += at == row ? (double)dy->v[i * a->width + c] : 0;
    }
    return s;
}

static void check_table(const dh_tensor *t, uint64_t i, double s, bool add)
{
    double old = add ? (double)t->v[i] : 0, extra = add ? dh_eps(t->dt) * fabs(s) : 0;
    dh_near(t, i, s + old, (dh_bound){1.01, 2e-6 + extra});
}

static void check_embed_grad(const zt_embed_grad *a, const dh_tensor *t)
{
    for (uint64_t i = 0; i < VOCAB * a->width; i++) {
        bool skipped = a->padding >= 0 && i / a->width == (uint64_t)a->padding;
        check_table(&t[DWORD], i, skipped ? 0 : gathered(a, &t[EDY], a->token, i), a->word_add);
    }
    for (uint64_t i = 0; i < POSITIONS * a->width; i++)
        check_table(&t[DPOSITION], i, gathered(a, &t[EDY], NULL, i), a->position_add);
    for (uint64_t i = 0; i < TYPES * a->width; i++)
        check_table(&t[DKIND], i, gathered(a, &t[EDY], a->kind, i), a->kind_add);
}

static void try_embed(uint64_t n, ckpt_dtype dt, unsigned flags)
{
    enum { ROWS = 4 * SEQ };
    int32_t token[ROWS], kind[ROWS];
    uint64_t seed = 5;
    void *first[4] = {NULL, NULL, NULL, NULL};
    for (unsigned i = 0; i < ROWS; i++) {
        token[i] = (int32_t)(dh_uniform(&seed) * VOCAB);
        kind[i] = (int32_t)(dh_uniform(&seed) * TYPES);
    }
    for (unsigned threads = 1; threads <= 3; threads++) {
        dh_tensor t[N_EMBED] = {dh_new(dt, VOCAB * n, 1, 1),     dh_new(dt, POSITIONS * n, 1, 2),
                                dh_new(dt, TYPES * n, 1, 3),     dh_new(dt, ROWS * n, 1, 4),
                                dh_new(dt, ROWS * n, 1, 5),      dh_new(dt, VOCAB * n, 1, 6),
                                dh_new(dt, POSITIONS * n, 1, 7), dh_new(dt, TYPES * n, 1, 8)};
        zt_embed a = {.rows = ROWS, .seq = SEQ, .width = n, .vocab = VOCAB, .n_types = TYPES};
        a.token = token;
        a.kind = flags & 1 ? kind : NULL;
        a.word = t[WORD].p;
        a.position = flags & 2 ? t[POSITION].p : NULL;
        a.type = flags & 4 ? t[TYPE].p : NULL;
        a.y = t[EY].p;
        zt_embed_grad g = {.rows = ROWS, .seq = SEQ, .n_positions = POSITIONS, .width = n};
        g.vocab = VOCAB;
        g.n_types = TYPES;
        g.padding = flags & 1 ? 3 : -1;
        g.token = token;
        g.kind = kind;
        g.dy = t[EDY].p;
        g.dword = t[DWORD].p;
        g.dposition = t[DPOSITION].p;
        g.dkind = t[DKIND].p;
        g.word_add = flags & 2;
        g.position_add = flags & 4;
        g.kind_add = flags & 1;
        zt_device *d = dh_device(threads);
        d->ops->embed(d, dt, &a);
        d->ops->embed_grad(d, dt, &g);
        dh_done(d);
        if (threads == 1) {
            check_embed(&a, t);
            check_embed_grad(&g, t);
        }
        dh_same(&first[0], &t[EY]);
        for (unsigned i = 0; i < 3; i++)
            dh_same(&first[1 + i], &t[DWORD + i]);
        free_all(t, N_EMBED);
    }
    for (unsigned i = 0; i < 4; i++)
        free(first[i]);
}

static void embed(void **state)
{
    (void)state;
    static const uint64_t widths[] = {1, 20, 333};
    DH_EACH(i, widths)
    {
        DH_EACH(k, dh_dtypes)
        {
            for (unsigned flags = 0; flags < 8; flags++)
                try_embed(widths[i], dh_dtypes[k], flags);
        }
    }
}

/* ---- losses -------------------------------------------------------------------------------- */

/* Mean loss in double precision; grad [rows * classes] is d loss / d logit. */
static double reference(const zt_loss *a, const float *x, double *grad)
{
    double sum = 0, count = 0;
    for (uint64_t r = 0; r < a->rows; r++)
        count += a->kind == ZT_CROSS_ENTROPY ? a->label[r] != ZT_IGNORE : (double)a->classes;
    for (uint64_t r = 0; r < a->rows; r++) {
        const float *row = x + r * a->ld;
        double total = 0;
        for (uint64_t i = 0; i < a->classes; i++)
            total += exp((double)row[i]);
        for (uint64_t i = 0; i < a->classes; i++) {
            double v = (double)row[i], *g = &grad[r * a->classes + i];
            double t = a->target ? (double)a->target[r * a->classes + i] : 0;
            if (a->kind == ZT_MSE) {
                sum += (v - t) * (v - t);
                *g = 2 * (v - t) / count;
            } else if (a->kind == ZT_BCE) {
                sum += log1p(exp(v)) - v * t;
                *g = (1 / (1 + exp(-v)) - t) / count;
            } else {
                bool counts = a->label[r] != ZT_IGNORE, own = a->label[r] == (int32_t)i;
                sum += own ? log(total) - v : 0;
                *g = counts ? (exp(v) / total - own) / count : 0;
            }
        }
    }
    return sum / count;
}

static void try_loss(zt_loss_kind kind, uint64_t rows, uint64_t classes, ckpt_dtype dt)
{
    void *first = NULL;
    double first_loss = 0;
    int32_t label[200];
    uint64_t seed = rows * 7 + classes, ld = classes + rows % 2 * 3;
    for (uint64_t i = 0; i < rows; i++)
        label[i] = i % 5 == 4 ? ZT_IGNORE : (int32_t)(dh_uniform(&seed) * (double)classes);
    float *target = malloc(rows * classes * sizeof *target);
    double *grad = malloc(rows * classes * sizeof *grad);
    for (uint64_t i = 0; i < rows * classes; i++)
        target[i] = (float)dh_uniform(&seed);
    for (unsigned threads = 1; threads <= 3; threads++) {
        dh_tensor x = dh_new(dt, rows * ld, 8, 1);
        double loss = -1, only = -2;
        zt_loss a = {.kind = kind, .rows = rows, .classes = classes, .ld = ld, .factor = 3.5F};
        a.label = label;
        a.target = target;
        a.logits = x.p;
        a.loss = &only;
        zt_device *d = dh_device(threads);
        d->ops->loss(d, dt, &a); // without gradient the logits stay
        a.loss = &loss;
        a.grad = true;
        d->ops->loss(d, dt, &a);
        dh_done(d);
        assert_memory_equal(&loss, &only, sizeof loss);
        if (threads == 1) {
            double expected = reference(&a, x.v, grad);
            assert_true(fabs(loss - expected) <= 1e-6 * (1 + fabs(expected)));
            for (uint64_t i = 0; i < rows * ld; i++) {
                bool inside = i % ld < classes;
                double g = inside ? 3.5 * grad[i / ld * classes + i % ld] : (double)x.v[i];
                dh_near(&x, i, g, (dh_bound){inside ? 1.01 : 0, inside ? 2e-6 : 0});
            }
            first_loss = loss;
        }
        assert_memory_equal(&first_loss, &loss, sizeof loss);
        dh_same(&first, &x);
        dh_free(&x);
    }
    free(first);
    free(target);
    free(grad);
}

static void loss(void **state)
{
    (void)state;
    DH_EACH(k, dh_dtypes)
    {
        for (zt_loss_kind kind = ZT_CROSS_ENTROPY; kind <= ZT_BCE; kind++) {
            try_loss(kind, 1, 1, dh_dtypes[k]);
            try_loss(kind, 4, 2, dh_dtypes[k]);
            try_loss(kind, 150, 101, dh_dtypes[k]);
            try_loss(kind, 7, 5003, dh_dtypes[k]);
        }
    }
}

/* Huge logits do not overflow; no counted row is 0/0, with zero gradients. */
static void loss_extremes(void **state)
{
    (void)state;
    float x[6] = {1e30F, -1e30F, 0, 80000, 79999, -5};
    int32_t label[2] = {0, 4};
    double got = -1;
    zt_loss a = {.kind = ZT_CROSS_ENTROPY, .rows = 1, .classes = 6, .label = label, .factor = 1};
    a.logits = x;
    a.loss = &got;
    a.grad = true;
    zt_device *d = dh_device(2);
    d->ops->loss(d, CKPT_F32, &a);
    assert_true(got == 0.0);
    for (int i = 0; i < 6; i++)
        assert_true(x[i] == 0.0F);
    label[0] = label[1] = ZT_IGNORE;
    x[1] = 5;
    a.rows = 2;
    a.classes = 3;
    d->ops->loss(d, CKPT_F32, &a);
    assert_true(isnan(got) && x[1] == 0.0F);
    float logits[2] = {200, -200}, target[2] = {1, 1};
    a = (zt_loss){.kind = ZT_BCE, .rows = 1, .classes = 2, .target = target, .factor = 1};
    a.logits = logits;
    a.loss = &got;
    a.grad = true;
    d->ops->loss(d, CKPT_F32, &a);
    assert_true(got == 100.0 && logits[0] == 0.0F && logits[1] == -0.5F);
    dh_done(d);
}

/* ---- wrong calls --------------------------------------------------------------------------- */

static float some[64];

static void bad_norm(zt_device *d)
{
    zt_norm a = {.rows = 2, .width = 3, .x = some, .y = some};
    d->ops->norm(d, CKPT_F32, &a);
}

static void bad_norm_grad(zt_device *d)
{
    zt_norm_grad a = {.rows = 2, .width = 3, .x = some, .w = some, .dy = some, .dx = some};
    d->ops->norm_grad(d, CKPT_F32, &a);
}

static void bad_embed(zt_device *d)
{
    static const int32_t token[2] = {1, 9};
    zt_embed a = {.rows = 2, .width = 3, .vocab = 9, .token = token, .word = some, .y = some + 32};
    d->ops->embed(d, CKPT_F32, &a);
}

static void bad_embed_grad(zt_device *d)
{
    static const int32_t token[2] = {1, -2};
    zt_embed_grad a = {.rows = 2, .width = 3, .vocab = 9, .token = token, .dy = some};
    a.dword = some + 32;
    d->ops->embed_grad(d, CKPT_F32, &a);
}

static void bad_positions(zt_device *d)
{
    static const int32_t token[2] = {1, 2};
    zt_embed_grad a = {.rows = 2, .seq = 2, .n_positions = 1, .width = 3, .vocab = 9};
    a.token = token;
    a.dy = some;
    a.dposition = some + 32;
    d->ops->embed_grad(d, CKPT_F32, &a);
}

static void bad_label(zt_device *d)
{
    static const int32_t label[2] = {1, 3};
    double out = 0;
    zt_loss a = {.rows = 2, .classes = 3, .label = label, .logits = some, .loss = &out};
    d->ops->loss(d, CKPT_F32, &a);
}

static void no_target(zt_device *d)
{
    double out = 0;
    zt_loss a = {.kind = ZT_MSE, .rows = 2, .classes = 3, .logits = some, .loss = &out};
    d->ops->loss(d, CKPT_F32, &a);
}

static void null_structs(zt_device *d)
{
    d->ops->norm(d, CKPT_F32, NULL);
    d->ops->norm_grad(d, CKPT_F32, NULL);
    d->ops->embed(d, CKPT_F32, NULL);
    d->ops->embed_grad(d, CKPT_F32, NULL);
    d->ops->loss(d, CKPT_F32, NULL);
}

static void wrong_calls(void **state)
{
    (void)state;
    static void (*const calls[])(zt_device *) = {bad_norm,       bad_norm_grad, bad_embed,
                                                 bad_embed_grad, bad_positions, bad_label,
                                                 no_target,      null_structs};
    DH_EACH(i, calls)
    {
        zt_device *d = dh_device(2);
        calls[i](d);
        assert_int_equal(zt_device_check(d, NULL), CKPT_EUSAGE);
        zt_device_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm), cmocka_unit_test(norm_in_place), cmocka_unit_test(embed),
        cmocka_unit_test(loss), cmocka_unit_test(loss_extremes), cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
