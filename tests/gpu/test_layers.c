/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layers.c: activations, norms, embeddings, rotation, dropout and losses of a CUDA plugin
 * (real or emulated) against the CPU device's.
 *
 *     test_layers PLUGIN
 */
#include "test_help.h"

/* The pointer of a pair on the device of this turn. */
#define ON(turn, p) ((turn) ? (p).g : (p).c)

static const uint64_t lengths[] = {0, 1, 7, 8, 9, 255, 1025, 5003};

/* ---- activations ---- */

static void acts(ckpt_dtype dt, zt_act act)
{
    CASE("act %d %s", (int)act, ckpt_dtype_name(dt));
    EACH(k, lengths)
    {
        pair x = pair_new(dt, lengths[k], 8, 1, k % 2), dy = pair_new(dt, lengths[k], 1, 2, 0);
        pair y = pair_new(dt, lengths[k], 1, 3, 0), dx = pair_new(dt, lengths[k], 1, 4, 0);
        for (unsigned turn = 0; turn < 2; turn++) {
            zt_device *d = turn ? gpu : cpu;
            zt_act_grad a = {act, x.n, ON(turn, x), ON(turn, dy), ON(turn, dx)};
            d->ops->act(d, dt, act, x.n, ON(turn, y), ON(turn, x));
            d->ops->act_grad(d, dt, &a);
            a.dx = ON(turn, dy); // in place
            d->ops->act_grad(d, dt, &a);
        }
        near(&y, 2.01, 2e-6);
        mostly_same(&y);
        mostly_same(&dx);
        near(&dx, 2.01, 2e-6);
        near(&dy, 2.01, 2e-6);
        pairs_free((pair[]){x, dy, y, dx}, 4);
    }
    case_end();
}

static void swiglu(ckpt_dtype dt, zt_act act)
{
    CASE("swiglu %s, activation %d", ckpt_dtype_name(dt), (int)act);
    EACH(k, lengths)
    {
        pair t[6];
        for (unsigned i = 0; i < 6; i++) { // gate, up, y, dy, dgate, dup
            t[i] = pair_new(dt, lengths[k], i == 0 ? 6 : 1, i + 1, i == 1 ? k % 3 : 0);
        }
        for (unsigned turn = 0; turn < 2; turn++) {
            zt_device *d = turn ? gpu : cpu;
            zt_swiglu a = {.n = t[0].n,
                           .act = act,
                           .gate = ON(turn, t[0]),
                           .up = ON(turn, t[1]),
                           .y = ON(turn, t[2]),
                           .dy = ON(turn, t[3]),
                           .dgate = ON(turn, t[4]),
                           .dup = ON(turn, t[5])};
            d->ops->swiglu(d, dt, &a);
            d->ops->swiglu_grad(d, dt, &a);
            a.y = ON(turn, t[1]); // over up, whose gradients follow in place
            d->ops->swiglu(d, dt, &a);
            a.dup = ON(turn, t[3]);
            a.dgate = ON(turn, t[0]);
            a.up = ON(turn, t[4]);
            d->ops->swiglu_grad(d, dt, &a);
        }
        for (unsigned i = 0; i < 6; i++) { // results of results: twice the roundings
            near(&t[i], i == 0 || i == 3 ? 4.1 : 2.01, 4e-6);
        }
        pairs_free(t, 6);
    }
    case_end();
}

/* ---- norms ---- */

enum { X, ADD, W, B, SUM, Y, DY, DX, DW, DB, MEAN, RSTD, N_NORM };

static void norm_run(zt_device *d, ckpt_dtype dt, char *const *p, const zt_norm *shape,
                     unsigned flags)
{
    bool add = flags & 2, rms = flags & 1;
    zt_norm f = *shape;
    f.rms = rms;
    f.once = rms && flags & 64;
    f.plus_one = rms && flags & 128;
    f.eps = 1e-5F;
    f.x = p[X];
    f.add = add ? p[ADD] : NULL;
    f.sum = add ? p[flags & 16 ? X : SUM] : NULL; // also over x itself
    f.w = p[W];
    f.b = rms ? NULL : p[B];
    f.y = p[Y];
    f.mean = (float *)(void *)p[MEAN];
    f.rstd = (float *)(void *)p[RSTD];
    d->ops->norm(d, dt, &f);
    zt_norm_grad g = {
        .rows = f.rows, .width = f.width, .rms = rms, .mean = f.mean, .rstd = f.rstd, .w = p[W]};
    g.dx_add = flags & 4;
    g.once = f.once;
    g.plus_one = f.plus_one;
    g.w_add = g.b_add = flags & 8;
    g.x = add ? f.sum : p[X];
    g.dy = p[DY];
    g.dx = flags & 32 ? p[DY] : p[DX]; // also over dy
    g.dx_add = g.dx_add && !(flags & 32);
    g.dw = flags % 5 == 4 ? NULL : p[DW];
    g.db = rms || flags % 5 == 3 ? NULL : p[DB];
    d->ops->norm_grad(d, dt, &g);
}

static void norm(uint64_t rows, uint64_t n, ckpt_dtype dt, unsigned flags)
{
    CASE("norm %s %d x %d, flags %u", ckpt_dtype_name(dt), (int)rows, (int)n, flags);
    pair t[N_NORM];
    char *p[2][N_NORM];
    bool rms = flags & 1;
    for (unsigned i = 0; i < N_NORM; i++) {
        bool wide = i == W || i == B || i == DW || i == DB;
        t[i] = pair_new(i >= MEAN ? CKPT_F32 : dt,
                        wide        ? n
                        : i >= MEAN ? rows
                                    : rows * n,
                        1, i + 1, i == W && n % 3 == 0);
        p[0][i] = t[i].c;
        p[1][i] = t[i].g;
    }
    zt_norm shape = {.rows = rows, .width = n};
    norm_run(cpu, dt, p[0], &shape, flags);
    norm_run(gpu, dt, p[1], &shape, flags);
    double rstd = 1;
    for (uint64_t i = 0; i < rows; i++)
        rstd = fmax(rstd, (double)value_at(CKPT_F32, t[RSTD].c, i));
    double rms_flip =
        rms ? 4 * eps_of(dt) * rstd : 0; // a rounding of the normalized value may go the other way
    same(&t[SUM]);
    same(&t[X]);
    near(&t[MEAN], 4, 4e-7);
    near(&t[RSTD], 16, 0);
    near(&t[Y], rms ? 4.1 : 2.01, 4e-6 * rstd);
    near(&t[DX], 2.01, 2e-5 * rstd);
    mostly_same(&t[Y]);
    mostly_same(&t[DX]);
    near(&t[DY], 2.01, 2e-5 * rstd);
    double sums = 1e-6 * (2 + (double)rows * rstd / 4),
           again = flags & 8 ? 2 * eps_of(dt) * (1 + sqrt((double)rows)) : 0;
    near(&t[DW], 2.01, sums + rms_flip + again);
    near(&t[DB], 2.01, sums + again);
    pairs_free(t, N_NORM);
    case_end();
}

static void norms(ckpt_dtype dt)
{
    static const uint64_t shape[][2] = {{1, 1},     {3, 7},    {5, 33},   {67, 64}, {131, 104},
                                        {12, 1030}, {4, 5000}, {3, 9000}, {300, 16}};
    unsigned flags = 0;
    EACH(i, shape)
    {
        for (unsigned n = 0; n < 8; n++, flags += 11)
            norm(shape[i][0], shape[i][1], dt, flags % 256);
    }
    CASE("norm_grad %s without rows", ckpt_dtype_name(dt));
    pair w = pair_new(dt, 9, 1, 1, 0);
    zt_norm_grad g = {.width = 9, .dw = w.g};
    gpu->ops->norm_grad(gpu, dt, &g);
    memset(w.c, 0, 9 * size_of(dt));
    same(&w);
    pair_free(&w);
    case_end();
}

/* ---- embeddings ---- */

typedef struct lookup {
    uint64_t rows, seq, width, vocab, n_types, n_positions;
} lookup;

static const lookup lookups[] = {
    {1, 1, 1, 1, 1, 1},         {12, 4, 8, 5, 2, 6},           {70, 35, 33, 3, 2, 35},
    {500, 100, 16, 40, 1, 128}, {5000, 1000, 8, 700, 2, 1000}, {2100, 2100, 9, 2, 3, 2100}};

/* Indices below n, small ones much more often. */
static int32_t *indices(uint64_t rows, uint64_t n, uint64_t seed)
{
    int32_t *x = calloc(rows + 1, sizeof *x);
    for (uint64_t i = 0; i < rows; i++) {
        double u = uniform(&seed);
        x[i] = (int32_t)(u * u * u * (double)n);
    }
    return x;
}

static void embed(const lookup *s, ckpt_dtype dt, unsigned flags)
{
    CASE("embed %s %d x %d, flags %u", ckpt_dtype_name(dt), (int)s->rows, (int)s->width, flags);
    int32_t *token[2] = {indices(s->rows, s->vocab, 1), NULL},
            *kind[2] = {indices(s->rows, s->n_types, 2), NULL};
    token[1] = ints_to_gpu(token[0], s->rows);
    kind[1] = ints_to_gpu(kind[0], s->rows);
    uint64_t n[] = {s->vocab, s->n_positions, s->n_types,     s->rows,
                    s->rows,  s->vocab,       s->n_positions, s->n_types};
    pair t[8]; // word, position, type, y, dy and the gradients of the tables
    EACH(i, n)
    {
        t[i] = pair_new(dt, n[i] * s->width, 1, i + 1, i == 0 && s->width % 3 == 0);
    }
    for (unsigned turn = 0; turn < 2; turn++) {
        zt_device *d = turn ? gpu : cpu;
        zt_embed a = {.rows = s->rows,
                      .seq = s->seq,
                      .width = s->width,
                      .vocab = s->vocab,
                      .n_types = s->n_types};
        a.token = token[turn];
        a.kind = flags & 1 ? kind[turn] : NULL;
        a.word = ON(turn, t[0]);
        a.position = flags & 2 ? ON(turn, t[1]) : NULL;
        a.type = flags & 4 ? ON(turn, t[2]) : NULL;
        a.y = ON(turn, t[3]);
        d->ops->embed(d, dt, &a);
        zt_embed_grad g = {
            .rows = s->rows, .seq = s->seq, .n_positions = s->n_positions, .width = s->width};
        g.vocab = s->vocab;
        g.n_types = s->n_types;
        g.padding = flags & 8 ? 0 : -1;
        g.token = a.token;
        g.kind = a.kind;
        g.dy = ON(turn, t[4]);
        g.dword = ON(turn, t[5]);
        g.dposition = ON(turn, t[6]);
        g.dkind = flags & 4 ? ON(turn, t[7]) : NULL;
        g.word_add = g.kind_add = flags & 16;
        g.position_add = flags & 2;
        d->ops->embed_grad(d, dt, &g);
    }
    same(&t[3]);
    for (unsigned i = 5; i < 8; i++) {
        double sums = 2e-7 * (double)s->rows,
               again = 2 * eps_of(dt) * (1 + 2 * sqrt((double)s->rows));
        near(&t[i], 2.01, sums + (flags & (i == 6 ? 2 : 16) ? again : 0));
    }
    pairs_free(t, 8);
    for (unsigned turn = 0; turn < 2; turn++) {
        void (*give)(zt_device *, void *) = gpu->ops->release;
        if (turn) {
            give(gpu, token[1]);
            give(gpu, kind[1]);
        } else {
            free(token[0]);
            free(kind[0]);
        }
    }
    case_end();
}

static void embeds(ckpt_dtype dt)
{
    unsigned flags = 0;
    EACH(i, lookups)
    {
        for (unsigned n = 0; n < 5; n++, flags += 7)
            embed(&lookups[i], dt, flags % 32);
    }
}

/* ---- rotation, dropout ---- */

static void rope(ckpt_dtype dt)
{
    static const uint64_t shape[][6] = {{1, 1, 1, 2, 0, 0},    {10, 5, 3, 6, 20, 0},
                                        {30, 10, 2, 16, 0, 0}, {64, 32, 4, 64, 264, 0},
                                        {12, 4, 3, 10, 0, 4},  {24, 8, 2, 64, 192, 16}};
    EACH(k, shape)
    {
        for (unsigned inverse = 0; inverse < 2; inverse++) {
            CASE("rope %s, shape %u, inverse %u", ckpt_dtype_name(dt), (unsigned)k, inverse);
            zt_rope a = {shape[k][0], shape[k][1], shape[k][2], shape[k][3], shape[k][4],
                         shape[k][5], inverse,     NULL,        NULL,        NULL};
            uint64_t ld = a.ld ? a.ld : a.heads * a.width;
            pair x = pair_new(dt, a.rows * ld, 1, 1, 0),
                 c = pair_new(CKPT_F32, a.seq * a.width / 2, 1, 2, 0);
            pair s = pair_new(CKPT_F32, a.seq * a.width / 2, 1, 3, 0);
            for (unsigned turn = 0; turn < 2; turn++) {
                a.x = ON(turn, x);
                a.cos = (const float *)(const void *)ON(turn, c);
                a.sin = (const float *)(const void *)ON(turn, s);
                zt_device *d = turn ? gpu : cpu;
                d->ops->rope(d, dt, &a);
            }
            near(&x, 2.01, 4e-7);
            mostly_same(&x);
            pairs_free((pair[]){x, c, s}, 3);
            case_end();
        }
    }
}

/* The same elements are dropped; without `add` the bits are equal. */
static void dropout(ckpt_dtype dt, float p)
{
    CASE("dropout %s, rate %g", ckpt_dtype_name(dt), (double)p);
    EACH(k, lengths)
    {
        for (unsigned mode = 0; mode < 4; mode++) { // add or not, in place or not
            pair x = pair_new(dt, lengths[k], 1, 1, k % 2), add = pair_new(dt, lengths[k], 1, 2, 0);
            pair y = pair_new(dt, lengths[k], 1, 3, 0);
            for (unsigned turn = 0; turn < 2; turn++) {
                zt_device *d = turn ? gpu : cpu;
                zt_dropout a = {x.n,         0x123456789abcdefu + k,          p,
                                ON(turn, x), mode & 1 ? ON(turn, add) : NULL, NULL};
                a.y = !(mode & 2) ? ON(turn, y) : mode & 1 ? ON(turn, add) : ON(turn, x);
                d->ops->dropout(d, dt, &a);
            }
            if (mode & 1) {
                near(&y, 2.01, 2e-7);
                mostly_same(&y);
                near(&add, 2.01, 2e-7);
            } else {
                same(&y);
            }
            same(&x);
            pairs_free((pair[]){x, add, y}, 3);
        }
    }
    case_end();
}

/* ---- losses ---- */

typedef struct losses {
    uint64_t rows, classes, ld;
    bool ignore; /* some labels */
} losses;

static const losses loss_shapes[] = {{1, 1, 0, false},
                                     {5, 2, 0, true},
                                     {9, 33, 40, true},
                                     {70, 129, 0, true},
                                     {3, 5003, 5008, false}};

static void loss(const losses *s, ckpt_dtype dt, zt_loss_kind kind, unsigned flags)
{
    CASE("loss %d %s %d x %d, flags %u", (int)kind, ckpt_dtype_name(dt), (int)s->rows,
         (int)s->classes, flags);
    uint64_t ld = s->ld ? s->ld : s->classes;
    pair x = pair_new(dt, s->rows * ld, flags & 2 ? 30 : 4, 1, flags & 1);
    pair target = pair_new(CKPT_F32, s->rows * s->classes, 1, 2, 0);
    int32_t *label[2] = {indices(s->rows, s->classes, 3), NULL};
    for (uint64_t i = 0; s->ignore && i < s->rows; i += 3)
        label[0][i] = ZT_IGNORE;
    label[1] = ints_to_gpu(label[0], s->rows);
    double got[2] = {-1, -1};
    zt_loss a = {.kind = kind, .rows = s->rows, .classes = s->classes, .ld = s->ld, .factor = 512};
    a.grad = flags & 4;
    for (unsigned turn = 0; turn < 2; turn++) {
        a.label = label[turn];
        a.target = (const float *)(const void *)ON(turn, target);
        a.logits = ON(turn, x);
        a.loss = &got[turn];
        zt_device *d = turn ? gpu : cpu;
        d->ops->loss(d, dt, &a);
    }
    if (!(fabs(got[0] - got[1]) <= 2e-6 * (1 + fabs(got[0]))))
        fail("loss", 0, got[1], got[0]);
    double most = 512 / (double)(kind == ZT_CROSS_ENTROPY ? s->rows : s->rows * s->classes);
    near(&x, a.grad ? 2.01 : 0, a.grad ? 4e-6 * most : 0);
    mostly_same(&x);
    free(label[0]);
    gpu->ops->release(gpu, label[1]);
    pairs_free((pair[]){x, target}, 2);
    case_end();
}

/* Nothing to average: not a number, as 0 / 0 is; an infinite logit spoils its row. */
static void loss_edges(void)
{
    CASE("loss, edges");
    int32_t label[2] = {ZT_IGNORE, ZT_IGNORE}, first[1] = {0};
    int32_t *l = ints_to_gpu(label, 2), *f = ints_to_gpu(first, 1);
    float logits[3] = {INFINITY, 1, 2};
    pair x = pair_new(CKPT_F32, 6, 1, 1, 0), y = pair_from(CKPT_F32, 3, logits, 0);
    double value = 0;
    zt_loss a = {.rows = 2, .classes = 3, .label = l, .logits = x.g, .factor = 1, .loss = &value};
    gpu->ops->loss(gpu, CKPT_F32, &a);
    EXPECT(isnan(value));
    value = 0;
    a.rows = 1;
    a.label = f;
    a.logits = y.g;
    gpu->ops->loss(gpu, CKPT_F32, &a);
    EXPECT(isnan(value));
    logits[0] = -INFINITY;
    gpu->ops->put(gpu, y.g, logits, sizeof logits);
    gpu->ops->loss(gpu, CKPT_F32, &a);
    EXPECT(isinf(value) && value > 0);
    a.rows = 0;
    gpu->ops->loss(gpu, CKPT_F32, &a);
    EXPECT(isnan(value));
    gpu->ops->release(gpu, l);
    gpu->ops->release(gpu, f);
    pairs_free((pair[]){x, y}, 2);
    case_end();
}

static void all_losses(ckpt_dtype dt)
{
    EACH(i, loss_shapes)
    {
        for (unsigned flags = 0; flags < 8; flags++)
            loss(&loss_shapes[i], dt, ZT_CROSS_ENTROPY, flags);
        loss(&loss_shapes[i], dt, ZT_MSE, i % 2 ? 4 : 5);
        loss(&loss_shapes[i], dt, ZT_BCE, i % 2 ? 5 : 6);
        loss(&loss_shapes[i], dt, ZT_BCE, 0);
    }
}

int main(int argc, char **argv)
{
    int rc = begin(argc, argv);
    if (rc != 0)
        return rc;
    EACH(i, dtypes)
    {
        for (int act = ZT_ACT_NONE; act <= ZT_SILU; act++)
            acts(dtypes[i], (zt_act)act);
        swiglu(dtypes[i], ZT_ACT_NONE);
        swiglu(dtypes[i], ZT_GELU_TANH);
        norms(dtypes[i]);
        embeds(dtypes[i]);
        rope(dtypes[i]);
        dropout(dtypes[i], 0);
        dropout(dtypes[i], 0.1F);
        dropout(dtypes[i], 0.5F);
        dropout(dtypes[i], 1);
        all_losses(dtypes[i]);
    }
    loss_edges();
    return end("layers");
}
