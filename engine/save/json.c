/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c: writing JSON.
 */
#include "engine/save/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/vec.h"

enum { JS_DEPTH = 64 };

CKPT_VEC(js_text, char);

static bool js_put(js_text *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *c = ckpt_vec_push(t);
        if (!c)
            return false;
        *c = s[i];
    }
    return true;
}

static bool js_puts(js_text *t, const char *s)
{
    return js_put(t, s, strlen(s));
}

static bool js_line(js_text *t, unsigned depth)
{
    bool ok = js_puts(t, "\n");

    for (unsigned i = 0; ok && i < depth; i++)
        ok = js_puts(t, "  ");
    return ok;
}

static bool js_string(js_text *t, const ckpt_text *s)
{
    char code[8];
    bool ok = js_puts(t, "\"");

    for (uint64_t i = 0; ok && i < s->n; i++) {
        unsigned char c = (unsigned char)s->at[i];
        if (c == '"' || c == '\\')
            ok = js_puts(t, "\\") && js_put(t, &s->at[i], 1);
        else if (c < 0x20)
            ok = snprintf(code, sizeof code, "\\u%04x", c) > 0 && js_puts(t, code);
        else
            ok = js_put(t, &s->at[i], 1);
    }
    return ok && js_puts(t, "\"");
}

/* The shortest text that reads back as the same number, as Python writes it. */
static bool js_float(js_text *t, double f)
{
    char text[40];

    if (!isfinite(f))
        return js_puts(t, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, f);
        if (strtod(text, NULL) == f)
            break;
    }
    return js_puts(t, text) && (strpbrk(text, ".e") || js_puts(t, ".0"));
}

static bool js_value(js_text *t, const ckpt_value *v, unsigned depth);

static bool js_seq(js_text *t, const ckpt_value *v, unsigned depth)
{
    ckpt_seq seq = ckpt_value_seq(v);
    bool ok = js_puts(t, "[");

    for (uint64_t i = 0; ok && i < seq.n; i++)
        ok = (i == 0 || js_puts(t, ",")) && js_line(t, depth + 1) &&
             js_value(t, seq.at[i], depth + 1);
    return ok && (seq.n == 0 || js_line(t, depth)) && js_puts(t, "]");
}

static bool js_dict(js_text *t, const ckpt_value *v, unsigned depth)
{
    ckpt_dict map = ckpt_value_map(v);
    bool ok = js_puts(t, "{");

    for (uint64_t i = 0; ok && i < map.n; i++)
        ok = map.at[i].key->kind == CKPT_V_STR && (i == 0 || js_puts(t, ",")) &&
             js_line(t, depth + 1) && js_string(t, &map.at[i].key->as.text) && js_puts(t, ": ") &&
             js_value(t, map.at[i].value, depth + 1);
    return ok && (map.n == 0 || js_line(t, depth)) && js_puts(t, "}");
}

static bool js_value(js_text *t, const ckpt_value *v, unsigned depth)
{
    char text[32];

    if (depth > JS_DEPTH)
        return false;
    if (v->kind == CKPT_V_NONE)
        return js_puts(t, "null");
    if (v->kind == CKPT_V_BOOL)
        return js_puts(t, v->as.i ? "true" : "false");
    if (v->kind == CKPT_V_INT)
        return snprintf(text, sizeof text, "%" PRId64, v->as.i) > 0 && js_puts(t, text);
    if (v->kind == CKPT_V_FLOAT)
        return js_float(t, v->as.f);
    if (v->kind == CKPT_V_STR)
        return js_string(t, &v->as.text);
    if (v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE)
        return js_seq(t, v, depth);
    return (v->kind == CKPT_V_DICT || v->kind == CKPT_V_ODICT) && js_dict(t, v, depth);
}

const char *zt_json_text(ckpt_arena *arena, const ckpt_value *v)
{
    js_text t = {0};
    const char *out = NULL;

    if (js_value(&t, v, 0) && js_puts(&t, "\n"))
        out = ckpt_arena_string(arena, t.at, t.n);
    ckpt_vec_free(&t);
    return out;
}
