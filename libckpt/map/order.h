/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h: in which order a model gives its parameters to an optimizer.
 *
 * DeepSpeed finds masters by position, and torch numbers an optimizer's state, so a wrong order
 * puts each weight in another's place without an error.
 *
 *     order.c     the orders of known architectures
 *     walk.c      whether names stand as a model is walked
 *     sequence.c  the order of the parameters in an optimizer's groups
 */
#ifndef CKPT_MAP_ORDER_H
#define CKPT_MAP_ORDER_H

#include "libckpt/map/state.h"

/* What to do about an order that is not known. */
#define CKPT_ORDER_HELP                                                                            \
    "; write the names to a file (order_text, --order FILE) with: python -c \"from transformers "  \
    "import AutoModelForCausalLM as M; [print(n) for n, p in "                                     \
    "M.from_pretrained('FOLDER').named_parameters()]\"; or take the file's own order (a line "     \
    "'*', "                                                                                        \
    "--order stored)"

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
 * The same of a list of parameters.  Where no config.json names a model type, the architectures
 * that have all of these names tell the order, if they agree; a prefix that all names share may
 * stand before.
 *
 * list   n parameters, sorted in place if *known becomes true
 */
int ckpt_order_named(const ckpt_map *map, ckpt_tensor **list, size_t n, bool *known, ckpt_err *err);

/*
 * Enter the names that such a model ties and saves once ("lm_head.weight") as aliases: a run that
 * loads the checkpoint asks for them.
 */
int ckpt_order_ties(ckpt_map *map, ckpt_err *err);

/* The table knows the names of this model_type (NULL: no). */
bool ckpt_order_has(const char *type);

/*
 * How many of n names, without their first `skip` bytes, are of modules of this model_type; where
 * the table lacks it, of the type in the table that has most of them.
 */
size_t ckpt_order_fit(const char *type, const char *const *name, size_t n, size_t skip);

/* ---- walk.c ---- */

/*
 * A module whose names do not stand together: named_parameters() meets each module once.
 *
 * *odd   a name of it, or NULL: the list may be a walk of a model
 */
int ckpt_order_twice(ckpt_tensor *const *list, size_t n, const char **odd, ckpt_err *err);

/* Bytes of a prefix, its dot included, that all names share and that leaves none empty. */
size_t ckpt_order_prefix(ckpt_tensor *const *list, size_t n);

/* Bytes of a name up to its first number, the number included ("h.0"); 0: it has none. */
size_t ckpt_order_layer(const char *name);

/* ---- sequence.c ---- */

/*
 * Bring the parameters of each group into the order in which the model registers them.
 *
 * The optimizer's own order, which the state comes with, may be that of FSDP1's units (what is in
 * no unit first); the model's dict may have been put together anew by torch's get_state_dict (what
 * torch.compile or checkpoint_wrapper has wrapped last).  The one that can be a walk of a model
 * counts; in doubt the model's, with a warning.  state->no_order says why where neither can be.
 *
 * in_order  the map's tensors stand as the model's dict has them
 * Errors    CKPT_ELIMIT
 */
int ckpt_state_sequence(ckpt_map *map, ckpt_state *state, bool in_order, ckpt_err *err);

/*
 * The first parameter of a state that does not stand where ckpt_state_sequence would have put it,
 * or NULL.
 */
int ckpt_state_misplaced(const ckpt_map *map, const ckpt_state *state, const ckpt_tensor **out,
                         ckpt_err *err);

/*
 * The refusal of a target whose reader finds parameters by position, where their order is not
 * known.
 *
 * Errors  CKPT_EUSAGE
 */
int ckpt_state_ordered(const ckpt_map *map, const ckpt_state *state, ckpt_err *err);

#endif
