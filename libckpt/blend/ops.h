/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h: one tensor out of those of several models, element by element.
 *
 * As mergekit 0.1.5 defines the methods (merge_methods/linear.py, slerp.py,
 * generalized_task_arithmetic.py, sparsify.py), computed in F32 and rounded once by whoever writes,
 * unless `steps` asks for what mergekit does in a 16-bit dtype:
 *
 *     linear           sum of weight * x, over the sum of the weights if normalized
 *     slerp            along the great circle between two tensors
 *     task_arithmetic  base + lambda * sum of weight * (x - base) (arXiv 2212.04089)
 *     ties             the same of the largest `density` of each difference, and of those elements
 *                      alone whose sign is the sum's (arXiv 2306.01708); of equals at the border
 *                      the first stay, where mergekit takes any
 *     dare_linear      task_arithmetic of differences whose elements are kept with probability
 *                      density, scaled to the same sum of magnitudes (arXiv 2311.03099)
 *     dare_ties        ties with that choice of elements
 */
#ifndef CKPT_BLEND_OPS_H
#define CKPT_BLEND_OPS_H

#include "libckpt/map/nest.h"

typedef enum ckpt_blend_method {
    CKPT_BLEND_LINEAR,
    CKPT_BLEND_SLERP,
    CKPT_BLEND_TASK,
    CKPT_BLEND_TIES,
    CKPT_BLEND_DARE_LINEAR,
    CKPT_BLEND_DARE_TIES,
    CKPT_BLEND_N_METHODS /* none of them */
} ckpt_blend_method;

/* The method of a name; CKPT_BLEND_N_METHODS: unknown. */
ckpt_blend_method ckpt_blend_named(const char *name);
const char *ckpt_blend_name(ckpt_blend_method m);

/* What a method does where nobody says: divide by the weights; scale what is left. */
bool ckpt_blend_normalizes(ckpt_blend_method m);
bool ckpt_blend_rescales(ckpt_blend_method m);

typedef struct ckpt_blend_term {
    const ckpt_tensor *t;
    double weight;
    double density; /* part of the elements of its difference that stays; 1 and more: all */
} ckpt_blend_term;

typedef struct ckpt_blend {
    ckpt_blend_method method;
    const ckpt_tensor *base; /* linear: NULL.  slerp: where t is 0 */
    const ckpt_blend_term *term;
    uint32_t n;
    bool normalize, rescale;
    double lambda;
    double t;      /* slerp: 0..1 */
    uint64_t seed; /* DARE */
    /*
     * F16, BF16: the models are taken as this dtype, and methods of differences round each step to
     * it, as mergekit does in its configuration's dtype; NONE: F32
     */
    ckpt_dtype steps;
    const char *name; /* of the tensor */
} ckpt_blend;

/*
 * Let t, a tensor of the list, be the blend; its terms are hidden tensors or others of the map.  t
 * becomes F32, with its old dtype for exports.
 *
 * Errors   CKPT_ELIMIT
 */
int ckpt_blend_put(ckpt_map *map, ckpt_tensor *t, const ckpt_blend *b, ckpt_err *err);

#endif
