/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fits.c: decides whether a layout map, or a part of it, is for this checkpoint.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/transform/keymap/expr.h"

bool ckpt_rm_holds(const ckpt_rm_facts *f, const ckpt_rm_when *w, bool *known)
{
    const ckpt_value *v = ckpt_rm_named(f, w->key);

    *known = v && (v->kind == CKPT_V_STR || v->kind == CKPT_V_BOOL);
    for (const char *const *word = w->word; *known && *word; word++) {
        if (v->kind == CKPT_V_BOOL ? strcmp(*word, v->as.i ? "true" : "false") == 0
                                   : ckpt_value_is(v, *word))
            return true;
    }
    return false;
}

/* True if the map has a tensor with such a name. */
static bool fit_has(const ckpt_map *map, const ckpt_rm_term *t)
{
    ckpt_rm_capture c;
    bool has = false;

    for (size_t i = 0; !has && i < map->tensors.n; i++)
        has = ckpt_rm_match(t, map->tensors.at[i]->name, &c);
    return has;
}

/* True if a rule only for this model names one of the side's tensors. */
static bool fit_own(const ckpt_map *map, const ckpt_rm_facts *f, unsigned side)
{
    bool renames = false, known;

    for (size_t i = 0; !renames && i < f->r->rules.n; i++) {
        const ckpt_rm_rule *rule = &f->r->rules.at[i];
        const ckpt_rm_terms *of = &rule->term[side];

        if (rule->does != CKPT_RM_EQUAL || !rule->when ||
            !ckpt_rm_holds(f, &f->r->only.at[rule->when - 1], &known))
            continue;
        for (size_t k = 0; !renames && k < of->n; k++)
            renames = fit_has(map, &of->at[k]);
    }
    return renames;
}

static bool fit_holds(const ckpt_map *map, const ckpt_rm_facts *f, const ckpt_rm_when *w)
{
    bool known;

    if (w->own)
        return fit_own(map, f, w->side);
    return w->has.text ? fit_has(map, &w->has) : ckpt_rm_holds(f, w, &known);
}

bool ckpt_remap_fits(ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how)
{
    ckpt_rm_facts f;
    ckpt_err ignored = {0};
    bool fits = true;

    if (r->whens.n == 0)
        return true;
    // an unreadable configuration is ignored here; applying the layout map reports it
    (void)ckpt_rm_facts_open(&f, r, map, how, &ignored);
    for (size_t i = 0; fits && i < r->whens.n; i++) {
        const ckpt_rm_when *w = &r->whens.at[i];
        if (w->side == how->backwards)
            fits = fit_holds(map, &f, w);
    }
    return fits;
}

int ckpt_rm_agrees(ckpt_map *map, const ckpt_rm_facts *f, unsigned to, ckpt_err *err)
{
    bool known = false;

    for (size_t i = 0; i < f->r->whens.n; i++) {
        const ckpt_rm_when *w = &f->r->whens.at[i];

        if (w->side != to || w->own || w->has.text || ckpt_rm_holds(f, w, &known) || !known)
            continue;
        const ckpt_value *v = ckpt_rm_named(f, w->key);
        return ckpt_map_note(
            map, CKPT_WARNING, err,
            "the tensors are those of a model for %s, but %.60s in the configuration is %.60s, for "
            "which this layout map is not made: the configuration may be another model's",
            f->r->name, w->key,
            v->kind == CKPT_V_STR ? v->as.text.at
            : v->as.i             ? "true"
                                  : "false");
    }
    return CKPT_OK;
}

const char *ckpt_remap_model(const ckpt_remap *r, bool right, size_t i)
{
    assert(r);
    for (size_t k = 0; k < r->whens.n; k++) {
        const ckpt_rm_when *w = &r->whens.at[k];

        if (w->side != (right ? 1 : 0) || w->own || w->has.text)
            continue;
        for (const char *const *word = w->word; *word; word++) {
            if (i-- == 0)
                return *word;
        }
    }
    return NULL;
}

bool ckpt_remap_recognizes(const ckpt_remap *r)
{
    bool has = false;

    for (size_t i = 0; r && i < r->whens.n; i++)
        has = has || (r->whens.at[i].side == 1 && (r->whens.at[i].has.text || r->whens.at[i].own));
    return has;
}
