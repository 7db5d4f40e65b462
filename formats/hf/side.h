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
 * True if the configuration in the source's folder belongs to diffusers (`_class_name`), because
 * its loaders look for diffusion_pytorch_model.*.
 */
bool ckpt_hf_is_diffusers(const ckpt_map *from);

/* True if an output has a config.json. */
bool ckpt_hf_has_config(const ckpt_map *to);

#endif
