/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head.h: declares the search for a model's head and its table, and their comparison.
 */
#ifndef CKPT_KEYMAP_HEAD_H
#define CKPT_KEYMAP_HEAD_H

#include "libckpt/transform/keymap/rule.h"

/* The head that has a tensor of its own; NULL: there is none. */
ckpt_tensor *ckpt_head_of(const ckpt_map *map);

/* The embedding of a language model; NULL: no tensor has such a name. */
ckpt_tensor *ckpt_head_table(const ckpt_map *map);

/* True if both have the same axes. */
bool ckpt_head_same_shape(const ckpt_tensor *a, const ckpt_tensor *b);

/*
 * Make the head another name of the table, so that the run compares both.
 *
 * Errors  CKPT_EUSAGE: another name is tied to the head; CKPT_EMISMATCH: shapes or dtypes differ
 */
int ckpt_head_tie(ckpt_map *map, ckpt_tensor *head, ckpt_tensor *table, ckpt_err *err);

/*
 * If a rule drops the model's head, but no rule of that side drops the embedding, make the head
 * another name of the embedding first.
 *
 * Errors  as above; CKPT_EMISSING: there is no embedding
 */
int ckpt_head_dropped(ckpt_map *map, const ckpt_remap *r, const ckpt_rm_rule *rule, ckpt_err *err);

#endif
