/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choices.c: who computes attention: cuDNN or the plugin's own kernels (engine/cuda/fused.h).
 *
 *     choices EMULATED_PLUGIN
 *
 * The emulated plugin's cuDNN is right, wrong, failing or missing, as ZT_EMULATE_CUDNN says.
 * Whatever it does, the results must be those of the own kernels, or an error.
 */
#include <unistd.h>

#include "test_help.h"

typedef void about_attention(zt_device *d, char *text, uint64_t n);

static about_attention *about;

/* Sizes of a call, and what else it asks for. */
typedef struct shape {
    const char *name;
    ckpt_dtype dt;
    uint64_t batch, seq, heads, kv_heads, width, queries, window, gap;
    float p, cap, scale; /* scale 0: 0.25 */
    bool causal, alibi, masked, biased, evaluated, zero;
    float lean; /* is added to all keys */
} shape;

static const shape plain = {.name = "plain",
                            .dt = CKPT_BF16,
                            .batch = 2,
                            .seq = 40,
                            .heads = 4,
                            .kv_heads = 2,
                            .width = 16,
                            .causal = true};

/* Tensors of a call, in one block of device memory. */
typedef struct call {
    zt_attention_grad a;
    char *block, *out; /* out: o, lse, dq, dk, dv */
    uint64_t n_out;
    int32_t *mask;
} call;

/* What a device computed: the bytes of `out`. */
typedef struct answer {
    char *bytes;
    uint64_t n;
} answer;

/* ---- calls ---- */

static char *room(zt_device *d, char **at, uint64_t n)
{
    char *p = *at;

    (void)d;
    *at += (n + 63) / 64 * 64;
    return p;
}

static void fill(zt_device *d, const shape *s, char *to, uint64_t n, float lean)
{
    uint64_t seed = n;
    float *v = calloc(n + 1, sizeof *v);
    char *bytes = calloc(n + 1, sizeof *v);

    for (uint64_t i = 0; i < n && !s->zero; i++)
        v[i] = lean + (float)(2.0 * uniform(&seed) - 1.0);
    ckpt_cast_find(s->dt, CKPT_F32)(bytes, v, n);
    d->ops->put(d, to, bytes, n * size_of(s->dt));
    free(v);
    free(bytes);
}

static call call_new(zt_device *d, const shape *s)
{
    const uint64_t queries = s->queries != 0 ? s->queries : s->seq, size = size_of(s->dt);
    const uint64_t rows = s->batch * (queries > s->seq ? queries : s->seq);
    const uint64_t ld = s->heads * s->width + s->gap, n = rows * ld;
    const uint64_t n_lse = s->batch * s->heads * queries;
    call c = {.block = d->ops->alloc(d, 12 * (n * size + 64) + n_lse * 4 + 4 * rows + 4096)};
    char *at = c.block, *in[4], *bias;

    for (int i = 0; i < 4; i++) {
        in[i] = room(d, &at, n * size);
        fill(d, s, in[i], n, i == 1 ? s->lean : 0);
    }
    bias = room(d, &at, (queries + s->seq) * s->heads * size);
    fill(d, s, bias, (queries + s->seq) * s->heads, 0);
    c.mask = (int32_t *)(void *)room(d, &at, s->batch * s->seq * 4);
    int32_t *ones = calloc(s->batch * s->seq, sizeof *ones);
    for (uint64_t i = 0; i < s->batch * s->seq; i++)
        ones[i] = 1;
    d->ops->put(d, c.mask, ones, s->batch * s->seq * 4);
    free(ones);
    c.out = at;
    c.a.fw = (zt_attention){.batch = s->batch,
                            .seq = s->seq,
                            .queries = s->queries,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .width = s->width,
                            .window = s->window,
                            .ldq = ld,
                            .ldk = ld,
                            .ldv = ld,
                            .ldo = ld,
                            .scale = s->scale > 0 ? s->scale : 0.25F,
                            .cap = s->cap,
                            .causal = s->causal,
                            .alibi = s->alibi,
                            .mask = s->masked ? c.mask : NULL,
                            .p = s->p,
                            .seed = 5,
                            .q = in[0],
                            .k = in[1],
                            .v = in[2],
                            .bias = s->biased ? bias : NULL};
    c.a.fw.o = room(d, &at, n * size);
    c.a.fw.lse = s->evaluated ? NULL : (float *)(void *)room(d, &at, n_lse * 4);
    c.a.lddo = ld;
    c.a.dout = in[3];
    c.a.dq = room(d, &at, n * size);
    c.a.dk = room(d, &at, n * size);
    c.a.dv = room(d, &at, n * size);
    c.n_out = (uint64_t)(at - c.out);
    d->ops->zero(d, c.out, c.n_out);
    return c;
}

/* Both passes; the bytes of all outputs. */
static answer run(zt_device *d, const shape *s)
{
    call c = call_new(d, s);
    answer r = {calloc(c.n_out + 1, 1), c.n_out};

    d->ops->attention(d, s->dt, &c.a.fw);
    if (!s->evaluated)
        d->ops->attention_grad(d, s->dt, &c.a);
    d->ops->get(d, r.bytes, c.out, c.n_out);
    d->ops->release(d, c.block);
    return r;
}

/* ---- devices with a cuDNN of some kind ---- */

static zt_device *device_with(const char *attention, const char *library, bool deterministic,
                              ckpt_err *err)
{
    zt_device *d = NULL;

    if (attention)
        setenv("ZEROTRAIN_ATTENTION", attention, 1);
    else
        unsetenv("ZEROTRAIN_ATTENTION");
    setenv("ZT_EMULATE_CUDNN", library, 1);
    *err = (ckpt_err){0};
    return new_gpu(&d, 0, deterministic, err) == CKPT_OK ? d : NULL;
}

/* What was written to the standard error since the last call. */
static const char *warnings(void)
{
    static char text[4096];
    size_t n;

    fflush(stderr);
    rewind(stderr);
    n = fread(text, 1, sizeof text - 1, stderr);
    text[n] = '\0';
    rewind(stderr);
    if (ftruncate(fileno(stderr), 0) != 0)
        text[0] = '\0';
    return text;
}

static bool says(zt_device *d, const char *part)
{
    char text[200];

    about(d, text, sizeof text);
    if (strstr(text, part))
        return true;
    printf("%s: '%s' lacks '%s'\n", case_name, text, part);
    return false;
}

static bool warned(const char *part)
{
    const char *text = warnings();

    if (*part ? strstr(text, part) != NULL : !*text)
        return true;
    printf("%s: warnings '%s' lack '%s'\n", case_name, text, part);
    return false;
}

/* The answer of the own kernels, which the device `gpu` has. */
static bool is_own(const shape *s, const answer *r)
{
    answer own = run(gpu, s);
    const bool same = own.n == r->n && memcmp(own.bytes, r->bytes, r->n) == 0;

    free(own.bytes);
    return same;
}

/* Near the answer of the own kernels: nothing of o, the first tensor, is apart by more than 1/16. */
static bool is_near(const shape *s, const answer *r)
{
    answer own = run(gpu, s);
    double most = 0;

    for (uint64_t i = 0; i < s->batch * s->seq * s->heads * s->width; i++)
        most = fmax(most, fabs((double)value_at(s->dt, own.bytes, i) -
                               (double)value_at(s->dt, r->bytes, i)));
    free(own.bytes);
    return most < 0.0625;
}

static void finish(zt_device *d)
{
    ckpt_err err = {0};

    if (d && zt_device_check(d, &err) != CKPT_OK) {
        printf("%s\n", err.text);
        fail("the device has failed", 0, 0, 0);
    }
    zt_device_free(d);
    case_end();
}

/* ---- cases ---- */

/* Values of the variable, and what cannot be opened. */
static void opening(void)
{
    ckpt_err err;
    zt_device *d;

    CASE("nothing is asked for");
    d = device_with(NULL, "right", false, &err);
    EXPECT(d && says(d, "the plugin's kernels"));
    finish(d);
    CASE("own kernels are asked for");
    d = device_with("own", "right", true, &err);
    EXPECT(d && says(d, "the plugin's kernels"));
    finish(d);
    CASE("an unknown value");
    d = device_with("flash", "right", false, &err);
    EXPECT(!d && err.code == CKPT_EUSAGE && strstr(err.text, "'flash': expected own or cudnn"));
    finish(d);
    CASE("a deterministic device");
    d = device_with("cudnn", "right", true, &err);
    EXPECT(!d && err.code == CKPT_EUSAGE && strstr(err.text, "--deterministic"));
    finish(d);
    CASE("no library");
    d = device_with("cudnn", "none", false, &err);
    EXPECT(!d && err.code == CKPT_EUSAGE &&
           strstr(err.text, "ZEROTRAIN_ATTENTION=cudnn: libcudnn.so.9 cannot be loaded"));
    finish(d);
}

/* A plan's first results stay, if they are right; the second call runs the same plan. */
static void right(void)
{
    ckpt_err err;
    zt_device *d = device_with("cudnn", "right", false, &err);

    CASE("right results");
    EXPECT(d != NULL);
    for (unsigned i = 0; d && i < 2; i++) {
        answer r = run(d, &plain);

        EXPECT(is_near(&plain, &r) && !is_own(&plain, &r));
        EXPECT(says(d, i == 0 ? "2 of 2 plans checked, 2 calls" : "2 of 2 plans checked, 4 calls"));
        free(r.bytes);
    }
    EXPECT(warned(""));
    finish(d);
}

/* Calls that cuDNN must not see: equal bits, and no plan. */
static void others(void)
{
    shape s[] = {plain, plain, plain, plain, plain, plain, plain, plain, plain, plain, plain};
    ckpt_err err;
    zt_device *d = device_with("cudnn", "right", false, &err);

    s[0].name = "fp32", s[0].dt = CKPT_F32;
    s[1].name = "dropout", s[1].p = 0.25F;
    s[2].name = "a mask", s[2].masked = true;
    s[3].name = "a window", s[3].window = 7;
    s[4].name = "ALiBi", s[4].alibi = true, s[4].kv_heads = 4;
    s[5].name = "biases", s[5].biased = true;
    s[6].name = "a cap", s[6].cap = 0.5F;
    s[7].name = "heads of 12", s[7].width = 12;
    s[8].name = "heads of 136", s[8].width = 136;
    s[9].name = "rows at odd places", s[9].gap = 1;
    s[10].name = "evaluation", s[10].evaluated = true;
    for (size_t i = 0; d && i < sizeof s / sizeof *s; i++) {
        answer r = run(d, &s[i]);

        CASE("%s", s[i].name);
        EXPECT(is_own(&s[i], &r) && says(d, "0 of 0 plans"));
        free(r.bytes);
        case_end();
    }
    CASE("calls of others");
    finish(d);
}

/* One output of one head is wrong by a sixteenth: the own results stay, and cuDNN is off. */
static void wrong(void)
{
    static const char *const outputs[] = {"o", "lse", "dq", "dk", "dv"};

    EACH(i, outputs)
    {
        char mode[20], message[80];
        ckpt_err err;
        shape other = plain;

        CASE("wrong %s", outputs[i]);
        snprintf(mode, sizeof mode, "wrong-%s", outputs[i]);
        snprintf(message, sizeof message, ": %s is wrong by ", outputs[i]);
        zt_device *d = device_with("cudnn", mode, false, &err);
        answer first = run(d, &plain), second = run(d, &plain);

        EXPECT(warned(message));
        other.seq = 50;
        answer third = run(d, &other);

        // the forward pass was right if a gradient is wrong
        EXPECT(i > 1 ? is_near(&plain, &first) : is_own(&plain, &first));
        EXPECT(is_own(&plain, &second) && is_own(&other, &third));
        EXPECT(says(d, i > 1 ? "1 of 2 plans checked, 1 calls" : "0 of 1 plans checked, 0 calls"));
        EXPECT(says(d, "off, because a result was wrong") && warned(""));
        free(first.bytes), free(second.bytes), free(third.bytes);
        finish(d);
    }
}

/* cuDNN builds no plan, or a plan's first run fails: the own kernels, and one warning a plan. */
static void refused(void)
{
    static const char *const modes[] = {"refuses", "fails"};

    EACH(i, modes)
    {
        ckpt_err err;

        CASE("cuDNN %s", modes[i]);
        zt_device *d = device_with("cudnn", modes[i], false, &err);
        answer r = run(d, &plain);

        EXPECT(is_own(&plain, &r));
        EXPECT(warned(i == 0 ? "no kernel computes it; the plugin's own kernels compute it"
                             : "emulated failure; the plugin's own kernels compute it"));
        free(r.bytes);
        r = run(d, &plain);
        EXPECT(is_own(&plain, &r) && warned("") && says(d, "0 of 2 plans checked, 0 calls"));
        free(r.bytes);
        finish(d);
    }
}

/* A later run that fails is a failure of the device, as any operation's. */
static void failure(void)
{
    ckpt_err err, later = {0};
    zt_device *d = device_with("cudnn", "fails-later", false, &err);

    CASE("a run that fails");
    answer first = run(d, &plain);

    EXPECT(zt_device_check(d, &later) == CKPT_OK);
    answer second = run(d, &plain);

    EXPECT(zt_device_check(d, &later) == CKPT_EIO && strstr(later.text, "emulated failure"));
    free(first.bytes), free(second.bytes);
    zt_device_free(d);
    case_end();
}

/* Results without digits decide nothing; after some calls the plan is given up. */
static void undecided(void)
{
    shape s = plain;
    ckpt_err err;
    zt_device *d = device_with("cudnn", "right", false, &err);

    CASE("results of zero");
    s.zero = true;
    for (unsigned i = 0; i < 15; i++) {
        answer r = run(d, &s);

        EXPECT(is_own(&s, &r));
        free(r.bytes);
    }
    EXPECT(says(d, "0 of 2 plans checked") && warned(""));
    answer r = run(d, &s);

    EXPECT(is_own(&s, &r) && warned("its results cannot be checked"));
    free(r.bytes);
    finish(d);
}

/* Keys that are nearly equal: their sum in dq cancels, and only its roundings are left. */
static void lost(void)
{
    shape s = plain;
    ckpt_err err;
    zt_device *d = device_with("cudnn", "right", false, &err);

    CASE("gradients that are rounding errors");
    s.lean = 200;
    answer r = run(d, &s);

    EXPECT(says(d, "1 of 2 plans checked, 1 calls") && warned(""));
    free(r.bytes);
    finish(d);
}

/* The number of plans is bounded. */
static void many(void)
{
    shape s = plain;
    ckpt_err err;
    zt_device *d = device_with("cudnn", "right", false, &err);

    CASE("many shapes");
    s.batch = 1;
    for (unsigned i = 0; i < 34; i++) {
        s.seq = 2 + i;
        answer r = run(d, &s);

        EXPECT(i < 32 || is_own(&s, &r));
        free(r.bytes);
    }
    EXPECT(says(d, "64 of 64 plans checked, 64 calls"));
    EXPECT(warned("there are 64 plans for other shapes already"));
    finish(d);
}

/* One forward call in so much device memory beyond its tensors; false: the own kernels fail. */
static bool within(const shape *s, uint64_t more)
{
    ckpt_err err;
    zt_device *d = device_with("cudnn", "right", false, &err);
    call c = call_new(d, s);
    char limit[40];

    snprintf(limit, sizeof limit, "%llu", (unsigned long long)(d->allocated + more));
    setenv("ZT_EMULATE_MEMORY", limit, 1);
    d->ops->attention(d, s->dt, &c.a.fw);
    d->ops->sync(d);
    unsetenv("ZT_EMULATE_MEMORY");
    const bool ok = zt_device_check(d, &err) == CKPT_OK;

    if (ok) {
        EXPECT(warned("there is too little device memory; the plugin's own kernels compute it"));
        EXPECT(says(d, "0 of 1 plans checked, 0 calls"));
    }
    d->ops->release(d, c.block);
    zt_device_free(d);
    return ok;
}

/* With the least memory in which the own kernels compute, there is none for a check. */
static void memory(void)
{
    shape s = plain;
    uint64_t more = 0;

    CASE("little memory");
    s.seq = 300;
    s.width = 128;
    // the steps are smaller than a copy of the output; devices have memory of their own, too
    while (more < UINT64_C(256) << 20 && !within(&s, more))
        more += 256 << 10;
    EXPECT(more > 0 && more < UINT64_C(256) << 20);
    case_end();
}

int main(int argc, char **argv)
{
    void *symbol;
    int rc;

    unsetenv("ZEROTRAIN_ATTENTION");
    rc = begin(argc, argv);
    symbol = rc == 0 ? dlsym(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), "zt_cuda_attention") : NULL;
    memcpy(&about, &symbol, sizeof symbol);
    if (rc != 0 || !about || !freopen("/dev/null", "r", stdin))
        return 2;
    char name[] = "/tmp/choices-XXXXXX";
    const int file = mkstemp(name);

    if (file < 0 || !freopen(name, "w+", stderr))
        return 2;
    close(file);
    unlink(name);
    opening();
    right();
    others();
    wrong();
    refused();
    failure();
    undecided();
    lost();
    many();
    memory();
    return end("choices");
}
