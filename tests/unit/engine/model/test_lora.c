/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lora.c: adapters: gradients through them, names and settings as PEFT has them.
 */
#include "libckpt/codec/json/json.h"
#include "tests/unit/engine/model/help.h"
#include "tests/unit/unit.h"

static const zt_lora lora_all = {.rank = 3, .alpha = 6, .dropout = 0.25F, .targets = "all-linear"};

/* Gradients through adapters on every kind of map, packed, with an activation, transposed, with
 * dropout. */
static void lora_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof with_tensors / sizeof *with_tensors; i++) {
        mc_case c;
        zt_lora plain = lora_all;

        open_case(&c, with_tensors[i], &(mc_opts){.dtype = CKPT_F32, .lora = &lora_all});
        check_by_differences(&c, 3);
        mc_close(&c);
        plain.dropout = 0;
        open_case(&c, with_tensors[i], &(mc_opts){.dtype = CKPT_F32, .lora = &plain});
        check_by_differences(&c, 3);
        mc_close(&c);
    }
}

/* With b zero the base model's results are unchanged, bit for bit. */
static void lora_begins_as_base(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof with_tensors / sizeof *with_tensors; k++) {
        mc_case base, c;

        open_case(&base, with_tensors[k], &(mc_opts){.dtype = CKPT_BF16});
        open_case(&c, with_tensors[k], &(mc_opts){.dtype = CKPT_BF16, .lora = &lora_all});
        for (size_t i = 0; i < c.model->params.n; i++) {
            if (strstr(c.model->params.at[i].name, "lora_B"))
                c.device->ops->zero(c.device, c.weight[i], c.model->params.at[i].n_elems * 2);
        }
        assert_true(mc_evaluate(&c, NULL) == mc_evaluate(&base, NULL));
        mc_close(&base);
        mc_close(&c);
    }
}

static void lora_names(void **state)
{
    zt_lora lora = {.rank = 2, .alpha = 4};
    mc_case c;
    uint32_t w, a;
    size_t n = 0;
    const zt_alias *saved;

    (void)state;
    open_case(&c, "bert_cls", &(mc_opts){.dtype = CKPT_F32, .lora = &lora});
    assert_string_equal(c.model->lora.targets, "query,value"); // PEFT's for BERT
    w = mc_find(c.model, "bert.encoder.layer.1.attention.self.value.weight");
    a = mc_find(c.model, "bert.encoder.layer.1.attention.self.value.lora_A.weight");
    assert_int_equal(a, w + 2); // after weight and bias
    assert_int_equal(c.model->params.at[a].shape[0], 2);
    assert_int_equal(c.model->params.at[a].shape[1], 24);
    assert_int_equal(c.model->params.at[a + 1].shape[0], 24);
    assert_int_equal(c.model->params.at[a + 1].init, ZT_INIT_ZERO);
    assert_true(c.model->params.at[w].frozen);
    assert_false(c.model->params.at[a].frozen);
    // two maps in two layers, and the classifier of 6 classes
    assert_int_equal(zt_model_count(c.model, true), 2 * 2 * 2 * 2 * 24 + 6 * 24 + 6);
    saved = zt_lora_saved(c.model, c.arena, &n);
    assert_int_equal(n, 2 * 2 * 2 + 2);
    assert_string_equal(saved[0].name,
                        "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight");
    assert_string_equal(saved[n - 1].name, "base_model.model.classifier.bias");
    for (size_t i = 0; i < n; i++)
        assert_true(saved[i].param < c.model->params.n);
    mc_close(&c);
}

/* adapter_config.json as PEFT writes it, but for keys that have their defaults. */
static void lora_config(void **state)
{
    static const char expected[] =
        "{\"base_model_name_or_path\":null,\"bias\":\"none\",\"fan_in_fan_out\":true,"
        "\"inference_mode\":true,\"init_lora_weights\":true,\"lora_alpha\":4.5,"
        "\"lora_dropout\":0.1,\"modules_to_save\":null,\"peft_type\":\"LORA\",\"r\":2,"
        "\"target_modules\":[\"c_attn\",\"mlp.c_proj\"],\"task_type\":\"CAUSAL_LM\","
        "\"use_dora\":false,\"use_rslora\":false}";
    static const ckpt_json_style style = {.indent = 0};
    zt_lora lora = {.rank = 2, .alpha = 4.5, .dropout = 0.1F, .targets = "c_attn, mlp.c_proj"};
    ckpt_bytes text = {0};
    const ckpt_value *config;
    mc_case c;

    (void)state;
    open_case(&c, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32, .lora = &lora});
    config = zt_lora_config(c.model, c.arena, NULL);
    assert_non_null(config);
    assert_int_equal(ckpt_json_write(&text, config, &style, &c.err), CKPT_OK);
    assert_int_equal(text.n, strlen(expected));
    assert_memory_equal(text.at, expected, text.n);
    ckpt_vec_free(&text);
    mc_close(&c);
}

static void lora_bad_targets(void **state)
{
    static const zt_lora bad[] = {
        {.rank = 2, .alpha = 4, .targets = "c_attn,nobody"},
        {.rank = 2, .alpha = 4, .targets = "attn"}, // part of a name
        {.rank = 2, .alpha = 4, .targets = "lm_head"},
        {.rank = 2, .alpha = 0},
        {.rank = 2, .alpha = 4, .dropout = 1},
        {.rank = 1U << 20, .alpha = 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mc_case c;

        assert_int_equal(
            mc_open(&c, GOLDEN, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32, .lora = &bad[i]}),
            CKPT_EUSAGE);
        assert_non_null(strstr(c.err.text, "LoRA"));
        mc_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_gradients),   cmocka_unit_test(lora_begins_as_base),
        cmocka_unit_test(lora_names),       cmocka_unit_test(lora_config),
        cmocka_unit_test(lora_bad_targets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
