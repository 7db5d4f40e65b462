/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_uni_rules.c: universal_checkpoint_info: patterns as Python takes them, precedence, entries
 * of all kinds, and the dicts of real checkpoints.
 */
#include "formats/rules/rules.h"
#include "tests/unit/codec/help.h"
#include "tests/unit/unit.h"

static ckpt_uni_rules *rules_of(const char *json)
{
    ckpt_uni_rules *r = NULL;
    ckpt_err err = {0};

    if (ckpt_uni_rules_parse(&r, json, &err) != CKPT_OK)
        fail_msg("%s: %s", json, err.text);
    return r;
}

static ckpt_slice_rule find(ckpt_uni_rules *r, const char *name)
{
    ckpt_slice_rule rule;
    ckpt_err err = {0};

    if (ckpt_uni_rules_find(r, name, strlen(name), &rule, &err) != CKPT_OK)
        fail_msg("%s: %s", name, err.text);
    return rule;
}

static void expect_refusal(ckpt_uni_rules *r, const char *name, int code, const char *word)
{
    ckpt_slice_rule rule;
    ckpt_err err = {0};

    assert_int_equal(ckpt_uni_rules_find(r, name, strlen(name), &rule, &err), code);
    assert_non_null(strstr(err.text, word));
}

static void expect_bad(const char *json, int code, const char *word)
{
    ckpt_uni_rules *r = NULL;
    ckpt_err err = {0};

    assert_int_equal(ckpt_uni_rules_parse(&r, json, &err), code);
    assert_null(r);
    if (!strstr(err.text, word))
        fail_msg("%s: %s", json, err.text);
}

/* ---- patterns ---- */

/* What Python's re.match(pattern, name) says, for what people write. */
static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool yes;
    } cases[] = {
        {"a\\\\.b", "a.b", true},
        {"a\\\\.b", "a.bc", true}, // anchored at the start only
        {"a\\\\.b", "xa.b", false},
        {"a\\\\.b", "axb", false},
        {"a.b", "axb", true},
        {"^a\\\\.b$", "a.b", true},
        {"^a\\\\.b$", "a.bc", false},
        {"^a\\\\.b$", "xa.b", false},
        {"", "anything", true},
        {"^", "anything", true},
        {"$", "a", false},
        {"a-b_c 1", "a-b_c 1.weight", true},
        {"\\\\d+\\\\.w$", "12.w", true},
        {"\\\\d+\\\\.w$", "12.w2", false},
        {"\\\\d", "\\u0663", true}, // Arabic three: \d is every decimal digit
        {"\\\\w+$", "\\u00e4\\u00f6", true},
        {"(?P<x>a|b)\\\\.(?P=x)", "b.b", true},
        {"(?P<x>a|b)\\\\.(?P=x)", "b.a", false},
        {"(?:a|bc)+d", "abcad", true},
        {"(?i)LAYER", "layer.0", true},
        {"a{2,3}$", "aaa", true},
        {"a{2,3}$", "a", false},
        {"[^.]*\\\\.[]x]", "abc.]", true},
        {"(?!head)", "header", false},
        {"(?!head)", "tail", true},
        {"layers\\\\.(?:[0-9]|1[01])\\\\.attn", "layers.11.attn.q", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[300], quoted[100] = "";
        ckpt_uni_rules *r;
        bool yes;

        // the name goes through JSON as well, for the escapes in it
        (void)snprintf(json, sizeof json, "{\"tp_replicated_parameter_patterns\": [\"%s\"]}",
                       cases[i].pattern);
        r = rules_of(json);
        if (strncmp(cases[i].name, "\\u0663", 6) == 0)
            (void)snprintf(quoted, sizeof quoted, "\xd9\xa3");
        else if (cases[i].name[0] == '\\')
            (void)snprintf(quoted, sizeof quoted, "\xc3\xa4\xc3\xb6");
        else
            (void)snprintf(quoted, sizeof quoted, "%s", cases[i].name);
        yes = find(r, quoted).kind == CKPT_SLICE_SAME;
        if (yes != cases[i].yes)
            fail_msg("%s on %s: %d", cases[i].pattern, cases[i].name, yes);
        ckpt_uni_rules_free(r);
    }
}

/* Patterns that PCRE2 refuses, or would take for something else than Python takes them for. */
static void test_foreign_patterns(void **state)
{
    static const char *const patterns[] = {
        "a(",    "[a",      "(?P<1>x)",    "a\\\\", "\\\\Qa.b\\\\E", "x\\\\v",
        "\\\\h", "(*UTF)a", "[[:alpha:]]", "a{,3}", "\\\\p{Lu}",     "*a"};

    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char json[200];

        (void)snprintf(json, sizeof json, "{\"parameter_to_average_patterns\": [\"%s\"]}",
                       patterns[i]);
        expect_bad(json, CKPT_EUNSUPPORTED, "pattern '");
    }
}

/* Patterns made to cost time or memory. */
static void test_limits(void **state)
{
    ckpt_uni_rules *r = rules_of("{\"tp_replicated_parameter_patterns\": [\"(a+)+$\"]}");
    static char json[70000];
    size_t n;

    (void)state;
    expect_refusal(r, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", CKPT_ELIMIT, "(a+)+$");
    assert_int_equal(find(r, "aaaa").kind, CKPT_SLICE_SAME);
    ckpt_uni_rules_free(r);
    // one that is long
    n = (size_t)snprintf(json, sizeof json, "{\"parameter_to_average_patterns\": [\"");
    memset(json + n, 'a', 5000);
    (void)snprintf(json + n + 5000, 10, "\"]}");
    expect_bad(json, CKPT_ELIMIT, "5000 bytes");
    // many that must be tried
    n = (size_t)snprintf(json, sizeof json, "{\"parameter_to_average_patterns\": [\"x+\"");
    for (int i = 0; i < 4200; i++)
        n += (size_t)snprintf(json + n, sizeof json - n, ",\"%d.x\"", i);
    (void)snprintf(json + n, sizeof json - n, "]}");
    expect_bad(json, CKPT_ELIMIT, "not plain names");
    // parentheses inside each other, and repetition of repetition
    n = (size_t)snprintf(json, sizeof json, "{\"parameter_to_average_patterns\": [\"");
    memset(json + n, '(', 100);
    memset(json + n + 100, ')', 100);
    (void)snprintf(json + n + 200, 10, "\"]}");
    expect_bad(json, CKPT_EUNSUPPORTED, "pattern '");
    expect_bad("{\"parameter_to_average_patterns\": [\"((a{1000}){1000}){1000}\"]}",
               CKPT_EUNSUPPORTED, "too large");
}

/* Many plain names are found without trying each. */
static void test_many_names(void **state)
{
    enum { N = 20000 };
    static char json[N * 40];
    size_t n = (size_t)snprintf(json, sizeof json, "{\"tp_replicated_parameter_patterns\": [\"x\"");
    ckpt_uni_rules *r;

    (void)state;
    for (int i = 0; i < N; i++)
        n += (size_t)snprintf(json + n, sizeof json - n, ",\"^layers\\\\.%d\\\\.w$\"", i);
    (void)snprintf(json + n, sizeof json - n, "]}");
    r = rules_of(json);
    for (int i = 0; i < N; i++) {
        char name[40];

        (void)snprintf(name, sizeof name, "layers.%d.w", i);
        assert_int_equal(find(r, name).kind, CKPT_SLICE_SAME);
    }
    assert_int_equal(find(r, "layers.20000.w").kind, CKPT_SLICE_CAT);
    ckpt_uni_rules_free(r);
}

/* Many matches, each within its own limit, share one: no number of names makes them endless. */
static void test_all_matches_together(void **state)
{
    enum { N = 1000, ENOUGH = 20000 };
    static char json[N * 20];
    size_t n = (size_t)snprintf(json, sizeof json, "{\"tp_replicated_parameter_patterns\": [\"x\"");
    ckpt_err err = {0};
    ckpt_slice_rule rule;
    ckpt_uni_rules *r;
    int rc = CKPT_OK, i = 0;

    (void)state;
    for (int k = 0; k < N; k++)
        n += (size_t)snprintf(json + n, sizeof json - n, ",\"(a+)+X%d\"", k);
    (void)snprintf(json + n, sizeof json - n, "]}");
    r = rules_of(json);
    for (; rc == CKPT_OK && i < ENOUGH; i++) {
        char name[40];

        (void)snprintf(name, sizeof name, "aaaaaa!%d", i);
        rc = ckpt_uni_rules_find(r, name, strlen(name), &rule, &err);
    }
    assert_int_equal(rc, CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "together"));
    // and stays refused
    expect_refusal(r, "another", CKPT_ELIMIT, "together");
    ckpt_uni_rules_free(r);
}

/* What a large model of many experts asks for is far below that limit. */
static void test_a_large_model(void **state)
{
    enum { N = 20000 };
    ckpt_uni_rules *r = rules_of(
        "{\"parameter_with_row_parallelism_patterns\": "
        "[\".*\\\\.mlp\\\\.dense_4h_to_h\\\\.weight\", "
        "\".*self_attention\\\\.dense\\\\.weight\", "
        "\"transformer\\\\.layers\\\\.\\\\d+\\\\.out\\\\.weight\"], "
        "\"tp_replicated_parameter_patterns\": [\".*layernorm.*\", \".*\\\\.norm\\\\.weight\", "
        "\"encoder\\\\.[a-z]+\\\\.\\\\d+\\\\.bias\", \".*\\\\.gate\\\\.(weight|bias)\"]}");

    (void)state;
    for (int i = 0; i < N; i++) {
        char name[100];

        (void)snprintf(name, sizeof name,
                       "language_model.encoder.layers.%d.experts.%d.mlp.dense_4h_to_h.weight",
                       i / 64, i % 64);
        assert_int_equal(find(r, name).kind, CKPT_SLICE_CAT);
        assert_int_equal(find(r, name).axis, 1);
    }
    ckpt_uni_rules_free(r);
}

/* ---- lists ---- */

#define EVERYTHING                                                                                 \
    "{\"universal_checkpoint_version\": 0.2, \"original_vocab_size\": 29,"                         \
    " \"vocabulary_parameter_patterns\": [\"emb\"],"                                               \
    " \"pipeline_replicated_parameter_patterns\": [\"emb\", \"em\"],"                              \
    " \"tp_replicated_parameter_patterns\": [\"norm\", \"both$\"],"                                \
    " \"parameter_to_average_patterns\": [\"mean\", \"both\"],"                                    \
    " \"parameter_with_2_sub_params_cat_dim_0\": [\"glu\"],"                                       \
    " \"parameter_with_sub_params\": [{\"patterns\": [\"qkv\", \"glu2\"],"                         \
    "     \"shape\": [[8, 4, 4], -1], \"partition_dim\": 0}],"                                     \
    " \"parameter_with_row_parallelism_patterns\": [\"row\", \"never\"],"                          \
    " \"autotp_unsupported_parameter_patterns\": {\"odd\": \"heads do not divide\"},"              \
    " \"expert_parameter_patterns\": [\"(\"]}"

static void test_precedence(void **state)
{
    ckpt_uni_rules *r = rules_of(EVERYTHING);
    ckpt_slice_rule rule;
    size_t cursor = 0;

    (void)state;
    assert_int_equal(find(r, "norm.weight").kind, CKPT_SLICE_SAME);
    assert_int_equal(find(r, "both").kind, CKPT_SLICE_SAME);
    assert_int_equal(find(r, "both2").kind, CKPT_SLICE_MEAN);
    assert_int_equal(find(r, "mean").kind, CKPT_SLICE_MEAN);
    rule = find(r, "glu.w");
    assert_int_equal(rule.kind, CKPT_SLICE_SUB);
    assert_int_equal(rule.n_subs, 2);
    assert_true(!rule.sub_size && !rule.width && !rule.entry);
    assert_int_equal(find(r, "glu2").n_subs, 2); // two sub-parameters come before the others
    rule = find(r, "qkv.w");
    assert_int_equal(rule.n_subs, 3);
    assert_int_equal(rule.sub_size[0] * 100 + rule.sub_size[1] * 10 + rule.sub_size[2], 844);
    assert_int_equal(rule.n_view, 2);
    assert_int_equal(rule.view[1], -1);
    assert_string_equal(rule.pattern, "qkv");
    assert_non_null(rule.entry);
    rule = find(r, "row.w");
    assert_int_equal(rule.kind * 10 + rule.axis, 1);
    rule = find(r, "other");
    assert_true(rule.kind == CKPT_SLICE_CAT && rule.axis == 0 && !rule.pattern);
    rule = find(r, "emb.w");
    assert_true(rule.kind == CKPT_SLICE_CAT && rule.keep_rows == 29);
    expect_refusal(r, "odd.w", CKPT_EUNSUPPORTED, "heads do not divide");
    // one pattern has matched nothing
    assert_string_equal(ckpt_uni_rules_unused(r, &cursor), "never");
    assert_null(ckpt_uni_rules_unused(r, &cursor));
    ckpt_uni_rules_free(r);
}

static void test_two_matches(void **state)
{
    ckpt_uni_rules *r =
        rules_of("{\"tp_replicated_parameter_patterns\": [\"a\", \"ab\", \"^c$\","
                 " \"c.?\", \"^d$\", \"^d$\"], \"parameter_with_sub_params\": ["
                 "{\"patterns\": [\"s\"], \"shape\": [2, -1], \"partition_dim\": 0},"
                 "{\"patterns\": [\"^s2$\"], \"shape\": [3, -1], \"partition_dim\": 0}]}");

    (void)state;
    assert_int_equal(find(r, "ax").kind, CKPT_SLICE_SAME);
    expect_refusal(r, "ab", CKPT_EFORMAT, "both 'a' and 'ab' match ab");
    expect_refusal(r, "c", CKPT_EFORMAT, "both");
    expect_refusal(r, "d", CKPT_EFORMAT, "both");
    // among sub-parameters the first one counts
    assert_int_equal(find(r, "s2").n_subs, 2);
    ckpt_uni_rules_free(r);
}

/* No rules: everything is joined along axis 0. */
static void test_nothing(void **state)
{
    ckpt_uni_rules *r = NULL;
    ckpt_err err = {0};
    size_t cursor = 0;

    (void)state;
    assert_int_equal(ckpt_uni_rules_new(&r, NULL, &err), CKPT_OK);
    assert_int_equal(find(r, "w").kind, CKPT_SLICE_CAT);
    assert_null(ckpt_uni_rules_unused(r, &cursor));
    ckpt_uni_rules_free(r);
    ckpt_uni_rules_free(NULL);
    r = rules_of("{\"vocabulary_parameter_patterns\": [\"emb\"]}");
    expect_refusal(r, "emb.w", CKPT_EFORMAT, "original_vocab_size");
    ckpt_uni_rules_free(r);
}

static void test_wrong_kinds(void **state)
{
    (void)state;
    expect_bad("[]", CKPT_EFORMAT, "universal_checkpoint_info");
    expect_bad("{", CKPT_EFORMAT, "rules for joining slices");
    expect_bad("{\"tp_replicated_parameter_patterns\": 3}", CKPT_EFORMAT, "not a list");
    expect_bad("{\"tp_replicated_parameter_patterns\": [3]}", CKPT_EFORMAT, "not a string");
    expect_bad("{\"autotp_unsupported_parameter_patterns\": []}", CKPT_EFORMAT, "not a dict");
    expect_bad("{\"affine_map\": 3}", CKPT_EFORMAT, "affine_map");
    expect_bad("{\"affine_map\": {\"version\": \"1\"}}", CKPT_EFORMAT, "not an integer");
    expect_bad("{\"affine_map\": {\"version\": 2}}", CKPT_EUNSUPPORTED, "version 2");
    expect_bad("{\"parameter_with_sub_params\": {}}", CKPT_EFORMAT, "not a list");
    expect_bad("{\"parameter_with_sub_params\": [{}]}", CKPT_EFORMAT, "no patterns");
    expect_bad("{\"original_vocab_size\": -1}", CKPT_EFORMAT, "original_vocab_size");
}

/* ---- sub-parameters ---- */

/* The rule for "w" of an entry's fields, and widths. */
static ckpt_uni_rules *sub_rules(const char *fields, const char *more)
{
    char json[500];

    (void)snprintf(json, sizeof json,
                   "{\"parameter_with_sub_params\": [{\"patterns\": [\"w\"]%s}]%s}", fields, more);
    return rules_of(json);
}

static void expect_bad_sub(const char *fields, const char *more, const char *word)
{
    ckpt_uni_rules *r = sub_rules(fields, more);

    expect_refusal(r, "w", CKPT_EFORMAT, word);
    ckpt_uni_rules_free(r);
}

static void test_sub_parameters(void **state)
{
    ckpt_uni_rules *r = sub_rules(", \"shape\": [5, [6, 3], -1], \"partition_dim\": -2",
                                  ", \"universal_checkpoint_version\": 0.4,"
                                  " \"sub_param_shard_widths\": {\"w\": [[4, 2], [1, 2]]}");
    ckpt_slice_rule rule = find(r, "w");

    (void)state;
    assert_int_equal(rule.axis, 1);
    assert_int_equal(rule.n_subs, 2);
    assert_int_equal(rule.n_widths, 2);
    assert_int_equal(
        rule.width[0] * 1000 + rule.width[1] * 100 + rule.width[2] * 10 + rule.width[3], 4212);
    assert_int_equal(rule.view[0], 5);
    assert_ptr_equal(find(r, "w").width, rule.width); // made once
    ckpt_uni_rules_free(r);
    r = sub_rules(", \"shape\": [3, -1], \"partition_dim\": 0", "");
    rule = find(r, "w");
    assert_true(rule.n_subs == 3 && !rule.sub_size && !rule.width);
    ckpt_uni_rules_free(r);
    expect_bad_sub(", \"shape\": [3, -1]", "", "partition_dim");
    expect_bad_sub(", \"shape\": [3, -1], \"partition_dim\": 2", "", "outside its shape");
    expect_bad_sub(", \"shape\": [3, -1], \"partition_dim\": -3", "", "outside its shape");
    expect_bad_sub(", \"shape\": [3, \"x\"], \"partition_dim\": 0", "",
                   "an entry that is not a size");
    expect_bad_sub(", \"shape\": [[3, -1], 1], \"partition_dim\": 0", "",
                   "an entry that is not a size");
    expect_bad_sub(", \"shape\": [0, 1], \"partition_dim\": 0", "", "no sub-parameters");
    expect_bad_sub(", \"shape\": [-1, 1], \"partition_dim\": 0", "", "no sub-parameters");
    expect_bad_sub(", \"shape\": [], \"partition_dim\": 0", "", "1 to 64");
    expect_bad_sub(", \"shape\": [[2, 2], -1], \"partition_dim\": 0",
                   ", \"universal_checkpoint_version\": 0.4", "sub_param_shard_widths");
    expect_bad_sub(", \"shape\": [[2, 2], -1], \"partition_dim\": 0",
                   ", \"sub_param_shard_widths\": {\"w\": [[1, 1]]}", "another number");
    expect_bad_sub(", \"shape\": [[2, 2], -1], \"partition_dim\": 0",
                   ", \"sub_param_shard_widths\": {\"w\": [[1, 1], [1]]}", "one length");
    expect_bad_sub(", \"shape\": [[2, 2], -1], \"partition_dim\": 0",
                   ", \"sub_param_shard_widths\": {\"w\": [[1, 1], [1, -1]]}", "one length");
}

/* The same entry as Megatron-DeepSpeed pickles it: an object with a state. */
static void test_object(void **state)
{
    ckpt_arena *arena = ckpt_arena_new(0);
    ckpt_value *info = ckpt_value_new(arena, CKPT_V_DICT),
               *list = ckpt_value_new(arena, CKPT_V_LIST),
               *shape = ckpt_value_new(arena, CKPT_V_OBJECT), *dim = ckpt_value_int(arena, 0),
               *fields = ckpt_value_new(arena, CKPT_V_DICT),
               *axes = ckpt_value_new(arena, CKPT_V_TUPLE),
               *sizes = ckpt_value_new(arena, CKPT_V_TUPLE),
               *names = ckpt_value_new(arena, CKPT_V_LIST);
    ckpt_uni_rules *r = NULL;
    ckpt_slice_rule rule;
    ckpt_err err = {0};

    (void)state;
    assert_true(ckpt_seq_add(arena, &sizes->as.seq, ckpt_value_int(arena, 4)) &&
                ckpt_seq_add(arena, &sizes->as.seq, ckpt_value_int(arena, 2)) &&
                ckpt_seq_add(arena, &axes->as.seq, sizes) &&
                ckpt_seq_add(arena, &axes->as.seq, ckpt_value_int(arena, -1)) &&
                ckpt_seq_add(arena, &names->as.seq, ckpt_value_cstr(arena, "w")));
    assert_true(ckpt_dict_add_cstr(arena, &fields->as.map, "patterns", names) &&
                ckpt_dict_add_cstr(arena, &fields->as.map, "shape", axes) &&
                ckpt_dict_add_cstr(arena, &fields->as.map, "partition_dim", dim));
    shape->as.object = ckpt_arena_alloc(arena, sizeof *shape->as.object);
    shape->as.object->state = fields;
    assert_true(ckpt_seq_add(arena, &list->as.seq, shape) &&
                ckpt_dict_add_cstr(arena, &info->as.map, "parameter_with_sub_params", list));
    assert_int_equal(ckpt_uni_rules_new(&r, info, &err), CKPT_OK);
    rule = find(r, "w");
    assert_int_equal(rule.n_subs, 2);
    assert_ptr_equal(rule.entry, shape);
    ckpt_uni_rules_free(r);
    ckpt_arena_free(arena);
}

/* ---- affine maps ---- */

#define PIECE(scale)                                                                               \
    "{\"shape\": [2, 3], \"source\": [6, [3, 1]], \"dest\": [0, [3, 1]], \"locations\": [1]" scale \
    "}"

static ckpt_uni_rules *affine_rules(const char *shape, const char *ranks)
{
    char json[900];

    (void)snprintf(json, sizeof json,
                   "{\"tp_replicated_parameter_patterns\": [\"w\"], \"original_vocab_size\": 3,"
                   " \"vocabulary_parameter_patterns\": [\"w\"], \"affine_map\": {\"params\": {"
                   "\"^w$\": {\"logical_shape\": %s, \"ranks\": %s}}}}",
                   shape, ranks);
    return rules_of(json);
}

static void expect_bad_affine(const char *shape, const char *ranks, int code, const char *word)
{
    ckpt_uni_rules *r = affine_rules(shape, ranks);

    expect_refusal(r, "w", code, word);
    ckpt_uni_rules_free(r);
}

static void test_affine(void **state)
{
    ckpt_uni_rules *r = affine_rules(
        "[4, 3]", "{\"1\": {\"pieces\": [" PIECE(", \"scale\": 1.0") "]},"
                                                                     " \"0\": {\"pieces\": []}}");
    ckpt_slice_rule rule = find(r, "w");
    size_t cursor = 0;

    (void)state;
    // it comes before the lists, whose patterns are used up; the vocabulary on top of it
    assert_int_equal(rule.kind, CKPT_SLICE_AFFINE);
    assert_int_equal(rule.keep_rows, 3);
    assert_null(ckpt_uni_rules_unused(r, &cursor));
    assert_int_equal(rule.affine->n_ranks, 2);
    assert_int_equal(rule.affine->shape[0], 4);
    assert_int_equal(rule.affine->n_pieces, 1);
    assert_int_equal(rule.affine->piece[0].rank, 1);
    assert_int_equal(rule.affine->piece[0].whole_at, 6);
    assert_int_equal(rule.affine->piece[0].slice_by[0], 3);
    assert_ptr_equal(find(r, "w").affine, rule.affine);
    assert_int_equal(find(r, "ww").kind, CKPT_SLICE_SAME);
    ckpt_uni_rules_free(r);
    expect_bad_affine("[4, -3]", "{}", CKPT_EFORMAT, "logical_shape");
    expect_bad_affine("[4, 3]", "{}", CKPT_EFORMAT, "no ranks");
    expect_bad_affine("[4, 3]", "{\"0\": {}}", CKPT_EFORMAT, "pieces");
    expect_bad_affine("[4, 3]", "{\"1\": {\"pieces\": []}}", CKPT_EFORMAT, "numbered");
    expect_bad_affine("[4, 3]", "{\"x\": {\"pieces\": []}}", CKPT_EFORMAT, "numbered");
    expect_bad_affine("[4, 3]", "{\"0\": {\"pieces\": []}, \"00\": {\"pieces\": []}}", CKPT_EFORMAT,
                      "numbered");
    expect_bad_affine("[4, 3]", "{\"0\": {\"pieces\": [{}]}}", CKPT_EFORMAT, "shape");
    expect_bad_affine("[4, 3]", "{\"0\": {\"pieces\": [{\"shape\": [1]}]}}", CKPT_EFORMAT,
                      "offset");
    expect_bad_affine("[4, 3]",
                      "{\"0\": {\"pieces\": [{\"shape\": [1], \"source\": [0, [1, 1]]}]}}",
                      CKPT_EFORMAT, "strides");
    expect_bad_affine("[4, 3]", "{\"0\": {\"pieces\": [" PIECE(", \"scale\": 0.5") "]}}",
                      CKPT_EUNSUPPORTED, "scale");
    expect_bad_affine("[4, 3]", "{\"0\": {\"pieces\": [" PIECE(", \"scale\": \"1\"") "]}}",
                      CKPT_EUNSUPPORTED, "scale");
}

/* ---- real checkpoints ---- */

/* The universal_checkpoint_info of a fixture's first model file; false: there are no fixtures. */
static bool fixture(const char *name, help_pickle *h, const ckpt_value **info)
{
    const char *dir = help_fixtures();
    char path[4200];
    const uint8_t *pkl;
    uint8_t *bytes;
    size_t n = 0, n_pkl = 0;

    (void)snprintf(path, sizeof path, "%s/%s/ckpt/global_step4/mp_rank_00_model_states.pt",
                   dir ? dir : "", name);
    bytes = dir ? help_file(path, &n) : NULL;
    if (!bytes)
        return false;
    pkl = help_data_pkl(bytes, n, &n_pkl);
    assert_non_null(pkl);
    *h = help_read(pkl, n_pkl, false);
    assert_int_equal(h->rc, CKPT_OK);
    *info = ckpt_value_get(h->p.root, "universal_checkpoint_info");
    assert_non_null(*info);
    free(bytes);
    return true;
}

static void test_megatron_fixture(void **state)
{
    static const struct {
        const char *name;
        ckpt_slice_kind kind;
        uint32_t axis;
        uint64_t keep;
    } want[] = {
        {"emb.weight", CKPT_SLICE_CAT, 0, 29}, {"proj.weight", CKPT_SLICE_CAT, 1, 0},
        {"down.weight", CKPT_SLICE_CAT, 1, 0}, {"ln.weight", CKPT_SLICE_SAME, 0, 0},
        {"ln.bias", CKPT_SLICE_SAME, 0, 0},    {"proj.bias", CKPT_SLICE_SAME, 0, 0},
        {"gu.weight", CKPT_SLICE_SUB, 0, 0},   {"fc.weight", CKPT_SLICE_CAT, 0, 0},
        {"fc.bias", CKPT_SLICE_CAT, 0, 0},
    };
    static const char *const names[] = {"tp2_z1_w2", "tp2_z1_w4"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const ckpt_value *info = NULL;
        ckpt_uni_rules *r = NULL;
        ckpt_err err = {0};
        size_t cursor = 0;
        help_pickle h;

        if (!fixture(names[i], &h, &info))
            skip();
        assert_int_equal(ckpt_uni_rules_new(&r, info, &err), CKPT_OK);
        for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
            ckpt_slice_rule rule = find(r, want[k].name);

            assert_int_equal(rule.kind, want[k].kind);
            assert_int_equal(rule.axis, want[k].axis);
            assert_int_equal(rule.keep_rows, want[k].keep);
        }
        assert_null(ckpt_uni_rules_unused(r, &cursor));
        ckpt_uni_rules_free(r);
        help_free(&h);
    }
}

static void test_autotp_fixture(void **state)
{
    static const char *const names[] = {"model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.0.self_attn.o_proj.weight",
                                        "model.norm.weight", "lm_head.weight"};
    const ckpt_value *info = NULL;
    ckpt_uni_rules *r = NULL;
    ckpt_err err = {0};
    help_pickle h;

    (void)state;
    if (!fixture("autotp2_z1_w2", &h, &info))
        skip();
    assert_int_equal(ckpt_uni_rules_new(&r, info, &err), CKPT_OK);
    for (size_t i = 0; i < 4; i++) {
        const ckpt_slice_rule rule = find(r, names[i]);

        assert_int_equal(rule.kind, CKPT_SLICE_AFFINE);
        assert_int_equal(rule.affine->n_ranks, 2);
        assert_int_equal(rule.affine->n_pieces, 2);
        assert_int_equal(rule.keep_rows, i == 3 ? 20 : 0);
    }
    assert_int_equal(find(r, "model.layers.0.self_attn.o_proj.weight").affine->piece[1].whole_at,
                     4);
    ckpt_uni_rules_free(r);
    help_free(&h);
}

/* ---- memory ---- */

static void test_memory_failures(void **state)
{
    (void)state;
    for (unsigned k = 0;; k++) {
        ckpt_uni_rules *r = NULL;
        ckpt_slice_rule rule;
        ckpt_err err = {0};
        int rc;

        ckpt_alloc_fail_at(k);
        rc = ckpt_uni_rules_parse(&r, EVERYTHING, &err);
        if (rc == CKPT_OK)
            rc = ckpt_uni_rules_find(r, "qkv", 3, &rule, &err);
        ckpt_alloc_fail_at(UINT64_MAX);
        ckpt_uni_rules_free(r);
        if (rc == CKPT_OK)
            break;
        assert_int_equal(rc, CKPT_ELIMIT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_foreign_patterns),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_all_matches_together),
        cmocka_unit_test(test_a_large_model),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_two_matches),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_wrong_kinds),
        cmocka_unit_test(test_sub_parameters),
        cmocka_unit_test(test_object),
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_megatron_fixture),
        cmocka_unit_test(test_autotp_fixture),
        cmocka_unit_test(test_memory_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
