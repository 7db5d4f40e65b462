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

/*
 * Apply maps to a side.  A side that lacks sizes of its own gets those of the other side's
 * config.json.
 */
static int sly_apply(ckpt_map *map, const ckpt_map *other, const same_layout_from *from,
                     const char *name, ckpt_err *err)
{
    ckpt_remap_opts opts = *from->opts;
    ckpt_err first = {0};
    int rc = maps_apply(map, from->maps, name, &opts, &first);

    if (rc == CKPT_OK || strcmp(ckpt_map_format(other), "hf") != 0)
        return rc == CKPT_OK ? CKPT_OK : fail(err, rc, "%s", first.text);
    rc = ckpt_map_set_model_folder(map, ckpt_map_path(other), err);
    opts = *from->opts;
    if (rc == CKPT_OK)
        rc = maps_apply(map, from->maps, name, &opts, err);
    if (rc == CKPT_OK)
        say_note("%s: lacks sizes that the map %s needs: using those of %s instead",
                 ckpt_map_path(map), name, ckpt_map_path(other));
    return rc;
}

/* Apply what a side needs; if that is not possible, it keeps its names. */
static int sly_side(ckpt_map *map, const ckpt_map *other, const same_layout_from *from, char *name,
                    ckpt_err *why)
{
    ckpt_err own = {0};
    int rc = name[0] ? sly_apply(map, other, from, name, &own) : CKPT_OK;

    if (rc == CKPT_OK)
        return CKPT_OK;
    name[0] = 0;
    (void)fail(why, rc, "%s: cannot be mapped to Hugging Face's layout: %s", ckpt_map_path(map),
               own.text);
    return rc == CKPT_ELIMIT ? rc : CKPT_OK;
}

int same_layout_meet(ckpt_map *a, ckpt_map *b, const same_layout_from *from, same_layout *out,
                     ckpt_err *why, ckpt_err *err)
{
    int rc;

    sly_needed(out->a, a, from);
    sly_needed(out->b, b, from);
    if (!from->always && strcmp(out->a, out->b) == 0) {
        out->a[0] = out->b[0] = 0;
        return CKPT_OK;
    }
    rc = sly_side(a, b, from, out->a, why);
    if (rc == CKPT_OK)
        rc = sly_side(b, a, from, out->b, why);
    return rc == CKPT_OK ? CKPT_OK : fail(err, rc, "%s", why->text);
}

int same_layout_apply(ckpt_map *a, const ckpt_map *b, const same_layout_from *from,
                      const char *name, same_layout *out, ckpt_err *err)
{
    (void)snprintf(out->a, sizeof out->a, "%s", maps_base(name));
    return sly_apply(a, b, from, name, err);
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
