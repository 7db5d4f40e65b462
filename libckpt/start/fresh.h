/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fresh.h: the training state of a run that has not begun: what ckpt_map_warm_start is made of.
 *
 * DeepSpeed lays parameters out by position, so all depends on their order: the caller's list, that
 * of a known architecture, or that of a file which keeps it.
 */
#ifndef CKPT_FRESH_H
#define CKPT_FRESH_H

#include "libckpt/map/map.h"

/* A tensor that an optimizer may be given: floating, with elements and bytes of its own, and not
 * known by its name to be a buffer. */
bool ckpt_order_trains(const ckpt_map *map, const ckpt_tensor *t);

/*
 * The parameters of a map in the order in which the model registers them, by a table of the
 * architectures that config.json's model_type names.
 *
 * *known is false, and *odd the tensor that is in the way or NULL, when the map has no model type,
 * or one that is not in the table, or tensors that such a model does not have.
 */
int ckpt_order_known(ckpt_tensors *out, const ckpt_map *map, bool *known, const ckpt_tensor **odd,
                     ckpt_err *err);

/*
 * Enter the names that such a model ties and saves once ("lm_head.weight") as aliases: a run that
 * loads the checkpoint asks for them.
 */
int ckpt_order_ties(ckpt_map *map, ckpt_err *err);

#endif
