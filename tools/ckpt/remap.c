/* SPDX-License-Identifier: Apache-2.0 */
/* remap.c: applies the layout map of --map to a source. */
#include <string.h>

#include "tools/ckpt/remap.h"
#include "tools/cli/text.h"

/* The options of maps. */
static ckpt_remap_opts remap_opts(const write_args *a)
{
    return (ckpt_remap_opts){.size = sizeof(ckpt_remap_opts),
                             .backwards = a->backwards && !a->own_map,
                             .config_text = a->config_text,
                             .config_name = a->config,
                             .sizes = a->sizes.n ? a->sizes.at : NULL};
}

/* The name of the maps to apply, in `needed` if no option names them; NULL: none. */
static const char *remap_name(char needed[MAPS_NAME], ckpt_map *map, const write_args *a,
                              ckpt_remap_opts *opts)
{
    return a->map && a->own_map ? maps_needed(needed, map, &a->maps, a->map, opts) : a->map;
}

bool remap_keeps_blocks(ckpt_map *map, const write_args *a)
{
    ckpt_remap_opts opts = remap_opts(a), own = opts;
    char needed[MAPS_NAME];
    const char *name = remap_name(needed, map, a, &own);

    return name && maps_keep_blocks(map, &a->maps, name, &opts);
}

int remap_apply(ckpt_map *map, const write_args *a, ckpt_err *err)
{
    ckpt_remap_opts opts = remap_opts(a);
    char needed[MAPS_NAME];
    const char *name = remap_name(needed, map, a, &opts);

    if (!name) {
        if (a->map && a->sizes.n)
            say_warning("--size has no effect: no layout map is needed");
        return CKPT_OK;
    }
    if (a->backwards && !a->own_map && !maps_is_file(&a->maps, name))
        return fail(err, CKPT_EUSAGE,
                    "--backwards applies to the map in a file, but the layouts of --map %s name "
                    "the direction: name them in the other order",
                    name);
    int rc = maps_apply(map, &a->maps, name, &opts, err);
    if (rc != CKPT_OK && a->own_map)
        (void)strncat(err->text, " (--map none writes tensors as they are)",
                      sizeof err->text - strlen(err->text) - 1);
    return rc;
}
