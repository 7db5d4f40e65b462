/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwrap.h: removes wrapper prefixes from a model's names.
 */
#ifndef CKPT_TRANSFORM_UNWRAP_H
#define CKPT_TRANSFORM_UNWRAP_H

#include "libckpt/map/map.h"

/*
 * Remove wrapper prefixes from a map's tensors, with their moments and step counts, and add a note.
 *
 * Parts that torch's wrappers add ("_orig_mod.") are removed anywhere. A common prefix ("module.",
 * "model.") is removed if the shorter names are those of the architecture, or of a model with its
 * head; "model." of a model without a head stays.
 *
 * type    config.json's model_type, or NULL
 * raw     the names come from a program's dict: a common "model." or "net." is a wrapper's
 *         attribute, unless the names already fit an architecture
 * Errors  CKPT_ELIMIT
 */
int ckpt_unwrap(ckpt_map *map, const char *type, bool raw, ckpt_err *err);

/* True if all names have a common prefix: a model_type would help to judge it. */
bool ckpt_unwrap_asks(const ckpt_map *map);

/* True if ckpt_unwrap would remove anything. */
bool ckpt_unwrap_would(const ckpt_map *map, const char *type, bool raw);

/*
 * Warn if most names are not those of the architecture, because programs that load by name would
 * keep the model's random initial weights.
 *
 * to      receives the note
 */
int ckpt_unwrap_check(ckpt_map *to, const ckpt_map *map, const char *type, ckpt_err *err);

#endif
