/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side.h: declares copying of the other files in a model's folder: configuration, tokenizer, code.
 *
 * If a folder declares a model (config.json, adapter_config.json, modules.json), every small file
 * is copied except weights and the state of a training run.  From any other folder only files with
 * names that models use are copied, because it could be a home directory.  Subfolders are copied
 * for chat templates and sentence-transformers' modules.  A link is followed only inside the folder
 * and into the blobs of a hub cache.  Files left out are listed.
 */
#ifndef CKPT_FORMATS_HF_SIDE_H
#define CKPT_FORMATS_HF_SIDE_H

#include "libckpt/format.h"

/*
 * Add the other files in the source's folder to a target map.
 *
 * dtype    new dtype of config.json, as torch spells it; NULL: unchanged
 * adapter  the output is an adapter and keeps its adapter_config.json
 * Errors   CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_hf_side_files(ckpt_map *to, const ckpt_map *from, const char *dtype, bool adapter,
                       ckpt_err *err);

/*
 * Add the small files of a pipeline's folder unchanged, and note those left out: the top folder, or
 * that of a component without weights.
 *
 * below  the folder of the output, with "/" at the end; "": the top
 * taken  names of files and folders that the caller writes, with NULL at the end; or NULL
 * Errors CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_hf_side_pipeline(ckpt_map *to, const ckpt_listing *list, const char *below,
                          const char *const *taken, ckpt_err *err);

/*
 * The class of a model of diffusers, by the configuration in the source's folder (`_class_name`),
 * in the arena; NULL: another model. Its loaders look for diffusion_pytorch_model.*.
 */
const char *ckpt_hf_diffusers_class(const ckpt_map *from, ckpt_arena *arena);

/* True if an output has a config.json. */
bool ckpt_hf_has_config(const ckpt_map *to);

#endif
