/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.c: reads the files that accelerate, Lightning and the Trainer of transformers put beside
 * the state of model and optimizer: the schedule and Lightning's meta.pt become values of the run,
 * other files are reported as not read.
 */
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/torch/torch.h"

const char *ckpt_dcp_schedule(const ckpt_listing *list)
{
    static const char *const names[] = {"scheduler.bin", "scheduler.pt"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ckpt_entry *e = ckpt_listing_find(list, names[i]);
        if (e && !e->is_dir)
            return names[i];
    }
    return NULL;
}

int ckpt_dcp_left(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    static const char *const begins[] = {"random_states_", "rng_state", "sampler",
                                         "custom_checkpoint_", "trainer_state.json"};
    int rc = CKPT_OK;

    for (size_t i = 0; rc == CKPT_OK && i < list->n; i++) {
        const char *name = list->entry[i].name;
        bool known = false;
        for (size_t k = 0; k < sizeof begins / sizeof *begins; k++)
            known = known || strncmp(name, begins[k], strlen(begins[k])) == 0;
        if (known)
            rc = ckpt_map_note(map, CKPT_INFO, err, "%s/%s: left out", list->folder, name);
    }
    return rc;
}

/* Read the object of a torch file, and add the file to the map. */
static int dcb_object(ckpt_value **out, ckpt_map *map, const char *path, ckpt_err *err)
{
    ckpt_map_file entry = {.format = &ckpt_format_torch};
    ckpt_torch_range range = {0};
    int rc = ckpt_io_open(&range.io, path, err);

    if (rc == CKPT_OK) {
        ckpt_io_identify(range.io, &entry);
        range.n = entry.size;
        rc = ckpt_map_add_file(map, &entry, &range.file, err);
    }
    if (rc == CKPT_OK)
        rc = ckpt_torch_inner(out, map, &range, err);
    ckpt_io_close(range.io);
    return rc;
}

/*
 * Read Lightning's meta.pt, which is the dict of a whole Lightning checkpoint without model and
 * optimizers.  A single entry of lr_schedulers becomes the run's lr_scheduler.
 */
static int dcb_lightning(ckpt_map *map, ckpt_value *run, const char *folder, ckpt_err *err)
{
    const char *path = ckpt_arena_printf(map->arena, "%s/meta.pt", folder);
    ckpt_value *meta = NULL;
    int rc = path ? dcb_object(&meta, map, path, err) : ckpt_fail_memory(err);
    ckpt_dict all = rc == CKPT_OK ? ckpt_value_map(meta) : (ckpt_dict){0};

    if (rc == CKPT_OK && !ckpt_value_get(meta, "pytorch-lightning_version"))
        return ckpt_map_note(map, CKPT_INFO, err, "%s: left out: it is not Lightning's", path);
    for (uint64_t i = 0; rc == CKPT_OK && i < all.n; i++) {
        const ckpt_pair *p = &all.at[i];
        ckpt_seq schedules = ckpt_value_seq(p->value);
        bool one = ckpt_value_is(p->key, "lr_schedulers") && schedules.n == 1;
        const char *name = one                          ? "lr_scheduler"
                           : p->key->kind == CKPT_V_STR ? p->key->as.text.at
                                                        : "a key that is not a name";
        if (p->key->kind != CKPT_V_STR || ckpt_value_get(run, name))
            rc = ckpt_map_note(map, CKPT_INFO, err, "%s: left out: %.100s", path, name);
        else if (!ckpt_dict_add_cstr(map->arena, &run->as.map, name,
                                     one ? schedules.at[0] : p->value))
            rc = ckpt_fail_memory(err);
    }
    return rc;
}

int ckpt_dcp_beside(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    const char *name = ckpt_dcp_schedule(list);
    ckpt_value *run = map->states.n == 1 ? map->states.at[0]->model : NULL, *schedule = NULL;
    const ckpt_entry *meta = ckpt_listing_find(list, "meta.pt");
    int rc = ckpt_dcp_left(map, list, err);

    if (rc == CKPT_OK && run && meta && !meta->is_dir)
        rc = dcb_lightning(map, run, list->folder, err);
    if (rc != CKPT_OK || !name || !run || ckpt_value_get(run, "lr_scheduler"))
        return rc;
    const char *path = ckpt_arena_printf(map->arena, "%s/%s", list->folder, name);
    rc = path ? dcb_object(&schedule, map, path, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK && !ckpt_dict_add_cstr(map->arena, &run->as.map, "lr_scheduler", schedule))
        rc = ckpt_fail_memory(err);
    return rc;
}
