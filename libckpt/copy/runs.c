/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.c: names and orders the checkpoints of a run, for the drivers and for `ckpt doctor`.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/copy/runs.h"

#include "libckpt/base/number.h"

enum { RUN_MAX_LISTED = 12 }; /* limit of names in a message */

int64_t ckpt_run_number(const ckpt_run_layout *run, const char *folder)
{
    assert(run && folder);
    char text[CKPT_RUN_NAME];
    int64_t number = 0;

    if (!run->text(text, folder))
        return -1;
    // Megatron's "release" has no number: it comes before all iterations
    return ckpt_parse_i64(text, &number) ? number : 0;
}

int ckpt_run_tags(const char **out, const ckpt_listing *run, ckpt_run_entry_fn *is_tag,
                  const void *ctx, ckpt_err *err)
{
    assert(out && run && is_tag);
    ckpt_arena *arena = run->map->arena;
    const char *text = NULL;
    unsigned n = 0;

    for (size_t i = 0; i < run->n && n <= RUN_MAX_LISTED; i++) {
        const char *name = run->entry[i].name;

        if (!run->entry[i].is_dir || !is_tag(run, &run->entry[i], ctx))
            continue;
        name = n++ == RUN_MAX_LISTED ? "..." : name;
        text = text ? ckpt_arena_printf(arena, "%s, %s", text, name) : name;
        if (!text)
            return ckpt_fail_memory(err);
    }
    *out = text;
    return CKPT_OK;
}

int ckpt_run_no_tag(const ckpt_listing *run, ckpt_run_entry_fn *is_tag, const void *ctx,
                    const char *why, ckpt_err *err)
{
    const char *tags = NULL;
    int rc = ckpt_run_tags(&tags, run, is_tag, ctx, err);

    return rc != CKPT_OK
               ? rc
               : ckpt_fail(err, CKPT_EMISSING, "%s: %s; tags here: %s; choose one with -t/--tag",
                           run->folder, why, tags ? tags : "none");
}
