/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_peft_names.c: names of an adapter's tensors, in its file and in a model in training.
 */
#include "formats/peft/peft.h"
#include "tests/unit/unit.h"

#define BASE "base_model.model."

static void parses(void **state)
{
    static const struct {
        const char *name;
        ckpt_peft_part part;
        const char *module;
    } cases[] = {
        {BASE "h.0.q.lora_A.weight", CKPT_PEFT_A, "h.0.q"},
        {BASE "h.0.q.lora_B.weight", CKPT_PEFT_B, "h.0.q"},
        {BASE "h.0.q.lora_B.bias", CKPT_PEFT_B_BIAS, "h.0.q"},
        {BASE "wte.lora_embedding_A", CKPT_PEFT_TABLE_A, "wte"},
        {BASE "wte.lora_embedding_B", CKPT_PEFT_TABLE_B, "wte"},
        {BASE "q.lora_magnitude_vector", CKPT_PEFT_MAGNITUDE, "q"},
        {BASE "q.lora_magnitude_vector.weight", CKPT_PEFT_MAGNITUDE, "q"},
        {BASE "q.base_layer.weight", CKPT_PEFT_BASE_WEIGHT, "q"},
        {BASE "q.base_layer.bias", CKPT_PEFT_BASE_BIAS, "q"},
        {BASE "wte.token_adapter.base_layer.weight", CKPT_PEFT_BASE_WEIGHT, "wte"},
        {BASE "score.weight", CKPT_PEFT_PLAIN, "score.weight"},
        {BASE "score.original_module.weight", CKPT_PEFT_ORIGINAL, "score.original_module.weight"},
        {BASE "score.modules_to_save.weight", CKPT_PEFT_PLAIN, "score.modules_to_save.weight"},
        {BASE "q.ia3_l", CKPT_PEFT_IA3, "q"},
        {BASE "q.hada_t1", CKPT_PEFT_HADA_T1, "q"},
        {BASE "q.lokr_w1", CKPT_PEFT_LOKR_W1, "q"},
        {BASE "q.lokr_w1_a", CKPT_PEFT_LOKR_W1_A, "q"},
        {BASE "q.vera_lambda_d", CKPT_PEFT_VERA_D, "q"},
        {BASE "q.oft_R.weight", CKPT_PEFT_OFT, "q"},
        {BASE "wte.trainable_tokens_delta", CKPT_PEFT_TOKENS, "wte"},
        {BASE "wte.token_adapter.trainable_tokens_delta", CKPT_PEFT_TOKENS, "wte"},
        {BASE "wte.oft_embedding_R.weight", CKPT_PEFT_OFT_TABLE, "wte"},
        // near the known ends, but others
        {BASE "q.ia3_l.default", CKPT_PEFT_PLAIN, "q.ia3_l.default"},
        {BASE "q.oft_R", CKPT_PEFT_PLAIN, "q.oft_R"},
        {BASE "q.lora_A.bias", CKPT_PEFT_PLAIN, "q.lora_A.bias"},
        {BASE "q.lora_A.default.weight", CKPT_PEFT_PLAIN, "q.lora_A.default.weight"},
        {BASE "q.xlora_A.weight", CKPT_PEFT_PLAIN, "q.xlora_A.weight"},
        // an end without a module before it is the name of a tensor
        {BASE ".lora_A.weight", CKPT_PEFT_PLAIN, ".lora_A.weight"},
        // the part is the last one, and a module may be called like a part
        {BASE "lora_A.weight.lora_B.weight", CKPT_PEFT_B, "lora_A.weight"},
        {BASE "x.original_module.lora_A.weight", CKPT_PEFT_A, "x.original_module"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_peft_name is;

        assert_true(ckpt_peft_parse(&is, cases[i].name));
        if (is.part != cases[i].part)
            fail_msg("%s is part %d", cases[i].name, (int)is.part);
        assert_int_equal(is.n, strlen(cases[i].module));
        assert_memory_equal(is.module, cases[i].module, is.n);
    }
}

/* Each part belongs to one kind; parts of all kinds to none. */
static void kinds(void **state)
{
    static const struct {
        ckpt_peft_part part;
        ckpt_peft_kind kind;
    } cases[] = {
        {CKPT_PEFT_A, CKPT_PEFT_KIND_LORA},        {CKPT_PEFT_MAGNITUDE, CKPT_PEFT_KIND_LORA},
        {CKPT_PEFT_IA3, CKPT_PEFT_KIND_IA3},       {CKPT_PEFT_HADA_W1_A, CKPT_PEFT_KIND_LOHA},
        {CKPT_PEFT_HADA_T2, CKPT_PEFT_KIND_LOHA},  {CKPT_PEFT_LOKR_W1, CKPT_PEFT_KIND_LOKR},
        {CKPT_PEFT_LOKR_T2, CKPT_PEFT_KIND_LOKR},  {CKPT_PEFT_VERA_B, CKPT_PEFT_KIND_VERA},
        {CKPT_PEFT_VERA_D, CKPT_PEFT_KIND_VERA},   {CKPT_PEFT_OFT, CKPT_PEFT_KIND_OFT},
        {CKPT_PEFT_OFT_TABLE, CKPT_PEFT_KIND_OFT}, {CKPT_PEFT_BASE_WEIGHT, CKPT_PEFT_N_KINDS},
        {CKPT_PEFT_TOKENS, CKPT_PEFT_N_KINDS},     {CKPT_PEFT_PLAIN, CKPT_PEFT_N_KINDS},
        {CKPT_PEFT_ORIGINAL, CKPT_PEFT_N_KINDS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ckpt_peft_kind_of(cases[i].part), cases[i].kind);
}

static void refuses(void **state)
{
    static const char *const cases[] = {
        "",
        "base_model.model",
        BASE,
        "base_model.models.q.lora_A.weight",
        "q.lora_A.weight",
        "model." BASE "q.lora_A.weight",
    };
    ckpt_peft_name is;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (ckpt_peft_parse(&is, cases[i]))
            fail_msg("'%s' is taken for an adapter's", cases[i]);
    }
}

static void saved_names(void **state)
{
    static const struct {
        const char *name, *saved, *adapter;
    } cases[] = {
        {"m.q.lora_A.default.weight", "m.q.lora_A.weight", "default"},
        {"m.q.lora_B.default.weight", "m.q.lora_B.weight", "default"},
        {"m.q.lora_B.two.bias", "m.q.lora_B.bias", "two"},
        {"m.wte.lora_embedding_A.default", "m.wte.lora_embedding_A", "default"},
        {"m.wte.lora_embedding_B.x", "m.wte.lora_embedding_B", "x"},
        {"m.q.lora_magnitude_vector.default.weight", "m.q.lora_magnitude_vector", "default"},
        {"m.score.modules_to_save.default.weight", "m.score.weight", "default"},
        {"m.score.modules_to_save.default.0.bias", "m.score.0.bias", "default"},
        // of no adapter
        {"m.q.base_layer.weight", "m.q.base_layer.weight", ""},
        {"m.score.original_module.weight", "m.score.original_module.weight", ""},
        {"m.lora_A", "m.lora_A", ""},
        {"", "", ""},
        // nothing where the adapter's name would be
        {"m.q.lora_A.", "m.q.lora_A", ""},
        {"m.q.lora_A..weight", "m.q.lora_A.weight", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[100];
        const char *adapter = NULL;
        size_t n = 99;

        memset(out, '#', sizeof out);
        ckpt_peft_saved_name(out, cases[i].name, &adapter, &n);
        if (strcmp(out, cases[i].saved) != 0)
            fail_msg("%s is saved as %s", cases[i].name, out);
        assert_int_equal(n, strlen(cases[i].adapter));
        assert_true(n == 0 || strncmp(adapter, cases[i].adapter, n) == 0);
        assert_true(n == 0 ||
                    (adapter > cases[i].name && adapter < cases[i].name + strlen(cases[i].name)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses),
        cmocka_unit_test(kinds),
        cmocka_unit_test(refuses),
        cmocka_unit_test(saved_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
