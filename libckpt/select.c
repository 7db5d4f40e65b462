/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c: keeping and renaming tensors of a map, in place.
 */
#include <fnmatch.h>
#include <string.h>

#include "ckpt.h"
#include "libckpt/base/opts.h"
#include "libckpt/map/map.h"

typedef struct sel_rule {
    const char *pattern, *replacement;
    unsigned line;
    bool met; /* it has renamed a tensor */
} sel_rule;

CKPT_VEC(sel_rules, sel_rule);

enum { SEL_MAX_STARS = 16 };

static bool sel_any(const char *const *globs, const char *name)
{
    for (; *globs; globs++) {
        if (fnmatch(*globs, name, 0) == 0)
            return true;
    }
    return false;
}

static bool sel_keeps(const ckpt_filter *f, const ckpt_tensor *t)
{
    if (f->no_state && t->role == CKPT_ROLE_STATE)
        return false;
    if (f->include && !sel_any(f->include, t->name))
        return false;
    return !(f->exclude && sel_any(f->exclude, t->name));
}

/* Say which patterns met nothing that they could act on: misspelt, or for another model. */
static int sel_unmatched(ckpt_map *map, const ckpt_filter *f, ckpt_err *err)
{
    const char *const *lists[] = {f->include, f->exclude};
    static const char *const words[] = {"include", "exclude"};
    int rc = CKPT_OK;

    for (size_t k = 0; k < 2; k++) {
        for (const char *const *glob = lists[k]; rc == CKPT_OK && glob && *glob; glob++) {
            bool met = false;

            for (size_t i = 0; !met && i < map->tensors.n; i++) {
                const char *name = map->tensors.at[i]->name;

                // what is not included need not be excluded
                met = fnmatch(*glob, name, 0) == 0 &&
                      (k == 0 || !f->include || sel_any(f->include, name));
            }
            if (!met)
                rc = ckpt_map_note(map, CKPT_WARNING, err, "%s '%.200s': matches no tensor",
                                   words[k], *glob);
        }
    }
    return rc;
}

/* One blank-separated word of a rule line; NULL at its end.  Moves *at past it. */
static const char *sel_word(ckpt_arena *a, const char **at)
{
    while (**at == ' ' || **at == '\t')
        (*at)++;
    size_t n = strcspn(*at, " \t\r\n");
    const char *word = n ? ckpt_arena_string(a, *at, n) : NULL;
    *at += n;
    return word;
}

static unsigned sel_stars(const char *s)
{
    unsigned n = 0;

    for (; *s; s++)
        n += *s == '*';
    return n;
}

static int sel_parse(sel_rules *rules, ckpt_map *map, const char *text, ckpt_err *err)
{
    for (unsigned line = 1; *text; line++) {
        const char *pattern = sel_word(map->arena, &text);
        if (pattern && pattern[0] != '#') {
            const char *replacement = sel_word(map->arena, &text);
            const char *rest = replacement ? sel_word(map->arena, &text) : NULL;
            if (!replacement || rest)
                return ckpt_fail(err, CKPT_EUSAGE,
                                 "rename rules, line %u: expected PATTERN REPLACEMENT", line);
            if (sel_stars(replacement) > sel_stars(pattern) || sel_stars(pattern) > SEL_MAX_STARS)
                return ckpt_fail(
                    err, CKPT_EUSAGE,
                    "rename rules, line %u: more '*' in the replacement than in the pattern", line);
            sel_rule *r = ckpt_vec_push(rules);
            if (!r)
                return ckpt_fail_memory(err);
            r->pattern = pattern;
            r->replacement = replacement;
            r->line = line;
        }
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return CKPT_OK;
}

/*
 * Match a whole name; '*' takes the shortest run that lets the rest match (going back only to the
 * last star, so the time is bounded by the product of the lengths).  from/to: the run each star
 * took.
 */
static bool sel_match(const char *p, const char *s, const char *from[], const char *to[])
{
    const char *star = NULL;
    unsigned n = 0;

    while (*s || *p) {
        if (*p == '*') {
            star = p++;
            from[n] = to[n] = s;
            n++;
        } else if (*p && *p == *s) {
            p++;
            s++;
        } else if (star && *to[n - 1]) {
            s = ++to[n - 1];
            p = star + 1;
        } else {
            return false;
        }
    }
    return true;
}

/* The new name by the first rule that matches; the old one when none does; NULL when memory is
 * exhausted. */
static const char *sel_rename(sel_rules *rules, ckpt_arena *a, const char *name)
{
    const char *from[SEL_MAX_STARS], *to[SEL_MAX_STARS];

    for (size_t i = 0; i < rules->n; i++) {
        if (!sel_match(rules->at[i].pattern, name, from, to))
            continue;
        rules->at[i].met = true;
        ckpt_bytes b = {0};
        unsigned star = 0;
        bool ok = true;
        for (const char *r = rules->at[i].replacement; ok && *r; r++) {
            if (*r == '*') {
                ok = ckpt_bytes_add(&b, from[star], (size_t)(to[star] - from[star]));
                star++;
            } else {
                ok = ckpt_bytes_add(&b, r, 1);
            }
        }
        const char *out = ok ? ckpt_arena_string(a, (const char *)b.at, b.n) : NULL;
        ckpt_vec_free(&b);
        return out;
    }
    return name;
}

/* Metadata that records ties by name would lie after names changed: drop it (the ties themselves
 * stay). */
static void sel_drop_ties(ckpt_map *map)
{
    uint64_t kept = 0;

    for (uint64_t i = 0; i < map->metadata.n; i++) {
        const ckpt_text key = map->metadata.at[i].key->as.text;
        size_t at = ckpt_map_index(map, key.at, key.n);
        if (at == SIZE_MAX || !map->tensors.at[at]->owner)
            map->metadata.at[kept++] = map->metadata.at[i];
    }
    map->metadata.n = kept;
}

/* A kept name whose owner was dropped takes the bytes over; later names of the same owner follow
 * it. */
static void sel_adopt(ckpt_tensor *t, ckpt_tensor *const *all, const bool *keep, size_t n)
{
    const ckpt_tensor *owner = t->owner;

    t->extent = owner->extent;
    t->n_extents = owner->n_extents;
    t->twin = owner->twin;
    t->addend = owner->addend;
    t->owner = NULL;
    for (size_t i = 0; i < n; i++) {
        if (keep[i] && all[i]->owner == owner && all[i] != t)
            all[i]->owner = t;
    }
}

static int sel_apply(ckpt_map *map, const ckpt_filter *f, sel_rules *rules, ckpt_err *err)
{
    ckpt_tensors old = map->tensors;
    bool *keep = ckpt_alloc(old.n ? old.n : 1);
    int rc = keep ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < old.n; i++)
        keep[i] = sel_keeps(f, old.at[i]);
    // an owner is dropped when it is not kept: find it by a mark that costs no search
    for (size_t i = 0; rc == CKPT_OK && i < old.n; i++) {
        const ckpt_tensor *owner = old.at[i]->owner;
        size_t at = owner ? ckpt_map_index(map, owner->name, strlen(owner->name)) : SIZE_MAX;
        if (keep[i] && owner && (at == SIZE_MAX || !keep[at]))
            sel_adopt(old.at[i], old.at, keep, old.n);
    }
    size_t kept = 0;
    for (size_t i = 0; rc == CKPT_OK && i < old.n; i++) {
        if (keep[i])
            map->tensors.at[kept++] = old.at[i];
    }
    map->tensors.n = rc == CKPT_OK ? kept : old.n;
    for (size_t i = 0; rc == CKPT_OK && rules->n && i < map->tensors.n; i++) {
        const char *name = sel_rename(rules, map->arena, map->tensors.at[i]->name);
        if (!name)
            rc = ckpt_fail_memory(err);
        else if (!ckpt_name_ok(name, strlen(name)))
            rc = ckpt_fail(err, CKPT_EUSAGE, "rename rules: '%s' is not a name for a tensor", name);
        else
            map->tensors.at[i]->name = name;
    }
    if (rc == CKPT_OK)
        rc = ckpt_map_reindex(map, err);
    ckpt_free(keep);
    return rc;
}

int ckpt_map_select(ckpt_map *map, const ckpt_filter *filter, ckpt_err *err)
{
    sel_rules rules = {0};
    ckpt_filter own;
    size_t before = map ? map->tensors.n : 0;
    int rc = ckpt_opts_take(&own, sizeof own, filter, "ckpt_filter", err);

    if (rc == CKPT_OK && !map)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map to select from");
    if (rc != CKPT_OK)
        return rc;
    filter = &own;
    rc = filter->rename_text ? sel_parse(&rules, map, filter->rename_text, err) : CKPT_OK;

    if (rc == CKPT_OK) {
        sel_drop_ties(map);
        rc = sel_unmatched(map, filter, err);
    }
    if (rc == CKPT_OK)
        rc = sel_apply(map, filter, &rules, err);
    for (size_t i = 0; rc == CKPT_OK && i < rules.n; i++) {
        if (!rules.at[i].met)
            rc = ckpt_map_note(map, CKPT_WARNING, err,
                               "rename rules, line %u: '%.200s' matches no tensor that an earlier "
                               "rule leaves",
                               rules.at[i].line, rules.at[i].pattern);
    }
    if (rc == CKPT_OK && before > 0 && map->tensors.n == 0)
        rc = ckpt_fail(err, CKPT_EMISSING,
                       "%s: none of the %zu tensors is selected by the given names", map->path,
                       before);
    ckpt_vec_free(&rules);
    return rc;
}
