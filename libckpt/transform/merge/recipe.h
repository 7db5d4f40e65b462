/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recipe.h: reads the recipe of a merge, its models and their parameters, from options or from a
 * configuration of mergekit.
 */
#ifndef CKPT_TRANSFORM_MERGE_RECIPE_H
#define CKPT_TRANSFORM_MERGE_RECIPE_H

#include "ckpt_shape.h"
#include "libckpt/transform/merge/ops.h"

typedef struct ckpt_recipe_model {
    const char *path, *tag;
    double weight;                /* weight if the parameters give none */
    const ckpt_value *parameters; /* this model's parameters: key -> setting; or NULL */
} ckpt_recipe_model;

CKPT_VEC(ckpt_recipe_models, ckpt_recipe_model);

typedef struct ckpt_recipe {
    ckpt_blend_method method;
    ckpt_recipe_models models;       /* includes the base only if the base is merged too */
    const char *base;                /* path, or NULL */
    const ckpt_value *parameters[2]; /* for all models, the more specific dict first; or NULL */
    bool has_weight;                 /* the models' weights are defaults */
    double density, lambda, t;
    bool skip_normalize;
    uint64_t seed;
    ckpt_dtype dtype; /* output dtype; NONE: the first model's */
    /* mergekit's configuration: differences are computed in `steps`; NONE: the base's dtype */
    bool from_config;
    ckpt_dtype steps;
    uint64_t n_layers;      /* number of layers in the configuration, or 0 */
    bool ignores_int8_mask; /* the configuration requests int8_mask */
} ckpt_recipe;

/*
 * Read the recipe from options. Texts belong to the arena or to the caller.
 *
 * Errors   CKPT_EUSAGE: an invalid merge; CKPT_EFORMAT, CKPT_EUNSUPPORTED: a malformed or
 *          unsupported configuration
 */
int ckpt_recipe_read(ckpt_recipe *out, ckpt_arena *a, const ckpt_merge *merge, ckpt_err *err);
void ckpt_recipe_free(ckpt_recipe *r);

/* The tensor that a parameter is for. */
typedef struct ckpt_recipe_for {
    const ckpt_recipe_model *model; /* NULL: that of all models */
    const char *tensor;
    double at; /* 0..1: relative position of its layer; 0 outside the layers */
} ckpt_recipe_for;

/*
 * Read a parameter from the most specific setting. A setting is a number, a list of numbers from
 * the first layer to the last, or a list of values with filters (parts of tensor names).
 *
 * *found  false: without a setting, *out is unchanged
 */
int ckpt_recipe_number(const ckpt_recipe *r, const ckpt_recipe_for *of, const char *key,
                       double *out, bool *found, ckpt_err *err);

#endif
