/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dequant_words.c: packed integers of every layout and number of bits against their formulas,
 * written out one number at a time; embeddings; matrices of more rows than a tile.
 */
#include "ckpt_shape.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

enum { ROWS = 96, COLS = 64, GROUP = 16, GROUPS = COLS / GROUP };

static uint32_t seed = 1;

static uint32_t next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* A map with this quantization in its configuration. */
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

static void put(ckpt_map *map, const char *name, ckpt_dtype d, uint64_t rows, uint64_t cols,
                void *data)
{
    const uint64_t shape[] = {rows, cols ? cols : 1};
    ckpt_array a = {.name = name, .dtype = d, .ndim = cols ? 2 : 1, .shape = shape, .data = data};

    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
}

/* Put number i of a row of packed words. */
static void pack(uint32_t *word, unsigned bits, uint64_t i, uint32_t number)
{
    for (unsigned b = 0; b < bits; b++) {
        uint64_t at = i * bits + b;

        word[at / 32] |= (number >> b & 1) << at % 32;
    }
}

static void assert_values(const ckpt_map *map, const float *want, uint64_t rows, uint64_t cols)
{
    const ckpt_tensor *t = ckpt_map_find(map, "x.weight");
    float *got = calloc(rows * cols, sizeof *got);
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};

    assert_non_null(t);
    assert_non_null(got);
    assert_int_equal(ckpt_map_tensor_count(map), 1);
    assert_true(t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    for (uint64_t at = 0, some; at < rows * cols; at += some) {
        some = rows * cols - at < 1021 ? rows * cols - at : 1021;
        if (ckpt_reader_read(reader, t, at, some, CKPT_F32, got + at, &err) != CKPT_OK)
            fail_msg("%s", err.text);
    }
    for (uint64_t i = 0; i < rows * cols; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("row %u, column %u: %.9g, expected %.9g", (unsigned)(i / cols),
                     (unsigned)(i % cols), (double)got[i], (double)want[i]);
    }
    ckpt_reader_free(reader);
    free(got);
}

/* Random parts of a matrix, one number at a time. */
typedef struct matrix {
    uint32_t q[ROWS][COLS], z[ROWS][GROUPS], of[COLS];
    float s[ROWS][GROUPS], want[ROWS * COLS];
} matrix;

static void random_matrix(matrix *m, unsigned bits, uint32_t zeros, bool ordered)
{
    for (uint32_t c = 0; c < COLS; c++)
        m->of[c] = ordered ? c / GROUP : next() % GROUPS;
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t g = 0; g < GROUPS; g++) {
            m->z[r][g] = zeros ? zeros : next() % ((1u << bits) - 1) + 1;
            m->s[r][g] = (float)(next() % 1000 + 1) / 4096;
        }
        for (uint32_t c = 0; c < COLS; c++) {
            uint32_t g = m->of[c];

            m->q[r][c] = next() % (1u << bits);
            m->want[r * COLS + c] = ((float)m->q[r][c] - (float)m->z[r][g]) * m->s[r][g];
        }
    }
}

static matrix m;
static uint32_t words[ROWS * COLS], zeros[ROWS * GROUPS], turned[ROWS * COLS];
static float scales[ROWS * GROUPS], embedding[COLS * ROWS];

static void clear(void)
{
    memset(words, 0, sizeof words);
    memset(zeros, 0, sizeof zeros);
    memset(turned, 0, sizeof turned);
}

static void gptq(void **state)
{
    static const unsigned all[] = {2, 3, 4, 8};

    (void)state;
    for (unsigned k = 0; k < 32; k++) {
        unsigned bits = all[k % 4], lines = COLS * bits / 32;
        bool v2 = k & 4, ordered = k & 8, table = k & 16;
        char config[256];

        clear();
        random_matrix(&m, bits, 0, ordered);
        for (unsigned r = 0; r < ROWS; r++) {
            for (unsigned c = 0; c < COLS; c++)
                pack(turned + r * lines, bits, c, m.q[r][c]);
            for (unsigned i = 0; i < lines; i++)
                words[i * ROWS + r] = turned[r * lines + i];
            for (unsigned g = 0; g < GROUPS; g++) {
                scales[g * ROWS + r] = m.s[r][g];
                pack(zeros + g * (ROWS * bits / 32), bits, r, v2 ? m.z[r][g] : m.z[r][g] - 1);
            }
        }
        (void)snprintf(config, sizeof config,
                       "{\"vocab_size\": %d, \"hidden_size\": %d, \"quantization_config\": "
                       "{\"quant_method\": \"gptq\", \"bits\": %u, \"group_size\": %d, "
                       "\"checkpoint_format\": \"gptq%s\"}}",
                       table ? COLS : 9, table ? ROWS : 9, bits, GROUP, v2 ? "_v2" : "");
        ckpt_map *map = new_map(config);
        put(map, "x.qweight", CKPT_I32, lines, ROWS, words);
        put(map, "x.qzeros", CKPT_I32, GROUPS, ROWS * bits / 32, zeros);
        put(map, "x.scales", CKPT_F32, GROUPS, ROWS, scales);
        if (!ordered)
            put(map, "x.g_idx", CKPT_I32, COLS, 0, m.of);
        assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
        for (unsigned i = 0; i < ROWS * COLS; i++)
            embedding[i % COLS * ROWS + i / COLS] = m.want[i];
        assert_values(map, table ? embedding : m.want, table ? COLS : ROWS, table ? ROWS : COLS);
        ckpt_map_free(map);
    }
}

static void awq(void **state)
{
    static const unsigned order[] = {0, 2, 4, 6, 1, 3, 5, 7};

    (void)state;
    clear();
    random_matrix(&m, 4, 0, true);
    for (unsigned r = 0; r < ROWS; r++) {
        unsigned shift = 0;

        while (order[shift / 4] != r % 8)
            shift += 4;
        for (unsigned c = 0; c < COLS; c++)
            words[c * (ROWS / 8) + r / 8] |= m.q[r][c] << shift;
        for (unsigned g = 0; g < GROUPS; g++) {
            zeros[g * (ROWS / 8) + r / 8] |= m.z[r][g] << shift;
            scales[g * ROWS + r] = m.s[r][g];
        }
    }
    ckpt_map *map = new_map("{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, "
                            "\"group_size\": 16, \"version\": \"GEMM\"}}");
    put(map, "x.qweight", CKPT_I32, COLS, ROWS / 8, words);
    put(map, "x.qzeros", CKPT_I32, GROUPS, ROWS / 8, zeros);
    put(map, "x.scales", CKPT_F32, GROUPS, ROWS, scales);
    assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
    assert_values(map, m.want, ROWS, COLS);
    ckpt_map_free(map);
}

static void packed(void **state)
{
    static int64_t shape[] = {ROWS, COLS};

    (void)state;
    for (unsigned k = 0; k < 4; k++) {
        unsigned bits = k & 1 ? 8 : 4, lines = COLS * bits / 32;
        bool even = k & 2;
        char config[320];

        clear();
        random_matrix(&m, bits, even ? 1u << (bits - 1) : 0, true);
        for (unsigned r = 0; r < ROWS; r++) {
            for (unsigned c = 0; c < COLS; c++)
                pack(words + r * lines, bits, c, m.q[r][c]);
            for (unsigned g = 0; g < GROUPS; g++) {
                scales[r * GROUPS + g] = m.s[r][g];
                zeros[r * bits / 32 * GROUPS + g] |= m.z[r][g] << r * bits % 32;
            }
        }
        (void)snprintf(
            config, sizeof config,
            "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
            "\"format\": \"pack-quantized\", \"config_groups\": {\"g\": {\"weights\": {"
            "\"num_bits\": %u, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 16, "
            "\"symmetric\": %s}}}}}",
            bits, even ? "true" : "false");
        ckpt_map *map = new_map(config);
        put(map, "x.weight_packed", CKPT_I32, ROWS, lines, words);
        put(map, "x.weight_scale", CKPT_F32, ROWS, GROUPS, scales);
        put(map, "x.weight_shape", CKPT_I64, 2, 0, shape);
        if (!even)
            put(map, "x.weight_zero_point", CKPT_I32, ROWS * bits / 32, GROUPS, zeros);
        assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
        assert_values(map, m.want, ROWS, COLS);
        ckpt_map_free(map);
    }
}

/* 8 bits in rows of 32 KB: 32 rows fill a tile. */
static void tiles(void **state)
{
    enum { WIDE = 1 << 15, MANY = 80 };
    uint8_t *q = malloc(MANY * WIDE);
    float scale[MANY], *want = calloc((size_t)MANY * WIDE, sizeof *want);
    int64_t shape[] = {MANY, WIDE};

    (void)state;
    assert_true(q && want);
    for (unsigned r = 0; r < MANY; r++) {
        scale[r] = 1 + (float)r / 64;
        for (unsigned c = 0; c < WIDE; c++) {
            q[r * WIDE + c] = (uint8_t)next();
            want[r * WIDE + c] = ((float)q[r * WIDE + c] - 128) * scale[r];
        }
    }
    ckpt_map *map =
        new_map("{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
                "\"pack-quantized\", \"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 8, "
                "\"type\": \"int\", \"strategy\": \"channel\"}}}}}");
    put(map, "x.weight_packed", CKPT_I32, MANY, WIDE / 4, q);
    put(map, "x.weight_scale", CKPT_F32, MANY, 1, scale);
    put(map, "x.weight_shape", CKPT_I64, 2, 0, shape);
    assert_int_equal(ckpt_map_dequantize(map, false, NULL), CKPT_OK);
    assert_values(map, want, MANY, WIDE);
    ckpt_map_free(map);
    free(q);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gptq), cmocka_unit_test(awq),
                                       cmocka_unit_test(packed), cmocka_unit_test(tiles)};

    return cmocka_run_group_tests_name("dequant_words", tests, NULL, NULL);
}
