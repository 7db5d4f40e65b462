/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lora.c: adapters: gradients through them, names and settings as PEFT has them.
 */
#include "tests/unit/engine/model/help.h"

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
    w = zt_model_find(c.model, "bert.encoder.layer.1.attention.self.value.weight");
    a = zt_model_find(c.model, "bert.encoder.layer.1.attention.self.value.lora_A.weight");
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
        assert_int_equal(zt_model_find(c.model, saved[i].name), saved[i].param);
    // names of a PEFT model in memory, as a DeepSpeed run of one has them
    assert_int_equal(
        zt_model_find(
            c.model,
            "base_model.model.bert.encoder.layer.1.attention.self.value.base_layer.weight"),
        w);
    assert_int_equal(
        zt_model_find(
            c.model,
            "base_model.model.bert.encoder.layer.1.attention.self.value.lora_A.default.weight"),
        a);
    assert_int_equal(
        zt_model_find(c.model, "base_model.model.classifier.modules_to_save.default.bias"),
        zt_model_find(c.model, "classifier.bias"));
    mc_close(&c);
}

/* What is written is read back the same. */
static void lora_config(void **state)
{
    char folder[] = "/tmp/zt_lora_XXXXXX";
    char path[64];
    zt_lora lora = {.rank = 2, .alpha = 4.5, .dropout = 0.125F, .targets = "c_attn, mlp.c_proj"};
    zt_lora back;
    mc_case c;
    const char *text;
    FILE *f;

    (void)state;
    open_case(&c, "gpt2_masked", &(mc_opts){.dtype = CKPT_F32, .lora = &lora});
    text = zt_lora_config_json(c.model, c.arena, "some \"base\"");
    assert_non_null(text);
    assert_non_null(strstr(text, "\"fan_in_fan_out\": true"));
    assert_non_null(strstr(text, "\"task_type\": \"CAUSAL_LM\""));
    assert_non_null(strstr(text, "\"some \\\"base\\\"\""));
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
    assert_int_equal(zt_lora_read(&back, c.arena, folder, &c.err), CKPT_OK);
    assert_int_equal(back.rank, 2);
    assert_true(back.alpha == 4.5 && back.dropout == 0.125F);
    assert_string_equal(back.targets, "c_attn,mlp.c_proj");
    unlink(path);
    rmdir(folder);
    mc_close(&c);
}

/* Write a text to a file and read it as an adapter's config. */
static int read_lora_text(ckpt_arena *arena, const char *text, ckpt_err *err)
{
    char path[] = "/tmp/zt_lora_XXXXXX";
    int fd = mkstemp(path);
    char *json = ckpt_arena_printf(arena, "%s.json", path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    zt_lora out;
    int rc;

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(rename(path, json), 0);
    ckpt_err_clear(err);
    rc = zt_lora_read(&out, arena, json, err);
    unlink(json);
    return rc;
}

static void lora_refusals(void **state)
{
#define LORA_OK "\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16"
    static const struct {
        const char *text, *says;
        int code;
    } cases[] = {
        {"{" LORA_OK "}", "", CKPT_OK},
        {"{" LORA_OK ", \"target_modules\": \"all-linear\", \"bias\": \"none\"}", "", CKPT_OK},
        {"{\"peft_type\": \"IA3\"}", "peft_type", CKPT_EUNSUPPORTED},
        {"{" LORA_OK ", \"use_dora\": true}", "use_dora", CKPT_EUNSUPPORTED},
        {"{" LORA_OK ", \"rank_pattern\": {\"a\": 1}}", "rank_pattern", CKPT_EUNSUPPORTED},
        {"{" LORA_OK ", \"bias\": \"all\"}", "bias", CKPT_EUNSUPPORTED},
        {"{" LORA_OK ", \"target_modules\": [\".*q\"]}", "target_modules", CKPT_EUNSUPPORTED},
        {"{" LORA_OK ", \"target_modules\": [1]}", "target_modules", CKPT_EUNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 1}", "r is not", CKPT_EFORMAT},
        {"{\"peft_type\": \"LORA\", \"r\": 2.5, \"lora_alpha\": 1}", "r is not", CKPT_EFORMAT},
        {"{\"peft_type\": \"LORA\", \"r\": 2}", "lora_alpha", CKPT_EFORMAT},
    };
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_lora_text(arena, cases[i].text, &err), cases[i].code);
        assert_true(cases[i].code == CKPT_OK || strstr(err.text, cases[i].says));
    }
    ckpt_arena_free(arena);
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
        cmocka_unit_test(lora_gradients), cmocka_unit_test(lora_begins_as_base),
        cmocka_unit_test(lora_names),     cmocka_unit_test(lora_config),
        cmocka_unit_test(lora_refusals),  cmocka_unit_test(lora_bad_targets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
