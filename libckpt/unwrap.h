/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwrap.h: names of a model without what wrappers put before them.
 */
#ifndef CKPT_UNWRAP_H
#define CKPT_UNWRAP_H

#include "libckpt/map/map.h"

/*
 * Take the names of wrappers off a map's tensors, their moments and step counts included, and note
 * it.
 *
 * Torch's own wrappers ("_orig_mod.") go wherever they stand.  Words that all names begin with
 * ("module.", "model.") go where the names then are those of the architecture, or of a model with
 * its head; "model." of a model without a head stays.
 *
 * type    config.json's model_type, or NULL
 * raw     names are those that the program gave its dict: "model." and "net." which all begin with
 *         are a wrapper's attribute, unless the names fit an architecture as they are
 * Errors  CKPT_ELIMIT
 */
int ckpt_unwrap(ckpt_map *map, const char *type, bool raw, ckpt_err *err);

/* True if all names begin with the same word, so that a model_type would help to judge it. */
bool ckpt_unwrap_asks(const ckpt_map *map);

/* True if ckpt_unwrap would take anything off. */
bool ckpt_unwrap_would(const ckpt_map *map, const char *type, bool raw);

/*
 * Note a warning where most names are not those of the architecture: programs that load by name
 * would leave the model as it was drawn.
 *
 * to   receives the note
 */
int ckpt_unwrap_check(ckpt_map *to, const ckpt_map *map, const char *type, ckpt_err *err);

#endif
