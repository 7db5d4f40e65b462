/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hjson.c: reads HJSON, and JSON as a subset of it, into a tree of values.
 *
 * The grammar is that of Python's hjson package, because DeepSpeed reads its configuration with it.
 * Two differences serve plain JSON: NaN, Infinity and -Infinity, as Python writes them, are
 * numbers; and 1.0 stays a FLOAT (the package turns it into an integer).
 *
 * HJ_DEPTH bounds the recursion, and each byte is read a bounded number of times.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "libckpt/base/number.h"
#include "libckpt/base/vec.h"

#define HJ_DEPTH 64
#define HJ_TEXT  (UINT64_C(16) << 20)

/*
 * The text being read.  hj_peek returns 0 at the end, which is unambiguous because no accepted text
 * contains 0.
 */
typedef struct hj_text {
    const char *s, *name;
    size_t n, at;
    unsigned depth;
    bool bare;         // the last value was a string without quotes
    size_t line, seen; // start of the line of byte `seen`; only advances (hj_column)
    ckpt_arena *arena;
    ckpt_err *err;
} hj_text;

static int hj_value(hj_text *t, ckpt_value **out);

/* ---- positions in the text ---- */

static char hj_peek(const hj_text *t, size_t ahead)
{
    return t->n - t->at > ahead ? t->s[t->at + ahead] : '\0';
}

/* Line number of a byte, from 1. */
static size_t hj_line(const hj_text *t, size_t at)
{
    size_t line = 1;

    for (size_t i = 0; i < at && i < t->n; i++)
        line += t->s[i] == '\n';
    return line;
}

static int hj_fail_at(const hj_text *t, size_t at, const char *what)
{
    return ckpt_fail(t->err, CKPT_EFORMAT, "%s: line %zu: %s", t->name, hj_line(t, at), what);
}

static int hj_fail(const hj_text *t, const char *what)
{
    return hj_fail_at(t, t->at, what);
}

static bool hj_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool hj_at_comment(const hj_text *t)
{
    char c = hj_peek(t, 0), d = hj_peek(t, 1);

    return c == '#' || (c == '/' && (d == '/' || d == '*'));
}

/* Skip one comment.  The newline after a line comment stays. */
static int hj_comment(hj_text *t)
{
    size_t from = t->at;

    if (hj_peek(t, 0) == '/' && hj_peek(t, 1) == '*') {
        for (t->at += 2; hj_peek(t, 0) != '*' || hj_peek(t, 1) != '/'; t->at++) {
            if (t->at == t->n)
                return hj_fail_at(t, from, "this comment has no end (*/)");
        }
        t->at += 2;
        return CKPT_OK;
    }
    while (t->at < t->n && hj_peek(t, 0) != '\n' && hj_peek(t, 0) != '\r')
        t->at++;
    return CKPT_OK;
}

/* Skip blanks and comments. */
static int hj_skip(hj_text *t)
{
    for (;;) {
        while (hj_blank(hj_peek(t, 0)))
            t->at++;
        if (!hj_at_comment(t))
            return CKPT_OK;
        if (hj_comment(t) != CKPT_OK)
            return CKPT_EFORMAT;
    }
}

/* ---- quoted strings ---- */

/* Read four hexadecimal digits at the current position. */
static bool hj_hex4(hj_text *t, uint32_t *out)
{
    *out = 0;
    for (unsigned i = 0; i < 4; i++) {
        char c = hj_peek(t, i);
        uint32_t digit;

        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            digit = (uint32_t)((c | 0x20) - 'a') + 10;
        else
            return false;
        *out = *out << 4 | digit;
    }
    t->at += 4;
    return true;
}

/* Append a code point as UTF-8. */
static bool hj_utf8(ckpt_bytes *to, uint32_t c)
{
    uint8_t b[4];
    size_t n;

    if (c < 0x80) {
        b[0] = (uint8_t)c;
        n = 1;
    } else if (c < 0x800) {
        b[0] = (uint8_t)(0xc0 | c >> 6);
        n = 2;
    } else if (c < 0x10000) {
        b[0] = (uint8_t)(0xe0 | c >> 12);
        n = 3;
    } else {
        b[0] = (uint8_t)(0xf0 | c >> 18);
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        b[i] = (uint8_t)(0x80 | (c >> (6 * (n - 1 - i)) & 0x3f));
    return ckpt_bytes_add(to, b, n);
}

/* Read \uXXXX, after the u; read a second one if the first is half of a surrogate pair. */
static int hj_unicode(hj_text *t, ckpt_bytes *to)
{
    uint32_t c, low;

    if (!hj_hex4(t, &c))
        return hj_fail(t, "\\u takes four hexadecimal digits");
    if (c >= 0xd800 && c <= 0xdbff && hj_peek(t, 0) == '\\' && hj_peek(t, 1) == 'u') {
        t->at += 2;
        if (!hj_hex4(t, &low) || low < 0xdc00 || low > 0xdfff)
            return hj_fail(t, "the second half of a surrogate pair must be \\udc00 to \\udfff");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c >= 0xd800 && c <= 0xdfff)
        return hj_fail(t, "unpaired surrogate");
    return hj_utf8(to, c) ? CKPT_OK : ckpt_fail_memory(t->err);
}

/* Read an escape, after its backslash. */
static int hj_escape(hj_text *t, ckpt_bytes *to)
{
    static const char from[] = "\"'\\/bfnrt", into[] = "\"'\\/\b\f\n\r\t";
    char c = hj_peek(t, 0);
    const char *p = c != '\0' ? strchr(from, c) : NULL;

    if (c == 'u') {
        t->at++;
        return hj_unicode(t, to);
    }
    if (!p)
        return hj_fail(t, "unknown escape sequence");
    t->at++;
    return ckpt_bytes_add(to, &into[p - from], 1) ? CKPT_OK : ckpt_fail_memory(t->err);
}

/* Read the rest of a quoted string, after its opening quote, including the closing one. */
static int hj_quoted_into(hj_text *t, char quote, ckpt_bytes *to)
{
    size_t from = t->at;
    int rc;

    for (;;) {
        size_t run = t->at;
        char c = hj_peek(t, 0);

        while ((unsigned char)c >= 0x20 && c != quote && c != '\\') {
            t->at++;
            c = hj_peek(t, 0);
        }
        if (t->at > run && !ckpt_bytes_add(to, t->s + run, t->at - run))
            return ckpt_fail_memory(t->err);
        if (t->at == t->n)
            return hj_fail_at(t, from, "this string has no closing quote");
        t->at++;
        if (c == quote)
            return CKPT_OK;
        if (c != '\\') {
            t->at--;
            return hj_fail(t, "a string contains a control character or a line end");
        }
        rc = hj_escape(t, to);
        if (rc != CKPT_OK)
            return rc;
    }
}

/* Make a string value of the collected bytes, and free them. */
static int hj_text_node(hj_text *t, ckpt_bytes *from, int rc, ckpt_value **out)
{
    if (rc == CKPT_OK) {
        *out = ckpt_value_str(t->arena, (const char *)from->at, from->n);
        rc = *out ? CKPT_OK : ckpt_fail_memory(t->err);
    }
    ckpt_vec_free(from);
    return rc;
}

static int hj_quoted(hj_text *t, ckpt_value **out)
{
    ckpt_bytes text = {0};
    char quote = hj_peek(t, 0);

    t->at++;
    return hj_text_node(t, &text, hj_quoted_into(t, quote, &text), out);
}

/* ---- strings of several lines ---- */

/* Skip at most `most` blanks of indentation. */
static void hj_indent(hj_text *t, size_t most)
{
    char c = hj_peek(t, 0);

    while (most-- > 0 && (c == ' ' || c == '\t' || c == '\r')) {
        t->at++;
        c = hj_peek(t, 0);
    }
}

/* Read the lines between two ''', and cut `indent` blanks from each. */
static int hj_lines_into(hj_text *t, size_t indent, ckpt_bytes *to)
{
    size_t from = t->at;

    while (hj_peek(t, 0) != '\'' || hj_peek(t, 1) != '\'' || hj_peek(t, 2) != '\'') {
        char c = hj_peek(t, 0);

        if (t->at == t->n)
            return hj_fail_at(t, from, "this string has no closing '''");
        t->at++;
        if (c != '\r' && !ckpt_bytes_add(to, &c, 1))
            return ckpt_fail_memory(t->err);
        if (c == '\n')
            hj_indent(t, indent);
    }
    t->at += 3;
    to->n -= to->n > 0 && to->at[to->n - 1] == '\n';
    return CKPT_OK;
}

/*
 * Column of the current position.  Remembers the last line start, so each byte is examined once,
 * however many strings a line has.
 */
static size_t hj_column(hj_text *t)
{
    for (; t->seen < t->at; t->seen++)
        t->line = t->s[t->seen] == '\n' ? t->seen + 1 : t->line;
    return t->at - t->line;
}

/* Read a ''' string; the column of its ''' gives the indentation to cut. */
static int hj_lines(hj_text *t, ckpt_value **out)
{
    ckpt_bytes text = {0};
    size_t indent = hj_column(t);

    t->at += 3;
    hj_indent(t, SIZE_MAX);
    if (hj_peek(t, 0) == '\n') {
        t->at++;
        hj_indent(t, indent);
    }
    return hj_text_node(t, &text, hj_lines_into(t, indent, &text), out);
}

/* ---- words and numbers ---- */

/* Number of leading digits in s[0..n). */
static size_t hj_digits(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

/* True if s[0..n) is a JSON number; *whole: it has neither fraction nor exponent. */
static bool hj_is_number(const char *s, size_t n, bool *whole)
{
    size_t i = n > 0 && s[0] == '-', d = hj_digits(s + i, n - i);

    if (d == 0 || (d > 1 && s[i] == '0'))
        return false;
    i += d;
    *whole = i == n;
    if (i < n && s[i] == '.') {
        d = hj_digits(s + i + 1, n - i - 1);
        if (d == 0)
            return false;
        i += 1 + d;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        i += i < n && (s[i] == '+' || s[i] == '-');
        d = hj_digits(s + i, n - i);
        if (d == 0)
            return false;
        i += d;
    }
    return i == n;
}

/* Make a number; integers beyond 64 bits become the nearest FLOAT. */
static int hj_number(hj_text *t, const char *s, size_t n, bool whole, ckpt_value **out)
{
    const char *copy = ckpt_arena_string(t->arena, s, n); // terminated
    int64_t i;
    double x = 0;

    if (!copy)
        return ckpt_fail_memory(t->err);
    if (whole && ckpt_parse_i64(copy, &i)) {
        *out = ckpt_value_int(t->arena, i);
    } else {
        (void)ckpt_parse_f64(copy, &x); // beyond a double's range it is infinite, as in Python
        *out = ckpt_value_float(t->arena, x);
    }
    return *out ? CKPT_OK : ckpt_fail_memory(t->err);
}

static bool hj_same(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

/* Make the value of a number, true, false or null; *out stays NULL for any other text. */
static int hj_word(hj_text *t, const char *s, size_t n, ckpt_value **out)
{
    bool whole = false;

    *out = NULL;
    if (hj_is_number(s, n, &whole))
        return hj_number(t, s, n, whole, out);
    if (hj_same(s, n, "true") || hj_same(s, n, "false"))
        *out = ckpt_value_bool(t->arena, s[0] == 't');
    else if (hj_same(s, n, "null"))
        *out = ckpt_value_new(t->arena, CKPT_V_NONE);
    else if (hj_same(s, n, "NaN"))
        *out = ckpt_value_float(t->arena, (double)NAN);
    else if (hj_same(s, n, "Infinity") || hj_same(s, n, "-Infinity"))
        *out = ckpt_value_float(t->arena, s[0] == '-' ? -(double)INFINITY : (double)INFINITY);
    else
        return CKPT_OK;
    return *out ? CKPT_OK : ckpt_fail_memory(t->err);
}

/* Length of s[0..n) without trailing blanks. */
static size_t hj_trimmed(const char *s, size_t n)
{
    while (n > 0 && (unsigned char)s[n - 1] <= ' ')
        n--;
    return n;
}

/*
 * Read a value without quotes.  A number or word ends at a punctuator or comment; HJSON takes any
 * other text as a string up to the end of its line, punctuators included.
 */
static int hj_bare(hj_text *t, ckpt_value **out)
{
    const char *s = t->s + t->at;
    size_t from = t->at;
    char c = hj_peek(t, 0);
    bool tried = false; // after one delimiter, the text up to a later one cannot be a word

    if (c == '\0' || strchr("{}[],:", c))
        return hj_fail(t, c == '\0' ? "the text ends where a value is expected"
                                    : "a value is missing before this punctuation");
    for (;; t->at++) {
        bool eol = c == '\0' || c == '\n' || c == '\r';

        if (!tried && (eol || strchr(",}]", c) || hj_at_comment(t))) {
            int rc = hj_word(t, s, hj_trimmed(s, t->at - from), out);

            tried = true;
            if (rc != CKPT_OK || *out)
                return rc;
        }
        if (eol)
            break;
        c = hj_peek(t, 1);
    }
    t->bare = true;
    *out = ckpt_value_str(t->arena, s, hj_trimmed(s, t->at - from));
    return *out ? CKPT_OK : ckpt_fail_memory(t->err);
}

/* ---- objects and arrays ---- */

/* Read a key without quotes, up to its colon. */
static int hj_bare_key(hj_text *t, ckpt_value **out)
{
    size_t from = t->at, n;

    while (hj_peek(t, 0) != ':') {
        char c = hj_peek(t, 0);

        if (c == '\0' || strchr("{}[],", c))
            return hj_fail(t, c == '\0' ? "the text ends within an object: a } is missing"
                                        : "a key is missing before this punctuation");
        t->at++;
    }
    n = hj_trimmed(t->s + from, t->at - from);
    if (n == 0)
        return hj_fail(t, "a key is missing before this colon");
    for (size_t i = from; i < from + n; i++) {
        if (hj_blank(t->s[i]))
            return hj_fail_at(t, from,
                              "a key contains a blank: add the missing colon, or quote the key");
    }
    *out = ckpt_value_str(t->arena, t->s + from, n);
    return *out ? CKPT_OK : ckpt_fail_memory(t->err);
}

/* Read "key": value.  The key keeps its offset in mark until the object is complete. */
static int hj_pair(hj_text *t, ckpt_dict *map)
{
    ckpt_value *key = NULL, *value = NULL;
    size_t from = t->at;
    char c = hj_peek(t, 0);
    int rc = c == '"' || c == '\'' ? hj_quoted(t, &key) : hj_bare_key(t, &key);

    if (rc == CKPT_OK)
        rc = hj_skip(t);
    if (rc == CKPT_OK && hj_peek(t, 0) != ':')
        rc = hj_fail(t, "a colon is expected after a key");
    if (rc == CKPT_OK) {
        t->at++;
        rc = hj_skip(t);
    }
    if (rc == CKPT_OK)
        rc = hj_value(t, &value);
    if (rc != CKPT_OK)
        return rc;
    key->mark = (uint32_t)from;
    return ckpt_dict_add(t->arena, map, key, value) ? CKPT_OK : ckpt_fail_memory(t->err);
}

/* Order by bytes, then by offset, so equal keys become neighbours in the order of the text. */
static int hj_by_key(const void *a, const void *b)
{
    const ckpt_value *x = *(ckpt_value *const *)a, *y = *(ckpt_value *const *)b;
    uint64_t n = x->as.text.n < y->as.text.n ? x->as.text.n : y->as.text.n;
    int order = memcmp(x->as.text.at, y->as.text.at, (size_t)n);

    if (order == 0 && x->as.text.n != y->as.text.n)
        order = x->as.text.n < y->as.text.n ? -1 : 1;
    return order != 0 ? order : (x->mark > y->mark) - (x->mark < y->mark);
}

/* Refuse a repeated key; clears the marks. */
static int hj_unique(hj_text *t, const ckpt_dict *map)
{
    ckpt_value **key = map->n > 0 ? ckpt_alloc((size_t)map->n * sizeof *key) : NULL;
    const ckpt_value *twice = NULL;
    int rc = CKPT_OK;

    if (map->n == 0)
        return CKPT_OK;
    if (!key)
        return ckpt_fail_memory(t->err);
    for (uint64_t i = 0; i < map->n; i++)
        key[i] = map->at[i].key;
    qsort(key, (size_t)map->n, sizeof *key, hj_by_key);
    for (uint64_t i = 1; i < map->n && !twice; i++) {
        if (key[i]->as.text.n == key[i - 1]->as.text.n &&
            memcmp(key[i]->as.text.at, key[i - 1]->as.text.at, (size_t)key[i]->as.text.n) == 0)
            twice = key[i];
    }
    if (twice)
        rc = ckpt_fail(t->err, CKPT_EFORMAT, "%s: line %zu: key \"%.80s\" appears twice; keep one",
                       t->name, hj_line(t, twice->mark), twice->as.text.at);
    for (uint64_t i = 0; i < map->n; i++)
        key[i]->mark = 0;
    ckpt_free(key);
    return rc;
}

/* Skip blanks and at most one comma. */
static int hj_comma(hj_text *t)
{
    int rc = hj_skip(t);

    if (rc == CKPT_OK && hj_peek(t, 0) == ',') {
        t->at++;
        rc = hj_skip(t);
    }
    return rc;
}

/*
 * Read the pairs of an object up to `end`: '}', or 0 for a root without braces, which ends with the
 * text and must not be empty.
 */
static int hj_object(hj_text *t, char end, ckpt_value **out)
{
    int rc;

    *out = ckpt_value_new(t->arena, CKPT_V_DICT);
    if (!*out)
        return ckpt_fail_memory(t->err);
    rc = hj_skip(t);
    while (rc == CKPT_OK && (hj_peek(t, 0) != end || (end == '\0' && t->at < t->n))) {
        rc = hj_pair(t, &(*out)->as.map);
        if (rc == CKPT_OK)
            rc = hj_comma(t);
    }
    if (rc == CKPT_OK) {
        t->at += end != '\0';
        rc = hj_unique(t, &(*out)->as.map);
    }
    return rc;
}

static int hj_array(hj_text *t, ckpt_value **out)
{
    int rc;

    *out = ckpt_value_new(t->arena, CKPT_V_LIST);
    if (!*out)
        return ckpt_fail_memory(t->err);
    rc = hj_skip(t);
    while (rc == CKPT_OK && hj_peek(t, 0) != ']') {
        ckpt_value *item = NULL;

        rc = hj_value(t, &item);
        if (rc == CKPT_OK && !ckpt_seq_add(t->arena, &(*out)->as.seq, item))
            rc = ckpt_fail_memory(t->err);
        if (rc == CKPT_OK)
            rc = hj_comma(t);
    }
    t->at += rc == CKPT_OK;
    return rc;
}

/* Read a value of any kind. */
static int hj_value(hj_text *t, ckpt_value **out)
{
    char c = hj_peek(t, 0);
    int rc;

    t->bare = false;
    if (c == '\'' && hj_peek(t, 1) == '\'' && hj_peek(t, 2) == '\'')
        return hj_lines(t, out);
    if (c == '"' || c == '\'')
        return hj_quoted(t, out);
    if (c != '{' && c != '[')
        return hj_bare(t, out);
    if (t->depth == HJ_DEPTH)
        return ckpt_fail(t->err, CKPT_ELIMIT, "%s: line %zu: more than %d levels of nesting",
                         t->name, hj_line(t, t->at), HJ_DEPTH);
    t->depth++;
    t->at++;
    rc = c == '{' ? hj_object(t, '}', out) : hj_array(t, out);
    t->depth--;
    t->bare = false;
    return rc;
}

/* ---- the whole text ---- */

/* Length of the UTF-8 sequence at s, or 0.  Source: Unicode standard, table 3-7. */
static size_t hj_sequence(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

    if (len == 1)
        return s[0] != 0;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n < len || (s[0] == 0xe0 && s[1] < 0xa0) ||
        (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return len;
}

static int hj_check_text(const hj_text *t)
{
    size_t len = 1;

    for (size_t i = 0; i < t->n; i += len) {
        len = hj_sequence((const unsigned char *)t->s + i, t->n - i);
        if (len == 0)
            return hj_fail_at(t, i, "this is not UTF-8 text");
    }
    return CKPT_OK;
}

/* Read a root that starts with neither brace nor bracket: one JSON value, or an object's pairs. */
static int hj_open_root(hj_text *t, ckpt_value **out)
{
    ckpt_err quiet = {0};
    hj_text alone = *t;
    ckpt_value *value = NULL;
    int rc;

    alone.err = &quiet;
    if (hj_value(&alone, &value) == CKPT_OK && !alone.bare && hj_skip(&alone) == CKPT_OK &&
        alone.at == alone.n) {
        t->at = alone.at;
        *out = value;
        return CKPT_OK;
    }
    rc = hj_object(t, '\0', out);
    return rc;
}

int zt_hjson_parse(ckpt_value **out, ckpt_arena *arena, const char *text, size_t n,
                   const char *name, ckpt_err *err)
{
    hj_text t = {.s = text, .name = name, .n = n, .arena = arena, .err = err};
    int rc;

    *out = NULL;
    if (n > HJ_TEXT)
        return ckpt_fail(t.err, CKPT_ELIMIT, "%s: the text has %zu bytes; the limit is %" PRIu64,
                         name, n, HJ_TEXT);
    rc = hj_check_text(&t);
    if (rc == CKPT_OK) {
        t.at = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        rc = hj_skip(&t);
    }
    if (rc == CKPT_OK) {
        char c = hj_peek(&t, 0);

        rc = c == '{' || c == '[' ? hj_value(&t, out) : hj_open_root(&t, out);
    }
    if (rc == CKPT_OK)
        rc = hj_skip(&t);
    if (rc == CKPT_OK && t.at < n)
        rc = hj_fail(&t, "more text follows the end of the value");
    if (rc != CKPT_OK)
        *out = NULL;
    return rc;
}

/* Read a file into *text, up to one byte more than the limit, so the caller sees the excess. */
static int hj_slurp(ckpt_bytes *text, FILE *f, const char *path, ckpt_err *err)
{
    char block[16384];
    size_t n;

    while (text->n <= HJ_TEXT && (n = fread(block, 1, sizeof block, f)) > 0) {
        if (!ckpt_bytes_add(text, block, n))
            return ckpt_fail_memory(err);
    }
    return ferror(f) ? ckpt_fail_sys(err, CKPT_EIO, errno, "%s: cannot be read", path) : CKPT_OK;
}

int zt_hjson_read(ckpt_value **out, ckpt_arena *arena, const char *path, ckpt_err *err)
{
    ckpt_bytes text = {0};
    FILE *f = fopen(path, "rb");
    int rc;

    *out = NULL;
    if (!f)
        return ckpt_fail_sys(err, ckpt_open_code(errno), errno, "%s: cannot be opened", path);
    rc = hj_slurp(&text, f, path, err);
    (void)fclose(f);
    if (rc == CKPT_OK)
        rc = zt_hjson_parse(out, arena, text.n > 0 ? (const char *)text.at : "", text.n, path, err);
    ckpt_vec_free(&text);
    return rc;
}
