/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap.c: the layout map that --map names, applied to what was opened.
 */
#include <string.h>

#include "tools/ckpt/remap.h"
#include "tools/cli/text.h"

int remap_apply(ckpt_map *map, const cli_args *a, ckpt_err *err)
{
    ckpt_remap_opts opts = {.size = sizeof opts,
                            .backwards = a->backwards,
                            .config_text = a->config_text,
                            .config_name = a->config,
                            .sizes = a->sizes.n ? a->sizes.at : NULL};

    // what has its format already needs no map for it
    const ckpt_format_info *from = ckpt_format_named(ckpt_map_format(map));
    const ckpt_format_info *to = ckpt_format_named(a->target.format);

    if (!a->map)
        return CKPT_OK;
    if (a->own_map && ((from && from->layout && strcmp(from->layout, to->layout) == 0) ||
                       (maps_only_if_fit(to->layout) && !maps_fit(map, &a->maps, a->map, &opts)))) {
        if (a->config_text && maps_only_if_fit(to->layout))
            say_warning("--config FILE has no effect: no layout map is needed (of a FOLDER, "
                        "configuration and tokenizer go along)");
        return CKPT_OK;
    }
    int rc = maps_apply(map, &a->maps, a->map, &opts, err);
    if (rc != CKPT_OK && a->own_map)
        (void)strncat(err->text, " (--map none writes tensors as they are)",
                      sizeof err->text - strlen(err->text) - 1);
    return rc;
}
