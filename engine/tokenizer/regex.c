/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.c: finds regular expressions of tokenizer.json, by PCRE2.
 *
 * The `tokenizers` library uses Oniguruma.  \s, \w and \h (a hexadecimal digit) differ, so they are
 * written out; ^ and $ match at every line; classes in classes are joined.  Other differences are
 * refused.
 */
#include <assert.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/tokenizer/inside.h"

enum {
    RX_LONGEST = 1 << 14, /* bytes of a pattern */
    RX_NEST = 50,         /* parentheses in each other */
    RX_STEPS = 10000000,  /* steps of one match */
    RX_HEAP = 64 << 10,   /* KiB of one match */
    RX_STACK = 1 << 20    /* bytes for compiled code */
};

struct tz_regex {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *match;
    pcre2_jit_stack *stack;
};

/* The class of an escape whose characters differ between both libraries, or NULL. */
static const char *rx_list(char c)
{
    switch (c | 0x20) {
    case 's':
        return "\\t-\\r\\x{85}\\p{Z}";
    case 'w': // that of Oniguruma 6.9, found by comparison
        return "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
               "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";
    case 'h':
        return "0-9A-Fa-f";
    default:
        return NULL;
    }
}

/* A pattern while it is written for PCRE2. */
typedef struct rx_writer {
    ckpt_bytes *out;
    ckpt_text p;
    uint64_t at;
    unsigned depth;  /* classes in each other */
    const char *odd; /* the construct that cannot be written, or NULL */
} rx_writer;

static bool rx_escape(rx_writer *w)
{
    const char next = w->p.at[w->at + 1];
    const char *list = rx_list(next);
    const bool not = list && next < 'a';

    w->at += 2;
    if (!list || (not &&w->depth > 0 && next == 'S'))
        return ckpt_bytes_add(w->out, w->p.at + w->at - 2, 2);
    if (not &&w->depth > 0)
        w->odd = "\\W or \\H in a class";
    return ckpt_bytes_printf(w->out, "%s%s%s",
                             w->depth ? ""
                             : not    ? "[^"
                                      : "[",
                             list, w->depth ? "" : "]");
}

/* Copy "[:name:]". */
static bool rx_named_class(rx_writer *w)
{
    const uint64_t left = w->p.n - w->at;
    uint64_t n = 2;

    while (n + 1 < left && !(w->p.at[w->at + n] == ':' && w->p.at[w->at + n + 1] == ']'))
        n++;
    n = n + 2 < left ? n + 2 : left;
    w->at += n;
    return ckpt_bytes_add(w->out, w->p.at + w->at - n, n);
}

/* Write one character of the pattern; classes in classes are joined. */
static bool rx_char(rx_writer *w)
{
    const char c = w->p.at[w->at], next = w->at + 1 < w->p.n ? w->p.at[w->at + 1] : 0;

    if (c == '\\' && next)
        return rx_escape(w);
    if (w->depth > 0 && c == '[' && next == ':')
        return rx_named_class(w);
    if (w->depth > 0 && c == '&' && next == '&')
        w->odd = "&& in a class";
    if (w->depth > 0 && c == '[' && next == '^')
        w->odd = "a negated class in a class";
    w->at++;
    if ((w->depth > 0 && c == '[') || (w->depth > 1 && c == ']')) {
        w->depth = c == '[' ? w->depth + 1 : w->depth - 1;
        return true;
    }
    w->depth = c == '[' ? 1 : c == ']' ? 0 : w->depth;
    return ckpt_bytes_add(w->out, &c, 1);
}

/* Write a pattern of Oniguruma for PCRE2. */
static bool rx_write(rx_writer *w)
{
    bool ok = true;

    while (ok && !w->odd && w->at < w->p.n) {
        const char *at = w->p.at + w->at;
        const uint64_t left = w->p.n - w->at;

        if (w->depth == 0 && left > 2 && at[0] == '(' && at[1] == '?' &&
            memchr(at + 2, 'm', strspn(at + 2, "imsx-")))
            w->odd = "(?m)";
        else
            ok = rx_char(w);
    }
    return ok;
}

static int rx_compile(tz_regex *r, const ckpt_bytes *text, ckpt_text pattern, ckpt_err *err)
{
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    PCRE2_UCHAR why[128] = "";
    PCRE2_SIZE at = 0;
    int code = 0;

    if (!c)
        return ckpt_fail_memory(err);
    (void)pcre2_set_parens_nest_limit(c, RX_NEST);
    r->code = pcre2_compile(text->at, text->n,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, c);
    pcre2_compile_context_free(c);
    if (!r->code) {
        (void)pcre2_get_error_message(code, why, sizeof why);
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "the regular expression '%.200s' is refused: %s",
                         pattern.at, (const char *)why);
    }
    // without this, matches are slower and equal
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    r->data = pcre2_match_data_create(1, NULL);
    r->match = pcre2_match_context_create(NULL);
    r->stack = pcre2_jit_stack_create(RX_STACK / 32, RX_STACK, NULL);
    if (!r->data || !r->match)
        return ckpt_fail_memory(err);
    if (r->stack)
        pcre2_jit_stack_assign(r->match, NULL, r->stack);
    (void)pcre2_set_match_limit(r->match, RX_STEPS);
    (void)pcre2_set_heap_limit(r->match, RX_HEAP);
    return CKPT_OK;
}

int tz_regex_new(tz_regex **out, ckpt_text pattern, ckpt_err *err)
{
    assert(out && pattern.at);
    ckpt_bytes text = {0};
    rx_writer w = {.out = &text, .p = pattern};
    tz_regex *r = ckpt_alloc(sizeof *r);
    int rc;

    if (pattern.n > RX_LONGEST)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "a regular expression has more than %d bytes",
                       RX_LONGEST);
    else if (!r || !rx_write(&w))
        rc = ckpt_fail_memory(err);
    else if (w.odd)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                       "the regular expression '%.200s' has %s, which is not supported", pattern.at,
                       w.odd);
    else
        rc = rx_compile(r, &text, pattern, err);
    ckpt_vec_free(&text);
    if (rc == CKPT_OK)
        *out = r;
    else
        tz_regex_free(r);
    return rc;
}

void tz_regex_free(tz_regex *r)
{
    if (!r)
        return;
    pcre2_match_data_free(r->data);
    pcre2_match_context_free(r->match);
    pcre2_jit_stack_free(r->stack);
    pcre2_code_free(r->code);
    ckpt_free(r);
}

static int rx_find(tz_regex *r, ckpt_text text, size_t from, tz_match *out, ckpt_err *err)
{
    int n = pcre2_match(r->code, (PCRE2_SPTR)text.at, (PCRE2_SIZE)text.n, from, PCRE2_NO_UTF_CHECK,
                        r->data, r->match);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(r->data);

    *out = (tz_match){SIZE_MAX, SIZE_MAX};
    if (n == PCRE2_ERROR_NOMATCH)
        return CKPT_OK;
    if (n < 0 || found[1] < found[0] || found[0] < from)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "a regular expression of the tokenizer takes too many steps");
    *out = (tz_match){found[0], found[1]};
    return CKPT_OK;
}

int tz_pattern_read(tz_pattern *out, const ckpt_value *v, ckpt_err *err)
{
    const ckpt_value *text = ckpt_value_get(v, "String"), *regex = ckpt_value_get(v, "Regex");

    if (v && v->kind == CKPT_V_STR)
        text = v;
    if (text && text->kind == CKPT_V_STR && text->as.text.n > 0) {
        out->text = text->as.text;
        return CKPT_OK;
    }
    if (!regex || regex->kind != CKPT_V_STR)
        return ckpt_fail(err, CKPT_EFORMAT, "expected a pattern that is a String or a Regex");
    return tz_regex_new(&out->regex, regex->as.text, err);
}

int tz_pattern_find(const tz_pattern *p, ckpt_text text, size_t from, tz_match *out, ckpt_err *err)
{
    assert(p && out && from <= text.n);
    if (p->regex)
        return rx_find(p->regex, text, from, out, err);
    *out = (tz_match){SIZE_MAX, SIZE_MAX};
    while (text.n - from >= p->text.n) {
        const char *at = memchr(text.at + from, p->text.at[0], text.n - from - p->text.n + 1);

        if (!at)
            break;
        from = (size_t)(at - text.at);
        if (memcmp(at, p->text.at, p->text.n) == 0) {
            *out = (tz_match){from, from + p->text.n};
            break;
        }
        from++;
    }
    return CKPT_OK;
}
