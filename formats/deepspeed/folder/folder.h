/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folder.h: a tag folder's files, sorted by rank.
 */
#ifndef CKPT_FORMATS_DS_FOLDER_H
#define CKPT_FORMATS_DS_FOLDER_H

#include "formats/deepspeed/folder/job.h"
#include "formats/deepspeed/folder/names.h"

typedef struct ckpt_ds_part {
    const char *path;
    uint32_t rank; /* as ckpt_ds_name.dp */
    uint32_t mp, layer;
    bool bf16, has_layer;
} ckpt_ds_part;

CKPT_VEC(ckpt_ds_parts, ckpt_ds_part);

/* A tag folder's files, by ascending rank: of all model-parallel ranks, or those of one. */
typedef struct ckpt_ds_folder {
    const char *path; /* of the tag folder */
    const char *tag;
    uint32_t mp;          /* the one model-parallel rank */
    uint32_t n_mp;        /* model-parallel ranks that the tag folder has */
    const char *model;    /* mp_rank_00_model_states.pt, or NULL */
    ckpt_ds_parts wholes; /* the same of all model-parallel ranks */
    ckpt_ds_parts models; /* one per rank: stage 3 */
    ckpt_ds_parts optims;
    ckpt_ds_parts experts, layers; /* parts of the model beside it */
    /* stage 0 with experts: the optimizer of each expert-parallel rank */
    ckpt_ds_parts expps;
    bool offloaded; /* has offloaded_tensors/ */
    /* stage 0 with experts, read as one of ep expert-parallel ranks: that one, and the file that
       has its optimizer; else 0 and NULL */
    uint32_t ep, ep_rank;
    const char *optimizer;
} ckpt_ds_folder;

/* Find the tag folder and its files, and refuse the layouts that are recognised but not handled. */
int ckpt_ds_folder_find(ckpt_ds_job *job, ckpt_ds_folder *dir, const ckpt_listing *list);

/* Free the lists of files; paths are the map's. */
void ckpt_ds_folder_free(ckpt_ds_folder *dir);

/*
 * The files of one model-parallel rank: of `slice`, its tensor-parallel rank, among the layer
 * files.  What is given must be freed, also after a failure.
 */
int ckpt_ds_folder_slice(ckpt_ds_job *job, const ckpt_ds_folder *dir, uint32_t mp, uint32_t slice,
                         ckpt_ds_folder *out);

/* Ranks are 0..n-1 without gap, surplus or double; one prefix style. */
int ckpt_ds_folder_check(ckpt_ds_job *job, const ckpt_ds_parts *parts, const char *what);

/* The path that a rank's file would have, by those of the other ranks (parts is not empty). */
const char *ckpt_ds_folder_lost(const ckpt_ds_job *job, const ckpt_ds_parts *parts, uint32_t rank);

#endif
