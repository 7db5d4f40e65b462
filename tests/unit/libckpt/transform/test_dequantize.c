/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dequantize.c: quantized weights element by element against their formulas written out
 * plainly; which blocks a configuration and a grid of scales agree on.
 */
#include <math.h>

#include "ckpt_shape.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"
#include "libckpt/transform/quant_scheme.h"
#include "tests/unit/unit.h"

enum { ROWS = 5, COLS = 48, EXPERTS = 2, OUT = 17, GROUPS = 3, IN = GROUPS * 32 };

static ckpt_map *new_map(void)
{
    ckpt_map *map = NULL;

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    return map;
}

static void put(ckpt_map *map, const char *name, ckpt_dtype d, uint32_t ndim, const uint64_t *shape,
                void *data)
{
    ckpt_array a = {.name = name, .dtype = d, .ndim = ndim, .shape = shape, .data = data};

    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
}

/* All n elements of a tensor as F32, read in pieces of an odd length. */
static void read_all(const ckpt_map *map, const char *name, float *to, uint64_t n)
{
    const ckpt_tensor *t = ckpt_map_find(map, name);
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};

    assert_non_null(t);
    assert_int_equal(t->n_elems, n);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < 37 ? n - at : 37;
        if (ckpt_reader_read(reader, t, at, some, CKPT_F32, to + at, &err) != CKPT_OK)
            fail_msg("%s", err.text);
    }
    ckpt_reader_free(reader);
}

/* An F8_E4M3 by its definition. */
static float e4m3(uint8_t b)
{
    float m = (float)(b & 7), sign = b & 0x80 ? -1.0f : 1.0f;
    int e = b >> 3 & 15;

    return sign * (e ? ldexpf(1 + m / 8, e - 7) : ldexpf(m / 8, -6));
}

/* x rounded to BF16, ties to even. */
static float bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    u += 0x7fff + (u >> 16 & 1);
    u &= 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void assert_same(const float *got, const float *want, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("element %u: %.9g, expected %.9g", (unsigned)i, (double)got[i],
                     (double)want[i]);
    }
}

static uint8_t small(unsigned i)
{
    return (uint8_t)(i * 37 % 127 + (i % 2 ? 0x80 : 0)); // never a NaN
}

/* One scale for each row, in either shape, or for all; rounded once. */
static void rows(void **state)
{
    static const uint64_t shape[] = {ROWS, COLS}, grid[] = {ROWS, 1};
    static const struct {
        const char *name;
        uint32_t ndim;
        bool all;
    } kinds[] = {{"w_scale_inv", 2, false}, {"w_scale_inv", 1, false}, {"w_scale_inv", 0, true}};
    uint8_t w[ROWS * COLS];
    float scale[ROWS] = {0.013f, -3.7f, 1e-30f, INFINITY, 0.25f};

    (void)state;
    for (unsigned i = 0; i < ROWS * COLS; i++)
        w[i] = small(i + 1);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (unsigned rounded = 0; rounded < 2; rounded++) {
            ckpt_map *map = new_map();
            float got[ROWS * COLS], want[ROWS * COLS];

            put(map, "w", CKPT_F8_E4M3, 2, shape, w);
            put(map, kinds[k].name, CKPT_F32, kinds[k].ndim, grid, scale);
            assert_int_equal(ckpt_map_dequantize(map, rounded, NULL), CKPT_OK);
            assert_int_equal(ckpt_map_tensor_count(map), 1);
            for (unsigned i = 0; i < ROWS * COLS; i++) {
                float x = e4m3(w[i]) * scale[kinds[k].all ? 0 : i / COLS];
                want[i] = rounded && isfinite(x) ? bf16(x) : x;
            }
            // zero times infinity is NaN, of one sign or the other
            read_all(map, "w", got, ROWS * COLS);
            for (unsigned i = 0; i < ROWS * COLS; i++) {
                assert_int_equal(isnan(got[i]) != 0, isnan(want[i]) != 0);
                got[i] = isnan(got[i]) ? 0 : got[i];
                want[i] = isnan(want[i]) ? 0 : want[i];
            }
            assert_same(got, want, ROWS * COLS);
            ckpt_map_free(map);
        }
    }
}

/* compressed-tensors: the product is rounded to the scale's dtype, whatever is written. */
static void own_dtype(void **state)
{
    static const uint64_t shape[] = {ROWS, COLS}, grid[] = {ROWS, 1};
    uint8_t w[ROWS * COLS];
    uint16_t scale[ROWS] = {0x3c4d, 0xbe91, 0x3f80, 0x0123, 0x4123}; // BF16
    float got[ROWS * COLS], want[ROWS * COLS];
    ckpt_map *map = new_map();

    (void)state;
    for (unsigned i = 0; i < ROWS * COLS; i++) {
        uint32_t u = (uint32_t)scale[i / COLS] << 16;
        float s;

        w[i] = (uint8_t)(i * 11);
        memcpy(&s, &u, sizeof s);
        want[i] = bf16((float)(int8_t)w[i] * s);
    }
    put(map, "w", CKPT_I8, 2, shape, w);
    put(map, "w_scale", CKPT_BF16, 2, grid, scale);
    assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
    read_all(map, "w", got, ROWS * COLS);
    assert_same(got, want, ROWS * COLS);
    ckpt_map_free(map);
}

/* Exponents: as E8M0, whose last one is NaN, and as bytes, whose last one is infinite. */
static void exponents(void **state)
{
    static const uint64_t shape[] = {4, 1}, grid[] = {4, 1};
    uint8_t w[4] = {0x38, 0x38, 0x38, 0x38}, scale[4] = {0, 1, 254, 255}; // 1.0 each
    float got[4];

    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        ckpt_map *map = new_map();

        put(map, "w", CKPT_F8_E4M3, 2, shape, w);
        put(map, "w_scale_inv", k ? CKPT_U8 : CKPT_F8_E8M0, 2, grid, scale);
        assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
        read_all(map, "w", got, 4);
        assert_true(got[0] == 0x1p-127f && got[1] == 0x1p-126f && got[2] == 0x1p127f);
        assert_true(k ? isinf(got[3]) : isnan(got[3]));
        ckpt_map_free(map);
    }
}

/* MXFP4: every nibble under every exponent, with the axes turned. */
static void mxfp4(void **state)
{
    static const uint64_t shape[] = {EXPERTS, OUT, GROUPS, 16}, grid[] = {EXPERTS, OUT, GROUPS};
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    enum { N_SCALES = EXPERTS * OUT * GROUPS, N = EXPERTS * OUT * IN };
    static uint8_t blocks[N_SCALES * 16], scales[N_SCALES];
    static float got[N], want[N];

    (void)state;
    for (unsigned first = 0; first < 256; first += N_SCALES) {
        ckpt_map *map = new_map();
        const ckpt_tensor *t;

        for (unsigned i = 0; i < N_SCALES; i++)
            scales[i] = (uint8_t)(first + i < 256 ? first + i : 255);
        for (unsigned i = 0; i < sizeof blocks; i++)
            blocks[i] = (uint8_t)(i * 17 + i / 16);
        put(map, "e.up_blocks", CKPT_U8, 4, shape, blocks);
        put(map, "e.up_scales", CKPT_U8, 3, grid, scales);
        assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
        t = ckpt_map_find(map, "e.up");
        assert_non_null(t);
        assert_true(t->ndim == 3 && t->shape[0] == EXPERTS && t->shape[1] == IN &&
                    t->shape[2] == OUT);
        for (unsigned i = 0; i < N; i++) {
            unsigned e = i / (IN * OUT), c = i / OUT % IN, r = i % OUT;
            unsigned block = (e * OUT + r) * GROUPS + c / 32,
                     byte = blocks[block * 16 + c % 32 / 2];

            want[i] = (float)ldexp(e2m1[c % 2 ? byte >> 4 : byte & 15], scales[block] - 127);
        }
        read_all(map, "e.up", got, N);
        assert_same(got, want, N);
        ckpt_map_free(map);
    }
}

/* The same in ggml's blocks: every bit by its place, and the other quantized weights as floats. */
static void repacked(void **state)
{
    static const uint64_t shape[] = {EXPERTS, OUT, GROUPS, 16}, grid[] = {EXPERTS, OUT, GROUPS},
                          rows[] = {2, 2}, one[] = {2, 1};
    enum { N = EXPERTS * OUT * GROUPS };
    static uint8_t blocks[N * 16], scales[N], got[N * 17], part[2 * 17];
    static float turned[N * 32], kept[N * 32];
    uint8_t w[4] = {0x38, 0x40, 0x48, 0x30};
    float scale[2] = {2, 3}, x[4];
    ckpt_map *map = new_map(), *floats = new_map();
    ckpt_reader *reader = NULL;

    (void)state;
    for (unsigned i = 0; i < N; i++)
        scales[i] = (uint8_t)(i * 5);
    for (unsigned i = 0; i < sizeof blocks; i++)
        blocks[i] = (uint8_t)(i * 17 + i / 16);
    put(map, "e.up_blocks", CKPT_U8, 4, shape, blocks);
    put(map, "e.up_scales", CKPT_U8, 3, grid, scales);
    put(map, "w", CKPT_F8_E4M3, 2, rows, w);
    put(map, "w_scale_inv", CKPT_F32, 2, one, scale);
    put(floats, "e.up_blocks", CKPT_U8, 4, shape, blocks);
    put(floats, "e.up_scales", CKPT_U8, 3, grid, scales);
    assert_int_equal(ckpt_map_repack(map, false, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_dequantize(floats, false, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_tensor_count(map), 2);
    read_all(map, "w", x, 4);
    assert_true(x[0] == 2 && x[1] == 4 && x[2] == 12 && x[3] == 1.5f);

    const ckpt_tensor *t = ckpt_map_find(map, "e.up_blocks");
    assert_non_null(t);
    assert_true(t->dtype == CKPT_MXFP4 && t->ndim == 3 && t->shape[0] == EXPERTS &&
                t->shape[1] == OUT && t->shape[2] == IN);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_read(reader, t, 0, t->n_elems, CKPT_DTYPE_NONE, got, NULL),
                     CKPT_OK);
    for (unsigned i = 0; i < N * 32; i++) {
        const unsigned block = i / 32, k = i % 32;
        const unsigned from = blocks[block * 16 + k / 2] >> (k % 2 ? 4 : 0) & 15,
                       to = got[block * 17 + 1 + k % 16] >> (k < 16 ? 0 : 4) & 15;

        if (from != to || got[block * 17] != scales[block])
            fail_msg("element %u: %u, expected %u", i, to, from);
    }
    // two blocks from the middle, and the values, which have other axes as floats
    assert_int_equal(ckpt_reader_read(reader, t, 5 * 32, 64, CKPT_DTYPE_NONE, part, NULL), CKPT_OK);
    assert_memory_equal(part, got + 5 * 17, sizeof part);
    read_all(map, "e.up_blocks", kept, N * 32);
    read_all(floats, "e.up", turned, N * 32);
    for (unsigned i = 0; i < N * 32; i++) {
        const unsigned e = i / (IN * OUT), r = i / IN % OUT, c = i % IN;

        // -0 becomes +0, which compares equal
        if (kept[i] != turned[(e * IN + c) * OUT + r])
            fail_msg("element %u: %.9g", i, (double)kept[i]);
    }
    ckpt_reader_free(reader);
    ckpt_map_free(map);
    ckpt_map_free(floats);
}

/* Scales that are none leave the map as it was. */
static void not_repacked(void **state)
{
    static const uint64_t shape[] = {1, 2, 1, 16}, grid[] = {1, 1, 2}, own[] = {1, 2, 1};
    uint8_t bytes[32] = {0};
    ckpt_err err = {0};

    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        ckpt_map *map = new_map();

        put(map, "e.up_blocks", CKPT_U8, 4, shape, bytes);
        put(map, "e.up_scales", CKPT_U8, 3, k ? own : grid, bytes);
        if (k)
            put(map, "e.up", CKPT_U8, 3, own, bytes);
        assert_int_equal(ckpt_map_repack(map, false, &err), CKPT_EMISMATCH);
        assert_non_null(strstr(err.text, k ? "stored as floats and, quantized" : "these are no"));
        assert_int_equal(ckpt_map_tensor_count(map), 2 + k);
        assert_int_equal(ckpt_map_find(map, "e.up_blocks")->dtype, CKPT_U8);
        ckpt_map_free(map);
    }
}

/* ---- what a configuration says ---- */

static int scheme_of(ckpt_quant_scheme *scheme, const char *text, char *why)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_json_text json = {.name = "config.json", .at = text, .n = strlen(text), .max = 1 << 16};
    ckpt_value *q = NULL;
    ckpt_err err = {0};

    assert_non_null(arena);
    assert_int_equal(ckpt_json_parse(&q, arena, &json, NULL), CKPT_OK);
    int rc = ckpt_quant_scheme_of(scheme, q, "model", &err);
    if (why)
        memcpy(why, err.text, sizeof err.text);
    ckpt_arena_free(arena);
    return rc;
}

#define GROUP(more) "{\"weights\": {\"num_bits\": 8, \"type\": \"float\", " more "}}"
#define CT(groups)                                                                                 \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "                 \
    "\"config_groups\": {" groups "}}"

static void schemes(void **state)
{
    static const struct {
        const char *text;
        int rc;
        bool plain;
        uint32_t n_blocks;
    } cases[] = {
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 64]}", CKPT_OK, false, 1},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": null}", CKPT_OK, true, 0},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [0, 64]}", CKPT_EFORMAT, false, 0},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [1e3, 64]}", CKPT_EFORMAT, false, 0},
        {"{\"quant_method\": \"hqq\"}", CKPT_EUNSUPPORTED, false, 0},
        {"{\"quant_method\": \"awq\", \"bits\": 4}", CKPT_EFORMAT, false, 0},
        {"{\"quant_method\": 3}", CKPT_EUNSUPPORTED, false, 0},
        {"{}", CKPT_EUNSUPPORTED, false, 0},
        {CT("\"a\": " GROUP("\"strategy\": \"channel\"")), CKPT_OK, true, 0},
        {CT("\"a\": " GROUP("\"strategy\": \"group\", \"group_size\": 32") ", \"b\": " GROUP(
             "\"strategy\": \"block\", \"block_structure\": [4, 4]")),
         CKPT_OK, false, 2},
        {CT("\"a\": " GROUP("\"strategy\": \"group\", \"group_size\": -32")), CKPT_EFORMAT, false,
         0},
        {CT("\"a\": {\"weights\": null}"), CKPT_EUNSUPPORTED, false, 0},
        {CT("\"a\": 3"), CKPT_EUNSUPPORTED, false, 0},
        {CT("\"a\": {\"format\": \"pack-quantized\", \"weights\": {\"num_bits\": 8}}"),
         CKPT_EUNSUPPORTED, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_quant_scheme scheme;
        char why[sizeof((ckpt_err *)0)->text];
        int rc = scheme_of(&scheme, cases[i].text, why);

        if (rc != cases[i].rc)
            fail_msg("%s: %d, expected %d: %s", cases[i].text, rc, cases[i].rc, why);
        if (rc != CKPT_OK)
            continue;
        assert_int_equal(scheme.plain, cases[i].plain);
        assert_int_equal(scheme.n_blocks, cases[i].n_blocks);
    }
}

/* Cut blocks, sizes that two blocks fit, and sizes that overflow when they are rounded up. */
static void grids(void **state)
{
    static const struct {
        uint64_t size[2], grid[2];
        int rc;
        uint64_t block[2];
    } cases[] = {
        {{256, 256}, {2, 2}, CKPT_OK, {128, 128}},
        {{130, 1}, {2, 1}, CKPT_OK, {128, 128}},
        {{130, 1}, {1, 1}, CKPT_EMISMATCH, {0, 0}},
        {{130, 1}, {130, 1}, CKPT_EMISMATCH, {0, 0}},
        {{UINT64_MAX, 1}, {UINT64_C(1) << 57, 1}, CKPT_OK, {128, 128}},
    };
    ckpt_quant_scheme one = {.n_blocks = 1, .block = {{128, 128}}};
    ckpt_quant_scheme two = {.n_blocks = 2, .block = {{128, 128}, {100, 128}}};
    uint64_t block[2];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ckpt_quant_block_of(&one, cases[i].size, cases[i].grid, block),
                         cases[i].rc);
        if (cases[i].rc == CKPT_OK)
            assert_memory_equal(block, cases[i].block, sizeof block);
    }
    assert_int_equal(ckpt_quant_block_of(&two, (uint64_t[]){130, 1}, (uint64_t[]){2, 1}, block),
                     CKPT_EMISMATCH);
    assert_int_equal(ckpt_quant_block_of(&two, (uint64_t[]){256, 1}, (uint64_t[]){3, 1}, block),
                     CKPT_OK);
    assert_int_equal(block[0], 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows),      cmocka_unit_test(own_dtype),
                                       cmocka_unit_test(exponents), cmocka_unit_test(mxfp4),
                                       cmocka_unit_test(repacked),  cmocka_unit_test(not_repacked),
                                       cmocka_unit_test(schemes),   cmocka_unit_test(grids)};

    return cmocka_run_group_tests_name("dequantize", tests, NULL, NULL);
}
