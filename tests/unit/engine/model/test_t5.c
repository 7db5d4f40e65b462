/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_t5.c: T5: parameters, losses and gradients against those that tests/replay/record_models.py
 * recorded of transformers in tests/fixtures/models_t5; dropout and adapters by differences of the
 * loss; the decoder's input.
 *
 * t5 has tied embeddings, ReLU, three decoder blocks for two of the encoder, and padded sources;
 * t5_gated has a map to the vocabulary of its own, gated GELU, and a longer target than source.
 */
#include "tests/unit/engine/model/help.h"

#define FOLDER "tests/fixtures/models_t5"

static const char *const names[] = {"t5", "t5_gated"};

static void open_t5(mc_case *c, const char *name, const mc_opts *opts)
{
    if (mc_open(c, FOLDER, name, opts) != CKPT_OK)
        fail_msg("%s: %s", name, c->err.text);
}

/* ---- structure ---- */

static void check_order(const mc_case *c)
{
    const zt_model *m = c->model;
    ckpt_seq order = ckpt_value_seq(ckpt_value_get(c->entry, "param_order"));
    ckpt_seq shapes = ckpt_value_seq(ckpt_value_get(c->entry, "shapes"));
    ckpt_seq extra = ckpt_value_seq(ckpt_value_get(c->entry, "state_dict_extra_keys"));

    assert_int_equal(m->params.n, order.n);
    for (uint64_t i = 0; i < order.n; i++) {
        ckpt_seq shape = ckpt_value_seq(shapes.at[i]);

        assert_string_equal(m->params.at[i].name, order.at[i]->as.text.at);
        assert_int_equal(m->params.at[i].ndim, shape.n);
        for (uint64_t j = 0; j < shape.n; j++)
            assert_int_equal(m->params.at[i].shape[j], shape.at[j]->as.i);
    }
    assert_int_equal(zt_model_count(m, false), ckpt_value_get(c->entry, "numel")->as.i);
    assert_int_equal(m->aliases.n, extra.n);
    for (uint64_t i = 0; i < extra.n; i++)
        assert_int_equal(mc_find(m, extra.at[i]->as.text.at), 0); // shared.weight
}

static double std_of(const mc_case *c, const char *name)
{
    return (double)c->model->params.at[mc_find(c->model, name)].init_std;
}

static void structure(void **state)
{
    mc_case c;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        open_t5(&c, names[i], &(mc_opts){.dtype = CKPT_F32});
        check_order(&c);
        // embedding, blocks, bridge, head
        assert_int_equal(c.model->layers.n,
                         c.model->config.layers + c.model->config.decoder_layers + (uint64_t)3);
        assert_true(fabs(std_of(&c, "shared.weight") - 1) < 1e-6);
        assert_true(fabs(std_of(&c, "encoder.block.1.layer.0.SelfAttention.k.weight") -
                         1 / sqrt(24.0)) < 1e-6);
        assert_true(fabs(std_of(&c, "decoder.block.0.layer.1.EncDecAttention.q.weight") -
                         1 / sqrt(24.0 * (double)c.model->config.head_width)) < 1e-6);
        mc_close(&c);
    }
}

/* ---- recorded numbers ---- */

static void recorded_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        mc_case c;
        mc_result r;

        open_t5(&c, names[i], &(mc_opts){.dtype = CKPT_F32});
        assert_int_equal(mc_compare(&c, &r), CKPT_OK);
        assert_true(fabs(r.loss - r.want_loss) <= 1e-6 * fabs(r.want_loss));
        assert_true(fabs(r.norm - r.want_norm) <= 1e-6 * r.want_norm);
        assert_true(r.worst_logit <= 2e-6 && r.worst_hidden <= 2e-6);
        if (r.worst_grad > 2e-6)
            fail_msg("%s: gradient of %s is off by %g", names[i], r.worst_name, r.worst_grad);
        mc_close(&c);
    }
}

/* The loss has the model's dtype; transformers rounds scores, which are not scaled down here. */
static void recorded_16_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool bf16 = i < 2;
        mc_case c;
        mc_result r;
        double want, ulp;

        open_t5(&c, names[i % 2], &(mc_opts){.dtype = bf16 ? CKPT_BF16 : CKPT_F16});
        assert_int_equal(mc_compare(&c, &r), CKPT_OK);
        want = mc_want(&c, bf16 ? "bf16" : "fp16", "loss");
        ulp = ldexp(1.0, ilogb(want) - (bf16 ? 7 : 10));
        assert_true(fabs(r.loss - want) <= ulp);
        assert_true(r.loss / ulp == floor(r.loss / ulp));
        want = mc_want(&c, bf16 ? "bf16" : "fp16", "gradnorm");
        assert_true(fabs(r.norm - want) <= want * (bf16 ? 2e-2 : 6e-4));
        mc_close(&c);
    }
}

/* ---- gradients of what is not recorded ---- */

/* ReLU has a kink, at which a difference is no gradient, so these cases have GELU. */
static void edit_dropout(zt_model_config *f)
{
    f->dropout_embed = 0.1F;
    f->dropout_attention = 0.2F;
    f->dropout_hidden = 0.3F;
    f->act = ZT_GELU_TANH;
}

static void edit_short_decoder(zt_model_config *f)
{
    f->act = ZT_GELU_TANH;
    f->decoder_layers = 1;
}

static void edit_one_block(zt_model_config *f)
{
    f->act = ZT_GELU_TANH;
    f->layers = 1;
}

static void gradients_by_differences(void **state)
{
    static const zt_lora lora = {.rank = 3, .alpha = 6, .dropout = 0.25F, .targets = "all-linear"};
    static const mc_opts opts[] = {{.dtype = CKPT_F32, .edit = edit_dropout},
                                   {.dtype = CKPT_F32, .edit = edit_short_decoder},
                                   {.dtype = CKPT_F32, .edit = edit_one_block},
                                   {.dtype = CKPT_F32, .edit = edit_dropout, .lora = &lora}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof opts / sizeof *opts; i++) {
        mc_case c;

        open_t5(&c, names[i % 2], &opts[i / 2]);
        check_by_differences(&c, 5);
        mc_close(&c);
    }
}

/* A second pass adds to the gradients of shared parameters too. */
static void accumulation(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        mc_case c;
        uint64_t n;
        const float *once, *twice;

        open_t5(&c, names[k], &(mc_opts){.dtype = CKPT_F32});
        mc_clear(&c);
        mc_train(&c, 1, 1, 1);
        once = gradients(&c, &n);
        mc_train(&c, 1, 1, 1);
        twice = gradients(&c, &n);
        for (uint64_t i = 0; i < n; i++)
            assert_true(fabs((double)twice[i] - 2 * (double)once[i]) <= 1e-6 * mc_largest(once, n));
        mc_close(&c);
    }
}

/* With the encoder frozen, the decoder's gradients stay as they were; and the other way round. */
static void freezing(void **state)
{
    static const char *const globs[] = {"shared.weight,encoder.*", "decoder.*,lm_head.*"};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        mc_case all, some;

        open_t5(&all, "t5_gated", &(mc_opts){.dtype = CKPT_F32});
        open_t5(&some, "t5_gated", &(mc_opts){.dtype = CKPT_F32});
        assert_int_equal(zt_model_freeze(some.model, globs[k], NULL, &some.err), CKPT_OK);
        mc_clear(&all);
        mc_clear(&some);
        mc_train(&all, 1, 1, 1);
        mc_train(&some, 1, 1, 1);
        for (size_t i = 0; i < all.model->params.n; i++) {
            const uint64_t n = all.model->params.at[i].n_elems;

            if (some.model->params.at[i].frozen)
                assert_false(some.model->params.at[i].g_add); // nothing was written
            else
                assert_memory_equal(mc_get_values(&some, some.grad[i], n),
                                    mc_get_values(&all, all.grad[i], n), n * sizeof(float));
        }
        mc_close(&all);
        mc_close(&some);
    }
}

/* ---- adapters, batches, devices ---- */

static void lora_defaults(void **state)
{
    static const zt_lora lora = {.rank = 2, .alpha = 4};
    const ckpt_value *config;
    mc_case c;

    (void)state;
    open_t5(&c, "t5", &(mc_opts){.dtype = CKPT_F32, .lora = &lora});
    assert_string_equal(c.model->lora.targets, "q,v"); // PEFT's for T5
    config = zt_lora_config(c.model, c.arena, NULL);
    assert_true(ckpt_value_is(ckpt_value_get(config, "task_type"), "SEQ_2_SEQ_LM"));
    assert_int_not_equal(
        mc_find(c.model, "decoder.block.2.layer.1.EncDecAttention.q.lora_A.weight"), UINT32_MAX);
    assert_int_equal(mc_find(c.model, "encoder.block.0.layer.0.SelfAttention.k.lora_A.weight"),
                     UINT32_MAX);
    mc_close(&c);
}

static void shifting(void **state)
{
    static const int32_t labels[] = {5, 6, -100, 7, -100, 9};
    static const int32_t want[] = {2, 5, 6, 2, 7, 1};
    const zt_model_config f = {.decoder_start = 2, .decoder_pad = 1};
    int32_t got[6];

    (void)state;
    zt_model_shift(&f, labels, 2, 3, got);
    assert_memory_equal(got, want, sizeof want);
}

static void bad_batches(void **state)
{
    static const int32_t outside[] = {0, 61, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                      0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    mc_case c;
    zt_batch b;

    (void)state;
    open_t5(&c, "t5", &(mc_opts){.dtype = CKPT_F32});
    b = c.host;
    b.decoder_input_ids = NULL;
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_EMISSING);
    b.decoder_input_ids = outside;
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_EFORMAT);
    b = c.host;
    b.labels = outside;
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_EFORMAT);
    b = c.host;
    b.decoder_seq = UINT64_MAX;
    assert_int_equal(zt_model_check_batch(c.model, &b, NULL), CKPT_EFORMAT);
    mc_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structure),     cmocka_unit_test(recorded_fp32),
        cmocka_unit_test(accumulation),  cmocka_unit_test(recorded_16_bits),
        cmocka_unit_test(freezing),      cmocka_unit_test(gradients_by_differences),
        cmocka_unit_test(lora_defaults), cmocka_unit_test(shifting),
        cmocka_unit_test(bad_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
