/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.h: the interface between the reader and the writer of diffusers pipelines: the list of
 * components in model_index.json.
 *
 * model_index.json names the class of the pipeline and of its components (diffusers 0.42,
 * pipelines/pipeline_utils.py); null stands for an optional component that is absent:
 *
 *     {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"],
 *      "scheduler": ["diffusers", "PNDMScheduler"], "safety_checker": [null, null]}
 *
 * A tensor's name is that of its component, a slash, and its name there: unet/conv_in.weight.
 */
#ifndef CKPT_FORMATS_HF_PIPELINE_H
#define CKPT_FORMATS_HF_PIPELINE_H

#include "libckpt/format.h"

#define CKPT_PIPELINE_INDEX "model_index.json"
#define CKPT_PIPELINE_NAME  "diffusers" /* name of the format */

/* A component whose folder must exist. */
typedef struct ckpt_pipeline_part {
    const char *name;  /* also that of its folder: "unet" */
    const char *class; /* "UNet2DConditionModel" */
    bool plain;        /* it has no weights: a scheduler, a tokenizer, a processor */
} ckpt_pipeline_part;

CKPT_VEC(ckpt_pipeline_parts, ckpt_pipeline_part);

/*
 * Read the index of a folder; its tree and texts live in the arena.
 *
 * Errors   CKPT_EFORMAT: no dict, or a malformed entry; CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_pipeline_read(ckpt_pipeline_parts *parts, const ckpt_value **root, ckpt_arena *arena,
                       const ckpt_listing *list, ckpt_err *err);

/* The component of this name, or NULL. */
const ckpt_pipeline_part *ckpt_pipeline_find(const ckpt_pipeline_parts *parts, const char *name);

/* Fail because a component's folder is missing; CKPT_OK if the map collects findings. */
int ckpt_pipeline_missing(ckpt_map *map, const char *folder, const ckpt_pipeline_part *part,
                          ckpt_err *err);

/* True if a map was read from a pipeline. */
bool ckpt_pipeline_is(const ckpt_map *map);

/* ckpt_directory.scatter of "hf" for such a map. */
int ckpt_pipeline_scatter(ckpt_map *to, const ckpt_map *from, const ckpt_target *target,
                          ckpt_err *err);

#endif
