/* SPDX-License-Identifier: Apache-2.0 */
/*
 * times.c: times single operations of CUDA plugins, in turns, in the shapes of GPT-2 124M (16 x 1024
 * tokens).
 *
 *     times PLUGIN... [--small] [--only WORD]
 *
 * --small: tiny shapes, to try this program on an emulated GPU; --only: operations with this word
 * in their names.  With ZEROTRAIN_ATTENTION=cudnn a last line says how much cuDNN has computed.
 *
 * A line for each operation: milliseconds, the least of some turns, for each plugin.
 */
#include <time.h>

#include "test_help.h"

enum { MOST = 4, TURNS = 3, REPEATS = 10 };

/* Sizes, and device memory that all operations use: random numbers, or zero where it does not
 * matter. */
typedef struct sizes {
    uint64_t rows, width, inner, heads, seq, classes, loss_rows, parameters;
} sizes;

typedef struct room {
    zt_device *d;
    char *x, *y, *z, *w, *b, *dw, *db, *logits;
    float *mean, *rstd, *lse, *p, *m, *v;
    int32_t *label;
    sizes s;
} room;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- operations ---- */

static void norm(room *r)
{
    zt_norm a = {.rows = r->s.rows, .width = r->s.width, .eps = 1e-5F, .x = r->x, .add = r->y};
    a.w = r->w;
    a.b = r->b;
    a.sum = r->x;
    a.y = r->z;
    a.mean = r->mean;
    a.rstd = r->rstd;
    r->d->ops->norm(r->d, CKPT_BF16, &a);
}

static void norm_grad(room *r, uint64_t rows, uint64_t width, bool add)
{
    zt_norm_grad a = {.rows = rows, .width = width, .dx_add = add, .x = r->x, .w = r->w};
    a.dy = r->y;
    a.mean = r->mean;
    a.rstd = r->rstd;
    a.dx = r->z;
    a.dw = r->dw;
    a.db = r->db;
    r->d->ops->norm_grad(r->d, CKPT_BF16, &a);
}

static void norm_grad_768(room *r)
{
    norm_grad(r, r->s.rows, r->s.width, false);
}

static void norm_grad_add(room *r)
{
    norm_grad(r, r->s.rows, r->s.width, true);
}

static void norm_grad_2048(room *r)
{
    norm_grad(r, r->s.rows / 2, r->s.width * 8 / 3, true);
}

static void linear(room *r, uint64_t in, uint64_t out, zt_act act)
{
    zt_linear a = {.rows = r->s.rows, .in = in, .out = out, .w_in_out = true, .act = act};
    a.x = r->x;
    a.w = r->w;
    a.b = r->b;
    a.y = r->y;
    a.pre = act == ZT_ACT_NONE ? NULL : r->z;
    r->d->ops->linear(r->d, CKPT_BF16, &a);
}

static void linear_up(room *r)
{
    linear(r, r->s.width, r->s.inner, ZT_ACT_NONE);
}

static void linear_gelu(room *r)
{
    linear(r, r->s.width, r->s.inner, ZT_GELU_TANH);
}

static void linear_grad(room *r, uint64_t in, uint64_t out, bool bias)
{
    zt_linear_grad a = {.rows = r->s.rows, .in = in, .out = out, .w_in_out = true, .x = r->x};
    a.w = r->w;
    a.dy = r->y;
    a.dx = r->z;
    a.dw = r->dw;
    a.db = bias ? r->db : NULL;
    r->d->ops->linear_grad(r->d, CKPT_BF16, &a);
}

static void grad_up(room *r)
{
    linear_grad(r, r->s.width, r->s.inner, false);
}

static void grad_up_bias(room *r)
{
    linear_grad(r, r->s.width, r->s.inner, true);
}

static void grad_down(room *r)
{
    linear_grad(r, r->s.inner, r->s.width, false);
}

static void grad_down_bias(room *r)
{
    linear_grad(r, r->s.inner, r->s.width, true);
}

static void grad_qkv(room *r)
{
    linear_grad(r, r->s.width, 3 * r->s.width, false);
}

static void grad_qkv_bias(room *r)
{
    linear_grad(r, r->s.width, 3 * r->s.width, true);
}

static void act(room *r)
{
    r->d->ops->act(r->d, CKPT_BF16, ZT_GELU_TANH, r->s.rows * r->s.inner, r->y, r->x);
}

static void act_grad(room *r)
{
    zt_act_grad a = {ZT_GELU_TANH, r->s.rows * r->s.inner, r->x, r->y, r->y};
    r->d->ops->act_grad(r->d, CKPT_BF16, &a);
}

static void entropy(room *r)
{
    double loss = 0;
    zt_loss a = {.rows = r->s.loss_rows, .classes = r->s.classes, .label = r->label};
    a.logits = r->logits;
    a.grad = true;
    a.factor = 1;
    a.loss = &loss;
    r->d->ops->loss(r->d, CKPT_BF16, &a);
}

static zt_attention attention_of(room *r)
{
    zt_attention a = {.batch = r->s.rows / r->s.seq, .seq = r->s.seq, .heads = r->s.heads};
    a.kv_heads = a.heads;
    a.width = r->s.width / a.heads;
    a.ldq = a.ldk = a.ldv = 3 * r->s.width;
    a.scale = 0.125F;
    a.causal = true;
    a.q = r->x;
    a.k = r->x + r->s.width * 2;
    a.v = r->x + r->s.width * 4;
    a.o = r->y;
    a.lse = r->lse;
    return a;
}

static void attention(room *r)
{
    zt_attention a = attention_of(r);
    r->d->ops->attention(r->d, CKPT_BF16, &a);
}

static void attention_grad(room *r)
{
    zt_attention_grad a = {.fw = attention_of(r), .dout = r->y, .dq = r->z};
    a.fw.o = r->dw;
    a.dk = r->z + r->s.width * 2;
    a.dv = r->z + r->s.width * 4;
    r->d->ops->attention_grad(r->d, CKPT_BF16, &a);
}

static void update(room *r)
{
    zt_update a = {.kind = ZT_ADAM, .n = r->s.parameters, .p = r->p, .m = r->m, .v = r->v};
    a.g = r->logits;
    a.g_dtype = a.low_dtype = CKPT_BF16;
    a.g_scale = 1;
    a.low = r->x;
    a.lr = a.step_size = 1e-4;
    a.beta1 = 0.9;
    a.beta2 = 0.999;
    a.eps = 1e-8;
    a.denominator = 1;
    a.decoupled = true;
    r->d->ops->update(r->d, &a);
}

static void squares(room *r)
{
    (void)r->d->ops->sum_squares(r->d, CKPT_BF16, r->s.parameters, r->logits);
}

static const struct {
    const char *name;
    void (*run)(room *r);
} operations[] = {
    {"norm, of a sum, 768 wide", norm},
    {"norm_grad, 768 wide", norm_grad_768},
    {"norm_grad, added, 768 wide", norm_grad_add},
    {"norm_grad, added, 2048 wide", norm_grad_2048},
    {"linear 768 to 3072", linear_up},
    {"linear 768 to 3072, GELU", linear_gelu},
    {"linear_grad 768 to 3072", grad_up},
    {"linear_grad 768 to 3072, bias", grad_up_bias},
    {"linear_grad 3072 to 768", grad_down},
    {"linear_grad 3072 to 768, bias", grad_down_bias},
    {"linear_grad 768 to 2304", grad_qkv},
    {"linear_grad 768 to 2304, bias", grad_qkv_bias},
    {"GELU", act},
    {"GELU's gradient", act_grad},
    {"cross entropy, 4096 rows", entropy},
    {"attention", attention},
    {"attention's gradient", attention_grad},
    {"update, AdamW", update},
    {"sum of squares", squares},
};

/* ---- memory, turns ---- */

static char *filled(zt_device *d, uint64_t bytes)
{
    char *p = d->ops->alloc(d, bytes);
    if (p)
        d->ops->zero(d, p, bytes);
    return p;
}

/* Numbers in -1..1 in bf16; a piece of 1 MiB is repeated, which is no multiple of a row. */
static char *numbers(zt_device *d, uint64_t bytes)
{
    static uint16_t piece[1 << 19];
    static bool made;
    uint64_t seed = 1;
    char *p = d->ops->alloc(d, bytes);
    for (uint64_t i = 0; !made && i < sizeof piece / sizeof *piece; i++) {
        float x = (float)(2.0 * uniform(&seed) - 1.0);
        ckpt_cast_find(CKPT_BF16, CKPT_F32)(&piece[i], &x, 1);
    }
    made = true;
    for (uint64_t at = 0; p && at < bytes; at += sizeof piece)
        d->ops->put(d, p + at, piece, bytes - at < sizeof piece ? bytes - at : sizeof piece);
    return p;
}

static void room_new(room *r, zt_device *d, sizes s)
{
    uint64_t wide = s.rows * s.inner * 2, n = s.parameters * 4;
    uint64_t low = s.parameters * 2, logits = s.loss_rows * s.classes * 2;
    r->d = d;
    r->s = s;
    r->x = numbers(d, wide > low ? wide : low);
    r->y = numbers(d, wide);
    r->z = filled(d, wide);
    r->w = filled(d, s.width * s.inner * 2);
    r->b = filled(d, s.inner * 2);
    r->dw = numbers(d, wide);
    r->db = filled(d, s.inner * 2);
    r->logits = filled(d, logits > low ? logits : low);
    r->mean = (float *)(void *)filled(d, s.rows * 4);
    r->rstd = (float *)(void *)filled(d, s.rows * 4);
    r->lse = (float *)(void *)filled(d, s.rows * s.heads * 4);
    r->p = (float *)(void *)filled(d, n);
    r->m = (float *)(void *)filled(d, n);
    r->v = (float *)(void *)filled(d, n);
    r->label = (int32_t *)(void *)filled(d, s.loss_rows * 4);
}

static zt_device *device_of(const char *path)
{
    ckpt_err err = {0};
    zt_device *d = NULL;
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = plugin ? dlsym(plugin, "zt_cuda_device_new") : NULL;
    if (!symbol) {
        fprintf(stderr, "%s: %s\n", path, dlerror());
        return NULL;
    }
    memcpy(&new_gpu, &symbol, sizeof symbol);
    if (new_gpu(&d, 0, false, &err) != CKPT_OK)
        fprintf(stderr, "%s: %s\n", path, err.text);
    return d;
}

/* Milliseconds of one call. */
static double turn(room *r, void (*run)(room *r))
{
    run(r); // the first call may choose a kernel or allocate
    r->d->ops->sync(r->d);
    double begin = seconds();
    for (unsigned i = 0; i < REPEATS; i++)
        run(r);
    r->d->ops->sync(r->d);
    return 1000 * (seconds() - begin) / REPEATS;
}

/* Say how much cuDNN has computed, if it was asked for. */
static void tell_attention(const char *path, zt_device *d)
{
    void (*about)(zt_device *, char *, uint64_t) = NULL;
    void *symbol = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "zt_cuda_attention");
    char text[200];
    memcpy(&about, &symbol, sizeof symbol);
    if (!about || !getenv("ZEROTRAIN_ATTENTION"))
        return;
    about(d, text, sizeof text);
    printf("attention by %s\n", text);
}

int main(int argc, char **argv)
{
    static const sizes large = {16384, 768, 3072, 12, 1024, 50304, 4096, 124475904};
    static const sizes small = {64, 96, 384, 2, 32, 100, 16, 1000};
    static room rooms[MOST];
    const char *only = "", *paths[MOST];
    unsigned n = 0, failed = 0;
    sizes s = large;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--small") == 0)
            s = small;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (n < MOST)
            paths[n++] = argv[i];
    }
    for (unsigned i = 0; i < n; i++) {
        zt_device *d = device_of(paths[i]);
        if (!d)
            return 2;
        room_new(&rooms[i], d, s);
    }
    EACH(k, operations)
    {
        if (!strstr(operations[k].name, only))
            continue;
        double least[MOST] = {0};
        for (unsigned t = 0; t < TURNS * n; t++) {
            double ms = turn(&rooms[t % n], operations[k].run);
            least[t % n] = t < n || ms < least[t % n] ? ms : least[t % n];
        }
        printf("%-32s", operations[k].name);
        for (unsigned i = 0; i < n; i++)
            printf(" %9.4f ms", least[i]);
        printf("\n");
    }
    for (unsigned i = 0; i < n; i++) {
        ckpt_err err = {0};
        if (zt_device_check(rooms[i].d, &err) != CKPT_OK) {
            fprintf(stderr, "plugin %u: %s\n", i, err.text);
            failed++;
        }
        tell_attention(paths[i], rooms[i].d);
    }
    return failed > 0 || n == 0;
}
