/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c: matches names against Python patterns; the only user of PCRE2.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <inttypes.h>
#include <pcre2.h>
#include <string.h>

#include "formats/rules/pattern.h"
#include "libckpt/base/index.h"
#include "libckpt/base/vec.h"

enum {
    PAT_MAX_TEXT = 4096,     /* bytes of one pattern; a parameter's name has about 60 */
    PAT_MAX_TEXTS = 1 << 20, /* patterns in all; one per parameter is usual */
    PAT_MAX_REGEX = 4096,    /* non-plain patterns, each tried on every name */
    PAT_MAX_CODE = 64 << 20, /* bytes of compiled patterns */
    PAT_FIRST_STEPS = 32,    /* first limit of steps for one match ... */
    PAT_MAX_STEPS = 32768,   /* ... and the last; names like a.0.b take some hundreds */
    PAT_ALL_STEPS = 1 << 28, /* limit for all matches together: a second or two */
    PAT_MAX_DEPTH = 1000,    /* nested backtracking points */
    PAT_MAX_HEAP = 1024,     /* KiB for one match */
    PAT_MAX_NEST = 50        /* nested parentheses */
};

/* How a pattern is compared with a name. */
typedef enum pat_kind { PAT_EXACT, PAT_PREFIX, PAT_REGEX } pat_kind;

typedef struct pat_text {
    char *text;    /* the pattern as written */
    char *literal; /* EXACT, PREFIX: the unescaped text */
    uint64_t n_text, n_literal;
    pcre2_code *code; /* REGEX */
    pat_kind kind;
} pat_text;

CKPT_VEC(pat_texts, pat_text);

struct ckpt_uni_patterns {
    ckpt_arena *arena;
    pat_texts text;
    ckpt_index index; /* finds patterns by their text */
    pcre2_general_context *general;
    pcre2_compile_context *compile;
    pcre2_match_context *match;
    pcre2_match_data *data;
    uint64_t n_code; /* bytes of compiled patterns */
    uint64_t spent;  /* steps granted to matches so far */
    uint32_t n_regex;
};

/* ---- PCRE2 allocates through ckpt_alloc ---- */

static void *pat_alloc(size_t n, void *ctx)
{
    (void)ctx;
    return ckpt_alloc(n);
}

static void pat_free(void *p, void *ctx)
{
    (void)ctx;
    ckpt_free(p);
}

int ckpt_uni_patterns_new(ckpt_uni_patterns **out, ckpt_err *err)
{
    ckpt_uni_patterns *p = ckpt_alloc(sizeof *p);

    *out = NULL;
    if (!p)
        return ckpt_fail_memory(err);
    p->arena = ckpt_arena_new(0);
    p->general = pcre2_general_context_create(pat_alloc, pat_free, NULL);
    if (p->general) {
        p->compile = pcre2_compile_context_create(p->general);
        p->match = pcre2_match_context_create(p->general);
        p->data = pcre2_match_data_create(1, p->general);
    }
    if (!p->arena || !p->compile || !p->match || !p->data) {
        ckpt_uni_patterns_free(p);
        return ckpt_fail_memory(err);
    }
    (void)pcre2_set_max_pattern_length(p->compile, PAT_MAX_TEXT);
    (void)pcre2_set_parens_nest_limit(p->compile, PAT_MAX_NEST);
    (void)pcre2_set_newline(p->compile, PCRE2_NEWLINE_LF);
    (void)pcre2_set_depth_limit(p->match, PAT_MAX_DEPTH);
    (void)pcre2_set_heap_limit(p->match, PAT_MAX_HEAP);
    *out = p;
    return CKPT_OK;
}

void ckpt_uni_patterns_free(ckpt_uni_patterns *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->text.n; i++)
        pcre2_code_free(p->text.at[i].code);
    ckpt_vec_free(&p->text);
    ckpt_index_free(&p->index);
    pcre2_match_data_free(p->data);
    pcre2_match_context_free(p->match);
    pcre2_compile_context_free(p->compile);
    pcre2_general_context_free(p->general);
    ckpt_arena_free(p->arena);
    ckpt_free(p);
}

/* ---- parsing a pattern ---- */

static bool pat_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/*
 * True if a pattern is plain text, optionally between ^ and $, as Python's re.escape makes it of a
 * name.  Sets t->kind and t->literal.
 */
static bool pat_plain(pat_text *t)
{
    const char *s = t->text;
    uint64_t i = t->n_text > 0 && s[0] == '^' ? 1 : 0, end = t->n_text;

    t->kind = PAT_PREFIX;
    t->n_literal = 0;
    for (; i < end; i++) {
        char c = s[i];

        if (c == '$' && i == end - 1) {
            t->kind = PAT_EXACT;
            return true;
        }
        if (c == '\\' && i + 1 < end) {
            c = s[++i];
            // a letter or digit after a backslash is a class, an anchor or a reference
            if (pat_letter(c) || (c >= '0' && c <= '9'))
                return false;
        } else if (c == '\0' || strchr(".^$*+?{}[]|()\\", c)) {
            return false;
        }
        t->literal[t->n_literal++] = c;
    }
    return true;
}

/*
 * Find the first construct that PCRE2 accepts with another meaning than Python, or that Python
 * rejects.  Returns NULL if there is none.
 */
static const char *pat_foreign(const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '\\') {
            s++;
            // \v is one character to Python and a class to PCRE2; Python lacks \K, \Q, \R, \h ...
            if (*s == '\0' || (pat_letter(*s) && !strchr("AbBdDsSwWZafnrtx", *s)))
                return s - 1;
        } else if (strncmp(s, "(*", 2) == 0 || strncmp(s, "[:", 2) == 0 ||
                   strncmp(s, "{,", 2) == 0) {
            return s;
        }
    }
    return NULL;
}

static int pat_compile(ckpt_uni_patterns *p, pat_text *t, ckpt_err *err)
{
    const uint32_t options = PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    const char *foreign = strlen(t->text) == t->n_text ? pat_foreign(t->text) : t->text;
    unsigned char reason[128] = "";
    PCRE2_SIZE at = 0;
    size_t size = 0;
    int code = 0;

    if (foreign)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "pattern '%.100s': the syntax at byte %zu has another meaning in Python",
                         t->text, (size_t)(foreign - t->text));
    if (++p->n_regex > PAT_MAX_REGEX)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d patterns that are not plain names",
                         PAT_MAX_REGEX);
    t->code =
        pcre2_compile((PCRE2_SPTR)t->text, (PCRE2_SIZE)t->n_text, options, &code, &at, p->compile);
    if (!t->code && code == PCRE2_ERROR_HEAP_FAILED)
        return ckpt_fail_memory(err);
    if (!t->code) {
        (void)pcre2_get_error_message(code, reason, sizeof reason);
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "pattern '%.100s': %s (at byte %zu)", t->text,
                         (const char *)reason, (size_t)at);
    }
    (void)pcre2_pattern_info(t->code, PCRE2_INFO_SIZE, &size);
    p->n_code += size;
    if (p->n_code > PAT_MAX_CODE)
        return ckpt_fail(err, CKPT_ELIMIT, "patterns need more than %d bytes when compiled",
                         PAT_MAX_CODE);
    return CKPT_OK;
}

/* ---- the table ---- */

typedef struct pat_key {
    const char *text;
    uint64_t n;
} pat_key;

static bool pat_same(const void *ctx, uint32_t number, const void *key)
{
    const ckpt_uni_patterns *p = ctx;
    const pat_key *k = key;
    const pat_text *t = &p->text.at[number];

    return t->n_text == k->n && memcmp(t->text, k->text, (size_t)k->n) == 0;
}

int ckpt_uni_patterns_add(ckpt_uni_patterns *p, const char *text, uint64_t n, uint32_t *number,
                          ckpt_err *err)
{
    assert(p && text && number);
    const pat_key key = {text, n};
    uint32_t hash = ckpt_hash_bytes(text, (size_t)n, 0);
    pat_text *t;

    *number = ckpt_index_find(&p->index, hash, pat_same, p, &key);
    if (*number != CKPT_INDEX_NONE)
        return CKPT_OK;
    if (n > PAT_MAX_TEXT || p->text.n >= PAT_MAX_TEXTS)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "pattern '%.60s...' has %" PRIu64
                         " bytes and is the %zuth pattern; the limits are %d bytes and %d patterns",
                         text, n, p->text.n + 1, PAT_MAX_TEXT, PAT_MAX_TEXTS);
    *number = (uint32_t)p->text.n;
    t = ckpt_vec_push(&p->text);
    if (!t)
        return ckpt_fail_memory(err);
    t->n_text = n;
    t->text = ckpt_arena_string(p->arena, text, n);
    t->literal = ckpt_arena_alloc(p->arena, n + 1);
    if (!t->text || !t->literal || !ckpt_index_add(&p->index, hash, *number))
        return ckpt_fail_memory(err);
    if (pat_plain(t))
        return CKPT_OK;
    t->kind = PAT_REGEX;
    return pat_compile(p, t, err);
}

/* Take n steps out of the common budget. */
static int pat_spend(ckpt_uni_patterns *p, const pat_text *t, uint64_t n, ckpt_err *err)
{
    p->spent += n;
    if (p->spent <= PAT_ALL_STEPS)
        return CKPT_OK;
    return ckpt_fail(err, CKPT_ELIMIT,
                     "pattern '%.100s': the %zu patterns together need more than %d steps on the "
                     "names that they are tried on",
                     t->text, p->text.n, PAT_ALL_STEPS);
}

/*
 * Match with growing step limits: PCRE2 stops at a limit but does not report the steps it took.
 * Each attempt gets four times as many as the last, and its whole limit is charged.
 */
static int pat_regex(ckpt_uni_patterns *p, const pat_text *t, const char *name, uint64_t n,
                     int *found, ckpt_err *err)
{
    int rc = CKPT_OK;

    *found = PCRE2_ERROR_MATCHLIMIT;
    for (uint32_t steps = PAT_FIRST_STEPS;
         rc == CKPT_OK && *found == PCRE2_ERROR_MATCHLIMIT && steps <= PAT_MAX_STEPS; steps *= 4) {
        // scanning a name takes time too, which PCRE2 does not count as steps
        rc = pat_spend(p, t, steps + n / 16, err);
        (void)pcre2_set_match_limit(p->match, steps);
        if (rc == CKPT_OK)
            *found = pcre2_match(t->code, (PCRE2_SPTR)name, (PCRE2_SIZE)n, 0, 0, p->data, p->match);
    }
    return rc;
}

int ckpt_uni_patterns_match(ckpt_uni_patterns *p, uint32_t number, const char *name, uint64_t n,
                            bool *yes, ckpt_err *err)
{
    assert(p && name && yes);
    const pat_text *t = &p->text.at[number];
    int found = 0;

    if (t->kind != PAT_REGEX) {
        *yes = (t->kind == PAT_EXACT ? n == t->n_literal : n >= t->n_literal) &&
               memcmp(name, t->literal, (size_t)t->n_literal) == 0;
        return pat_spend(p, t, 1, err);
    }
    int rc = pat_regex(p, t, name, n, &found, err);
    if (rc != CKPT_OK)
        return rc;
    *yes = found >= 0;
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH)
        return CKPT_OK;
    if (found == PCRE2_ERROR_NOMEMORY)
        return ckpt_fail_memory(err);
    return ckpt_fail(err, CKPT_ELIMIT,
                     "pattern '%.100s' on the name '%.*s' was stopped (PCRE2 error %d): it needs "
                     "more than %d steps",
                     t->text, (int)(n < 100 ? n : 100), name, found, PAT_MAX_STEPS);
}

const char *ckpt_uni_patterns_exact(const ckpt_uni_patterns *p, uint32_t number, uint64_t *n)
{
    const pat_text *t = &p->text.at[number];

    *n = t->n_literal;
    return t->kind == PAT_EXACT ? t->literal : NULL;
}

const char *ckpt_uni_patterns_text(const ckpt_uni_patterns *p, uint32_t number)
{
    return p->text.at[number].text;
}
