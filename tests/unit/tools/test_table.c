/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_table.c: the report of an evaluation against scikit-learn's own, character by character, and
 * its JSON bit by bit; names that a terminal must not see.
 */
#include "tests/unit/engine/help.h"
#include "tests/unit/unit.h"
#include "tools/zerotrain/zerotrain.h"

enum { CLASSES = 512 };

static ckpt_arena *arena;

/* What a table or a document prints. */
static const char *printed(const zt_score *s, bool json)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    ckpt_err err = {0};
    const char *out;

    assert_non_null(f);
    if (json)
        assert_int_equal(table_json(f, s, 7, &err), CKPT_OK);
    else
        table_print(f, s);
    assert_int_equal(fclose(f), 0);
    out = ckpt_arena_string(arena, text, n);
    free(text);
    return out;
}

/* True if two values are equal, numbers bit by bit. */
static bool same(const ckpt_value *a, const ckpt_value *b)
{
    double x = 0, y = 0;

    if (!a || !b)
        return false;
    if (a->kind == CKPT_V_DICT) {
        for (uint64_t i = 0; i < a->as.map.n; i++) {
            if (!same(a->as.map.at[i].value, ckpt_value_get(b, a->as.map.at[i].key->as.text.at)))
                return false;
        }
        return a->as.map.n == b->as.map.n;
    }
    x = gold_value(a);
    y = gold_value(b);
    return x == y;
}

static void check(const ckpt_value *c)
{
    static zt_class class[CLASSES];
    ckpt_seq counts = gold_list(c, "counts");
    const ckpt_value *names = ckpt_value_get(c, "names"), *json;
    const char *want = ckpt_value_get(c, "text")->as.text.at, *got;
    zt_score s = {.loss = 0.5, .perplexity = (double)NAN, .samples = 9, .classes = class};

    assert_true(counts.n > 0 && counts.n <= CLASSES);
    for (uint64_t i = 0; i < counts.n; i++) {
        const ckpt_seq row = counts.at[i]->as.seq;
        class[i] = (zt_class){.right = gold_value(row.at[0]),
                              .predicted = gold_value(row.at[1]),
                              .support = gold_value(row.at[2])};
        if (names->kind == CKPT_V_LIST)
            class[i].name = names->as.seq.at[i]->as.text.at;
    }
    s.n_classes = (size_t)counts.n;
    s.accuracy = zt_measures_accuracy(class, s.n_classes);
    got = printed(&s, false);
    if (strcmp(got, want) != 0)
        fail_msg("expected\n%s\nfound\n%s", want, got);
    json = gold_parse(arena, printed(&s, true));
    if (!same(ckpt_value_get(c, "report"), ckpt_value_get(json, "report")))
        fail_msg("other numbers than in\n%s", want);
}

static void test_reports(void **state)
{
    ckpt_seq list = gold_list(gold_json(arena, "class_reports.json"), "cases");

    (void)state;
    assert_true(list.n > 0);
    for (uint64_t i = 0; i < list.n; i++)
        check(list.at[i]);
}

static void test_names(void **state)
{
    const zt_class class[2] = {{"a\033[2J\"", 1, 1, 1}, {NULL, 0, 0, 0}};
    zt_score s = {.loss = (double)NAN,
                  .perplexity = (double)INFINITY,
                  .accuracy = 1,
                  .samples = 1,
                  .classes = class,
                  .n_classes = 2};
    const char *text = printed(&s, false);

    (void)state;
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "     a?[2J\""));
    text = printed(&s, true);
    assert_non_null(strstr(text, "\"loss\": null, \"perplexity\": null"));
    assert_non_null(strstr(text, "a\\u001b[2J\\\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reports),
                                       cmocka_unit_test(test_names)};
    int rc;

    arena = ckpt_arena_new(0);
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    ckpt_arena_free(arena);
    return rc;
}
