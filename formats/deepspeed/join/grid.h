/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.h: several model-parallel ranks: each read alone, then put into one map.
 *
 *     grid.c  which ranks there are; their maps adopted
 *     join.c  slices joined to full tensors
 */
#ifndef CKPT_FORMATS_DS_GRID_H
#define CKPT_FORMATS_DS_GRID_H

#include "formats/deepspeed/folder/folder.h"

/* True if the folder's files must be read in several parts. */
bool ckpt_ds_grid_needed(const ckpt_ds_folder *dir);

/* Read all parts, each into a map of its own, and put them into job->map: joined, or side by side
 * (keep_slices).  Collecting, job->broken says that no tensors could be made. */
int ckpt_ds_grid_read(ckpt_ds_job *job, const ckpt_ds_folder *dir);

/* One part of a model: a model-parallel rank, or an expert-parallel one of stage 0. */
typedef struct ckpt_ds_slice {
    ckpt_map *map;  /* adopted by the large map */
    uint32_t stage; /* pipeline stage */
    uint32_t tp;    /* tensor-parallel rank in it */
    bool broken;    /* collecting, and no tensors could be made */
    bool adopted;
} ckpt_ds_slice;

/* All parts, by stage and then by tensor-parallel rank. */
typedef struct ckpt_ds_grid {
    ckpt_ds_job *job;
    const ckpt_ds_folder *dir;
    ckpt_ds_slice *slice;
    uint32_t n, tp, pp;
    uint32_t ep; /* stage 0 with experts: parts are expert-parallel ranks; else 0 */
} ckpt_ds_grid;

/* universal_checkpoint_info, wherever the release keeps it; NULL: nowhere. */
const ckpt_value *ckpt_ds_join_info(const ckpt_ds_grid *grid);

/* Make the large map's tensors and its one state of all slices. */
int ckpt_ds_join(ckpt_ds_grid *grid);

#endif
