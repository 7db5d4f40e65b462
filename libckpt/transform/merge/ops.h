/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h: merges one tensor of several models, element by element.
 *
 * mergekit 0.1.5 defines the methods (merge_methods/linear.py, slerp.py,
 * generalized_task_arithmetic.py, sparsify.py). They are computed in F32 and rounded once by the
 * writer, unless `steps` requests mergekit's rounding in a 16-bit dtype:
 *
 *     linear           sum of weight * x, over the sum of the weights if normalized
 *     slerp            along the great circle between two tensors
 *     task_arithmetic  base + lambda * sum of weight * (x - base) (arXiv 2212.04089)
 *     ties             task_arithmetic of the largest `density` of each difference, and only of
 *                      elements with the sign of the sum (arXiv 2306.01708); of equal elements at
 *                      the limit the first are kept, where mergekit takes any
 *     dare_linear      task_arithmetic of differences whose elements are kept with probability
 *                      density, scaled to the same sum of magnitudes (arXiv 2311.03099)
 *     dare_ties        ties with elements kept at random as in dare_linear
 */
#ifndef CKPT_TRANSFORM_MERGE_OPS_H
#define CKPT_TRANSFORM_MERGE_OPS_H

#include "libckpt/map/nest.h"

typedef enum ckpt_blend_method {
    CKPT_BLEND_LINEAR,
    CKPT_BLEND_SLERP,
    CKPT_BLEND_TASK,
    CKPT_BLEND_TIES,
    CKPT_BLEND_DARE_LINEAR,
    CKPT_BLEND_DARE_TIES,
    CKPT_BLEND_N_METHODS /* number of methods */
} ckpt_blend_method;

/* Find a method by name; CKPT_BLEND_N_METHODS if it is unknown. */
ckpt_blend_method ckpt_blend_named(const char *name);
const char *ckpt_blend_name(ckpt_blend_method m);

/* Defaults of a method: division by the sum of weights; rescaling of kept elements. */
bool ckpt_blend_normalizes(ckpt_blend_method m);
bool ckpt_blend_rescales(ckpt_blend_method m);

typedef struct ckpt_blend_term {
    const ckpt_tensor *t;
    double weight;
    double density; /* kept fraction of the difference's elements; 1 and more: all */
} ckpt_blend_term;

typedef struct ckpt_blend {
    ckpt_blend_method method;
    const ckpt_tensor *base; /* linear: NULL. slerp: the tensor at t = 0 */
    const ckpt_blend_term *term;
    uint32_t n;
    bool normalize, rescale;
    double lambda;
    double t;      /* slerp: 0..1 */
    uint64_t seed; /* DARE */
    /*
     * F16, BF16: models are rounded to this dtype, and methods with differences round each step to
     * it, as mergekit does in its configuration's dtype; NONE: F32
     */
    ckpt_dtype steps;
    const char *name; /* name of the tensor */
} ckpt_blend;

/*
 * Make t, a tensor of the map's list, the merge of the terms, which are hidden or other tensors of
 * the map. t becomes F32, with its old dtype as export dtype.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_blend_put(ckpt_map *map, ckpt_tensor *t, const ckpt_blend *b, ckpt_err *err);

#endif
