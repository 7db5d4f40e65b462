/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quant_parts.c: quantized weights with and without the tensors that they need.
 */
#include "formats/hf/whole.h"
#include "libckpt/codec/json/json.h"
#include "tests/unit/unit.h"

typedef struct part_case {
    const char *method;
    const char *lost; /* the tensor that the finding names; NULL: nothing is missing */
    struct {
        const char *name;
        ckpt_dtype dtype;
    } tensors[5];
} part_case;

static const part_case cases[] = {
    {"gptq", NULL, {{"m.q.qweight", CKPT_I32}, {"m.q.scales", CKPT_F16}}},
    {"awq", "m.q.scales", {{"m.q.qweight", CKPT_I32}, {"m.q.qzeros", CKPT_I32}}},
    {"", "m.q.scales", {{"m.q.qweight", CKPT_I32}, {"m.k.scales", CKPT_F16}}},
    {"bitsandbytes",
     NULL,
     {{"q.weight", CKPT_U8},
      {"q.weight.absmax", CKPT_F32},
      {"q.weight.quant_map", CKPT_F32},
      {"q.weight.quant_state.bitsandbytes__nf4", CKPT_U8}}},
    {"bitsandbytes",
     "q.weight.quant_state.bitsandbytes__nf4",
     {{"q.weight", CKPT_U8}, {"q.weight.absmax", CKPT_F32}, {"q.weight.quant_map", CKPT_F32}}},
    {"bitsandbytes", "q.SCB", {{"q.weight", CKPT_I8}, {"k.SCB", CKPT_F32}}},
    // floats of every method, and numbers of another one
    {"bitsandbytes", "all weights are floats", {{"q.weight", CKPT_BF16}}},
    {"gptq", "all weights are floats", {{"q.weight", CKPT_F32}, {"attn.bias", CKPT_U8}}},
    {"some-method", "all weights are floats", {{"q.weight", CKPT_F16}, {"ids", CKPT_I64}}},
    {"awq", "quantized by awq", {{"q.weight", CKPT_U8}, {"q.weight.absmax", CKPT_F32}}},
    {"fp8", "quantized by fp8", {{"q.weight", CKPT_I8}}},
    {"torchao", NULL, {{"q.weight", CKPT_BF16}}},
    {"torchao", NULL, {{"q._weight_qdata", CKPT_I8}, {"q._weight_scale", CKPT_F32}}},
    {"torchao", NULL, {{"q._weight_qdata", CKPT_I32}, {"q._weight_scale_and_zero", CKPT_BF16}}},
    {"torchao",
     "q._weight_scale",
     {{"q._weight_qdata", CKPT_I8}, {"q._weight_zero_point", CKPT_I8}, {"k.weight", CKPT_BF16}}},
    {"compressed-tensors", NULL, {{"q.weight", CKPT_BF16}}}, // without groups
    {"compressed-tensors", "q.weight_scale", {{"q.weight", CKPT_F8_E4M3}, {"k.weight", CKPT_BF16}}},
    {"compressed-tensors",
     NULL,
     {{"q.weight", CKPT_I8}, {"q.weight_scale", CKPT_BF16}, {"q.weight_zero_point", CKPT_I8}}},
    {"compressed-tensors",
     NULL, // Marlin's 2:4 layout
     {{"q.weight_packed", CKPT_I32}, {"q.scale_packed", CKPT_F16}, {"q.meta", CKPT_I16}}},
    {"compressed-tensors",
     "q.weight_shape",
     {{"q.weight_packed", CKPT_I32}, {"q.weight_scale", CKPT_BF16}}},
    {"compressed-tensors",
     NULL,
     {{"q.weight_packed", CKPT_U8},
      {"q.weight_scale", CKPT_F8_E4M3},
      {"q.weight_global_scale", CKPT_F32}}},
    {"fp8", NULL, {{"q.weight", CKPT_F8_E4M3}, {"q.weight_scale_inv", CKPT_F32}}},
    {"fp8", NULL, {{"q.weight", CKPT_F8_E4M3}, {"q.weight_scale", CKPT_F32}}},
    {"fp8",
     "experts.gate_up_proj_scale_inv",
     {{"experts.gate_up_proj", CKPT_F8_E4M3}, {"experts.down_proj", CKPT_BF16}}},
    {"mxfp4", "e.gate_up_proj_scales", {{"e.gate_up_proj_blocks", CKPT_U8}}},
    // weights of eight bits that no method scales
    {"", NULL, {{"q.weight", CKPT_F8_E4M3}, {"k.weight", CKPT_I8}, {"v.weight", CKPT_U8}}},
};

static void check(const part_case *c)
{
    static const uint64_t shape[] = {4, 4};
    ckpt_map *map = NULL;
    ckpt_value *config = NULL;
    char text[128];

    assert_int_equal(ckpt_map_create(&map, 0, NULL), CKPT_OK);
    map->collect = true;
    for (size_t i = 0; i < 5 && c->tensors[i].name; i++) {
        const ckpt_tensor like = {.dtype = c->tensors[i].dtype, .ndim = 2, .shape = shape};
        ckpt_tensor *t = NULL;
        const char *name = c->tensors[i].name;
        assert_int_equal(ckpt_map_add(map, name, strlen(name), &like, &t, NULL), CKPT_OK);
    }
    int n = snprintf(text, sizeof text, "{\"quantization_config\": {\"quant_method\": \"%s\"}}",
                     c->method);
    const ckpt_json_text json = {
        .at = text, .n = (size_t)n, .name = "config.json", .max = sizeof text};
    assert_int_equal(ckpt_json_parse(&config, map->arena, &json, NULL), CKPT_OK);
    assert_int_equal(ckpt_hf_quant_parts(map, config, "x", NULL), CKPT_OK);
    assert_int_equal(map->findings.n, c->lost ? 1 : 0);
    if (c->lost)
        assert_non_null(strstr(map->findings.at[0].text, c->lost));
    ckpt_map_free(map);
}

static void test_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
