/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update.h: declares a weight that an adapter other than LoRA changes when the weight is read.
 *
 * Computed in F32 like peft 0.21's merge_and_unload on a CPU (tuners/KIND/layer.py).  W is the
 * weight as the matrix [out, in * kernel], k the number of a convolution's kernel elements:
 *
 *   IA3   W times ia3_l, [out, 1], or [1, in] for feed-forward modules; of a convolution
 *         [1, out or in, 1, 1].  The outputs' factors scale the bias too
 *         (https://arxiv.org/abs/2205.05638)
 *   LoHa  W + (w1_a w1_b) * (w2_a w2_b) scale, element by element, with w_a [out, r] and w_b
 *         [r, in * k]; or with t [r, r, k], w_a [r, out] and w_b [r, in], from which a factor is
 *         the sum over i, j of t[i, j] w_a[i] w_b[j] (https://arxiv.org/abs/2108.06098)
 *   LoKr  W + the Kronecker product of w1 and w2 scale, w1 [a, c] or w1_a w1_b, w2 [b, d, k], or
 *         w2_a w2_b, or of t2 as above; out = a b, in = c d (https://arxiv.org/abs/2309.14859)
 *   VeRA  W + (lambda_b B) (lambda_d A), with the first rows of B and columns of A, which all
 *         modules share (https://arxiv.org/abs/2310.11454)
 *   OFT   each block of a row of W times a rotation, the Cayley transform of the skew matrix whose
 *         upper triangle is oft_R, [blocks, s (s - 1) / 2] (https://arxiv.org/abs/2306.07280)
 *
 * An adapter of 16 bits is computed in steps that are each rounded to its dtype.  The writer rounds
 * the result once to the weight's dtype.
 */
#ifndef CKPT_FORMATS_PEFT_UPDATE_H
#define CKPT_FORMATS_PEFT_UPDATE_H

#include "formats/peft/peft.h"
#include "libckpt/map/nest.h"

/* The operands; which are set, and their shapes, depend on the kind. */
typedef struct ckpt_update {
    ckpt_peft_kind kind;
    const ckpt_tensor *base;                    /* the weight: rows x cols as stored */
    const ckpt_tensor *part[CKPT_PEFT_N_PARTS]; /* tensors of the module, by ckpt_peft_part */
    const ckpt_tensor *shared_a, *shared_b;     /* VeRA: A and B of all modules */
    uint64_t rows, cols;
    uint64_t kernel; /* elements of a convolution's kernel; 1 for a linear module */
    uint64_t groups; /* IA3: groups of a convolution's inputs */
    bool turned;     /* transposed: a row is an input, not an output */
    bool inputs;     /* IA3: the factors are those of inputs */
    double scale;    /* LoHa, LoKr, VeRA: factor of the update */
    uint64_t block;  /* OFT: rows of a rotation */
    /* OFT: as in ckpt_peft_config; before: the row is on the left of the rotation (embeddings) */
    bool coft, block_share, cayley_neumann, before;
    double eps;
    uint32_t neumann_terms;
    ckpt_dtype round; /* round each step to this dtype; NONE: do not */
    const char *name; /* name of the weight */
} ckpt_update;

/*
 * Make t, a listed tensor, the changed update->base, a hidden tensor with t's former content.  t
 * becomes F32, with its old dtype for exports.
 *
 * Errors   CKPT_ELIMIT: no memory, or factors of more bytes than a process can address
 */
int ckpt_update_put(ckpt_map *map, ckpt_tensor *t, const ckpt_update *update, ckpt_err *err);

/*
 * Compute OFT's rotations.
 *
 * r        out: [n, s, s], transposed unless o->before, s = o->block
 * work     room for (2 s + 3) s values
 * vectors  [n, s (s - 1) / 2], the upper triangles row by row; the constrained form scales them
 */
void ckpt_update_rotations(const ckpt_update *o, float *r, double *work, float *vectors,
                           uint64_t n);

#endif
