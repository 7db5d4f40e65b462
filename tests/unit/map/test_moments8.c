/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_moments8.c: bitsandbytes' 8-bit moments element by element against their formula, read in
 * pieces that begin and end inside blocks.
 */
#include "ckpt.h"
#include "libckpt/map/map.h"
#include "libckpt/map/moments8.h"
#include "tests/unit/unit.h"

enum { N = 2 * 256 + 77, BLOCKS = 3 };

static const ckpt_tensor *put(ckpt_map *map, const char *name, ckpt_dtype d, uint64_t n, void *data)
{
    ckpt_array a = {.name = name, .dtype = d, .ndim = 1, .shape = &n, .data = data};

    assert_int_equal(ckpt_map_put(map, &a, NULL), CKPT_OK);
    return ckpt_map_find(map, name);
}

/* The moments of a map over these tables, as its tensor "m"; *zero: its code of 0. */
static ckpt_map *moments(uint8_t *codes, float *scale, float *table, const ckpt_tensor **zero)
{
    static const uint64_t n = N;
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = &n};
    ckpt_moments8 of = {0};
    ckpt_tensor *t = NULL;
    ckpt_map *map = NULL;
    uint32_t source = 0;

    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    of.codes = put(map, "state1", CKPT_U8, N, codes);
    of.scale = put(map, "absmax1", CKPT_F32, BLOCKS, scale);
    of.table = put(map, "qmap1", CKPT_F32, CKPT_M8_CODES, table);
    assert_int_equal(ckpt_m8_add(map, "moments", &of, &source, NULL), CKPT_OK);
    assert_non_null(ckpt_m8_of(&map->sources.at[source]));
    *zero = ckpt_m8_of(&map->sources.at[source])->zero;
    assert_null(ckpt_m8_of(&map->sources.at[0]));
    assert_int_equal(ckpt_map_add(map, "m", 1, &like, &t, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_back_whole(map, t, source, 0, NULL), CKPT_OK);
    return map;
}

static void fill(uint8_t *codes, float *scale, float *table)
{
    for (unsigned i = 0; i < N; i++)
        codes[i] = (uint8_t)(i * 37);
    for (unsigned i = 0; i < BLOCKS; i++)
        scale[i] = 0.37f / (float)(i + 1);
    for (int i = 0; i < 256; i++)
        table[i] = (float)(i - 127) / 128.0f;
}

static void test_values(void **state)
{
    static const uint64_t lengths[] = {1, 37, 255, 256, 257, N};
    uint8_t codes[N], code = 0;
    float scale[BLOCKS], table[256], got[N];
    const ckpt_tensor *zero = NULL;
    ckpt_reader *reader = NULL;

    (void)state;
    fill(codes, scale, table);
    ckpt_map *map = moments(codes, scale, table, &zero);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    for (unsigned k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        memset(got, 0, sizeof got);
        for (uint64_t at = 0, n; at < N; at += n) {
            n = N - at < lengths[k] ? N - at : lengths[k];
            assert_int_equal(
                ckpt_reader_read(reader, ckpt_map_find(map, "m"), at, n, CKPT_F32, got + at, NULL),
                CKPT_OK);
        }
        for (unsigned i = 0; i < N; i++) {
            float want = table[codes[i]] * scale[i / 256];
            assert_memory_equal(&got[i], &want, sizeof want);
        }
    }
    assert_int_equal(ckpt_reader_read(reader, zero, 0, 1, CKPT_DTYPE_NONE, &code, NULL), CKPT_OK);
    assert_int_equal(code, 127);
    ckpt_reader_free(reader);
    ckpt_map_free(map);
}

/* A table in which no code means 0 has nothing for padding. */
static void test_no_zero(void **state)
{
    uint8_t codes[N], code = 0;
    float scale[BLOCKS], table[256];
    const ckpt_tensor *zero = NULL;
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};

    (void)state;
    fill(codes, scale, table);
    table[127] = 1e-9f;
    ckpt_map *map = moments(codes, scale, table, &zero);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    assert_int_equal(ckpt_reader_read(reader, zero, 0, 1, CKPT_DTYPE_NONE, &code, &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "no code for 0"));
    ckpt_reader_free(reader);
    ckpt_map_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_no_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
