/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.h: reads several model-parallel ranks separately, and puts them into one map.
 *
 *     grid.c  determines the ranks, reads them and adopts their maps
 *     join.c  joins slices into full tensors
 */
#ifndef CKPT_FORMATS_DS_GRID_H
#define CKPT_FORMATS_DS_GRID_H

#include "formats/deepspeed/folder/folder.h"

/* Returns whether the folder's files must be read in several parts. */
bool ckpt_ds_grid_needed(const ckpt_ds_folder *dir);

/* Reads all parts, each into its own map, and puts them into job->map, joined or separately
 * (keep_slices). When the caller collects findings, job->broken means that the map has no
 * tensors. */
int ckpt_ds_grid_read(ckpt_ds_job *job, const ckpt_ds_folder *dir);

/* One part of a model: a model-parallel rank, or an expert-parallel rank of stage 0. */
typedef struct ckpt_ds_slice {
    ckpt_map *map;  /* adopted by the output map */
    uint32_t stage; /* pipeline stage */
    uint32_t tp;    /* tensor-parallel rank in the stage */
    bool broken;    /* when collecting findings: the part has no tensors */
    bool adopted;
} ckpt_ds_slice;

/* All parts, by stage, then by tensor-parallel rank. */
typedef struct ckpt_ds_grid {
    ckpt_ds_job *job;
    const ckpt_ds_folder *dir;
    ckpt_ds_slice *slice;
    uint32_t n, tp, pp;
    uint32_t ep; /* stage 0 with experts: number of expert-parallel parts; else 0 */
} ckpt_ds_grid;

/* Returns universal_checkpoint_info from the model file or the optimizer file, or NULL. */
const ckpt_value *ckpt_ds_join_info(const ckpt_ds_grid *grid);

/* Adds the joined tensors and the single training state to the output map. */
int ckpt_ds_join(ckpt_ds_grid *grid);

#endif
