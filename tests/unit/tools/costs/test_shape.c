/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shape.c: checks which layers and sizes are found in names and shapes of tensors, which
 * operands are a bare config.json, and the published parameter counts of models.
 */
#include "libckpt/map/map.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"
#include "tools/costs/config.h"

static char folder[FOLDER_PATH];
static ckpt_err err;

/* ---- shapes ---- */

static ckpt_tensor *add(ckpt_map *map, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[] = {rows, columns};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = columns ? 2 : 1, .shape = shape};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    return t;
}

static void test_shapes(void **state)
{
    ckpt_map *map = NULL;
    model_shape s;

    (void)state;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "memory";
    shape_of(&s, map);
    assert_true(s.layers == 0 && s.hidden == 0 && s.heads == 0);
    add(map, "wte.weight", 100, 8);
    add(map, "h.0.norm", 8, 0);
    add(map, "h.0.mlp.bias", 32, 0);
    add(map, "h.11.norm", 8, 0);
    add(map, "h.2.mlp.bias", 32, 0);
    add(map, "norm", 8, 0);
    shape_of(&s, map);
    assert_int_equal(s.layers, 12); // the highest number counts from 0
    assert_int_equal(s.hidden, 8);  // most vectors have this size
    assert_int_equal(s.heads, 0);
    // numbers that are no layers: a whole name, a part of a word, too many digits
    add(map, "40", 8, 0);
    add(map, "layer50.norm", 8, 0);
    add(map, "h.1234567.norm", 8, 0);
    shape_of(&s, map);
    assert_int_equal(s.layers, 12);
    // states and tied names do not count
    add(map, "exp_avg/h.90.norm", 64, 0)->role = CKPT_ROLE_STATE;
    add(map, "x.95.norm", 64, 0)->owner = map->tensors.at[0];
    shape_of(&s, map);
    assert_int_equal(s.layers, 12);
    add(map, "0.1.norm", 8, 0); // the first number
    shape_of(&s, map);
    assert_int_equal(s.layers, 12);
    ckpt_map_free(map);
}

/* More sizes than are distinguished: the first ones still count. */
static void test_many_sizes(void **state)
{
    ckpt_map *map = NULL;
    model_shape s;
    char name[32];

    (void)state;
    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->path = "memory";
    for (uint64_t i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof name, "a%d", (int)i);
        add(map, name, 1000 + i, 0);
    }
    add(map, "b", 1007, 0);
    shape_of(&s, map);
    assert_int_equal(s.hidden, 1007);
    assert_int_equal(s.layers, 0);
    ckpt_map_free(map);
}

/* ---- operands ---- */

static const char *alone(const char *name)
{
    static char out[FOLDER_PATH];

    config_alone(out, sizeof out, folder_at(folder, name));
    return out[0] ? strrchr(out, '/') : "";
}

static void test_alone(void **state)
{
    char small[8];

    (void)state;
    assert_int_equal(mkdir(folder_at(folder, "bare"), 0700), 0);
    assert_string_equal(alone("bare"), ""); // no config.json
    folder_text(folder, "bare/config.json", "{}");
    folder_text(folder, "bare/tokenizer.model", "x");
    folder_text(folder, "bare/README.md", "x");
    folder_text(folder, "bare/LICENSE", "x");
    folder_text(folder, "bare/.gitattributes", "x");
    assert_string_equal(alone("bare"), "/config.json");
    assert_string_equal(alone("bare/config.json"), "/config.json");
    assert_string_equal(alone("bare/README.md"), "");
    assert_string_equal(alone("none"), "");
    assert_string_equal(alone("none.json"), "");
    config_alone(small, sizeof small, folder_at(folder, "bare")); // the path does not fit
    assert_string_equal(small, "");
    // each of these may hold weights, or name them
    static const char *const weights[] = {"bare/model.safetensors",
                                          "bare/x.bin",
                                          "bare/model.safetensors.index.json",
                                          "bare/latest",
                                          "bare/.metadata",
                                          "bare/latest.txt"};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        folder_text(folder, weights[i], "x");
        if (alone("bare")[0])
            fail_msg("%s is ignored", weights[i]);
        assert_int_equal(unlink(folder_at(folder, weights[i])), 0);
    }
    assert_string_equal(alone("bare"), "/config.json");
}

/* ---- counts ---- */

static int count(config_model *m, const char *text)
{
    err = (ckpt_err){0};
    folder_text(folder, "config.json", text);
    return config_count(m, folder_at(folder, "config.json"), &err);
}

/* The sums of the papers' and the hub's model cards. */
static void test_published(void **state)
{
    config_model m;

    (void)state;
    assert_int_equal(count(&m, "{\"architectures\": [\"GPT2LMHeadModel\"],"
                               "\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_layer\": 12,"
                               "\"n_head\": 12, \"vocab_size\": 50257, \"n_positions\": 1024}"),
                     CKPT_OK);
    assert_int_equal(m.params, 124439808); // the tied output counts once
    assert_int_equal(m.largest, 50257 * 768);
    assert_string_equal(m.class_name, "GPT2LMHeadModel");
    assert_int_equal(m.shape.layers, 12);
    assert_int_equal(m.shape.hidden, 768);
    assert_int_equal(m.shape.heads, 12);
    assert_int_equal(count(&m, "{\"architectures\": [\"LlamaForCausalLM\"],"
                               "\"model_type\": \"llama\", \"hidden_size\": 4096,"
                               "\"intermediate_size\": 11008, \"num_hidden_layers\": 32,"
                               "\"num_attention_heads\": 32, \"vocab_size\": 32000,"
                               "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5,"
                               "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false}"),
                     CKPT_OK);
    assert_int_equal(m.params, 6738415616);
    assert_int_equal(m.largest, 32000 * 4096);
}

static void test_refused(void **state)
{
    config_model m;

    (void)state;
    assert_int_not_equal(count(&m, "{\"architectures\": [\"NoModel\"], \"model_type\": \"x\"}"),
                         CKPT_OK);
    assert_int_not_equal(count(&m, "{"), CKPT_OK);
    assert_int_not_equal(count(&m, ""), CKPT_OK);
    assert_int_equal(m.params, 0);
    // sizes that no address space holds
    assert_int_not_equal(count(&m, "{\"architectures\": [\"GPT2LMHeadModel\"],"
                                   "\"model_type\": \"gpt2\", \"n_embd\": 4294967296,"
                                   "\"n_layer\": 12, \"n_head\": 1, \"vocab_size\": 4294967296,"
                                   "\"n_positions\": 1024}"),
                         CKPT_OK);
}

static int setup(void **state)
{
    (void)state;
    folder_new(folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),  cmocka_unit_test(test_many_sizes),
        cmocka_unit_test(test_alone),   cmocka_unit_test(test_published),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
