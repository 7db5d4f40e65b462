/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c: converts JSON text to a tree of values (by cJSON, after the gate's check), and trees to
 * text.
 *
 * It is the only file that includes cJSON.  Neither direction recurses, except cJSON itself, whose
 * depth the gate limits.
 */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "libckpt/base/number.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/io/io.h"
#include "libckpt/map/map.h"

/* ---- reading ---- */

/*
 * Let cJSON allocate by ckpt_alloc, so that tests can make it fail.  Its free stays the plain free,
 * so that another user of cJSON in the process is not affected.
 */
static void json_set_hooks(void)
{
    cJSON_Hooks hooks = {.malloc_fn = ckpt_alloc, .free_fn = ckpt_free};

    cJSON_InitHooks(&hooks);
}

/* One level of the explicit stack for converting cJSON's tree: one container. */
typedef struct json_level {
    const cJSON *next; /* the next child to convert */
    ckpt_value *into;
} json_level;

typedef struct json_reader {
    const ckpt_json_text *text;
    ckpt_arena *arena;
    ckpt_bytes kinds; /* kinds of the numbers, in order: see ckpt_json_gate */
    size_t at;        /* bytes of `kinds` already used */
    ckpt_err *err;
} json_reader;

/* An empty container with room for the children of item. */
static ckpt_value *json_container(json_reader *r, const cJSON *item)
{
    bool object = cJSON_IsObject(item);
    ckpt_value *v = ckpt_value_new(r->arena, object ? CKPT_V_DICT : CKPT_V_LIST);
    uint64_t n = 0;

    for (const cJSON *c = item->child; c; c = c->next)
        n++;
    if (!v || n == 0)
        return v;
    if (object) {
        v->as.map.at = ckpt_arena_array(r->arena, n, sizeof *v->as.map.at);
        v->as.map.room = n;
    } else {
        v->as.seq.at = ckpt_arena_array(r->arena, n, sizeof *v->as.seq.at);
        v->as.seq.room = n;
    }
    return (object ? (void *)v->as.map.at : (void *)v->as.seq.at) ? v : NULL;
}

/*
 * Convert a number.  cJSON keeps only doubles, so the gate has recorded which numbers are integers.
 */
static ckpt_value *json_number(json_reader *r, const cJSON *item)
{
    uint8_t kind = r->at < r->kinds.n ? r->kinds.at[r->at++] : 0;

    if (kind == 2) {
        const char *digits = (const char *)r->kinds.at + r->at;
        r->at += strlen(digits) + 1;
        return ckpt_value_decimal(r->arena, digits);
    }
    if (kind == 1)
        // exact, since the gate checked that it is within 2^53
        return ckpt_value_int(r->arena, (int64_t)item->valuedouble);
    if (!isfinite(item->valuedouble)) {
        ckpt_fail(r->err, CKPT_EFORMAT, "%s: a number is too large for a double", r->text->name);
        return NULL;
    }
    return ckpt_value_float(r->arena, item->valuedouble);
}

/* Convert one item; NULL: failed, with r->err filled in. */
static ckpt_value *json_value(json_reader *r, const cJSON *item)
{
    ckpt_value *v = NULL;

    if (cJSON_IsObject(item) || cJSON_IsArray(item))
        v = json_container(r, item);
    else if (cJSON_IsString(item))
        v = ckpt_value_cstr(r->arena, item->valuestring);
    else if (cJSON_IsNumber(item))
        v = json_number(r, item);
    else if (cJSON_IsBool(item))
        v = ckpt_value_bool(r->arena, cJSON_IsTrue(item));
    else
        v = ckpt_value_new(r->arena, CKPT_V_NONE);
    if (!v)
        ckpt_fail_memory(r->err); // an earlier error stays
    return v;
}

/* Enter a child in its container, which has room for it. */
static bool json_enter(json_reader *r, ckpt_value *into, const cJSON *item, ckpt_value *v)
{
    if (into->kind == CKPT_V_LIST) {
        into->as.seq.at[into->as.seq.n++] = v;
        return true;
    }
    ckpt_value *key = ckpt_value_cstr(r->arena, item->string);
    if (!key) {
        ckpt_fail_memory(r->err);
        return false;
    }
    into->as.map.at[into->as.map.n++] = (ckpt_pair){key, v};
    return true;
}

/* Convert cJSON's tree in the order of the text (the order of `kinds`), with an explicit stack. */
static ckpt_value *json_tree(json_reader *r, const cJSON *root)
{
    json_level level[CKPT_JSON_DEPTH + 1];
    ckpt_value *out = json_value(r, root);
    unsigned depth = 0;

    if (out && (out->kind == CKPT_V_DICT || out->kind == CKPT_V_LIST))
        level[depth++] = (json_level){root->child, out};
    while (depth > 0) {
        json_level *top = &level[depth - 1];
        const cJSON *item = top->next;
        if (!item) {
            depth--;
            continue;
        }
        top->next = item->next;
        ckpt_value *v = json_value(r, item);
        if (!v || !json_enter(r, top->into, item, v))
            return NULL;
        // the gate accepts at most CKPT_JSON_DEPTH containers
        if ((v->kind == CKPT_V_DICT || v->kind == CKPT_V_LIST) && depth < CKPT_JSON_DEPTH + 1)
            level[depth++] = (json_level){item->child, v};
    }
    return out;
}

/*
 * Errors go into a local struct first: the caller's may hold an earlier error, and then the
 * returned code would not match it.
 */
int ckpt_json_parse(ckpt_value **out, ckpt_arena *a, const ckpt_json_text *text, ckpt_err *err)
{
    assert(out && a && text && text->name && (text->at || text->n == 0));
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ckpt_err local = {0};
    json_reader r = {.text = text, .arena = a, .err = &local};
    int rc = ckpt_json_gate(text, &r.kinds, &local);
    cJSON *root = NULL;

    *out = NULL;
    (void)pthread_once(&once, json_set_hooks);
    if (rc == CKPT_OK) {
        // cJSON fails on a text that passed the gate only when memory is exhausted
        root = cJSON_ParseWithLength(text->at, (size_t)text->n);
        rc = root ? CKPT_OK : ckpt_fail_memory(&local);
    }
    if (rc == CKPT_OK) {
        *out = json_tree(&r, root);
        rc = *out ? CKPT_OK : local.code;
    }
    cJSON_Delete(root);
    ckpt_vec_free(&r.kinds);
    return rc == CKPT_OK ? CKPT_OK : ckpt_fail(err, rc, "%s", local.text);
}

int ckpt_json_read(ckpt_value **out, ckpt_arena *a, const char *path, uint64_t max, ckpt_err *err)
{
    assert(out && a && path);
    ckpt_json_text text = {.name = path, .max = max};
    char *bytes = NULL;
    int rc = ckpt_io_slurp(&bytes, &text.n, path, max, err);

    *out = NULL;
    text.at = bytes;
    if (rc == CKPT_OK)
        rc = ckpt_json_parse(out, a, &text, err);
    ckpt_free(bytes);
    return rc;
}

bool ckpt_json_closed(const char *text, uint64_t n)
{
    uint64_t depth = 0;
    bool quoted = false, any = false;

    for (uint64_t i = 0; i < n; i++) {
        char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        any = any || c == '{' || c == '[';
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && depth-- == 0)
            return false;
    }
    return any && depth == 0 && !quoted;
}

/* ---- writing ---- */

/* One open container of the explicit stack. */
typedef struct json_open {
    bool is_dict;
    bool flat;       /* on one line: a list in flat style, or a container inside one */
    ckpt_pair *pair; /* of a dict: its pairs in the order of the output; owned when sorted */
    ckpt_value **item;
    uint64_t n, i;
    bool owned;
} json_open;

typedef struct json_writer {
    ckpt_bytes *out;
    const ckpt_json_style *style;
    json_open open[CKPT_JSON_DEPTH];
    unsigned depth;
    ckpt_err *err;
} json_writer;

/* Append the escape of one code point; n bytes of UTF-8 at s. */
static bool json_escape(ckpt_bytes *out, const uint8_t *s, size_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *hit = n == 1 && *s ? strchr(from, *s) : NULL;
    uint32_t c = n == 1 ? *s : *s & (0xFFu >> (n + 1));

    if (hit)
        return ckpt_bytes_add(out, "\\", 1) && ckpt_bytes_add(out, &to[hit - from], 1);
    for (size_t k = 1; k < n; k++)
        c = c << 6 | (s[k] & 0x3Fu);
    if (c < 0x10000)
        return ckpt_bytes_printf(out, "\\u%04" PRIx32, c);
    c -= 0x10000;
    return ckpt_bytes_printf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD800u + (c >> 10),
                             0xDC00u + (c & 0x3FF));
}

/* Bytes of the UTF-8 sequence that begins with this byte. */
static size_t json_utf8_length(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/*
 * Append a string. Runs of bytes without escapes are copied at once, because nearly every name is
 * one run.
 */
bool ckpt_json_string(ckpt_bytes *out, const char *s, uint64_t n, bool ascii)
{
    assert(out && (s || n == 0));
    const uint8_t *p = (const uint8_t *)s;
    bool ok = ckpt_bytes_add(out, "\"", 1);

    for (uint64_t i = 0; ok && i < n;) {
        uint64_t from = i;
        while (i < n && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' && (!ascii || p[i] < 0x7F))
            i++;
        if (i > from)
            ok = ckpt_bytes_add(out, p + from, (size_t)(i - from));
        if (!ok || i == n)
            break;
        size_t len = json_utf8_length(p[i]);
        // callers pass whole sequences; this check only prevents reading past the end
        len = len > n - i ? 1 : len;
        ok = json_escape(out, p + i, len);
        i += len;
    }
    return ok && ckpt_bytes_add(out, "\"", 1);
}

/* For qsort: compare pairs by key.  Keys are unique, so equal ones do not occur. */
static int json_pair_order(const void *pa, const void *pb)
{
    const ckpt_text a = ((const ckpt_pair *)pa)->key->as.text,
                    b = ((const ckpt_pair *)pb)->key->as.text;
    // the byte order of UTF-8 is the order of code points
    int order = memcmp(a.at, b.at, (size_t)(a.n < b.n ? a.n : b.n));

    return order ? order : (a.n > b.n) - (a.n < b.n);
}

/* Append digits d[0].d[1]... times 10^exp, -4 <= exp < 16, without an exponent. */
static bool json_fixed(ckpt_bytes *out, const char *d, size_t n, long exp)
{
    static const char zeros[] = "0000000000000000";
    size_t whole = exp < 0 ? 0 : (size_t)exp + 1; // digits before the point
    size_t have = whole < n ? whole : n;

    bool ok = exp < 0 ? ckpt_bytes_add(out, "0", 1) : ckpt_bytes_add(out, d, have);
    ok = ok && ckpt_bytes_add(out, zeros, whole - have) && ckpt_bytes_add(out, ".", 1);
    if (exp < 0)
        ok = ok && ckpt_bytes_add(out, zeros, (size_t)(-exp - 1));
    return ok && (n > have ? ckpt_bytes_add(out, d + have, n - have) : ckpt_bytes_add(out, "0", 1));
}

/*
 * Append the shortest digits that read back as the same double, in the form of Python's repr;
 * independent of the locale.
 */
static bool json_float(ckpt_bytes *out, double f)
{
    char text[40], digits[24];
    size_t n = 0;
    int precision = 0;

    do
        snprintf(text, sizeof text, "%.*e", precision, f);
    while (strtod(text, NULL) != f && ++precision < DBL_DECIMAL_DIG);
    const char *e = strrchr(text, 'e');
    int64_t exp = 0;
    (void)ckpt_parse_i64(e + 1, &exp);
    for (const char *p = text; p < e; p++) {
        if (*p >= '0' && *p <= '9' && n < sizeof digits)
            digits[n++] = *p;
    }
    bool ok = !signbit(f) || ckpt_bytes_add(out, "-", 1);
    if (exp >= -4 && exp < 16)
        return ok && json_fixed(out, digits, n, exp);
    ok = ok && ckpt_bytes_add(out, digits, 1);
    if (n > 1)
        ok = ok && ckpt_bytes_add(out, ".", 1) && ckpt_bytes_add(out, digits + 1, n - 1);
    return ok && ckpt_bytes_printf(out, "e%c%02ld", exp < 0 ? '-' : '+', exp < 0 ? -exp : exp);
}

/* Append a line break and the indent of the current depth. */
static bool json_break(json_writer *w)
{
    bool ok = w->style->indent == 0 || ckpt_bytes_add(w->out, "\n", 1);

    for (unsigned k = 0; ok && k < w->depth * w->style->indent; k++)
        ok = ckpt_bytes_add(w->out, " ", 1);
    return ok;
}

/* Append the separator before the next item of a container. */
static bool json_between(json_writer *w, const json_open *o)
{
    if (o->i > 0 && !ckpt_bytes_add(w->out, ",", 1))
        return false;
    if (o->flat)
        return o->i == 0 || ckpt_bytes_add(w->out, " ", 1);
    return json_break(w);
}

/* Begin a dict or a sequence; an empty one is written at once. */
static int json_begin(json_writer *w, const ckpt_value *v)
{
    ckpt_dict map = ckpt_value_map(v);
    ckpt_seq seq = ckpt_value_seq(v);
    bool dict = v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT;
    json_open o = {.is_dict = dict, .pair = map.at, .item = seq.at, .n = dict ? map.n : seq.n};

    if (o.n == 0)
        return ckpt_bytes_add(w->out, dict ? "{}" : "[]", 2) ? CKPT_OK : ckpt_fail_memory(w->err);
    if (w->depth == CKPT_JSON_DEPTH)
        return ckpt_fail(w->err, CKPT_ELIMIT, "JSON: values are nested deeper than %u levels",
                         CKPT_JSON_DEPTH);
    for (uint64_t k = 0; dict && k < o.n; k++) {
        if (map.at[k].key->kind != CKPT_V_STR)
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "JSON: a key is not a string");
    }
    if (dict && w->style->sort_keys) {
        o.pair = ckpt_alloc((size_t)o.n * sizeof *o.pair);
        if (!o.pair)
            return ckpt_fail_memory(w->err);
        memcpy(o.pair, map.at, (size_t)o.n * sizeof *o.pair);
        qsort(o.pair, (size_t)o.n, sizeof *o.pair, json_pair_order);
        o.owned = true;
    }
    o.flat = w->style->flat_lists && (!dict || (w->depth > 0 && w->open[w->depth - 1].flat));
    w->open[w->depth++] = o;
    return ckpt_bytes_add(w->out, dict ? "{" : "[", 1) ? CKPT_OK : ckpt_fail_memory(w->err);
}

/*
 * Write a string value or key.  Pickled strings can hold lone surrogates, which JSON does not
 * allow.
 */
static int json_text(json_writer *w, const ckpt_value *v)
{
    if (v->kind != CKPT_V_STR || !ckpt_utf8_ok(v->as.text.at, v->as.text.n))
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "JSON: a string is not valid UTF-8");
    return ckpt_json_string(w->out, v->as.text.at, v->as.text.n, w->style->ascii)
               ? CKPT_OK
               : ckpt_fail_memory(w->err);
}

/* Write a value, or begin a container. */
static int json_put(json_writer *w, const ckpt_value *v)
{
    char digits[CKPT_VALUE_DIGITS];
    bool ok = true;

    if (v->kind == CKPT_V_STR)
        return json_text(w, v);
    if (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT || v->kind == CKPT_V_LIST ||
        v->kind == CKPT_V_TUPLE)
        return json_begin(w, v);
    if (v->kind == CKPT_V_NONE)
        ok = ckpt_bytes_add(w->out, "null", 4);
    else if (v->kind == CKPT_V_BOOL)
        ok = ckpt_bytes_printf(w->out, "%s", v->as.i ? "true" : "false");
    else if (v->kind == CKPT_V_INT)
        ok = ckpt_bytes_printf(w->out, "%" PRId64, v->as.i);
    else if (v->kind == CKPT_V_LONG)
        ok = ckpt_bytes_add(w->out, digits, ckpt_value_digits(digits, v->as.text));
    else if (v->kind == CKPT_V_FLOAT && isfinite(v->as.f))
        ok = json_float(w->out, v->as.f);
    else
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "JSON: a value has a type that JSON does not have");
    return ok ? CKPT_OK : ckpt_fail_memory(w->err);
}

/* Write the next child of the innermost container, or its end. */
static int json_advance(json_writer *w)
{
    json_open *o = &w->open[w->depth - 1];
    int rc = CKPT_OK;

    if (o->i == o->n) {
        w->depth--;
        bool ok = (o->flat || json_break(w)) && ckpt_bytes_add(w->out, o->is_dict ? "}" : "]", 1);
        if (o->owned)
            ckpt_free(o->pair);
        return ok ? CKPT_OK : ckpt_fail_memory(w->err);
    }
    if (!json_between(w, o))
        return ckpt_fail_memory(w->err);
    uint64_t i = o->i++;
    if (!o->is_dict)
        return json_put(w, o->item[i]);
    rc = json_text(w, o->pair[i].key);
    if (rc == CKPT_OK && !ckpt_bytes_add(w->out, ": ", w->style->indent ? 2 : 1))
        rc = ckpt_fail_memory(w->err);
    return rc == CKPT_OK ? json_put(w, o->pair[i].value) : rc;
}

int ckpt_json_write(ckpt_bytes *out, const ckpt_value *v, const ckpt_json_style *style,
                    ckpt_err *err)
{
    assert(out && v && style);
    json_writer w = {.out = out, .style = style, .err = err};
    int rc = json_put(&w, v);

    while (rc == CKPT_OK && w.depth > 0)
        rc = json_advance(&w);
    for (unsigned k = 0; k < w.depth; k++) {
        if (w.open[k].owned)
            ckpt_free(w.open[k].pair);
    }
    return rc;
}
