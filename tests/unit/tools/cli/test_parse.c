/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_parse.c: checks how command lines become fields by a table of options: spellings, order,
 * repetition, refusals, and the words of --help.
 */
#include "tests/unit/unit.h"
#include "tools/cli/near.h"
#include "tools/cli/table.h"

typedef struct fields {
    bool flag, other_flag;
    const char *text, *file;
    unsigned count;
    cli_list list, sources;
    double number;
} fields;

static const cli_option options[] = {
    {"flag", 'f', CLI_FLAG, offsetof(fields, flag), NULL, "a flag"},
    {"flow-file", 0, CLI_FLAG, offsetof(fields, other_flag), NULL, "another flag"},
    {"text", 't', CLI_TEXT, offsetof(fields, text), "TEXT", "a text"},
    {"max_count", 'n', CLI_COUNT, offsetof(fields, count), "N", "as drop-ins spell it"},
    {"include", 'i', CLI_LIST, offsetof(fields, list), "GLOB", "repeatable"},
    {"adapter", 0, CLI_SOURCES, offsetof(fields, sources), "PATH", "repeatable"},
    {"number", 0, CLI_NUMBER, offsetof(fields, number), "X", "a number"},
    {"args", 0, CLI_MORE, 0, "FILE", "more options"},
    CLI_END};

static int more(cli_line *line, const char *path, ckpt_err *err)
{
    // a file of options has one here: its own name
    return cli_take(line, cli_option_named(line->verb, "text"), path, err);
}

static cli_verb verb = {.name = "v",
                        .command = "ckpt v",
                        .operands = "A [B]",
                        .options = options,
                        .min = 1,
                        .max = 2,
                        .more = more};

static cli_line line;
static fields f;
static ckpt_err err;

enum { MAX_WORDS = 32 };

/* Parse the words of a text, which are separated by blanks. */
static int parse(const char *text)
{
    static char copy[512];
    static char name[] = "ckpt";
    char *argv[MAX_WORDS + 1] = {name};
    int argc = 1;

    cli_free(&line);
    f = (fields){0};
    err = (ckpt_err){0};
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, " "); word && argc < MAX_WORDS; word = strtok(NULL, " "))
        argv[argc++] = word;
    return cli_parse(&line, &verb, &f, argc, argv, &err);
}

static void accepts(const char *text)
{
    if (parse(text) != CKPT_OK)
        fail_msg("%s: %s", text, err.text);
}

static void refuses(const char *text, const char *why)
{
    assert_int_equal(parse(text), CKPT_EUSAGE);
    if (strcmp(err.text, why) != 0)
        fail_msg("%s: '%s' instead of '%s'", text, err.text, why);
}

static void test_spellings(void **state)
{
    static const char *const same[] = {"a --flag --text=x --max_count 3",
                                       "a --flag --text x --max-count=3",
                                       "-f -tx -n3 a",
                                       "-ftx -n 3 a",
                                       "--text x -fn3 a",
                                       "--tex x --fla --max=3 a"};

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        accepts(same[i]);
        assert_true(f.flag && !f.other_flag);
        assert_string_equal(f.text, "x");
        assert_int_equal(f.count, 3);
        assert_int_equal(line.n_operands, 1);
        assert_string_equal(line.operand[0], "a");
    }
    // only names are respelled, values are not
    accepts("a --flow_file --text=x_y");
    assert_true(f.other_flag);
    assert_string_equal(f.text, "x_y");
    accepts("a --text -x");
    assert_string_equal(f.text, "-x");
    accepts("a --text=");
    assert_string_equal(f.text, "");
    accepts("a --text a=b=c");
    assert_string_equal(f.text, "a=b=c");
}

static void test_operands(void **state)
{
    (void)state;
    accepts("a -f b");
    assert_int_equal(line.n_operands, 2);
    assert_string_equal(line.operand[0], "a");
    assert_string_equal(line.operand[1], "b");
    accepts("-f -- -a --flow_file");
    assert_string_equal(line.operand[0], "-a");
    assert_string_equal(line.operand[1], "--flow_file"); // as it was typed
    assert_false(f.other_flag);
    accepts("-");
    assert_string_equal(line.operand[0], "-");
    refuses("", "too few arguments: expected A [B]");
    refuses("--flag", "too few arguments: expected A [B]");
    refuses("a b c", "unexpected argument 'c'");
    refuses("a -- b --c", "unexpected argument '--c'");
}

static void test_unknown(void **state)
{
    (void)state;
    refuses("a --nothing", "unknown option '--nothing'");
    refuses("a --nothing=1", "unknown option '--nothing'");
    refuses("a --txet x", "unknown option '--txet'; did you mean --text?");
    refuses("a --max-cuont 1", "unknown option '--max-cuont'; did you mean --max_count?");
    refuses("a -x", "unknown option '-x'");
    refuses("a -fx", "unknown option '-x'");
    refuses("a --fla --fl", "ambiguous option '--fl': --flag or --flow-file");
    refuses("a --f=1", "ambiguous option '--f': --flag or --flow-file");
    refuses("a --Flag", "unknown option '--Flag'; did you mean --flag?");
}

static void test_values(void **state)
{
    (void)state;
    refuses("a --text", "--text needs a value (TEXT)");
    refuses("a -t", "--text needs a value (TEXT)");
    refuses("a -ft", "--text needs a value (TEXT)");
    refuses("a --flag=1", "--flag takes no value");
    refuses("a --fla=", "--flag takes no value");
    refuses("a --max-count 0", "--max_count: '0' is not a whole number of at least 1");
    refuses("a --max-count=-1", "--max_count: '-1' is not a whole number of at least 1");
    refuses("a -n 2147483648", "--max_count: '2147483648' is not a whole number of at least 1");
    refuses("a --number=-0.5", "--number: '-0.5' is not a number of at least 0, such as 1e-6");
    accepts("a -n 2147483647 --number 5e-1");
    assert_int_equal(f.count, 2147483647);
    assert_true(f.number > 0.49 && f.number < 0.51);
    // an empty word
    char name[] = "ckpt", operand[] = "a", option[] = "--max-count", empty[] = "";
    char *argv[] = {name, operand, option, empty, NULL};
    cli_free(&line);
    err = (ckpt_err){0};
    assert_int_equal(cli_parse(&line, &verb, &f, 4, argv, &err), CKPT_EUSAGE);
}

static void test_repeated(void **state)
{
    (void)state;
    accepts("a -f -f --text x -t y --include=1 -n1 -i 2 --number 1 -i3 --adapter p:2 -n 7");
    assert_true(f.flag);
    assert_string_equal(f.text, "y"); // the last one counts
    assert_int_equal(f.count, 7);
    assert_int_equal(f.list.n, 3);
    assert_string_equal(f.list.at[0], "1");
    assert_string_equal(f.list.at[1], "2");
    assert_string_equal(f.list.at[2], "3");
    assert_null(f.list.at[3]);
    assert_int_equal(f.sources.n, 1);
    assert_string_equal(f.sources.at[0], "p:2");
    // a good value does not excuse a bad one before it
    refuses("a -n 0 -n 1", "--max_count: '0' is not a whole number of at least 1");
}

static void test_given(void **state)
{
    (void)state;
    accepts("a --max-count 3 --include x");
    assert_true(cli_has(&line, "max-count") && cli_has(&line, "max_count"));
    assert_true(cli_has(&line, "include"));
    assert_false(cli_has(&line, "flag") || cli_has(&line, "none") || cli_has(&line, "max"));
    assert_string_equal(cli_given(&line, offsetof(fields, count)), "max_count");
    assert_null(cli_given(&line, offsetof(fields, text)));
    accepts("a --args file");
    assert_string_equal(f.text, "file");
    assert_true(cli_has(&line, "args") && cli_has(&line, "text"));
}

static void test_help(void **state)
{
    static const cli_heading headings[] = {{"Usual", "flag"}, {NULL, NULL}};

    (void)state;
    accepts("--help"); // works without operands
    assert_true(line.help && !line.help_all && !line.version);
    accepts("-h a b c d");
    assert_true(line.help);
    accepts("-V");
    assert_true(line.version);
    refuses("--help=all", "--help takes no value");
    refuses("--help --nothing", "unknown option '--nothing'");
    verb.headings = headings;
    accepts("--help=all");
    assert_true(line.help && line.help_all);
    accepts("--help");
    assert_true(line.help && !line.help_all);
    refuses("--help=some", "--help: expected 'all' or nothing, found 'some'");
    verb.headings = NULL;
}

static void test_whole_names(void **state)
{
    (void)state;
    verb.whole_names = true;
    accepts("a --text x --flag --flow-file");
    refuses("a --tex x", "unknown option '--tex'; did you mean --text?");
    refuses("a --tex=x", "unknown option '--tex'; did you mean --text?");
    refuses("a --fla", "unknown option '--fla'; did you mean --flag?");
    refuses("a --tex", "unknown option '--tex'; did you mean --text?"); // its value is missing, too
    refuses("a --text", "--text needs a value (TEXT)");
    accepts("a -tx -f");
    verb.whole_names = false;
}

static void test_many(void **state)
{
    cli_option many[CLI_MAX_OPTIONS - 1];
    static char names[CLI_MAX_OPTIONS][8];
    cli_verb wide = {.name = "w", .options = many, .max = 9};
    char name[] = "ckpt", last[] = "--o125", no[] = "--o126";
    char *good[] = {name, last, NULL}, *bad[] = {name, no, NULL};
    size_t n = CLI_MAX_OPTIONS - 2; // two are common options

    (void)state;
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "o%zu", i);
        many[i] = (cli_option){names[i], 0, CLI_FLAG, offsetof(fields, flag), NULL, "x"};
    }
    many[n] = (cli_option)CLI_END;
    f = (fields){0};
    cli_free(&line);
    assert_int_equal(cli_parse(&line, &wide, &f, 2, good, &err), CKPT_OK);
    assert_true(f.flag);
    assert_string_equal(cli_option_at(&wide, n)->name, "help");
    assert_string_equal(cli_option_at(&wide, n + 1)->name, "version");
    assert_null(cli_option_at(&wide, n + 2));
    cli_free(&line);
    assert_int_equal(cli_parse(&line, &wide, &f, 2, bad, &err), CKPT_EUSAGE);
}

/* ---- near words ---- */

static const char *nearest(const char *word)
{
    static const char *const known[] = {"convert", "verify", "ls", "diff"};
    near_word w;

    near_begin(&w, word, strlen(word));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        near_try(&w, known[i]);
    return w.best ? w.best : "";
}

static void test_near(void **state)
{
    char long_word[400];

    (void)state;
    assert_string_equal(nearest("convert"), "convert");
    assert_string_equal(nearest("covnert"), "convert"); // a swap is one edit
    assert_string_equal(nearest("conver"), "convert");
    assert_string_equal(nearest("converts"), "convert");
    assert_string_equal(nearest("donvert"), "convert");
    assert_string_equal(nearest("dif"), "diff");
    assert_string_equal(nearest("sl"), "ls");
    assert_string_equal(nearest("xy"), ""); // a short word with all letters replaced
    assert_string_equal(nearest("reshard"), "");
    assert_string_equal(nearest(""), "");
    memset(long_word, 'x', sizeof long_word);
    long_word[sizeof long_word - 1] = 0;
    assert_string_equal(nearest(long_word), "");
}

static int teardown(void **state)
{
    (void)state;
    cli_free(&line);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings), cmocka_unit_test(test_operands),
        cmocka_unit_test(test_unknown),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_repeated),  cmocka_unit_test(test_given),
        cmocka_unit_test(test_help),      cmocka_unit_test(test_whole_names),
        cmocka_unit_test(test_many),      cmocka_unit_test(test_near),
    };

    return cmocka_run_group_tests(tests, NULL, teardown);
}
