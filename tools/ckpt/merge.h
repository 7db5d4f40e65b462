/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.h: declares the steps from the options of a merge to a map of the merged model;
 * `ckpt merge` and `ckpt verify --made-from` share them.
 */
#ifndef TOOLS_CKPT_MERGE_H
#define TOOLS_CKPT_MERGE_H

#include "tools/cli/options.h"

/* The options of a merge, besides its models. */
typedef struct merge_how {
    const char *method, *base;
    unsigned last;
    double density, lambda, slerp_t;
    bool skip_normalize;
    uint64_t seed;
    const char *recipe; /* a mergekit configuration */
    char *recipe_text;  /* its contents */
} merge_how;

/* True if a merge needs more than one model, or options that only a merge has, were given. */
bool merge_is(const merge_how *how, int n_models);

/*
 * Open the models that a->cli.operand names and merge them, with the names of the target's layout.
 * Nothing is read but headers.
 *
 * a        its target has format and path
 * map      set even after a failure
 * Errors   CKPT_EUSAGE: options that contradict each other; those of ckpt_merge_open
 */
int merge_prepare(ckpt_map **map, write_args *a, const merge_how *how, ckpt_err *err);

/* Read the configuration of how->recipe, if there is one. */
int merge_read_recipe(merge_how *how, ckpt_err *err);

/* Call fn for the models of the configuration.  If it cannot be read, there are none. */
int merge_recipe_paths(const merge_how *how, int (*fn)(void *ctx, const char *path), void *ctx);

/* The options of merge_how, for the tables of both commands; at: its offset in their fields. */
// clang-format off
#define MERGE_METHODS "linear|cat|slerp|task_arithmetic|ties|dare_linear|dare_ties"
#define MERGE_OPTIONS(at) \
    {"base", 0, CLI_SOURCE, (at) + offsetof(merge_how, base), "PATH", \
     "base model of the merged models"}, \
    {"density", 0, CLI_NUMBER, (at) + offsetof(merge_how, density), "X", \
     "ties, dare: share of each difference to keep"}, \
    {"lambda", 0, CLI_REAL, (at) + offsetof(merge_how, lambda), "X", \
     "factor of the summed differences (default: 1)"}, \
    {"t", 0, CLI_NUMBER, (at) + offsetof(merge_how, slerp_t), "X", \
     "slerp: from 0, the first model, to 1, the second"}, \
    {"no-normalize", 0, CLI_FLAG, (at) + offsetof(merge_how, skip_normalize), NULL, \
     "do not divide by the sum of the weights"}, \
    {"seed", 0, CLI_COUNT64, (at) + offsetof(merge_how, seed), "N", \
     "dare: seed of the random choice"}, \
    {"last", 0, CLI_COUNT, (at) + offsetof(merge_how, last), "K", \
     "average the last K tags of a run"}
// clang-format on

#endif
