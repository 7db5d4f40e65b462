/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe.h: which models are merged how: from options, or from a configuration of mergekit's.
 */
#ifndef CKPT_BLEND_RECIPE_H
#define CKPT_BLEND_RECIPE_H

#include "ckpt.h"
#include "libckpt/blend/ops.h"

typedef struct ckpt_recipe_model {
    const char *path, *tag;
    double weight;                /* where no parameter says */
    const ckpt_value *parameters; /* of this model: key -> setting; or NULL */
} ckpt_recipe_model;

CKPT_VEC(ckpt_recipe_models, ckpt_recipe_model);

typedef struct ckpt_recipe {
    ckpt_blend_method method;
    ckpt_recipe_models models;       /* the base among them only if it is one of those merged */
    const char *base;                /* path, or NULL */
    const ckpt_value *parameters[2]; /* of all models, the nearer ones first; or NULL */
    bool has_weight;                 /* the models' weights hold where no parameter says */
    double density, lambda, t;
    bool no_normalize;
    uint64_t seed;
    ckpt_dtype dtype; /* of what is written; NONE: the first model's */
    bool from_config; /* mergekit's: differences are taken in `steps`, NONE: the base's dtype */
    ckpt_dtype steps;
    uint64_t n_layers;      /* that the configuration says, or 0 */
    bool ignores_int8_mask; /* it was asked for */
} ckpt_recipe;

/*
 * Take the recipe from options; texts live in the arena or are the caller's.
 *
 * Errors   CKPT_EUSAGE: what is no merge; CKPT_EFORMAT, CKPT_EUNSUPPORTED: of a configuration
 */
int ckpt_recipe_read(ckpt_recipe *out, ckpt_arena *a, const ckpt_merge *merge, ckpt_err *err);
void ckpt_recipe_free(ckpt_recipe *r);

/*
 * A parameter of one tensor: of a model (NULL: of all), by the nearest setting that says: a number,
 * a list of numbers from the first layer to the last, or a list of values with filters (parts of
 * tensors' names).
 *
 * at      0..1: where the tensor's layer is among all; 0 for tensors of none
 * *found  false: nothing says, *out is left as it is
 */
int ckpt_recipe_number(const ckpt_recipe *r, const ckpt_recipe_model *model, const char *key,
                       const char *tensor, double at, double *out, bool *found, ckpt_err *err);

#endif
