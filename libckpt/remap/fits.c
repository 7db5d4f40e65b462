/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fits.c: is a text, or a part of it, meant for this checkpoint?
 */
#include <string.h>

#include "libckpt/remap/expr.h"

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

/* Is there a tensor of such a name? */
static bool fit_has(const ckpt_map *map, const ckpt_rm_term *t)
{
    ckpt_rm_capture c;
    bool has = false;

    for (size_t i = 0; !has && i < map->tensors.n; i++)
        has = ckpt_rm_match(t, map->tensors.at[i]->name, &c);
    return has;
}

bool ckpt_remap_fits(ckpt_remap *r, ckpt_map *map, const ckpt_remap_how *how)
{
    ckpt_rm_facts f;
    ckpt_err ignored = {0};
    bool fits = true, known;

    if (r->whens.n == 0)
        return true;
    // a configuration that cannot be read says nothing here; applying the map says why
    (void)ckpt_rm_facts_open(&f, r, map, how, &ignored);
    for (size_t i = 0; fits && i < r->whens.n; i++) {
        const ckpt_rm_when *w = &r->whens.at[i];
        if (w->side == how->backwards)
            fits = w->has.text ? fit_has(map, &w->has) : ckpt_rm_holds(&f, w, &known);
    }
    return fits;
}

bool ckpt_remap_recognizes(const ckpt_remap *r)
{
    bool has = false;

    for (size_t i = 0; r && i < r->whens.n; i++)
        has = has || (r->whens.at[i].side == 1 && r->whens.at[i].has.text);
    return has;
}
