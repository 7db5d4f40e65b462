/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h: finds the order in which a model gives its parameters to an optimizer.
 *
 * DeepSpeed finds masters by position, and torch numbers an optimizer's state: a wrong order would
 * swap weights without any error.
 *
 * order.c     the orders of known architectures walk.c      tests whether names have the order of a
 * walk over a model sequence.c  the order of the parameters in an optimizer's groups
 */
#ifndef CKPT_MAP_ORDER_H
#define CKPT_MAP_ORDER_H

#include <inttypes.h>

#include "libckpt/map/state.h"

/* The advice in messages about an unknown order. */
#define CKPT_ORDER_HELP                                                                            \
    "; write the names to a file (--order FILE; order_text in the library) with: python -c "       \
    "\"from transformers import AutoModelForCausalLM as M; [print(n) for n, p in "                 \
    "M.from_pretrained('FOLDER').named_parameters()]\"; or take the source's own order "           \
    "(--order stored, or a line '*')"

/*
 * True if an optimizer may have trained a tensor: it is floating, has elements and bytes of its
 * own, and its name is not that of a known buffer.
 */
bool ckpt_order_trains(const ckpt_map *map, const ckpt_tensor *t);

/*
 * The parameters of a map in the order in which the model registers them, from a table of the
 * architectures, which config.json's model_type selects.
 *
 * *known is false if the map has no model type, or one that is not in the table, or tensors that
 * such a model does not have; *odd is then the first such tensor, or NULL.
 */
int ckpt_order_known(ckpt_tensors *out, const ckpt_map *map, bool *known, const ckpt_tensor **odd,
                     ckpt_err *err);

/*
 * The same for a list of parameters. Without a model type in config.json, the architectures that
 * have all of these names decide, if they agree; all names may share a prefix.
 *
 * list   n parameters, sorted in place if *known becomes true
 */
int ckpt_order_named(const ckpt_map *map, ckpt_tensor **list, size_t n, bool *known, ckpt_err *err);

/*
 * Add the names that such a model ties and saves once ("lm_head.weight") as aliases, because a run
 * that loads the checkpoint asks for them.
 */
int ckpt_order_ties(ckpt_map *map, ckpt_err *err);

/* The tensor that a model of any known architecture ties this name to; NULL: none. */
const ckpt_tensor *ckpt_order_table(const ckpt_map *map, const char *name);

/* True if the table has this model_type (NULL: false). */
bool ckpt_order_has(const char *type);

/*
 * The number of the n names, without their first `skip` bytes, that belong to modules of this
 * model_type. If the table lacks it, the type in the table with the most of them counts.
 */
size_t ckpt_order_fit(const char *type, const char *const *name, size_t n, size_t skip);

/* ---- order_lines.c ---- */

/* A line without surrounding blanks, except comments; n 0: an empty line. */
typedef int ckpt_order_line(void *ctx, uint64_t number, const char *line, size_t n);

/* The message about a second line '*'; takes its number. */
#define CKPT_ORDER_STARS "order, line %" PRIu64 ": only one line '*' may stand for all others"

/* Call `use` for each line of a list, until it returns an error. */
int ckpt_order_lines(const char *text, ckpt_order_line *use, void *ctx);

/* ---- walk.c ---- */

/*
 * Find a module whose names are not adjacent; named_parameters() visits each module once, so such a
 * list is not a walk over a model.
 *
 * *odd     a name of the module, or NULL: the list may be a walk
 */
int ckpt_order_twice(ckpt_tensor *const *list, size_t n, const char **odd, ckpt_err *err);

/* Bytes of the longest prefix, with its dot, that all names share without one becoming empty. */
size_t ckpt_order_prefix(ckpt_tensor *const *list, size_t n);

/* Bytes of a name up to and including its first number ("h.0"); 0: it has none. */
size_t ckpt_order_layer(const char *name);

/* ---- sequence.c ---- */

/*
 * Sort the parameters of each group into the order in which the model registers them.
 *
 * The optimizer's own order, which the state comes with, may be that of FSDP1's units (parameters
 * outside of units first); torch's get_state_dict may have rebuilt the model's dict (parameters
 * wrapped by torch.compile or checkpoint_wrapper last). Any other order may be the program's, so
 * nothing is sorted then, and state->no_order gets the reason if the right one is in doubt.
 *
 * in_order  the map's tensors have the order of the model's dict
 * Errors    CKPT_ELIMIT
 */
int ckpt_state_sequence(ckpt_map *map, ckpt_state *state, bool in_order, ckpt_err *err);

/* The first parameter of a state that ckpt_state_sequence would move, or NULL. */
int ckpt_state_misplaced(const ckpt_map *map, const ckpt_state *state, const ckpt_tensor **out,
                         ckpt_err *err);

/*
 * Refuse a target whose reader finds parameters by position if their order is unknown.
 *
 * Errors   CKPT_EUSAGE
 */
int ckpt_state_ordered(const ckpt_map *map, const ckpt_state *state, ckpt_err *err);

#endif
