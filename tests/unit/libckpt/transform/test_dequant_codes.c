/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dequant_codes.c: weights of 4 and 8 bits against their formulas, one element at a time, read
 * in pieces that begin and end within bytes, blocks and rows.
 */
#include "ckpt_shape.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

enum { ROWS = 35, COLS = 27, N = ROWS * COLS, BLOCK = 32, BLOCKS = (N + BLOCK - 1) / BLOCK };

static const float nf4[16] = {-1.0f,
                              -0.6961928009986877f,
                              -0.5250730514526367f,
                              -0.39491748809814453f,
                              -0.28444138169288635f,
                              -0.18477343022823334f,
                              -0.09105003625154495f,
                              0.0f,
                              0.07958029955625534f,
                              0.16093020141124725f,
                              0.24611230194568634f,
                              0.33791524171829224f,
                              0.44070982933044434f,
                              0.5626170039176941f,
                              0.7229568362236023f,
                              1.0f};

static uint32_t seed = 1;

static uint32_t next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static ckpt_map *new_map(const char *config)
{
    ckpt_json_text json = {
        .name = "config.json", .at = config, .n = strlen(config), .max = 1 << 16};
    ckpt_map *map = NULL;
    ckpt_value *v = NULL;

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    assert_int_equal(ckpt_json_parse(&v, map->arena, &json, NULL), CKPT_OK);
    map->config.value = v;
    return map;
}

static void put(ckpt_map *map, const char *name, ckpt_dtype d, const uint64_t shape[2], void *data)
{
    ckpt_array a = {
        .name = name, .dtype = d, .ndim = shape[1] ? 2 : 1, .shape = shape, .data = data};

    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
}

static void assert_values(const ckpt_map *map, const float *want, unsigned step)
{
    const ckpt_tensor *t = ckpt_map_find(map, "x.weight");
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};
    float got[N];

    assert_non_null(t);
    assert_int_equal(ckpt_map_tensor_count(map), 1);
    assert_true(t->ndim == 2 && t->shape[0] == ROWS && t->shape[1] == COLS);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    for (unsigned at = 0, some; at < N; at += some) {
        some = N - at < step ? N - at : step;
        if (ckpt_reader_read(reader, t, at, some, CKPT_F32, got + at, &err) != CKPT_OK)
            fail_msg("%s", err.text);
    }
    for (unsigned i = 0; i < N; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("element %u: %.9g, expected %.9g", i, (double)got[i], (double)want[i]);
    }
    ckpt_reader_free(reader);
}

static void four(void **state)
{
    static const char *const nested =
        ", \"nested_blocksize\": 4, \"nested_dtype\": \"float32\", \"nested_offset\": 0.375";
    uint8_t packed[(N + 1) / 2], absmax[BLOCKS];
    float factor[BLOCKS], outer[(BLOCKS + 3) / 4], codes[256], map16[16], want[N];
    char text[320];

    (void)state;
    memcpy(map16, nf4, sizeof map16);
    for (unsigned i = 0; i < sizeof packed; i++)
        packed[i] = (uint8_t)next();
    for (unsigned i = 0; i < 256; i++)
        codes[i] = ((float)i - 127) / 400;
    for (unsigned i = 0; i < sizeof outer / sizeof *outer; i++)
        outer[i] = (float)(next() % 1000) / 700;
    for (unsigned k = 0; k < 8; k++) {
        bool twice = k & 1;

        for (unsigned b = 0; b < BLOCKS; b++) {
            absmax[b] = (uint8_t)next();
            factor[b] =
                twice ? codes[absmax[b]] * outer[b / 4] + 0.375f : (float)(next() % 1000) / 300;
        }
        for (unsigned i = 0; i < N; i++)
            want[i] = nf4[i % 2 ? packed[i / 2] & 15 : packed[i / 2] >> 4] * factor[i / BLOCK];
        int n = snprintf(text, sizeof text,
                         "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"float32\", "
                         "\"shape\": [%d, %d]%s}",
                         BLOCK, ROWS, COLS, twice ? nested : "");
        ckpt_map *map = new_map("{\"quantization_config\": {\"quant_method\": \"bitsandbytes\", "
                                "\"load_in_4bit\": true}}");
        put(map, "x.weight", CKPT_U8, (uint64_t[]){sizeof packed, 1}, packed);
        put(map, "x.weight.absmax", twice ? CKPT_U8 : CKPT_F32, (uint64_t[]){BLOCKS, 0},
            twice ? (void *)absmax : factor);
        put(map, "x.weight.quant_map", CKPT_F32, (uint64_t[]){16, 0}, map16);
        put(map, "x.weight.quant_state.bitsandbytes__nf4", CKPT_U8, (uint64_t[]){(uint64_t)n, 0},
            text);
        if (twice) {
            put(map, "x.weight.nested_absmax", CKPT_F32, (uint64_t[]){(BLOCKS + 3) / 4, 0}, outer);
            put(map, "x.weight.nested_quant_map", CKPT_F32, (uint64_t[]){256, 0}, codes);
        }
        assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
        assert_values(map, want, k < 2 ? 1 : k < 4 ? 7 : k < 6 ? 64 : N);
        ckpt_map_free(map);
    }
}

static void eight(void **state)
{
    int8_t q[N];
    float factor[ROWS], want[N];

    (void)state;
    for (unsigned i = 0; i < N; i++) {
        factor[i / COLS] = (float)(i / COLS + 1) / 3;
        q[i] = (int8_t)next();
        want[i] = (float)q[i] * factor[i / COLS];
        want[i] *= 7.874015718698502e-3f;
    }
    for (unsigned step = 1; step <= N; step += N / 7) {
        ckpt_map *map = new_map("{\"quantization_config\": {\"quant_method\": \"bitsandbytes\", "
                                "\"load_in_8bit\": true}}");

        put(map, "x.weight", CKPT_I8, (uint64_t[]){ROWS, COLS}, q);
        put(map, "x.SCB", CKPT_F32, (uint64_t[]){ROWS, 0}, factor);
        assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
        assert_values(map, want, step);
        ckpt_map_free(map);
    }
}

/* NVFP4: of compressed-tensors, in BF16, and of ModelOpt, in F32. */
static void fp4(void **state)
{
    static const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6}, by[] = {1, 1.125f, 3.5f, 0.25f};
    static const uint8_t e4m3[] = {0x38, 0x39, 0x46, 0x28};
    enum { WIDE = 32, MANY = 6, ALL = WIDE * MANY };
    uint8_t packed[ALL / 2], scale[ALL / 16];
    float global = 3, got[ALL], want;

    (void)state;
    for (unsigned i = 0; i < sizeof packed; i++)
        packed[i] = (uint8_t)(i * 37);
    for (unsigned i = 0; i < sizeof scale; i++)
        scale[i] = e4m3[i % 4];
    for (unsigned own = 0; own < 2; own++) {
        ckpt_map *map = new_map(
            own ? "{\"quantization_config\": {\"quant_method\": \"modelopt\", "
                  "\"quant_algo\": \"NVFP4\", \"group_size\": 16}}"
                : "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                  "\"format\": \"nvfp4-pack-quantized\", \"config_groups\": {\"g\": {"
                  "\"weights\": {\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16}}}}}");
        ckpt_reader *reader = NULL;

        put(map, own ? "x.weight" : "x.weight_packed", CKPT_U8, (uint64_t[]){MANY, WIDE / 2},
            packed);
        put(map, "x.weight_scale", CKPT_F8_E4M3, (uint64_t[]){MANY, WIDE / 16}, scale);
        put(map, own ? "x.weight_scale_2" : "x.weight_global_scale", CKPT_F32, (uint64_t[]){1, 0},
            &global);
        assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
        assert_int_equal(ckpt_map_tensor_count(map), 1);
        assert_int_equal(ckpt_map_tensor_at(map, 0)->dtype, own ? CKPT_F32 : CKPT_BF16);
        assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
        assert_int_equal(
            ckpt_reader_read(reader, ckpt_map_find(map, "x.weight"), 0, ALL, CKPT_F32, got, NULL),
            CKPT_OK);
        for (unsigned i = 0; i < ALL; i++) {
            unsigned code = i % 2 ? packed[i / 2] >> 4 : packed[i / 2] & 15;
            uint32_t u;

            want = own ? by[i / 16 % 4] * 3 : by[i / 16 % 4] / 3;
            want *= code & 8 && !(own && code == 8) ? -e2m1[code & 7] : e2m1[code & 7];
            memcpy(&u, &want, sizeof u);
            u = own ? u : (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
            assert_memory_equal(&got[i], &u, sizeof u);
        }
        ckpt_reader_free(reader);
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(four), cmocka_unit_test(eight),
                                       cmocka_unit_test(fp4)};

    return cmocka_run_group_tests_name("dequant_codes", tests, NULL, NULL);
}
