/* SPDX-License-Identifier: Apache-2.0 */
/*
 * others.c: finds the other adapters in the subfolders of an adapter's folder, where peft saves all
 * of a model's adapters except the one named "default".
 */
#include <assert.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/peft/peft.h"
#include "libckpt/io/listing.h"

/* True for "checkpoint-20", a folder of the Trainer with an older state of the same adapter. */
static bool oth_is_older(const char *name)
{
    static const char start[] = "checkpoint-";
    const char *digits = name + sizeof start - 1;

    return strncmp(name, start, sizeof start - 1) == 0 && *digits &&
           digits[strspn(digits, "0123456789")] == 0;
}

/* True if the caller merges the adapter in this folder, too. */
static bool oth_is_merged(const ckpt_adapter *a, const char *folder)
{
    struct stat is, other;
    const bool here = stat(folder, &is) == 0; // false for an address

    for (const char *const *p = a->further; p && *p; p++) {
        bool there = here && stat(*p, &other) == 0;

        if (there ? other.st_dev == is.st_dev && other.st_ino == is.st_ino
                  : strcmp(*p, folder) == 0)
            return true;
    }
    return false;
}

int ckpt_peft_others(ckpt_map *map, const ckpt_adapter *adapter, ckpt_err *err)
{
    assert(map && adapter && adapter->path);
    ckpt_listing top = {0}, below;
    ckpt_map *scratch = NULL;
    const char *names = NULL;
    ckpt_err ignored = {0};
    int rc = ckpt_map_create(&scratch, 0, err);

    if (rc == CKPT_OK && ckpt_listing_read(&top, scratch, adapter->path, &ignored) != CKPT_OK)
        top = (ckpt_listing){0}; // a file
    for (size_t i = 0; rc == CKPT_OK && i < top.n; i++) {
        const char *name = top.entry[i].name;
        bool is_other = top.entry[i].is_dir && !oth_is_older(name);
        const char *path = is_other ? ckpt_path_join(scratch->arena, top.folder, name) : NULL;

        if (!path || oth_is_merged(adapter, path) ||
            ckpt_listing_read(&below, scratch, path, &ignored) != CKPT_OK ||
            !ckpt_listing_find(&below, "adapter_config.json"))
            continue;
        names = ckpt_arena_printf(map->arena, "%s%s%.100s", names ? names : "", names ? ", " : "",
                                  name);
        rc = names ? CKPT_OK : ckpt_fail_memory(err);
    }
    ckpt_map_free(scratch);
    if (rc != CKPT_OK || !names)
        return rc;
    return ckpt_map_note(map, CKPT_WARNING, err,
                         "%s: other adapters, in its subfolders, are left out: %.1000s; merge one "
                         "by a further --adapter with its folder",
                         adapter->path, names);
}
