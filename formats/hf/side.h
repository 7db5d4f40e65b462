/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side.h: what goes along with the weights of a model folder: configuration, tokenizer, code.
 *
 * The rule: of a folder that says it holds a model (config.json, adapter_config.json,
 * modules.json), every small file that is neither weights nor the state of a training run; of any
 * other folder only files with the names that models use, for it may be somebody's home.  Folders
 * within: chat templates, and those of sentence-transformers' modules.  A link is followed only
 * inside the folder and into a hub cache's blobs.  What is left behind is named.
 */
#ifndef CKPT_FORMATS_HF_SIDE_H
#define CKPT_FORMATS_HF_SIDE_H

#include "libckpt/format.h"

/* A whole small file of the output. */
int ckpt_hf_add_literal(ckpt_map *to, const char *name, const void *bytes, uint64_t n,
                        ckpt_err *err);

/*
 * Add the files beside the source to a target map.
 *
 * dtype    what config.json is to state, as torch spells it; NULL: as it is
 * adapter  the output is an adapter: adapter_config.json belongs to it
 * Errors   CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_hf_side_files(ckpt_map *to, const ckpt_map *from, const char *dtype, bool adapter,
                       ckpt_err *err);

/*
 * The folder that such files stand in: the model's, where the map names one, the source's, or that
 * of its run.  The listing lives in the arena of scratch.
 *
 * Errors   CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_hf_beside(ckpt_listing *out, ckpt_map *scratch, const ckpt_map *from, ckpt_err *err);

/*
 * The configuration of that name that a layout map has made, or was given, as text; empty: there is
 * none.  What is missing in it is said in the findings of `to`.
 *
 * Errors   CKPT_ELIMIT, CKPT_EUNSUPPORTED: a value that JSON has not
 */
int ckpt_hf_config_text(ckpt_bytes *out, ckpt_map *to, const ckpt_map *from, const char *file,
                        ckpt_err *err);

/*
 * True if the configuration beside the source is one of diffusers, whose loaders look for
 * diffusion_pytorch_model.* (`_class_name`).
 */
bool ckpt_hf_is_diffusers(const ckpt_map *from);

/* An output has a config.json. */
bool ckpt_hf_has_config(const ckpt_map *to);

/* The last part of a path, in place. */
const char *ckpt_hf_base(const char *path);

#endif
