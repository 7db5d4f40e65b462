/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c: memory, errors, vectors, products and optimizer steps of a CUDA plugin (real or
 * emulated) against the CPU device's.
 *
 *     test_device PLUGIN
 */
#include "orders.h"
#include "test_help.h"

static const uint64_t lengths[] = {0, 1, 7, 8, 9, 255, 1025, 20003};

/* ---- memory, errors ---- */

static void memory(void)
{
    CASE("memory");
    static const uint64_t sizes[] = {0, 1, 15, 70001, 524288, 524289, 5000003};
    uint64_t before = gpu->allocated;
    EXPECT(!gpu->host && strcmp(gpu->ops->name, "cuda") == 0);
    EACH(k, sizes)
    {
        uint64_t n = sizes[k];
        unsigned char *h = malloc(n + 1), *back = calloc(n + 1, 1);
        for (uint64_t i = 0; i < n; i++)
            h[i] = (unsigned char)(i * 7 + i / 255);
        char *a = gpu->ops->alloc(gpu, n + 1), *b = gpu->ops->alloc(gpu, n + 64);
        EXPECT(a && b && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
        EXPECT(gpu->allocated == before + 2 * n + 65 && gpu->peak >= gpu->allocated);
        gpu->ops->put(gpu, a + 1, h, n);
        memset(h, 0xee, n / 2); // the host's bytes were taken
        gpu->ops->zero(gpu, b, n + 64);
        gpu->ops->copy(gpu, b + 3, a + 1, n);
        gpu->ops->copy(gpu, b + 5, b + 3, n); // overlapping
        gpu->ops->get(gpu, back, b + 5, n);
        uint64_t bad = 0;
        for (uint64_t i = 0; i < n; i++)
            bad += back[i] != (unsigned char)(i * 7 + i / 255);
        EXPECT(bad == 0);
        unsigned char edge[8] = {9};
        gpu->ops->get(gpu, edge, b + 5 + n, 1);
        EXPECT(edge[0] == 0);
        gpu->ops->release(gpu, a);
        gpu->ops->release(gpu, b);
        free(h);
        free(back);
    }
    gpu->ops->release(gpu, NULL);
    EXPECT(gpu->allocated == before);
    case_end();
}

/* The host's memory that copies are fastest with: a put has read it, a get has written it. */
static void pinned(void)
{
    CASE("pinned memory");
    static const uint64_t sizes[] = {0, 1, 70001, 524289, 5000003};
    uint64_t before = gpu->allocated;
    EACH(k, sizes)
    {
        uint64_t n = sizes[k], bad = 0;
        unsigned char *h = gpu->ops->alloc_host(gpu, n), *back = gpu->ops->alloc_host(gpu, n);
        char *a = gpu->ops->alloc(gpu, n);
        EXPECT(h && back && (uintptr_t)h % 64 == 0 && (uintptr_t)back % 64 == 0);
        EXPECT(gpu->allocated == before + n);
        for (uint64_t i = 0; i < n; i++)
            h[i] = (unsigned char)(i * 5 + i / 253);
        gpu->ops->put(gpu, a, h, n);
        memset(h, 0xee, n);
        gpu->ops->get(gpu, back, a, n);
        for (uint64_t i = 0; i < n; i++)
            bad += back[i] != (unsigned char)(i * 5 + i / 253);
        EXPECT(bad == 0);
        gpu->ops->release(gpu, a);
        gpu->ops->release_host(gpu, h);
        gpu->ops->release_host(gpu, back);
    }
    gpu->ops->release_host(gpu, NULL);
    EXPECT(gpu->allocated == before);
    case_end();
}

/* Many blocks that come and go: the list of live ones must not lose any. */
static void many_blocks(void)
{
    CASE("many blocks");
    enum { N = 3000 };
    static char *p[N];
    uint64_t before = gpu->allocated, seed = 5;
    for (unsigned i = 0; i < N; i++) {
        p[i] = gpu->ops->alloc(gpu, i);
        EXPECT(p[i] != NULL);
    }
    for (unsigned i = 0; i < 4 * N; i++) {
        unsigned k = (unsigned)(uniform(&seed) * N);
        gpu->ops->release(gpu, p[k]);
        p[k] = gpu->ops->alloc(gpu, k);
    }
    for (unsigned i = 0; i < N; i++)
        gpu->ops->release(gpu, p[i]);
    EXPECT(gpu->allocated == before);
    case_end();
}

/* A device of its own that is made to fail: the first failure stays, and memory can be given back.
 */
static void failure(const char *name, int code, const char *text, void (*make)(zt_device *d))
{
    CASE("failure: %s", name);
    zt_device *d = NULL;
    ckpt_err err = {0};
    EXPECT(new_gpu(&d, 0, false, &err) == CKPT_OK);
    if (d) {
        float x[2] = {1, 2}, y[2] = {0, 0};
        float *p = d->ops->alloc(d, sizeof x);
        d->ops->put(d, p, x, sizeof x);
        make(d);
        d->ops->sync(d);
        EXPECT(zt_device_check(d, &err) == code);
        EXPECT(strstr(err.text, text) != NULL);
        d->ops->scale(d, CKPT_F32, 2, p, 3); // does nothing
        d->ops->get(d, y, p, sizeof y);
        EXPECT(y[0] == 0 && y[1] == 0);
        EXPECT(!d->ops->alloc(d, 4));
        d->ops->release(d, p);
        EXPECT(d->allocated == 0);
        zt_device_free(d);
    }
    case_end();
}

static void ask_too_much(zt_device *d)
{
    EXPECT(!d->ops->alloc(d, (uint64_t)1 << 50));
}

static void ask_most(zt_device *d)
{
    EXPECT(!d->ops->alloc(d, UINT64_MAX));
}

static void ask_too_much_pinned(zt_device *d)
{
    EXPECT(!d->ops->alloc_host(d, UINT64_MAX));
}

static void scale_nothing(zt_device *d)
{
    d->ops->scale(d, CKPT_F32, 2, NULL, 3);
}

static void scale_bytes(zt_device *d)
{
    d->ops->scale(d, CKPT_U8, 2, d, 3);
}

static void release_wrong(zt_device *d)
{
    int x = 0;
    d->ops->release(d, &x);
}

static void embed_outside(zt_device *d)
{
    int32_t token[4] = {0, 1, 7, 2};
    int32_t *t = d->ops->alloc(d, sizeof token);
    float *w = d->ops->alloc(d, 7 * 3 * 4), *y = d->ops->alloc(d, 4 * 3 * 4);
    d->ops->put(d, t, token, sizeof token);
    d->ops->zero(d, w, 7 * 3 * 4);
    zt_embed a = {.rows = 4, .seq = 4, .width = 3, .vocab = 7, .token = t, .word = w, .y = y};
    d->ops->embed(d, CKPT_F32, &a);
    d->ops->sync(d);
    d->ops->release(d, t);
    d->ops->release(d, w);
    d->ops->release(d, y);
}

static void label_outside(zt_device *d)
{
    int32_t label[2] = {0, 3};
    double loss = 0;
    int32_t *l = d->ops->alloc(d, sizeof label);
    float *x = d->ops->alloc(d, 6 * 4);
    d->ops->put(d, l, label, sizeof label);
    d->ops->zero(d, x, 6 * 4);
    zt_loss a = {.rows = 2, .classes = 3, .label = l, .logits = x, .factor = 1, .loss = &loss};
    d->ops->loss(d, CKPT_F32, &a);
    d->ops->release(d, l);
    d->ops->release(d, x);
}

static void failures(void)
{
    failure("memory", CKPT_ELIMIT, "out of memory", ask_too_much);
    failure("all memory", CKPT_ELIMIT, "out of memory", ask_most);
    failure("pinned memory", CKPT_ELIMIT, "pinned memory", ask_too_much_pinned);
    failure("no argument", CKPT_EUSAGE, "scale", scale_nothing);
    failure("dtype", CKPT_EUNSUPPORTED, "F32, BF16 or F16", scale_bytes);
    failure("foreign pointer", CKPT_EUSAGE, "release", release_wrong);
    failure("token", CKPT_EUSAGE, "outside its embedding table", embed_outside);
    failure("label", CKPT_EUSAGE, "not one of the classes", label_outside);
    CASE("no such GPU");
    zt_device *d = NULL;
    ckpt_err err = {0};
    EXPECT(new_gpu(&d, 4096, false, &err) == CKPT_EUNSUPPORTED && !d);
    EXPECT(strstr(err.text, "4096") != NULL);
    err = (ckpt_err){0};
    EXPECT(new_gpu(&d, -1, false, &err) == CKPT_EUNSUPPORTED && !d);
    case_end();
}

/* ---- vectors: equal bits ---- */

/* Bits of all kinds: also subnormal, infinite, NaN, and halves between two values. */
static pair wild(ckpt_dtype dt, uint64_t n, uint64_t seed, uint64_t skew)
{
    char *bytes = calloc(n + 1, 4);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t x = 0;
        uniform(&seed);
        x = (uint32_t)(seed >> 32);
        if (dt == CKPT_F32 && i % 3 == 1) {
            x &= 0xfffff000u; // often half way between two 16-bit values
        }
        if (dt == CKPT_F32 && i % 4 == 2) {
            x = (x & 0x8fffffffu) | 0x30000000u; // what F16 has as subnormals
        }
        memcpy(bytes + i * size_of(dt), &x, size_of(dt));
    }
    pair p = pair_from(dt, n, bytes, skew);
    free(bytes);
    return p;
}

static void casts(ckpt_dtype to, ckpt_dtype from)
{
    CASE("cast %s from %s", ckpt_dtype_name(to), ckpt_dtype_name(from));
    EACH(k, lengths)
    {
        for (uint64_t skew = 0; skew < 3; skew++) {
            pair x = wild(from, lengths[k], k + 1, skew),
                 y = pair_new(to, lengths[k], 1, 2, skew % 2);
            cpu->ops->cast(cpu, x.n, y.c, to, x.c, from);
            gpu->ops->cast(gpu, x.n, y.g, to, x.g, from);
            same(&y);
            pair_free(&x);
            pair_free(&y);
        }
    }
    case_end();
}

static void accumulates(ckpt_dtype to, ckpt_dtype from)
{
    CASE("accumulate %s from %s", ckpt_dtype_name(to), ckpt_dtype_name(from));
    EACH(k, lengths)
    {
        for (unsigned flags = 0; flags < 8; flags++) {
            pair x = pair_new(from, lengths[k], 3, 1, flags / 4),
                 y = pair_new(to, lengths[k], 3, 2, 0);
            zt_accumulate a = {.n = x.n, .acc = y.c, .acc_dtype = to, .x = x.c, .x_dtype = from};
            a.factor = flags & 1 ? 0.37F : 1.0F;
            a.add = flags & 2;
            cpu->ops->accumulate(cpu, &a);
            a.acc = y.g;
            a.x = x.g;
            gpu->ops->accumulate(gpu, &a);
            same(&y);
            pair_free(&x);
            pair_free(&y);
        }
    }
    case_end();
}

static void scale_add(ckpt_dtype dt)
{
    CASE("scale, add %s", ckpt_dtype_name(dt));
    EACH(k, lengths)
    {
        pair x = wild(dt, lengths[k], 3, k % 2), y = pair_new(dt, lengths[k], 100, 2, 0);
        cpu->ops->add(cpu, dt, x.n, y.c, x.c);
        gpu->ops->add(gpu, dt, x.n, y.g, x.g);
        same(&y);
        cpu->ops->scale(cpu, dt, x.n, x.c, -1.7F);
        gpu->ops->scale(gpu, dt, x.n, x.g, -1.7F);
        same(&x);
        pair_free(&x);
        pair_free(&y);
    }
    case_end();
}

static void squares(ckpt_dtype dt)
{
    CASE("sum of squares %s", ckpt_dtype_name(dt));
    EACH(k, lengths)
    {
        pair x = pair_new(dt, lengths[k] * 40, 3, k + 1, k % 3);
        double c = cpu->ops->sum_squares(cpu, dt, x.n, x.c),
               g = gpu->ops->sum_squares(gpu, dt, x.n, x.g);
        EXPECT(fabs(c - g) <= 1e-13 * c);
        EXPECT(g == gpu->ops->sum_squares(gpu, dt, x.n, x.g));
        pair_free(&x);
    }
    float bad[9] = {1, 2, 3, 4, 5, 6, 7, 8, INFINITY};
    pair x = pair_from(CKPT_F32, 9, bad, 0);
    EXPECT(!isfinite(gpu->ops->sum_squares(gpu, CKPT_F32, 9, x.g)));
    EXPECT(gpu->ops->sum_squares(gpu, CKPT_F32, 8, x.g) == 204.0);
    pair_free(&x);
    case_end();
}

static void rows(ckpt_dtype dt)
{
    CASE("rows %s", ckpt_dtype_name(dt));
    static const uint64_t shape[][4] = {
        {1, 1, 0, 0}, {5, 16, 24, 16}, {7, 13, 20, 17}, {300, 40, 48, 0}, {9, 8, 8, 11}};
    EACH(k, shape)
    {
        for (unsigned add = 0; add < 2; add++) {
            zt_rows r = {.rows = shape[k][0],
                         .width = shape[k][1],
                         .ld_to = shape[k][2],
                         .ld_from = shape[k][3]};
            pair x = pair_new(dt, r.rows * (r.ld_from ? r.ld_from : r.width), 1, 1, 0);
            pair y = pair_new(dt, r.rows * (r.ld_to ? r.ld_to : r.width), 1, 2, 0);
            r.add = add;
            r.from = x.c;
            r.to = y.c;
            cpu->ops->rows(cpu, dt, &r);
            r.from = x.g;
            r.to = y.g;
            gpu->ops->rows(gpu, dt, &r);
            same(&y); // also what lies between rows
            pair_free(&x);
            pair_free(&y);
        }
    }
    case_end();
}

/* ---- optimizer steps ---- */

static const char *const kind_names[] = {"adam", "sgd", "adagrad", "lion", "lamb"};
static const ckpt_dtype lows[] = {CKPT_DTYPE_NONE, CKPT_F32, CKPT_BF16, CKPT_F16};

/* The state that the kind has; bits of `flags` choose the rest. */
static void one_update(zt_update_kind kind, uint64_t n, unsigned flags)
{
    ckpt_dtype g_dtype = dtypes[flags % 3], low = lows[flags % 4];
    bool has_m = kind != ZT_ADAGRAD && !(kind == ZT_SGD && flags & 32);
    bool has_v = kind == ZT_ADAM || kind == ZT_LAMB || kind == ZT_ADAGRAD;
    pair p = pair_new(CKPT_F32, n, 1, 1, flags & 1), m = pair_new(CKPT_F32, n, 0.1, 2, 0);
    pair v = pair_new(CKPT_F32, n, 0, 3, 0), g = pair_new(g_dtype, n, 0.5, 4, 0);
    pair w = pair_new(low == CKPT_DTYPE_NONE ? CKPT_F32 : low, n, 1, 5, 0);
    cpu->ops->accumulate(cpu, &(zt_accumulate){.n = n,
                                               .acc = v.c,
                                               .x = m.c,
                                               .acc_dtype = CKPT_F32,
                                               .x_dtype = CKPT_F32,
                                               .factor = 0.01F});
    for (uint64_t i = 0; i < n; i++) { // second moments are not negative
        ((float *)(void *)v.c)[i] = fabsf(((float *)(void *)v.c)[i]);
    }
    gpu->ops->put(gpu, v.g, v.c, n * 4);
    zt_update a = {
        .kind = kind, .n = n, .g_dtype = g_dtype, .low_dtype = low, .lr = 1e-2, .beta1 = 0.9};
    a.beta2 = 0.999;
    a.eps = 1e-6;
    a.weight_decay = flags & 2 ? 0.03 : 0;
    a.step_size = 1e-2 / (1 - 0.9 * 0.9);
    a.denominator = 1 / sqrt(1 - 0.999 * 0.999);
    a.g_scale = flags & 4 ? 0.3F : 1.0F;
    a.decoupled = flags & 8;
    a.first = a.exact = a.zero_up = a.eps_inside = flags & 16;
    a.nesterov = flags & 1;
    a.dampening = a.nesterov ? 0 : 0.2;
    a.min_coeff = 0.01;
    a.max_coeff = 10;
    for (unsigned turn = 0; turn < 2; turn++) {
        a.p = (float *)(void *)(turn ? p.g : p.c);
        a.m = has_m ? (float *)(void *)(turn ? m.g : m.c) : NULL;
        a.v = has_v ? (float *)(void *)(turn ? v.g : v.c) : NULL;
        a.g = turn ? g.g : g.c;
        a.low = low == CKPT_DTYPE_NONE ? NULL : turn ? w.g : w.c;
        zt_device *d = turn ? gpu : cpu;
        d->ops->update(d, &a);
    }
    if (kind == ZT_LAMB) { // its norms are sums: the ratio may differ by a rounding
        near(&p, 2, 0);
        near(&w, 2.01, 0);
    } else {
        same(&p);
        same(&w);
    }
    same(&m);
    same(&v);
    same(&g);
    pair all[] = {p, m, v, g, w};
    pairs_free(all, 5);
}

static void updates(zt_update_kind kind)
{
    static const uint64_t n[] = {0, 1, 9, 1000, 5003};
    for (unsigned flags = 0; flags < 64; flags++) {
        CASE("update %s, flags %u", kind_names[kind], flags);
        one_update(kind, n[flags % 5], flags);
        case_end();
    }
}

/* ---- products ---- */

typedef struct shape {
    uint64_t rows, in, out, pad; /* pad: what strides are longer than dense */
} shape;

static const shape shapes[] = {{1, 1, 1, 0},    {3, 5, 7, 0},   {17, 33, 65, 3},
                               {64, 48, 96, 8}, {9, 300, 2, 2}, {70, 32, 130, 6}};
static const zt_act acts[] = {ZT_ACT_NONE, ZT_GELU, ZT_GELU_TANH, ZT_RELU, ZT_TANH, ZT_SILU};

/* Noise of an fp32 sum of k products of values up to 1, on either side. */
static double noise(uint64_t k)
{
    return 0x1p-23 * (8 * sqrt((double)k) + 0.6 * (double)k);
}

/* The roundings of a sum of k products with something else: absolute. */
static double between(ckpt_dtype dt, uint64_t k)
{
    return 2 * eps_of(dt) * sqrt((double)k);
}

/* The activation of what the GPU kept as `pre`. */
static void check_act(const zt_linear *a, ckpt_dtype dt, pair *y, pair *pre)
{
    fetch(pre);
    zt_rows r = {a->rows, a->out, a->ldy, a->out, false, NULL, y->c};
    char *act = cpu->ops->alloc(cpu, pre->n * 4);
    cpu->ops->act(cpu, dt, a->act, pre->n, act, pre->got);
    r.from = act;
    cpu->ops->rows(cpu, dt, &r);
    near(y, 2.01, 1e-6);
    cpu->ops->release(cpu, act);
}

/*
 * How far an activation may be off whose input is off by at most `most` roundings and `noise`.
 *
 * The mean value theorem: no further than the input, times the steepest slope between both inputs.
 * That slope is taken at the input and at both ends; between two of these points it grows by at most
 * half their distance times the largest curvature, which is 0.8 (GELU at 0; tanh has 0.77).
 */
static double act_moves(zt_act act, ckpt_dtype dt, float x, double most, double noise)
{
    double off = most * eps_of(dt) * fabs((double)x) + noise;
    float at[3] = {x, (float)((double)x - off), (float)((double)x + off)};
    float slope[3] = {1, 1, 1}, steepest = 0;
    zt_act_grad a = {.act = act, .n = 3, .dx = slope, .dy = slope, .pre = at};
    cpu->ops->act_grad(cpu, CKPT_F32, &a);
    for (unsigned i = 0; i < 3; i++)
        steepest = fmaxf(steepest, fabsf(slope[i]));
    return off * ((double)steepest + 0.4 * off);
}

/*
 * y and z [rows, ldy]: the same activation of two products whose sums have other orders.  Each
 * input may be off by its own roundings, and both results by one of theirs.  What lies between rows
 * has equal bits.
 */
static void same_act(const zt_linear *a, ckpt_dtype dt, const pair *pre, pair *y, pair *z)
{
    double off = noise(a->in) + (a->b ? between(dt, a->in) : 0);
    fetch(z);
    for (uint64_t i = 0; i < y->n; i++) {
        uint64_t row = i / a->ldy, column = i % a->ldy;
        double c = (double)value_at(dt, y->got, i), g = (double)value_at(dt, z->got, i), most = 0;
        if (column < a->out) {
            float x = value_at(dt, pre->got, row * a->out + column);
            most = act_moves(a->act, dt, x, 2.01, off) +
                   2.01 * eps_of(dt) * fmax(fabs(c), fabs(g)) + 1e-6;
        }
        if (!(fabs(c - g) <= most)) {
            fail("activation", i, g, c);
            return;
        }
    }
}

static void linear(const shape *s, ckpt_dtype dt, unsigned flags)
{
    CASE("linear %s %d x %d x %d, flags %u", ckpt_dtype_name(dt), (int)s->rows, (int)s->in,
         (int)s->out, flags);
    zt_linear a = {
        .rows = s->rows, .in = s->in, .out = s->out, .ldx = s->in + s->pad, .ldy = s->out + s->pad};
    pair x = pair_new(dt, s->rows * a.ldx, 1, 1, flags & 1),
         w = pair_new(dt, s->in * s->out, 1, 2, 0);
    pair b = pair_new(dt, s->out, 1, 3, flags / 2 & 1), y = pair_new(dt, s->rows * a.ldy, 1, 4, 0);
    pair pre = pair_new(dt, s->rows * s->out, 1, 5, 0), z = pair_new(dt, s->rows * a.ldy, 1, 4, 0);
    a.w_in_out = flags & 1;
    a.act = acts[flags % 6];
    a.y_add = a.act == ZT_ACT_NONE && flags & 8;
    for (unsigned turn = 0; turn < 2; turn++) {
        a.x = turn ? x.g : x.c;
        a.w = turn ? w.g : w.c;
        a.b = !(flags & 4) ? NULL : turn ? b.g : b.c;
        a.y = turn ? y.g : y.c;
        a.pre = turn ? pre.g : pre.c;
        zt_device *d = turn ? gpu : cpu;
        d->ops->linear(d, dt, &a);
    }
    addition sum = {.product =
                        product(&x, a.ldx, &w, !a.w_in_out, (uint64_t[]){s->rows, s->out, s->in}),
                    .rows = s->rows,
                    .width = s->out,
                    .ld = a.act == ZT_ACT_NONE ? a.ldy : s->out,
                    .bias = a.b ? &b : NULL,
                    .before = a.y_add ? z.c : NULL};
    double off = noise(a.in) + (a.b || a.y_add ? between(dt, a.in) : 0);
    pair *first = a.act == ZT_ACT_NONE ? &y : &pre;
    near(first, 2.01, off);
    one_order(first, &sum);
    if (a.act != ZT_ACT_NONE)
        check_act(&a, dt, &y, &pre);
    free(sum.product);
    a.y = z.g; // without `pre`, and again
    a.pre = NULL;
    gpu->ops->linear(gpu, dt, &a);
    fetch(&y);
    memcpy(z.c, y.got, y.n * size_of(dt));
    if (a.act == ZT_ACT_NONE || s->pad == 0) {
        same(&z);
    } else { // the product goes to other strides: cuBLASLt may choose another algorithm
        same_act(&a, dt, &pre, &y, &z);
        if (!a.b)
            mostly_same(&z);
    }
    pair all[] = {x, w, b, y, pre, z};
    pairs_free(all, 6);
    case_end();
}

static void linear_grad(const shape *s, ckpt_dtype dt, unsigned flags)
{
    CASE("linear_grad %s %d x %d x %d, flags %u", ckpt_dtype_name(dt), (int)s->rows, (int)s->in,
         (int)s->out, flags);
    zt_linear_grad a = {.rows = s->rows, .in = s->in, .out = s->out, .ldx = s->in + s->pad};
    a.lddx = s->in + 2 * s->pad;
    a.lddy = s->out + s->pad;
    a.w_in_out = flags & 1;
    a.dx_add = flags & 2;
    a.w_add = flags & 4;
    a.b_add = flags & 8;
    pair t[] = {
        pair_new(dt, s->rows * a.ldx, 1, 1, 0),  pair_new(dt, s->in * s->out, 1, 2, flags & 1),
        pair_new(dt, s->rows * a.lddy, 1, 3, 0), pair_new(dt, s->rows * a.lddx, 1, 4, 0),
        pair_new(dt, s->in * s->out, 1, 5, 0),   pair_new(dt, s->out, 1, 6, flags & 1)};
    pair before = pair_new(dt, s->rows * a.lddx, 1, 4, 0);
    for (unsigned turn = 0; turn < 2; turn++) {
        char *p[6];
        for (unsigned i = 0; i < 6; i++)
            p[i] = turn ? t[i].g : t[i].c;
        a.x = p[0];
        a.w = p[1];
        a.dy = p[2];
        a.dx = flags % 7 == 6 ? NULL : p[3];
        a.dw = flags % 5 == 4 ? NULL : p[4];
        a.db = flags % 3 == 2 ? NULL : p[5];
        zt_device *d = turn ? gpu : cpu;
        d->ops->linear_grad(d, dt, &a);
    }
    // the processor rounds a product before it adds it to what is there
    double extra = between(dt, s->rows);
    if (a.dx) {
        addition sum = {.product = product(&t[2], a.lddy, &t[1], a.w_in_out,
                                           (uint64_t[]){s->rows, s->in, s->out}),
                        .rows = s->rows,
                        .width = s->in,
                        .ld = a.lddx,
                        .before = a.dx_add ? before.c : NULL};
        one_order(&t[3], &sum);
        free(sum.product);
    }
    if (!a.w_add)
        mostly_same(&t[4]);
    near(&t[3], 2.01, noise(s->out) + (a.dx_add ? between(dt, s->out) : 0));
    near(&t[4], 2.01, noise(s->rows) + (a.w_add ? extra : 0));
    near(&t[5], 2.01, noise(s->rows) + (a.b_add ? extra : 0));
    pairs_free(t, 6);
    pair_free(&before);
    case_end();
}

static void matmul(const shape *s, ckpt_dtype dt, unsigned flags)
{
    CASE("matmul %s %d x %d x %d, flags %u", ckpt_dtype_name(dt), (int)s->rows, (int)s->in,
         (int)s->out, flags);
    zt_matmul a = {.m = s->rows, .n = s->out, .k = flags == 7 ? 0 : s->in, .alpha = 0.7F};
    pair x = pair_new(dt, s->rows * s->in, 1, 1, 0), y = pair_new(dt, s->in * s->out, 1, 2, 0);
    pair z = pair_new(dt, s->rows * s->out, 1, 3, 0);
    a.a_transposed = flags & 1;
    a.b_transposed = flags & 2;
    a.beta = flags & 4 ? -0.4F : 0;
    for (unsigned turn = 0; turn < 2; turn++) {
        a.a = turn ? x.g : x.c;
        a.b = turn ? y.g : y.c;
        a.c = turn ? z.g : z.c;
        zt_device *d = turn ? gpu : cpu;
        d->ops->matmul(d, dt, &a);
    }
    near(&z, 2.01, noise(s->in + 2));
    mostly_same(&z);
    pair all[] = {x, y, z};
    pairs_free(all, 3);
    case_end();
}

/* Without rows, gradients of weights become 0. */
static void no_rows(ckpt_dtype dt)
{
    CASE("linear_grad %s without rows", ckpt_dtype_name(dt));
    pair w = pair_new(dt, 60, 1, 1, 0), b = pair_new(dt, 10, 1, 2, 0);
    zt_linear_grad a = {.in = 6, .out = 10, .dw = w.g, .db = b.g};
    gpu->ops->linear_grad(gpu, dt, &a);
    memset(w.c, 0, w.n * size_of(dt));
    memset(b.c, 0, b.n * size_of(dt));
    same(&w);
    same(&b);
    pair_free(&w);
    pair_free(&b);
    case_end();
}

/* More shapes than plans are kept for: they are dropped and made again. */
static void many_shapes(void)
{
    CASE("many shapes");
    enum { SIDE = 30 };
    pair x = pair_new(CKPT_F32, SIDE * 2, 1, 1, 0), y = pair_new(CKPT_F32, SIDE * 2, 1, 2, 0);
    pair z = pair_new(CKPT_F32, SIDE * SIDE, 1, 3, 0);
    for (unsigned i = 0; i < SIDE * SIDE + 100; i++) {
        zt_matmul a = {
            .m = i % SIDE + 1, .n = i / SIDE % SIDE + 1, .k = 2, .alpha = 1, .beta = 0.5F};
        for (unsigned turn = 0; turn < 2; turn++) {
            a.a = turn ? x.g : x.c;
            a.b = turn ? y.g : y.c;
            a.c = turn ? z.g : z.c;
            zt_device *d = turn ? gpu : cpu;
            d->ops->matmul(d, CKPT_F32, &a);
        }
    }
    near(&z, 2.01, noise(100));
    pair all[] = {x, y, z};
    pairs_free(all, 3);
    case_end();
}

static void products(ckpt_dtype dt)
{
    unsigned flags = 0;
    EACH(i, shapes)
    {
        for (unsigned n = 0; n < 6; n++, flags += 5) {
            linear(&shapes[i], dt, flags % 24);
            linear_grad(&shapes[i], dt, flags % 16);
        }
        for (unsigned n = 0; n < 8; n++)
            matmul(&shapes[i], dt, n);
    }
    for (flags = 0; flags < 24; flags++) {
        linear(&shapes[3], dt, flags);
        linear_grad(&shapes[2], dt, flags % 16);
    }
    no_rows(dt);
}

int main(int argc, char **argv)
{
    int rc = begin(argc, argv);
    if (rc != 0)
        return rc;
    memory();
    pinned();
    many_blocks();
    many_shapes();
    failures();
    EACH(i, dtypes)
    {
        EACH(k, dtypes)
        {
            casts(dtypes[i], dtypes[k]);
            accumulates(dtypes[i], dtypes[k]);
        }
        scale_add(dtypes[i]);
        squares(dtypes[i]);
        rows(dtypes[i]);
        products(dtypes[i]);
    }
    for (int kind = ZT_ADAM; kind <= ZT_LAMB; kind++)
        updates((zt_update_kind)kind);
    return end("device");
}
