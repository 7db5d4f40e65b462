/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_folder.h: declares how writers find the folder with a model's configuration and tokenizer,
 * and how they add such files to an output.
 */
#ifndef CKPT_ACCESS_MODEL_FOLDER_H
#define CKPT_ACCESS_MODEL_FOLDER_H

#include "libckpt/io/listing.h"

/* True if a folder declares that it holds a model (config.json and the like). */
bool ckpt_model_folder_is(const ckpt_listing *list);

/*
 * List the folder with the source's side files: the model folder if the map names one, else the
 * source's folder or that of its run.  The listing lives in the arena of scratch.
 *
 * Errors   CKPT_EMISSING, CKPT_EIO, CKPT_ELIMIT
 */
int ckpt_model_folder_list(ckpt_listing *out, ckpt_map *scratch, const ckpt_map *from,
                           ckpt_err *err);

/*
 * The text of the configuration `file` that a layout map made or the user gave; empty if there is
 * none.  Missing values are findings of `to`.
 *
 * Errors   CKPT_ELIMIT, CKPT_EUNSUPPORTED: a value that JSON cannot express
 */
int ckpt_model_folder_config(ckpt_bytes *out, ckpt_map *to, const ckpt_map *from, const char *file,
                             ckpt_err *err);

/* Add a small file to the output, with all its bytes. */
int ckpt_model_folder_add(ckpt_map *to, const char *name, const void *bytes, uint64_t n,
                          ckpt_err *err);

#endif
