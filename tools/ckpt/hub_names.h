/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub_names.h: declares the conversion between the two sets of names that transformers has for a
 * model's tensors: the names in the hub's files, and those of the model in memory, which training
 * runs and adapters use (the map hf:packed).
 */
#ifndef TOOLS_CKPT_HUB_H
#define TOOLS_CKPT_HUB_H

#include "tools/cli/write_args.h"

typedef enum hub_way { HUB_TO_MEMORY, HUB_TO_FILES } hub_way;

/* The maps to choose from, and the model's configuration. */
typedef struct hub_source {
    const cli_maps *maps;                  /* NULL: the installed maps, read for each call */
    const char *config_text, *config_name; /* text and name of config.json; NULL: the folder's */
} hub_source;

/* The source that the options of a command select. */
hub_source hub_source_of(const write_args *a);

/*
 * Rename the tensors of a map to the other set, if the table knows the model.  *did: some were
 * renamed.
 *
 * Errors   those of maps_read and ckpt_map_remap
 */
int hub_rename(ckpt_map *map, const hub_source *from, hub_way way, bool *did, ckpt_err *err);

/*
 * If one of two checkpoints is a model folder, rename the other's tensors to the hub's names for
 * this model.  Nothing changes if the folder itself has the names in memory.  *did: names were
 * changed.
 */
int hub_rename_like(ckpt_map *folder, ckpt_map *other, const hub_source *from, bool *did,
                    ckpt_err *err);

/*
 * True if an adapter changes or replaces tensors that this base lacks under their names.  False if
 * the adapter cannot be opened, because merging it reports the reason.
 */
bool hub_misses(const ckpt_map *base, const char *adapter);

/* Adapters that a checkpoint contains, according to its names. */
typedef enum hub_adapter {
    HUB_NONE,
    HUB_ALONE,
    HUB_WITH_BASE,
    HUB_NOT_LORA, /* a PEFT model whose adapter is of another type, and its base */
} hub_adapter;

/* Find whether a run trained an adapter, and whether its base is in the checkpoint too. */
hub_adapter hub_adapter_of(const ckpt_map *map);

/*
 * If one of n models is a folder with the hub's names, rename the others' tensors to the hub's
 * names; *n_did: the number of renamed models.  If all models have the names in memory, nothing
 * changes.
 */
int hub_meet(ckpt_map *const *maps, size_t n, const hub_source *from, size_t *n_did, ckpt_err *err);

#endif
