/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lost.c: finds the keys of the source's model that the configuration made for the target does not
 * express.
 *
 * A key such as llama.logit_scale changes what the model computes. A configuration without it
 * describes another model, although every tensor is right. The section `keys` says how the keys
 * follow from a configuration, so this file evaluates it with the new configuration, and compares
 * the result with the source's keys.
 */
#include <string.h>

#include "libckpt/codec/json/json.h"
#include "libckpt/transform/keymap/expr.h"

enum { RL_LISTED = 8 /* keys in a message */ };

static bool rlost_is_number(const ckpt_value *v)
{
    return v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT;
}

/* True for two numbers that a key of this type does not tell apart, and for equal values. */
static bool rlost_same_item(uint8_t type, const ckpt_value *a, const ckpt_value *b)
{
    if (!rlost_is_number(a) || !rlost_is_number(b))
        return ckpt_value_equal(a, b, 1000);
    // large integers are not exact as doubles
    if (a->kind == CKPT_V_INT && b->kind == CKPT_V_INT)
        return a->as.i == b->as.i;
    double x = a->kind == CKPT_V_FLOAT ? a->as.f : (double)a->as.i;
    double y = b->kind == CKPT_V_FLOAT ? b->as.f : (double)b->as.i;
    if (type == CKPT_KEY_F32) {
        x = (double)(float)x;
        y = (double)(float)y;
    }
    // NaN is no value that a configuration expresses
    return x >= y && x <= y;
}

bool ckpt_rm_same(uint8_t type, const ckpt_value *a, const ckpt_value *b)
{
    if (a->kind != CKPT_V_LIST || b->kind != CKPT_V_LIST)
        return rlost_same_item(type, a, b);
    const ckpt_seq x = ckpt_value_seq(a), y = ckpt_value_seq(b);
    bool same = x.n == y.n;
    for (uint64_t i = 0; same && i < x.n; i++)
        same = rlost_same_item(type, x.at[i], y.at[i]);
    return same;
}

bool ckpt_rm_unset(const ckpt_value *v)
{
    if (v->kind == CKPT_V_INT || v->kind == CKPT_V_BOOL)
        return v->as.i == 0;
    if (v->kind == CKPT_V_FLOAT)
        return v->as.f >= 0 && v->as.f <= 0;
    return v->kind == CKPT_V_STR ? v->as.text.n == 0
                                 : v->kind == CKPT_V_LIST && ckpt_value_seq(v).n == 0;
}

/* The search for lost keys. */
typedef struct rlost_work {
    const ckpt_rm_facts *f;
    ckpt_rm_facts after; /* looks names up in the new configuration first */
    ckpt_rm_lines sizes; /* the sizes, not yet evaluated, for `after` */
    ckpt_rm_listed lost;
    ckpt_err *err;
} rlost_work;

/* Find the next line for a key, from *from on, whose `when` holds; NULL: none. */
static const ckpt_rm_line *rlost_line(const ckpt_rm_lines *lines, const ckpt_rm_facts *f,
                                      const ckpt_key *key, size_t *from)
{
    bool known;

    for (; *from < lines->n; (*from)++) {
        const ckpt_rm_line *line = &lines->at[*from];
        const char *name = ckpt_rm_key_name(&f->map->keys, f, line->key);

        if (!name || strcmp(name, key->name) != 0 ||
            (line->when && !ckpt_rm_holds(f, &f->r->only.at[line->when - 1], &known)))
            continue;
        (*from)++;
        return line;
    }
    return NULL;
}

/*
 * Set *is if the key need not be expressed: a line `neutral` says so, or it is not set. A `neutral`
 * line for a bool states the value that is the same as no key.
 */
static int rlost_neutral(bool *is, const rlost_work *w, const ckpt_key *key)
{
    const ckpt_rm_line *line;
    size_t from = 0;
    int rc = CKPT_OK;

    line = rlost_line(&w->f->r->neutral, w->f, key, &from);
    *is = ckpt_rm_unset(key->value) && (!line || key->value->kind != CKPT_V_BOOL);
    from = 0;
    while (rc == CKPT_OK && !*is && (line = rlost_line(&w->f->r->neutral, w->f, key, &from))) {
        const ckpt_value *v = NULL;

        if (line->text)
            rc = ckpt_rm_expr(&v, w->f, line, NULL, w->err);
        *is = rc == CKPT_OK && (!line->text || (v && ckpt_rm_same(key->type, v, key->value)));
    }
    return rc;
}

/* Set *is if the section `keys` makes the key from the new configuration as it is. */
static int rlost_made(bool *is, const rlost_work *w, const ckpt_key *key)
{
    size_t from = 0;
    const ckpt_rm_line *line = rlost_line(&w->f->r->keys, &w->after, key, &from);
    const char *const *given = w->f->how->sizes;
    const ckpt_value *v = NULL;
    int rc;

    if (!line) {
        // a key that only the section `config` reads
        *is = ckpt_remap_has_size(w->f->r, key->name);
        return CKPT_OK;
    }
    rc = ckpt_rm_expr(&v, &w->after, line, NULL, w->err);
    // the caller's own sizes may differ from those of the source
    *is = rc == CKPT_OK && line->list == key->list &&
          ((given && *given) || (v && ckpt_rm_same(key->type, v, key->value)));
    return rc;
}

/* rlost_made evaluates sizes for the new configuration; those of the source must stay. */
static int rlost_expressed(bool *is, const rlost_work *w, const ckpt_key *key)
{
    const ckpt_rm_lines of_source = w->f->r->sizes;

    w->f->r->sizes = w->sizes;
    int rc = rlost_made(is, w, key);
    w->f->r->sizes = of_source;
    return rc;
}

int ckpt_rm_list_value(ckpt_rm_listed *l, ckpt_arena *a, const char *name, const ckpt_value *v,
                       ckpt_err *err)
{
    static const ckpt_json_style style = {.ascii = true};
    ckpt_bytes value = {0};
    const char *before = l->text ? l->text : "";

    if (++l->n > RL_LISTED + 1)
        return CKPT_OK;
    bool shown = v->kind != CKPT_V_DICT && ckpt_json_write(&value, v, &style, NULL) == CKPT_OK &&
                 value.n <= 60 && ckpt_bytes_add(&value, "", 1);
    if (l->n == RL_LISTED + 1)
        l->text = ckpt_arena_printf(a, "%s ...", before);
    else
        l->text = ckpt_arena_printf(a, "%s%s%.100s = %s", before, *before ? ", " : "", name,
                                    shown                    ? (const char *)value.at
                                    : v->kind == CKPT_V_LIST ? "(a list)"
                                    : v->kind == CKPT_V_DICT ? "(a dict)"
                                                             : "(NaN, infinity or a long text)");
    ckpt_vec_free(&value);
    return l->text ? CKPT_OK : ckpt_fail_memory(err);
}

static int rlost_key(rlost_work *w, const ckpt_key *key)
{
    bool fine = false;
    int rc = rlost_neutral(&fine, w, key);

    if (rc == CKPT_OK && !fine)
        rc = rlost_expressed(&fine, w, key);
    return rc == CKPT_OK && !fine
               ? ckpt_rm_list_value(&w->lost, w->f->arena, key->name, key->value, w->err)
               : rc;
}

int ckpt_rm_lost(const char **out, const ckpt_rm_facts *f, const ckpt_value *config, ckpt_err *err)
{
    const ckpt_value *arch = ckpt_rm_fact(f, "general.architecture");
    rlost_work w = {.f = f, .after = *f, .sizes = f->r->sizes, .err = err};
    ckpt_remap_how how = *f->how;
    size_t n = w.sizes.n * sizeof *w.sizes.at;
    int rc = CKPT_OK;

    *out = NULL;
    if (!arch || arch->kind != CKPT_V_STR || f->r->keys.n == 0)
        return CKPT_OK;
    how.model = config;
    w.after.how = &how;
    w.sizes.at = n ? ckpt_arena_copy(f->arena, w.sizes.at, n) : NULL;
    if (n && !w.sizes.at)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < w.sizes.n; i++)
        w.sizes.at[i].state = 0;
    n = (size_t)arch->as.text.n;
    for (size_t i = 0; rc == CKPT_OK && i < f->map->keys.n; i++) {
        const ckpt_key *key = &f->map->keys.at[i];

        if (strncmp(key->name, arch->as.text.at, n) == 0 && key->name[n] == '.')
            rc = rlost_key(&w, key);
    }
    *out = w.lost.text;
    return rc;
}
