/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_layers.c: checks how the report groups tensors by layer and by file, how it grades
 * differences, and how it escapes texts.
 */
#include <math.h>

#include "tests/unit/tools/report/help.h"
#include "tools/report/differ.h"
#include "tools/report/layers.h"
#include "tools/report/parts.h"

static ckpt_err err;

static void test_names(void **state)
{
    static const struct {
        const char *name;
        size_t n;
        const char *rest;
    } cases[] = {
        {"model.layers.7.mlp.weight", 14, "mlp.weight"},
        {"model.layers.7", 14, ""},
        {"7.weight", 1, "weight"},
        {"a/3/b.4.c", 3, "b.4.c"}, // the first number
        {"transformer.wte.weight", 15, "weight"},
        {"weight", 6, ""},
        {"", 0, ""},
        {"h.x1.w", 4, "w"}, // "x1" is no number
        {"a..b", 2, "b"},
        {"a.", 1, ""},
        {".", 1, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (layer_of(cases[i].name) != cases[i].n)
            fail_msg("%s: %zu", cases[i].name, layer_of(cases[i].name));
        assert_string_equal(layer_rest(cases[i].name), cases[i].rest);
    }
}

static void test_sums(void **state)
{
    static uint8_t bytes[64];
    ckpt_map *map = map_new();
    layers l;

    (void)state;
    map_add(map, "h.0.a", CKPT_F32, 4, bytes);
    map_add(map, "h.1.a", CKPT_BF16, 8, bytes);
    map_add(map, "h.0.b", CKPT_BF16, 2, bytes);
    ckpt_tensor *tied = map_add(map, "h.1.tied", CKPT_F32, 4, bytes);
    tied->owner = map->tensors.at[0];
    assert_int_equal(layers_make(&l, map, &err), CKPT_OK);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.at[0].name, "h.0");
    assert_int_equal(l.at[0].n_tensors, 2);
    assert_int_equal(l.at[0].n_elems, 6);
    assert_int_equal(l.at[0].n_bytes, 20);
    assert_int_equal(l.at[0].bytes_of[CKPT_BF16], 4);
    // a tied name counts as a tensor, without bytes
    assert_int_equal(l.at[1].n_tensors, 2);
    assert_int_equal(l.at[1].n_bytes, 16);
    assert_int_equal(l.bytes_of[CKPT_BF16], 20);
    assert_int_equal(l.most_bytes, 20);
    assert_int_equal(l.of[2], 0);
    assert_int_equal(l.of[3], 1);
    layers_free(&l);
    ckpt_map_free(map);
}

/* So many layers that the table of names grows several times. */
static void test_many(void **state)
{
    layers l = {0};
    char name[32];

    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        int n = snprintf(name, sizeof name, "layer.%zu", i);
        assert_int_equal(layers_find(&l, name, (size_t)n), i);
    }
    for (size_t i = 0; i < 1000; i++) {
        int n = snprintf(name, sizeof name, "layer.%zu", i);
        assert_int_equal(layers_find(&l, name, (size_t)n), i);
    }
    // only the first n bytes are the name
    assert_int_equal(layers_find(&l, "layer.1000", 7), 1);
    assert_int_equal(layers_find(&l, "layer.1000", 6), 1000);
    assert_int_equal(l.n, 1001);
    layers_free(&l);
}

/* ---- differences ---- */

static void test_levels(void **state)
{
    static const struct {
        double distance;
        unsigned level;
        const char *word;
    } cases[] = {{0, 1, "0"},
                 {1e-6, 1, "1e-06"},
                 {1.1e-6, 2, "1.1e-06"},
                 {9e-5, 2, "9e-05"},
                 {1.1e-4, 3, "0.00011"},
                 {0.011, 4, "0.011"},
                 {0.9, 4, "0.9"},
                 {1.1, 5, "1.1"},
                 {1e300, 5, "1e+300"},
                 {(double)INFINITY, 5, "inf"},
                 {-1, 5, "bits"}};
    char buf[DIFFER_WORD];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const difference d = {.what = DIFFER_VALUES, .max_abs = cases[i].distance};
        assert_int_equal(differ_level(&d), cases[i].level);
        assert_string_equal(differ_word(buf, &d), cases[i].word);
    }
    assert_int_equal(differ_level(&(difference){.what = DIFFER_SHAPE}), 0);
    assert_string_equal(differ_word(buf, &(difference){0}), "=");
    assert_string_equal(differ_word(buf, &(difference){.what = DIFFER_SHAPE}), "shape");
    assert_string_equal(
        differ_word(buf, &(difference){.what = DIFFER_DTYPE | DIFFER_VALUES, .max_abs = 1}),
        "dtype");
    assert_string_equal(differ_word(buf, &(difference){.what = DIFFER_ONLY_B}), "only B");
}

static void test_differ(void **state)
{
    static float x[] = {1, 2, 3, 4}, y[] = {1, 2, 3.5f, 4};
    const ckpt_run_opts run = {.jobs = 1};
    ckpt_map *a = map_new(), *b = map_new();
    differ d;

    (void)state;
    map_add(a, "h.0.w", CKPT_F32, 4, x);
    map_add(a, "h.0.same", CKPT_F32, 4, x);
    map_add(a, "h.1.w", CKPT_F32, 2, x);
    map_add(a, "h.1.a", CKPT_F32, 2, x);
    map_add(b, "h.2.b", CKPT_F32, 2, x);
    map_add(b, "h.1.w", CKPT_F32, 4, x);
    map_add(b, "h.0.same", CKPT_F32, 4, x);
    map_add(b, "h.0.w", CKPT_F32, 4, y);
    assert_int_equal(differ_make(&d, a, b, &run, &err), CKPT_OK);
    assert_int_equal(d.n, 5);
    assert_int_equal(d.n_a, 4);
    assert_int_equal(d.n_different, 4);
    assert_string_equal(d.at[0].name, "h.0.w");
    assert_int_equal(d.at[0].what, DIFFER_VALUES);
    assert_int_equal(d.at[0].n_different, 1);
    assert_true(fabs(d.at[0].max_abs - 0.5) < 1e-9);
    assert_int_equal(d.at[1].what, 0);
    assert_int_equal(d.at[2].what, DIFFER_SHAPE);
    assert_int_equal(d.at[3].what, DIFFER_ONLY_A);
    assert_string_equal(d.at[4].name, "h.2.b");
    assert_int_equal(d.at[4].what, DIFFER_ONLY_B);
    // the table has a row per layer, a column per name within layers
    assert_int_equal(d.n_rows, 3);
    assert_int_equal(d.n_columns, 4);
    for (size_t i = 0; i < d.n; i++)
        assert_int_equal(d.cell[d.at[i].row * d.n_columns + d.at[i].column], i + 1);
    differ_free(&d);
    ckpt_map_free(a);
    ckpt_map_free(b);
}

/* ---- files ---- */

enum { RANKS = 12 };

/* The runs that parts_each gives, as a text. */
typedef struct runs {
    char text[256];
} runs;

static void keep(void *ctx, const part_run *run)
{
    runs *r = ctx;
    size_t n = strlen(r->text);

    (void)snprintf(r->text + n, sizeof r->text - n, "%d:%dx%d ",
                   run->file == PARTS_NO_FILE ? -1 : (int)run->file, (int)run->n, (int)run->count);
}

static const char *runs_of(parts *p, const ckpt_tensor *t, uint64_t most, uint64_t *left)
{
    static runs r;

    r.text[0] = 0;
    *left = parts_each(p, t, most, keep, &r);
    return r.text;
}

/* Twelve files of ranks, whose names sort by number; the last part is shorter. */
static ckpt_map *ranked(ckpt_tensor **whole, ckpt_tensor **mixed)
{
    static char path[RANKS][16];
    ckpt_map *map = map_new();
    uint32_t source[RANKS];
    const uint64_t n = 10 * (RANKS - 1) + 3, m = 40;
    const ckpt_tensor like = {.dtype = CKPT_F32, .ndim = 1, .shape = &n};
    const ckpt_tensor other = {.dtype = CKPT_F32, .ndim = 1, .shape = &m};

    for (uint32_t i = 0; i < RANKS; i++) {
        uint32_t file;
        (void)snprintf(path[i], sizeof path[i], "rank_%u", i);
        const ckpt_map_file f = {.path = path[i], .size = 1000};
        assert_int_equal(ckpt_map_add_file(map, &f, &file, NULL), CKPT_OK);
        const ckpt_source s = {
            .kind = CKPT_SOURCE_FILE, .n_bytes = 1000, .n_stored = 1000, .file = file};
        assert_int_equal(ckpt_map_add_source(map, &s, &source[i], NULL), CKPT_OK);
    }
    assert_int_equal(ckpt_map_add(map, "w", 1, &like, whole, NULL), CKPT_OK);
    assert_int_equal(ckpt_map_add(map, "m", 1, &other, mixed, NULL), CKPT_OK);
    ckpt_axis axis[RANKS], other_axis[4];
    ckpt_extent e[RANKS], other_e[4];

    for (uint32_t i = 0; i < RANKS; i++) {
        axis[i] = (ckpt_axis){10 * (uint64_t)i, i + 1 < RANKS ? 10 : 3, 4};
        e[i] = (ckpt_extent){.source = source[i], .ndim = 1, .axis = &axis[i]};
    }
    assert_int_equal(ckpt_map_back(map, *whole, e, RANKS, NULL), CKPT_OK);
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t order[] = {2, 3, 9, 10};
        other_axis[i] = (ckpt_axis){10 * (uint64_t)i, 10, 4};
        other_e[i] =
            (ckpt_extent){.source = source[order[i]], .ndim = 1, .axis = &other_axis[i], .at = 100};
    }
    assert_int_equal(ckpt_map_back(map, *mixed, other_e, 4, NULL), CKPT_OK);
    return map;
}

static void test_parts(void **state)
{
    ckpt_tensor *whole, *mixed;
    ckpt_map *map = ranked(&whole, &mixed);
    uint64_t left;
    parts p;

    (void)state;
    assert_int_equal(parts_make(&p, map, &err), CKPT_OK);
    assert_int_equal(p.n_files, RANKS);
    assert_int_equal(p.n_used, RANKS);
    assert_string_equal(p.file[2].path, "rank_2"); // before rank_10
    assert_string_equal(p.file[11].path, "rank_11");
    assert_int_equal(p.file[0].held, 40);
    assert_int_equal(p.file[2].held, 80);
    assert_int_equal(p.file[11].held, 12);
    // equal parts in neighbouring files are one run, with the shorter last one
    assert_string_equal(runs_of(&p, whole, 99, &left), "0:12x10 ");
    assert_int_equal(left, 0);
    assert_string_equal(runs_of(&p, mixed, 99, &left), "2:2x10 9:2x10 ");
    assert_int_equal(left, 0);
    // parts beyond the limit are counted
    assert_string_equal(runs_of(&p, mixed, 1, &left), "2:2x10 ");
    assert_int_equal(left, 2);
    mixed->owner = whole;
    assert_string_equal(runs_of(&p, mixed, 99, &left), "");
    parts_free(&p);
    ckpt_map_free(map);
}

/* ---- texts ---- */

static void test_text(void **state)
{
    sheet_memory m;
    char *text;

    (void)state;
    sheet_memory_begin(&m);
    sheet_text(&m.s, "a<b>&\"'\x01\xff\xc3\xa9", 0);
    sheet_put(&m.s, "|", 1);
    sheet_text(&m.s, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 3); // characters, not bytes
    sheet_put(&m.s, "|", 1);
    sheet_text(&m.s, "abc", 3);
    sheet_put(&m.s, "|", 1);
    sheet_text(&m.s, "\xe2\x80\xae", 0); // a direction mark, which could hide a name
    text = sheet_memory_end(&m);
    assert_string_equal(text, "a&#60;b&#62;&#38;&#34;&#39;\\x01\\xff\xc3\xa9|"
                              "\xc3\xa9\xc3\xa9\xc3\xa9...|abc|\\xe2\\x80\\xae");
    free(text);
}

static void test_string(void **state)
{
    sheet_memory m;
    char *text;

    (void)state;
    sheet_memory_begin(&m);
    sheet_string(&m.s, "</script><!-- \"\\\n", 17);
    sheet_string(&m.s, "abc", 2);
    sheet_string(&m.s, "a\0b", 3);
    sheet_real(&m.s, 0.1);
    sheet_real(&m.s, (double)NAN);
    sheet_real(&m.s, -(double)INFINITY);
    text = sheet_memory_end(&m);
    assert_string_equal(text, "\"\\u003c/script\\u003e\\u003c!-- \\\"\\\\\\\\x0a\"\"ab\"\"a\""
                              "0.1nullnull");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_sums),   cmocka_unit_test(test_many),
        cmocka_unit_test(test_levels), cmocka_unit_test(test_differ), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_text),   cmocka_unit_test(test_string),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
