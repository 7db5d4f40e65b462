/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c: keeps and renames tensors of a map in place, and implements the public functions for
 * layout maps.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ckpt_shape.h"
#include "libckpt/base/opts.h"
#include "libckpt/codec/json/json.h"
#include "libckpt/map/extent.h"
#include "libckpt/map/savepoint.h"
#include "libckpt/transform/keymap/keymap.h"

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
    if (f->skip_state && t->role == CKPT_ROLE_STATE)
        return false;
    if (f->include && !sel_any(f->include, t->name))
        return false;
    return !(f->exclude && sel_any(f->exclude, t->name));
}

/* Warn about patterns without a match: misspelt, or for another model. */
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

                // a name that no include pattern matches need not be excluded
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

/*
 * Drop metadata about ties by name, because it would be wrong after names changed (the ties
 * themselves stay).
 */
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

/* Remember the tensors that are not kept, with those of earlier selections. */
static int sel_note_left_out(ckpt_map *map, const ckpt_tensors *all, const bool *keep,
                             ckpt_err *err)
{
    size_t n = map->n_left_out;
    ckpt_tensor **left = ckpt_arena_alloc(map->arena, (n + all->n + 1) * sizeof *left);

    if (!left)
        return ckpt_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        left[i] = map->left_out[i];
    for (size_t i = 0; i < all->n; i++) {
        if (!keep[i])
            left[n++] = all->at[i];
    }
    map->left_out = left;
    map->n_left_out = n;
    return CKPT_OK;
}

static int sel_apply(ckpt_map *map, const ckpt_filter *f, ckpt_err *err)
{
    ckpt_tensors old = map->tensors;
    bool *keep = ckpt_alloc(old.n ? old.n : 1);
    int rc = keep ? CKPT_OK : ckpt_fail_memory(err);

    for (size_t i = 0; rc == CKPT_OK && i < old.n; i++)
        keep[i] = sel_keeps(f, old.at[i]);
    // the index of the owner in the list tells whether it is kept, without a search
    for (size_t i = 0; rc == CKPT_OK && i < old.n; i++) {
        const ckpt_tensor *owner = old.at[i]->owner;
        size_t at = owner ? ckpt_map_index(map, owner->name, strlen(owner->name)) : SIZE_MAX;
        if (keep[i] && owner && (at == SIZE_MAX || !keep[at]))
            ckpt_extent_own(old.at[i], old.at, old.n);
    }
    size_t kept = 0;
    if (rc == CKPT_OK)
        rc = sel_note_left_out(map, &old, keep, err);
    for (size_t i = 0; rc == CKPT_OK && i < old.n; i++) {
        if (keep[i])
            map->tensors.at[kept++] = old.at[i];
    }
    map->tensors.n = rc == CKPT_OK ? kept : old.n;
    if (rc == CKPT_OK)
        rc = ckpt_map_reindex(map, err);
    ckpt_free(keep);
    return rc;
}

/* Rename rules are a layout map without axes. */
static int sel_parse(ckpt_remap **out, const char *text, ckpt_err *err)
{
    return ckpt_remap_parse(out, "rename rules", text, strlen(text), true, err);
}

/* Select and rename; a failure leaves the map half changed. */
static int sel_run(ckpt_map *map, const ckpt_filter *filter, ckpt_remap *rules, ckpt_err *err)
{
    size_t before = map->tensors.n;
    int rc;

    sel_drop_ties(map);
    rc = sel_unmatched(map, filter, err);
    if (rc == CKPT_OK)
        rc = sel_apply(map, filter, err);
    if (rc == CKPT_OK && rules)
        rc = ckpt_remap_apply(map, rules, &(ckpt_remap_how){0}, err);
    if (rc == CKPT_OK && before > 0 && map->tensors.n == 0)
        rc = ckpt_fail(err, CKPT_EMISSING,
                       "%s: the patterns select none of the %zu tensors: a pattern must match the "
                       "whole name, as '*.weight' does (ckpt ls lists the names)",
                       map->path, before);
    if (filter->include || filter->exclude) {
        map->selected = true;
        map->dicts = NULL;
    }
    return rc;
}

int ckpt_map_select(ckpt_map *map, const ckpt_filter *filter, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_remap *rules = NULL;
    ckpt_savepoint *saved = NULL;
    ckpt_filter own;
    int rc = ckpt_opts_take(&own, sizeof own, filter, "ckpt_filter", err);

    if (rc == CKPT_OK && !map)
        rc = ckpt_fail(err, CKPT_EUSAGE, "no map to select from");
    if (rc == CKPT_OK && own.rename_text)
        rc = sel_parse(&rules, own.rename_text, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_end(saved, sel_run(map, &own, rules, err));
    ckpt_remap_free(rules);
    return rc;
}

/* ---- layout maps ---- */

int ckpt_remap_new(ckpt_remap **out, const char *name, const char *text, ckpt_err *err)
{
    ckpt_err_clear(err);
    if (out)
        *out = NULL;
    if (!out || !name || !text)
        return ckpt_fail(err, CKPT_EUSAGE, "no layout map: its name, its text or out is NULL");
    return ckpt_remap_parse(out, name, text, strlen(text), false, err);
}

/* Convert the caller's options; *model: parsed from config_text. */
static int sel_how(ckpt_remap_how *how, ckpt_map *map, const ckpt_remap_opts *opts, ckpt_err *err)
{
    ckpt_remap_opts own;
    ckpt_value *model = NULL;
    int rc = ckpt_opts_take(&own, sizeof own, opts, "ckpt_remap_opts", err);

    if (rc == CKPT_OK && own.config_text) {
        ckpt_json_text text = {.name = own.config_name ? own.config_name : "the configuration",
                               .at = own.config_text,
                               .n = strlen(own.config_text),
                               .max = 1 << 24};
        rc = ckpt_json_parse(&model, map->arena, &text, err);
    }
    *how = (ckpt_remap_how){.backwards = own.backwards,
                            .model = model,
                            .text = model ? own.config_text : NULL,
                            .sizes = own.sizes,
                            .like = own.like,
                            .left = own.left,
                            .left_ctx = own.left_ctx};
    return rc;
}

int ckpt_remap_matches(ckpt_map *map, ckpt_remap *r, const ckpt_remap_opts *opts, bool *yes,
                       ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_remap_how how;

    if (!map || !r || !yes)
        return ckpt_fail(err, CKPT_EUSAGE, "no layout map, or nothing to apply it to");
    int rc = sel_how(&how, map, opts, err);
    *yes = rc == CKPT_OK && ckpt_remap_fits(r, map, &how);
    return rc;
}

/*
 * Add a fact for the closing line: the layout map and its number of rules, after those of earlier
 * layout maps.
 */
static int sel_proved(ckpt_map *map, const ckpt_remap *r, ckpt_err *err)
{
    const ckpt_remap_proof p = ckpt_remap_proved(r);
    char left[64] = "";
    ckpt_fact *earlier = NULL;

    if (p.n_dropped)
        (void)snprintf(left, sizeof left, ", %" PRIu64 " tensor%s left out by name", p.n_dropped,
                       p.n_dropped == 1 ? "" : "s");
    const char *text =
        ckpt_arena_printf(map->arena, "%s, %" PRIu64 " rule%s, each element used once%s",
                          ckpt_remap_name(r), p.n_rules, p.n_rules == 1 ? "" : "s", left);
    for (size_t i = 0; i < map->facts.n; i++) {
        if (strcmp(map->facts.at[i].key, "layout map") == 0)
            earlier = &map->facts.at[i];
    }
    if (!text)
        return ckpt_fail_memory(err);
    if (!earlier)
        return ckpt_map_fact(map, err, "layout map", "%s", text);
    earlier->text = ckpt_arena_printf(map->arena, "%s; then %s", earlier->text, text);
    return earlier->text ? CKPT_OK : ckpt_fail_memory(err);
}

/* Apply a layout map; a failure leaves the map half changed. */
static int sel_remap(ckpt_map *map, ckpt_remap *r, const ckpt_remap_how *how, ckpt_err *err)
{
    const bool lora = ckpt_remap_lora(r, map);

    sel_drop_ties(map);
    int rc = lora ? ckpt_remap_lora_begin(map, how->backwards, err) : CKPT_OK;
    if (rc == CKPT_OK)
        rc = ckpt_remap_apply(map, r, how, err);
    if (rc == CKPT_OK && lora)
        rc = ckpt_remap_lora_end(map, !how->backwards, err);
    return rc == CKPT_OK ? sel_proved(map, r, err) : rc;
}

int ckpt_map_remap(ckpt_map *map, ckpt_remap *r, const ckpt_remap_opts *opts, ckpt_err *err)
{
    ckpt_err_clear(err);
    ckpt_remap_how how;
    ckpt_savepoint *saved = NULL;

    if (!map || !r)
        return ckpt_fail(err, CKPT_EUSAGE, "no layout map, or nothing to apply it to");
    int rc = sel_how(&how, map, opts, err);
    if (rc == CKPT_OK)
        rc = ckpt_savepoint_new(&saved, map, err);
    return rc == CKPT_OK ? ckpt_savepoint_end(saved, sel_remap(map, r, &how, err)) : rc;
}
