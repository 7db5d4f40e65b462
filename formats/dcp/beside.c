/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beside.c: owns what accelerate and the Trainer of transformers put beside the state of a model
 * and its optimizer: the schedule, which a run takes along, and files without a place anywhere.
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

/* The object of a torch file, which becomes one of the map's files. */
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

int ckpt_dcp_beside(ckpt_map *map, const ckpt_listing *list, ckpt_err *err)
{
    const char *name = ckpt_dcp_schedule(list);
    ckpt_value *run = map->states.n == 1 ? map->states.at[0]->model : NULL, *schedule = NULL;
    int rc = ckpt_dcp_left(map, list, err);

    if (rc != CKPT_OK || !name || !run || ckpt_value_get(run, "lr_scheduler"))
        return rc;
    const char *path = ckpt_arena_printf(map->arena, "%s/%s", list->folder, name);
    rc = path ? dcb_object(&schedule, map, path, err) : ckpt_fail_memory(err);
    if (rc == CKPT_OK && !ckpt_dict_add_cstr(map->arena, &run->as.map, "lr_scheduler", schedule))
        rc = ckpt_fail_memory(err);
    return rc;
}
