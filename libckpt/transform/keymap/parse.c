/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c: parses a layout map's text into rules, sizes and keys, line by line.
 *
 * A line continues in the next one after a ',' or '=' at its end, or if the next begins with one or
 * with `or`. '#' begins a comment, outside of quotes, at a line's start or after a blank.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/transform/keymap/expr.h"
#include "libckpt/transform/keymap/rule.h"

typedef enum par_section { PAR_TENSORS, PAR_SIZES, PAR_KEYS, PAR_CONFIG } par_section;

/* State of the parser: one logical line at a time. */
typedef struct par_text {
    ckpt_remap *r;
    const char *at, *end; /* the rest of the text */
    unsigned line;        /* number of the line at `at` */
    unsigned first;       /* number of the current line's first physical line */
    par_section section;
    uint8_t side;     /* CONFIG: its side */
    uint32_t n_lines; /* number of rules, sizes, keys and lines of configurations, for the limit */
    uint32_t when;    /* condition for the lines that follow, as ckpt_rm_rule.when */
    ckpt_err *err;
    size_t n;
    char text[CKPT_RM_LINE]; /* the current line, without comments, terminated */
} par_text;

static int par_fail(const par_text *p, const char *what, const char *near)
{
    return ckpt_fail(p->err, CKPT_EUSAGE, "%s:%u: %s%s%.60s%s", p->r->name, p->first, what,
                     near ? " '" : "", near ? near : "", near ? "'" : "");
}

/* ---- lines ---- */

/* Bytes of a physical line before its comment. */
static size_t par_content(const char *s, size_t n)
{
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"')
            quoted = !quoted;
        else if (s[i] == '#' && !quoted && (i == 0 || s[i - 1] == ' ' || s[i - 1] == '\t'))
            return i;
    }
    return n;
}

/* Append a physical line, without blanks at both ends. */
static int par_append(par_text *p)
{
    const char *stop = memchr(p->at, '\n', (size_t)(p->end - p->at));
    size_t n = (size_t)((stop ? stop : p->end) - p->at);
    const char *s = p->at;
    size_t used = par_content(s, n);

    p->at += n + (stop ? 1 : 0);
    p->line++;
    while (used > 0 && strchr(" \t\r", s[used - 1]))
        used--;
    while (used > 0 && strchr(" \t", *s)) {
        s++;
        used--;
    }
    if (used > sizeof p->text - 2 - p->n)
        return par_fail(p, "the line is too long", NULL);
    if (p->n > 0 && used > 0)
        p->text[p->n++] = ' ';
    memcpy(p->text + p->n, s, used);
    p->n += used;
    p->text[p->n] = 0;
    return CKPT_OK;
}

/* True if the next line continues the current one. */
static bool par_goes_on(const par_text *p)
{
    const char *s = p->at;

    if (p->at >= p->end)
        return false;
    if (p->n > 0 && (p->text[p->n - 1] == ',' || p->text[p->n - 1] == '='))
        return true;
    while (s < p->end && (*s == ' ' || *s == '\t'))
        s++;
    return s < p->end && (*s == ',' || *s == '=' || (p->end - s > 3 && memcmp(s, "or ", 3) == 0));
}

static int par_line(par_text *p)
{
    int rc = CKPT_OK;

    p->n = 0;
    p->text[0] = 0;
    p->first = p->line;
    do
        rc = par_append(p);
    while (rc == CKPT_OK && p->n > 0 && par_goes_on(p));
    return rc;
}

/* ---- words ---- */

/* Bytes of a word; text in braces always belongs to it. */
static size_t par_length(const char *s)
{
    size_t n = 0;

    while (s[n] && !strchr(" \t\",=", s[n])) {
        const char *close = s[n] == '{' ? strchr(s + n, '}') : NULL;
        n = close ? (size_t)(close - s) + 1 : n + 1;
    }
    return n;
}

/* The next blank-separated word; "=" and "," are words of their own; NULL at the end. */
static const char *par_word(par_text *p, const char **at, bool *quoted)
{
    const char *s = *at + strspn(*at, " \t");
    size_t n;

    *quoted = *s == '"';
    if (*quoted) {
        const char *stop = strchr(s + 1, '"');
        if (!stop) {
            *at = s + strlen(s);
            return NULL;
        }
        *at = stop + 1;
        return ckpt_arena_string(p->r->arena, s + 1, (size_t)(stop - s - 1));
    }
    n = *s == ',' || *s == '=' ? 1 : par_length(s);
    *at = s + n;
    return n ? ckpt_arena_string(p->r->arena, s, n) : NULL;
}

/* The text after this word at the start of the current line; NULL: the line begins differently. */
static const char *par_after(const char *s, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(s, word, n) != 0 || (s[n] && s[n] != ' ' && s[n] != '\t'))
        return NULL;
    return s + n + strspn(s + n, " \t");
}

/* ---- rules ---- */

/* Parse a term: a pattern, and its axes if they are given. */
static int par_term(par_text *p, ckpt_rm_terms *terms, const char *pattern, const char *axes)
{
    ckpt_rm_term *t = terms->n < CKPT_RM_TERMS ? ckpt_vec_push(terms) : NULL;

    if (!t)
        return terms->n < CKPT_RM_TERMS ? ckpt_fail_memory(p->err)
                                        : par_fail(p, "too many tensors in one rule", NULL);
    int rc = ckpt_rm_pattern(p->r, t, pattern, p->first, p->err);
    t->plain = !axes;
    if (rc == CKPT_OK && axes)
        rc = ckpt_rm_axes(p->r, terms, axes, p->first, p->err);
    return rc;
}

/*
 * Parse the word before a tensor that chooses how its numbered tensors are joined; it may also be a
 * name.
 */
static ckpt_rm_joins par_joins(const char *word, const char *at, bool right)
{
    static const char *const words[] = {"", "copies", "sum", "mean"};

    at += strspn(at, " \t");
    for (unsigned i = 1; i < 4; i++) {
        if (strcmp(word, words[i]) == 0 && *at && !strchr(",=\"", *at) &&
            (strpbrk(at, " \t=") || right))
            return (ckpt_rm_joins)i;
    }
    return CKPT_RM_APART;
}

/* Parse "+ 1", "- 1" after the last tensor. */
static int par_plus(par_text *p, ckpt_rm_rule *rule, const char **at)
{
    const char *s = *at + strspn(*at, " \t");
    size_t n = strspn(s, "0123456789.");

    if (n > 18 || s[n] || !ckpt_parse_f64(s, &rule->plus))
        return par_fail(p, "expected a number at the end of", p->text);
    *at = s + n;
    return CKPT_OK;
}

/* True for a sign that begins the constant of the right side. */
static bool par_is_sign(const char *word, const char *at, unsigned side, bool wants)
{
    at += strspn(at, " \t");
    return side > 0 && !wants && (*word == '+' || *word == '-') && !word[1] && *at >= '0' &&
           *at <= '9';
}

/* Take the name out of "log(-NAME)" on the right side; other words stay. */
static int par_log(par_text *p, ckpt_rm_rule *rule, const char **word, unsigned side)
{
    const size_t n = strlen(*word);

    if (strncmp(*word, "log(", 4) != 0)
        return CKPT_OK;
    // else a slip would be the name of a tensor
    if (side == 0 || n < 7 || (*word)[4] != '-' || (*word)[n - 1] != ')')
        return par_fail(p, "expected log(-NAME) on the right side, found", *word);
    rule->log = true;
    *word = ckpt_arena_string(p->r->arena, *word + 5, n - 6);
    return *word ? CKPT_OK : ckpt_fail_memory(p->err);
}

/* TERM {, TERM} [=] TERM {, TERM} [+ NUMBER] */
static int par_terms(par_text *p, ckpt_rm_rule *rule, const char *at)
{
    bool quoted, wants = true;
    unsigned side = 0;
    const char *word = par_word(p, &at, &quoted);
    int rc = CKPT_OK;

    while (rc == CKPT_OK && word) {
        if (strcmp(word, "=") == 0 && !quoted) {
            if (wants || side++ > 0)
                return par_fail(p, "expected PATTERN \"axes\" = PATTERN \"axes\", found", p->text);
            wants = true;
        } else if (strcmp(word, ",") == 0 && !quoted) {
            if (wants)
                return par_fail(p, "a comma must follow a tensor:", p->text);
            wants = true;
        } else if (!quoted && par_is_sign(word, at, side, wants)) {
            rc = par_plus(p, rule, &at);
            rule->plus = *word == '-' ? -rule->plus : rule->plus;
        } else {
            ckpt_rm_joins joins = par_joins(word, at, side > 0);
            const char *pattern = joins ? par_word(p, &at, &quoted) : word, *next = at, *axes;
            if (quoted || !pattern)
                return par_fail(p, "axes must follow a tensor:", word);
            if (!wants && side++ > 0)
                return par_fail(p, "expected PATTERN REPLACEMENT, found", p->text);
            rc = par_log(p, rule, &pattern, side);
            if (rc != CKPT_OK)
                return rc;
            axes = par_word(p, &next, &quoted);
            if (quoted && !axes)
                return par_fail(p, "the quoted string does not end:", at);
            if (quoted)
                at = next;
            else
                axes = NULL;
            rc = par_term(p, &rule->term[side], pattern, axes);
            if (rc == CKPT_OK)
                rule->term[side].at[rule->term[side].n - 1].joins = joins;
            wants = false;
        }
        word = par_word(p, &at, &quoted);
    }
    if (rc == CKPT_OK && (wants || rule->term[0].n == 0 || rule->term[1].n == 0 || *at))
        rc = par_fail(p, "expected PATTERN REPLACEMENT, found", p->text);
    return rc;
}

/* Handle terms without axes: only names on both sides, or all axes unchanged. */
static int par_plain(par_text *p, ckpt_rm_rule *rule)
{
    static const ckpt_rm_atom rest = {.rest = true};
    bool all = true;

    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < rule->term[side].n; i++)
            all = all && rule->term[side].at[i].plain;
    }
    if (all && rule->term[0].n == 1 && rule->term[1].n == 1 &&
        ((rule->plus == 0 && !rule->log) || rule->term[1].at[0].joins == CKPT_RM_APART) &&
        (rule->plus == 0 || !rule->log))
        return CKPT_OK;
    if (rule->plus != 0 || rule->log)
        return par_fail(p, "'+', '-' and log need exactly one tensor without axes:", p->text);
    for (unsigned side = 0; side < 2; side++) {
        if (rule->term[side].at[0].joins != CKPT_RM_APART)
            return par_fail(p,
                            "copies, sum and mean need exactly one tensor without axes:", p->text);
    }
    if (all)
        return par_fail(p, "several tensors need axes that give the part of each:", p->text);
    for (unsigned side = 0; side < 2; side++) {
        for (size_t i = 0; i < rule->term[side].n; i++) {
            ckpt_rm_term *t = &rule->term[side].at[i];
            if (!t->plain)
                continue;
            t->plain = false;
            t->n_axes = t->n_atoms = 1;
            t->atom = &rest;
        }
    }
    return CKPT_OK;
}

static ckpt_rm_rule *par_rule(par_text *p)
{
    ckpt_rm_rule *rule = ckpt_vec_push(&p->r->rules);

    if (rule)
        *rule = (ckpt_rm_rule){.line = p->first, .when = p->when};
    else
        (void)ckpt_fail_memory(p->err);
    return rule;
}

static int par_equal(par_text *p)
{
    ckpt_rm_rule *rule = par_rule(p);
    const char *at = p->text;

    if (!rule)
        return CKPT_ELIMIT;
    rule->optional = *at == '?' && (at[1] == ' ' || at[1] == '\t');
    int rc = par_terms(p, rule, at + rule->optional);
    if (rc == CKPT_OK)
        rc = par_plain(p, rule);
    return rc == CKPT_OK ? ckpt_rm_check_rule(p->r, rule, p->err) : rc;
}

/* Parse "left" or "right" at *at, and move past it. */
static int par_side(par_text *p, const char **at, uint8_t *side)
{
    const char *left = par_after(*at, "left"), *right = par_after(*at, "right");

    if (!left && !right)
        return par_fail(p, "expected left or right at", *at);
    *side = right ? 1 : 0;
    *at = right ? right : left;
    return CKPT_OK;
}

/* drop SIDE PATTERN because "REASON" */
static int par_drop(par_text *p, const char *at)
{
    ckpt_rm_rule *rule = par_rule(p);
    bool quoted = false;

    if (!rule)
        return CKPT_ELIMIT;
    rule->does = CKPT_RM_DROP;
    rule->optional = true;
    int rc = par_side(p, &at, &rule->side);
    const char *pattern = rc == CKPT_OK ? par_word(p, &at, &quoted) : NULL;
    const char *because = pattern ? par_word(p, &at, &quoted) : NULL;
    if (because && strcmp(because, "because") == 0)
        rule->because = par_word(p, &at, &quoted);
    if (rc == CKPT_OK && (!rule->because || !quoted || *at))
        rc = par_fail(p, "expected drop SIDE PATTERN because \"REASON\", found", p->text);
    return rc == CKPT_OK ? par_term(p, &rule->term[0], pattern, NULL) : rc;
}

/* tie SIDE NAME = NAME */
static int par_tie(par_text *p, const char *at)
{
    ckpt_rm_rule *rule = par_rule(p);
    int rc;

    if (!rule)
        return CKPT_ELIMIT;
    rule->does = CKPT_RM_TIE;
    rule->optional = true;
    rc = par_side(p, &at, &rule->side);
    if (rc == CKPT_OK)
        rc = par_terms(p, rule, at);
    for (unsigned k = 0; rc == CKPT_OK && k < 2; k++) {
        const ckpt_rm_terms *t = &rule->term[k];
        if (t->n != 1 || !t->at[0].plain || t->at[0].n_pieces != 1 ||
            t->at[0].piece[0].kind != CKPT_RM_TEXT)
            rc = par_fail(p, "expected tie SIDE NAME = NAME, found", p->text);
    }
    return rc;
}

/* fill SIDE NAME "axes" with EXPRESSION */
static int par_fill(par_text *p, const char *at)
{
    ckpt_rm_rule *rule = par_rule(p);
    bool quoted = false;
    const char *with;

    if (!rule)
        return CKPT_ELIMIT;
    rule->does = CKPT_RM_FILL;
    rule->optional = true;
    int rc = par_side(p, &at, &rule->side);
    const char *name = rc == CKPT_OK ? par_word(p, &at, &quoted) : NULL;
    const char *axes = name ? par_word(p, &at, &quoted) : NULL;
    at += strspn(at, " \t");
    with = axes && quoted ? par_after(at, "with") : NULL;
    if (rc == CKPT_OK && (!with || strpbrk(name, "{*") || strpbrk(axes, ".;")))
        rc = par_fail(p, "expected fill SIDE NAME \"axes\" with EXPRESSION, found", p->text);
    if (rc == CKPT_OK) {
        rule->with.line = p->first;
        rule->with.text = ckpt_arena_string(p->r->arena, with, strlen(with));
        rc = rule->with.text ? ckpt_rm_expr_check(p->r, &rule->with, p->err)
                             : ckpt_fail_memory(p->err);
    }
    return rc == CKPT_OK ? par_term(p, &rule->term[0], name, axes) : rc;
}

/* ---- sizes, keys, and the description ---- */

/* Parse the expression after '=' and check its syntax. */
static int par_expression(par_text *p, ckpt_rm_line *line, const char *at)
{
    at += strspn(at, " \t");
    if (*at != '=')
        return par_fail(p, "expected NAME = EXPRESSION, found", p->text);
    at += 1 + strspn(at + 1, " \t");
    line->line = p->first;
    line->text = ckpt_arena_string(p->r->arena, at, strlen(at));
    return line->text ? ckpt_rm_expr_check(p->r, line, p->err) : ckpt_fail_memory(p->err);
}

static int par_size(par_text *p)
{
    const char *padding = par_after(p->text, "padding");
    const char *at = padding && *padding != '=' ? padding : p->text;
    bool quoted;
    const char *name = par_word(p, &at, &quoted);
    ckpt_rm_line *line;
    uint32_t number;

    if (!name || quoted || strpbrk(name, "{}*.()|"))
        return par_fail(p, "expected NAME = EXPRESSION, found", p->text);
    number = ckpt_rm_name(p->r, name, strlen(name));
    if (number == CKPT_RM_NO_NAME)
        return par_fail(p, "the layout map has too many names at", name);
    if (ckpt_rm_size(p->r, number))
        return par_fail(p, "the size is already set above:", name);
    line = ckpt_vec_push(&p->r->sizes);
    if (!line)
        return ckpt_fail_memory(p->err);
    line->name = number;
    line->padding = padding && *padding != '=';
    return par_expression(p, line, at);
}

static bool par_key_type(const char *word, ckpt_rm_line *line)
{
    static const struct {
        const char *name;
        uint8_t type;
    } types[] = {{"u8", CKPT_KEY_U8},   {"i8", CKPT_KEY_I8},     {"u16", CKPT_KEY_U16},
                 {"i16", CKPT_KEY_I16}, {"u32", CKPT_KEY_U32},   {"i32", CKPT_KEY_I32},
                 {"f32", CKPT_KEY_F32}, {"bool", CKPT_KEY_BOOL}, {"string", CKPT_KEY_STRING},
                 {"u64", CKPT_KEY_U64}, {"i64", CKPT_KEY_I64},   {"f64", CKPT_KEY_F64}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(types[i].name);
        if (strncmp(word, types[i].name, n) != 0 || (word[n] && strcmp(word + n, "[]") != 0))
            continue;
        line->type = types[i].type;
        line->list = word[n] != 0;
        return true;
    }
    return false;
}

/* [?] KEY TYPE = EXPRESSION */
static int par_key(par_text *p)
{
    bool optional = p->text[0] == '?' && p->text[1] == ' ', quoted;
    const char *at = p->text + optional;
    const char *key = par_word(p, &at, &quoted);
    const char *type = key ? par_word(p, &at, &quoted) : NULL;
    ckpt_rm_line *line = ckpt_vec_push(&p->r->keys);

    if (!line)
        return ckpt_fail_memory(p->err);
    line->key = key;
    line->optional = optional;
    line->when = p->when;
    if (!key || !type || quoted || !par_key_type(type, line))
        return par_fail(p, "expected KEY TYPE = EXPRESSION, found", p->text);
    return par_expression(p, line, at);
}

/* neutral KEY [= EXPRESSION], or only or default KEY = EXPRESSION */
static int par_neutral(par_text *p, const char *at, ckpt_rm_lines *lines, ckpt_rm_line is)
{
    ckpt_rm_line *line = ckpt_vec_push(lines);
    bool quoted = false;

    if (!line)
        return ckpt_fail_memory(p->err);
    *line = is;
    line->key = par_word(p, &at, &quoted);
    line->when = p->when;
    if (!line->key || quoted)
        return par_fail(p, "expected neutral KEY = EXPRESSION, found", p->text);
    return is.only || is.fallback || at[strspn(at, " \t")] ? par_expression(p, line, at) : CKPT_OK;
}

/* A line of the section `keys`. */
static int par_key_line(par_text *p)
{
    const char *at = par_after(p->text, "neutral");

    return at && *at != '=' ? par_neutral(p, at, &p->r->neutral, (ckpt_rm_line){0}) : par_key(p);
}

/* [?] KEY = EXPRESSION */
static int par_config_key(par_text *p)
{
    bool optional = p->text[0] == '?' && p->text[1] == ' ', quoted;
    const char *at = p->text + optional;
    const char *key = par_word(p, &at, &quoted);
    ckpt_rm_line *line = ckpt_vec_push(&p->r->config[p->side]);

    if (!line)
        return ckpt_fail_memory(p->err);
    line->key = key;
    line->optional = optional;
    line->when = p->when;
    if (!key || quoted || *key == '.' || key[strlen(key) - 1] == '.' || strstr(key, ".."))
        return par_fail(p, "expected KEY = EXPRESSION, found", p->text);
    if (!ckpt_rm_ask(p->r, key))
        return par_fail(p, "the layout map has too many names at", key);
    return par_expression(p, line, at);
}

/* A line of the section `config`; lines with `only` may be optional, too. */
static int par_config_line(par_text *p)
{
    const bool optional = p->text[0] == '?' && p->text[1] == ' ';
    const char *neutral = par_after(p->text, "neutral");
    const char *only = par_after(p->text + (optional ? 2 : 0), "only");
    const char *fallback = par_after(p->text, "default");
    const char *at = only ? only : neutral ? neutral : fallback;
    const ckpt_rm_line is = {.only = only, .fallback = fallback, .optional = optional};

    return at && *at != '=' ? par_neutral(p, at, &p->r->fields[p->side], is) : par_config_key(p);
}

/* config SIDE FILE: begins the section of that file's keys */
static int par_config(par_text *p, const char *at)
{
    bool quoted;
    uint8_t side = 0;
    int rc = par_side(p, &at, &side);
    const char *file = rc == CKPT_OK ? par_word(p, &at, &quoted) : NULL;

    if (rc == CKPT_OK && (!file || quoted || *at || !ckpt_path_part_ok(file, strlen(file))))
        return par_fail(p, "expected config SIDE FILE, found", p->text);
    if (rc == CKPT_OK && p->r->config_file[side])
        return par_fail(p, "the configuration is already given above:", p->text);
    if (rc != CKPT_OK)
        return rc;
    p->r->config_file[side] = file;
    p->side = side;
    p->section = PAR_CONFIG;
    p->when = 0;
    return CKPT_OK;
}

/* [SIDE] when KEY in WORD ... */
static int par_when(par_text *p, ckpt_rm_whens *whens, const char *at, uint8_t side)
{
    ckpt_rm_when *w = ckpt_vec_push(whens);
    ckpt_rm_texts words = {0};
    bool quoted, ok = w != NULL;

    if (!w)
        return ckpt_fail_memory(p->err);
    w->side = side;
    w->key = par_word(p, &at, &quoted);
    if (w->key && !ckpt_rm_ask(p->r, w->key))
        return par_fail(p, "the layout map has too many names at", w->key);
    const char *word = w->key ? par_word(p, &at, &quoted) : NULL;
    if (!word || strcmp(word, "in") != 0)
        return par_fail(p, "expected when KEY in WORD ..., found", p->text);
    for (word = par_word(p, &at, &quoted); ok && word; word = par_word(p, &at, &quoted)) {
        const char **slot = ckpt_vec_push(&words);
        ok = slot != NULL;
        if (ok)
            *slot = word;
    }
    const char **end = ok ? ckpt_vec_push(&words) : NULL;
    ok = end != NULL;
    w->word = ok ? ckpt_arena_copy(p->r->arena, words.at, words.n * sizeof *words.at) : NULL;
    ckpt_vec_free(&words);
    return w->word ? CKPT_OK : ckpt_fail_memory(p->err);
}

/* SIDE has PATTERN, or SIDE has own names */
static int par_has(par_text *p, const char *at, uint8_t side)
{
    ckpt_rm_when *w = ckpt_vec_push(&p->r->whens);
    bool quoted;

    if (!w)
        return ckpt_fail_memory(p->err);
    w->side = side;
    w->own = strcmp(at, "own names") == 0;
    if (w->own)
        return CKPT_OK;
    const char *pattern = par_word(p, &at, &quoted);
    if (!pattern || quoted || *at)
        return par_fail(p, "expected SIDE has PATTERN, found", p->text);
    return ckpt_rm_pattern(p->r, &w->has, pattern, p->first, p->err);
}

static int par_map(par_text *p, const char *at)
{
    const char *colon = strchr(at, ':');

    if (!colon || colon == at || !colon[1] || strpbrk(at, " \t") || strchr(colon + 1, ':'))
        return par_fail(p, "expected map LEFT:RIGHT, found", p->text);
    p->r->side[0] = ckpt_arena_string(p->r->arena, at, (size_t)(colon - at));
    p->r->side[1] = ckpt_arena_string(p->r->arena, colon + 1, strlen(colon + 1));
    return p->r->side[0] && p->r->side[1] ? CKPT_OK : ckpt_fail_memory(p->err);
}

/* The words "A = B" stay three entries of the list. */
static int par_strip(par_text *p, const char *at)
{
    bool quoted, may = false, must = false; /* the next word may be =, must be the other prefix */

    for (const char *word = par_word(p, &at, &quoted); word; word = par_word(p, &at, &quoted)) {
        const char **slot = ckpt_vec_push(&p->r->strip);
        const bool equal = !quoted && may && strcmp(word, "=") == 0;
        if (!slot)
            return ckpt_fail_memory(p->err);
        *slot = word;
        if (!equal && (quoted || !*word || word[strlen(word) - 1] != '.'))
            return par_fail(p, "expected whole parts of names, each with its dot:", word);
        may = !equal && !must;
        must = equal;
    }
    return must ? par_fail(p, "expected whole parts of names, each with its dot:", "") : CKPT_OK;
}

/* True for a section's name alone on its line. */
static bool par_section_of(par_text *p)
{
    static const char *const names[] = {"tensors", "sizes", "keys"};

    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(p->text, names[i]) == 0) {
            p->section = (par_section)i;
            p->when = 0;
            return true;
        }
    }
    return false;
}

/* Parse a line that may occur in any section; *took: it was one. */
static int par_statement(par_text *p, bool *took)
{
    const char *s = p->text, *at = NULL, *left = par_after(s, "left"),
               *right = par_after(s, "right"), *side = left ? left : right;

    *took = true;
    if (par_section_of(p))
        return CKPT_OK;
    if (strcmp(s, "others stay") == 0) {
        p->r->others_stay = true;
        return CKPT_OK;
    }
    if (side && strcmp(side, "keeps slices") == 0) {
        p->r->keeps_slices[right != NULL] = true;
        return CKPT_OK;
    }
    if (side && strcmp(side, "keeps blocks") == 0) {
        p->r->keeps_blocks[right != NULL] = true;
        return CKPT_OK;
    }
    if (side && (at = par_after(side, "has")))
        return par_has(p, at, right != NULL);
    if (side && (at = par_after(side, "when")))
        return par_when(p, &p->r->whens, at, right != NULL);
    if (strcmp(s, "always") == 0) {
        p->when = 0;
        return CKPT_OK;
    }
    if ((at = par_after(s, "when")) && strstr(at, " in ")) {
        p->when = (uint32_t)p->r->only.n + 1;
        return par_when(p, &p->r->only, at, 0);
    }
    if ((at = par_after(s, "map")) && strchr(at, ':'))
        return par_map(p, at);
    if ((at = par_after(s, "about"))) {
        p->r->about = ckpt_arena_string(p->r->arena, at, strlen(at));
        return p->r->about ? CKPT_OK : ckpt_fail_memory(p->err);
    }
    if ((at = par_after(s, "strip")))
        return par_strip(p, at);
    if ((at = par_after(s, "config")) && (par_after(at, "left") || par_after(at, "right")))
        return par_config(p, at);
    *took = false;
    return CKPT_OK;
}

static int par_tensor_line(par_text *p)
{
    const char *at;

    if ((at = par_after(p->text, "drop")) && strstr(at, "because"))
        return par_drop(p, at);
    if ((at = par_after(p->text, "tie")) && strchr(at, '='))
        return par_tie(p, at);
    if ((at = par_after(p->text, "fill")) && strchr(at, '"'))
        return par_fill(p, at);
    return par_equal(p);
}

static int par_one(par_text *p)
{
    bool took = false;
    int rc = par_line(p);

    if (rc != CKPT_OK || p->n == 0)
        return rc;
    rc = par_statement(p, &took);
    if (rc != CKPT_OK || took)
        return rc;
    if (++p->n_lines > CKPT_REMAP_RULES)
        return ckpt_fail(p->err, CKPT_ELIMIT, "%s:%u: more than %u lines", p->r->name, p->first,
                         CKPT_REMAP_RULES);
    switch (p->section) {
    case PAR_SIZES:
        return par_size(p);
    case PAR_KEYS:
        return par_key_line(p);
    case PAR_CONFIG:
        return par_config_line(p);
    case PAR_TENSORS:
    default:
        return par_tensor_line(p);
    }
}

int ckpt_remap_parse(ckpt_remap **out, const char *name, const char *text, uint64_t n, bool renames,
                     ckpt_err *err)
{
    assert(out && name && text);
    ckpt_remap *r = NULL;
    par_text *p = NULL;
    int rc = CKPT_OK;

    *out = NULL;
    if (n > CKPT_REMAP_BYTES)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the layout map is larger than 1 MiB", name);
    if (!ckpt_utf8_ok(text, n) || memchr(text, 0, (size_t)n))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: the layout map is not UTF-8 text", name);
    r = ckpt_alloc(sizeof *r);
    p = ckpt_alloc(sizeof *p);
    if (r)
        r->arena = ckpt_arena_new(UINT64_C(64) << 20);
    r = r && r->arena ? r : (ckpt_free(r), NULL);
    if (!r || !p) {
        ckpt_free(p);
        ckpt_remap_free(r);
        return ckpt_fail_memory(err);
    }
    *p = (par_text){.r = r, .at = text, .end = text + n, .line = 1, .err = err};
    r->others_stay = renames;
    r->side[0] = r->side[1] = r->about = "";
    r->name = ckpt_arena_string(r->arena, name, strlen(name));
    rc = r->name ? CKPT_OK : ckpt_fail_memory(err);
    while (rc == CKPT_OK && p->at < p->end)
        rc = par_one(p);
    ckpt_free(p);
    if (rc == CKPT_OK)
        *out = r;
    else
        ckpt_remap_free(r);
    return rc;
}
