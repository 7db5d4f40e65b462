/* SPDX-License-Identifier: Apache-2.0 */
/* remap.c: applies the layout map of --map to a source. */
#include <string.h>

#include "tools/ckpt/remap.h"
#include "tools/cli/text.h"

int remap_apply(ckpt_map *map, const write_args *a, ckpt_err *err)
{
    ckpt_remap_opts opts = {.size = sizeof opts,
                            .backwards = a->backwards,
                            .config_text = a->config_text,
                            .config_name = a->config,
                            .sizes = a->sizes.n ? a->sizes.at : NULL};

    char needed[MAPS_NAME];
    const char *name = a->map;

    if (name && a->own_map)
        name = maps_needed(needed, map, &a->maps, a->map, &opts);
    if (!name) {
        if (a->map && a->sizes.n)
            say_warning("--size has no effect: no layout map is needed");
        return CKPT_OK;
    }
    int rc = maps_apply(map, &a->maps, name, &opts, err);
    if (rc != CKPT_OK && a->own_map)
        (void)strncat(err->text, " (--map none writes tensors as they are)",
                      sizeof err->text - strlen(err->text) - 1);
    return rc;
}
