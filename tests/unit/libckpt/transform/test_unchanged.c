/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_unchanged.c: functions that change a map in place leave it as it was when they fail: with
 * arguments that they refuse, and with each allocation that can fail.
 */
#include "ckpt_extra.h"
#include "libckpt/base/vec.h"
#include "libckpt/map/map.h"
#include "libckpt/map/state.h"
#include "tests/unit/libckpt/help.h"
#include "tests/unit/unit.h"

enum { SHOTS = 20000 }; /* more allocations than any of these changes makes */

static const char *fixture(const char *name)
{
    const char *fixtures = getenv("CKPT_FIXTURES");

    return folder_at(fixtures ? fixtures : "tests/fixtures", name);
}

/* ---- a map as a text ---- */

static void one_tensor(ckpt_bytes *b, const ckpt_tensor *t)
{
    assert_true(ckpt_bytes_printf(b, "%p %s %d %d %u %u %u %u %p %p [", (const void *)t, t->name,
                                  (int)t->dtype, (int)t->export_dtype, (unsigned)t->role,
                                  (unsigned)t->flags, (unsigned)t->n_extents, (unsigned)t->file,
                                  (const void *)t->extent, (const void *)t->cut));
    for (uint32_t i = 0; i < t->ndim; i++)
        assert_true(ckpt_bytes_printf(b, "%llu ", (unsigned long long)t->shape[i]));
    assert_true(ckpt_bytes_printf(b, "] %llu %p %p %p\n", (unsigned long long)t->n_elems,
                                  (const void *)t->owner, (const void *)t->twin,
                                  (const void *)t->addend));
}

static void one_state(ckpt_bytes *b, const ckpt_state *s)
{
    assert_true(ckpt_bytes_printf(b, "state %p %s %p %p %d %d %s\n", (const void *)s, s->prefix,
                                  (const void *)s->model, (const void *)s->given, s->listed,
                                  s->renamed, s->no_order ? s->no_order : ""));
    for (size_t i = 0; i < s->param.n; i++)
        assert_true(ckpt_bytes_printf(b, "%s\n", s->param.at[i]->name));
    for (size_t i = 0; i < s->group.n; i++)
        assert_true(ckpt_bytes_printf(b, "group %zu %zu %p %p\n", s->group.at[i].first,
                                      s->group.at[i].n, (const void *)s->group.at[i].fields,
                                      (const void *)s->group.at[i].stored));
}

/* Everything that a caller, a layout or a later change can see; the caller frees it. */
static char *text_of(const ckpt_map *map)
{
    ckpt_bytes b = {0};

    assert_true(ckpt_bytes_printf(
        &b, "%zu %zu %zu %zu %d%d%d %p %p %p %p %x %llu\n", map->files.n, map->sources.n,
        map->children.n, map->keys.n, map->tied, map->untied, map->dequantized,
        (const void *)map->config.value, (const void *)map->quantization,
        (const void *)map->adapter_config, (const void *)map->model_folder, map->effects,
        (unsigned long long)map->vocab_size));
    for (size_t i = 0; i < map->tensors.n; i++) {
        const ckpt_tensor *t = map->tensors.at[i];

        assert_ptr_equal(ckpt_map_find(map, t->name), t);
        for (; t; t = t->twin)
            one_tensor(&b, t);
    }
    for (size_t i = 0; i < map->facts.n; i++)
        assert_true(ckpt_bytes_printf(&b, "%s=%s\n", map->facts.at[i].key, map->facts.at[i].text));
    for (size_t i = 0; i < map->findings.n; i++)
        assert_true(ckpt_bytes_printf(&b, "%s\n", map->findings.at[i].text));
    for (uint64_t i = 0; i < map->metadata.n; i++)
        assert_true(ckpt_bytes_printf(&b, "%s\n", map->metadata.at[i].key->as.text.at));
    for (size_t i = 0; i < map->states.n; i++)
        one_state(&b, map->states.at[i]);
    assert_true(ckpt_bytes_add(&b, "", 1));
    return (char *)b.at;
}

static void assert_unchanged(const ckpt_map *map, const char *before)
{
    char *now = text_of(map);

    assert_string_equal(now, before);
    ckpt_free(now);
}

/* ---- maps ---- */

static ckpt_map *opened(const char *path, bool optimizer)
{
    const ckpt_open_opts opts = {.with_optimizer = optimizer};
    ckpt_map *map = NULL;
    ckpt_err err = {0};

    if (ckpt_open(&map, path, &opts, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    return map;
}

/* A run with two groups of parameters and moments. */
static ckpt_map *run(void)
{
    return opened(fixture("z1_bf16_w3_groups/ckpt"), true);
}

/* A run whose moments are bitsandbytes' in 8 bits. */
static ckpt_map *run_in_8_bits(void)
{
    return opened(fixture("z2_bf16_w2_bnb8/ckpt"), true);
}

static ckpt_map *run_of_adapter(void)
{
    return opened(fixture("trainer_lora_z3"), false);
}

/* A model folder with a config.json. */
static ckpt_map *model(void)
{
    return opened(fixture("peft_tied_head/base"), false);
}

static void put(ckpt_map *map, const char *name, ckpt_dtype dtype, uint64_t rows, uint64_t cols)
{
    static const char bytes[4096];
    const uint64_t shape[] = {rows, cols};
    const ckpt_array a = {.name = name, .dtype = dtype, .ndim = 2, .shape = shape, .data = bytes};

    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
}

/* Arrays in memory: a table and its head, and two layers. */
static ckpt_map *arrays(void)
{
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    put(map, "embed.weight", CKPT_F32, 8, 4);
    put(map, "lm_head.weight", CKPT_F32, 8, 4);
    put(map, "layers.0.fc.weight", CKPT_F32, 4, 4);
    put(map, "layers.1.fc.weight", CKPT_F32, 4, 4);
    assert_int_equal(ckpt_map_put_metadata(map, "embed.weight", "of a tie", NULL), CKPT_OK);
    return map;
}

/* The same, where the head is a second name of the table. */
static ckpt_map *tied(void)
{
    ckpt_map *map = arrays();

    assert_int_equal(ckpt_map_tie(map, "lm_head.weight=embed.weight", NULL), CKPT_OK);
    return map;
}

/* Two weights in fp8 with scales; the scales of the second have `rows` rows. */
static ckpt_map *fp8(uint64_t rows)
{
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    put(map, "a.weight", CKPT_F8_E4M3, 4, 4);
    put(map, "a.weight_scale_inv", CKPT_F32, 1, 1);
    put(map, "b.weight", CKPT_F8_E4M3, 4, 4);
    put(map, "b.weight_scale_inv", CKPT_F32, rows, 1);
    return map;
}

static ckpt_map *quantized(void)
{
    return fp8(1);
}

static ckpt_map *quantized_badly(void)
{
    return fp8(3);
}

/* gpt-oss' MXFP4. */
static ckpt_map *in_blocks(void)
{
    static const uint64_t shape[] = {1, 2, 1, 16};
    static uint8_t bytes[32];
    const ckpt_array codes = {.name = "e_blocks", CKPT_U8, 4, shape, bytes},
                     scales = {.name = "e_scales", CKPT_U8, 3, shape, bytes};
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    assert_int_equal(ckpt_map_put(map, &codes, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_put(map, &scales, NULL), CKPT_OK);
    return map;
}

/* A tied model, and an average of two of its weights. */
static ckpt_map *averaged(void)
{
    ckpt_map *map = arrays();

    put(map, "ema.module.embed.weight", CKPT_F32, 8, 4);
    put(map, "ema.module.layers.0.fc.weight", CKPT_F32, 4, 4);
    assert_int_equal(ckpt_map_tie(map, "lm_head.weight=embed.weight", NULL), CKPT_OK);
    return map;
}

/* ---- changes ---- */

static int take_average(ckpt_map *map, ckpt_err *err)
{
    int rc = ckpt_map_take_weights(map, "ema", err);

    // the copy takes the place of its weight, and of the name that is tied to it
    if (rc == CKPT_OK)
        assert_int_equal(ckpt_map_tensor_count(map), 4);
    return rc;
}

static int take_evaluated(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_take_weights(map, "schedule-free", err);
}

static int select_layers(ckpt_map *map, ckpt_err *err)
{
    const char *const exclude[] = {"embed*", NULL};
    const ckpt_filter f = {.exclude = exclude, .rename_text = "layers.* h.*\n"};

    return ckpt_map_select(map, &f, err);
}

static int select_from_run(ckpt_map *map, ckpt_err *err)
{
    const ckpt_filter f = {.rename_text = "h.* block.*\n*/h.* *\n", .skip_state = true};

    return ckpt_map_select(map, &f, err);
}

/* Warns of the pattern, selects nothing. */
static int select_nothing(ckpt_map *map, ckpt_err *err)
{
    const char *const include[] = {"nothing", NULL};
    const ckpt_filter f = {.include = include};

    return ckpt_map_select(map, &f, err);
}

/* The second tensor gets the name of the first. */
static int select_twice(ckpt_map *map, ckpt_err *err)
{
    const char *const include[] = {"layers*", NULL};
    const ckpt_filter f = {.include = include, .rename_text = "layers.* same\n"};

    return ckpt_map_select(map, &f, err);
}

static int remap_by(ckpt_map *map, const char *text, ckpt_err *err)
{
    ckpt_remap *r = NULL;
    int rc = ckpt_remap_new(&r, "t", text, err);

    if (rc == CKPT_OK)
        rc = ckpt_map_remap(map, r, NULL, err);
    ckpt_remap_free(r);
    return rc;
}

static int remap_run(ckpt_map *map, ckpt_err *err)
{
    return remap_by(map,
                    "sizes\nk = 3\ntensors\n"
                    "h.{i}.attn.c_attn.weight \"(k x) y\" = block.{i}.qkv \"(x k) y\"\n"
                    "others stay\n",
                    err);
}

/* The size does not divide the axis of the last tensors. */
static int remap_misfit(ckpt_map *map, ckpt_err *err)
{
    return remap_by(map,
                    "sizes\nk = 7\ntensors\n"
                    "wte.weight = table\n"
                    "h.{i}.attn.c_attn.weight \"(k x) y\" = block.{i}.qkv \"(x k) y\"\n"
                    "others stay\n",
                    err);
}

static int remap_left_over(ckpt_map *map, ckpt_err *err)
{
    return remap_by(map, "wte.weight = table\n", err);
}

static int quantize(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_quantize(map, &(ckpt_quantize){.form = "fp8-channel", .dtype = CKPT_BF16}, err);
}

/* The pattern matches nothing, which shows after all weights were replaced. */
static int quantize_but_nothing(ckpt_map *map, ckpt_err *err)
{
    const char *const skip[] = {"nothing", NULL};

    return ckpt_map_quantize(map, &(ckpt_quantize){.form = "fp8-block:2x2", .skip = skip}, err);
}

static int dequantize(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_dequantize(map, true, err);
}

static int repack(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_repack(map, false, err);
}

static int dequantize_moments(ckpt_map *map, ckpt_err *err)
{
    uint64_t n = 0;

    return ckpt_map_dequantize_moments(map, &n, err);
}

static int resize_to(ckpt_map *map, uint64_t rows, const char *second, ckpt_err *err)
{
    const char *const names[] = {"embed.weight", second, NULL};

    return ckpt_map_resize_vocab(map, &(ckpt_vocab_opts){.rows = rows, .tensors = names}, err);
}

static int add_rows(ckpt_map *map, ckpt_err *err)
{
    return resize_to(map, 10, "lm_head.weight", err);
}

static int cut_rows(ckpt_map *map, ckpt_err *err)
{
    return resize_to(map, 5, "lm_head.weight", err);
}

static int resize_unlike(ckpt_map *map, ckpt_err *err)
{
    return resize_to(map, 10, "layers.0.fc.weight", err);
}

static int tie(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_tie(map, "lm_head.weight=embed.weight", err);
}

static int tie_unlike(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_tie(map, "lm_head.weight=layers.0.fc.weight", err);
}

static int tie_missing(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_tie(map, "head", err);
}

static int keep_model(ckpt_map *map, ckpt_err *err)
{
    const ckpt_model_opts opts = {.config_text = "{\"model_type\": \"llama\"}"};

    return ckpt_map_keep_model(map, &opts, err);
}

static int keep_model_by_text(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_keep_model(map, &(ckpt_model_opts){.config_text = "[]"}, err);
}

static int warm_start(ckpt_map *map, ckpt_err *err)
{
    const ckpt_target zero = {
        .format = "zero", .path = "out", .stage = 1, .world = 2, .order_text = "*\n"};

    return ckpt_map_warm_start(map, &zero, err);
}

static int warm_start_in_no_order(ckpt_map *map, ckpt_err *err)
{
    const ckpt_target zero = {.format = "zero",
                              .path = "out",
                              .stage = 1,
                              .world = 2,
                              .order_text = "embed.weight\nnothing\n"};

    return ckpt_map_warm_start(map, &zero, err);
}

static int merge_adapter(ckpt_map *map, ckpt_err *err)
{
    const ckpt_adapter a = {.path = fixture("peft_tied_head/adapter"), .untie = true};

    return ckpt_map_merge_adapter(map, &a, err);
}

/* The adapter of another model: some of its tensors find no weight. */
static int merge_other_adapter(ckpt_map *map, ckpt_err *err)
{
    const ckpt_adapter a = {.path = fixture("peft_gpt2_conv1d/adapter"), .untie = true};

    return ckpt_map_merge_adapter(map, &a, err);
}

static int keep_adapter(ckpt_map *map, ckpt_err *err)
{
    const ckpt_adapter_only only = {.config = fixture("trainer_lora_z3/adapter_config.json")};

    return ckpt_map_keep_adapter(map, &only, err);
}

static int keep_other_adapter(ckpt_map *map, ckpt_err *err)
{
    const ckpt_adapter_only only = {.config = fixture("trainer_lora_z3/adapter_config.json"),
                                    .name = "absent"};

    return ckpt_map_keep_adapter(map, &only, err);
}

static int put_more(ckpt_map *map, ckpt_err *err)
{
    static const float x = 1;
    const uint64_t one[] = {1};
    const ckpt_array a = {.name = "more", .dtype = CKPT_F32, .ndim = 1, .shape = one, .data = &x};

    return ckpt_map_put(map, &a, err);
}

static int put_again(ckpt_map *map, ckpt_err *err)
{
    static const float x = 1;
    const uint64_t one[] = {1};
    const ckpt_array a = {
        .name = "embed.weight", .dtype = CKPT_F32, .ndim = 1, .shape = one, .data = &x};

    return ckpt_map_put(map, &a, err);
}

static int put_metadata(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_put_metadata(map, "key", "text", err);
}

static int put_no_metadata(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_put_metadata(map, "key", "\xff", err);
}

static int set_folder(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_set_model_folder(map, "elsewhere", err);
}

static int set_no_folder(ckpt_map *map, ckpt_err *err)
{
    return ckpt_map_set_model_folder(map, NULL, err);
}

/* ---- the tests ---- */

typedef struct change {
    ckpt_map *(*make)(void);
    int (*run)(ckpt_map *map, ckpt_err *err);
} change;

static void refused_changes(void **state)
{
    static const change all[] = {
        {arrays, select_nothing},
        {arrays, select_twice},
        {run, remap_misfit},
        {run, remap_left_over},
        {arrays, quantize_but_nothing},
        {quantized, quantize},
        {quantized_badly, dequantize},
        {quantized_badly, repack},
        {arrays, resize_unlike},
        {arrays, tie_unlike},
        {arrays, tie_missing},
        {arrays, ckpt_map_untie},
        {arrays, take_average},
        {run, take_evaluated},
        {tied, tie},
        {arrays, keep_model_by_text},
        {arrays, warm_start_in_no_order},
        {run, warm_start},
        {model, merge_other_adapter},
        {run_of_adapter, keep_other_adapter},
        {arrays, put_again},
        {arrays, put_no_metadata},
        {arrays, set_no_folder},
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ckpt_map *map = all[i].make();
        char *before = text_of(map);
        ckpt_err err = {0};
        int rc = all[i].run(map, &err);

        if (rc == CKPT_OK)
            fail_msg("change %zu is not refused", i);
        assert_int_equal(rc, err.code);

        assert_unchanged(map, before);
        ckpt_free(before);
        ckpt_map_free(map);
    }
}

/* Fail each allocation in turn; the same map is tried again, and in the end the change succeeds. */
static void changes_without_memory(void **state)
{
    static const change all[] = {
        {arrays, select_layers},  {run, select_from_run},  {run, remap_run},
        {arrays, quantize},       {quantized, dequantize}, {run_in_8_bits, dequantize_moments},
        {arrays, add_rows},       {arrays, cut_rows},      {arrays, tie},
        {tied, ckpt_map_untie},   {model, ckpt_map_untie}, {arrays, keep_model},
        {arrays, warm_start},     {model, merge_adapter},  {run_of_adapter, keep_adapter},
        {arrays, put_more},       {arrays, put_metadata},  {arrays, set_folder},
        {averaged, take_average}, {in_blocks, repack},
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ckpt_map *map = all[i].make();
        char *before = text_of(map);
        ckpt_err err = {0};
        int rc = CKPT_ELIMIT;

        for (uint64_t n = 0; rc != CKPT_OK && n < SHOTS; n++) {
            ckpt_alloc_fail_at(n);
            rc = all[i].run(map, &err);
            ckpt_alloc_fail_at(UINT64_MAX);
            if (rc != CKPT_OK)
                assert_unchanged(map, before);
        }
        if (rc != CKPT_OK)
            fail_msg("change %zu fails: %s", i, err.text);
        char *after = text_of(map);
        assert_string_not_equal(after, before);
        ckpt_free(after);
        ckpt_free(before);
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_changes),
        cmocka_unit_test(changes_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
