/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tables.c: the tables of a vocabulary: rows cut and added, heads tied and untied.
 */
#include "ckpt_extra.h"
#include "libckpt/map/map.h"
#include "tests/unit/unit.h"

enum { ROWS = 5, COLS = 3 };

/* embed (5 x 3, counting), head (the same values), norm (3). */
static ckpt_map *model(float *table, float *norm)
{
    const uint64_t shape[] = {ROWS, COLS};
    const ckpt_array arrays[] = {
        {.name = "model.embed_tokens.weight",
         .dtype = CKPT_F32,
         .ndim = 2,
         .shape = shape,
         .data = table},
        {.name = "lm_head.weight", .dtype = CKPT_F32, .ndim = 2, .shape = shape, .data = table},
        {.name = "model.norm.weight",
         .dtype = CKPT_F32,
         .ndim = 1,
         .shape = shape + 1,
         .data = norm},
    };
    ckpt_map *map = NULL;

    for (unsigned i = 0; i < ROWS * COLS; i++)
        table[i] = 1.0f + (float)i;
    assert_int_equal(ckpt_map_new(&map, "memory", NULL), CKPT_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ckpt_map_put(map, &arrays[i], NULL), CKPT_OK);
    return map;
}

static void holds(const ckpt_map *map, const char *name, const float *table, uint64_t rows)
{
    const ckpt_tensor *t = ckpt_map_find(map, name);
    float *out = calloc(rows * COLS, sizeof *out);
    ckpt_reader *reader = NULL;
    ckpt_err err = {0};

    assert_non_null(t);
    assert_non_null(out);
    assert_int_equal(t->shape[0], rows);
    assert_int_equal(ckpt_map_check(map, &err), CKPT_OK);
    assert_int_equal(ckpt_reader_new(&reader, map, NULL), CKPT_OK);
    if (ckpt_reader_read(reader, t, 0, rows * COLS, CKPT_F32, out, &err) != CKPT_OK)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < rows * COLS; i++)
        assert_true(out[i] == (i < ROWS * COLS ? table[i] : 0));
    ckpt_reader_free(reader);
    free(out);
}

/* Fewer rows, the same, more: what is there stays, what is added is zeros. */
static void rows(void **state)
{
    static const char *const globs[] = {"*embed*", "lm_head.*", NULL};
    static const uint64_t counts[] = {1, 4, 5, 6, 64};
    float table[ROWS * COLS], norm[COLS] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const ckpt_vocab_opts opts = {.rows = counts[i], .tensors = globs};
        ckpt_map *map = model(table, norm);
        ckpt_err err = {0};

        if (ckpt_map_resize_vocab(map, &opts, &err) != CKPT_OK)
            fail_msg("%s", err.text);
        holds(map, "model.embed_tokens.weight", table, counts[i]);
        holds(map, "lm_head.weight", table, counts[i]);
        assert_int_equal(ckpt_map_find(map, "model.norm.weight")->shape[0], COLS);
        ckpt_map_free(map);
    }
}

/* What says too little, or something that is not so. */
static void refused(void **state)
{
    static const char *const nothing[] = {"*nothing*", NULL}, *const uneven[] = {"*", NULL},
                             *const head[] = {"lm*", NULL};
    static const struct {
        ckpt_vocab_opts opts;
        int rc;
    } cases[] = {
        {{.rows = 4}, CKPT_EMISSING},
        {{.rows = 4, .tensors = nothing}, CKPT_EUSAGE},
        {{.rows = 4, .tensors = uneven}, CKPT_EUSAGE},
        {{.rows = 4, .config_text = "{\"vocab_size\": 9}", .config_name = "c"}, CKPT_EMISMATCH},
        {{.rows = 4, .config_text = "{", .config_name = "c"}, CKPT_EFORMAT},
        {{.rows = UINT64_C(1) << 61, .tensors = head}, CKPT_EUSAGE},
    };
    float table[ROWS * COLS], norm[COLS] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_map *map = model(table, norm);
        ckpt_err err = {0};
        int rc = ckpt_map_resize_vocab(map, &cases[i].opts, &err);

        if (rc != cases[i].rc)
            fail_msg("case %zu: %d: %s", i, rc, err.text);
        ckpt_map_free(map);
    }
}

/* A tied head has no bytes of its own; apart, it has again. */
static void ties(void **state)
{
    float table[ROWS * COLS], norm[COLS] = {0};
    static const char *const names[] = {"lm_head.weight",
                                        "lm_head.weight=model.embed_tokens.weight"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ckpt_map *map = model(table, norm);
        ckpt_err err = {0};

        if (ckpt_map_tie(map, names[i], &err) != CKPT_OK)
            fail_msg("%s", err.text);
        const ckpt_tensor *head = ckpt_map_find(map, "lm_head.weight");
        assert_true(head->owner == ckpt_map_find(map, "model.embed_tokens.weight"));
        assert_int_equal(ckpt_map_untie(map, &err), CKPT_OK);
        assert_null(ckpt_map_find(map, "lm_head.weight")->owner);
        holds(map, "lm_head.weight", table, ROWS);
        ckpt_map_free(map);
    }
}

static void ties_refused(void **state)
{
    static const char *const names[] = {"head",
                                        "model.norm.weight",
                                        "lm_head.weight=model.norm.weight",
                                        "lm_head.weight=lm_head.weight",
                                        "=",
                                        "lm_head.weight="};
    float table[ROWS * COLS], norm[COLS] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ckpt_map *map = model(table, norm);
        ckpt_err err = {0};

        if (ckpt_map_tie(map, names[i], &err) == CKPT_OK)
            fail_msg("tied: %s", names[i]);
        assert_true(*err.text);
        ckpt_map_free(map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(refused),
        cmocka_unit_test(ties),
        cmocka_unit_test(ties_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
