/* SPDX-License-Identifier: Apache-2.0 */
/* same_layout.c: brings the two sides of a comparison to one layout. */
#include "tools/ckpt/same_layout.h"

#include <stdio.h>
#include <string.h>

#include "tools/cli/out.h"

/* The maps from a side to Hugging Face's layout; "": none are needed. */
static void sly_needed(char name[MAPS_NAME], ckpt_map *map, const same_layout_from *from)
{
    ckpt_remap_opts opts = *from->opts;

    if (!maps_needed(name, map, from->maps, "hf", &opts))
        name[0] = 0;
    // the two sets of names that transformers has are one layout here (hub_names.h)
    if (strncmp(name, "packed:", 7) == 0)
        name[0] = 0;
}

/* Apply maps to a side.  A side that lacks sizes of its own gets those of the other side. */
static int sly_apply(ckpt_map *map, ckpt_map *other, const same_layout_from *from, const char *name,
                     ckpt_err *err)
{
    ckpt_remap_opts opts = *from->opts;
    int rc;

    opts.like = other;
    rc = maps_apply(map, from->maps, name, &opts, err);
    // the other side's may be another model's, or a file of this one is missing
    if (rc == CKPT_OK && opts.like)
        say_warning(
            "%s: its configuration lacks values that the layout map %s needs: using those of "
            "%s, the other side",
            ckpt_map_path(map), name, ckpt_map_path(other));
    return rc;
}

/* The results of mapping both sides. */
typedef struct sly_results {
    int rc[2];
    ckpt_err why[2];
} sly_results;

/* Apply the maps of each side. */
static sly_results sly_both(ckpt_map *a, ckpt_map *b, const same_layout_from *from,
                            const same_layout *names)
{
    sly_results r = {0};

    if (names->a[0])
        r.rc[0] = sly_apply(a, b, from, names->a, &r.why[0]);
    if (names->b[0])
        r.rc[1] = sly_apply(b, a, from, names->b, &r.why[1]);
    // a map of B, such as a GGUF file's, may have made the configuration that A lacks
    if (r.rc[0] != CKPT_OK && r.rc[1] == CKPT_OK && names->b[0]) {
        ckpt_err again = {0};
        char rest[MAPS_NAME];

        // the first of several maps may have succeeded
        sly_needed(rest, a, from);
        if (sly_apply(a, b, from, rest[0] ? rest : names->a, &again) == CKPT_OK)
            r.rc[0] = CKPT_OK;
    }
    return r;
}

int same_layout_meet(ckpt_map *a, ckpt_map *b, const same_layout_from *from, same_layout *out,
                     ckpt_err *why, ckpt_err *err)
{
    ckpt_map *const side[2] = {a, b};
    char *const name[2] = {out->a, out->b};

    sly_needed(out->a, a, from);
    sly_needed(out->b, b, from);
    if (!from->always && strcmp(out->a, out->b) == 0) {
        out->a[0] = out->b[0] = 0;
        return CKPT_OK;
    }
    const sly_results r = sly_both(a, b, from, out);
    for (unsigned i = 0; i < 2; i++) {
        if (r.rc[i] == CKPT_OK)
            continue;
        // this side keeps its names
        name[i][0] = 0;
        (void)fail(why, r.rc[i], "%s: cannot be mapped to Hugging Face's layout: %s",
                   ckpt_map_path(side[i]), r.why[i].text);
        if (r.rc[i] == CKPT_ELIMIT)
            return fail(err, r.rc[i], "%s", why->text);
    }
    return CKPT_OK;
}

/*
 * For LAYOUT_A:LAYOUT_B without a map between both, the maps of each side to Hugging Face's layout.
 * False: another name.
 */
static bool sly_sides(const char *name, const same_layout_from *from, same_layout *out)
{
    const char *colon = strchr(name, ':');
    char side[MAPS_NAME], direct[MAPS_NAME] = "";

    if (!colon || strchr(colon + 1, ':') || maps_is_path(name) || strlen(name) >= sizeof side)
        return false;
    (void)snprintf(side, sizeof side, "%.*s", (int)(colon - name), name);
    if (!maps_route(direct, from->maps, side, colon + 1))
        return false;
    // a direct map of A alone, or none because both have one layout
    if (strcmp(direct, name) == 0)
        return false;
    if (!maps_route(out->a, from->maps, side, "hf") ||
        !maps_route(out->b, from->maps, colon + 1, "hf"))
        return false;
    // Hugging Face's own layout needs no map
    out->a[0] = strchr(out->a, ':') ? out->a[0] : 0;
    out->b[0] = strchr(out->b, ':') ? out->b[0] : 0;
    return true;
}

int same_layout_apply(ckpt_map *a, ckpt_map *b, const same_layout_from *from, const char *name,
                      same_layout *out, ckpt_err *err)
{
    *out = (same_layout){0};
    if (!sly_sides(name, from, out)) {
        *out = (same_layout){0};
        (void)snprintf(out->a, sizeof out->a, "%s", maps_base(name));
        return sly_apply(a, b, from, name, err);
    }
    const sly_results r = sly_both(a, b, from, out);
    return r.rc[0] != CKPT_OK   ? fail(err, r.rc[0], "%s", r.why[0].text)
           : r.rc[1] != CKPT_OK ? fail(err, r.rc[1], "%s", r.why[1].text)
                                : CKPT_OK;
}

size_t same_layout_dtypes(const ckpt_map *a, const ckpt_map *b)
{
    size_t n = 0;

    for (size_t i = 0; i < ckpt_map_tensor_count(a); i++) {
        const ckpt_tensor *x = ckpt_map_tensor_at(a, i), *y = ckpt_map_find(b, x->name);

        n += y && x->dtype != y->dtype;
    }
    return n;
}
