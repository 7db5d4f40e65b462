/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_peft_config.c: which adapter_config.json is read, and the rank and scale of each module.
 */
#include <math.h>

#include "formats/peft/config.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

typedef struct one {
    char folder[FOLDER_PATH];
    ckpt_arena *arena;
    ckpt_peft_config config;
    ckpt_err err;
} one;

/* Read a file with these members after peft_type. */
static int read_text(one *o, const char *text)
{
    *o = (one){.arena = ckpt_arena_new(0)};
    assert_non_null(o->arena);
    folder_new(o->folder);
    folder_text(o->folder, "adapter_config.json", text);
    return ckpt_peft_config_read(&o->config, o->arena, folder_at(o->folder, "adapter_config.json"),
                                 &o->err);
}

static void done(one *o)
{
    ckpt_peft_config_free(&o->config);
    ckpt_arena_free(o->arena);
    folder_remove(o->folder);
}

#define LORA "{\"peft_type\": \"LORA\", "

static void reads(void **state)
{
    one o;

    (void)state;
    assert_int_equal(read_text(&o, LORA "\"r\": 8, \"lora_alpha\": 16}"), CKPT_OK);
    assert_int_equal(o.config.r, 8);
    assert_true(o.config.alpha == 16.0);
    assert_false(o.config.rslora || o.config.dora || o.config.lora_bias || o.config.fan_in_fan_out);
    assert_string_equal(o.config.bias, "none");
    assert_null(o.config.odd_init);
    done(&o);
    assert_int_equal(read_text(&o, LORA "\"r\": 4, \"lora_alpha\": 0.5, \"use_rslora\": true, "
                                        "\"use_dora\": true, \"bias\": \"all\", "
                                        "\"init_lora_weights\": \"pissa\", "
                                        "\"unheard_of\": null, \"new_option\": []}"),
                     CKPT_OK);
    assert_true(o.config.alpha == 0.5);
    assert_true(o.config.rslora && o.config.dora);
    assert_string_equal(o.config.bias, "all");
    assert_string_equal(o.config.odd_init, "pissa");
    done(&o);
}

static void refuses(void **state)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", CKPT_EFORMAT},
        {"[]", CKPT_EFORMAT},
        {"{\"r\": 8, \"lora_alpha\": 16}", CKPT_EFORMAT},
        {"{\"peft_type\": 1, \"r\": 8, \"lora_alpha\": 16}", CKPT_EFORMAT},
        {"{\"peft_type\": \"ADALORA\", \"r\": 8, \"lora_alpha\": 16}", CKPT_EUNSUPPORTED},
        // members of another kind
        {"{\"peft_type\": \"LOHA\", \"r\": 8, \"alpha\": 16, \"lora_alpha\": 16}",
         CKPT_EUNSUPPORTED},
        {LORA "\"r\": 8, \"lora_alpha\": 16, \"decompose_both\": true}", CKPT_EUNSUPPORTED},
        {"{\"peft_type\": \"LOKR\", \"r\": 8}", CKPT_EFORMAT},
        {"{\"peft_type\": \"VERA\"}", CKPT_EFORMAT},
        // of a peft that saved or computed otherwise
        {"{\"peft_type\": \"OFT\", \"r\": 8}", CKPT_EUNSUPPORTED},
        {"{\"peft_type\": \"OFT\", \"oft_block_size\": 8}", CKPT_EUNSUPPORTED},
        {"{\"peft_type\": \"OFT\", \"oft_block_size\": 8, \"peft_version\": \"0.9\"}",
         CKPT_EUNSUPPORTED},
        {"{\"peft_type\": \"OFT\", \"oft_block_size\": 8, \"peft_version\": \"0.21.2\", \"eps\": "
         "\"1\"}",
         CKPT_EFORMAT},
        {LORA "\"lora_alpha\": 16}", CKPT_EFORMAT},
        {LORA "\"r\": 8}", CKPT_EFORMAT},
        {LORA "\"r\": 0, \"lora_alpha\": 16}", CKPT_EFORMAT},
        {LORA "\"r\": -8, \"lora_alpha\": 16}", CKPT_EFORMAT},
        {LORA "\"r\": \"8\", \"lora_alpha\": 16}", CKPT_EFORMAT},
        {LORA "\"r\": true, \"lora_alpha\": 16}", CKPT_EFORMAT},
        {LORA "\"r\": 1e300, \"lora_alpha\": 16}", CKPT_EFORMAT},
        {LORA "\"r\": 9223372036854775807, \"lora_alpha\": 16}", CKPT_EFORMAT},
        {LORA "\"r\": 8, \"lora_alpha\": null}", CKPT_EFORMAT},
        {LORA "\"r\": 8, \"lora_alpha\": 16, \"new_option\": {\"a\": 1}}", CKPT_EUNSUPPORTED},
        {LORA "\"r\": 8, \"lora_alpha\": 16, \"new_option\": -1}", CKPT_EUNSUPPORTED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one o;

        if (read_text(&o, cases[i].text) != cases[i].code)
            fail_msg("%s: %d (%s)", cases[i].text, o.err.code, o.err.text);
        assert_non_null(strstr(o.err.text, "adapter_config.json"));
        done(&o);
    }
}

static void is_missing(void **state)
{
    one o = {.arena = ckpt_arena_new(0)};

    (void)state;
    assert_int_equal(
        ckpt_peft_config_read(&o.config, o.arena, "/nowhere/adapter_config.json", &o.err),
        CKPT_EMISSING);
    ckpt_arena_free(o.arena);
}

/* The members of the other kinds. */
static void reads_others(void **state)
{
    one o;

    (void)state;
    assert_int_equal(read_text(&o, "{\"peft_type\": \"LOKR\", \"r\": 8, \"alpha\": 16}"), CKPT_OK);
    assert_int_equal(o.config.kind, CKPT_PEFT_KIND_LOKR);
    assert_true(o.config.alpha == 16.0);
    assert_int_equal(ckpt_peft_only_lora(&o.config, "can", &o.err), CKPT_EUNSUPPORTED);
    done(&o);
    assert_int_equal(read_text(&o, "{\"peft_type\": \"OFT\", \"oft_block_size\": 8, "
                                   "\"use_cayley_neumann\": false, \"coft\": true}"),
                     CKPT_OK);
    assert_true(o.config.coft && !o.config.cayley_neumann && !o.config.block_share);
    assert_true(o.config.eps == 6e-5);
    done(&o);
    assert_int_equal(read_text(&o,
                               "{\"peft_type\": \"OFT\", \"oft_block_size\": 8, \"peft_version\": "
                               "\"1.0.0\", \"num_cayley_neumann_terms\": 7}"),
                     CKPT_OK);
    assert_true(o.config.cayley_neumann);
    assert_int_equal(o.config.neumann_terms, 7);
    done(&o);
}

/* The indices of trained tokens, under the name of each kind. */
static void tokens(void **state)
{
    one o;

    (void)state;
    assert_int_equal(
        read_text(&o, "{\"peft_type\": \"TRAINABLE_TOKENS\", \"token_indices\": [1, 2]}"), CKPT_OK);
    assert_int_equal(o.config.kind, CKPT_PEFT_KIND_TOKENS);
    assert_int_equal(ckpt_value_seq(o.config.tokens).n, 2);
    done(&o);
    assert_int_equal(read_text(&o, LORA "\"r\": 8, \"lora_alpha\": 16, "
                                        "\"trainable_token_indices\": {\"wte\": [1]}}"),
                     CKPT_OK);
    assert_int_equal(ckpt_value_map(o.config.tokens).n, 1);
    done(&o);
    assert_int_equal(read_text(&o, LORA "\"r\": 8, \"lora_alpha\": 16, "
                                        "\"trainable_token_indices\": null}"),
                     CKPT_OK);
    assert_null(o.config.tokens);
    done(&o);
    assert_int_equal(read_text(&o, LORA "\"r\": 8, \"lora_alpha\": 16, \"token_indices\": [1]}"),
                     CKPT_EUNSUPPORTED);
    done(&o);
}

/* IA3 compares the ends of paths, or the whole path with a regular expression. */
static void feedforward(void **state)
{
    static const struct {
        const char *modules, *module;
        bool yes;
    } cases[] = {
        {"[\"proj\"]", "h.0.up_proj", true},
        {"[\"up\", 3, \"down\"]", "h.down", true},
        {"[\"proj\"]", "h.0.proj.x", false},
        {"[]", "h", false},
        {"\".*up\"", "h.0.up", true},
        {"\"up\"", "h.0.up", false},
        {"\"h.(0|1).up\"", "h.1.up", true},
        {"\"h\"", "h.1", false},
        {"null", "h", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        bool yes = !cases[i].yes;
        one o;

        snprintf(text, sizeof text, "{\"peft_type\": \"IA3\", \"feedforward_modules\": %s}",
                 cases[i].modules);
        assert_int_equal(read_text(&o, text), CKPT_OK);
        assert_int_equal(ckpt_peft_feedforward(&o.config, cases[i].module, &yes, &o.err), CKPT_OK);
        if (yes != cases[i].yes)
            fail_msg("%s: %s", cases[i].modules, cases[i].module);
        done(&o);
    }
}

/* The first pattern counts that matches the end of a module's path, at a bound between its parts. */
static void scales(void **state)
{
    static const struct {
        const char *module;
        uint64_t rank;
        double alpha;
    } cases[] = {
        {"h.0.q_proj", 8, 16},  {"h.1.k_proj", 4, 16},   {"k_proj", 4, 16},
        {"h.1.xk_proj", 8, 16}, {"h.1.k_proj.x", 8, 16}, {"h.2.mlp.up", 2, 32},
        {"h.3.mlp.up", 64, 32}, {"h.2.mlp.down", 8, 16},
    };

    (void)state;
    for (int rslora = 0; rslora < 2; rslora++) {
        char text[400];
        one o;

        snprintf(text, sizeof text,
                 LORA "\"r\": 8, \"lora_alpha\": 16, \"use_rslora\": %s, \"rank_pattern\": "
                      "{\"k_proj\": 4, \"h\\\\.2\\\\.mlp\\\\.up\": 2, \"mlp.up\": 64}, "
                      "\"alpha_pattern\": {\"up\": 32}}",
                 rslora ? "true" : "false");
        assert_int_equal(read_text(&o, text), CKPT_OK);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            uint64_t rank = 0;
            double scale = 0, by = (double)cases[i].rank;

            assert_int_equal(ckpt_peft_scale(&o.config, cases[i].module, &rank, &scale, NULL),
                             CKPT_OK);
            if (rank != cases[i].rank)
                fail_msg("%s has rank %d", cases[i].module, (int)rank);
            assert_true(scale == cases[i].alpha / (rslora ? sqrt(by) : by));
        }
        done(&o);
    }
}

static void refuses_scales(void **state)
{
    static const struct {
        const char *pattern, *value;
        int code;
    } cases[] = {
        {"q", "4", CKPT_OK},         {"q", "0", CKPT_EFORMAT},     {"q", "-1", CKPT_EFORMAT},
        {"q", "1e10", CKPT_EFORMAT}, {"q", "\"4\"", CKPT_EFORMAT}, {"other", "-1", CKPT_OK},
        {"other", "\"4\"", CKPT_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        uint64_t rank = 0;
        double scale = 0;
        one o;

        snprintf(text, sizeof text,
                 LORA "\"r\": 8, \"lora_alpha\": 16, \"rank_pattern\": {\"%s\": %s}}",
                 cases[i].pattern, cases[i].value);
        assert_int_equal(read_text(&o, text), CKPT_OK);
        if (ckpt_peft_scale(&o.config, "h.q", &rank, &scale, &o.err) != cases[i].code)
            fail_msg("%s %s: %d", cases[i].pattern, cases[i].value, o.err.code);
        done(&o);
    }
}

static void refuses_long_patterns(void **state)
{
    char text[2000] = LORA "\"r\": 8, \"lora_alpha\": 16, \"rank_pattern\": {\"";
    uint64_t rank = 0;
    double scale = 0;
    one o;

    (void)state;
    memset(text + strlen(text), 'a', 1200);
    strcat(text, "\": 4}}");
    assert_int_equal(read_text(&o, text), CKPT_OK);
    assert_int_equal(ckpt_peft_scale(&o.config, "h.q", &rank, &scale, &o.err), CKPT_ELIMIT);
    done(&o);
}

static void saves(void **state)
{
    one o;

    (void)state;
    assert_int_equal(read_text(&o, LORA "\"r\": 8, \"lora_alpha\": 16, "
                                        "\"modules_to_save\": [\"\", 3, \"score\", \"norm\"]}"),
                     CKPT_OK);
    assert_true(ckpt_peft_saves(&o.config, "score.weight"));
    assert_true(ckpt_peft_saves(&o.config, "m.score"));
    assert_true(ckpt_peft_saves(&o.config, "m.input_layernorm.weight"));
    assert_false(ckpt_peft_saves(&o.config, "m.scores.weight"));
    assert_true(ckpt_peft_saves(&o.config, "scores.score.weight")); // the second one counts
    assert_false(ckpt_peft_saves(&o.config, ""));
    done(&o);
    assert_int_equal(read_text(&o, LORA "\"r\": 8, \"lora_alpha\": 16}"), CKPT_OK);
    assert_false(ckpt_peft_saves(&o.config, "score.weight"));
    done(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),          cmocka_unit_test(refuses),
        cmocka_unit_test(is_missing),     cmocka_unit_test(scales),
        cmocka_unit_test(refuses_scales), cmocka_unit_test(refuses_long_patterns),
        cmocka_unit_test(saves),          cmocka_unit_test(reads_others),
        cmocka_unit_test(feedforward),    cmocka_unit_test(tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
