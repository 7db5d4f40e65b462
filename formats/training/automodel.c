/* SPDX-License-Identifier: Apache-2.0 */
/*
 * automodel.c: finds the finished and unfinished checkpoints of NeMo Automodel.
 */
#include "formats/training/automodel.h"

#include <assert.h>
#include <string.h>

#include "formats/training/step_folders.h"
#include "libckpt/map/map.h"

static const char aum_model[] = "model", aum_optimizer[] = "optim", aum_done[] = ".metadata";

/* List a folder in a checkpoint's; false: it is missing. */
static bool aum_list(ckpt_listing *out, const ckpt_listing *step, const char *name)
{
    const char *path = ckpt_listing_has(step, name, true)
                           ? ckpt_path_join(step->map->arena, step->folder, name)
                           : NULL;

    return path && ckpt_listing_read(out, step->map, path, NULL) == CKPT_OK;
}

/* The first file with this beginning and the end ".safetensors", or NULL. */
static const char *aum_file(const ckpt_listing *list, const char *begin)
{
    static const char end[] = ".safetensors";

    for (size_t i = 0; i < list->n; i++) {
        const char *name = list->entry[i].name;
        size_t n = strlen(name);
        if (!list->entry[i].is_dir && strncmp(name, begin, strlen(begin)) == 0 && n > sizeof end &&
            strcmp(name + n - (sizeof end - 1), end) == 0)
            return name;
    }
    return NULL;
}

static bool aum_has_shards(const ckpt_listing *step)
{
    ckpt_listing model;

    return aum_list(&model, step, aum_model) && aum_file(&model, "shard-");
}

bool ckpt_automodel_saved(const ckpt_listing *step)
{
    assert(step);
    ckpt_listing below;

    if (aum_list(&below, step, aum_optimizer))
        return ckpt_listing_find(&below, aum_done) != NULL;
    return !ckpt_listing_find(step, "config.yaml"); // written before the model
}

bool ckpt_automodel_cut(const ckpt_listing *step)
{
    assert(step);
    const char *slash = strrchr(step->folder, '/'), *name = slash ? slash + 1 : step->folder;
    ckpt_listing model;

    if (strncmp(name, "epoch_", 6) != 0 || !strstr(name, "_step_"))
        return false;
    return !ckpt_automodel_saved(step) || !aum_list(&model, step, aum_model) ||
           !(ckpt_listing_find(&model, aum_done) || aum_file(&model, ""));
}

const char *ckpt_automodel_other(const ckpt_listing *step)
{
    assert(step);
    ckpt_listing model;

    return aum_list(&model, step, aum_model) && !ckpt_listing_find(&model, aum_done)
               ? aum_file(&model, "")
               : NULL;
}

/* epoch_0_step_20 and others. */
const ckpt_run_layout ckpt_automodel_shards = {
    .is_tag = aum_has_shards,
    .is_done = ckpt_automodel_saved,
    .is_cut = ckpt_automodel_cut,
    .pointer = "",
    .text = ckpt_train_number_of,
};
