/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c: parses a command line into fields, by table.
 *
 * getopt_long does most of the work: short clusters, "--name=value", unambiguous prefixes, options
 * after operands.  It gets rewritten copies of the words, and a table made from ours.  The table
 * gives each value's offset in the command's fields.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/near.h"
#include "tools/cli/out.h"
#include "tools/cli/words.h"

enum {
    CLI_FIRST = 256
}; /* for a long option, getopt returns CLI_FIRST + its index, which is above all letters */

/* Options of every command; their fields are in the line. */
static const cli_option common[] = {
    {"help", 'h', CLI_FLAG, offsetof(cli_line, help), NULL, "show the options"},
    {"version", 'V', CLI_FLAG, offsetof(cli_line, version), NULL, "show the version"},
};

enum { N_COMMON = sizeof common / sizeof *common };

const cli_option *cli_option_at(const cli_verb *verb, size_t i)
{
    size_t n = 0;

    while (verb->options && verb->options[n].name)
        n++;
    // the common options come last in every help text
    if (i < n)
        return &verb->options[i];
    return i - n < N_COMMON ? &common[i - n] : NULL;
}

const cli_verb *cli_find(const cli_verb *const *commands, const char *name)
{
    while (*commands && strcmp((*commands)->name, name) != 0)
        commands++;
    return *commands;
}

static char cli_plain(char c)
{
    return c == '_' ? '-' : c;
}

const cli_option *cli_option_named(const cli_verb *verb, const char *name)
{
    for (const cli_option *o = verb->options; o && o->name; o++) {
        size_t n = 0;

        while (name[n] && cli_plain(name[n]) == cli_plain(o->name[n]))
            n++;
        if (!name[n] && !o->name[n])
            return o;
    }
    return NULL;
}

/* Copy a word, with '-' for '_' in the name of a long option; its value stays unchanged. */
static char *cli_spell(const char *word)
{
    char *copy = strdup(word);

    if (copy && strncmp(copy, "--", 2) == 0) {
        for (char *s = copy + 2; *s && *s != '='; s++)
            *s = cli_plain(*s);
    }
    return copy;
}

/* Make rewritten copies of argv up to "--". */
static int cli_own(cli_line *line, int argc, char **argv, ckpt_err *err)
{
    bool options = true;

    line->argc = argc;
    line->owned = calloc((size_t)argc + 1, sizeof *line->owned);
    if (!line->owned)
        return fail(err, CKPT_ELIMIT, "out of memory");
    for (int i = 0; i < argc; i++) {
        // words after "--" are never options
        options = options && strcmp(argv[i], "--") != 0;
        line->owned[i] = options ? cli_spell(argv[i]) : strdup(argv[i]);
        if (!line->owned[i])
            return fail(err, CKPT_ELIMIT, "out of memory");
    }
    return CKPT_OK;
}

/* getopt's two tables, made from ours; names of drop-ins are spelled with '-', like the words. */
typedef struct cli_tables {
    struct option longs[CLI_MAX_OPTIONS + 1];
    char shorts[2 * CLI_MAX_OPTIONS + 2];
    char names[CLI_MAX_OPTIONS][40];
} cli_tables;

/* Fill both tables in the order of cli_option_at, so getopt's values lead back to options. */
static void cli_fill(cli_tables *t, const cli_verb *verb)
{
    const cli_option *o;
    char *s = t->shorts;

    *s++ = ':'; // makes getopt distinguish a missing value from an unknown option
    for (size_t i = 0; i < CLI_MAX_OPTIONS && (o = cli_option_at(verb, i)); i++) {
        size_t n = 0;
        for (; n < sizeof t->names[i] - 1 && o->name[n]; n++)
            t->names[i][n] = cli_plain(o->name[n]);
        t->longs[i].name = t->names[i];
        t->longs[i].has_arg = o == &common[0] && verb->headings ? optional_argument
                              : o->kind == CLI_FLAG             ? no_argument
                                                                : required_argument;
        t->longs[i].val = CLI_FIRST + (int)i;
        if (o->letter)
            *s++ = o->letter;
        if (o->letter && o->kind != CLI_FLAG)
            *s++ = ':';
    }
}

/* The option for getopt's value c; NULL: not one of this verb. */
static const cli_option *cli_by_value(const cli_verb *verb, int c)
{
    const cli_option *o;

    if (c >= CLI_FIRST)
        return cli_option_at(verb, (size_t)(c - CLI_FIRST));
    for (size_t i = 0; (o = cli_option_at(verb, i)); i++) {
        if (o->letter && o->letter == c)
            return o;
    }
    return NULL;
}

/*
 * Report a long option that getopt does not know: an ambiguous prefix, a misspelling, or another
 * word.
 */
static int cli_unknown(const cli_verb *verb, const char *word, ckpt_err *err)
{
    size_t n = strcspn(word, "=");
    const cli_option *o, *first = NULL, *nearest = NULL;
    cli_tables tables = {0};
    near_word near;

    cli_fill(&tables, verb);
    near_begin(&near, word + 2, n - 2);
    for (size_t i = 0; (o = cli_option_at(verb, i)); i++) {
        near_try(&near, tables.names[i]);
        nearest = near.best == tables.names[i] ? o : nearest;
        if (strncmp(tables.names[i], word + 2, n - 2) != 0)
            continue;
        if (first)
            return fail(err, CKPT_EUSAGE, "ambiguous option '%.*s': --%s or --%s", (int)n, word,
                        first->name, o->name);
        first = o;
    }
    return fail(err, CKPT_EUSAGE, "unknown option '%.*s'%s%s%s", (int)n, word,
                nearest ? "; did you mean --" : "", nearest ? nearest->name : "",
                nearest ? "?" : "");
}

/* Report a word that getopt refused. */
static int cli_refuse(const cli_line *line, int c, ckpt_err *err)
{
    const cli_option *o = cli_by_value(line->verb, optopt);
    const char *word = line->owned[optind - 1];

    // optopt is the option's value if getopt knows the option, else 0
    if (c == ':' && o)
        return fail(err, CKPT_EUSAGE, "--%s needs a value (%s)", o->name, o->value);
    if (optopt >= CLI_FIRST && o)
        return fail(err, CKPT_EUSAGE, "--%s takes no value", o->name);
    if (optopt == 0)
        return cli_unknown(line->verb, word, err);
    return fail(err, CKPT_EUSAGE, "unknown option '-%c'", optopt);
}

bool cli_has(const cli_line *line, const char *name)
{
    const cli_option *o = cli_option_named(line->verb, name);

    return o && line->given[o - line->verb->options];
}

const char *cli_given(const cli_line *line, size_t at)
{
    const cli_option *o = line->verb->options;

    for (size_t i = 0; o && o[i].name; i++) {
        if (o[i].at == at && line->given[i])
            return o[i].name;
    }
    return NULL;
}

int cli_add(cli_line *line, cli_list *list, const char *word, ckpt_err *err)
{
    size_t i = 0;

    if (!list->at) {
        while (i < CLI_MAX_LISTS && line->lists[i])
            i++;
        list->at = i < CLI_MAX_LISTS ? calloc((size_t)line->argc + 1, sizeof *list->at) : NULL;
        if (!list->at)
            return fail(err, CKPT_ELIMIT, "out of memory");
        line->lists[i] = list->at;
    }
    list->at[list->n++] = word;
    return CKPT_OK;
}

int cli_take(cli_line *line, const cli_option *o, const char *word, ckpt_err *err)
{
    bool own = o < common || o >= common + N_COMMON;
    void *field = (char *)(own ? line->values : line) + o->at;

    if (own) {
        line->given[o - line->verb->options] = true;
        line->said[o - line->verb->options] = word;
    }
    if (o == &common[0] && word && strcmp(word, "all") != 0)
        return fail(err, CKPT_EUSAGE, "--help: expected 'all' or nothing, found '%s'", word);
    if (o == &common[0])
        line->help_all = word != NULL;
    if (o->kind == CLI_MORE)
        return line->verb->more(line, word, err);
    if (o->kind == CLI_LIST || o->kind == CLI_SOURCES)
        return cli_add(line, field, word, err);
    if (!word_store(field, o->kind, word))
        return fail(err, CKPT_EUSAGE, "--%s: '%s' is not %s", o->name, word,
                    word_expected(o->kind));
    return CKPT_OK;
}

/* Refuse prefixes of option names, which getopt accepts, if the command requires complete names. */
static int cli_whole(const cli_line *line, int c, ckpt_err *err)
{
    bool refused = c == ':' || c == '?', apart = !refused && optarg == line->owned[optind - 1];
    const char *word = line->owned[optind - (apart ? 2 : 1)];
    int value = refused ? optopt : c;
    const cli_option *o = cli_by_value(line->verb, value);
    size_t n = strcspn(word, "=");

    if (!line->verb->whole_names || value < CLI_FIRST || n - 2 == strlen(o->name))
        return CKPT_OK;
    return fail(err, CKPT_EUSAGE, "unknown option '%.*s'; did you mean --%s?", (int)n, word,
                o->name);
}

/* Let getopt parse the words, and store each value; operands start at optind. */
static int cli_options(cli_line *line, int argc, ckpt_err *err)
{
    cli_tables tables = {0};
    int c, rc = CKPT_OK;

    cli_fill(&tables, line->verb);
    // print our messages instead of getopt's: one line, our name, a hint
    opterr = 0;
    optind = 0; // restart getopt, even in the middle of a cluster
    while (rc == CKPT_OK &&
           (c = getopt_long(argc, line->owned, tables.shorts, tables.longs, NULL)) != -1) {
        const cli_option *o = c == '?' || c == ':' ? NULL : cli_by_value(line->verb, c);
        rc = cli_whole(line, c, err);
        if (rc == CKPT_OK)
            rc = o ? cli_take(line, o, optarg, err) : cli_refuse(line, c, err);
    }
    return rc;
}

int cli_parse(cli_line *line, const cli_verb *verb, void *values, int argc, char **argv,
              ckpt_err *err)
{
    line->verb = verb;
    line->values = values;
    int rc = cli_own(line, argc, argv, err);
    if (rc == CKPT_OK)
        rc = cli_options(line, argc, err);
    // --help works even if required words are missing
    if (rc != CKPT_OK || line->help || line->version)
        return rc;
    line->operand = line->owned + optind;
    line->n_operands = argc - optind;
    if (line->n_operands < verb->min)
        return fail(err, CKPT_EUSAGE, "too few arguments: expected %s", verb->operands);
    if (line->n_operands > verb->max)
        return fail(err, CKPT_EUSAGE, "unexpected argument '%s'", line->operand[verb->max]);
    return CKPT_OK;
}

void cli_free(cli_line *line)
{
    // getopt only reorders the words, so each is still here once
    for (char **word = line->owned; word && *word; word++)
        free(*word);
    free(line->owned);
    for (size_t i = 0; i < CLI_MAX_LISTS; i++)
        free(line->lists[i]);
    *line = (cli_line){0};
}
