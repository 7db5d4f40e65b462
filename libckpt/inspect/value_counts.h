/* SPDX-License-Identifier: Apache-2.0 */
/* value_counts.h: declares the rules that decide which differences of values count. */
#ifndef CKPT_INSPECT_VALUE_COUNTS_H
#define CKPT_INSPECT_VALUE_COUNTS_H

#include "libckpt/map/map.h"

/*
 * True if a difference changes the computation of a program.
 *
 * in       the second checkpoint
 * a,b      the values as text; NULL: that side has none
 */
typedef bool ckpt_counts_fn(const ckpt_map *in, const char *path, const char *a, const char *b);

ckpt_counts_fn ckpt_counts_gguf, ckpt_counts_state, ckpt_counts_torch, ckpt_counts_universal,
    ckpt_counts_none, ckpt_counts_all;

/* The rule for a file beside the weights that both folders have, or only the first. */
ckpt_counts_fn *ckpt_counts_of_file(const char *name);

/* True for a file of weights, or their index, which a loader may prefer. */
bool ckpt_is_weights(const char *name);

/* The end of the path of a second value, which another key of the file has. */
extern const char ckpt_second_key[];

#endif
