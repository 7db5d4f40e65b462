/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub.h: the two ways in which transformers names a model's tensors: as the hub's files do, and as
 * the model in memory does, whose names runs and adapters have (the map hf:packed).
 */
#ifndef TOOLS_CKPT_HUB_H
#define TOOLS_CKPT_HUB_H

#include "tools/cli/args.h"

typedef enum hub_way { HUB_TO_MEMORY, HUB_TO_FILES } hub_way;

/*
 * Give the tensors of a map the names of the other way, where the table knows the model; *did: it
 * does, and some were of this way.
 *
 * Errors   those of maps_read and ckpt_map_remap
 */
int hub_rename(ckpt_map *map, cli_args *a, hub_way way, bool *did, ckpt_err *err);

/*
 * Of two checkpoints one of which is a folder of a model: give the other the names that the hub has
 * for this model, unless the folder has those of memory itself; *did: it was done.
 */
int hub_rename_like(ckpt_map *folder, ckpt_map *other, cli_args *a, bool *did, ckpt_err *err);

/*
 * True if an adapter has modules that are no matrices of this base by their names.  What cannot be
 * opened misses nothing: merging it says why.
 */
bool hub_misses(const ckpt_map *base, const char *adapter);

/* What the names of a checkpoint say of adapters that were trained. */
typedef enum hub_adapter { HUB_NONE, HUB_ALONE, HUB_WITH_BASE } hub_adapter;

/* By its names: no adapter was trained, or one was, and its base is there too or not. */
hub_adapter hub_adapter_of(const ckpt_map *map);

#endif
