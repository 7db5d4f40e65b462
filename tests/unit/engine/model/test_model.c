/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_model.c: models: their parameters, losses and gradients against recorded ones, what the pass
 * settings do, freezing, checking of batches.
 *
 * The recorded models lie in tests/fixtures/golden, more of them below $CKPT_SHARED/golden where
 * that is set; Llama's kin, which tests/replay/record_models.py records, in tests/fixtures/models.
 */

#include "tests/unit/engine/model/help.h"
#include "tests/unit/unit.h"

static const char *const names[] = {"bert_cls",    "bert_reg",  "bert_mlm",        "gpt2",
                                    "gpt2_masked", "llama_gqa", "llama3_tied_bias"};
enum { N_NAMES = sizeof names / sizeof *names };

static const char *const kin[] = {"qwen2",         "qwen2_tied",  "qwen3",     "mistral",
                                  "qwen2_windows", "opt",         "opt_after", "opt_gelu",
                                  "neox",          "neox_serial", "bloom",     "bloom_untied",
                                  "olmo2",         "olmo2_bias",  "gemma2",    "gemma2_full",
                                  "phi3",          "phi4",        "gemma3",    "gemma3_linear"};
enum { N_KIN = sizeof kin / sizeof *kin };

/* ---- structure ---- */

/* A model from its recorded config alone. */
static zt_model *build(ckpt_arena *arena, zt_device *d, const ckpt_value *entry,
                       const zt_lora *lora)
{
    zt_model_config config;
    zt_model *m = NULL;
    ckpt_err err = {0};

    if (mc_config(&config, arena, entry, &err) != CKPT_OK ||
        zt_model_new(&m, d, CKPT_F32, &config, lora, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return m;
}

static void check_structure(const zt_model *m, const ckpt_value *entry)
{
    ckpt_seq order = ckpt_value_seq(ckpt_value_get(entry, "param_order"));
    ckpt_seq shapes = ckpt_value_seq(ckpt_value_get(entry, "shapes"));
    ckpt_seq extra = ckpt_value_seq(ckpt_value_get(entry, "state_dict_extra_keys"));

    assert_int_equal(m->params.n, order.n);
    for (uint64_t i = 0; i < order.n; i++) {
        const zt_param *p = &m->params.at[i];
        ckpt_seq shape = ckpt_value_seq(shapes.at[i]);

        assert_string_equal(p->name, order.at[i]->as.text.at);
        assert_int_equal(p->ndim, shape.n);
        for (uint64_t j = 0; j < shape.n; j++)
            assert_int_equal(p->shape[j], shape.at[j]->as.i);
        assert_int_equal(p->no_decay, shape.n == 1);
        assert_int_equal(mc_find(m, p->name), i);
    }
    assert_int_equal(zt_model_count(m, false), ckpt_value_get(entry, "numel")->as.i);
    assert_int_equal(m->aliases.n, extra.n);
    for (uint64_t i = 0; i < extra.n; i++)
        assert_int_not_equal(mc_find(m, extra.at[i]->as.text.at), UINT32_MAX);
}

/* Each layer names its parameters, all are named, and `layer` is the first that does. */
static void check_layers(const zt_model *m)
{
    uint32_t first[128];

    assert_true(m->params.n <= sizeof first / sizeof *first);
    memset(first, 0xff, sizeof first);
    assert_int_equal(m->layers.n, m->config.layers + 2);
    for (uint32_t l = 0; l < m->layers.n; l++) {
        assert_int_equal(m->layers.at[l].number, l);
        for (uint32_t i = 0; i < m->layers.at[l].n_params; i++) {
            uint32_t p = m->layers.at[l].param[i];

            assert_true(p < m->params.n);
            first[p] = first[p] == UINT32_MAX ? l : first[p];
        }
    }
    for (size_t i = 0; i < m->params.n; i++)
        assert_int_equal(m->params.at[i].layer, first[i]);
}

static void check_models(const char *folder, const char *const *name, size_t n)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *all = NULL;
    zt_device *d = NULL;
    char path[512];

    (void)snprintf(path, sizeof path, "%s/models.json", folder);
    assert_int_equal(zt_hjson_read(&all, arena, path, NULL), CKPT_OK);
    assert_int_equal(zt_cpu_new(&d, 1, NULL), CKPT_OK);
    for (size_t i = 0; i < n; i++) {
        const ckpt_value *entry = mc_entry(all, name[i]);
        zt_model *m = build(arena, d, entry, NULL);

        check_structure(m, entry);
        check_layers(m);
        assert_int_equal(mc_find(m, "no.such.name"), UINT32_MAX);
        zt_model_free(m);
    }
    zt_device_free(d);
    ckpt_arena_free(arena);
}

static void structure(void **state)
{
    (void)state;
    check_models(GOLDEN, names, N_NAMES);
    check_models(KIN, kin, N_KIN);
}

static void initial_kinds(void **state)
{
    mc_case c;
    const zt_param *p;

    (void)state;
    open_case(&c, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32});
    p = &c.model->params.at[mc_find(c.model, "transformer.h.1.attn.c_proj.weight")];
    assert_int_equal(p->init, ZT_INIT_NORMAL);
    assert_true(fabs((double)p->init_std - 0.02 / sqrt(4.0)) < 1e-8); // 2 layers, 2 branches each
    p = &c.model->params.at[mc_find(c.model, "transformer.h.1.ln_2.weight")];
    assert_int_equal(p->init, ZT_INIT_ONE);
    p = &c.model->params.at[mc_find(c.model, "transformer.h.1.mlp.c_fc.bias")];
    assert_int_equal(p->init, ZT_INIT_ZERO);
    mc_close(&c);
}

/* ---- recorded numbers ---- */

static void check_golden(const char *folder, const char *name)
{
    mc_case c;
    mc_result r;

    if (mc_open(&c, folder, name, &(mc_opts){.dtype = CKPT_F32}) != CKPT_OK ||
        mc_compare(&c, &r) != CKPT_OK) {
        fail_msg("%s: %s", name, c.err.text);
    }
    assert_true(fabs(r.loss - r.want_loss) <= 1e-6 * fabs(r.want_loss));
    assert_true(fabs(r.norm - r.want_norm) <= 1e-5 * r.want_norm);
    assert_true(r.worst_logit <= 5e-6);
    assert_true(r.worst_hidden <= 5e-6);
    if (r.worst_grad > 1e-5)
        fail_msg("%s: gradient of %s is off by %g", name, r.worst_name, r.worst_grad);
    mc_close(&c);
}

static void golden_fp32(void **state)
{
    const char *shared = getenv("CKPT_SHARED");

    (void)state;
    for (size_t i = 0; i < sizeof with_tensors / sizeof *with_tensors; i++)
        check_golden(home_of(with_tensors[i]), with_tensors[i]);
    for (size_t i = 0; i < N_KIN; i++)
        check_golden(KIN, kin[i]);
    for (size_t i = 0; shared && i < N_NAMES; i++) {
        char folder[512];

        snprintf(folder, sizeof folder, "%s/golden", shared);
        check_golden(folder, names[i]);
    }
}

static void check_low(const char *folder, const char *name, ckpt_dtype dtype, const char *text)
{
    mc_case c;
    mc_result r;
    bool bf16 = dtype == CKPT_BF16;
    double want, ulp;

    if (mc_open(&c, folder, name, &(mc_opts){.dtype = dtype}) != CKPT_OK)
        fail_msg("%s: %s", name, c.err.text);
    assert_int_equal(mc_compare(&c, &r), CKPT_OK);
    want = mc_want(&c, text, "loss");
    ulp = ldexp(1.0, ilogb(want) - (bf16 ? 7 : 10));
    if (strncmp(name, "bert", 4) == 0) { // the loss has the model's dtype
        assert_true(fabs(r.loss - want) <= ulp);
        assert_true(r.loss / ulp == floor(r.loss / ulp));
    } else {
        assert_true(fabs(r.loss - want) <= (bf16 ? 2e-3 : 3e-4));
    }
    want = mc_want(&c, text, "gradnorm");
    // norms of the branches' outputs enlarge the roundings of transformers' steps
    assert_true(fabs(r.norm - want) <=
                want * (bf16 ? 5e-3 : 6e-4) * (c.model->config.norm_branch ? 2 : 1));
    mc_close(&c);
}

static void golden_16_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof with_tensors / sizeof *with_tensors; i++) {
        check_low(home_of(with_tensors[i]), with_tensors[i], CKPT_BF16, "bf16");
        check_low(home_of(with_tensors[i]), with_tensors[i], CKPT_F16, "fp16");
    }
    for (size_t i = 0; i < N_KIN; i++) {
        check_low(KIN, kin[i], CKPT_BF16, "bf16");
        check_low(KIN, kin[i], CKPT_F16, "fp16");
    }
}

/* ---- passes ---- */

static bool all_finite(const float *v, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            return false;
    }
    return true;
}

/* A second pass adds to the gradients; scale and accumulation steps multiply them. */
static void accumulation(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof with_tensors / sizeof *with_tensors; k++) {
        mc_case c;
        uint64_t n;
        const float *once, *twice, *scaled;

        open_case(&c, with_tensors[k], &(mc_opts){.dtype = CKPT_F32});
        mc_clear(&c);
        mc_train(&c, 1, 1, 1);
        once = gradients(&c, &n);
        mc_train(&c, 1, 1, 1);
        twice = gradients(&c, &n);
        mc_clear(&c);
        mc_train(&c, 1, 16, 4);
        scaled = gradients(&c, &n);
        for (uint64_t i = 0; i < n; i++) {
            assert_true(fabs((double)twice[i] - 2 * (double)once[i]) <= 1e-6 * mc_largest(once, n));
            assert_true(scaled[i] == 4 * once[i]);
        }
        mc_close(&c);
    }
}

/* A scale that is no finite number of the loss' dtype spoils the gradients of BERT, not those of
 * GPT-2. */
static void scale_of_fp16(void **state)
{
    const struct {
        const char *name;
        double scale;
        bool finite;
    } cases[] = {
        {"bert_cls", 32768, true}, {"bert_cls", 65536, false}, {"gpt2_masked", 65536, true}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mc_case c;
        uint64_t n;
        const float *g;

        open_case(&c, cases[i].name, &(mc_opts){.dtype = CKPT_F16});
        mc_clear(&c);
        assert_true(isfinite(mc_train(&c, 1, cases[i].scale, 1)));
        g = gradients(&c, &n);
        assert_int_equal(all_finite(g, n), cases[i].finite);
        mc_close(&c);
    }
}

/* The scale is divided in the loss' dtype: 8 / 3 in bf16 is 2.671875, so gradients are those of a
 * scale of that. */
static void factor_is_rounded(void **state)
{
    mc_case c;
    uint64_t n;
    const float *a, *b;

    (void)state;
    open_case(&c, "bert_cls", &(mc_opts){.dtype = CKPT_BF16});
    mc_clear(&c);
    mc_train(&c, 1, 8, 3);
    a = gradients(&c, &n);
    mc_clear(&c);
    mc_train(&c, 1, 2.671875, 1);
    b = gradients(&c, &n);
    assert_memory_equal(a, b, n * sizeof *a);
    mc_close(&c);
}

/* Logits in chunks of few rows give the same loss and gradients as all at once. */
static void logits_in_chunks(void **state)
{
    mc_case c;
    uint64_t n;
    const float *a, *b;
    double loss, chunked;

    (void)state;
    open_case(&c, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32});
    mc_clear(&c);
    loss = mc_train(&c, 1, 1, 1);
    a = gradients(&c, &n);
    c.model->max_logits = 4 * 97 * sizeof(float); // 4 rows
    mc_clear(&c);
    chunked = mc_train(&c, 1, 1, 1);
    b = gradients(&c, &n);
    assert_true(fabs(loss - chunked) <= 1e-6 * loss);
    assert_true(mc_distance(a, b, n) <= 1e-6 * mc_largest(a, n));
    assert_true(fabs(mc_evaluate(&c, NULL) - loss) <= 1e-6 * loss);
    c.model->max_logits = 1; // less than a row: one at a time
    assert_true(fabs(mc_evaluate(&c, NULL) - loss) <= 1e-6 * loss);
    mc_close(&c);
    open_case(&c, "gemma2", &(mc_opts){.dtype = CKPT_F32}); // capped logits need twice the memory
    loss = mc_train(&c, 1, 1, 1);
    c.model->max_logits = 4 * 41 * sizeof(float);
    mc_clear(&c);
    assert_true(fabs(mc_train(&c, 1, 1, 1) - loss) <= 1e-6 * loss);
    assert_true(fabs(mc_evaluate(&c, NULL) - loss) <= 1e-6 * loss);
    mc_close(&c);
}

/* LongRoPE has other angles for long samples: a table of one kind is not used for the other. */
static void long_and_short(void **state)
{
    mc_case c, other;
    double before, small;
    const float *logits;
    float first;

    (void)state;
    open_case(&c, "phi4", &(mc_opts){.dtype = CKPT_F32});
    before = mc_evaluate(&c, NULL);
    c.batch.seq = 8; // the length of pretraining
    small = mc_evaluate(&c, c.logits);
    logits = mc_get_values(&c, c.logits, 1);
    first = logits[0];
    c.batch.seq = 13;
    assert_true(mc_evaluate(&c, NULL) == before);
    open_case(&other, "phi4", &(mc_opts){.dtype = CKPT_F32});
    other.batch.seq = 8;
    assert_true(mc_evaluate(&other, other.logits) == small);
    assert_true(mc_get_values(&other, other.logits, 1)[0] == first);
    mc_close(&other);
    mc_close(&c);
}

static void nothing_to_predict(void **state)
{
    mc_case c;
    uint64_t n;
    const float *g;
    int32_t *labels;
    uint64_t rows;

    (void)state;
    open_case(&c, "llama_gqa", &(mc_opts){.dtype = CKPT_F32});
    rows = c.batch.batch * c.batch.seq;
    labels = ckpt_arena_array(c.arena, rows, sizeof *labels);
    for (uint64_t i = 0; i < rows; i++) {
        labels[i] = i % c.batch.seq == 0
                        ? 5
                        : ZT_IGNORE; // the first label of a sequence is nobody's next token
    }
    c.device->ops->release(c.device, (void *)(uintptr_t)c.batch.labels);
    c.batch.labels = mc_put(&c, labels, rows * sizeof *labels);
    mc_clear(&c);
    assert_true(isnan(mc_train(&c, 1, 1, 1)));
    g = gradients(&c, &n);
    assert_true(mc_largest(g, n) == 0.0);
    assert_true(isnan(mc_evaluate(&c, NULL)));
    assert_int_equal(zt_device_check(c.device, NULL), CKPT_OK);
    mc_close(&c);
}

static void no_labels(void **state)
{
    mc_case c;
    zt_batch batch;
    ckpt_err err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof with_tensors / sizeof *with_tensors; i++) {
        open_case(&c, with_tensors[i], &(mc_opts){.dtype = CKPT_F32});
        batch = c.batch;
        c.batch.labels = NULL;
        assert_true(isnan(mc_evaluate(&c, c.logits))); // logits alone
        assert_int_equal(zt_device_check(c.device, NULL), CKPT_OK);
        mc_clear(&c);
        mc_train(&c, 1, 1, 1);
        assert_int_equal(zt_device_check(c.device, &err), CKPT_EUSAGE);
        c.batch = batch;
        mc_close(&c);
    }
}

/* ---- gradients of what is not recorded, by differences ---- */

static void edit_dropout(zt_model_config *f)
{
    f->dropout_embed = 0.1F;
    f->dropout_attention = 0.2F;
    f->dropout_hidden = f->arch == ZT_LLAMA && !f->fused ? 0.0F : 0.3F;
    f->dropout_classifier = 0.4F;
}

static void dropout_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof with_tensors / sizeof *with_tensors; i++) {
        mc_case c;

        open_case(&c, with_tensors[i], &(mc_opts){.dtype = CKPT_F32, .edit = edit_dropout});
        check_by_differences(&c, 7);
        mc_close(&c);
    }
}

/* Masks follow from the seed alone; evaluation has none. */
static void dropout_seeds(void **state)
{
    mc_case c;
    uint64_t n;
    const float *a, *b, *other;
    double loss, same, differs;

    (void)state;
    open_case(&c, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32, .edit = edit_dropout});
    mc_clear(&c);
    loss = mc_train(&c, 1, 1, 1);
    a = gradients(&c, &n);
    mc_clear(&c);
    same = mc_train(&c, 1, 1, 1);
    b = gradients(&c, &n);
    mc_clear(&c);
    differs = mc_train(&c, 2, 1, 1);
    other = gradients(&c, &n);
    assert_true(loss == same);
    assert_memory_equal(a, b, n * sizeof *a);
    assert_true(loss != differs);
    assert_true(mc_distance(a, other, n) > 0);
    assert_true(fabs(mc_evaluate(&c, NULL) - 4.59084177) < 1e-5); // as recorded without dropout
    mc_close(&c);
}

static void edit_multi_label(zt_model_config *f)
{
    f->multi_label = true;
}

static void multi_label(void **state)
{
    mc_case c;
    uint64_t n = 0;
    const float *logits;
    float *target;
    double want = 0;

    (void)state;
    open_case(&c, "bert_cls", &(mc_opts){.dtype = CKPT_F32, .edit = edit_multi_label});
    logits = mc_read(&c, "", "logits", CKPT_F32, &n);
    assert_int_equal(n, 18);
    target = ckpt_arena_array(c.arena, n, sizeof *target);
    for (uint64_t i = 0; i < n; i++) {
        target[i] = i % 3 == 0 ? 1.0F : 0.0F;
        want += log1p(exp(target[i] > 0 ? -(double)logits[i] : (double)logits[i])) / (double)n;
    }
    c.batch.targets = mc_put(&c, target, n * sizeof *target);
    assert_true(fabs(mc_evaluate(&c, NULL) - want) < 1e-6);
    check_by_differences(&c, 1);
    mc_close(&c);
}

/* ---- a classifier's last block, which works on the first rows alone ---- */

static void edit_one_block(zt_model_config *f)
{
    f->layers = 1;
}

/* All rows are first ones; and the block is the first as well. */
static void short_last_block(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        mc_case c;
        const int32_t *mask;

        open_case(&c, "bert_cls",
                  &(mc_opts){.dtype = CKPT_F32, .edit = i % 2 == 1 ? edit_one_block : NULL});
        mask = c.batch.attention_mask;
        if (i >= 2) {
            c.batch.seq = 1;
            c.batch.attention_mask = NULL;
        }
        check_by_differences(&c, 1);
        c.batch.attention_mask = mask; // to be released
        mc_close(&c);
    }
}

/* ---- freezing ---- */

/* Frozen parameters get no gradient; the others get the same as before. */
static void freezing(void **state)
{
    static const char *const globs[] = {"bert.embeddings.*,bert.encoder.layer.0.*",
                                        "transformer.w?e.*,*.ln_1.*",
                                        "model.embed_tokens.weight,model.layers.*",
                                        "model.decoder.embed_*,*.fc1.*",
                                        "*.project_in.*,*.final_layer_norm.*",
                                        "gpt_neox.embed_in.*,*.query_key_value.*",
                                        "transformer.word_emb*,*.dense.*",
                                        "*.self_attn.?_norm.*,*.up_proj.*",
                                        "*.embed_tokens.*,*.k_proj.*,*.pre_*",
                                        "*.qkv_proj.*,*.down_proj.*",
                                        "*.q_norm.*,*.layers.1.*"};

    (void)state;
    for (size_t k = 0; k < sizeof with_tensors / sizeof *with_tensors; k++) {
        mc_case c;
        size_t n = 0;
        float **want;

        open_case(&c, with_tensors[k], &(mc_opts){.dtype = CKPT_F32});
        want = ckpt_arena_array(c.arena, c.model->params.n, sizeof *want);
        mc_clear(&c);
        mc_train(&c, 1, 1, 1);
        for (size_t i = 0; i < c.model->params.n; i++) {
            want[i] = mc_get_values(&c, c.grad[i], c.model->params.at[i].n_elems);
            c.device->ops->zero(c.device, c.grad[i], c.model->params.at[i].n_elems * 4);
        }
        assert_int_equal(zt_model_freeze(c.model, globs[k], &n, NULL), CKPT_OK);
        assert_true(n > 0 && n < c.model->params.n);
        assert_true(zt_model_count(c.model, true) < zt_model_count(c.model, false));
        mc_clear(&c);
        mc_train(&c, 1, 1, 1);
        for (size_t i = 0; i < c.model->params.n; i++) {
            const zt_param *p = &c.model->params.at[i];
            const float *got = mc_get_values(&c, c.grad[i], p->n_elems);

            assert_true(p->frozen ? mc_largest(got, p->n_elems) == 0
                                  : mc_distance(got, want[i], p->n_elems) == 0);
        }
        mc_close(&c);
    }
}

static void freezing_nothing(void **state)
{
    mc_case c;
    ckpt_err err = {0};
    size_t n = 1;

    (void)state;
    open_case(&c, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32});
    assert_int_equal(zt_model_freeze(c.model, "", &n, &err), CKPT_OK);
    assert_int_equal(n, 0);
    assert_int_equal(zt_model_freeze(c.model, "transformer.wte.*,nobody.*", &n, &err), CKPT_EUSAGE);
    assert_non_null(strstr(err.text, "nobody.*"));
    mc_close(&c);
}

/* ---- refusals ---- */

static int check_with(mc_case *c, const int32_t *ids, const int32_t *mask, const int32_t *kinds,
                      const int32_t *labels)
{
    zt_batch b = c->host;

    b.input_ids = ids;
    b.attention_mask = mask;
    b.token_type_ids = kinds;
    b.labels = labels;
    c->err = (ckpt_err){0};
    return zt_model_check_batch(c->model, &b, &c->err);
}

static void batches(void **state)
{
    mc_case c;
    int32_t good[33] = {0}, high[33] = {0}, low[33] = {0}, two[33] = {0};
    int32_t label[3] = {5, 0, ZT_IGNORE}, bad_label[3] = {0, 6, 0};
    const int32_t gaps[39] = {0, 1, 1, 0, 1};
    zt_batch b;

    (void)state;
    open_case(&c, "bert_cls", &(mc_opts){.dtype = CKPT_F32});
    high[32] = 67;
    low[32] = -1;
    two[32] = 2;
    assert_int_equal(check_with(&c, good, good, good, label), CKPT_OK);
    assert_int_equal(check_with(&c, good, NULL, NULL, NULL), CKPT_OK);
    assert_int_equal(check_with(&c, NULL, NULL, NULL, NULL), CKPT_EMISSING);
    assert_int_equal(check_with(&c, high, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_non_null(strstr(c.err.text, "input_ids"));
    assert_int_equal(check_with(&c, low, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_int_equal(check_with(&c, good, two, NULL, NULL), CKPT_EFORMAT);
    assert_int_equal(check_with(&c, good, NULL, two, NULL), CKPT_EFORMAT);
    assert_int_equal(check_with(&c, good, NULL, NULL, bad_label), CKPT_EFORMAT);
    b = c.host;
    b.seq = 21; // the model has 20 positions
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_EFORMAT);
    b.seq = UINT64_MAX / 2;
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_EFORMAT);
    b.seq = 0;
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_EFORMAT);
    mc_close(&c);
    open_case(&c, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32});
    assert_int_equal(check_with(&c, good, NULL, good, NULL), CKPT_EUNSUPPORTED);
    mc_close(&c);
    open_case(&c, "bloom", &(mc_opts){.dtype = CKPT_F32});
    b = c.host;
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_OK);
    b.attention_mask = gaps;
    assert_int_equal(zt_model_check_batch(c.model, &b, &c.err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(c.err.text, "sample 0 has a gap"));
    mc_close(&c);
}

static zt_model_config bad_config;

static void edit_bad(zt_model_config *f)
{
    bad_config.json = f->json;
    f->heads = bad_config.heads != 0 ? bad_config.heads : f->heads;
    f->vocab = bad_config.vocab != 0 ? bad_config.vocab : f->vocab;
    f->head_width = bad_config.head_width != 0 ? bad_config.head_width : f->head_width;
    f->inner = bad_config.inner != 0 ? bad_config.inner : f->inner;
}

static void bad_configs(void **state)
{
    static const zt_model_config cases[] = {
        {.heads = 5}, {.vocab = UINT64_MAX}, {.head_width = 7}, {.inner = UINT64_C(1) << 60}};
    static const int codes[] = {CKPT_EFORMAT, CKPT_ELIMIT, CKPT_EFORMAT, CKPT_ELIMIT};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mc_case c;

        bad_config = cases[i];
        assert_int_equal(
            mc_open(&c, GOLDEN, "llama_gqa", &(mc_opts){.dtype = CKPT_F32, .edit = edit_bad}),
            codes[i]);
        mc_close(&c);
    }
}

/* Each allocation fails once: an error, no leak, no crash. */
static void memory_fails(void **state)
{
    static const zt_lora lora = {.rank = 3, .alpha = 6, .targets = "all-linear"};
    mc_case c;
    uint64_t n = 0;

    (void)state;
    open_case(&c, "bert_cls", &(mc_opts){.dtype = CKPT_F32});
    for (int rc = CKPT_ELIMIT; rc != CKPT_OK; n++) {
        zt_model *m = NULL;
        ckpt_err err = {0};

        ckpt_alloc_fail_at(n);
        rc = zt_model_new(&m, c.device, CKPT_F32, &c.model->config, &lora, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        assert_true(rc == CKPT_OK || rc == CKPT_ELIMIT);
        assert_int_equal(rc == CKPT_OK, m != NULL);
        zt_model_free(m);
    }
    assert_true(n > 5);
    mc_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structure),         cmocka_unit_test(initial_kinds),
        cmocka_unit_test(golden_fp32),       cmocka_unit_test(golden_16_bits),
        cmocka_unit_test(accumulation),      cmocka_unit_test(scale_of_fp16),
        cmocka_unit_test(factor_is_rounded), cmocka_unit_test(logits_in_chunks),
        cmocka_unit_test(long_and_short),    cmocka_unit_test(nothing_to_predict),
        cmocka_unit_test(no_labels),         cmocka_unit_test(dropout_gradients),
        cmocka_unit_test(dropout_seeds),     cmocka_unit_test(multi_label),
        cmocka_unit_test(short_last_block),  cmocka_unit_test(freezing),
        cmocka_unit_test(freezing_nothing),  cmocka_unit_test(batches),
        cmocka_unit_test(bad_configs),       cmocka_unit_test(memory_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
