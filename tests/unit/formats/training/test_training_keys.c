/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_keys.c: numbers in experts' names, DeepSpeed's keys by release, values of ds_config,
 * and names that only wrappers distinguish.
 */
#include "formats/training/buffers.h"
#include "formats/training/deepspeed_keys.h"
#include "formats/training/ds_config.h"
#include "formats/training/expert_names.h"
#include "formats/training/wrapped_names.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

static ckpt_value *parse(ckpt_arena *arena, const char *json)
{
    const ckpt_json_text text = {
        .name = "test", .at = json, .n = strlen(json), .max = UINT64_C(1) << 20};
    ckpt_value *v = NULL;

    assert_int_equal(ckpt_json_parse(&v, arena, &text, NULL), CKPT_OK);
    return v;
}

static void expert_numbers(void **state)
{
    static const struct {
        const char *name, *before; /* before: the text before the number; NULL: not an expert */
        uint64_t number;
    } cases[] = {
        {"h.0.deepspeed_experts.3.fc.weight", "h.0.deepspeed_experts.", 3},
        {"h.0.deepspeed_experts.0.b", "h.0.deepspeed_experts.", 0},
        {"h.0.deepspeed_experts.123456789.b", "h.0.deepspeed_experts.", 123456789},
        {"layers.1.mlp.experts.w1.7", "layers.1.mlp.experts.w1.", 7},
        {"experts.w3.12", "experts.w3.", 12},
        {"a.experts.w1.2.experts.w2.5", "a.experts.w1.2.experts.w2.", 5}, // the last one counts
        {"h.0.fc.weight", NULL, 0},
        {"deepspeed_experts.3.fc", NULL, 0}, // DeepSpeed's modules have a name before it
        {"h.deepspeed_experts..fc", NULL, 0},
        {"h.deepspeed_experts.x.fc", NULL, 0},
        {"h.deepspeed_experts.3", NULL, 0},            // a parameter's name must follow
        {"h.deepspeed_experts.1234567890.b", NULL, 0}, // more than nine digits
        {"mlp.experts.w4.1", NULL, 0},
        {"mlp.experts.w1.1.bias", NULL, 0},
        {"mlp.xexperts.w1.1", NULL, 0},
        {"", NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t at = 0, n = 0;
        uint64_t number = 0;
        bool is = ckpt_train_expert_number(cases[i].name, &at, &n, &number);

        if (is != (cases[i].before != NULL))
            fail_msg("%s: %d", cases[i].name, is);
        if (!is)
            continue;
        assert_int_equal(at, strlen(cases[i].before));
        assert_memory_equal(cases[i].name, cases[i].before, at);
        assert_int_equal(strspn(cases[i].name + at, "0123456789"), n);
        assert_int_equal(number, cases[i].number);
    }
}

static void keys_by_release(void **state)
{
    static const char *const foreign[] = {"", "modul", "module.", "my_state", "DS_CONFIG", "epoch"};

    (void)state;
    for (size_t i = 0; i < CKPT_TRAIN_MODEL_KEYS; i++) {
        const ckpt_train_key *k = &ckpt_train_model_keys[i];

        assert_true(ckpt_train_is_deepspeed_key(k->key));
        assert_true(k->until == 0 || k->since < k->until);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(k->key, ckpt_train_model_keys[j].key);
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_false(ckpt_train_is_deepspeed_key(foreign[i]));
    assert_true(CKPT_DS_RELEASE(0, 4, 10) > CKPT_DS_RELEASE(0, 4, 9));
    assert_true(CKPT_DS_RELEASE(0, 10, 0) > CKPT_DS_RELEASE(0, 9, 5));
    assert_true(CKPT_DS_RELEASE(1, 0, 0) > CKPT_DS_RELEASE(0, 19, 8));
}

static void config_values(void **state)
{
    static const char model[] =
        "{\"ds_config\": {\"top\": 4, \"zero\": {\"whole\": 7, \"float\": 5e8, \"small\": 0.5,"
        " \"minus\": -1, \"huge\": 1e300, \"text\": \"9\", \"yes\": true, \"no\": false,"
        " \"one\": 1, \"none\": 0, \"list\": [1]}}, \"autoep_layers\": [{\"ep_size\": 2}]}";
    static const struct {
        const char *section, *key;
        uint64_t number; /* 99: the default */
        bool flag;
    } cases[] = {
        {NULL, "top", 4, true},
        {"zero", "whole", 7, true},
        {"zero", "float", 500000000, false},
        {"zero", "small", 99, false},
        {"zero", "minus", 99, true},
        {"zero", "huge", 99, false},
        {"zero", "text", 99, false},
        {"zero", "yes", 99, true},
        {"zero", "no", 99, false},
        {"zero", "one", 1, true},
        {"zero", "none", 99, false},
        {"zero", "list", 99, false},
        {"zero", "absent", 99, false},
        {"absent", "whole", 99, false},
        {"top", "whole", 99, false},
    };
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_state s = {.model = parse(arena, model)};

    (void)state;
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (ckpt_train_config_number(&s, cases[i].section, cases[i].key, 99) !=
                    cases[i].number ||
                ckpt_train_config_flag(&s, cases[i].section, cases[i].key) != cases[i].flag)
                fail_msg("%s.%s", cases[i].section ? cases[i].section : "", cases[i].key);
        }
        assert_int_equal(ckpt_train_autoep(&s), pass == 0 ? 2 : 0);
        // the optimizer's file is used if the model's file has no ds_config
        s = (ckpt_state){.optim = s.model};
    }
    assert_null(ckpt_train_config_get(&(ckpt_state){0}, NULL, "top"));
    s = (ckpt_state){.model = parse(arena, "{\"ds_autoep_layers\": [{\"ep_size\": -4}]}")};
    assert_int_equal(ckpt_train_autoep_layers(&s).n, 1);
    assert_int_equal(ckpt_train_autoep(&s), 0);
    ckpt_arena_free(arena);
}

/* ---- names that only wrappers distinguish ---- */

static void add(ckpt_map *map, const char *name, uint32_t role)
{
    static const uint64_t shape[] = {4};
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = shape, .role = role};
    ckpt_tensor *t = NULL;

    assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
}

static void wrapped_names(void **state)
{
    static const struct {
        const char *optimizer;
        const char *before[3], *after[3]; /* a parameter, a buffer, the optimizer's state */
    } cases[] = {
        // the model is compiled, and its optimizer is not
        {"{\"param_groups\": [{\"params\": [\"a.w\"]}]}",
         {"_orig_mod.a.w", "_orig_mod.mean", "_orig_mod.exp"},
         {"a.w", "mean", "_orig_mod.exp"}},
        // the optimizer's names have the prefix; a flat dict
        {"{\"param_groups.module.a.w.lr\": 1}",
         {"a.w", "mean", "exp"},
         {"module.a.w", "module.mean", "exp"}},
        // equal names stay, and so do names that differ in more than wrappers
        {"{\"param_groups\": [{\"params\": [\"module.a.w\"]}]}",
         {"module.a.w", "mean", "exp"},
         {"module.a.w", "mean", "exp"}},
        {"{\"param_groups\": [{\"params\": [\"b.a.w\", 3]}]}",
         {"a.w", "mean", "exp"},
         {"a.w", "mean", "exp"}},
        {"{}", {"a.w", "mean", "exp"}, {"a.w", "mean", "exp"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = NULL;

        assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
        add(map, cases[i].before[0], CKPT_ROLE_WEIGHT);
        add(map, cases[i].before[1], CKPT_ROLE_BUFFER);
        add(map, cases[i].before[2], CKPT_ROLE_STATE);
        assert_int_equal(ckpt_train_wrapped_names(map, parse(map->arena, cases[i].optimizer), NULL),
                         CKPT_OK);
        for (size_t k = 0; k < 3; k++) {
            assert_string_equal(map->tensors.at[k]->name, cases[i].after[k]);
            assert_int_equal(ckpt_map_index(map, cases[i].after[k], strlen(cases[i].after[k])), k);
        }
        ckpt_map_free(map);
    }
}

/* Floating tensors that no optimizer has: a frozen parameter or a buffer. */
static void buffers(void **state)
{
    static const struct {
        const char *name;
        uint32_t parts, rows;
        bool buffer, sharded; /* sharded: also if some trained parameters are stored in parts */
    } cases[] = {
        {"h.1.weight", 1, 4, false, false}, // LoRA's base
        {"emb.bias", 1, 4, false, false},
        {"h.1.gain", 1, 4, false, false},     // trained in another module
        {"h.0.mean", 1, 4, true, true},       // beside trained parameters
        {"h.0.position", 2, 4, false, false}, // FSDP does not shard buffers
        {"rotary.inv_freq", 1, 4, false, true},
        {"vision.cls_token", 1, 1, false, false}, // one rank has the only row
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        bool sharded = i % 2 == 1;
        ckpt_state *s = NULL;
        ckpt_map *map = NULL;

        assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
        add(map, "h.0.gain", CKPT_ROLE_WEIGHT);
        add(map, cases[i / 2].name, CKPT_ROLE_FROZEN);
        assert_int_equal(ckpt_state_new(&s, map, "", NULL), CKPT_OK);
        *(ckpt_tensor **)ckpt_vec_push(&s->param) = map->tensors.at[0];
        ckpt_tensor *t = map->tensors.at[1];
        map->tensors.at[0]->n_extents = sharded ? 2 : 1;
        t->n_extents = cases[i / 2].parts;
        t->ndim = 1;
        t->shape = ckpt_arena_copy(map->arena, &(uint64_t){cases[i / 2].rows}, sizeof(uint64_t));
        assert_int_equal(ckpt_train_buffers(map, s, NULL), CKPT_OK);
        if ((t->role == CKPT_ROLE_BUFFER) !=
            (cases[i / 2].buffer || (sharded && cases[i / 2].sharded)))
            fail_msg("%s: role %u", t->name, t->role);
        map->tensors.at[0]->n_extents = t->n_extents = 0;
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expert_numbers), cmocka_unit_test(keys_by_release),
        cmocka_unit_test(config_values),  cmocka_unit_test(wrapped_names),
        cmocka_unit_test(buffers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
