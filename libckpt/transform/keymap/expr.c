/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expr.c: parses and evaluates expressions in one pass.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/number.h"
#include "libckpt/transform/keymap/expr.h"

enum { EX_DEPTH = 96, EX_ARGS = 4, EX_NAME = 256, EX_ITEMS = 1 << 16, EX_STEPS = 1 << 18 };

/* State of an evaluation. */
typedef struct ex_state {
    const ckpt_rm_facts *f; /* NULL: only check the syntax, names have no values */
    ckpt_remap *r;
    const ckpt_rm_line *line;
    const char *at;
    ckpt_arena *arena;
    const char *missing; /* the first name without a value */
    unsigned depth;
    bool at_index; /* the expression is evaluated for one element: `index` has a value */
    uint64_t index;
    uint64_t *steps; /* remaining look-ups, for all elements together */
    bool skip;       /* inside a branch that is not taken: look no name up */
    int rc;
    ckpt_err *err;
} ex_state;

static const ckpt_value *ex_or(ex_state *x);
static const ckpt_value *ex_run(ex_state *x);
static int ex_size_value(const ckpt_rm_facts *f, ckpt_rm_line *line, const ckpt_value **out,
                         ckpt_err *err);

static const ckpt_value *ex_fail(ex_state *x, const char *what)
{
    if (x->rc == CKPT_OK)
        x->rc = ckpt_fail(x->err, CKPT_EUSAGE, "%s:%u: %s at '%.40s' in '%.80s'", x->r->name,
                          x->line->line, what, *x->at ? x->at : "the end", x->line->text);
    return NULL;
}

static const ckpt_value *ex_made(ex_state *x, const ckpt_value *v)
{
    if (!v && x->rc == CKPT_OK)
        x->rc = ckpt_fail_memory(x->err);
    return v;
}

static void ex_blanks(ex_state *x)
{
    x->at += strspn(x->at, " \t");
}

/* Skip a sign; false if the text does not continue with it. */
static bool ex_sign(ex_state *x, const char *sign)
{
    size_t n = strlen(sign);

    if (strncmp(x->at, sign, n) != 0)
        return false;
    x->at += n;
    ex_blanks(x);
    return true;
}

static bool ex_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* Skip a whole word; false if the text does not continue with it. */
static bool ex_keyword(ex_state *x, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(x->at, word, n) != 0 || ex_name_char(x->at[n]))
        return false;
    x->at += n;
    ex_blanks(x);
    return true;
}

/* ---- numbers ---- */

static bool ex_number(const ckpt_value *v, double *out)
{
    if (v->kind == CKPT_V_INT || v->kind == CKPT_V_BOOL)
        *out = (double)v->as.i;
    else if (v->kind == CKPT_V_FLOAT)
        *out = v->as.f;
    else
        return false;
    return true;
}

/* Compute with two integers; false: the result is not an integer. */
static bool ex_integers(char sign, int64_t a, int64_t b, int64_t *out)
{
    switch (sign) {
    case '+':
        return !__builtin_add_overflow(a, b, out);
    case '-':
        return !__builtin_sub_overflow(a, b, out);
    case '*':
        return !__builtin_mul_overflow(a, b, out);
    case '/':
        if (b == 0 || (a == INT64_MIN && b == -1) || a % b != 0)
            return false;
        *out = a / b;
        return true;
    case '%':
        if (b == 0 || (a == INT64_MIN && b == -1))
            return false;
        *out = a % b;
        return true;
    default:
        return false;
    }
}

static const ckpt_value *ex_compute(ex_state *x, char sign, const ckpt_value *a,
                                    const ckpt_value *b)
{
    double p, q;
    int64_t n;

    if (!a || !b || x->rc != CKPT_OK)
        return NULL;
    if (!ex_number(a, &p) || !ex_number(b, &q))
        return ex_fail(x, "arithmetic needs numbers");
    if (a->kind != CKPT_V_FLOAT && b->kind != CKPT_V_FLOAT &&
        ex_integers(sign, a->as.i, b->as.i, &n))
        return ex_made(x, ckpt_value_int(x->arena, n));
    if ((sign == '/' || sign == '%') && q == 0.0)
        return ex_fail(x, "division by zero");
    double r = sign == '+'   ? p + q
               : sign == '-' ? p - q
               : sign == '*' ? p * q
               : sign == '/' ? p / q
                             : fmod(p, q);
    return ex_made(x, ckpt_value_float(x->arena, r));
}

/* ---- names and calls ---- */

/* had() counts the tensors that the caller has not selected, too. */
static const ckpt_value *ex_count(ex_state *x, const ckpt_value *pattern, bool had)
{
    ckpt_rm_term t = {0};
    ckpt_rm_capture c;
    int64_t n = 0;

    if (pattern->kind != CKPT_V_STR)
        return ex_fail(x, "count() and had() need a pattern in quotes");
    x->rc = ckpt_rm_pattern(x->r, &t, pattern->as.text.at, x->line->line, x->err);
    for (size_t i = 0; x->rc == CKPT_OK && i < x->f->map->tensors.n; i++)
        n += ckpt_rm_match(&t, x->f->map->tensors.at[i]->name, &c);
    for (size_t i = 0; x->rc == CKPT_OK && had && i < x->f->map->n_left_out; i++)
        n += ckpt_rm_match(&t, x->f->map->left_out[i]->name, &c);
    return n > 0 ? ex_made(x, ckpt_value_int(x->arena, n)) : NULL;
}

static const ckpt_value *ex_shape(ex_state *x, const ckpt_value *name, const ckpt_value *axis)
{
    if (!axis || name->kind != CKPT_V_STR || axis->kind != CKPT_V_INT)
        return ex_fail(x, "shape() needs a name in quotes and the number of an axis");
    size_t at = ckpt_map_index(x->f->map, name->as.text.at, (size_t)name->as.text.n);
    const ckpt_tensor *t = at == SIZE_MAX ? NULL : x->f->map->tensors.at[at];
    if (!t || axis->as.i < 0 || axis->as.i >= (int64_t)t->ndim ||
        t->shape[axis->as.i] > (uint64_t)INT64_MAX)
        return NULL;
    return ex_made(x, ckpt_value_int(x->arena, (int64_t)t->shape[axis->as.i]));
}

/* True if two names share their bytes, and this is one of them. */
static const ckpt_value *ex_tied(ex_state *x, const ckpt_value *name)
{
    const ckpt_map *map = x->f->map;

    if (name->kind != CKPT_V_STR)
        return ex_fail(x, "tied() needs a name in quotes");
    size_t at = ckpt_map_index(map, name->as.text.at, (size_t)name->as.text.n);
    const ckpt_tensor *t = at == SIZE_MAX ? NULL : map->tensors.at[at];
    bool tied = t && t->owner;
    for (size_t i = 0; t && !tied && i < map->tensors.n; i++)
        tied = map->tensors.at[i]->owner == t;
    // a tied name that the caller has not selected
    for (size_t i = 0; !t && !tied && i < map->n_left_out; i++)
        tied = map->left_out[i]->owner && ckpt_value_is(name, map->left_out[i]->name);
    return tied ? ex_made(x, ckpt_value_bool(x->arena, true)) : NULL;
}

static const ckpt_value *ex_round(ex_state *x, const ckpt_value *v, bool up)
{
    double d;

    if (v->kind == CKPT_V_INT)
        return v;
    if (!ex_number(v, &d) || !(fabs(d) < 9e15))
        return ex_fail(x, "floor() and ceil() need a number");
    return ex_made(x, ckpt_value_int(x->arena, (int64_t)(up ? ceil(d) : floor(d))));
}

static const ckpt_value *ex_most(ex_state *x, const ckpt_value *a, const ckpt_value *b, bool least)
{
    double p, q;

    if (!b || !ex_number(a, &p) || !ex_number(b, &q))
        return ex_fail(x, "min() and max() need two numbers");
    return (p < q) == least ? a : b;
}

static const ckpt_value *ex_power(ex_state *x, const ckpt_value *a, const ckpt_value *b)
{
    double p, q;

    if (!b || !ex_number(a, &p) || !ex_number(b, &q))
        return ex_fail(x, "pow() needs two numbers");
    return ex_made(x, ckpt_value_float(x->arena, pow(p, q)));
}

static const ckpt_value *ex_log(ex_state *x, const ckpt_value *a)
{
    double p;

    if (!ex_number(a, &p) || !(p > 0))
        return ex_fail(x, "log() needs a number above 0");
    return ex_made(x, ckpt_value_float(x->arena, log(p)));
}

static const ckpt_value *ex_item(ex_state *x, const ckpt_value *list, const ckpt_value *number)
{
    const ckpt_seq seq = ckpt_value_seq(list);

    if (!number || number->kind != CKPT_V_INT)
        return ex_fail(x, "item() needs a list and a whole number");
    return number->as.i >= 0 && (uint64_t)number->as.i < seq.n ? seq.at[number->as.i] : NULL;
}

static const ckpt_value *ex_token(ex_state *x, const ckpt_value *text)
{
    const ckpt_value *v = NULL;

    if (text->kind != CKPT_V_STR)
        return ex_fail(x, "token() needs a text in quotes");
    x->rc = ckpt_rm_token(&v, x->f, text->as.text.at, x->err);
    return v;
}

/* Round to F32, because programs that compute in F32 round at each step. */
static const ckpt_value *ex_single(ex_state *x, const ckpt_value *a)
{
    double p;

    if (!ex_number(a, &p))
        return ex_fail(x, "f32() needs a number");
    return ex_made(x, ckpt_value_float(x->arena, (double)(float)p));
}

/* Apply a function to its arguments. */
static const ckpt_value *ex_apply(ex_state *x, const char *name, const ckpt_value *const *arg)
{
    if (strcmp(name, "count") == 0 || strcmp(name, "had") == 0)
        return ex_count(x, arg[0], *name == 'h');
    if (strcmp(name, "tied") == 0)
        return ex_tied(x, arg[0]);
    if (strcmp(name, "shape") == 0)
        return ex_shape(x, arg[0], arg[1]);
    if (strcmp(name, "floor") == 0 || strcmp(name, "ceil") == 0)
        return ex_round(x, arg[0], *name == 'c');
    if (strcmp(name, "min") == 0 || strcmp(name, "max") == 0)
        return ex_most(x, arg[0], arg[1], name[1] == 'i');
    if (strcmp(name, "f32") == 0)
        return ex_single(x, arg[0]);
    if (strcmp(name, "pow") == 0)
        return ex_power(x, arg[0], arg[1]);
    if (strcmp(name, "log") == 0)
        return ex_log(x, arg[0]);
    if (strcmp(name, "item") == 0)
        return ex_item(x, arg[0], arg[1]);
    if (strcmp(name, "token") == 0)
        return ex_token(x, arg[0]);
    if (strcmp(name, "len") == 0)
        return ex_made(x, ckpt_value_int(x->arena, (int64_t)ckpt_value_seq(arg[0]).n));
    return ex_fail(x, "unknown function");
}

static bool ex_function(const char *name)
{
    static const char *const names[] = {"count", "shape", "floor", "ceil", "min", "max",  "len",
                                        "pow",   "tied",  "f32",   "had",  "log", "item", "token"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/*
 * Evaluate the second argument of each() n times; without a value for one number, the list has
 * none.
 */
static const ckpt_value *ex_items(ex_state *x, uint64_t n)
{
    uint64_t steps = EX_STEPS;
    const ex_state outer = *x;
    ckpt_value *list = ckpt_value_new(x->arena, CKPT_V_LIST);
    bool all = ex_made(x, list) != NULL;

    x->at_index = true;
    x->steps = &steps;
    for (x->index = 0; x->rc == CKPT_OK && all && x->index < n; x->index++) {
        x->at = outer.at;
        const ckpt_value *v = ex_or(x);
        ckpt_value *item = v ? ckpt_arena_copy(x->arena, v, sizeof *v) : NULL;
        all = v != NULL;
        if (v && (!item || !ckpt_seq_add(x->arena, &list->as.seq, item)))
            (void)ex_made(x, NULL);
    }
    x->at_index = outer.at_index;
    x->index = outer.index;
    x->steps = outer.steps;
    return x->rc == CKPT_OK && all ? list : NULL;
}

/* each(n, EXPRESSION): the list of its values for index = 0, 1 ... n - 1. */
static const ckpt_value *ex_each(ex_state *x)
{
    const ckpt_value *n = ex_or(x), *list = NULL;
    const bool skip = x->skip;

    if (x->rc != CKPT_OK || !ex_sign(x, ","))
        return ex_fail(x, "expected , after the number of items");
    if (n && (n->kind != CKPT_V_INT || n->as.i < 0 || n->as.i > EX_ITEMS))
        return ex_fail(x, "each() needs a number of items from 0 to 65536");
    if (n && x->f && !skip && n->as.i > 0) {
        list = ex_items(x, (uint64_t)n->as.i);
    } else {
        if (n && x->f && !skip)
            list = ex_made(x, ckpt_value_new(x->arena, CKPT_V_LIST));
        x->skip = true;
        (void)ex_or(x);
        x->skip = skip;
    }
    return x->rc == CKPT_OK && ex_sign(x, ")") ? list : ex_fail(x, "expected )");
}

static const ckpt_value *ex_call(ex_state *x, const char *name)
{
    const ckpt_value *arg[EX_ARGS] = {0};
    unsigned n = 0;
    bool all = true;

    if (strcmp(name, "each") == 0)
        return ex_each(x);
    if (!ex_function(name))
        return ex_fail(x, "unknown function");
    do {
        if (n == EX_ARGS)
            return ex_fail(x, "too many arguments");
        arg[n] = ex_or(x);
        all = all && arg[n++];
    } while (x->rc == CKPT_OK && ex_sign(x, ","));
    if (x->rc != CKPT_OK || !ex_sign(x, ")"))
        return ex_fail(x, "expected )");
    return all && x->f && !x->skip ? ex_apply(x, name, arg) : NULL;
}

/* Evaluate a line of the section `sizes`. */
static const ckpt_value *ex_size(ex_state *x, ckpt_rm_line *line)
{
    const ckpt_value *v = NULL;
    ex_state inner = *x;

    if (!x->at_index) {
        x->rc = ex_size_value(x->f, line, &v, x->err);
        return v;
    }
    // a value that may depend on the element is computed again for each
    if ((*x->steps)-- == 0)
        return ex_fail(x, "the expression takes too many steps");
    inner.line = line;
    inner.depth++;
    inner.missing = NULL;
    v = inner.depth < EX_DEPTH
            ? ex_run(&inner)
            : ex_fail(&inner, "sizes that depend on other sizes are nested too deep");
    x->rc = inner.rc;
    return v;
}

/* Look a name up: a size, or a value of the configuration. */
static const ckpt_value *ex_look_up(ex_state *x, const char *name)
{
    const ckpt_value *v = NULL;

    if (!x->f && !ckpt_rm_ask(x->r, name))
        return ex_fail(x, "the layout map has too many names");
    if (!x->f || x->skip)
        return NULL;
    if (x->at_index && strcmp(name, "index") == 0)
        return ex_made(x, ckpt_value_int(x->arena, (int64_t)x->index));
    for (size_t i = 0; x->rc == CKPT_OK && !v && i < x->r->sizes.n; i++) {
        ckpt_rm_line *line = &x->r->sizes.at[i];
        // a size may be computed from the configuration's key of the same name
        if (line != x->line && strcmp(x->r->names.at[line->name], name) == 0)
            v = ex_size(x, line);
    }
    if (!v && x->rc == CKPT_OK)
        v = ckpt_rm_fact(x->f, name);
    if (v && v->kind == CKPT_V_NONE)
        v = NULL;
    if (!v && !x->missing)
        x->missing = ckpt_arena_string(x->arena, name, strlen(name));
    return v;
}

/* "{general.architecture}.block_count": the value of the name in braces, followed by the rest. */
static const ckpt_value *ex_of_value(ex_state *x)
{
    const char *from = ++x->at;
    size_t n = strcspn(from, "}"), rest = 0;
    char name[2 * EX_NAME];
    const ckpt_value *v;

    if (!from[n] || n == 0 || n >= EX_NAME)
        return ex_fail(x, "expected {NAME}");
    memcpy(name, from, n);
    name[n] = 0;
    x->at = from + n + 1;
    while (ex_name_char(x->at[rest]))
        rest++;
    v = ex_look_up(x, name);
    if (rest >= EX_NAME || (v && (v->kind != CKPT_V_STR || v->as.text.n >= EX_NAME)))
        return ex_fail(x, "the value cannot be part of a name");
    if (v)
        (void)snprintf(name, sizeof name, "%s%.*s", v->as.text.at, (int)rest, x->at);
    x->at += rest;
    ex_blanks(x);
    if (v)
        (void)ckpt_rm_ask(x->r, name); // a full list of names does not matter here
    return v ? ex_look_up(x, name) : NULL;
}

static const ckpt_value *ex_word(ex_state *x)
{
    char name[EX_NAME];
    size_t n = 0;

    if (*x->at == '{')
        return ex_of_value(x);
    while (ex_name_char(x->at[n]))
        n++;
    if (n == 0 || n >= sizeof name || (*x->at >= '0' && *x->at <= '9') || *x->at == '.')
        return ex_fail(x, "expected a name, a number or a text");
    memcpy(name, x->at, n);
    name[n] = 0;
    x->at += n;
    ex_blanks(x);
    if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0)
        return ex_made(x, ckpt_value_bool(x->arena, *name == 't'));
    if (strcmp(name, "null") == 0)
        return ex_made(x, ckpt_value_new(x->arena, CKPT_V_NONE));
    return ex_sign(x, "(") ? ex_call(x, name) : ex_look_up(x, name);
}

static const ckpt_value *ex_literal(ex_state *x)
{
    size_t n = strspn(x->at, "0123456789");
    const char *stop;
    uint64_t i = 0;
    double d = 0;

    if (x->at[n] == '.' || x->at[n] == 'e') {
        stop = ckpt_scan_f64(x->at, &d);
        if (!stop)
            return ex_fail(x, "the number is too large");
        x->at = stop;
        ex_blanks(x);
        return ex_made(x, ckpt_value_float(x->arena, d));
    }
    stop = ckpt_scan_u64(x->at, &i);
    if (!stop || n > 18)
        return ex_fail(x, "the number is too large");
    x->at = stop;
    ex_blanks(x);
    return ex_made(x, ckpt_value_int(x->arena, (int64_t)i));
}

static const ckpt_value *ex_text(ex_state *x)
{
    const char *from = ++x->at;
    size_t n = strcspn(from, "\"");

    if (!from[n])
        return ex_fail(x, "the quoted string does not end");
    x->at = from + n + 1;
    ex_blanks(x);
    return ex_made(x, ckpt_value_str(x->arena, from, n));
}

/* [a, b]: a list. It has no value if one of its items has none: a shorter list would be wrong. */
static const ckpt_value *ex_list(ex_state *x)
{
    ckpt_value *list = ckpt_value_new(x->arena, CKPT_V_LIST);
    bool whole = true;

    if (!ex_made(x, list) || ex_sign(x, "]"))
        return list;
    do {
        const ckpt_value *v = ex_or(x);
        ckpt_value *item = v ? ckpt_arena_copy(x->arena, v, sizeof *v) : NULL;
        whole = whole && v;
        if (item && !ckpt_seq_add(x->arena, &list->as.seq, item))
            (void)ex_made(x, NULL);
    } while (x->rc == CKPT_OK && ex_sign(x, ","));
    if (x->rc != CKPT_OK || !ex_sign(x, "]"))
        return ex_fail(x, "expected ]");
    return whole ? list : NULL;
}

static const ckpt_value *ex_atom(ex_state *x)
{
    const ckpt_value *v;

    if (x->depth >= EX_DEPTH)
        return ex_fail(x, "the expression is nested too deep");
    x->depth++;
    if (ex_sign(x, "(")) {
        v = ex_or(x);
        if (x->rc == CKPT_OK && !ex_sign(x, ")"))
            v = ex_fail(x, "expected )");
    } else if (ex_sign(x, "[")) {
        v = ex_list(x);
    } else if (*x->at == '"') {
        v = ex_text(x);
    } else if (*x->at >= '0' && *x->at <= '9') {
        v = ex_literal(x);
    } else if (ex_sign(x, "-")) {
        v = ex_compute(x, '-', ex_made(x, ckpt_value_int(x->arena, 0)), ex_atom(x));
    } else {
        v = ex_word(x);
    }
    x->depth--;
    return v;
}

/* ---- operators ---- */

static const ckpt_value *ex_product(ex_state *x)
{
    const ckpt_value *v = ex_atom(x);

    while (x->rc == CKPT_OK && *x->at && strchr("*/%", *x->at)) {
        char sign = *x->at++;
        ex_blanks(x);
        v = ex_compute(x, sign, v, ex_atom(x));
    }
    return v;
}

static const ckpt_value *ex_sum(ex_state *x)
{
    const ckpt_value *v = ex_product(x);

    while (x->rc == CKPT_OK && (*x->at == '+' || *x->at == '-')) {
        char sign = *x->at++;
        ex_blanks(x);
        v = ex_compute(x, sign, v, ex_product(x));
    }
    return v;
}

static bool ex_equal(const ckpt_value *a, const ckpt_value *b)
{
    double p, q;

    if (ex_number(a, &p) && ex_number(b, &q))
        return !(p < q) && !(p > q);
    return ckpt_value_equal(a, b, 1000);
}

static bool ex_true(const ckpt_value *v)
{
    double d;

    if (v->kind == CKPT_V_STR)
        return v->as.text.n > 0;
    return ex_number(v, &d) ? d < 0 || d > 0 : v->kind != CKPT_V_NONE;
}

/* True if the first is less than the second; false if one is not a number. */
static bool ex_less(const ckpt_value *a, const ckpt_value *b)
{
    double p, q;

    return a && b && ex_number(a, &p) && ex_number(b, &q) && p < q;
}

/*
 * Evaluate a condition. A missing value is not true; in comparisons it is neither equal nor less.
 */
static bool ex_test(ex_state *x)
{
    static const char *const signs[] = {"==", "!=", "<", ">"};
    const ckpt_value *a = ex_sum(x), *b;
    size_t sign = 0;

    while (sign < 4 && !ex_sign(x, signs[sign]))
        sign++;
    if (sign == 4)
        return a && ex_true(a);
    b = ex_sum(x);
    if (sign >= 2)
        return sign == 2 ? ex_less(a, b) : ex_less(b, a);
    return (a && b && ex_equal(a, b)) == (sign == 0);
}

static const ckpt_value *ex_conditional(ex_state *x)
{
    const ckpt_value *v = ex_sum(x);

    if (x->rc == CKPT_OK && ex_keyword(x, "if") && !ex_test(x))
        v = NULL;
    return v;
}

static const ckpt_value *ex_or(ex_state *x)
{
    const ckpt_value *v;
    bool skip = x->skip;

    if (x->depth >= EX_DEPTH)
        return ex_fail(x, "the expression is nested too deep");
    x->depth++;
    v = ex_conditional(x);
    while (x->rc == CKPT_OK && ex_keyword(x, "or")) {
        x->skip = skip || v;
        const ckpt_value *next = ex_conditional(x);
        v = v ? v : next;
    }
    x->skip = skip;
    x->depth--;
    return v;
}

static const ckpt_value *ex_run(ex_state *x)
{
    x->at = x->line->text;
    ex_blanks(x);
    const ckpt_value *v = ex_or(x);
    if (x->rc == CKPT_OK && *x->at)
        v = ex_fail(x, "expected the end of the expression");
    return v;
}

int ckpt_rm_expr(const ckpt_value **out, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                 const char **missing, ckpt_err *err)
{
    ex_state x = {.f = f, .r = f->r, .line = line, .arena = f->arena, .err = err};

    *out = ex_run(&x);
    if (missing)
        *missing = x.missing;
    return x.rc;
}

int ckpt_rm_expr_check(ckpt_remap *r, const ckpt_rm_line *line, ckpt_err *err)
{
    ex_state x = {.r = r, .line = line, .arena = r->arena, .err = err};

    (void)ex_run(&x);
    return x.rc;
}

int ckpt_rm_expr_at(const ckpt_value **out, const ckpt_rm_facts *f, const ckpt_rm_line *line,
                    uint64_t index, uint64_t *steps, ckpt_err *err)
{
    ex_state x = {.steps = steps,
                  .f = f,
                  .r = f->r,
                  .line = line,
                  .arena = f->arena,
                  .at_index = true,
                  .index = index,
                  .err = err};

    *out = ex_run(&x);
    return x.rc;
}

/* Evaluate a size once and store it. */
static int ex_size_value(const ckpt_rm_facts *f, ckpt_rm_line *line, const ckpt_value **out,
                         ckpt_err *err)
{
    int rc = CKPT_OK;

    if (line->state == 1)
        return ckpt_fail(err, CKPT_EUSAGE, "%s:%u: the size %.60s depends on itself", f->r->name,
                         line->line, f->r->names.at[line->name]);
    if (line->state == 0) {
        line->state = 1;
        rc = ckpt_rm_expr(&line->value, f, line, NULL, err);
        line->state = 2;
    }
    *out = line->value;
    return rc;
}

const ckpt_value *ckpt_rm_named(const ckpt_rm_facts *f, const char *name)
{
    for (size_t i = 0; f->r && i < f->r->sizes.n; i++) {
        const ckpt_value *v = NULL;
        if (strcmp(f->r->names.at[f->r->sizes.at[i].name], name) == 0 &&
            ex_size_value(f, &f->r->sizes.at[i], &v, NULL) == CKPT_OK && v)
            return v;
    }
    return ckpt_rm_fact(f, name);
}

int ckpt_rm_size_of(const ckpt_rm_facts *f, uint32_t name, uint64_t *out, ckpt_err *err)
{
    ckpt_rm_line *line = ckpt_rm_size(f->r, name);
    const ckpt_value *v = NULL;
    int rc = line ? ex_size_value(f, line, &v, err) : CKPT_OK;

    *out = CKPT_RM_UNKNOWN;
    if (rc != CKPT_OK || !v)
        return rc;
    if (v->kind != CKPT_V_INT || v->as.i < 0 || v->as.i > INT64_C(1) << 48)
        return ckpt_fail(err, CKPT_EUSAGE,
                         "%s:%u: the size %.60s is not a whole number of elements", f->r->name,
                         line->line, f->r->names.at[name]);
    *out = (uint64_t)v->as.i;
    return CKPT_OK;
}
