/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: declares how a model in a file of several dicts is asked for.
 */
#ifndef CKPT_MODEL_H
#define CKPT_MODEL_H

#include "libckpt/map/map.h"

/*
 * Set map->dicts of a map that was just opened.
 *
 * Errors  CKPT_ELIMIT
 */
int ckpt_model_survey(ckpt_map *map, ckpt_err *err);

/*
 * Refuse to write a program's whole dict as a model (hf, gguf), if the caller has not chosen its
 * tensors: an optimizer's moments would be weights of the model.
 *
 * Errors  CKPT_EUSAGE
 */
int ckpt_model_chosen(const ckpt_map *from, const char *format, ckpt_err *err);

#endif
