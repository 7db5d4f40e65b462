/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_optim.c: the optimizer block of a config, and weights after updates: trajectories of the
 * real classes, equal bits for any number of threads and any cut, conversions.
 */
#include "libckpt/base/cast.h"
#include "tests/unit/engine/help.h"
#include "tests/unit/unit.h"

enum { STEPS = 20, N_TENSORS = 4 };

static const char *const tensors[N_TENSORS] = {"w1", "b1", "w2", "s"};

/* How a case of optim.json is asked for in a config. */
static const struct {
    const char *name, *type, *flag;
    bool set, offload;
} cases[] = {
    {"adamw_torch", "AdamW", "torch_adam", true, false},
    {"adam_l2_torch", "Adam", "torch_adam", true, false},
    {"adamw_ds_fused", "AdamW", NULL, false, false},
    {"adamw_ds_cpu", "Adam", NULL, false, true}, // "Adam" is AdamW unless told otherwise
    {"adam_l2_ds_cpu", "adam", "adam_w_mode", false, true},
    {"adam_wd0_ds_cpu", "ADAMW", NULL, false, true},
    {"adam_nobias_ds_cpu", "AdamW", "bias_correction", false, true},
    {"adamw_f64", "AdamW", "torch_adam", true, false},
    {"sgd_plain", "SGD", NULL, false, false},
    {"sgd_momentum", "SGD", NULL, false, false},
    {"adagrad_torch", "Adagrad", NULL, false, false},
    {"adagrad_ds_cpu", "Adagrad", NULL, false, true},
    {"lion_ds_cpu", "Lion", NULL, false, true},
    {"lamb", "Lamb", NULL, false, false},
    {"lamb_eps_inside_nobias", "Lamb", NULL, false, false},
    {"lion_fused", "lion", NULL, false, false},
};

static ckpt_arena *arena;
static zt_device *cpu;

static int setup(void **state)
{
    ckpt_err err = {0};

    (void)state;
    arena = ckpt_arena_new(0);
    return arena && zt_cpu_new(&cpu, 2, &err) == CKPT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    zt_device_free(cpu);
    ckpt_arena_free(arena);
    return 0;
}

static zt_optim parse(const char *text, bool offload)
{
    zt_optim o;
    ckpt_err err = {0};

    if (zt_optim_parse(&o, gold_parse(arena, text), offload, &err) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
    return o;
}

static void refuse(const char *text, bool offload, int code, const char *says)
{
    zt_optim o;
    ckpt_err err = {0};
    int rc = zt_optim_parse(&o, gold_parse(arena, text), offload, &err);

    if (rc != code || !strstr(err.text, says))
        fail_msg("%s: code %d '%s', expected %d and '%s'", text, rc, err.text, code, says);
}

/* ---- trajectories ---- */

/* The config block of case i. */
static const ckpt_value *block_of(size_t i, const ckpt_value *golden)
{
    ckpt_value *block = ckpt_value_new(arena, CKPT_V_DICT),
               *params = ckpt_value_new(arena, CKPT_V_DICT);
    ckpt_dict given = ckpt_value_map(ckpt_value_get(golden, "params"));
    bool fine = true;

    for (uint64_t k = 0; k < given.n; k++)
        fine = fine && ckpt_dict_add(arena, &params->as.map, given.at[k].key, given.at[k].value);
    if (cases[i].flag)
        fine = fine && ckpt_dict_add_cstr(arena, &params->as.map, cases[i].flag,
                                          ckpt_value_bool(arena, cases[i].set));
    if (strcmp(cases[i].name, "adam_l2_torch") == 0)
        fine = fine && ckpt_dict_add_cstr(arena, &params->as.map, "adam_w_mode",
                                          ckpt_value_bool(arena, false));
    fine = fine &&
           ckpt_dict_add_cstr(arena, &block->as.map, "type", ckpt_value_cstr(arena, cases[i].type));
    fine = fine && ckpt_dict_add_cstr(arena, &block->as.map, "params", params);
    assert_true(fine);
    return block;
}

/* After step k: 5e-7 and 1e-5 of the way gone. */
static void same_weights(const char *what, const float *got, const float *want, const float *start,
                         uint64_t n, unsigned k)
{
    for (uint64_t i = 0; i < n; i++) {
        double bound = 5e-7 + 1e-5 * fabs((double)want[i] - (double)start[i]);
        double off = fabs((double)got[i] - (double)want[i]);

        if (!(off <= bound))
            fail_msg("%s: step %u, element %d: %.9g instead of %.9g", what, k, (int)i,
                     (double)got[i], (double)want[i]);
    }
}

static void same_state(const gold_file *f, const char *what, const char *key, const char *tensor,
                       const float *got)
{
    // the formulas of CUDA kernels were evaluated with 1 - beta from doubles: 1.3e-5 apart for
    // 0.999
    double share = strncmp(what, "lamb", 4) == 0 ? 2e-5 : 2e-6;
    uint64_t n = 0;
    float *want = gold_tensor(f, key, tensor, &n);
    double top = 0;

    if (!want)
        fail_msg("%s: no %s/%s", what, key, tensor);
    for (uint64_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)want[i]));
    for (uint64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);

        if (!(off <= share * top + 1e-12))
            fail_msg("%s: %s/%s[%d] is %.9g instead of %.9g", what, key, tensor, (int)i,
                     (double)got[i], (double)want[i]);
    }
    free(want);
}

static void trajectory(const zt_optim *o, const gold_file *common, const gold_file *f,
                       ckpt_seq rates, const char *what, const char *tensor)
{
    uint64_t n = 0, all = 0;
    float *p0 = gold_tensor(common, "p0", tensor, &n), *g = gold_tensor(common, "g", tensor, &all);
    float *want = gold_tensor(f, "p", tensor, &all), *p = malloc(n * sizeof *p);
    float *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
    zt_hyper h = zt_optim_hyper(o, false);
    ckpt_err err = {0};

    assert_true(p0 && g && want && p && m && v && all == STEPS * n);
    memcpy(p, p0, n * sizeof *p);
    for (unsigned k = 0; k < STEPS; k++) {
        zt_piece piece = {
            .n = n, .p = p, .state = {m, v}, .g = g + k * n, .g_dtype = CKPT_F32, .g_scale = 1};

        h.lr = gold_value(rates.at[k]);
        zt_optim_update(cpu, o, &h, k + 1, &piece);
        assert_int_equal(zt_device_check(cpu, &err), CKPT_OK);
        same_weights(what, p, want + k * n, p0, n, k);
    }
    for (unsigned s = 0; s < o->n_state; s++)
        same_state(f, what, o->state[s], tensor, s == 0 ? m : v);
    free(p0);
    free(g);
    free(want);
    free(p);
    free(m);
    free(v);
}

static void test_trajectories(void **state)
{
    const ckpt_value *json = gold_json(arena, "optim.json");
    ckpt_seq list = gold_list(json, "cases"), rates = gold_list(json, "lr");
    gold_file common;

    (void)state;
    assert_int_equal(list.n, sizeof cases / sizeof *cases);
    assert_true(gold_open(&common, "optim_common.safetensors"));
    for (size_t i = 0; i < list.n; i++) {
        char name[128];
        zt_optim o;
        gold_file f;
        ckpt_err err = {0};

        assert_string_equal(gold_text(list.at[i], "name"), cases[i].name);
        (void)snprintf(name, sizeof name, "optim_%s.safetensors", cases[i].name);
        if (!gold_open(&f, name))
            continue;
        if (zt_optim_parse(&o, block_of(i, list.at[i]), cases[i].offload, &err) != CKPT_OK)
            fail_msg("%s: %s", cases[i].name, err.text);
        for (size_t t = 0; t < N_TENSORS; t++)
            trajectory(&o, &common, &f, rates, cases[i].name, tensors[t]);
        gold_close(&f);
    }
    gold_close(&common);
}

/* ---- bits ---- */

enum { N = 300007 };

typedef struct bits {
    float *p, *m, *v;
    uint16_t *low;
} bits;

static uint32_t noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void fill(float *x, uint64_t n, uint32_t seed, double scale)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)(scale * ((double)noise(&seed) / 8388608.0 - 1));
}

static bits bits_new(void)
{
    bits b = {malloc(N * sizeof(float)), malloc(N * sizeof(float)), malloc(N * sizeof(float)),
              malloc(N * sizeof(uint16_t))};

    assert_true(b.p && b.m && b.v && b.low);
    fill(b.p, N, 1, 1);
    fill(b.m, N, 2, 1e-3);
    fill(b.v, N, 3, 1e-6);
    for (size_t i = 0; i < N; i++)
        b.v[i] = fabsf(b.v[i]);
    memset(b.low, 0, N * sizeof *b.low);
    return b;
}

static void bits_free(bits *b)
{
    free(b->p);
    free(b->m);
    free(b->v);
    free(b->low);
}

static void bits_equal(const bits *a, const bits *b)
{
    assert_memory_equal(a->p, b->p, N * sizeof(float));
    assert_memory_equal(a->m, b->m, N * sizeof(float));
    assert_memory_equal(a->v, b->v, N * sizeof(float));
    assert_memory_equal(a->low, b->low, N * sizeof(uint16_t));
}

/* Three updates in pieces of `cut` elements by n_threads threads. */
static bits bits_run(const zt_optim *o, const uint16_t *g, ckpt_dtype dt, uint64_t cut,
                     unsigned n_threads)
{
    zt_device *d = NULL;
    ckpt_err err = {0};
    bits b = bits_new();
    zt_hyper h = zt_optim_hyper(o, false);

    assert_int_equal(zt_cpu_new(&d, n_threads, &err), CKPT_OK);
    for (int t = 1; t <= 3; t++) {
        for (uint64_t at = 0; at < N; at += cut) {
            zt_piece piece = {.n = N - at < cut ? N - at : cut,
                              .p = b.p + at,
                              .state = {b.m + at, b.v + at},
                              .g = g + at,
                              .g_dtype = dt,
                              .g_scale = 0.37f,
                              .low = b.low + at,
                              .low_dtype = dt};

            zt_optim_update(d, o, &h, t, &piece);
        }
    }
    assert_int_equal(zt_device_check(d, &err), CKPT_OK);
    zt_device_free(d);
    return b;
}

static void test_equal_bits(void **state)
{
    static const char *const blocks[] = {
        "type: 'AdamW', params: {weight_decay: 0.01}",
        "type: 'AdamW', params: {torch_adam: true}",
        "type: 'Adam', params: {adam_w_mode: false, weight_decay: 0.1}",
        "type: 'SGD', params: {momentum: 0.9, nesterov: true, weight_decay: 0.1}",
        "type: 'SGD', params: {lr: 0.1}",
        "type: 'Adagrad'",
        "type: 'Lion', params: {weight_decay: 0.1}",
        "type: 'Lamb', params: {weight_decay: 0.1}",
    };
    uint16_t *g = malloc(N * sizeof *g), *low = malloc(N * sizeof *low);
    float *wide = malloc(N * sizeof *wide);

    (void)state;
    assert_true(g && low && wide);
    fill(wide, N, 4, 1e-2);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        ckpt_dtype dt = i % 2 ? CKPT_F16 : CKPT_BF16;
        zt_optim o = parse(blocks[i], false);
        bits one, other;

        ckpt_cast_find(dt, CKPT_F32)(g, wide, N);
        one = bits_run(&o, g, dt, N, 1);
        other = bits_run(&o, g, dt, N, 3);
        bits_equal(&one, &other);
        bits_free(&other);
        if (o.type != ZT_OPT_LAMB) { // norms are per piece
            other = bits_run(&o, g, dt, 77777, 2);
            bits_equal(&one, &other);
            bits_free(&other);
        }
        ckpt_cast_find(dt, CKPT_F32)(low, one.p, N);
        assert_memory_equal(low, one.low, N * sizeof *low);
        bits_free(&one);
    }
    free(g);
    free(low);
    free(wide);
}

/* A gradient in 16 bits with a scale is the same as the product in fp32. */
static void test_scaled_gradient(void **state)
{
    enum { FEW = 5000 };
    static float wide[FEW], ready[FEW], p[2][FEW], m[2][FEW], v[2][FEW];
    static uint16_t g[FEW];
    zt_optim o = parse("type: 'AdamW', params: {lr: 0.01}", false);
    zt_hyper h = zt_optim_hyper(&o, false);
    zt_piece a = {.n = FEW,
                  .p = p[0],
                  .state = {m[0], v[0]},
                  .g = g,
                  .g_dtype = CKPT_BF16,
                  .g_scale = 1.0f / 3};
    zt_piece b = {
        .n = FEW, .p = p[1], .state = {m[1], v[1]}, .g = ready, .g_dtype = CKPT_F32, .g_scale = 1};
    ckpt_err err = {0};

    (void)state;
    fill(wide, FEW, 9, 10);
    ckpt_cast_find(CKPT_BF16, CKPT_F32)(g, wide, FEW);
    ckpt_cast_find(CKPT_F32, CKPT_BF16)(wide, g, FEW);
    for (size_t i = 0; i < FEW; i++)
        ready[i] = wide[i] * (1.0f / 3);
    zt_optim_update(cpu, &o, &h, 1, &a);
    zt_optim_update(cpu, &o, &h, 1, &b);
    assert_int_equal(zt_device_check(cpu, &err), CKPT_OK);
    assert_memory_equal(p[0], p[1], sizeof p[0]);
    assert_memory_equal(m[0], m[1], sizeof m[0]);
    assert_memory_equal(v[0], v[1], sizeof v[0]);
    assert_true(fabsf(p[0][17]) > 0.009f && fabsf(p[0][17]) < 0.011f); // the first step is lr
}

static void test_missing_buffers(void **state)
{
    zt_optim o = parse("type: 'AdamW'", false);
    zt_hyper h = zt_optim_hyper(&o, false);
    float x[4] = {0};
    zt_piece piece = {
        .n = 4, .p = x, .state = {x, NULL}, .g = x, .g_dtype = CKPT_F32, .g_scale = 1};
    zt_device *d = NULL;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zt_cpu_new(&d, 1, &err), CKPT_OK);
    zt_optim_update(d, &o, &h, 1, &piece);
    assert_int_not_equal(zt_device_check(d, &err), CKPT_OK);
    zt_device_free(d);

    err = (ckpt_err){0};
    assert_int_equal(zt_cpu_new(&d, 1, &err), CKPT_OK);
    o.type = ZT_OPT_ONEBIT_ADAM; // has a function of its own
    zt_optim_update(d, &o, &h, 1, &piece);
    assert_int_equal(zt_device_check(d, &err), CKPT_EUSAGE);
    zt_device_free(d);
}

/* ---- the block ---- */

#define SAME(a, b) assert_memory_equal(&(double){a}, &(double){b}, sizeof(double))

static void check_defaults(const char *text, bool offload, const double want[5], const char *state)
{
    zt_optim o = parse(text, offload);
    const double got[5] = {o.h.lr, o.h.beta1, o.h.beta2, o.h.eps, o.h.weight_decay};

    for (size_t i = 0; i < 5; i++) {
        if (got[i] != want[i])
            fail_msg("%s: default %d is %g, not %g", text, (int)i, got[i], want[i]);
    }
    assert_string_equal(o.n_state ? o.state[0] : "", state);
}

static void test_defaults(void **state)
{
    static const double adam[5] = {1e-3, .9, .999, 1e-8, 0}, torch[5] = {1e-3, .9, .999, 1e-8, .01};
    static const double grad[5] = {1e-2, .9, .999, 1e-10, 0}, muon[5] = {.02, .9, .95, 1e-10, 0};

    (void)state;
    check_defaults("type: 'Adam'", false, adam, "exp_avg");
    check_defaults("type: 'AdamW', params: null", true, adam, "exp_avg");
    check_defaults("type: 'AdamW', params: {torch_adam: true}", false, torch, "exp_avg");
    check_defaults("type: 'Adam', params: {torch_adam: true}", false, torch, "exp_avg");
    check_defaults("type: 'Adam', params: {torch_adam: true, adam_w_mode: false}", false, adam,
                   "exp_avg");
    check_defaults("type: 'SGD'", false, adam, "");
    check_defaults("type: 'SGD', params: {momentum: 0.5}", false, adam, "momentum_buffer");
    check_defaults("type: 'Adagrad'", false, grad, "sum");
    check_defaults("type: 'Adagrad'", true, grad, "exp_avg_sq");
    check_defaults("type: 'Lion'", false, adam, "exp_avg");
    check_defaults("type: 'LAMB'", false, adam, "exp_avg");
    check_defaults("type: 'onebitadam'", false, adam, "exp_avg");
    check_defaults("type: 'MUON'", false, muon, "exp_avg");
}

static void test_flags(void **state)
{
    zt_optim o;

    (void)state;
    assert_true(parse("type: 'Adam'", false).decoupled);
    assert_false(parse("type: 'Adam', params: {adam_w_mode: false}", false).decoupled);
    assert_true(parse("type: 'AdamW', params: {adam_w_mode: false}", false).decoupled);
    assert_false(parse("type: 'Adam'", true).torch);
    assert_true(parse("type: 'SGD'", true).torch);
    assert_true(parse("type: 'Lion'", false).zero_up);
    assert_false(parse("type: 'Lion'", true).zero_up);
    o = parse("type: 'Lamb', params: {max_coeff: 2, min_coeff: 0.5, eps_inside_sqrt: true}", false);
    assert_true(o.eps_inside && o.h.max_coeff == 2 && o.h.min_coeff == 0.5 && o.h.bias_correction);
    o = parse(
        "type: 'OneBitAdam', params: {freeze_step: 400, cuda_aware: false, comm_backend_name: "
        "'nccl'}",
        false);
    assert_int_equal(o.freeze_step, 400);
    assert_false(o.h.bias_correction);
    assert_int_equal(parse("type: 'OneBitAdam'", false).freeze_step, 100000);
    o = parse("type: 'AdamW', params: {lr: 3e-5, betas: [0.8, 0.9], eps: 1e-6, weight_decay: 3e-7, "
              "bias_correction: false}",
              false);
    SAME(o.h.lr, 3e-5);
    SAME(o.h.beta1, 0.8);
    SAME(o.h.beta2, 0.9);
    SAME(o.h.eps, 1e-6);
    SAME(o.h.weight_decay, 3e-7);
    assert_false(o.h.bias_correction);
    assert_true(zt_optim_has_betas(&o));
    o = parse("type: 'Adagrad', params: {lr_decay: 0.5}", false);
    assert_true(o.h.lr_decay == 0.5 && !zt_optim_has_betas(&o));
    (void)parse("type: 'AdamW', params: {torch_adam: true, foreach: false, fused: null, amsgrad: "
                "false, maximize: false, fp32_optimizer_states: false}",
                false);
}

/* Each half of Muon has its own rate. */
static void test_muon_rates(void **state)
{
    zt_optim o = parse("type: 'Muon'", false);

    (void)state;
    assert_true(zt_optim_hyper(&o, true).lr == 0.02 && zt_optim_hyper(&o, false).lr == 3e-4);
    assert_true(o.h.muon_gram && o.h.momentum == 0.95);
    o = parse("type: 'Muon', params: {lr: 0.1, ns_method: 'standard', momentum: 0.8}", false);
    assert_true(zt_optim_hyper(&o, true).lr == 0.1 && zt_optim_hyper(&o, false).lr == 0.1);
    assert_true(!o.h.muon_gram && o.h.momentum == 0.8);
    o = parse("type: 'Muon', params: {lr: 0.1, adam_lr: 0.3, ns_steps: 5, nesterov: true}", false);
    assert_true(zt_optim_hyper(&o, true).lr == 0.1 && zt_optim_hyper(&o, false).lr == 0.3);
    o = parse("type: 'Muon', params: {muon_lr: 0.4}", false);
    assert_true(zt_optim_hyper(&o, true).lr == 0.4 && zt_optim_hyper(&o, false).lr == 3e-4);
}

static void test_refused(void **state)
{
    (void)state;
    refuse("params: {}", false, CKPT_EUSAGE, "type");
    refuse("type: 3", false, CKPT_EUSAGE, "type");
    refuse("type: 'sgd'", false, CKPT_EUNSUPPORTED, "SGD");
    refuse("type: 'RMSprop'", false, CKPT_EUNSUPPORTED, "RMSprop");
    refuse("type: 'AdamW', params: [1]", false, CKPT_EUSAGE, "params");
    refuse("type: 'AdamW', params: {max_grad_norm: 1}", false, CKPT_EUSAGE, "gradient_clipping");
    refuse("type: 'AdamW', params: {learning_rate: 1}", false, CKPT_EUNSUPPORTED, "learning_rate");
    refuse("type: 'AdamW', params: {momentum: 0.9}", false, CKPT_EUNSUPPORTED, "momentum");
    refuse("type: 'AdamW', params: {foreach: true}", false, CKPT_EUNSUPPORTED, "foreach");
    refuse("type: 'AdamW', params: {amsgrad: true}", false, CKPT_EUNSUPPORTED, "amsgrad");
    refuse("type: 'AdamW', params: {torch_adam: true, bias_correction: true}", false,
           CKPT_EUNSUPPORTED, "bias_correction");
    refuse("type: 'AdamW', params: {fp32_optimizer_states: false}", true, CKPT_EUNSUPPORTED,
           "fp32");
    refuse("type: 'AdamW', params: {lr: '1e-5'}", false, CKPT_EUSAGE, "lr");
    refuse("type: 'AdamW', params: {lr: 'auto'}", false, CKPT_EUSAGE, "lr");
    refuse("type: 'AdamW', params: {lr: -1}", false, CKPT_EUSAGE, "negative");
    refuse("type: 'AdamW', params: {lr: true}", false, CKPT_EUSAGE, "boolean");
    refuse("type: 'AdamW', params: {betas: 0.9}", false, CKPT_EUSAGE, "betas");
    refuse("type: 'AdamW', params: {betas: [0.9]}", false, CKPT_EUSAGE, "betas");
    refuse("type: 'AdamW', params: {betas: [0.9, 1]}", false, CKPT_EUSAGE, "betas");
    refuse("type: 'Adam', params: {adam_w_mode: 1}", false, CKPT_EUSAGE, "adam_w_mode");
    refuse("type: 'SGD', params: {nesterov: true}", false, CKPT_EUSAGE, "nesterov");
    refuse("type: 'SGD', params: {betas: [0.9, 0.9]}", false, CKPT_EUNSUPPORTED, "betas");
    refuse("type: 'Adagrad', params: {initial_accumulator_value: 0.1}", false, CKPT_EUNSUPPORTED,
           "initial_accumulator_value");
    refuse("type: 'OneBitAdam', params: {freeze_step: 1.5}", false, CKPT_EUSAGE, "freeze_step");
    refuse("type: 'Muon', params: {ns_method: 'fast'}", false, CKPT_EUSAGE, "ns_method");
    refuse("type: 'Muon', params: {ns_steps: 6}", false, CKPT_EUNSUPPORTED, "ns_steps");
    refuse("type: 'Muon', params: {momentum: 1}", false, CKPT_EUSAGE, "momentum");
}

static int take(const zt_optim *o, zt_hyper *h, const char *fields, ckpt_err *err)
{
    const ckpt_value *block = gold_parse(arena, fields);

    *h = zt_optim_hyper(o, false);
    return zt_optim_take(o, h, block, err);
}

static void take_refused(const char *config, const char *fields, int code, const char *says)
{
    zt_optim o = parse(config, false);
    zt_hyper h;
    ckpt_err err = {0};
    int rc = take(&o, &h, fields, &err);

    if (rc != code || !strstr(err.text, says))
        fail_msg("%s: code %d '%s', expected %d and '%s'", fields, rc, err.text, code, says);
}

/* What a checkpoint says of a group. */
static void test_taken(void **state)
{
    zt_optim o = parse("type: 'AdamW', params: {eps: 1e-8, weight_decay: 0.5}", false);
    zt_hyper h;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(take(&o, &h,
                          "lr: 1, betas: [0.5, 0.75], eps: 0.25, bias_correction: false, step: 3, "
                          "foreach: null, amsgrad: false, maximize: null, other: {}",
                          &err),
                     CKPT_OK);
    SAME(h.lr, 1);
    SAME(h.beta1, 0.5);
    SAME(h.beta2, 0.75);
    SAME(h.eps, 0.25);
    SAME(h.weight_decay, 0.5);
    assert_false(h.bias_correction);
    o = parse("type: 'Adagrad'", false);
    assert_int_equal(take(&o, &h, "initial_accumulator_value: 3, lr_decay: 2", &err), CKPT_OK);
    SAME(h.lr_decay, 2);
    take_refused("type: 'AdamW'", "amsgrad: true", CKPT_EUNSUPPORTED, "amsgrad");
    take_refused("type: 'AdamW'", "maximize: true", CKPT_EUNSUPPORTED, "maximize");
    take_refused("type: 'Lion'", "maximize: true", CKPT_EUNSUPPORTED, "maximize");
    take_refused("type: 'AdamW'", "lr: {}", CKPT_EFORMAT, "lr");
    take_refused("type: 'AdamW'", "eps: -1", CKPT_EFORMAT, "eps");
    take_refused("type: 'AdamW'", "betas: [1, 1]", CKPT_EFORMAT, "betas");
    take_refused("type: 'AdamW'", "weight_decay: 1, decoupled_weight_decay: false",
                 CKPT_EUNSUPPORTED, "adam_w_mode");
    take_refused("type: 'SGD', params: {momentum: 0.5}", "momentum: 0", CKPT_EUNSUPPORTED,
                 "optimizer.params.momentum to 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trajectories),    cmocka_unit_test(test_equal_bits),
        cmocka_unit_test(test_scaled_gradient), cmocka_unit_test(test_missing_buffers),
        cmocka_unit_test(test_defaults),        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_muon_rates),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_taken),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
