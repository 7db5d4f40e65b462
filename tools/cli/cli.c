/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.c: parsing by table, help texts, and words for sizes and numbers.
 *
 * getopt_long does the walking: short clusters, "--name=value", unambiguous beginnings, options
 * after operands. It gets rewritten copies of the words and a table made from ours; where a value
 * goes is an offset in cli_args.
 */
#include "tools/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/cli/near.h"

enum {
    CLI_MAX_OPTIONS = 40,
    CLI_FIRST = 256, /* getopt's values of long options: CLI_FIRST + index, clear of any letter */
    CLI_HELP_COLUMN = 30
};

/* What a file that an option names may have. */
#define CLI_FILE_BYTES (16 << 20)

/* Defaults that help texts and plans state. */
#define CLI_SHARD_BYTES  UINT64_C(5000000000)
#define CLI_MEMORY_BYTES (UINT64_C(256) << 20)

/* Every command has these. */
static const cli_option common[] = {
    {"help", 'h', CLI_FLAG, offsetof(cli_args, help), NULL, "show this help"},
    {"version", 'V', CLI_FLAG, offsetof(cli_args, version), NULL, "show the version"},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL},
};

/* The i-th option of a verb, its own first; NULL past the end. */
static const cli_option *cli_option_at(const cli_verb *verb, size_t i)
{
    size_t n = 0;

    while (verb->options && verb->options[n].name)
        n++;
    // the common ones stand last in every help text
    if (i < n)
        return &verb->options[i];
    return common[i - n].name ? &common[i - n] : NULL;
}

const cli_verb *cli_find(const cli_verb *const *commands, const char *name)
{
    while (*commands && strcmp((*commands)->name, name) != 0)
        commands++;
    return *commands;
}

/* ---- words ---- */

bool cli_uint(uint64_t *out, const char *text, size_t n)
{
    uint64_t x = 0;

    for (size_t i = 0; i < n; i++) {
        // stop before the product can wrap
        if (text[i] < '0' || text[i] > '9' || x > UINT64_MAX / 10)
            return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (x * 10 > UINT64_MAX - digit)
            return false;
        x = x * 10 + digit;
    }
    *out = x;
    return n > 0;
}

/* Bytes in a unit: 1 for none, 0 for an unknown one.  A letter alone is a power of 1000. */
static uint64_t cli_unit(const char *word)
{
    static const char *const names[] = {"K",  "M",  "G",   "T",   "KB",  "MB",
                                        "GB", "TB", "KiB", "MiB", "GiB", "TiB"};
    uint64_t unit = 1;

    if (!*word || strcasecmp(word, "B") == 0)
        return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        // each row of four starts anew, the last with powers of 1024
        unit = i % 4 == 0 ? 1 : unit;
        unit *= i < 8 ? 1000u : 1024u;
        if (strcasecmp(word, names[i]) == 0)
            return unit;
    }
    return 0;
}

/* How many a letter stands for where things are counted: 7B parameters are 7 * 10^9. */
static uint64_t cli_multiple(const char *word)
{
    static const char letters[] = "kmbt";
    const char *found = *word ? strchr(letters, tolower((unsigned char)*word)) : NULL;
    uint64_t unit = 1;

    if (*word && (!found || word[1]))
        return 0;
    for (const char *s = letters; found && s <= found; s++)
        unit *= 1000;
    return unit;
}

/* A number with a unit: fraction and all, but not of a unit of one. */
static bool cli_scaled(uint64_t *out, const char *text, uint64_t (*unit_of)(const char *word))
{
    size_t whole = strspn(text, "0123456789"), n_fraction = 0;
    const char *rest = text + whole;
    uint64_t x = 0, fraction = 0, scale = 1;

    if (*rest == '.') {
        n_fraction = strspn(++rest, "0123456789");
        if (n_fraction == 0 || n_fraction > 6 || !cli_uint(&fraction, rest, n_fraction))
            return false;
        rest += n_fraction;
    }
    for (size_t i = 0; i < n_fraction; i++)
        scale *= 10;
    uint64_t unit = unit_of(rest);
    // half a byte is no size: a fraction needs a unit
    if (unit == 0 || (unit == 1 && n_fraction) || !cli_uint(&x, text, whole))
        return false;
    // one unit less, so that the fraction fits on top
    if (x > UINT64_MAX / unit - (unit > 1))
        return false;
    // 10^6 * 1024^4 fits in 64 bits
    *out = x * unit + fraction * unit / scale;
    return true;
}

/*
 * Size words: plain bytes, or a number (with a fraction, if need be) and KB MB GB TB, short K M G T
 * (powers of 1000), or KiB MiB GiB TiB (powers of 1024), in any case.  False for anything else.
 */
static bool cli_size(uint64_t *out, const char *text)
{
    return cli_scaled(out, text, cli_unit);
}

/* A plain decimal that is finite and not negative. */
static bool cli_number(double *out, const char *text)
{
    char *end = NULL;

    // strtod also takes hexadecimal, "inf" and blanks: only plain decimals here
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out) && *out >= 0;
}

/* ---- parsing ---- */

/* Store one option's value at its place in the arguments; false when the word is not of its kind.
 */
static bool cli_store(cli_args *a, const cli_option *o, char *word)
{
    // the table pairs each kind with a field of its type
    char *at = (char *)a + o->at;
    uint64_t n = 0;

    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)(void *)at = true;
        return true;
    case CLI_TEXT:
    case CLI_FILE:
    case CLI_SOURCE:
    case CLI_OUTPUT:
        *(const char **)(void *)at = word;
        return true;
    case CLI_LIST: {
        cli_list *list = (cli_list *)(void *)at;
        list->at[list->n++] = word;
        return true;
    }
    case CLI_SIZE:
        return cli_size((uint64_t *)(void *)at, word);
    case CLI_COUNT:
        if (!cli_uint(&n, word, strlen(word)) || n == 0 || n > INT32_MAX)
            return false;
        *(unsigned *)(void *)at = (unsigned)n;
        return true;
    case CLI_COUNT64:
        return cli_uint((uint64_t *)(void *)at, word, strlen(word)) && *(uint64_t *)(void *)at > 0;
    case CLI_MANY:
        return cli_scaled((uint64_t *)(void *)at, word, cli_multiple) &&
               *(uint64_t *)(void *)at > 0;
    case CLI_NUMBER:
        return cli_number((double *)(void *)at, word);
    case CLI_DTYPE:
        *(ckpt_dtype *)(void *)at = ckpt_dtype_parse(word);
        return *(ckpt_dtype *)(void *)at != CKPT_DTYPE_NONE;
    case CLI_FORMAT: {
        const ckpt_format_info *f = ckpt_format_named(word);
        // what is unknown, or only read, is refused with a list of what there is
        *(const char **)(void *)at = f ? f->name : word;
        return true;
    }
    }
    return false;
}

/* What a refused value should have been, for the message. */
static const char *cli_expected(cli_kind kind)
{
    switch (kind) {
    case CLI_SIZE:
        return "a size such as 500MB, 1.5GiB, 4G or plain bytes";
    case CLI_COUNT:
    case CLI_COUNT64:
        return "a whole number from 1 on";
    case CLI_MANY:
        return "a number from 1 on, such as 7B, 350M, 124439808";
    case CLI_NUMBER:
        return "a number from 0 on, such as 1e-6";
    case CLI_DTYPE:
        return "a dtype such as fp32, bf16, fp16";
    case CLI_FLAG:
    case CLI_TEXT:
    case CLI_FILE:
    case CLI_SOURCE:
    case CLI_OUTPUT:
    case CLI_LIST:
    case CLI_FORMAT:
        break;
    }
    return "a value";
}

/* A copy of a word in which the name of a long option has '-' for '_'; its value stays as it is. */
static char *cli_spell(const char *word)
{
    char *copy = strdup(word);

    if (copy && strncmp(copy, "--", 2) == 0) {
        for (char *s = copy + 2; *s && *s != '='; s++)
            *s = *s == '_' ? '-' : *s;
    }
    return copy;
}

/* Own, rewritten copies of argv up to "--"; and room for the lists, each as long as argv. */
static int cli_own(cli_args *a, int argc, char **argv, ckpt_err *err)
{
    size_t n = (size_t)argc + 1;
    bool options = true;

    a->owned = calloc(n, sizeof *a->owned);
    a->lists = calloc(2 * n, sizeof *a->lists);
    if (!a->owned || !a->lists)
        return fail(err, CKPT_ELIMIT, "out of memory");
    a->include.at = a->lists;
    a->exclude.at = a->lists + n;
    for (int i = 0; i < argc; i++) {
        // what follows "--" is never an option, whatever it looks like
        options = options && strcmp(argv[i], "--") != 0;
        a->owned[i] = options ? cli_spell(argv[i]) : strdup(argv[i]);
        if (!a->owned[i])
            return fail(err, CKPT_ELIMIT, "out of memory");
    }
    return CKPT_OK;
}

/* getopt's two tables from ours; names of drop-ins are spelled with '-' here, as the words are. */
typedef struct cli_tables {
    struct option longs[CLI_MAX_OPTIONS + 1];
    char shorts[2 * CLI_MAX_OPTIONS + 2];
    char names[CLI_MAX_OPTIONS][40];
} cli_tables;

/* Both tables have the options in the order of cli_option_at, which is how values find back. */
static void cli_fill(cli_tables *t, const cli_verb *verb)
{
    const cli_option *o;
    char *s = t->shorts;

    *s++ = ':'; // tell a missing value from an unknown option
    for (size_t i = 0; i < CLI_MAX_OPTIONS && (o = cli_option_at(verb, i)); i++) {
        size_t n = 0;
        for (; n < sizeof t->names[i] - 1 && o->name[n]; n++)
            t->names[i][n] = o->name[n] == '_' ? '-' : o->name[n];
        t->longs[i].name = t->names[i];
        t->longs[i].has_arg = o->kind == CLI_FLAG ? no_argument : required_argument;
        t->longs[i].val = CLI_FIRST + (int)i;
        if (o->letter)
            *s++ = o->letter;
        if (o->letter && o->kind != CLI_FLAG)
            *s++ = ':';
    }
}

/* The option that getopt reports by value c; NULL when it is none of the verb's. */
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

/* A long option that getopt does not know: cut too short, misspelt, or neither. */
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

/* Why getopt refused a word. */
static int cli_refuse(const cli_args *a, int c, ckpt_err *err)
{
    const cli_option *o = cli_by_value(a->verb, optopt);
    const char *word = a->owned[optind - 1];

    // optopt holds the option's value where getopt knew the option, 0 where it knew none
    if (c == ':' && o)
        return fail(err, CKPT_EUSAGE, "--%s needs a value (%s)", o->name, o->value);
    if (optopt >= CLI_FIRST && o)
        return fail(err, CKPT_EUSAGE, "--%s takes no value", o->name);
    if (optopt == 0)
        return cli_unknown(a->verb, word, err);
    return fail(err, CKPT_EUSAGE, "unknown option '-%c'", optopt);
}

const char *cli_given(const cli_args *a, size_t at)
{
    const cli_option *o;

    for (size_t i = 0; (o = cli_option_at(a->verb, i)); i++) {
        if (o->at == at && (a->given >> i & 1))
            return o->name;
    }
    return NULL;
}

bool cli_has(const cli_args *a, const char *name)
{
    const cli_option *o;

    for (size_t i = 0; (o = cli_option_at(a->verb, i)); i++) {
        if (strcmp(o->name, name) == 0)
            return a->given >> i & 1;
    }
    return false;
}

/* Note that an option was given. */
static void cli_mark(cli_args *a, const cli_option *o)
{
    for (size_t i = 0; cli_option_at(a->verb, i); i++) {
        if (cli_option_at(a->verb, i) == o)
            a->given |= UINT64_C(1) << i;
    }
}

/* Let getopt walk the words and store each value; it leaves the operands behind optind. */
static int cli_options(cli_args *a, int argc, ckpt_err *err)
{
    cli_tables tables = {0};
    int c;

    cli_fill(&tables, a->verb);
    // our messages, not getopt's: one line, our name, a hint
    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, a->owned, tables.shorts, tables.longs, NULL)) != -1) {
        const cli_option *o = c == '?' || c == ':' ? NULL : cli_by_value(a->verb, c);
        if (!o)
            return cli_refuse(a, c, err);
        if (!cli_store(a, o, optarg))
            return fail(err, CKPT_EUSAGE, "--%s: '%s' is not %s", o->name, optarg,
                        cli_expected(o->kind));
        cli_mark(a, o);
    }
    return CKPT_OK;
}

int cli_parse(cli_args *a, const cli_verb *verb, int argc, char **argv, ckpt_err *err)
{
    a->verb = verb;
    a->target.max_shard_size = CLI_SHARD_BYTES;
    a->run.memory = CLI_MEMORY_BYTES;
    int rc = cli_own(a, argc, argv, err);
    if (rc == CKPT_OK)
        rc = cli_options(a, argc, err);
    // a request for help is served whatever else is missing
    if (rc != CKPT_OK || a->help || a->version)
        return rc;
    a->operand = a->owned + optind;
    a->n_operands = argc - optind;
    if (a->n_operands < verb->min)
        return fail(err, CKPT_EUSAGE, "too few arguments: expected %s", verb->operands);
    if (a->n_operands > verb->max)
        return fail(err, CKPT_EUSAGE, "unexpected argument '%s'", a->operand[verb->max]);
    return CKPT_OK;
}

void cli_free(cli_args *a)
{
    // getopt only reorders the words, so each is still here once
    for (char **word = a->owned; word && *word; word++)
        free(*word);
    free(a->owned);
    free(a->lists);
    free(a->rules_text);
    a->rules_text = NULL;
    a->open.slice_rules = NULL;
    a->owned = NULL;
    a->lists = NULL;
}

/* ---- files that options name, and the operand ---- */

int cli_file(char **out, const char *path, const char *what, ckpt_err *err)
{
    FILE *file = fopen(path, "rb");
    char *text = file ? malloc(CLI_FILE_BYTES + 1) : NULL;

    if (!file)
        return fail(err, CKPT_EIO, "%s: %s", path, strerror(errno));
    size_t n = text ? fread(text, 1, CLI_FILE_BYTES + 1, file) : 0;
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    // one byte more was asked for than is allowed, to see whether there is more
    if (text && !failed && n <= CLI_FILE_BYTES && !memchr(text, 0, n)) {
        text[n] = 0;
        *out = text;
        return CKPT_OK;
    }
    free(text);
    if (failed)
        return fail(err, CKPT_EIO, "%s: cannot be read", path);
    if (n > CLI_FILE_BYTES)
        return fail(err, CKPT_ELIMIT, "%s: %s may take at most 16 MiB", path, what);
    return n ? fail(err, CKPT_EUSAGE, "%s: not a text", path)
             : fail(err, CKPT_ELIMIT, "%s: out of memory", path);
}

int cli_open(ckpt_map **out, cli_args *a, ckpt_err *err)
{
    return ckpt_open(out, a->operand[0], &a->open, err);
}

int cli_rules(cli_args *a, ckpt_err *err)
{
    int rc =
        a->slice_rules ? cli_file(&a->rules_text, a->slice_rules, "slice rules", err) : CKPT_OK;

    a->open.slice_rules = a->rules_text;
    return rc;
}

bool cli_filter(ckpt_filter *out, const cli_args *a)
{
    *out = (ckpt_filter){
        .include = a->include.n ? a->include.at : NULL,
        .exclude = a->exclude.n ? a->exclude.at : NULL,
    };
    return a->include.n || a->exclude.n || a->rename;
}

bool cli_into_folder(const ckpt_target *target)
{
    return ckpt_format_caps(target->format) & CKPT_IS_FOLDER;
}

/* ---- help ---- */

enum { CLI_FORMATS_ROOM = 160 }; /* a list of formats */

/* "torch, safetensors or hf": the formats that are written. */
static const char *cli_formats(char text[CLI_FORMATS_ROOM])
{
    const ckpt_format_info *f, *last = NULL;
    size_t n = 0;

    text[0] = 0;
    for (size_t i = 0; (f = ckpt_format_at(i)) && n < CLI_FORMATS_ROOM; i++) {
        if (!(f->caps & CKPT_CAN_WRITE))
            continue;
        if (last)
            n +=
                (size_t)snprintf(text + n, CLI_FORMATS_ROOM - n, "%s%s", n ? ", " : "", last->name);
        last = f;
    }
    if (last && n < CLI_FORMATS_ROOM)
        (void)snprintf(text + n, CLI_FORMATS_ROOM - n, "%s%s", n ? " or " : "", last->name);
    return text;
}

/* One option: its forms in the left column, its text in the right one or on the next line. */
static void cli_help_option(const cli_option *o)
{
    char left[64], formats[CLI_FORMATS_ROOM];
    const char *help = o->kind == CLI_FORMAT ? cli_formats(formats) : o->help;
    int n = snprintf(left, sizeof left, "  %c%c%c --%s%s%s", o->letter ? '-' : ' ',
                     o->letter ? o->letter : ' ', o->letter ? ',' : ' ', o->name,
                     o->value ? " " : "", o->value ? o->value : "");

    if (n >= CLI_HELP_COLUMN)
        out_printf("%s\n%*s%s\n", left, CLI_HELP_COLUMN, "", help);
    else
        out_printf("%-*s%s\n", CLI_HELP_COLUMN, left, help);
}

void cli_help(const cli_verb *verb)
{
    const cli_option *o;

    out_printf("Usage: %s [options]%s%s\n\n%s\n\nOptions:\n", verb->command,
               *verb->operands ? " " : "", verb->operands, verb->summary);
    for (size_t i = 0; (o = cli_option_at(verb, i)); i++)
        cli_help_option(o);
}
