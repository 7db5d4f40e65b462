/* SPDX-License-Identifier: Apache-2.0 */
/*
 * param_values.h: declares access to the optimizer's values for one parameter: its moments, and
 * single values such as a step count.
 */
#ifndef CKPT_FORMATS_TRAINING_PARAM_VALUES_H
#define CKPT_FORMATS_TRAINING_PARAM_VALUES_H

#include "libckpt/map/state.h"

/*
 * Complete the optimizer's entry of each group, for a state without a prefix: a flat tensor for
 * each kind of moments (the map's tensors "<kind>/<parameter>"), and the single values of
 * parameters. The caller sets step counts, unless they are objects.
 *
 * orphans    parameters that have moments but are not in the map, or NULL; the `file` of each is 0,
 *            or the number of the group that trains it, plus 1
 * optimizer  the dict whose "state" has values by parameter name, or NULL
 * Errors     those of reading values.  If parameters of one group differ, no_state is set
 *  
 */
int ckpt_train_entries(ckpt_map *map, ckpt_state *state, const ckpt_map *orphans,
                       const ckpt_value *optimizer, ckpt_err *err);

/* The optimizer's entry for state->param[param] of group g: a DICT, or NULL. */
const ckpt_value *ckpt_train_param_entry(const ckpt_state *state, const ckpt_group *g,
                                         size_t param);

/*
 * Make a TENSOR value with the tensor's dtype and shape, but without a storage.  NULL: no memory.
 */
ckpt_value *ckpt_train_leaf(ckpt_arena *arena, const ckpt_tensor *t);

#endif
