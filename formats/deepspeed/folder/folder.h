/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h: finds the tag folder for the user's path, and lists its files by rank.
 */
#ifndef CKPT_FORMATS_DS_FOLDER_H
#define CKPT_FORMATS_DS_FOLDER_H

#include "formats/deepspeed/folder/job.h"
#include "formats/training/deepspeed_names.h"

typedef struct ckpt_ds_part {
    const char *path;
    uint32_t rank; /* rank, as in ckpt_ds_name.dp */
    uint32_t mp, layer;
    bool bf16, has_layer;
} ckpt_ds_part;

CKPT_VEC(ckpt_ds_parts, ckpt_ds_part);

/* Files of a tag folder by ascending rank, for all model-parallel ranks or for one. */
typedef struct ckpt_ds_folder {
    const char *path; /* path of the tag folder */
    const char *tag;
    uint32_t mp;          /* the model-parallel rank, if the list is for one */
    uint32_t n_mp;        /* number of model-parallel ranks in the tag folder */
    const char *model;    /* mp_rank_00_model_states.pt, or NULL */
    ckpt_ds_parts wholes; /* mp_rank_XX_model_states.pt of all ranks */
    ckpt_ds_parts models; /* stage 3: model file of each data-parallel rank */
    ckpt_ds_parts optims;
    ckpt_ds_parts experts, layers; /* more files of the model */
    /* stage 0 with experts: optimizer file of each expert-parallel rank */
    ckpt_ds_parts expps;
    bool offloaded; /* has offloaded_tensors/ */
    /*
     * stage 0 with experts: the degree, the expert-parallel rank to read, and this rank's optimizer
     * file; otherwise 0 and NULL
     */
    uint32_t ep, ep_rank;
    const char *optimizer;
} ckpt_ds_folder;

/* Finds the tag folder and its files; fails for layouts that the driver recognises but does not
 * read. */
int ckpt_ds_folder_find(ckpt_ds_job *job, ckpt_ds_folder *dir, const ckpt_listing *list);

/* Frees the lists of files; the map owns the paths. */
void ckpt_ds_folder_free(ckpt_ds_folder *dir);

/*
 * Returns the files of one model-parallel rank; its layer files are those of tensor-parallel rank
 * `slice`. The caller frees the result, also after a failure.
 */
int ckpt_ds_folder_slice(ckpt_ds_job *job, const ckpt_ds_folder *dir, uint32_t mp, uint32_t slice,
                         ckpt_ds_folder *out);

/* Checks that ranks are 0..n-1 without gap, surplus or duplicate, and have one prefix style. */
int ckpt_ds_folder_check(ckpt_ds_job *job, const ckpt_ds_parts *parts, const char *what);

/* Returns the path of a missing rank's file, derived from the other ranks' paths (parts is not
 * empty). */
const char *ckpt_ds_folder_lost(const ckpt_ds_job *job, const ckpt_ds_parts *parts, uint32_t rank);

#endif
