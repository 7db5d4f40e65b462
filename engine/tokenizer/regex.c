/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.c: finds regular expressions of tokenizer.json, by PCRE2.
 *
 * The `tokenizers` library uses Oniguruma, whose syntax is PCRE2's for what tokenizers have.  One
 * class differs: PCRE2's \s includes U+180E, so \s is written out.
 */
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

/* Write a pattern with \s and \S as lists of characters. */
static bool rx_spaces(ckpt_bytes *out, ckpt_text p)
{
    static const char spaces[] = "\\t-\\r\\x{85}\\p{Z}";
    bool in_class = false, ok = true;

    for (uint64_t i = 0; ok && i < p.n; i++) {
        const bool escape = p.at[i] == '\\' && i + 1 < p.n;

        if (escape && (p.at[i + 1] == 's' || (p.at[i + 1] == 'S' && !in_class)))
            ok = ckpt_bytes_printf(out, "%s%s%s",
                                   in_class             ? ""
                                   : p.at[i + 1] == 's' ? "["
                                                        : "[^",
                                   spaces, in_class ? "" : "]");
        else
            ok = ckpt_bytes_add(out, p.at + i, escape ? 2 : 1);
        if (!escape && p.at[i] == '[')
            in_class = true;
        if (!escape && p.at[i] == ']')
            in_class = false;
        i += escape;
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
    r->code = pcre2_compile(text->at, text->n, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
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
    ckpt_bytes text = {0};
    tz_regex *r = ckpt_alloc(sizeof *r);
    int rc;

    if (pattern.n > RX_LONGEST)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "a regular expression has more than %d bytes",
                       RX_LONGEST);
    else if (!r || !rx_spaces(&text, pattern))
        rc = ckpt_fail_memory(err);
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
