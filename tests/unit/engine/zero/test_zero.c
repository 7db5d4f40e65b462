/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_zero.c: the ZeRO runtime on one process with a tiny GPT-2: all stages do the same thing, bit
 * for bit, in whatever way they keep it.
 */
#include <math.h>
#include <unistd.h>

#include "engine/zero/pool.h"
#include "engine/zero/zero.h"
#include "tests/unit/unit.h"

#define BATCH 2
#define SEQ   6
#define VOCAB 31
#define MOST  20000 /* elements of the model, at most */

/* One runtime with all that it stands on. */
typedef struct run {
    ckpt_arena *arena;
    zt_comm *comm;
    zt_device *device;
    zt_config config;
    zt_model *model;
    zt_zero *zero;
    ckpt_err err;
} run;

static const zt_model_config tiny = {.arch = ZT_GPT2,
                                     .class_name = "GPT2LMHeadModel",
                                     .model_type = "gpt2",
                                     .vocab = VOCAB,
                                     .positions = 8,
                                     .hidden = 12,
                                     .layers = 2,
                                     .heads = 3,
                                     .kv_heads = 3,
                                     .head_width = 4,
                                     .inner = 20,
                                     .norm_eps = 1e-5f,
                                     .init_range = .02f,
                                     .act = ZT_GELU_TANH,
                                     .tied = true,
                                     .attention_bias = true,
                                     .scale_attention = true,
                                     .padding = -1};

/* Some values that differ everywhere. */
static int value(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                 ckpt_err *err)
{
    (void)ctx;
    (void)err;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)((first + i) * 2654435761u + param * 40503u + 12345u);

        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        out[i] = ((float)(x & 0xffff) / 65536.0f - 0.5f) * 0.2f;
    }
    return CKPT_OK;
}

static int no_value(void *ctx, uint32_t param, uint64_t first, uint64_t count, float *out,
                    ckpt_err *err)
{
    (void)ctx;
    (void)first;
    (void)count;
    (void)out;
    return ckpt_fail(err, CKPT_EIO, "parameter %u cannot be read", param);
}

/* Everything but the runtime; json is appended, or all of it with @ for the stage. */
static int prepare(run *r, const char *json, int stage, const char *frozen)
{
    char text[2048];
    ckpt_value *v = NULL;
    size_t n_frozen;
    int n =
        snprintf(text, sizeof text,
                 "{\"train_micro_batch_size_per_gpu\": %d, \"optimizer\": {\"type\": \"AdamW\", "
                 "\"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}}, "
                 "\"zero_optimization\": {\"stage\": %d} %s}",
                 BATCH, stage, json);

    memset(r, 0, sizeof *r);
    if (json[0] == '{') {
        n = snprintf(text, sizeof text, "%s", json);
        *strchr(text, '@') = (char)('0' + stage);
    }
    assert_true(n > 0 && (size_t)n < sizeof text);
    r->arena = ckpt_arena_new(0);
    assert_int_equal(zt_comm_self(&r->comm, &r->err), CKPT_OK);
    assert_int_equal(zt_cpu_new(&r->device, 1, &r->err), CKPT_OK);
    if (zt_hjson_parse(&v, r->arena, text, (size_t)n, "test", &r->err) != CKPT_OK ||
        zt_config_parse(&r->config, r->arena, v, NULL, 1, &r->err) != CKPT_OK)
        fail_msg("%s", r->err.text);
    assert_int_equal(zt_model_new(&r->model, r->device, r->config.dtype, &tiny, NULL, &r->err),
                     CKPT_OK);
    if (frozen)
        assert_int_equal(zt_model_freeze(r->model, frozen, &n_frozen, &r->err), CKPT_OK);
    return r->err.code;
}

static void finish(run *r)
{
    zt_zero_free(r->zero);
    zt_model_free(r->model);
    zt_device_free(r->device);
    zt_comm_free(r->comm);
    ckpt_arena_free(r->arena);
}

static void start_with(run *r, const char *json, int stage, const zt_zero_opts *opts)
{
    prepare(r, json, stage, NULL);
    if (zt_zero_new(&r->zero, r->model, &r->config, r->comm, opts, &r->err) != CKPT_OK ||
        zt_zero_fill(r->zero, value, NULL, &r->err) != CKPT_OK)
        fail_msg("%s", r->err.text);
}

static void start(run *r, const char *json, int stage)
{
    const zt_zero_opts opts = {.grouping = "single"};

    start_with(r, json, stage, &opts);
}

static int32_t tokens[BATCH * SEQ];

static zt_batch batch_of(uint64_t i)
{
    for (uint64_t k = 0; k < BATCH * SEQ; k++)
        tokens[k] = (int32_t)((k * 7 + i * 3 + k * k) % VOCAB);
    return (zt_batch){.batch = BATCH, .seq = SEQ, .input_ids = tokens, .labels = tokens};
}

/* n micro steps, all on batch `same` or on one each. */
static zt_step train(run *r, uint64_t n, bool same)
{
    zt_step step = {0};
    double loss;

    for (uint64_t i = 0; i < n; i++) {
        zt_batch b = batch_of(same ? 0 : i);

        if (zt_zero_micro(r->zero, &b, &loss, &r->err) != CKPT_OK ||
            zt_zero_step(r->zero, &step, &r->err) != CKPT_OK)
            fail_msg("%s", r->err.text);
        assert_true(isfinite(loss));
    }
    return step;
}

/* All trained masters in the model's order. */
static uint64_t masters(run *r, float *out)
{
    uint64_t at[64] = {0}, n = 0;
    size_t n_owned;
    const zt_owned *own = zt_zero_owned(r->zero, &n_owned);

    assert_true(r->model->params.n < 64);
    for (uint32_t i = 0; i < r->model->params.n; i++) {
        at[i] = n;
        n += r->model->params.at[i].n_elems;
    }
    assert_true(n <= MOST);
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n_owned; i++) {
        assert_int_equal(zt_zero_hold(r->zero, own[i].partition, &r->err), CKPT_OK);
        memcpy(out + at[own[i].param] + own[i].first,
               r->zero->part[own[i].partition].master + own[i].at, own[i].count * sizeof *out);
        assert_int_equal(zt_zero_let_go(r->zero, own[i].partition, false, &r->err), CKPT_OK);
    }
    return n;
}

/* Masters after n micro steps. */
static uint64_t trained(const char *json, int stage, uint64_t n, float *out)
{
    run r;

    start(&r, json, stage);
    train(&r, n, false);
    uint64_t count = masters(&r, out);

    finish(&r);
    return count;
}

static void test_stages_agree(void **state)
{
    static const char *const json[] = {
        ", \"gradient_clipping\": 0",
        ", \"gradient_clipping\": 0, \"bf16\": {\"enabled\": true}",
        ", \"gradient_clipping\": 0, \"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}",
        ", \"gradient_clipping\": 0, \"gradient_accumulation_steps\": 2",
    };
    static float a[MOST], b[MOST];

    (void)state;
    for (size_t k = 0; k < sizeof json / sizeof *json; k++) {
        // 16-bit stage 0 has made one more step: it starts elsewhere.
        int first = k == 1 || k == 2 ? 1 : 0;
        uint64_t n = trained(json[k], first, 4, a);

        for (int stage = first + 1; stage <= 3; stage++) {
            assert_int_equal(trained(json[k], stage, 4, b), n);
            assert_memory_equal(a, b, n * sizeof *a);
        }
    }
}

/* Passing gradients (another dtype of accumulation) on one rank. */
static void test_accumulation_dtype(void **state)
{
    static const char json[] = ", \"gradient_clipping\": 0, \"bf16\": {\"enabled\": true}, "
                               "\"gradient_accumulation_steps\": 2, "
                               "\"data_types\": {\"grad_accum_dtype\": \"fp32\"}";
    static float a[MOST], b[MOST];

    (void)state;
    uint64_t n = trained(json, 1, 4, a);

    for (int stage = 2; stage <= 3; stage++) {
        assert_int_equal(trained(json, stage, 4, b), n);
        assert_memory_equal(a, b, n * sizeof *a);
    }
}

static void test_sub_groups(void **state)
{
    static const char json[] = "{\"train_micro_batch_size_per_gpu\": 2, "
                               "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, "
                               "\"weight_decay\": 0.1}}, \"zero_optimization\": {\"stage\": @, "
                               "\"sub_group_size\": 500}}";
    static float a[MOST], b[MOST];
    run r;

    (void)state;
    uint64_t n = trained("", 3, 3, a);

    start(&r, json, 3);
    assert_true(r.zero->n_parts > 3);
    train(&r, 3, false);
    assert_int_equal(masters(&r, b), n);
    assert_memory_equal(a, b, n * sizeof *a);
    finish(&r);
}

static void test_activation_checkpointing(void **state)
{
    static float a[MOST], b[MOST];
    const zt_zero_opts opts = {.keep_activations_not = true, .max_batch = BATCH, .max_seq = SEQ};
    zt_memory kept, not_kept;
    run r;

    (void)state;
    start(&r, "", 0);
    train(&r, 3, false);
    masters(&r, a);
    zt_zero_memory(r.zero, &kept);
    finish(&r);
    start_with(&r, "", 0, &opts);
    train(&r, 3, false);
    uint64_t n = masters(&r, b);

    zt_zero_memory(r.zero, &not_kept);
    finish(&r);
    assert_memory_equal(a, b, n * sizeof *a);
    assert_true(not_kept.activations < kept.activations);
}

/* The mean over two equal micro steps is that of one. */
static void test_accumulation_is_a_mean(void **state)
{
    static float a[MOST], b[MOST];
    run r;

    (void)state;
    start(&r, "", 1);
    train(&r, 1, true);
    masters(&r, a);
    finish(&r);
    start(&r, ", \"gradient_accumulation_steps\": 2", 1);
    train(&r, 1, true);
    assert_int_equal(r.zero->global_steps, 0);
    train(&r, 1, true);
    assert_int_equal(r.zero->global_steps, 1);
    assert_int_equal(r.zero->global_samples, 2 * BATCH);
    uint64_t n = masters(&r, b);

    finish(&r);
    for (uint64_t i = 0; i < n; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-6f);
}

static void test_overflow_is_skipped(void **state)
{
    static const char json[] = ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 40, "
                               "\"hysteresis\": 1}";
    static float a[MOST], b[MOST];
    run r;

    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        start(&r, json, stage);
        int64_t updates = r.zero->updates;

        masters(&r, a);
        zt_step step = train(&r, 1, true);
        uint64_t n = masters(&r, b);

        assert_true(step.skipped && isinf(step.grad_norm));
        assert_true(step.loss_scale == ldexp(1, 40));
        assert_true(r.zero->scaler.scale == ldexp(1, 39));
        assert_int_equal(r.zero->skipped, 1);
        assert_int_equal(r.zero->global_steps, 1);
        assert_int_equal(r.zero->updates, updates);
        assert_memory_equal(a, b, n * sizeof *a);
        finish(&r);
    }
}

/* DeepSpeed's 16-bit wrapper of stage 0 makes one step with zero gradients. */
static void test_initial_step(void **state)
{
    static float a[MOST], b[MOST];
    run r;

    (void)state;
    start(&r, ", \"bf16\": {\"enabled\": true}", 1);
    assert_int_equal(r.zero->updates, 0);
    uint64_t n = masters(&r, a);

    finish(&r);
    start(&r, ", \"bf16\": {\"enabled\": true}", 0);
    assert_int_equal(r.zero->updates, 1);
    masters(&r, b);
    finish(&r);
    for (uint64_t i = 0; i < n; i++)
        assert_true(fabsf(b[i] - a[i] * (1 - 0.01f * 0.1f)) <= 3e-7f * fabsf(a[i]));
}

/* Every element of every trained parameter is owned once, and lies inside its partition. */
static void test_owned(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        uint64_t sum = 0;
        size_t n;
        run r;

        start(&r, "", stage);
        const zt_owned *own = zt_zero_owned(r.zero, &n);

        for (size_t i = 0; i < n; i++) {
            sum += own[i].count;
            assert_true(own[i].at + own[i].count <= r.zero->part[own[i].partition].n_elems);
        }
        assert_int_equal(sum, zt_model_count(r.model, true));
        finish(&r);
    }
}

/* What was filled comes back; what is changed under hold is used after refresh. */
static void test_hold_and_refresh(void **state)
{
    static float want[MOST], got[MOST];

    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        run r;
        size_t n;

        start(&r, "", stage);
        const zt_owned *own = zt_zero_owned(r.zero, &n);
        uint64_t count = r.model->params.at[own[0].param].n_elems;

        value(NULL, own[0].param, 0, count, want, NULL);
        assert_int_equal(zt_zero_gather(r.zero, own[0].param, got, &r.err), CKPT_OK);
        assert_memory_equal(want, got, count * sizeof *want);
        assert_int_equal(zt_zero_hold(r.zero, own[0].partition, &r.err), CKPT_OK);
        r.zero->part[own[0].partition].master[own[0].at] = 42;
        assert_int_equal(zt_zero_let_go(r.zero, own[0].partition, true, &r.err), CKPT_OK);
        assert_int_equal(zt_zero_refresh(r.zero, &r.err), CKPT_OK);
        assert_int_equal(zt_zero_gather(r.zero, own[0].param, got, &r.err), CKPT_OK);
        assert_true(got[0] == 42);
        assert_int_equal(zt_zero_hold(r.zero, r.zero->n_parts, &r.err), CKPT_EUSAGE);
        finish(&r);
    }
}

static void test_groups(void **state)
{
    const zt_zero_opts opts = {.grouping = "decay"}, wrong = {.grouping = "by color"};

    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        run r;

        start_with(&r, "", stage, &opts);
        assert_int_equal(r.zero->n_groups, 2);
        assert_true(r.zero->group[0].hyper.weight_decay > 0);
        assert_true(r.zero->group[1].hyper.weight_decay <= 0);
        for (uint32_t i = 0; i < r.zero->n_order; i++) {
            bool second = i >= r.zero->group[1].first;

            assert_int_equal(second, r.model->params.at[r.zero->order[i]].ndim == 1);
        }
        train(&r, 2, false);
        finish(&r);
    }
    run r;

    prepare(&r, "", 0, NULL);
    assert_int_equal(zt_zero_new(&r.zero, r.model, &r.config, r.comm, &wrong, &r.err), CKPT_EUSAGE);
    assert_non_null(strstr(r.err.text, "by color"));
    finish(&r);
}

/* Frozen parameters keep their values and have no place in partitions; freezing all is fine too. */
static void test_frozen(void **state)
{
    static const char *const glob[] = {"*wte*,*ln_1*", "*"};
    static float want[MOST], got[MOST];
    const zt_zero_opts opts = {.grouping = "single"};

    (void)state;
    for (int k = 0; k < 8; k++) {
        run r;

        prepare(&r, "", k % 4, glob[k / 4]);
        assert_int_equal(zt_zero_new(&r.zero, r.model, &r.config, r.comm, &opts, &r.err), CKPT_OK);
        assert_int_equal(zt_zero_fill(r.zero, value, NULL, &r.err), CKPT_OK);
        train(&r, 2, false);
        const uint32_t wte = 0; // GPT-2's first parameter

        assert_string_equal(r.model->params.at[wte].name, "transformer.wte.weight");
        uint64_t n = r.model->params.at[wte].n_elems;

        value(NULL, wte, 0, n, want, NULL);
        assert_int_equal(zt_zero_gather(r.zero, wte, got, &r.err), CKPT_OK);
        assert_memory_equal(want, got, n * sizeof *want);
        assert_null(r.model->params.at[wte].g);
        assert_int_equal(k < 4, r.zero->n_groups == 1);
        finish(&r);
    }
}

static void test_evaluate(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        zt_batch b = batch_of(0);
        double loss, again, train_loss;
        run r;

        start(&r, "", stage);
        assert_int_equal(zt_zero_evaluate(r.zero, &b, NULL, &loss, &r.err), CKPT_OK);
        assert_int_equal(zt_zero_micro(r.zero, &b, &train_loss, &r.err), CKPT_OK);
        assert_int_equal(zt_zero_evaluate(r.zero, &b, NULL, &again, &r.err), CKPT_OK);
        assert_true(fabs(loss - train_loss) < 1e-6 && fabs(loss - again) < 1e-12);
        finish(&r);
    }
}

/* Optimizer state and weights in files: the same bits, and nothing is left behind. */
static void test_nvme(void **state)
{
    static float a[MOST], b[MOST];
    char dir[] = "/tmp/zero-nvme-XXXXXX", text[1024];
    run r;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}}, \"zero_optimization\": "
             "{\"stage\": @, \"sub_group_size\": 500, \"offload_optimizer\": {\"device\": "
             "\"nvme\", \"nvme_path\": \"%s\"}, \"offload_param\": {\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}}}",
             dir, dir);
    uint64_t n = trained("", 3, 3, a);

    start(&r, text, 3);
    assert_null(r.zero->part[0].master);
    train(&r, 3, false);
    // All at once, as a save that goes on in the background holds them.
    for (uint32_t i = 0; i < r.zero->n_parts; i++)
        assert_int_equal(zt_zero_hold(r.zero, i, &r.err), CKPT_OK);
    for (uint32_t i = 0; i < r.zero->n_parts; i++) {
        assert_non_null(r.zero->part[i].master);
        assert_int_equal(zt_zero_let_go(r.zero, i, false, &r.err), CKPT_OK);
    }
    assert_int_equal(masters(&r, b), n);
    assert_memory_equal(a, b, n * sizeof *a);
    finish(&r);
    assert_int_equal(rmdir(dir), 0); // it is empty
}

static void refused(const char *json, int stage, const char *word)
{
    const zt_zero_opts opts = {.grouping = "single"};
    run r;

    prepare(&r, json, stage, NULL);
    assert_int_equal(zt_zero_new(&r.zero, r.model, &r.config, r.comm, &opts, &r.err),
                     CKPT_EUNSUPPORTED);
    if (!strstr(r.err.text, word))
        fail_msg("\"%s\" does not name %s", r.err.text, word);
    assert_null(r.zero);
    finish(&r);
}

static void test_refusals(void **state)
{
    const zt_zero_opts opts = {.grouping = "single"};
    run r;

    (void)state;
    refused("{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"OneBitAdam\", "
            "\"params\": {\"lr\": 0.1}}, \"zero_optimization\": {\"stage\": @}, "
            "\"zero_allow_untested_optimizer\": true}",
            1, "OneBitAdam");
    refused("{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"Muon\", "
            "\"params\": {\"lr\": 0.1}}, \"zero_optimization\": {\"stage\": @}, "
            "\"bf16\": {\"enabled\": true}}",
            0, "Muon");
    prepare(&r, "", 0, NULL);
    assert_int_equal(zt_zero_new(&r.zero, r.model, &r.config, r.comm, &opts, &r.err), CKPT_OK);
    assert_int_equal(zt_zero_fill(r.zero, no_value, NULL, &r.err), CKPT_EIO);
    assert_non_null(strstr(r.err.text, "cannot be read"));
    finish(&r);
}

static void test_other_optimizers(void **state)
{
    static const char *const type[] = {"OneBitAdam", "Muon", "Adagrad", "SGD"};
    const zt_zero_opts opts = {.grouping = "single"};

    (void)state;
    for (size_t k = 0; k < sizeof type / sizeof *type; k++) {
        char json[512];
        static float a[MOST], b[MOST];
        run r;

        snprintf(json, sizeof json,
                 "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"%s\", "
                 "\"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": @, "
                 "\"reduce_scatter\": false}, \"zero_allow_untested_optimizer\": true}",
                 type[k]);
        for (int stage = 0; stage <= (k == 0 ? 0 : 3); stage++) {
            prepare(&r, json, stage, NULL);
            if (zt_zero_new(&r.zero, r.model, &r.config, r.comm, &opts, &r.err) != CKPT_OK ||
                zt_zero_fill(r.zero, value, NULL, &r.err) != CKPT_OK)
                fail_msg("%s at stage %d: %s", type[k], stage, r.err.text);
            masters(&r, a);
            train(&r, 3, false);
            uint64_t n = masters(&r, b);

            assert_memory_not_equal(a, b, n * sizeof *a);
            finish(&r);
        }
    }
}

/* 16 bytes per parameter with 16 bits and Adam, whatever the stage, on one rank. */
static void test_memory(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        zt_memory m;
        run r;

        start(&r, ", \"bf16\": {\"enabled\": true}", stage);
        zt_zero_memory(r.zero, &m);
        uint64_t n = zt_model_count(r.model, true);
        uint64_t sum = m.weights + m.masters + m.state + m.gradients;

        assert_in_range(sum, 16 * n, 16 * n + 64 * 8);
        assert_int_equal(m.buffers, 0);
        finish(&r);
    }
}

/* Memory that runs out anywhere in the making is an error, and nothing leaks (sanitizers tell). */
static void test_no_memory(void **state)
{
    const zt_zero_opts opts = {.grouping = "decay", .max_batch = BATCH, .max_seq = SEQ};

    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        int rc = CKPT_ELIMIT;

        for (uint64_t at = 0; rc != CKPT_OK; at++) {
            run r;

            prepare(&r, "", stage, NULL);
            ckpt_alloc_fail_at(at);
            rc = zt_zero_new(&r.zero, r.model, &r.config, r.comm, &opts, &r.err);
            ckpt_alloc_fail_at(UINT64_MAX);
            assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
            assert_true(at < 1000);
            finish(&r);
        }
    }
}

static void test_pool(void **state)
{
    zr_pool p;
    ckpt_err err = {0};

    (void)state;
    assert_int_equal(zr_pool_new(&p, 3, &err), CKPT_OK);
    assert_int_equal(zr_pool_take(&p, 100), 0);
    assert_int_equal(zr_pool_take(&p, 1), 128);
    assert_int_equal(zr_pool_take(&p, 64), 192);
    assert_int_equal(zr_pool_take(&p, 64), UINT64_MAX); // spans
    zr_pool_give(&p, 0);
    assert_int_equal(zr_pool_take(&p, 65), 0);
    zr_pool_give(&p, 128);
    p.limit = p.peak;
    assert_int_equal(p.peak, 256);
    assert_int_equal(zr_pool_take(&p, 65), UINT64_MAX); // bytes
    assert_int_equal(zr_pool_take(&p, 0), 128);
    zr_pool_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages_agree),
        cmocka_unit_test(test_accumulation_dtype),
        cmocka_unit_test(test_sub_groups),
        cmocka_unit_test(test_activation_checkpointing),
        cmocka_unit_test(test_accumulation_is_a_mean),
        cmocka_unit_test(test_overflow_is_skipped),
        cmocka_unit_test(test_initial_step),
        cmocka_unit_test(test_owned),
        cmocka_unit_test(test_hold_and_refresh),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_evaluate),
        cmocka_unit_test(test_nvme),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_other_optimizers),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
